//! Bridged calls over `kill -9` of the server: media at the same ports, changes and ends by either side.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use strowger_tests::bridge::{Bridged, body, described, description, invite, party, setup};
use strowger_tests::call::register;
use strowger_tests::dialog::{answer_to, arrives, contact};
use strowger_tests::server::Server;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::text::{Request, respond, status};
use strowger_tests::wire::Wire;

use crate::kept_dialogs::{is_empty, keeps};

const STEP: Duration = Duration::from_secs(10);
const PACKET_TIME: Duration = Duration::from_millis(20);

/// Address of the media of the server.
const MEDIA: [u8; 4] = [127, 0, 0, 85];

/// Bridged call with the media of both parties.
struct Talk {
    call: Bridged,
    /// Media of the caller, and of the callee.
    parties: [UdpSocket; 2],
    /// Ports of the server towards them.
    ports: [SocketAddr; 2],
}

/// Returns a packet of G.711 A-law.
fn packet(sequence: u16) -> Vec<u8> {
    let mut packet = vec![0x80, 8];
    packet.extend(sequence.to_be_bytes());
    packet.extend((u32::from(sequence) * 160).to_be_bytes());
    packet.extend([0, 0, 0, 7]);
    packet.extend([0xd5; 160]);
    packet
}

/// Returns the port of the server in a description that it has sent.
fn port_in(message: &[u8]) -> SocketAddr {
    let text = body(message);
    let port = text.split_once("m=audio ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    SocketAddr::from((MEDIA, port.unwrap_or_else(|| panic!("no port in {text}"))))
}

/// Returns a description of the media of a party.
fn audio(wire: &Wire, media: &UdpSocket, direction: &str) -> String {
    let port = media.local_addr().expect("it is bound").port();
    description(wire, &format!("m=audio {port} RTP/AVP 8\r\na={direction}\r\n"))
}

impl Talk {
    fn begin(caller: &mut Wire, callee: &mut Wire) -> Self {
        let parties = [&*caller, &*callee].map(|wire| {
            let media = UdpSocket::bind((wire.local().ip(), 0)).expect("loopback has a port");
            media.set_read_timeout(Some(PACKET_TIME)).expect("a time");
            media
        });
        let [of_caller, of_callee] = &parties;
        let invite = invite("sip:bob@example.org", caller, &audio(caller, of_caller, "sendrecv"));
        let answer = audio(callee, of_callee, "sendrecv");
        let call = Bridged::set_up(caller, callee, &invite, &answer);
        let call = call.unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)));
        let ports = [port_in(&call.answer), port_in(&call.invite)];
        Self { call, parties, ports }
    }

    /// Waits until each party has heard the other one, which sends.
    fn wait_until_heard(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let (mouth, ear) = (&self.parties[from], &self.parties[to]);
            let mut bytes = [0; 1_500];
            // Packets of the process before.
            ear.set_nonblocking(true).expect("a socket");
            while ear.recv_from(&mut bytes).is_ok() {}
            ear.set_nonblocking(false).expect("a socket");
            let end = Instant::now() + STEP;
            for sequence in 0.. {
                assert!(Instant::now() < end, "party {to} does not hear party {from}");
                mouth.send_to(&packet(sequence), self.ports[from]).expect("loopback takes it");
                if ear.recv_from(&mut bytes).is_ok_and(|(length, source)| length == 172 && source == self.ports[to]) {
                    break;
                }
            }
        }
    }

    /// Puts the call on hold by a re-INVITE of the caller.
    fn hold(&mut self, caller: &mut Wire, callee: &mut Wire) {
        let mut hold =
            self.call.near.request("INVITE").with("Content-Type: application/sdp").with(contact("alice", caller));
        hold.body = audio(caller, &self.parties[0], "sendonly").into_bytes();
        caller.send(&hold.bytes()).expect("the server takes messages");
        let got = callee.request("INVITE", STEP).expect("the change arrives");
        assert_eq!(port_in(&got), self.ports[1]);
        let ok = respond(&got, 200, "callee", &[contact("callee", callee)]);
        let ok = described(&ok, &audio(callee, &self.parties[1], "recvonly"));
        callee.send(&ok).expect("the server takes messages");
        let answer = answer_to(&hold, caller, 200).expect("the change is answered");
        assert_eq!((status(&answer), port_in(&answer)), (Some(200), self.ports[0]));
        let ack = Request { cseq: hold.cseq, ..self.call.near.request("ACK") };
        caller.send(&ack.bytes()).expect("the server takes messages");
        callee.request("ACK", STEP).expect("the ACK arrives");
    }
}

/// Starts a server that keeps its calls, with a caller and a callee.
fn kept() -> (Server, Wire, Wire) {
    let server = setup("127.0.0.85", "22000-22199", "").with("dialogs.folder = \"calls\"").start();
    let (caller, mut callee) = (party(&server, "127.0.0.86"), party(&server, "127.0.0.87"));
    register(&mut callee, "bob");
    (server, caller, callee)
}

#[test]
fn bridged_calls_outlive_a_kill() {
    const CALLS: usize = 8;
    let (mut server, mut caller, mut callee) = kept();
    let mut talks: Vec<Talk> = (0..CALLS).map(|_| Talk::begin(&mut caller, &mut callee)).collect();
    talks.iter().for_each(Talk::wait_until_heard);
    keeps(&server, CALLS);
    server.kill();
    server.start();
    let began = Stopwatch::start();
    talks.iter().for_each(Talk::wait_until_heard);
    assert!(began.took().is_below(Duration::from_secs(1)), "{:?}\n{}", began.took(), server.log());
    // No other call gets the ports of these calls.
    let other = Talk::begin(&mut caller, &mut callee);
    assert!(talks.iter().all(|talk| talk.ports.iter().all(|port| !other.ports.contains(port))));
    talks.push(other);
    for (number, mut talk) in talks.into_iter().enumerate() {
        if number % 3 == 0 {
            talk.hold(&mut caller, &mut callee);
        }
        if number % 2 == 0 {
            arrives(&mut caller, &mut callee, &talk.call.near.request("BYE"), &[]);
        } else {
            arrives(&mut callee, &mut caller, &talk.call.far.request("BYE"), &[]);
        }
    }
    is_empty(&server);
}

#[test]
fn parties_of_calls_that_are_not_kept_get_a_bye_at_the_end() {
    let mut server = setup("127.0.0.88", "22000-22199", "").start();
    let (mut caller, mut callee) = (party(&server, "127.0.0.89"), party(&server, "127.0.0.90"));
    register(&mut callee, "bob");
    let invite = invite("sip:bob@example.org", &caller, &description(&caller, "m=audio 40000 RTP/AVP 8\r\n"));
    let answer = description(&callee, "m=audio 50000 RTP/AVP 8\r\n");
    let call = Bridged::set_up(&mut caller, &mut callee, &invite, &answer);
    assert!(call.is_ok());
    server.process().signal(libc::SIGTERM);
    for wire in [&mut caller, &mut callee] {
        let bye = wire.request("BYE", STEP).expect("the server is the other party");
        let text = String::from_utf8_lossy(&bye);
        assert!(text.contains("Reason: Q.850;cause=31\r\n"), "{text}");
        wire.send(&respond(&bye, 200, "", &[])).expect("the server takes messages");
    }
    let ended = server.process().end(STEP);
    assert!(ended.success(), "{ended:?}\n{}", server.log());
}
