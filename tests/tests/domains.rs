//! Several domains on one server, each with a realm: equal names in different domains are different users.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use strowger_tests::call::exchange;
use strowger_tests::control::done;
use strowger_tests::digest::{DigestAnswer, challenges};
use strowger_tests::process::Process;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, field, respond, status, unique};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

use crate::config::{check, error_of, folder, run, text_of, user};

const SOON: Duration = Duration::from_secs(5);
/// Time in which a message would have come.
const NEVER: Duration = Duration::from_millis(300);

/// The realm of one domain is its name, that of the other is not.
const TABLES: &str = "[[domain]]\nname = \"a.example\"\n[[domain]]\nname = \"b.example\"\nrealm = \"office\"\n";

/// Starts both domains, with an `alice` in each.
fn start(lines: &str) -> Server {
    let server = Setup::on(&[Udp]).with(lines).with(TABLES).start();
    for (domain, realm) in [("a.example", "a.example"), ("b.example", "office")] {
        let said = server.user(&["add", &format!("alice@{domain}")], &format!("password of {domain}"));
        assert_eq!(said, format!("added alice@{domain} in the realm \"{realm}\"\n"));
    }
    server
}

fn register(wire: &Wire, domain: &str) -> Request {
    Request::register("alice", domain, &format!("sip:alice@{}", wire.local()), "udp", wire.local())
}

fn invite(wire: &Wire, from: &str, to: &str) -> Request {
    let mut request = Request::new("INVITE", &format!("sip:alice@{to}"), "udp", wire.local());
    request.from = format!("<sip:alice@{from}>;tag={}", unique("f"));
    request.with(format!("Contact: <sip:alice@{}>", wire.local()))
}

/// Returns the answer to a request that uses this domain's password when challenged.
fn with_password_of(domain: &str, wire: &mut Wire, request: &Request) -> Vec<u8> {
    let refusal = exchange(wire, request);
    acknowledge(wire, request, &refusal);
    let again = DigestAnswer::to(&refusal, request, "alice", &format!("password of {domain}")).on(request);
    let answer = exchange(wire, &again);
    acknowledge(wire, &again, &answer);
    answer
}

/// Sends the ACK of a negative answer to an INVITE.
fn acknowledge(wire: &mut Wire, request: &Request, answer: &[u8]) {
    if request.method == "INVITE" && code(answer) >= 300 {
        wire.send(&request.ack(answer).bytes()).expect("loopback takes it");
    }
}

fn code(answer: &[u8]) -> u16 {
    status(answer).expect("a response")
}

/// Returns the only realm of a challenge.
fn realm(refusal: &[u8]) -> String {
    let challenges = challenges(refusal);
    let [challenge] = &challenges[..] else { panic!("not one challenge: {challenges:?}") };
    challenge.split_once("realm=\"").and_then(|(_, rest)| rest.split_once('"')).expect("a realm").0.to_owned()
}

#[test]
fn alice_of_each_domain_registers_and_calls_the_other() {
    let server = start("");
    let mut phones = ["a.example", "b.example"].map(|domain| (domain, server.connect(Udp)));
    for (domain, wire) in &mut phones {
        let request = register(wire, domain);
        let expect = if *domain == "a.example" { "a.example" } else { "office" };
        assert_eq!(realm(&exchange(wire, &request)), expect);
        let request = register(wire, domain);
        assert_eq!(code(&with_password_of(domain, wire, &request)), 200);
        server.log_with(&format!("registered aor=alice@{domain}"));
    }
    // Each phone reaches the other phone, with the password of the caller's domain.
    for _ in 0..2 {
        phones.reverse();
        let [(from, caller), (to, callee)] = &mut phones;
        let request = invite(caller, from, to);
        let refusal = exchange(caller, &request);
        assert_eq!(realm(&refusal), if *from == "a.example" { "a.example" } else { "office" });
        acknowledge(caller, &request, &refusal);
        // Credentials of the other domain, and those of other users, do not authenticate this user.
        let other = format!(
            "Proxy-Authorization: Digest username=\"alice\", realm=\"{}\", nonce=\"n\", uri=\"sip:x\", response=\"0123456789abcdef0123456789abcdef\"",
            if *from == "a.example" { "office" } else { "a.example" }
        );
        let foreign =
            other.replace("realm=\"office\"", "realm=\"foreign\"").replace("realm=\"a.example\"", "realm=\"foreign\"");
        let answer = DigestAnswer::to(&refusal, &request, "alice", &format!("password of {from}"));
        let request = answer.on(&request).with(other).with(foreign);
        caller.send(&request.bytes()).expect("loopback takes it");
        let got = callee.request("INVITE", SOON).expect("the INVITE arrives");
        let left = String::from_utf8_lossy(&got);
        assert_eq!(left.matches("Proxy-Authorization").count(), 1, "{left}");
        assert!(left.contains("realm=\"foreign\""), "{left}");
        let contact = format!("Contact: <sip:alice@{}>", callee.local());
        callee.send(&respond(&got, 200, "callee", &[contact])).expect("loopback takes it");
        let answer = caller.final_response(SOON).expect("the call is answered");
        assert_eq!(code(&answer), 200, "{}", String::from_utf8_lossy(&answer));
        caller.send(&request.ack(&answer).bytes()).expect("loopback takes it");
        callee.request("ACK", SOON).expect("the ACK arrives");
        caller.send(&request.within("BYE", &answer).bytes()).expect("loopback takes it");
        let got = callee.request("BYE", SOON).expect("the BYE arrives");
        callee.send(&respond(&got, 200, "callee", &[])).expect("loopback takes it");
        let answer = caller.final_response(SOON).expect("the BYE is answered");
        assert_eq!((code(&answer), field(&answer, "CSeq").is_some_and(|cseq| cseq.ends_with("BYE"))), (200, true));
    }
}

/// Limits and accounting rows identify the authenticated user: by name and domain.
#[test]
fn calls_count_for_the_user_of_one_domain() {
    let rules = "accounting.cdr = true\naccounting.to = \"json\"\naccounting.path = \"rows\"\n\
                 [[call_limit]]\nname = \"line\"\nper = \"user\"\nmost = 1\nstatus = 486\n\
                 [[rule]]\nname = \"counted\"\nwhen = \"user == 'alice'\"\ncall_limits = [\"line\"]";
    let mut server = start(rules);
    let [mut callee, mut caller] = [(); 2].map(|()| server.connect(Udp));
    let request = register(&callee, "a.example");
    assert_eq!(code(&with_password_of("a.example", &mut callee, &request)), 200);
    for (domain, calls) in [("a.example", 1), ("b.example", 1), ("a.example", 0), ("b.example", 0)] {
        let request = invite(&caller, domain, "a.example");
        let refusal = exchange(&mut caller, &request);
        acknowledge(&mut caller, &request, &refusal);
        // Credentials for a realm that does not apply to the call do not identify the caller, not even as the first
        // ones.
        let other = if domain == "a.example" { "office" } else { "a.example" };
        let claim = format!(
            "Proxy-Authorization: Digest username=\"carol\", realm=\"{other}\", nonce=\"n\", uri=\"sip:x\", response=\"0123456789abcdef0123456789abcdef\""
        );
        let answer = DigestAnswer::to(&refusal, &request, "alice", &format!("password of {domain}"));
        let mut request = answer.on(&request);
        request.headers.insert(0, claim);
        request.call_id = unique("call");
        caller.send(&request.bytes()).expect("loopback takes it");
        if calls == 0 {
            let answer = caller.final_response(SOON).expect("an answer");
            acknowledge(&mut caller, &request, &answer);
            assert_eq!(code(&answer), 486, "{}", String::from_utf8_lossy(&answer));
            continue;
        }
        let got = callee.request("INVITE", SOON).expect("the INVITE arrives");
        let contact = format!("Contact: <sip:alice@{}>", callee.local());
        callee.send(&respond(&got, 200, "callee", &[contact])).expect("loopback takes it");
        let answer = caller.final_response(SOON).expect("the call is answered");
        caller.send(&request.ack(&answer).bytes()).expect("loopback takes it");
        callee.request("ACK", SOON).expect("the ACK arrives");
    }
    server.log_with("request refused status=486 reason=\"call limit line\"");
    let shown = done(&server, &["limits", "line"]);
    assert!(shown.contains("  alice@a.example ") && shown.contains("  alice@b.example "), "{shown}");
    server.stop();
    let rows = fs::read_dir(server.folder().join("rows")).expect("the folder of rows").flatten();
    let rows: String = rows.map(|row| fs::read_to_string(row.path()).expect("rows")).collect();
    for user in ["alice@a.example", "alice@b.example"] {
        assert_eq!(rows.matches(&format!("\"auth_user\":\"{user}\"")).count(), 2, "{user}: {rows}");
    }
}

/// Whether or not the user in From and To must be the authenticated one.
#[test]
fn a_password_of_one_domain_proves_nothing_in_the_other() {
    for must_match in [true, false] {
        let keys = format!("auth.user_must_match = {must_match}\nauth.register_for_others = {}", !must_match);
        let server = start(&format!("{keys}\nban.enabled = false"));
        let (mut alice, mut other) = (server.connect(Udp), server.connect(Udp));
        let request = register(&alice, "b.example");
        assert_eq!(code(&with_password_of("b.example", &mut alice, &request)), 200);
        for (own, claimed) in [("a.example", "b.example"), ("b.example", "a.example")] {
            for request in [register(&other, claimed), invite(&other, claimed, "b.example")] {
                let refused = if request.method == "REGISTER" { 401 } else { 407 };
                // Her password, in the requested realm.
                let answer = with_password_of(own, &mut other, &request);
                assert_eq!(code(&answer), refused, "{must_match} {own} {}", String::from_utf8_lossy(&answer));
                // The challenge names the realm of this user, and has a nonce for this realm.
                let mine = Request { call_id: unique("mine"), ..register(&other, own) };
                let challenge = exchange(&mut other, &mine);
                let mut answer = DigestAnswer::to(&challenge, &request, "alice", &format!("password of {own}"));
                if refused == 407 {
                    answer.header = "Proxy-Authorization";
                }
                let request = Request { call_id: unique("claims"), ..answer.on(&request) };
                let answer = exchange(&mut other, &request);
                acknowledge(&mut other, &request, &answer);
                assert_eq!(code(&answer), refused, "{must_match} {own} {}", String::from_utf8_lossy(&answer));
            }
        }
        assert!(alice.request("INVITE", NEVER).is_none(), "no call of the other domain reached her");
        assert!(server.log().contains("credentials are for another realm"), "{}", server.log());
    }
}

/// For a caller that withholds its identity P-Preferred-Identity names the domain of the user, not From.
#[test]
fn a_caller_that_withholds_its_identity_shows_the_password_of_its_domain() {
    let server = start("proxy.relay_for = \"authenticated\"");
    let (mut caller, mut callee) = (server.connect(Udp), server.connect(Udp));
    let mut request = Request::new("MESSAGE", &format!("sip:carol@{}", callee.local()), "udp", caller.local());
    request.from = "<sip:anonymous@anonymous.invalid>;tag=hidden".into();
    assert_eq!(realm(&exchange(&mut caller, &request)), "a.example", "that of the first domain");
    let request = Request { call_id: unique("named"), branch: unique("z9hG4bK"), ..request };
    let request = request.with("P-Preferred-Identity: <sip:alice@b.example>");
    let refusal = exchange(&mut caller, &request);
    assert_eq!(realm(&refusal), "office");
    let request = DigestAnswer::to(&refusal, &request, "alice", "password of b.example").on(&request);
    caller.send(&request.bytes()).expect("loopback takes it");
    let got = callee.request("MESSAGE", SOON).expect("the request is relayed");
    assert!(!String::from_utf8_lossy(&got).contains("alice@b.example"), "{}", String::from_utf8_lossy(&got));
}

/// Many sources guess at the password of one alice; a source that failed there is served as the other.
#[test]
fn guesses_at_one_alice_keep_the_other_from_nothing() {
    let server = start("ban.exempt = []\nban.account_failures = 3");
    let at = |last: u8| {
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0);
        Wire::connect_from(Udp, from, server.address(Udp), None).expect("loopback takes it")
    };
    let registers = |wire: &mut Wire, domain: &str, password: &str| {
        let request = register(wire, domain);
        let refusal = exchange(wire, &request);
        code(&exchange(wire, &DigestAnswer::to(&refusal, &request, "alice", password).on(&request)))
    };
    for source in 2..6 {
        assert_eq!(registers(&mut at(source), "a.example", "a guess"), 401);
    }
    let said = server.log_with("is being guessed");
    assert!(said.contains("is being guessed user=alice realm=a.example"), "{said}");
    // This source failed after the attack was noticed.
    let mut last = at(5);
    assert_eq!(registers(&mut last, "a.example", "password of a.example"), 401);
    assert_eq!(registers(&mut last, "b.example", "password of b.example"), 200);
    let said = server.log_with("not judged");
    assert!(said.contains("user=alice realm=a.example"), "{said}");
}

/// Runs a command of `strowger user` with this configuration; returns its output or its error.
fn set(order: &str, address: &str, text: &str, folder: &Path) -> Result<(String, String), String> {
    fs::write(folder.join("strowger.toml"), text).expect("it is ours");
    let output = user(order, address, folder);
    let first = text_of(&output).lines().next().unwrap_or_default().to_owned();
    if output.status.success() { Ok((first, error_of(&output))) } else { Err(error_of(&output)) }
}

fn list(folder: &Path) -> Vec<String> {
    let listed = text_of(&run(&["user", "list", "--config", "strowger.toml"], folder));
    let words = |line: &str| {
        let mut words = line.split_whitespace();
        [words.next(), words.nth(1)].map(Option::unwrap_or_default).join(" in ")
    };
    listed.lines().skip(1).map(words).collect()
}

#[test]
fn the_commands_for_users_go_by_the_realm_of_each_domain() {
    let folder = folder();
    let folder = folder.path();
    let base = |domains: &str, tables: &str| {
        format!("domains = [{domains}]\nrealm = \"shared\"\nstore.database = \"users.sqlite\"\n{tables}")
    };
    let table = |name: &str| format!("[[domain]]\nname = \"{name}\"\n");
    let shared = base("\"a.example\", \"b.example\"", "");
    let one_apart = base("\"a.example\"", &table("b.example"));
    let apart = base("\"c.example\"", &[table("a.example"), table("b.example")].concat());

    let done = |order, address: &str, text| set(order, address, text, folder).unwrap_or_else(|error| panic!("{error}"));
    let refused = |order, address: &str, text| set(order, address, text, folder).expect_err("it is refused");
    assert_eq!(done("add", "alice@a.example", &shared).0, "added alice@a.example in the realm \"shared\"");
    // One realm has one alice; the cure is a separate realm.
    let error = refused("add", "alice@b.example", &shared);
    assert!(error.contains("the realm \"shared\" has alice@a.example already"), "{error}");
    assert!(error.contains("[[domain]] with name = \"b.example\" in strowger.toml"), "{error}");
    assert_eq!(done("add", "alice@b.example", &one_apart).0, "added alice@b.example in the realm \"b.example\"");
    assert_eq!(list(folder), ["alice@a.example in shared", "alice@b.example in b.example"]);

    // The realm of a.example changes: its password is useless then, that of b.example is not.
    let error = error_of(&check(&apart, folder));
    assert_eq!(error.matches(": warning: ").count(), 1, "{error}");
    let message = "1 user of a.example in users.sqlite cannot register: set for the realm \"shared\", no password fits \"a.example\"";
    assert!(error.contains(message), "{error}");
    assert!(error.contains("write realm = \"shared\" in its [[domain]] table, or set each password again"), "{error}");
    // Her only stored password is not removed.
    let error = refused("add", "alice@c.example", &apart);
    assert!(error.contains("the only password of alice@a.example is still one of the realm \"shared\""), "{error}");
    assert!(error.contains("strowger user passwd alice@a.example"), "{error}");
    let said = done("passwd", "alice@a.example", &apart).0;
    assert_eq!(said, "changed the password of alice@a.example in the realm \"a.example\"");
    assert!(!error_of(&check(&apart, folder)).contains("warning"));
    let (said, error) = done("add", "alice@c.example", &apart);
    assert_eq!(said, "added alice@c.example in the realm \"shared\"");
    assert!(error.contains("removed the password that alice@a.example had in the realm \"shared\""), "{error}");
    let all = ["alice@a.example in a.example", "alice@b.example in b.example", "alice@c.example in shared"];
    assert_eq!(list(folder), all);

    // A removed domain.
    let error = error_of(&check(&base("\"c.example\"", &table("a.example")), folder));
    assert_eq!(error.matches(": warning: ").count(), 1, "{error}");
    assert!(error.contains("1 user of b.example in users.sqlite can neither register nor call"), "{error}");
    assert!(error.contains("[[domain]] with name = \"b.example\" and realm = \"b.example\""), "{error}");
}

/// The server warns at its start as `check` does.
#[test]
fn a_start_warns_of_each_domain_whose_passwords_do_not_fit() {
    let server = Setup::on(&[Udp]).with("domains = [\"a.example\", \"b.example\"]\nrealm = \"shared\"").prepare();
    for address in ["alice@a.example", "bob@b.example"] {
        server.add_user(address, "a password");
    }
    server.rewrite(
        "domains = [\"a.example\", \"b.example\"]\nrealm = \"shared\"",
        &format!("{TABLES}realm = \"shared\"\n").replacen("realm = \"office\"\n", "", 1),
    );
    let mut command = std::process::Command::new(strowger_tests::binary::strowger());
    command.args(["serve", "--config"]).arg(server.config()).current_dir(server.folder());
    let mut process = Process::start("strowger", server.folder(), &mut command);
    process.wait_for("1 user of a.example", 1, SOON);
    process.wait_for("\nready", 1, SOON);
    let log = process.log();
    assert!(log.contains("no password fits \"a.example\"") && !log.contains("user of b.example"), "{log}");
    assert!(
        log.contains("  domain        a.example   realm a.example\n  or            b.example   realm shared\n"),
        "{log}"
    );
    process.signal(libc::SIGTERM);
    process.end(SOON);
}
