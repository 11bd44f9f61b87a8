//! Experiments over several hosts: each is a network namespace with an sshd of its own, on a bridge with the laboratory. Callers are on two.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use strowger_lab::process::Process;
use strowger_lab::program::Program;
use strowger_lab::row::{Check, Row, Validity};
use strowger_lab::run::Recorded;
use strowger_lab::wait;
use strowger_tests::binary::strowger;
use strowger_tests::limits::SmallDisk;
use strowger_tests::namespace::Namespace;
use strowger_tests::program::{self, IP};
use tempfile::TempDir;

const SSHD: Program = Program { name: "sshd", package: "openssh-server" };
const SSH: Program = Program { name: "ssh", package: "openssh-client" };
const FAKETIME: Program = Program { name: "faketime", package: "faketime" };

/// Time in which a run of these tests ends, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// Time in which agents end what they started after their connection is gone.
const END: Duration = Duration::from_secs(30);

const EXPERIMENT: &str = r#"
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

/// The server of [`EXPERIMENT`] is away for a second.
const EVENTS: &str = r#"
[[event]]
at = "1s"
do = "kill"
[[event]]
at = "2s"
do = "start"
"#;

/// Host of the test: a namespace with an sshd.
struct Machine {
    name: &'static str,
    namespace: Namespace,
    _sshd: Process,
}

/// Laboratory and three hosts.
struct Network {
    folder: TempDir,
    laboratory: Namespace,
    machines: Vec<Machine>,
}

const NAMES: [&str; 3] = ["west", "east", "north"];

fn address(number: usize) -> String {
    format!("10.77.0.{}", number + 2)
}

impl Network {
    /// None where a program or a right is missing, which is said loudly.
    fn new() -> Option<Self> {
        if !program::have(&[IP, SSHD, SSH, FAKETIME]) {
            return None;
        }
        if !program::is_root() {
            program::skipped("network namespaces need root");
            return None;
        }
        // sshd gives up its rights in this empty folder.
        std::fs::create_dir_all("/run/sshd").expect("root may make it");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let laboratory = Namespace::new("lab");
        laboratory.ip(&["link", "add", "br0", "type", "bridge"]);
        laboratory.ip(&["address", "add", "10.77.0.1/24", "dev", "br0"]);
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
        // A host whose key is another one.
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

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn machine(&self, name: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.name == name).expect("one of the three")
    }

    /// Starts an sshd, whose sessions have a cache and a temporary folder of their own, and this environment.
    fn sshd(&self, namespace: &Namespace, name: &str, number: usize, port: u16, environment: &str) -> Process {
        let cache = self.path(&format!("{name}-{port}"));
        self.sshd_with(namespace, name, number, port, &cache, environment)
    }

    fn sshd_with(
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

    /// Run of an experiment with this text, or without a text of the shipped one.
    fn command_of(&self, experiment: &str, text: &str, out: &str, words: &[&str]) -> Command {
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

    fn run(&self, out: &str, words: &[&str]) -> (Option<i32>, String) {
        let output = self.command(2, out, words).output().expect("it runs");
        (output.status.code(), said(&output))
    }

    /// Command lines of the processes of strowger in a namespace.
    fn programs(namespace: &Namespace) -> Vec<(u32, String)> {
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

    /// Everything of ours that still runs, but for the sshd.
    fn left(&self) -> Vec<(u32, String)> {
        let all = self.machines.iter().map(|machine| &machine.namespace).chain([&self.laboratory]);
        all.flat_map(Self::programs).filter(|(_, words)| !words.contains("sshd.conf")).collect()
    }

    fn is_quiet(&self) -> bool {
        wait::until(END, || self.left().is_empty())
    }

    /// Starts a run of a long window, and waits until both hosts call.
    fn calling(&self, out: &str) -> Process {
        let words = ["--caller", "west", "--caller", "east", "--answerer", "north"];
        let mut command = self.command(60, out, &words);
        let mut lab = Process::start(&format!("lab-{out}"), self.folder.path(), &mut command).expect("it starts");
        // The floor has a window of five seconds at most: the calls of the system are those that count.
        let calls = |name: &str| {
            let programs = Self::programs(&self.machine(name).namespace);
            programs.iter().any(|(_, words)| words.contains("--duration 60500ms"))
        };
        lab.comes_to("call", LIMIT, |_| calls("west") && calls("east")).expect("both call");
        lab
    }

    fn rows(&self, out: &str) -> Vec<Row> {
        Recorded::open(&self.path(out)).unwrap_or_else(|error| panic!("{error}")).rows
    }
}

fn keygen(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    assert!(command.status().is_ok_and(|status| status.success()));
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A busy machine may disturb a trial; nothing else may.
fn assert_sound(row: &Row) {
    let Validity::Reasons(reasons) = &row.validity else { return };
    let disturbs =
        |check| matches!(check, Check::Generator | Check::Stolen | Check::Neighbour | Check::Samples | Check::Rate);
    assert!(reasons.iter().all(|reason| disturbs(reason.check)), "{reasons:?}");
}

#[test]
#[ignore = "minutes; make test-long"]
fn hosts_call_answer_and_serve_and_leave_nothing_behind() {
    let Some(network) = Network::new() else { return };
    callers_share_the_load(&network);
    a_server_on_a_host_is_sampled_there(&network);
    a_server_on_a_host_is_killed_and_started(&network);
    a_server_that_runs_is_sampled_by_its_login(&network);
    what_cannot_be_used_is_said_before(&network);
    a_clock_that_is_off_is_refused(&network);
    a_killed_agent_ends_the_run(&network);
    a_killed_laboratory_leaves_nothing(&network);
    a_cut_link_ends_the_run(&network);
}

fn callers_share_the_load(network: &Network) {
    let (code, said) = network.run("shared", &["--caller", "west", "--caller", "east", "--answerer", "north"]);
    assert_eq!(code, Some(0), "{said}");
    let recorded = Recorded::open(&network.path("shared")).unwrap_or_else(|error| panic!("{error}"));
    let roles = |name: &str| recorded.description.hosts.get(name).map(|host| host.roles.join(" "));
    assert_eq!(NAMES.map(roles), ["caller", "caller", "answerer"].map(|role| Some(role.to_owned())));
    let row = recorded.rows.iter().find(|row| row.system.name == "strowger").expect("a row of the system");
    assert_sound(row);
    let value = |figure| row.figures.value(figure).unwrap_or_else(|| panic!("{figure} of {}", row.to_line()));
    assert_eq!(value("failed"), 0.0, "{}", row.to_line());
    assert!((118.0..=122.0).contains(&value("attempts")), "{}", row.to_line());
    assert!(value("server.cpu.call") > 0.0 && value("srd.p95") > 0.0);
    let trial = network.path("shared/trials/0002");
    for file in ["caller-1.results", "caller-2.results", "answer-1.results", "answer-2.results", "caller-1.log"] {
        assert!(trial.join(file).is_file(), "{file}");
    }
    assert!(network.is_quiet(), "{:?}", network.left());
    // The program is copied once.
    let copies = std::fs::read_dir(network.path("west-22/strowger")).expect("its cache").count();
    assert_eq!(copies, 1);
}

fn a_server_on_a_host_is_sampled_there(network: &Network) {
    let (code, said) =
        network.run("served", &["--caller", "west", "--caller", "east", "--answerer", "west", "--server", "north"]);
    assert_eq!(code, Some(0), "{said}");
    let rows = network.rows("served");
    for row in &rows {
        assert_sound(row);
        for figure in ["server.cpu.call", "server.pss", "machine.cpu", "machine.other"] {
            assert!(row.figures.value(figure).is_some_and(|value| value >= 0.0), "{figure} of {}", row.to_line());
        }
        assert_eq!(row.figures.value("failed"), Some(0.0), "{}", row.to_line());
    }
    assert!(network.path("served/trials/0002/system/relay.toml").is_file());
    assert!(network.is_quiet(), "{:?}", network.left());
}

fn a_server_on_a_host_is_killed_and_started(network: &Network) {
    let text = EXPERIMENT.replace("@WINDOW@", "5") + EVENTS;
    let words = ["--caller", "west", "--answerer", "east", "--server", "north"];
    let output = network.command_of("events.toml", &text, "killed", &words).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let rows = network.rows("killed");
    let row = rows.iter().find(|row| row.system.name == "strowger").expect("a row of the system");
    assert_sound(row);
    let value = |figure| row.figures.value(figure).unwrap_or_else(|| panic!("{figure} of {}", row.to_line()));
    // Of 300 calls those of a second and more find no server.
    let carried = value("attempts") - value("failed");
    assert!(value("failed") + value("retransmissions") > 0.0 && carried > 100.0, "{}", row.to_line());
    assert!(value("server.cpu.call") > 0.0 && value("server.pss") > 0.0, "{}", row.to_line());
    assert!(network.is_quiet(), "{:?}", network.left());
}

fn a_server_that_runs_is_sampled_by_its_login(network: &Network) {
    let north = &network.machine("north").namespace;
    let config = network.path("relay.toml");
    let text = "listen = [\"udp:10.77.0.4:5060\"]\ndomains = []\n[proxy]\nrelay_for = \"everyone\"\n[registrar]\n\
                durability = \"none\"\n[store]\ndatabase = \"memory\"\n";
    std::fs::write(&config, text).expect("it is written");
    let mut command = north.command();
    command.arg(strowger()).args(["serve", "--config"]).arg(&config);
    let mut server = Process::start("server", network.folder.path(), &mut command).expect("it starts");
    server.listens(5060, Duration::from_secs(30)).expect("it listens");
    let words = ["--system", "external=10.77.0.4:5060", "--server", "north", "--caller", "west", "--answerer", "east"];
    let (code, said) = network.run("external", &words);
    assert_eq!(code, Some(0), "{said}");
    let rows = network.rows("external");
    let row = rows.iter().find(|row| row.system.name == "external").expect("a row");
    for figure in ["server.cpu.call", "server.pss", "machine.cpu"] {
        assert!(row.figures.value(figure).is_some_and(|value| value > 0.0), "{figure} of {}", row.to_line());
    }
    assert!(row.figures.largest("server.thread/").is_some(), "{}", row.to_line());
    server.kill();
    let (code, said) = network.run("gone", &words);
    assert!(code == Some(1) && said.contains("no answer to OPTIONS"), "{code:?}: {said}");
    assert!(network.is_quiet(), "{:?}", network.left());
}

fn what_cannot_be_used_is_said_before(network: &Network) {
    for (host, part) in [
        ("keyless", "Permission denied"),
        ("stranger", "accept it once by `ssh stranger`"),
        ("absent", "see that `ssh absent true` works"),
    ] {
        let (code, said) = network.run("refused", &["--caller", host]);
        assert!(
            code == Some(2) && said.contains(&format!("{host}: ")) && said.contains(part),
            "{host}: {code:?}: {said}"
        );
    }
    let words = ["--system", "strowger", "--only", "letter=F", "--caller", "west"];
    let output = network.command_of("stress", "", "refused", &words).output().expect("it runs");
    let (code, said_of) = (output.status.code(), said(&output));
    assert!(code == Some(2) && said_of.contains("leave out --caller"), "{code:?}: {said_of}");
    if let Some(disk) = SmallDisk::mount("256k") {
        let west = &network.machine("west").namespace;
        let sshd = network.sshd_with(west, "west", 0, 2222, disk.folder(), "");
        let (code, said) = network.run("refused", &["--caller", "second"]);
        assert!(code == Some(2) && said.contains("No space left on device"), "{code:?}: {said}");
        assert!(said.contains("has ") && said.contains(" MB free"), "{said}");
        drop(sshd);
    }
    assert!(!network.path("refused").exists());
    assert!(network.is_quiet(), "{:?}", network.left());
}

fn a_clock_that_is_off_is_refused(network: &Network) {
    let west = &network.machine("west").namespace;
    for (offset, part) in [("+3s", "its clock is 3.0 s ahead of"), ("-3s", "its clock is 3.0 s behind")] {
        let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
        let library =
            if Path::new(library).exists() { library } else { "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1" };
        let sshd = network.sshd(
            west,
            "west",
            0,
            2222,
            &format!("LD_PRELOAD={library} FAKETIME={offset} FAKETIME_DONT_FAKE_MONOTONIC=1"),
        );
        let (code, said) = network.run("clock", &["--caller", "second"]);
        assert!(code == Some(2) && said.contains(&format!("second: {part}")), "{offset}: {code:?}: {said}");
        drop(sshd);
    }
    assert!(!network.path("clock").exists());
    assert!(network.is_quiet(), "{:?}", network.left());
}

/// The run ends, names the host and the reason, and its rows are a valid part.
fn assert_ends(network: &Network, lab: &mut Process, out: &str, host: &str, reason: &str) {
    let status = lab.end(LIMIT).expect("it ends");
    let log = lab.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains(&format!("{host}: the connection is gone (")) && log.contains(reason), "{log}");
    assert!(log.contains("--resume goes on"), "{log}");
    assert!(network.is_quiet(), "{:?}", network.left());
    assert_eq!(network.rows(out).len(), 1, "the floor was measured before");
}

fn a_killed_agent_ends_the_run(network: &Network) {
    let mut lab = network.calling("agent");
    let programs = Network::programs(&network.machine("west").namespace);
    let agents: Vec<u32> =
        programs.iter().filter(|(_, words)| words.contains(" lab agent")).map(|(id, _)| *id).collect();
    let [agent] = agents[..] else { panic!("one agent of {programs:?}") };
    let status = Command::new("kill").args(["-KILL", &agent.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()));
    assert_ends(network, &mut lab, "agent", "west", "the agent has ended");
}

fn a_killed_laboratory_leaves_nothing(network: &Network) {
    let mut lab = network.calling("killed");
    lab.kill();
    assert!(network.is_quiet(), "{:?}", network.left());
}

fn a_cut_link_ends_the_run(network: &Network) {
    let mut lab = network.calling("cut");
    let east = &network.machine("east").namespace;
    east.ip(&["link", "set", "eth0", "down"]);
    assert_ends(network, &mut lab, "cut", "east", "not responding");
    east.ip(&["link", "set", "eth0", "up"]);
}
