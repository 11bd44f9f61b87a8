//! Requests of a connection without a final response. A connection with such requests stays open (RFC 3261 section 18).
//!
//! Messages are judged by their first bytes. A request that is never answered counts until its transaction has ended by
//! time; several final responses to one request count as several.

use std::time::Duration;

/// Requests of one connection without a final response.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests {
    received: u32,
    sent: u32,
    /// Time of the last request or response in either direction, in milliseconds.
    last: u64,
    /// Time of the last final response to the peer, whose ACK may follow.
    answered: u64,
}

/// Meaning of a message for the requests of its connection.
enum Kind {
    Request,
    Ack,
    Provisional,
    Final,
}

impl OpenRequests {
    /// Notes a message of the peer. Returns whether it was the response to the last open request.
    pub(crate) fn note_received(&mut self, message: &[u8], now: u64) -> bool {
        self.last = now;
        note(message, &mut self.received, &mut self.sent) && !self.is_any()
    }

    /// Notes a message to the peer. Returns whether it was the response to the last open request.
    pub(crate) fn note_sent(&mut self, message: &[u8], now: u64) -> bool {
        self.last = now;
        let is_final = note(message, &mut self.sent, &mut self.received);
        if is_final {
            self.answered = now;
        }
        is_final && !self.is_any()
    }

    /// Tells whether a request of the peer has no final response.
    pub(crate) const fn is_owed(&self) -> bool {
        self.received > 0
    }

    /// Tells whether a request in either direction has no final response.
    const fn is_any(&self) -> bool {
        self.received > 0 || self.sent > 0
    }

    /// Returns the time until which the connection is in use: that of the end of the last open request, which has at most
    /// the time `transaction` between two of its messages; without an open request the time `silence` after the last
    /// answer.
    pub(crate) const fn in_use_until(&self, transaction: Duration, silence: Duration) -> u64 {
        let (from, time) = if self.is_any() { (self.last, transaction) } else { (self.answered, silence) };
        from.saturating_add(time.as_millis() as u64)
    }
}

/// Counts a message of one side. `asked`: open requests of that side; `owed`: those of the other side. Returns whether the
/// message was a final response.
fn note(message: &[u8], asked: &mut u32, owed: &mut u32) -> bool {
    match kind(message) {
        Kind::Request => *asked = asked.saturating_add(1),
        Kind::Final => *owed = owed.saturating_sub(1),
        Kind::Ack | Kind::Provisional => (),
    }
    matches!(kind(message), Kind::Final)
}

fn kind(message: &[u8]) -> Kind {
    match message.strip_prefix(b"SIP/2.0 ") {
        Some(rest) if rest.first().is_some_and(|class| (b'2'..=b'6').contains(class)) => Kind::Final,
        Some(_) => Kind::Provisional,
        None if message.starts_with(b"ACK ") => Kind::Ack,
        None => Kind::Request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use_until(requests: &OpenRequests) -> u64 {
        requests.in_use_until(Duration::from_secs(181), Duration::from_secs(5))
    }

    #[test]
    fn a_request_is_open_until_its_final_response() {
        let mut requests = OpenRequests::default();
        assert!(!requests.is_owed() && in_use_until(&requests) == 5_000);
        assert!(!requests.note_received(b"INVITE sip:a SIP/2.0", 1_000) && requests.is_owed());
        assert!(!requests.note_sent(b"SIP/2.0 180 Ringing", 5_000));
        assert_eq!(in_use_until(&requests), 186_000, "a provisional response prolongs it");
        assert!(requests.note_sent(b"SIP/2.0 200 OK", 6_000) && !requests.is_owed());
        assert!(!requests.note_received(b"ACK sip:a SIP/2.0", 7_000));
        assert_eq!(in_use_until(&requests), 11_000, "there was time for the ACK");
    }

    #[test]
    fn requests_of_both_sides_count() {
        let mut requests = OpenRequests::default();
        requests.note_sent(b"OPTIONS sip:a SIP/2.0", 1_000);
        requests.note_received(b"REGISTER sip:a SIP/2.0", 2_000);
        assert!(!requests.note_sent(b"SIP/2.0 401 Unauthorized", 3_000), "the other one is open");
        assert!(!requests.is_owed() && in_use_until(&requests) == 184_000);
        assert!(requests.note_received(b"SIP/2.0 404 Not Found", 4_000));
        // A response without a request changes nothing.
        assert!(requests.note_received(b"SIP/2.0 200 OK", 5_000) && in_use_until(&requests) == 8_000);
    }
}
