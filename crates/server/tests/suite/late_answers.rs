//! Answers that arrive too late for a counted and recorded session, and BYEs that do not pass in their dialog.

use crate::accounting::rows;
use crate::dialogs::{ack, answered, counts, from_phone, of_alice, of_bob, request};
use crate::peer::{self, requests};
use crate::site::{ALICE, BOB, Site, invite, line, response};
use std::collections::BTreeSet;

const TRACKED: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\ndialogs.lifetime = \"10h\"\n";

fn with_bob() -> Site {
    let mut site = Site::new(TRACKED);
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    site
}

fn end(site: &mut Site, ok: &str, branch: &str) {
    let bye = site.receive(ALICE, &of_alice("BYE", ok, 2, "").replace("aBYE2", branch));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
}

#[test]
fn a_copy_of_an_answer_revives_no_dialog_that_has_ended() {
    let mut site = with_bob();
    let (forwarded, first) = answered(&mut site, 1);
    let second = from_phone(&forwarded, "200 OK", "bob2");
    let ok = site.receive(BOB, &second);
    ack(&mut site, &ok);
    end(&mut site, &ok, "second");
    assert_eq!(counts(&site), (1, 0, 1));
    assert_eq!(site.receive(BOB, &second), "", "its dialog has ended");
    assert_eq!(counts(&site), (1, 0, 1));
    // A copy for an existing dialog passes: its ACK was lost.
    assert!(site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob")).starts_with("SIP/2.0 200 "));
    end(&mut site, &first, "first");
    assert_eq!((counts(&site), rows(&mut site).0.len()), ((0, 0, 0), 1));
    // Nor do answers pass after the end of the call, even the first answer of a phone.
    for tag in ["bob", "bob2", "bob3"] {
        assert_eq!(site.receive(BOB, &from_phone(&forwarded, "200 OK", tag)), "", "{tag}");
    }
    assert_eq!((counts(&site), rows(&mut site).0.len()), ((0, 0, 0), 0));
}

/// Covers a peer that has received the BYE and may take an INVITE after it for a new call.
#[test]
fn no_invite_passes_behind_a_bye_of_its_dialog() {
    for method in ["INVITE", "UPDATE"] {
        let mut site = with_bob();
        let (forwarded, ok) = answered(&mut site, 1);
        let bye = site.receive(ALICE, &of_alice("BYE", &ok, 3, ""));
        for by_bob in [false, true] {
            let (from, text) = match by_bob {
                true => (BOB, of_bob(method, &forwarded, "bob", 9, &format!("Contact: <sip:bob@{BOB}>\r\n"))),
                false => (ALICE, of_alice(method, &ok, 2, &format!("Contact: <sip:alice@{ALICE}>\r\n"))),
            };
            let answer = site.receive(from, &text);
            assert!(answer.contains("SIP/2.0 491 ") && !answer.contains(&format!("{method} sip:")), "{answer}");
        }
        // A refused BYE leaves the dialog as it was.
        site.receive(BOB, &response(request(&bye, "BYE"), "500 Server Internal Error"));
        let passed = site.receive(ALICE, &of_alice(method, &ok, 4, &format!("Contact: <sip:alice@{ALICE}>\r\n")));
        assert!(passed.contains(&format!("{method} sip:bob@")), "{passed}");
    }
}

#[test]
fn an_invite_that_a_bye_has_overtaken_sets_up_nothing() {
    let mut site = with_bob();
    let (_, ok) = answered(&mut site, 1);
    let contact = format!("Contact: <sip:alice@{ALICE}>\r\n");
    let invite = site.receive(ALICE, &of_alice("INVITE", &ok, 2, &contact));
    let passed = request(&invite, "INVITE").to_owned();
    end(&mut site, &ok, "bye");
    assert_eq!(counts(&site), (0, 0, 0));
    let answer = site.receive(BOB, &response(&passed, "200 OK"));
    assert!(answer.starts_with("SIP/2.0 502 "), "its sender gets no ACK: {answer}");
    assert!(!site.receive(BOB, &response(&passed, "200 OK")).contains("SIP/2.0 200 "));
}

/// Covers a BYE that the server refuses: its sender may have hung up.
#[test]
fn a_bye_that_does_not_pass_in_its_dialog_makes_the_server_ask() {
    for (what, gone) in [("refused", true), ("refused", false), ("aside", true), ("aside", false)] {
        let mut site = with_bob();
        let (_, ok) = answered(&mut site, 1);
        let bye = of_alice("BYE", &ok, 2, if what == "refused" { "Proxy-Require: x\r\n" } else { "" });
        let bye = match what {
            "refused" => bye,
            _ => {
                let start = bye.find("Route: ").expect("a Route");
                let end = start + bye[start..].find("\r\n").expect("a line") + 2;
                format!("{}{}", &bye[..start], &bye[end..])
            }
        };
        let sent = site.receive(ALICE, &bye);
        if what == "refused" {
            assert!(sent.starts_with("SIP/2.0 420 "), "{sent}");
        }
        let mut asked = 0;
        for _ in 0..400 {
            site.wait(100);
            let all = peer::sent(&site).into_iter();
            let all = all.filter(|(_, text)| text.starts_with("OPTIONS ") || text.starts_with("BYE sip:"));
            for (to, text) in all.filter(|(_, text)| text.contains("server.invalid")) {
                asked += usize::from(text.starts_with("OPTIONS "));
                let status = if gone && to == ALICE { "481 Call/Transaction Does Not Exist" } else { "200 OK" };
                site.receive(&to, &response(&text, status));
            }
        }
        assert!(asked >= 2, "{what}");
        let (cdrs, _) = rows(&mut site);
        let by: Vec<_> = cdrs.iter().map(|cdr| &*cdr.ended_by).collect();
        assert_eq!((by, counts(&site).2), if gone { (vec!["lost"], 0) } else { (vec![], 1) }, "{what}");
    }
}

/// Sends a BYE of alice, which bob refuses.
fn refuse_bye(site: &mut Site, ok: &str, cseq: u32) {
    let bye = site.receive(ALICE, &of_alice("BYE", ok, cseq, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "302 Moved Temporarily"));
}

/// Checks that the server asks both parties by OPTIONS again, because a party that confirmed the dialog may hang up
/// before the other party confirms it.
#[test]
fn a_refused_bye_makes_the_server_ask_again() {
    let mut site = with_bob();
    let (_, ok) = answered(&mut site, 1);
    refuse_bye(&mut site, &ok, 2);
    let (mut asked, mut has_ended) = (Vec::new(), false);
    for _ in 0..200 {
        site.wait(100);
        for (to, question) in requests(&site, "OPTIONS") {
            asked.push(to.clone());
            let status = if has_ended && to == ALICE { "481 Call/Transaction Does Not Exist" } else { "200 OK" };
            if to == ALICE && !has_ended {
                // She confirms the call, and hangs up before bob confirms it.
                site.receive(ALICE, &response(&question, status));
                (has_ended, site.now.mono) = (true, site.now.mono + 1);
                refuse_bye(&mut site, &ok, 3);
            } else {
                site.receive(&to, &response(&question, status));
            }
        }
    }
    assert_eq!(asked.iter().filter(|to| *to == ALICE).count(), 2, "{asked:?}");
    for _ in 0..330 {
        site.wait(100);
    }
    assert_eq!(rows(&mut site).0.iter().map(|cdr| cdr.ended_by.clone()).collect::<Vec<_>>(), ["lost"]);
}

/// Waits, and answers each OPTIONS and BYE of the server with the status that `status` chooses by receiver and moment. Returns the
/// receivers of the OPTIONS.
fn answer_for(site: &mut Site, ms: u64, status: impl Fn(&str, u64) -> &'static str) -> Vec<String> {
    let (mut answered, mut asked, begun) = (BTreeSet::new(), Vec::new(), site.now.mono);
    while site.now.mono < begun + ms {
        site.wait(100);
        let own = peer::sent(site).into_iter().filter(|(_, text)| text.contains("server.invalid"));
        for (to, request) in own.filter(|request| answered.insert(request.clone())).collect::<Vec<_>>() {
            if request.starts_with("OPTIONS ") {
                asked.push(to.clone());
            }
            site.receive(&to, &response(&request, status(&to, site.now.mono - begun)));
        }
    }
    asked
}

fn ends_as_lost(site: &mut Site) {
    assert_eq!(rows(site).0.iter().map(|cdr| cdr.ended_by.clone()).collect::<Vec<_>>(), ["lost"]);
    assert_eq!(counts(site), (0, 0, 0));
}

const GONE: &str = "481 Call/Transaction Does Not Exist";

/// Covers bob, who confirms the dialog and accepts a late copy of the BYE afterwards.
#[test]
fn after_a_bye_beside_its_dialog_the_server_asks_until_no_copy_can_come() {
    for takes_it in [true, false] {
        let mut site = Site::new(&format!("{TRACKED}proxy.relay_for = \"everyone\"\n"));
        site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
        let (_, ok) = answered(&mut site, 1);
        let bye = of_alice("BYE", &ok, 2, "");
        let start = bye.find("Route: ").expect("a Route");
        let end = start + bye[start..].find("\r\n").expect("a line") + 2;
        let sent = site.receive(ALICE, &format!("{}{}", &bye[..start], &bye[end..]));
        assert!(sent.contains("BYE sip:bob@"), "{sent}");
        let asked =
            answer_for(&mut site, 60_000, |to, ms| if takes_it && to == BOB && ms > 20_000 { GONE } else { "200 OK" });
        assert_eq!(asked, [ALICE, BOB, ALICE, BOB]);
        match takes_it {
            true => ends_as_lost(&mut site),
            false => assert_eq!((counts(&site), rows(&mut site).0.len()), ((1, 0, 1), 0)),
        }
    }
}

/// Covers a 2xx that reaches alice between the BYE of bob and this server: alice begins the session, and receives the
/// BYE then.
#[test]
fn a_bye_before_the_2xx_of_its_dialog_makes_the_server_ask() {
    for rings in [true, false] {
        let mut site = with_bob();
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let forwarded = request(&sent, "INVITE").to_owned();
        if rings {
            site.receive(BOB, &from_phone(&forwarded, "180 Ringing", "bob"));
        }
        let bye = site.receive(BOB, &of_bob("BYE", &forwarded, "bob", 1, ""));
        assert!(bye.contains("BYE sip:alice@"), "{bye}");
        let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
        ack(&mut site, &ok);
        assert!(ok.starts_with("SIP/2.0 200 "), "{ok}");
        site.receive(ALICE, &response(request(&bye, "BYE"), "200 OK"));
        let asked = answer_for(&mut site, 10_000, |to, _| if to == ALICE { GONE } else { "200 OK" });
        assert_eq!(asked, [ALICE, BOB]);
        ends_as_lost(&mut site);
    }
}

/// Covers a BYE that overtakes the 2xx: alice does not know the dialog yet, and begins the session once the 2xx
/// arrives.
#[test]
fn a_bye_before_the_ack_that_the_caller_does_not_know_ends_nothing() {
    let mut site = with_bob();
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let forwarded = request(&sent, "INVITE").to_owned();
    let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
    let bye = site.receive(BOB, &of_bob("BYE", &forwarded, "bob", 1, ""));
    site.receive(ALICE, &response(request(&bye, "BYE"), GONE));
    ack(&mut site, &ok);
    assert_eq!(answer_for(&mut site, 10_000, |_, _| "200 OK"), [ALICE, BOB]);
    assert_eq!((counts(&site), rows(&mut site).0.len()), ((1, 0, 1), 0));
}

/// Covers alice, who answers an OPTIONS of the server and then hangs up. Her answer arrives after the refusal of her
/// BYE.
#[test]
fn an_answer_to_a_question_from_before_a_refused_bye_confirms_nothing() {
    let mut site = with_bob();
    let (_, ok) = answered(&mut site, 1);
    refuse_bye(&mut site, &ok, 2);
    let (mut questions, mut late) = (BTreeSet::new(), None);
    for _ in 0..500 {
        site.wait(100);
        let own = peer::sent(&site).into_iter();
        let own = own.filter(|(_, text)| text.starts_with("OPTIONS ") || text.starts_with("BYE "));
        for (to, asked) in own.filter(|asked| questions.insert(asked.clone())).collect::<Vec<_>>() {
            match (&*to, &mut late) {
                (ALICE, None) => late = Some(response(&asked, "200 OK")),
                (ALICE, Some(_)) => drop(site.receive(ALICE, &response(&asked, GONE))),
                _ => drop(site.receive(BOB, &response(&asked, "200 OK"))),
            }
        }
        if let Some(answer) = late.take_if(|answer| !answer.is_empty()) {
            refuse_bye(&mut site, &ok, 3);
            site.receive(ALICE, &answer);
            late = Some(String::new());
        }
    }
    ends_as_lost(&mut site);
}

/// Covers `sipp -sn uac`, which sends its BYE without the route set. Its peer accepts the BYE, and ignores the OPTIONS
/// of the server.
#[test]
fn a_bye_beside_its_dialog_that_the_peer_accepts_is_the_end() {
    let other = BOB.replace("198.51.100.8", "203.0.113.50");
    let elsewhere = ALICE.replace("198.51.100.7", "203.0.113.51");
    for (from, cseq, by, status, own, seconds) in [
        (ALICE, 2, BOB, "200 OK", GONE, Some(5)),
        (ALICE, 2, BOB, "200 OK", "", Some(5)),
        // The dialog has existed until the BYE of the server.
        (ALICE, 2, BOB, "200 OK", "200 OK", Some(6)),
        // From other addresses than those of its peer and its party, it ends nothing.
        (ALICE, 2, &*other, "200 OK", "200 OK", None),
        (&*elsewhere, 2, BOB, "200 OK", "200 OK", None),
        (ALICE, 1, BOB, "200 OK", "200 OK", None),
        (ALICE, 2, BOB, GONE, "200 OK", None),
    ] {
        let what = format!("{from} {cseq} {by} {status} {own:?}");
        let mut site = with_bob();
        let (_, ok) = answered(&mut site, 1);
        site.wait(5_000);
        let bye = of_alice("BYE", &ok, cseq, "");
        let target = bye.split(' ').nth(1).expect("a Request-URI").to_owned();
        let bye = bye.replacen(&target, "sip:bob@example.org", 1);
        let route = format!("Route: {}\r\n", line(&bye, "Route"));
        let sent = site.receive(from, &bye.replace(&route, ""));
        let passed = request(&sent, "BYE").to_owned();
        site.receive(by, &response(&passed, status));
        let byes: Vec<_> = crate::dialogs::byes(&site).into_iter().filter(|(_, bye)| *bye != passed).collect();
        site.wait(1_000);
        for (to, bye) in &byes {
            assert_eq!(to, BOB, "alice has hung up: {what}");
            if !own.is_empty() {
                site.receive(to, &response(bye, own));
            }
        }
        let is_ended = seconds.is_some();
        assert_eq!(byes.len(), usize::from(is_ended), "{what}");
        if own.is_empty() {
            (0..340).for_each(|_| drop(site.wait(100)));
        }
        let (cdrs, _) = rows(&mut site);
        let lasted =
            |cdr: &strowger_store::accounting::Cdr| (cdr.end.expect("an end") - cdr.answer.expect("an answer")) / 1_000;
        assert_eq!(cdrs.first().map(lasted), seconds, "{what}");
        assert!(cdrs.iter().all(|cdr| cdr.ended_by == "caller"), "{what}");
        assert_eq!(counts(&site).2, u64::from(!is_ended), "{what}");
    }
}
