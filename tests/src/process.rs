//! Program that runs in parallel to a test, started as the laboratory does: its failures end the test.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Once;
use std::time::Duration;
use strowger_lab::process;
use strowger_measure::process::{Memory, Usage};

/// Resets SIGCHLD to its default. The process that started the tests may ignore SIGCHLD, which is inherited: then the
/// kernel discards the status of an ended child, and no process can read it (wait(2), ECHILD).
pub fn waits_for_children() {
    static ONCE: Once = Once::new();
    // SAFETY: this only replaces an ignored signal by its default action; there is no handler to lose.
    ONCE.call_once(|| unsafe {
        if libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_ERR {
            panic!("SIGCHLD can be set");
        }
    });
}

/// Running program. The drop ends it, together with its children.
#[derive(Debug)]
pub struct Process(process::Process);

impl Process {
    /// Starts a program in a process group of its own; appends its output to `NAME.log` in the folder.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Self {
        waits_for_children();
        Self(process::Process::start(name, folder, command).unwrap_or_else(|error| panic!("{error}\n{command:?}")))
    }

    /// Returns the program's process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns the program's whole output so far.
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// Returns the last lines of its output.
    pub fn tail(&self) -> String {
        self.0.tail()
    }

    /// Waits until the program has printed a text `times` times.
    ///
    /// # Panics
    /// The program ended before, or the limit has passed.
    pub fn wait_for(&mut self, text: &str, times: usize, limit: Duration) {
        let prints = |this: &process::Process| this.log().matches(text).count() >= times;
        self.0.comes_to(&format!("print {text:?}"), limit, prints).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until the program has bound this port: for datagrams or for connections.
    ///
    /// # Panics
    /// The program ended before, or has not bound the port within ten seconds.
    pub fn listens(&mut self, port: u16) {
        self.0.listens(port, Duration::from_secs(10)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns the program's exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.ended()
    }

    /// Tells whether the program has ended; its id stays reserved.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Waits for the end of the program.
    ///
    /// # Panics
    /// The program is still running at the limit.
    pub fn end(&mut self, limit: Duration) -> ExitStatus {
        self.0.end(limit).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the id of the program's thread with this name.
    ///
    /// # Panics
    /// There is no such thread.
    pub fn thread(&self, name: &str) -> u32 {
        let id = self.id();
        let tasks = std::fs::read_dir(format!("/proc/{id}/task")).expect("the process lives");
        let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
        let is_named = |task: &u32| {
            std::fs::read_to_string(format!("/proc/{id}/task/{task}/comm")).is_ok_and(|comm| comm.trim() == name)
        };
        ids.into_iter().find(is_named).unwrap_or_else(|| panic!("no thread {name}"))
    }

    /// Sends the program a signal. After SIGSTOP all its threads are stopped when this returns.
    ///
    /// # Panics
    /// A thread is still running ten seconds after SIGSTOP.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process was started here and not yet waited for, so the id is still its own.
        unsafe { libc::kill(self.id() as i32, signal) };
        if signal == libc::SIGSTOP {
            self.0.stands().unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Stops the program for this time (SIGSTOP), then continues it.
    pub fn stop_for(&self, length: Duration) {
        self.signal(libc::SIGSTOP);
        // The length of the stop.
        std::thread::sleep(length);
        self.signal(libc::SIGCONT);
    }

    /// Sends `kill -9`, and waits until the program has ended.
    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// Returns the program's proportional share of memory in bytes, including its children.
    pub fn pss(&self) -> u64 {
        Memory::of_tree(self.id()).pss
    }

    /// Returns the processor time so far of its running threads and its children, in nanoseconds; [`Process::cpu`]
    /// counts hundredths of a second but includes ended threads.
    pub fn run_time(&self) -> Duration {
        Usage::of_tree(self.id()).run_time
    }

    /// Returns the program's processor time so far, in user and system mode, including its running children.
    pub fn cpu(&self) -> Duration {
        let usage = Usage::of_tree(self.id());
        usage.user + usage.system
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- {} printed last:\n{}\n----", self.0.name(), self.tail());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_waited_for_whoever_starts_the_tests() {
        const INNER: &str = "STROWGER_TESTS_INNER";
        let folder = tempfile::tempdir().expect("a temporary folder");
        if std::env::var_os(INNER).is_some() {
            let mut child = Process::start("child", folder.path(), Command::new("sh").args(["-c", "exit 7"]));
            assert_eq!(child.end(Duration::from_secs(5)).code(), Some(7));
            return;
        }
        waits_for_children();
        let own = std::env::current_exe().expect("a running test has a file");
        let name = "process::tests::children_are_waited_for_whoever_starts_the_tests";
        let mut ignoring = Command::new("sh");
        ignoring.args(["-c", "trap '' CHLD; exec \"$@\"", "sh"]).arg(own).args(["--exact", name]).env(INNER, "1");
        let output = ignoring.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
