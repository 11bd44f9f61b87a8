//! What holds for every message that a host sends, whatever it is.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use strowger_message::{Index, Limits, Message, Method};

/// Looks at each message sent and remembers what it must remember to judge the next.
#[derive(Debug, Default)]
pub struct Wire {
    index: Index,
    requests: HashMap<Vec<u8>, u32>,
    /// The final status of a transaction's answers so far.
    finals: HashMap<Vec<u8>, u16>,
    /// The To tags of failures of an INVITE, by branch: its ACK carries one of them (RFC 3261 section 17.1.1.3).
    failures: HashMap<Vec<u8>, HashSet<Vec<u8>>>,
    /// Requests that their sender need not send again: an INVITE with any response, others with a final one.
    answered: HashSet<Vec<u8>>,
    /// Hosts that keep nothing of a request that they refuse (RFC 3261 section 8.2.7): a copy that comes late is another request to them.
    stateless: HashSet<SocketAddr>,
    /// How many copies of a request have come to its receiver since it answered to the end: what comes before the answer is one request.
    copies: HashMap<Vec<u8>, u32>,
    /// Failures of an INVITE that their sender saw the ACK of.
    acknowledged: HashSet<Vec<u8>>,
}

/// What tells a transaction of one host apart.
fn key(host: SocketAddr, branch: &[u8], method: &[u8]) -> Vec<u8> {
    [host.to_string().as_bytes(), branch, method].join(&b' ')
}

impl Wire {
    pub fn new(stateless: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { stateless: stateless.into_iter().collect(), ..Self::default() }
    }

    /// A message goes from `from` to `to` by a datagram or not.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8], reliable: bool) -> Result<(), String> {
        let wrong = |what: &str| format!("{from} to {to}: {what}\n{}", String::from_utf8_lossy(bytes));
        self.index.parse(bytes, &Limits::default()).map_err(|e| wrong(&e.to_string()))?;
        if self.index.end() != bytes.len() {
            return Err(wrong("bytes behind the message"));
        }
        let message = Message::new(bytes, &self.index);
        let via = message.via().map_err(|e| wrong(&e.to_string()))?;
        let cseq = message.cseq().map_err(|e| wrong(&e.to_string()))?;
        let branch = via.branch.unwrap_or_default();
        let key = key(from, branch, cseq.method_text);
        let to_tag = message.to().ok().and_then(|to| to.tag).unwrap_or_default();
        match message.status() {
            None if message.method() == Some(Method::Ack) => {
                if self.failures.get(branch).is_some_and(|tags| !tags.contains(to_tag)) {
                    return Err(wrong("an ACK with another tag than the response's"));
                }
            }
            None => {
                // Timers A and E: seven times for INVITE, eleven for others, once by a stream.
                let most = match (reliable, message.method()) {
                    (true, _) => 1,
                    (false, Some(Method::Invite)) => 7,
                    (false, _) => 11,
                };
                let times = self.requests.entry(key.clone()).or_default();
                *times += 1;
                if *times > most {
                    return Err(wrong("sent too often"));
                }
                if self.answered.contains(&key) {
                    return Err(wrong("sent again after a response"));
                }
            }
            Some(status) if status >= 200 => {
                let before = *self.finals.entry(key.clone()).or_insert(status);
                let copied = self.is_copied(from, &key);
                // Neither has a transaction that lasts: each copy may have an answer of its own.
                let is_brief = matches!(cseq.method, Method::Register | Method::Cancel);
                if let Some(copies) = self.copies.get_mut(&key) {
                    *copies = if is_brief { copies.saturating_sub(1) } else { 0 };
                }
                let invite = message.cseq().is_ok_and(|c| c.method == Method::Invite);
                // A late 2xx overtakes the failure that was sent before (RFC 3261 section 16.7 step 5); nothing
                // overtakes a 2xx.
                if invite && status >= 300 {
                    self.failures.entry(branch.to_vec()).or_default().insert(to_tag.to_vec());
                    if self.acknowledged.contains(&key) && !copied {
                        return Err(wrong("a failure sent again after its ACK"));
                    }
                }
                let late_success = invite && (300..700).contains(&before) && status < 300;
                let both_success = invite && before < 300 && status < 300;
                let is_another = copied && (before >= 300 || is_brief);
                if before != status && !late_success && !both_success && !is_another {
                    return Err(wrong(&format!("a second final response, after {before}")));
                }
            }
            Some(_) => {
                if let Some(before) = self.finals.get(&key) {
                    if *before < 300 || !self.is_copied(from, &key) {
                        return Err(wrong("a provisional response after a final one"));
                    }
                    self.finals.remove(&key);
                }
            }
        }
        Ok(())
    }

    /// To this host a copy of the request may be another request, and one has come that it has not answered.
    fn is_copied(&self, host: SocketAddr, key: &[u8]) -> bool {
        self.stateless.contains(&host) && self.copies.get(key).is_some_and(|copies| *copies > 0)
    }

    /// The host has started again, and knows nothing of what it answered: what comes again is another request to it.
    pub fn restarted(&mut self, host: SocketAddr) {
        let of_host = key(host, b"", b"");
        let is_of = |key: &[u8]| key.starts_with(&of_host[..of_host.len() - 1]);
        self.finals.retain(|key, _| !is_of(key));
        self.acknowledged.retain(|key| !is_of(key));
    }

    /// A message that was checked before arrives at `host`.
    pub fn arrived(&mut self, host: SocketAddr, bytes: &[u8]) {
        if self.index.parse(bytes, &Limits::default()).is_err() {
            return;
        }
        let message = Message::new(bytes, &self.index);
        let (Ok(via), Ok(cseq)) = (message.via(), message.cseq()) else { return };
        let branch = via.branch.unwrap_or_default();
        if message.is_request() {
            *self.copies.entry(key(host, branch, cseq.method_text)).or_default() += 1;
        }
        match (message.status(), message.method()) {
            (Some(status), _) if status >= 200 || cseq.method == Method::Invite => {
                self.answered.insert(key(host, branch, cseq.method_text));
            }
            (None, Some(Method::Ack)) if self.failures.contains_key(branch) => {
                self.acknowledged.insert(key(host, branch, b"INVITE"));
            }
            _ => (),
        }
    }
}
