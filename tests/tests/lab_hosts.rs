//! Experiments over several hosts: each is a network namespace with an sshd of its own, on a bridge with the
//! laboratory. Callers run on two.

mod network;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use strowger_lab::process::Process;
use strowger_lab::row::{Check, Row, Validity};
use strowger_lab::run::Recorded;
use strowger_tests::binary::strowger;
use strowger_tests::limits::SmallDisk;

use self::network::{EXPERIMENT, LIMIT, NAMES, Network, said};

/// The server of [`EXPERIMENT`] is away for a second.
const EVENTS: &str = r#"
[[event]]
at = "1s"
do = "kill"
[[event]]
at = "2s"
do = "start"
"#;

/// Only a busy machine may disturb a trial. Most calls succeed.
fn assert_sound(row: &Row) {
    let value = |figure| row.figures.value(figure).unwrap_or_else(|| panic!("{figure} of {}", row.to_line()));
    assert!(value("failed") < value("attempts") / 2.0, "{}", row.to_line());
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
    addresses_may_be_of_ipv6(&network);
    what_cannot_be_used_is_said_before(&network);
    a_clock_that_is_off_is_refused(&network);
    a_killed_agent_ends_the_run(&network);
    a_killed_laboratory_leaves_nothing(&network);
    a_cut_link_ends_the_run(&network);
    a_cut_link_to_the_server_ends_the_run(&network);
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
    // Calls of a second and more find no server.
    assert!(value("failed") + value("retransmissions") > 0.0, "{}", row.to_line());
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
    let (said, result) = capacity(network, "10.77.0.4:5060");
    assert!(said.contains("the server is sampled on north"), "{said}");
    let sampled = |trial: &Value| trial["figures"]["server.cpu"]["value"].as_f64().is_some_and(|share| share > 0.0);
    assert!(result["trials"].as_array().is_some_and(|trials| trials.iter().any(sampled)), "{result} {said}");
    server.kill();
    let (code, said) = network.run("gone", &words);
    assert!(code == Some(1) && said.contains("no answer to OPTIONS"), "{code:?}: {said}");
    assert!(network.is_quiet(), "{:?}", network.left());
}

/// Makes a short measurement of the capacity of a server on the host north: returns standard error, and the result as
/// JSON.
fn capacity(network: &Network, target: &str) -> (String, Value) {
    let mut command = network.laboratory.command();
    command.arg(strowger()).args(["lab", "capacity", target, "--server", "north", "--json", "-"]);
    command.args(["--max-rate", "40", "--trial", "1s", "--confirm", "2s"]);
    command.arg("--ssh").arg(format!("ssh -F {}", network.path("ssh.conf").display()));
    let output = command.output().expect("it runs");
    let result = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (String::from_utf8_lossy(&output.stderr).into_owned(), result)
}

fn addresses_may_be_of_ipv6(network: &Network) {
    let words = ["--caller", "west=fd77::2", "--answerer", "east=fd77::3", "--server", "north=fd77::4"];
    let (code, said) = network.run("six", &words);
    assert_eq!(code, Some(0), "{said}");
    network.rows("six").iter().for_each(assert_sound);
    let config = network.path("six/trials/0002/system/relay.toml");
    let text = std::fs::read_to_string(&config).expect("the configuration was kept");
    assert!(text.contains("\"udp:[fd77::4]:"), "{text}");
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
    for (words, part) in [
        (vec!["--caller", "west=10.77.0.99"], "west: 10.77.0.99: it is no address of that machine"),
        (
            vec!["--caller", "west=10.77.0.2", "--server", "north=fd77::4"],
            "address 10.77.0.2: it is no way to the server",
        ),
        (vec!["--caller", "west", "--system", "external=127.0.0.1"], "no other machine reaches a loopback address"),
    ] {
        let (code, said) = network.run("refused", &words);
        assert!(code == Some(2) && said.contains(part), "{words:?}: {code:?}: {said}");
    }
    let words = ["--system", "strowger", "--only", "letter=H1", "--caller", "west"];
    let output = network.command_of("stress", "", "refused", &words).output().expect("it runs");
    let (code, said_of) = (output.status.code(), said(&output));
    assert!(code == Some(2) && said_of.contains("leave out --caller"), "{code:?}: {said_of}");
    let output = network.command_of("stack", "", "refused", &["--server", "west"]).output().expect("it runs");
    let (code, said_of) = (output.status.code(), said(&output));
    assert!(code == Some(2) && said_of.contains("a command of its own makes the load"), "{code:?}: {said_of}");
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
    for (offset, part) in [("+3s", " s ahead of that of this machine"), ("-3s", " s behind that of this machine")] {
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
        let is_said = said.contains("second: its clock is ") && said.contains(part);
        assert!(code == Some(2) && is_said, "{offset}: {code:?}: {said}");
        drop(sshd);
    }
    assert!(!network.path("clock").exists());
    assert!(network.is_quiet(), "{:?}", network.left());
}

/// Asserts that the run ends, names the host and the reason, and has valid rows as far as it got.
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
    let mut lab = network.calling("agent", &["west", "east"], &["--answerer", "north"]);
    let programs = Network::programs(&network.machine("west").namespace);
    let agents: Vec<u32> =
        programs.iter().filter(|(_, words)| words.contains(" lab agent")).map(|(id, _)| *id).collect();
    let [agent] = agents[..] else { panic!("one agent of {programs:?}") };
    let status = Command::new("kill").args(["-KILL", &agent.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()));
    assert_ends(network, &mut lab, "agent", "west", "the agent has ended");
}

fn a_killed_laboratory_leaves_nothing(network: &Network) {
    let mut lab = network.calling("killed-lab", &["west", "east"], &["--answerer", "north"]);
    lab.kill();
    assert!(network.is_quiet(), "{:?}", network.left());
}

fn a_cut_link_ends_the_run(network: &Network) {
    let mut lab = network.calling("cut", &["west", "east"], &["--answerer", "north"]);
    let east = &network.machine("east").namespace;
    east.ip(&["link", "set", "eth0", "down"]);
    assert_ends(network, &mut lab, "cut", "east", "not responding");
    east.ip(&["link", "set", "eth0", "up"]);
}

/// While callers call, the server's host gets no requests.
fn a_cut_link_to_the_server_ends_the_run(network: &Network) {
    let mut lab = network.calling("cut-server", &["west"], &["--answerer", "east", "--server", "north"]);
    let north = &network.machine("north").namespace;
    north.ip(&["link", "set", "eth0", "down"]);
    assert_ends(network, &mut lab, "cut-server", "north", "not responding");
}
