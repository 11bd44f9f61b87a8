//! A program that runs beside the test: its output in a file, its end with the test's.

use crate::wait;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

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
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program in a process group of its own; what it prints goes to `NAME.log` in the folder, after what is
    /// there.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Self {
        waits_for_children();
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).expect("the folder of the test can be written");
        let again = file.try_clone().expect("a descriptor is left");
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(again)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}\n{command:?}"));
        Self { name: name.into(), child, log }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it printed so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines it printed.
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Waits until it printed a text `times` times.
    ///
    /// # Panics
    /// It ended before, or the time is over.
    pub fn wait_for(&mut self, text: &str, times: usize, limit: Duration) {
        self.comes_to(&format!("print {text:?}"), limit, |this| this.log().matches(text).count() >= times);
    }

    /// Waits until it has bound this port: for datagrams, or to take connections.
    ///
    /// # Panics
    /// It ended before, or has not in ten seconds.
    pub fn listens(&mut self, port: u16) {
        self.comes_to(&format!("listen on {port}"), Duration::from_secs(10), |this| has_bound(this.id(), port));
    }

    fn comes_to(&mut self, what: &str, limit: Duration, is_so: impl Fn(&Self) -> bool) {
        let mut ended = None;
        let came = wait::until(limit, || {
            // In this order: what it did last counts.
            ended = self.ended();
            is_so(self) || ended.is_some()
        });
        let came = came && is_so(self);
        assert!(came, "{} does not {what} in {limit:?}, ended: {ended:?}\n{}", self.name, self.tail());
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked")
    }

    /// Whether it has ended; its id remains its own.
    pub fn is_over(&self) -> bool {
        // SAFETY: the kernel writes to our own record; WNOWAIT leaves the child as it is.
        unsafe {
            let mut record: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.child.id(), &raw mut record, how) == 0 && record.si_pid() != 0
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It is still running after this time.
    pub fn end(&mut self, limit: Duration) -> ExitStatus {
        let ended = wait::look(limit, || self.ended());
        ended.unwrap_or_else(|| panic!("{} is still running after {limit:?}:\n{}", self.name, self.tail()))
    }

    /// Sends it a signal. After SIGSTOP all its threads stand when this returns: the kernel stops one after the other.
    ///
    /// # Panics
    /// It goes on ten seconds after SIGSTOP.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process was started here and not yet waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        if signal == libc::SIGSTOP {
            let end = Instant::now() + Duration::from_secs(10);
            // Looked at often: what is stopped for a few milliseconds is to stand no longer.
            while !stands(self.id()) {
                assert!(Instant::now() < end, "{} goes on after SIGSTOP", self.name);
                std::thread::sleep(Duration::from_micros(200));
            }
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
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }

    /// Its share of the memory of the machine in bytes, with all it started: PSS of `/proc/PID/smaps_rollup`.
    pub fn pss(&self) -> u64 {
        tree(self.id()).into_iter().map(|id| kilobytes(&format!("/proc/{id}/smaps_rollup"), "Pss:")).sum::<u64>() * 1024
    }

    /// Processor time that its threads which still run used so far, with all it started: to the nanosecond, where
    /// [`Process::cpu`] counts hundredths of a second but forgets no thread.
    pub fn run_time(&self) -> Duration {
        tree(self.id()).into_iter().map(run_time).sum()
    }

    /// Processor time that it used so far, in user and system mode, with all it started and that still runs.
    pub fn cpu(&self) -> Duration {
        tree(self.id()).into_iter().map(cpu).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- {} printed last:\n{}\n----", self.name, self.tail());
        }
        if self.ended().is_none() {
            self.signal(libc::SIGTERM);
            wait::until(Duration::from_millis(500), || self.ended().is_some());
        }
        // SAFETY: the group is the one that was made for this child; its members were started by it.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// A socket on the network of this process has this port, whichever process it is of.
fn has_bound(id: u32, port: u16) -> bool {
    // What takes datagrams is in the state 07, what takes connections in 0A.
    let (port, states) = (format!(":{port:04X}"), ["07", "0A"]);
    ["udp", "udp6", "tcp", "tcp6"].iter().any(|protocol| {
        let sockets = std::fs::read_to_string(format!("/proc/{id}/net/{protocol}")).unwrap_or_default();
        sockets.lines().any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (own, state) = (fields.next(), fields.nth(1));
            own.is_some_and(|own| own.ends_with(&port)) && state.is_some_and(|state| states.contains(&state))
        })
    })
}

/// Whether no thread of the process runs: each is stopped or has ended.
fn stands(id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        // The name of the thread stands in brackets and may contain anything.
        stat.rsplit_once(") ")?.1.chars().next()
    });
    states.all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

fn tree(id: u32) -> Vec<u32> {
    let mut all = vec![id];
    let mut next = 0;
    while let Some(&id) = all.get(next) {
        next += 1;
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    all
}

fn kilobytes(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The first number of `schedstat` of each thread.
fn run_time(id: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
    let nanoseconds = |text: String| text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
    Duration::from_nanos(threads.map(of).map(nanoseconds).sum())
}

fn cpu(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name of the program stands in brackets and may contain anything; utime and stime are the 14th and 15th field.
    let Some((_, fields)) = stat.rsplit_once(')') else { return Duration::ZERO };
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // SAFETY: sysconf has no preconditions.
    let each = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Duration::from_micros(ticks * 1_000_000 / each)
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
