//! Programs that a bench starts and measures.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A process of this bench in a group of its own, ended with it.
pub struct Running {
    child: Child,
    gone: Option<Gone>,
}

/// A process that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    pub status: ExitStatus,
    /// User and system time of the process and of the children that it waited for, to the microsecond.
    pub cpu: Duration,
}

impl Running {
    /// Starts it with its output in `log`.
    ///
    /// # Errors
    /// It cannot be started: what was tried and why not.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, String> {
        let out = File::options().create(true).append(true).open(log).map_err(|error| error.to_string())?;
        let again = out.try_clone().map_err(|error| error.to_string())?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(again).process_group(0).spawn();
        let child = child.map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Self { child, gone: None })
    }

    /// User and system time of the process and all it started, so far, in steps of the kernel's clock (10 ms).
    pub fn cpu(&self) -> Duration {
        tree(self.child.id()).into_iter().map(cpu).sum()
    }

    /// Proportional set size of the process and all it started, bytes.
    pub fn pss(&self) -> u64 {
        tree(self.child.id()).into_iter().map(pss).sum()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.wait(libc::WNOHANG).map(|gone| gone.status)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// It runs on after `limit`.
    pub fn finish(&mut self, limit: Duration) -> Result<Gone, String> {
        let end = Instant::now() + limit;
        loop {
            if let Some(gone) = self.wait(libc::WNOHANG) {
                return Ok(gone);
            }
            if Instant::now() > end {
                return Err(format!("a program runs on after {} s", limit.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it, in peace if it takes that.
    pub fn end(mut self) -> Option<Gone> {
        self.put_down();
        self.gone
    }

    fn wait(&mut self, options: i32) -> Option<Gone> {
        if self.gone.is_none() {
            let mut status = 0;
            // SAFETY: a plain C structure for which zero is a value.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: both places outlive the call; the child is ours and has not been waited for.
            let id = unsafe { libc::wait4(self.child.id() as i32, &raw mut status, options, &raw mut usage) };
            if id == self.child.id() as i32 {
                let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
                let cpu = time(usage.ru_utime) + time(usage.ru_stime);
                self.gone = Some(Gone { status: ExitStatus::from_raw(status), cpu });
            }
        }
        self.gone
    }

    fn put_down(&mut self) {
        let group = -(self.child.id() as i32);
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            if self.wait(libc::WNOHANG).is_none() || signal == libc::SIGKILL {
                // SAFETY: the group was made for this child and holds only what it started.
                unsafe { libc::kill(group, signal) };
            }
            let end = Instant::now() + Duration::from_secs(2);
            while self.wait(libc::WNOHANG).is_none() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.wait(0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.put_down();
    }
}

fn tree(id: u32) -> Vec<u32> {
    let mut all = vec![id];
    let mut at = 0;
    while let Some(&id) = all.get(at) {
        at += 1;
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    all
}

fn cpu(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let Some((_, fields)) = stat.rsplit_once(')') else { return Duration::ZERO };
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // SAFETY: sysconf has no preconditions.
    let each = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Duration::from_micros(ticks * 1_000_000 / each)
}

fn pss(id: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A port of loopback that is free for UDP and TCP.
pub fn free_port() -> u16 {
    // Below the ports that Linux gives to clients.
    let start = 20_000 + (std::process::id() % 4_000) as u16;
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    loop {
        let port = start + NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Where a program lies.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The last line of a SIPp statistics file, by the names of its columns; what is no number is 0.
pub fn figures(file: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default().split(';').map(String::from);
    let last = lines.next_back().unwrap_or_default().split(';').map(|value| value.trim().parse().unwrap_or(0));
    names.zip(last).collect()
}

/// A folder that is gone when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// A new one among the temporary ones.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(name: &str) -> Result<Self, String> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("{name}-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
