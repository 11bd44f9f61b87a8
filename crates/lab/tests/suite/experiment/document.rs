//! Experiment that the cases change.

use super::*;

/// An experiment of thirty lines, as a user writes one.
pub(super) const MINE: &str = r#"title = "Two caches"

[call]
document = "call"
answer = "answer"
users = 500

[load]
unit = "calls/s"
values = [100, 200]

[[axis]]
name = "cache"
values = ["local", "redis"]

[[system]]
name = "strowger"
configuration = "mine-{cache}"

[[system]]
name = "kamailio"
configuration = "mine"
workers = 4
skip = { cache = ["redis"] }

[profile.quick]
warm_up = "1s"
window = "4s"
repetitions = 2

[[figure]]
name = "cost"
title = "CPU of a call"
x = "load"
y = ["server.cpu.call"]
line = "system"
where = { cache = "local" }

[[gate]]
figure = "server.cpu.call"
against = "kamailio"
where = { cache = "local" }
at_most = 0.5
"#;

pub(super) fn mine() -> Experiment {
    match Experiment::read("folder/mine.toml", MINE) {
        Ok((experiment, report)) => {
            assert!(report.faults().is_empty(), "{report}");
            experiment
        }
        Err(report) => panic!("{report}"),
    }
}
