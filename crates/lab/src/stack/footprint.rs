//! Memory of a transaction and of a dialog: growth of this process while many are held, between two powers of two.

use super::layer::{Calls, Layer, Side, Stateless, Transactional};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, Transport};
use strowger_measure::process::Memory;

/// Number of units at the first and the second look. Tables double once in between.
const HELD: [u32; 2] = [1 << 14, 1 << 15];

/// Calls that are set up before their transactions end.
const AT_ONCE: u32 = 256;

/// Time after which the transactions of a call have ended (64*T1), in milliseconds.
const LATER: u64 = 33_000;

fn side(own: u16, peer: u16) -> Side {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Side { transport: Transport::Udp, own: at(own), peer: at(peer), secret: 1, seed: [own as u8; 32] }
}

/// Ports of the two sides. Nothing is sent.
const CALLING: u16 = 40_001;
const ANSWERING: u16 = 40_002;

fn arrival() -> Arrival {
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, CALLING));
    Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None }
}

/// Returns the memory per unit in bytes, from two measurements with different numbers of units. `hold` creates the
/// units.
fn slope(mut hold: impl FnMut(u32)) -> f64 {
    let [before, after] = HELD.map(|count| {
        hold(count);
        Memory::of_tree(std::process::id()).unbacked
    });
    after.saturating_sub(before) as f64 / f64::from(HELD[1] - HELD[0])
}

/// Measures a server transaction by UDP that has been answered, and waits with its response for copies of the request (Timer J).
pub fn transaction_bytes() -> f64 {
    let (caller, answering) = (side(CALLING, ANSWERING), side(ANSWERING, CALLING));
    let mut requests = Stateless::new(&caller, 0);
    let mut server = Transactional::new(&answering, 0);
    let target = Target::new(Transport::Udp, ListenerId(0), caller.peer);
    let now = Now { mono: 1_000, wall: 1_700_000_000_000 };
    let (mut out, mut sent, mut held) = (Outbox::new(), Outbox::new(), 0);
    slope(|count| {
        while held < count {
            requests.begin(now, &target, &mut sent);
            server.receive(now, &arrival(), &sent.bytes, &mut out);
            sent.clear();
            out.clear();
            held += 1;
        }
    })
}

/// Measures an answered call at the callee whose transactions have ended.
pub fn dialog_bytes() -> f64 {
    let mut callee = Calls::new(&side(ANSWERING, CALLING), 0);
    let mut now = Now { mono: 1_000, wall: 1_700_000_000_000 };
    let (mut out, mut text, mut held) = (Outbox::new(), String::new(), 0);
    slope(|count| {
        while held < count {
            for number in held..held + AT_ONCE {
                request(&mut text, "INVITE", number, "");
                callee.receive(now, &arrival(), text.as_bytes(), &mut out);
                let tag = to_tag(&out.bytes);
                out.clear();
                request(&mut text, "ACK", number, &tag);
                callee.receive(now, &arrival(), text.as_bytes(), &mut out);
                out.clear();
            }
            held += AT_ONCE;
            now.mono += LATER;
            while callee.deadline().is_some_and(|due| due <= now.mono) && callee.transactions() > 0 {
                callee.poll(now, &mut out);
                out.clear();
            }
        }
    })
}

/// Returns the To tag that the callee gave.
fn to_tag(response: &[u8]) -> String {
    let text = String::from_utf8_lossy(response);
    let to = text.lines().find(|line| line.starts_with("To:")).unwrap_or_default();
    to.split_once(";tag=").map_or_else(String::new, |(_, tag)| format!(";tag={tag}"))
}

/// Writes a request of a call.
fn request(text: &mut String, method: &str, number: u32, tag: &str) {
    let body = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0 8\r\n";
    let body = if method == "INVITE" { body } else { "" };
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    text.clear();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "{method} sip:stack@127.0.0.1:{ANSWERING} SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:{CALLING};rport;branch=z9hG4bK{method}{number}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:caller@127.0.0.1:{CALLING}>;tag={number:016x}\r\nTo: <sip:stack@127.0.0.1:{ANSWERING}>{tag}\r\n\
         Call-ID: {number:016x}\r\nCSeq: 1 {method}\r\nContact: <sip:caller@127.0.0.1:{CALLING}>\r\n{kind}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that all transactions of answered calls end while each call remains.
    #[test]
    fn calls_stand_and_their_transactions_end() {
        let mut callee = Calls::new(&side(ANSWERING, CALLING), 0);
        let mut now = Now { mono: 1_000, wall: 1_700_000_000_000 };
        let (mut out, mut text) = (Outbox::new(), String::new());
        for number in 0..10 {
            request(&mut text, "INVITE", number, "");
            callee.receive(now, &arrival(), text.as_bytes(), &mut out);
            let tag = to_tag(&out.bytes);
            assert!(tag.len() > 5, "{}", String::from_utf8_lossy(&out.bytes));
            out.clear();
            request(&mut text, "ACK", number, &tag);
            callee.receive(now, &arrival(), text.as_bytes(), &mut out);
            assert!(out.is_empty());
        }
        assert_eq!((callee.dialogs(), callee.transactions()), (10, 10));
        now.mono += LATER;
        while callee.deadline().is_some_and(|due| due <= now.mono) && callee.transactions() > 0 {
            callee.poll(now, &mut out);
        }
        // Nothing was repeated: each 200 has its ACK.
        assert!(out.is_empty());
        assert_eq!((callee.dialogs(), callee.transactions()), (10, 0));
    }
}
