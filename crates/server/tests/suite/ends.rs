//! End of a call: its record, its limits and its entry in the table of calls end together.

use crate::accounting::rows;
use crate::dialogs::{ack, answer_byes, answered, counts, from_phone, of_alice, of_bob, request};
use crate::peer::requests;
use crate::site::{ALICE, BOB, SERVER, Site, invite, line, response};

const LIMITED: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\ndialogs.lifetime = \"1h\"\n\
    [[call_limit]]\nname = \"line\"\nmost = 1\nstatus = 486\n[[rule]]\nname = \"all\"\ncall_limits = [\"line\"]\n";

fn with_bob(settings: &str) -> Site {
    let mut site = Site::new(settings);
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    site
}

/// Returns a request of this party, its source and its target.
fn sent_by<'a>(
    by_bob: bool,
    method: &str,
    (forwarded, ok): (&str, &str),
    cseq: u32,
    more: &str,
) -> (String, &'a str, &'a str) {
    match by_bob {
        true => (of_bob(method, forwarded, "bob", cseq, more), BOB, ALICE),
        false => (of_alice(method, ok, cseq, more), ALICE, BOB),
    }
}

/// Asserts that the only call is tracked, counted and without a record, and that requests pass in it.
#[track_caller]
fn stands(site: &mut Site, ok: &str, cseq: u32, what: &str) {
    assert_eq!(counts(site), (1, 0, 1), "{what}");
    let limited: u32 = site.shared.call_limits.list().iter().map(|(_, calls)| calls).sum();
    assert_eq!((limited, rows(site).0.len()), (1, 0), "{what}");
    let info = site.receive(ALICE, &of_alice("INFO", ok, cseq, ""));
    assert!(info.starts_with("INFO sip:bob@"), "{what}: {info}");
    site.receive(BOB, &response(&info, "200 OK"));
}

#[test]
fn a_bye_that_is_refused_ends_nothing() {
    for status in [
        "500 Server Internal Error",
        "420 Bad Extension",
        "415 Unsupported Media Type",
        "483 Too Many Hops",
        "503 Service Unavailable",
        "400 Bad Request",
        "404 Not Found",
        "603 Decline",
        "302 Moved Temporarily",
        "401 Unauthorized",
        "407 Proxy Authentication Required",
    ] {
        for by_bob in [false, true] {
            let mut site = with_bob(LIMITED);
            let (forwarded, ok) = answered(&mut site, 1);
            let parties = (&*forwarded, &*ok);
            let began = site.now.wall;
            site.wait(300);
            let (bye, from, to) = sent_by(by_bob, "BYE", parties, if by_bob { 7 } else { 2 }, "");
            let passed = site.receive(from, &bye);
            site.receive(to, &response(request(&passed, "BYE"), status));
            stands(&mut site, &ok, 3, status);
            // The limit has no room for a second call.
            assert!(site.receive(ALICE, &invite(2, 1, "")).contains("SIP/2.0 486 "), "{status}");
            rows(&mut site);
            site.wait(1_000);
            let (bye, from, to) = sent_by(by_bob, "BYE", parties, 9, "");
            let passed = site.receive(from, &bye);
            site.receive(to, &response(request(&passed, "BYE"), "200 OK"));
            let (cdrs, _) = rows(&mut site);
            let [cdr] = &cdrs[..] else { panic!("{status}: {cdrs:?}") };
            assert_eq!((cdr.end, counts(&site)), (Some(began + 1_300), (0, 0, 0)), "{status}");
            assert_eq!(cdr.ended_by, if by_bob { "callee" } else { "caller" });
        }
    }
}

#[test]
fn a_bye_that_this_server_refuses_ends_nothing() {
    for (more, status) in
        [("Proxy-Require: x\r\n", "420"), ("Max-Forwards: 0\r\n", "483"), ("Max-Breadth: 0\r\n", "440")]
    {
        let mut site = with_bob(LIMITED);
        let (_, ok) = answered(&mut site, 1);
        let mut bye = of_alice("BYE", &ok, 2, more);
        if more.starts_with("Max-Forwards") {
            bye = bye.replacen("Max-Forwards: 70\r\n", "", 1);
        }
        let answer = site.receive(ALICE, &bye);
        assert!(answer.starts_with(&format!("SIP/2.0 {status} ")), "{answer}");
        stands(&mut site, &ok, 3, more);
    }
}

/// Covers a party that gives Call-ID and tags of its call to another peer for another call.
#[test]
fn a_bye_that_goes_to_another_peer_ends_nothing() {
    for by_route in [false, true] {
        let mut site = with_bob("auth.calls = false\nserver.shards = 2\naccounting.cdr = true\n");
        let (_, ok) = answered(&mut site, 1);
        let lent = invite(1, 5, "").replace(";tag=a\r\n", ";tag=a2\r\n");
        let lent = site.receive(ALICE, &lent);
        let other = from_phone(request(&lent, "INVITE"), "200 OK", "bob");
        let other =
            site.receive(BOB, &other.replace(&format!("<sip:bob@{BOB}>\r\n"), &format!("<sip:other@{BOB}>\r\n")));
        assert!(other.starts_with("SIP/2.0 200 "), "{other}");
        assert_eq!(counts(&site), (2, 0, 2));
        let bye = match by_route {
            false => of_alice("BYE", &other, 6, "").replace(";tag=a2\r\n", ";tag=a\r\n"),
            true => of_alice("BYE", &ok, 6, "").replace("\r\nFrom: ", ", <sip:192.0.2.99;lr>\r\nFrom: "),
        };
        let passed = site.receive(ALICE, &bye);
        if passed.contains("BYE sip:") {
            site.receive(BOB, &response(request(&passed, "BYE"), "200 OK"));
        }
        assert_eq!((counts(&site).2, rows(&mut site).0.len()), (2, 0), "{by_route} {passed}");
        // A refresh of the other call does not refresh the first call.
        let update = of_alice("UPDATE", &other, 7, "").replace(";tag=a2\r\n", ";tag=a\r\n");
        let passed = site.receive(ALICE, &update);
        let more = format!("Session-Expires: 90;refresher=uac\r\nContact: <sip:other@{BOB}>\r\nContent-Length");
        site.receive(BOB, &response(request(&passed, "UPDATE"), "200 OK").replace("Content-Length", &more));
        site.wait(30_000);
        assert_eq!(rows(&mut site).0.len(), 0, "{by_route}");
        let passed = site.receive(ALICE, &of_alice("BYE", &ok, 9, ""));
        site.receive(BOB, &response(request(&passed, "BYE"), "200 OK"));
        assert_eq!((counts(&site).2, rows(&mut site).0.len()), (1, 1), "{by_route}");
    }
}

/// Checks that each dialog, and each party of the dialog, has a BYE of its own.
#[test]
fn a_refused_bye_is_not_taken_for_another() {
    let mut site = with_bob(LIMITED);
    let (forwarded, ok) = answered(&mut site, 1);
    // The two BYEs cross; the BYE of the caller is refused first.
    let of_caller = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    let of_callee = site.receive(BOB, &of_bob("BYE", &forwarded, "bob", 7, ""));
    site.receive(BOB, &response(request(&of_caller, "BYE"), "500 Server Internal Error"));
    assert_eq!((counts(&site).2, rows(&mut site).0.len()), (1, 0));
    site.receive(ALICE, &response(request(&of_callee, "BYE"), "200 OK"));
    let (cdrs, _) = rows(&mut site);
    assert_eq!((counts(&site).0, cdrs.len(), &*cdrs[0].ended_by), (0, 1, "callee"));

    // Two phones have answered: the end of one dialog does not end the other.
    let mut site = with_bob(LIMITED);
    let (forwarded, ok) = answered(&mut site, 1);
    let also = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob2"));
    let first = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    let second = site.receive(ALICE, &of_alice("BYE", &also, 2, "").replace("aBYE2", "aBYE2b"));
    site.receive(BOB, &response(request(&second, "BYE"), "200 OK"));
    assert_eq!((counts(&site), rows(&mut site).0.len()), ((1, 0, 1), 0));
    site.receive(BOB, &response(request(&first, "BYE"), "500 Server Internal Error"));
    stands(&mut site, &ok, 4, "the first dialog");
}

/// Checks that a party that does not answer a BYE counts as one that has lost the dialog. The server sends the party a
/// BYE, since the BYE of the peer may have been lost. Until then the call continues.
#[test]
fn a_bye_without_an_answer_ends_the_call_with_a_bye_of_the_server() {
    for by_bob in [false, true] {
        let mut site = with_bob(LIMITED);
        let (forwarded, ok) = answered(&mut site, 1);
        let began = site.now.wall;
        site.wait(900);
        let (bye, from, to) = sent_by(by_bob, "BYE", (&forwarded, &ok), 7, "");
        site.receive(from, &bye);
        let mut own = Vec::new();
        while own.is_empty() {
            assert_eq!((counts(&site).2, rows(&mut site).0.len()), (1, 0));
            site.wait(100);
            own = requests(&site, "BYE").into_iter().filter(|(_, bye)| line(bye, "CSeq") == "8 BYE").collect();
            assert!(site.now.wall < began + 40_000, "no BYE of the server");
        }
        assert_eq!((counts(&site).2, rows(&mut site).0.len(), &*own[0].0, own.len()), (1, 0, to, 1));
        site.wait(300);
        site.receive(to, &response(&own[0].1, "200 OK"));
        let (cdrs, _) = rows(&mut site);
        let [cdr] = &cdrs[..] else { panic!("{cdrs:?}") };
        let end = cdr.end.expect("it has ended");
        assert!((began + 32_000..began + 34_500).contains(&end) && end == site.now.wall, "{}", end - began);
        assert_eq!((counts(&site), &*cdr.ended_by), ((0, 0, 0), if by_bob { "callee" } else { "caller" }));
    }
}

/// Checks the bounds of RFC 4028 sections 5, 8 and 9.
#[test]
fn a_2xx_makes_no_session_shorter_than_it_may_be() {
    let settings = LIMITED.replace("1h", "10h");
    for (offer, answer, ends_after) in [
        ("Session-Expires: 1800\r\n", "1", None),
        ("Session-Expires: 1800\r\n", "89", None),
        ("Session-Expires: 1800\r\n", "90", Some(90)),
        ("Session-Expires: 1800\r\n", "1801", None),
        ("Session-Expires: 1800\r\n", "1800", Some(1_800)),
        ("Session-Expires: 1800\r\nMin-SE: 600\r\n", "599", None),
        ("Session-Expires: 1800\r\nMin-SE: 600\r\n", "600", Some(600)),
        ("", "89", None),
        ("", "120", Some(120)),
    ] {
        for (n, method) in ["INVITE", "UPDATE", "re-INVITE"].into_iter().enumerate() {
            let what = format!("{method} {offer:?} {answer}");
            let mut site = with_bob(&settings);
            let timer = format!("Session-Expires: {answer};refresher=uac\r\nContent-Length");
            if n == 0 {
                let passed = site.receive(ALICE, &invite(1, 1, offer));
                let ok = from_phone(request(&passed, "INVITE"), "200 OK", "bob").replace("Content-Length", &timer);
                let ok = site.receive(BOB, &ok);
                ack(&mut site, &ok);
            } else {
                let (forwarded, _) = answered(&mut site, 1);
                let method = method.trim_start_matches("re-");
                let more = format!("Contact: <sip:bob@{BOB}>\r\n{offer}");
                let passed = site.receive(BOB, &of_bob(method, &forwarded, "bob", 7, &more));
                let ok = response(request(&passed, method), "200 OK").replace("Content-Length", &timer);
                site.receive(ALICE, &ok);
            }
            site.wait(1_100);
            assert_eq!(counts(&site).2, 1, "{what}");
            // The call lasts longer than any of these timers.
            let Some(ends_after) = ends_after else {
                site.wait(3_000_000);
                assert!(answer_byes(&mut site, "200 OK").is_empty(), "{what}");
                assert_eq!(counts(&site).2, 1, "{what}");
                continue;
            };
            site.wait(ends_after * 1_000 - 1_200);
            assert_eq!(counts(&site).2, 1, "{what}");
            site.wait(200);
            // Both parties get a BYE.
            let mut to = answer_byes(&mut site, "200 OK");
            to.sort();
            assert_eq!((counts(&site), to), ((0, 0, 0), vec![ALICE.to_owned(), BOB.to_owned()]), "{what}");
            assert_eq!(&*rows(&mut site).0[0].ended_by, "session timer", "{what}");
        }
    }
}

/// Checks that the route tokens of a call that has ended admit only the BYE of the other party.
#[test]
fn nothing_passes_in_a_call_that_has_ended() {
    let cheap = LIMITED.replace("accounting.cdr = true\n", "");
    for settings in [LIMITED, &cheap, &format!("dialogs.folder = \"calls\"\n{LIMITED}")] {
        let mut site = with_bob(settings);
        let (forwarded, ok) = answered(&mut site, 1);
        for cseq in [2, 3] {
            let info = site.receive(ALICE, &of_alice("INFO", &ok, cseq, ""));
            assert!(info.starts_with("INFO "), "it has not ended: {info}");
            site.receive(BOB, &response(&info, "200 OK"));
        }
        let bye = site.receive(ALICE, &of_alice("BYE", &ok, 4, ""));
        site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
        assert_eq!(counts(&site), (0, 0, 0));
        for (n, method) in ["INFO", "UPDATE", "MESSAGE", "OPTIONS", "REFER", "PRACK"].into_iter().enumerate() {
            for by_bob in [false, true] {
                let (text, from, _) = sent_by(by_bob, method, (&forwarded, &ok), 10 + n as u32, "");
                let answer = site.receive(from, &text);
                assert!(answer.starts_with("SIP/2.0 481 "), "{method} {by_bob}: {answer}");
            }
        }
        // The BYE of the other party may have crossed, and a REFER may have left a subscription.
        for (n, method) in ["BYE", "NOTIFY"].into_iter().enumerate() {
            let passed = site.receive(BOB, &of_bob(method, &forwarded, "bob", 20 + n as u32, ""));
            assert!(passed.starts_with(&format!("{method} sip:alice@")), "{passed}");
        }
    }
}

/// Checks that calls that are not tracked, or that only an earlier process can know, do not count as ended.
#[test]
fn requests_pass_in_calls_that_no_table_can_know() {
    let mut site = with_bob("auth.calls = false\nlog.calls_per_minute = 0\n");
    let (_, ok) = answered(&mut site, 1);
    assert_eq!(counts(&site), (0, 0, 0));
    let passed = site.receive(ALICE, &of_alice("INFO", &ok, 2, ""));
    assert!(passed.starts_with("INFO "), "{passed}");
    let mut site = with_bob(LIMITED);
    let (_, ok) = answered(&mut site, 1);
    let now = strowger_core::Now { mono: 40, wall: site.now.wall + 5_000 };
    let mut next = Site::start(now, &[&format!("udp:{SERVER}")], LIMITED);
    let passed = next.receive(ALICE, &of_alice("INFO", &ok, 2, ""));
    assert!(passed.starts_with("INFO "), "{passed}");
}

/// Covers a phone that answers one INVITE with many tags.
#[test]
fn a_call_has_a_bounded_number_of_answered_dialogs() {
    let mut site = with_bob(LIMITED);
    let passed = site.receive(ALICE, &invite(1, 1, ""));
    let forwarded = request(&passed, "INVITE").to_owned();
    for n in 0..100 {
        site.receive(BOB, &from_phone(&forwarded, "180 Ringing", &format!("rings{n}")));
    }
    assert_eq!(counts(&site), (1, 64, 0));
    let mut passed = 0;
    for n in 0..1_000 {
        let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", &format!("tag{n}")));
        passed += u64::from(ok.starts_with("SIP/2.0 200 "));
    }
    let dropped = |site: &Site| site.shared.counts().answers_dropped;
    assert_eq!((passed, counts(&site), dropped(&site)), (64, (1, 0, 64), 1_000 - 64));
    // A known answer is repeated until its ACK comes.
    let again = site.receive(BOB, &from_phone(&forwarded, "200 OK", "tag63"));
    assert!(again.starts_with("SIP/2.0 200 "), "{again}");
    // The end includes all dialogs.
    let id = site.engines[0].list_calls(site.now, 0, 9, None).calls[0].id;
    site.work(|engine, now, out| assert!(engine.end_call(now, id, out)));
    assert_eq!((requests(&site, "BYE").len(), rows(&mut site).0.len()), (128, 0));
    answer_byes(&mut site, "200 OK");
    assert_eq!((counts(&site), rows(&mut site).0.len()), ((0, 0, 0), 1));
}

/// Checks that the server asks both parties after a refused BYE, because a telephone hangs up even if its BYE is
/// refused.
#[test]
fn after_a_refused_bye_both_parties_are_asked() {
    for (alice, bob, is_lost) in [
        ("200 OK", "200 OK", false),
        ("405 Method Not Allowed", "501 Not Implemented", false),
        ("481 Call/Transaction Does Not Exist", "200 OK", true),
        ("200 OK", "408 Request Timeout", true),
        ("200 OK", "", true),
    ] {
        let mut site = with_bob(LIMITED);
        let (_, ok) = answered(&mut site, 1);
        let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
        site.receive(BOB, &response(request(&bye, "BYE"), "503 Service Unavailable"));
        let mut asked = Vec::new();
        for _ in 0..25 {
            site.wait(100);
            asked.extend(requests(&site, "OPTIONS"));
        }
        asked.sort();
        asked.dedup();
        let [(to_alice, of_bob), (to_bob, of_alice)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((&**to_alice, &**to_bob), (ALICE, BOB));
        // A higher CSeq would make the next request of the party look old.
        assert_eq!((line(of_alice, "CSeq"), line(of_bob, "CSeq")), ("2 OPTIONS", "0 OPTIONS"));
        for (from, question, status) in [(ALICE, of_bob, alice), (BOB, of_alice, bob)] {
            if !status.is_empty() {
                let sent = site.receive(from, &response(question, status));
                assert!(!sent.contains("SIP/2.0 ") || sent.starts_with("BYE "), "its response goes nowhere: {sent}");
            }
        }
        for _ in 0..750 {
            site.wait(100);
        }
        assert_eq!(counts(&site).2, u64::from(!is_lost), "{alice} {bob}");
        let (cdrs, _) = rows(&mut site);
        let by: Vec<_> = cdrs.iter().map(|cdr| &*cdr.ended_by).collect();
        assert_eq!(by, if is_lost { vec!["lost"] } else { vec![] }, "{alice} {bob}");
        assert_eq!(site.shared.counts().byes, if is_lost { 2 } else { 0 });
    }
}

/// Covers a callee that uses Call-ID and tag of its dialog for a call of its own.
#[test]
fn a_bye_of_the_callee_is_not_taken_for_one_of_its_own_call() {
    let mut site = with_bob("auth.calls = false\nserver.shards = 2\naccounting.cdr = true\n");
    let (forwarded, _) = answered(&mut site, 1);
    let own = invite(1, 7, "").replace("z9hG4bK1-7", "z9hG4bKlent").replace(";tag=a\r\n", ";tag=bob\r\n");
    let lent = site.receive(ALICE, &own);
    let other = from_phone(request(&lent, "INVITE"), "200 OK", "x");
    assert!(site.receive(BOB, &other).starts_with("SIP/2.0 200 "));
    assert_eq!((counts(&site), rows(&mut site).0.len()), ((2, 0, 2), 0));
    let bye = site.receive(BOB, &of_bob("BYE", &forwarded, "bob", 9, ""));
    site.receive(ALICE, &response(request(&bye, "BYE"), "200 OK"));
    let (cdrs, _) = rows(&mut site);
    let [cdr] = &cdrs[..] else { panic!("{cdrs:?}") };
    assert_eq!((&*cdr.ended_by, counts(&site)), ("callee", (1, 0, 1)));
}
