//! Worlds of bridged calls: phones, gateways and an outsider around a server that bridges every call and carries its media.
//!
//! The phones are user agents of `strowger-core`. They hold, resume, offer other sessions, refer, take the place of another party, cancel and hang
//! up by a script of random numbers, and send RTP. The network loses, doubles, delays and reorders messages and packets, buckets of calls move
//! between shards, a translator changes its ports, the process may be killed, and the outsider sends RTP to every port of the server. The laws:
//!
//! 1. Each INVITE gets one final response (`finals.rs`).
//! 2. The end of one leg ends the other one, and nothing is left: no call, transaction, session, port, limit (`judge.rs`, `server.rs`, `media.rs`).
//! 3. No message to one side has a name, address or identifier of the other side (`topology.rs`).
//! 4. A packet goes only to an address that its party has described or sent from, and a party hears only the parties of its call (`reach.rs`,
//!    `world.rs`).
//! 5. Each answered call has one record, with the Call-IDs of both sides (`judge.rs`).
//! 6. A party that takes the place of another one by REFER and Replaces talks to the party that remains, until both end together (`judge.rs`).
//! 7. In each dialog, CSeq and the version of descriptions rise (`rising.rs`), also over a kill, after which the next process continues kept calls.

mod finals;
mod judge;
mod media;
mod phone;
mod reach;
mod rising;
mod server;
mod sound;
mod text;
mod topology;
mod translator;
mod world;

pub use self::judge::{Bridged, Kills};

use self::world::World;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const DOMAIN: &str = "home.example";

const fn address(a: u8, b: u8, c: u8, d: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), 5060)
}

const SERVER: SocketAddr = address(192, 0, 2, 1);
const ALICE: SocketAddr = address(198, 51, 100, 11);
const BOBS: [SocketAddr; 2] = [address(198, 51, 100, 12), address(198, 51, 100, 13)];
/// Phone behind a translator, and the public address of the translator.
const CAROL: SocketAddr = address(10, 20, 30, 40);
const TRANSLATOR: SocketAddr = address(203, 0, 113, 77);
const GATEWAYS: [SocketAddr; 2] = [address(203, 0, 113, 101), address(203, 0, 113, 102)];
const STRANGER: SocketAddr = address(198, 51, 100, 99);

/// User, name that no other party may see, and address of each party.
const PARTIES: [(&str, &str, SocketAddr); 6] = [
    ("alice", "phone-of-alice", ALICE),
    ("bob", "first-of-bob", BOBS[0]),
    ("bob", "second-of-bob", BOBS[1]),
    ("carol", "phone-of-carol", CAROL),
    ("0049", "first-gateway", GATEWAYS[0]),
    ("0049", "second-gateway", GATEWAYS[1]),
];

/// First and last port for media.
const PORTS: (u16, u16) = (20_000, 20_127);

/// Datagram with its source as its sender sees it.
#[derive(Clone, Debug)]
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Runs the world of one seed, and returns the totals.
///
/// # Errors
/// The violated law, and the time.
pub fn run(seed: u64) -> Result<Bridged, String> {
    World::new(seed).judged()
}

/// Runs the world of one seed. Returns the result, and every SIP message of the world.
pub fn trace(seed: u64) -> (Result<Bridged, String>, Vec<String>) {
    let mut world = World::new(seed);
    world.trace = Some(Vec::new());
    let result = world.judged();
    (result, world.trace.unwrap_or_default())
}

/// Returns the command that shows the world of a failed seed.
pub fn replay(seed: u64) -> String {
    format!(
        "STROWGER_SIM_SEED={seed} cargo test --locked --package strowger-tests --test simulate -- --exact \
         every_bridged_call_ends_on_both_sides --nocapture"
    )
}
