//! Reloads of the configuration at run time: a file is accepted whole, or refused.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::Value;
use strowger_tests::certificate::Certificate;
use strowger_tests::control::{done, metric, run};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, field, status};
use strowger_tests::wait;
use strowger_tests::wire::{Transport, Wire};

const SOON: Duration = Duration::from_secs(10);

fn reload(server: &Server, words: &[&str]) -> Output {
    run(server, &[&["reload"], words].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the value of the `Server` header.
fn software(server: &Server) -> Option<String> {
    let mut wire = server.connect(Transport::Udp);
    let uri = format!("sip:{}", server.address(Transport::Udp));
    wire.send(&Request::new("OPTIONS", &uri, "udp", wire.local()).bytes()).expect("it is sent");
    let answer = wire.final_response(SOON).expect("an answer");
    assert_eq!(status(&answer), Some(200));
    field(&answer, "Server")
}

/// An editor or an interrupted copy left the file empty.
#[test]
fn a_file_that_has_become_empty_is_a_warning() {
    let mut server = Setup::on(&[Transport::Udp]).start();
    std::fs::write(server.config(), "").expect("the folder can be written");
    server.process().signal(libc::SIGHUP);
    server.log_with("the file says nothing");
}

#[test]
fn a_command_and_a_signal_reload_the_configuration() {
    let mut server = Setup::on(&[Transport::Udp]).with("server.software = \"first\"\nserver.shards = 1").start();
    assert_eq!(software(&server).as_deref(), Some("first"));
    server.rewrite("\"first\"", "\"second\"");
    let done = reload(&server, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let expected = format!("reloaded {}\n  server.software  \"first\" -> \"second\"\n", server.config().display());
    assert_eq!(text(&done.stdout), expected);
    assert_eq!(software(&server).as_deref(), Some("second"));

    server.rewrite("\"second\"", "\"third\"");
    server.process().signal(libc::SIGHUP);
    server.process().wait_for("configuration reloaded", 2, SOON);
    assert_eq!(software(&server).as_deref(), Some("third"));
    assert!(text(&reload(&server, &[]).stdout).ends_with(": no key has another value\n"));

    // The reload names keys that need a restart and keeps their values; all others take effect.
    server.rewrite("server.shards = 1", "server.shards = 2\ntimers.t1 = \"250ms\"\nproxy.record_route = false");
    let said = text(&reload(&server, &[]).stdout);
    let lines = "  proxy.record_route  true -> false\nneeds a restart:\n  server.shards       2 in the file, 1 in force\n  \
                 timers.t1           \"250ms\" in the file, \"500ms\" in force\n";
    assert!(said.ends_with(lines), "{said}");
    server.log_with("key needs a restart key=server.shards running=1 file=2");
    let json: Value = serde_json::from_slice(&reload(&server, &["--json"]).stdout).expect("it is JSON");
    let keys: Vec<_> = json["changes"].as_array().expect("a list").iter().map(|change| &change["key"]).collect();
    assert_eq!(keys, ["server.shards", "timers.t1"]);
    assert_eq!((&json["changes"][0]["needs_restart"], &json["changes"][0]["to"]), (&true.into(), &"2".into()));
    server.stop();
    server.start();
    assert!(text(&reload(&server, &[]).stdout).ends_with(": no key has another value\n"));
}

/// The other file names the control socket of the server; its settings would not take effect.
#[test]
fn a_reload_of_another_file_is_refused() {
    let server = Setup::on(&[Transport::Udp]).with("server.software = \"first\"").start();
    let other = server.folder().join("new.toml");
    let words = std::fs::read_to_string(server.config()).expect("it is there").replace("first", "second");
    std::fs::write(&other, words).expect("the folder can be written");
    let program = strowger_tests::binary::strowger();
    let reload = |file: &Path| {
        Command::new(program).args(["reload", "--config"]).arg(file).current_dir(server.folder()).output()
    };
    let refused = reload(&other).expect("it runs");
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("it was started with ") && said.contains("new.toml"), "{said}");
    assert_eq!(software(&server).as_deref(), Some("first"));
    // The same file by another path.
    let link = server.folder().join("link.toml");
    std::os::unix::fs::symlink(server.config(), &link).expect("the folder can be written");
    assert_eq!(reload(&link).expect("it runs").status.code(), Some(0));
}

/// The file was renewed too late, or it is the wrong file: the server accepts it with a warning.
#[test]
fn a_certificate_that_peers_refuse_is_told_by_a_reload() {
    let server = Setup::on(&[Transport::Tls]).start();
    let config = std::fs::read_to_string(server.config()).expect("it is there");
    let path = |key: &str| {
        let line = config.lines().find_map(|line| line.strip_prefix(&format!("tls.{key} = ")));
        line.expect("it has one").trim_matches('"').to_owned()
    };
    let key = KeyPair::from_pem(&std::fs::read_to_string(path("key")).expect("it is there")).expect("a key");
    for (from, until, part) in [(2020, 2021, "expired on "), (2090, 2099, "is not good before ")] {
        let mut own = CertificateParams::new(["example.org".to_owned()]).expect("a name");
        (own.not_before, own.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        std::fs::write(path("certificate"), own.self_signed(&key).expect("it signs itself").pem()).expect("it is ours");
        let done = reload(&server, &[]);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{said}");
        assert!(said.contains(": warning: ") && said.contains(part), "{said}");
        let json: Value = serde_json::from_slice(&reload(&server, &["--json"]).stdout).expect("it is JSON");
        assert!(json["warnings"][0]["message"].as_str().is_some_and(|text| text.contains(part)), "{json}");
        let log = server.log_with(part);
        assert!(log.lines().any(|line| line.contains(" WARN ") && line.contains(part)), "{log}");
    }
}

#[test]
fn a_wrong_configuration_is_refused_and_the_server_keeps_its_own() {
    let mut server = Setup::on(&[Transport::Udp]).with("server.software = \"first\"").start();
    server.rewrite("\"first\"", "\"second\"\nproxy.record_rout = true");
    let refused = reload(&server, &[]);
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), String::new()), "{said}");
    for part in
        ["strowger.toml:5:7: error: ", "\n 5 | proxy.record_rout = true\n", "= write record_route\n", "keeps its own"]
    {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    server.log_with("configuration refused: the server keeps its own");
    assert_eq!(software(&server).as_deref(), Some("first"));
    let refused = reload(&server, &["--json"]);
    let json: Value = serde_json::from_slice(&refused.stdout).expect("it is JSON");
    assert_eq!((refused.status.code(), &json["refused"][0]["line"]), (Some(1), &5.into()), "{json}");
    // A reload by signal is refused too.
    server.process().signal(libc::SIGHUP);
    server.process().wait_for("configuration refused", 3, SOON);
    assert_eq!(software(&server).as_deref(), Some("first"));
    assert_eq!(
        (metric(&server, "strowger_reloads_total"), metric(&server, "strowger_reloads_refused_total")),
        (0.0, 3.0)
    );
    // A corrected file takes effect.
    server.rewrite("record_rout =", "record_route =");
    assert_eq!(reload(&server, &[]).status.code(), Some(0));
    assert_eq!(software(&server).as_deref(), Some("second"));
    assert_eq!(
        (metric(&server, "strowger_reloads_total"), metric(&server, "strowger_reloads_refused_total")),
        (1.0, 3.0)
    );
}

#[test]
fn a_reload_sets_the_level_of_the_log_when_the_file_has_another() {
    let server = Setup::on(&[Transport::Udp]).start();
    let level = |words: &[&str]| done(&server, &[&["log", "level"], words].concat());
    assert_eq!(level(&["debug"]), "debug\n");
    // The log settings of the file have not changed: the operator's level stays.
    assert_eq!(reload(&server, &[]).status.code(), Some(0));
    assert_eq!(level(&[]), "debug\n");
    server.rewrite("log.level = \"info\"", "log.level = \"warn\"");
    assert_eq!(reload(&server, &[]).status.code(), Some(0));
    assert_eq!(level(&[]), "warn\n");
}

/// A database may be slow: signals and calls do not wait for it.
#[test]
fn a_server_that_reads_its_sets_again_hears_its_signals() {
    let mut server = Setup::on(&[Transport::Udp]).start();
    std::fs::write(server.folder().join("slow.sqlite"), "").expect("the folder can be written");
    // The query never yields its first row.
    let set = "\n[[set]]\nname = \"slow\"\ndatabase = \"sqlite:slow.sqlite\"\ntimeout = \"60s\"\nkey = \"k\"\n\
               query = \"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS k FROM n\"\n";
    let file = std::fs::read_to_string(server.config()).expect("it was written") + set;
    std::fs::write(server.config(), file).expect("the folder can be written");
    let tasks = format!("/proc/{}/task", server.process().id());
    let reads = || {
        let ids = std::fs::read_dir(&tasks).expect("the process lives").flatten();
        let mut names = ids.filter_map(|id| std::fs::read_to_string(id.path().join("comm")).ok());
        names.any(|name| name.trim() == "data-set")
    };
    for _ in 0..2 {
        server.process().signal(libc::SIGHUP);
        assert!(wait::until(SOON, reads), "{}", server.log());
        server.assert_answers(Transport::Udp);
    }
    server.process().signal(libc::SIGTERM);
    assert_eq!(server.process().end(SOON).code(), Some(0), "{}", server.log());
}

#[test]
fn a_renewed_certificate_is_shown_to_the_next_connection() {
    let server = Setup::on(&[Transport::Udp, Transport::Tls]).start();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let renewed = Certificate::in_folder(folder.path(), &["example.org"]);
    let connect = |authority: &Path| {
        let mut wire = Wire::connect(Transport::Tls, server.address(Transport::Tls), Some(authority)).ok()?;
        options(&mut wire, &server).then_some(wire)
    };
    let mut before = connect(&server.authority()).expect("the first certificate is shown");
    assert!(connect(&renewed.authority).is_none());

    // A certificate without its key: the server keeps the old one and names the wrong file.
    let own = |name: &str| server.folder().join(name);
    std::fs::copy(&renewed.chain, own("certificate.pem")).expect("the folder can be written");
    let refused = reload(&server, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("certificate.pem"), "{}", text(&refused.stderr));
    assert!(connect(&server.authority()).is_some() && connect(&renewed.authority).is_none());

    std::fs::copy(&renewed.key, own("key.pem")).expect("the folder can be written");
    assert_eq!(reload(&server, &[]).status.code(), Some(0));
    assert!(connect(&renewed.authority).is_some());
    assert!(connect(&server.authority()).is_none());
    assert!(options(&mut before, &server), "the connection of before goes on");
}

/// Tells whether the server answers on this connection.
fn options(wire: &mut Wire, server: &Server) -> bool {
    let uri = format!("sip:{};transport=tls", server.address(Transport::Tls));
    let request = Request::new("OPTIONS", &uri, "tls", wire.local());
    wire.send(&request.bytes()).is_ok() && wire.final_response(SOON).is_some()
}
