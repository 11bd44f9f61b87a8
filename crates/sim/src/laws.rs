//! Laws that hold for any network, database and seed: after each step, and when no work is in progress any more.
//!
//! Each file has one law, or several related laws. `server/observer.rs` has the laws of a single engine,
//! `server/lookups.rs` the laws of look-ups, `server/bindings.rs` the laws of data on disk, `bridged.rs` the laws of
//! bridged calls and their media.

mod bans;
mod endings;
mod memory;
mod policy;
mod reach;
pub(crate) mod recent;
mod replies;
mod request_order;
mod wire;

use self::bans::Bans;
use self::memory::Memory;
use self::policy::Policies;
use self::replies::Replies;
use self::request_order::RequestOrder;
use self::wire::Wire;
use crate::node::SimNode;
use crate::noise;
use std::net::SocketAddr;
use strowger_core::{Arrival, Now, Target};
use strowger_message::{Index, Limits, Message};

pub use self::endings::{Weather, judge};

/// Memory of the sent messages, against which later ones are checked.
pub struct Laws {
    index: Index,
    wire: Wire,
    bans: Bans,
    order: RequestOrder,
    policies: Policies,
    replies: Replies,
    memory: Memory,
}

impl Laws {
    pub fn new(servers: impl Iterator<Item = SocketAddr>) -> Self {
        Self {
            index: Index::new(),
            wire: Wire::new(servers),
            bans: Bans::default(),
            order: RequestOrder::default(),
            policies: Policies::default(),
            replies: Replies::default(),
            memory: Memory::default(),
        }
    }

    /// Records that a message arrives at a host.
    pub fn arrived(&mut self, node: &SimNode, own: SocketAddr, now: Now, arrival: &Arrival, bytes: &[u8]) {
        let mut index = std::mem::take(&mut self.index);
        if !noise::is_source(arrival.remote) && index.parse(bytes, &Limits::default()).is_ok() {
            let message = Message::new(bytes, &index);
            self.wire.arrived(own, &message);
            if let Some(server) = node.server() {
                self.bans.arrived(own, arrival, &message);
                self.order.arrived(own, &message);
                self.policies.arrived(own, &message, server.policy_of(bytes));
                self.replies.arrived(own, &message, arrival.flow.is_some());
                self.memory.arrived(own, now.mono, &message);
            }
        }
        self.index = index;
    }

    /// Checks a message that leaves a host.
    ///
    /// # Errors
    /// The fault of the message.
    pub fn sent(
        &mut self,
        node: &SimNode,
        own: SocketAddr,
        now: Now,
        target: &Target,
        bytes: &[u8],
    ) -> Result<(), String> {
        if noise::is_source(target.address) {
            return Ok(());
        }
        let mut index = std::mem::take(&mut self.index);
        let read = index.parse(bytes, &Limits::default());
        let result = match read {
            Err(error) => Err(error.to_string()),
            Ok(()) if index.end() != bytes.len() => Err("bytes behind the message".to_owned()),
            Ok(()) => self.check(node, own, now, target, &Message::new(bytes, &index)),
        };
        self.index = index;
        result.map_err(|e| format!("{own} to {}: {e}\n{}", target.address, String::from_utf8_lossy(bytes)))
    }

    fn check(
        &mut self,
        node: &SimNode,
        own: SocketAddr,
        now: Now,
        target: &Target,
        message: &Message<'_>,
    ) -> Result<(), String> {
        self.wire.sent(own, message, target.transport.is_reliable())?;
        let Some(server) = node.server() else { return Ok(()) };
        self.order.sent(own, message)?;
        self.policies.sent(server, message)?;
        self.replies.sent(own, message)?;
        self.memory.sent(own, now.mono, message);
        Ok(())
    }

    /// Returns the number of answers to an INVITE that came after its sender had a failure.
    pub fn late_answers(&self) -> usize {
        self.wire.late_answers()
    }

    /// Records that the host restarts: from now on only the messages that it sends later count.
    pub fn restarts(&mut self, host: SocketAddr) {
        self.memory.restarted(host);
    }

    /// Records that the host has restarted and forgotten its past.
    pub fn restarted(&mut self, host: SocketAddr) {
        self.wire.restarted(host);
        self.order.restarted(host);
        self.policies.restarted(host);
        self.replies.restarted(host);
    }

    /// Checks the laws of a host after a step.
    ///
    /// # Errors
    /// The violated law.
    pub fn after_step(&mut self, node: &SimNode, now: Now) -> Result<(), String> {
        self.wire.turn(now.mono);
        self.order.turn(now.mono);
        self.policies.turn(now.mono);
        self.replies.turn(now.mono);
        let Some(server) = node.server() else { return Ok(()) };
        self.bans.check(server, now)?;
        self.replies.check(server)?;
        self.memory.check(server, now.mono)
    }

    /// Checks the laws of a world without work in progress.
    ///
    /// # Errors
    /// The violated law.
    pub fn at_the_end(&self, nodes: &[SimNode]) -> Result<(), String> {
        nodes.iter().filter_map(SimNode::server).try_for_each(|server| self.replies.at_the_end(server))
    }
}

/// Returns the key of a transaction of a host.
fn key(host: SocketAddr, branch: &[u8], method: &[u8]) -> Vec<u8> {
    [host.to_string().as_bytes(), branch, method].join(&b' ')
}

/// Returns whether the key is of this host.
fn is_of(host: SocketAddr, key: &[u8]) -> bool {
    let host = host.to_string();
    key.strip_prefix(host.as_bytes()).is_some_and(|rest| rest.first() == Some(&b' '))
}
