//! Laws of every message that a host sends.

use super::recent::Recent;
use super::{is_of, key};
use std::collections::HashSet;
use std::net::SocketAddr;
use strowger_message::{Message, Method};

/// Checks each sent message, and remembers it as far as later checks need it.
#[derive(Debug, Default)]
pub(super) struct Wire {
    requests: Recent<u32>,
    /// Final status of the responses of a transaction so far.
    finals: Recent<u16>,
    /// To tags of failures of an INVITE, by branch: its ACK has one of them (RFC 3261 section 17.1.1.3).
    failures: Recent<HashSet<Vec<u8>>>,
    /// Requests that their sender need not retransmit: an INVITE with any response, others with a final one.
    answered: Recent<()>,
    /// Hosts that keep nothing of a refused request (RFC 3261 section 8.2.7): a late copy is another request to them.
    stateless: HashSet<SocketAddr>,
    /// Number of copies of a request that have reached its receiver since its final response; all copies before it are
    /// one request.
    copies: Recent<u32>,
    /// Failures of an INVITE whose ACK their sender received.
    acknowledged: Recent<()>,
    /// Answers to an INVITE, by call and tag, that arrived when its sender had a failure already, such as the timeout
    /// of a target.
    late: HashSet<Vec<u8>>,
}

impl Wire {
    pub(super) fn new(stateless: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { stateless: stateless.into_iter().collect(), ..Self::default() }
    }

    /// Checks a message that leaves this host, over a stream or not.
    ///
    /// # Errors
    /// The fault of the message.
    pub(super) fn sent(&mut self, from: SocketAddr, message: &Message<'_>, reliable: bool) -> Result<(), String> {
        let via = message.via().map_err(|e| e.to_string())?;
        let cseq = message.cseq().map_err(|e| e.to_string())?;
        let branch = via.branch.unwrap_or_default();
        let key = key(from, branch, cseq.method_text);
        let to_tag = message.to().ok().and_then(|to| to.tag).unwrap_or_default();
        match message.status() {
            None if message.method() == Some(Method::Ack) => {
                if self.failures.get(branch).is_some_and(|tags| !tags.contains(to_tag)) {
                    return Err("an ACK with another tag than the response's".to_owned());
                }
            }
            None => {
                // Timers A and E send an INVITE seven times, and another request eleven times. Over a stream a request
                // is sent once, and once more if the stream ends before a response.
                let most = match (reliable, message.method()) {
                    (true, _) => 2,
                    (false, Some(Method::Invite)) => 7,
                    (false, _) => 11,
                };
                let times = self.requests.of(key.clone());
                *times += 1;
                if *times > most {
                    return Err("sent too often".to_owned());
                }
                if self.answered.contains(&key) {
                    return Err("sent again after a response".to_owned());
                }
            }
            Some(status) if status >= 200 => {
                let before = self.finals.get(&key).copied().unwrap_or_else(|| {
                    self.finals.insert(key.clone(), status);
                    status
                });
                let copied = self.is_copied(from, &key, reliable);
                // No transaction is kept for any of these: each copy may have a response of its own.
                let invite = cseq.method == Method::Invite;
                let is_brief = matches!(cseq.method, Method::Register | Method::Cancel) || (reliable && !invite);
                if let Some(copies) = self.copies.get_mut(&key) {
                    *copies = if is_brief { copies.saturating_sub(1) } else { 0 };
                }
                // A late 2xx may follow the failure that was sent before (RFC 3261 section 16.7 step 5); no other final
                // response follows a 2xx.
                if invite && status >= 300 {
                    self.failures.of(branch.to_vec()).insert(to_tag.to_vec());
                    if self.acknowledged.contains(&key) && !copied {
                        return Err("a failure sent again after its ACK".to_owned());
                    }
                    if copied {
                        // The earlier ACK was for the response to the first copy.
                        self.acknowledged.remove(&key);
                    }
                }
                let late_success = invite && (300..700).contains(&before) && status < 300;
                if late_success {
                    let call = message.call_id().map(|call| call.text).unwrap_or_default();
                    self.late.insert([call, b" ", to_tag].concat());
                }
                let both_success = invite && before < 300 && status < 300;
                let is_another = copied && (before >= 300 || is_brief);
                if before != status && !late_success && !both_success {
                    if !is_another {
                        return Err(format!("a second final response, after {before}"));
                    }
                    // From now on this is the final response of the request.
                    self.finals.insert(key, status);
                }
            }
            Some(_) => {
                if let Some(before) = self.finals.get(&key) {
                    let lasts = *before < 300 && !(reliable && cseq.method != Method::Invite);
                    if lasts || !self.is_copied(from, &key, reliable) {
                        return Err("a provisional response after a final one".to_owned());
                    }
                    self.finals.remove(&key);
                }
            }
        }
        Ok(())
    }

    /// Returns whether this host may take a copy of the request for another request, and has not answered a copy yet.
    fn is_copied(&self, host: SocketAddr, key: &[u8], reliable: bool) -> bool {
        (reliable || self.stateless.contains(&host)) && self.copies.get(key).is_some_and(|copies| *copies > 0)
    }

    /// Returns the number of answers that came too late for their callers, who need not acknowledge them.
    pub(super) fn late_answers(&self) -> usize {
        self.late.len()
    }

    pub(super) fn turn(&mut self, now: u64) {
        self.requests.turn(now);
        self.finals.turn(now);
        self.failures.turn(now);
        self.answered.turn(now);
        self.copies.turn(now);
        self.acknowledged.turn(now);
    }

    /// Records that the host has restarted and forgotten its responses: the host treats a copy as another request.
    pub(super) fn restarted(&mut self, host: SocketAddr) {
        self.finals.retain(|key| !is_of(host, key));
        self.acknowledged.retain(|key| !is_of(host, key));
    }

    /// Records that a message, checked before, arrives at `host`.
    pub(super) fn arrived(&mut self, host: SocketAddr, message: &Message<'_>) {
        let (Ok(via), Ok(cseq)) = (message.via(), message.cseq()) else { return };
        let branch = via.branch.unwrap_or_default();
        if message.is_request() {
            *self.copies.of(key(host, branch, cseq.method_text)) += 1;
        }
        match (message.status(), message.method()) {
            (Some(status), _) if status >= 200 || cseq.method == Method::Invite => {
                self.answered.insert(key(host, branch, cseq.method_text), ());
            }
            (None, Some(Method::Ack)) if self.failures.contains(branch) => {
                self.acknowledged.insert(key(host, branch, b"INVITE"), ());
            }
            _ => (),
        }
    }
}
