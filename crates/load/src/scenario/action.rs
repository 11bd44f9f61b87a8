//! What a step does beside its message: the elements in `<action>`.

use std::path::PathBuf;
use std::sync::Arc;

use super::distribution::Distribution;
use super::template::Template;
use super::variable::Slot;
use crate::expression::{Expression, ExpressionError, Options};
use strowger_message::Name;

/// One action. Texts are templates, rendered when the action runs.
#[derive(Clone, Debug)]
pub enum Action {
    Expression(Box<Match>),
    Log(Template),
    Warning(Template),
    /// Ends the program with this message.
    Error(Template),
    /// `assign`: a number.
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
    /// `test`: `to = left ∘ right`; a call fails as `check` says.
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
    /// `index`: the index of the step.
    Index {
        to: Slot,
    },
    /// `jump`: goes to the step with that number.
    Jump(Number),
    /// `pauserestore`: goes on with a pause that `_unexp.main` broke: until this many milliseconds of SIPp's clock.
    PauseRestore(Number),
    /// `lookup`: the line of `key` in the index of a file, -1 if there is none.
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
    /// `verifyauth`: a boolean.
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
    /// `exec command`: run by the shell, not waited for.
    Command(Template),
    /// `exec int_cmd`.
    Stop(Stop),
    /// `play_pcap_audio`, `play_pcap_image`, `play_pcap_video`: the file is there (checked when the document is read).
    PlayPcap {
        media: Media,
        file: PathBuf,
    },
    /// `play_dtmf`: digits, by default 1 to 9 milliseconds … `digits[,ms]`.
    PlayDtmf(Template),
    RtpStream(RtpStream),
    /// `exec rtp_echo` of SIPp 3.7: `startaudio,pt,codec` …
    RtpEcho(RtpEcho),
    /// The element `rtp_echo`: on if not 0.
    EchoSwitch(Number),
}

/// `ereg`.
#[derive(Clone, Debug)]
pub struct Match {
    pub expression: Pattern,
    pub source: Source,
    pub check: Check,
    /// The whole match, then the groups. More variables than groups: the last stay unset.
    pub assign_to: Box<[Slot]>,
}

/// An extended regular expression of POSIX. Letter case always counts.
#[derive(Clone)]
pub struct Pattern {
    /// As it stands in the document, escapes and entities resolved.
    pub text: Box<[u8]>,
    /// Compiled, shared by all shards.
    pub expression: Arc<Expression>,
}

impl Pattern {
    /// # Errors
    /// Where `regcomp` of the C library has one.
    pub fn new(text: &[u8]) -> Result<Self, ExpressionError> {
        Ok(Self { text: text.into(), expression: Arc::new(Expression::new(text, Options::default())?) })
    }

    /// Groups, without the whole match.
    pub fn groups(&self) -> usize {
        self.expression.groups()
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pattern({:?})", String::from_utf8_lossy(&self.text))
    }
}

/// What an expression is matched against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `msg`: the whole last message.
    Message,
    /// `hdr`.
    Header(Box<HeaderSearch>),
    /// `body`: what stands behind the first empty line.
    Body,
    /// `var`.
    Variable(Slot),
}

/// `search_in="hdr"`: the text behind the `occurrence`-th place where `text` is found, up to the end of its line.
/// Without `start_line` the place may be anywhere in the message, also inside another header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderSearch {
    /// As written: with colon, without, or `": "`.
    pub text: Box<[u8]>,
    /// The name in it, if it is one of the table's.
    pub known: Name,
    /// `case_indep`
    pub ignore_case: bool,
    /// `start_line`: only at the start of a line.
    pub start_line: bool,
    /// 1 is the first.
    pub occurrence: u32,
}

/// `check_it` and `check_it_inverse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    No,
    /// The call fails unless it matches.
    Must,
    /// The call fails if it matches.
    MustNot,
}

/// A number, or the variable that has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Value(f64),
    Variable(Slot),
}

/// A text, or the variable that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Value(Box<[u8]>),
    Variable(Slot),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// `compare`.
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
    /// As it is written between two values.
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

/// `int_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `stop_call`: this call, as failed.
    Call,
    /// `stop_gracefully`: no new calls (key `q`).
    Gracefully,
    /// `stop_now`: the program (key `Q`).
    Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    Audio,
    Image,
    Video,
}

/// `exec rtp_stream`.
#[derive(Clone, Debug, PartialEq)]
pub enum RtpStream {
    /// `file[,loops[,payload type[,codec/clock]]]`: the file is there (checked when the document is read).
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

/// How a stream is cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFormat {
    /// RTP payload type, 0 to 127.
    pub payload_type: u8,
    pub bytes_per_packet: u16,
    pub milliseconds_per_packet: u16,
    pub ticks_per_packet: u16,
}

/// `exec rtp_echo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpEcho {
    pub command: EchoCommand,
    pub video: bool,
    pub format: Option<StreamFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoCommand {
    Start,
    Update,
    Stop,
}
