//! Network of the tests: a laboratory and three hosts, each a namespace with an sshd, on a bridge.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use strowger_lab::process::Process;
use strowger_lab::program::Program;
use strowger_lab::row::Row;
use strowger_lab::run::Recorded;
use strowger_lab::wait;
use strowger_tests::binary::strowger;
use strowger_tests::namespace::Namespace;
use strowger_tests::program::{self, IP};
use tempfile::TempDir;

const SSHD: Program = Program { name: "sshd", package: "openssh-server" };
const SSH: Program = Program { name: "ssh", package: "openssh-client" };
const FAKETIME: Program = Program { name: "faketime", package: "faketime" };

/// Time limit for the end of a run and of its remote processes, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// Window of a trial that is cut short, in seconds: longer than [`LIMIT`], so that the trial cannot end by itself
/// within that time.
pub(crate) const LONG: u32 = 900;

pub(crate) const EXPERIMENT: &str = r#"
title = "A relay between hosts"
[call]
document = "call"
answer = "answer"
[load]
values = [60]
[[system]]
name = "strowger"
configuration = "relay"
[profile.smoke]
warm_up = "0.5s"
window = "@WINDOW@s"
repetitions = 1
[[figure]]
name = "cost"
title = "CPU of a call"
form = "table"
y = ["server.cpu.call", "server.pss"]
"#;

/// Host of the test: a namespace with an sshd.
pub(crate) struct Machine {
    name: &'static str,
    pub(crate) namespace: Namespace,
    _sshd: Process,
}

/// Laboratory and three hosts.
pub(crate) struct Network {
    pub(crate) folder: TempDir,
    pub(crate) laboratory: Namespace,
    machines: Vec<Machine>,
}

pub(crate) const NAMES: [&str; 3] = ["west", "east", "north"];

fn address(number: usize) -> String {
    format!("10.77.0.{}", number + 2)
}

fn address_v6(number: usize) -> String {
    format!("fd77::{}", number + 2)
}

impl Network {
    /// Creates the network. `None` if a program or a right is missing, with a message.
    pub(crate) fn new() -> Option<Self> {
        if !program::have(&[IP, SSHD, SSH, FAKETIME]) {
            return None;
        }
        if !program::is_root() {
            program::skipped("network namespaces need root");
            return None;
        }
        // sshd drops its rights in this empty folder.
        std::fs::create_dir_all("/run/sshd").expect("root may make it");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let laboratory = Namespace::new("lab");
        laboratory.ip(&["link", "add", "br0", "type", "bridge"]);
        laboratory.ip(&["address", "add", "10.77.0.1/24", "dev", "br0"]);
        laboratory.ip(&["address", "add", "fd77::1/64", "dev", "br0", "nodad"]);
        laboratory.ip(&["link", "set", "br0", "up"]);
        keygen(&folder.path().join("key"));
        let mut network = Self { folder, laboratory, machines: Vec::new() };
        let (mut known, mut hosts) = (String::new(), String::new());
        for (number, name) in NAMES.into_iter().enumerate() {
            let namespace = Namespace::new(name);
            let port = format!("port{number}");
            network.laboratory.join(
                (&port, &format!("169.254.77.{number}/32")),
                &namespace,
                ("eth0", &format!("{}/24", address(number))),
            );
            network.laboratory.ip(&["link", "set", &port, "master", "br0"]);
            namespace.ip(&["address", "add", &format!("{}/64", address_v6(number)), "dev", "eth0", "nodad"]);
            keygen(&network.path(&format!("host-{name}")));
            let key = std::fs::read_to_string(network.path(&format!("host-{name}.pub"))).expect("its key");
            known.push_str(&format!("{} {key}", address(number)));
            hosts.push_str(&format!("Host {name}\n  HostName {}\n", address(number)));
            let sshd = network.sshd(&namespace, name, number, 22, "");
            network.machines.push(Machine { name, namespace, _sshd: sshd });
        }
        known.push_str(
            &known.lines().map(|line| format!("[{}", line.replacen(' ', "]:2222 ", 1)) + "\n").collect::<String>(),
        );
        // A host with another key.
        let wrong = known.lines().next().expect("west").replacen(&address(0), "stranger", 1);
        std::fs::write(network.path("known"), known + &wrong + "\n").expect("it is written");
        hosts.push_str(&format!("Host stranger\n  HostName {}\n  HostKeyAlias stranger\n", address(1)));
        hosts.push_str(&format!(
            "Host keyless\n  HostName {}\n  IdentityFile {}\n",
            address(0),
            network.path("other").display()
        ));
        keygen(&network.path("other"));
        hosts.push_str("Host absent\n  HostName 10.77.0.99\n");
        hosts.push_str(&format!("Host second\n  HostName {}\n  Port 2222\n", address(0)));
        hosts.push_str(&format!(
            "Host * !keyless\n  IdentityFile {}\nHost *\n  User root\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  \
             GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  ControlMaster no\n",
            network.path("key").display(),
            network.path("known").display()
        ));
        std::fs::write(network.path("ssh.conf"), hosts).expect("it is written");
        Some(network)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn machine(&self, name: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.name == name).expect("one of the three")
    }

    /// Starts an sshd, whose sessions have a cache and a temporary folder of their own, and this environment.
    pub(crate) fn sshd(
        &self,
        namespace: &Namespace,
        name: &str,
        number: usize,
        port: u16,
        environment: &str,
    ) -> Process {
        let cache = self.path(&format!("{name}-{port}"));
        self.sshd_with(namespace, name, number, port, &cache, environment)
    }

    pub(crate) fn sshd_with(
        &self,
        namespace: &Namespace,
        name: &str,
        number: usize,
        port: u16,
        cache: &Path,
        environment: &str,
    ) -> Process {
        let own = self.path(&format!("{name}-{port}"));
        std::fs::create_dir_all(own.join("tmp")).expect("a folder");
        let text = format!(
            "Port {port}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
             SetEnv XDG_CACHE_HOME={} TMPDIR={} {environment}\n",
            address(number),
            self.path(&format!("host-{name}")).display(),
            self.path("key.pub").display(),
            cache.display(),
            own.join("tmp").display(),
        );
        let config = own.join("sshd.conf");
        std::fs::write(&config, text).expect("it is written");
        let mut command = namespace.command();
        command.arg(SSHD.find().expect("it is there")).arg("-D").arg("-e").arg("-f").arg(&config);
        let mut sshd = Process::start("sshd", &own, &mut command).expect("it starts");
        sshd.listens(port, Duration::from_secs(20)).expect("it listens");
        sshd
    }

    /// Run of the experiment in the namespace of the laboratory.
    fn command(&self, window: u32, out: &str, words: &[&str]) -> Command {
        self.command_of("mine.toml", &EXPERIMENT.replace("@WINDOW@", &window.to_string()), out, words)
    }

    /// Returns the run of an experiment with this text, or of the shipped one without a text.
    pub(crate) fn command_of(&self, experiment: &str, text: &str, out: &str, words: &[&str]) -> Command {
        if !text.is_empty() {
            std::fs::write(self.path(experiment), text).expect("it is written");
        }
        let scratch = self.path("scratch");
        std::fs::create_dir_all(&scratch).expect("a folder");
        let mut command = self.laboratory.command();
        command.arg(strowger()).args(["lab", "run", experiment, "--profile", "smoke", "--out", out]).args(words);
        command.arg("--ssh").arg(format!("ssh -F {}", self.path("ssh.conf").display()));
        command.current_dir(self.folder.path()).env("TMPDIR", scratch);
        command
    }

    pub(crate) fn run(&self, out: &str, words: &[&str]) -> (Option<i32>, String) {
        let output = self.command(2, out, words).output().expect("it runs");
        (output.status.code(), said(&output))
    }

    /// Returns the command lines of strowger processes in a namespace.
    pub(crate) fn programs(namespace: &Namespace) -> Vec<(u32, String)> {
        let command_line = |id: u32| {
            let words = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            words.contains("strowger").then_some((id, words))
        };
        namespace
            .processes()
            .into_iter()
            .filter_map(command_line)
            .filter(|(_, words)| !words.starts_with("sshd"))
            .collect()
    }

    /// Returns all remaining processes of ours, except the sshd.
    pub(crate) fn left(&self) -> Vec<(u32, String)> {
        let all = self.machines.iter().map(|machine| &machine.namespace).chain([&self.laboratory]);
        all.flat_map(Self::programs).filter(|(_, words)| !words.contains("sshd.conf")).collect()
    }

    pub(crate) fn is_quiet(&self) -> bool {
        wait::until(LIMIT, || self.left().is_empty())
    }

    /// Starts a run with a long window, and waits until all these hosts call.
    pub(crate) fn calling(&self, out: &str, callers: &[&str], others: &[&str]) -> Process {
        let words: Vec<&str> =
            callers.iter().flat_map(|name| ["--caller", name]).chain(others.iter().copied()).collect();
        let mut command = self.command(LONG, out, &words);
        let mut lab = Process::start(&format!("lab-{out}"), self.folder.path(), &mut command).expect("it starts");
        // The floor has a window of five seconds at most: only the calls of the system count.
        let duration = format!("--duration {LONG}500ms");
        let calls = |name: &str| {
            let programs = Self::programs(&self.machine(name).namespace);
            programs.iter().any(|(_, words)| words.contains(&duration))
        };
        lab.comes_to("call", LIMIT, |_| callers.iter().all(|name| calls(name))).expect("all call");
        lab
    }

    pub(crate) fn rows(&self, out: &str) -> Vec<Row> {
        Recorded::open(&self.path(out)).unwrap_or_else(|error| panic!("{error}")).rows
    }
}

fn keygen(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    assert!(command.status().is_ok_and(|status| status.success()));
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
