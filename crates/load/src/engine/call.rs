//! One call: what is remembered of it while it runs.

use super::leaving::Leaving;
use super::script::Script;
use crate::scenario::{Scope, Slot};
use strowger_core::{Flow, Target};
use strowger_measure::CallBook;
use strowger_message::Method;

/// The value of a variable.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Value {
    #[default]
    Unset,
    /// Unset, with the memory of a text that it had.
    Spare(Vec<u8>),
    Text(Vec<u8>),
    Number(f64),
    Bool(bool),
}

impl Value {
    /// Whether a jump or condition takes it for true: a number is set when it is not zero.
    pub(super) fn is_set(&self) -> bool {
        match self {
            Self::Unset | Self::Spare(_) => false,
            Self::Text(_) => true,
            Self::Number(value) => *value != 0.0,
            Self::Bool(value) => *value,
        }
    }

    /// As a number: texts and booleans are none.
    pub(super) const fn number(&self) -> f64 {
        match self {
            Self::Number(value) => *value,
            _ => 0.0,
        }
    }

    /// As a text: numbers and booleans are none.
    pub(super) fn text(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            _ => b"",
        }
    }

    /// Is unset again; the memory of a text stays.
    pub(super) fn reset(&mut self) {
        *self = match std::mem::take(self) {
            Self::Text(text) | Self::Spare(text) => Self::Spare(text),
            _ => Self::Unset,
        }
    }

    /// Becomes this text; its memory is used again.
    pub(super) fn set_text(&mut self, text: &[u8]) {
        match self {
            Self::Text(old) => {
                old.clear();
                old.extend_from_slice(text);
            }
            Self::Spare(old) => {
                let mut old = std::mem::take(old);
                old.clear();
                old.extend_from_slice(text);
                *self = Self::Text(old);
            }
            other => *other = Self::Text(text.to_vec()),
        }
    }

    /// As it is written into a message.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        use std::io::Write;
        match self {
            Self::Unset | Self::Spare(_) => (),
            Self::Text(text) => out.extend_from_slice(text),
            // As C's %lf. Zero stands for nothing, as in conditions.
            Self::Number(value) if value.is_nan() => out.extend_from_slice(b"nan"),
            Self::Number(value) => {
                if *value != 0.0 {
                    let _ = write!(out, "{value:.6}");
                }
            }
            Self::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        }
    }
}

/// The variables that reach beyond one call.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) global: Vec<Value>,
    /// By user, from 0.
    pub(super) user: Vec<Vec<Value>>,
}

/// A message that was taken, and what answered it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// 0: none.
    pub(super) hash: u64,
    pub(super) request: bool,
    /// The step that sent the last answer to it (to a response: the ACK); `u32::MAX`: none.
    pub(super) answer: u32,
}

impl Default for Past {
    fn default() -> Self {
        Self { hash: 0, request: false, answer: u32::MAX }
    }
}

/// What became of a transaction that the scenario names.
#[derive(Clone, Debug, Default)]
pub(super) struct Transaction {
    /// The branch of its request.
    pub(super) branch: Vec<u8>,
    /// Of the whole final answer.
    pub(super) answer: u64,
    /// The step that sent its ACK.
    pub(super) ack: Option<u32>,
}

/// Which path a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Through the scenario of the run.
    Main,
    /// Through that for messages of no known call.
    OutOfCall,
    /// No step: only for an automatic answer.
    Passing,
}

/// When a timer of the scenario was started, and when it should have been, µs; 0: with the call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Started {
    pub(super) at: u64,
    pub(super) intended: u64,
}

/// What only few scenarios need of a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Extra {
    pub(super) variables: Vec<Value>,
    pub(super) transactions: Vec<Transaction>,
    /// When each timer was started last.
    pub(super) timers: Vec<Started>,
    /// `[routes]`, without its name; `[next_url]`.
    pub(super) routes: Vec<u8>,
    pub(super) next_url: Vec<u8>,
    pub(super) has_routes: bool,
    /// The challenge and the code it came with.
    pub(super) challenge: Vec<u8>,
    pub(super) challenge_code: u16,
    pub(super) nonce_count: u32,
    /// The line of each injection file.
    pub(super) lines: Vec<u32>,
}

/// Places for calls. It grows by segments, so that growing moves no call.
#[derive(Debug, Default)]
pub(super) struct Calls {
    segments: Vec<Vec<Call>>,
    len: usize,
}

/// Calls of a segment, a power of two.
const SEGMENT: usize = 256;

impl Calls {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, call: Call) {
        if self.len.is_multiple_of(SEGMENT) {
            self.segments.push(Vec::with_capacity(SEGMENT));
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.push(call);
            self.len += 1;
        }
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Call> {
        self.segments.get(slot / SEGMENT)?.get(slot % SEGMENT)
    }
}

impl std::ops::Index<usize> for Calls {
    type Output = Call;

    #[inline]
    fn index(&self, slot: usize) -> &Call {
        &self.segments[slot / SEGMENT][slot % SEGMENT]
    }
}

impl std::ops::IndexMut<usize> for Calls {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut Call {
        &mut self.segments[slot / SEGMENT][slot % SEGMENT]
    }
}

/// A running call. Its buffers stay when it ends, for the next in its place.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) generation: u32,
    pub(super) live: bool,
    pub(super) kind: Kind,
    /// Of its Call-ID.
    pub(super) hash: u64,
    pub(super) number: u64,
    pub(super) user: u32,
    pub(super) step: u32,
    pub(super) target: Target,
    /// The dedicated socket that it uses, and the port of its own side.
    pub(super) socket: Option<Flow>,
    pub(super) local_port: u16,
    /// Its TDM circuit, where there are any.
    pub(super) circuit: Option<u32>,
    /// The scenario has closed it, and nothing was said since.
    pub(super) unplugged: bool,
    pub(super) book: CallBook,
    /// The measures have been told that it ended; it only stays for repetitions.
    pub(super) counted: bool,
    pub(super) started: u64,

    /// The alarm that is set, ms; `u64::MAX`: none.
    pub(super) alarm: u64,
    /// When a pause ends, ms; 0: no pause.
    pub(super) paused_until: u64,
    /// When the wait for a message ends, ms; 0: never.
    pub(super) receive_until: u64,

    /// When `sent` goes out once more, ms; 0: never.
    pub(super) retransmit_at: u64,
    pub(super) retransmit_delay: u32,
    pub(super) retransmissions: u32,

    /// The step that sent last.
    pub(super) sent_step: u32,
    pub(super) has_sent: bool,
    /// The step that received last, `u32::MAX` before the first.
    pub(super) received_step: u32,
    /// Of the message received last, until something is sent.
    pub(super) received_hash: u64,
    /// Of the message taken last, and the burst that it came in.
    pub(super) burst_hash: u64,
    pub(super) burst: u64,
    /// The message whose repetition makes us repeat, and the steps that received and answered it.
    pub(super) answered_hash: u64,
    pub(super) answered_step: u32,
    pub(super) answer_step: u32,

    /// The messages taken last, the newest first (with [`Retransmission::rfc3261`](super::run::Retransmission)).
    pub(super) past: [Past; 4],

    pub(super) cseq: u32,
    /// The method of the last request that came.
    pub(super) asked: Method,
    pub(super) established: bool,
    /// The CSeq of the INVITE of ours whose 2xx was taken, until our BYE; 0: there is none.
    pub(super) confirmed: u32,
    /// The CSeq of the request of ours that had its final response last; 0: there is none.
    pub(super) concluded: u32,
    /// That INVITE had a 2xx of another dialog too.
    pub(super) forked: bool,
    pub(super) ack_pending: bool,
    pub(super) timewait: bool,
    /// The run ends before it.
    pub(super) leaving: Leaving,
    /// A message waits in `last` to be looked at again.
    pub(super) queued: bool,
    pub(super) has_last: bool,
    /// Timers that have been counted, the first 64.
    pub(super) timers_done: u64,
    /// Why the first action that failed did, for the books.
    pub(super) failed: Option<strowger_measure::Failure>,

    /// The Call-ID, and behind it the tag of the peer.
    pub(super) names: Vec<u8>,
    pub(super) id_length: u16,
    pub(super) has_tag: bool,
    /// The message sent last, and the one received last.
    pub(super) sent: Vec<u8>,
    pub(super) last: Vec<u8>,
    pub(super) extra: Option<Box<Extra>>,
}

impl Call {
    /// A place for calls.
    pub(super) fn new(target: Target, book: CallBook) -> Self {
        Self {
            generation: 1,
            live: false,
            kind: Kind::Main,
            hash: 0,
            number: 0,
            user: 0,
            step: 0,
            target,
            socket: None,
            local_port: 0,
            circuit: None,
            unplugged: false,
            book,
            counted: false,
            started: 0,
            alarm: u64::MAX,
            paused_until: 0,
            receive_until: 0,
            retransmit_at: 0,
            retransmit_delay: 0,
            retransmissions: 0,
            sent_step: 0,
            has_sent: false,
            received_step: u32::MAX,
            received_hash: 0,
            burst_hash: 0,
            burst: 0,
            answered_hash: 0,
            answered_step: 0,
            answer_step: 0,
            past: [Past::default(); 4],
            cseq: 0,
            asked: Method::Other,
            established: false,
            confirmed: 0,
            concluded: 0,
            forked: false,
            ack_pending: false,
            timewait: false,
            leaving: Leaving::No,
            queued: false,
            has_last: false,
            timers_done: 0,
            failed: None,
            names: Vec::new(),
            id_length: 0,
            has_tag: false,
            sent: Vec::new(),
            last: Vec::new(),
            extra: None,
        }
    }

    /// A call begins in this place; the buffers of the one before it stay.
    pub(super) fn begin(&mut self, hash: u64, kind: Kind, target: Target, book: CallBook, now: u64, cseq: u32) {
        let old = std::mem::replace(self, Self::new(target, book));
        self.generation = old.generation;
        self.live = true;
        (self.hash, self.kind, self.started, self.cseq) = (hash, kind, now, cseq);
        (self.names, self.sent, self.last, self.extra) = (old.names, old.sent, old.last, old.extra);
        self.names.clear();
        self.sent.clear();
        self.last.clear();
    }

    /// Its Call-ID, number and user.
    pub(super) fn name(&mut self, name: &[u8], number: u64, user: u32) {
        let name = &name[..name.len().min(usize::from(u16::MAX))];
        self.names.clear();
        self.names.extend_from_slice(name);
        self.id_length = name.len() as u16;
        (self.number, self.user) = (number, user);
    }

    /// When it has to be woken, ms; `u64::MAX`: by a message only.
    pub(super) fn due(&self) -> u64 {
        let or = |at: u64| if at == 0 { u64::MAX } else { at };
        or(self.paused_until).min(or(self.receive_until)).min(or(self.retransmit_at))
    }

    /// Whether `quoted` is the beginning of the request that was sent last, and nothing has come since (RFC 3261 section 18.4). An
    /// ACK waits for no answer.
    pub(super) fn waits_for_answer_to(&self, quoted: &[u8]) -> bool {
        let request = !self.sent.starts_with(b"SIP/2.0 ") && !self.sent.starts_with(b"ACK ");
        let heard = self.received_hash != 0 && self.leaving == Leaving::No;
        self.has_sent && request && !heard && !quoted.is_empty() && self.sent.starts_with(quoted)
    }

    pub(super) fn id(&self) -> &[u8] {
        &self.names[..usize::from(self.id_length)]
    }

    pub(super) fn tag(&self) -> Option<&[u8]> {
        self.has_tag.then(|| &self.names[usize::from(self.id_length)..])
    }

    pub(super) fn set_tag(&mut self, tag: &[u8]) {
        self.names.truncate(usize::from(self.id_length));
        self.names.extend_from_slice(tag);
        self.has_tag = true;
    }

    /// Makes room for what the scenario needs.
    pub(super) fn prepare(&mut self, script: &Script) {
        let scenario = &script.scenario;
        let variables = scenario.variables.call.len();
        let transactions = scenario.transactions.len();
        let timers = if script.starts_timers { scenario.timers.len() } else { 0 };
        if variables + transactions + timers > 0 || self.extra.is_some() {
            let extra = self.extra.get_or_insert_default();
            extra.variables.resize(variables, Value::Unset);
            extra.variables.iter_mut().for_each(Value::reset);
            extra.transactions.resize(transactions, Transaction::default());
            for transaction in &mut extra.transactions {
                transaction.branch.clear();
                (transaction.answer, transaction.ack) = (0, None);
            }
            extra.timers.clear();
            extra.timers.resize(timers, Started::default());
            extra.routes.clear();
            extra.next_url.clear();
            extra.has_routes = false;
            extra.challenge.clear();
            extra.challenge_code = 0;
            extra.nonce_count = 0;
            extra.lines.clear();
        }
    }

    pub(super) fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub(super) fn value<'a>(&'a self, slot: Slot, shared: &'a Shared) -> &'a Value {
        const UNSET: &Value = &Value::Unset;
        let index = usize::from(slot.index);
        match slot.scope {
            Scope::Call => self.extra.as_ref().and_then(|e| e.variables.get(index)),
            Scope::User => shared.user.get(self.user as usize).and_then(|u| u.get(index)),
            Scope::Global => shared.global.get(index),
        }
        .unwrap_or(UNSET)
    }

    /// Where the value of a variable is; it is made if there is none.
    pub(super) fn value_mut<'a>(&'a mut self, slot: Slot, shared: &'a mut Shared) -> &'a mut Value {
        let index = usize::from(slot.index);
        let list = match slot.scope {
            Scope::Call => &mut self.extra.get_or_insert_default().variables,
            Scope::Global => &mut shared.global,
            Scope::User => {
                let user = self.user as usize;
                if shared.user.len() <= user {
                    shared.user.resize_with(user + 1, Vec::new);
                }
                &mut shared.user[user]
            }
        };
        if list.len() <= index {
            list.resize(index + 1, Value::Unset);
        }
        &mut list[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_core::{ListenerId, Transport};

    #[test]
    fn an_icmp_error_is_about_the_request_that_waits_for_an_answer() {
        let address = ([127, 0, 0, 1], 5_060).into();
        let target = Target::new(Transport::Udp, ListenerId(0), address);
        let mut call = Call::new(target, CallBook::outside(0));
        let invite = b"INVITE sip:a SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nCall-ID: 1\r\n\r\n";
        let quoted = &invite[..40];
        assert!(!call.waits_for_answer_to(quoted), "nothing was sent");
        (call.sent, call.has_sent) = (invite.to_vec(), true);
        assert!(call.waits_for_answer_to(quoted) && call.waits_for_answer_to(invite));
        // Another request of the call, made up or sent before; too little to tell.
        for other in [&b"INVITE sip:a SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK0"[..], b"BYE sip:a SIP/2.0\r\n", b""]
        {
            assert!(!call.waits_for_answer_to(other));
        }
        call.received_hash = 7;
        assert!(!call.waits_for_answer_to(quoted), "the target has answered");
        for sent in [&b"ACK sip:a SIP/2.0\r\n"[..], b"SIP/2.0 200 OK\r\n"] {
            (call.sent, call.received_hash) = (sent.to_vec(), 0);
            assert!(!call.waits_for_answer_to(sent), "no answer is due");
        }
    }
}
