//! Judgement of a sentence, by colour and sign.

/// Tone of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Good news.
    Good,
    /// A reason for care.
    Doubtful,
    /// Bad news.
    Bad,
}

impl Tone {
    /// Returns the class of a banner in the style of pages.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Doubtful => "doubt",
            Self::Bad => "bad",
        }
    }
}

/// Sign before a requirement or a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Requirement met, trial valid.
    Met,
    /// Requirement missed, trial invalid.
    Missed,
    /// Not judged.
    Unjudged,
}

impl Mark {
    /// Returns the sign as one character.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Met => "✓",
            Self::Missed => "✗",
            Self::Unjudged => "?",
        }
    }

    /// Returns the class of the sign in the style of pages.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Unjudged => "",
        }
    }
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Sign before the text.
    pub mark: Option<Mark>,
    /// The text.
    pub text: String,
}
