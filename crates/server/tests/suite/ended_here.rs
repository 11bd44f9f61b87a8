//! Requests in unknown calls: they are refused if the call has ended in this process, and pass if another server has
//! the call.

use crate::dialogs::{answered, counts, from_phone, of_alice, of_bob, request};
use crate::site::{ALICE, BOB, SERVER, Site, invite, response};
use strowger_calls::read_kept;
use strowger_core::Now;
use strowger_server::engine::Effect;

const TRACKED: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\n";
const KEPT: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\ndialogs.folder = \"calls\"\n";
const METHODS: [&str; 5] = ["INFO", "UPDATE", "MESSAGE", "OPTIONS", "REFER"];

fn start(now: Now, settings: &str) -> Site {
    let mut site = Site::start(now, &[&format!("udp:{SERVER}")], settings);
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    site
}

fn now() -> Now {
    Now { mono: 10_000, wall: 1_700_000_000_000 }
}

/// Sends these requests of both parties. Returns how many pass, and how many are answered 481.
fn passed(site: &mut Site, (forwarded, ok): (&str, &str), cseq: u32) -> (usize, usize) {
    let (mut passed, mut refused) = (0, 0);
    for (n, method) in METHODS.into_iter().enumerate() {
        let cseq = cseq + n as u32;
        let texts = [(ALICE, of_alice(method, ok, cseq, "")), (BOB, of_bob(method, forwarded, "bob", cseq, ""))];
        for (from, text) in texts {
            let sent = site.receive(from, &text);
            passed += usize::from(sent.starts_with(&format!("{method} ")));
            refused += usize::from(sent.starts_with("SIP/2.0 481 "));
        }
    }
    (passed, refused)
}

fn end(site: &mut Site, ok: &str, cseq: u32) {
    let bye = site.receive(ALICE, &of_alice("BYE", ok, cseq, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    assert_eq!(counts(site), (0, 0, 0));
}

#[test]
fn requests_of_a_call_of_another_server_pass() {
    for settings in [TRACKED, KEPT] {
        let mut one = start(now(), settings);
        let (forwarded, ok) = answered(&mut one, 1);
        // The second server has the same secret, and has run as long.
        let mut two = start(now(), settings);
        assert_eq!(passed(&mut two, (&forwarded, &ok), 10), (10, 0), "{settings}");
        let answer = two.receive(ALICE, &of_alice("BYE", &ok, 30, ""));
        assert!(answer.starts_with("BYE "), "{answer}");
        end(&mut one, &ok, 40);
        assert_eq!(passed(&mut one, (&forwarded, &ok), 50), (0, 10), "{settings}");
    }
}

#[test]
fn requests_of_a_call_that_was_not_kept_in_time_pass() {
    let mut site = start(now(), KEPT);
    let (forwarded, ok) = answered(&mut site, 1);
    let mut next = start(Now { mono: 40, wall: site.now.wall + 100 }, KEPT);
    next.work(|engine, now, _| assert_eq!(engine.take_over(now, Vec::new()), 0));
    assert_eq!(passed(&mut next, (&forwarded, &ok), 10), (10, 0));
}

#[test]
fn a_call_that_was_taken_over_and_has_ended_stays_ended() {
    let mut site = start(now(), KEPT);
    let (forwarded, ok) = answered(&mut site, 1);
    let then = site.now;
    site.engines[0].keep_changed(then);
    let state = site.engines[0].effects.drain(..).find_map(|effect| match effect {
        Effect::PersistCall { state, .. } => Some(state),
        _ => None,
    });
    let mut next = start(Now { mono: 40, wall: site.now.wall + 5_000 }, KEPT);
    let call = read_kept(next.now, &state.expect("it is kept")).expect("a call");
    next.work(|engine, now, _| assert_eq!(engine.take_over(now, vec![call]), 0));
    let info = next.receive(ALICE, &of_alice("INFO", &ok, 9, ""));
    assert!(info.starts_with("INFO "), "{info}");
    end(&mut next, &ok, 20);
    assert_eq!(passed(&mut next, (&forwarded, &ok), 30), (0, 10));
}

/// Checks that the route token of a provisional response does not say that the call is tracked.
#[test]
fn the_route_token_of_a_call_that_rang_opens_nothing_after_its_end() {
    let mut site = start(now(), TRACKED);
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let forwarded = request(&sent, "INVITE").to_owned();
    let ringing = site.receive(BOB, &from_phone(&forwarded, "180 Ringing", "bob"));
    let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
    let info = site.receive(ALICE, &of_alice("INFO", &ringing, 9, ""));
    assert!(info.starts_with("INFO "), "{info}");
    end(&mut site, &ok, 20);
    assert_eq!(passed(&mut site, (&forwarded, &ringing), 30), (0, 10));
}

/// Covers a call of which one dialog has ended and another continues.
#[test]
fn a_dialog_that_has_ended_is_not_of_another_server() {
    let mut site = start(now(), TRACKED);
    let (forwarded, ok) = answered(&mut site, 1);
    site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob2"));
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    assert_eq!(counts(&site), (1, 0, 1));
    assert_eq!(passed(&mut site, (&forwarded, &ok), 10), (0, 10));
}
