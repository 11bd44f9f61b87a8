//! Programs that run beside this one: their output goes to files, and they end with their owner.

use crate::{Error, guard, wait};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strowger_measure::process::{is_stopped, task_state, tasks, tree};
use tokio::signal::unix::{SignalKind, signal};

/// Process groups of all programs that run.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
/// True after a signal has asked this process to end: no more programs are started.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Time that this process has for its own end after such a signal, for example to remove its folders.
const OWN_END: Duration = Duration::from_secs(5);

/// Makes SIGINT, SIGTERM and SIGHUP end the running programs, then this process. Without this call, a signal ends this process and leaves
/// the programs running.
///
/// # Errors
/// No thread can be started.
pub fn end_by_signals() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [mut interrupt, mut terminate, mut hangup] = {
        let _here = runtime.enter();
        let [interrupt, terminate, hangup] = kinds.map(signal);
        [interrupt?, terminate?, hangup?]
    };
    let wait = async move {
        tokio::select! {
            _ = interrupt.recv() => kinds[0],
            _ = terminate.recv() => kinds[1],
            _ = hangup.recv() => kinds[2],
        }
    };
    let work = move || {
        let kind = runtime.block_on(wait);
        end_all();
        // Meanwhile the main thread sees that a program is gone, and ends with an error.
        std::thread::sleep(OWN_END);
        std::process::exit(128 + kind.as_raw_value());
    };
    std::thread::Builder::new().name("signals".into()).spawn(work).map(drop)
}

/// Ends all programs that run; no more can be started.
pub(crate) fn end_all() {
    IS_ENDING.store(true, SeqCst);
    for group in groups().iter() {
        let _ = kill_process_group(*group, Signal::KILL);
    }
}

/// Starts a program in a process group of its own. The group ends with this process, even if this process is killed. After the program
/// has ended, call [`forget`].
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    // The lock is held, so that no program starts unseen while all are ended.
    let mut groups = groups();
    if IS_ENDING.load(SeqCst) {
        return Err(std::io::ErrorKind::Interrupted.into());
    }
    let child = command.process_group(0).spawn()?;
    groups.push(Pid::from_child(&child));
    guard::tell(Pid::from_child(&child), true);
    Ok(child)
}

/// Ends the remaining processes in the group of a program that has ended.
pub(crate) fn forget(child: &Child) {
    let pid = Pid::from_child(child);
    // The group was made for this child, and its members were started by the child.
    let _ = kill_process_group(pid, Signal::KILL);
    groups().retain(|group| *group != pid);
    guard::tell(pid, false);
}

/// Tells whether a signal (see [`end_by_signals`]) or the loss of a host has ended the programs.
pub fn is_ending() -> bool {
    IS_ENDING.load(SeqCst)
}

fn groups() -> MutexGuard<'static, Vec<Pid>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Running program. It and its descendants end when it is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program in a process group of its own. Its output is appended to `NAME.log` in the folder.
    ///
    /// # Errors
    /// The program cannot be started, or the folder cannot be written.
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Result<Self, Error> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).map_err(Error::file(&log))?;
        let again = file.try_clone().map_err(Error::file(&log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(again);
        let child = spawn(command).map_err(|source| Error::NotStarted { name: name.into(), source })?;
        Ok(Self { name: name.into(), child, log })
    }

    /// Returns the name of the process in the laboratory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Returns the last lines of the output.
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Waits until the program or a descendant has bound this port: for datagrams, or to accept connections. A port that another program has, such as
    /// a descendant of an earlier one whose end is not complete, does not count.
    ///
    /// # Errors
    /// The program ended before, or has not bound the port in this time.
    pub fn listens(&mut self, port: u16, limit: Duration) -> Result<(), Error> {
        self.comes_to(&format!("listen on {port}"), limit, |this| owns_port(this.id(), port))
    }

    /// Waits until the program reaches a state. `what`: the state as a verb, for the error.
    ///
    /// # Errors
    /// The program ended before, or did not reach the state in time.
    pub fn comes_to(&mut self, what: &str, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Result<(), Error> {
        let (mut ended, mut has_come) = (false, false);
        wait::until(limit, || {
            // The end is checked before the state: a program may reach the state and end immediately.
            ended = self.ended().is_some();
            // Asked only once: a socket that was found now may be missing in the next read of the kernel's table.
            has_come = is_so(self);
            has_come || ended
        });
        if has_come { Ok(()) } else { Err(self.not_in_time(what, limit, ended)) }
    }

    /// Checks that the program has not ended.
    ///
    /// # Errors
    /// The program has ended; the error has the last lines that it printed.
    pub fn runs(&mut self) -> Result<(), Error> {
        match self.ended() {
            None => Ok(()),
            Some(status) => Err(Error::Failed { name: self.name.clone(), status, output: self.tail() }),
        }
    }

    fn not_in_time(&self, what: &str, limit: Duration, ended: bool) -> Error {
        let threads = if ended { String::new() } else { threads(self.id()) };
        Error::NotInTime { name: self.name.clone(), what: what.into(), limit, ended, tail: self.tail(), threads }
    }

    /// Returns the exit status of the program, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // Waiting fails only if other code has waited for the child, and none does.
        self.child.try_wait().ok().flatten()
    }

    /// Returns whether the program has ended. Its process id stays reserved.
    pub fn is_over(&self) -> bool {
        // NOWAIT leaves the exit status in the kernel, so that it can be read later.
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), how).is_ok_and(|status| status.is_some())
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// The program is still running after this time.
    pub fn end(&mut self, limit: Duration) -> Result<ExitStatus, Error> {
        wait::look(limit, || self.ended()).ok_or_else(|| self.not_in_time("end", limit, false))
    }

    /// Asks the program to end (SIGTERM), kills it if it has not ended in this time, and waits until it is gone.
    pub fn stop(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        let ended = wait::look(limit, || self.ended());
        if ended.is_none() {
            self.kill();
        }
        ended
    }

    /// Sends a signal, unless the program has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            // This process started the program and has not yet waited for it, so the id is still reserved.
            let _ = kill_process(self.pid(), signal);
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits after SIGSTOP until all threads of the program are stopped: the kernel stops them one by one.
    ///
    /// # Errors
    /// A thread still runs after ten seconds.
    pub fn stands(&self) -> Result<(), Error> {
        let limit = Duration::from_secs(10);
        let end = Instant::now() + limit;
        while !is_stopped(self.id()) {
            if Instant::now() >= end {
                return Err(self.not_in_time("stop", limit, false));
            }
            // Short, because a test may stop a program for a few milliseconds only.
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Sends SIGKILL and waits until the program is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.stop(Duration::from_millis(500));
        }
        forget(&self.child);
        let _ = self.child.wait();
    }
}

/// Protocols whose tables of sockets are in `/proc`.
const PROTOCOLS: [&str; 4] = ["udp", "udp6", "tcp", "tcp6"];

/// Reads the kernel's table of a protocol for the network namespace of this process.
pub(crate) fn table(id: u32, protocol: &str) -> std::io::Result<String> {
    std::fs::read_to_string(format!("/proc/{id}/net/{protocol}"))
}

/// Returns the local address, the state and the inode of each socket of a table, as the kernel writes them.
pub(crate) fn rows(table: &str) -> impl Iterator<Item = [&str; 3]> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        Some([fields.next()?, fields.nth(1)?, fields.nth(5)?])
    })
}

/// Returns the name, state and system call of each thread of a process, as far as this process may read them.
fn threads(id: u32) -> String {
    let line = |thread: PathBuf| {
        let read = |name| std::fs::read_to_string(thread.join(name)).unwrap_or_default();
        let [name, waits_in, call, times] = ["comm", "wchan", "syscall", "schedstat"].map(read);
        let state = task_state(&thread).unwrap_or('?');
        let mut times = times.split_ascii_whitespace().map(|ns| ns.parse::<u64>().unwrap_or(0) / 1_000_000);
        let (ran, waited) = (times.next().unwrap_or(0), times.next().unwrap_or(0));
        format!(
            "\n{}: state {state}, waits in {waits_in}, system call {}; ran {ran} ms, waited {waited} ms for a processor",
            name.trim(),
            call.trim()
        )
    };
    tasks(id).map(line).collect::<String>() + &sockets(id)
}

/// Returns the inodes of the sockets of a process, or `None` if the process has ended or this process may not read
/// them.
pub(crate) fn sockets_of(id: u32) -> Option<HashSet<String>> {
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).ok()?.flatten();
    let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    Some(open.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect())
}

/// Returns whether a process of this tree has bound the port, for datagrams or to accept connections.
fn owns_port(id: u32, port: u16) -> bool {
    ["udp", "tcp"].iter().any(|protocol| owns(id, port, protocol))
}

/// Returns whether a process of this tree has bound the port. If the sockets of these processes cannot be seen, the port of any
/// process counts.
pub(crate) fn owns(id: u32, port: u16, protocol: &str) -> bool {
    let bound = inodes(id, port, protocol);
    if bound.is_empty() {
        return false;
    }
    let own: Vec<_> = tree(id).into_iter().filter_map(sockets_of).collect();
    own.is_empty() || bound.iter().any(|inode| own.iter().any(|sockets| sockets.contains(inode)))
}

/// Returns the inodes of the sockets that are bound to this port in the network namespace of this process.
pub(crate) fn inodes(id: u32, port: u16, protocol: &str) -> Vec<String> {
    let (port, state) = (format!(":{port:04X}"), if protocol == "udp" { "07" } else { "0A" });
    let versions = [protocol.to_owned(), format!("{protocol}6")];
    let tables: Vec<String> = versions.iter().filter_map(|protocol| table(id, protocol).ok()).collect();
    let rows = tables.iter().flat_map(|table| rows(table));
    rows.filter(|[own, found, _]| own.ends_with(&port) && *found == state).map(|[.., inode]| inode.to_owned()).collect()
}

/// Returns a line for each listening socket of a process: protocol, local address and state as the kernel writes them.
/// The kernel writes a table page by page: if other sockets are opened or closed between two pages, a socket may be
/// missing.
fn sockets(id: u32) -> String {
    let own = sockets_of(id).unwrap_or_default();
    let mut lines = format!("\n{} sockets", own.len());
    for protocol in PROTOCOLS {
        match table(id, protocol) {
            Err(error) => lines += &format!("\n{protocol}: {error}"),
            Ok(table) => {
                for [address, state, _] in rows(&table).filter(|[.., inode]| own.contains(*inode)) {
                    lines += &format!("\n{protocol} {address} {state}");
                }
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use strowger_measure::process::{Memory, Usage};

    #[test]
    fn a_program_that_ends_early_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no port; exit 3"]);
        let mut shell = Process::start("shell", folder.path(), &mut command).expect("a shell starts");
        let begun = Instant::now();
        let error = shell.listens(9, Duration::from_secs(60)).expect_err("it listens nowhere").to_string();
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(error.contains("shell does not listen on 9") && error.contains("it has ended\nno port"), "{error}");
        let missing = Process::start("missing", folder.path(), &mut Command::new("/no/such/program"));
        assert!(missing.is_err_and(|error| error.to_string().starts_with("missing does not start: ")));
    }

    #[test]
    fn what_was_so_once_has_come() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut sleeper =
            Process::start("sleeper", folder.path(), Command::new("sleep").arg("600")).expect("it starts");
        let looks = Cell::new(0);
        let second = |_: &Process| looks.replace(looks.get() + 1) == 1;
        sleeper.comes_to("be looked at", Duration::from_secs(20), second).expect("the second look sees it");
        assert_eq!(looks.get(), 2);
    }

    #[test]
    fn of_a_program_that_comes_to_nothing_the_error_says_what_its_threads_wait_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut sleeper =
            Process::start("sleeper", folder.path(), Command::new("sleep").arg("600")).expect("it starts");
        let error = sleeper.listens(9, Duration::ZERO).expect_err("it listens nowhere").to_string();
        let is_thread = |line: &str| line.starts_with("sleep: state ") && line.contains(" ms for a processor");
        assert!(error.lines().any(is_thread) && error.ends_with("\n0 sockets"), "{error}");
    }

    /// Starts a shell that waits while its child works, and checks that the time of the tree includes the time of the
    /// child.
    #[test]
    fn the_time_of_a_tree_is_that_of_all_its_processes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shell = |script: &str| {
            Process::start("shell", folder.path(), Command::new("sh").args(["-c", script])).expect("a shell starts")
        };
        let busy = shell("sh -c 'while :; do :; done' & wait");
        let idle = shell("sleep 60");
        let enough = Duration::from_millis(300);
        assert!(wait::until(Duration::from_secs(60), || Usage::of_tree(busy.id()).total() >= enough));
        let (busy, idle_time) = (Usage::of_tree(busy.id()), Usage::of_tree(idle.id()));
        assert!(busy.user + busy.system >= enough / 2, "{busy:?}");
        assert!(idle_time.total() < enough / 3, "{idle_time:?}");
        assert!(Memory::of_tree(idle.id()).pss > 50_000);
    }

    #[test]
    fn the_sockets_of_a_process_are_told_by_its_own_numbers() {
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
        let stream = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("it is bound").port();
        let lines = [
            format!("udp 0100007F:{:04X} 07", port(datagrams.local_addr())),
            format!("tcp 0100007F:{:04X} 0A", port(stream.local_addr())),
        ];
        let mut told = String::new();
        let are_told = wait::until(Duration::from_secs(20), || {
            told = sockets(std::process::id());
            lines.iter().all(|line| told.lines().any(|told| told == line))
        });
        assert!(are_told, "{lines:?} of {told}");
    }

    #[test]
    fn what_is_dropped_ends_with_what_it_started() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo child $!; wait"]);
        let mut shell = Process::start("shell", folder.path(), &mut command).expect("a shell starts");
        let prints = |this: &Process| this.log().contains("child ") && this.log().ends_with('\n');
        shell.comes_to("print", Duration::from_secs(20), prints).expect("it prints");
        let child = last_number(&shell);
        drop(shell);
        assert!(wait::until(Duration::from_secs(20), || is_gone(child)));
    }

    fn last_number(process: &Process) -> u32 {
        process.log().trim().rsplit(' ').next().and_then(|id| id.parse().ok()).expect("a number")
    }

    fn is_gone(id: u32) -> bool {
        // A zombie (ended, and its new parent has not waited for it) has no command line.
        std::fs::read(format!("/proc/{id}/cmdline")).map_or(true, |command_line| command_line.is_empty())
    }

    /// Variable that makes this test run in a process of its own, which is then killed.
    const IS_KILLED: &str = "STROWGER_LAB_IS_KILLED";

    #[test]
    fn a_signal_ends_this_process_and_what_it_started() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        if std::env::var_os(IS_KILLED).is_some() {
            end_by_signals().expect("a thread");
            let mut sleeper =
                Process::start("sleeper", folder.path(), Command::new("sleep").arg("600")).expect("it starts");
            println!("started {}", sleeper.id());
            sleeper.end(Duration::from_secs(60)).expect("it is ended");
            let more = Process::start("more", folder.path(), Command::new("sleep").arg("600"));
            assert!(more.is_err_and(|error| error.to_string().starts_with("more does not start: ")));
            return;
        }
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "process::tests::a_signal_ends_this_process_and_what_it_started", "--nocapture"]);
        let mut own = Process::start("own", folder.path(), command.env(IS_KILLED, "1")).expect("it starts");
        let prints = |this: &Process| this.log().lines().any(|line| line.contains("started "));
        own.comes_to("print", Duration::from_secs(20), prints).expect("it prints");
        let line = own.log().lines().find(|line| line.contains("started ")).map(str::to_owned).expect("it is there");
        let sleeper: u32 = line.rsplit(' ').next().and_then(|id| id.parse().ok()).expect("a number");
        // The program has its command line only a moment after its start.
        assert!(wait::until(Duration::from_secs(20), || !is_gone(sleeper)));
        own.signal(Signal::TERM);
        let status = own.end(Duration::from_secs(20)).expect("it ends");
        assert!(is_gone(sleeper) && status.success(), "{status}: {}", own.log());
    }
}
