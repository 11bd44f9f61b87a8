//! SIPp document as a program: read once, checked, then shared unchanged by all shards of a generator.
//!
//! The one rule of use: only the reader of documents uses names. Running calls look up nothing by name, because labels
//! are indices of steps, variables are slots, and texts are pieces with split header names. The crate opens the files
//! that a document names, and does no other I/O.
//!
//! | module | content |
//! |---|---|
//! | [`step`], [`action`], [`template`], [`variable`] | parts of a program |
//! | [`distribution`] | random values of pauses and `<sample>` |
//! | [`builtin`] | documents of `-sn`, default messages |
//! | [`expression`] | regular expressions of POSIX, as in the C library |
//! | [`injection`] | data files of `-inf` |
//!
//! A program of three steps:
//!
//! ```
//! use std::path::Path;
//! use strowger_scenario::{Environment, StepKind, Role, Scenario};
//!
//! let document = br#"<?xml version="1.0"?>
//! <scenario name="options">
//!   <send><![CDATA[
//!     OPTIONS sip:[service]@[remote_ip]:[remote_port] SIP/2.0
//!     Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
//!     From: <sip:probe@[local_ip]>;tag=[call_number]
//!     To: <sip:[service]@[remote_ip]>
//!     Call-ID: [call_id]
//!     CSeq: 1 OPTIONS
//!     Content-Length: 0
//!   ]]></send>
//!   <recv response="200" rtd="true"/>
//!   <pause milliseconds="20"/>
//! </scenario>"#;
//! let program = Scenario::parse(document, Path::new("options.xml"), &Environment::default())?;
//! assert_eq!((program.name.as_str(), program.role, program.steps.len()), ("options", Role::Client, 3));
//! assert!(matches!(program.steps[2].kind, StepKind::Pause(_)));
//! # Ok::<(), strowger_scenario::Refusal>(())
//! ```
//!
//! # Design
//!
//! * *Documents*: a tolerant reader accepts the documents of SIPp as SIPp does. One in ten of them is no well-formed
//!   XML. A refusal has a place and a cure, and SIPp refuses the same document.
//! * *Programs* are immutable: labels become places, variables slots, texts templates.
//! * *Expressions* are those of POSIX, leftmost and longest, as in the C library, for which scenarios were written.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | tolerant reading of XML, entities | `xml.rs` |
//! | elements and attributes; their refusals | `read/`; `refusal.rs` |
//! | checks before the first message | `read/check.rs` |
//! | keywords of a message | `keyword.rs` |
//! | order and index of lines of a data file | `injection.rs`, `pick`, `look_up` |
//! | search, sub-matches, back-references | `expression/automaton.rs`; `submatch.rs`; `backreference.rs` |

#![forbid(unsafe_code)]

pub mod action;
pub mod builtin;
pub mod distribution;
pub mod expression;
pub mod injection;
pub mod step;
pub mod template;
pub mod variable;

mod cleanup;
mod keyword;
mod names;
mod read;
mod refusal;
mod xml;

use std::path::{Path, PathBuf};

pub use action::Action;
pub use distribution::Distribution;
pub use refusal::{Cause, Refusal};
pub use step::{Step, StepIndex, StepKind};
pub use template::{Piece, Template};
pub use variable::{Scope, Slot, Variables};

/// Compiled scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// `<scenario name="…">`, empty without one.
    pub name: String,
    /// Steps of a call.
    pub steps: Vec<Step>,
    /// Steps of `<init>`, run once before the first call. Only [`StepKind::Nop`].
    pub init: Vec<Step>,
    /// End of a call that the scenario plays.
    pub role: Role,
    pub variables: Variables,
    /// Labels of `steps`, for displays.
    pub labels: Vec<(String, StepIndex)>,
    /// Names of response time durations, in the order of their first use. `true` is `1`.
    pub timers: Vec<String>,
    /// Names of generic counters.
    pub counters: Vec<String>,
    /// Names of transactions.
    pub transactions: Vec<String>,
    /// Names of peers in extended 3PCC (`dest`, `src`).
    pub peers: Vec<String>,
    /// Upper bounds in milliseconds, in the order of the document; empty if the document has none.
    pub call_length_repartition: Vec<u32>,
    pub response_time_repartition: Vec<u32>,
    /// `DefaultMessage` elements, in place of the built-in ones.
    pub default_messages: DefaultMessages,
    /// Treatment of an unexpected message, if the document has its own.
    pub unexpected: Option<Unexpected>,
    /// Warnings about sloppy parts of the document, in its order.
    pub warnings: Vec<Warning>,
    /// Parts that SIPp 3.7 knows and SIPp 3.6.1 refuses.
    pub newer: Vec<Warning>,
    /// Reason why SIPp 3.6 refuses the document although its meaning is clear: a raw `<` in an attribute.
    pub tolerated: Option<Warning>,
    /// True for a document of this program, [`Environment::ready`].
    pub ready: bool,
    /// Controller of 3PCC that this is, if any.
    pub third_party: Option<ThirdPartyRole>,
}

impl Scenario {
    /// Returns all remarks on the document before it runs, in the order of the document: careless parts, and parts that
    /// SIPp 3.6 refuses.
    pub fn remarks(&self) -> Vec<Warning> {
        let newer = self
            .newer
            .iter()
            .map(|newer| Warning { text: format!("{}: SIPp 3.6 refuses the document", newer.text), ..newer.clone() });
        let mut all: Vec<Warning> = self.warnings.iter().cloned().chain(newer).collect();
        all.sort_by_key(|warning| (warning.line, warning.column));
        all
    }

    /// Returns the names of the delays of the document's timers: first each timer from its start, then each from its
    /// intended start.
    pub fn timed(&self) -> Vec<String> {
        let intended = self.timers.iter().map(|name| format!("{name}.intended"));
        self.timers.iter().cloned().chain(intended).collect()
    }

    /// Reads a document and checks everything that SIPp checks before its first message, including the media files that
    /// it names.
    ///
    /// # Errors
    /// The first fault that keeps the document from running, with its place and its cure.
    pub fn load(path: &Path, environment: &Environment) -> Result<Self, Refusal> {
        let bytes = std::fs::read(path).map_err(|error| Refusal {
            file: path.display().to_string(),
            line: 0,
            column: 0,
            what: error.to_string(),
            hint: None,
            cause: Cause::Unreadable,
        })?;
        Self::parse(&bytes, path, environment)
    }

    /// Parses a document in memory. `name` is used in messages, and its folder is that of the media.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(bytes: &[u8], name: &Path, environment: &Environment) -> Result<Self, Refusal> {
        read::read(bytes, name, environment, environment.limits)
    }
}

/// Bounds of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a document in bytes: 16 MiB by default. SIPp allows 65,535 bytes; a larger document gets a warning.
    pub document: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { document: 16 << 20 }
    }
}

/// Controllers of third party call control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThirdPartyRole {
    /// Starts with a call and sends the first command: connects to the other.
    A,
    /// As A, but its call is incoming.
    PassiveA,
    /// Waits for a command first: listens for the other.
    B,
}

/// End of a call that a scenario plays, by its first step with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts with a send: makes calls.
    Client,
    /// Starts with a receive: awaits calls.
    Server,
}

/// Messages for events that the scenario does not expect: those of the document if it has any, else the built-in ones.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultMessages {
    pub three_party_abort: Template,
    /// ACK to a final response other than 2xx.
    pub ack: Template,
    /// ACK that precedes a BYE.
    pub ack2: Template,
    pub bye: Template,
    /// ACK to a 2xx in a dialog whose target and routes are known.
    pub routed_ack: Template,
    /// BYE of a dialog whose target and routes a step kept (`rrs`). If the document has a BYE, it is used.
    pub routed_bye: Template,
    pub cancel: Template,
    pub ok: Template,
}

impl DefaultMessages {
    /// Values of `DefaultMessage id`.
    pub const IDS: &'static [&'static str] = &["3pcc_abort", "ack", "ack2", "bye", "cancel", "200"];

    fn place(&mut self, id: &str) -> Option<&mut Template> {
        Some(match id {
            "3pcc_abort" => &mut self.three_party_abort,
            "ack" => &mut self.ack,
            "ack2" => &mut self.ack2,
            "bye" => &mut self.bye,
            "cancel" => &mut self.cancel,
            "200" => &mut self.ok,
            _ => return None,
        })
    }
}

/// Label `_unexp.main` and its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// Step to which an unexpected message leads.
    pub main: StepIndex,
    /// `_unexp.retaddr`: set to the index of the interrupted step.
    pub return_address: Option<Slot>,
    /// `_unexp.pausedaddr`: set to the end of the interrupted pause, or to 0 if there was none.
    pub paused: Option<Slot>,
}

/// Settings outside of a document that it depends on.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Folder of the media files that a document names. `None`: the folder of the document. A file that is not there is
    /// looked for in the working folder.
    pub folder: Option<PathBuf>,
    /// Names and values of `-key`, in the order of the command line.
    pub keys: Vec<(String, Vec<u8>)>,
    /// Base names of `-inf`, in the order of the command line. The first is the default of `[fieldN]`.
    pub injections: Vec<String>,
    /// Global variables defined before (`-set`, scenarios read before), in the order of their slots.
    pub globals: Vec<String>,
    /// Kind of 3PCC: `-3pcc`, `-master` or `-slave`.
    pub third_party: ThirdParty,
    /// Names of the other controllers in the file of `-slave_cfg`.
    pub peers: Vec<String>,
    /// `-rtp_payload`: payload type of streams that do not set one; `None`: 8 (G.711 A-law).
    pub payload_type: Option<u8>,
    /// `-no_exec`: refuses a document that runs a command in a shell.
    pub no_exec: bool,
    /// True for a built-in document of this program. Such a document may use `[value_NAME]`, which is the value of
    /// `[last_NAME]` without the header name.
    pub ready: bool,
    /// Command whose options errors name.
    pub command: Command,
    pub limits: Limits,
}

/// Command line that runs a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Command {
    /// `strowger sipp`, which has SIPp's options.
    #[default]
    Sipp,
    /// `strowger load`.
    Load,
}

impl Command {
    /// Returns the option that names an injection file.
    pub(crate) fn injection(self, file: &str) -> String {
        match self {
            Self::Sipp => format!("-inf {file}"),
            Self::Load => format!("--inf {file}"),
        }
    }

    /// Returns the option that gives a keyword its value.
    pub(crate) fn key(self, name: &str) -> String {
        match self {
            Self::Sipp => format!("-key {name} VALUE"),
            Self::Load => format!("--key {name}=VALUE"),
        }
    }
}

/// Third party call control of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThirdParty {
    #[default]
    None,
    /// `-3pcc`: one other controller.
    Classic,
    /// `-master`, `-slave`: named peers.
    Extended,
}

/// Sloppy part of a document, accepted as SIPp accepts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Line, and byte of the line, both from 1.
    pub line: u32,
    pub column: u32,
    pub text: String,
}
