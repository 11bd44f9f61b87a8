//! The top Via of a request: what the server writes into it, and where responses go by it (RFC 3261 sections 18.2.1 and
//! 18.2.2, RFC 3581).

use std::net::SocketAddr;
use strowger_core::{Arrival, Target};
use strowger_message::header::Via;
use strowger_message::{Edit, Host, Message, Write};

/// Appends the request with `received` and `rport` filled in to `out`, and returns true; or returns false if the Via says
/// already what it must say. What the sender wrote there itself is not believed.
pub(crate) fn complete(
    message: &Message<'_>,
    top: &Via<'_>,
    remote: &SocketAddr,
    force_rport: bool,
    edit: &mut Edit,
    out: &mut Vec<u8>,
) -> bool {
    edit.clear();
    if !edit_via(message, top, remote, force_rport, edit) {
        return false;
    }
    edit.write(message, out);
    true
}

/// Writes the first Via line's values, completed, for a response to a request that cannot be read whole. `scratch` is
/// cleared.
pub(crate) fn write_completed(
    message: &Message<'_>,
    top: &Via<'_>,
    remote: &SocketAddr,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> bool {
    let mut edit = Edit::new();
    if !edit_via(message, top, remote, false, &mut edit) {
        return false;
    }
    let Some(line) = message.index().first(strowger_message::Name::Via) else { return false };
    let rest = message.bytes().len() - line.value_end as usize;
    scratch.clear();
    edit.write(message, scratch);
    out.extend_from_slice(&scratch[line.value as usize..scratch.len() - rest]);
    true
}

fn edit_via(message: &Message<'_>, top: &Via<'_>, remote: &SocketAddr, force_rport: bool, edit: &mut Edit) -> bool {
    let ip = Host::from(remote.ip().to_canonical());
    let wants_rport = top.rport.is_some() || force_rport;
    let wants_received = wants_rport || top.received.is_some() || top.host != ip;
    if !wants_received {
        return false;
    }
    if let Some(given) = top.rport {
        let range = message.range_of(given);
        // An empty one stands right behind its name.
        let equals = given.is_empty() && (range.start == 0 || message.bytes()[range.start - 1] != b'=');
        edit.replace(range, |text| {
            if equals {
                text.push(b'=');
            }
            (remote.port() as u32).write(text);
        });
    }
    let write_ip = |text: &mut Vec<u8>| match remote.ip().to_canonical() {
        // Without brackets (RFC 5118 section 4.5).
        std::net::IpAddr::V6(ip) => text.extend_from_slice(ip.to_string().as_bytes()),
        ip => Host::from(ip).write(text),
    };
    let end = message.range_of(top.text).end;
    match top.received {
        Some(given) => edit.replace(message.range_of(given), write_ip),
        None => edit.insert(end, |text| {
            text.extend_from_slice(b";received=");
            write_ip(text);
        }),
    }
    if top.rport.is_none() && force_rport {
        edit.insert(end, |text| {
            text.extend_from_slice(b";rport=");
            (remote.port() as u32).write(text);
        });
    }
    true
}

/// Where the response to a request with this top Via goes. `maddr` is not followed: it would send responses where the
/// sender likes.
pub(crate) fn reply_target(top: &Via<'_>, arrival: &Arrival) -> Target {
    let mut target = arrival.reply();
    let port = top.port.unwrap_or_else(|| arrival.transport.default_port());
    if arrival.transport.is_reliable() {
        // If the connection is gone: a new one to where the sender listens (section 18.2.2).
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
