//! Step of a scenario: message or wait, and the next step.

use super::action::{Action, Pattern};
use super::distribution::Distribution;
use super::template::Template;
use super::variable::Slot;

/// Index in [`super::Scenario::steps`] (or `init`). The index may equal the number of steps, for a label at the end of
/// the document; a jump to that label ends the call.
pub type StepIndex = u32;
/// Response time duration, an index in [`super::Scenario::timers`].
pub type TimerIndex = u16;
/// Generic counter, an index in [`super::Scenario::counters`].
pub type CounterIndex = u16;
/// Named transaction, an index in [`super::Scenario::transactions`].
pub type TransactionIndex = u16;
/// Peer of extended 3PCC, an index in [`super::Scenario::peers`].
pub type PeerIndex = u16;

/// Element of the document. It runs in this order:
///
/// 1. `condition` false: the step is skipped, but its `next` applies.
/// 2. The step itself: send, match, wait.
/// 3. `start_timer` starts, `stop_timer` is read and counted (only once a call, unless `repeat_timer`), `counter` is
///    counted.
/// 4. `actions`, in their order. After a send they run once the message is sent.
/// 5. `next`, if it applies, else the following step.
#[derive(Clone, Debug)]
pub struct Step {
    pub kind: StepKind,
    pub actions: Box<[Action]>,
    /// `next` with `test` and `chance`.
    pub next: Option<Jump>,
    /// `condexec` and `condexec_inverse`.
    pub condition: Option<Condition>,
    /// `start_rtd`: restarts this timer.
    pub start_timer: Option<TimerIndex>,
    /// `rtd`: counts the time since the start of the timer, or since the start of the call if no step started the
    /// timer. Every timer starts with the call.
    pub stop_timer: Option<TimerIndex>,
    /// `repeat_rtd`: counts `stop_timer` on every pass of this step, not only the first.
    pub repeat_timer: bool,
    /// `counter`: counted on each pass of the step.
    pub counter: Option<CounterIndex>,
    /// `ontimeout`: step to take when a receive times out or the retransmissions of a send are used up.
    pub on_timeout: Option<StepIndex>,
    /// `lost`, in percent, 0 to 100: share of messages that are not sent, or are ignored when received. `None`: the
    /// share of the run.
    pub lost: Option<f64>,
    /// `ignoresdp`: ignores media addresses in the body of this message.
    pub ignore_sdp: bool,
    /// `crlf`: an empty line follows on the scenario screen.
    pub blank_line: bool,
    /// `hide`: omitted from the scenario screen.
    pub hidden: bool,
    /// `display`: text on the scenario screen.
    pub display: Option<Box<str>>,
    /// Line of the element, from 1.
    pub line: u32,
}

/// Kind of a step.
#[derive(Clone, Debug)]
pub enum StepKind {
    Send(Box<Send>),
    Receive(Box<Receive>),
    /// Wait. A message of the call received meanwhile is unexpected unless it is a retransmission or matches an earlier
    /// optional receive.
    Pause(Pause),
    /// Final wait: the call counts as ended, but retransmissions of the peer are still answered.
    TimeWait(Pause),
    /// Actions only.
    Nop,
    /// `sendCmd`: a command to the other controller of 3PCC.
    SendCommand {
        template: Template,
        to: Option<PeerIndex>,
    },
    /// `recvCmd`.
    ReceiveCommand {
        from: Option<PeerIndex>,
    },
}

/// `<send>`.
#[derive(Clone, Debug)]
pub struct Send {
    pub template: Template,
    pub start: Start,
    /// `retrans` in milliseconds (T1 of this message over UDP). `None` or 0: no retransmissions.
    pub retransmit: Option<u32>,
    /// `start_txn`: keeps the branch of the message under this name, with which receives with `response_txn` compare.
    pub start_transaction: Option<TransactionIndex>,
    /// `ack_txn`: takes `[branch]` of an ACK to a non-2xx response from this transaction.
    pub ack_transaction: Option<TransactionIndex>,
    /// `timeout` in milliseconds: how long SIPp retries on a full socket. Here the message waits in a queue.
    pub timeout: Option<u32>,
}

/// Start line of a sent message. The first word of a template is never a keyword, so that it is known before the
/// message is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Request with this method.
    Request(Method),
    /// Response with this code.
    Response(u16),
}

/// Method. Methods with special rules are recognised when the document is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    pub text: Box<[u8]>,
    pub known: strowger_message::Method,
}

/// `<recv>`.
#[derive(Clone, Debug)]
pub struct Receive {
    pub expected: Expected,
    pub optional: Optional,
    /// `rrs`: keeps Record-Route and Contact for `[routes]` and `[next_url]`.
    pub record_routes: bool,
    /// `auth`: keeps the challenge for `[authentication]`.
    pub authenticate: bool,
    /// `response_txn`: only a response with the branch of that transaction matches.
    pub transaction: Option<TransactionIndex>,
    /// Methods that the document sent before this step, concatenated. A response matches if the method of its CSeq is
    /// found *in* this text. Not used if `transaction` is set or this is the first step. See [`Receive::answers`].
    pub methods: Box<[u8]>,
    /// `timeout` in milliseconds; `None`: the run's `-recv_timeout`.
    pub timeout: Option<u32>,
    /// `advance_state` (default true): a matching optional message advances the call.
    pub advance: bool,
}

impl Receive {
    /// Returns whether this step may take a response to `method`.
    pub fn answers(&self, method: &[u8]) -> bool {
        memchr::memmem::find(&self.methods, method).is_some()
    }
}

/// Message that a receive waits for.
#[derive(Clone, Debug)]
pub enum Expected {
    Request(Method),
    /// `request` with `regexp_match`: an expression on the method of the request.
    RequestMatching(Box<Pattern>),
    /// Response with this code; 0 matches nothing: a `recv` without `request` and `response`.
    Response(u16),
    /// `response` with `regexp_match` (SIPp 3.7): an expression on the three digits.
    ResponseMatching(Box<Pattern>),
}

/// Value of `optional`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optional {
    /// Must come.
    No,
    /// May come while the call is at it or at the next mandatory receive.
    Yes,
    /// May come at any time after the call passed it.
    Global,
}

/// Length of a `<pause>`.
#[derive(Clone, Debug, PartialEq)]
pub enum Pause {
    /// Default of the run (`-d`).
    Default,
    /// Milliseconds of a distribution, drawn for each call.
    Drawn(Distribution),
    /// Value of a variable, milliseconds.
    Variable(Slot),
}

/// `next`: the jump is taken if `test` is unset or its variable is set, and `chance` allows it. A number is set if it
/// is not 0, a boolean if it is true, and a string after it was assigned, even if it is empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jump {
    pub to: StepIndex,
    pub test: Option<Slot>,
    /// Probability, 0 to 1; `None`: always. The jump is taken if a number drawn from [0, 1) is not above it.
    pub chance: Option<f64>,
}

/// `condexec`: runs the step if the variable is set (see [`Jump`]), or, with `inverse`, if it is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub variable: Slot,
    pub inverse: bool,
}
