//! BYEs of the server: a call that the server ends is counted and recorded until each party has ended it.

use crate::accounting::rows;
use crate::dialogs::{answered, byes, counts, of_alice, of_bob, request};
use crate::peer::requests;
use crate::site::{ALICE, BOB, Site, invite, line, response};
use strowger_store::accounting::Cdr;

const LIMITED: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\ndialogs.lifetime = \"1m\"\n\
    [[call_limit]]\nname = \"line\"\nmost = 1\nstatus = 486\n[[rule]]\nname = \"all\"\ncall_limits = [\"line\"]\n";

fn with_bob(settings: &str) -> Site {
    let mut site = Site::new(settings);
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    site
}

/// Ends the only call as an operator does. Returns the BYEs to alice and to bob.
fn end(site: &mut Site) -> [String; 2] {
    let id = site.engines[0].list_calls(site.now, 0, 9, None).calls[0].id;
    site.work(|engine, now, out| assert!(engine.end_call(now, id, out)));
    both(site)
}

fn both(site: &Site) -> [String; 2] {
    let all = byes(site);
    let to = |party: &str| all.iter().find(|(to, _)| to == party).expect("a BYE").1.clone();
    assert_eq!(all.len(), 2, "{all:?}");
    [to(ALICE), to(BOB)]
}

/// Asserts that the call counts, and has no record.
#[track_caller]
fn stands(site: &mut Site, what: &str) {
    let limited: u32 = site.shared.call_limits.list().iter().map(|(_, calls)| calls).sum();
    assert_eq!((counts(site).0, limited, rows(site).0.len()), (1, 1, 0), "{what}");
}

#[track_caller]
fn has_ended(site: &mut Site, what: &str) -> Cdr {
    let limited: u32 = site.shared.call_limits.list().iter().map(|(_, calls)| calls).sum();
    let (mut cdrs, _) = rows(site);
    assert_eq!((counts(site), limited, cdrs.len()), ((0, 0, 0), 0, 1), "{what}");
    cdrs.pop().expect("one")
}

#[test]
fn a_call_that_the_server_ends_stands_until_each_party_has_ended_it() {
    for (alice, bob) in
        [("200 OK", "200 OK"), ("481 Gone", "200 OK"), ("408 Request Timeout", "481 Gone"), ("", "200 OK")]
    {
        let what = format!("{alice:?} {bob:?}");
        let mut site = with_bob(LIMITED);
        let (_, _) = answered(&mut site, 1);
        let began = site.now.wall;
        site.wait(5_000);
        let [to_alice, to_bob] = end(&mut site);
        stands(&mut site, &what);
        site.wait(200);
        site.receive(BOB, &response(&to_bob, bob));
        stands(&mut site, &what);
        site.wait(200);
        match alice {
            "" => {
                (0..315).for_each(|_| drop(site.wait(100)));
                stands(&mut site, &what);
                (0..20).for_each(|_| drop(site.wait(100)));
            }
            status => drop(site.receive(ALICE, &response(&to_alice, status))),
        }
        let cdr = has_ended(&mut site, &what);
        // A 2xx tells when a party has ended the call. A party that does not know the call, or is silent, has ended it
        // before.
        let after = match (alice, bob) {
            ("200 OK", _) => 5_400,
            (_, "200 OK") => 5_200,
            _ => 5_000,
        };
        assert_eq!((cdr.end, &*cdr.ended_by), (Some(began + after), "operator"), "{what}");
    }
}

#[test]
fn timers_wait_for_the_answers_too() {
    for ender in ["lifetime", "session timer"] {
        let mut site = with_bob(LIMITED);
        if ender == "lifetime" {
            answered(&mut site, 1);
            site.wait(60_100);
        } else {
            let mut longer = with_bob(&LIMITED.replace("1m", "1h"));
            let (forwarded, _) = answered(&mut longer, 1);
            let update = of_bob("UPDATE", &forwarded, "bob", 7, &format!("Contact: <sip:bob@{BOB}>\r\n"));
            let passed = longer.receive(BOB, &update);
            let timer = "Session-Expires: 90;refresher=uac\r\nContent-Length";
            longer.receive(ALICE, &response(request(&passed, "UPDATE"), "200 OK").replace("Content-Length", timer));
            longer.wait(90_100);
            site = longer;
        }
        let [to_alice, to_bob] = both(&site);
        stands(&mut site, ender);
        site.receive(ALICE, &response(&to_alice, "200 OK"));
        stands(&mut site, ender);
        site.receive(BOB, &response(&to_bob, "200 OK"));
        assert_eq!(has_ended(&mut site, ender).ended_by, ender);
    }
}

#[test]
fn nothing_passes_but_a_bye_in_a_dialog_that_the_server_ends() {
    for by_bob in [false, true] {
        let mut site = with_bob(LIMITED);
        let (forwarded, ok) = answered(&mut site, 1);
        end(&mut site);
        let contact = format!("Contact: <sip:alice@{ALICE}>\r\n");
        let send = |site: &mut Site, method: &str, cseq: u32| match by_bob {
            true => site.receive(BOB, &of_bob(method, &forwarded, "bob", cseq, &contact)),
            false => site.receive(ALICE, &of_alice(method, &ok, cseq, &contact)),
        };
        for (n, method) in ["INVITE", "UPDATE", "INFO", "MESSAGE", "REFER", "OPTIONS", "PRACK"].into_iter().enumerate()
        {
            let answer = send(&mut site, method, 10 + n as u32);
            assert!(
                answer.contains("SIP/2.0 481 ") && !answer.contains(&format!("{method} sip:")),
                "{method}: {answer}"
            );
        }
        stands(&mut site, "refused requests");
        let passed = send(&mut site, "BYE", 30);
        assert!(passed.contains("BYE sip:"), "{passed}");
        let to = if by_bob { ALICE } else { BOB };
        site.receive(to, &response(request(&passed, "BYE"), "200 OK"));
        assert_eq!(has_ended(&mut site, "a BYE that crossed").ended_by, "operator");
    }
}

#[test]
fn a_bye_of_the_server_that_is_refused_is_sent_again() {
    for status in
        ["500 Old", "401 Unauthorized", "407 Proxy Authentication Required", "491 Request Pending", "503 Busy"]
    {
        let mut site = with_bob(LIMITED);
        let (_, ok) = answered(&mut site, 1);
        let [to_alice, to_bob] = end(&mut site);
        site.receive(ALICE, &response(&to_alice, "200 OK"));
        site.receive(BOB, &response(&to_bob, status));
        stands(&mut site, status);
        site.wait(600);
        let [(to, again)] = &byes(&site)[..] else { panic!("{status}: {:?}", byes(&site)) };
        let number =
            |text: &str| line(text, "CSeq").split(' ').next().and_then(|n| n.parse::<u32>().ok()).expect("a number");
        // Above each CSeq that passes: the phone may have seen more of the caller than this server.
        assert!(to == BOB && number(again) > i32::MAX as u32 - 1_024, "{again}");
        let info = site.receive(ALICE, &of_alice("INFO", &ok, number(&to_bob) + 1, ""));
        assert!(info.starts_with("SIP/2.0 481 "), "{info}");
        site.receive(BOB, &response(again, "200 OK"));
        assert_eq!(has_ended(&mut site, status).ended_by, "operator");
    }
}

#[test]
fn the_byes_of_the_server_are_bounded() {
    let mut site = with_bob(LIMITED);
    answered(&mut site, 1);
    let began = site.now.wall;
    let [to_alice, to_bob] = end(&mut site);
    site.receive(ALICE, &response(&to_alice, "200 OK"));
    site.receive(BOB, &response(&to_bob, "500 No"));
    let (mut sent, mut numbers) = (1, vec![line(&to_bob, "CSeq").to_owned()]);
    while counts(&site).0 > 0 {
        stands(&mut site, "it is refused");
        site.wait(100);
        for (to, bye) in byes(&site) {
            sent += 1;
            numbers.push(line(&bye, "CSeq").to_owned());
            site.receive(&to, &response(&bye, "500 No"));
        }
        assert!(site.now.wall < began + 60_000, "{sent} BYEs, and no end");
    }
    numbers.dedup();
    assert_eq!((sent, numbers.len(), site.shared.counts().byes), (4, 4, 5));
    let cdr = has_ended(&mut site, "refused to the last");
    // Until then the party may have continued.
    assert_eq!(cdr.end, Some(site.now.wall));
}

/// Starts the next process, some time later, with the only call of this one.
fn next_process(site: &mut Site, settings: &str) -> Site {
    use strowger_calls::read_kept;
    use strowger_server::engine::Effect;
    let now = site.now;
    site.engines[0].keep_changed(now);
    let mut states = site.engines[0].effects.drain(..).filter_map(|effect| match effect {
        Effect::PersistCall { state, .. } => Some(state),
        _ => None,
    });
    let state = states.next_back().expect("it is kept");
    let mut next = with_bob(settings);
    next.now.wall = now.wall + 4_000;
    let call = read_kept(next.now, &state).expect("a call");
    next.work(|engine, now, _| assert_eq!(engine.take_over(now, vec![call]), 0));
    next
}

/// Checks that the next process continues an end if calls are kept.
#[test]
fn an_end_goes_on_in_the_next_process() {
    let settings = format!("dialogs.folder = \"calls\"\n{LIMITED}");
    let mut site = with_bob(&settings);
    answered(&mut site, 1);
    end(&mut site);
    let mut next = next_process(&mut site, &settings);
    stands(&mut next, "taken over");
    next.wait(1_100);
    let [to_alice, to_bob] = both(&next);
    next.receive(ALICE, &response(&to_alice, "481 Gone"));
    next.receive(BOB, &response(&to_bob, "481 Gone"));
    assert_eq!(has_ended(&mut next, "ended").ended_by, "operator");
    assert!(next.receive(ALICE, &invite(2, 1, "")).contains("INVITE sip:bob@"));
}

/// Covers a party that refused a BYE of the earlier process and has lost the dialog since: it continued until then.
#[test]
fn a_party_that_refused_a_bye_went_on_until_the_next_process() {
    let settings = format!("dialogs.folder = \"calls\"\n{LIMITED}");
    for refuses in [false, true] {
        let mut site = with_bob(&settings);
        answered(&mut site, 1);
        let [to_alice, to_bob] = end(&mut site);
        let end = site.now.wall;
        site.receive(ALICE, &response(&to_alice, "200 OK"));
        if refuses {
            site.receive(BOB, &response(&to_bob, "503 Busy"));
            site.wait(600);
        }
        let mut next = next_process(&mut site, &settings);
        next.wait(1_100);
        let [(to, bye)] = &byes(&next)[..] else { panic!("{:?}", byes(&next)) };
        assert_eq!(to, BOB);
        next.receive(BOB, &response(bye, "481 Gone"));
        let until = if refuses { next.now.wall } else { end };
        assert_eq!(has_ended(&mut next, "ended").end, Some(until), "refuses: {refuses}");
    }
}

/// Checks that a party that has lost the dialog gets a BYE too, and that its response says nothing about the other
/// party.
#[test]
fn the_answer_of_a_party_that_has_lost_the_dialog_ends_it_there_alone() {
    let mut site = with_bob(LIMITED);
    let (_, ok) = answered(&mut site, 1);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "503 Busy"));
    let mut questions = Vec::new();
    while questions.is_empty() {
        site.wait(100);
        questions.extend(requests(&site, "OPTIONS").into_iter().filter(|(to, _)| to == ALICE));
    }
    site.receive(ALICE, &response(&questions[0].1, "481 Gone"));
    let [to_alice, to_bob] = both(&site);
    site.receive(BOB, &response(&to_bob, "503 Busy"));
    site.receive(ALICE, &response(&to_alice, "481 Gone"));
    stands(&mut site, "bob has refused the BYE");
    site.wait(600);
    let [(_, again)] = &byes(&site)[..] else { panic!("{:?}", byes(&site)) };
    site.receive(BOB, &response(again, "481 Gone"));
    // Until then he may have continued.
    let now = site.now.wall;
    assert_eq!(has_ended(&mut site, "bob has ended it").end, Some(now));
}
