//! `strowger load` and Ctrl-C: open calls are ended with the peer, and the reports are written.

mod phone;

use self::phone::Phone;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use strowger_tests::generator::{Ran, Running, answers, load, peer, reply};
use strowger_tests::peer::{sends_back, until_read};
use strowger_tests::server::Setup;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::wire::Transport;
use strowger_tests::{binary, together};

use crate::load::as_published;

#[test]
fn ctrl_c_ends_a_run() {
    together(&[
        ("ctrl_c_takes_back_calls_through_a_proxy", ctrl_c_takes_back_calls_through_a_proxy),
        ("ctrl_c_before_the_first_call", ctrl_c_before_the_first_call),
        ("ctrl_c_twice_ends_at_once", ctrl_c_twice_ends_at_once),
        ("ctrl_c_ends_the_calls", ctrl_c_ends_the_calls_and_the_reports_are_written),
        ("ctrl_c_waits_until_every_end_is_answered", ctrl_c_waits_until_every_end_is_answered),
        ("ctrl_c_waits_no_longer_than_it_may", ctrl_c_waits_no_longer_than_it_may),
        ("ctrl_c_ends_calls_with_their_passwords", ctrl_c_ends_calls_with_their_passwords),
        ("ctrl_c_ends_the_calls_of_documents", ctrl_c_ends_the_calls_of_documents),
        ("who_answers_lets_calls_end", who_answers_lets_calls_end),
        ("who_answers_waits_no_longer_than_it_may", who_answers_waits_no_longer_than_it_may),
        ("who_answers_ends_at_once_by_a_second_ctrl_c", who_answers_ends_at_once_by_a_second_ctrl_c),
        ("who_answers_ends_the_calls_that_are_left", who_answers_ends_the_calls_that_are_left),
        ("who_answers_hears_a_cancel", who_answers_hears_a_cancel),
        ("users_who_are_called_let_calls_end", users_who_are_called_let_calls_end),
    ]);
}

fn who_answers_lets_calls_end() {
    let mut uas = answers(&["--grace", "1min"]);
    let phone = Phone::of(uas.address);
    // This call ends before, and only stays for retransmissions.
    let tag = phone.call("first");
    phone.say("BYE", "first", &tag);
    assert_eq!(phone.hear().0, "200");
    let tag = phone.call("second");
    uas.signal(libc::SIGINT);
    uas.wait_for("Interrupted: new calls are refused");
    // The call is refused, each time with the same tag, and so are requests that begin no call.
    phone.say("INVITE", "third", "");
    let refused = phone.hear();
    assert!(refused.0 == "503" && refused.1.len() > 5, "{refused:?}");
    phone.say("INVITE", "third", "");
    assert_eq!(phone.hear(), refused);
    phone.say("ACK", "third", &refused.1);
    phone.say("OPTIONS", "fourth", "");
    assert_eq!(phone.hear().0, "503");
    phone.say("BYE", "second", &tag);
    assert_eq!(phone.hear().0, "200");
    let begun = Stopwatch::start();
    let ran = uas.end();
    assert!(begun.took().is_below(Duration::from_secs(3)), "{:?}: {}", begun.took(), ran.said);
    ran.ended_with(0);
    assert_eq!(ran.json["run"]["ended"], "interrupted", "{}", ran.said);
    let count = |name: &str| ran.count("counters", name);
    assert_eq!((ran.calls("incoming"), ran.calls("successful"), ran.calls("stopped")), (2, 2, 0), "{}", ran.said);
    assert_eq!((count("incoming.completed"), count("incoming.refused")), (2, 2), "{}", ran.said);
}

fn who_answers_waits_no_longer_than_it_may() {
    let uas = answers(&["--grace", "1s"]);
    Phone::of(uas.address).call("long");
    let begun = Stopwatch::start();
    uas.signal(libc::SIGTERM);
    let ran = uas.end();
    let took = begun.took();
    assert!(
        took.is_at_least(Duration::from_secs(1)) && took.is_below(Duration::from_secs(3)),
        "{took:?}: {}",
        ran.said
    );
    ran.ended_with(0);
    assert_eq!((ran.calls("incoming"), ran.calls("stopped")), (1, 1), "{}", ran.said);
}

/// The caller of an answering side must never wait for a missing BYE.
fn who_answers_ends_the_calls_that_are_left() {
    let uas = answers(&["--grace", "500ms"]);
    let phone = Phone::of(uas.address);
    let tag = phone.call("left");
    let begun = Stopwatch::start();
    uas.signal(libc::SIGTERM);
    let (bye, from) = phone.request();
    let own = phone.socket.local_addr().expect("it is bound");
    let header = |name: &str| {
        let line = bye.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    };
    assert!(bye.starts_with(&format!("BYE sip:anna@{own} SIP/2.0\r\n")), "{bye}");
    // The BYE comes from the callee (RFC 3261 section 12.2.1.1).
    assert!(header("From").starts_with("<sip:bob@") && header("From").ends_with(&tag), "{bye}");
    assert_eq!(header("To"), format!("<sip:anna@{own}>;tag=1"), "{bye}");
    assert_eq!(header("Route"), format!("<sip:{own};lr>"), "{bye}");
    phone.socket.send_to(reply("200 OK", &bye, own).replace(";tag=peer", "").as_bytes(), from).expect("it is sent");
    let ran = uas.end();
    assert!(begun.took().is_below(Duration::from_secs(3)), "{:?}: {}", begun.took(), ran.said);
    ran.ended_with(0);
    assert_eq!((ran.calls("incoming"), ran.calls("stopped"), ran.calls("failed")), (1, 1, 0), "{}", ran.said);
}

fn who_answers_hears_a_cancel() {
    // A CANCEL that crosses the 200 has no effect (RFC 3261 section 9.2), and the call continues.
    let uas = answers(&[]);
    let phone = Phone::of(uas.address);
    phone.say("INVITE", "crossing", "");
    let (code, tag) = phone.hear();
    assert_eq!(code, "200");
    phone.say("CANCEL", "crossing", "");
    assert_eq!(phone.answer(), ("200".into(), "CANCEL".into()));
    phone.say("ACK", "crossing", &tag);
    phone.say("BYE", "crossing", &tag);
    assert_eq!(phone.hear().0, "200");
    let ran = uas.report();
    assert_eq!((ran.calls("successful"), ran.calls("failed")), (1, 0), "{}", ran.said);

    // A CANCEL while it rings ends it.
    let uas = answers(&["--ring", "1h"]);
    let phone = Phone::of(uas.address);
    phone.say("INVITE", "ringing", "");
    assert_eq!(phone.answer().0, "180");
    phone.say("CANCEL", "ringing", "");
    let mut both = [phone.answer(), phone.answer()];
    both.sort_unstable();
    assert_eq!(both, [("200".into(), "CANCEL".into()), ("487".into(), "INVITE".into())]);
    phone.say("ACK", "ringing", "");
    let ran = uas.report();
    assert_eq!((ran.calls("incoming"), ran.calls("failed")), (1, 0), "{}", ran.said);
}

fn who_answers_ends_at_once_by_a_second_ctrl_c() {
    let mut uas = answers(&["--grace", "1h"]);
    Phone::of(uas.address).call("long");
    let begun = Stopwatch::start();
    uas.signal(libc::SIGINT);
    uas.wait_for("Interrupted: ");
    // This happens within the grace period, in which the program waits for open calls.
    std::thread::sleep(Duration::from_millis(300));
    uas.signal(libc::SIGINT);
    let ran = uas.end();
    assert!(begun.took().is_below(Duration::from_secs(3)), "{:?}: {}", begun.took(), ran.said);
    assert_eq!((ran.code, ran.calls("stopped")), (130, 1), "{}", ran.said);
}

fn users_who_are_called_let_calls_end() {
    let (told, contact) = std::sync::mpsc::channel();
    let registrar = peer(move |_, request| {
        let line = request.lines().find_map(|line| line.strip_prefix("Contact: <sip:")).unwrap_or_default();
        let place = line.split(['>', ';']).next().unwrap_or_default();
        let _ = told.send(place.rsplit('@').next().unwrap_or_default().to_owned());
        Some("200 OK")
    });
    let registrar = registrar.to_string();
    // Further users are still due: they do not register, and end no existing call.
    let words = ["-w", "register-then-receive", "-r", "1", "-m", "1000", "--no-preflight", "--grace", "1min"];
    let mut phones = Running::start(&[&[registrar.as_str()][..], &words].concat());
    let place = contact.recv_timeout(Duration::from_secs(20)).expect("a user registers");
    let phone = Phone::of(place.parse().unwrap_or_else(|error| panic!("{place}: {error}")));
    let tag = phone.call("mine");
    // Before that the run may still be about to begin, although its first user is registered.
    phones.reach(1);
    phones.signal(libc::SIGINT);
    phones.wait_for("Interrupted: new calls are refused");
    phone.say("INVITE", "late", "");
    assert_eq!(phone.hear().0, "503");
    phone.say("BYE", "mine", &tag);
    assert_eq!(phone.hear().0, "200");
    let ran = phones.end(Duration::from_secs(5));
    let (completed, stopped) = (ran.count("counters", "incoming.completed"), ran.calls("stopped"));
    assert_eq!((completed, stopped), (1, 0), "{}", ran.said);
}

fn ctrl_c_takes_back_calls_through_a_proxy() {
    let server = Setup::on(&[Transport::Udp]).relay().start();
    let uas = answers(&[]);
    let (callee, proxy) = (format!("sip:bob@{}", uas.address), server.address(Transport::Udp).to_string());
    let words = [&callee, "--proxy", &proxy, "-r", "50", "--duration", "1h", "--hold", "1h", "--no-preflight"];
    let mut generator = Running::start(&words);
    generator.reach(2);
    generator.signal(libc::SIGTERM);
    let ran = generator.end(Duration::from_secs(10));
    let there = uas.report();
    let answered = there.count("counters", "incoming.answered");
    assert!(answered >= 50, "{}", there.said);
    // By Record-Route the proxy stays in the path, and the BYE follows it.
    let (completed, crossed) = (there.count("counters", "incoming.completed"), cancels(&ran));
    assert!(completed <= answered && completed + crossed >= answered, "{crossed} {}", there.said);
    assert!(there.calls("failed") <= crossed, "{crossed} {}", there.said);
}

/// Returns the number of cancelled calls: at most the one that was being set up. If the answer crosses the CANCEL, the
/// answering side gives the call up; its BYE is answered nevertheless.
fn cancels(ran: &Ran) -> u64 {
    let rows = ran.json["requests"].as_array().expect("requests");
    let cancels = rows.iter().filter(|row| row["method"] == "CANCEL").filter_map(|row| row["sent"].as_u64()).sum();
    assert!(cancels <= 1, "{}", ran.said);
    cancels
}

fn ctrl_c_before_the_first_call() {
    // Without answers the pre-flight of eight addresses takes seconds, the registration of the callee half a minute.
    let sources: Vec<String> = (1..9).map(|host| format!("127.0.1.{host}")).collect();
    let sources = sources.join(",");
    for words in [&["--source", &sources][..], &["--no-preflight", "--pair", "--callee", "bob:builder"]] {
        let (asked, was_asked) = std::sync::mpsc::channel();
        let target = peer(move |_, request| {
            let _ = asked.send(request.contains("\r\nExpires: 0\r\n"));
            None
        });
        let mut generator = Running::start(&[&[target.to_string().as_str()][..], words].concat());
        was_asked.recv_timeout(Duration::from_secs(20)).expect("something is sent");
        let begun = Stopwatch::start();
        generator.signal(libc::SIGINT);
        let ran = generator.end(Duration::from_secs(10));
        assert!(begun.took().is_below(Duration::from_secs(1)), "{words:?}: {:?}", begun.took());
        assert_eq!((ran.code, &ran.json), (130, &Value::Null), "{}", ran.said);
        assert!(ran.said.contains("interrupted before the first call"), "{}", ran.said);
        // The REGISTER may have been processed nevertheless.
        until_read(target);
        assert_eq!(was_asked.try_iter().any(|removed| removed), words.contains(&"--callee"), "{words:?}");
    }
}

fn ctrl_c_twice_ends_at_once() {
    // A peer that no BYE reaches.
    let target = peer(|_, request| request.starts_with("INVITE").then_some("200 OK")).to_string();
    let words = [&target, "-r", "50", "--duration", "1h", "--hold", "1h", "--no-preflight", "--grace", "1h"];
    let mut generator = Running::start(&words);
    // The line comes at the end of a second of the clock, 0.4 s after the beginning at least.
    generator.reach(1);
    let begun = Stopwatch::start();
    generator.signal(libc::SIGINT);
    generator.wait_for("Interrupted: ");
    // This happens within the grace period, in which the program waits for open calls.
    std::thread::sleep(Duration::from_millis(300));
    generator.signal(libc::SIGINT);
    let ran = generator.end(Duration::from_secs(10));
    assert!(begun.took().is_below(Duration::from_secs(3)), "{:?}", begun.took());
    assert_eq!(ran.code, 130, "{}", ran.said);
    let (begun, stopped) = (ran.calls("outgoing"), ran.calls("stopped"));
    assert!(begun >= 15 && stopped == begun, "{begun} begun, {stopped} stopped: {}", ran.said);
    assert_eq!(ran.json["run"]["ended"], "interrupted", "{}", ran.said);
}

fn ctrl_c_ends_the_calls_and_the_reports_are_written() {
    let uas = answers(&[]);
    let address = uas.address.to_string();
    let words = [address.as_str(), "-r", "50", "--duration", "1h", "--hold", "1h", "--html", "report.html"];
    let mut generator = Running::start(&[&words[..], &["--log", "run.log"]].concat());
    generator.reach(2);
    generator.signal(libc::SIGINT);
    let begun = Stopwatch::start();
    let ran = generator.end(Duration::from_secs(10));
    assert!(begun.took().is_below(Duration::from_secs(5)), "nobody waits for an hour");
    ran.ended_with(130);
    assert_eq!(ran.json["run"]["ended"], "interrupted");
    let begun = ran.calls("outgoing");
    assert!(begun >= 50 && ran.calls("stopped") == begun, "{}", ran.said);
    // The oldest calls lasted more than a second; no BYE was due before Ctrl-C.
    assert!(ran.delay("sdd.intended", "max") < ran.delay("sdd", "max") + 500_000.0, "{}", ran.said);
    // Their answers were waited for.
    assert_eq!(
        (ran.count("counters", "session.completed"), ran.count("counters", "dead_call")),
        (begun, 0),
        "{}",
        ran.said
    );
    assert!(std::fs::metadata(generator.folder().join("report.html")).is_ok_and(|m| m.len() > 10_000));
    // Each call ended with a BYE on the other side.
    let there = uas.report();
    let byes = there.json["requests"].as_array().expect("requests").iter().find(|row| row["method"] == "BYE");
    assert_eq!(byes.map(|row| &row["received"]), Some(&begun.into()), "{}", there.json);

    // The raw log alone gives the same report; given twice, the double.
    let log = generator.folder().join("run.log").display().to_string();
    let again = load(&["report", &log]);
    assert_eq!(again.json["counters"], ran.json["counters"], "{}", again.said);
    let both = load(&["report", &log, &log]);
    assert_eq!(both.calls("outgoing"), begun * 2, "{}", both.said);
    let name = |place: usize| both.json["generators"][place]["heading"]["generator"].as_str().expect("a name");
    assert_eq!(name(1), format!("{}#2", name(0)));
    as_published(&both.json);
}

/// Reactions of a peer to a call, by the order of calls.
const ANSWERED: usize = 0;
const RINGING: usize = 1;
const SILENT: usize = 2;
const CROSSING: usize = 3;

/// Messages of one call: first lines and bodies, unchanged.
type Heard = Arc<Mutex<BTreeMap<usize, Vec<String>>>>;

/// Starts a peer that loses the first BYE, the first CANCEL, and every INVITE of the silent kind until `goes`; answers
/// the INVITE of the crossing kind when its CANCEL comes.
fn forgetful(goes: Arc<AtomicBool>) -> (SocketAddr, Heard) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let own = socket.local_addr().expect("it is bound");
    let heard = Heard::default();
    let kept = heard.clone();
    std::thread::spawn(move || {
        let (mut calls, mut buffer) = (Vec::<(String, String)>::new(), [0; 65_536]);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if sends_back(&socket, &buffer[..length], from) {
                continue;
            }
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let id = text.lines().find(|line| line.starts_with("Call-ID:")).unwrap_or_default().to_owned();
            let known = calls.iter().position(|(known, _)| *known == id);
            let kind = known.unwrap_or_else(|| {
                calls.push((id, text.clone()));
                calls.len() - 1
            });
            let invite = calls[kind].1.clone();
            let method = text.split(' ').next().unwrap_or_default().to_owned();
            let again = {
                let mut heard = kept.lock().expect("nobody panics with it");
                let all = heard.entry(kind).or_default();
                all.push(text.clone());
                all.iter().filter(|text| text.starts_with(&method)).count() > 1
            };
            let say = |line: &str, request: &str| drop(socket.send_to(reply(line, request, own).as_bytes(), from));
            match (method.as_str(), kind) {
                ("INVITE", ANSWERED) => say("200 OK", &text),
                ("INVITE", SILENT) if !goes.load(SeqCst) => (),
                ("INVITE", _) => say("180 Ringing", &text),
                ("CANCEL", CROSSING) => {
                    say("200 OK", &invite);
                    say("200 OK", &text);
                }
                ("CANCEL", _) if again => {
                    say("200 OK", &text);
                    say("487 Request Terminated", &invite);
                }
                ("BYE", _) if again => say("200 OK", &text),
                _ => (),
            }
        }
    });
    (own, heard)
}

fn ctrl_c_waits_until_every_end_is_answered() {
    let goes = Arc::<AtomicBool>::default();
    let (target, heard) = forgetful(goes.clone());
    let words = [&target.to_string(), "-r", "20", "-m", "4", "--hold", "1h", "--no-preflight", "--grace", "30s"];
    let mut generator = Running::start(&words);
    generator.reach(1);
    let begun = Stopwatch::start();
    goes.store(true, SeqCst);
    generator.signal(libc::SIGINT);
    let ran = generator.end(Duration::from_secs(20));
    // Lost requests are retransmitted after T1 (500 ms); the INVITE without an answer at most 2 s after the one before.
    assert!(begun.took().is_below(Duration::from_secs(8)), "{:?}: {}", begun.took(), ran.said);
    ran.ended_with(130);
    assert_eq!((ran.calls("outgoing"), ran.calls("stopped"), ran.calls("failed")), (4, 4, 0), "{}", ran.said);
    assert_eq!(ran.count("counters", "session.completed"), 2, "{}", ran.said);
    until_read(target);
    let heard = heard.lock().expect("nobody panics with it");
    let methods = |kind: usize| {
        let all = heard[&kind].iter().map(|text| text.split(' ').next().unwrap_or_default());
        all.filter(|method| *method != "INVITE").collect::<Vec<_>>()
    };
    let all = format!("{heard:#?}");
    assert_eq!(methods(ANSWERED), ["ACK", "BYE", "BYE"], "{all}");
    assert_eq!(methods(RINGING), ["CANCEL", "CANCEL", "ACK"], "{all}");
    assert_eq!(methods(SILENT), ["CANCEL", "CANCEL", "ACK"], "{all}");
    assert_eq!(methods(CROSSING), ["CANCEL", "ACK", "BYE", "BYE"], "{all}");
    let of = |kind: usize, method: &str| {
        heard[&kind].iter().rfind(|text| text.starts_with(method)).cloned().unwrap_or_default()
    };
    let header = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    };
    let branch = |text: &str| {
        let via = header(text, "Via");
        via.split("branch=").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default().to_owned()
    };
    // CANCEL and the ACK of the refusal belong to the transaction of the INVITE (RFC 3261 sections 9.1 and 17.1.1.3).
    for kind in [RINGING, SILENT] {
        let of_all = ["INVITE", "CANCEL", "ACK"].map(|method| branch(&of(kind, method)));
        assert!(of_all.iter().all(|one| *one == of_all[0] && !one.is_empty()), "{of_all:?} {all}");
    }
    // The BYE of a dialog is a new request within the dialog, with its own branch and CSeq.
    for kind in [ANSWERED, CROSSING] {
        let (bye, invite) = (of(kind, "BYE"), of(kind, "INVITE"));
        assert!(bye.starts_with(&format!("BYE sip:{target} SIP/2.0")), "{bye}");
        assert!(header(&bye, "To").ends_with(";tag=peer") && branch(&bye) != branch(&invite), "{bye}");
        assert_eq!([header(&invite, "CSeq"), header(&bye, "CSeq")], ["1 INVITE", "2 BYE"]);
    }
}

fn ctrl_c_waits_no_longer_than_it_may() {
    let (asked, byes) = std::sync::mpsc::channel();
    let target = peer(move |_, request| {
        if request.starts_with("BYE") {
            let _ = asked.send(());
        }
        request.starts_with("INVITE").then_some("200 OK")
    });
    let words = [&target.to_string(), "-r", "20", "-m", "1", "--hold", "1h", "--no-preflight", "--grace", "1s"];
    let mut generator = Running::start(&words);
    generator.reach(1);
    let begun = Stopwatch::start();
    generator.signal(libc::SIGTERM);
    let ran = generator.end(Duration::from_secs(10));
    let took = begun.took();
    assert!(
        took.is_at_least(Duration::from_secs(1)) && took.is_below(Duration::from_secs(3)),
        "{took:?}: {}",
        ran.said
    );
    ran.ended_with(130);
    assert_eq!((ran.calls("stopped"), ran.count("counters", "session.cut")), (1, 1), "{}", ran.said);
    // At once, and after T1.
    until_read(target);
    assert_eq!(byes.try_iter().count(), 2, "{}", ran.said);
}

/// With a proxy that challenges every request, the BYE has credentials, too.
fn ctrl_c_ends_calls_with_their_passwords() {
    let server = Setup::on(&[Transport::Udp])
        .with("domains = [\"example.org\"]\nrealm = \"example.org\"\nproxy.relay_for = \"authenticated\"\nban.enabled = false")
        .start();
    for user in ["anna", "bob"] {
        server.add_user(&format!("{user}@example.org"), "builder");
    }
    let target = server.address(Transport::Udp).to_string();
    let words =
        [target.as_str(), "--domain", "example.org", "--auth", "anna:builder", "--pair", "--callee", "bob:builder"];
    let mut generator = Running::start(&[&words[..], &["-r", "50", "--duration", "1h", "--hold", "1h"]].concat());
    generator.reach(2);
    let begun = Stopwatch::start();
    generator.signal(libc::SIGINT);
    let ran = generator.end(Duration::from_secs(10));
    assert!(begun.took().is_below(Duration::from_secs(3)), "{:?}: {}", begun.took(), ran.said);
    let answered = ran.count("counters", "session.answered");
    assert!(answered >= 50, "{}", ran.said);
    assert_eq!(ran.count("counters", "session.completed"), answered, "{}", ran.said);
    assert_eq!((ran.calls("stopped"), ran.calls("failed")), (ran.calls("outgoing"), 0), "{}", ran.said);
}

/// Documents, whose BYE is SIPp's; over separate connections.
fn ctrl_c_ends_the_calls_of_documents() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let document = folder.path().join("uac.xml");
    let built_in = Command::new(binary::strowger()).args(["sipp", "-sd", "uac"]).output().expect("it starts");
    std::fs::write(&document, built_in.stdout).expect("the folder can be written");
    let document = document.display().to_string();
    for (transport, connections) in [("udp", "one"), ("udp", "per-call"), ("tcp", "one"), ("tcp", "per-call")] {
        let uas = answers(&["--transport", transport]);
        let target = format!("{transport}://{}", uas.address);
        let words =
            [target.as_str(), "--scenario", &document, "--connections", connections, "-r", "50", "--hold", "1h"];
        let mut generator = Running::start(&[&words[..], &["--duration", "1h"]].concat());
        generator.reach(1);
        let begun = Stopwatch::start();
        generator.signal(libc::SIGINT);
        let ran = generator.end(Duration::from_secs(10));
        let what = format!("{transport} {connections}: {}", ran.said);
        assert!(begun.took().is_below(Duration::from_secs(3)), "{:?} {what}", begun.took());
        let made = ran.calls("outgoing");
        assert!(made >= 15 && ran.calls("stopped") == made && ran.calls("failed") == 0, "{what}");
        assert_eq!(ran.count("counters", "session.completed"), made, "{what}");
        let (completed, crossed) = (uas.report().count("counters", "incoming.completed"), cancels(&ran));
        assert!(completed <= made && completed + crossed >= made, "{completed} {crossed} {what}");
    }
}
