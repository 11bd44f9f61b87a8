//! Other programs: processes that the laboratory did not start.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use strowger_measure::process::tree;

/// Unit of processor times in `/proc`, in seconds. It is 1/100 s on all architectures of Linux but Alpha.
const TICK: f64 = 0.01;

/// Parent of all threads of the kernel.
const KERNEL: u32 = 2;

/// Processor times of other programs at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbours(HashMap<(u32, u64), Times>);

#[derive(Clone, Debug)]
struct Times {
    name: String,
    /// Time of the process itself, in ticks.
    own: u64,
    /// Time of its descendants that have ended and were waited for, in ticks.
    ended: u64,
}

/// Programs other than those of the laboratory, between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OtherUse {
    /// Processor time in seconds.
    pub(super) seconds: f64,
    /// Name of the process that used most.
    pub(super) busiest: Option<String>,
}

impl Neighbours {
    /// Looks at all processes except the descendants of this one and of `others`.
    pub(super) fn now(others: &[u32]) -> Self {
        let roots = others.iter().copied().chain([std::process::id()]);
        let own: HashSet<u32> = roots.flat_map(tree).collect();
        let mut found = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let Some(id) = id.filter(|id| !own.contains(id)) else { continue };
            if let Some((started, times)) = read(&entry.path()) {
                found.insert((id, started), times);
            }
        }
        Self(found)
    }

    /// Computes their use since an earlier moment.
    pub(super) fn since(&self, earlier: &Self) -> OtherUse {
        // A parent gets the whole time of a child that ends, and the child is removed from the sum.
        let all = |of: &Self| of.0.values().map(|times| times.own + times.ended).sum::<u64>();
        let ticks = all(self).saturating_sub(all(earlier));
        let growth = self.0.iter().map(|(key, now)| {
            let before = earlier.0.get(key).map_or(0, |before| before.own);
            (now.own.saturating_sub(before), &now.name)
        });
        let most = growth.max_by_key(|(ticks, _)| *ticks);
        let busiest = most.filter(|(ticks, _)| *ticks > 0).map(|(_, name)| name.clone());
        OtherUse { seconds: ticks as f64 * TICK, busiest }
    }
}

/// Reads the start time, name and ticks of a process; returns `None` for a thread of the kernel.
fn read(folder: &Path) -> Option<(u64, Times)> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    parse(&stat)
}

fn parse(stat: &str) -> Option<(u64, Times)> {
    // The name may have spaces and parentheses.
    let (before, fields) = stat.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    if number(1)? == u64::from(KERNEL) {
        return None;
    }
    let (own, ended) = (number(11)? + number(12)?, number(13)? + number(14)?);
    Some((number(19)?, Times { name: name.to_owned(), own, ended }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::wait;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn times_of_a_process_and_its_ended_children_are_read() {
        let stat = "42 (a) b) c) S 7 42 42 0 -1 0 1 2 3 4 10 20 300 4000 20 0 1 0 555 1 2";
        let (started, times) = parse(stat).expect("a process");
        assert_eq!((started, times.name.as_str(), times.own, times.ended), (555, "a) b) c", 30, 4_300));
        assert!(parse(&stat.replace("S 7", "S 2")).is_none(), "a thread of the kernel");
        assert!(parse("42 (a").is_none());
    }

    #[test]
    fn the_own_programs_are_no_neighbours() {
        let before = Neighbours::now(&[]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let busy = Process::start("busy", folder.path(), Command::new("sh").args(["-c", "while :; do :; done"]));
        let busy = busy.expect("a shell starts");
        let has_run = || strowger_measure::process::Usage::of_tree(busy.id()).total() > Duration::from_millis(300);
        assert!(wait::until(Duration::from_secs(60), has_run));
        assert!(Neighbours::now(&[]).0.keys().all(|(id, _)| *id != busy.id() && *id != std::process::id()));
        assert!(before.0.keys().any(|(id, _)| *id == 1), "the first process is another program");
    }

    #[test]
    fn a_child_that_ends_is_counted_once() {
        let times = |name: &str, own, ended| Times { name: name.into(), own, ended };
        let before = Neighbours(HashMap::from([((7, 1), times("make", 10, 500)), ((8, 1), times("rustc", 4_000, 0))]));
        // The compiler worked for 1.5 s more, then ended, and another one began.
        let later = Neighbours(HashMap::from([((7, 1), times("make", 20, 4_650)), ((9, 1), times("cc1", 90, 0))]));
        let used = later.since(&before);
        assert_eq!((used.seconds, used.busiest.as_deref()), (2.5, Some("cc1")));
        assert_eq!(before.since(&later).seconds, 0.0);
    }
}
