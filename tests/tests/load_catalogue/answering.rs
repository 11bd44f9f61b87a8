//! Peer of the runs.

use super::*;

/// Returns the reaction of the peer, by the user that is called or registers.
pub(super) fn answered(user: &str, method: &str, number: usize) -> &'static [&'static str] {
    match (user, method) {
        ("silent", _) | ("no-bye", "BYE") => &[],
        ("busy", "INVITE") => &["486 Busy Here"],
        ("moved", _) => &["302 Moved Temporarily"],
        ("full", "INVITE") => &["503 Service Unavailable"],
        ("forbidden", _) => &["403 Forbidden"],
        ("locked", _) => &["407 Proxy Authentication Required\r\nProxy-Authenticate: Digest realm=\"r\", nonce=\"n\""],
        ("bad-bye", "BYE") => &["481 Call/Transaction Does Not Exist"],
        // The first is lost.
        ("slow", "INVITE") if number == 0 => &[],
        ("twice", _) => &["200 OK", "200 OK"],
        (_, "INVITE") => &["100 Trying", "180 Ringing", "200 OK"],
        _ => &["200 OK"],
    }
}

/// Echoes media over a faulty path: of ten packets one is lost, one comes twice, and one after the next.
fn echo(media: &UdpSocket) {
    let mut buffer = [0; 2_000];
    let (mut seen, mut held) = (BTreeSet::new(), BTreeMap::<u32, Vec<u8>>::new());
    while let Ok((length, from)) = media.recv_from(&mut buffer) {
        let packet = &buffer[..length];
        let Some(head) = packet.first_chunk::<12>() else { continue };
        let sequence = u16::from_be_bytes([head[2], head[3]]);
        let source = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        // The caller echoes, too: without an end a packet that comes twice would become a flood.
        if !seen.insert((source, sequence)) {
            continue;
        }
        let send = |packet: &[u8]| drop(media.send_to(packet, from));
        match sequence % 10 {
            3 => (),
            5 => (0..2).for_each(|_| send(packet)),
            7 => drop(held.insert(source, packet.to_vec())),
            _ => send(packet),
        }
        if sequence % 10 != 7
            && let Some(late) = held.remove(&source)
        {
            send(&late);
        }
    }
}

/// Starts a peer that answers by the name of the user, with SDP for its media address, and echoes media.
pub(super) fn peer() -> SocketAddr {
    let media = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let port = media.local_addr().expect("it is bound").port();
    std::thread::spawn(move || echo(&media));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let own = socket.local_addr().expect("it is bound");
    let sdp = format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 8\r\n"
    );
    std::thread::spawn(move || {
        let mut buffer = [0; 70_000];
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let method = text.split(' ').next().unwrap_or_default().to_owned();
            let header = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            let party = if method == "REGISTER" { header("From:") } else { header("To:") };
            let user = party.split("sip:").nth(1).and_then(|uri| uri.split(['@', '>']).next()).unwrap_or_default();
            let say = |text: &str| drop(socket.send_to(text.as_bytes(), from));
            if method == "ACK" {
                if user == "chatty" {
                    // Within the call, outside of any call, and requests that the scenario does not have.
                    let (call, to) = (header("Call-ID:"), header("To:").replace("To:", "From:"));
                    let caller = header("From:").replace("From:", "To:");
                    let via = format!("Via: SIP/2.0/UDP {own};branch=z9hG4bKchatty");
                    say(&format!(
                        "OPTIONS sip:a@{from} SIP/2.0\r\n{via}\r\n{to}\r\n{caller}\r\n{call}\r\nCSeq: 9 OPTIONS\r\nContent-Length: 0\r\n\r\n"
                    ));
                    say(&format!(
                        "SIP/2.0 200 OK\r\n{via}\r\n{to}\r\n{caller}\r\nCall-ID: stray\r\nCSeq: 1 BYE\r\nContent-Length: 0\r\n\r\n"
                    ));
                }
                continue;
            }
            let number = seen.entry(format!("{}{method}", header("Call-ID:"))).or_default();
            let lines = answered(user, &method, *number);
            *number += 1;
            for (place, line) in lines.iter().enumerate() {
                let answer = reply(line, &text, own);
                let answer = if user == "forks" && place > 0 {
                    answer.replace("tag=peer", &format!("tag=peer{place}"))
                } else {
                    answer
                };
                // No program may send to a broadcast address without asking for it.
                let place = if user == "nowhere" { "c=IN IP4 255.255.255.255" } else { "c=IN IP4 127.0.0.1" };
                let sdp = sdp.replace("c=IN IP4 127.0.0.1", place);
                let body = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}", sdp.len());
                say(&if line.starts_with("200") && method == "INVITE" {
                    answer.replace("Content-Length: 0\r\n\r\n", &body)
                } else {
                    answer
                });
            }
            if user == "forks" && method == "INVITE" {
                say(&reply("200 OK", &text, own).replace("tag=peer", "tag=other"));
            }
        }
    });
    own
}
