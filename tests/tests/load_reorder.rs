//! Reordered messages: UDP and servers with several processes reorder them, and no call of a ready workload fails
//! because of that.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use strowger_tests::generator::{answers, load, reply};
use strowger_tests::peer::sends_back;

/// Starts a peer that sends these responses at once to each request except ACK: `responses` by method. Provisional
/// responses to the INVITE are repeated after the 200 to its BYE.
fn peer(responses: fn(&str) -> &'static [&'static str]) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be set");
    let address = socket.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (mut buffer, mut invite) = ([0; 65_536], String::new());
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.starts_with("ACK") || sends_back(&socket, &buffer[..length], from) {
                continue;
            }
            let method = text.split(' ').next().unwrap_or_default();
            let send = |line: &str, request: &str| {
                assert!(socket.send_to(reply(line, request, address).as_bytes(), from).is_ok());
            };
            match method {
                "INVITE" => invite = text.clone(),
                "BYE" => ["180 Ringing", "200 OK"].iter().for_each(|line| send(line, &invite)),
                _ => (),
            }
            responses(method).iter().for_each(|line| send(line, &text));
        }
    });
    address
}

#[test]
fn no_call_fails_by_a_response_that_comes_late_or_twice() {
    let orders: [fn(&str) -> &'static [&'static str]; 4] = [
        |_| &["200 OK", "100 Trying", "180 Ringing", "183 Session Progress"],
        |_| &["100 Trying", "200 OK", "200 OK", "180 Ringing", "200 OK", "100 Trying"],
        // Codes that RFC 3261 does not know (section 8.1.3.2), and a 200 that is sent again.
        |_| &["199 Early Dialog Terminated", "184 Whatever", "200 OK", "199 Late", "200 Fine"],
        |method| {
            if method == "INVITE" { &["180 Ringing", "200 OK", "180 Ringing", "181 Forwarded"] } else { &["200 OK"] }
        },
    ];
    let workloads = ["call", "register", "re-register", "register-then-call", "options", "message", "mix"];
    for (place, order) in orders.into_iter().enumerate() {
        let address = peer(order).to_string();
        for workload in workloads {
            // Credentials make the longer document; the peer does not challenge.
            for auth in [&[][..], &["--auth", "alice:secret"]] {
                let words = ["-w", workload, "-r", "200", "-m", "20", "--hold", "20ms", "--no-preflight"];
                let ran = load(&[&[address.as_str()], &words[..], auth].concat());
                assert_eq!((ran.calls("successful"), ran.calls("failed")), (20, 0), "{place} {workload}: {}", ran.said);
                ran.ended_with(0);
            }
        }
    }
}

#[test]
fn the_answering_side_takes_requests_in_any_order() {
    let uas = answers(&["--ring", "20ms"]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
    let own = socket.local_addr().expect("it is bound");
    let say = |method: &str, number: u32, tag: &str| {
        let branch = if method == "CANCEL" { "INVITE" } else { method };
        let text = format!(
            "{method} sip:bob@{to} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n\
             From: <sip:anna@{own}>;tag=1\r\nTo: <sip:bob@{to}>{tag}\r\nCall-ID: order\r\nCSeq: {number} {method}\r\n\
             Contact: <sip:anna@{own}>\r\nContent-Length: 0\r\n\r\n",
            to = uas.address
        );
        socket.send_to(text.as_bytes(), uas.address).expect("it is sent");
    };
    // Returns code and To tag of the next final response to a request with this method.
    let hear = |method: &str| {
        let mut buffer = [0; 65_536];
        loop {
            let (length, _) = socket.recv_from(&mut buffer).expect("a response comes");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let of_method = text.lines().any(|line| line.starts_with("CSeq:") && line.ends_with(method));
            if of_method && !text.starts_with("SIP/2.0 1") {
                let to = text.lines().find(|line| line.starts_with("To:")).unwrap_or_default();
                return (text[8..11].to_owned(), to.find(";tag=").map_or("", |at| &to[at..]).to_owned());
            }
        }
    };
    // Messages outside of a call begin none.
    say("CANCEL", 1, "");
    assert_eq!(hear("CANCEL").0, "481");
    say("ACK", 1, ";tag=old");
    say("BYE", 2, ";tag=old");
    assert_eq!(hear("BYE").0, "481");
    socket
        .send_to(reply("200 OK", "Call-ID: order\r\nTo: <sip:a>\r\nCSeq: 1 BYE\r\n", own).as_bytes(), uas.address)
        .expect("it is sent");
    say("INVITE", 1, "");
    let (code, tag) = hear("INVITE");
    assert_eq!(code, "200");
    // The BYE overtakes the ACK, and a CANCEL comes after the answer.
    say("BYE", 2, &tag);
    assert_eq!(hear("BYE").0, "200");
    say("ACK", 1, &tag);
    say("CANCEL", 1, "");
    assert_eq!(hear("CANCEL").0, "200");
    say("BYE", 2, &tag);
    assert_eq!(hear("BYE").0, "200");
    let ran = uas.report();
    assert_eq!((ran.calls("incoming"), ran.calls("successful"), ran.calls("failed")), (1, 1, 0), "{}", ran.said);
}
