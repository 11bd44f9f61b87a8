//! A bridged call between a caller at IPv4 and a callee at IPv6, with real sockets.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use strowger_tests::echo::Caller;
use strowger_tests::port;
use strowger_tests::server::Setup;
use strowger_tests::text::respond;
use strowger_tests::wire::Transport::Udp;

const SOON: Duration = Duration::from_secs(20);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Returns the next request of this method at a phone, and its source.
fn request(phone: &UdpSocket, method: &str) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 8_192];
    loop {
        let (length, from) = phone.recv_from(&mut buffer).unwrap_or_else(|error| panic!("no {method}: {error}"));
        if buffer[..length].starts_with(format!("{method} ").as_bytes()) {
            return (buffer[..length].to_vec(), from);
        }
    }
}

/// Answers the INVITE that comes, with media at this port. Returns the INVITE.
fn answer(phone: &UdpSocket, port: u16) -> String {
    let (invite, from) = request(phone, "INVITE");
    let description =
        format!("v=0\r\no=- 1 1 IN IP6 ::1\r\ns=-\r\nc=IN IP6 ::1\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n");
    let own = phone.local_addr().expect("it is bound");
    let lines = [format!("Contact: <sip:callee@{own}>"), "Content-Type: application/sdp".to_owned()];
    let ok = String::from_utf8(respond(&invite, 200, "callee", &lines)).expect("it is text");
    let end = format!("Content-Length: {}\r\n\r\n{description}", description.len());
    phone.send_to(ok.replace("Content-Length: 0\r\n\r\n", &end).as_bytes(), from).expect("it is sent");
    request(phone, "ACK");
    String::from_utf8_lossy(&invite).into_owned()
}

/// Returns the last octet of the next packet that is no report, and its source.
fn heard(media: &UdpSocket) -> Option<(u8, SocketAddr)> {
    let mut buffer = [0; 2_048];
    let (length, from) = media.recv_from(&mut buffer).ok()?;
    (length == 12 + 160).then(|| (buffer[length - 1], from))
}

#[test]
fn a_caller_at_ipv4_and_a_callee_at_ipv6_hear_each_other() {
    let own = SocketAddr::new(V6, port::free_at(V6));
    let [phone, media] = [(); 2].map(|()| UdpSocket::bind((V6, 0)).expect("loopback has a port"));
    phone.set_read_timeout(Some(SOON)).expect("it can be set");
    media.set_read_timeout(Some(Duration::from_millis(20))).expect("it can be set");
    let port = media.local_addr().expect("it is bound").port();
    let rule =
        format!("[[rule]]\nname = \"out\"\nb2bua = true\nto = [\"sip:{}\"]", phone.local_addr().expect("it is bound"));
    let server = Setup::on(&[Udp])
        .listen(Udp, own)
        .open_registrar()
        .with("media.addresses = [\"127.0.0.96\", \"::1\"]\nmedia.ports = \"22000-22199\"")
        .with(&rule)
        .start();
    let (caller, offer) = thread::scope(|scope| {
        let answers = scope.spawn(|| answer(&phone, port));
        let caller = Caller::call(&server);
        (caller, answers.join().unwrap_or_else(|_| panic!("no answer\n{}", server.log())))
    });
    let mut caller = caller.unwrap_or_else(|answer| panic!("{}", String::from_utf8_lossy(&answer)));
    assert_eq!(caller.server_media.ip().to_string(), "127.0.0.96");
    assert!(offer.contains("c=IN IP6 ::1\r\n") && !offer.contains("127.0.0.96"), "{offer}");
    // Each side says an octet until the other one hears it.
    let begun = Instant::now();
    let (mut at_callee, mut at_caller) = (None, None);
    while at_callee.is_none() || at_caller.is_none() {
        assert!(begun.elapsed() < SOON, "{at_callee:?} {at_caller:?}\n{}", server.log());
        caller.play(7);
        if let Some((octet, from)) = heard(&media) {
            at_callee = Some(octet);
            let mut packet = vec![0x80, 0, 0, 1, 0, 0, 0, 160, 0, 0, 0, 9];
            packet.extend([9; 160]);
            media.send_to(&packet, from).expect("it is sent");
        }
        at_caller = at_caller.or_else(|| caller.hears(Duration::from_millis(20)));
    }
    assert_eq!((at_callee, at_caller), (Some(7), Some(9)));
    caller.hang_up();
    let (bye, from) = request(&phone, "BYE");
    phone.send_to(&respond(&bye, 200, "", &[]), from).expect("it is sent");
}
