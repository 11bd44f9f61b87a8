//! Cells of the matrix, and the outcome that the RFCs and `docs/b2bua.md` state for each. Nothing here asks the bridge.

use std::fmt;

use strowger_core::b2bua::bridge::Side;

/// Action of one party of an established call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// re-INVITE with another list of codecs.
    Offer,
    /// re-INVITE with another codec alone.
    Codec,
    /// re-INVITE with another port, and nothing else that is new.
    Port,
    /// Hold by `sendonly`.
    SendOnly,
    /// Hold by `inactive`.
    Inactive,
    /// Hold by the address 0.0.0.0 (RFC 2543).
    Unspecified,
    /// End of a hold.
    Resume,
    /// re-INVITE without an offer.
    NoOffer,
    /// UPDATE with another codec.
    Update,
    /// Refresh of the session timer of the party's leg, when it is due.
    Refresh,
    /// INFO with a text.
    Info,
    /// REFER, whose other side reports the outcome by a NOTIFY.
    Refer,
    /// INVITE with Replaces of another party that takes the place of this one.
    Replaces,
    /// BYE.
    Bye,
    /// No media for `media.timeout`.
    Silence,
}

impl Action {
    pub(super) const ALL: [Self; 15] = [
        Self::Offer,
        Self::Codec,
        Self::Port,
        Self::SendOnly,
        Self::Inactive,
        Self::Unspecified,
        Self::Resume,
        Self::NoOffer,
        Self::Update,
        Self::Refresh,
        Self::Info,
        Self::Refer,
        Self::Replaces,
        Self::Bye,
        Self::Silence,
    ];

    /// Returns the name in the documents.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Offer => "re-INVITE with another list of codecs",
            Self::Codec => "re-INVITE with another codec",
            Self::Port => "re-INVITE with another port alone",
            Self::SendOnly => "hold by `sendonly`",
            Self::Inactive => "hold by `inactive`",
            Self::Unspecified => "hold by `0.0.0.0`",
            Self::Resume => "resume",
            Self::NoOffer => "re-INVITE without an offer",
            Self::Update => "UPDATE with another codec",
            Self::Refresh => "refresh of its session is due",
            Self::Info => "INFO",
            Self::Refer => "REFER",
            Self::Replaces => "INVITE with Replaces in its place",
            Self::Bye => "BYE",
            Self::Silence => "no media for `media.timeout`",
        }
    }
}

/// Extensions that a party supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Party {
    /// Reliable provisional responses (RFC 3262).
    pub(super) is_reliable: bool,
    /// UPDATE (RFC 3311).
    pub(super) has_update: bool,
    /// Session timers (RFC 4028).
    pub(super) has_timer: bool,
}

impl Party {
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for is_reliable in [true, false] {
            for has_update in [true, false] {
                for has_timer in [true, false] {
                    all.push(Self { is_reliable, has_update, has_timer });
                }
            }
        }
        all
    }
}

/// Call in which a party acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) who: Side,
    pub(super) action: Action,
    pub(super) near: Party,
    pub(super) far: Party,
    /// Set if the first INVITE, and that of a new party, have no offer.
    pub(super) is_late: bool,
}

/// Returns every cell.
pub(super) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for who in [Side::Near, Side::Far] {
        for action in Action::ALL {
            for near in Party::all() {
                for far in Party::all() {
                    for is_late in [false, true] {
                        cells.push(Cell { who, action, near, far, is_late });
                    }
                }
            }
        }
    }
    cells
}

/// Codecs of a first offer, and of an offer in a later 200. The first one of each is accepted.
pub(super) const FIRST: &str = "0 8";
pub(super) const LATER: &str = "8 0";

impl Cell {
    /// Returns the parties: the one that acts, and the other one.
    pub(super) fn parties(&self) -> (Party, Party) {
        match self.who {
            Side::Near => (self.near, self.far),
            Side::Far => (self.far, self.near),
        }
    }

    /// Tells whether the far INVITE states 100rel. A reliable response to an INVITE without offer has an offer (RFC 3262 section 5), which the
    /// near side must be able to answer before the 200, and to replace after a fork.
    pub(super) fn states_reliability(&self) -> bool {
        !self.is_late || self.near.is_reliable && self.near.has_update
    }

    /// Tells whether the far side sends its first response reliably.
    pub(super) fn is_far_reliable(&self) -> bool {
        self.far.is_reliable && self.states_reliability()
    }

    /// Tells whether the first response of the far side has a description: the answer, or an offer if the response is reliable.
    pub(super) fn has_early_description(&self) -> bool {
        !self.is_late || self.is_far_reliable()
    }

    /// Tells whether the near side gets this response reliably: never without the offer for which it waits (RFC 3262 section 5).
    pub(super) fn is_near_reliable(&self) -> bool {
        self.near.is_reliable && self.has_early_description()
    }

    /// Returns the codecs and the direction of the offer of the party that acts.
    pub(super) fn offer(&self) -> (&'static str, &'static str) {
        match self.action {
            Action::Offer => (LATER, "sendrecv"),
            Action::Codec | Action::Update => ("8", "sendrecv"),
            // The party describes itself as before: by its offer, or by its answer.
            Action::Port if (self.who == Side::Near) != self.is_late => (FIRST, "sendrecv"),
            Action::SendOnly => ("0", "sendonly"),
            Action::Inactive => ("0", "inactive"),
            _ => ("0", "sendrecv"),
        }
    }

    /// Returns the direction of the offer as the other side gets it (RFC 3264 section 8.4).
    pub(super) fn passed_direction(&self) -> &'static str {
        if self.action == Action::Unspecified { "sendonly" } else { self.offer().1 }
    }

    /// Returns the stated outcome.
    pub(super) fn outcome(&self) -> Outcome {
        let (own, other) = self.parties();
        match self.action {
            // An allowed method is one of Allow (RFC 3311 section 5.1). Each user agent knows the re-INVITE.
            Action::Update if other.has_update => Outcome::Offered("UPDATE"),
            Action::Update => Outcome::Offered("INVITE"),
            Action::Offer
            | Action::Codec
            | Action::SendOnly
            | Action::Inactive
            | Action::Unspecified
            | Action::Resume => Outcome::Offered("INVITE"),
            Action::NoOffer => Outcome::Asked,
            // The other side has the port of this server.
            Action::Port => Outcome::AnsweredHere,
            Action::Refresh => match self.who {
                // RFC 4028 section 7.1: the caller refreshes, if it can. Its UPDATE needs no description (section 7.4).
                Side::Near if own.has_timer => Outcome::Refreshed { is_ours: false, method: "UPDATE" },
                // A callee without session timers has not agreed on one; of the others this server is the caller.
                Side::Far if !own.has_timer => Outcome::NotRefreshed,
                _ => Outcome::Refreshed { is_ours: true, method: if own.has_update { "UPDATE" } else { "INVITE" } },
            },
            Action::Info => Outcome::Carried("INFO", 200),
            Action::Refer => Outcome::Carried("REFER", 202),
            Action::Replaces => Outcome::Replaced,
            Action::Bye => Outcome::Released,
            Action::Silence => Outcome::Silent,
        }
    }
}

/// Outcome of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The other side gets the offer by this method, and its answer goes back.
    Offered(&'static str),
    /// The other side is asked for an offer, which is answered in the ACKs.
    Asked,
    /// The bridge repeats its answer of the exchange before; the other side gets nothing.
    AnsweredHere,
    /// The party or this server refreshes by this method; the other side gets nothing.
    Refreshed { is_ours: bool, method: &'static str },
    /// There is no session timer.
    NotRefreshed,
    /// The other side gets the same method, and its response with this status goes back.
    Carried(&'static str, u16),
    /// The other side gets the offer of the new party, or is asked for one; the old party is released.
    Replaced,
    /// The other side is released.
    Released,
    /// Both sides are released.
    Silent,
}

impl fmt::Display for Outcome {
    /// Writes the outcome as the documents have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Offered("INVITE") => f.write_str("re-INVITE"),
            Self::Offered(method) => f.write_str(method),
            Self::Asked => f.write_str("re-INVITE without an offer"),
            Self::AnsweredHere => f.write_str("nothing: 200 of this server"),
            Self::Refreshed { is_ours: false, method } => write!(f, "nothing: {method} of the party"),
            Self::Refreshed { is_ours: true, method: "INVITE" } => f.write_str("nothing: re-INVITE of this server"),
            Self::Refreshed { is_ours: true, method } => write!(f, "nothing: {method} of this server"),
            Self::NotRefreshed => f.write_str("nothing: no session timer"),
            Self::Carried("REFER", _) => f.write_str("REFER; its NOTIFY goes back"),
            Self::Carried(method, _) => f.write_str(method),
            Self::Replaced => f.write_str("re-INVITE; the old party gets BYE"),
            Self::Released => f.write_str("BYE"),
            Self::Silent => f.write_str("BYE, and so does the party"),
        }
    }
}
