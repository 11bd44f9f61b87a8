//! Law: messages of one call and one sender, by its tag, leave in the order of their arrival.

use super::recent::Recent;
use std::collections::HashMap;
use std::net::SocketAddr;
use strowger_message::{Message, Method};

/// A request at a server: times of its first and last copy, and whether it has been forwarded or answered.
#[derive(Debug)]
struct RequestRecord {
    first: u64,
    last: u64,
    has_left: bool,
}

#[derive(Debug, Default)]
pub(super) struct RequestOrder {
    /// Requests by host, Call-ID and the sender's tag, then by branch and method.
    lines: Recent<HashMap<Vec<u8>, RequestRecord>>,
    /// Number of arrivals.
    count: u64,
}

fn line(host: SocketAddr, message: &Message<'_>) -> Option<Vec<u8>> {
    let call_id = message.call_id().ok()?.text;
    let tag = message.from().ok()?.tag.unwrap_or_default();
    Some(super::key(host, call_id, tag))
}

impl RequestOrder {
    pub(super) fn arrived(&mut self, host: SocketAddr, message: &Message<'_>) {
        let (Some(line), Ok(via), Some(_)) = (line(host, message), message.via(), message.method()) else { return };
        self.count += 1;
        let now = self.count;
        let request = [via.branch.unwrap_or_default(), message.method_text()].join(&b' ');
        let requests = self.lines.of(line);
        requests.entry(request).or_insert(RequestRecord { first: now, last: now, has_left: false }).last = now;
    }

    /// Checks a message that leaves a host.
    ///
    /// # Errors
    /// The message overtakes an earlier one.
    pub(super) fn sent(&mut self, host: SocketAddr, message: &Message<'_>) -> Result<(), String> {
        let (Some(line), Ok(cseq)) = (line(host, message), message.cseq()) else { return Ok(()) };
        let mut vias = message.vias().flatten();
        let via = match message.status() {
            // A request that the proxy creates itself has no Via below its own.
            None => vias.nth(1),
            // A request without room to wait is answered at once.
            Some(100 | 503) => return Ok(()),
            Some(_) => vias.next(),
        };
        let Some(branch) = via.and_then(|via| via.branch) else { return Ok(()) };
        let Some(requests) = self.lines.get_mut(&line) else { return Ok(()) };
        let request = [branch, cseq.method_text].join(&b' ');
        let Some(came) = requests.get_mut(&request).filter(|came| !came.has_left) else { return Ok(()) };
        came.has_left = true;
        let last = came.last;
        let overtaken = requests.iter().find(|(_, other)| other.has_left && other.first > last);
        // A REGISTER is answered when its bindings are on disk, and delays no other request meanwhile.
        let waits_for_none = cseq.method == Method::Cancel
            || (cseq.method == Method::Register && matches!(message.status(), Some(200 | 500)));
        match overtaken.filter(|_| !waits_for_none) {
            Some((other, _)) => Err(format!("it leaves behind {}, which came later", String::from_utf8_lossy(other))),
            None => Ok(()),
        }
    }

    pub(super) fn turn(&mut self, now: u64) {
        self.lines.turn(now);
    }

    pub(super) fn restarted(&mut self, host: SocketAddr) {
        self.lines.retain(|line| !super::is_of(host, line));
    }
}
