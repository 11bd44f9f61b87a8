//! Ratios in per cent and rates per second, computed from counters.

use super::table::table;
use super::{Counter, Page};

// "Concluded" attempts have an end: all that were sent, less those still open when the run ended.
table! {
    /// Ratio, in per cent.
    Share:
    /// Name in requirements, JSON and CSV.
    key,
    /// Name for people.
    title,
    /// Source of the definition.
    source,
    /// Numerator and denominator.
    definition;

    Establishment = "ser", "Session establishment ratio", "RFC 6076 4.6",
        "INVITEs answered with 200, of all concluded INVITEs less those answered with 3xx. An INVITE tried again after a challenge is one.";
    EffectiveEstablishment = "seer", "Session establishment effectiveness ratio", "RFC 6076 4.7",
        "INVITEs answered with 200, 480, 486, 600 or 603, of all concluded INVITEs less those answered with 3xx.";
    IneffectiveAttempts = "isa", "Ineffective session attempts", "RFC 6076 4.8",
        "INVITEs answered with 408, 500, 503 or 504, or not at all (Timer B, or a failure of the transport), of all concluded INVITEs.";
    Completion = "scr", "Session completion ratio", "RFC 6076 4.9",
        "Sessions that we asked for and that an answered BYE ended, of all concluded INVITEs less sessions cut off by the end of the run.";
    IneffectiveRegistrations = "ira", "Ineffective registration attempts", "RFC 6076 4.2",
        "REGISTERs answered with 4xx (except 401, 402, 407), 5xx or 6xx, or not at all (Timer F, or a failure of the transport), of all concluded REGISTERs. One that ends at a challenge is no failure here: with wrong passwords for all it is 0 %. Gate with ira.any.";
    UnregisteredAnyReason = "ira.any", "Registrations that failed for any reason", "testing methodology of Voznak and Rozhon",
        "Concluded REGISTERs that were not answered with 200, whatever the reason, of all concluded REGISTERs.";
    UnansweredAnyReason = "isa.any", "Sessions that failed for any reason", "testing methodology of Voznak and Rozhon",
        "Concluded INVITEs of successfully registered users that were not answered with 200, whatever the reason, of all of these; of all concluded INVITEs in a run without registrations.";
    CallSuccess = "calls.success", "Calls that reached the end of their scenario", "common practice",
        "Successful calls, of successful and failed ones.";
    Retransmissions = "retransmission.ratio", "Messages that were retransmissions", "common practice",
        "Messages that we sent again, of all messages that we sent.";
    MediaLoss = "media.loss", "Media packets that were lost", "common practice",
        "Packets of received streams that never came, of all that their senders sent; a stream counts when its call ends.";
    RateError = "rate.error", "Calls that the schedule wanted and that were not started", "generator health",
        "Calls intended less calls started, of calls intended.";
}

table! {
    /// Rate per second.
    Rate:
    /// Name in requirements, JSON and CSV.
    key,
    /// Name for people.
    title,
    /// Source of the definition.
    source,
    /// Numerator and denominator.
    definition;

    Intended = "rate.intended", "Calls wanted by the schedule", "generator health", "Calls that fell due, a second of the time in which they fell due, whether or not they could be started then.";
    Achieved = "rate.achieved", "Calls started", "generator health", "Calls started by the schedule, a second of the time in which calls were started.";
    Successful = "rate.successful", "Calls that succeeded", "common practice", "Calls that reached the end of their scenario, a second of the time in which calls were started.";
    Failed = "rate.failed", "Calls that failed", "common practice", "Calls that failed, a second of the time in which calls were started.";
    Incoming = "rate.incoming", "Calls that came in", "common practice", "Calls started by a message that came in, a second.";
    MessagesSent = "rate.messages.sent", "Messages sent", "common practice", "Messages sent, a second.";
    MessagesReceived = "rate.messages.received", "Messages received", "common practice", "Messages received, a second.";
    BytesSent = "rate.bytes.sent", "Bytes sent", "common practice", "Bytes of messages sent, a second.";
    BytesReceived = "rate.bytes.received", "Bytes received", "common practice", "Bytes of messages received, a second.";
}

/// Shortest time over which a rate is computed, µs. Over a shorter time a rate only describes a burst.
const SHORTEST: u64 = 100_000;

impl Share {
    /// Returns the ratio in per cent, or `None` if the denominator is zero.
    pub fn of(self, page: &Page) -> Option<f64> {
        let count = |counter| page.counter(counter) as f64;
        let sessions = concluded_sessions(page) as f64;
        let registrations = concluded_registrations(page) as f64;
        let (part, whole) = match self {
            Self::Establishment => (count(Counter::SessionAnswered), sessions - count(Counter::SessionRedirected)),
            Self::EffectiveEstablishment => (
                count(Counter::SessionAnswered) + count(Counter::SessionEffective),
                sessions - count(Counter::SessionRedirected),
            ),
            Self::IneffectiveAttempts => (
                count(Counter::SessionIneffective) + count(Counter::SessionTimedOut) + count(Counter::SessionTransport),
                sessions,
            ),
            Self::Completion => (count(Counter::SessionCompleted), sessions - count(Counter::SessionCut)),
            Self::IneffectiveRegistrations => (
                count(Counter::RegistrationFailed)
                    + count(Counter::RegistrationTimedOut)
                    + count(Counter::RegistrationTransport),
                registrations,
            ),
            Self::UnregisteredAnyReason => (registrations - count(Counter::RegistrationSuccessful), registrations),
            Self::UnansweredAnyReason if page.counter(Counter::SessionRegistered) > 0 => (
                count(Counter::SessionRegistered) - count(Counter::SessionRegisteredAnswered),
                count(Counter::SessionRegistered),
            ),
            Self::UnansweredAnyReason => (sessions - count(Counter::SessionAnswered), sessions),
            Self::CallSuccess => {
                (count(Counter::CallsSuccessful), count(Counter::CallsSuccessful) + count(Counter::CallsFailed))
            }
            Self::Retransmissions => (count(Counter::RetransmissionsSent), count(Counter::MessagesSent)),
            Self::MediaLoss => (count(Counter::MediaLost), count(Counter::MediaExpected)),
            Self::RateError => {
                (count(Counter::CallsIntended) - count(Counter::CallsOutgoing), count(Counter::CallsIntended))
            }
        };
        (whole > 0.0).then(|| part / whole * 100.0)
    }
}

impl Rate {
    /// Returns the rate per second, or `None` if no time is covered. A rate of calls that the schedule starts is
    /// divided by the time in which the calls fell due (intended) or were started (achieved, successful, failed), if
    /// that is longer than a tenth of a second, because the wait for the last calls to end is not part of the schedule.
    pub fn of(self, page: &Page) -> Option<f64> {
        let (first, last, events) = match self {
            Self::Intended => (page.first_due, page.last_due, Counter::CallsIntended),
            Self::Achieved | Self::Successful | Self::Failed => {
                (page.first_start, page.last_start, Counter::CallsOutgoing)
            }
            _ => return self.over(page),
        };
        let (span, events) = (last.saturating_sub(first), page.counter(events));
        if span >= SHORTEST && events > 1 {
            // From the first to the last call there is one interval less than there are calls.
            let whole = span as f64 * events as f64 / (events - 1) as f64;
            return Some(page.counter(self.counter()) as f64 * 1e6 / whole);
        }
        self.over(page)
    }

    /// Returns the rate over all the time that the page covers, or `None` if it covers none.
    pub fn over(self, page: &Page) -> Option<f64> {
        (page.covered > 0).then(|| page.counter(self.counter()) as f64 * 1e6 / page.covered as f64)
    }

    const fn counter(self) -> Counter {
        match self {
            Self::Intended => Counter::CallsIntended,
            Self::Achieved => Counter::CallsOutgoing,
            Self::Successful => Counter::CallsSuccessful,
            Self::Failed => Counter::CallsFailed,
            Self::Incoming => Counter::CallsIncoming,
            Self::MessagesSent => Counter::MessagesSent,
            Self::MessagesReceived => Counter::MessagesReceived,
            Self::BytesSent => Counter::BytesSent,
            Self::BytesReceived => Counter::BytesReceived,
        }
    }
}

/// Returns the session attempts that ended in the page's time.
pub fn concluded_sessions(page: &Page) -> u64 {
    use Counter::*;
    [SessionAnswered, SessionRedirected, SessionFailed, SessionTimedOut, SessionTransport, SessionChallenged]
        .iter()
        .map(|counter| page.counter(*counter))
        .sum::<u64>()
        + page.counter(SessionAbandoned)
}

/// Returns the registration attempts that ended in the page's time.
pub fn concluded_registrations(page: &Page) -> u64 {
    use Counter::*;
    [RegistrationSuccessful, RegistrationRedirected, RegistrationFailed, RegistrationTimedOut, RegistrationTransport]
        .iter()
        .map(|counter| page.counter(*counter))
        .sum::<u64>()
        + page.counter(RegistrationChallenged)
        + page.counter(RegistrationAbandoned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a page of 100 INVITEs: 70 answered, 10 redirected, 10 busy, 4 503, 3 404, 2 timed out, 1 challenge left;
    /// 5 more still open.
    fn page() -> Page {
        let mut page = Page::new(0);
        for (counter, by) in [
            (Counter::SessionAttempts, 105),
            (Counter::SessionAnswered, 70),
            (Counter::SessionRedirected, 10),
            (Counter::SessionFailed, 17),
            (Counter::SessionEffective, 10),
            (Counter::SessionIneffective, 4),
            (Counter::SessionTimedOut, 2),
            (Counter::SessionChallenged, 1),
            (Counter::SessionUnresolved, 5),
            (Counter::SessionCompleted, 54),
            (Counter::SessionCut, 10),
            (Counter::RegistrationAttempts, 50),
            (Counter::RegistrationSuccessful, 40),
            (Counter::RegistrationFailed, 5),
            (Counter::RegistrationTimedOut, 2),
            (Counter::RegistrationChallenged, 3),
        ] {
            page.count(counter, by);
        }
        page
    }

    #[test]
    fn the_ratios_of_rfc_6076() {
        let page = page();
        for (share, want) in [
            (Share::Establishment, 70.0 / 90.0),
            (Share::EffectiveEstablishment, 80.0 / 90.0),
            (Share::IneffectiveAttempts, 6.0 / 100.0),
            (Share::Completion, 54.0 / 90.0),
            (Share::IneffectiveRegistrations, 7.0 / 50.0),
            (Share::UnregisteredAnyReason, 10.0 / 50.0),
            (Share::UnansweredAnyReason, 30.0 / 100.0),
        ] {
            let found = share.of(&page).unwrap();
            assert!((found - want * 100.0).abs() < 1e-9, "{}: {found}", share.key());
        }
    }

    #[test]
    fn isa_of_registered_users_needs_registrations() {
        let mut page = page();
        page.count(Counter::SessionRegistered, 40);
        page.count(Counter::SessionRegisteredAnswered, 30);
        assert_eq!(Share::UnansweredAnyReason.of(&page), Some(25.0));
    }

    #[test]
    fn rates_of_calls_are_taken_over_the_time_of_the_schedule() {
        let mut page = Page::new(0);
        page.covered = 50_000_000;
        // 2,001 fell due at 200 a second; they were started at half of that.
        (page.first_due, page.last_due) = (1_000_000, 11_000_000);
        (page.first_start, page.last_start) = (1_000_000, 20_990_000);
        page.count(Counter::CallsIntended, 2_001);
        page.count(Counter::CallsOutgoing, 2_000);
        page.count(Counter::MessagesSent, 5_000);
        let of = |rate: Rate| (rate.of(&page).unwrap() * 1e6).round() / 1e6;
        assert_eq!((of(Rate::Achieved), of(Rate::Intended), of(Rate::MessagesSent)), (100.0, 200.0, 100.0));
    }

    #[test]
    fn of_nothing_there_is_no_share() {
        let page = Page::new(0);
        assert!(Share::ALL.iter().all(|share| share.of(&page).is_none()));
        assert!(Rate::ALL.iter().all(|rate| rate.of(&page).is_none()));
    }
}
