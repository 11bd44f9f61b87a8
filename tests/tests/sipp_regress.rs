//! SIPp's regression cases with `strowger sipp` in both roles, and with SIPp itself in one of them.
//!
//! `STROWGER_REGRESS=name,name` plays only these.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;
use strowger_tests::wait;

use strowger_tests::corpora;
use strowger_tests::duel::bench::Side::{Answers, Calls};
use strowger_tests::duel::bench::Who::{Ours, Theirs};
use strowger_tests::duel::bench::{self, Bench, Heard, Who, record_datagram, record_stream};
use strowger_tests::program::{self, SIPP};
use strowger_tests::text::audio_port;

/// Programs that play a case: (caller, callee).
type Cast = &'static [(Who, Who)];

/// A single process, or both roles by `strowger sipp`.
const OURS: Cast = &[(Ours, Ours)];
/// Both roles by `strowger sipp`, and SIPp in each role.
const ALL: Cast = &[(Ours, Ours), (Ours, Theirs), (Theirs, Ours)];
/// The case is newer than SIPp 3.6.1, which cannot play the caller.
const NEWER_CALLER: Cast = &[(Ours, Ours), (Ours, Theirs)];
/// Likewise for the callee.
const NEWER_CALLEE: Cast = &[(Ours, Ours), (Theirs, Ours)];

/// A case: its name, its players, and its steps.
type Case = (&'static str, Cast, fn(&mut Bench));

const CASES: &[Case] = &[
    ("github-#0018", OURS, literal_bracket),
    ("github-#0034", OURS, ends_of_messages),
    ("github-#0083-1", OURS, source_address),
    ("github-#0083-2", OURS, source_port),
    ("github-#0085", ALL, automatic_answers),
    ("github-#0098", ALL, port_in_third_party_calls),
    ("github-#0103", ALL, no_jump_without_variable),
    ("github-#0130", ALL, bad_terminal),
    ("github-#0150", OURS, address_family),
    ("github-#0152", ALL, answers_without_to),
    ("github-#0155", ALL, keyboard),
    ("github-#0156", ALL, free_port),
    ("github-#0192", ALL, stream_port),
    ("github-#0196", NEWER_CALLER, media_port),
    ("github-#0207", ALL, look_alikes_in_bodies),
    ("github-#0234", ALL, contact_with_parameters),
    ("github-#0238", ALL, headers_by_name),
    ("github-#0259", ALL, echo_switch),
    ("github-#0262", ALL, routes_both_ways),
    ("github-#0276", NEWER_CALLEE, busy_media_port),
    ("github-#0337", OURS, tab_before_body),
    ("github-#0364", OURS, empty_key),
    ("github-#0458", ALL, entities_in_attributes),
    ("github-#0769", NEWER_CALLER, response_expression),
    ("github-#0850", NEWER_CALLER, bye_of_an_abort),
    ("github-#0862", NEWER_CALLEE, description_in_multipart),
];

/// Cases that are not played, with the reason.
const NOT_PLAYED: &[(&str, &str)] = &[(
    "github-#0544",
    "encrypted media (SDES-SRTP) and its built-in patterns belong to SIPp 3.7; media actions of that kind are refused",
)];

#[test]
fn regression_cases() {
    let _turn = strowger_tests::alone();
    if !program::have(&[SIPP]) {
        return;
    }
    let Some(folder) = corpora::folder("sipp-scenarios/sipp/regress") else { return };
    assert_eq!(CASES.len() + NOT_PLAYED.len(), 27, "each case is played or named");
    let chosen = std::env::var("STROWGER_REGRESS").ok();
    let runs: Vec<(Case, (Who, Who))> = CASES
        .iter()
        .filter(|(name, ..)| chosen.as_ref().is_none_or(|c| c.split(',').any(|c| name.ends_with(c))))
        .flat_map(|case| case.1.iter().map(|cast| (*case, *cast)))
        .collect();
    let name = |run: &(Case, (Who, Who))| format!("{} (calls: {:?}, answers: {:?})", run.0.0, run.1.0, run.1.1);
    let wrong = bench::play_all(&runs, 12, name, |((name, _, play), (caller, callee))| {
        let own = folder.join(name);
        // Some cases need files of another case.
        let other = match *name {
            "github-#0196" | "github-#0862" => Some(folder.join("github-#0192")),
            _ => None,
        };
        let folders: Vec<PathBuf> = other.into_iter().chain(own.is_dir().then_some(own)).collect();
        let folders: Vec<_> = folders.iter().map(PathBuf::as_path).collect();
        play(&mut Bench::new(*caller, *callee, &folders));
    });
    let text: String = wrong.iter().map(|(name, text)| format!("\n=== {name}\n{text}\n")).collect();
    assert!(wrong.is_empty(), "{} of {} runs went wrong\n{text}", wrong.len(), runs.len());
}

/// A pair of built-in scenarios: caller, callee, transport of each, calls.
type Pair = (&'static str, &'static str, &'static str, &'static str, u32);

const PAIRS: &[Pair] = &[
    ("uac", "uas", "u1", "u1", 20),
    ("uac", "uas", "un", "u1", 20),
    ("uac", "uas", "t1", "t1", 20),
    ("uac", "uas", "tn", "tn", 20),
    ("uac", "uas", "tn", "t1", 20),
    ("regexp", "uas", "u1", "u1", 5),
    ("regexp", "uas", "t1", "t1", 5),
    ("branchc", "branchs", "u1", "u1", 1),
    ("branchc", "branchs", "t1", "t1", 1),
];

#[test]
fn built_in_scenarios_understand_each_other() {
    let _turn = strowger_tests::alone();
    if !program::have(&[SIPP]) {
        return;
    }
    let runs: Vec<(Pair, (Who, Who))> = PAIRS.iter().flat_map(|pair| ALL.iter().map(|cast| (*pair, *cast))).collect();
    let name = |((calls, answers, own, other, _), cast): &(Pair, (Who, Who))| {
        format!("{calls} by {own} ({:?}) with {answers} by {other} ({:?})", cast.0, cast.1)
    };
    let play = |((calls, answers, own, other, number), (caller, callee)): &(Pair, (Who, Who))| {
        let mut bench = Bench::new(*caller, *callee, &[]);
        let common = format!("-i 127.0.0.1 -m {number} -max_socket 500 -nostdin -trace_stat -fd 1");
        let words = format!(
            "-sn {answers} -p 5070 -t {other} {common} -cp 5090 -stf callee.csv -trace_err -error_file callee.err"
        );
        let mut command = bench.command(Answers, &words);
        let mut uas = bench.start(&mut command);
        uas.listens(5070);
        let words = format!(
            "-sn {calls} 127.0.0.1:5070 -p 5080 -t {own} {common} -r 50 -d 20 -timeout 15 -cp 5091 -stf caller.csv \
             -trace_err -error_file caller.err"
        );
        let mut command = bench.command(Calls, &words);
        let mut uac = bench.start(&mut command);
        for (process, who) in [(&mut uac, "caller"), (&mut uas, "callee")] {
            let ended = wait::look(Duration::from_secs(20), || process.ended());
            assert!(
                ended.is_some_and(|status| status.success()),
                "the {who}: {ended:?}\n{}\ncaller's statistics:\n{}\ncallee's:\n{}\nerrors:\n{}{}",
                process.tail(),
                bench.text("caller.csv"),
                bench.text("callee.csv"),
                bench.text("caller.err"),
                bench.text("callee.err"),
            );
        }
        for file in ["caller.csv", "callee.csv"] {
            let text = bench.text(file);
            let last: Vec<&str> = text.lines().last().unwrap_or_default().split(';').collect();
            // Successful and failed calls, cumulative.
            assert_eq!((last[15], last[17]), (&*number.to_string(), "0"), "{file}\n{text}");
        }
    };
    let wrong = bench::play_all(&runs, 12, name, play);
    let text = |wrong: &[(String, String)]| -> String {
        wrong.iter().map(|(name, text)| format!("\n=== {name}\n{text}\n")).collect()
    };
    // On a busy machine SIPp retransmits an INVITE at once after a delay, and by its rules an answering side that has
    // sent two responses fails such a call; then the caller retransmits its BYE for half a minute. So a run with SIPp
    // has a second attempt, and the errors of the first are printed.
    println!("{}", text(&wrong));
    let shared = |(_, (caller, callee)): &&(Pair, (Who, Who))| *caller == Theirs || *callee == Theirs;
    let went_wrong = |run: &&(Pair, (Who, Who))| wrong.iter().any(|(wrong, _)| *wrong == name(run));
    let again: Vec<_> = runs.iter().filter(shared).filter(went_wrong).copied().collect();
    let own = runs.iter().filter(|run| !shared(run)).filter(went_wrong).count();
    let wrong = bench::play_all(&again, 4, name, play);
    assert!(own == 0 && wrong.is_empty(), "{} of {} runs went wrong\n{}", own + wrong.len(), runs.len(), text(&wrong));
}

/// Returns the record of a recorder, within a time limit.
fn heard(from: &std::sync::mpsc::Receiver<Heard>) -> Heard {
    from.recv_timeout(Duration::from_secs(8)).expect("something is heard")
}

fn lines<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(start)).collect()
}

/// Returns the message log from the first received message on.
fn received(log: &str) -> &str {
    log.find("message received").map_or("", |at| &log[at..])
}

fn literal_bracket(bench: &mut Bench) {
    let recorder = record_stream(5070);
    let _uac = bench.background(Calls, "-m 1 -sf notify-brackets.xml -t t1 127.0.0.1:5070");
    let text = String::from_utf8_lossy(&heard(&recorder).1).into_owned();
    assert!(text.contains("X-Literal: [date]"), "{text}");
    assert!(!lines(&text, "X-Keyword:").iter().any(|l| l.contains(['[', ']'])), "{text}");
}

fn ends_of_messages(bench: &mut Bench) {
    let cases = [
        ("notify-1234.xml", &b"\n\x01\x02\x03\x04"[..]),
        ("notify-manylf.xml", b"0\r\n\r\n"),
        ("notify-nocrlf.xml", b"0\r\n\r\n"),
        ("notify-withlf.xml", b"3\r\n\r\nX\r\n"),
    ];
    for (at, (file, end)) in cases.into_iter().enumerate() {
        let port = 5070 + at as u16;
        let recorder = record_stream(port);
        let _uac = bench.background(Calls, &format!("-m 1 -sf {file} -t t1 127.0.0.1:{port}"));
        let bytes = heard(&recorder).1;
        assert!(bytes.ends_with(end), "{file}: {:?}", String::from_utf8_lossy(&bytes));
    }
}

const BOUND: &str = "-m 1 -sn uac -i 127.0.3.1 -t t1 -p 5071 127.0.2.1:5070";

fn source_address(bench: &mut Bench) {
    let recorder = record_stream(5070);
    let _uac = bench.background(Calls, BOUND);
    assert_eq!(heard(&recorder).0.ip().to_string(), "127.0.3.1");
}

fn source_port(bench: &mut Bench) {
    let recorder = record_stream(5070);
    let _uac = bench.background(Calls, BOUND);
    let (peer, bytes) = heard(&recorder);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(lines(&text, "Via:")[0].contains(&format!("127.0.3.1:{};", peer.port())), "{peer}: {text}");
}

fn automatic_answers(bench: &mut Bench) {
    for (option, gone) in [("-aa", true), ("", false)] {
        let _uas = bench.background(Answers, &format!("-sn uas -i 127.0.0.1 -p 5070 -m 1 {option}"));
        let mut uac = bench.background(Calls, "-sf uac.xml -i 127.0.0.1 -m 1 127.0.0.1:5070");
        assert_eq!(uac.ended().is_some(), gone, "with {option:?}\n{}", uac.tail());
    }
}

/// Reads a growing file until it contains this text, or until a time limit. Returns its text.
fn text_with(bench: &Bench, name: &str, part: &str) -> String {
    let mut text = String::new();
    wait::until(Duration::from_secs(10), || {
        text = bench.text(name);
        text.contains(part)
    });
    text
}

fn port_in_third_party_calls(bench: &mut Bench) {
    let _b = bench.background(Answers, "127.0.0.1:5070 -sn 3pcc-C-B -3pcc 127.0.0.1:9000 -i 127.0.0.1 -p 5071 -m 1");
    let a =
        "127.0.0.1:5072 -sn 3pcc-C-A -3pcc 127.0.0.1:9000 -i 127.0.0.1 -p 5073 -m 1 -trace_msg -message_file tmp.log";
    let _a = bench.background(Calls, a);
    let log = text_with(bench, "tmp.log", "127.0.0.1:5073");
    assert!(lines(&log, "Via:").iter().any(|l| l.contains("127.0.0.1:5073")), "{log}");
}

/// Runs both sides in the background; the caller has to end within its second.
fn caller_is_gone(bench: &mut Bench, uas: &str, uac: &str) {
    let _uas = bench.background(Answers, uas);
    let mut uac = bench.background(Calls, uac);
    assert!(uac.ended().is_some(), "the caller is still there\n{}", uac.tail());
}

fn no_jump_without_variable(bench: &mut Bench) {
    caller_is_gone(bench, "-sf uas-modified.xml -i 127.0.0.1 -p 5070 -m 1", "127.0.0.1:5070 -sn uac -i 127.0.0.1 -m 1");
}

fn bad_terminal(bench: &mut Bench) {
    let mut command = bench.command(Answers, "-sn uas -i 127.0.0.1 -p 5070 -m 1 -nostdin");
    let mut uas = bench.start(command.env("TERM", "bad_term"));
    uas.listens(5070);
    let mut uac = bench.command(Calls, "-sn uac -i 127.0.0.1 -m 1 127.0.0.1:5070 -nostdin");
    let status = bench.start(uac.env("TERM", "bad_term")).end(Duration::from_secs(3));
    assert!(status.success(), "{status}");
}

fn address_family(bench: &mut Bench) {
    for (target, wrong) in [("127.0.0.1:5071", "Unable to send UDP"), ("[::1]:5071", "family not supported")] {
        let words = format!("-m 1 -sn uac {target} -p 5070 -timeout 1 -timeout_error -nostdin");
        let mut command = bench.command(Calls, &words);
        let mut process = bench.start(&mut command);
        process.end(Duration::from_secs(10));
        let log = process.log();
        assert!(!log.contains(wrong), "{log}");
    }
}

fn answers_without_to(bench: &mut Bench) {
    let _uas = bench.background(Answers, "-sf uas.xml -p 5070");
    let uac = "-m 20 -sf uac.xml 127.0.0.1:5070 -timeout 4 -timeout_error -trace_stat -stf tmp.log";
    bench.foreground(Calls, uac);
    let statistics = bench.text("tmp.log");
    let last: Vec<&str> = statistics.lines().last().unwrap_or_default().split(';').collect();
    assert_eq!(last[11], "20", "{statistics}");
    assert!(last[17].parse::<u32>().is_ok_and(|failed| failed > 0), "{statistics}");
}

fn keyboard(bench: &mut Bench) {
    let _uas = bench.background(Answers, "-sn uas -p 5070");
    let mut uac = bench.command(Calls, "-m 1 -sn uac -p 5071 127.0.0.1:5070 -timeout 2 -timeout_error");
    let status = bench.start(&mut uac).end(Duration::from_secs(10));
    assert!(status.success(), "{status}");
}

/// Without valgrind: the language rules out the errors that it finds. The other half of the case: a caller finds a port
/// when the callee has taken the default port of both.
fn free_port(bench: &mut Bench) {
    let mut uas = bench.background(Answers, "-m 10 -sn uas");
    assert_eq!(bench.foreground(Calls, "-m 10 -sn uac 127.0.0.1"), Some(0));
    assert!(uas.end(Duration::from_secs(8)).success());
}

fn stream_port(bench: &mut Bench) {
    let media = record_datagram(5071, Duration::from_secs(6));
    let _uas = bench.background(Answers, "-sf uas.xml -p 5070 -key custom_media_port 5071");
    let uac = "-m 1 -sf uac.xml 127.0.0.1:5070 -trace_msg -message_file tmp.log -timeout 5 -timeout_error";
    assert_eq!(bench.foreground(Calls, uac), Some(0));
    let log = bench.text("tmp.log");
    assert_eq!(Some(heard(&media).0.port()), audio_port(log.as_bytes()));
}

fn media_port(bench: &mut Bench) {
    let media = record_datagram(5071, Duration::from_secs(6));
    let _uas = bench.background(Answers, "-sf uas.xml -p 5070 -key custom_media_port 5071");
    let uac = "-m 1 -sf uac.xml 127.0.0.1:5070 -min_rtp_port 5072 -timeout 5 -timeout_error";
    assert_eq!(bench.foreground(Calls, uac), Some(0));
    assert_eq!(heard(&media).0.port(), 5072);
}

fn look_alikes_in_bodies(bench: &mut Bench) {
    let _uas = bench.background(Answers, "-m 1 -sf uas.xml -p 5070");
    let uac = "-m 1 -sf uac.xml 127.0.0.1:5070 -trace_msg -message_file tmp.log -trace_err -timeout 4 -timeout_error";
    assert_eq!(bench.foreground(Calls, uac), Some(0));
    let log = bench.text("tmp.log");
    assert_eq!(lines(received(&log), "From:"), ["From: Alice <sip:alice@localhost>;tag=uniquetag"], "{log}");
}

/// Waits for the callee at the end. Both must succeed.
fn both_end_well(bench: &mut Bench, uas: &str, uac: &str) {
    let mut command = bench.command(Answers, uas);
    let mut uas = bench.start(command.arg("-nostdin"));
    uas.listens(5070);
    assert_eq!(bench.foreground(Calls, uac), Some(0));
    let status = uas.end(Duration::from_secs(10));
    assert!(status.success(), "the callee: {status}");
}

fn contact_with_parameters(bench: &mut Bench) {
    let uac = "-m 1 -sf uac.xml 127.0.0.1:5070 -timeout 4 -timeout_error";
    both_end_well(bench, "-m 1 -sf uas.xml -p 5070", uac);
}

fn headers_by_name(bench: &mut Bench) {
    let uac = "-m 1 -sf uac.xml 127.0.0.1:5070 -trace_msg -message_file tmp.log -timeout 4 -timeout_error";
    both_end_well(bench, "-m 1 -sf uas.xml -p 5070", uac);
    let log = bench.text("tmp.log");
    let bye = log.find("BYE sip:").map_or("", |at| &log[at..]);
    assert!(!bye.contains("From: tom.jones@wales.uk") && bye.contains("\"Fromage\" <sip:cheese@paris.fr>"), "{log}");
}

fn echo_switch(bench: &mut Bench) {
    let _uas = bench.background(Answers, "-sf uas.xml -p 5070 -rtp_echo");
    assert_eq!(bench.foreground(Calls, "-m 1 -sf uac.xml 127.0.0.1:5070 -timeout 10 -timeout_error"), Some(0));
}

/// Returns the Route line of a request, from a message log.
fn route(log: &str, request: &str) -> Vec<String> {
    let message = log.find(request).map_or("", |at| &log[at..]);
    let end = message.find("\n\n").or_else(|| message.find("\r\n\r\n")).unwrap_or(message.len());
    lines(&message[..end], "Route:").into_iter().map(|l| l.trim_end().to_owned()).collect()
}

fn routes_both_ways(bench: &mut Bench) {
    let uas = "-sf uas.xml -p 5070 -i 127.0.127.1 -trace_msg -message_file uas.log";
    let mut uas = bench.background(Answers, uas);
    let uac =
        "-m 1 -sf uac.xml 127.0.127.1:5070 -i 127.0.127.1 -trace_msg -message_file uac.log -timeout 5 -timeout_error";
    assert_eq!(bench.foreground(Calls, uac), Some(0));
    uas.signal(libc::SIGUSR1);
    // The process writes its trace, and ends.
    uas.end(Duration::from_secs(10));
    let entry = |ports: [u16; 3]| {
        let all = ports.map(|port| format!("<sip:127.0.127.1:{port};lr>")).join(", ");
        vec![format!("Route: {all}")]
    };
    assert_eq!(route(&bench.text("uac.log"), "ACK sip:"), entry([2, 3, 5060]));
    assert_eq!(route(&bench.text("uas.log"), "BYE sip:"), entry([5060, 3, 2]));
}

fn busy_media_port(bench: &mut Bench) {
    let _taken = UdpSocket::bind("0.0.0.0:6002").expect("the port is free");
    let _uas = bench.background(Answers, "-sn uas -i 127.0.0.1 -p 5070 -m 1 -min_rtp_port 6200");
    assert_eq!(bench.foreground(Calls, "-sn uac -i 127.0.0.1 -m 1 127.0.0.1:5070"), Some(0));
}

fn tab_before_body(bench: &mut Bench) {
    let recorder = record_stream(5070);
    bench.foreground(Calls, "-m 1 -sf reply488.xml -t t1 127.0.0.1:5070");
    let bytes = heard(&recorder).1;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(bytes.ends_with(b"ncy\r\n"), "{text}");
    assert!(lines(&text, "Content-Length").iter().any(|l| l.trim_end().ends_with(" 232")), "{text}");
}

fn empty_key(bench: &mut Bench) {
    let recorder = record_stream(5070);
    let _uac = bench.background(Calls, "-m 1 -sf empty-keyword-allowed.xml -t t1 127.0.0.1:5070 -key keyword ''");
    let text = String::from_utf8_lossy(&heard(&recorder).1).into_owned();
    assert!(text.contains("X-Keyword: --"), "{text}");
}

fn entities_in_attributes(bench: &mut Bench) {
    let uac = "-m 1 -sf uac.xml 127.0.0.1:5070 -trace_err -error_file err.log -timeout 4 -timeout_error";
    both_end_well(bench, "-m 1 -sf uas.xml -p 5070", uac);
}

fn response_expression(bench: &mut Bench) {
    caller_is_gone(bench, "-sn uas -i 127.0.0.1 -p 5070 -m 1", "-sf uac.xml -i 127.0.0.1 -m 1 127.0.0.1:5070");
}

fn bye_of_an_abort(bench: &mut Bench) {
    let ways = [
        ("uas.xml", "uac.xml", 5070, 8889, "sip:uas@127.0.127.1:5090;transport=udp"),
        ("uas_no_rrs.xml", "uac_no_rrs.xml", 5071, 8890, "sip:service@127.0.127.1:5071"),
    ];
    for (uas, uac, port, control, uri) in ways {
        let words = format!("-sf {uas} -p {port} -i 127.0.127.1 -trace_msg -message_file {uas}.log");
        let _uas = bench.background(Answers, &words);
        std::thread::spawn(move || {
            // SIPp does not report when it listens.
            std::thread::sleep(Duration::from_secs(1));
            let socket = UdpSocket::bind("127.0.127.1:0").expect("a port is free");
            let _ = socket.send_to(b"Q", ("127.0.127.1", control));
        });
        let words = format!(
            "-m 1 -sf {uac} 127.0.127.1:{port} -i 127.0.127.1 -cp {control} -trace_msg -message_file {uac}.log \
             -timeout 8 -timeout_error"
        );
        let code = bench.foreground(Calls, &words);
        assert!(matches!(code, Some(0 | 1)), "{uac}: {code:?}");
        let bye = format!("BYE {uri} SIP/2.0");
        let log = text_with(bench, &format!("{uas}.log"), &bye);
        assert!(log.contains(&bye), "{uas}: {log}");
        let routes = if port == 5070 {
            vec!["Route: <sip:127.0.127.1:5062;lr>, <sip:127.0.127.1:5061;lr>".to_owned()]
        } else {
            Vec::new()
        };
        assert_eq!(route(&log, "BYE sip:"), routes, "{log}");
    }
}

fn description_in_multipart(bench: &mut Bench) {
    let media = record_datagram(5072, Duration::from_secs(8));
    let _uas = bench.background(Answers, "-sf uas.xml -i 127.0.0.1 -p 5070 -m 1");
    let uac = "-m 1 -sf uac.xml 127.0.0.1:5070 -i 127.0.0.1 -trace_msg -message_file tmp.log -timeout 6 -timeout_error";
    assert_eq!(bench.foreground(Calls, uac), Some(0));
    assert!(!heard(&media).1.is_empty());
}
