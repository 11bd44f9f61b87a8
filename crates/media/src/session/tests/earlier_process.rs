//! Sessions of an earlier process: their peers are where they were.

use super::*;

#[test]
fn a_session_of_an_earlier_process_goes_on_where_its_peers_were() {
    let (nat, private) = ("203.0.113.80:61000", "192.168.1.5:4000");
    let mut order = relay();
    (order.near.behind_nat, order.near.rtp) = (Some(at(nat).ip()), Some(at(private)));
    order.near.may_send_first = false;
    let mut call = Call::new(order.clone());
    assert_eq!(call.hear(0, Side::Near, nat, &rtp(97, 7, 1)).len(), 1);
    let [SessionEvent::Heard { source, .. }] = call.events()[..] else { panic!("no event") };
    assert_eq!((source.described, source.from, source.is_symmetric), (at(private), at(nat), false));
    // It says nothing in the next process, and hears the other side nevertheless.
    order.near.heard = Some(source);
    let mut next = Call::new(order.clone());
    assert!(!next.near().is_silent() && next.far().is_silent());
    assert_eq!(next.hear(0, Side::Far, FAR, &rtp(112, 8, 1))[0].to, at(nat));
    assert!(next.hear(20, Side::Near, "203.0.113.80:61001", &rtp(97, 7, 2)).is_empty());
    assert!(next.hear(20, Side::Near, STRANGER, &rtp(97, 7, 2)).is_empty());
    assert_eq!(next.hear(40, Side::Near, nat, &rtp(97, 7, 3)).len(), 1);
    let news = |call: &mut Call| -> Vec<SocketAddr> {
        let from = |event: SessionEvent| match event {
            SessionEvent::Heard { side: Side::Near, source, .. } => Some(source.from),
            _ => None,
        };
        call.events().into_iter().filter_map(from).collect()
    };
    assert_eq!(news(&mut next), [at(nat)]);
    // Each further source is news, and so is the same one after a new description.
    let moved = "203.0.113.80:61001";
    assert_eq!(next.hear(1_100, Side::Near, moved, &rtp(97, 7, 4)).len(), 1);
    assert_eq!(next.hear(1_120, Side::Near, moved, &rtp(97, 7, 5)).len(), 1);
    assert_eq!(news(&mut next), [at(moved)]);
    order.near.rtp = Some(at("192.168.1.5:4002"));
    next.set(1_130, order.clone());
    assert_eq!(next.hear(1_140, Side::Near, moved, &rtp(97, 7, 6)).len(), 1);
    assert_eq!(news(&mut next), [at(moved)]);
    // Other ports of this server, where nothing was heard.
    order.near.ports.rtp += 2;
    order.near.heard = Some(LatchedSource { described: at("192.168.1.5:4002"), from: at(moved), is_symmetric: false });
    next.set(1_150, order);
    assert!(next.hear(1_160, Side::Far, FAR, &rtp(112, 8, 2)).is_empty());
}
