//! Experiments over connections as users run them: a bare echo, our server and Kamailio, by TCP and by TLS.

use std::path::Path;
use std::process::Command;

use strowger_lab::compare::FLOOR;
use strowger_lab::experiment::Experiment;
use strowger_lab::row::{Check, Row, Validity};
use strowger_lab::run::Recorded;
use strowger_tests::binary::strowger;
use strowger_tests::program::{KAMAILIO, have};

/// Runs a shipped experiment with changes in the profile smoke, and returns its rows without the floor.
fn run(folder: &Path, name: &str, changes: &[(&str, &str)], systems: &[&str]) -> Vec<Row> {
    let (_, text) = Experiment::shipped(name).expect("it is shipped");
    let text = changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} of {name}");
        text.replacen(from, to, 1)
    });
    let folder = folder.join(name);
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("mine.toml"), text).expect("the folder can be written");
    let mut command = Command::new(strowger());
    command.args(["lab", "run", "mine.toml", "--profile", "smoke"]).current_dir(&folder);
    for system in systems {
        command.args(["--system", system]);
    }
    let output = command.output().expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{name}: {said}");
    let recorded = Recorded::open(&folder.join("mine-smoke")).unwrap_or_else(|error| panic!("{error}"));
    assert!(recorded.is_whole, "{name}");
    recorded.rows.iter().filter(|row| row.system.name != FLOOR).cloned().collect()
}

/// Asserts figures above 0 in each row, and no failed attempt. Only a busy machine may disturb a trial.
#[track_caller]
fn assert_measured(rows: &[Row], systems: &[&str], figures: &[&str]) {
    let found: Vec<&str> =
        systems.iter().copied().filter(|name| rows.iter().any(|row| row.system.name == *name)).collect();
    assert_eq!((found.as_slice(), rows.len()), (systems, systems.len()));
    for row in rows {
        for figure in figures {
            assert!(row.figures.value(figure).is_some_and(|value| value > 0.0), "{figure} of {}", row.to_line());
        }
        assert_eq!(row.figures.value("failed"), Some(0.0), "{}", row.to_line());
        if let Validity::Reasons(reasons) = &row.validity {
            let of_system = |check| matches!(check, Check::Ends | Check::Restart);
            assert!(!reasons.iter().any(|reason| of_system(reason.check)), "{reasons:?}");
        }
    }
}

#[test]
fn connections_are_measured_by_transaction_by_dialog_and_idle() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers: &[&str] = if have(&[KAMAILIO]) { &["strowger", "kamailio"] } else { &["strowger"] };
    let tls = [
        ("only = { lifetime = [\"tcp-transaction\"] }", "only = { lifetime = [\"tls-transaction\"] }"),
        ("[250]", "[100]"),
    ];
    // Memory is read once a second, and less often if that takes long.
    let longer = [("window = \"1s\"", "window = \"3s\"")];
    std::thread::scope(|scope| {
        let tls = scope.spawn(|| run(folder.path(), "connections", &tls, servers));
        let calls = scope.spawn(|| run(folder.path(), "connections-calls", &[], servers));
        let idle = scope.spawn(|| run(folder.path(), "connections-idle", &longer, &["echo", "strowger"]));
        let of = |rows: std::thread::Result<Vec<Row>>| rows.expect("it ran");
        let (tls, calls, idle) = (of(tls.join()), of(calls.join()), of(idle.join()));
        assert_measured(&tls, servers, &["connect.rate", "rrd.p50", "server.cpu.call", "server.pss"]);
        assert_measured(&calls, servers, &["connect.rate", "srd.p50", "response.p50", "server.cpu.call"]);
        assert_measured(&idle, &["echo", "strowger"], &["server.pss", "rrd.p50", "rrd.p99"]);
        // A connection of the echo takes less than the free pages left by its start.
        let entry = |row: &Row| row.figures.value("server.entry").unwrap_or_else(|| panic!("{}", row.to_line()));
        let [echo, ours] = ["echo", "strowger"].map(|name| idle.iter().find(|row| row.system.name == name).map(entry));
        assert!(ours.is_some_and(|bytes| (200.0..4_000.0).contains(&bytes)), "{ours:?} bytes a connection");
        assert!(echo < ours, "{echo:?} of {ours:?} bytes a connection");
        assert!(idle.iter().all(|row| row.figures.value("connect.rate").is_none()), "users keep their connections");
    });
}
