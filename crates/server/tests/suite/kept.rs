//! Kept calls: the next process continues them, and each has one record with its true duration.

use crate::dialogs::{answer_byes, answered, from_phone, of_alice, of_bob, request};
use crate::peer::requests;
use crate::site::{ALICE, BOB, CALL_SECRET, SERVER, Site, invite, line, response};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use strowger_calls::{Call, read_kept};
use strowger_core::record::Unreadable;
use strowger_core::{Now, call};
use strowger_server::engine::Effect;
use strowger_store::accounting::{Cdr, Row};

const KEPT: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\ndialogs.lifetime = \"1h\"\n\
                    dialogs.folder = \"calls\"\n";

/// Kept calls on disk, and the work done there.
#[derive(Default)]
struct Disk {
    states: BTreeMap<u64, Box<[u8]>>,
    /// Rows of calls that were closed.
    closed: Vec<Row>,
    written: usize,
    forgotten: usize,
    cdrs: Vec<Cdr>,
}

impl Disk {
    /// Ends a round of each engine.
    fn turn(&mut self, site: &mut Site) {
        let now = site.now;
        for engine in &mut site.engines {
            engine.keep_changed(now);
            for effect in engine.effects.drain(..) {
                match effect {
                    Effect::PersistCall { call, state } => {
                        self.written += 1;
                        self.states.insert(call, state);
                    }
                    Effect::FinishCall { call, rows } => {
                        self.states.remove(&call);
                        let rows = Row::read_all(&rows).expect("rows");
                        self.closed.extend(rows.into_iter().map(|row| *row));
                    }
                    Effect::DeleteCall { call } => {
                        self.forgotten += 1;
                        self.states.remove(&call);
                    }
                    Effect::Account(row) => {
                        if let Row::Cdr(cdr) = *row {
                            self.cdrs.push(cdr);
                        }
                    }
                    _ => (),
                }
            }
        }
    }

    fn calls(&self, now: Now) -> Vec<Call> {
        self.states.values().map(|state| read_kept(now, state).expect("a call")).collect()
    }

    /// Starts another process this number of milliseconds after the last one was killed. Its clock is young.
    fn restart(&self, killed: &Site, after: u64, settings: &str) -> (Site, usize) {
        let now = Now { mono: 40, wall: killed.now.wall + after };
        let mut site = Site::start(now, &[&format!("udp:{SERVER}")], settings);
        let (calls, mut strange) = (self.calls(now), 0);
        site.work(|engine, now, _| strange = engine.take_over(now, calls));
        (site, strange)
    }
}

fn with_bob(settings: &str) -> Site {
    let mut site = Site::new(settings);
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    site
}

/// Returns the numbers of tracked calls and confirmed dialogs, and of calls that count under limits.
fn counts(site: &Site) -> (u64, u64, u32) {
    site.engines.iter().for_each(|engine| engine.show_gauges());
    let counts = site.shared.counts();
    let limited = site.shared.call_limits.list().iter().map(|(_, calls)| calls).sum();
    (counts.calls_tracked, counts.dialogs_confirmed, limited)
}

/// Answers the OPTIONS by which a process asks about the calls of an earlier process: alice and bob with these statuses,
/// "" for no answer. Returns the number of OPTIONS to each.
fn answer_questions(site: &mut Site, alice: &str, bob: &str) -> (usize, usize) {
    let (mut asked, mut seen) = ((0, 0), BTreeSet::new());
    for _ in 0..15 {
        site.wait(100);
        for (to, question) in requests(site, "OPTIONS").into_iter().filter(|question| seen.insert(question.clone())) {
            let (status, count) = if to == ALICE { (alice, &mut asked.0) } else { (bob, &mut asked.1) };
            *count += 1;
            if !status.is_empty() {
                site.receive(&to, &response(&question, status));
            }
        }
    }
    asked
}

/// Covers a call whose end the earlier process could not write: the call ends soon.
#[test]
fn calls_that_no_party_confirms_end_in_the_next_process() {
    const LOST: &str = "481 Call/Transaction Does Not Exist";
    for (alice, bob, lasts) in [
        ("200 OK", "200 OK", true),
        ("200 OK", "405 Method Not Allowed", true),
        ("500 Server Internal Error", "200 OK", true),
        ("200 OK", LOST, false),
        (LOST, "200 OK", false),
        (LOST, LOST, false),
        ("200 OK", "408 Request Timeout", false),
        // A party may ignore an OPTIONS within a dialog.
        ("200 OK", "", true),
        ("", "200 OK", true),
        ("", LOST, false),
        ("", "", false),
    ] {
        let what = format!("{alice:?} {bob:?}");
        let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
        let (_, ok) = answered(&mut site, 1);
        disk.turn(&mut site);
        site.wait(500);
        // The BYE is answered, and the change of the kept call is lost.
        let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
        site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
        assert_eq!(counts(&site), (0, 0, 0));
        let (mut next, _) = disk.restart(&site, 300, KEPT);
        assert_eq!(counts(&next), (1, 1, 0));
        let began = next.now.wall;
        assert_eq!(answer_questions(&mut next, alice, bob), (1, 1), "{what}");
        // Also the time of the BYEs.
        (0..1_000).for_each(|_| drop(next.wait(100)));
        disk.turn(&mut next);
        assert_eq!(counts(&next), if lasts { (1, 1, 0) } else { (0, 0, 0) }, "{what}");
        assert_eq!(disk.cdrs.len(), usize::from(!lasts), "{what}");
        if let Some(cdr) = disk.cdrs.first() {
            let end = cdr.end.expect("it has ended");
            assert!(end <= began + 60_000, "{what}: {}", end - began);
            assert_eq!((&*cdr.ended_by, next.shared.counts().byes, disk.states.len()), ("lost", 2, 0), "{what}");
        }
    }
}

/// Checks that the OPTIONS about many calls are sent one after the other.
#[test]
fn questions_are_spread_over_time() {
    let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
    (1..=2_000).for_each(|number| drop(answered(&mut site, number)));
    disk.turn(&mut site);
    let (mut next, _) = disk.restart(&site, 300, KEPT);
    let (mut all, mut most) = (0, 0);
    for _ in 0..60 {
        next.wait(100);
        let sends = next.out.sends().iter();
        let begins = |range: std::ops::Range<usize>| next.out.bytes[range].starts_with(b"OPTIONS ");
        // Each is retransmitted after half a second, and after a second more.
        let asked = sends.filter(|send| begins(send.range())).count();
        (all, most) = (all + asked, most.max(asked));
    }
    assert!(all >= 4_000 && most < 1_200, "{all} {most}");
}

#[test]
fn a_call_ends_in_the_next_process_with_its_true_duration() {
    let settings = format!(
        "{KEPT}[[call_limit]]\nname = \"all\"\nmost = 1\nstatus = 486\n[[rule]]\nname = \"all\"\ncall_limits = [\"all\"]\n"
    );
    for by_caller in [true, false] {
        let (mut site, mut disk) = (with_bob(&settings), Disk::default());
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let forwarded = request(&sent, "INVITE").to_owned();
        site.wait(3_000);
        let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
        let setup = site.now.wall - 3_000;
        disk.turn(&mut site);
        site.wait(10_000);
        disk.turn(&mut site);

        let (mut site, strange) = disk.restart(&site, 20_000, &settings);
        disk.turn(&mut site);
        assert_eq!((strange, counts(&site)), (0, (1, 1, 1)));
        // The call still counts under the limit.
        assert!(site.receive(ALICE, &invite(2, 1, "")).contains("SIP/2.0 486 "));
        site.wait(5_000);
        let (bye, from) = match by_caller {
            true => (of_alice("BYE", &ok, 2, ""), ALICE),
            false => (of_bob("BYE", &forwarded, "bob", 9, ""), BOB),
        };
        let bye = site.receive(from, &bye);
        let to = if by_caller { BOB } else { ALICE };
        let answer = site.receive(to, &response(request(&bye, "BYE"), "200 OK"));
        assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
        disk.turn(&mut site);
        // The call leaves the disk with the written row.
        let of_call = |cdr: &&Cdr| cdr.call_id == "1";
        let [cdr] = disk.cdrs.iter().filter(of_call).collect::<Vec<_>>()[..] else { panic!("{:?}", disk.cdrs) };
        assert_eq!(disk.closed, [Row::Cdr(cdr.clone())]);
        assert_eq!((cdr.setup, cdr.answer, cdr.end), (setup, Some(setup + 3_000), Some(setup + 38_000)));
        assert_eq!((&*cdr.ended_by, &*cdr.outcome), (if by_caller { "caller" } else { "callee" }, "answered"));
        assert_eq!((counts(&site), disk.states.len()), ((0, 0, 0), 0));
    }
}

/// Checks that limits of failures are kept like limits of rules.
#[test]
fn a_call_counts_in_the_next_process_by_the_failure_that_led_it_on() {
    let settings = format!(
        "{KEPT}[[call_limit]]\nname = \"boxes\"\nmost = 1\n[[failure]]\nname = \"mailbox\"\nstatuses = [\"480\", \"486\"]\n\
         to = [\"sip:203.0.113.9:5060\"]\ncall_limits = [\"boxes\"]\n[[rule]]\nname = \"all\"\non_failure = [\"mailbox\"]\n"
    );
    let (mut site, mut disk) = (with_bob(&settings), Disk::default());
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let sent = site.receive(BOB, &from_phone(request(&sent, "INVITE"), "486 Busy Here", "bob"));
    let forwarded = request(&sent, "INVITE").to_owned();
    assert_eq!(counts(&site), (1, 0, 1));
    let ok = site.receive("203.0.113.9:5060", &from_phone(&forwarded, "200 OK", "box"));
    disk.turn(&mut site);
    let (mut site, _) = disk.restart(&site, 20_000, &settings);
    assert_eq!(counts(&site), (1, 1, 1));
    assert!(site.receive(ALICE, &invite(2, 1, "")).contains("SIP/2.0 480 "), "there is no room at the mailbox");
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    assert_eq!(counts(&site), (0, 0, 0));
    assert!(site.receive(ALICE, &invite(3, 1, "")).contains("INVITE sip:bob@"));
    assert_eq!(counts(&site), (1, 0, 1));
}

#[test]
fn kept_calls_are_written_once_a_round_and_when_changed() {
    let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let forwarded = request(&sent, "INVITE").to_owned();
    site.receive(BOB, &from_phone(&forwarded, "180 Ringing", "bob"));
    disk.turn(&mut site);
    assert_eq!(disk.written, 0, "it has no answer");
    let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
    site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
    disk.turn(&mut site);
    assert_eq!(disk.written, 1);
    // An ACK has the CSeq of its INVITE, and the end of the transaction changes nothing.
    site.receive(ALICE, &of_alice("ACK", &ok, 1, ""));
    (0..400).for_each(|_| drop(site.wait(100)));
    disk.turn(&mut site);
    assert_eq!(disk.written, 1);
    // After a restart a BYE of the server needs a CSeq above those that were seen.
    for cseq in [2, 3] {
        let info = site.receive(ALICE, &of_alice("INFO", &ok, cseq, ""));
        site.receive(BOB, &response(request(&info, "INFO"), "200 OK"));
    }
    disk.turn(&mut site);
    assert_eq!(disk.written, 2);
    let (mut next, _) = disk.restart(&site, 3_600_000, KEPT);
    let byes = next.wait(100);
    assert!(byes.contains("CSeq: 4 BYE") && byes.contains("CSeq: 1 BYE"), "{byes}");
    // A renewal changes the caller's Contact.
    let moved = format!("Contact: <sip:alice2@{ALICE}>\r\n");
    let update = site.receive(ALICE, &of_alice("UPDATE", &ok, 4, &moved));
    site.receive(BOB, &response(request(&update, "UPDATE"), "200 OK"));
    disk.turn(&mut site);
    assert_eq!(disk.written, 3);
    let (mut next, _) = disk.restart(&site, 3_600_000, KEPT);
    let byes = next.wait(100);
    assert!(byes.contains("BYE sip:alice2@"), "{byes}");
    // The end leaves no state.
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 5, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    disk.turn(&mut site);
    assert_eq!((disk.written, disk.closed.len(), disk.states.len()), (3, 1, 0));
}

#[test]
fn times_that_ran_out_while_no_process_ran_end_calls_at_once() {
    let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
    answered(&mut site, 1);
    // The session of the other call ends by itself, unless it is refreshed.
    let sent = site.receive(ALICE, &invite(2, 1, ""));
    let ok = from_phone(request(&sent, "INVITE"), "200 OK", "bob")
        .replace("Content-Length", "Session-Expires: 600;refresher=uac\r\nContent-Length");
    site.receive(BOB, &ok);
    let answer = site.now.wall;
    disk.turn(&mut site);
    site.wait(60_000);
    let (mut next, _) = disk.restart(&site, 1_000_000, KEPT);
    assert_eq!(counts(&next), (2, 2, 0));
    let sent = next.wait(100);
    answer_byes(&mut next, "481 Gone");
    disk.turn(&mut next);
    assert_eq!(sent.matches("BYE sip:").count(), 2, "{sent}");
    let [cdr] = &disk.cdrs[..] else { panic!("{:?}", disk.cdrs) };
    assert_eq!((&*cdr.call_id, &*cdr.ended_by, cdr.end), ("2", "session timer", Some(answer + 600_000)));
    let (mut next, _) = disk.restart(&next, 3_000_000, KEPT);
    let sent = next.wait(100);
    answer_byes(&mut next, "481 Gone");
    disk.turn(&mut next);
    assert_eq!(sent.matches("BYE sip:").count(), 2, "{sent}");
    assert_eq!((&*disk.cdrs[1].call_id, &*disk.cdrs[1].ended_by), ("1", "lifetime"));
    assert_eq!((counts(&next), disk.states.len()), ((0, 0, 0), 0));
}

/// Checks that work in progress of a call ends with its process, and that the call continues.
#[test]
fn a_bye_without_an_answer_comes_again() {
    let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
    let (_, ok) = answered(&mut site, 1);
    disk.turn(&mut site);
    site.receive(ALICE, &of_alice("INFO", &ok, 2, ""));
    site.receive(ALICE, &of_alice("BYE", &ok, 3, ""));
    disk.turn(&mut site);
    let (mut next, _) = disk.restart(&site, 500, KEPT);
    answer_questions(&mut next, "200 OK", "200 OK");
    (0..700).for_each(|_| drop(next.wait(100)));
    assert_eq!(counts(&next), (1, 1, 0));
    // The first BYE had reached the phone, which no longer knows the call.
    let bye = next.receive(ALICE, &of_alice("BYE", &ok, 4, ""));
    next.receive(BOB, &response(request(&bye, "BYE"), "481 Call/Transaction Does Not Exist"));
    disk.turn(&mut next);
    assert_eq!((counts(&next), disk.cdrs.len(), disk.states.len()), ((0, 0, 0), 1, 0));
}

#[test]
fn calls_without_an_answer_are_not_kept_and_a_shutdown_cuts_off_no_others() {
    let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
    let (_, ok) = answered(&mut site, 1);
    site.receive(ALICE, &invite(2, 1, ""));
    let sent = site.receive(ALICE, &invite(3, 1, ""));
    site.receive(BOB, &response(request(&sent, "INVITE"), "486 Busy Here"));
    site.work(|engine, now, _| engine.cut_off_accounts(now));
    disk.turn(&mut site);
    let told: Vec<_> = disk.cdrs.iter().map(|cdr| (&*cdr.call_id, &*cdr.ended_by)).collect();
    assert_eq!((told, disk.written), (vec![("3", "callee"), ("2", "shutdown")], 1));
    let (mut next, _) = disk.restart(&site, 2_000, KEPT);
    let bye = next.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    next.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    disk.turn(&mut next);
    assert_eq!((disk.cdrs.len(), &*disk.cdrs[2].ended_by), (3, "caller"));
}

#[test]
fn a_call_that_moves_to_another_shard_stays_kept() {
    let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
    let (forwarded, _) = answered(&mut site, 1);
    let (bucket, mut moved) = (call::bucket(call::hash(CALL_SECRET, b"1")), Vec::new());
    // The state of the call leaves first.
    site.work(|engine, now, _| moved = engine.export(now, bucket));
    disk.turn(&mut site);
    assert_eq!((disk.written, disk.forgotten), (1, 0));
    site.work_at(1, |engine, now, out| moved.into_iter().for_each(|record| engine.import(now, record, out)));
    disk.turn(&mut site);
    assert_eq!((disk.written, disk.forgotten, disk.states.len()), (1, 0, 1));
    let arrival = |from: &str| strowger_core::Arrival {
        transport: strowger_core::Transport::Udp,
        listener: strowger_core::ListenerId(0),
        remote: from.parse().expect("an address"),
        flow: None,
    };
    let bye = of_bob("BYE", &forwarded, "bob", 9, "");
    let sent = site.work_at(1, |engine, now, out| engine.receive(now, &arrival(BOB), bye.as_bytes(), out));
    let ok = response(request(&sent, "BYE"), "200 OK");
    site.work_at(1, |engine, now, out| engine.receive(now, &arrival(ALICE), ok.as_bytes(), out));
    disk.turn(&mut site);
    assert_eq!((disk.closed.len(), disk.states.len()), (1, 0));
}

/// Checks that without a folder no state is emitted.
#[test]
fn nothing_is_kept_by_default() {
    let (mut site, mut disk) = (with_bob(&KEPT.replace("dialogs.folder = \"calls\"\n", "")), Disk::default());
    let (_, ok) = answered(&mut site, 1);
    disk.turn(&mut site);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    disk.turn(&mut site);
    assert_eq!((disk.written, disk.forgotten, disk.closed.len(), disk.cdrs.len()), (0, 0, 0, 1));
}

/// Checks that a call without a row is removed from the disk as well.
#[test]
fn tracked_calls_without_accounting_are_kept() {
    let settings = KEPT.replace("accounting.cdr", "dialogs.track");
    let (mut site, mut disk) = (with_bob(&settings), Disk::default());
    let (_, ok) = answered(&mut site, 1);
    disk.turn(&mut site);
    let (mut next, _) = disk.restart(&site, 2_000, &settings);
    let bye = next.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    next.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    disk.turn(&mut next);
    assert_eq!((disk.forgotten, disk.states.len(), disk.cdrs.len()), (1, 0, 0));
}

#[test]
fn calls_of_another_secret_are_known_as_such() {
    let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
    answered(&mut site, 1);
    disk.turn(&mut site);
    let state = disk.states.pop_first().expect("a call").1;
    let now = Now { mono: 1, wall: site.now.wall };
    let mut next = Site::start(now, &[&format!("udp:{SERVER}")], KEPT);
    // The Call-ID in the state is changed, as if the call had other keys.
    let mut other = state.to_vec();
    let at = other.windows(16).position(|part| part == b"sip:bob@example.").expect("the URI of its callee");
    let id = other[at..].iter().position(|byte| *byte == b'1').expect("its Call-ID") + at;
    other[id] = b'2';
    let mut strange = Vec::new();
    for bytes in [&state[..], &other] {
        let call = read_kept(now, bytes).expect("a call");
        next.work(|engine, now, _| strange.push(engine.take_over(now, vec![call])));
    }
    assert_eq!(strange, [0, 1]);
}

/// Reads a file next to this test, which has a call in the format of this version.
#[test]
fn a_call_of_this_version_is_taken_up() {
    let (mut site, mut disk) = (with_bob(KEPT), Disk::default());
    let (_, ok) = answered(&mut site, 1);
    disk.turn(&mut site);
    let state = disk.states.first_key_value().expect("a call").1;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/suite/kept_{}", state[0]));
    if !file.exists() {
        std::fs::write(&file, state).expect("the folder is there");
        panic!("{} is written now: it belongs to the sources", file.display());
    }
    let bytes = std::fs::read(&file).expect("it is there");
    let call = read_kept(site.now, &bytes).expect("the form has changed: raise its version");
    let mut next = Site::start(site.now, &[&format!("udp:{SERVER}")], KEPT);
    next.work(|engine, now, _| assert_eq!(engine.take_over(now, vec![call]), 0));
    let bye = next.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    next.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    disk.turn(&mut next);
    assert_eq!((disk.cdrs.len(), line(&ok, "Call-ID")), (1, &*disk.cdrs[0].call_id));
    for at in 0..bytes.len() {
        assert_eq!(read_kept(site.now, &bytes[..at]).err(), Some(Unreadable::Malformed), "cut at {at}");
    }
}
