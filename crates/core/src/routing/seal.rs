//! Seal of a Contact: a parameter of its URI that later proves the party of the Contact, and the address to reach it.
//!
//! The route token of our Record-Route was written before a party changes its Contact within a call. So the seal proves
//! that the new Contact is that of the party with this tag of this call. It also contains the real source address and
//! connection of a device behind NAT or on a stream. The whole seal is authenticated together with the target of the
//! URI, contains a time, and is removed before the request is sent to the device, which gets its own Contact unchanged.
//!
//! The verification of a seal needs no other value. So a Refer-To with the Contact of a party is routed to that party
//! too, for a sender whose requests this server relays (RFC 5589 section 7: attended transfer).

use super::clock_steps::ClockSteps;
use super::route_token::{fresh, seconds};
use super::scope::Scope;
use super::uri_target::UriTarget;
use super::usage::Usage;
use crate::siphash::SipKey;
use crate::{Flow, Now, Transport, base64};
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use strowger_message::uri::SipUri;
use subtle::ConstantTimeEq;

/// Name of the parameter.
pub const NAME: &[u8] = b"x-strowger";

/// Maximum number of parameters of this name that are read: servers with other secrets may have written some.
const MOST: usize = 4;

/// Bytes before the device: flags, usage (two bits) and writer, time, call and party.
const HEAD: usize = 13;
const CODE: usize = 12;

/// Version of the format. A seal of version [`BEFORE`] has no usage and reads as [`Usage::Early`].
const VERSION: u8 = 2 << 6;
const BEFORE: u8 = 1 << 6;
/// Transport of the device or, if there is no device, scope of the party's source address.
const TRANSPORT: u8 = 0b111;
const DEVICE: u8 = 1 << 3;
const V6: u8 = 1 << 4;
const FLOW: u8 = 1 << 5;

/// Source address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    /// Transport of its messages.
    pub transport: Transport,
    /// Source address of the device's messages; behind NAT, the address of the NAT.
    pub address: SocketAddr,
    /// Connection of its messages, if any.
    pub flow: Option<Flow>,
}

/// Valid seal of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal<'a> {
    /// Value of the parameter.
    pub(crate) text: &'a [u8],
    /// Real address of the device; `None` if the device is reached at its Contact.
    pub(crate) device: Option<DeviceAddress>,
    /// Scope of the party's source address.
    pub(crate) scope: Scope,
    /// Usage of the dialog in which it was written.
    pub(crate) usage: Usage,
    /// Unix time of writing, in seconds of the current wall clock.
    pub(crate) made: u32,
    /// Set if this server wrote the seal, and not another server with the same secret.
    pub(crate) own: bool,
    /// Set if the Contact belongs to the party with this tag of this call.
    pub(crate) of_party: bool,
}

/// Writer and reader of seals. Servers with the same secret read each other's seals.
#[derive(Clone)]
pub(crate) struct Seals {
    key: SipKey,
    parties: SipKey,
    writer: [u8; 2],
    /// Validity in seconds.
    lifetime: u32,
    pub(super) clock_steps: Arc<ClockSteps>,
}

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seals(..)")
    }
}

impl Seals {
    /// Creates the keys. `name`: unique among servers with the same secret.
    pub(crate) fn new(secret: &[u8], name: &[u8], lifetime: u32) -> Self {
        let mut writer = SipKey::derive(secret, b"strowger contact writer 2").begin();
        writer.part(name);
        Self {
            key: SipKey::derive(secret, b"strowger contact 2"),
            parties: SipKey::derive(secret, b"strowger contact party 2"),
            writer: without_usage(writer.bytes()),
            lifetime,
            clock_steps: Arc::default(),
        }
    }

    /// Writes `;x-strowger=...` for the Contact `uri` of a party of the call. `tag`: tag of the party. `scope`: scope of its source
    /// address.
    #[expect(clippy::too_many_arguments, reason = "each says one thing about the Contact")]
    pub(crate) fn write(
        &self,
        now: Now,
        call_id: &[u8],
        tag: &[u8],
        uri: &SipUri<'_>,
        device: Option<&DeviceAddress>,
        (scope, usage): (Scope, Usage),
        out: &mut Vec<u8>,
    ) {
        let mut bytes: SmallVec<[u8; 64]> = SmallVec::new();
        bytes.push(VERSION | if device.is_none() { scope.bits() } else { 0 });
        bytes.extend_from_slice(&[(usage as u8) << 6 | self.writer[0], self.writer[1]]);
        bytes.extend_from_slice(&seconds(now).to_be_bytes());
        bytes.extend_from_slice(&self.party(call_id, tag));
        if let Some(device) = device {
            bytes[0] |= DEVICE | device.transport as u8;
            match device.address.ip() {
                IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
                IpAddr::V6(ip) => {
                    bytes[0] |= V6;
                    bytes.extend_from_slice(&ip.octets());
                }
            }
            bytes.extend_from_slice(&device.address.port().to_be_bytes());
            if let Some(flow) = device.flow {
                bytes[0] |= FLOW;
                bytes.extend_from_slice(&flow.to_bytes());
            }
        }
        let code = self.code(&bytes, uri);
        bytes.extend_from_slice(&code);
        out.push(b';');
        out.extend_from_slice(NAME);
        out.push(b'=');
        let from = out.len();
        out.resize(from + base64::len(bytes.len()), 0);
        base64::encode(&bytes, &mut out[from..]);
    }

    /// Returns a valid seal of a URI, if there is one. The seal of the party with this tag of the call is preferred.
    pub(crate) fn find<'a>(&self, now: Now, call_id: &[u8], tag: &[u8], uri: &SipUri<'a>) -> Option<Seal<'a>> {
        let mut found = None;
        let values = uri.params.iter().filter(|(name, _)| name.eq_ignore_ascii_case(NAME)).filter_map(|(_, v)| v);
        for text in values.take(MOST) {
            let Some(seal) = self.read(now, call_id, tag, uri, text) else { continue };
            if seal.of_party {
                return Some(seal);
            }
            found = found.or(Some(seal));
        }
        found
    }

    fn read<'a>(&self, now: Now, call_id: &[u8], tag: &[u8], uri: &SipUri<'_>, text: &'a [u8]) -> Option<Seal<'a>> {
        // The longest seal has a flow from an IPv6 address.
        let mut bytes = [0; HEAD + 18 + 13 + CODE];
        let len = text.len() * 3 / 4;
        let bytes = bytes.get_mut(..len)?;
        if len < HEAD + CODE || !base64::decode(text, bytes) {
            return None;
        }
        let (clear, code) = bytes.split_at(len - CODE);
        if !bool::from(self.code(clear, uri)[..].ct_eq(code)) {
            return None;
        }
        // The seal is authenticated, so the remaining bytes are as a server with our secret wrote them.
        let mut rest = Bytes(clear);
        let [flags] = rest.take()?;
        let writer: [u8; 2] = rest.take()?;
        let made = u32::from_be_bytes(rest.take()?);
        let party: [u8; 6] = rest.take()?;
        let usage = match flags & (0b11 << 6) {
            VERSION => Usage::of_bits(writer[0] >> 6),
            BEFORE => Usage::Early,
            _ => return None,
        };
        let made = fresh(now, made, self.lifetime, &self.clock_steps)?;
        let device = if flags & DEVICE == 0 { None } else { Some(DeviceAddress::read(flags, &mut rest)?) };
        let of_party = !tag.is_empty() && self.party(call_id, tag) == party;
        let scope = device.map_or_else(|| Scope::of_bits(flags & TRANSPORT), |device| Scope::of(device.address.ip()));
        let own = without_usage(writer) == self.writer;
        Some(Seal { text, device, scope, usage, made, own, of_party })
    }

    fn party(&self, call_id: &[u8], tag: &[u8]) -> [u8; 6] {
        let mut hash = self.parties.begin();
        hash.part(call_id);
        hash.part(tag);
        hash.bytes()
    }

    fn code(&self, bytes: &[u8], uri: &SipUri<'_>) -> [u8; CODE] {
        let mut hash = self.key.begin();
        hash.part(bytes);
        UriTarget::of(uri).feed(&mut hash);
        hash.bytes()
    }
}

/// Clears the two bits of the usage; the other bits identify the writer.
const fn without_usage([first, second]: [u8; 2]) -> [u8; 2] {
    [first & 0b11_1111, second]
}

impl DeviceAddress {
    fn read(flags: u8, rest: &mut Bytes<'_>) -> Option<Self> {
        let transport = *Transport::ALL.get(usize::from(flags & TRANSPORT))?;
        let ip = match flags & V6 {
            0 => IpAddr::from(rest.take::<4>()?),
            _ => IpAddr::from(rest.take::<16>()?),
        };
        let port = u16::from_be_bytes(rest.take()?);
        let flow = match flags & FLOW {
            0 => None,
            _ => Some(Flow::from_bytes(rest.take()?)),
        };
        Some(Self { transport, address: SocketAddr::new(ip, port), flow })
    }
}

/// Byte slice read from the front.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::Uri;

    const NOW: Now = Now { mono: 0, wall: 1_700_000_000_000 };

    fn seals(secret: &str, name: &str) -> Seals {
        Seals::new(secret.as_bytes(), name.as_bytes(), 86_400)
    }

    fn sealed(seals: &Seals, uri: &str, device: Option<&DeviceAddress>) -> String {
        let parsed = Uri::parse(uri.as_bytes()).unwrap();
        let mut out = uri.as_bytes().to_vec();
        seals.write(NOW, b"call", b"alice", parsed.sip().unwrap(), device, (Scope::Site, Usage::Call), &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Returns the facts of the seal that was found: device, whether this server wrote the seal, whether it belongs to
    /// this party.
    fn found(seals: &Seals, now: Now, tag: &str, uri: &str) -> Option<(Option<DeviceAddress>, bool, bool)> {
        let uri = Uri::parse(uri.as_bytes()).unwrap();
        let seal = seals.find(now, b"call", tag.as_bytes(), uri.sip().unwrap())?;
        Some((seal.device, seal.own, seal.of_party))
    }

    fn devices() -> Vec<Option<DeviceAddress>> {
        let flow = Flow { node: 1, process: 0xfedc, shard: 3, slot: 400_000, generation: u32::MAX };
        let mut devices = vec![None];
        for address in ["192.0.2.1:5060", "[2001:db8::1]:40000"] {
            for transport in Transport::ALL {
                for flow in [None, Some(flow)] {
                    devices.push(Some(DeviceAddress { transport, address: address.parse().unwrap(), flow }));
                }
            }
        }
        devices
    }

    #[test]
    fn read_as_written() {
        let (one, other) = (seals("secret", "one"), seals("secret", "other"));
        for device in devices() {
            for uri in ["sip:alice@10.0.0.1:5070;x=y", "sips:h", "sip:a@x1.invalid;transport=ws;ob"] {
                let text = sealed(&one, uri, device.as_ref());
                assert_eq!(found(&one, NOW, "alice", &text), Some((device, true, true)), "{text}");
                assert_eq!(found(&one, NOW, "bob", &text), Some((device, true, false)));
                assert_eq!(found(&one, NOW, "", &text), Some((device, true, false)));
                assert_eq!(found(&other, NOW, "alice", &text), Some((device, false, true)));
                assert_eq!(found(&seals("Secret", "one"), NOW, "alice", &text), None);
            }
        }
    }

    #[test]
    fn a_seal_says_how_far_its_party_reached() {
        let seals = seals("secret", "one");
        let parsed = Uri::parse(b"sip:a@h").unwrap();
        let scope_of = |scope, device: Option<&DeviceAddress>| {
            let mut text = b"sip:a@h".to_vec();
            let facts = (scope, Usage::Call);
            seals.write(NOW, b"call", b"alice", parsed.sip().unwrap(), device, facts, &mut text);
            let sealed = Uri::parse(&text).unwrap();
            let seal = seals.find(NOW, b"call", b"alice", sealed.sip().unwrap());
            seal.map(|seal| (seal.device.is_some(), seal.scope))
        };
        for scope in [Scope::Machine, Scope::Link, Scope::Site, Scope::Carrier, Scope::World] {
            assert_eq!(scope_of(scope, None), Some((false, scope)));
            for device in devices().iter().flatten() {
                assert_eq!(scope_of(scope, Some(device)), Some((true, Scope::World)));
            }
        }
    }

    #[test]
    fn a_seal_states_the_usage_of_its_dialog() {
        let seals = seals("secret", "one");
        let uri = Uri::parse(b"sip:a@h").unwrap();
        for device in devices() {
            for usage in [Usage::Subscription, Usage::Early, Usage::Call, Usage::TrackedCall] {
                let mut text = b"sip:a@h".to_vec();
                let facts = (Scope::Site, usage);
                seals.write(NOW, b"call", b"alice", uri.sip().unwrap(), device.as_ref(), facts, &mut text);
                let sealed = Uri::parse(&text).unwrap();
                let seal = seals.find(NOW, b"call", b"alice", sealed.sip().unwrap()).unwrap();
                assert_eq!((seal.usage, seal.made, seal.own, seal.device), (usage, seconds(NOW), true, device));
            }
        }
    }

    #[test]
    fn a_seal_of_the_earlier_format_states_no_usage() {
        let seals = seals("secret", "one");
        let uri = Uri::parse(b"sip:a@h").unwrap();
        for version in 0..4 {
            let mut bytes = vec![version << 6 | Scope::Site.bits(), 0xff, 0xff];
            bytes.extend_from_slice(&seconds(NOW).to_be_bytes());
            bytes.extend_from_slice(&seals.party(b"call", b"alice"));
            let code = seals.code(&bytes, uri.sip().unwrap());
            bytes.extend_from_slice(&code);
            let mut text = b"sip:a@h;x-strowger=".to_vec();
            let from = text.len();
            text.resize(from + base64::len(bytes.len()), 0);
            base64::encode(&bytes, &mut text[from..]);
            let sealed = Uri::parse(&text).unwrap();
            let usage = seals.find(NOW, b"call", b"alice", sealed.sip().unwrap()).map(|seal| seal.usage);
            let expected = [None, Some(Usage::Early), Some(Usage::TrackedCall), None];
            assert_eq!(usage, expected[usize::from(version)], "{version}");
        }
    }

    #[test]
    fn it_belongs_to_its_contact() {
        let seals = seals("secret", "one");
        let text = sealed(&seals, "sip:alice@10.0.0.1:5070", None);
        assert!(found(&seals, NOW, "alice", &format!("{text};ob")).is_some(), "what leads nowhere may change");
        for (from, to) in [("alice@", "bob@"), ("10.0.0.1", "10.0.0.2"), (":5070", ""), ("sip:", "sips:")] {
            assert!(found(&seals, NOW, "alice", &text.replace(from, to)).is_none(), "{from} {to}");
        }
        for added in [";transport=tcp", ";maddr=10.0.0.9"] {
            assert!(found(&seals, NOW, "alice", &format!("{text}{added}")).is_none(), "{added}");
        }
    }

    #[test]
    fn no_changed_character_is_accepted() {
        let seals = seals("secret", "one");
        for device in devices() {
            let text = sealed(&seals, "sip:a@h", device.as_ref());
            let from = text.find('=').unwrap() + 1;
            for at in from..text.len() {
                for character in "ABZaz09-_%.".chars() {
                    let mut forged = text.clone();
                    forged.replace_range(at..=at, &character.to_string());
                    if forged != text && Uri::parse(forged.as_bytes()).is_ok() {
                        assert_eq!(found(&seals, NOW, "alice", &forged), None, "{forged}");
                    }
                }
            }
            for length in from..text.len() {
                assert_eq!(found(&seals, NOW, "alice", &text[..length]), None);
            }
            assert_eq!(found(&seals, NOW, "alice", &format!("{text}AAAA")), None);
            assert_eq!(found(&seals, NOW, "alice", &format!("{text}{}", "A".repeat(200))), None);
        }
    }

    #[test]
    fn it_ends() {
        let seals = seals("secret", "one");
        let text = sealed(&seals, "sip:a@h", None);
        let after = |seconds: u64| Now { wall: NOW.wall + seconds * 1000, ..NOW };
        assert!(found(&seals, after(86_400), "alice", &text).is_some());
        assert!(found(&seals, after(86_401), "alice", &text).is_none());
    }

    #[test]
    fn the_seal_of_the_party_is_found_among_several() {
        let (own, foreign) = (seals("secret", "one"), seals("other", "one"));
        // A server with another secret wrote its seal first, then this server. Each server finds its own seal.
        let text = sealed(&own, &sealed(&foreign, "sip:a@h", None), None);
        assert!(found(&own, NOW, "alice", &text).is_some() && found(&foreign, NOW, "alice", &text).is_some());
        // A seal of another call precedes that of this one.
        let mut copied = b"sip:a@h".to_vec();
        let uri = Uri::parse(b"sip:a@h").unwrap();
        own.write(NOW, b"another call", b"alice", uri.sip().unwrap(), None, (Scope::Site, Usage::Call), &mut copied);
        let copied = String::from_utf8(copied).unwrap();
        assert_eq!(found(&own, NOW, "alice", &copied), Some((None, true, false)));
        assert_eq!(found(&own, NOW, "alice", &sealed(&own, &copied, None)), Some((None, true, true)));
        // The number of parameters read is bounded.
        let many = format!("sip:a@h{}", ";x-strowger=AAAA".repeat(MOST));
        assert_eq!(found(&own, NOW, "alice", &sealed(&own, &many, None)), None);
    }
}
