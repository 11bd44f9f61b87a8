//! Listeners, addresses and names of the rig.

use super::*;

pub(crate) const UDP: ListenerId = ListenerId(0);
pub(crate) const TCP: ListenerId = ListenerId(1);
pub(crate) const TLS: ListenerId = ListenerId(2);
/// Listener of another network.
pub(crate) const INNER: ListenerId = ListenerId(3);
pub(crate) const SIX: ListenerId = ListenerId(4);

pub(crate) fn identity() -> Identity {
    let listener = |transport, bound: &str, network| ListenerAddress {
        transport,
        bound: bound.parse().expect("an address"),
        sent_by: bound.as_bytes().into(),
        network,
    };
    let listeners = vec![
        listener(Transport::Udp, "10.0.0.1:5060", 0),
        listener(Transport::Tcp, "10.0.0.1:5060", 0),
        listener(Transport::Tls, "10.0.0.1:5061", 0),
        listener(Transport::Udp, "192.168.0.1:5060", 1),
        listener(Transport::Udp, "[2001:db8::1]:5060", 0),
    ];
    Identity::new(listeners, ["example.org"], &[])
}

pub(crate) fn udp(address: &str) -> Arrival {
    by(UDP, Transport::Udp, address)
}

pub(crate) fn by(listener: ListenerId, transport: Transport, address: &str) -> Arrival {
    let flow = (transport != Transport::Udp).then_some(Flow { node: 0, process: 7, shard: 0, slot: 3, generation: 9 });
    Arrival { transport, listener, remote: address.parse().expect("an address"), flow }
}

pub(crate) const ALICE: &str = "10.1.1.1:5060";
pub(crate) const BOB: &str = "10.2.2.2:5060";

/// Start time of a rig.
pub(crate) const NOW: Now = Now { mono: 1_000_000, wall: 1_700_000_000_000 };

/// Lifetime of marks in seconds.
pub(super) const DAY: u32 = 86_400;

/// Returns a request of Alice's, from 10.1.1.1:5060, outside of any dialog. `lines`: further header lines.
pub(crate) fn alice(method: &str, uri: &str, lines: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\nVia: SIP/2.0/UDP 10.1.1.1:5060;branch=z9hG4bKa{method}\nMax-Forwards: 70\n\
         From: <sip:alice@example.org>;tag=alice\nTo: <sip:bob@example.org>\nCall-ID: call@10.1.1.1\n\
         CSeq: 1 {method}\nContact: <sip:alice@10.1.1.1:5060>\n{lines}Content-Length: 0\n"
    )
}

/// Returns the text with line ends of the wire, and with an empty body if it has none.
pub(crate) fn wire(text: &str) -> Vec<u8> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join("\r\n");
    if text.contains("\r\n\r\n") { text.into() } else { format!("{}\r\n\r\n", text.trim_end()).into() }
}
