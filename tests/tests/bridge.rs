//! Bridged calls, message by message: descriptions, hidden sides, records, ports, gateways.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use strowger_tests::account::challenged;
use strowger_tests::binary::strowger;
use strowger_tests::bridge::{Bridged, body, description, invite, party, setup};
use strowger_tests::call::{exchange, register};
use strowger_tests::control;
use strowger_tests::dialog::arrives;
use strowger_tests::port;
use strowger_tests::program::{SIPP, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::sipp::{BUILT_IN, Calls, OURS};
use strowger_tests::text::{Request, field, fields, parameter, request_uri, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

use crate::accounting::rows;
use crate::caller_numbers::gateway;
use crate::examples::{beside, on_loopback, phone_of_alice};

const SOON: Duration = Duration::from_secs(20);

/// Accounting of a server, in files.
const ACCOUNTING: &str = "accounting.cdr = true\naccounting.to = \"json\"\naccounting.path = \"rows\"\n\
                          accounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"";

/// Stream of G.711 at this port.
fn audio(port: u16) -> String {
    format!("m=audio {port} RTP/AVP 8\r\n")
}

/// Registers bob at this address of loopback; returns his phone.
fn bob(server: &Server, ip: &str) -> Wire {
    let mut phone = party(server, ip);
    register(&mut phone, "bob");
    phone
}

/// Returns an INVITE from this wire to bob.
fn to_bob(wire: &Wire) -> Request {
    invite("sip:bob@example.org", wire, &description(wire, &audio(40_000)))
}

/// Makes a call from one wire to the other.
fn call(caller: &mut Wire, callee: &mut Wire, invite: &Request) -> Bridged {
    let answer = description(callee, &audio(50_000));
    let call = Bridged::set_up(caller, callee, invite, &answer);
    call.unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)))
}

/// Returns the media lines of a description.
fn media(message: &[u8]) -> Vec<String> {
    body(message).lines().filter(|line| line.starts_with("m=")).map(str::to_owned).collect()
}

/// Returns the port and the rest of a media line.
fn port_of(line: &str) -> (u16, String) {
    let mut words = line.splitn(3, ' ');
    let (kind, port, rest) = (words.next(), words.next(), words.next());
    let port = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no port in {line}"));
    (port, [kind, rest].map(Option::unwrap_or_default).join(" "))
}

/// Asserts that a message has none of these texts.
fn hides(message: &[u8], hidden: &[&str]) {
    let text = String::from_utf8_lossy(message);
    for name in hidden {
        assert!(!text.contains(name), "{name} is shown:\n{text}");
    }
}

#[test]
fn descriptions_list_the_codecs_of_their_side() {
    let keys = "codecs = [\"PCMU\", \"PCMA\", \"telephone-event\"]\ncallee_codecs = [\"PCMA\", \"PCMU\"]\nmedia_types = [\"video\"]";
    let server = setup("127.0.0.71", "22000-22199", keys).start();
    let (mut caller, mut callee) = (party(&server, "127.0.0.72"), bob(&server, "127.0.0.73"));
    let offer = "m=audio 40000 RTP/AVP 9 8 0 101\r\na=rtpmap:101 telephone-event/8000\r\nm=video 40002 RTP/AVP 96\r\n\
                 a=rtpmap:96 VP8/90000\r\nm=image 40004 udptl t38\r\n";
    let invite = invite("sip:bob@example.org", &caller, &description(&caller, offer));
    let accepted =
        description(&callee, "m=audio 50000 RTP/AVP 8 0\r\nm=video 50002 RTP/AVP 96\r\na=rtpmap:96 VP8/90000\r\n");
    let mut call = Bridged::set_up(&mut caller, &mut callee, &invite, &accepted)
        .unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)));
    let [offered, answered] = [&call.invite, &call.answer].map(|message| {
        assert!(body(message).contains("c=IN IP4 127.0.0.71\r\n"), "{}", body(message));
        media(message).iter().map(|line| port_of(line)).collect::<Vec<_>>()
    });
    let kinds = |lines: &[(u16, String)]| lines.iter().map(|(_, kind)| kind.clone()).collect::<Vec<_>>();
    // G.722 and events are in no common list, and fax is no media type of the rule.
    assert_eq!(kinds(&offered), ["m=audio RTP/AVP 8 0", "m=video RTP/AVP 96"]);
    assert_eq!(kinds(&answered), ["m=audio RTP/AVP 0 8", "m=video RTP/AVP 96", "m=image udptl t38"]);
    // Each stream has ports of its own on each side.
    let mut ports: Vec<u16> = offered.iter().chain(&answered[..2]).map(|(port, _)| *port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() == 4 && ports.iter().all(|port| (22_000..22_199).contains(port)), "{ports:?}");
    assert_eq!(answered[2].0, 0);
    arrives(&mut caller, &mut callee, &call.near.request("BYE"), &[]);
}

#[test]
fn a_fax_passes_as_datagrams_beside_the_audio() {
    let server = setup("127.0.0.91", "22000-22199", "media_types = [\"image\"]").start();
    let (mut caller, mut callee) = (party(&server, "127.0.0.92"), bob(&server, "127.0.0.93"));
    let [near, far] = ["127.0.0.92:0", "127.0.0.93:0"].map(|at| {
        let socket = UdpSocket::bind(at).expect("loopback has a port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time above zero");
        socket
    });
    let lines = |audio_port: u16, fax: &UdpSocket| {
        let port = fax.local_addr().expect("it is bound").port();
        format!("{}m=image {port} udptl t38\r\na=T38FaxVersion:0\r\n", audio(audio_port))
    };
    let invite = invite("sip:bob@example.org", &caller, &description(&caller, &lines(40_000, &near)));
    let accepted = description(&callee, &lines(50_000, &far));
    let mut call = Bridged::set_up(&mut caller, &mut callee, &invite, &accepted)
        .unwrap_or_else(|refusal| panic!("{}", String::from_utf8_lossy(&refusal)));
    let [to_far, to_near] = [&call.invite, &call.answer].map(|message| {
        let streams: Vec<_> = media(message).iter().map(|line| port_of(line)).collect();
        let [_, (port, kind)] = &streams[..] else { panic!("{streams:?}") };
        assert_eq!(kind, "m=image udptl t38");
        *port
    });
    // UDPTL is no RTP: its first bytes are a sequence number. The media thread may learn of the streams after the ACK.
    let passes = |from: &UdpSocket, to: &UdpSocket, port: u16, datagram: &[u8]| {
        let heard = wait::look(SOON, || {
            from.send_to(datagram, ("127.0.0.91", port)).expect("loopback takes datagrams");
            let mut bytes = [0; 64];
            let (length, _) = to.recv_from(&mut bytes).ok()?;
            Some(bytes[..length].to_vec())
        });
        assert_eq!(heard.as_deref(), Some(datagram));
    };
    passes(&near, &far, to_near, b"\x00\x01\x02\xc0\x01\x00");
    passes(&far, &near, to_far, b"\x00\x02\x01\x06");
    arrives(&mut caller, &mut callee, &call.near.request("BYE"), &[]);
}

#[test]
fn a_call_is_one_entry_and_one_record_and_hides_its_sides() {
    let server = setup("127.0.0.74", "22000-22199", "").with(ACCOUNTING).start();
    let (mut caller, mut callee) = (party(&server, "127.0.0.75"), bob(&server, "127.0.0.76"));
    let mut expected = Vec::new();
    for ended_by in ["caller", "callee"] {
        let invite = to_bob(&caller);
        let mut call = call(&mut caller, &mut callee, &invite);
        let list = control::json(&server, &["calls", "list"]);
        let [one] = &list.as_array().expect("a list")[..] else { panic!("{list}") };
        assert_eq!((&one["call_id"], &one["state"]), (&json!(invite.call_id), &json!("answered")), "{list}");
        let far_call_id = field(&call.invite, "Call-ID").expect("a Call-ID");
        assert_eq!(one["far_call_id"], json!(far_call_id));
        let tag = parameter(&invite.from, "tag").expect("a tag");
        let of_caller = ["127.0.0.75", &invite.call_id, &tag, &invite.branch, "o=- 4711"];
        let far_tag = parameter(&call.far.from, "tag").expect("a tag");
        let of_callee = ["127.0.0.76", &far_call_id, &far_tag, "o=- 4711"];
        hides(&call.invite, &of_caller);
        hides(&call.answer, &of_callee);
        let (got, _) = if ended_by == "caller" {
            arrives(&mut caller, &mut callee, &call.near.request("BYE"), &[])
        } else {
            arrives(&mut callee, &mut caller, &call.far.request("BYE"), &[])
        };
        hides(&got, if ended_by == "caller" { &of_caller[..] } else { &of_callee[..] });
        control::wait_for_no_calls(&server, SOON);
        expected.push((invite.call_id, far_call_id, ended_by));
    }
    assert!(wait::until(SOON, || rows(&server, "cdr").len() == 2), "{:?}", rows(&server, "cdr"));
    let records = rows(&server, "cdr");
    for (record, (call_id, far_call_id, ended_by)) in records.iter().zip(&expected) {
        let figures = ["call_id", "outcome", "ended_by"].map(|name| &*record[name]);
        assert_eq!(figures, [&**call_id, "answered", *ended_by], "{record:?}");
        assert_eq!(&record["far_call_id"], far_call_id);
    }
}

#[test]
fn a_call_beyond_the_ports_is_refused_until_one_ends() {
    // Four pairs of ports, two for each call.
    let server = setup("127.0.0.77", "22000-22007", "").start();
    let checked = Command::new(strowger()).arg("check").arg(server.config()).output().expect("the program runs");
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(said.trim_end().contains("; media ports for 2 bridged calls, descriptors for "), "{said}");
    let mut callers = [(); 3].map(|()| party(&server, "127.0.0.78"));
    let mut callee = bob(&server, "127.0.0.79");
    let [one, two, three] = &mut callers;
    let mut calls = [one, two].map(|caller| {
        let invite = to_bob(caller);
        call(caller, &mut callee, &invite)
    });
    let answer = description(&callee, &audio(50_000));
    let attempt = |caller: &mut Wire, callee: &mut Wire| {
        let invite = to_bob(caller);
        Bridged::set_up(caller, callee, &invite, &answer)
    };
    let refusal = attempt(three, &mut callee).err().expect("no port is left");
    let text = String::from_utf8_lossy(&refusal);
    assert!(status(&refusal) == Some(503) && field(&refusal, "Retry-After").is_some(), "{text}");
    let log = server.log_with("no port for media is free");
    assert!(log.lines().any(|line| line.contains("status=503") && line.contains("no port for media is free")), "{log}");
    arrives(&mut callers[0], &mut callee, &calls[0].near.request("BYE"), &[]);
    // The media thread gives the ports back after the BYE.
    let [one, _, three] = &mut callers;
    let third = wait::look(SOON, || attempt(three, &mut callee).ok());
    let mut third = third.expect("the ports of an ended call are free");
    arrives(&mut callee, three, &third.far.request("BYE"), &[]);
    let fourth = wait::look(SOON, || attempt(one, &mut callee).ok());
    let mut fourth = fourth.expect("the ports are free again");
    arrives(one, &mut callee, &fourth.near.request("BYE"), &[]);
    arrives(&mut callee, &mut callers[1], &calls[1].far.request("BYE"), &[]);
    control::wait_for_no_calls(&server, SOON);
}

#[test]
fn the_border_hides_the_office_and_takes_the_next_gateway() {
    let at = [33, 34].map(beside);
    let gateways = at.map(|at| format!("sip:{at}"));
    let server = on_loopback(
        "border.toml",
        &[
            ("sip:192.0.2.33:5060", &gateways[0]),
            ("sip:192.0.2.34:5060", &gateways[1]),
            ("[\"192.0.2.33\", \"192.0.2.34\"]", "[\"127.0.0.33\", \"127.0.0.34\"]"),
            ("0.0.0.0 as 203.0.113.5", "127.0.0.80"),
        ],
    );
    // The first gateway is down.
    let mut carrier = gateway(&server, at[1]);
    let (mut phone, contact) = phone_of_alice(&server, "office.example.org");
    let local = phone.local().to_string();
    let mut outgoing =
        invite("sip:0049301234@office.example.org", &phone, &description(&phone, "m=audio 40000 RTP/AVP 9 0 8\r\n"));
    outgoing.from = "<sip:alice@office.example.org>;tag=1".into();
    let outgoing = challenged(&mut phone, &outgoing, "alice", "secret");
    let mut out = call(&mut phone, &mut carrier, &outgoing);
    assert_eq!(request_uri(&out.invite), "sip:+49301234@office.example.org");
    assert_eq!(fields(&out.invite, "P-Asserted-Identity"), ["<sip:+49301234560@office.example.org>"]);
    hides(&out.invite, &[&local, &contact, &outgoing.call_id, "m=audio 40000", "Proxy-Authorization"]);
    let offered: Vec<String> = media(&out.invite).iter().map(|line| port_of(line).1).collect();
    assert_eq!(
        (offered, body(&out.invite).contains("c=IN IP4 127.0.0.80\r\n")),
        (vec!["m=audio RTP/AVP 8 0".to_owned()], true)
    );
    let (got, _) = arrives(&mut carrier, &mut phone, &out.far.request("BYE"), &[]);
    assert_eq!(field(&got, "Call-ID").as_ref(), Some(&outgoing.call_id));
    // The carrier calls the number of the office.
    let offer = description(&carrier, &audio(41_000));
    let incoming = invite("sip:+49301234560@office.example.org", &carrier, &offer);
    let mut back = call(&mut carrier, &mut phone, &incoming);
    assert_eq!(request_uri(&back.invite), contact);
    let carrier_at = carrier.local().to_string();
    hides(&back.invite, &[&carrier_at, &incoming.call_id, "m=audio 41000"]);
    arrives(&mut carrier, &mut phone, &back.near.request("BYE"), &[]);
}

#[test]
fn an_office_with_media_bridges_the_calls_of_its_phones() {
    let at = beside(35);
    let to = format!("sip:{at}");
    let changes = [
        ("sip:192.0.2.33:5060", &*to),
        ("[\"192.0.2.33\"]", "[\"127.0.0.35\"]"),
        ("0.0.0.0 as 203.0.113.5", "127.0.0.99"),
    ];
    let server = on_loopback("office-media.toml", &changes);
    let (mut phone, _) = phone_of_alice(&server, "office.example.org");
    server.add_user("bob@office.example.org", "secret");
    let mut bob = server.connect(Udp);
    let contact = format!("sip:bob@{}", bob.local());
    let register = Request::register("bob", "office.example.org", &contact, "udp", bob.local());
    let register = challenged(&mut bob, &register, "bob", "secret");
    assert_eq!(status(&exchange(&mut bob, &register)), Some(200));
    let local = phone.local().to_string();
    let mut outgoing = invite("sip:bob@office.example.org", &phone, &description(&phone, &audio(40_000)));
    outgoing.from = "<sip:alice@office.example.org>;tag=1".into();
    let outgoing = challenged(&mut phone, &outgoing, "alice", "secret");
    let mut between = call(&mut phone, &mut bob, &outgoing);
    assert!(body(&between.invite).contains("c=IN IP4 127.0.0.99\r\n"), "{}", body(&between.invite));
    hides(&between.invite, &[&local, &outgoing.call_id, "m=audio 40000"]);
    arrives(&mut bob, &mut phone, &between.far.request("BYE"), &[]);
}

#[test]
fn failures_and_limits_of_a_rule_hold_for_a_bridged_call() {
    let at = beside(83);
    let tables = format!(
        "[[failure]]\nname = \"mailbox\"\nstatuses = [\"404\", \"480\"]\nto = [\"sip:mailbox@{at}\"]\n\
         [[call_limit]]\nname = \"one\"\nmost = 1\nstatus = 486"
    );
    let keys = "on_failure = [\"mailbox\"]\ncall_limits = [\"one\"]";
    let server = setup("127.0.0.82", "22000-22199", keys).with(&tables).start();
    let (mut caller, mut mailbox) = (party(&server, "127.0.0.84"), gateway(&server, at));
    // Carol has no phone.
    let to_carol = |wire: &Wire| invite("sip:carol@example.org", wire, &description(wire, &audio(40_000)));
    let first = to_carol(&caller);
    let mut taken = call(&mut caller, &mut mailbox, &first);
    assert_eq!(request_uri(&taken.invite), format!("sip:mailbox@{at}"));
    // The call counts once, so a second call is above the limit.
    let (second, answer) = (to_carol(&caller), description(&mailbox, &audio(50_000)));
    let refusal = Bridged::set_up(&mut caller, &mut mailbox, &second, &answer).err().expect("the limit is full");
    assert_eq!(status(&refusal), Some(486));
    arrives(&mut caller, &mut mailbox, &taken.near.request("BYE"), &[]);
    control::wait_for_no_calls(&server, SOON);
    let third = to_carol(&caller);
    let mut again = call(&mut caller, &mut mailbox, &third);
    arrives(&mut mailbox, &mut caller, &again.far.request("BYE"), &[]);
}

#[test]
fn sipp_calls_sipp_through_a_bridge() {
    if !have(&[SIPP]) {
        return;
    }
    let media = "media.addresses = [\"127.0.0.81\"]\nmedia.ports = \"22000-22999\"";
    let rule = "[[rule]]\nname = \"bridge\"\nb2bua = true";
    let server = Setup::on(&[Udp]).relay().with("control.socket = \"orders\"").with(media).with(rule).start();
    for scenarios in [OURS, BUILT_IN] {
        let calls = Calls { scenarios, transports: ("u1", "u1"), way: "udp", calls: Some(60), rate: 20 };
        calls.run(server.address(Udp), None, port::free());
    }
    control::wait_for_no_calls(&server, SOON);
}
