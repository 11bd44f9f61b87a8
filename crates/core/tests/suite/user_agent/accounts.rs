//! Challenges and registrations (sections 10 and 22).

use super::rig::*;

use strowger_core::user_agent::{CallKey, Ending, Event, Invite, Register, UserAgentSettings};
use strowger_message::Method;

const CHALLENGE: &str = "Proxy-Authenticate: Digest realm=\"atlanta\", qop=\"auth\", nonce=\"one\"\n";

/// Returns a phone that calls with an account.
fn calling() -> (Net, CallKey) {
    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    let account = Some(net.phones[0].endpoint.agent.add_account(b"alice", b"secret"));
    let call = net.with(0, |agent, round| agent.invite(round, &Invite { account, ..invite(target, OFFER) })).unwrap();
    (net, call)
}

/// Section 22, RFC 3665 section 3.3: a challenge is answered once, in a new request of the same call.
#[test]
fn a_challenge_is_answered() {
    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    let account = net.phones[0].endpoint.agent.add_account(b"alice", b"secret");
    let call = net
        .with(0, |agent, round| agent.invite(round, &Invite { account: Some(account), ..invite(target, OFFER) }))
        .unwrap();
    let ask = |nonce: &str| {
        format!("Proxy-Authenticate: Digest realm=\"atlanta\", qop=\"auth\", nonce=\"{nonce}\", algorithm=MD5\r\n")
    };
    let challenge = respond(&net.sent[0], 407, &ask("one"));
    net.inject(0, &challenge);
    assert_eq!(net.log, ["0>? INVITE", "0>? ACK", "0>? INVITE"]);
    let (first, again) = (net.sent[0].clone(), net.sent[2].clone());
    let line = |text: &str, name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_default().to_owned();
    assert!(
        line(&again, "Proxy-Authorization")
            .starts_with("Proxy-Authorization: Digest username=\"alice\", realm=\"atlanta\"")
    );
    assert_eq!(line(&again, "CSeq"), "CSeq: 2 INVITE");
    assert_ne!(line(&again, "Via"), line(&first, "Via"));
    for same in ["Call-ID", "From", "Contact"] {
        assert_eq!(line(&again, same), line(&first, same));
    }
    assert!(again.ends_with(std::str::from_utf8(OFFER).unwrap()));
    // The ACK of the 2xx has the same credentials.
    net.inject(0, &respond(&again, 200, "Contact: <sip:bob@127.0.0.9>\r\n"));
    let ack = net.sent.last().unwrap().clone();
    assert!(ack.starts_with("ACK sip:bob@127.0.0.9 SIP/2.0"));
    assert_eq!(line(&ack, "Proxy-Authorization"), line(&again, "Proxy-Authorization"));
    assert_eq!(line(&ack, "CSeq"), "CSeq: 2 ACK");
    // The BYE has credentials for the same challenge in advance, with the next nonce count.
    net.with(0, |agent, round| agent.hang_up(round, call));
    let bye = net.sent.last().unwrap().clone();
    assert!(bye.starts_with("BYE") && bye.contains("nc=00000002"), "{bye}");
    assert_eq!(line(&bye, "CSeq"), "CSeq: 3 BYE");
    // The nonce is stale: one more attempt, with the new one.
    net.inject(0, &respond(&bye, 407, &ask("two").replace("algorithm", "stale=true, algorithm")));
    let bye = net.sent.last().unwrap().clone();
    assert!(bye.contains("nonce=\"two\"") && bye.contains("nc=00000001"), "{bye}");
    net.inject(0, &respond(&bye, 200, ""));
    assert_eq!(net.last(0).event, Event::Ended { call, by: Ending::Local });
    net.is_clean();
}

#[test]
fn a_wrong_password_is_tried_once() {
    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    let account = net.phones[0].endpoint.agent.add_account(b"alice", b"wrong");
    let call = net
        .with(0, |agent, round| agent.invite(round, &Invite { account: Some(account), ..invite(target, OFFER) }))
        .unwrap();
    let ask = "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"auth\"\r\nWWW-Authenticate: Digest realm=\"r\", nonce=\"m\", qop=\"auth\", algorithm=SHA-256\r\n";
    net.inject(0, &respond(&net.sent[0].clone(), 401, ask));
    let again = net.sent[2].clone();
    assert_eq!(again.matches("\r\nAuthorization: ").count(), 1, "{again}");
    assert!(again.contains("algorithm=SHA-256"), "the stronger of two");
    net.inject(0, &respond(&again, 401, ask));
    assert_eq!(net.last(0).event, Event::Failed { call, status: 401, local: false });
    assert_eq!(net.log, ["0>? INVITE", "0>? ACK", "0>? INVITE", "0>? ACK"]);
    net.is_clean();
}

/// RFC 3665 section 2.
#[test]
fn a_registration_is_kept_up_and_taken_back() {
    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    let account = net.phones[0].endpoint.agent.add_account(b"alice", b"secret");
    let register = Register {
        aor: b"sip:alice@atlanta.example",
        registrar: b"sip:atlanta.example",
        routes: b"",
        target,
        account: Some(account),
        expires: 60,
        headers: b"",
    };
    let key = net.with(0, |agent, round| agent.register(round, &register)).unwrap();
    let challenge = "WWW-Authenticate: Digest realm=\"atlanta\", qop=\"auth\", nonce=\"n\"\r\n";
    net.inject(0, &respond(&net.sent[0].clone(), 401, challenge));
    assert!(net.sent[1].contains("CSeq: 2 REGISTER") && net.sent[1].contains("Expires: 60\r\n"));
    net.inject(0, &respond(&net.sent[1].clone(), 423, "Min-Expires: 100\r\n"));
    assert!(net.sent[2].contains("CSeq: 3 REGISTER") && net.sent[2].contains("Expires: 100\r\n"));
    let ok = "Contact: <sip:other@192.0.2.1>;expires=9, <sip:alice@127.0.0.1:5060>;expires=90\r\n";
    net.inject(0, &respond(&net.sent[2].clone(), 200, ok));
    assert_eq!(net.last(0).event, Event::Registered { registration: key, expires: 90 });
    net.run(44_900);
    assert_eq!(net.sent.len(), 3);
    net.run(200);
    assert!(net.sent[3].contains("CSeq: 4 REGISTER") && net.sent[3].contains("nc=00000003"), "{}", net.sent[3]);
    // Removed during a refresh: one request after the other.
    net.with(0, |agent, round| agent.unregister(round, key));
    assert_eq!(net.sent.len(), 4);
    net.inject(0, &respond(&net.sent[3].clone(), 200, ok));
    assert!(net.sent[4].contains("CSeq: 5 REGISTER") && net.sent[4].contains("Expires: 0\r\n"));
    net.inject(0, &respond(&net.sent[4].clone(), 200, ""));
    assert_eq!(net.last(0).event, Event::Unregistered { registration: key });
    net.is_clean();
}

#[test]
fn a_registration_that_fails_is_tried_again() {
    let mut net = Net::new([UserAgentSettings { registration_retry: 10_000, ..quiet() }]);
    let target = net.target(7);
    let register = Register {
        aor: b"sip:alice@atlanta.example",
        registrar: b"sip:atlanta.example",
        routes: b"",
        target,
        account: None,
        expires: 60,
        headers: b"",
    };
    let key = net.with(0, |agent, round| agent.register(round, &register)).unwrap();
    net.inject(0, &respond(&net.sent[0].clone(), 503, ""));
    assert_eq!(net.last(0).event, Event::RegistrationFailed { registration: key, status: 503 });
    net.run(10_000);
    assert!(net.sent[1].contains("CSeq: 2 REGISTER"));
    net.with(0, |agent, round| agent.unregister(round, key));
    net.inject(0, &respond(&net.sent[1].clone(), 200, "Expires: 60\r\n"));
    net.inject(0, &respond(&net.sent[2].clone(), 200, ""));
    assert_eq!(net.last(0).event, Event::Unregistered { registration: key });
    net.is_clean();
}

/// Section 12.2.1.1: a request that is sent again takes the next number of its dialog, not that of a later request.
#[test]
fn a_challenged_request_takes_a_new_number() {
    let (mut net, call) = calling();
    let ok = respond(&net.sent[0], 200, "Contact: <sip:bob@127.0.0.9>\n");
    net.inject(0, &ok);
    net.sent.clear();
    for _ in 0..2 {
        net.with(0, |agent, round| agent.request_within(round, call, Method::Info, b"", b"")).unwrap();
    }
    let refused = respond(&net.sent[0], 407, CHALLENGE);
    net.inject(0, &refused);
    net.with(0, |agent, round| agent.request_within(round, call, Method::Info, b"", b"")).unwrap();
    let number = |text: &String| text.lines().find_map(|line| line.strip_prefix("CSeq: ").map(str::to_owned));
    let numbers: Vec<_> = net.sent.iter().filter_map(number).collect();
    assert_eq!(numbers, ["2 INFO", "3 INFO", "4 INFO", "5 INFO"]);
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}

/// Section 12.3: the refusal of an INVITE ends its early dialogs. The dialogs of its repetition have new numbers and a new RSeq.
#[test]
fn a_challenge_ends_the_early_dialogs() {
    let (mut net, call) = calling();
    let early = |invite: &str, rseq: u32| {
        respond(invite, 183, &format!("Contact: <sip:bob@127.0.0.9>\nRequire: 100rel\nRSeq: {rseq}\n"))
    };
    let (first, refused) = (early(&net.sent[0], 7), respond(&net.sent[0], 407, CHALLENGE));
    net.inject(0, &first);
    net.inject(0, &refused);
    assert_eq!(net.log, ["0>? INVITE", "0>? PRACK", "0>? ACK", "0>? INVITE"]);
    let second = early(&net.sent[3], 3);
    net.inject(0, &second);
    let prack = net.sent.last().expect("a PRACK");
    assert!(prack.contains("\r\nRAck: 3 2 INVITE\r\n") && prack.contains("\r\nCSeq: 3 PRACK\r\n"), "{prack}");
    assert_eq!(net.last(0).leg, 1);
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}
