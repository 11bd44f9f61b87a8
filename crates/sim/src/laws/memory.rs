//! Law: a finished transaction keeps no message longer than RFC 3261 section 17 demands.

use crate::server::ServerHost;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use strowger_message::{Message, Method};

/// Maximum time in ms: 64*T1, timer D, and the rounding of ends, which is repeated with each move.
const LONGEST: u64 = 32_000 + 1_000;

/// Messages of one host that may be kept, with their time limits.
#[derive(Debug, Default)]
struct Kept {
    until: HashMap<Vec<u8>, u64>,
    /// Final status of answered requests.
    finals: HashMap<Vec<u8>, u16>,
    in_order: BTreeSet<(u64, Vec<u8>)>,
}

impl Kept {
    fn may(&mut self, key: Vec<u8>, until: u64) {
        if let Some(before) = self.until.insert(key.clone(), until) {
            self.in_order.remove(&(before, key.clone()));
        }
        self.in_order.insert((until, key));
    }

    /// Lowers the time limit of a message, if the message may be kept.
    fn at_most(&mut self, key: Vec<u8>, until: u64) {
        if self.until.get(&key).is_some_and(|before| *before > until) {
            self.may(key, until);
        }
    }

    /// Records a final response to a request, which need not be the first final response. A 2xx to an INVITE is not
    /// kept.
    fn answered(&mut self, key: Vec<u8>, now: u64, status: u16, is_kept: bool) {
        let until = if is_kept { now + LONGEST } else { now };
        match self.finals.insert(key.clone(), status) {
            None => self.may(key, until),
            // A refused request is not kept, so this is the response to a copy. A late 2xx to an INVITE may follow the
            // failure; the kept failure does not change (RFC 3261 section 16.7 step 5).
            Some(before) if before != status && is_kept => self.may(key, until),
            Some(_) => (),
        }
    }

    /// Records that a request has no final response yet. If the host has sent a final response, this request is a copy;
    /// a host that does not keep refused requests treats the copy as another request (RFC 3261 section 8.2.7).
    fn goes_on(&mut self, key: Vec<u8>) {
        if self.until.get(&key) != Some(&u64::MAX) {
            self.finals.remove(&key);
            self.may(key, u64::MAX);
        }
    }

    fn count(&mut self, now: u64) -> usize {
        while let Some((_, key)) = self.in_order.first().filter(|(until, _)| *until < now) {
            self.until.remove(key);
            self.finals.remove(key);
            self.in_order.pop_first();
        }
        self.until.len()
    }
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    hosts: HashMap<SocketAddr, Kept>,
}

/// Returns the key of the server or client transaction of a request.
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
            // A provisional response was sent, and the final response follows.
            (Some(_), _) => {
                if let Some(key) = key(b"server", message).filter(|key| !kept.until.contains_key(key)) {
                    kept.may(key, u64::MAX);
                }
            }
            (None, Some(200..)) => {
                let (is_invite, is_success) = (cseq.method == Method::Invite, message.status() < Some(300));
                // A 2xx may come after a failure, whose ACK stays.
                let is_late = |key: &Vec<u8>| is_invite && is_success && kept.until.get(key) != Some(&u64::MAX);
                if let Some(key) = key(b"client", message).filter(|key| !is_late(key)) {
                    // The ACK of the INVITE may be retransmitted.
                    kept.at_most(key, if is_invite && !is_success { now + LONGEST } else { now });
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
                    // A request that the proxy creates itself has no Via below its own.
                    if let Some(below) = message.vias().flatten().nth(1).and_then(|via| via.branch) {
                        kept.goes_on([b"server", below, message.method_text()].join(&b' '));
                    }
                }
            }
            (None, Some(status @ 200..)) => {
                let is_success = status < 300 && message.cseq().is_ok_and(|cseq| cseq.method == Method::Invite);
                if let Some(key) = key(b"server", message) {
                    kept.answered(key, now, status, !is_success);
                }
            }
            (None, _) => {
                if let Some(key) = key(b"server", message) {
                    kept.goes_on(key);
                }
            }
        }
    }

    /// Checks the number of kept messages.
    ///
    /// # Errors
    /// More messages are kept than allowed.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Vec<u8> {
        b"server z9hG4bK1 MESSAGE".to_vec()
    }

    #[test]
    fn an_answer_that_is_sent_again_is_kept_no_longer() {
        let mut kept = Kept::default();
        kept.may(key(), u64::MAX);
        for now in [1_000, 2_000, 30_000] {
            kept.answered(key(), now, 407, true);
        }
        assert_eq!((kept.count(1_000 + LONGEST), kept.count(1_001 + LONGEST)), (1, 0));
        assert!(kept.finals.is_empty() && kept.in_order.is_empty());
    }

    #[test]
    fn a_copy_of_a_refused_request_is_another_request() {
        let mut kept = Kept::default();
        kept.may(key(), u64::MAX);
        kept.answered(key(), 1_000, 407, true);
        kept.goes_on(key());
        assert_eq!(kept.count(1_001 + LONGEST), 1, "it waits for its answer");
        kept.answered(key(), 50_000, 200, true);
        kept.answered(key(), 60_000, 200, true);
        assert_eq!((kept.count(50_000 + LONGEST), kept.count(50_001 + LONGEST)), (1, 0));
        kept.may(key(), u64::MAX);
        kept.answered(key(), 100_000, 407, true);
        kept.answered(key(), 110_000, 404, true);
        assert_eq!((kept.count(110_000 + LONGEST), kept.count(110_001 + LONGEST)), (1, 0));
    }

    #[test]
    fn a_late_2xx_leaves_the_failure_before_it() {
        let mut kept = Kept::default();
        kept.may(key(), u64::MAX);
        kept.answered(key(), 1_000, 486, true);
        kept.answered(key(), 2_000, 200, false);
        assert_eq!((kept.count(1_000 + LONGEST), kept.count(1_001 + LONGEST)), (1, 0));
        kept.may(key(), u64::MAX);
        kept.answered(key(), 40_000, 200, false);
        assert_eq!((kept.count(40_000), kept.count(40_001)), (1, 0));
    }
}
