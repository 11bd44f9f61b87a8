//! `strowger lab run`: real processes, from the plan to the reports, and early ends of a run.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use strowger_lab::compare::FLOOR;
use strowger_lab::process::Process;
use strowger_lab::row::{Check, Row, Validity, complete, read};
use strowger_lab::run::{ROWS, Recorded};
use strowger_lab::wait;
use strowger_tests::binary::strowger;
use strowger_tests::limits::SmallDisk;
use strowger_tests::together;
use tempfile::TempDir;

/// Time limit of a run on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

const EXPERIMENT: &str = r#"
title = "A relay under a light load"
[call]
document = "call"
answer = "answer"
[load]
values = [@LOAD@]
[[system]]
name = "strowger"
configuration = "relay"
[profile.smoke]
warm_up = "0.2s"
window = "1s"
repetitions = 2
[[figure]]
name = "cost"
title = "CPU of a call"
form = "table"
y = ["server.cpu.call", "server.pss"]
"#;

/// Folder of a test, with an experiment and the files of a run.
struct ExperimentFolder(TempDir);

impl ExperimentFolder {
    fn new(load: u32) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = EXPERIMENT.replace("@LOAD@", &load.to_string());
        std::fs::write(folder.path().join("mine.toml"), text).expect("it is written");
        std::fs::create_dir(folder.path().join("scratch")).expect("a folder");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the command that runs the experiment in the profile smoke.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(strowger());
        command.args(["lab", "run", "mine.toml", "--profile", "smoke"]).args(words);
        command.current_dir(self.0.path()).env("TMPDIR", self.path("scratch"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it runs")
    }

    /// Returns the rows so far of a run that may be in progress.
    fn rows(&self, run: &str) -> Vec<Row> {
        let text = std::fs::read_to_string(self.path(run).join(ROWS)).unwrap_or_default();
        read(ROWS, complete(&text)).unwrap_or_else(|report| panic!("{report}"))
    }

    /// Makes a system of a Python script, identified by its port, and returns the word of `--system`.
    fn system(&self, script: &str) -> String {
        let folder = self.path("own");
        std::fs::create_dir(&folder).expect("a folder");
        let driver = "title = \"A stub\"\nprogram = \"python3\"\nstart = [\"@PROGRAM@\", \"@CONFIG@\"]\n\
                      version = [\"@PROGRAM@\", \"--version\"]\n\
                      [[scenario]]\nname = \"relay\"\nconfiguration = \"stub.py\"\n";
        std::fs::write(folder.join("driver.toml"), driver).expect("it is written");
        std::fs::write(folder.join("stub.py"), script).expect("it is written");
        format!("strowger={}", folder.display())
    }

    /// Returns the process ids of the callers that run.
    fn callers(&self) -> Vec<u32> {
        let folder = self.0.path().display().to_string();
        let is_caller = |id: &u32| {
            let has = |file: &str, part: &str| {
                let bytes = std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).contains(part)
            };
            has("cmdline", "caller.results") && has("environ", &folder)
        };
        let processes = std::fs::read_dir("/proc").expect("it is there").flatten();
        processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).filter(is_caller).collect()
    }

    /// Tells whether all processes that the laboratory started have ended.
    fn is_quiet(&self) -> bool {
        let folder = self.0.path().display().to_string();
        let processes = std::fs::read_dir("/proc").expect("it is there").flatten();
        let mut words = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        !words.any(|words| String::from_utf8_lossy(&words).contains(&folder))
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn verify(run: &Path) -> Recorded {
    Recorded::open(run).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn runs_are_made_ended_and_resumed() {
    together(&[
        ("a_run_has_rows_of_system_and_floor_and_reports", a_run_has_rows_of_system_and_floor_and_reports),
        ("values_of_the_command_line_are_those_of_the_run", values_of_the_command_line_are_those_of_the_run),
        ("the_experiment_of_the_document_runs", the_experiment_of_the_document_runs),
        ("a_killed_run_leaves_no_process_and_goes_on", a_killed_run_leaves_no_process_and_goes_on),
        ("an_interrupted_run_is_a_valid_part", an_interrupted_run_is_a_valid_part),
        ("a_command_of_a_system_measures", a_command_of_a_system_measures),
        ("a_weak_generator_is_named", a_weak_generator_is_named),
        ("a_server_that_answers_itself_is_named", a_server_that_answers_itself_is_named),
        ("a_server_that_dies_is_named", a_server_that_dies_is_named),
        ("a_worker_that_is_started_again_is_named", a_worker_that_is_started_again_is_named),
        ("a_taken_port_is_named", a_taken_port_is_named),
        ("a_full_disk_is_named", a_full_disk_is_named),
        ("what_cannot_be_run_is_said_before", what_cannot_be_run_is_said_before),
    ]);
}

fn a_run_has_rows_of_system_and_floor_and_reports() {
    let place = ExperimentFolder::new(50);
    let output = place.run(&[]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in ["Plan of the profile smoke:", "2 trials", "strowger at 50 calls/s", "report.html"] {
        assert!(said.contains(part), "{part} of {said}");
    }
    let recorded = verify(&place.path("mine-smoke"));
    let systems: Vec<&str> = recorded.rows.iter().map(|row| row.system.name.as_str()).collect();
    assert_eq!(systems, [FLOOR, "strowger", "strowger", FLOOR]);
    assert!(recorded.is_whole && recorded.description.machine.cores > 0);
    for row in &recorded.rows {
        for figure in
            ["attempts", "server.cpu", "server.cpu.call", "server.pss", "machine.cpu", "machine.other", "srd.p95"]
        {
            assert!(row.figures.value(figure).is_some_and(|value| value >= 0.0), "{figure} of {}", row.to_line());
        }
        assert_eq!(row.figures.value("failed"), Some(0.0), "{}", row.to_line());
        assert!(row.figures.largest("server.thread/").is_some(), "{}", row.to_line());
        // Only a busy machine may disturb a trial.
        if let Validity::Reasons(reasons) = &row.validity {
            let of_system = |check| matches!(check, Check::Ends | Check::Accounting | Check::Restart);
            assert!(!reasons.iter().any(|reason| of_system(reason.check)), "{reasons:?}");
        }
    }
    for file in
        ["report.html", "report.json", "report.csv", "configurations/strowger/relay.toml", "trials/0002/samples.log"]
    {
        assert!(place.path("mine-smoke").join(file).is_file(), "{file}");
    }
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--quiet", "SHA256SUMS"]).current_dir(place.path("mine-smoke"));
    assert!(check.status().is_ok_and(|status| status.success()), "sha256sum agrees");
    assert!(wait::until(LIMIT, || place.is_quiet()));
    let again = place.run(&[]);
    assert_eq!(again.status.code(), Some(2), "{}", self::said(&again));
    assert!(self::said(&again).contains("is not empty"), "{}", self::said(&again));
}

/// A later report has the loads and repetitions of the command line, and a run with others cannot be resumed.
fn values_of_the_command_line_are_those_of_the_run() {
    let place = ExperimentFolder::new(50);
    let words = ["--load", "60", "--window", "500ms", "--repetitions", "1"];
    let output = place.run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let rows = verify(&place.path("mine-smoke")).rows;
    let loads: Vec<f64> = rows.iter().filter(|row| row.system.name != FLOOR).map(|row| row.load.value).collect();
    assert_eq!(loads, [60.0]);
    let attempts = rows[1].figures.value("attempts").expect("they are counted");
    assert!((29.0..=31.0).contains(&attempts), "{attempts}");
    let mut report = Command::new(strowger());
    report.args(["lab", "report", "mine-smoke", "--markdown"]).current_dir(place.0.path());
    let report = said(&report.output().expect("it runs"));
    assert!(
        report.contains("a window of 500") && report.lines().any(|line| line.starts_with("| strowger")),
        "{report}"
    );
    let output = place.run(&["--resume"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let sentence = "other options: it began with --load 60 --window 0.5s --repetitions 1, and now it is none";
    assert!(said(&output).contains(sentence), "{}", said(&output));
}

/// A shorter window and fewer trials than the document has; all figures of its report have their points.
fn the_experiment_of_the_document_runs() {
    let place = ExperimentFolder::new(50);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lab.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let (_, rest) = page.split_once("```toml\n").expect("the document has an experiment");
    let (text, _) = rest.split_once("```").expect("the block ends");
    std::fs::write(place.path("mine.toml"), text).expect("it is written");
    let output = place.run(&["--load", "50,100", "--window", "1s", "--repetitions", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("The plan estimated "), "{}", said(&output));
    let rows = verify(&place.path("mine-smoke")).rows;
    let of = |feature: &str| {
        rows.iter().filter(|row| row.axes.get("feature").is_some_and(|value| value.to_string() == feature)).count()
    };
    assert!([of("relay"), of("record-route")].iter().all(|count| *count >= 2), "{}", said(&output));
    let mut report = Command::new(strowger());
    report.args(["lab", "report", "mine-smoke", "--whole"]).current_dir(place.0.path());
    let report = report.output().expect("it runs");
    // In the profile smoke a busy machine may leave no valid trial.
    assert!(matches!(report.status.code(), Some(0 | 4)), "{}", said(&report));
}

/// The command gets the load, the times and the workers, and its figures go into the rows; if it fails, the trial
/// reports it.
fn a_command_of_a_system_measures() {
    let place = ExperimentFolder::new(50);
    let folder = place.path("measuring");
    std::fs::create_dir(&folder).expect("a folder");
    let driver = "title = \"A stub\"\nprogram = \"python3\"\nversion = [\"@PROGRAM@\", \"--version\"]\n\
                  measure = [\"@PROGRAM@\", \"@FOLDER@/measure.py\", \"@LOAD@\", \"@WARM_UP@\", \"@WINDOW@\"]\n\
                  [[scenario]]\nname = \"relay\"\nfiles = [\"measure.py\"]\n";
    // The script takes the time of a trial.
    let script = "import json,sys,time\nload,warm_up,window=map(float,sys.argv[1:])\ntime.sleep(warm_up+window)\n\
                  print(json.dumps({'rate.achieved':load*window,'attempts':load,'failed':0,'echo.ratio':warm_up*100}))\n";
    std::fs::write(folder.join("driver.toml"), driver).expect("it is written");
    std::fs::write(folder.join("measure.py"), script).expect("it is written");
    let system = format!("strowger={}", folder.display());
    let output = place.run(&["--system", &system]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let rows = verify(&place.path("mine-smoke")).rows;
    let own: Vec<&Row> = rows.iter().filter(|row| row.system.name == "strowger").collect();
    assert_eq!(own.len(), 2);
    for row in own {
        for (figure, value) in [("rate.achieved", 50.0), ("attempts", 50.0), ("failed", 0.0), ("echo.ratio", 20.0)] {
            assert_eq!(row.figures.value(figure), Some(value), "{figure} of {}", row.to_line());
        }
        assert!(row.figures.value("machine.cpu").is_some() && row.figures.value("server.cpu").is_none());
    }
    std::fs::write(folder.join("measure.py"), "import sys\nprint('no socket')\nsys.exit(1)\n").expect("it is written");
    let output = place.run(&["--system", &system, "--out", "failing"]);
    let rows = verify(&place.path("failing")).rows;
    let row = rows.iter().find(|row| row.system.name == "strowger").expect("it was tried");
    let Validity::Reasons(reasons) = &row.validity else { panic!("{}", said(&output)) };
    assert!(reasons.iter().any(|reason| reason.sentence.contains("no socket")), "{reasons:?}");
}

/// Starts a run and waits for its second row.
fn under_way(place: &ExperimentFolder) -> Process {
    let mut lab = Process::start("lab", place.0.path(), &mut place.command(&[])).expect("it starts");
    lab.comes_to("write two rows", LIMIT, |_| place.rows("mine-smoke").len() >= 2).expect("it does");
    lab
}

fn a_killed_run_leaves_no_process_and_goes_on() {
    let place = ExperimentFolder::new(50);
    let mut lab = under_way(&place);
    lab.kill();
    let before = place.rows("mine-smoke");
    assert!(wait::until(LIMIT, || place.is_quiet()), "the guard ends what runs");
    let part = verify(&place.path("mine-smoke"));
    assert!(!part.is_whole && before.starts_with(&part.rows));
    let output = place.run(&["--resume"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains(&format!("{} rows are there", part.rows.len())), "{}", said(&output));
    let whole = verify(&place.path("mine-smoke"));
    assert!(whole.is_whole && whole.rows.len() == 4 && whole.rows.starts_with(&part.rows));
}

fn an_interrupted_run_is_a_valid_part() {
    let place = ExperimentFolder::new(50);
    let mut lab = under_way(&place);
    let sent = Command::new("kill").args(["-INT", &lab.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let status = lab.end(LIMIT).expect("it ends");
    assert_eq!(status.code(), Some(130), "{}", lab.log());
    assert!(lab.log().contains("--resume goes on"), "{}", lab.log());
    assert!(wait::until(LIMIT, || place.is_quiet()));
    let part = verify(&place.path("mine-smoke"));
    assert!(!part.is_whole && part.rows.len() >= 2);
    let other = place.run(&["--resume", "--system", "other=/bin/true"]);
    assert_eq!(other.status.code(), Some(2), "{}", said(&other));
    assert_eq!(verify(&place.path("mine-smoke")).rows, part.rows);
}

/// A caller that rests half of the time is late for its calls. Its rows are kept with the reason; the profile smoke judges no figure of them.
fn a_weak_generator_is_named() {
    let place = ExperimentFolder::new(50);
    let mut lab = place.command(&["--repetitions", "1"]);
    let mut lab = Process::start("lab", place.0.path(), &mut lab).expect("it starts");
    let rest = Duration::from_millis(60);
    while !lab.is_over() {
        for signal in ["-STOP", "-CONT"] {
            for id in place.callers() {
                let mut kill = Command::new("kill");
                // A caller may have ended just now.
                let _ = kill.args([signal, &id.to_string()]).stderr(Stdio::null()).status();
            }
            std::thread::sleep(rest); // the time in which a caller rests, and in which it runs
        }
    }
    let status = lab.end(LIMIT).expect("it has ended");
    assert_eq!(status.code(), Some(0), "{}", lab.log());
    let rows = verify(&place.path("mine-smoke")).rows;
    let row = rows.iter().find(|row| row.system.name == "strowger").expect("it was tried");
    assert!(row.validity.fails(Check::Generator), "{}", row.to_line());
    assert!(row.figures.value("attempts").is_some_and(|attempts| attempts > 0.0), "{}", row.to_line());
    assert!(lab.log().contains("generator"), "{}", lab.log());
}

/// Callers see calls answered of which the answering side knows nothing.
fn a_server_that_answers_itself_is_named() {
    let place = ExperimentFolder::new(50);
    let script = "import socket
port = @PORT@
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', port))
while True:
    data, peer = s.recvfrom(9000)
    lines = data.decode().split('\\r\\n')
    if lines[0].startswith('ACK'):
        continue
    kept = [line for line in lines[1:] if line.split(':')[0] in ('Via', 'From', 'Call-ID', 'CSeq')]
    to = next(line for line in lines if line.startswith('To:'))
    to += '' if 'tag=' in to else ';tag=1'
    rest = [to, f'Contact: <sip:127.0.0.1:{port}>', 'Content-Length: 0', '', '']
    s.sendto('\\r\\n'.join(['SIP/2.0 200 OK'] + kept + rest).encode(), peer)
";
    let output = place.run(&["--repetitions", "1", "--system", &place.system(script)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("calls answered, the answering sides answered 0"), "{said}");
    let rows = verify(&place.path("mine-smoke")).rows;
    assert!(rows.iter().all(|row| row.validity.fails(Check::Ends) == (row.system.name == "strowger")), "{said}");
}

fn a_server_that_dies_is_named() {
    let place = ExperimentFolder::new(50);
    let script = "import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                  s.bind(('127.0.0.1', @PORT@))\n\
                  while not s.recv(9000).startswith(b'INVITE'): pass\n\
                  print('out of memory', flush=True)\nsys.exit(7)\n";
    let output = place.run(&["--system", &place.system(script)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("the server ended (exit status: 7), its last line: out of memory"), "{said}");
    let rows = verify(&place.path("mine-smoke")).rows;
    let died: Vec<&Row> = rows.iter().filter(|row| row.validity.fails(Check::Restart)).collect();
    assert!(
        died.len() == 2 && died.iter().all(|row| row.system.name == "strowger"),
        "both repetitions, each by a start of its own"
    );
}

/// The root process of the system continues.
fn a_worker_that_is_started_again_is_named() {
    let place = ExperimentFolder::new(50);
    let script = "import os, socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                  s.bind(('127.0.0.1', @PORT@))\n\
                  while True:\n  if os.fork() == 0:\n    while not s.recv(9000).startswith(b'INVITE'): pass\n    os._exit(1)\n  os.wait()\n";
    let output = place.run(&["--system", &place.system(script)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains(" of the server (python3) ended, and "), "{said}");
    let rows = verify(&place.path("mine-smoke")).rows;
    assert!(rows.iter().all(|row| row.validity.fails(Check::Restart) == (row.system.name == "strowger")), "{said}");
}

fn a_taken_port_is_named() {
    let place = ExperimentFolder::new(50);
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it is bound").port();
    let script = format!(
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         print('control port {port}', flush=True)\ns.bind(('127.0.0.1', {port}))\n# @PORT@\n"
    );
    let output = place.run(&["--system", &place.system(&script)]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [format!("control port {port}").as_str(), "Address already in use", "--resume goes on"] {
        assert!(said.contains(part), "{part} of {said}");
    }
    let part = verify(&place.path("mine-smoke"));
    assert!(!part.is_whole && part.rows.len() == 1, "the floor was measured before");
}

fn a_full_disk_is_named() {
    let place = ExperimentFolder::new(50);
    // Space for the rows of the floor, and for little more.
    let Some(disk) = SmallDisk::mount("256k") else { return };
    let out = disk.folder().join("run");
    let lab = Process::start("lab", place.0.path(), &mut place.command(&["--out", &out.display().to_string()]));
    let mut lab = lab.expect("it starts");
    let has_row = |_: &Process| std::fs::read_to_string(out.join(ROWS)).is_ok_and(|text| text.contains('\n'));
    lab.comes_to("write a row", LIMIT, has_row).expect("it does");
    disk.fill();
    let status = lab.end(LIMIT).expect("it ends");
    assert_eq!(status.code(), Some(1), "{}", lab.log());
    assert!(lab.log().contains("No space left on device"), "{}", lab.log());
    disk.free();
    assert!(!verify(&out).rows.is_empty(), "{}", lab.log());
}

fn what_cannot_be_run_is_said_before() {
    let place = ExperimentFolder::new(50);
    for (words, part) in [
        (&["--system", "strowgre"][..], "write strowger"),
        (&["--system", "other=/no/such/file"][..], "/no/such/file"),
        (&["--system", "a/b"][..], "write NAME or NAME=PATH"),
        (&["--resume"][..], "is no run of the laboratory"),
        (&["--only", "letter=A"][..], "the experiment has no axis \"letter\": it has none"),
        (&["--only", "letter"][..], "write AXIS=VALUE,VALUE"),
        (&["--load", "0"][..], "write a number above 0"),
        (&["--window", "0s"][..], "write at least 100ms"),
    ] {
        let output = place.run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output));
        assert!(said(&output).contains(part), "{words:?}: {}", said(&output));
    }
    assert!(!place.path("mine-smoke").exists());
}
