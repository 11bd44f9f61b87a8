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
        self.sysctl("net.ipv4.ip_forward=1");
        self.run(&["iptables", "-t", "nat", "-A", "POSTROUTING", "-o", out, "-j", "MASQUERADE", "--random"]);
        self.run(&[
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
        self.run(&["iptables", "-A", "FORWARD", "-i", out, "-j", "DROP"]);
    }

    /// Changes a setting of the kernel for this network, such as `net.ipv4.ip_forward=1`.
    ///
    /// # Panics
    /// The system refuses.
    pub fn sysctl(&self, setting: &str) {
        self.run(&["sysctl", "-q", "-w", setting]);
    }

    /// Returns the port to which this router translates a UDP port of a host behind it, or `None` if it has no mapping.
    ///
    /// # Panics
    /// There is no `ip`.
    pub fn translated(&self, port: u16) -> Option<u16> {
        let list = self.conntrack("-L", port);
        // The last address is the destination of the replies: the translated one.
        list.rsplit_once("dport=")?.1.split(' ').next()?.parse().ok()
    }

    /// Removes the mapping of a UDP port of a host behind this router. The next packet of the host gets another port.
    ///
    /// # Panics
    /// There is no mapping.
    pub fn forget(&self, port: u16) {
        let removed = self.conntrack("-D", port);
        assert!(removed.contains("dport="), "the router has no mapping of port {port}");
    }

    /// Runs `conntrack` with this action for the flows from a UDP port. Returns the list of these flows.
    fn conntrack(&self, action: &str, port: u16) -> String {
        let port = port.to_string();
        let output = self.command().args(["conntrack", action, "-p", "udp", "--orig-port-src", &port]).output();
        String::from_utf8_lossy(&output.expect("ip runs").stdout).into_owned()
    }

    /// Starts to count the UDP datagrams that arrive, at any port.
    ///
    /// # Panics
    /// The system refuses.
    pub fn count_datagrams(&self) {
        self.run(&["iptables", "-A", "INPUT", "-p", "udp"]);
    }

    /// Returns the number of UDP datagrams that have arrived since [`Namespace::count_datagrams`].
    ///
    /// # Panics
    /// They are not counted.
    pub fn datagrams(&self) -> u64 {
        let output = self.command().args(["iptables", "-v", "-S", "INPUT"]).output().expect("ip runs");
        let rules = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = rules.split_once("-p udp -c ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        count.unwrap_or_else(|| panic!("no counter in {rules}"))
    }

    /// Runs a program inside, which must succeed.
    fn run(&self, words: &[&str]) {
        must("ip", &[&["netns", "exec", &self.name], words].concat());
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
