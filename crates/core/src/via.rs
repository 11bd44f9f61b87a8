//! Top Via of a request: completion by its receiver, and the target of responses (RFC 3261 sections 18.2.1 and 18.2.2, RFC 3581). The
//! sender's own `received` and `rport` are not believed.

use crate::{Arrival, Target};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use strowger_message::header::Via;
use strowger_message::{Edit, Host, Message, Name, Write};

/// Appends the request with `received` and `rport` in its top Via to `out`, and returns true; or returns false if the Via is complete.
/// `force_rport`: as if the sender had asked for `rport`. `edit` is cleared.
pub fn complete(
    message: &Message<'_>,
    top: &Via<'_>,
    source: &SocketAddr,
    force_rport: bool,
    edit: &mut Edit,
    out: &mut Vec<u8>,
) -> bool {
    let Some(line) = message.index().first(Name::Via).filter(|_| is_incomplete(top, source, force_rport)) else {
        return false;
    };
    edit.clear();
    edit.replace(line.value as usize..line.value_end as usize, |text| {
        write_completed(message, top, source, force_rport, text);
    });
    edit.write(message, out);
    true
}

/// Appends the values of the first Via line with `received` and `rport` to `out`, for a response, and returns true; or returns false if
/// they stay unchanged.
pub fn write_completed(
    message: &Message<'_>,
    top: &Via<'_>,
    source: &SocketAddr,
    force_rport: bool,
    out: &mut Vec<u8>,
) -> bool {
    let Some(line) = message.index().first(Name::Via).filter(|_| is_incomplete(top, source, force_rport)) else {
        return false;
    };
    let end = message.range_of(top.text).end;
    let received = ParameterPosition { given: top.received.map(|given| message.range_of(given)), end };
    let rport = ParameterPosition { given: top.rport.map(|given| message.range_of(given)), end };
    let mut text = Text { bytes: message.bytes(), at: line.value as usize, out };
    let write_received = |text: &mut Text<'_>| {
        text.put(&received, b";received=", |out| match source.ip().to_canonical() {
            // Without brackets (RFC 5118 section 4.5).
            IpAddr::V6(ip) => out.extend_from_slice(ip.to_string().as_bytes()),
            ip => Host::from(ip).write(out),
        });
    };
    let write_rport = |text: &mut Text<'_>| {
        if rport.given.is_some() || force_rport {
            text.put(&rport, b";rport=", |out| u32::from(source.port()).write(out));
        }
    };
    // In the order of the received parameters.
    if rport.given.as_ref().is_some_and(|given| given.start <= received.start()) {
        write_rport(&mut text);
        write_received(&mut text);
    } else {
        write_received(&mut text);
        write_rport(&mut text);
    }
    text.copy_to(line.value_end as usize);
    true
}

/// Tells whether a Via lacks something about its sender, or contradicts the source that its receiver has seen (section 18.2.1).
fn is_incomplete(top: &Via<'_>, source: &SocketAddr, force_rport: bool) -> bool {
    force_rport || top.rport.is_some() || top.received.is_some() || top.host != Host::from(source.ip().to_canonical())
}

/// Position of a parameter's value: replaces the given one, or follows its name at the end of the Via.
struct ParameterPosition {
    given: Option<Range<usize>>,
    end: usize,
}

impl ParameterPosition {
    fn start(&self) -> usize {
        self.given.as_ref().map_or(self.end, |given| given.start)
    }
}

/// Output, and the position up to which the message was copied.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
    out: &'a mut Vec<u8>,
}

impl Text<'_> {
    fn copy_to(&mut self, to: usize) {
        self.out.extend_from_slice(&self.bytes[self.at..to]);
        self.at = to;
    }

    fn put(&mut self, place: &ParameterPosition, name: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
        self.copy_to(place.start());
        match &place.given {
            None => self.out.extend_from_slice(name),
            Some(given) => {
                // A parameter without a value: its name is followed by nothing.
                if given.is_empty() && self.out.last() != Some(&b'=') {
                    self.out.push(b'=');
                }
                self.at = given.end;
            }
        }
        value(self.out);
    }
}

/// Returns the target of the response to a request with this top Via. `maddr` is ignored: by it the sender could direct responses to
/// any host.
pub fn reply_target(top: &Via<'_>, arrival: &Arrival) -> Target {
    let mut target = arrival.reply();
    if target.is_loopback() {
        return target;
    }
    let port = top.port.unwrap_or_else(|| arrival.transport.default_port());
    if arrival.transport.is_reliable() {
        // If the connection is gone: a new one to the port where the sender listens (section 18.2.2).
        target.listens = port;
    } else if top.rport.is_none() && port != 0 {
        target.address.set_port(port);
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::{Index, Limits};

    fn completed(via: &str, remote: &str, force: bool) -> Option<String> {
        let text = format!("OPTIONS sip:a@b SIP/2.0\r\nVia: {via}\r\nTo: x\r\n\r\n");
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).unwrap();
        let message = Message::new(text.as_bytes(), &index);
        let mut out = Vec::new();
        complete(&message, &message.via().unwrap(), &remote.parse().unwrap(), force, &mut Edit::new(), &mut out)
            .then(|| String::from_utf8(out).unwrap().lines().nth(1).unwrap().strip_prefix("Via: ").unwrap().to_owned())
    }

    #[test]
    fn received_and_rport() {
        let same = "192.0.2.1:5060";
        assert_eq!(completed("SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1", same, false), None);
        let cases = [
            ("SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK1", "SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK1;received=192.0.2.1"),
            ("SIP/2.0/UDP 192.0.2.1;rport;branch=z1", "SIP/2.0/UDP 192.0.2.1;rport=5060;branch=z1;received=192.0.2.1"),
            ("SIP/2.0/UDP a.example;branch=z1;rport", "SIP/2.0/UDP a.example;branch=z1;rport=5060;received=192.0.2.1"),
            (
                "SIP/2.0/UDP h;received=9.9.9.9;rport=1, SIP/2.0/UDP x",
                "SIP/2.0/UDP h;received=192.0.2.1;rport=5060, SIP/2.0/UDP x",
            ),
            ("SIP/2.0/UDP h;rport=;branch=z1", "SIP/2.0/UDP h;rport=5060;branch=z1;received=192.0.2.1"),
            ("SIP/2.0/UDP h, SIP/2.0/UDP x", "SIP/2.0/UDP h;received=192.0.2.1, SIP/2.0/UDP x"),
        ];
        for (via, want) in cases {
            assert_eq!(completed(via, same, false).as_deref(), Some(want));
        }
        let forced = completed("SIP/2.0/UDP 192.0.2.1;branch=z1", same, true).unwrap();
        assert_eq!(forced, "SIP/2.0/UDP 192.0.2.1;branch=z1;received=192.0.2.1;rport=5060");
        let six = completed("SIP/2.0/UDP [2001:db8::9]", "[2001:db8::1]:5060", false).unwrap();
        assert_eq!(six, "SIP/2.0/UDP [2001:db8::9];received=2001:db8::1");
    }
}
