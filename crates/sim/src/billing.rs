//! Worlds of billing: a gateway and phones that follow RFC 3261, and an account that tries to talk without a record.
//!
//! The honest parties are the oracle: each notes the begin and end of its media in each dialog. The laws ([`law`])
//! compare the counts and records of the server with these notes. The account controls two phones, which refuse, forge,
//! repeat and withhold messages. The server may be killed at any moment, datagrams get lost, and parties fall silent.

mod honest;
mod hostile;
mod ladder;
mod law;
mod ledger;
mod server;
mod text;
mod world;

pub use self::law::Money;

use self::world::World;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const DOMAIN: &str = "home.example";
const PASSWORD: &str = "the password of all users";

const fn address(a: u8, b: u8, c: u8, d: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), 5060)
}

const SERVER: SocketAddr = address(192, 0, 2, 1);
const GATEWAY: SocketAddr = address(203, 0, 113, 1);
const BOBS: [SocketAddr; 2] = [address(198, 51, 100, 8), address(198, 51, 100, 9)];
const MALLORYS: [SocketAddr; 2] = [address(198, 51, 100, 66), address(198, 51, 100, 67)];

/// Maximum number of concurrent calls of the account.
const MOST_CALLS: usize = 2;

const T1: u64 = 500;
const T2: u64 = 4_000;

/// A datagram to the server: source and text.
type Outgoing = (SocketAddr, String);

/// Tasks of a party.
#[derive(Debug)]
struct Tasks<T> {
    /// Keys: moment, then order of planning.
    tasks: BTreeMap<(u64, u64), T>,
    count: u64,
}

impl<T> Default for Tasks<T> {
    fn default() -> Self {
        Self { tasks: BTreeMap::new(), count: 0 }
    }
}

impl<T> Tasks<T> {
    fn plan(&mut self, at: u64, task: T) {
        self.count += 1;
        self.tasks.insert((at, self.count), task);
    }

    fn due(&mut self, now: u64) -> Option<T> {
        Some(self.tasks.first_entry().filter(|entry| entry.key().0 <= now)?.remove())
    }

    fn deadline(&self) -> Option<u64> {
        self.tasks.keys().next().map(|(at, _)| *at)
    }
}

/// Runs the world of one seed, and returns the totals.
///
/// # Errors
/// The violated law, with the messages of that call.
pub fn run(seed: u64) -> Result<Money, String> {
    let mut world = World::new(seed);
    world.run().and_then(|()| world.judge()).map_err(|problem| {
        let (_, trace) = trace(seed);
        format!("{problem}\n{}", ladder::ladder(&trace, &problem))
    })
}

/// Runs the world of one seed. Returns the result, and every message of the world.
pub fn trace(seed: u64) -> (Result<Money, String>, Vec<String>) {
    let mut world = World::new(seed);
    world.trace = Some(Vec::new());
    let result = world.run().and_then(|()| world.judge());
    (result, world.trace.unwrap_or_default())
}

/// Returns the command that shows the world of a failed seed.
pub fn replay(seed: u64) -> String {
    format!(
        "STROWGER_SIM_SEED={seed} cargo test --locked --package strowger-tests --test simulate -- --exact \
         every_call_is_paid_for --nocapture"
    )
}
