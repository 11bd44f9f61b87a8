//! Log at the default level: successful registrations and calls, and reasons of refusals.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use strowger_tests::wait;

use strowger_tests::account::challenged;
use strowger_tests::call::exchange;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{self, Request, respond};
use strowger_tests::wire::{Transport, Wire};

const SOON: Duration = Duration::from_secs(10);

/// Name and password.
type Account = (&'static str, &'static str);

const ALICE: Account = ("alice", "wonderland");
const BOB: Account = ("bob", "builder");

/// Starts a server of example.org with two users.
fn start(lines: &str) -> Server {
    let server =
        Setup::on(&[Transport::Udp, Transport::Tcp]).with(&format!("domains = [\"example.org\"]\n{lines}")).start();
    for (user, password) in [ALICE, BOB] {
        server.add_user(&format!("{user}@example.org"), password);
    }
    server
}

/// Waits for a line that has all of these words.
fn line(server: &Server, words: &[&str]) -> String {
    let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
    let line = wait::look(SOON, || server.log().lines().find(has_all).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no line with {words:?}:\n{}", server.log()))
}

fn count(server: &Server, words: &str) -> usize {
    server.log().lines().filter(|line| line.contains(words)).count()
}

fn contact(wire: &Wire) -> String {
    format!("sip:phone@{};transport={}", wire.local(), wire.transport().name())
}

fn register(wire: &mut Wire, (user, password): Account, expires: u32) {
    let transport = wire.transport().name();
    let mut request = Request::register(user, "example.org", &contact(wire), transport, wire.local())
        .with("User-Agent: Deskphone 7 (test)");
    request.headers.retain(|header| !header.starts_with("Expires"));
    request.headers.push(format!("Expires: {expires}"));
    let request = challenged(wire, &request, user, password);
    let answer = exchange(wire, &request);
    assert_eq!(text::status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
}

/// Phones of alice and bob.
struct Phones {
    caller: Wire,
    callee: Wire,
}

/// Call of alice to bob, in its present state.
struct Call {
    invite: Request,
    /// INVITE as received by the callee.
    got: Vec<u8>,
    ok: Vec<u8>,
}

impl Call {
    fn id(&self) -> String {
        format!("call_id={}", self.invite.call_id)
    }
}

impl Phones {
    /// Creates both phones, and registers bob's.
    fn at(server: &Server) -> Self {
        let mut this = Self { caller: server.connect(Transport::Udp), callee: server.connect(Transport::Udp) };
        register(&mut this.callee, BOB, 600);
        this
    }

    /// Alice calls, and bob's phone rings.
    fn ring(&mut self) -> Call {
        let invite = self.invite();
        self.ring_by(&invite)
    }

    fn invite(&self) -> Request {
        let here = self.caller.local();
        let mut invite =
            Request::new("INVITE", "sip:bob@example.org", "udp", here).with(format!("Contact: <sip:alice@{here}>"));
        invite.from = format!("<sip:alice@example.org>;tag={}", text::unique("f"));
        invite
    }

    fn ring_by(&mut self, invite: &Request) -> Call {
        let invite = challenged(&mut self.caller, invite, ALICE.0, ALICE.1);
        self.caller.send(&invite.bytes()).expect("loopback takes it");
        let got = self.callee.request("INVITE", SOON).expect("the INVITE arrives");
        self.callee.send(&respond(&got, 180, "callee", &[])).expect("loopback takes it");
        Call { invite, got, ok: Vec::new() }
    }

    /// Bob's phone sends this answer, and alice's gets it.
    fn answer(&mut self, call: &mut Call, status: u16) {
        let contact = format!("Contact: <sip:bob@{}>", self.callee.local());
        self.answer_by(call, status, &respond(&call.got, status, "callee", &[contact]));
    }

    fn answer_by(&mut self, call: &mut Call, status: u16, response: &[u8]) {
        self.callee.send(response).expect("loopback takes it");
        call.ok = self.caller.final_response(SOON).expect("it is answered");
        assert_eq!(text::status(&call.ok), Some(status));
        self.caller.send(&call.invite.ack(&call.ok).bytes()).expect("loopback takes it");
    }

    fn call(&mut self) -> Call {
        let mut call = self.ring();
        self.answer(&mut call, 200);
        self.callee.request("ACK", SOON).expect("the ACK arrives");
        call
    }

    /// Alice hangs up.
    fn hang_up(&mut self, call: &Call) {
        let bye = call.invite.within("BYE", &call.ok);
        self.caller.send(&bye.bytes()).expect("loopback takes it");
        let got = self.callee.request("BYE", SOON).expect("the BYE arrives");
        self.callee.send(&respond(&got, 200, "callee", &[])).expect("loopback takes it");
        let answer = self.caller.final_response(SOON).expect("the BYE is answered");
        assert_eq!(text::status(&answer), Some(200));
    }
}

#[test]
fn registrations_are_logged() {
    for (transport, name) in [(Transport::Udp, "udp"), (Transport::Tcp, "tcp")] {
        let server = start("");
        let mut wire = server.connect(transport);
        let (contact, source) = (format!("contact={}", contact(&wire)), format!("source={}", wire.local()));
        let sender = [&contact, &source, &format!("transport={name}"), "agent=\"Deskphone 7 (test)\""];
        let has_all = |found: &str| sender.iter().all(|word| found.contains(word));
        register(&mut wire, BOB, 600);
        let made = line(&server, &[" registered aor=bob@example.org"]);
        assert!(has_all(&made) && made.contains("expires=600") && made.contains("call_id=call-"), "{made}");
        // A refresh is not logged.
        register(&mut wire, BOB, 600);
        register(&mut wire, BOB, 0);
        let removed = line(&server, &[" unregistered aor=bob@example.org"]);
        assert!(has_all(&removed) && removed.contains("expires=0") && removed.contains("call_id=call-"), "{removed}");
        assert_eq!(count(&server, " registered "), 1, "{}", server.log());
        assert_eq!(count(&server, "refreshed"), 0, "{}", server.log());
    }
}

#[test]
fn a_registration_that_expires_is_logged() {
    let server = start("registrar.min_expires = \"1s\"");
    let mut wire = server.connect(Transport::Udp);
    register(&mut wire, BOB, 1);
    let expired = line(&server, &["registration expired aor=bob@example.org"]);
    assert!(expired.contains(&format!("contact={}", contact(&wire))) && expired.contains("Deskphone 7"), "{expired}");
    assert!(expired.contains("call_id=call-"), "{expired}");
}

#[test]
fn refreshed_registrations_are_logged_at_the_level_debug() {
    let server = start("log.level = \"debug\"");
    let mut wire = server.connect(Transport::Udp);
    register(&mut wire, BOB, 600);
    register(&mut wire, BOB, 600);
    line(&server, &["registration refreshed aor=bob@example.org", "expires=600"]);
}

#[test]
fn calls_are_logged_from_beginning_to_end() {
    let server = start("");
    let mut phones = Phones::at(&server);
    let call = phones.call();
    let parties = "caller=sip:alice@example.org callee=sip:bob@example.org";
    let source = format!("source={} transport=udp", phones.caller.local());
    let begun = line(&server, &["call begun", &call.id()]);
    assert!(begun.contains(parties) && begun.contains(&source) && begun.contains("authenticated=true"), "{begun}");
    line(&server, &["call answered", parties, "code=200", "seconds=", &call.id()]);
    phones.hang_up(&call);
    let ended = line(&server, &["call ended", parties, "by=caller", &call.id()]);
    assert!(ended.contains("code=200") && ended.contains("seconds=0."), "{ended}");

    // The other party hangs up.
    let call = phones.call();
    let mut bye = Request::new("BYE", &format!("sip:alice@{}", phones.caller.local()), "udp", phones.callee.local());
    (bye.from, bye.to) = (format!("{};tag=callee", call.invite.to), call.invite.from.clone());
    bye.call_id = call.invite.call_id.clone();
    bye.headers.extend(text::fields(&call.got, "Record-Route").iter().map(|route| format!("Route: {route}")));
    phones.callee.send(&bye.bytes()).expect("loopback takes it");
    line(&server, &["call ended", parties, "by=callee", &call.id()]);
}

#[test]
fn calls_that_come_to_nothing_are_logged_with_their_code() {
    let server = start("");
    let mut phones = Phones::at(&server);
    let mut busy = phones.ring();
    phones.answer(&mut busy, 486);
    line(&server, &["call failed", "caller=sip:alice@example.org", "code=486", &busy.id()]);

    let call = phones.ring();
    phones.caller.send(&call.invite.cancel().bytes()).expect("loopback takes it");
    phones.callee.request("CANCEL", SOON).expect("the CANCEL arrives");
    phones.callee.send(&respond(&call.got, 487, "callee", &[])).expect("loopback takes it");
    line(&server, &["call cancelled", "code=487", &call.id()]);
    assert_eq!(count(&server, "call ended"), 0, "{}", server.log());

    // Bob's phone is gone: alice's gets 480 (RFC 3261 section 21.4.18), and the log has this code.
    let invite = phones.invite();
    let Phones { mut caller, callee } = phones;
    drop(callee);
    while caller.final_response(Duration::from_millis(50)).is_some() {}
    let invite = challenged(&mut caller, &invite, ALICE.0, ALICE.1);
    caller.send(&invite.bytes()).expect("loopback takes it");
    let answer = caller.final_response(SOON).expect("it is answered");
    assert_eq!(text::status(&answer), Some(480));
    line(&server, &["call failed", "code=480", &format!("call_id={}", invite.call_id)]);
}

/// The ICMP error shows that the port of a phone is closed; by TCP it is the refused connection.
#[test]
fn forwarding_that_fails_names_the_address_and_the_error() {
    let server = start("proxy.relay_for = \"everyone\"\nauth.calls = false");
    for (transport, reason) in [("udp", "unreachable (ICMP error)"), ("tcp", "connection not made")] {
        let closed = closed_port();
        let mut wire = server.connect(Transport::Udp);
        let invite = Request::new("INVITE", &format!("sip:x@{closed};transport={transport}"), "udp", wire.local());
        assert_eq!(text::status(&exchange(&mut wire, &invite)), Some(500));
        let to = format!("to={closed}");
        let id = format!("call_id={}", invite.call_id);
        line(&server, &["forwarding failed", &to, reason, "method=INVITE", &id]);
        line(&server, &["call failed", "code=500", &id]);
    }
    line(&server, &["connection not made", "Connection refused"]);
}

/// Returns a port of a separate address, where no other test listens.
fn closed_port() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.231:0").expect("loopback has ports");
    socket.local_addr().expect("it is bound")
}

#[test]
fn a_refusal_names_its_reason() {
    let server = start("");
    let mut wire = server.connect(Transport::Udp);
    let call = |wire: &mut Wire, uri: &str| {
        let mut invite = Request::new("INVITE", uri, "udp", wire.local());
        invite.from = "<sip:carol@elsewhere.example>;tag=1".into();
        text::status(&exchange(wire, &invite))
    };
    assert_eq!(call(&mut wire, "sip:nobody@example.org"), Some(404));
    line(
        &server,
        &["request refused", "status=404", "reason=\"unknown user\"", "uri=sip:nobody@example.org", "carol@elsewhere"],
    );
    assert_eq!(call(&mut wire, "sip:bob@example.org"), Some(480));
    line(&server, &["request refused", "status=480", "reason=\"the user is not registered\""]);

    // A domain of others, with the right password.
    let request = Request::register("bob", "elsewhere.example", "sip:bob@127.0.0.1", "udp", wire.local());
    let request = challenged(&mut wire, &request, BOB.0, BOB.1);
    assert_eq!(text::status(&exchange(&mut wire, &request)), Some(403));
    let named = "request refused domain=elsewhere.example";
    let found = line(&server, &[named, "domains=example.org", "method=REGISTER", "user=bob"]);
    let reason = "the domain is not one of this server's: enter one of `domains` in the phone";
    assert!(found.contains(reason) && !found.contains("setting"), "{found}");

    // A malformed request, with all its readable parts.
    let request = Request::register("bob", "example.org", "sip:bob@127.0.0.1", "udp", wire.local());
    let bytes = String::from_utf8(request.bytes()).expect("it is text").replace("1 REGISTER", "1 INVITE");
    wire.send(bytes.as_bytes()).expect("loopback takes it");
    let answer = wire.final_response(SOON).expect("it is answered");
    assert_eq!(text::status(&answer), Some(400));
    let id = format!("call_id={}", request.call_id);
    let found = line(&server, &["request refused status=400", "method=REGISTER", "from=sip:bob@example.org", &id]);
    assert!(found.contains("reason=\"CSeq method differs from the request's\""), "{found}");
    // Challenges belong to successful requests.
    assert_eq!(count(&server, "challenged"), 0, "{}", server.log());
}

/// A shutdown logs the number of calls that are left open, and its refusals do not count as overload.
#[test]
fn what_a_shutdown_refuses_and_leaves_open_is_logged() {
    let mut server = start("");
    let mut phones = Phones::at(&server);
    let _answered = phones.call();
    let mut ringing = phones.ring();
    let mut wire = server.connect(Transport::Udp);
    server.process().signal(libc::SIGTERM);
    server.process().wait_for("graceful shutdown", 1, SOON);
    let late = Request::new("INVITE", "sip:bob@example.org", "udp", wire.local());
    let register = Request::register("bob", "example.org", "sip:bob@127.0.0.1", "udp", wire.local());
    for request in [late, register] {
        // The log line about the signal comes before the shards stop accepting.
        let answer = exchange(&mut wire, &request);
        assert_eq!(text::status(&answer), Some(503), "{}", String::from_utf8_lossy(&answer));
        let id = format!("call_id={}", request.call_id);
        line(&server, &["request refused status=503 reason=\"shutting down\"", &id]);
    }
    phones.answer(&mut ringing, 200);
    server.process().end(SOON);
    line(&server, &["calls left open", "count=2"]);
    let statistics = line(&server, &["statistics at the end", "of=\"server\""]);
    assert!(statistics.contains("refused_at_shutdown=2") && !statistics.contains("overloaded"), "{statistics}");
}

#[test]
fn a_scanner_that_is_dropped_is_logged() {
    let server = start("");
    let mut wire = server.connect(Transport::Udp);
    let request = Request::new("OPTIONS", "sip:example.org", "udp", wire.local()).with("User-Agent: friendly-scanner");
    wire.send(&request.bytes()).expect("loopback takes it");
    line(&server, &["scanner dropped", &format!("source={}", wire.local()), "friendly-scanner", "banned=false"]);
}

#[test]
fn lines_about_what_succeeds_are_bounded_and_can_be_left_out() {
    let mut server = start("log.calls_per_minute = 12\nlog.registrations_per_minute = 6");
    for _ in 0..4 {
        let mut phones = Phones::at(&server);
        let call = phones.call();
        phones.hang_up(&call);
        // Unregistered, because a registered callee would be called in the next round, too.
        register(&mut phones.callee, BOB, 0);
    }
    server.stop();
    // The quota grants a sixth of a minute's lines at once.
    assert_eq!(
        ["call begun", "call answered", "call ended"].map(|words| count(&server, words)),
        [2; 3],
        "{}",
        server.log()
    );
    assert_eq!(count(&server, "suppressed log lines count=2 setting=log.calls_per_minute"), 1, "{}", server.log());
    assert_eq!(count(&server, " registered "), 1, "{}", server.log());
    assert_eq!(
        count(&server, "suppressed log lines count=7 setting=log.registrations_per_minute"),
        1,
        "{}",
        server.log()
    );

    let mut server = start("log.calls_per_minute = 0\nlog.registrations_per_minute = 0");
    let mut phones = Phones::at(&server);
    let call = phones.call();
    phones.hang_up(&call);
    server.stop();
    assert_eq!(["call ", "registered", "suppressed"].map(|words| count(&server, words)), [0; 3], "{}", server.log());
}

/// Calls move to another shard while they last, and their log state moves with them.
#[test]
fn a_call_that_moves_to_another_shard_is_logged_to_its_end() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("skipped: a machine of one core has one shard");
    }
    let mut server = start("");
    let mut phones = Phones::at(&server);
    let calls: Vec<Call> = (0..8).map(|_| phones.call()).collect();
    server.process().signal(libc::SIGUSR1);
    server.process().wait_for("number of shards changes", 1, SOON);
    for call in &calls {
        phones.hang_up(call);
        let ended = line(&server, &["call ended", &call.id()]);
        assert!(ended.contains("by=caller") && ended.contains("seconds="), "{ended}");
    }
}

/// Later messages of the parties change nothing in the log.
#[test]
fn no_peer_evades_or_forges_the_log_of_calls() {
    let server = start("");
    let mut phones = Phones::at(&server);
    let first = phones.call();
    // The same Call-ID again, with another tag and with the same.
    for same_tag in [false, true] {
        let mut invite = phones.invite();
        (invite.call_id, invite.cseq) = (first.invite.call_id.clone(), first.invite.cseq + 10);
        if same_tag {
            invite.from = first.invite.from.clone();
        }
        let mut second = phones.ring_by(&invite);
        phones.answer(&mut second, 486);
    }
    let are_said = || (count(&server, "call begun"), count(&server, "call failed")) == (3, 2);
    assert!(wait::until(SOON, are_said), "{}", server.log());
    // A BYE of the same call to another target.
    let mut bye = first.invite.within("BYE", &first.ok);
    bye.headers.retain(|header| !header.starts_with("Route"));
    (bye.uri, bye.cseq) = ("sip:bob@example.org".into(), bye.cseq + 20);
    let bye = challenged(&mut phones.caller, &bye, ALICE.0, ALICE.1);
    phones.caller.send(&bye.bytes()).expect("loopback takes it");
    let got = phones.callee.request("BYE", SOON).expect("it is forwarded");
    phones.callee.send(&respond(&got, 481, "callee", &[])).expect("loopback takes it");
    phones.caller.final_response(SOON).expect("it is answered");
    assert_eq!(count(&server, "call ended"), 0, "{}", server.log());
    phones.hang_up(&first);
    line(&server, &["call ended", "by=caller", &first.id()]);

    // The claimed identity of the callee.
    let mut call = phones.ring();
    let contact = format!("Contact: <sip:bob@{}>", phones.callee.local());
    let honest = String::from_utf8(respond(&call.got, 200, "callee", &[contact])).expect("text");
    let forged = honest.replace("To: <sip:bob@example.org>", "To: <sip:+19005551234@example.net>");
    assert_ne!(honest, forged);
    phones.answer_by(&mut call, 200, forged.as_bytes());
    let answered = line(&server, &["call answered", &call.id()]);
    assert!(answered.contains("callee=sip:bob@example.org"), "{answered}");
}
