//! Events within the trials of `strowger lab run`: a server is killed and restarts, or does not.

use std::path::Path;
use std::process::{Command, Output};

use strowger_lab::compare::FLOOR;
use strowger_lab::row::{Check, Row};
use strowger_lab::run::Recorded;
use strowger_tests::binary::strowger;
use strowger_tests::together;

const STORM: &str = r#"
title = "Phones that return by TCP"
[call]
document = "register"
users = 100
transport = "tcp"
connections = "per-user"
[load]
unit = "registrations/s"
values = [50]
[[system]]
name = "strowger"
configuration = "connections"
[[event]]
at = "1s"
do = "kill"
[[event]]
at = "1s"
do = "load"
load = 200
[[event]]
at = "2s"
do = "start"
[profile.smoke]
warm_up = "0.2s"
window = "5s"
[profile.quick]
window = "5s"
[[figure]]
name = "registered"
title = "Registered phones"
x = "time"
y = ["registered"]
[[figure]]
name = "cpu"
title = "CPU of the server"
x = "time"
y = ["server.cpu", "machine.cpu"]
"#;

/// Runs an experiment in a folder, with the words of `--system`.
fn run(folder: &Path, experiment: &str, words: &[&str]) -> (Output, Vec<Row>) {
    std::fs::write(folder.join("storm.toml"), experiment).expect("it is written");
    std::fs::create_dir(folder.join("scratch")).expect("a folder");
    let mut command = Command::new(strowger());
    command.args(["lab", "run", "storm.toml", "--profile", "smoke", "--out", "run"]).args(words);
    let output = command.current_dir(folder).env("TMPDIR", folder.join("scratch")).output().expect("it runs");
    let recorded = Recorded::open(&folder.join("run")).unwrap_or_else(|error| panic!("{error}\n{}", said(&output)));
    let rows = recorded.rows.into_iter().filter(|row| row.system.name != FLOOR).collect();
    (output, rows)
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn servers_are_killed_within_trials() {
    together(&[
        ("phones_return_to_a_server_that_starts_again", phones_return_to_a_server_that_starts_again),
        ("a_server_that_does_not_start_again_is_named", a_server_that_does_not_start_again_is_named),
    ]);
}

fn phones_return_to_a_server_that_starts_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (output, rows) = run(folder.path(), STORM, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert!(!row.validity.fails(Check::Restart) && !row.validity.fails(Check::Rate), "{}", row.to_line());
    let values = |name: &str| -> Vec<f64> { row.series.values(name).iter().flatten().copied().collect() };
    let registered = values("registered");
    // In the second after the kill there are no answers; then all phones return.
    assert!(registered.len() == 5 && registered[0] == 100.0 && registered[1] < 10.0, "{registered:?}");
    assert_eq!(registered[4], 100.0, "{registered:?}");
    let figure = |name: &str| row.figures.value(name).unwrap_or_else(|| panic!("{name} of {}", row.to_line()));
    assert!((1.0..4.0).contains(&figure("registered.after")), "{}", row.to_line());
    assert!(figure("registered.after.95") <= figure("registered.after"));
    // 50 registrations fall due in the first second, and 200 in each of the four others. In one second there is no
    // server.
    assert!((figure("attempts") - 850.0).abs() <= 9.0 && figure("failed") >= 150.0, "{}", row.to_line());
    let (server, machine) = (values("server.cpu"), values("machine.cpu"));
    assert!(server.len() == 5 && machine.len() == 5, "{}", row.to_line());
    assert!(server[0] > 0.0 && server[4] > 0.0 && server[1] < server[0].max(server[4]), "{server:?}");
    let [html, csv] = ["report.html", "report.csv"].map(|file| {
        std::fs::read_to_string(folder.path().join("run").join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    });
    assert!(html.contains("time since the begin of the window") && csv.contains(",registered,100,1,5"), "{csv}");
}

fn a_server_that_does_not_start_again_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = folder.path().join("own");
    std::fs::create_dir(&own).expect("a folder");
    let driver = "title = \"A stub\"\nprogram = \"python3\"\nstart = [\"@PROGRAM@\", \"@CONFIG@\"]\n\
                  version = [\"@PROGRAM@\", \"--version\"]\n\
                  [[scenario]]\nname = \"connections\"\nconfiguration = \"stub.py\"\n";
    let stub = "import os, socket, sys\n\
                if os.path.exists('started'): print('the licence is in use', flush=True); sys.exit(3)\n\
                open('started', 'w').close()\n\
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('127.0.0.1', @PORT@))\n\
                while True: s.recv(9000)\n";
    std::fs::write(own.join("driver.toml"), driver).expect("it is written");
    std::fs::write(own.join("stub.py"), stub).expect("it is written");
    let quiet = [
        ("document = \"register\"\nusers = 100", "document = \"register-new\""),
        ("transport = \"tcp\"\nconnections = \"per-user\"\n", ""),
        ("window = \"5s\"", "window = \"3s\""),
    ];
    let experiment = quiet.iter().fold(STORM.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
    let (output, rows) = run(folder.path(), &experiment, &["--system", &format!("strowger={}", own.display())]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("the server did not start again: "), "{said}");
    assert!(rows.len() == 1 && rows[0].validity.fails(Check::Restart), "{rows:?}");
    assert!(!rows[0].validity.fails(Check::Samples), "{rows:?}");
}
