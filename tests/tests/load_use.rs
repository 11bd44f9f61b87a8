//! What a stranger to `strowger load` tries, and what then has to come of it.

use std::time::Duration;

use strowger_tests::generator::{Running, load, refused};
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport;
use strowger_tests::{alone, port, together};

/// What does not measure: these cases bear company.
#[test]
fn cases_of_strangers() {
    let _alone = alone();
    together(&[
        ("who_answers_is_reached_by_every_address", who_answers_is_reached_by_every_address),
        ("passwords_may_hold_anything", passwords_may_hold_anything),
        ("schedules_without_calls_are_refused", schedules_without_calls_are_refused),
    ]);
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
