//! End of a dialog by this server: a BYE to each party, and the responses.
//!
//! The dialog stays in the table until each party has ended it: a 2xx or 481 to the BYE, a 408, or no answer until the
//! transaction times out (RFC 3261 sections 12.2.1.2 and 15.1.1). After any other answer the party gets another BYE
//! with a higher CSeq, [`MOST_BYES`] in all. Meanwhile the call counts under its limits, and of the requests in the
//! dialog only a BYE passes.

use crate::bye::Bye;
use crate::cdr::Ender;
use crate::times::moment;
use serde::{Deserialize, Serialize};
use strowger_core::Now;
use strowger_core::notice::Party;

/// Maximum number of BYEs to one party.
pub(crate) const MOST_BYES: u8 = 4;

/// Dialog that this server ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub(crate) by: Ender,
    /// Moment of the end: when this server ended the dialog, or when the last 2xx to its BYEs arrived.
    pub(crate) at: i64,
    /// Q.850 cause and status of the BYE, if a party ended the dialog.
    pub(crate) cause: u16,
    pub(crate) status: u16,
    /// State of each party, in the order of [`Party`].
    pub(crate) parties: [PartyEnd; 2],
}

/// End of the dialog at one party.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PartyEnd {
    pub(crate) has_ended: bool,
    /// BYEs sent so far.
    pub(crate) byes: u8,
    /// Moment of the next BYE.
    pub(crate) next: i64,
}

impl Ending {
    /// Creates the end of a dialog. `lost`: parties that are known to have lost the dialog. They get one BYE, and the
    /// server does not wait for the response.
    pub(crate) fn new(now: Now, by: Ender, at: i64, lost: [bool; 2]) -> Box<Self> {
        let party = |has_ended| PartyEnd { has_ended, byes: 0, next: moment(now) };
        Box::new(Self { by, at, cause: 0, status: 0, parties: lost.map(party) })
    }

    /// Creates the end by a BYE of this party to which the peer answered with this status. The server sends a BYE to
    /// each party.
    pub(crate) fn after_bye(now: Now, party: Party, bye: Bye, status: u16) -> Box<Self> {
        let mut ending = Self::new(now, party.into(), bye.at, [false; 2]);
        (ending.cause, ending.status) = (bye.cause, status);
        ending
    }

    /// Creates the end by a BYE of this party that its peer has not answered. The server sends a BYE to the peer, and
    /// to both parties if the source of the BYE is foreign.
    pub(crate) fn by_party(now: Now, party: Party, bye: Bye) -> Box<Self> {
        let mut ending = Self::after_bye(now, party, bye, 408);
        if !bye.from_elsewhere {
            ending.spare(party);
        }
        ending
    }

    /// Creates the end by a BYE that another address sent in the name of this party, and that the peer answered with
    /// this status. The server sends a BYE to the party.
    pub(crate) fn in_name_of(now: Now, party: Party, bye: Bye, status: u16) -> Box<Self> {
        let mut ending = Self::after_bye(now, party, bye, status);
        ending.spare(party.other());
        ending
    }

    /// Creates the end by a BYE of this party that a role of this server has answered. The server sends a BYE to the
    /// peer.
    pub(crate) fn by_answered_bye(now: Now, party: Party, bye: Bye) -> Box<Self> {
        let mut ending = Self::after_bye(now, party, bye, 200);
        ending.spare(party);
        ending
    }

    /// Marks a party that has ended the dialog itself, so that it gets no BYE.
    pub(crate) fn spare(&mut self, party: Party) {
        let party = &mut self.parties[party as usize];
        (party.has_ended, party.byes) = (true, MOST_BYES);
    }

    pub(crate) fn change_moments(&mut self, change: impl Fn(&mut i64)) {
        change(&mut self.at);
        self.parties.iter_mut().for_each(|party| change(&mut party.next));
    }

    /// Returns the moment of the next BYE.
    pub(crate) fn next(&self) -> Option<i64> {
        self.parties.iter().filter(|party| !party.has_ended).map(|party| party.next).min()
    }

    /// Resumes the end in another process, from this moment on. A party that has refused a BYE may have continued the
    /// session, so the record of the call ends with the party's last response.
    pub(crate) fn resume(&mut self, at: i64) {
        for party in self.parties.iter_mut().filter(|party| !party.has_ended) {
            (party.byes, party.next) = (u8::from(party.byes > 1), at);
        }
    }

    /// Notes that both parties have ended the dialog. `at`: moment of a 2xx between the parties.
    pub(crate) fn conclude(&mut self, at: i64) {
        self.at = self.at.max(at);
        self.parties.iter_mut().for_each(|party| party.has_ended = true);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.parties.iter().all(|party| party.has_ended)
    }
}
