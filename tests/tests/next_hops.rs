//! Next hops that fail are set aside for a while: other hops are tried first, and one call probes the failed hop later.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use strowger_tests::call::{exchange, register};
use strowger_tests::control::{done, metric};
use strowger_tests::name_server::{NameServer, Record};
use strowger_tests::port::free_address;
use strowger_tests::server::{Server, Setup};
use strowger_tests::stopwatch::{Stopwatch, Took};
use strowger_tests::text::{Request, field, respond, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);
/// Upper bound of a step that waits for nothing.
const AT_ONCE: Duration = Duration::from_millis(600);

/// Transactions without an answer end after 1.28 s.
const QUICK: &str = "timers.t1 = \"20ms\"";
/// A server without a database file has no control socket by default.
const CONTROL: &str = "control.socket = \"orders\"";
const SLOW: Duration = Duration::from_millis(1_200);

/// A host that answers requests over UDP as the test directs.
struct Host {
    socket: UdpSocket,
    /// Call-IDs of the answered requests: a repetition counts as no other request.
    answered: RefCell<BTreeSet<String>>,
}

impl Host {
    fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback address");
        Self { socket, answered: RefCell::default() }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    /// Receives the next request within this time, and its sender.
    fn takes(&self, limit: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        self.socket.set_read_timeout(Some(limit.max(Duration::from_millis(1)))).expect("a socket can be set");
        let mut buffer = vec![0; 4_000];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        buffer.truncate(length);
        Some((buffer, from))
    }

    /// Answers the next request with this status; returns its Call-ID.
    #[track_caller]
    fn answers(&self, code: u16, lines: &[String]) -> String {
        loop {
            let (request, from) = self.takes(LIMIT).expect("a request comes");
            self.socket.send_to(&respond(&request, code, "host", lines), from).expect("loopback takes it");
            let call_id = field(&request, "Call-ID").expect("it has one");
            if self.answered.borrow_mut().insert(call_id.clone()) {
                return call_id;
            }
        }
    }

    /// Returns the Call-IDs of all unanswered requests, each once, until no more arrive.
    fn seen(&self) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some((request, _)) = self.takes(Duration::from_millis(50)) {
            let call_id = field(&request, "Call-ID").expect("it has one");
            if !seen.contains(&call_id) && !self.answered.borrow().contains(&call_id) {
                seen.push(call_id);
            }
        }
        seen
    }
}

/// Returns the records of a name that leads to these hosts, the first before the second.
fn pool(hosts: [&Host; 2]) -> Vec<(&'static str, Record)> {
    let srv = |n: u16| Record::Srv(n, 0, hosts[usize::from(n)].address().port(), format!("host{n}.test"));
    vec![
        ("_sip._udp.pool.test", srv(0)),
        ("_sip._udp.pool.test", srv(1)),
        ("host0.test", Record::A(Ipv4Addr::LOCALHOST)),
        ("host1.test", Record::A(Ipv4Addr::LOCALHOST)),
    ]
}

fn relay(names: &NameServer, lines: &str) -> Server {
    Setup::on(&[Udp, Tcp]).relay().with(CONTROL).with(QUICK).with(&names.line()).with(lines).start()
}

/// Sends a MESSAGE to this URI over a stream, once; returns its Call-ID.
fn send(caller: &mut Wire, uri: &str) -> String {
    let request = Request::new("MESSAGE", uri, "tcp", caller.local());
    caller.send(&request.bytes()).expect("the server takes messages");
    request.call_id
}

/// Sends a MESSAGE that this host answers with 200; returns the time until its arrival.
#[track_caller]
fn reaches(caller: &mut Wire, uri: &str, host: &Host) -> Took {
    let begun = Stopwatch::start();
    let call_id = send(caller, uri);
    assert_eq!(host.answers(200, &[]), call_id);
    let took = begun.took();
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
    took
}

const URI: &str = "sip:x@pool.test";

#[test]
fn of_two_servers_the_dead_one_costs_one_call_and_is_tried_again() {
    let [first, second] = [Host::new(), Host::new()];
    let Some(names) = NameServer::start(&pool([&first, &second])) else { return };
    let server = relay(&names, "dns.set_aside = \"2s\"");
    let mut caller = server.connect(Tcp);
    assert!(reaches(&mut caller, URI, &first).is_below(AT_ONCE));
    // The first host is silent now.
    let begun = Instant::now();
    assert!(reaches(&mut caller, URI, &second).is_at_least(SLOW));
    let aside = Instant::now();
    assert_eq!(first.seen().len(), 1);
    for _ in 0..10 {
        assert!(reaches(&mut caller, URI, &second).is_below(AT_ONCE));
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "the machine is too slow for this test");
    assert_eq!(first.seen(), Vec::<String>::new());
    assert_eq!(
        [metric(&server, "strowger_targets_aside"), metric(&server, "strowger_target_failures_total")],
        [1.0; 2]
    );
    assert!(done(&server, &["status"]).contains("  next hops      1 set aside, 1 failures\n"));
    // After this time one call probes the hop, and no other call waits for this probe.
    std::thread::sleep(Duration::from_millis(2_050).saturating_sub(aside.elapsed()));
    let mut other = server.connect(Tcp);
    let tries = send(&mut other, URI);
    assert_eq!(field(&first.takes(LIMIT).expect("it is tried").0, "Call-ID"), Some(tries.clone()));
    assert!(reaches(&mut caller, URI, &second).is_below(AT_ONCE));
    assert_eq!(second.answers(200, &[]), tries);
    first.seen();
    assert!(reaches(&mut caller, URI, &second).is_below(AT_ONCE), "it has failed again");
    // At the next probe the host answers, and is the first choice again.
    let aside = Instant::now();
    let is_back = || aside.elapsed() > Duration::from_millis(2_100);
    wait::until(LIMIT, is_back);
    for _ in 0..3 {
        assert!(reaches(&mut caller, URI, &first).is_below(AT_ONCE));
    }
    assert_eq!(
        [metric(&server, "strowger_targets_aside"), metric(&server, "strowger_target_failures_total")],
        [0.0, 2.0]
    );
    let log = server.log_with("next hop answers again");
    let line = log.lines().find(|line| line.contains("next hop set aside")).unwrap_or_else(|| panic!("{log}"));
    for part in [&format!("to={}", first.address()), "transport=udp", "reason=\"no response\"", "seconds=2"] {
        assert!(line.contains(part), "no {part} in {line}");
    }
}

/// RFC 8767, and section 4.3 of RFC 3263: neither delays a second call.
#[test]
fn a_frozen_name_server_and_a_dead_host_slow_one_call() {
    let [first, second] = [Host::new(), Host::new()];
    let Some(names) = NameServer::start(&pool([&first, &second])) else { return };
    names.set_lifetime(1);
    let server = relay(&names, "dns.timeout = \"150ms\"");
    let mut caller = server.connect(Tcp);
    reaches(&mut caller, URI, &first);
    names.freeze(true);
    let asked = names.askers().len();
    let begun = Instant::now();
    let mut took = Vec::new();
    while begun.elapsed() < Duration::from_secs(5) {
        took.push(reaches(&mut caller, URI, &second));
        // Ten calls a second keep the name in use.
        std::thread::sleep(Duration::from_millis(100));
    }
    let slow = took.iter().filter(|took| !took.is_below(AT_ONCE)).count();
    assert!(slow <= 1 && took.iter().any(|took| took.is_at_least(SLOW)), "{took:?}");
    assert!(names.askers().len() > asked, "it was asked on");
    assert!(metric(&server, "strowger_names_stale_total") > 1.0);
    // A name that was never resolved does not delay calls to other names.
    let mut other = server.connect(Tcp);
    send(&mut other, "sip:x@host9.test:5060;transport=udp");
    assert!(reaches(&mut caller, URI, &second).is_below(AT_ONCE));
    assert!(other.final_response(LIMIT).as_deref().and_then(status).is_some_and(|code| code >= 500));
}

#[test]
fn names_in_use_are_asked_for_before_they_end() {
    let host = Host::new();
    let Some(names) = NameServer::start(&[("host.test", Record::A(Ipv4Addr::LOCALHOST))]) else { return };
    names.set_lifetime(3);
    // A resolution takes a second at most: the server refreshes a name that long before its expiry.
    let server = relay(&names, "dns.timeout = \"500ms\"");
    let (mut caller, uri) = (server.connect(Tcp), format!("sip:x@host.test:{};transport=udp", host.address().port()));
    reaches(&mut caller, &uri, &host);
    let begun = Instant::now();
    reaches(&mut caller, &uri, &host);
    let asked = || names.asked("host.test", 1);
    assert_eq!(asked(), 1);
    // In the last third of its lifetime.
    std::thread::sleep(Duration::from_millis(2_200).saturating_sub(begun.elapsed()));
    reaches(&mut caller, &uri, &host);
    assert!(begun.elapsed() < Duration::from_millis(2_800), "the machine is too slow for this test");
    assert!(wait::until(LIMIT, || asked() == 2), "{} questions", asked());
    // After its expiry.
    std::thread::sleep(Duration::from_millis(3_200).saturating_sub(begun.elapsed()));
    reaches(&mut caller, &uri, &host);
    assert_eq!(asked(), 2);
    assert_eq!(metric(&server, "strowger_names_asked_ahead_total"), 1.0);
}

#[test]
fn what_was_known_is_used_as_long_as_the_settings_say() {
    for (lines, is_reached) in [("", true), ("dns.serve_stale = \"0s\"", false)] {
        let host = Host::new();
        let Some(names) = NameServer::start(&[("host.test", Record::A(Ipv4Addr::LOCALHOST))]) else { return };
        names.set_lifetime(1);
        let server = relay(&names, &format!("dns.timeout = \"200ms\"\n{lines}"));
        let (mut caller, uri) =
            (server.connect(Tcp), format!("sip:x@host.test:{};transport=udp", host.address().port()));
        reaches(&mut caller, &uri, &host);
        names.freeze(true);
        // Longer than the lifetime of the answer.
        std::thread::sleep(Duration::from_millis(1_200));
        if is_reached {
            reaches(&mut caller, &uri, &host);
        } else {
            send(&mut caller, &uri);
            assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(500));
        }
    }
}

/// By default a query takes up to four seconds. The answer expires while no call uses the name.
#[test]
fn no_call_waits_for_a_name_server_that_fell_silent_where_an_answer_is_known() {
    let host = Host::new();
    let Some(names) = NameServer::start(&[("host.test", Record::A(Ipv4Addr::LOCALHOST))]) else { return };
    names.set_lifetime(1);
    let server = relay(&names, "");
    let (mut caller, uri) = (server.connect(Tcp), format!("sip:x@host.test:{};transport=udp", host.address().port()));
    reaches(&mut caller, &uri, &host);
    names.freeze(true);
    // Longer than the lifetime of the answer.
    std::thread::sleep(Duration::from_millis(1_200));
    let asked = names.askers().len();
    let took = reaches(&mut caller, &uri, &host);
    assert!(took.is_at_least(Duration::from_millis(290)) && took.is_below(Duration::from_secs(1)), "{took:?}");
    for _ in 0..3 {
        let took = reaches(&mut caller, &uri, &host);
        assert!(took.is_below(Duration::from_millis(250)), "{took:?}");
    }
    assert!(names.askers().len() > asked, "the question goes on");
    assert_eq!(metric(&server, "strowger_names_stale_total"), 4.0);
    // The name server answers again: its new answer is used.
    names.freeze(false);
    let is_fresh = || {
        let before = metric(&server, "strowger_names_stale_total");
        reaches(&mut caller, &uri, &host);
        metric(&server, "strowger_names_stale_total") == before
    };
    assert!(wait::until(LIMIT, is_fresh));
}

/// RFC 3261 section 21.5.4.
#[test]
fn a_host_that_says_for_how_long_is_left_in_peace() {
    let [first, second] = [Host::new(), Host::new()];
    let Some(names) = NameServer::start(&pool([&first, &second])) else { return };
    let refuses = |server: &Server, lines: &[String]| {
        let mut caller = server.connect(Tcp);
        let call_id = send(&mut caller, URI);
        assert_eq!([first.answers(503, lines), second.answers(200, &[])], [call_id.clone(), call_id]);
        assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
    };
    let later = |seconds: u32| [format!("Retry-After: {seconds}")];
    let server = relay(&names, "");
    let mut caller = server.connect(Tcp);
    // Without a time a 503 is a failure of one request.
    refuses(&server, &[]);
    refuses(&server, &later(2));
    let begun = Instant::now();
    for _ in 0..3 {
        reaches(&mut caller, URI, &second);
    }
    assert!(begun.elapsed() < Duration::from_millis(1_900), "the machine is too slow for this test");
    // This is the remaining time of the two seconds.
    std::thread::sleep(Duration::from_millis(2_050).saturating_sub(begun.elapsed()));
    reaches(&mut caller, URI, &first);
}

fn places(places: &[SocketAddr], lines: &str) -> Server {
    let places: Vec<String> = places.iter().map(|at| format!("\"sip:{at}\"")).collect();
    let rule = format!("[[rule]]\nname = \"all\"\nwhen = \"request.user == 'x'\"\nto = [{}]", places.join(", "));
    let setup =
        Setup::on(&[Udp, Tcp]).open_registrar().in_memory().with(CONTROL).with(QUICK).with("log.level = \"debug\"");
    setup.with(lines).with(&rule).start()
}

#[test]
fn a_place_of_a_rule_that_is_dead_comes_after_the_others() {
    let [silent, living] = [Host::new(), Host::new()];
    let (closed, uri) = (free_address(), "sip:x@example.org");
    let server = places(&[closed, silent.address(), living.address()], "");
    let mut caller = server.connect(Tcp);
    assert!(reaches(&mut caller, uri, &living).is_at_least(SLOW));
    silent.seen();
    for _ in 0..5 {
        assert!(reaches(&mut caller, uri, &living).is_below(AT_ONCE));
    }
    assert_eq!(silent.seen(), Vec::<String>::new());
    assert_eq!(metric(&server, "strowger_targets_aside"), 2.0);
    let log = server.log();
    assert!(log.contains("next hop set aside") && log.contains("reason=\"not reached\""), "{log}");
    // Set-aside hosts are tried all the same when the others fail.
    drop(living);
    let call_id = send(&mut caller, uri);
    assert_eq!(silent.answers(200, &[]), call_id);
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
}

#[test]
fn no_hosts_are_set_aside_where_that_is_not_wanted() {
    for (lines, aside) in [("", 2.0), ("dns.set_aside = \"0s\"", 0.0)] {
        let living = Host::new();
        let server = places(&[free_address(), free_address(), living.address()], lines);
        let mut caller = server.connect(Tcp);
        for _ in 0..3 {
            reaches(&mut caller, "sip:x@example.org", &living);
        }
        assert_eq!(metric(&server, "strowger_targets_aside"), aside, "{lines}");
    }
}

/// The registration names the phone's only address, and there is no alternative.
#[test]
fn a_phone_that_is_silent_is_not_set_aside() {
    let server = Setup::on(&[Udp, Tcp]).open_registrar().in_memory().with(CONTROL).with(QUICK).start();
    let [mut phone, mut caller] = [Udp, Tcp].map(|transport| server.connect(transport));
    register(&mut phone, "bob");
    for _ in 0..2 {
        let request = Request::new("INVITE", "sip:bob@example.org", "tcp", caller.local());
        let answer = exchange(&mut caller, &request);
        caller.send(&request.ack(&answer).bytes()).expect("the server takes messages");
        assert_eq!(status(&answer), Some(408));
        assert!(phone.request("INVITE", LIMIT).is_some());
        phone.drain();
    }
    assert_eq!(metric(&server, "strowger_target_failures_total"), 0.0);
}

/// Messages of other hosts about a next hop, such as a response or an ICMP error, do not set it aside.
#[test]
fn no_other_host_can_set_one_aside() {
    let [first, second] = [Host::new(), Host::new()];
    let Some(names) = NameServer::start(&pool([&first, &second])) else { return };
    let server = relay(&names, "");
    let mut caller = server.connect(Tcp);
    // A host downstream knows the branch: it answers from its own address.
    let mallory = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 66), 0)).expect("a loopback address");
    let call_id = send(&mut caller, URI);
    let (request, from) = first.takes(LIMIT).expect("it comes");
    let refusal = respond(&request, 503, "m", &["Retry-After: 3600".into()]);
    mallory.send_to(&refusal, from).expect("loopback takes it");
    assert_eq!(second.answers(200, &[]), call_id);
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
    first.seen();
    reaches(&mut caller, URI, &first);
    assert_eq!(metric(&server, "strowger_target_failures_total"), 0.0);
}

/// Calls continue to the living host while the other is dead, also many at once.
#[test]
fn of_many_calls_at_once_none_fails_when_a_host_dies() {
    const CALLS: usize = 200;
    let [first, second] = [Host::new(), Host::new()];
    let Some(names) = NameServer::start(&pool([&first, &second])) else { return };
    let server = relay(&names, "server.shards = 2");
    let answering = std::thread::spawn(move || (0..CALLS).for_each(|_| drop(second.answers(200, &[]))));
    let mut callers: Vec<Wire> = (0..4).map(|_| server.connect(Tcp)).collect();
    for n in 0..CALLS {
        send(&mut callers[n % 4], URI);
    }
    for n in 0..CALLS {
        assert_eq!(callers[n % 4].final_response(LIMIT).as_deref().and_then(status), Some(200));
    }
    answering.join().expect("it answers all");
    assert_eq!(
        [metric(&server, "strowger_targets_aside"), metric(&server, "strowger_target_failures_total")],
        [1.0; 2]
    );
    drop(first);
}
