//! End of a shard's traffic, and loss of its only connection.

use super::{BEGUN, Event, Following, Traffic, beginning};
use crate::engine::bound::Bound;
use crate::engine::call::{Call, CallKind, Leaving};
use crate::engine::call_runner::Progress;
use crate::engine::pace::Pace;
use crate::engine::received_message;
use crate::engine::run::Run;
use crate::engine::script::Script;
use crate::engine::sipp_stats::SippStats;
use crate::engine::socket_plan::Each;
use std::sync::Arc;
use strowger_core::{Arrival, Outbox};
use strowger_measure::{CallBook, CallOutcome, Counter};
use strowger_message::index::Start;
use strowger_message::{Message, Method, Name, respond};
use strowger_net::{Ending, clock};
use strowger_scenario::Role;

/// Time for which an ended call is known, milliseconds. A BYE is repeated 0.5, 1.5, 3.5, 7.5 and 11.5 s after the first
/// (RFC 3261 section 17.1.2.2); to keep the calls themselves would take more memory.
const REPETITIONS: u64 = 16_000;

/// Returns how long a shard remembers ended calls for retransmissions of their BYE, milliseconds.
pub(super) fn repetitions(run: &Run, main: &Script, aside: Option<&Arc<Script>>) -> u64 {
    if is_ready_answerer(main, aside) && !run.transport.is_reliable() { REPETITIONS } else { 0 }
}

/// Returns whether a document of this program answers the calls of peers.
fn is_ready_answerer(main: &Script, aside: Option<&Arc<Script>>) -> bool {
    let answering = &aside.map_or(main, |script| script).scenario;
    answering.ready && answering.role == Role::Server
}

impl Traffic {
    pub(super) fn finish_if_over(&mut self, out: &mut Outbox) {
        if self.parting {
            return self.part();
        }
        let spared = if self.refusing { 0 } else { self.strangers };
        if self.finished || self.table.len() > spared || (self.waiting && !self.quitting) {
            return;
        }
        let all = self.shard.run.load.calls.is_some_and(|most| self.begun >= most);
        let unscheduled = self.makes_calls()
            && self.shard.run.load.users.is_none()
            && (self.pace.is_over() || !self.bound.allows(self.scheduled));
        if self.quitting || all || unscheduled {
            if let Some(run) = self.resumed.take() {
                return self.end_ahead(*run);
            }
            self.finished = true;
            // Calls of the out-of-call scenario are not waited for.
            for slot in 0..self.calls.len() as u32 {
                if self.calls[slot as usize].live {
                    self.drive(slot, out, |runner| {
                        // Sent even with -nd.
                        runner.goodbye();
                        let id = String::from_utf8_lossy(runner.call.id()).into_owned();
                        runner.shard.warn(format_args!("Aborted call with Call-ID '{id}'"));
                        runner.finish(CallOutcome::Stopped);
                        Progress::Over
                    });
                }
            }
            self.shard.stats.open = 0;
            if let Some(call_sockets) = &self.shard.call_sockets {
                self.shard.recorder.count(Counter::ConnectionsHeld, call_sockets.held() as u64);
            }
            self.parting = true;
            self.part();
        }
    }

    /// Stops new calls, and ends those that only wait for retransmissions.
    pub(super) fn close(&mut self, out: &mut Outbox) {
        (self.quitting, self.refusing) = (true, true);
        for slot in 0..self.calls.len() as u32 {
            let call = &self.calls[slot as usize];
            if call.live && call.timewait {
                self.drive(slot, out, |runner| runner.cut_off());
            }
        }
    }

    /// Answers a request that would begin a call, and its retransmissions, without beginning one (RFC 3261 sections
    /// 8.2.7 and 21.5.4). Returns false if the request begins no call.
    #[cold]
    pub(super) fn refuse(&mut self, hash: u64, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) -> bool {
        let Start::Request { method, .. } = self.shard.index.start() else { return false };
        if matches!(method, Method::Ack | Method::Cancel) || received_message::has_tag(bytes, &mut self.shard) {
            return false;
        }
        let shard = &mut self.shard;
        let start = out.start();
        let tag = format!("{hash:x}");
        let message = Message::new(bytes, &shard.index);
        let length = respond(&message, 503, None, Some(tag.as_bytes()), &mut out.bytes).finish(b"");
        out.send(arrival.reply(), start..start + length, 0);
        let mut book = CallBook::outside(shard.now);
        shard.recorder.request_received(&mut book, shard.came, method, bytes.len());
        shard.recorder.response_sent(&mut book, shard.now, method, 503, length);
        true
    }

    /// Takes a message that begins no call of a ready answering side: a response, an ACK, or a request within a dialog
    /// or transaction that this side does not have. Requests other than ACK are answered with 481 (RFC 3261 sections
    /// 9.2, 12.2.2 and 15.1.2); the BYE of an ended call with 200. Returns false if the message may begin a call.
    #[cold]
    pub(super) fn disown(&mut self, hash: u64, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) -> bool {
        if !is_ready_answerer(&self.main, self.out_of_call.as_ref()) {
            return false;
        }
        let shard = &mut self.shard;
        let to = shard.index.first(Name::To).map(|to| &bytes[to.value as usize..to.value_end as usize]);
        let within = to.is_some_and(|to| received_message::tag(to).is_some());
        let method = match shard.index.start() {
            Start::Request { method, .. } => Some(method),
            Start::Status { .. } => None,
        };
        match method {
            None | Some(Method::Ack | Method::Cancel | Method::Bye | Method::Prack) => (),
            Some(_) if within => (),
            Some(_) => return false,
        }
        let again = method == Some(Method::Bye) && self.ended.knows(hash);
        if again {
            shard.recorder.dead_call(bytes.len());
            shard.stats.dead_call += 1;
        } else {
            shard.recorder.out_of_call(bytes.len());
            shard.stats.out_of_call += 1;
        }
        if method.is_some_and(|method| method != Method::Ack) {
            let start = out.start();
            let message = Message::new(bytes, &shard.index);
            let length =
                respond(&message, if again { 200 } else { 481 }, None, Some(b"none"), &mut out.bytes).finish(b"");
            out.send(arrival.reply(), start..start + length, 0);
            shard.recorder.sent(length);
        }
        true
    }

    /// Ends every open call now.
    pub(super) fn end_calls(&mut self, goodbye: bool, out: &mut Outbox) {
        self.quitting = true;
        self.leave_from = None;
        for slot in 0..self.calls.len() as u32 {
            if self.calls[slot as usize].live {
                self.drive(slot, out, |runner| {
                    if goodbye && !runner.call.counted && runner.call.leaving == Leaving::No {
                        runner.goodbye();
                    }
                    runner.cut_off()
                });
            }
        }
    }

    /// Ends the run and begins other calls on its sockets.
    #[cold]
    pub(super) fn follow(&mut self, following: Following, out: &mut Outbox) {
        self.end_calls(false, out);
        self.shard.count_media();
        self.shard.recorder.last(clock::micros());
        self.exchange(following);
        (self.paused, self.quitting, self.finished, self.parting) = (false, false, false, false);
        (self.refusing, self.shard.frozen) = (true, false);
    }

    /// Makes calls on the sockets of the run, whose own calls still wait for the schedule.
    #[cold]
    pub(super) fn begin_ahead(&mut self, ahead: Following) {
        self.resumed = Some(Box::new(self.exchange(ahead)));
    }

    /// Returns to the calls of the run, which wait for the schedule. Their sockets stay open.
    #[cold]
    fn end_ahead(&mut self, run: Following) {
        let stats = self.shard.stats.clone();
        let Following { recorder, events, .. } = self.exchange(run);
        self.waiting = true;
        recorder.close(clock::micros());
        let _ = events.send(Event::Finished(Box::new(stats)));
    }

    /// Replaces the calls of this shard by others, which begin now. Returns the earlier ones.
    fn exchange(&mut self, other: Following) -> Following {
        let Following { run, script, recorder, events } = other;
        let now = clock::micros();
        let aside = self.out_of_call.as_ref().map(|script| &*script.scenario);
        self.shard.stats = SippStats::new(&script.scenario).beside(aside);
        self.pace = Pace::profile(run.load.profile.clone(), now, run.load.arrivals, run.seed);
        self.wanted = self.pace.clone();
        self.bound = Bound::of(&run.load, now);
        self.id = beginning::id_parts(&run);
        self.limit = run.load.limit;
        (self.number, self.begun, self.scheduled, self.intended, self.next_wake) = (0, 0, 0, 0, 0);
        self.waiting = false;
        Following {
            run: std::mem::replace(&mut self.shard.run, run),
            script: std::mem::replace(&mut self.main, script),
            recorder: std::mem::replace(&mut self.shard.recorder, recorder),
            events: std::mem::replace(&mut self.events, events),
        }
    }

    /// Ends a few open calls at a time, to spread the messages of fifty thousand.
    pub(super) fn take_leave(&mut self, out: &mut Outbox) {
        let Some((mut slot, since)) = self.leave_from else { return };
        let mut left = BEGUN;
        while left > 0 && (slot as usize) < self.calls.len() {
            let call = &self.calls[slot as usize];
            let takes = call.kind == CallKind::Main || self.shard.run.retransmission.rfc3261;
            if call.live && takes && call.leaving == Leaving::No {
                left -= 1;
                self.drive(slot, out, |runner| runner.take_leave(since));
            }
            slot += 1;
        }
        self.leave_from = Some((slot, since)).filter(|&(slot, _)| (slot as usize) < self.calls.len());
    }

    /// Reports the end once the connections of calls have ended.
    fn part(&mut self) {
        // Registered users must stay reachable.
        let over = match &mut self.shard.call_sockets {
            Some(call_sockets) if self.out_of_call.is_none() => call_sockets.end(),
            _ => true,
        };
        if over {
            self.parting = false;
            self.shard.helper.flush();
            let _ = self.events.send(Event::Finished(Box::new(self.shard.stats.clone())));
        }
    }

    /// Returns whether all calls share one connection under SIPp's rules for its end.
    pub(super) fn reconnects(&self) -> bool {
        let sockets = &self.shard.run.sockets;
        self.makes_calls() && sockets.each == Each::Run && sockets.reconnect.is_some()
    }

    /// Handles the end of the shared connection.
    #[cold]
    pub(super) fn lose_connection(&mut self, ending: Ending, out: &mut Outbox) {
        let Some(reconnect) = self.shard.run.sockets.reconnect else { return };
        let last = reconnect.most.is_some_and(|most| self.reconnected >= most);
        // A connection that the peer closed cleanly is no error, a broken connection is one. As in SIPp, the run ends
        // when the permitted number of losses is exceeded.
        let broke = ending == Ending::Broken && !self.finished;
        if broke {
            let via = self.shard.run.transport.via();
            let text = format!("Error on {via} connection, remote peer probably closed the socket");
            if last {
                self.shard.fatal(format_args!("{text}"));
                return self.tell_halt();
            }
            self.shard.warn(format_args!("{text}"));
        }
        if last {
            // The next message ends the run.
            self.shard.broken = true;
            return self.lose_calls(ending, out);
        }
        let works = |call: &Call| call.live && !call.counted;
        if self.finished || !(0..self.calls.len()).any(|slot| works(&self.calls[slot])) {
            // No call uses it.
            return;
        }
        self.reconnected += 1;
        if reconnect.close {
            if broke {
                self.shard.warn(format_args!("Closing calls, because of TCP reset or close!"));
            }
            self.lose_calls(ending, out);
        }
        self.reconnect_at = self.shard.ms + u64::from(reconnect.sleep).max(1);
    }

    fn lose_calls(&mut self, ending: Ending, out: &mut Outbox) {
        for slot in 0..self.calls.len() as u32 {
            let call = &self.calls[slot as usize];
            if call.live && !call.counted {
                self.drive(slot, out, |runner| runner.lose_connection(ending));
            }
        }
        // The next round follows immediately and may find the run finished.
        self.tick = self.shard.ms;
    }

    /// Makes the shared connection again.
    #[cold]
    pub(super) fn reconnect(&mut self, out: &mut Outbox) {
        self.reconnect_at = 0;
        self.shard.warn(format_args!("Socket required a reconnection."));
        self.connect(out);
    }

    /// Makes the shared connection.
    pub(super) fn connect(&self, out: &mut Outbox) {
        let run = &*self.shard.run;
        if let Some(address) = run.sending_address.or(run.target) {
            let nothing = out.start();
            out.send(run.to(address), nothing..nothing, 0);
        }
    }
}
