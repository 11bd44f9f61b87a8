use super::*;
use crate::UdpSettings;
use std::time::Duration;

#[test]
fn the_kernel_counts_what_it_drops() {
    let udp = UdpSettings { receive_buffer: 4_096, ..UdpSettings::default() };
    let settings = NetSettings { udp, ..NetSettings::default() };
    let socket = bind(SocketAddr::from(([127, 0, 0, 1], 0)), false, &settings).unwrap();
    assert_eq!(backlog(&socket).unwrap(), (0, 0, 8_192));
    for _ in 0..20 {
        socket.send_to(&[0; 1_000], socket.local_addr().unwrap()).unwrap();
    }
    let (waiting, dropped, _) = backlog(&socket).unwrap();
    assert!(waiting > 1_000 && (10..20).contains(&dropped), "{waiting} bytes, {dropped} dropped");
}

#[tokio::test]
async fn what_waits_goes_later_in_order_and_the_rest_is_dropped() {
    let udp = UdpSettings { batch: 8, ..UdpSettings::default() };
    let bounds = Bounds { datagrams_waiting: 3, ..Bounds::default() };
    let settings = NetSettings { udp, ..NetSettings::default() };
    let bind = |port: u16| bind(SocketAddr::from(([127, 0, 0, 1], port)), false, &settings).unwrap();
    let peer = bind(0);
    peer.set_nonblocking(false).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = peer.local_addr().unwrap();
    let mut udp =
        Udp::new(bind(0), ListenerId(0), true, &settings, &bounds, &Arc::new(SourceAddresses::new(10))).unwrap();
    let (counters, mut failed) = (Counters::default(), Vec::new());
    for i in 0..4 {
        udp.push(b"abcde", i..i + 1, to, i as u64 + 1, &mut failed, &counters);
    }
    // Acts as if the socket had no room.
    udp.keep(0, b"abcde", &mut failed, &counters);
    udp.sender.clear();
    assert_eq!((&failed[..], counters.datagrams_waiting.value()), (&[4][..], 3));
    // A higher bound admits more datagrams; a lower bound removes none, and admits none.
    for (bound, token, refused, waiting) in [(5, 6, &[4][..], 4), (1, 7, &[4, 7], 4)] {
        udp.set_waiting_bound(bound);
        udp.push(b"abcde", 3..4, to, token, &mut failed, &counters);
        udp.keep(0, b"abcde", &mut failed, &counters);
        udp.sender.clear();
        assert_eq!((&failed[..], counters.datagrams_waiting.value()), (refused, waiting));
    }
    udp.resume(&mut Context::from_waker(std::task::Waker::noop()), &mut failed, &counters);
    udp.push(b"abcde", 4..5, to, 5, &mut failed, &counters);
    udp.flush(b"abcde", &mut failed, &counters);
    let mut buffer = [0; 10];
    for expected in *b"abcde" {
        assert_eq!((peer.recv(&mut buffer).unwrap(), buffer[0]), (1, expected));
    }
    assert_eq!((counters.datagrams_waiting.value(), counters.datagrams_out.value()), (0, 5));
    // The wait for room ends, because there is room.
    tokio::time::timeout(Duration::from_secs(5), std::future::poll_fn(|cx| udp.wait_for_room(cx).unwrap()))
        .await
        .unwrap();
}
