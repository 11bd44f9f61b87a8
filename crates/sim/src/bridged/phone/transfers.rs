//! Attended transfers (RFC 5589 section 7): the transferor has two calls, and refers the peer of one to that of the other. The peer follows by an
//! INVITE with Replaces (RFC 3891), as it was told.

use super::events::number_in;
use super::tasks::Task;
use super::{DOMAIN, FALLBACK, Phone, Role, server};
use std::fmt::Write;
use strowger_core::user_agent::{CallKey, DialogName, Invite};
use strowger_core::{Now, Outbox};
use strowger_message::uri::sip::unescaped;
use strowger_message::{Index, Limits, Message, Method, Name, NameAddr, SipUri, Uri};

/// Outcomes of a transfer in its NOTIFY.
pub(super) const SUCCESS: &str = "SIP/2.0 200 OK\r\n";
pub(super) const FAILURE: &str = "SIP/2.0 603 Decline\r\n";

/// Attended transfer that a phone is to make.
#[derive(Clone, Copy, Debug)]
pub(in crate::bridged) struct Transfer {
    /// Numbers of the call whose peer is referred, and of the call in which it is to take the place of this phone.
    pub(in crate::bridged) numbers: [u32; 2],
    /// User at the other end of the second call.
    pub(in crate::bridged) user: &'static str,
    /// Time at which the phone gives up if the calls are not up.
    pub(in crate::bridged) until: u64,
}

/// Call that a REFER asks for.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    /// Place of the call in which the phone was referred.
    referred: usize,
    /// Number of the call in which it is to take the place of a party.
    number: u32,
    uri: Vec<u8>,
    replaces: Vec<u8>,
}

impl Phone {
    /// Refers the peer of one call to that of another one, once both are up.
    pub(super) fn transfer(&mut self, now: Now, transfer: Transfer, out: &mut Outbox) {
        let place = |number: u32| self.calls.iter().position(|call| call.number == number);
        let [Some(first), Some(second)] = transfer.numbers.map(place) else {
            return self.transfer_later(now, transfer);
        };
        if [first, second].iter().any(|at| self.calls[*at].ended.is_some()) {
            return;
        }
        let is_up = [first, second].iter().all(|at| self.calls[*at].is_up);
        let name = self.endpoint.agent.dialog_name(self.calls[second].key).filter(|_| is_up);
        let Some(DialogName { call_id, local_tag, remote_tag }) = name else {
            return self.transfer_later(now, transfer);
        };
        let replaces = [&call_id[..], &b";to-tag="[..], &remote_tag[..], &b";from-tag="[..], &local_tag[..]].concat();
        // Subject tells the number of the second call, which no other line shows.
        let (user, number, replaces) = (transfer.user, transfer.numbers[1], escaped(&replaces));
        let line = format!("Refer-To: <sip:{user}@{DOMAIN}?Subject=call{number}&Replaces={replaces}>\r\n");
        self.ask(now, first, Method::Refer.text(), (line.as_bytes(), b""), out);
        self.acts.referrals += 1;
        for (at, chance) in [(first, 300), (second, 150)] {
            self.calls[at].is_transferred = true;
            if self.random.chance(chance) {
                let ends = now.mono + self.random.between(0, 6_000);
                self.plan(ends, Task::HangUp(at));
            }
        }
        if self.random.chance(200) {
            let again = now.mono + self.random.between(0, 9_000);
            self.plan(again, Task::Transfer(transfer));
        }
    }

    /// Tries a transfer again, unless it is too late.
    fn transfer_later(&mut self, now: Now, transfer: Transfer) {
        if now.mono < transfer.until {
            self.plan(now.mono + 500, Task::Transfer(transfer));
        }
    }

    /// Takes the news that a peer has followed: most phones hang up.
    pub(super) fn has_transferred(&mut self, now: Now, at: usize) {
        self.acts.successes += 1;
        if self.random.chance(700) {
            let ends = now.mono + self.random.between(0, 2_000);
            self.plan(ends, Task::HangUp(at));
        }
    }

    /// Reads the REFER of the last event, in the call at `referred`; `None` if its Refer-To has no Replaces.
    pub(super) fn reference(&self, referred: usize) -> Option<Reference> {
        let (bytes, mut index) = (self.endpoint.agent.message(), Index::new());
        index.parse(bytes, &Limits::default()).ok()?;
        let message = Message::new(bytes, &index);
        let address = NameAddr::parse(message.header(Name::ReferTo)?).ok()?;
        let Uri::Sip(uri) = address.uri else { return None };
        let header = |name: &[u8]| {
            let pair = uri.header_pairs().find(|(of, _)| of.eq_ignore_ascii_case(name));
            pair.map(|(_, value)| unescaped(value).collect::<Vec<u8>>())
        };
        let (number, replaces) = (number_in(&header(b"Subject")?), header(b"Replaces")?);
        let mut text = Vec::new();
        SipUri { headers: b"", ..uri }.write(&mut text);
        Some(Reference { referred, number, uri: text, replaces })
    }

    /// Plans to follow a reference, or not. Returns the status of the REFER.
    pub(super) fn referred(&mut self, now: Now, reference: Reference) -> u16 {
        if self.random.chance(100) {
            return 603;
        }
        self.calls[reference.referred].is_transferred = true;
        let follows = now.mono + *self.random.pick(&[0, 1, 500, 3_000]);
        // At full seconds, so that the INVITE crosses a request of another party.
        let follows = if self.random.chance(300) { follows.next_multiple_of(1_000) } else { follows };
        self.references.push(reference);
        self.plan(follows, Task::Follow(self.references.len() - 1));
        202
    }

    /// Makes the call of a reference.
    pub(super) fn follow(&mut self, now: Now, reference: usize, out: &mut Outbox) {
        let Reference { referred, number, uri, replaces } = self.references[reference].clone();
        let (call_id, from) = (self.new_call_id(), format!("\"call{number}\" <sip:{}@{DOMAIN}>", self.user));
        let at = self.begin(now, CallKey::from_u64(0), (number, Role::Newcomer(referred)), call_id.clone());
        let offer = if self.random.chance(150) { Vec::new() } else { self.calls[at].sound.offer() };
        let headers = [&b"Replaces: "[..], &replaces[..], &b"\r\n"[..]].concat();
        let invite =
            Invite { call_id: &call_id, headers: &headers, ..Invite::new(from.as_bytes(), &uri, server(), &offer) };
        let key = self.agent(now, out, |agent, round| agent.invite(round, &invite)).expect("both addresses are right");
        self.calls[at].key = key;
        let patience = if self.random.chance(150) { self.random.between(0, 3_000) } else { FALLBACK };
        self.plan(now.mono + patience, Task::HangUp(at));
    }

    /// Plans the NOTIFY about a call that follows a reference.
    pub(super) fn report(&mut self, now: Now, at: usize, outcome: &'static str) {
        if let Role::Newcomer(referred) = self.calls[at].role {
            let told = now.mono + self.random.between(0, 500);
            self.plan(told, Task::Notify(referred, outcome));
        }
    }
}

/// Returns the value of a header of a URI with escapes.
fn escaped(text: &[u8]) -> String {
    text.iter().fold(String::new(), |mut escaped, byte| {
        let _ = match byte {
            b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => write!(escaped, "{}", char::from(*byte)),
            _ => write!(escaped, "%{byte:02X}"),
        };
        escaped
    })
}
