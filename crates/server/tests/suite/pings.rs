//! Pings as transactions of a shard: their place, their moves, their memory.

use crate::moves::HERE;
use crate::site::*;
use strowger_core::{Arrival, ListenerId, Transport, call};

fn bucket_of(ping: &str) -> u8 {
    call::bucket(call::hash(CALL_SECRET, line(ping, "Call-ID").as_bytes()))
}

/// Registers a phone of this user, which has a private address behind NAT.
fn register(site: &mut Site, user: &str) {
    let text = format!(
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKr{user};rport\r\n\
         From: <sip:{user}@example.org>;tag=b\r\nTo: <sip:{user}@example.org>\r\nCall-ID: {user}\r\nCSeq: 1 REGISTER\r\n\
         Contact: <sip:{user}@192.168.7.7:5060>;expires=3600\r\nContent-Length: 0\r\n\r\n"
    );
    assert!(site.receive(BOB, &text).starts_with("SIP/2.0 200 "));
}

/// Returns the messages of a text.
fn messages(text: &str) -> Vec<&str> {
    text.split_inclusive("\r\n\r\n").collect()
}

/// Returns the client transactions of each shard, and the pending pings of both.
fn pending(site: &Site) -> ([u64; 2], u64) {
    site.engines.iter().for_each(|engine| engine.show_gauges());
    ([0, 1].map(|shard: usize| site.engines[shard].transactions().counts().clients), site.shared.counts().pings_pending)
}

#[test]
fn a_ping_moves_with_its_bucket() {
    for is_answered in [true, false] {
        let mut site = Site::new("nat.ping_interval = \"1h\"\n");
        register(&mut site, "bob");
        let ping = site.wait(1_000);
        assert!(ping.starts_with("OPTIONS sip:bob@192.168.7.7:5060 SIP/2.0\r\n"), "{ping}");
        let bytes = site.engines[0].export_bytes(site.now, bucket_of(&ping), &HERE);
        site.work_at(1, |engine, now, out| engine.import_bytes(now, &bytes, &HERE, out).expect("a record"));
        assert_eq!(pending(&site), ([0, 1], 1));
        site.now.mono += 500;
        assert_eq!(site.work_at(1, |engine, now, out| engine.poll(now, out)), ping, "it is sent again");
        if is_answered {
            let (ok, listener) = (response(&ping, "200 OK"), ListenerId(0));
            let remote = BOB.parse().expect("an address");
            let arrival = Arrival { transport: Transport::Udp, listener, remote, flow: None };
            site.work_at(1, |engine, now, out| engine.receive(now, &arrival, ok.as_bytes(), out));
        } else {
            site.now.mono += 32_000;
            site.work_at(1, |engine, now, out| engine.poll(now, out));
        }
        assert_eq!(pending(&site), ([0, 0], 0));
        assert_eq!(site.shared.counts().pings_unanswered, u64::from(!is_answered));
    }
}

/// Checks that the Call-ID of a ping routes its response to the shard that sent the ping.
#[test]
fn pings_are_in_buckets_of_their_shard() {
    let mut site = Site::new("nat.ping_interval = \"1s\"\n");
    (0..255).for_each(|bucket| drop(site.engines[0].export(site.now, bucket)));
    for user in ["alice", "bob", "carol"] {
        register(&mut site, user);
    }
    let pings = site.wait(1_000);
    assert_eq!(messages(&pings).iter().map(|ping| bucket_of(ping)).collect::<Vec<_>>(), [255; 3]);
}

#[test]
fn a_pending_ping_takes_less_than_a_kilobyte() {
    const PINGS: usize = 1_024;
    let mut site = Site::new("nat.ping_interval = \"1s\"\n");
    (0..PINGS).for_each(|number| register(&mut site, &format!("user{number}")));
    let before = site.engines[0].transactions().memory();
    let pings = site.wait(1_000);
    assert_eq!(messages(&pings).len(), PINGS);
    let each = (site.engines[0].transactions().memory() - before) / PINGS;
    assert!((300..1_000).contains(&each), "{each} bytes");
    for ping in messages(&pings) {
        assert_eq!(site.receive(BOB, &response(ping, "200 OK")), "");
    }
    let counts = site.engines[0].transactions().counts();
    assert_eq!((counts.clients, counts.kept_messages, counts.timers), (0, 0, 0));
}
