//! Challenges, passwords and guessing.

use std::net::SocketAddr;

use super::{Stage, ask, code, send};
use strowger_tests::account::authorized;
use strowger_tests::control;
use strowger_tests::meter::Shows::{At, By};
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

pub(super) const SCENES: &[(&str, fn())] =
    &[("passwords", passwords), ("used nonces", used_nonces), ("a full table of nonces", full_table), ("bans", bans)];

const RIGHT: &str = "bob";

fn start(lines: &str) -> Stage {
    Stage::with_users(Setup::on(&[Udp]).with("domains = [\"example.org\"]").with(lines), &["bob"])
}

fn register(wire: &Wire) -> Request {
    let contact = format!("sip:bob@{}", wire.local());
    Request::register("bob", "example.org", &contact, "udp", wire.local())
}

/// Returns the answer to a REGISTER with this password; the first request carries none.
fn answer(wire: &mut Wire, password: &str) -> Vec<u8> {
    let request = register(wire);
    let challenge = ask(wire, &request);
    ask(wire, &authorized(&request, &challenge, "bob", password))
}

fn passwords() {
    let mut stage = start("");
    let mut phone = stage.server.connect(Udp);
    let request = register(&phone);
    let challenge = ask(&mut phone, &request);
    stage.shows(&[
        ("challenges_total", By(1)),
        ("failed_authentications_total", By(0)),
        ("lookup_misses_total", By(0)),
    ]);
    assert_eq!(code(&mut phone, &authorized(&request, &challenge, "bob", "a guess")), 401);
    stage.shows(&[
        ("challenges_total", By(1)),
        ("failed_authentications_total", By(1)),
        ("lookup_misses_total", By(1)),
        ("lookup_hits_total", By(0)),
        ("lookups_cached", At(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("answers_total", By(1)),
        ("used_nonces", At(0)),
    ]);
    assert_eq!(status(&answer(&mut phone, RIGHT)), Some(200));
    stage.shows(&[
        ("challenges_total", By(1)),
        ("registrations_total", By(1)),
        ("lookup_hits_total", By(1)),
        ("lookup_misses_total", By(0)),
        ("used_nonces", At(1)),
    ]);
    // An unknown user costs one look-up, and the negative answer is cached.
    let unknown = authorized(&register(&phone), &challenge, "nobody", "a guess");
    assert_eq!(code(&mut phone, &unknown), 401);
    stage.shows(&[
        ("failed_authentications_total", By(1)),
        ("challenges_total", By(1)),
        ("lookup_misses_total", By(1)),
        ("lookups_cached", At(2)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
    ]);
    stage.end();
}

fn used_nonces() {
    let mut stage = start("auth.nonce_lifetime = \"5s\"");
    let mut phone = stage.server.connect(Udp);
    for _ in 0..3 {
        assert_eq!(status(&answer(&mut phone, RIGHT)), Some(200));
    }
    stage.shows(&[
        ("used_nonces", At(3)),
        ("challenges_total", By(3)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
    ]);
    stage.shows(&[("used_nonces", At(0))]);
    stage.end();
}

fn full_table() {
    let mut stage = start("auth.used_nonces = 1024");
    let mut phone = stage.server.connect(Udp);
    let (mut right, mut refused) = (0, 0);
    while refused < 20 {
        match status(&answer(&mut phone, RIGHT)) {
            Some(200) => right += 1,
            other => {
                assert_eq!(other, Some(401));
                refused += 1;
            }
        }
        assert!(right < 1_100, "the table holds more than it should");
    }
    stage.shows(&[
        ("nonces_refused_total", By(refused)),
        ("challenges_total", By(right + 2 * refused)),
        ("registrations_total", By(right)),
        ("failed_authentications_total", By(0)),
        ("used_nonces", At(right)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
    ]);
    stage.end();
}

fn bans() {
    let mut stage = start("ban.exempt = []\nban.failures = 3");
    let from: SocketAddr = "127.0.0.2:0".parse().expect("an address");
    let mut guesser = Wire::connect_from(Udp, from, stage.server.address(Udp), None).expect("loopback");
    stage.shows(&[("sources_banned", At(0)), ("sources_watched", At(0))]);
    for _ in 0..3 {
        assert_eq!(status(&answer(&mut guesser, "a guess")), Some(401));
    }
    stage.shows(&[
        ("sources_banned", At(1)),
        ("sources_watched", At(1)),
        ("failed_authentications_total", By(3)),
        ("challenges_total", By(6)),
        ("messages_banned_total", By(0)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
    ]);
    for _ in 0..4 {
        let request = register(&guesser);
        send(&mut guesser, &request);
    }
    stage.shows(&[("messages_banned_total", By(4)), ("requests_total", By(0)), ("datagrams_in_total", By(4))]);
    control::done(&stage.server, &["ban", "lift", "127.0.0.2"]);
    stage.shows(&[("sources_banned", At(0)), ("sources_watched", At(0))]);
    // A scanner is dropped, and no source is banned for it over UDP.
    let scanner = register(&guesser).with("User-Agent: friendly-scanner");
    send(&mut guesser, &scanner);
    stage.shows(&[("messages_banned_total", By(1)), ("sources_banned", At(0)), ("datagrams_out_total", By(0))]);
    stage.end();
}
