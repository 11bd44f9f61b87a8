//! Networks of a test: namespaces joined by virtual cables, and routers that translate addresses.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::program::{self, IP, IPTABLES};

/// Network namespace; the drop removes it with its cables.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// Tells whether networks can be created here.
///
/// # Panics
/// Networks cannot be created, and `STROWGER_ALLOW_MISSING` is not 1.
pub fn possible() -> bool {
    if !program::have(&[IP, IPTABLES]) {
        return false;
    }
    if !program::is_root() {
        program::skipped("network namespaces need root");
        return false;
    }
    let name = new_name("try");
    let made = run("ip", &["netns", "add", &name]);
    let translates = made.is_ok()
        && run("ip", &["netns", "exec", &name, "iptables", "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE"])
            .is_ok();
    if made.is_ok() {
        let _ = run("ip", &["netns", "delete", &name]);
    }
    if !translates {
        program::skipped("this machine does not let root make network namespaces with address translation");
    }
    translates
}

impl Namespace {
    /// Creates a namespace with its loopback up.
    ///
    /// # Panics
    /// The system refuses.
    pub fn new(word: &str) -> Self {
        let this = Self { name: new_name(word) };
        must("ip", &["netns", "add", &this.name]);
        this.ip(&["link", "set", "lo", "up"]);
        this
    }

    /// Runs `ip` inside.
    ///
    /// # Panics
    /// The command fails.
    pub fn ip(&self, words: &[&str]) {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend(words);
        must("ip", &all);
    }

    /// Returns the ids of the processes inside.
    ///
    /// # Panics
    /// The system refuses.
    pub fn processes(&self) -> Vec<u32> {
        let output = Command::new("ip").args(["netns", "pids", &self.name]).output().expect("ip runs");
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Joins two namespaces by a cable. Each end has a name, and an address with its prefix.
    ///
    /// # Panics
    /// The system refuses.
    pub fn join(&self, end: (&str, &str), other: &Self, other_end: (&str, &str)) {
        self.ip(&["link", "add", end.0, "type", "veth", "peer", "name", other_end.0, "netns", &other.name]);
        for (namespace, (name, address)) in [(self, end), (other, other_end)] {
            namespace.ip(&["address", "add", address, "dev", name]);
            namespace.ip(&["link", "set", name, "up"]);
        }
    }

    /// Sets the default route to this neighbour.
    ///
    /// # Panics
    /// The system refuses.
    pub fn default_route(&self, by: &str) {
        self.ip(&["route", "add", "default", "via", by]);
    }

    /// Makes this namespace a router. It translates the source of packets that leave by `out` to its own address, and
    /// rejects incoming packets that no host inside requested.
    ///
    /// # Panics
    /// The system refuses.
    pub fn translate(&self, out: &str) {
        let inside = |words: &[&str]| {
            let mut all = vec!["netns", "exec", self.name.as_str()];
            all.extend(words);
            must("ip", &all);
        };
        inside(&["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]);
        inside(&["iptables", "-t", "nat", "-A", "POSTROUTING", "-o", out, "-j", "MASQUERADE", "--random"]);
        inside(&[
            "iptables",
            "-A",
            "FORWARD",
            "-i",
            out,
            "-m",
            "state",
            "--state",
            "ESTABLISHED,RELATED",
            "-j",
            "ACCEPT",
        ]);
        inside(&["iptables", "-A", "FORWARD", "-i", out, "-j", "DROP"]);
    }

    /// Returns the words that run a program inside.
    pub fn words(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(String::from).to_vec()
    }

    /// Opens a connection from inside the namespace.
    ///
    /// # Errors
    /// Error of the system.
    pub fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.inside(|| TcpStream::connect(address))
    }

    /// Creates sockets inside the namespace; they belong to its network wherever they are used.
    ///
    /// # Errors
    /// Error of the system.
    ///
    /// # Panics
    /// `make` panics.
    pub fn inside<T: Send>(&self, make: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let file = File::open(format!("/run/netns/{}", self.name))?;
        std::thread::scope(|scope| {
            // A separate thread, because entering a namespace affects the thread.
            let thread = scope.spawn(move || {
                // SAFETY: the descriptor is open during the call; only this thread's network changes.
                match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
                    0 => make(),
                    _ => Err(io::Error::last_os_error()),
                }
            });
            thread.join().expect("making a socket does not panic")
        })
    }

    /// Returns a command that runs a program inside the namespace; the caller adds the program and its arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "delete", &self.name]);
    }
}

fn new_name(word: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("strowger-{}-{word}{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    match Command::new(program).args(words).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn must(program: &str, words: &[&str]) {
    if let Err(error) = run(program, words) {
        panic!("{program} {}: {error}", words.join(" "));
    }
}
