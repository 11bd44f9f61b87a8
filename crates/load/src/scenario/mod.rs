//! A SIPp document as a program: read once, checked, then shared unchanged by all shards.
//!
//! Nothing is looked up by name while calls run: labels are indices of steps, variables are slots, header names are
//! split, texts are pieces.

pub mod action;
pub mod builtin;
pub mod distribution;
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
pub use step::{Kind, Step, StepIndex};
pub use template::{Piece, Template};
pub use variable::{Scope, Slot, Variables};

/// A scenario, ready to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// `<scenario name="…">`, empty if it has none.
    pub name: String,
    /// What a call passes through.
    pub steps: Vec<Step>,
    /// `<init>`: passed through once, before the first call. Only [`Kind::Nop`].
    pub init: Vec<Step>,
    /// Which end of a call this is.
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
    /// Upper bounds in milliseconds, ascending as written; empty if the document has none.
    pub call_length_repartition: Vec<u32>,
    pub response_time_repartition: Vec<u32>,
    /// `DefaultMessage` elements: what is sent instead of the built-in ones.
    pub default_messages: DefaultMessages,
    /// What happens to an unexpected message, if the document says so itself.
    pub unexpected: Option<Unexpected>,
    /// What is sloppy in the document, in its order.
    pub warnings: Vec<Warning>,
    /// What SIPp 3.6 does not know and SIPp 3.7 does. SIPp 3.6.1 refuses such a document.
    pub newer: Vec<Warning>,
    /// Why SIPp 3.6 refuses the document although it is clear what is meant: a raw `<` in an attribute.
    pub tolerated: Option<Warning>,
    /// It is a document of this program, [`Environment::ready`].
    pub ready: bool,
    /// Which controller of 3PCC this is, if it is one.
    pub third_party: Option<ThirdPartyRole>,
}

impl Scenario {
    /// What a user should know of the document before it runs, in its order: what is sloppy, and what SIPp 3.6 refuses.
    pub fn remarks(&self) -> Vec<Warning> {
        let newer = self
            .newer
            .iter()
            .map(|newer| Warning { text: format!("{}: SIPp 3.6 refuses the document", newer.text), ..newer.clone() });
        let mut all: Vec<Warning> = self.warnings.iter().cloned().chain(newer).collect();
        all.sort_by_key(|warning| (warning.line, warning.column));
        all
    }

    /// The names of the delays that its timers give: each as it was started, then each from when it should have been started.
    pub fn timed(&self) -> Vec<String> {
        let intended = self.timers.iter().map(|name| format!("{name}.intended"));
        self.timers.iter().cloned().chain(intended).collect()
    }

    /// Reads a document and checks everything that SIPp checks before its first message, the media files that the
    /// document names included.
    ///
    /// # Errors
    /// The first thing that keeps the document from running, with its place and what would be right.
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

    /// As [`Scenario::load`], of a document in memory. `name` stands in messages; media are looked for in its folder.
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
    /// Bytes of a document. 16 MiB. (SIPp's own bound is 65,535; more is accepted with a warning.)
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
    /// As A, but its call comes in.
    PassiveA,
    /// Waits for a command first: listens for the other.
    B,
}

/// Which end of a call a scenario is: by its first step that talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts with a send: calls are made.
    Client,
    /// Starts with a receive: calls are awaited.
    Server,
}

/// Messages for what the scenario does not foresee: those of the document, else the built-in ones.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultMessages {
    pub three_party_abort: Template,
    /// The ACK to a final answer that is no 2xx.
    pub ack: Template,
    /// The ACK that goes before a BYE.
    pub ack2: Template,
    pub bye: Template,
    /// The ACK to a 2xx in a dialog whose target and routes are known.
    pub routed_ack: Template,
    /// The BYE of a dialog whose target and routes a step kept (`rrs`); that of the document where it has one.
    pub routed_bye: Template,
    pub cancel: Template,
    pub ok: Template,
}

impl DefaultMessages {
    /// What `DefaultMessage id` can be.
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

/// The label `_unexp.main` and its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// Where an unexpected message leads.
    pub main: StepIndex,
    /// `_unexp.retaddr`: set to the index of the step that was left.
    pub return_address: Option<Slot>,
    /// `_unexp.pausedaddr`: set to the end of the pause that was broken, 0 if none.
    pub paused: Option<Slot>,
}

/// What a document needs that does not stand in it.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Where the files are looked for that a document names (media): the folder of the document if `None`, then
    /// the working folder.
    pub folder: Option<PathBuf>,
    /// `-key`: names and values, in the order of the command line.
    pub keys: Vec<(String, Vec<u8>)>,
    /// `-inf`: base names, in the order of the command line. The first is the default of `[fieldN]`.
    pub injections: Vec<String>,
    /// Global variables known beforehand (`-set`, scenarios read before), in the order of their slots.
    pub globals: Vec<String>,
    /// 3PCC: `-3pcc`, `-master` or `-slave` is given.
    pub third_party: ThirdParty,
    /// Names of the other controllers in the file of `-slave_cfg`.
    pub peers: Vec<String>,
    /// `-rtp_payload`: the payload type of streams that name none; 8 (G.711 A-law) if not given.
    pub payload_type: Option<u8>,
    /// `-no_exec`: a document that runs a command in a shell is refused.
    pub no_exec: bool,
    /// A ready document of this program: `[value_NAME]` is known, what stands behind the colon of `[last_NAME]`.
    pub ready: bool,
    /// Whose options errors name.
    pub command: Command,
    pub limits: Limits,
}

/// The command line that runs a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Command {
    /// `strowger sipp`, which has SIPp's options.
    #[default]
    Sipp,
    /// `strowger load`.
    Load,
}

impl Command {
    /// The option that names an injection file.
    pub(crate) fn injection(self, file: &str) -> String {
        match self {
            Self::Sipp => format!("-inf {file}"),
            Self::Load => format!("--inf {file}"),
        }
    }

    /// The option that gives a keyword its value.
    pub(crate) fn key(self, name: &str) -> String {
        match self {
            Self::Sipp => format!("-key {name} VALUE"),
            Self::Load => format!("--key {name}=VALUE"),
        }
    }
}

/// Which kind of third party call control the run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThirdParty {
    #[default]
    None,
    /// `-3pcc`: one other controller.
    Classic,
    /// `-master`, `-slave`: named peers.
    Extended,
}

/// Something sloppy that is accepted as SIPp accepts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// 1 is the first line and the first byte of a line.
    pub line: u32,
    pub column: u32,
    pub text: String,
}
