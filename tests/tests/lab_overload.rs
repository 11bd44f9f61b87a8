//! The experiment on overload as users run it, at a rate that the servers carry: calls in progress, quota, recovery.

use std::process::Command;

use strowger_lab::compare::FLOOR;
use strowger_lab::row::{Check, Row, Validity};
use strowger_lab::run::Recorded;
use strowger_lab::system::can_limit;
use strowger_tests::binary::strowger;
use strowger_tests::program::{KAMAILIO, have};

#[test]
fn calls_in_progress_are_completed_by_each_transport() {
    if !can_limit() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let systems: &[&str] = if have(&[KAMAILIO]) { &["strowger", "kamailio"] } else { &["strowger"] };
    let mut command = Command::new(strowger());
    command.args(["lab", "run", "overload", "--profile", "smoke", "--only", "transport=udp,tcp-transaction,tls"]);
    command.args(["--only", "n=1", "--load", "100", "--window", "2s", "--out", "run"]);
    for system in systems {
        command.args(["--system", system]);
    }
    let output = command.current_dir(folder.path()).output().expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let recorded = Recorded::open(&folder.path().join("run")).unwrap_or_else(|error| panic!("{error}"));
    let rows: Vec<&Row> = recorded.rows.iter().filter(|row| row.system.name != FLOOR).collect();
    assert_eq!(rows.len(), 3 * systems.len());
    for row in rows {
        // A hundred calls a second are no overload. Only a busy machine may disturb a trial, or delay a recovery.
        for (figure, wanted) in [("failed.warm_up", 0.0), ("refused.share", 0.0), ("server.cores", 0.2)] {
            assert_eq!(row.figures.value(figure), Some(wanted), "{figure} of {}", row.to_line());
        }
        for figure in ["goodput", "response.p50", "server.cpu.call", "server.pss"] {
            assert!(row.figures.value(figure).is_some_and(|value| value > 0.0), "{figure} of {}", row.to_line());
        }
        assert!(row.figures.value("recovery").is_some(), "{}", row.to_line());
        if let Validity::Reasons(reasons) = &row.validity {
            let of_system = |check| matches!(check, Check::Ends | Check::Restart);
            assert!(!reasons.iter().any(|reason| of_system(reason.check)), "{reasons:?}");
        }
    }
}
