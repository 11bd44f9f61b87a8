//! First attempts of new users of `strowger load`, and the required results.

use std::path::Path;
use std::time::Duration;
use strowger_tests::wait;

use strowger_tests::generator::{Running, answers, load, refused};
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport;
use strowger_tests::{binary, port, together};

/// Cases without measurements: they may run in parallel.
#[test]
fn cases_of_strangers() {
    together(&[
        ("who_answers_is_reached_by_every_address", who_answers_is_reached_by_every_address),
        ("passwords_may_hold_anything", passwords_may_hold_anything),
        ("schedules_without_calls_are_refused", schedules_without_calls_are_refused),
        ("a_link_named_sipp_works_in_the_background", a_link_named_sipp_works_in_the_background),
        ("documents_say_what_they_meet", documents_say_what_they_meet),
        ("documents_that_do_not_fit_are_explained", documents_that_do_not_fit_are_explained),
        ("no_report_costs_another", no_report_costs_another),
        ("who_is_called_unregisters", who_is_called_unregisters),
        ("who_waits_for_calls_says_nothing_meanwhile", who_waits_for_calls_says_nothing_meanwhile),
    ]);
}

/// An unwritable report is an error before the first call; existing reports are not overwritten.
fn no_report_costs_another() {
    let (uas, folder) = (answers(&[]), tempfile::tempdir().expect("a temporary folder can be made"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let target = uas.address.to_string();
    let (log, one, link) = (path("run.log"), path("one"), path("link"));
    let calls = [target.as_str(), "-r", "50", "-m", "5", "--hold", "0"];
    load(&[&calls[..], &["--log", &log]].concat()).all_successful(5);
    let before = std::fs::read(&log).expect("the log is there");
    std::os::unix::fs::symlink(&log, &link).expect("the folder can be written");
    for (words, part) in [
        (&[&calls[..], &["--json", &one, "--html", &one]].concat()[..], "two reports"),
        (&[&calls[..], &["--csv", &one, "--log", &one]].concat(), "two reports"),
        (&[&calls[..], &["--log", "-"]].concat(), "--log takes a file"),
        (&[&calls[..], &["--json", "/proc/report.json"]].concat(), "/proc/report.json cannot be written"),
        (&["report", &log, "--json", &log], "one of the logs that are read"),
        (&["report", &log, "--html", &link], "one of the logs that are read"),
    ] {
        let (code, said) = refused(words);
        assert!(code == 2 && said.contains(part), "{words:?}: {code} {said}");
    }
    assert!(!Path::new(&one).exists(), "nothing was written");
    assert_eq!(std::fs::read(&log).expect("the log is there"), before);
    assert_eq!(uas.report().count("counters", "incoming.sessions"), 5, "nobody was called");
    // A device accepts all of them.
    let nowhere = ["--json", "/dev/null", "--html", "/dev/null", "--quiet"];
    let written = strowger_tests::generator::output(&[&["report", &log][..], &nowhere].concat());
    assert_ne!(written.status.code(), Some(2), "{}", String::from_utf8_lossy(&written.stderr));
}

/// Without a terminal there is no line per second about nothing.
fn who_waits_for_calls_says_nothing_meanwhile() {
    let uas = answers(&[]);
    // A line for each second would be three by then.
    std::thread::sleep(Duration::from_millis(3_500));
    uas.signal(libc::SIGINT);
    let ran = uas.end();
    let lines: Vec<&str> = ran.said.lines().filter(|line| line.contains(" s  0 calls")).collect();
    assert!(lines.len() <= 1, "{}", ran.said);
}

/// No run leaves a contact that would count in the next run: in this test a user may have only one contact.
fn who_is_called_unregisters() {
    let server = Setup::on(&[Transport::Udp, Transport::Tcp])
        .with("domains = [\"example.org\"]\nrealm = \"example.org\"\nregistrar.max_contacts = 1")
        .start();
    let list = server.folder().join("users.csv").display().to_string();
    for name in ["alice", "bob", "carol"] {
        server.add_user(&format!("{name}@example.org"), "secret");
    }
    std::fs::write(&list, "alice;secret\nbob;secret\ncarol;secret\n").expect("the folder can be written");
    let udp = server.address(Transport::Udp).to_string();
    let tcp = format!("tcp://{}", server.address(Transport::Tcp));
    let words = |target, more: &[&'static str]| -> Vec<String> {
        let words = [&[target, "--domain", "example.org", "--no-preflight", "--max-lag", "1min"], more].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let pair = ["--auth", "alice:secret", "--callee", "bob:secret", "--pair", "-r", "20"];
    let few = [&pair[..], &["-m", "2", "--hold", "0"]].concat();
    let run = |words: &[String]| load(&words.iter().map(String::as_str).collect::<Vec<_>>());
    for target in [&udp, &tcp, &udp] {
        let ran = run(&words(target, &few));
        ran.all_successful(2);
        // The registration of the callee is not part of the measurement.
        assert_eq!(ran.count("counters", "calls.outgoing"), 2, "{}", ran.said);
    }
    // After Ctrl-C, once and twice.
    for times in [1, 2] {
        let long = words(&udp, &[&pair[..], &["--hold", "1h", "--duration", "1h"]].concat());
        let mut long = Running::start(&long.iter().map(String::as_str).collect::<Vec<_>>());
        long.wait_for("answered here on");
        long.reach(1);
        (0..times).for_each(|_| {
            long.signal(libc::SIGINT);
            // Pending signals of one kind are merged.
            std::thread::sleep(Duration::from_millis(100));
        });
        let ran = long.end(Duration::from_secs(10));
        assert!(ran.calls("outgoing") > 0 && !ran.said.contains("not removed"), "{}", ran.said);
        run(&words(&udp, &few)).all_successful(2);
    }
    // Users that wait for calls, over a socket for all and one for each.
    for connections in ["one", "per-user", "one"] {
        let waiting =
            words(&udp, &["-w", "register-then-receive", "-r", "50", "-d", "500ms", "--connections", connections]);
        let ran = run(&[&waiting[..], &["--users".to_owned(), list.clone()]].concat());
        ran.all_successful(3);
        assert!(!ran.said.contains("not removed"), "{}", ran.said);
    }
    // Another contact of bob stays: the refusal is reported unchanged, and no password is blamed.
    run(&words(&udp, &["-w", "register", "--auth", "bob:secret", "-m", "1"])).all_successful(1);
    let said = |more: &[&'static str]| {
        let words = words(&udp, more);
        refused(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (code, text) = said(&few);
    assert!(code == 1 && text.contains("bob could not be registered: the target answered 403 Forbidden"), "{text}");
    assert!(!text.contains("password"), "{text}");
    let (code, text) = said(&["--auth", "alice:secret", "--callee", "carol:wrong", "--pair", "-m", "1"]);
    assert!(code == 1 && text.contains("answered 401") && text.contains("is the password right"), "{text}");
}

fn who_answers_is_reached_by_every_address() {
    for transport in ["udp", "tcp"] {
        let port = port::free().to_string();
        let mut uas = Running::start(&["uas", "--port", &port, "--transport", transport]);
        uas.wait_for("of every IPv4 address");
        for address in ["127.0.0.1", "127.0.0.77"] {
            let ran = load(&[&format!("{transport}://{address}:{port}"), "-r", "100", "-m", "5", "--hold", "0"]);
            ran.all_successful(5);
        }
        uas.signal(libc::SIGINT);
        let there = uas.end(Duration::from_secs(10));
        assert_eq!(there.count("counters", "incoming.completed"), 10, "{}", there.said);
    }
}

fn passwords_may_hold_anything() {
    let server = Setup::on(&[Transport::Udp])
        .with("domains = [\"example.org\"]\nrealm = \"example.org\"\nban.enabled = false")
        .start();
    let target = server.address(Transport::Udp).to_string();
    let list = server.folder().join("users.csv");
    for (number, password) in
        ["say \"yes\"", "a[field0]b]", "back\\slash\\x41", "semi;colon,comma:", "ä €"].iter().enumerate()
    {
        let user = format!("user{number}");
        server.add_user(&format!("{user}@example.org"), password);
        let words = [target.as_str(), "-w", "register", "--domain", "example.org", "-r", "50", "-m", "2"];
        let ran = load(&[&words[..], &["--auth", &format!("{user}:{password}")]].concat());
        ran.all_successful(2);
        // Two users, so that each call takes the next of a list.
        std::fs::write(&list, format!("{user}\t{password}\n{user}\t{password}\n")).expect("the folder can be written");
        let file = list.display().to_string();
        let listed = [&words[..], &["--users", &file]].concat();
        if password.contains(';') {
            let (code, said) = refused(&listed);
            assert!(code == 2 && said.contains("semicolon"), "{code}: {said}");
        } else {
            load(&listed).all_successful(2);
        }
    }
}

fn schedules_without_calls_are_refused() {
    for words in [&["-m", "0"][..], &["-r", "0"], &["-r", "0", "-m", "5"], &["-l", "0"], &["--rate-profile", "0:5s"]] {
        let (code, said) = refused(&[&["127.0.0.1"], words].concat());
        assert!(code == 2 && said.contains("no call begin"), "{words:?}: {code}: {said}");
    }
}

/// Returns a document with one OPTIONS, the expected answer, and more steps.
fn options(answer: &str, more: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<scenario name=\"options\">\n<send><![CDATA[\n
        OPTIONS sip:[remote_ip]:[remote_port] SIP/2.0\n
        Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n
        From: <sip:a@[local_ip]:[local_port]>;tag=[call_number]\n
        To: <sip:[remote_ip]>\n
        Call-ID: [call_id]\n
        CSeq: 1 OPTIONS\n
        Content-Length: 0\n
        ]]></send>\n<recv response=\"{answer}\" crlf=\"true\" crlf=\"true\"/>\n{more}\n</scenario>\n"
    )
    .replace("\n\n", "\n")
}

fn documents_say_what_they_meet() {
    let uas = answers(&[]);
    let address = uas.address.to_string();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("call.xml");
    let document = path.display().to_string();
    let words = [address.as_str(), "--scenario", &document, "-r", "100", "-m", "3"];
    let run = |answer: &str, more: &str| {
        std::fs::write(&path, options(answer, more)).expect("the folder can be written");
        load(&words)
    };

    let ran = run("200", "<nop><action><exec play_dtmf=\"1\"/></action></nop>");
    ran.all_successful(3);
    ran.ended_with(0);
    assert!(ran.said.contains("call.xml:12:") && ran.said.contains("is repeated here"), "{}", ran.said);
    assert!(ran.said.contains("3 × audio cannot be sent"), "{}", ran.said);

    let ran = run("486", "");
    ran.ended_with(1);
    assert!(ran.said.contains("3 × Aborting call on unexpected message"), "{}", ran.said);
    assert!(ran.said.contains("while expecting '486' (index 1)"), "{}", ran.said);

    let ran = run("200", "<nop><action><error message=\"the door is shut\"/></action></nop>");
    ran.ended_with(1);
    assert_eq!(ran.json["run"]["ended"], "an error ended it", "{}", ran.said);
    assert!(ran.said.contains("the door is shut"), "{}", ran.said);
}

fn documents_that_do_not_fit_are_explained() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("answer.xml");
    let text = "<?xml version=\"1.0\"?><scenario name=\"a\"><recv request=\"INVITE\"/></scenario>";
    std::fs::write(&path, text).expect("the folder can be written");
    let document = path.display().to_string();
    let (code, said) = refused(&["127.0.0.1", "--scenario", &document, "--dry-run"]);
    assert!(code == 2 && said.contains("load uas --scenario"), "{code}: {said}");
    // Errors name existing options.
    for (more, option) in [("[field0]", "--inf FILE"), ("[own]", "--key own=VALUE")] {
        std::fs::write(&path, options("200", "").replace("CSeq: 1", &format!("X-Own: {more}\nCSeq: 1")))
            .expect("as before");
        let (code, said) = refused(&["127.0.0.1", "--scenario", &document, "--dry-run"]);
        assert!(code == 2 && said.contains(option) && said.contains("answer.xml:"), "{code}: {said}");
    }
    std::fs::write(&path, options("486", "")).expect("the folder can be written");
    let (code, said) = refused(&["127.0.0.1", "--scenario", &document, "--dry-run"]);
    assert!(code == 0 && said.contains("did not come to its end here"), "{code}: {said}");
}

fn a_link_named_sipp_works_in_the_background() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let link = folder.path().join("sipp");
    std::os::unix::fs::symlink(binary::strowger(), &link).expect("the folder can be written");
    for (program, first) in [(&*link, None), (binary::strowger(), Some("sipp"))] {
        let uas = answers(&[]);
        let address = uas.address.to_string();
        let statistics = folder.path().join("statistics.csv");
        let mut command = std::process::Command::new(program);
        command.args(first).args(["-sn", "uac", &address, "-m", "40", "-r", "20", "-bg", "-trace_stat", "-stf"]);
        let output = command.arg(&statistics).current_dir(folder.path()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(99) && said.contains("Background mode - PID="), "{said}");
        let process = said.rsplit_once('=').and_then(|(_, rest)| rest.trim().strip_suffix(']')).expect("a number");
        // The process is no child of this test, so it cannot be waited for.
        wait::until(Duration::from_secs(15), || !Path::new("/proc").join(process).join("exe").exists());
        assert_eq!(uas.report().count("counters", "incoming.completed"), 40);
        let lines = std::fs::read_to_string(&statistics).expect("statistics were written");
        assert!(lines.lines().count() >= 2, "a head and the end:\n{lines}");
    }
}
