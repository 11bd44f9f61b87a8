//! Metrics of the process: start, log, configuration.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Stage, code};
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::server::Setup;
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::{control, port};

pub(super) const SCENES: &[(&str, fn())] = &[
    ("a new server", new_server),
    ("reloads", reloads),
    ("data sets", sets),
    ("a log that cannot be written", failing_log),
    ("connections of collectors and commands", crowded),
];

fn new_server() {
    let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64();
    let before = since_1970();
    let mut stage = Stage::start(Setup::on(&[Udp]).relay());
    stage.shows(&[
        ("process_start_time_seconds", Above(before - 1.0)),
        ("shards", At(1)),
        ("process_resident_memory_bytes", Above(1e6)),
        ("process_open_fds", Above(5.0)),
        ("process_max_fds", Above(100.0)),
    ]);
    assert!(
        stage.meter.sees("process_cpu_seconds_total", More, Duration::from_secs(10))
            || stage.meter.value("process_cpu_seconds_total") > 0.0
    );
    assert!(stage.meter.value("process_start_time_seconds") <= since_1970());
    // Counters begin at 0 with the process; so far it has only waited.
    let counted: Vec<_> =
        stage.meter.look().into_iter().filter(|(name, value)| name.contains("_total") && *value > 0.0).collect();
    assert!(
        counted.iter().all(|(name, _)| ["process_cpu_", "rounds_total{", "shard_busy_"]
            .iter()
            .any(|free| name.starts_with(free))),
        "{counted:?}"
    );
    stage.end();
}

fn reloads() {
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar().with("server.software = \"first\""));
    stage.server.rewrite("\"first\"", "\"second\"");
    control::done(&stage.server, &["reload"]);
    stage.shows(&[
        ("reloads_total", By(1)),
        ("reloads_refused_total", By(0)),
        ("reload_seconds_count", By(1)),
        ("reload_seconds_sum", More),
    ]);
    stage.server.rewrite("\"second\"", "second");
    assert_eq!(control::run(&stage.server, &["reload"]).status.code(), Some(1));
    stage.shows(&[("reloads_total", By(0)), ("reloads_refused_total", By(1)), ("reload_seconds_count", By(0))]);
    stage.end();
}

/// A reload of sets is not counted as one of the configuration.
fn sets() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("set.csv");
    let write = |text: &str| std::fs::write(&file, text).expect("it can be written");
    write("key\na\n");
    let set = format!("[[set]]\nname = \"a\"\nfile = {:?}", file.display().to_string());
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar().with(&set));
    write("key\na\nb\n");
    control::done(&stage.server, &["sets", "reload"]);
    stage.shows(&[("sets_read_total", By(1)), ("reload_seconds_count", By(1)), ("reload_seconds_sum", More)]);
    write("");
    assert_eq!(control::run(&stage.server, &["sets", "reload"]).status.code(), Some(1));
    stage.shows(&[("set_reads_failed_total", By(1)), ("sets_old", At(1))]);
    // With equal entries the shards receive no new set.
    write("key\na\nb\n");
    control::done(&stage.server, &["sets", "reload"]);
    stage.shows(&[("sets_read_total", By(1)), ("sets_old", At(0))]);
    stage.end();
}

/// Standard error is `/dev/full`; one line is lost for each binding.
fn failing_log() {
    let full = ["sh", "-c", "exec \"$0\" \"$@\" 2>/dev/full"];
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar().in_memory().under(&full));
    // The server also lost lines of its start; it writes the log every 0.2 s.
    std::thread::sleep(Duration::from_millis(500));
    stage.meter.begins_again();
    for line in 0..3 {
        let mut phone = stage.server.connect(Udp);
        let contact = format!("sip:bob-{line}@{}", phone.local());
        let request = Request::register("bob", "example.org", &contact, "udp", phone.local());
        assert_eq!(code(&mut phone, &request), 200);
        stage.shows(&[("log_lines_lost_total", By(1)), ("log_write_errors_total", By(1)), ("bindings", At(line + 1))]);
    }
    stage.end();
}

/// The oldest connection without a request gives way to a further one.
fn crowded() {
    let orders = port::free_address();
    let mut stage = Stage::start(Setup::on(&[Udp]).relay().with(&format!("control.listen = \"{orders}\"")));
    // The connections are opened in order, so that the server has accepted all of them except the last.
    let connect = |count: usize, to: SocketAddr| -> Vec<TcpStream> {
        (0..count).map(|_| TcpStream::connect(to).expect("it listens")).collect()
    };
    let mut silent = connect(9, orders);
    stage.shows(&[("control_connections_closed_total", By(1)), ("metrics_connections_closed_total", By(0))]);
    silent.extend(connect(25, stage.metrics));
    stage.shows(&[("metrics_connections_closed_total", More), ("control_connections_closed_total", By(0))]);
    drop(silent);
    stage.meter.begins_again();
    stage.end();
}
