//! Responses of this server itself: their status, header lines and reasons.

use strowger_core::digest::ChallengeHeader;
use strowger_core::routing::Request;
use strowger_message::Uri;

/// Response of this server to a request, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) lines: Lines,
    pub(crate) why: Why,
    pub(crate) counted: Counted,
}

/// Header lines of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    None,
    /// One challenge for each algorithm that is offered (RFC 7616 section 3.3).
    Challenge {
        header: ChallengeHeader,
        stale: bool,
    },
    /// Option tags of Require that the server does not know (RFC 3261 section 8.2.2.3).
    Unsupported,
    /// Option tags of Proxy-Require: a proxy knows none (section 16.3 item 5).
    UnsupportedByProxy,
    Allow,
    /// Capabilities of the server (section 11.2).
    Capabilities,
    RetryAfter,
    /// Event packages of this server: none (RFC 6665 section 8.3.2).
    AllowEvents,
    /// Shortest session timer, in seconds (RFC 4028 section 5).
    MinSe(u32),
}

/// Reason of a refusal, for the operator. The peer gets only the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Meaning of the status code, which needs no more words.
    Status,
    Text(&'static str),
    /// Domain of this party that is not local, most often by mistake.
    Domain(Party),
    /// Rule with this index in the configuration, which gives this response.
    Rule(usize),
    /// Filter with this index in the configuration, which gives this response.
    Filter(usize),
    /// Limit of calls with this index in the configuration, which is full.
    Limit(usize),
    /// Earlier log line with more than a text.
    Logged,
}

/// Party that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    RequestUri,
    From,
    To,
}

impl Party {
    /// Returns the URI by which a request names the party.
    pub(crate) fn uri<'m>(self, request: &Request<'m>) -> Uri<'m> {
        match self {
            Self::RequestUri => request.uri,
            Self::From => request.mandatory.from.uri,
            Self::To => request.mandatory.to.uri,
        }
    }
}

/// Counter that a reply increments, besides the counters of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Not,
    Refused,
    NotFound,
    RelayDenied,
    Challenge,
    Overloaded,
    Shutdown,
}

impl Reply {
    pub(crate) const fn new(status: u16) -> Self {
        Self { status, lines: Lines::None, why: Why::Status, counted: Counted::Not }
    }

    /// Creates a reply to a faulty request.
    pub(crate) const fn refused(status: u16) -> Self {
        Self { counted: Counted::Refused, ..Self::new(status) }
    }

    /// Creates a reply about a user that does not exist, or is not reachable.
    pub(crate) const fn not_found(status: u16) -> Self {
        Self { counted: Counted::NotFound, ..Self::new(status) }
    }

    /// Creates a 404 about a party that is no user of this server.
    pub(crate) const fn unknown(party: Party) -> Self {
        Self { why: Why::Domain(party), ..Self::not_found(404) }
    }

    pub(crate) const fn challenge(header: ChallengeHeader, stale: bool) -> Self {
        let lines = Lines::Challenge { header, stale };
        Self { lines, counted: Counted::Challenge, ..Self::new(header.status()) }
    }

    /// Creates a 503 because a bound is reached.
    pub(crate) const fn overloaded() -> Self {
        Self { lines: Lines::RetryAfter, counted: Counted::Overloaded, ..Self::new(503) }
    }

    /// Creates a 503 because the process is about to end.
    pub(crate) const fn shutting_down() -> Self {
        let why = Why::Text("shutting down");
        Self { lines: Lines::RetryAfter, why, counted: Counted::Shutdown, ..Self::new(503) }
    }

    pub(crate) const fn because(self, text: &'static str) -> Self {
        Self { why: Why::Text(text), ..self }
    }

    pub(crate) const fn with(self, lines: Lines) -> Self {
        Self { lines, ..self }
    }
}
