//! Actions of a step: the elements in `<action>`.

use std::path::PathBuf;
use std::sync::Arc;

use super::distribution::Distribution;
use super::template::Template;
use super::variable::Slot;
use crate::expression::{Expression, ExpressionError, Options};
use strowger_media::payload_type::StreamFormat;
use strowger_message::Name;

/// Action. Texts are templates, rendered when it runs.
#[derive(Clone, Debug)]
pub enum Action {
    Expression(Box<Match>),
    Log(Template),
    Warning(Template),
    /// Ends the program with this message.
    Error(Template),
    /// `assign` of a number.
    Assign {
        to: Slot,
        value: Number,
    },
    /// `assignstr`.
    AssignString {
        to: Slot,
        value: Template,
    },
    /// `todouble`.
    ToDouble {
        to: Slot,
        from: Slot,
    },
    /// `sample`.
    Sample {
        to: Slot,
        distribution: Distribution,
    },
    /// `add`, `subtract`, `multiply`, `divide`: `to = to ∘ value`.
    Arithmetic {
        to: Slot,
        operator: Operator,
        value: Number,
    },
    /// `test`: `to = left ∘ right`; `check` decides whether the call fails.
    Test {
        to: Option<Slot>,
        left: Slot,
        comparison: Comparison,
        right: Number,
        check: Check,
    },
    /// `strcmp`: `to = C's strcmp(left, right)`, a number: 0 if equal.
    CompareStrings {
        to: Option<Slot>,
        left: Slot,
        right: Text,
        check: Check,
    },
    /// `gettimeofday`.
    Time {
        seconds: Slot,
        microseconds: Slot,
    },
    /// `index`: assigns the index of the step.
    Index {
        to: Slot,
    },
    /// `jump` to the step with this number.
    Jump(Number),
    /// `pauserestore`: resumes a pause that `_unexp.main` interrupted, and ends it at this time in milliseconds of
    /// SIPp's clock.
    PauseRestore(Number),
    /// `lookup`: assigns the line of `key` in the index of a file, or -1 if there is none.
    Lookup {
        to: Slot,
        file: Template,
        key: Template,
    },
    /// `insert`: appends a line to an injection file.
    Insert {
        file: Template,
        value: Template,
    },
    /// `replace`.
    Replace {
        file: Template,
        line: Template,
        value: Template,
    },
    /// `verifyauth`: assigns a boolean.
    VerifyAuthentication {
        to: Slot,
        username: Template,
        password: Template,
    },
    SetDestination {
        host: Template,
        port: Template,
        protocol: Template,
    },
    CloseConnection,
    Trim(Slot),
    UrlEncode(Slot),
    UrlDecode(Slot),
    /// `exec command`: runs in the shell; the call does not wait.
    Command(Template),
    /// `exec int_cmd`.
    Stop(Stop),
    /// `play_pcap_audio`, `play_pcap_image`, `play_pcap_video`. The file exists (checked when the document is read).
    PlayPcap {
        media: Media,
        file: PathBuf,
    },
    /// `play_dtmf` of these digits.
    PlayDtmf(Template),
    RtpStream(RtpStream),
    /// `exec rtp_echo` of SIPp 3.7: `startaudio,pt,codec` …
    RtpEcho(RtpEcho),
    /// Element `rtp_echo`: on if not 0.
    EchoSwitch(Number),
}

/// `ereg`: a match of an expression.
#[derive(Clone, Debug)]
pub struct Match {
    pub expression: Pattern,
    pub source: Source,
    pub check: Check,
    /// Variables for the whole match, then for the groups. Variables beyond the number of groups stay unset.
    pub assign_to: Box<[Slot]>,
}

/// Extended regular expression of POSIX. Letter case always counts.
#[derive(Clone)]
pub struct Pattern {
    /// Text with the document's escapes and entities resolved.
    pub text: Box<[u8]>,
    /// Compiled form, shared by all shards.
    pub expression: Arc<Expression>,
}

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// An error of the C library's `regcomp`.
    pub fn new(text: &[u8]) -> Result<Self, ExpressionError> {
        Ok(Self { text: text.into(), expression: Arc::new(Expression::new(text, Options::default())?) })
    }

    /// Returns the number of groups, without the whole match.
    pub fn groups(&self) -> usize {
        self.expression.groups()
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pattern({:?})", String::from_utf8_lossy(&self.text))
    }
}

/// Text that an expression is matched against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `msg`: the whole last message.
    Message,
    /// `hdr`.
    Header(Box<HeaderSearch>),
    /// `body`: the text after the first empty line.
    Body,
    /// `var`.
    Variable(Slot),
}

/// `search_in="hdr"`: the text after the `occurrence`-th occurrence of `text`, up to the end of its line. Without
/// `start_line` the occurrence may be anywhere in the message, also inside another header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderSearch {
    /// Searched text as written: with colon, without, or `": "`.
    pub text: Box<[u8]>,
    /// Name in the text, if it is a known header.
    pub known: Name,
    /// `case_indep`
    pub ignore_case: bool,
    /// `start_line`: only at the start of a line.
    pub start_line: bool,
    /// Number of the occurrence; 1 is the first.
    pub occurrence: u32,
}

/// `check_it` and `check_it_inverse`: condition for a call to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    No,
    /// The call fails without a match.
    Must,
    /// The call fails on a match.
    MustNot,
}

/// Number, or the variable that holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Value(f64),
    Variable(Slot),
}

/// Text, or the variable that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Value(Box<[u8]>),
    Variable(Slot),
}

/// Operator of an arithmetic action: `<add>`, `<subtract>` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Operator of `compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    GreaterThan,
    LessThan,
    GreaterThanOrEqual,
    LessThanOrEqual,
}

impl Comparison {
    /// Returns the operator's sign.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::GreaterThan => ">",
            Self::LessThan => "<",
            Self::GreaterThanOrEqual => ">=",
            Self::LessThanOrEqual => "<=",
        }
    }
}

/// Scope of an `int_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `stop_call`: ends this call, as failed.
    Call,
    /// `stop_gracefully`: stops new calls (key `q`).
    Gracefully,
    /// `stop_now`: ends the program (key `Q`).
    Now,
}

/// Media of a `play_pcap_*` action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    Audio,
    Image,
    Video,
}

/// Command of `exec rtp_stream`.
#[derive(Clone, Debug, PartialEq)]
pub enum RtpStream {
    /// `file[,loops[,payload type[,codec/clock]]]`. The file exists (checked when the document is read).
    Play {
        file: PathBuf,
        video: bool,
        loops: i32,
        format: StreamFormat,
    },
    Pause,
    Resume,
    /// `apattern,…` and `vpattern,…` of SIPp 3.7: one of six built-in patterns (1 to 6).
    Pattern {
        video: bool,
        id: u8,
        loops: i32,
        format: StreamFormat,
    },
    PausePattern {
        video: bool,
    },
    ResumePattern {
        video: bool,
    },
}

/// Argument of `exec rtp_echo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpEcho {
    pub command: EchoCommand,
    pub video: bool,
    pub format: Option<StreamFormat>,
}

/// Command of `rtp_echo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoCommand {
    Start,
    Update,
    Stop,
}
