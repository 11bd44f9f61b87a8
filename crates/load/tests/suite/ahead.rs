//! Users that connect before the schedule, and connections that are held or lost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use strowger_core::Transport;
use strowger_load::campaign::{Campaign, Connections, Ended, Plan, Pool, Stage, User, Work};
use strowger_load::engine::pace::Part;
use strowger_load::workload::Workload;
use strowger_measure::Counter;
use strowger_message::Method;
use strowger_scenario::injection::LineOrder;

/// Plan of registrations of these users to an address, each over its own connection.
fn plan(to: SocketAddr, users: usize, calls: u64, rate: f64) -> Plan {
    let mut plan = Plan::to(format!("tcp://{to}").parse().expect("a target"));
    plan.work = Work::Ready(Workload::Register);
    plan.users = (0..users).map(|i| User { name: format!("user{i}"), password: String::new() }).collect();
    plan.connections = Connections::PerUser;
    plan.profile = vec![Part::Hold { rate }];
    plan.calls = Some(calls);
    plan.sources = vec![to.ip()];
    plan
}

/// Runs a campaign to its end.
fn finish(mut campaign: Campaign) -> Ended {
    while campaign.poll(Duration::from_millis(20)) != Stage::Over {}
    campaign.finish()
}

fn counts<const N: usize>(ended: &Ended, counters: [Counter; N]) -> [u64; N] {
    counters.map(|counter| ended.run.totals.counter(counter))
}

/// Starts an answering side by TCP.
fn registrar() -> Campaign {
    let plan = Plan {
        transport: Transport::Tcp,
        sources: vec![[127, 0, 0, 1].into()],
        profile: vec![Part::Hold { rate: 0.0 }],
        ..Plan::answering()
    };
    Campaign::start(plan, &|| false).expect("a port is free")
}

#[test]
fn users_connect_at_the_rate_and_calls_find_their_connections() {
    let mut registrar = registrar();
    let address = registrar.answering_at().expect("it answers");
    for (shards, order) in [(1, LineOrder::Sequential), (3, LineOrder::Random)] {
        let mut plan = plan(address, 30, 40, 200.0);
        plan.pool = Pool { connect_rate: Some(100.0), order, ..Pool::default() };
        plan.shards = shards;
        let ended = finish(Campaign::start(plan, &|| false).expect("the users can register"));
        let [ahead, rate, made, lost, held] = counts(
            &ended,
            [
                Counter::ConnectionsAhead,
                Counter::ConnectionsAheadRate,
                Counter::ConnectionsMade,
                Counter::ConnectionsLost,
                Counter::ConnectionsHeld,
            ],
        );
        assert_eq!((ahead, made, lost, held), (30, 0, 0, 30), "{:?}", ended.run.generators[0].notes);
        // The first user of each generator connects without a wait.
        assert!((1..=115).contains(&rate), "{rate}");
        let calls = [Counter::CallsOutgoing, Counter::RegistrationSuccessful, Counter::CallsFailed];
        assert_eq!(counts(&ended, calls), [40, 40, 0], "registrations before the schedule are in no figure");
        let notes = &ended.run.generators[0].notes;
        assert!(notes.iter().any(|note| note.text.starts_with("30 users connected before")), "{notes:?}");
    }
    registrar.interrupt();
    let ended = finish(registrar);
    assert_eq!(ended.run.totals.requests_received(Method::Register), 2 * (30 + 40));
}

const OPTIONS: &str = "<?xml version=\"1.0\"?><scenario name=\"asks\"><send><![CDATA[\n\
    OPTIONS sip:[remote_ip]:[remote_port] SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
    From: <sip:[field0]@[local_ip]>;tag=[pid]f[call_number]\nTo: <sip:[remote_ip]>\nCall-ID: [call_id]\nCSeq: 1 OPTIONS\n\
    Max-Forwards: 70\nContent-Length: 0\n\n]]></send><recv response=\"200\"/></scenario>";

#[test]
fn each_line_of_a_document_connects_ahead_at_one_generator() {
    let mut registrar = registrar();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [document, data] = ["asks.xml", "lines.csv"].map(|name| folder.path().join(name));
    std::fs::write(&document, OPTIONS).expect("the folder can be written");
    let lines: String = (0..10).map(|i| format!("line{i};\n")).collect();
    std::fs::write(&data, format!("RANDOM\n{lines}")).expect("the folder can be written");
    let mut plan = plan(registrar.answering_at().expect("it answers"), 0, 30, 200.0);
    (plan.work, plan.injections, plan.shards) = (Work::Document(document), vec![data], 2);
    plan.pool.connect_rate = Some(200.0);
    let ended = finish(Campaign::start(plan, &|| false).expect("the lines can connect"));
    let counters =
        [Counter::ConnectionsAhead, Counter::ConnectionsMade, Counter::ConnectionsHeld, Counter::CallsSuccessful];
    assert_eq!(counts(&ended, counters), [10, 0, 10, 30], "{:?}", ended.run.generators[0].notes);
    registrar.interrupt();
    assert_eq!(finish(registrar).run.totals.requests_received(Method::Options), 40);
}

#[test]
fn a_run_whose_users_cannot_connect_does_not_begin() {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port is free");
    let mut plan = plan(address, 3, 3, 100.0);
    plan.pool.connect_rate = Some(1_000.0);
    let refused = Campaign::start(plan, &|| false).err().expect("nothing listens");
    assert!(refused.starts_with("None of 3 users") && refused.contains("--source"), "{refused}");
}

/// Answers the first request of a connection with 200 and ends the connection.
fn answer_once(mut stream: TcpStream) {
    let (mut text, mut buffer) = (String::new(), [0; 4_096]);
    while !text.contains("\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => text.push_str(&String::from_utf8_lossy(&buffer[..length])),
            _ => return,
        }
    }
    let kept =
        text.lines().filter(|line| ["Via", "From", "To", "Call-ID", "CSeq"].iter().any(|name| line.starts_with(name)));
    let kept: String = kept.map(|line| format!("{line}\r\n")).collect();
    let _ = stream.write_all(format!("SIP/2.0 200 OK\r\n{kept}Content-Length: 0\r\n\r\n").as_bytes());
}

#[test]
fn a_connection_that_the_other_side_ends_is_lost_and_made_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer_once));
    // Each user registers twice, half a second apart.
    let ended = finish(Campaign::start(plan(address, 2, 4, 4.0), &|| false).expect("a target"));
    let [made, lost, failed] =
        counts(&ended, [Counter::ConnectionsMade, Counter::ConnectionsLost, Counter::CallsFailed]);
    assert_eq!((made, failed), (4, 0));
    // The end of the last ones may come after the end of the run.
    assert!((2..=4).contains(&lost), "{lost}");
}
