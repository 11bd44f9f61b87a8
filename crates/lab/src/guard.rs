//! Guard: a process that ends the programs of the laboratory when the laboratory itself was killed.
//!
//! A process that gets `kill -9` cannot end its children. The guard reads process groups from a pipe, which the kernel closes
//! however the laboratory ends.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::{BufRead, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Pipe to the guard of this process.
static GUARD: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Starts the guard by a command that calls [`stand`]. The guard ends only programs that start after this call.
///
/// # Errors
/// The command does not start.
pub fn start(command: &mut Command) -> std::io::Result<()> {
    // Ctrl-C of a terminal reaches the group of the laboratory, and not the guard.
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()?;
    *GUARD.lock().unwrap_or_else(PoisonError::into_inner) = child.stdin.take();
    Ok(())
}

/// Reports to the guard that a group begins or has ended.
pub(crate) fn tell(group: Pid, is_there: bool) {
    if let Some(pipe) = GUARD.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        let sign = if is_there { '+' } else { '-' };
        // Without a guard the programs are still ended, unless this process is killed.
        let _ = writeln!(pipe, "{sign}{}", group.as_raw_nonzero());
    }
}

/// Reads process groups until the laboratory is gone, then ends the groups that are left.
pub fn stand(input: impl BufRead) {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let Ok(group) = line[line.len().min(1)..].parse::<i32>() else { continue };
        if line.starts_with('+') {
            groups.insert(group)
        } else {
            groups.remove(&group)
        };
    }
    for group in groups.into_iter().filter(|group| *group > 1).filter_map(Pid::from_raw) {
        // A group that has ended is gone already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use std::time::Duration;

    #[test]
    fn groups_that_are_left_are_ended() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let start = |name| Process::start(name, folder.path(), Command::new("sleep").arg("600")).expect("it starts");
        let (mut left, mut ended) = (start("left"), start("ended"));
        let lines = format!("+{}\n+{}\nnothing\n\n-{}\n", left.id(), ended.id(), ended.id());
        stand(lines.as_bytes());
        left.end(Duration::from_secs(20)).expect("the guard ends it");
        assert!(ended.ended().is_none(), "it was taken off the list");
    }
}
