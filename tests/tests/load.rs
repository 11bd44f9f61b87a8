//! `strowger load` as a user runs it: its traffic, and its messages.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use strowger_tests::generator::{
    Ran, Running, answers, answers_at, certificates, command, load, output, peer, refused,
};
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport;
use strowger_tests::{port, together};

#[path = "../../crates/load/tests/suite/measured/schema.rs"]
mod schema;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

/// Asserts that the report matches its schema.
#[track_caller]
pub(crate) fn as_published(report: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/load-report.schema.json");
    let schema = std::fs::read_to_string(path).expect("the schema is published");
    let schema = serde_json::from_str(&schema).expect("it is JSON");
    assert_eq!(schema::problems(&schema, report), Vec::<String>::new());
}

/// Cases without measurements: they may run in parallel.
#[test]
fn cases_that_bear_company() {
    together(&[
        ("one_line_is_enough", one_line_is_enough),
        ("every_workload_comes_to_its_end", every_workload_comes_to_its_end),
        ("both_ends_through_the_server", both_ends_through_the_server),
        ("each_transport_and_family", each_transport_and_family),
        ("users_register_with_their_passwords_and_call", users_register_with_their_passwords_and_call),
        ("users_register_and_receive", users_register_and_receive),
        ("requirements", requirements_stand_below_the_verdict_and_have_an_exit_code),
        ("refused_command_lines", a_command_line_that_cannot_be_used_is_explained),
        ("a_document_and_its_data", a_document_and_its_data),
        ("a_dry_run_sends_nothing", a_dry_run_sends_nothing),
        ("prometheus_reads_the_run", prometheus_reads_the_run),
        ("a_profile_has_the_calls_of_its_area", a_profile_has_the_calls_of_its_area),
        ("a_limit_does_not_lower_the_wish", a_limit_does_not_lower_the_wish),
        ("a_duration_bounds_a_run_with_a_limit", a_duration_bounds_a_run_with_a_limit),
        ("who_looks_away_loses_nothing", who_looks_away_loses_nothing),
        ("several_sources_take_turns", several_sources_take_turns),
        ("long_series_are_put_together", long_series_are_put_together),
    ]);
}

fn one_line_is_enough() {
    let uas = answers(&[]);
    let ran = load(&[&uas.address.to_string()]);
    ran.ended_with(0);
    ran.all_successful(100);
    assert_eq!(ran.calls("outgoing"), 100, "{}", ran.said);
    let duration = ran.json["run"]["duration_s"].as_f64().expect("a duration");
    assert!((10.5..14.0).contains(&duration), "ten seconds of calls that are held for one: {duration}\n{}", ran.said);
    assert!(!ran.said.contains('\u{1b}'), "colours are for terminals:\n{}", ran.said);
    for second in ["   5 s  ", "  10 s  "] {
        assert!(ran.said.contains(second), "a line a second:\n{}", ran.said);
    }
    as_published(&ran.json);
}

fn every_workload_comes_to_its_end() {
    let uas = answers(&[]);
    let address = uas.address.to_string();
    for (workload, measure) in [
        ("call", "session.completed"),
        ("register", "registration.successful"),
        ("re-register", "registration.successful"),
        ("register-then-call", "session.completed"),
        ("options", "request.successful"),
        ("message", "request.successful"),
        ("mix", "session.completed"),
    ] {
        let ran = load(&[&address, "-w", workload, "-r", "200", "-m", "100", "--hold", "50ms", "--seed", "7"]);
        ran.all_successful(100);
        let done = ran.count("counters", measure);
        match workload {
            "re-register" => assert_eq!(done, 200, "{workload}"),
            "mix" => assert!((50..90).contains(&done), "{workload}: {done}\n{}", ran.said),
            _ => assert_eq!(done, 100, "{workload}"),
        }
        ran.ended_with(0);
    }
    let shares = ["--mix", "register=30,options=70", "-r", "200", "-m", "100", "--seed", "7"];
    let ran = load(&[&[address.as_str()][..], &shares].concat());
    ran.all_successful(100);
    let (registered, asked) =
        (ran.count("counters", "registration.successful"), ran.count("counters", "request.successful"));
    assert!((15..45).contains(&registered) && registered + asked == 100, "{registered} {asked}: {}", ran.said);
    assert_eq!(ran.json["generators"][0]["heading"]["settings"]["mix"], "register=30,options=70");
}

fn both_ends_through_the_server() {
    let server = Setup::on(&[Transport::Udp, Transport::Tcp, Transport::Ws, Transport::Tls]).relay().start();
    for transport in [Transport::Udp, Transport::Tcp, Transport::Tls] {
        let target = format!("{}://{}", transport.name(), server.address(transport));
        let files = certificates(server.folder());
        let mut words = vec![target.as_str(), "--pair", "-r", "100", "-m", "30", "--hold", "20ms"];
        if transport.is_secure() {
            words.extend(files.iter().map(String::as_str));
        }
        let ran = load(&words);
        ran.all_successful(30);
        assert_eq!(ran.json["run"]["transport"], transport.name().to_uppercase());
        as_published(&ran.json);
    }
}

fn each_transport_and_family() {
    let folder = folder();
    let files = certificates(folder.path());
    let cert: Vec<&str> = files[2..].iter().map(String::as_str).collect();
    let mut families = vec![IpAddr::from([127, 0, 0, 1])];
    match UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => families.push(Ipv6Addr::LOCALHOST.into()),
        Err(error) => eprintln!("SKIPPED: this machine has no ::1 ({error})"),
    }
    for ip in families {
        for transport in ["udp", "tcp", "tls", "ws", "wss"] {
            let secure = transport == "tls" || transport == "wss";
            let uas = answers_at(ip, &[&["--transport", transport][..], if secure { &cert } else { &[] }].concat());
            let target = format!("{transport}://{}", uas.address);
            let ran = load(&[&target, "-r", "200", "-m", "20", "--hold", "10ms"]);
            ran.all_successful(20);
            ran.ended_with(0);
            // INVITE, ACK, BYE; two responses and the ringing.
            assert!(ran.count("counters", "messages.sent") >= 60, "{target}: {}", ran.said);
            assert_eq!(ran.json["run"]["transport"], transport.to_uppercase());
            let there = uas.report();
            assert_eq!(there.count("counters", "incoming.completed"), 20, "{target}: {}", there.said);
            // The session has the same length on both sides (RFC 6076 section 4.5).
            let (here, there) = (ran.delay("sdt.originating", "p50"), there.delay("sdt.terminating", "p50"));
            assert!(here >= 9_000.0 && (here - there).abs() < 20_000.0, "{target}: {here} {there}");
        }
    }
}

fn users_register_with_their_passwords_and_call() {
    let server = Setup::on(&[Transport::Udp])
        .with("domains = [\"example.org\"]\nrealm = \"example.org\"\nproxy.relay_for = \"authenticated\"\nban.enabled = false")
        .start();
    let mut list = String::from("SEQUENTIAL\n");
    for user in 0..5 {
        server.add_user(&format!("user{user}@example.org"), &format!("secret{user}"));
        list.push_str(&format!("user{user};secret{user}\n"));
    }
    server.add_user("bob@example.org", "builder");
    let users = server.folder().join("users.csv");
    std::fs::write(&users, list).expect("the folder can be written");
    let (target, users) = (server.address(Transport::Udp).to_string(), users.display().to_string());
    let domain = ["--domain", "example.org"];

    let words =
        [&[target.as_str(), "-w", "register", "--users", &users, "-r", "100", "-m", "20"], &domain[..]].concat();
    let ran = load(&words);
    assert_eq!((ran.calls("successful"), ran.count("counters", "challenges")), (20, 20), "{}", ran.said);
    assert_eq!(ran.count("counters", "registration.successful"), 20, "{}", ran.said);

    let pair = ["--pair", "--callee", "bob:builder", "-r", "100", "-m", "20", "--hold", "20ms"];
    let ran = load(&[&[target.as_str(), "--users", &users], &domain[..], &pair[..]].concat());
    ran.all_successful(20);

    // Without a password, and with a wrong one.
    let ran = load(&[&[target.as_str(), "-w", "register", "-r", "50", "-m", "5"], &domain[..]].concat());
    ran.ended_with(1);
    assert_eq!(ran.calls("failed"), 5, "{}", ran.said);
    assert!(ran.said.contains("asks for a password") && ran.said.contains("--users FILE"), "{}", ran.said);
    let ran = load(
        &[&[target.as_str(), "-w", "register", "--auth", "user1:wrong", "-r", "50", "-m", "5"], &domain[..]].concat(),
    );
    ran.ended_with(1);
    assert_eq!(ran.calls("failed"), 5, "{}", ran.said);
    assert!(ran.said.contains("is the password right"), "{}", ran.said);
}

fn users_register_and_receive() {
    let server = Setup::on(&[Transport::Udp]).open_registrar().in_memory().with("ban.enabled = false").start();
    let folder = folder();
    let users = folder.path().join("users.csv");
    std::fs::write(&users, "anna\nberta\ncarla\n").expect("the folder can be written");
    let (users, target) = (users.display().to_string(), server.address(Transport::Udp).to_string());
    let words = [target.as_str(), "-w", "register-then-receive", "--users", &users, "-r", "50"];
    let mut phones = Running::start(&[&words[..], &["--domain", "example.org", "--duration", "4s"]].concat());
    phones.reach(1);
    for user in ["anna", "carla"] {
        let callee = format!("sip:{user}@example.org");
        let ran = load(&[&callee, "--proxy", &target, "-r", "100", "-m", "20", "--hold", "20ms", "--no-preflight"]);
        ran.all_successful(20);
    }
    let ran = phones.end(Duration::from_secs(60));
    assert_eq!(ran.count("counters", "registration.successful"), 3, "each user once: {}", ran.said);
    assert_eq!(ran.count("counters", "incoming.completed"), 40, "{}", ran.said);
    assert_eq!(ran.json["run"]["ended"], "time is up", "{}", ran.said);
}

fn requirements_stand_below_the_verdict_and_have_an_exit_code() {
    let uas = answers(&[]);
    let address = uas.address.to_string();
    // Only the server is judged here, not the lateness of the generator on a busy machine.
    let wide = ["--max-lag", "1min", "--max-stall", "1min"];
    let schedule = [&[address.as_str(), "-r", "100", "-m", "50", "--hold", "0"][..], &wide].concat();
    let met = ["--require", "srd.p95<1s", "--require", "calls.successful==50", "--require", "ser>=100%"];
    let good = output(&[&schedule[..], &met[..]].concat());
    let text = String::from_utf8_lossy(&good.stdout).into_owned();
    assert_eq!(good.status.code(), Some(0), "{text}");
    assert!(text.starts_with("Generator ") && text.contains("\nServer       All 50 calls succeeded."), "{text}");
    let marks = text.lines().filter(|line| line.starts_with("✓ "));
    assert_eq!(marks.count(), 3, "{text}");
    let bad = output(&[&schedule[..], &["--require", "srd.p50<1us"]].concat());
    let text = String::from_utf8_lossy(&bad.stdout).into_owned();
    assert_eq!(bad.status.code(), Some(3), "{text}");
    assert!(text.contains("\n✗ srd.p50<1us "), "{text}");
    // Every measure can be required: one of each family.
    let every =
        ["calls.failed.connect==0", "responses.invite.200==50", "responses.5xx<1", "sent.bye=50", "duration<1min"];
    let every = every.iter().chain(&["rate.bytes.sent>1kB", "concurrency.max>=1", "lag.p99.9<1min", "srd.stddev<1s"]);
    let every: Vec<&str> = every.flat_map(|text| ["--require", text]).collect();
    let good = output(&[&schedule[..], &every].concat());
    let text = String::from_utf8_lossy(&good.stdout).into_owned();
    assert_eq!(good.status.code(), Some(0), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("✓ ")).count(), 9, "{text}");
}

fn a_command_line_that_cannot_be_used_is_explained() {
    for (words, part) in [
        (&["some:host:x"][..], "neither host:port"),
        (&["5060"], "no host"),
        (&["::1:5060"], "[::1]:5060"),
        (&["127.0.0.1", "-m", "1,5"], "a whole number"),
        (&["127.0.0.1", "--domain", "exa mple"], "such as example.org"),
        (&["127.0.0.1", "-w", "dance"], "register-then-call"),
        (&["127.0.0.1", "--contact", "127.0.0.1:5090"], "and call does not: give -w register"),
        (&["127.0.0.1", "--require", "srd<200ms"], "srd.p95"),
        (&["127.0.0.1", "--require", "sdr.p95<200ms"], "nearest"),
        (&["127.0.0.1", "--rate", "fast"], "calls a second such as 100"),
        (&["127.0.0.1", "--rate-profile", "100"], "a ramp"),
        (&["127.0.0.1", "--rate-profile", "/nowhere/profile.csv"], "cannot be read"),
        (&["127.0.0.1", "--users", "/nowhere/users.csv"], "/nowhere/users.csv cannot be read"),
        (&["127.0.0.1", "--scenario", "/nowhere/call.xml"], "/nowhere/call.xml"),
        (&["127.0.0.1", "--json", "/nowhere/report.json"], "no such folder"),
        (&["127.0.0.1", "--connections", "8"], "for UDP --shards"),
        (&["tcp://127.0.0.1", "--connections", "some"], "per-call"),
        (&["nobody.invalid"], "nobody.invalid"),
        (&[], "TARGET"),
        (&["report", "/nowhere/run.log"], "/nowhere/run.log"),
        (&["measures", "nothing-like-it"], "lists all"),
        (&["tls://127.0.0.1", "--tls-ca", "/nowhere/ca.pem"], "/nowhere/ca.pem cannot be read"),
        (&["tls://127.0.0.1", "--tls-ca", "/dev/null"], "no certificate in /dev/null"),
        (&["uas", "--transport", "wss"], "--tls-cert FILE"),
        (&["tls://127.0.0.1", "--pair"], "--tls-cert FILE"),
        (&["127.0.0.1", "--json", "-", "--csv", "-"], "takes one report"),
        (&["127.0.0.1", "--html", "/tmp"], "it is a folder"),
        (&["127.0.0.1", "--max-lag", "soon"], "10s, 500ms"),
        (&["127.0.0.1", "--max-cpu", "101%"], "from 0 to 100"),
        (&["127.0.0.1", "--source", "localhost"], "localhost"),
        (&["127.0.0.1", "--prometheus", "everywhere"], "127.0.0.1:9100"),
        (&["127.0.0.1", "--series", "1"], "no whole number from 2 to"),
        (&["127.0.0.1", "--require", "ser>99 apples"], "apples"),
        (&["127.0.0.1", "--require", "ser>=0.99"], "Write 0.99%, or 99% for a share of 0.99"),
        (&["127.0.0.1", "--require", "calls.success>99"], "Write 99%"),
        (&["127.0.0.1", "--max-cpu", "0.8"], "Write 0.8%, or 80%"),
        (&["127.0.0.1", "--shards", "x"], "'x' is no whole number from 1 to 64"),
        (&["127.0.0.1", "--require", "timer.1.p95<1s"], "no timer"),
        (&["127.0.0.1", "--scenario", "a.xml", "-w", "call"], "cannot be used with"),
        (&["127.0.0.1", "--mix", "call=60,register=30"], "make 90 %; write shares"),
        (&["127.0.0.1", "--mix", "call=60,refer=40"], "'refer' is none of call, register"),
        (&["127.0.0.1", "-w", "options", "--mix", "call=100"], "of -w mix, not of -w options"),
    ] {
        let (code, said) = refused(words);
        assert_eq!(code, 2, "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
}

fn a_document_and_its_data() {
    let folder = folder();
    let uas = answers(&[]);
    let address = uas.address.to_string();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path.display().to_string()
    };
    let document = path(
        "options.xml",
        r#"<?xml version="1.0" encoding="UTF-8"?>
        <scenario name="mine"><send retrans="500"><![CDATA[
          OPTIONS sip:[field0]@[remote_ip]:[remote_port] SIP/2.0
          Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
          From: <sip:me@[local_ip]>;tag=[call_number]
          To: <sip:[field0]@[remote_ip]>
          Call-ID: [call_id]
          CSeq: 1 OPTIONS
          X-Word: [word]
          Content-Length: 0

        ]]></send><recv response="200" rtd="asked"/></scenario>"#,
    );
    let data = path("data.csv", "SEQUENTIAL\nanna;1\nberta;2\n");
    let base = [address.as_str(), "--sf", &document, "--key", "word=here", "-r", "50", "-m", "20"];
    let ran = load(&[&base[..], &["--inf", &data, "--require", "timer.asked.p99<2s"]].concat());
    ran.all_successful(20);
    assert_eq!(ran.json["timers"]["asked"]["count"], 20, "{}", ran.said);

    // The data are missing: not named, or named and absent; or the document is broken.
    let (code, said) = refused(&base);
    assert!(code == 2 && said.contains("injection file"), "{code}: {said}");
    let (code, said) = refused(&[&base[..], &["--inf", "/nowhere/data.csv"]].concat());
    assert!(code == 2 && said.contains("/nowhere/data.csv"), "{code}: {said}");
    let broken = path(
        "broken.xml",
        "<?xml version=\"1.0\"?>\n<scenario>\n<send><![CDATA[\nOPTIONS sip:[nonsense] SIP/2.0\n]]></send></scenario>",
    );
    let (code, said) = refused(&[&address, "--scenario", &broken]);
    assert!(code == 2 && said.contains("broken.xml:4") && said.contains("nonsense"), "{code}: {said}");
    let waits = path("waits.xml", "<?xml version=\"1.0\"?><scenario><recv request=\"INVITE\"/></scenario>");
    let (code, said) = refused(&[&address, "--scenario", &waits]);
    assert!(code == 2 && said.contains("load uas --scenario"), "{code}: {said}");
}

fn a_dry_run_sends_nothing() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_nonblocking(true).expect("it can be set");
    let address = socket.local_addr().expect("it is bound");
    let output = output(&[&format!("sip:bob@{address}"), "--dry-run"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in
        [format!("INVITE sip:bob@{address} SIP/2.0\n"), "\nACK sip:".into(), "\nBYE sip:".into(), "CSeq: 2 BYE".into()]
    {
        assert!(text.contains(&part), "{part}:\n{text}");
    }
    assert!(socket.recv(&mut [0; 64]).is_err(), "the target got something");
}

fn prometheus_reads_the_run() {
    let uas = answers(&[]);
    let (target, scrape) = (uas.address.to_string(), port::free_address());
    let words = [&target, "-r", "50", "--duration", "3s", "--hold", "0", "--prometheus", &scrape.to_string()];
    let mut generator = Running::start(&words);
    generator.reach(2);
    let mut stream = TcpStream::connect(scrape).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let value = text.lines().find_map(|line| line.strip_prefix("strowger_load_calls_outgoing_total "));
    assert!(value.and_then(|value| value.trim().parse::<f64>().ok()).is_some_and(|calls| calls > 0.0), "{text}");
    generator.end(Duration::from_secs(30));
}

fn a_profile_has_the_calls_of_its_area() {
    let uas = answers(&[]);
    let address = uas.address.to_string();
    let words = [address.as_str(), "--hold", "0", "--shards", "2", "--rate-profile"];
    let ran = load(&[&words[..], &["40:1s,40-80:1s,burst:30"]].concat());
    assert!((128..=132).contains(&ran.calls("outgoing")), "{}", ran.said);
    assert_eq!(ran.calls("failed"), 0, "{}", ran.said);
    let folder = folder();
    let file = folder.path().join("profile.csv");
    std::fs::write(&file, "time,rate\n0,20\n1,100,ramp\n2,0\n").expect("the folder can be written");
    let ran = load(&[&words[..], &[&file.display().to_string()]].concat());
    assert!((68..=72).contains(&ran.calls("outgoing")), "{}", ran.said);
}

fn a_limit_does_not_lower_the_wish() {
    let uas = answers(&[]);
    let words = [&uas.address.to_string(), "-r", "200", "-m", "100", "-l", "5", "--hold", "50ms"];
    let ran = load(&words);
    ran.all_successful(100);
    let rate = |name: &str| ran.json["rates"][name]["value"].as_f64().expect("a rate");
    assert!((180.0..220.0).contains(&rate("rate.intended")), "{}", ran.said);
    assert!(rate("rate.achieved") <= 105.0, "five at once, twenty each a second: {}", ran.said);
    assert!(ran.delay("wait.limit", "max") >= 300_000.0 && ran.said.contains("held back by the limit"), "{}", ran.said);
    assert!(ran.delay("srd.intended", "max") >= 300_000.0, "the wait is in what callers see: {}", ran.said);
}

fn a_duration_bounds_a_run_with_a_limit() {
    let uas = answers(&[]);
    let begun = std::time::Instant::now();
    // Five at once of 100 ms each: fifty per second of the two hundred intended.
    let ran =
        load(&[&uas.address.to_string(), "-r", "200", "-l", "5", "-d", "1s", "--hold", "100ms", "--no-preflight"]);
    assert!(begun.elapsed().as_secs_f64() < 3.0, "{:?}: {}", begun.elapsed(), ran.said);
    let (intended, outgoing) = (ran.calls("intended"), ran.calls("outgoing"));
    assert!(intended == 200 && (20..=55).contains(&outgoing), "{intended} {outgoing}: {}", ran.said);
    assert_eq!((ran.calls("successful"), ran.calls("failed")), (outgoing, 0), "{}", ran.said);
    assert!(ran.said.contains(&format!("{} of 200 were not started at all", 200 - outgoing)), "{}", ran.said);
    ran.ended_with(0);
}

fn who_looks_away_loses_nothing() {
    let uas = answers(&[]);
    let folder = folder();
    let report = folder.path().join("report.json");
    let address = uas.address.to_string();
    let words = [address.as_str(), "-r", "50", "--duration", "1500ms", "--hold", "0", "--json"];
    let mut command = command(&[&words[..], &[report.to_str().expect("the path is ASCII")]].concat());
    // As `2>&1 | head -0` does: both outputs are closed while it runs.
    let piped = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = piped.spawn().expect("the program starts");
    drop((child.stdout.take(), child.stderr.take()));
    let status = child.wait().expect("it ends");
    let json: Value = serde_json::from_slice(&std::fs::read(&report).expect("the report is there")).expect("JSON");
    assert_eq!(json["counters"]["calls.outgoing"], 75);
    assert!([Some(0), Some(4)].contains(&status.code()), "{status:?}");
}

fn several_sources_take_turns() {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    let seen: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let told = seen.clone();
    let target = peer(move |_, text| {
        if text.starts_with("MESSAGE") {
            let via = text.lines().find_map(|line| line.strip_prefix("Via: SIP/2.0/UDP ")).unwrap_or_default();
            let host = via.split(':').next().unwrap_or_default().to_owned();
            *told.lock().expect("nobody panics with it").entry(host).or_default() += 1;
        }
        Some("200 OK")
    });
    let words = [&target.to_string(), "-w", "message", "-r", "100", "-m", "30"];
    let ran = load(&[&words[..], &["--source", "127.0.1.1,127.0.1.2", "--source", "127.0.1.3"]].concat());
    ran.all_successful(30);
    let seen = seen.lock().expect("nobody panics with it").clone();
    let want = ["127.0.1.1", "127.0.1.2", "127.0.1.3"].map(|host| (host.to_owned(), 10));
    assert_eq!(seen, BTreeMap::from(want), "{}", ran.said);
    let (code, said) = refused(&[&words[..], &["--source", "192.0.2.77"]].concat());
    assert!(code == 1 && said.contains("192.0.2.77"), "{code}: {said}");
}

fn long_series_are_put_together() {
    let uas = answers(&[]);
    let address = uas.address.to_string();
    let words = [&address, "-r", "50", "--duration", "4s", "--hold", "0", "--series", "2", "--log", "run.log"];
    let mut generator = Running::start(&words);
    let ran = generator.end(Duration::from_secs(60));
    let log = generator.folder().join("run.log").display().to_string();
    let again = load(&["report", &log, "--series", "2"]);
    let whole = load(&["report", &log]);
    let rows = |ran: &Ran| ran.json["series"]["rows"].as_array().expect("a series").len();
    assert!(rows(&ran) <= 2 && rows(&again) <= 2 && rows(&whole) >= 4, "{}", ran.said);
    assert!(ran.json["series"]["step"].as_u64() >= Some(2), "{}", ran.json["series"]["step"]);
    for (name, ran) in [("run", &ran), ("log", &again), ("whole", &whole)] {
        as_published(&ran.json);
        let columns = ran.json["series"]["columns"].as_array().expect("columns");
        let place = columns.iter().position(|column| column == "calls.outgoing").expect("it is a column");
        let rows = ran.json["series"]["rows"].as_array().expect("a series");
        let sum: f64 = rows.iter().filter_map(|row| row[place + 1].as_f64()).sum();
        assert_eq!(sum, ran.calls("outgoing") as f64, "{name}");
    }
}
