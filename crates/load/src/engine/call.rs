//! State of one call.

use super::helper::File;
use super::script::Script;
use strowger_core::{Flow, Target};
use strowger_measure::CallBook;
use strowger_message::Method;
use strowger_scenario::{Scope, Slot};

/// Value of a variable.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Value {
    #[default]
    Unset,
    /// Unset; keeps the buffer of an earlier text.
    Spare(Vec<u8>),
    Text(Vec<u8>),
    Number(f64),
    Bool(bool),
}

impl Value {
    /// Returns whether jumps and conditions take the value for true. A number is true if it is not zero.
    pub(super) fn is_set(&self) -> bool {
        match self {
            Self::Unset | Self::Spare(_) => false,
            Self::Text(_) => true,
            Self::Number(value) => *value != 0.0,
            Self::Bool(value) => *value,
        }
    }

    /// Returns the number; 0 for texts and booleans.
    pub(super) const fn number(&self) -> f64 {
        match self {
            Self::Number(value) => *value,
            _ => 0.0,
        }
    }

    /// Returns the text, which is empty for numbers and booleans.
    pub(super) fn text(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            _ => b"",
        }
    }

    /// Unsets the value and keeps its buffer.
    pub(super) fn reset(&mut self) {
        *self = match std::mem::take(self) {
            Self::Text(text) | Self::Spare(text) => Self::Spare(text),
            _ => Self::Unset,
        }
    }

    /// Sets a text and reuses the buffer.
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

    /// Writes the value into a message.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        use std::io::Write;
        match self {
            Self::Unset | Self::Spare(_) => (),
            Self::Text(text) => out.extend_from_slice(text),
            // As C's %lf. Zero means unset, as in conditions.
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

/// Variables shared by several calls.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) global: Vec<Value>,
    /// Variables of each user, from 0.
    pub(super) user: Vec<Vec<Value>>,
}

/// Received message, and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    /// Hash of the message, or 0 if there is none.
    pub(super) hash: u64,
    pub(super) request: bool,
    /// Step that sent the last answer (for a response: the ACK), or `u32::MAX` if there is none.
    pub(super) answer: u32,
}

impl Default for Past {
    fn default() -> Self {
        Self { hash: 0, request: false, answer: u32::MAX }
    }
}

/// State of a transaction that the scenario names.
#[derive(Clone, Debug, Default)]
pub(super) struct Transaction {
    /// Branch of its request.
    pub(super) branch: Vec<u8>,
    /// Hash of its final response.
    pub(super) answer: u64,
    /// Step that sent its ACK.
    pub(super) ack: Option<u32>,
}

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// The scenario of the run.
    Main,
    /// The scenario for messages of no known call.
    OutOfCall,
    /// No step: only an automatic answer.
    Passing,
}

/// Progress of the end of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Leaving {
    #[default]
    No,
    /// The INVITE has had no response. Before the first response no CANCEL may be sent (RFC 3261 section 9.1).
    Asked,
    /// A CANCEL was sent, and the final response to the INVITE has not been received.
    Cancelled,
    /// This many BYEs were sent; a challenge asks for another.
    Ended(u8),
    /// A 2xx to the peer's INVITE was sent; no BYE before its ACK (RFC 3261 section 15).
    Answered,
    /// The peer's INVITE was refused, and its ACK has not been received.
    Refused,
}

/// Actual and intended start of a timer of the scenario, µs; 0: with the call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Started {
    pub(super) at: u64,
    pub(super) intended: u64,
}

/// State of a call that few scenarios need.
#[derive(Clone, Debug, Default)]
pub(super) struct Extra {
    pub(super) variables: Vec<Value>,
    pub(super) transactions: Vec<Transaction>,
    /// Last start of each timer.
    pub(super) timers: Vec<Started>,
    /// `[routes]` without its header name; `[next_url]`.
    pub(super) routes: Vec<u8>,
    pub(super) next_url: Vec<u8>,
    pub(super) has_routes: bool,
    /// Challenge, and the status code that it came with.
    pub(super) challenge: Vec<u8>,
    pub(super) challenge_code: u16,
    pub(super) nonce_count: u32,
    /// Line in each injection file.
    pub(super) lines: Vec<u32>,
    /// Number of the helper's work for which the call waits; 0: none.
    pub(super) awaited: u64,
    /// Messages received while the next one to send waits for the helper.
    pub(super) held: Vec<Vec<u8>>,
    /// Files of the next message to send.
    pub(super) files: Vec<File>,
}

/// Running call. Its buffers remain for the next call in the slot.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) generation: u32,
    pub(super) live: bool,
    pub(super) kind: CallKind,
    /// Hash of the Call-ID.
    pub(super) hash: u64,
    pub(super) number: u64,
    pub(super) user: u32,
    pub(super) step: u32,
    pub(super) target: Target,
    /// Dedicated socket of the call, and its local port.
    pub(super) socket: Option<Flow>,
    pub(super) local_port: u16,
    /// TDM circuit, if there are any.
    pub(super) circuit: Option<u32>,
    /// True if the scenario has closed the connection and nothing was sent since.
    pub(super) unplugged: bool,
    pub(super) book: CallBook,
    /// True after the end of the call was recorded: the call only waits for retransmissions.
    pub(super) counted: bool,
    pub(super) started: u64,

    /// Alarm set in the wheel, ms; `u64::MAX`: none.
    pub(super) alarm: u64,
    /// End of the current pause, ms; 0: none.
    pub(super) paused_until: u64,
    /// End of the wait for a message, ms; 0: none.
    pub(super) receive_until: u64,

    /// Next retransmission of `sent`, ms; 0: none.
    pub(super) retransmit_at: u64,
    pub(super) retransmit_delay: u32,
    pub(super) retransmissions: u32,

    /// Step that sent last.
    pub(super) sent_step: u32,
    pub(super) has_sent: bool,
    /// Step that received last; `u32::MAX` before the first.
    pub(super) received_step: u32,
    /// Hash of the message received last, until the call sends something.
    pub(super) received_hash: u64,
    /// Hash of the message that a step took last, and its burst.
    pub(super) burst_hash: u64,
    pub(super) burst: u64,
    /// Hash of the message whose retransmission makes the call send its answer again, and the steps that received and
    /// answered that message.
    pub(super) answered_hash: u64,
    pub(super) answered_step: u32,
    pub(super) answer_step: u32,

    /// Messages that steps took last, the newest first (with [`Retransmission::rfc3261`](super::run::Retransmission)).
    pub(super) past: [Past; 4],

    pub(super) cseq: u32,
    /// Method of the last received request.
    pub(super) asked: Method,
    pub(super) established: bool,
    /// CSeq of our INVITE whose 2xx was taken, until our BYE; 0: none.
    pub(super) confirmed: u32,
    /// CSeq of the sent request that received the last final response; 0: none.
    pub(super) concluded: u32,
    /// True if that INVITE had a 2xx of another dialog too.
    pub(super) forked: bool,
    pub(super) ack_pending: bool,
    pub(super) timewait: bool,
    /// Progress of a call that the end of the run interrupts.
    pub(super) leaving: Leaving,
    /// True if the message in `last` has yet to be matched.
    pub(super) queued: bool,
    pub(super) has_last: bool,
    /// Counted timers, a bit each for the first 64.
    pub(super) timers_done: u64,
    /// Cause of the first failed action.
    pub(super) failed: Option<strowger_measure::Failure>,

    /// Call-ID, followed by the tag of the peer.
    pub(super) names: Vec<u8>,
    pub(super) id_length: u16,
    pub(super) has_tag: bool,
    /// Last sent and last received message.
    pub(super) sent: Vec<u8>,
    pub(super) last: Vec<u8>,
    pub(super) extra: Option<Box<Extra>>,
}

impl Call {
    /// Creates an empty slot.
    pub(super) fn new(target: Target, book: CallBook) -> Self {
        Self {
            generation: 1,
            live: false,
            kind: CallKind::Main,
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

    /// Begins a call in this slot; the buffers of the call before stay.
    pub(super) fn begin(&mut self, hash: u64, kind: CallKind, target: Target, book: CallBook, now: u64, cseq: u32) {
        let old = std::mem::replace(self, Self::new(target, book));
        self.generation = old.generation;
        self.live = true;
        (self.hash, self.kind, self.started, self.cseq) = (hash, kind, now, cseq);
        (self.names, self.sent, self.last, self.extra) = (old.names, old.sent, old.last, old.extra);
        self.names.clear();
        self.sent.clear();
        self.last.clear();
    }

    /// Sets Call-ID, number and user.
    pub(super) fn name(&mut self, name: &[u8], number: u64, user: u32) {
        let name = &name[..name.len().min(usize::from(u16::MAX))];
        self.names.clear();
        self.names.extend_from_slice(name);
        self.id_length = name.len() as u16;
        (self.number, self.user) = (number, user);
    }

    /// Returns the time of the next alarm, ms; `u64::MAX`: the call waits for messages only.
    pub(super) fn due(&self) -> u64 {
        let or = |at: u64| if at == 0 { u64::MAX } else { at };
        or(self.paused_until).min(or(self.receive_until)).min(or(self.retransmit_at))
    }

    /// Returns whether `quoted` is the beginning of the request sent last and nothing has been received since (RFC 3261
    /// section 18.4). An ACK has no response.
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

    /// Resets the state that the scenario needs: variables, transactions, timers.
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
            extra.awaited = 0;
            extra.held.clear();
            extra.files.clear();
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

    /// Returns the value of a variable, which is created if it is absent.
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
        // Another request of the call, invented or sent before; a quote that is too short.
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
