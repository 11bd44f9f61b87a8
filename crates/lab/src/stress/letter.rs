//! What each of the eleven stress tests has.

use serde::Serialize;
use std::str::FromStr;

/// A stress test. Those of the seed's table, 3.1 to 3.11, are A to K; H1 is H by callers that need no challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[expect(missing_docs, reason = "their titles say what they are")]
pub enum Letter {
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
    H1,
    I,
    J,
    K,
}

/// What is written about calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Accounting {
    /// A row at the INVITE and one at the BYE.
    Events,
    /// One row a call.
    Cdr,
}

impl Letter {
    /// In their order.
    pub const ALL: [Self; 12] =
        [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F, Self::G, Self::H, Self::H1, Self::I, Self::J, Self::K];

    /// What it adds, as a row of the table says it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::A => "stateful relay",
            Self::B => "A + record-route",
            Self::C => "B + dialogs",
            Self::D => "default script",
            Self::E => "D + dialogs",
            Self::F => "E + authentication, 1,000 subscribers",
            Self::G => "F with 10,000 subscribers",
            Self::H => "G + subscriber cache",
            Self::H1 => "H, credentials sent at once",
            Self::I => "G + accounting of INVITE and BYE",
            Self::J => "G + CDR",
            Self::K => "H + CDR",
        }
    }

    /// The letter that its penalty is counted against, in the seed's table where it is there.
    pub const fn base(self) -> Option<Self> {
        Some(match self {
            Self::A => return None,
            Self::B => Self::A,
            Self::C | Self::D => Self::B,
            Self::E => Self::C,
            Self::F => Self::E,
            Self::G => Self::F,
            Self::H | Self::I => Self::G,
            Self::J => Self::I,
            Self::H1 | Self::K => Self::H,
        })
    }

    /// The server stays in the path.
    pub const fn record_routes(self) -> bool {
        !matches!(self, Self::A)
    }

    /// The server tracks calls.
    pub const fn has_dialogs(self) -> bool {
        !matches!(self, Self::A | Self::B | Self::D)
    }

    /// So many users are registered, and call each other; 0: the server has none.
    pub const fn users(self) -> u32 {
        match self {
            Self::A | Self::B | Self::C => 0,
            Self::D | Self::E => 1,
            Self::F => 1_000,
            Self::G | Self::H | Self::H1 | Self::I | Self::J | Self::K => 10_000,
        }
    }

    /// Who calls must authenticate, by passwords in a database.
    pub fn authenticates(self) -> bool {
        self >= Self::F
    }

    /// Callers show at once that they know their password, by a nonce that they got before; else each call is challenged.
    pub const fn sends_at_once(self) -> bool {
        matches!(self, Self::H1)
    }

    /// Each call is challenged.
    pub fn challenges(self) -> bool {
        self.authenticates() && !self.sends_at_once()
    }

    /// Subscribers stay in memory for twenty minutes.
    pub const fn caches(self) -> bool {
        matches!(self, Self::H | Self::H1 | Self::K)
    }

    /// What is written of each call.
    pub const fn accounting(self) -> Option<Accounting> {
        match self {
            Self::I => Some(Accounting::Events),
            Self::J | Self::K => Some(Accounting::Cdr),
            _ => None,
        }
    }

    /// Datagrams of one call, those that come and those that the server sends: INVITE, 100, 180, 200, ACK, BYE and 200, and the INVITE that is
    /// challenged, its 407 and its ACK.
    pub fn datagrams(self) -> u32 {
        13 + if self.challenges() { 3 } else { 0 }
    }

    /// Calls a second at which it is measured.
    pub fn rate(self) -> u32 {
        if self.authenticates() { 500 } else { 1_000 }
    }

    /// That of the configuration that it is measured with, as file names have it.
    pub const fn lower(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
            Self::C => 'c',
            Self::D => 'd',
            Self::E => 'e',
            Self::F => 'f',
            Self::G => 'g',
            Self::H | Self::H1 => 'h',
            Self::I => 'i',
            Self::J => 'j',
            Self::K => 'k',
        }
    }
}

impl FromStr for Letter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|letter| text.eq_ignore_ascii_case(&letter.to_string()));
        found.ok_or_else(|| format!("{text:?} is none of A to K and H1"))
    }
}

impl std::fmt::Display for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.lower().to_ascii_uppercase(), if self.sends_at_once() { "1" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_build_on_each_other() {
        for letter in Letter::ALL {
            assert_eq!(letter.to_string().parse(), Ok(letter));
            let Some(base) = letter.base() else { continue };
            assert!(base < letter);
            assert!(letter.record_routes() >= base.record_routes() && letter.has_dialogs() >= base.has_dialogs());
            assert!(letter.users() >= base.users() && letter.authenticates() >= base.authenticates());
        }
        assert_eq!("L".parse::<Letter>(), Err("\"L\" is none of A to K and H1".into()));
        assert_eq!((Letter::A.datagrams(), Letter::K.datagrams()), (13, 16));
        assert_eq!(("h1".parse::<Letter>(), Letter::H1.datagrams(), Letter::H1.lower()), (Ok(Letter::H1), 13, 'h'));
    }
}
