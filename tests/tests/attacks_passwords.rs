//! Attacks on passwords: guessing, use of intercepted credentials, and denial of service to their owners.

mod rig;

pub(crate) use self::rig::{LIMIT, answer, at, code, invite, register, send, start, with_password};

use self::rig::{RIGHT, SHORT, ask, ask_within, guess, guesses};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_core::digest::{Algorithm, Qop};
use strowger_tests::digest::{DigestAnswer, challenges, is_stale};
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, field, status, unique};
use strowger_tests::wire::Transport::{self, Tcp, Udp};
use strowger_tests::wire::Wire;

// Guessing.

#[test]
fn a_password_is_not_judged_from_another_address_than_its_nonce_was_sent_to() {
    let server = start(&[Udp], "");
    let (mut gets, mut guesses) = (at(&server, Udp, 2), at(&server, Udp, 3));
    // These guesses would ban a source twice; the right password follows.
    for n in 0..=20 {
        let request = register(&gets, "bob");
        let password = if n == 20 { RIGHT } else { "a guess" };
        let answer = answer(&mut gets, &request, "bob", password);
        let request = Request { via: ("UDP".into(), guesses.local()), ..answer.on(&request) };
        let response = ask(&mut guesses, &request).expect("an answer");
        assert_eq!((status(&response), is_stale(&response)), (Some(401), true), "guess {n}");
    }
    // After a change of its network a phone tries again with a nonce for its new address, as it does with any stale
    // nonce.
    let request = register(&guesses, "bob");
    assert_eq!(code(with_password(&mut guesses, &request, "bob", RIGHT)), Some(200));
}

#[test]
fn nobody_is_banned_by_answers_to_nonces_of_others() {
    let server = start(&[Udp], "");
    let (mut attacker, mut victim) = (at(&server, Udp, 2), at(&server, Udp, 3));
    for _ in 0..30 {
        // The attacker forges the victim's address, which gets the answers.
        let request = register(&attacker, "bob");
        let answer = answer(&mut attacker, &request, "bob", "a guess");
        send(&mut victim, &answer.on(&request));
    }
    victim.drain();
    let request = register(&victim, "bob");
    assert_eq!(code(with_password(&mut victim, &request, "bob", RIGHT)), Some(200));
}

#[test]
fn a_source_that_guesses_is_banned() {
    let server = start(&[Udp, Tcp], "");
    assert_eq!(guesses(&mut at(&server, Udp, 2), 50), 10);
    assert_eq!(guesses(&mut at(&server, Udp, 2), 50), 0, "from another port");
    assert_eq!(guess(&mut at(&server, Udp, 3), RIGHT), Some(200), "another source");
}

#[test]
fn guesses_over_many_connections_of_one_source_count_together() {
    let server = start(&[Tcp], "");
    let judged = (0..30).take_while(|_| guesses(&mut at(&server, Tcp, 2), 1) == 1).count();
    assert_eq!(judged, 10);
    assert_eq!(guess(&mut at(&server, Tcp, 3), RIGHT), Some(200));
}

#[test]
fn guesses_by_other_transports_and_methods_count_together() {
    let server = start(&[Udp, Tcp], "");
    let (mut udp, mut tcp) = (at(&server, Udp, 2), at(&server, Tcp, 2));
    let mut judged = 0;
    for n in 0..12 {
        let wire = if n % 2 == 0 { &mut udp } else { &mut tcp };
        let request = match n % 3 {
            0 => register(wire, "bob"),
            1 => invite(wire, "bob", "sip:alice@example.org"),
            _ => Request { method: "MESSAGE".into(), ..invite(wire, "bob", "sip:+1900@192.0.2.1") },
        };
        let Some(refusal) = ask_within(wire, &request, SHORT) else { break };
        let answer = DigestAnswer::to(&refusal, &request, "bob", "a guess");
        judged += usize::from(ask(wire, &answer.on(&request)).is_some());
    }
    assert_eq!(judged, 10);
}

#[test]
fn the_right_password_of_an_own_account_clears_no_failures() {
    let server = start(&[Udp], "");
    let mut wire = at(&server, Udp, 2);
    let mut judged = 0;
    for _ in 0..20 {
        let request = register(&wire, "mallory");
        let Some(refusal) = ask_within(&mut wire, &request, SHORT) else { break };
        let own = DigestAnswer::to(&refusal, &request, "mallory", "a secret");
        assert_eq!(code(ask(&mut wire, &own.on(&request))), Some(200));
        judged += usize::from(guess(&mut wire, "a guess").is_some());
    }
    assert_eq!(judged, 10);
}

#[test]
fn many_credentials_in_one_request_are_one_guess() {
    let server = start(&[Udp], "");
    let mut wire = at(&server, Udp, 2);
    let request = register(&wire, "bob");
    let first = answer(&mut wire, &request, "bob", "a guess");
    let mut many = first.on(&request);
    for password in ["another guess", "a third", RIGHT] {
        many.headers.push(DigestAnswer { password: password.into(), ..first.clone() }.line());
    }
    assert_eq!(code(ask(&mut wire, &many)), Some(401));
}

#[test]
fn an_account_that_many_sources_guess_hears_each_of_them_once_more() {
    let server = start(&[Udp], "ban.failures = 5\nban.account_failures = 20");
    // Four sources guess, each up to its own limit, and each without the results of the others.
    for last in 10..14 {
        assert_eq!(guesses(&mut at(&server, Udp, last), 10), 5);
    }
    // From now on each source has one guess: later guesses are stale, whether they are right or wrong.
    for last in 20..23 {
        let mut wire = at(&server, Udp, last);
        let request = register(&wire, "bob");
        let refusal = with_password(&mut wire, &request, "bob", "a guess").expect("an answer");
        assert!(!is_stale(&refusal));
        for password in ["a guess", RIGHT] {
            let request = register(&wire, "bob");
            let refusal = with_password(&mut wire, &request, "bob", password).expect("an answer");
            assert_eq!((status(&refusal), is_stale(&refusal)), (Some(401), true), "{password}");
        }
        // That source may still act as another user.
        let request = register(&wire, "alice");
        assert_eq!(code(with_password(&mut wire, &request, "alice", "her password")), Some(200));
    }
    // A source without failures is served: the owner is not locked out.
    assert_eq!(guess(&mut at(&server, Udp, 30), RIGHT), Some(200));
    let said = server.log_with("is being guessed");
    assert_eq!(said.matches("the password of this user is being guessed user=bob").count(), 1, "{said}");
}

#[test]
fn users_that_do_not_exist_are_treated_as_those_that_do() {
    let server = start(&[Udp], "ban.failures = 5\nban.account_failures = 10");
    let shape = |user: &str, base: u8| {
        let mut shape = Vec::new();
        for last in 0..4 {
            let mut wire = at(&server, Udp, base + last);
            for _ in 0..4 {
                let request = register(&wire, user);
                let response = with_password(&mut wire, &request, user, "a guess").expect("an answer");
                shape.push((status(&response), is_stale(&response), challenges(&response).len()));
            }
        }
        shape
    };
    assert_eq!(shape("bob", 40), shape("eve", 50));
}

#[test]
fn addresses_of_one_ipv6_network_are_one_source() {
    let address: SocketAddr = "[2001:db8:ffff::1]:5060".parse().expect("an address");
    let server = Setup::default().listen(Udp, address).with("domains = [\"example.org\"]").site();
    server.add_user("bob@example.org", RIGHT);
    let from = |text: &str| server.connect_from(Udp, text.parse().expect("an address"));
    // Each guess comes from another address of one /64.
    let judged = (1..30).take_while(|n| {
        let mut wire = from(&format!("[2001:db8:1:2::{n:x}]:0"));
        let request = register(&wire, "bob");
        let Some(refusal) = ask_within(&mut wire, &request, SHORT) else { return false };
        let answer = DigestAnswer::to(&refusal, &request, "bob", "a guess");
        ask(&mut wire, &answer.on(&request)).is_some()
    });
    assert_eq!(judged.count(), 10);
    assert_eq!(guess(&mut from("[2001:db8:1:3::1]:0"), RIGHT), Some(200), "the network beside it");
    // A nonce belongs to the network, too: privacy addresses change within it (RFC 8981).
    let (mut one, mut other) = (from("[2001:db8:1:4::1]:0"), from("[2001:db8:1:4::2]:0"));
    let request = register(&one, "bob");
    let answer = answer(&mut one, &request, "bob", RIGHT);
    let moved = Request { via: ("UDP".into(), other.local()), ..answer.on(&request) };
    assert_eq!(code(ask(&mut other, &moved)), Some(200));
}

// Intercepted credentials.

#[test]
fn what_was_read_on_its_way_is_not_good_again_after_a_restart() {
    let server = start(&[Udp], "");
    for _ in 0..2 {
        let mut wire = at(&server, Udp, 2);
        let (first, call) = (register(&wire, "bob"), invite(&wire, "bob", "sip:nobody@example.org"));
        let registered = answer(&mut wire, &first, "bob", RIGHT).on(&first);
        assert_eq!(code(ask(&mut wire, &registered)), Some(200));
        let called = answer(&mut wire, &call, "bob", RIGHT).on(&call);
        assert_eq!(code(ask(&mut wire, &called)), Some(404));
        server.restart();
        // The same requests, as new transactions.
        for (request, refused) in [(&registered, 401), (&called, 407)] {
            let again = Request { branch: unique("z9hG4bK"), cseq: request.cseq + 1, ..request.clone() };
            let response = ask(&mut wire, &again).expect("an answer");
            assert_eq!((status(&response), is_stale(&response)), (Some(refused), true), "{}", request.method);
        }
        // A phone reacts as to any stale nonce.
        assert_eq!(guess(&mut wire, RIGHT), Some(200));
    }
}

#[test]
fn credentials_lead_to_no_other_number() {
    let server = start(&[Udp], "");
    let mut gateway = server.connect(Udp);
    let host = gateway.local();
    let mut wire = at(&server, Udp, 2);
    // Alice's credentials for a call to bob, intercepted and held back.
    let call = invite(&wire, "alice", "sip:bob@example.org");
    let credentials = answer(&mut wire, &call, "alice", "her password");
    for number in ["+19005551234", "bob"] {
        let mut other = Request { uri: format!("sip:{number}@{host}"), ..credentials.on(&call) };
        other.cseq += 5;
        other.from = format!("<sip:alice@example.org>;tag={}", unique("another"));
        let response = ask(&mut wire, &other).expect("an answer");
        assert_eq!(status(&response), Some(407), "{number}");
        assert!(gateway.receive(Duration::from_millis(200)).is_none(), "the call to {number} left");
    }
    // The credentials stay valid for their target, with any parameters and port that a proxy on the way has added.
    let written = Request { uri: "sip:bob@EXAMPLE.org:5060;transport=udp".into(), ..credentials.on(&call) };
    let own_port = server.address(Udp).port();
    let written = Request { uri: written.uri.replace("5060", &own_port.to_string()), ..written };
    assert_eq!(code(ask(&mut wire, &written)), Some(480));
    server.log_with("setting=\"auth.uri_check\"");
}

#[test]
fn credentials_of_one_method_are_good_for_no_other() {
    let server = start(&[Udp], "");
    let mut wire = at(&server, Udp, 2);
    let call = invite(&wire, "alice", "sip:bob@example.org");
    let credentials = answer(&mut wire, &call, "alice", "her password");
    let message = Request { method: "MESSAGE".into(), ..credentials.on(&call) };
    assert_eq!(code(ask(&mut wire, &message)), Some(407));
    // Credentials of a REGISTER, in the header field of proxies.
    let request = register(&wire, "alice");
    let registers = answer(&mut wire, &request, "alice", "her password");
    let moved = DigestAnswer { header: "Proxy-Authorization", ..registers };
    assert_eq!(code(ask(&mut wire, &moved.on(&call))), Some(407));
}

#[test]
fn a_count_is_good_once_on_whatever_way_it_comes() {
    let server = start(&[Udp, Tcp], "server.shards = 2");
    let (mut udp, mut tcp) = (at(&server, Udp, 2), at(&server, Tcp, 2));
    let call = invite(&udp, "alice", "sip:nobody@example.org");
    let credentials = answer(&mut udp, &call, "alice", "her password");
    assert_eq!(code(ask(&mut udp, &credentials.on(&call))), Some(404));
    for n in 0..16 {
        // Another Call-ID belongs to another shard; another connection has another source port.
        let again = Request { call_id: unique("elsewhere"), ..credentials.on(&call) };
        let wire = if n % 2 == 0 { &mut udp } else { &mut tcp };
        let response = ask(wire, &again).expect("an answer");
        assert_eq!((status(&response), is_stale(&response)), (Some(407), true));
    }
    // The counts of RFC 7616 section 3.4: none is above the highest, and one far behind is unknown.
    for (nc, good) in [(u32::MAX, true), (u32::MAX, false), (0, false), (2, false), (u32::MAX - 1, true)] {
        let response = ask(&mut udp, &DigestAnswer { nc, ..credentials.clone() }.on(&call)).expect("an answer");
        assert_eq!(status(&response), Some(if good { 404 } else { 407 }), "nc {nc}");
    }
}

#[test]
fn what_was_read_proves_no_changed_part_of_it() {
    let server = start(&[Udp], "ban.failures = 1000");
    let mut wire = at(&server, Udp, 2);
    let request = register(&wire, "bob");
    let good = answer(&mut wire, &request, "bob", RIGHT);
    let line = good.line();
    for (from, to) in [
        ("nc=00000001", "nc=00000002"),
        ("cnonce=\"0a4f113b\"", "cnonce=\"0a4f113c\""),
        ("uri=\"sip:example.org\"", "uri=\"sip:example.com\""),
        ("username=\"bob\"", "username=\"alice\""),
        ("username=\"bob\"", "username=\"BOB\""),
        ("username=\"bob\"", "username=\"bob@example.org\""),
        ("qop=auth,", ""),
        ("qop=auth", "qop=auth-int"),
        ("algorithm=MD5", "algorithm=MD5-sess"),
        ("algorithm=MD5", "algorithm=SHA-256"),
        ("realm=\"example.org\"", "realm=\"example.com\""),
        ("realm=\"example.org\"", "realm=\"Example.org\""),
    ] {
        let changed = line.replace(from, to);
        assert_ne!(changed, line, "{from}");
        let mut request = good.on(&request);
        *request.headers.last_mut().expect("the credentials") = changed;
        assert_eq!(code(ask(&mut wire, &request)), Some(401), "{to}");
    }
    assert_eq!(code(ask(&mut wire, &good.on(&request))), Some(200));
}

#[test]
fn no_nonce_can_be_made_up() {
    let server = start(&[Udp], "ban.failures = 1000");
    let another = start(&[Udp], "");
    let mut wire = at(&server, Udp, 2);
    let request = register(&wire, "bob");
    let good = answer(&mut wire, &request, "bob", RIGHT);
    let mut elsewhere = at(&another, Udp, 2);
    let theirs = answer(&mut elsewhere, &request, "bob", RIGHT).nonce;
    let changed = (0..good.nonce.len()).map(|at| {
        let mut nonce = good.nonce.clone();
        let other = if nonce.as_bytes()[at] == b'A' { "B" } else { "A" };
        nonce.replace_range(at..=at, other);
        nonce
    });
    for nonce in changed.chain([theirs, String::new(), "A".repeat(36), format!("{}=", good.nonce)]) {
        let response = ask(&mut wire, &DigestAnswer { nonce: nonce.clone(), ..good.clone() }.on(&request));
        let response = response.expect("an answer");
        assert_eq!((status(&response), is_stale(&response)), (Some(401), true), "{nonce}");
    }
    assert_eq!(code(ask(&mut wire, &good.on(&request))), Some(200));
}

#[test]
fn no_offer_can_be_talked_down() {
    let server = start(&[Udp], "auth.algorithms = [\"SHA-256\"]\nauth.qop = [\"auth-int\"]\nban.failures = 1000");
    let mut wire = at(&server, Udp, 2);
    let request = register(&wire, "bob");
    let sha = DigestAnswer { qop: Some(Qop::AuthInt), ..answer(&mut wire, &request, "bob", RIGHT) };
    for (weaker, algorithm, qop) in [
        ("MD5", Algorithm::MD5, Some(Qop::AuthInt)),
        ("no protection of the body", Algorithm::SHA_256, Some(Qop::Auth)),
        ("RFC 2069", Algorithm::SHA_256, None),
        ("RFC 2069 by MD5", Algorithm::MD5, None),
    ] {
        let weak = DigestAnswer { algorithm, qop, ..sha.clone() };
        assert_eq!(code(ask(&mut wire, &weak.on(&request))), Some(401), "{weaker}");
    }
    assert_eq!(code(ask(&mut wire, &sha.on(&request))), Some(200));
}

#[test]
fn an_old_nonce_tells_only_who_knows_the_password() {
    let server = start(&[Udp], "auth.nonce_lifetime = \"5s\"");
    let mut wire = at(&server, Udp, 2);
    let request = register(&wire, "bob");
    let good = answer(&mut wire, &request, "bob", RIGHT);
    // The server measures the age of its nonces.
    server.wait(Duration::from_millis(6_100));
    for (password, stale) in [("a guess", false), (RIGHT, true)] {
        let response = ask(&mut wire, &DigestAnswer { password: password.into(), ..good.clone() }.on(&request));
        let response = response.expect("an answer");
        assert_eq!((status(&response), is_stale(&response)), (Some(401), stale), "{password}");
    }
}

#[test]
fn credentials_end_with_their_password() {
    let server = start(&[Udp], "");
    let mut wire = at(&server, Udp, 2);
    let request = register(&wire, "bob");
    let good = answer(&mut wire, &request, "bob", RIGHT);
    assert_eq!(code(ask(&mut wire, &good.on(&request))), Some(200));
    server.set_password("bob@example.org", "his new password");
    assert_eq!(code(ask(&mut wire, &DigestAnswer { nc: 2, ..good }.on(&request))), Some(401), "the old password");
    assert_eq!(guess(&mut wire, "his new password"), Some(200));
}

// Denial of service, and disclosure.

#[test]
fn one_account_cannot_use_up_the_nonces_of_others() {
    let server = start(&[Udp], "auth.used_nonces = 1024");
    let mut wire = at(&server, Udp, 2);
    let mut stale = 0;
    for _ in 0..1_500 {
        let request = register(&wire, "mallory");
        let response = with_password(&mut wire, &request, "mallory", "a secret").expect("an answer");
        stale += usize::from(is_stale(&response));
    }
    assert!(stale > 500, "the table holds more than it should: {stale}");
    let mut wire = at(&server, Udp, 3);
    for _ in 0..20 {
        // With one nonce in 256 two users share a counter: a phone then takes the next nonce.
        assert!((0..3).any(|_| guess(&mut wire, RIGHT) == Some(200)), "the table has no room for another");
    }
}

#[test]
fn the_log_says_what_the_peer_must_not_learn() {
    let server = start(&[Udp], "");
    let mut wire = at(&server, Udp, 2);
    let mut answers = Vec::new();
    for (user, reason) in [("bob", "wrong password"), ("eve", "unknown user")] {
        let request = register(&wire, user);
        let response = with_password(&mut wire, &request, user, "a guess").expect("an answer");
        let nonce = DigestAnswer::to(&response, &request, user, "").nonce;
        let text = String::from_utf8(response).expect("text").replace(&nonce, "NONCE");
        let same = |line: &&str| ["SIP/2.0", "WWW-", "Server", "Content-"].iter().any(|start| line.starts_with(start));
        answers.push(text.lines().filter(same).map(String::from).collect::<Vec<_>>());
        let log = server.log_with(&format!("user={user} "));
        let line = log.lines().find(|line| line.contains(&format!("user={user} "))).unwrap_or_else(|| panic!("{log}"));
        let said = format!("domain=example.org method=REGISTER reason=\"{reason}\"");
        assert!(line.contains("authentication failed") && line.contains(&said), "{line}");
    }
    assert_eq!(answers[0], answers[1], "the peer learns nothing");
    // A phone configured for another realm.
    let request = register(&wire, "bob");
    let good = answer(&mut wire, &request, "bob", RIGHT);
    assert_eq!(code(ask(&mut wire, &DigestAnswer { realm: "asterisk".into(), ..good }.on(&request))), Some(401));
    let log = server.log_with("another realm");
    let said = "method=REGISTER realm=asterisk expected=example.org";
    assert!(log.lines().any(|line| line.contains("credentials are for another realm") && line.contains(said)), "{log}");
}

#[test]
fn credentials_for_this_server_go_no_further_however_malformed() {
    let server = start(&[Udp], "");
    let mut bob = at(&server, Udp, 3);
    let request = register(&bob, "bob");
    assert_eq!(code(with_password(&mut bob, &request, "bob", RIGHT)), Some(200));
    let mut wire = at(&server, Udp, 2);
    let parameters =
        "username=\"alice\", realm=\"example.org\", nonce=\"n\", uri=\"sip:bob@example.org\", response=\"r\"";
    for value in [
        format!("Digest {parameters}"),
        format!("Digest {parameters}, realm=\"x\""),
        format!("Digest {parameters}, nc"),
        format!("Digest {parameters}, opaque=\"not closed"),
        format!("digest {}", parameters.replace("response=\"r\"", "x=y")),
    ] {
        for name in ["Authorization", "Proxy-Authorization"] {
            // A stranger needs no password to call a user.
            let call =
                Request::new("MESSAGE", "sip:bob@example.org", "udp", wire.local()).with(format!("{name}: {value}"));
            send(&mut wire, &call);
            let got = bob.request("MESSAGE", LIMIT).unwrap_or_else(|| panic!("{name}: {value}: {}", server.log()));
            assert_eq!(field(&got, name), None, "{value}");
            let answer = strowger_tests::text::respond(&got, 200, "b", &[]);
            bob.send(&answer).expect("loopback takes it");
            assert_eq!(wire.final_response(LIMIT).and_then(|response| status(&response)), Some(200));
        }
    }
    // Credentials for another realm pass unchanged.
    let theirs = format!("Digest {}", parameters.replace("realm=\"example.org\"", "realm=\"example.net\""));
    let call = Request::new("MESSAGE", "sip:bob@example.org", "udp", wire.local())
        .with(format!("Proxy-Authorization: {theirs}"));
    send(&mut wire, &call);
    let got = bob.request("MESSAGE", LIMIT).expect("it goes on");
    assert_eq!(field(&got, "Proxy-Authorization"), Some(theirs));
}
