//! A program that runs beside the test, as the laboratory starts them: what goes wrong with it ends the test.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Once;
use std::time::Duration;
use strowger_lab::process;
use strowger_measure::process::{Memory, Usage};

/// The process that started the tests may have had SIGCHLD ignored, which is inherited: then the kernel keeps nothing of a child that
/// ended, and no process can learn how (wait(2), ECHILD). From here on children are waited for, however the tests were started.
pub fn waits_for_children() {
    static ONCE: Once = Once::new();
    // SAFETY: only an ignored signal becomes one that does nothing by default; there is no handler that could be lost.
    ONCE.call_once(|| unsafe {
        if libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_ERR {
            panic!("SIGCHLD can be set");
        }
    });
}

/// A running program. When it is dropped it is ended, together with what it started.
#[derive(Debug)]
pub struct Process(process::Process);

impl Process {
    /// Starts a program in a process group of its own; what it prints goes to `NAME.log` in the folder, after what is
    /// there.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Self {
        waits_for_children();
        Self(process::Process::start(name, folder, command).unwrap_or_else(|error| panic!("{error}\n{command:?}")))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Everything it printed so far.
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// The last lines it printed.
    pub fn tail(&self) -> String {
        self.0.tail()
    }

    /// Waits until it printed a text `times` times.
    ///
    /// # Panics
    /// It ended before, or the time is over.
    pub fn wait_for(&mut self, text: &str, times: usize, limit: Duration) {
        let prints = |this: &process::Process| this.log().matches(text).count() >= times;
        self.0.comes_to(&format!("print {text:?}"), limit, prints).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until it has bound this port: for datagrams, or to take connections.
    ///
    /// # Panics
    /// It ended before, or has not in ten seconds.
    pub fn listens(&mut self, port: u16) {
        self.0.listens(port, Duration::from_secs(10)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.ended()
    }

    /// Whether it has ended; its id remains its own.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It is still running after this time.
    pub fn end(&mut self, limit: Duration) -> ExitStatus {
        self.0.end(limit).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends it a signal. After SIGSTOP all its threads stand when this returns.
    ///
    /// # Panics
    /// It goes on ten seconds after SIGSTOP.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process was started here and not yet waited for, so the id is still its own.
        unsafe { libc::kill(self.id() as i32, signal) };
        if signal == libc::SIGSTOP {
            self.0.stands().unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Stops it for so long (SIGSTOP), then lets it go on.
    pub fn stop_for(&self, length: Duration) {
        self.signal(libc::SIGSTOP);
        // It stands for so long.
        std::thread::sleep(length);
        self.signal(libc::SIGCONT);
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// Its share of the memory of the machine in bytes, with all it started.
    pub fn pss(&self) -> u64 {
        Memory::of_tree(self.id()).pss
    }

    /// Processor time that its threads which still run used so far, with all it started: to the nanosecond, where
    /// [`Process::cpu`] counts hundredths of a second but forgets no thread.
    pub fn run_time(&self) -> Duration {
        Usage::of_tree(self.id()).run_time
    }

    /// Processor time that it used so far, in user and system mode, with all it started and that still runs.
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
