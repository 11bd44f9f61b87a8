//! Examples of the library: one calls the other, directly and through the third.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use strowger_tests::wait;

use strowger_net::{Handle, NetSettings, Service, Shards};
use strowger_tests::process::Process;

#[expect(dead_code, reason = "it is a program too")]
#[path = "../../examples/library/uac.rs"]
mod uac;
#[expect(dead_code, reason = "it is a program too")]
#[path = "../../examples/library/uas.rs"]
mod uas;

/// Returns the folder of the built examples: the value of the environment variable `STROWGER_EXAMPLES`, or the folder
/// of this test, where they are built on the first call.
fn examples() -> PathBuf {
    if let Some(folder) = std::env::var_os("STROWGER_EXAMPLES") {
        return folder.into();
    }
    // target/<profile>/deps/<test>
    let test = std::env::current_exe().expect("a running test has a file");
    let profile = test.ancestors().nth(2).expect("cargo puts tests two folders below the profile's");
    let target = profile.parent().expect("the profile's folder lies in the target folder");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "strowger-library-examples", "--target-dir"]).arg(target);
    match profile.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => {}
        Some(name) => {
            cargo.args(["--profile", name]);
        }
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs, it runs this test");
    assert!(status.success(), "the examples do not build");
    profile.to_owned()
}

/// Starts an example on a free port.
fn start(name: &str, examples: &Path, folder: &Path) -> (Process, SocketAddr) {
    let mut process = Process::start(name, folder, Command::new(examples.join(name)).arg("127.0.0.1:0"));
    process.wait_for("listening on ", 1, Duration::from_secs(20));
    let log = process.log();
    let address = log.lines().find_map(|l| l.strip_prefix("listening on ")).expect("it says where it listens");
    (process, address.parse().expect("it names an address"))
}

#[test]
fn a_call_goes_straight_and_through_the_proxy() {
    let examples = examples();
    let folder = tempfile::tempdir().expect("a folder for the logs");
    let (uas, callee) = start("uas", &examples, folder.path());
    let (_proxy, proxy) = start("proxy", &examples, folder.path());
    let uri = format!("sip:bob@{callee}");
    for (name, hop) in [("straight", callee), ("through the proxy", proxy)] {
        let mut command = Command::new(examples.join("uac"));
        command.args([&uri, &hop.to_string(), "0.2"]);
        let mut uac = Process::start("uac", folder.path(), &mut command);
        let status = uac.end(Duration::from_secs(40));
        assert!(status.success(), "{name}: {}\n{}", uac.tail(), uas.tail());
    }
    // The answer to the last BYE was sent before its caller ended; the log line about this answer may come at the same
    // time.
    let mut uas = uas;
    uas.wait_for("ended: Remote", 2, Duration::from_secs(5));
    let log = uas.log();
    assert_eq!(log.matches("call from").count(), 2, "{log}");
    assert_eq!(log.matches("talking").count(), 2, "{log}");
}

#[test]
fn a_call_to_nobody_fails() {
    let examples = examples();
    let folder = tempfile::tempdir().expect("a folder for the logs");
    let (_proxy, proxy) = start("proxy", &examples, folder.path());
    let mut command = Command::new(examples.join("uac"));
    // A name, which this proxy does not resolve.
    command.args(["sip:bob@nowhere.invalid", &proxy.to_string()]);
    let mut uac = Process::start("uac", folder.path(), &mut command);
    assert!(!uac.end(Duration::from_secs(40)).success());
    assert!(uac.log().contains("refused: 404"), "{}", uac.tail());
}

/// Phones check repeatedly whether the other phone still exists (RFC 4028 section 8).
#[test]
fn the_caller_answers_a_new_offer_within_its_call() {
    let examples = examples();
    let folder = tempfile::tempdir().expect("a folder for the logs");
    let callee = UdpSocket::bind("127.0.0.1:0").expect("there is a port");
    callee.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    let own = callee.local_addr().expect("it is bound");
    let mut command = Command::new(examples.join("uac"));
    command.args([&format!("sip:bob@{own}"), &own.to_string(), "20"]);
    let _uac = Process::start("uac", folder.path(), &mut command);
    let hear = |start: &str| loop {
        let mut bytes = [0; 4_096];
        let (n, from) = callee.recv_from(&mut bytes).unwrap_or_else(|e| panic!("no {start}: {e}"));
        let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
        if text.starts_with(start) {
            return (text, from);
        }
    };
    let sdp = "v=0\r\no=b 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n";
    let with_sdp =
        |head: String| format!("{head}Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}", sdp.len());
    let (invite, caller) = hear("INVITE ");
    let line = |name: &str| invite.lines().find_map(|l| l.strip_prefix(name)).expect("an INVITE has it").to_owned();
    let (via, from, to, call_id) = (line("Via: "), line("From: "), line("To: "), line("Call-ID: "));
    let answer = format!(
        "SIP/2.0 200 OK\r\nVia: {via}\r\nFrom: {from}\r\nTo: {to};tag=b\r\nCall-ID: {call_id}\r\nCSeq: 1 INVITE\r\n\
         Contact: <sip:bob@{own}>\r\n"
    );
    callee.send_to(with_sdp(answer).as_bytes(), caller).expect("it is sent");
    hear("ACK ");
    let again = format!(
        "INVITE sip:uac@{caller} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bKagain\r\nMax-Forwards: 70\r\nFrom: {to};tag=b\r\n\
         To: {from}\r\nCall-ID: {call_id}\r\nCSeq: 1 INVITE\r\nContact: <sip:bob@{own}>\r\n"
    );
    callee.send_to(with_sdp(again).as_bytes(), caller).expect("it is sent");
    let (ok, _) = hear("SIP/2.0 200 ");
    assert!(ok.contains("branch=z9hG4bKagain") && ok.contains("\r\n\r\nv=0"), "{ok}");
}

/// Calls that ring, talk and end while the number of shards of each side changes between four and one.
#[test]
fn calls_go_on_while_shards_come_and_go() {
    const CALLS: usize = 100;
    // Milliseconds.
    const TALK: u64 = 500;
    let settings = || NetSettings { shards: Shards::Auto { most: 4 }, ..NetSettings::default() };
    let callee = uas::start(SocketAddr::from(([127, 0, 0, 1], 0)), settings()).expect("the callee starts");
    let (results, ended) = channel();
    let caller = uac::start(settings(), TALK, results).expect("the caller starts");
    let next_hop = callee.handle().addresses()[0];
    let dial = || {
        for _ in 0..CALLS {
            caller.handle().mailbox(0).send(uac::Dial { uri: format!("sip:bob@{next_hop}"), next_hop });
        }
    };
    let share = |shards: usize| {
        settle(caller.handle(), shards);
        settle(callee.handle(), shards);
    };
    let end = |calls: usize, meanwhile: &dyn Fn()| {
        // After thirty idle seconds one shard is left, which gets every answer.
        let patience = Instant::now() + Duration::from_secs(20);
        let mut left = calls;
        while left > 0 {
            match ended.recv_timeout(Duration::from_millis(20)) {
                Ok(result) => assert_eq!(result, Ok(()), "{left} calls are left"),
                Err(_) => {
                    assert!(Instant::now() < patience, "{left} calls have not ended");
                    meanwhile();
                    continue;
                }
            }
            left -= 1;
        }
    };
    for shards in [4, 1, 3, 4] {
        dial();
        share(shards);
    }
    // These Call-IDs belong to buckets that stay with the first shard: answers to another shard would not come back to
    // it.
    dial();
    end(5 * CALLS, &|| ());
    dial();
    end(CALLS, &|| [1, 4, 2].into_iter().for_each(share));
    for (name, handle) in [("caller", caller.handle().total()), ("callee", callee.handle().total())] {
        assert!(handle.buckets_moved > 3 * 128, "the {name} moved {} buckets", handle.buckets_moved);
    }
}

/// Changes the number of shards, and waits until each bucket is at its shard.
fn settle<S: Service + 'static>(handle: &Handle<S>, shards: usize) {
    handle.set_shards(shards).expect("the shards start");
    assert!(wait::until(Duration::from_secs(20), || handle.is_settled()), "buckets rest");
}
