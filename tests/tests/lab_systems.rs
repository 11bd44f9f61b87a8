//! Shipped systems of the laboratory: every configuration is valid, and a call or a registration passes through each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use strowger_lab::backend::{Beside, BesideKind};
use strowger_lab::document::{self, Parties};
use strowger_lab::experiment::{Experiment, SHIPPED, SystemSpec, combinations, fill};
use strowger_lab::generator::{self, Generator, Traffic};
use strowger_lab::process::Process;
use strowger_lab::system::{self, RunningSystem, Setting, SystemFolder};
use strowger_tests::binary::strowger;
use strowger_tests::port;
use strowger_tests::program::{KAMAILIO, MARIADB, MARIADBD, MEMCACHED, REDIS, RTPENGINE, have};
use strowger_tests::text::{field, respond};
use tempfile::TempDir;

/// Time limit of a program of these tests.
const LIMIT: Duration = Duration::from_secs(60);

/// Number of registering users: the first one calls the second one.
const USERS: u32 = 2;

/// Requirements of experiments: driver, scenario and document, with the backends and whether users register.
type Asked = BTreeMap<(String, String, String), (Vec<String>, bool)>;

/// Opens the system of a shipped experiment, ours with the program of these tests.
fn open(driver: &str) -> SystemFolder {
    let own =
        strowger().to_str().filter(|_| driver.starts_with("strowger") || ["echo", "media-floor"].contains(&driver));
    SystemFolder::open(driver, own).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the requirements of all shipped experiments.
fn asked() -> Asked {
    let mut asked = Asked::new();
    for (name, _) in SHIPPED {
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        for axes in combinations(&experiment, &BTreeMap::new()) {
            let of_axes = |by_value: fn(&strowger_lab::experiment::Axis) -> &BTreeMap<String, String>| {
                experiment.axes.iter().find_map(|axis| by_value(axis).get(&axes[&axis.name].to_string()).cloned())
            };
            let document = of_axes(|axis| &axis.documents).unwrap_or_else(|| experiment.call.document.clone());
            let users = experiment.axes.iter().find_map(|axis| axis.users.get(&axes[&axis.name].to_string()));
            let has_users = experiment.call.registers && users.copied().unwrap_or(experiment.call.users) > 0;
            let mut add = |spec: &SystemSpec| {
                let scenario = experiment.configuration(spec, &axes);
                let beside = spec.beside.iter().map(|name| fill(name, &axes)).collect();
                // The first value of an axis names the smaller database.
                asked.entry((spec.driver.clone(), scenario, document.clone())).or_insert((beside, has_users));
            };
            experiment.systems.iter().filter(|spec| spec.has(&axes)).for_each(&mut add);
        }
    }
    asked
}

#[test]
fn every_configuration_of_a_system_is_right() {
    if !have(&[KAMAILIO]) {
        return;
    }
    let answers: [SocketAddr; 2] = [([127, 0, 0, 1], 9).into(), ([127, 0, 0, 1], 10).into()];
    let values = vec![
        ("DATABASE", "mysql://strowger:strowger@127.0.0.1:9/strowger".to_owned()),
        ("CACHE", "127.0.0.1:9".to_owned()),
        ("CACHE_HOST", "127.0.0.1".to_owned()),
        ("CACHE_PORT", "9".to_owned()),
        ("CACHE_SERVERS", "[\"127.0.0.1:9\"]".to_owned()),
    ];
    let mut seen = 0;
    for driver in ["strowger", "strowger-pair", "kamailio", "kamailio-rtpengine"] {
        let system = open(driver);
        for scenario in &system.driver().scenarios {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let setting = Setting {
                workers: Some(4),
                answers: &answers,
                values: values.clone(),
                ..Setting::new(folder.path(), &scenario.name)
            };
            system::check(&system, &setting).unwrap_or_else(|error| panic!("{error}"));
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

/// Starts a program that answers calls, and returns its address, too.
fn answering(folder: &Path, name: &str) -> (Process, SocketAddr) {
    let at = port::free_address();
    let mut command = Command::new(strowger());
    command.args(["load", "uas", "--source", "127.0.0.1", "--quiet", "--ring", "50ms", "--port"]);
    let mut process = Process::start(name, folder, command.arg(at.port().to_string())).expect("it starts");
    process.listens(at.port(), LIMIT).unwrap_or_else(|error| panic!("{error}"));
    (process, at)
}

/// Makes this many calls of a document with the generator, one by one, and returns how many succeeded.
fn make(folder: &Path, target: SocketAddr, document: &str, answer: SocketAddr, users: u32, calls: u32) -> u64 {
    let parties = Parties { users, answer, hold: Duration::from_millis(100) };
    let text = document::text(document, &parties).unwrap_or_else(|error| panic!("{error}"));
    document::write(&folder.join("document.xml"), &text).expect("it can be written");
    let mut data = String::from("SEQUENTIAL\n");
    for number in 1..=users.max(1) {
        let ((name, password), (callee, _)) = (document::user(number), document::user(number % USERS + 1));
        data += &format!("{name};[authentication username={name} password={password}];{callee}\n");
    }
    std::fs::write(folder.join("users.csv"), data).expect("it can be written");
    let mut command = Command::new(strowger());
    command.args(["load", &target.to_string(), "--source", "127.0.0.1", "--quiet", "--no-exec", "--no-preflight"]);
    command.args(["--rate", "10", "--calls", &calls.to_string(), "--timeout", "5s", "--scenario", "document.xml"]);
    command.args(["--inf", "users.csv", "--json", "report.json"]);
    let mut process = Process::start("calls", folder, command.current_dir(folder)).expect("it starts");
    process.end(LIMIT).unwrap_or_else(|error| panic!("{error}"));
    let report = std::fs::read_to_string(folder.join("report.json")).expect("it writes a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("the report is JSON");
    report["calls"]["successful"].as_u64().expect("calls are counted")
}

/// Starts the systems that need backends, or those that need none, and makes a call of each document through each.
fn goes_through(with_backends: bool) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sides = ["one", "two"].map(|name| answering(folder.path(), name));
    let answers = sides.each_ref().map(|(_, at)| *at);
    let mut backends: BTreeMap<String, (Option<Beside>, TempDir)> = BTreeMap::new();
    let mut seen = 0;
    for ((driver, scenario, document), (beside, has_users)) in asked() {
        let system = open(&driver);
        let needs = &system.scenario(&scenario).expect("a test of the laboratory looks for it").needs;
        // A system with its own measurement has no server to call.
        if needs.is_empty() == with_backends || !system.driver().measure.is_empty() {
            continue;
        }
        let place = format!("{driver}, {scenario}, {document}");
        let own = tempfile::tempdir().expect("a temporary folder");
        let mut values = Vec::new();
        for name in beside.iter().filter(|name| needs.contains(name)) {
            let (backend, _) = backends.entry(name.clone()).or_insert_with(|| {
                let folder = tempfile::tempdir().expect("a temporary folder");
                (Beside::start(name, folder.path()).unwrap_or_else(|error| panic!("{error}")), folder)
            });
            values.extend(backend.iter().flat_map(Beside::values));
        }
        let setting = Setting { workers: Some(2), answers: &answers, values, ..Setting::new(own.path(), &scenario) };
        let mut running = system::start(&system, &setting).unwrap_or_else(|error| panic!("{place}: {error}"));
        call(own.path(), &mut running, &document, answers[0], has_users, &place);
        let used = beside.iter().filter(|name| needs.contains(name)).filter_map(|name| backends[name].0.as_ref());
        for cache in used.filter(|backend| backend.kind() == BesideKind::Cache) {
            let entries = cache.entries();
            assert!(entries.is_some_and(|entries| entries >= u64::from(USERS)), "{place}: {entries:?} entries");
        }
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

/// Registers all users if there are some, and makes a call of the first one, at the last server of the system.
fn call(folder: &Path, running: &mut RunningSystem, document: &str, answer: SocketAddr, has_users: bool, place: &str) {
    let users = if has_users { USERS } else { 0 };
    if has_users {
        let registered = make(folder, running.address(), document::REGISTER, answer, users, USERS);
        assert_eq!(registered, u64::from(USERS), "{place}: registrations\n{}", running.tail());
    }
    // Credentials in the first request need an earlier nonce.
    let document = if document == "credentials" { "challenge" } else { document };
    let last = *running.addresses().last().expect("it has a server");
    let made = make(folder, last, document, answer, users, 1);
    assert!(made == 1 && running.ended().is_none(), "{place}: {made} calls\n{}", running.tail());
}

#[test]
fn a_call_goes_through_each_system_without_backends() {
    if have(&[KAMAILIO, RTPENGINE]) {
        goes_through(false);
    }
}

#[test]
fn a_call_goes_through_each_system_with_its_backends() {
    if have(&[KAMAILIO, MARIADBD, MARIADB, MEMCACHED, REDIS]) {
        goes_through(true);
    }
}

/// On a busy machine the findings vary: each has its cure, and the exit code follows the worst.
#[test]
fn the_doctor_examines_this_machine() {
    let output = Command::new(strowger()).args(["lab", "doctor", "--json"]).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let findings: Vec<BTreeMap<String, String>> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    for area in ["programs", "kernel", "present", "generator"] {
        assert!(findings.iter().any(|finding| finding["area"] == area), "{area}: {text}");
    }
    for finding in findings.iter().filter(|finding| finding["grade"] != "good") {
        assert!(!finding["cure"].is_empty() && !finding["effect"].is_empty(), "{finding:?}");
    }
    let is_bad = findings.iter().any(|finding| finding["grade"] == "bad");
    assert_eq!(output.status.code(), Some(i32::from(is_bad)), "{text}");
    let output = Command::new(strowger()).args(["lab", "doctor", "--no-load"]).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("programs\n") && !text.contains("\ngenerator\n"), "{text}");
}

/// Starts a registrar that answers the first request of each user of `busy` with this code, and all others with 200.
fn registrar(busy: &[u32], code: u16) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    let mut busy: BTreeSet<String> = busy.iter().map(|user| format!("sip:user{user}@")).collect();
    std::thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let request = &bytes[..length];
            let user = field(request, "To").and_then(|to| busy.iter().find(|user| to.contains(*user)).cloned());
            let status = user.map_or(200, |user| if busy.remove(&user) { code } else { 200 });
            let _lost = socket.send_to(&respond(request, status, "tag", &[]), from);
        }
    });
    address
}

/// A system too slow for the rate of registrations gets a lower one; a system that refuses users is not asked again.
#[test]
fn users_without_a_registration_are_registered_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let register = |busy: &[u32], code| {
        let traffic = Traffic::Documents(vec![("call".into(), 1)]);
        let setting = generator::Setting {
            program: strowger().to_path_buf(),
            users: 20,
            sides: vec![port::free_address(), port::free_address()],
            ..generator::Setting::new(registrar(busy, code).to_string(), traffic).expect("this program has a path")
        };
        let place = folder.path().join(code.to_string());
        let generator = Generator::new(setting, &place).expect("its files are written");
        (generator.register(100.0, &place), place.join("again-1").exists())
    };
    let (registered, is_again) = register(&[3, 8], 503);
    assert!(registered.is_ok() && is_again, "{registered:?}");
    let (registered, is_again) = register(&[3], 403);
    assert!(!is_again);
    let error = registered.expect_err("a user is missing").to_string();
    assert!(error.contains("19 of 20 are registered: 1 were answered with 403"), "{error}");
}
