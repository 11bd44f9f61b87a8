//! Datagrams: waiting ones, lost ones, and the errors that the kernel reports.

use std::sync::Arc;
use std::time::Duration;

use super::{SOON, Stage, code, send};
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::meter::{self, Meter};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::program::{STRACE, have};
use strowger_tests::server::Setup;
use strowger_tests::text::Request;
use strowger_tests::trace::Trace;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;
use strowger_tests::{port, wait};

pub(super) const SCENES: &[(&str, fn())] = &[
    ("keep-alives", keep_alives),
    ("targets that take no datagram", bad_targets),
    ("a target without a listener", unroutable),
    ("a full receive buffer", full_receive_buffer),
    ("a full send buffer", full_send_buffer),
    ("unread datagrams", unread),
    ("errors of the kernel", receive_errors),
];

fn keep_alives() {
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar());
    let mut phone = stage.server.connect(Udp);
    for ping in [&b"\r\n\r\n"[..], b"\0"] {
        phone.send(ping).expect("loopback takes it");
        stage.shows(&[
            ("datagram_pings_total", By(1)),
            ("datagrams_in_total", By(1)),
            ("datagram_in_bytes_total", By(ping.len() as u64)),
            ("requests_total", By(0)),
            ("datagrams_out_total", By(0)),
        ]);
    }
    stage.end();
}

/// A port without a listener; and a request that exceeds the maximum size of a datagram with the header fields of the
/// server.
fn bad_targets() {
    let setup = Setup::on(&[Udp])
        .relay()
        .with("timers.t1 = \"4s\"\nproxy.udp_to_tcp_above = \"never\"\ndns.set_aside = \"0s\"");
    let mut stage = Stage::start(setup);
    let mut caller = stage.server.connect(Udp);
    let request = Request::new("MESSAGE", &format!("sip:x@{}", port::free_address()), "udp", caller.local());
    assert_eq!(code(&mut caller, &request), 500);
    stage.shows(&[
        ("datagrams_unreachable_total", By(1)),
        ("datagrams_out_total", By(2)),
        ("datagrams_refused_total", By(0)),
        ("transaction_timeouts_total", By(0)),
    ]);
    let phone = stage.server.connect(Udp);
    let mut request = Request::new("MESSAGE", &format!("sip:x@{}", phone.local()), "udp", caller.local());
    request.body = vec![b'x'; 65_000];
    request.body.resize(65_000 + 65_500 - request.bytes().len(), b'x');
    assert_eq!(code(&mut caller, &request), 500);
    stage.shows(&[
        ("datagrams_refused_total", By(1)),
        ("datagrams_out_total", By(1)),
        ("datagrams_unreachable_total", By(0)),
        ("messages_kept_abridged_total", By(1)),
    ]);
    stage.end();
}

/// A binding that another program wrote. Its address is UDP over IPv6, and the server has no such listener.
fn unroutable() {
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar());
    let mut phone = stage.server.connect(Udp);
    let request = Request::register("bob", "example.org", "sip:bob@10.0.0.5", "udp", phone.local());
    assert_eq!(code(&mut phone, &request), 200);
    stage.server.stop();
    let database = stage.server.folder().join("test.sqlite");
    let database = rusqlite::Connection::open(database).expect("the database is there");
    let changed = database.execute("UPDATE binding SET received_address = '[::1]:5060'", []).expect("it is written");
    assert_eq!(changed, 1);
    drop(database);
    stage.restart();
    let request = Request::new("MESSAGE", "sip:bob@example.org", "udp", phone.local());
    assert_eq!(code(&mut phone, &request), 480);
    stage.shows(&[("unroutable_total", By(1)), ("requests_forwarded_total", By(1)), ("datagrams_out_total", By(1))]);
    stage.end();
}

/// The server is stopped while more datagrams arrive than its receive buffer holds.
fn full_receive_buffer() {
    const SENT: u64 = 300;
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar().with("server.udp_receive_buffer = 4096"));
    let mut phone = stage.server.connect(Udp);
    stage.shows(&[("shard_datagrams_dropped_by_kernel_total", By(0)), ("shard_backlog_bytes", At(0))]);
    let before = stage.meter.value("datagrams_in_total");
    stage.server.process().signal(libc::SIGSTOP);
    for _ in 0..SENT {
        phone.send(b"\r\n\r\n").expect("loopback takes it");
    }
    stage.server.process().signal(libc::SIGCONT);
    let mut read = 0.0;
    let is_all_known = || {
        read = stage.meter.value("datagrams_in_total") - before;
        read + stage.meter.value("shard_datagrams_dropped_by_kernel_total") >= SENT as f64
    };
    assert!(wait::until(SOON, is_all_known), "{read} were read");
    assert!(read > 0.0 && read < SENT as f64);
    stage.shows(&[
        ("shard_datagrams_dropped_by_kernel_total", By(SENT - read as u64)),
        ("datagrams_in_total", By(read as u64)),
        ("datagram_pings_total", By(read as u64)),
        ("shard_backlog_bytes", At(0)),
    ]);
    stage.end();
}

/// The kernel queues datagrams to a host whose hardware address it does not know: the send buffer stays full until the
/// host is found.
fn full_send_buffer() {
    const QUEUE: u64 = 4_096;
    const SENT: u64 = 12_000;
    if !namespace::possible() {
        return meter::leave_out(&["datagrams_waiting", "datagrams_dropped_total"]);
    }
    let [own, other] = ["own", "other"].map(Namespace::new);
    own.join(("near", "10.99.0.1/24"), &other, ("far", "10.99.0.2/24"));
    // The kernel repeats its neighbour solicitation each second and does not give up during the test.
    // The kernel drops none of the queued datagrams.
    let words = ["net.ipv4.neigh.near.mcast_solicit=60", "net.ipv4.neigh.near.unres_qlen_bytes=1000000000"];
    let asks = own.command().args(["sysctl", "-q", "-w"]).args(words).status();
    assert!(asks.is_ok_and(|status| status.success()));
    let (tcp, metrics, own) = (port::free_address(), port::free_address(), Arc::new(own));
    let setup = Setup::default().listen(Udp, "10.99.0.1:5060".parse().expect("an address")).listen(Tcp, tcp).relay();
    let lines = format!(
        "server.shards = 1\nlimits.request_memory_per_source = \"1GiB\"\ntimers.t1 = \"10s\"\ntimers.t2 = \"10s\"\nmetrics.listen = \"{metrics}\""
    );
    let server = setup.with(&lines).inside(&own).start();
    let at = own.clone();
    let mut stage = Stage { server, meter: Meter::by(move || at.connect(metrics)), metrics };
    let mut caller = own.inside(|| Wire::connect(Tcp, tcp, None)).expect("the server listens");
    for _ in 0..SENT {
        let mut request = Request::new("MESSAGE", "sip:x@10.99.0.9;transport=udp", "tcp", caller.local());
        request.body = vec![b'x'; 500];
        send(&mut caller, &request);
    }
    assert!(wait::until(SOON, || stage.meter.value("requests_forwarded_total") == SENT as f64));
    let out = stage.meter.value("datagrams_out_total") as u64;
    assert!(out < SENT - QUEUE, "the kernel took {out}");
    stage.shows(&[
        ("datagrams_waiting", At(QUEUE)),
        ("datagrams_out_total", By(out)),
        ("datagrams_dropped_total", By(SENT - QUEUE - out)),
    ]);
    own.ip(&["neighbour", "replace", "10.99.0.9", "lladdr", "02:00:00:00:00:09", "dev", "near"]);
    stage.shows(&[
        ("datagrams_waiting", At(0)),
        ("datagrams_out_total", By(QUEUE)),
        ("datagrams_dropped_total", By(0)),
    ]);
    stage.end();
}

/// A delay at each read of the shard.
fn unread() {
    const BATCH: usize = 64;
    if !have(&[STRACE]) {
        return meter::leave_out(&["shard_backlog_bytes{shard}", "shard_oldest_datagram_seconds{shard}"]);
    }
    let trace = Trace::default();
    let mut stage = Stage::start(Setup::on(&[Udp]).relay().under(&trace.injecting("recvmmsg", "delay_enter=400000")));
    let mut phone = stage.server.connect(Udp);
    let mut ping = |count: usize| (0..count).for_each(|_| phone.send(b"\r\n\r\n").expect("loopback takes it"));
    stage.shows(&[("shard_backlog_bytes", At(0)), ("shard_oldest_datagram_seconds", At(0))]);
    ping(BATCH);
    // Seen during the delay. The shard asks the kernel for timestamps with the first full batch.
    stage.shows(&[("shard_backlog_bytes", Above(0.0))]);
    stage.shows(&[
        ("datagrams_in_total", By(BATCH as u64)),
        ("datagram_pings_total", By(BATCH as u64)),
        ("shard_backlog_bytes", At(0)),
    ]);
    // The kernel begins to give timestamps a little later.
    let is_seen = (0..5).any(|_| {
        ping(3 * BATCH);
        stage.meter.sees("shard_oldest_datagram_seconds", Above(0.1), Duration::from_secs(3))
    });
    assert!(is_seen);
    stage.shows(&[
        ("shard_oldest_datagram_seconds", At(0)),
        ("shard_backlog_bytes", At(0)),
        ("datagram_pings_total", More),
    ]);
    stage.end();
}

fn receive_errors() {
    if !have(&[STRACE]) {
        return meter::leave_out(&["receive_errors_total"]);
    }
    let trace = Trace::default();
    let setup = Setup::on(&[Udp]).open_registrar();
    let mut stage = Stage::start(setup.under(&trace.injecting("recvmmsg", "error=ENOMEM:when=1..2")));
    let mut phone = stage.server.connect(Udp);
    stage.shows(&[("receive_errors_total", By(0))]);
    let request = Request::new("OPTIONS", "sip:example.org", "udp", phone.local());
    assert_eq!(code(&mut phone, &request), 200);
    stage.shows(&[("receive_errors_total", By(2)), ("datagrams_in_total", By(1)), ("batches_in_total", By(1))]);
    stage.end();
}
