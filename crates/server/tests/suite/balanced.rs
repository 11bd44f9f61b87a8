//! Phones behind a load balancer: they are reached by their connections alone.

use crate::peer::{sent, status};
use crate::reach::{OPEN, WORLD, goes, message};
use crate::site::Site;
use strowger_core::{Arrival, Flow, ListenerId, Now, Transport};

/// Source address of a phone, which is also the address of its Contact. If a balancer made the connection, it has named this address.
const PHONE: &str = "198.51.100.9:5062";

#[test]
fn a_phone_whose_connection_has_ended_is_called_at_its_contact_unless_it_is_behind_a_balancer() {
    for (generation, targets) in [(2, &[PHONE][..]), (3, &[][..])] {
        let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
        let mut site = Site::start(now, &["udp:192.0.2.1:5060", "tcp:192.0.2.1:5060"], OPEN);
        let flow = Flow { node: 0, process: 1, shard: 0, slot: 3, generation };
        let remote = PHONE.parse().expect("an address");
        let arrival = Arrival { transport: Transport::Tcp, listener: ListenerId(1), remote, flow: Some(flow) };
        let register = format!(
            "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/TCP {PHONE};branch=z9hG4bKr\r\nFrom: <sip:bob@example.org>;tag=b\r\n\
             To: <sip:bob@example.org>\r\nCall-ID: balanced\r\nCSeq: 1 REGISTER\r\n\
             Contact: <sip:bob@{PHONE};transport=tcp>;expires=3600\r\nContent-Length: 0\r\n\r\n"
        );
        site.work(|engine, now, out| engine.receive(now, &arrival, register.as_bytes(), out));
        assert_eq!(status(&sent(&site)[0].1), Some(200));
        site.work(|engine, _, _| engine.closed(flow));
        assert_eq!(goes(&mut site, WORLD, &message("sip:bob@example.org", WORLD, ""), &[]), targets);
    }
}
