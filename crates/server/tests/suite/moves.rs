//! Buckets of calls as bytes: work in progress in one process continues in another.

use crate::accounting::rows;
use crate::dialogs::from_phone;
use crate::log::Lines;
use crate::site::*;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use strowger_core::record::{self, Names, Unreadable};
use strowger_core::{ListenerId, Now, PeerName, Transport, call};
use strowger_server::engine::{Effect, EngineInput, EngineRecord};
use strowger_server::question::Resolved;

/// Process with a listener for each of these, in this order. It numbers the names of its peers from `first`.
pub(crate) struct Process {
    listeners: &'static [&'static str],
    first: u32,
}

impl Names for Process {
    fn listener(&self, number: ListenerId) -> String {
        self.listeners[usize::from(number.0)].to_owned()
    }

    fn peer(&self, number: PeerName) -> String {
        format!("{}.example.net", number.0.get() - self.first)
    }

    fn listener_called(&self, name: &str) -> Option<ListenerId> {
        let place = self.listeners.iter().position(|listener| *listener == name)?;
        u16::try_from(place).ok().map(ListenerId)
    }

    fn peer_called(&self, name: &str) -> PeerName {
        let number = name.strip_suffix(".example.net").and_then(|number| number.parse::<u32>().ok());
        number.and_then(|n| NonZeroU32::new(n + self.first)).map_or(PeerName(NonZeroU32::MAX), PeerName)
    }
}

pub(crate) const HERE: Process = Process { listeners: &["udp:192.0.2.1:5060"], first: 0 };
/// Process that has just begun, and lists another listener first.
const THERE: Process = Process { listeners: &["tcp:192.0.2.1:5060", "udp:192.0.2.1:5060"], first: 70 };

/// Returns numbers of calls that belong to one bucket.
fn calls<const N: usize>() -> ([u32; N], u8) {
    let bucket = |number: u32| call::bucket(call::hash(CALL_SECRET, number.to_string().as_bytes()));
    let of = bucket(1);
    let mut numbers = (1..).filter(|number| bucket(*number) == of);
    (std::array::from_fn(|_| numbers.next().expect("there are enough of them")), of)
}

/// Work in progress of one bucket.
struct Calls {
    bytes: Vec<u8>,
    /// INVITE that bob's phone got for the ringing call.
    ringing: String,
    /// BYE by which alice ends the answered call.
    bye: String,
    /// Number of the answered call, and of the waiting ones.
    answered: u32,
    waits: u32,
    routed: u32,
    away: u32,
}

/// Settings that account each call by a rule. After the decision the account moves with the call, before it the
/// decision does.
const ACCOUNTED: &str = "accounting.cdr = true\n[[rule]]\nname = \"charged\"\naccount_as = \"desk\"\n";

/// Name below the domain of the server, which may resolve to the server itself.
const EDGE: &str = "Route: <sip:edge.example.org;lr>\r\n";

/// Creates a bucket with a call in every state: answered and in the log; ringing at the first of two phones; waiting
/// for the database, with a held message; waiting for the database after a name was resolved; and waiting for a name
/// after the rules have decided.
fn in_the_middle() -> Calls {
    let mut site = Site::new(&format!("{ONE}{ACCOUNTED}"));
    site.register(&format!("<sip:bob1@{BOB}>;q=1.0"));
    site.register(&format!("<sip:bob2@{BOB}>;q=0.5"));
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let ([answered, rings, waits, routed, away], bucket) = calls();

    site.receive(ALICE, &authorized(answered, &challenged, 1));
    let forwarded = site.answer();
    let ok = response(&forwarded[forwarded.find("INVITE sip:").expect("it rings")..], "200 OK");
    let ok = site.receive(BOB, &ok.replace("Content-Length", &format!("Contact: <sip:bob1@{BOB}>\r\nContent-Length")));
    assert!(ok.starts_with("SIP/2.0 200 "), "{ok}");
    let bye = format!(
        "BYE sip:bob1@{BOB} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKbye;rport\r\nMax-Forwards: 70\r\nRoute: {}\r\n\
         From: {}\r\nTo: {}\r\nCall-ID: {answered}\r\nCSeq: 3 BYE\r\nContent-Length: 0\r\n\r\n",
        line(&ok, "Record-Route"),
        line(&ok, "From"),
        line(&ok, "To")
    );

    site.wait(400);
    site.receive(ALICE, &authorized(rings, &challenged, 2));
    let forwarded = site.answer();
    let ringing = forwarded[forwarded.find("INVITE sip:").expect("it rings")..].to_owned();
    assert!(site.receive(BOB, &response(&ringing, "180 Ringing")).starts_with("SIP/2.0 180 "));

    let text = authorized(routed, &challenged, 3).replace("From: ", &format!("{EDGE}From: "));
    assert_eq!(site.receive(ALICE, &text), "");
    assert_eq!(resolve(&mut site), "", "it waits for the database");

    let outside = ("INVITE", "sip:carol@away.example");
    let shown = credentials_of("alice", b"secret of alice", outside, &challenged, 4);
    let text = invite(away, 2, &shown).replace("INVITE sip:bob@example.org", "INVITE sip:carol@away.example");
    assert_eq!(site.receive(ALICE, &text), "");
    assert!(!site.answer().contains("INVITE sip:"), "its name is asked for");

    assert_eq!(site.receive(ALICE, &authorized(waits, &challenged, 5)), "");
    let behind = invite(waits, 3, "").replace("INVITE", "MESSAGE").replace("Contact", "Subject");
    assert_eq!(site.receive(ALICE, &behind), "", "it is held back");

    assert_eq!((site.engines[0].waiting().messages(), site.engines[0].contexts()), (4, 2));
    let bytes = site.engines[0].export_bytes(site.now, bucket, &HERE);
    assert_eq!((site.engines[0].waiting().messages(), site.engines[0].contexts()), (0, 0));
    let counts = site.engines[0].transactions().counts();
    assert_eq!((counts.servers, counts.clients), (0, 0), "a challenge over UDP leaves no transaction");
    Calls { bytes, ringing, bye, answered, waits, routed, away }
}

/// Resolves the name that the server asks for to one address.
fn resolve(site: &mut Site) -> String {
    let asked = site.engines[0].effects.iter().find_map(|effect| match effect {
        Effect::Resolve { ticket, name, .. } => Some((*ticket, name.clone())),
        _ => None,
    });
    let (ticket, name) = asked.expect("a name is asked for");
    site.engines[0].effects.clear();
    let elsewhere = vec![(Transport::Udp, "192.0.2.99:5060".parse().expect("an address"))];
    let to = Resolved { targets: elsewhere, name: Some(PeerName(NonZeroU32::MIN)) };
    let resolved = EngineInput::Resolved { ticket, name, to };
    site.work(|engine, now, out| engine.answered(now, resolved, out))
}

/// Continues the calls in a process that reads these bytes.
fn go_on(calls: &Calls, bytes: &[u8], lines: Lines) {
    let mut site = Site::start(
        Now { mono: 200, wall: 1_700_000_000_500 },
        THERE.listeners,
        &format!("{TWO}accounting.cdr = true\n"),
    );
    site.register(&format!("<sip:bob1@{BOB}>"));
    let mut result = Ok(());
    let sent = site.work(|engine, now, out| result = engine.import_bytes(now, bytes, &THERE, out));
    // The request that waits for a name sends its caller one more 100.
    let is_trying = sent.starts_with("SIP/2.0 100 ") && line(&sent, "Call-ID") == calls.away.to_string();
    assert!(result.is_ok() && is_trying && !sent.contains("INVITE sip:"), "{result:?} {sent}");
    assert_eq!((site.engines[0].waiting().messages(), site.engines[0].contexts()), (4, 2));
    let tickets = site.database.tickets.lock().expect("no test fails while it holds this").clone();
    assert_eq!(tickets.len(), 2, "each request that waited asks again, the message behind one waits with it");

    // The ringing call goes to the second phone by its earlier plan, and otherwise by the policy of this process.
    let sent = site.receive(BOB, &response(&calls.ringing, "486 Busy Here"));
    let next = &sent[sent.find("INVITE sip:bob2@").unwrap_or_else(|| panic!("{sent}"))..];
    assert!(next.contains("Record-Route: ") && line(next, "Max-Forwards") == "22", "{next}");
    let ok = from_phone(next, "200 OK", "bob2");
    assert!(site.receive(BOB, &ok).starts_with("SIP/2.0 200 "));

    // The call that the rules admitted goes to its target.
    let sent = resolve(&mut site);
    assert!(
        sent.contains("INVITE sip:carol@away.example") && line(&sent, "Call-ID") == calls.away.to_string(),
        "{sent}"
    );

    // The answered call ends: it lasted 400 ms there and 600 ms here.
    site.wait(600);
    lines.take();
    let bye = site.receive(ALICE, &calls.bye);
    assert!(bye.contains("BYE sip:bob1@"), "{bye}");
    site.receive(BOB, &response(&bye, "200 OK"));
    let (ended_calls, _) = rows(&mut site);
    let ended = lines.text();
    assert!(ended.contains("call ended") && ended.contains("by=caller") && ended.contains("seconds=1.0"), "{ended}");

    // The waiting requests keep the proofs and answers that they had.
    let answer = |site: &mut Site, ticket: u64| {
        site.database.last.store(ticket, Relaxed);
        site.answer()
    };
    site.engines[0].effects.clear();
    let forwarded = answer(&mut site, tickets[0]);
    assert_eq!((line(&forwarded, "Call-ID"), is_forwarded_by(&forwarded)), (&*calls.routed.to_string(), "two"));
    assert_eq!(site.out.sends().last().map(|send| send.target.address.to_string()).as_deref(), Some("192.0.2.99:5060"));
    assert!(
        !site.engines[0].effects.iter().any(|effect| matches!(effect, Effect::Resolve { .. })),
        "the name is known"
    );
    let forwarded = answer(&mut site, tickets[1]);
    assert_eq!((line(&forwarded, "Call-ID"), is_forwarded_by(&forwarded)), (&*calls.waits.to_string(), "two"));
    assert!(forwarded.contains("SIP/2.0 407 ") && forwarded.contains("CSeq: 3 MESSAGE"), "{forwarded}");

    for _ in 0..300 {
        site.wait(1_000);
    }
    let counts = site.engines[0].transactions().counts();
    assert_eq!((counts.servers, counts.clients, counts.kept_messages), (0, 0, 0));
    assert_eq!((site.engines[0].waiting().messages(), site.engines[0].contexts()), (0, 0));
    let (cdrs, _) = rows(&mut site);
    let accounts: Vec<_> = ended_calls.iter().chain(&cdrs).map(|cdr| (&*cdr.call_id, &*cdr.account)).collect();
    let [answered, outside] = [calls.answered, calls.away].map(|number| number.to_string());
    assert!(accounts.contains(&(&answered, "desk")) && accounts.contains(&(&outside, "desk")), "{accounts:?}");
}

#[test]
fn work_in_progress_continues_in_another_process() {
    let lines = Lines::catch();
    let calls = in_the_middle();
    go_on(&calls, &calls.bytes, lines);
}

/// Reads a file next to this test, which has a bucket in the format of this version. If there is no such file yet, the
/// test writes it.
#[test]
fn a_record_of_this_version_is_taken_up() {
    let lines = Lines::catch();
    let calls = in_the_middle();
    // Otherwise the file would have no call that is logged.
    assert!(lines.text().contains("call begun"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/suite/record_{}", record::VERSION));
    if !file.exists() {
        std::fs::write(&file, &calls.bytes).expect("the folder is there");
        panic!("{} is written now: it belongs to the sources", file.display());
    }
    let bytes = std::fs::read(&file).expect("it is there");
    let read = || record::read::<Vec<EngineRecord>>(&bytes, &HERE).expect("the form has changed: raise its version");
    assert_eq!(record::write(read(), &HERE), bytes);
    go_on(&calls, &bytes, lines);
}

#[test]
fn listeners_and_peers_go_by_name_and_passwords_stay_behind() {
    let bytes = in_the_middle().bytes;
    let there: Vec<EngineRecord> = record::read(&bytes, &THERE).expect("it was written just now");
    let text = format!("{there:?}");
    assert!(
        text.contains("ListenerId(1)") && !text.contains("ListenerId(0)") && text.contains("PeerName(71)"),
        "{text}"
    );
    assert!(text.contains("credential: None") && text.contains("policy: None"), "{text}");
    assert_eq!(record::write(there, &THERE), bytes);
}

/// Checks that bytes that are no complete record change nothing, and do not make the process panic.
#[test]
fn bytes_that_were_changed_are_taken_in_whole_or_not_at_all() {
    let bytes = in_the_middle().bytes;
    let mut site = Site::new(TWO);
    let mut import = |bytes: &[u8]| {
        let mut result = Ok(());
        site.work(|engine, now, out| result = engine.import_bytes(now, bytes, &HERE, out));
        (result, site.engines[0].waiting().messages(), site.engines[0].contexts())
    };
    for at in 0..bytes.len() {
        assert_eq!(import(&bytes[..at]), (Err(Unreadable::Malformed), 0, 0));
    }
    let version = record::VERSION + 1;
    assert_eq!(import(&[&[version], &bytes[1..]].concat()), (Err(Unreadable::Version(version)), 0, 0));
    assert_eq!(import(&bytes), (Ok(()), 4, 2));
}
