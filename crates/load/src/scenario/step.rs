//! One step of a scenario: what is sent, expected or waited for, and what follows.

use super::action::{Action, Pattern};
use super::distribution::Distribution;
use super::template::Template;
use super::variable::Slot;

/// A place in [`super::Scenario::steps`] (or `init`). It may equal the number of steps: a label at the end of the
/// document, and a jump there ends the call.
pub type StepIndex = u32;
/// A response time duration, a place in [`super::Scenario::timers`].
pub type TimerIndex = u16;
/// A generic counter, a place in [`super::Scenario::counters`].
pub type CounterIndex = u16;
/// A named transaction, a place in [`super::Scenario::transactions`].
pub type TransactionIndex = u16;
/// A peer of extended 3PCC, a place in [`super::Scenario::peers`].
pub type PeerIndex = u16;

/// One element of the document. The order in which a step is run:
///
/// 1. `condition` false: the step is not done, but `next` is looked at as if it were.
/// 2. The step itself: send, match, wait.
/// 3. `start_timer` starts, `stop_timer` is read and counted (unless `repeat_timer`, only once a call), `counter` is
///    counted.
/// 4. `actions`, in their order. After a send they run once the message is sent.
/// 5. `next`, if it applies, else the step behind this one.
#[derive(Clone, Debug)]
pub struct Step {
    pub kind: Kind,
    pub actions: Box<[Action]>,
    /// `next` with `test` and `chance`.
    pub next: Option<Jump>,
    /// `condexec` and `condexec_inverse`.
    pub condition: Option<Condition>,
    /// `start_rtd`: the clock of this timer is set to now.
    pub start_timer: Option<TimerIndex>,
    /// `rtd`: the time since its start (or since the call's, if never started) is counted. Every timer starts with
    /// the call.
    pub stop_timer: Option<TimerIndex>,
    /// `repeat_rtd`: `stop_timer` is counted each time this step is passed, not only the first.
    pub repeat_timer: bool,
    /// `counter`: counted each time the step is passed.
    pub counter: Option<CounterIndex>,
    /// `ontimeout`: where to go when the time of a receive ends, or the retransmissions of a send are used up.
    pub on_timeout: Option<StepIndex>,
    /// `lost`, in percent, 0 to 100: this share of what is sent is not, of what is received is not seen.
    /// `None`: the run's own share.
    pub lost: Option<f64>,
    /// `ignoresdp`: media addresses in the body of this message are not learnt.
    pub ignore_sdp: bool,
    /// `crlf`: an empty line follows in the screen of the scenario.
    pub blank_line: bool,
    /// `hide`: not in the screen of the scenario.
    pub hidden: bool,
    /// `display`: the text in the screen of the scenario.
    pub display: Option<Box<str>>,
    /// Where the element stands in the document; 1 is the first line.
    pub line: u32,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Kind {
    Send(Box<Send>),
    Receive(Box<Receive>),
    /// Waits; a message of the call that comes meanwhile is unexpected unless it is a retransmission or matches an
    /// optional receive before.
    Pause(Pause),
    /// The final quarantine: the call is counted as ended, repetitions of the peer are still answered for so long.
    TimeWait(Pause),
    /// Actions only.
    Nop,
    /// `sendCmd`: a message to the other controller of 3PCC.
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
    /// `retrans` in milliseconds (T1 of this message over UDP). `None` or 0: never sent again.
    pub retransmit: Option<u32>,
    /// `start_txn`: the branch of what is sent is kept under this name, receives with `response_txn` compare with it.
    pub start_transaction: Option<TransactionIndex>,
    /// `ack_txn`: `[branch]` of an ACK to a non-2xx answer is taken from this transaction.
    pub ack_transaction: Option<TransactionIndex>,
    /// `timeout` in milliseconds: how long SIPp tries again where the way out is full. Here the message waits in a queue.
    pub timeout: Option<u32>,
}

/// How a message that is sent starts; the first word of a template is never a keyword, so it is known beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The method as it is written.
    Request(Method),
    /// The code.
    Response(u16),
}

/// A method; the ones that have rules of their own are told apart beforehand.
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
    /// `rrs`: Record-Route and Contact are kept for `[routes]` and `[next_url]`.
    pub record_routes: bool,
    /// `auth`: the challenge is kept for `[authentication]`.
    pub authenticate: bool,
    /// `response_txn`: only an answer with the branch of that transaction matches.
    pub transaction: Option<TransactionIndex>,
    /// The methods that the document sent before this step, written one behind the other with nothing between. An
    /// answer matches if the method of its CSeq is found *in* this text. Not looked at when `transaction` is set or
    /// this is the first step. See [`Receive::answers`].
    pub methods: Box<[u8]>,
    /// `timeout` in milliseconds; `None`: the run's `-recv_timeout`.
    pub timeout: Option<u32>,
    /// `advance_state` (true unless written): whether an optional message that matched moves the call on.
    pub advance: bool,
}

impl Receive {
    /// Whether an answer to `method` can belong here.
    pub fn answers(&self, method: &[u8]) -> bool {
        memchr::memmem::find(&self.methods, method).is_some()
    }
}

/// What a receive waits for.
#[derive(Clone, Debug)]
pub enum Expected {
    Request(Method),
    /// `request` with `regexp_match`: an expression on the method of the request.
    RequestMatching(Box<Pattern>),
    /// 0 matches nothing: a `recv` without `request` and `response`.
    Response(u16),
    /// `response` with `regexp_match` (SIPp 3.7): an expression on the three digits.
    ResponseMatching(Box<Pattern>),
}

/// `optional`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optional {
    /// Must come.
    No,
    /// May come while the call stands at it or at the mandatory receive behind it.
    Yes,
    /// May come at any time after it was passed.
    Global,
}

/// `<pause>`.
#[derive(Clone, Debug, PartialEq)]
pub enum Pause {
    /// As long as the run says (`-d`).
    Default,
    /// A number of milliseconds by a distribution, drawn for each call.
    Drawn(Distribution),
    /// The value of a variable, milliseconds.
    Variable(Slot),
}

/// `next`: taken if `test` is unset or its variable is set, and `chance` says so. A number is set if it is not 0, a
/// boolean if it is true, a string as soon as something was assigned, were it empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jump {
    pub to: StepIndex,
    pub test: Option<Slot>,
    /// 0 to 1; `None` is always. Taken if a number drawn from [0, 1) is not above it.
    pub chance: Option<f64>,
}

/// `condexec`: the step is run if the variable is set (see [`Jump`]); with `inverse` if it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub variable: Slot,
    pub inverse: bool,
}
