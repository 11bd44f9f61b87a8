//! A finished transaction keeps no message longer than RFC 3261 section 17 asks.

use crate::server::ServerHost;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use strowger_message::{Message, Method};

/// 64*T1, timer D, and how far ends are rounded up, again with each move, ms.
const LONGEST: u64 = 32_000 + 1_000;

/// Messages of one host that may be kept, and until when.
#[derive(Debug, Default)]
struct Kept {
    until: HashMap<Vec<u8>, u64>,
    in_order: BTreeSet<(u64, Vec<u8>)>,
}

impl Kept {
    fn may(&mut self, key: Vec<u8>, until: u64) {
        if let Some(before) = self.until.insert(key.clone(), until) {
            self.in_order.remove(&(before, key.clone()));
        }
        self.in_order.insert((until, key));
    }

    /// So long, and no longer, if it may be kept at all.
    fn at_most(&mut self, key: Vec<u8>, until: u64) {
        if self.until.get(&key).is_some_and(|before| *before > until) {
            self.may(key, until);
        }
    }

    fn count(&mut self, now: u64) -> usize {
        while let Some((_, key)) = self.in_order.first().filter(|(until, _)| *until < now) {
            self.until.remove(key);
            self.in_order.pop_first();
        }
        self.until.len()
    }
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    hosts: HashMap<SocketAddr, Kept>,
}

/// Of the server or the client transaction of a request.
fn key(side: &[u8], message: &Message<'_>) -> Option<Vec<u8>> {
    let (via, cseq) = (message.via().ok()?, message.cseq().ok()?);
    Some([side, via.branch.unwrap_or_default(), cseq.method_text].join(&b' '))
}

impl Memory {
    pub(super) fn arrived(&mut self, host: SocketAddr, now: u64, message: &Message<'_>) {
        let kept = self.hosts.entry(host).or_default();
        let Ok(cseq) = message.cseq() else { return };
        match (message.method(), message.status()) {
            (Some(Method::Ack), _) => {
                let branch = message.via().ok().and_then(|via| via.branch).unwrap_or_default();
                kept.at_most([b"server", branch, b"INVITE"].join(&b' '), now);
            }
            // An answer that is to come, then that answer.
            (Some(_), _) => {
                if let Some(key) = key(b"server", message).filter(|key| !kept.until.contains_key(key)) {
                    kept.may(key, u64::MAX);
                }
            }
            (None, Some(200..)) => {
                let is_failure = cseq.method == Method::Invite && message.status() >= Some(300);
                if let Some(key) = key(b"client", message) {
                    // Its ACK, to be sent again.
                    kept.at_most(key, if is_failure { now + LONGEST } else { now });
                }
            }
            (None, _) => (),
        }
    }

    pub(super) fn sent(&mut self, host: SocketAddr, now: u64, message: &Message<'_>) {
        let kept = self.hosts.entry(host).or_default();
        match (message.method(), message.status()) {
            (Some(Method::Ack), _) => (),
            (Some(method), _) => {
                let until = if method == Method::Invite { u64::MAX } else { now + LONGEST };
                if let Some(key) = key(b"client", message).filter(|key| !kept.until.contains_key(key)) {
                    kept.may(key, until);
                }
            }
            (None, Some(status @ 200..)) => {
                let is_success = status < 300 && message.cseq().is_ok_and(|cseq| cseq.method == Method::Invite);
                if let Some(key) = key(b"server", message) {
                    kept.at_most(key, if is_success { now } else { now + LONGEST });
                }
            }
            (None, _) => (),
        }
    }

    /// # Errors
    /// More is kept than may be.
    pub(super) fn check(&mut self, server: &ServerHost, now: u64) -> Result<(), String> {
        let kept: u64 = server.transactions().map(|transactions| transactions.counts().kept_messages).sum();
        let most = self.hosts.entry(server.address()).or_default().count(now);
        match kept > most as u64 {
            true => Err(format!("{}: {kept} messages are kept, {most} are needed", server.address())),
            false => Ok(()),
        }
    }

    pub(super) fn restarted(&mut self, host: SocketAddr) {
        self.hosts.remove(&host);
    }
}
