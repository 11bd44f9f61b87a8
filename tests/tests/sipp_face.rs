//! Output of `strowger sipp` beside its messages, compared with SIPp: files, their headers, screens, exit codes.

mod documents;

use self::documents::{BUSY, CALLER, TRACES};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use strowger_tests::wait;

use strowger_tests::binary;
use strowger_tests::duel::Ports;
use strowger_tests::process::Process;
use strowger_tests::program::{self, SIPP};

fn programs() -> [(&'static str, Vec<String>); 2] {
    let sipp = SIPP.path().expect("it is there").to_string_lossy().into_owned();
    [("SIPp", vec![sipp]), ("strowger", vec![binary::strowger().to_string_lossy().into_owned(), "sipp".into()])]
}

/// Runs the same with both programs, side by side.
fn both<T: Send>(play: impl Fn(&str, &[String]) -> T + Sync) -> [T; 2] {
    std::thread::scope(|scope| {
        programs()
            .map(|(name, program)| {
                let play = &play;
                scope.spawn(move || play(name, &program))
            })
            .map(|thread| thread.join().expect("a run ends"))
    })
}

fn command(program: &[String], arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(arguments).current_dir(folder).env("TERM", "dumb");
    command
}

/// Reads the files of a folder. The process id is removed from file names, also where these occur in text; another
/// number may equal it by chance, such as a status.
fn files(folder: &Path, pid: u32) -> BTreeMap<String, String> {
    let named = |text: &str| text.replace(&format!("_{pid}_"), "_PID_");
    let files = folder.read_dir().expect("it is there").map(|entry| entry.expect("a file"));
    let files = files.filter(|entry| !entry.file_name().to_string_lossy().ends_with(".xml"));
    files
        .map(|entry| {
            let text = String::from_utf8_lossy(&std::fs::read(entry.path()).expect("it can be read")).into_owned();
            (named(&entry.file_name().to_string_lossy()), named(&text))
        })
        .collect()
}

/// Replaces each number by `0`, so that any two times are equal, and any two ports.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if shape.ends_with('0') => (),
            '0'..='9' => shape.push('0'),
            c => shape.push(c),
        }
    }
    shape
}

/// Plays a call between two processes of one program. Returns the files and the output of each side.
fn played(program: &[String], caller: &[&str], callee: &[&str]) -> [(BTreeMap<String, String>, String); 2] {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [from, to] = ["caller", "callee"].map(|name| folder.path().join(name));
    let (own, peer) = (Ports::free(), Ports::free());
    for folder in [&from, &to] {
        std::fs::create_dir(folder).expect("the folder can be written");
        std::fs::write(folder.join("columns.xml"), CALLER).expect("the folder can be written");
        std::fs::write(folder.join("busy.xml"), BUSY).expect("the folder can be written");
    }
    let start = |name: &str, folder_of: &Path, ports: Ports, arguments: &[&str], target: Option<String>| {
        let mut command = command(program, arguments, folder_of);
        let [port, control, media] = [ports.own, ports.control, ports.media].map(|port| port.to_string());
        command.args(["-nostdin", "-i", "127.0.0.1", "-p", &port, "-cp", &control, "-mp", &media]).args(target);
        Process::start(name, folder.path(), &mut command)
    };
    let mut answering = start("callee", &to, peer, callee, None);
    answering.listens(peer.own);
    let mut calling = start("caller", &from, own, caller, Some(format!("127.0.0.1:{}", peer.own)));
    calling.end(Duration::from_secs(10));
    answering.end(Duration::from_secs(10));
    [(files(&from, calling.id()), calling.log()), (files(&to, answering.id()), answering.log())]
}

/// Lists the differences between the files of both programs: names, headers of tables, forms of lines.
fn differences(what: &str, theirs: &BTreeMap<String, String>, ours: &BTreeMap<String, String>) -> Vec<String> {
    let mut all = Vec::new();
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    if names(theirs) != names(ours) {
        all.push(format!("{what}: files {:?} and {:?}", names(theirs), names(ours)));
    }
    for (name, text) in theirs {
        let Some(own) = ours.get(name) else { continue };
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        // The header of a table is compared as it is, a line with a time by its form.
        let head = name.ends_with("_.csv") || name.ends_with("counts.csv") || name.ends_with("errors.log");
        let form = |text: &str| if head { first(text) } else { shape(&first(text)) };
        if form(text) != form(own) {
            all.push(format!("{what}: {name}\n  {}\n  {}", form(text), form(own)));
        }
        if name.ends_with("counts.csv") && last_counts(text) != last_counts(own) {
            all.push(format!("{what}: {name}\n  {}\n  {}", last_counts(text), last_counts(own)));
        }
        if name.ends_with("screen.log") && screens(text) != screens(own) {
            all.push(format!("{what}: {name}\n{}\n--- and\n{}", screens(text), screens(own)));
        }
        if name.ends_with("error_codes.csv") && codes(text) != codes(own) {
            all.push(format!("{what}: {name}\n  {}\n  {}", codes(text), codes(own)));
        }
    }
    all
}

/// Returns the last row without its times.
fn last_counts(text: &str) -> String {
    text.lines().next_back().unwrap_or_default().splitn(3, ';').nth(2).unwrap_or_default().to_owned()
}

/// Returns all codes of all rows.
fn codes(text: &str) -> String {
    text.lines().filter_map(|line| line.splitn(3, ';').nth(2)).collect()
}

/// Removes the parts of screens that depend on the clock and the engine.
fn screens(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim_end) {
        let moment = ["Start Time", "Last Reset Time", "Current Time", "Elapsed Time", "Call Rate", "Call Length "]
            .iter()
            .any(|name| line.trim_start().starts_with(name));
        let engine = ["scheduler resolution", "Woken up", "open sockets", "RTP rate", "Peak was"];
        if engine.iter().any(|name| line.contains(name)) || line.starts_with("Last Error: ") {
            continue;
        }
        let timed = line.contains(" cps") || line.trim_start().starts_with("Response Time") || line.contains("(UDP)");
        let row = line.contains("s  ") && line.ends_with("UDP");
        // The row in which a time is counted depends on the machine.
        let line = line.split_once(" ms : ").map_or(line, |(bounds, _)| bounds);
        lines.push(if moment || timed || row { shape(line).replace("  ", " ") } else { periodic(line) });
    }
    // The number of blanks depends on the number of digits.
    lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

/// Removes the value of the period from a row of totals, as it depends on the start of the period.
fn periodic(line: &str) -> String {
    let columns: Vec<&str> = line.split('|').collect();
    match columns[..] {
        [name, _, whole] if !name.starts_with('-') => format!("{name}|{whole}"),
        _ => line.to_owned(),
    }
}

#[test]
fn files_are_those_of_sipp() {
    if !program::have(&[SIPP]) {
        return;
    }
    let with = |arguments: &[&'static str]| [arguments, TRACES].concat();
    type Run = (&'static str, Vec<&'static str>, Vec<&'static str>);
    let runs: Vec<Run> = vec![
        (
            "every column",
            with(&["-sf", "columns.xml", "-m", "2", "-d", "40"]),
            with(&["-sn", "uas", "-m", "2", "-timeout", "8"]),
        ),
        (
            "a refusal",
            with(&["-sn", "uac", "-m", "3", "-d", "40", "-stat_delimiter", ";"]),
            with(&["-sf", "busy.xml", "-m", "3", "-timeout", "8"]),
        ),
        (
            "names of files",
            vec![
                "-sn",
                "uac",
                "-m",
                "1",
                "-trace_msg",
                "-message_file",
                "m",
                "-trace_shortmsg",
                "-shortmessage_file",
                "s",
                "-trace_screen",
                "-screen_file",
                "sc",
                "-trace_calldebug",
                "-calldebug_file",
                "cd",
                "-trace_stat",
                "-stf",
                "st",
                "-stat_delimiter",
                ",",
                "-trace_logs",
                "-log_file",
                "l",
                "-trace_err",
                "-error_file",
                "e",
            ],
            with(&["-sn", "uas", "-m", "1", "-timeout", "8"]),
        ),
        // No call happens: the test compares the files opened at the start. The run is long enough to be seen listening
        // on a busy machine.
        ("nothing", with(&["-sn", "uas", "-timeout", "4"]), with(&["-sn", "uas", "-timeout", "4"])),
    ];
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = runs
            .iter()
            .map(|(what, caller, callee)| {
                scope.spawn(move || {
                    let [theirs, ours] = both(|_, program| played(program, caller, callee));
                    let mut all = Vec::new();
                    for (side, (theirs, ours)) in ["caller", "callee"].iter().zip(theirs.iter().zip(&ours)) {
                        let what = format!("{what}, {side}");
                        all.extend(differences(&what, &theirs.0, &ours.0));
                        if screens(&printed(&theirs.1)) != screens(&printed(&ours.1)) {
                            all.push(format!("{what}: printed\n{}\n--- and\n{}", theirs.1, ours.1));
                        }
                    }
                    all
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run ends")).collect()
    });
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the screens printed at the end, without the text before and after them.
fn printed(log: &str) -> String {
    let begin = log.find("------------------------------ Scenario Screen").unwrap_or(0);
    let last = "------------------------------ Test Terminated --------------------------------";
    let end = log.rfind(last).map_or(log.len(), |at| at + last.len());
    log[begin..end].to_owned()
}

#[test]
fn logs_turn_and_end_where_those_of_sipp_do() {
    if !program::have(&[SIPP]) {
        return;
    }
    let callee = ["-sn", "uas", "-m", "6", "-timeout", "8"];
    let cases: [&[&str]; 3] = [
        &["-ringbuffer_files", "2", "-ringbuffer_size", "2000"],
        &["-ringbuffer_size", "2000"],
        &["-max_log_size", "2000"],
    ];
    // Sizes by kind of file: those of the full files, and that of the current one.
    let sizes = |files: &BTreeMap<String, String>| {
        let mut kinds: BTreeMap<String, (Vec<usize>, usize)> = BTreeMap::new();
        for (name, text) in files {
            let name = name.trim_end_matches(".log");
            let kind = kinds.entry(name.split('_').take(3).collect::<Vec<_>>().join("_")).or_default();
            if name.split('_').count() > 3 { kind.0.push(text.len()) } else { kind.1 = text.len() }
        }
        kinds
    };
    // Length of the longest record, in bytes.
    const RECORD: usize = 700;
    std::thread::scope(|scope| {
        for limits in cases {
            scope.spawn(move || {
                let caller = [&["-sn", "uac", "-m", "6", "-r", "50", "-trace_msg", "-trace_shortmsg"], limits].concat();
                let bound: usize = limits.last().expect("it has one").parse().expect("it is a number");
                let [theirs, ours] = both(|name, program| {
                    let [(files, _), _] = played(program, &caller, &callee);
                    let sizes = sizes(&files);
                    for (kind, (full, current)) in &sizes {
                        let is_full = |size: &usize| (bound - 100..bound + RECORD).contains(size);
                        assert!(full.iter().all(is_full), "{name} {limits:?} {kind}: {full:?}");
                        let ended = limits[0] == "-max_log_size";
                        assert!(
                            if ended { is_full(current) } else { *current < bound + 100 },
                            "{name} {limits:?} {kind}: {current}"
                        );
                    }
                    sizes.into_iter().map(|(kind, (full, _))| (kind, full.len())).collect::<Vec<_>>()
                });
                assert_eq!(theirs, ours, "{limits:?}");
            });
        }
    });
}

/// Splits a file of errors into records, without their times. SIPp ends no line in the listing of a command.
fn records(text: &str) -> Vec<String> {
    let digits = |text: &str, form: &str| {
        text.len() >= form.len()
            && text.bytes().zip(form.bytes()).all(|(c, f)| if f == b'0' { c.is_ascii_digit() } else { c == f })
    };
    let starts: Vec<usize> = (0..text.len())
        .filter(|at| text.is_char_boundary(*at) && digits(&text[*at..], "0000-00-00\t00:00:00.000000\t"))
        .chain([text.len()])
        .collect();
    let record =
        |ends: &[usize]| text[ends[0]..ends[1]].split_once(": ").map_or("", |(_, said)| said).trim().to_owned();
    starts.windows(2).map(record).collect()
}

#[test]
fn variables_are_listed_as_by_sipp() {
    if !program::have(&[SIPP]) {
        return;
    }
    let scopes = "<Global variables=\"zone\"/><User variables=\"who\"/>";
    let assigned: String =
        ["b", "a", "10", "2", "zone", "who"].map(|name| format!("<assign assign_to=\"{name}\" value=\"1\"/>")).concat();
    let first = "<send retrans=\"500\" start_rtd";
    let document = CALLER
        .replace(first, &format!("{scopes}<nop><action>{assigned}</action></nop>\n{first}"))
        .replace("</scenario>", "<Reference variables=\"b,a,10,2,zone,who\"/>\n</scenario>");
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let target = silent.local_addr().expect("it is bound").to_string();
    let listed = both(|name, program| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("variables.xml"), &document).expect("it can be written");
        let ports = Ports::free();
        let [port, control, media] = [ports.own, ports.control, ports.media].map(|port| port.to_string());
        let line = ["-sf", "variables.xml", &target, "-nostdin", "-i", "127.0.0.1", "-ci", "127.0.0.1", "-m", "1"];
        let mut command = command(program, &line, folder.path());
        command.args(["-p", &port, "-cp", &control, "-mp", &media, "-trace_err", "-error_file", "errors"]);
        let mut process = Process::start(name, folder.path(), &mut command);
        process.listens(ports.control);
        for word in ["cdump variables", "cset display nobody", "Q"] {
            silent.send_to(word.as_bytes(), ("127.0.0.1", ports.control)).expect("it can be sent");
            // Commands have no answer to wait for.
            std::thread::sleep(Duration::from_millis(300));
        }
        // SIPp writes at once and waits for its call; `strowger sipp` writes at its end.
        let written = || std::fs::read_to_string(folder.path().join("errors")).unwrap_or_default();
        wait::until(Duration::from_secs(5), || process.ended().is_some() || written().contains("nobody"));
        let errors = written();
        let mut records = records(&errors);
        let end = records.iter().position(|said| said.starts_with("Unknown display scenario: nobody"));
        records.truncate(end.unwrap_or_else(|| panic!("{name}: {errors}")));
        records
    });
    let all = [
        "1 level 0 variables:",
        "zone",
        "1 level 1 variables:",
        "who",
        "5 level 2 variables:",
        "1",
        "10",
        "2",
        "a",
        "b",
    ];
    assert_eq!(listed, [all; 2]);
}

/// Command lines that are refused or end soon, with their exit codes.
#[test]
fn exit_codes_are_those_of_sipp() {
    if !program::have(&[SIPP]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it can be written");
    write(
        "global.xml",
        &CALLER.replace("<send retrans", "<Global variables=\"g\"/><Reference variables=\"g\"/><send retrans"),
    );
    write("stream.wav", &" ".repeat(800));
    let stream = "<nop><action><exec rtp_stream=\"stream.wav,1\"/></action></nop>\n<pause milliseconds";
    write("stream.xml", &CALLER.replacen("<pause milliseconds", stream, 1));
    write("peers", "m;127.0.0.1:1\ns;127.0.0.1:2\n");
    let commands =
        "<sendCmd dest=\"s\"><![CDATA[\nCall-ID: [call_id]\nFrom: m\n\n]]></sendCmd>\n<recvCmd src=\"s\"/>\n";
    write("master.xml", &CALLER.replace("<send retrans", &format!("{commands}<send retrans")));
    let used = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let port = used.local_addr().expect("it is bound").port().to_string();
    let none = "127.0.0.1:9";
    let lines: Vec<(u8, Vec<&str>)> = vec![
        (99, vec!["-h"]),
        (99, vec!["-v"]),
        (99, vec!["-sd", "uac"]),
        (1, vec!["-sd", "nonesuch"]),
        (1, vec!["-nonesuch"]),
        (1, vec!["-sn", "nonesuch", none]),
        (1, vec!["-sf", "nonesuch.xml", none]),
        (1, vec!["-m", "many", none]),
        (255, vec!["-sn", "uac"]),
        (255, vec!["-sn", "uac", "nonesuch.invalid"]),
        (255, vec!["-sn", "uas", "-i", "192.0.2.1"]),
        (254, vec!["-sn", "uas", "-i", "127.0.0.1", "-p", &port]),
        (254, vec!["-sn", "uas", "-i", "127.0.0.1", "-ci", "127.0.0.1", "-cp", &port]),
        (1, vec!["-sn", "uac", "-inf", "nonesuch.csv", none]),
        (1, vec!["-sn", "uac", "-infindex", "nonesuch.csv", "0", none]),
        (1, vec!["-sn", "uac", "-rsa", "nonesuch.invalid", none]),
        (97, vec!["-sn", "uas", "-i", "127.0.0.1", "-timeout", "1"]),
        (255, vec!["-sn", "uas", "-i", "127.0.0.1", "-timeout", "1", "-timeout_error"]),
        (0, vec!["-sn", "uac", "-m", "0", none]),
        (255, vec!["-sn", "uac", "-t", "t1", "-i", "127.0.0.1", "-timeout", "3", none]),
        (1, vec!["-sf", "stream.xml", "-rtp_payload", "5", "-m", "0", none]),
        (0, vec!["-sf", "stream.xml", "-rtp_payload", "0", "-m", "0", none]),
        (1, vec!["-sn", "uac", "-set", "nonesuch", "1", none]),
        (1, vec!["-sf", "global.xml", "-set", "g", "1", "-set", "nonesuch", "1", none]),
        (0, vec!["-sf", "global.xml", "-set", "g", "1", "-m", "0", none]),
        (255, vec!["-sn", "3pcc-C-A", none]),
        (255, vec!["-sn", "uac", "-3pcc", "127.0.0.1:1", none]),
        (1, vec!["-sn", "uac", "-master", "m", none]),
        (1, vec!["-sn", "uac", "-slave", "m", none]),
        (1, vec!["-sn", "uac", "-slave_cfg", "peers", none]),
        (1, vec!["-sn", "uac", "-slave_cfg", "nonesuch", "-master", "m", none]),
        (1, vec!["-sn", "uac", "-slave_cfg", "peers", "-master", "m", "-slave", "s", none]),
        (1, vec!["-sn", "uac", "-slave_cfg", "peers", "-master", "m", "-3pcc", "127.0.0.1:1", none]),
        (255, vec!["-sn", "uac", "-slave_cfg", "peers", "-master", "m", none]),
        (255, vec!["-sf", "master.xml", "-slave_cfg", "peers", "-slave", "s", none]),
        (1, vec!["-sf", "master.xml", none]),
        (1, vec!["-sn", "uac", "-trace_msg", "-message_file", "no/file", none]),
        (1, vec!["-sn", "uac", "-trace_shortmsg", "-shortmessage_file", "no/file", none]),
        (1, vec!["-sn", "uac", "-trace_screen", "-screen_file", "no/file", none]),
        (1, vec!["-sn", "uac", "-trace_calldebug", "-calldebug_file", "no/file", none]),
        (255, vec!["-sn", "uac", "-trace_stat", "-stf", "no/file", none]),
        (1, vec!["-sn", "uac", "-max_log_size", "5", "-ringbuffer_size", "5", none]),
    ];
    // The command lines run one after the other: some use port 5060, or the next free port.
    let wrong = both(|name, program| {
        let mut wrong = Vec::new();
        for (code, line) in &lines {
            let mut command = command(program, line, folder.path());
            let output = command.arg("-nostdin").stdin(Stdio::null()).output().expect("it runs");
            if output.status.code() != Some(i32::from(*code)) {
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                wrong.push(format!("{name} {line:?}: {:?}, not {code}: {text}", output.status));
            }
        }
        wrong
    })
    .concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn oddities_of_a_document_are_told_with_their_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let odd = CALLER.replacen("<send ", "<send colour=\"red\" ", 1);
    let line = odd.lines().position(|line| line.contains("colour")).expect("it is there") + 1;
    std::fs::write(folder.path().join("odd.xml"), odd).expect("it can be written");
    let program = [binary::strowger().to_string_lossy().into_owned(), "sipp".into()];
    let ports = Ports::free();
    let [port, control, media] = [ports.own, ports.control, ports.media].map(|port| port.to_string());
    // In the background too each warning appears once. `output` reads until every process has closed standard error.
    for mode in ["-nostdin", "-bg"] {
        let line_of = ["-sf", "odd.xml", "127.0.0.1:9", "-m", "0", "-skip_rlimit", mode];
        let mut command = command(&program, &line_of, folder.path());
        command.args(["-i", "127.0.0.1", "-p", &port, "-cp", &control, "-mp", &media]);
        let said = command.stdin(Stdio::null()).output().expect("it starts").stderr;
        let said = String::from_utf8_lossy(&said);
        let place = format!("Warning: odd.xml:{line}:");
        assert!(said.contains("`colour` is no attribute of `send`"), "{mode}: {said}");
        for once in [&place, "Warning: accepted, and without effect here: -skip_rlimit"] {
            assert_eq!(said.matches(once).count(), 1, "{mode}: {said}");
        }
    }
}
