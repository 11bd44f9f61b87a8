//! Tracked calls: their dialogs begin, are renewed and end, and this server ends those that last too long.

use crate::peer::requests;
use crate::site::{ALICE, BOB, CALL_SECRET, SERVER, Site, invite, line, response, response_at};
use strowger_core::call;
use strowger_message::{Index, Limits, Message};

const TRACKED: &str = "auth.calls = false\ndialogs.track = true\ndialogs.lifetime = \"60s\"\nserver.shards = 2\n";

/// Returns the numbers of tracked calls, early dialogs and confirmed dialogs.
pub(crate) fn counts(site: &Site) -> (u64, u64, u64) {
    site.engines.iter().for_each(|engine| engine.show_gauges());
    let counts = site.shared.counts();
    (counts.calls_tracked, counts.dialogs_early, counts.dialogs_confirmed)
}

fn with_bob(settings: &str) -> Site {
    let mut site = Site::new(&format!("{TRACKED}{settings}"));
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    site
}

/// Returns the request of this method among the sent messages.
pub(crate) fn request<'a>(sent: &'a str, method: &str) -> &'a str {
    let start = format!("{method} sip:");
    &sent[sent.find(&start).unwrap_or_else(|| panic!("no {method} in {sent}"))..]
}

/// Writes a response with the tag and the Contact of a phone of bob.
pub(crate) fn from_phone(forwarded: &str, status: &str, tag: &str) -> String {
    response_at(BOB, forwarded, status, tag)
}

/// Makes a call of alice that bob's phone answers. Returns the forwarded INVITE, and the 200 that alice gets.
pub(crate) fn answered(site: &mut Site, number: u32) -> (String, String) {
    let sent = site.receive(ALICE, &invite(number, 1, ""));
    let forwarded = request(&sent, "INVITE").to_owned();
    let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
    assert!(ok.starts_with("SIP/2.0 200 "), "{ok}");
    ack(site, &ok);
    (forwarded, ok)
}

/// Sends alice's ACK for this 200.
pub(crate) fn ack(site: &mut Site, ok: &str) {
    let number = line(ok, "CSeq").split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    let sent = site.receive(ALICE, &of_alice("ACK", ok, number, ""));
    assert!(sent.starts_with("ACK sip:"), "{sent}");
}

/// Answers each BYE among the messages sent last. Returns their targets.
pub(crate) fn answer_byes(site: &mut Site, status: &str) -> Vec<String> {
    let byes = byes(site);
    byes.iter().for_each(|(to, bye)| drop(site.receive(to, &response(bye, status))));
    byes.into_iter().map(|(to, _)| to).collect()
}

/// Writes a request of alice in the dialog of this 200.
pub(crate) fn of_alice(method: &str, ok: &str, cseq: u32, more: &str) -> String {
    let contact = line(ok, "Contact").trim_matches(['<', '>']);
    format!(
        "{method} {contact} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKa{method}{cseq};rport\r\nMax-Forwards: 70\r\n\
         Route: {}\r\nFrom: {}\r\nTo: {}\r\nCall-ID: {}\r\nCSeq: {cseq} {method}\r\n{more}Content-Length: 0\r\n\r\n",
        line(ok, "Record-Route"),
        line(ok, "From"),
        line(ok, "To"),
        line(ok, "Call-ID")
    )
}

/// Writes a request of bob's phone in the dialog that its answer to this INVITE created.
pub(crate) fn of_bob(method: &str, forwarded: &str, tag: &str, cseq: u32, more: &str) -> String {
    let contact = line(forwarded, "Contact").trim_matches(['<', '>']);
    format!(
        "{method} {contact} SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKb{method}{cseq};rport\r\nMax-Forwards: 70\r\n\
         Route: {}\r\nFrom: {};tag={tag}\r\nTo: {}\r\nCall-ID: {}\r\nCSeq: {cseq} {method}\r\n{more}Content-Length: 0\r\n\r\n",
        line(forwarded, "Record-Route"),
        line(forwarded, "To"),
        line(forwarded, "From"),
        line(forwarded, "Call-ID")
    )
}

/// Returns the BYEs among the sent messages, each with its target.
pub(crate) fn byes(site: &Site) -> Vec<(String, String)> {
    requests(site, "BYE")
}

#[test]
fn a_call_rings_is_answered_and_ends() {
    let mut site = with_bob("");
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    assert_eq!(counts(&site), (1, 0, 0));
    let forwarded = request(&sent, "INVITE").to_owned();
    for _ in 0..2 {
        site.receive(BOB, &from_phone(&forwarded, "180 Ringing", "bob"));
        assert_eq!(counts(&site), (1, 1, 0));
    }
    // Another phone rings behind the next hop.
    site.receive(BOB, &from_phone(&forwarded, "183 Session Progress", "bob2"));
    assert_eq!(counts(&site), (1, 2, 0));
    let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
    assert_eq!(counts(&site), (1, 1, 1));
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    // The dialog lasts until the response to the BYE. So does the early one, since that phone may still answer (RFC
    // 3261 section 13.2.2.4).
    assert_eq!(counts(&site), (1, 1, 1));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    assert_eq!(counts(&site), (0, 0, 0));
    site.wait(100_000);
    assert_eq!(site.shared.counts().byes, 0);
}

/// End of a ringing call. The text is its forwarded INVITE.
type End<'a> = &'a dyn Fn(&mut Site, &str);

#[test]
fn each_end_of_a_call_that_was_not_answered_ends_it() {
    let ends: [End<'_>; 4] = [
        &|site, invite| drop(site.receive(BOB, &response(invite, "486 Busy Here"))),
        &|site, invite| {
            let via = format!("Via: SIP/2.0/UDP {ALICE};branch=z9hG4bK1-1;rport\r\n");
            let cancel = format!(
                "CANCEL sip:bob@example.org SIP/2.0\r\n{via}From: {}\r\nTo: {}\r\nCall-ID: 1\r\nCSeq: 1 CANCEL\r\n\
                 Content-Length: 0\r\n\r\n",
                line(invite, "From"),
                line(invite, "To")
            );
            site.receive(ALICE, &cancel);
            site.receive(BOB, &response(invite, "487 Request Terminated"));
        },
        // Bob's phone falls silent.
        &|site, _| (0..4_000).for_each(|_| drop(site.wait(100))),
        // A server behind this one asks for a password, and the caller has none.
        &|site, invite| {
            site.receive(BOB, &response(invite, "407 Proxy Authentication Required"));
            assert_eq!(counts(site).0, 1, "the INVITE may come again");
            site.wait(40_000);
        },
    ];
    for (n, end) in ends.iter().enumerate() {
        let mut site = with_bob("");
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let forwarded = request(&sent, "INVITE").to_owned();
        site.receive(BOB, &from_phone(&forwarded, "180 Ringing", "bob"));
        assert_eq!(counts(&site), (1, 1, 0));
        end(&mut site, &forwarded);
        assert_eq!(counts(&site), (0, 0, 0), "end {n}");
    }
}

#[test]
fn a_bye_ends_the_dialog_if_its_answer_says_so() {
    for (status, left) in [
        ("200 OK", 0),
        ("481 Call/Transaction Does Not Exist", 0),
        ("408 Request Timeout", 0),
        ("500 Server Internal Error", 1),
        ("401 Unauthorized", 1),
        ("407 Proxy Authentication Required", 1),
    ] {
        for by_bob in [false, true] {
            let mut site = with_bob("");
            let (forwarded, ok) = answered(&mut site, 1);
            let (from, to, bye) = match by_bob {
                true => (BOB, ALICE, of_bob("BYE", &forwarded, "bob", 7, "")),
                false => (ALICE, BOB, of_alice("BYE", &ok, 2, "")),
            };
            let sent = site.receive(from, &bye);
            let own = site.receive(to, &response(request(&sent, "BYE"), status));
            // The server sends a BYE itself if no response arrived.
            assert_eq!(own.contains("BYE sip:"), status.starts_with("408"), "{status} {by_bob}");
            if own.contains("BYE sip:") {
                site.receive(to, &response(request(&own, "BYE"), "200 OK"));
            }
            // A 408 to a non-INVITE request goes no further (RFC 4320 section 4.2): the transaction ends.
            (0..60).for_each(|_| drop(site.wait(100)));
            assert_eq!(counts(&site).2, left, "{status} {by_bob}");
            // Remaining dialogs end with their lifetime.
            site.wait(61_000);
            assert_eq!(answer_byes(&mut site, "200 OK").len(), 2 * left as usize, "{status} {by_bob}");
            assert_eq!(counts(&site), (0, 0, 0), "{status} {by_bob}");
        }
    }
}

/// Checks that a dialog ends with the transaction of a BYE that has no response.
#[test]
fn a_bye_without_an_answer_ends_the_dialog() {
    let mut site = with_bob("");
    let (_, ok) = answered(&mut site, 1);
    site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    // The BYE that the server then sends has no response either.
    for _ in 0..700 {
        site.wait(100);
    }
    assert_eq!(counts(&site), (0, 0, 0));
}

#[test]
fn a_call_that_lasts_too_long_gets_a_bye_on_both_sides() {
    let mut site = with_bob("");
    let (forwarded, ok) = answered(&mut site, 1);
    // Both have sent something in the dialog.
    site.receive(ALICE, &of_alice("INFO", &ok, 5, ""));
    site.receive(BOB, &of_bob("INFO", &forwarded, "bob", 900, ""));
    site.wait(59_000);
    assert_eq!((counts(&site), byes(&site)), ((1, 0, 1), Vec::new()));
    site.wait(1_100);
    assert_eq!((counts(&site), site.shared.counts().byes), ((1, 0, 1), 2));
    let sent = byes(&site);
    let [(to_alice, of_bob), (to_bob, of_alice)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((&to_bob[..], &to_alice[..]), (BOB, ALICE));
    assert!(of_alice.starts_with(&format!("BYE sip:bob@{BOB} SIP/2.0\r\n")), "{of_alice}");
    assert!(of_bob.starts_with(&format!("BYE sip:alice@{ALICE} SIP/2.0\r\n")), "{of_bob}");
    assert_eq!((line(of_alice, "CSeq"), line(of_bob, "CSeq")), ("6 BYE", "901 BYE"));
    assert_eq!((line(of_alice, "From"), line(of_alice, "To")), (line(&ok, "From"), line(&ok, "To")));
    assert_eq!((line(of_bob, "From"), line(of_bob, "To")), (line(&ok, "To"), line(&ok, "From")));
    for (from, bye) in [(BOB, of_alice), (ALICE, of_bob)] {
        assert_eq!(line(bye, "Call-ID"), "1");
        assert!(!bye.contains("Route: "), "our own Route has done its work: {bye}");
        // The response to the server's BYE is forwarded to no peer, and the BYE is not retransmitted.
        assert_eq!(site.receive(from, &response(bye, "200 OK")), "");
    }
    assert_eq!(counts(&site), (0, 0, 0));
    for _ in 0..400 {
        assert_eq!(site.wait(100), "");
    }
    let counts = site.engines[0].transactions().counts();
    assert_eq!((counts.servers, counts.clients), (0, 0));
}

/// Checks that each BYE is routed like a request of the peer: Routes of other proxies behind this server are kept.
#[test]
fn a_bye_of_ours_passes_the_other_proxies_of_the_dialog() {
    let mut site = with_bob("");
    let above = "Record-Route: <sip:192.0.2.77;lr;x=1>\r\n";
    let sent = site.receive(ALICE, &invite(1, 1, above));
    let forwarded = request(&sent, "INVITE").to_owned();
    let ok = from_phone(&forwarded, "200 OK", "bob");
    // In the response the proxy behind this server comes first.
    let ok = ok.replacen("Record-Route: ", "Record-Route: <sip:192.0.2.88;lr>\r\nRecord-Route: ", 1);
    assert!(site.receive(BOB, &ok).starts_with("SIP/2.0 200 "));
    site.wait(61_000);
    let sent = byes(&site);
    let [(to_alice, of_bob), (to_bob, of_alice)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((&to_bob[..], &to_alice[..]), ("192.0.2.88:5060", "192.0.2.77:5060"));
    assert_eq!(line(of_alice, "Route"), "<sip:192.0.2.88;lr>");
    assert_eq!(line(of_bob, "Route"), "<sip:192.0.2.77;lr;x=1>");
    assert!(of_alice.starts_with("BYE sip:bob@"), "{of_alice}");
}

#[test]
fn a_renewal_that_is_accepted_moves_its_parties() {
    for (status, moves) in [("200 OK", true), ("488 Not Acceptable Here", false)] {
        for by_bob in [false, true] {
            let mut site = with_bob("");
            let (forwarded, ok) = answered(&mut site, 1);
            let contact = "Contact: <sip:moved@198.51.100.99:5062>\r\n";
            let (from, to, renewal) = match by_bob {
                true => (BOB, ALICE, of_bob("INVITE", &forwarded, "bob", 7, contact)),
                false => (ALICE, BOB, of_alice("UPDATE", &ok, 2, contact)),
            };
            let sent = site.receive(from, &renewal);
            let passed = request(&sent, if by_bob { "INVITE" } else { "UPDATE" });
            let answer = response(passed, status);
            let its = format!("Contact: <sip:also@{to}>\r\nContent-Length");
            site.receive(to, &answer.replace("Content-Length", &its));
            site.wait(61_000);
            let targets: Vec<_> = byes(&site).into_iter().map(|(to, _)| to).collect();
            let moved = "198.51.100.99:5062";
            let expected = match (moves, by_bob) {
                (false, _) => [ALICE, BOB],
                (true, true) => [ALICE, moved],
                (true, false) => [moved, BOB],
            };
            assert_eq!(targets, expected, "{status} {by_bob}");
            let also = byes(&site).iter().filter(|(_, bye)| bye.starts_with("BYE sip:also@")).count();
            assert_eq!(also, usize::from(moves), "{status} {by_bob}");
        }
    }
}

/// Checks that a session that is not refreshed in time ends with a BYE to both parties.
#[test]
fn a_session_lasts_as_long_as_it_is_refreshed() {
    let mut site = Site::new(&format!("{TRACKED}dialogs.session_expires = \"2m\"\n").replace("60s", "1h"));
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    let sent = site.receive(ALICE, &invite(1, 1, "Supported: timer\r\n"));
    let forwarded = request(&sent, "INVITE").to_owned();
    assert_eq!(line(&forwarded, "Session-Expires"), "120");
    let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
    assert_eq!((line(&ok, "Session-Expires"), line(&ok, "Require")), ("120;refresher=uac", "timer"));
    ack(&mut site, &ok);
    site.wait(100_000);
    let contact = format!("Contact: <sip:alice@{ALICE}>\r\nSupported: timer\r\nSession-Expires: 120\r\n");
    let sent = site.receive(ALICE, &of_alice("UPDATE", &ok, 2, &contact));
    let passed = request(&sent, "UPDATE").to_owned();
    site.receive(
        BOB,
        &response(&passed, "200 OK").replace("Content-Length", "Session-Expires: 120;refresher=uac\r\nContent-Length"),
    );
    site.wait(119_000);
    assert_eq!(counts(&site), (1, 0, 1));
    site.wait(1_100);
    assert_eq!((answer_byes(&mut site, "200 OK").len(), site.shared.counts().byes), (2, 2));
    assert_eq!(counts(&site), (0, 0, 0));
}

/// Covers a session timer of the parties, which is used if the server asks for none.
#[test]
fn a_session_without_a_timer_lasts() {
    for (timer, lasts) in [("", true), ("Session-Expires: 90;refresher=uas\r\n", false)] {
        let mut site = Site::new(&TRACKED.replace("60s", "1h"));
        site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let forwarded = request(&sent, "INVITE").to_owned();
        assert!(!forwarded.contains("Session-Expires"), "{forwarded}");
        let ok = from_phone(&forwarded, "200 OK", "bob").replace("Content-Length", &format!("{timer}Content-Length"));
        let ok = site.receive(BOB, &ok);
        ack(&mut site, &ok);
        site.wait(90_100);
        assert_eq!(answer_byes(&mut site, "200 OK").is_empty(), lasts, "{timer}");
        assert_eq!(counts(&site).2, u64::from(lasts), "{timer}");
    }
}

/// Covers two phones that answer at once: the caller has two dialogs, and each is ended.
#[test]
fn every_dialog_of_a_fork_is_ended() {
    let mut site = with_bob("");
    let (forwarded, _) = answered(&mut site, 1);
    site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob2"));
    assert_eq!(counts(&site), (1, 0, 2));
    site.wait(61_000);
    let mut tags: Vec<_> =
        byes(&site).iter().map(|(_, bye)| (line(bye, "From").to_owned(), line(bye, "To").to_owned())).collect();
    tags.sort();
    tags.dedup();
    assert_eq!((tags.len(), byes(&site).len()), (4, 4));
    answer_byes(&mut site, "200 OK");
    assert_eq!(counts(&site), (0, 0, 0));
}

#[test]
fn a_call_that_moves_to_another_shard_is_ended_there() {
    let mut site = with_bob("");
    answered(&mut site, 1);
    let bucket = call::bucket(call::hash(CALL_SECRET, b"1"));
    site.wait(30_000);
    let mut moved = Vec::new();
    site.work(|engine, now, _| moved = engine.export(now, bucket));
    assert_eq!(counts(&site), (0, 0, 0));
    site.work_at(1, |engine, now, out| moved.into_iter().for_each(|record| engine.import(now, record, out)));
    assert_eq!(counts(&site), (1, 0, 1));
    site.now.mono += 29_000;
    site.work_at(1, |engine, now, out| engine.poll(now, out));
    assert_eq!(byes(&site).len(), 0);
    site.now.mono += 1_100;
    site.work_at(1, |engine, now, out| engine.poll(now, out));
    assert_eq!((byes(&site).len(), counts(&site)), (2, (1, 0, 1)));
}

#[test]
fn no_more_calls_than_the_bound_are_tracked() {
    let mut site = with_bob("dialogs.calls = 4\n");
    // Each of the two shards has its share.
    answered(&mut site, 1);
    let (_, ok) = answered(&mut site, 2);
    assert!(site.receive(ALICE, &invite(3, 1, "")).starts_with("SIP/2.0 503 "));
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    answered(&mut site, 4);
    assert_eq!(counts(&site).0, 2);
}

/// Checks that a peer that knows a call but has no route token of this server changes nothing in the call.
#[test]
fn requests_without_our_route_token_end_no_dialog() {
    let mut site = with_bob("");
    let (_, ok) = answered(&mut site, 1);
    let bye = of_alice("BYE", &ok, 2, "");
    let route = format!("Route: {}\r\n", line(&ok, "Record-Route"));
    let forged = bye.replace(&route, &format!("Route: <sip:{SERVER};lr>\r\n"));
    site.receive("203.0.113.66:5060", &forged);
    assert_eq!(counts(&site), (1, 0, 1));
    site.wait(61_000);
    assert_eq!(byes(&site).len(), 2);
}

#[test]
fn a_bye_of_ours_can_be_read() {
    let mut site = with_bob("");
    answered(&mut site, 1);
    site.wait(61_000);
    for (_, bye) in byes(&site) {
        let mut index = Index::new();
        index.parse(bye.as_bytes(), &Limits::default()).expect("a message");
        let message = Message::new(bye.as_bytes(), &index);
        assert_eq!((message.vias().flatten().count(), line(&bye, "Max-Forwards")), (2, "69"), "{bye}");
    }
}
