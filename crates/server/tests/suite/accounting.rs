//! Accounting: each call has one record, however the call ends, and the events that the settings ask for.

use crate::dialogs::{answer_byes, answered, from_phone, of_alice, of_bob, request};
use crate::site::{ALICE, BOB, CALL_SECRET, Site, authorized, invite, line, response};
use strowger_core::{Now, call};
use strowger_server::engine::Effect;
use strowger_store::accounting::{Cdr, Event, Row};

const BOTH: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\naccounting.events = true\n";

fn with_bob(settings: &str) -> Site {
    let mut site = Site::new(&format!("{BOTH}{settings}"));
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    site
}

/// Takes the rows that engines have emitted since the last call.
pub(crate) fn rows(site: &mut Site) -> (Vec<Cdr>, Vec<Event>) {
    let (mut cdrs, mut events) = (Vec::new(), Vec::new());
    for effect in site.engines.iter_mut().flat_map(|engine| engine.effects.drain(..)) {
        if let Effect::Account(row) = effect {
            match *row {
                Row::Cdr(cdr) => cdrs.push(cdr),
                Row::Event(event) => events.push(event),
            }
        }
    }
    (cdrs, events)
}

/// Returns the record of the only call that has ended, and its events.
#[track_caller]
fn one(site: &mut Site) -> (Cdr, Vec<(String, String, u16)>) {
    let (cdrs, events) = rows(site);
    let [cdr] = &cdrs[..] else { panic!("{cdrs:#?} {events:#?}") };
    for (n, event) in events.iter().enumerate() {
        assert_eq!((&event.call_identity, &event.identity), (&cdr.identity, &format!("{}-{n}", cdr.identity)));
        assert_eq!((event.setup, &event.caller, &event.call_id), (cdr.setup, &cdr.caller, &cdr.call_id));
    }
    (cdr.clone(), events.into_iter().map(|event| (event.event, event.by, event.status)).collect())
}

fn events(all: &[(&str, &str, u16)]) -> Vec<(String, String, u16)> {
    all.iter().map(|(event, by, status)| ((*event).to_owned(), (*by).to_owned(), *status)).collect()
}

#[track_caller]
fn none(site: &mut Site) {
    let (cdrs, events) = rows(site);
    assert!(cdrs.is_empty() && events.is_empty(), "{cdrs:#?} {events:#?}");
}

/// Makes a call ring. Returns its forwarded INVITE.
fn rings(site: &mut Site, more: &str) -> String {
    let sent = site.receive(ALICE, &invite(1, 1, more));
    let forwarded = request(&sent, "INVITE").to_owned();
    site.wait(1_000);
    site.receive(BOB, &from_phone(&forwarded, "180 Ringing", "bob"));
    forwarded
}

#[test]
fn a_call_that_is_answered_has_a_record_when_it_ends() {
    let mut site = with_bob("accounting.fields = [\"Subject\", \"X-None\", \"X-Tenant\"]\n");
    let began = site.now.wall;
    let forwarded = rings(&mut site, "Subject: one\r\nX-Tenant: t7\r\n");
    site.wait(2_000);
    let sdp = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 8 101\r\n\
               a=rtpmap:101 telephone-event/8000\r\n";
    let body = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}", sdp.len());
    let ok = from_phone(&forwarded, "200 OK", "bob").replace("Content-Length: 0\r\n\r\n", &body);
    let ok = site.receive(BOB, &ok);
    let (cdrs, begun) = rows(&mut site);
    assert_eq!((cdrs.len(), begun.len(), &*begun[0].event, begun[0].at), (0, 1, "invite", began + 3_000));
    site.wait(5_000);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, "Reason: Q.850;cause=31\r\n"));
    // The call ends at the moment of the BYE, whenever that is answered.
    site.wait(700);
    none(&mut site);
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    let (cdrs, ended) = rows(&mut site);
    assert_eq!((&*ended[0].event, &*ended[0].by, ended[0].status, ended[0].at), ("bye", "caller", 200, began + 8_000));
    let [cdr] = &cdrs[..] else { panic!("{cdrs:?}") };
    let expected = Cdr {
        identity: cdr.identity.clone(),
        call_id: "1".into(),
        setup: began,
        ring: Some(began + 1_000),
        answer: Some(began + 3_000),
        end: Some(began + 8_000),
        caller: "sip:alice@example.org".into(),
        callee: "sip:bob@example.org".into(),
        user: String::new(),
        account: String::new(),
        source: ALICE.into(),
        transport: "udp".into(),
        gateway: BOB.into(),
        attempts: 1,
        outcome: "answered".into(),
        status: 200,
        cause: 31,
        ended_by: "caller".into(),
        codecs: "PCMA,telephone-event".into(),
        far_call_id: String::new(),
        fields: vec![("Subject".into(), "one".into()), ("X-Tenant".into(), "t7".into())],
        media: [None; 2],
    };
    assert_eq!((cdr, cdr.identity.len()), (&expected, 32));
    // No row follows.
    (0..400).for_each(|_| drop(site.wait(100)));
    none(&mut site);
}

#[test]
fn a_step_of_the_clock_makes_no_call_end_before_it_began() {
    let mut site = with_bob("");
    let (forwarded, _) = answered(&mut site, 1);
    site.now = Now { mono: site.now.mono + 4_000, wall: site.now.wall - 3_600_000 };
    let bye = site.receive(BOB, &of_bob("BYE", &forwarded, "bob", 7, ""));
    site.receive(ALICE, &response(request(&bye, "BYE"), "200 OK"));
    let (cdr, events_of_it) = one(&mut site);
    assert_eq!((cdr.end, &*cdr.ended_by, cdr.cause), (cdr.answer.map(|answer| answer + 4_000), "callee", 16));
    assert_eq!(events_of_it, events(&[("invite", "callee", 200), ("bye", "callee", 200)]));
}

#[test]
fn a_bye_to_a_party_that_is_lost_is_an_event_and_an_end() {
    let mut site = with_bob("");
    let (_, ok) = answered(&mut site, 1);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "481 Call/Transaction Does Not Exist"));
    let (cdr, of_it) = one(&mut site);
    assert_eq!((&*cdr.ended_by, cdr.status), ("caller", 200));
    assert_eq!(of_it, events(&[("invite", "callee", 200), ("bye", "caller", 481)]));
    // A refused BYE is an event, and no end.
    let mut site = with_bob("");
    let (_, ok) = answered(&mut site, 1);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "500 Server Internal Error"));
    let (cdrs, of_it) = rows(&mut site);
    assert_eq!((cdrs.len(), &*of_it[1].event, &*of_it[1].by, of_it[1].status), (0, "bye", "caller", 500));
    // A BYE without a response.
    let mut site = with_bob("");
    let (_, ok) = answered(&mut site, 1);
    site.wait(900);
    site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    // The BYE that the server sends after that has no response either.
    (0..800).for_each(|_| drop(site.wait(100)));
    let (cdr, of_it) = one(&mut site);
    assert_eq!((cdr.end, of_it[1].clone()), (Some(cdr.setup + 32_900), ("bye".into(), "caller".into(), 408)));
}

#[test]
fn a_bye_that_is_to_show_a_password_ends_nothing() {
    let mut site = with_bob("");
    let (_, ok) = answered(&mut site, 1);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "407 Proxy Authentication Required"));
    assert_eq!(rows(&mut site).0, []);
    site.wait(3_000);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 3, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    let (cdrs, of_it) = rows(&mut site);
    assert_eq!((cdrs[0].end, of_it.len()), (Some(cdrs[0].setup + 3_000), 1));
}

#[test]
fn calls_that_come_to_nothing_say_why() {
    for (rings_first, status, outcome, event, cause) in [
        (false, "486 Busy Here", "missed", "missed", 17),
        (false, "480 Temporarily Unavailable", "missed", "missed", 18),
        (false, "603 Decline", "missed", "missed", 21),
        (false, "404 Not Found", "failed", "failed", 1),
        (true, "404 Not Found", "missed", "missed", 1),
        (false, "488 Not Acceptable Here", "failed", "failed", 31),
    ] {
        let mut site = with_bob("");
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let forwarded = request(&sent, "INVITE").to_owned();
        if rings_first {
            site.receive(BOB, &from_phone(&forwarded, "180 Ringing", "bob"));
        }
        site.wait(400);
        site.receive(BOB, &from_phone(&forwarded, status, "bob"));
        let (cdr, of_it) = one(&mut site);
        let code = status[..3].parse().expect("a number");
        assert_eq!(of_it, events(&[(event, "callee", code)]));
        assert_eq!((&*cdr.outcome, cdr.status, cdr.cause, &*cdr.ended_by), (outcome, code, cause, "callee"));
        assert_eq!((cdr.answer, cdr.end, cdr.attempts, &*cdr.gateway), (None, Some(cdr.setup + 400), 1, BOB));
        (0..400).for_each(|_| drop(site.wait(100)));
        none(&mut site);
    }
}

#[test]
fn a_phone_that_is_silent_is_missed() {
    let mut site = with_bob("");
    site.receive(ALICE, &invite(1, 1, ""));
    (0..4_000).for_each(|_| drop(site.wait(100)));
    let (cdr, of_it) = one(&mut site);
    assert_eq!(of_it, events(&[("missed", "", cdr.status)]));
    assert_eq!((&*cdr.outcome, &*cdr.ended_by, cdr.attempts), ("missed", "server", 1));
}

#[test]
fn a_call_that_is_cancelled_has_one_record() {
    let mut site = with_bob("");
    let forwarded = rings(&mut site, "");
    let via = format!("Via: SIP/2.0/UDP {ALICE};branch=z9hG4bK1-1;rport\r\n");
    let cancel = format!(
        "CANCEL sip:bob@example.org SIP/2.0\r\n{via}From: {}\r\nTo: {}\r\nCall-ID: 1\r\nCSeq: 1 CANCEL\r\nContent-Length: 0\r\n\r\n",
        line(&forwarded, "From"),
        line(&forwarded, "To")
    );
    site.wait(500);
    site.receive(ALICE, &cancel);
    site.receive(BOB, &response(&forwarded, "487 Request Terminated"));
    let (cdr, of_it) = one(&mut site);
    assert_eq!((&*cdr.outcome, cdr.status, cdr.cause, &*cdr.ended_by), ("cancelled", 487, 16, "caller"));
    assert_eq!((cdr.ring, cdr.end), (Some(cdr.setup + 1_000), Some(cdr.setup + 1_500)));
    assert_eq!(of_it, events(&[("missed", "caller", 487)]));
}

/// Covers a server behind this one that asks for a password.
#[test]
fn an_invite_that_is_challenged_has_no_record_of_its_own() {
    for comes_again in [true, false] {
        let mut site = with_bob("");
        let began = site.now.wall;
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let forwarded = request(&sent, "INVITE").to_owned();
        site.receive(BOB, &response(&forwarded, "407 Proxy Authentication Required"));
        site.wait(300);
        if comes_again {
            let sent = site.receive(ALICE, &invite(1, 2, ""));
            let forwarded = request(&sent, "INVITE").to_owned();
            none(&mut site);
            site.receive(BOB, &from_phone(&forwarded, "486 Busy Here", "bob"));
            let (cdr, _) = one(&mut site);
            assert_eq!((cdr.setup, cdr.status, cdr.end), (began, 486, Some(began + 300)));
        }
        (0..800).for_each(|_| drop(site.wait(100)));
        none(&mut site);
    }
}

#[test]
fn a_fork_has_one_record() {
    let mut site = with_bob("");
    site.register(&format!("<sip:bob2@{BOB}>;q=0.5"));
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let first = request(&sent, "INVITE").to_owned();
    let sent = site.receive(BOB, &from_phone(&first, "486 Busy Here", "bob"));
    let second = request(&sent, "INVITE").to_owned();
    none(&mut site);
    // Two phones behind the second contact answer at once: the call ends with its last dialog.
    let ok = site.receive(BOB, &from_phone(&second, "200 OK", "bob2"));
    let also = site.receive(BOB, &from_phone(&second, "200 OK", "bob3"));
    site.wait(1_000);
    for (n, ok) in [also, ok].iter().enumerate() {
        assert_eq!(rows(&mut site).0, []);
        site.wait(1_000);
        let bye = site.receive(ALICE, &of_alice("BYE", ok, 2 + n as u32, ""));
        site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    }
    let (cdrs, _) = rows(&mut site);
    let [cdr] = &cdrs[..] else { panic!("{cdrs:?}") };
    assert_eq!((cdr.attempts, cdr.answer, cdr.end), (2, Some(cdr.setup), Some(cdr.setup + 3_000)));
}

#[test]
fn calls_that_this_server_ends_say_so() {
    let mut site = with_bob("dialogs.lifetime = \"60s\"\n");
    answered(&mut site, 1);
    site.wait(61_000);
    answer_byes(&mut site, "200 OK");
    let (cdr, of_it) = one(&mut site);
    assert_eq!((&*cdr.ended_by, cdr.cause), ("lifetime", 102));
    assert_eq!(of_it, events(&[("invite", "callee", 200), ("bye", "lifetime", 0)]));
    assert_eq!(cdr.end, Some(cdr.setup + 61_000));

    let mut site = with_bob("");
    answered(&mut site, 1);
    let id = site.engines[0].list_calls(site.now, 0, 9, None).calls[0].id;
    site.work(|engine, now, out| assert!(engine.end_call(now, id, out)));
    // A refusal is an event, as for the BYE of a party.
    answer_byes(&mut site, "500 Server Internal Error");
    site.wait(600);
    answer_byes(&mut site, "200 OK");
    let (cdr, of_it) = one(&mut site);
    assert_eq!((&*cdr.ended_by, cdr.cause), ("operator", 31));
    let refused = ("bye", "server", 500);
    assert_eq!(of_it, events(&[("invite", "callee", 200), refused, refused, ("bye", "operator", 0)]));

    // A ringing call.
    let mut site = with_bob("");
    let forwarded = rings(&mut site, "");
    let id = site.engines[0].list_calls(site.now, 0, 9, None).calls[0].id;
    site.work(|engine, now, out| assert!(engine.end_call(now, id, out)));
    site.receive(BOB, &response(&forwarded, "487 Request Terminated"));
    assert_eq!(one(&mut site).0.ended_by, "operator");

    let mut site = with_bob("");
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let timer = "Session-Expires: 90;refresher=uas\r\nContent-Length";
    site.receive(BOB, &from_phone(request(&sent, "INVITE"), "200 OK", "bob").replace("Content-Length", timer));
    site.wait(90_100);
    answer_byes(&mut site, "481 Gone");
    let (cdr, of_it) = one(&mut site);
    assert_eq!((&*cdr.ended_by, cdr.cause), ("session timer", 102));
    assert_eq!(of_it, events(&[("invite", "callee", 200), ("bye", "session timer", 0)]));
}

/// Covers a call without Record-Route, whose BYE does not pass this server.
#[test]
fn of_a_call_that_passes_elsewhere_the_end_is_not_known() {
    let mut site = with_bob("proxy.record_route = false\n");
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    site.receive(BOB, &from_phone(request(&sent, "INVITE"), "200 OK", "bob"));
    let (cdr, of_it) = one(&mut site);
    assert_eq!((cdr.answer, cdr.end, &*cdr.ended_by, of_it.len()), (Some(cdr.setup), None, "", 1));
}

#[test]
fn rules_say_what_is_accounted() {
    for (settings, is_accounted) in [
        ("[[rule]]\nname = \"free\"\naccount = false\n", false),
        ("[accounting]\nall = false\n", false),
        ("[accounting]\nall = false\n[[rule]]\nname = \"paid\"\nwhen = \"method == 'INVITE'\"\naccount = true\n", true),
        ("[[rule]]\nname = \"free\"\nwhen = \"method == 'MESSAGE'\"\naccount = false\n", true),
    ] {
        let base = BOTH.replace("accounting.cdr = true\naccounting.events = true\n", "");
        let settings = match settings.strip_prefix("[accounting]\n") {
            Some(rest) => format!("{base}[accounting]\ncdr = true\nevents = true\n{rest}"),
            None => format!("{BOTH}{settings}"),
        };
        let mut site = Site::new(&settings);
        site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        site.receive(BOB, &from_phone(request(&sent, "INVITE"), "486 Busy Here", "bob"));
        let (cdrs, events) = rows(&mut site);
        assert_eq!((cdrs.len(), events.len()), (usize::from(is_accounted), usize::from(is_accounted)), "{settings}");
    }
}

/// Checks that the first rule that names an account counts, and that the column is empty without such a rule.
#[test]
fn rules_say_what_a_call_is_accounted_as() {
    for (settings, account) in [
        ("", Some("")),
        (
            "[[rule]]\nname = \"a\"\naccount_as = \"wholesale\"\n[[rule]]\nname = \"b\"\naccount_as = \"retail\"\n",
            Some("wholesale"),
        ),
        (
            "[[rule]]\nname = \"a\"\nwhen = \"method == 'MESSAGE'\"\naccount_as = \"wholesale\"\n\
             [[rule]]\nname = \"b\"\naccount_as = \"Kostenstelle 17\"\n",
            Some("Kostenstelle 17"),
        ),
        ("[[rule]]\nname = \"free\"\naccount = false\n[[rule]]\nname = \"b\"\naccount_as = \"retail\"\n", None),
    ] {
        let mut site = with_bob(&format!("accounting.all = {}\n{settings}", account == Some("")));
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        site.receive(BOB, &from_phone(request(&sent, "INVITE"), "486 Busy Here", "bob"));
        let (cdrs, events) = rows(&mut site);
        let cdrs: Vec<_> = cdrs.iter().map(|cdr| &*cdr.account).collect();
        let events: Vec<_> = events.iter().map(|event| &*event.account).collect();
        assert_eq!((&cdrs[..], &events[..]), (account.as_slice(), account.as_slice()), "{settings}");
    }
}

#[test]
fn numbers_and_addresses_are_masked_before_a_row_leaves() {
    let mut site =
        with_bob("accounting.mask_numbers = 3\naccounting.mask_addresses = true\naccounting.fields = [\"Subject\"]\n");
    let call = invite(1, 1, "Subject: +4930123456 at 192.0.2.77\r\n");
    let call = call.replace("From: <sip:alice@example.org>", "From: <sip:+4930765432@198.51.100.7>");
    let sent = site.receive(ALICE, &call);
    site.receive(BOB, &from_phone(request(&sent, "INVITE"), "486 Busy Here", "bob"));
    let (cdr, _) = one(&mut site);
    assert_eq!(
        (&*cdr.caller, &*cdr.source, &*cdr.gateway),
        ("sip:+4930765***@198.51.100.0", "198.51.100.0:5060", "198.51.100.0:5060")
    );
    assert_eq!(cdr.fields[0].1, "+4930123*** at 192.0.2.0");
}

/// Covers a callee without a phone: no request is forwarded.
#[test]
fn a_call_that_this_server_refuses_is_accounted_once_its_caller_is_known() {
    let mut site = Site::new("accounting.cdr = true\naccounting.events = true\n");
    let challenged = site.receive(ALICE, &invite(1, 1, ""));
    assert!(challenged.starts_with("SIP/2.0 407 "));
    none(&mut site);
    site.receive(ALICE, &authorized(1, &challenged, 1));
    let refused = site.answer();
    assert!(refused.contains("SIP/2.0 480 "), "{refused}");
    let (cdr, of_it) = one(&mut site);
    assert_eq!((&*cdr.user, &*cdr.outcome, cdr.status, cdr.attempts, &*cdr.gateway), ("alice", "missed", 480, 0, ""));
    assert_eq!((of_it, &*cdr.ended_by), (events(&[("missed", "", 480)]), "server"));
    // For an unproven caller each copy would make a row.
    let mut site = Site::new(BOTH);
    assert!(site.receive(ALICE, &invite(1, 1, "")).contains("SIP/2.0 480 "));
    none(&mut site);
}

/// Checks the fields for the dialled number, if rules translate it, and for the reason of a refusal.
#[test]
fn a_record_has_the_dialled_number_and_the_reason_of_a_refusal() {
    let fields = "accounting.fields = [\"Request-URI\", \"Refusal\"]\n";
    let rules =
        "[[set]]\nname = \"short\"\nentries = { 7 = \"bob\" }\n[[rule]]\nname = \"short\"\ntranslate = \"short\"\n";
    let mut site = with_bob(&format!("{fields}{rules}"));
    for (dialled, callee) in
        [("sip:7@example.org", "sip:bob@example.org"), ("sip:bob@example.org", "sip:bob@example.org")]
    {
        let call = invite(u32::from(dialled.contains('7')), 1, "");
        let sent = site.receive(ALICE, &call.replace("INVITE sip:bob@example.org", &format!("INVITE {dialled}")));
        site.receive(BOB, &from_phone(request(&sent, "INVITE"), "486 Busy Here", "bob"));
        let (cdr, _) = one(&mut site);
        assert_eq!((&*cdr.callee, &cdr.fields[..]), (callee, &[("Request-URI".to_owned(), dialled.to_owned())][..]));
    }
    let mut site = Site::new(&format!("accounting.cdr = true\n{fields}"));
    let challenged = site.receive(ALICE, &invite(1, 1, ""));
    site.receive(ALICE, &authorized(1, &challenged, 1));
    site.answer();
    let (cdr, _) = one(&mut site);
    assert_eq!(cdr.fields[1], ("Refusal".to_owned(), "the user is not registered".to_owned()));
}

/// Checks that the rows of refused calls are limited if only a connection proves the source: a connection proves no
/// account, and its owner could call unknown users all day.
#[test]
fn refused_calls_without_a_password_have_so_many_rows_a_minute() {
    let mut site = Site::new("auth.calls = false\naccounting.cdr = true\n");
    let mut refused = |from: &str, numbers: std::ops::Range<u32>| {
        let remote = from.parse().expect("an address");
        let (transport, listener) = (strowger_core::Transport::Tcp, strowger_core::ListenerId(0));
        let arrival = strowger_core::Arrival { transport, listener, remote, flow: None };
        for number in numbers {
            let text = invite(number, 1, "");
            site.work(|engine, now, out| engine.receive(now, &arrival, text.as_bytes(), out));
        }
        let count = rows(&mut site).0.len();
        site.wait(30_000);
        count
    };
    assert_eq!(refused("192.0.2.77:5060", 1..201), 60);
    // Another source has its own share.
    assert_eq!(refused("192.0.2.78:5060", 301..311), 10);
    assert_eq!(refused("192.0.2.77:5060", 401..411), 10, "a minute later");
    let counted = site.shared.counters[0].snapshot().refusals_unaccounted;
    assert_eq!(counted, 140);
}

#[test]
fn a_call_that_moves_has_its_record_elsewhere() {
    let mut site = with_bob("");
    let (_, ok) = answered(&mut site, 1);
    let began = rows(&mut site).1[0].clone();
    site.wait(5_000);
    let bucket = call::bucket(call::hash(CALL_SECRET, b"1"));
    let mut moved = Vec::new();
    site.work(|engine, now, _| moved = engine.export(now, bucket));
    // The other shard has another clock.
    let there = Now { mono: 100, wall: site.now.wall };
    site.work_at(1, |engine, _, out| moved.into_iter().for_each(|record| engine.import(there, record, out)));
    none(&mut site);
    site.now = Now { mono: there.mono + 2_000, wall: there.wall + 2_000 };
    let arrival = |from: &str| strowger_core::Arrival {
        transport: strowger_core::Transport::Udp,
        listener: strowger_core::ListenerId(0),
        remote: from.parse().expect("an address"),
        flow: None,
    };
    let bye = of_alice("BYE", &ok, 2, "");
    let sent = site.work_at(1, |engine, now, out| engine.receive(now, &arrival(ALICE), bye.as_bytes(), out));
    let answer = response(request(&sent, "BYE"), "200 OK");
    site.work_at(1, |engine, now, out| engine.receive(now, &arrival(BOB), answer.as_bytes(), out));
    let (cdrs, _) = rows(&mut site);
    let [cdr] = &cdrs[..] else { panic!("{cdrs:?}") };
    assert_eq!((&cdr.identity, cdr.end), (&began.call_identity, Some(began.setup + 7_000)));
}

#[test]
fn a_process_that_ends_writes_records_of_calls_that_continue() {
    let mut site = with_bob("");
    answered(&mut site, 1);
    site.receive(ALICE, &invite(2, 1, ""));
    rows(&mut site);
    site.work(|engine, now, _| engine.cut_off_accounts(now));
    let (mut cdrs, _) = rows(&mut site);
    cdrs.sort_by(|a, b| a.call_id.cmp(&b.call_id));
    let all: Vec<_> = cdrs.iter().map(|cdr| (&*cdr.outcome, cdr.answer.is_some(), cdr.end, &*cdr.ended_by)).collect();
    assert_eq!(all, [("answered", true, None, "shutdown"), ("unfinished", false, None, "shutdown")]);
    site.work(|engine, now, _| engine.cut_off_accounts(now));
    none(&mut site);
}
