//! Systems under test: files, starts, faults.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strowger_lab::document::{self, Parties};
use strowger_lab::experiment::{Experiment, SHIPPED, combinations, fill};
use strowger_lab::system::{self, Ready, Setting, SystemFolder, can_limit, check, start};
use tempfile::TempDir;

/// Program that binds the UDP port of its second argument, prints, and waits.
const STUB: &str = "import socket,sys,signal
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
s.bind(('127.0.0.1',int(open(sys.argv[1]).read())))
print('serving',flush=True)
signal.pause()
";

/// Creates the folder of a system with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("it can be written");
    }
    folder
}

fn open(folder: &Path) -> SystemFolder {
    SystemFolder::open("mine", folder.to_str()).unwrap_or_else(|error| panic!("{error}"))
}

/// Creates the folder of a system that is a Python script, with further lines in its `driver.toml`.
fn stub(script: &str, more: &str) -> TempDir {
    let driver = format!(
        "title = \"Stub\"\nprogram = \"python3\"\nstart = [\"@PROGRAM@\", \"@FOLDER@/stub.py\", \"@CONFIG@\", \"@WORDS@\"]\n\
         {more}\n[[scenario]]\nname = \"relay\"\nconfiguration = \"port\"\nfiles = [\"stub.py\"]\nwords = [\"@WORKERS@\"]\n"
    );
    folder(&[("driver.toml", &driver), ("port", "@PORT@"), ("stub.py", script)])
}

#[test]
fn the_bracket_of_an_address_in_a_document_is_no_keyword() {
    let answer = "[fd77::3]:5060".parse().expect("an address");
    let parties = Parties { users: 0, answer, hold: Duration::ZERO };
    let text = document::text("call", &parties).unwrap_or_else(|error| panic!("{error}"));
    assert!(text.contains("sip:service@\\x5bfd77::3]:5060"), "{text}");
}

#[test]
fn every_experiment_names_configurations_documents_and_backends_that_exist() {
    let parties = Parties { users: 1, answer: ([127, 0, 0, 1], 9).into(), hold: Duration::from_millis(100) };
    let mut seen = 0;
    for (name, _) in SHIPPED {
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        let axes = experiment.axes.iter().flat_map(|axis| axis.documents.values());
        let answer = experiment.call.answer.iter().filter(|name| *name != document::ANSWER);
        for document in axes.chain([&experiment.call.document]).chain(answer) {
            document::text(document, &parties).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for spec in &experiment.systems {
            let system = SystemFolder::open(&spec.driver, None).unwrap_or_else(|error| panic!("{name}: {error}"));
            for axes in combinations(&experiment, &BTreeMap::new()).iter().filter(|axes| spec.has(axes)) {
                let configuration = experiment.configuration(spec, axes);
                let place = format!("{name}, {}, {configuration}", spec.name);
                let scenario = system.scenario(&configuration).unwrap_or_else(|| panic!("{place}: no such scenario"));
                let beside: Vec<String> = spec.beside.iter().map(|name| fill(name, axes)).collect();
                let known = |name: &String| strowger_lab::backend::Beside::NAMES.contains(&name.as_str());
                assert!(beside.iter().all(known), "{place}: {beside:?}");
                let is_met = |need: &String| beside.iter().any(|name| strowger_lab::backend::Beside::meets(name, need));
                assert!(scenario.needs.iter().all(is_met), "{place}: {beside:?}, {scenario:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn a_run_keeps_the_files_of_its_scenarios() {
    let system = SystemFolder::open("kamailio", None).expect("it is shipped");
    let names =
        |scenarios: &[&str]| -> Vec<&str> { system.files_of(scenarios).into_iter().map(|(name, _)| name).collect() };
    assert_eq!(names(&["proxy"]), ["dispatcher.list", "driver.toml", "proxy.cfg"]);
    assert_eq!(names(&["relay", "relay", "register"]), ["driver.toml", "register.cfg", "relay.cfg"]);
    assert_eq!(names(&[]), ["driver.toml"]);
}

#[test]
fn shipped_systems_are_written_and_read_again() {
    for (name, files) in system::SHIPPED {
        // One that runs already has no folder of its own to open.
        if *name == "external" {
            continue;
        }
        let shipped = SystemFolder::open(name, None).unwrap_or_else(|error| panic!("{error}"));
        let folder = tempfile::tempdir().expect("a temporary folder");
        shipped.write(folder.path()).expect("it can be written");
        let again = open(folder.path());
        assert_eq!((again.driver(), again.files().len()), (shipped.driver(), files.len()), "{name}");
        for scenario in &shipped.driver().scenarios {
            assert_eq!(again.digest(&scenario.name), shipped.digest(&scenario.name));
        }
    }
    let kamailio = SystemFolder::open("kamailio", None).expect("it is shipped");
    assert_ne!(kamailio.digest("stress-A"), kamailio.digest("stress-B"));
}

#[test]
fn faults_of_a_driver_have_a_line_and_a_cure() {
    let right = "title = \"Mine\"\nprogram = \"mine\"\nstart = [\"@PROGRAM@\", \"@CONFIG@\"]\n[[scenario]]\nname = \"relay\"\n\
                 configuration = \"relay.cfg\"\n";
    let cases = [
        ("start =", "begin =", "driver.toml:3:1", "write start"),
        ("\"@CONFIG@\"", "\"@CONFG@\"", "driver.toml:3:", "write @CONFIG@"),
        ("\"@CONFIG@\"]", "7]", "driver.toml:3:", "write start = ["),
        ("relay.cfg", "relais.cfg", "driver.toml:6:", "write relais.cfg beside driver.toml"),
        ("relay.cfg", "wrong.cfg", "driver.toml:6:", "write @PORT@"),
        ("configuration = \"relay.cfg\"", "", "driver.toml:4:", "or start without @CONFIG@"),
        ("name =", "ready = \"upd\"\nname =", "driver.toml:5:1", "has name, configuration"),
        ("program =", "ready = \"upd\"\nprogram =", "driver.toml:2:", "write udp"),
        ("relay.cfg\"", "relay.cfg\"\nneeds = [\"redi\"]", "driver.toml:7:", "write redis"),
        ("relay.cfg\"", "relay.cfg\"\nwords = [\"-x\"]", "driver.toml:7:", "put \"@WORDS@\" into start"),
        ("relay.cfg\"", "relay.cfg\"\nrows = { per_call = 2 }", "driver.toml:7:", "write table = \"acc\""),
        ("relay.cfg\"", "relay.cfg\"\nentries = { behind = \"all\" }", "driver.toml:7:", "write command = ["),
        ("relay.cfg\"", "relay.cfg\"\nentries = { command = [\"a\"] }", "driver.toml:7:", "write behind = "),
        ("relay.cfg\"", "relay.cfg\"\n[[scenario]]\nname = \"relay\"", "driver.toml:8:", "a name of its own"),
        ("title = \"Mine\"", "external = true", "driver.toml:1:", "write title"),
        ("title =", "external = true\ntitle =", "driver.toml:3:", "remove it"),
        ("[[scenario]]", "[[scenaro]]", "driver.toml:4:", "write scenario"),
        ("program = \"mine\"", "program = mine", "driver.toml:2:", ""),
    ];
    for (from, to, place, cure) in cases {
        let text = right.replacen(from, to, 1);
        let folder = folder(&[("driver.toml", &text), ("relay.cfg", "port @PORT@"), ("wrong.cfg", "port\n@PROT@")]);
        let error = SystemFolder::open("mine", folder.path().to_str()).expect_err(&text).to_string();
        assert!(error.contains(place) && error.contains(cure), "{from} -> {to}: {error}");
    }
    let folder = folder(&[("driver.toml", right), ("relay.cfg", "port @PORT@")]);
    assert_eq!(open(folder.path()).driver().ready, Ready::Udp);
}

#[test]
fn a_name_or_path_that_leads_nowhere_is_refused_with_its_cure() {
    let refused = |driver: &str, given: Option<&str>| {
        SystemFolder::open(driver, given).expect_err("it leads nowhere").to_string()
    };
    assert_eq!(refused("kamailo", None), "system kamailo: no driver has this name: write kamailio");
    assert!(refused("mine", None).contains("or mine=FOLDER with a driver.toml"));
    assert!(refused("external", None).contains("write --system external=HOST:PORT"));
    assert!(refused("external", Some("/bin/sh")).contains("has no program"));
    assert!(refused("strowger", Some("/no/such/program")).contains("neither a file nor a folder"));
    assert!(refused("mine", Some("/bin/sh")).starts_with("system mine: no driver has this name"));
    let empty = tempfile::tempdir().expect("a temporary folder");
    assert!(refused("mine", empty.path().to_str()).contains("has no driver.toml"));
    let opensips = SystemFolder::open("opensips", Some("/bin/sh")).expect("a program is given");
    assert!(opensips.program().is_ok_and(|program| program.is_absolute()));
    let missing = SystemFolder::open("opensips", None).and_then(|system| system.program());
    assert!(missing.is_err_and(|error| error.to_string().contains("apt-get install opensips")));
}

#[test]
fn a_system_starts_is_killed_and_starts_again_on_its_port() {
    let system = open(stub(STUB, "version = [\"@PROGRAM@\", \"--version\"]\ninstances = 2").path());
    assert!(system.version().is_ok_and(|version| version.starts_with("Python 3")));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let setting = Setting { cores: &[0], workers: Some(7), ..Setting::new(folder.path(), "relay") };
    let mut running = start(&system, &setting).unwrap_or_else(|error| panic!("{error}"));
    let (addresses, first) = (running.addresses().to_vec(), running.ids());
    assert!(addresses.len() == 2 && addresses[0] != addresses[1] && first.len() == 2);
    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", first[0])).expect("it runs");
    assert!(words.ends_with("\u{0}7\0"), "{words:?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", first[0])).expect("it runs");
    assert!(status.lines().any(|line| line == "Cpus_allowed_list:\t0"), "{status}");
    assert!(running.tail().contains("serving") && running.ended().is_none());
    running.kill();
    assert!(running.ids().is_empty());
    running.start_again().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(running.addresses(), addresses);
    assert!(running.ids().len() == 2 && running.ids()[0] != first[0]);
    // The kernel refuses datagrams to a killed server; a silent end has them dropped, until it runs again.
    let heard = |address: std::net::SocketAddr| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(address).expect("an address");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        socket.send(b"x").expect("it is sent");
        socket.recv(&mut [0; 16]).map_err(|error| error.kind())
    };
    running.kill();
    assert_eq!(heard(addresses[0]), Err(std::io::ErrorKind::ConnectionRefused));
    running.start_again().unwrap_or_else(|error| panic!("{error}"));
    running.kill_silently();
    assert!(running.ids().is_empty());
    assert_eq!(heard(addresses[1]), Err(std::io::ErrorKind::WouldBlock));
    running.start_again().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((running.addresses(), running.ids().len()), (&addresses[..], 2));
    drop(running);
    UdpSocket::bind(addresses[0]).expect("its port is free again");
}

/// Checks that a server with a quota is in a control group of its own, after another start too, and that the group goes with it.
#[test]
fn a_server_has_its_share_of_a_core() {
    if !can_limit() {
        return;
    }
    let system = open(stub(STUB, "").path());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let group = |id: u32| {
        let text = std::fs::read_to_string(format!("/proc/{id}/cgroup")).expect("it runs");
        let name = text.lines().find_map(|line| line.split_once("/strowger-lab-")).map(|(_, name)| name.to_owned());
        name.unwrap_or_else(|| panic!("{text}"))
    };
    let setting = Setting { quota: Some(20), cores: &[0], ..Setting::new(folder.path(), "relay") };
    let mut running = start(&system, &setting).unwrap_or_else(|error| panic!("{error}"));
    let first = group(running.ids()[0]);
    running.kill();
    running.start_again().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(group(running.ids()[0]), first);
    let paths =
        ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(|root| PathBuf::from(format!("{root}/strowger-lab-{first}")));
    assert!(paths.iter().any(|path| path.exists()));
    drop(running);
    assert!(!paths.iter().any(|path| path.exists()));
}

/// Counts entries within the system by a command of the driver, whose output is part of its fault.
#[test]
fn entries_within_a_system_are_counted_by_a_command() {
    let files = tempfile::tempdir().expect("a temporary folder");
    let started = |entries: &str| {
        let own = stub(STUB, "");
        let driver = own.path().join("driver.toml");
        let text = std::fs::read_to_string(&driver).expect("it was written");
        std::fs::write(&driver, format!("{text}{entries}\n")).expect("the folder can be written");
        start(&open(own.path()), &Setting::new(files.path(), "relay")).unwrap_or_else(|error| panic!("{error}"))
    };
    assert_eq!(started("").entries().expect("nothing is asked"), None);
    let counts = started("entries = { command = [\"echo\", \"port @PORT@, entries: 12;\"], behind = \"entries:\" }");
    assert_eq!(counts.entries().expect("it counts"), Some(12));
    let silent = started("entries = { command = [\"echo\", \"none\"], behind = \"entries:\" }");
    let error = silent.entries().expect_err("it prints no number").to_string();
    assert!(error.contains("it prints no number behind \"entries:\": none"), "{error}");
}

#[test]
fn a_taken_port_names_the_program_that_has_it() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("it is bound").port();
    let (folder, system) = (tempfile::tempdir().expect("a temporary folder"), open(stub(STUB, "").path()));
    let setting = Setting { port: Some(port), ..Setting::new(folder.path(), "relay") };
    let error = start(&system, &setting).expect_err("the port is taken").to_string();
    let own = format!("(process {}): end it, or choose another port", std::process::id());
    assert!(error.contains(&format!("port {port} of 127.0.0.1")) && error.contains(&own), "{error}");
}

/// Checks that each start has a key of its own, and that a system without TLS has none.
#[test]
fn a_system_with_tls_has_a_certificate_for_each_start() {
    let system = SystemFolder::open("strowger", Some("/bin/true")).expect("it is shipped");
    let [first, second, plain] = [(); 3].map(|()| tempfile::tempdir().expect("a temporary folder"));
    for (folder, scenario) in [(&first, "connections-tls"), (&second, "connections-tls"), (&plain, "connections")] {
        check(&system, &Setting::new(folder.path(), scenario)).unwrap_or_else(|error| panic!("{error}"));
    }
    let text = std::fs::read_to_string(first.path().join("connections-tls.toml")).expect("it was written");
    let read = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("it is there");
        std::fs::read_to_string(line.trim_matches('"')).expect("the file is there")
    };
    assert!(read(&text, "certificate = ").starts_with("-----BEGIN CERTIFICATE-----"));
    let key = read(&text, "key = ");
    assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
    let text = std::fs::read_to_string(second.path().join("connections-tls.toml")).expect("it was written");
    assert_ne!(read(&text, "key = "), key);
    assert_eq!(std::fs::read_dir(plain.path()).expect("it is a folder").count(), 1);
}

#[test]
fn a_system_that_ends_before_it_is_ready_is_shown_with_its_output() {
    let dies = open(stub("import sys\nprint('no licence')\nsys.exit(3)\n", "").path());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = start(&dies, &Setting::new(folder.path(), "relay")).expect_err("it ends").to_string();
    assert!(error.contains("it has ended") && error.contains("no licence"), "{error}");
}

#[test]
fn an_unknown_scenario_and_a_mark_without_a_value_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kamailio = SystemFolder::open("kamailio", None).expect("it is shipped");
    let error = check(&kamailio, &Setting::new(folder.path(), "relais")).expect_err("there is none").to_string();
    assert!(error.ends_with("it has no configuration for the scenario relais: write relay"), "{error}");
    let system = SystemFolder::open("strowger", Some("/bin/true")).expect("it is shipped");
    let error = start(&system, &Setting::new(folder.path(), "stress-F")).expect_err("no database").to_string();
    assert!(error.contains("@DATABASE@ has no value: the scenario needs mariadb"), "{error}");
    let error = start(&system, &Setting::new(folder.path(), "proxy")).expect_err("no side").to_string();
    assert!(error.contains("proxy.toml") && error.contains("has no value"), "{error}");
}

#[test]
fn an_external_system_has_to_answer_and_is_left_running() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = server.local_addr().expect("it is bound").to_string();
    let answers = std::thread::spawn(move || {
        let mut heard = [0; 2_000];
        let (_, from) = server.recv_from(&mut heard).expect("a request");
        assert!(heard.starts_with(b"OPTIONS sip:"));
        server.send_to(b"SIP/2.0 405 No\r\n\r\n", from).expect("it is sent");
        server
    });
    let system = SystemFolder::open("theirs", Some(&format!("sip:{at}"))).expect("an address");
    assert_eq!(system.version().expect("it has an address"), format!("external at {at}"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut running = start(&system, &Setting::new(folder.path(), "relay")).expect("it answers");
    assert!(running.address().to_string() == at && running.ids().is_empty() && running.ended().is_none());
    let _silent = answers.join().expect("it was asked");
    let error = start(&system, &Setting::new(folder.path(), "relay")).expect_err("it says nothing").to_string();
    assert!(error.contains("no answer to OPTIONS"), "{error}");
}

/// Program that stands for OpenSIPS or pjsip-perf: it binds the port that its words or its configuration name. As pjsip-perf it ends with its
/// input, and calls where it has a URI.
const OTHER: &str = "#!/usr/bin/env python3
import re,socket,sys,signal
words=sys.argv[1:]
if '-V' in words:
 print('version: opensips 3.4.2')
 sys.exit()
if '--help' in words:
 print('PJSIP Performance Measurement Tool v2.17\\n(c)2006 pjsip.org')
 sys.exit(1)
if '-f' in words:
 text=open(words[words.index('-f')+1]).read()
 port=re.search(r'socket=udp:127.0.0.1:(\\d+)',text).group(1)
else:
 port=words[0].removeprefix('--local-port=')
if '-C' in words:
 sys.exit()
if words[-1].startswith('sip:'):
 print('jobs started\\r\\n'+' '.join(words))
 print('Total 1000 stateful OPTIONS requests sent in 2000 ms at rate of 500/sec')
 print(' TOTAL responses:     990 (rate=495/sec)')
 sys.exit()
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
s.bind(('127.0.0.1',int(port)))
print('started in server-mode',' '.join(words),flush=True)
if '-f' in words:
 signal.pause()
sys.stdin.read()
";

/// Creates a folder with an executable `program` that is this script.
fn program(script: &str) -> (TempDir, PathBuf) {
    let folder = folder(&[("program", script)]);
    let program = folder.path().join("program");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    (folder, program)
}

#[test]
fn a_copy_of_a_program_is_started_where_builds_are_compared() {
    let (_programs, program) = program(OTHER);
    let system = SystemFolder::open("pjsip-perf", program.to_str()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(system.version().ok().as_deref(), Some("PJSIP Performance Measurement Tool v2.17"));
    let scenario = &system.driver().scenarios[0].name;
    for copies in [false, true] {
        let own = tempfile::tempdir().expect("a temporary folder");
        let setting = Setting { copies, ..Setting::new(own.path(), scenario) };
        let running = start(&system, &setting).unwrap_or_else(|error| panic!("{error}"));
        let words = std::fs::read_to_string(format!("/proc/{}/cmdline", running.ids()[0])).expect("it runs");
        let copy = own.path().canonicalize().expect("it is there").join("program").display().to_string();
        assert_eq!(words.split('\0').any(|word| word == copy), copies, "{words}");
    }
}

#[test]
fn opensips_and_pjsip_perf_are_started_by_their_paths() {
    let (_programs, program) = program(OTHER);
    for driver in ["opensips", "pjsip-perf"] {
        let system = SystemFolder::open(driver, program.to_str()).unwrap_or_else(|error| panic!("{error}"));
        let version = system.version().expect("it says one");
        assert_eq!(
            version,
            if driver == "opensips" { "version: opensips 3.4.2" } else { "PJSIP Performance Measurement Tool v2.17" }
        );
        for scenario in &system.driver().scenarios {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let setting = Setting { workers: Some(4), ..Setting::new(folder.path(), &scenario.name) };
            check(&system, &setting).unwrap_or_else(|error| panic!("{driver}: {error}"));
            let running = start(&system, &setting).unwrap_or_else(|error| panic!("{driver}: {error}"));
            let workers = match driver {
                "opensips" => {
                    std::fs::read_to_string(folder.path().join(scenario.configuration.as_ref().expect("one")))
                }
                _ => Ok(running.tail()),
            };
            let wanted = if driver == "opensips" { "udp_workers=4" } else { "--thread-count=4" };
            assert!(workers.is_ok_and(|text| text.contains(wanted)), "{driver}");
        }
    }
}

/// Reads the rate and the number of requests from the output of pjsip-perf.
#[test]
fn figures_of_pjsip_perf_are_read_from_its_text() {
    let programs = folder(&[("program", OTHER)]);
    let program = programs.path().join("program");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let system = SystemFolder::open("pjsip-perf", None).expect("it is shipped");
    system.write(programs.path()).expect("it can be written");
    let measured = |uri: &str| {
        let mut command = std::process::Command::new("sh");
        command.arg(programs.path().join("measure.sh")).arg(&program).args([
            "128",
            "0.6",
            "2",
            "--thread-count=1",
            uri,
        ]);
        let output = command.output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (is_well, text) = measured("sip:1@127.0.0.1:5060");
    assert!(is_well && text.contains("--window=128 --timeout=3 --thread-count=1 sip:1@127.0.0.1:5060"), "{text}");
    assert_eq!(text.lines().last(), Some("{\"attempts\": 1000, \"rate.achieved\": 495}"), "{text}");
    // The program stops half-way: no figures, and a failure.
    std::fs::write(&program, "#!/bin/sh\necho no\n").expect("it is ours");
    assert_eq!(measured("sip:1@127.0.0.1:5060"), (false, "no\n".into()));
}

#[test]
fn a_command_that_measures_needs_no_server() {
    let driver = "title = \"Stub\"\nprogram = \"python3\"\nmeasure = [\"@PROGRAM@\", \"-c\", \"@WORDS@\", \"@LOAD@\"]\n\
                  [[scenario]]\nname = \"call\"\nwords = [\"pass\"]\n";
    let own = folder(&[("driver.toml", driver)]);
    let files = tempfile::tempdir().expect("a temporary folder");
    let running = start(&open(own.path()), &Setting::new(files.path(), "call")).expect("nothing is started");
    assert!(running.ids().is_empty() && running.addresses().is_empty());
    let wrong = folder(&[("driver.toml", &driver.replace("\"@WORDS@\", ", ""))]);
    let error = SystemFolder::open("mine", wrong.path().to_str()).expect_err("there is no place for words").to_string();
    assert!(error.contains("has no place for words"), "{error}");
    let wrong = folder(&[("driver.toml", &driver.replace("@LOAD@", "@LAOD@"))]);
    let error = SystemFolder::open("mine", wrong.path().to_str()).expect_err("there is no such mark").to_string();
    assert!(error.contains("write @LOAD@"), "{error}");
}
