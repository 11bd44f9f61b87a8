//! Each shipped experiment in the profile `smoke`, from its plan to its report: real servers, databases and callers, and every figure of
//! the report has its lines, its unit and its points.
//!
//! The experiments run beside one another and beside other tests. So trials may be invalid, and no value is judged.

use std::path::Path;
use std::process::Command;

use strowger_lab::experiment::{Experiment, SHIPPED, plan};
use strowger_lab::report::{self, expected, missing};
use strowger_lab::row::Profile;
use strowger_lab::system::can_limit;
use strowger_tests::binary::strowger;
use strowger_tests::each_together;
use strowger_tests::program::{KAMAILIO, MARIADB, MARIADBD, MEMCACHED, REDIS, RTPENGINE, have};
use strowger_tests::turn::in_background;

use crate::lab::recorded;

#[test]
fn each_shipped_experiment_shows_every_figure() {
    if !have(&[KAMAILIO, MARIADB, MARIADBD, MEMCACHED, REDIS, RTPENGINE]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    // A server gets its quota from a control group, which a container may forbid.
    names.retain(|name| shipped(name).call.quota.is_none() || can_limit());
    // The longest first, so that none begins when the others end.
    names.sort_by_key(|name| std::cmp::Reverse(plan(&shipped(name), Profile::Smoke, &[]).time));
    let cases: Vec<_> = names.iter().map(|name| (*name, || shows_every_figure(name, folder.path()))).collect();
    in_background(|| each_together(&cases));
}

fn shipped(name: &str) -> Experiment {
    Experiment::shipped(name).expect("it is shipped").0
}

fn shows_every_figure(name: &str, folder: &Path) {
    let run = folder.join(name);
    let mut command = Command::new(strowger());
    command.args(["lab", "run", name, "--profile", "smoke", "--out"]).arg(&run).current_dir(folder);
    let output = command.output().expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The reason is at its end, and a reader of a long log sees the first lines.
    let last: Vec<&str> = said.lines().rev().take(12).collect();
    assert_eq!(output.status.code(), Some(0), "{name}: the last lines first: {last:#?}\n{said}");
    let found = report::of_folder(&run, |report| Ok(report.shapes())).unwrap_or_else(|error| panic!("{name}: {error}"));
    let experiment = shipped(name);
    let promised = expected(&experiment, Profile::Smoke, &plan(&experiment, Profile::Smoke, &[]));
    let wanted = recorded::with_report(&experiment, &promised, |report| report.shapes());
    let missing = missing(&found, &wanted);
    assert!(missing.is_empty(), "{name} lacks {missing:?}; the last lines first: {last:#?}\n{said}");
}
