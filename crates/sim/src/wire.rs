//! What holds for every message that a host sends, whatever it is.

use std::collections::HashMap;
use std::net::SocketAddr;
use strowger_message::{Index, Limits, Message, Method};

/// Looks at each message sent and remembers what it must remember to judge the next.
#[derive(Debug, Default)]
pub struct Wire {
    index: Index,
    requests: HashMap<Vec<u8>, u32>,
    /// The final status of a transaction's answers so far.
    finals: HashMap<Vec<u8>, u16>,
}

impl Wire {
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
        let key = [from.to_string().as_bytes(), branch, cseq.method_text].join(&b' ');
        match message.status() {
            None if message.method() == Some(Method::Ack) => {}
            None => {
                // Timers A and E: seven times for INVITE, eleven for others, once by a stream.
                let most = match (reliable, message.method()) {
                    (true, _) => 1,
                    (false, Some(Method::Invite)) => 7,
                    (false, _) => 11,
                };
                let times = self.requests.entry(key).or_default();
                *times += 1;
                if *times > most {
                    return Err(wrong("sent too often"));
                }
            }
            Some(status) if status >= 200 => {
                let before = *self.finals.entry(key).or_insert(status);
                let invite = message.cseq().is_ok_and(|c| c.method == Method::Invite);
                // A late 2xx overtakes the failure that was sent before (RFC 3261 section 16.7 step 5); nothing
                // overtakes a 2xx.
                let late_success = invite && (300..700).contains(&before) && status < 300;
                let both_success = invite && before < 300 && status < 300;
                if before != status && !late_success && !both_success {
                    return Err(wrong(&format!("a second final response, after {before}")));
                }
            }
            Some(_) => {
                if self.finals.contains_key(&key) {
                    return Err(wrong("a provisional response after a final one"));
                }
            }
        }
        Ok(())
    }
}
