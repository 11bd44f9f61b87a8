//! Recorder of one shard.

use super::call::{Open, Side, State};
use super::warm_up::WarmUp;
use super::{Attempt, CallBook, CallOutcome, Clock, Counter, Delay, Failure, Page, Role};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use strowger_message::Method;

/// Page that a shard sends to the collector.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) shard: usize,
    pub(super) page: Box<Page>,
    /// True for the shard's last page.
    pub(super) last: bool,
    /// True if another page of this second follows.
    pub(super) part: bool,
}

/// Reason why a message could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// Fault of this machine: buffers full, no route, message too long, no port left.
    Local,
    /// Fault of the target: port closed, connection refused or reset.
    Remote,
}

/// Recorder of one shard. The engine reports events with their times; the recorder turns them into measures. It takes
/// no lock, allocates nothing once warm (a histogram grows when a delay is twice as long as any before), and needs tens
/// of nanoseconds an event.
///
/// Times are microseconds of the engine's monotonic clock, and the times of one shard never decrease.
/// [`ShardRecorder::tick`] MUST be called once a round before the round's events, and at least once a second: it turns the
/// page when a wall-clock second has ended. Full pages go to the [`Collector`](super::Collector). If the collector is late,
/// the page covers more than a second, so that the recorder never waits.
#[derive(Debug)]
pub struct ShardRecorder {
    pub(super) page: Box<Page>,
    pub(super) shard: usize,
    pub(super) clock: Clock,
    /// Start of the page, and the time to turn it, µs.
    begun: u64,
    turn: u64,
    /// Start of the round.
    now: u64,
    pub(super) open: u64,
    pub(super) leaves: SyncSender<Leaf>,
    blanks: Receiver<Box<Page>>,
    timers: usize,
    /// Index of each timer of this shard's scenario among the timers of the run.
    timer_places: Option<Box<[u16]>>,
    closed: bool,
    /// End of the warm-up, µs; 0: none. Calls that fall due before it belong to the warm-up.
    pub(super) warm_until: u64,
    pub(super) warm_up: Option<Box<WarmUp>>,
}

impl ShardRecorder {
    pub(super) fn new(
        shard: usize,
        clock: Clock,
        timers: usize,
        now: u64,
        leaves: SyncSender<Leaf>,
        blanks: Receiver<Box<Page>>,
    ) -> Self {
        let mut page = Box::new(Page::new(timers));
        page.second = clock.second(now);
        page.begun = clock.wall(now);
        let turn = clock.begin(page.second + 1);
        Self {
            page,
            shard,
            clock,
            begun: now,
            turn,
            now,
            open: 0,
            leaves,
            blanks,
            timers,
            timer_places: None,
            closed: false,
            warm_until: 0,
            warm_up: None,
        }
    }

    /// Sets the index of each timer among the timers of the run.
    pub(super) fn place_timers(&mut self, places: Box<[u16]>) {
        self.timer_places = Some(places);
    }

    /// Begins a round, before its events. Begins a new page if the second is over.
    #[inline]
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        if now >= self.turn {
            self.turn(now);
        }
    }

    /// Opens the recorder again, for a shard that was waiting. The first `warm_up` µs are the warm-up.
    pub fn reopen(&mut self, now: u64, warm_up: u64) {
        self.page.clear();
        self.begin_page(now);
        self.now = now;
        if warm_up > 0 {
            self.warm_until = now.saturating_add(warm_up);
            self.warm_up = Some(Box::new(WarmUp::new(self.timers)));
            self.page.warm_up = true;
            self.turn = self.turn.min(self.warm_until);
        }
    }

    /// Begins a page at `now`.
    pub(super) fn begin_page(&mut self, now: u64) {
        self.page.second = self.clock.second(now);
        self.page.begun = self.clock.wall(now);
        (self.page.open, self.page.peak) = (self.open, self.open);
        self.turn = self.clock.begin(self.page.second + 1);
        self.begun = now;
    }

    #[cold]
    fn turn(&mut self, now: u64) {
        if self.warm_up.is_some() && !self.turn_warm_up(now) {
            return;
        }
        let fresh = self.blank();
        self.close_page(now);
        let full = std::mem::replace(&mut self.page, fresh);
        let warm_up = full.warm_up;
        match self.leaves.try_send(Leaf { shard: self.shard, page: full, last: false, part: false }) {
            Ok(()) => self.begin_page(now),
            // The collector is late, or has ended: the page continues into the next second.
            Err(TrySendError::Full(leaf) | TrySendError::Disconnected(leaf)) => {
                self.page = leaf.page;
                self.turn = self.clock.begin(self.clock.second(now) + 1);
            }
        }
        self.page.warm_up = warm_up;
        if warm_up {
            self.turn = self.turn.min(self.warm_until);
        }
    }

    pub(super) fn blank(&self) -> Box<Page> {
        self.blanks.try_recv().unwrap_or_else(|_| Box::new(Page::new(self.timers)))
    }

    pub(super) fn close_page(&mut self, now: u64) {
        self.page.covered = now.saturating_sub(self.begun);
        self.page.open = self.open;
    }

    /// Sends the last page at the end of the shard, and waits for a collector that is late.
    pub fn close(mut self, now: u64) {
        self.last(now);
    }

    /// Closes as [`ShardRecorder::close`] does, for use in `drop`. Stops waiting for a collector that takes nothing for
    /// a second.
    pub fn last(&mut self, now: u64) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.close_page(now);
        if let Some(leaf) = self.warm_leaf() {
            self.give(leaf);
        }
        let page = std::mem::replace(&mut self.page, Box::new(Page::new(0)));
        self.give(Leaf { shard: self.shard, page, last: true, part: false });
    }

    /// Sends a page; waits at most a second for the collector.
    fn give(&self, mut leaf: Leaf) {
        for _ in 0..1_000 {
            match self.leaves.try_send(leaf) {
                Err(TrySendError::Full(again)) => leaf = again,
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Returns the number of open calls.
    #[inline]
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Returns the current page.
    #[inline]
    pub fn page(&self) -> &Page {
        &self.page
    }

    // ---- calls

    /// Records that `calls` more calls fell due, in the round in which they did, whether or not they can begin.
    #[inline]
    pub fn calls_intended(&mut self, calls: u64) {
        if calls == 0 {
            return;
        }
        self.page.count(Counter::CallsIntended, calls);
        let wall = self.clock.wall(self.now);
        if self.page.first_due == 0 {
            self.page.first_due = wall;
        }
        self.page.last_due = wall;
    }

    /// Sets the number of due calls that wait for a place below the limit of concurrent calls.
    #[inline]
    pub fn calls_waiting(&mut self, calls: u64) {
        self.page.waiting = calls;
    }

    /// Records the start of a call that was due at `intended`. `free`: time since which its place below the limit of
    /// concurrent calls is free (0: long ago). The wait until `free` is attributed to the limit, the wait after it is
    /// the generator's lag.
    #[inline]
    pub fn call_started(&mut self, now: u64, intended: u64, free: u64) -> CallBook {
        if !self.in_warm_up(intended) {
            return self.call_counted(now, intended, free);
        }
        self.turn_to_warm_up();
        let book = self.call_counted(now, intended, free);
        self.turn_to_warm_up();
        CallBook { warm_up: true, ..book }
    }

    #[inline]
    fn call_counted(&mut self, now: u64, intended: u64, free: u64) -> CallBook {
        self.page.count(Counter::CallsOutgoing, 1);
        let wall = self.clock.wall(now);
        if self.page.first_start == 0 {
            self.page.first_start = wall;
        }
        self.page.last_start = wall;
        let free = free.min(now);
        if free > intended {
            self.page.count(Counter::CallsLimited, 1);
            self.delay(Delay::LimitWait, free - intended);
        }
        self.delay(Delay::Lag, now.saturating_sub(free.max(intended)));
        self.opened();
        CallBook::new(Role::Outgoing, intended.min(now), now)
    }

    /// Records the start of a call by a received message.
    #[inline]
    pub fn call_accepted(&mut self, now: u64) -> CallBook {
        self.page.count(Counter::CallsIncoming, 1);
        self.opened();
        CallBook { due: 0, warm_up: self.in_warm_up(now), ..CallBook::new(Role::Incoming, now, now) }
    }

    #[inline]
    fn opened(&mut self) {
        self.open += 1;
        self.page.peak = self.page.peak.max(self.open);
    }

    /// Records the end of a call. The outcome decides how its open request is recorded: as timed out, as a transport
    /// failure, as left open by the end of the run, or as given up.
    pub fn call_ended(&mut self, call: &mut CallBook, now: u64, outcome: CallOutcome) {
        self.open = self.open.saturating_sub(1);
        match outcome {
            CallOutcome::Successful => {
                self.page.count(Counter::CallsSuccessful, 1);
                self.delay(Delay::CallLength, now.saturating_sub(call.started));
            }
            CallOutcome::Failed(failure) => {
                self.page.count(Counter::CallsFailed, 1);
                self.page.count_failures(failure, 1);
            }
            CallOutcome::Stopped => {
                self.page.count(Counter::CallsStopped, 1);
                if call.talking == Side::Originating || call.leaving == Side::Originating {
                    self.page.count(Counter::SessionCut, 1);
                }
            }
        }
        for method in [Method::Register, Method::Invite, Method::Bye, Method::Other] {
            self.conclude(call, now, method, outcome);
        }
        if call.has_two() {
            call.turn();
            self.conclude(call, now, Method::Invite, outcome);
        }
    }

    /// Records that the response `code` to a request of `method` makes a call fail. To be called before
    /// [`ShardRecorder::call_ended`].
    #[inline]
    pub fn refused(&mut self, method: Method, code: u16) {
        self.page.count_refusals(method, code, 1);
    }

    /// Records that the open request of this method got no final response in time (Timer B or F, RFC 3261 section
    /// 17.1), for scenarios that continue. Not needed if the call fails for this reason.
    pub fn timed_out(&mut self, call: &mut CallBook, now: u64, method: Method) {
        self.conclude(call, now, method, CallOutcome::Failed(Failure::TimeoutOnReceive));
    }

    // ---- messages

    /// Records a request sent for the first time (including an ACK). Its meaning follows from the earlier messages of
    /// the call; see [`CallBook::attempt`]. `bytes`: its length.
    #[inline]
    pub fn request_sent(&mut self, call: &mut CallBook, now: u64, method: Method, bytes: usize) {
        let attempt = call.attempt(method);
        self.request_sent_as(call, now, method, attempt, bytes);
    }

    /// Records as [`ShardRecorder::request_sent_as`] does an INVITE with an identifying mark (a hash of its branch, for
    /// example). If another INVITE is open, both are measured; if two are open, the first is given up.
    pub fn invite_sent(&mut self, call: &mut CallBook, now: u64, attempt: Attempt, invite: u64, bytes: usize) {
        if attempt == Attempt::Initial && call.session.is_open() {
            call.turn();
        }
        self.request_sent_as(call, now, Method::Invite, attempt, bytes);
        call.invite = invite;
    }

    /// Records as [`ShardRecorder::request_sent`], where the engine knows the attempt better.
    pub fn request_sent_as(&mut self, call: &mut CallBook, now: u64, method: Method, attempt: Attempt, bytes: usize) {
        self.sent(bytes);
        self.page.requests_sent[method as usize] += 1;
        if matches!(method, Method::Ack | Method::Cancel | Method::Prack) {
            return;
        }
        let intended = call.intends(now);
        call.due = 0;
        let begun = Open { sent: now, intended, state: State::Open };
        if attempt == Attempt::Initial {
            self.conclude(call, now, method, CallOutcome::Successful);
        }
        match method {
            Method::Invite => match attempt {
                Attempt::Initial => {
                    self.page.count(Counter::SessionAttempts, 1);
                    call.session = begun;
                    (call.indicated, call.answered_first, call.modifying) = (0, false, State::Idle);
                }
                Attempt::Again => call.session.state = State::Open,
                Attempt::InDialog => {
                    // After a challenge it is the same attempt again.
                    if call.modifying != State::Challenged {
                        self.page.count(Counter::SessionModified, 1);
                    }
                    call.modifying = State::Open;
                }
            },
            Method::Register => match attempt {
                Attempt::Again => call.registration.state = State::Open,
                _ => {
                    self.page.count(Counter::RegistrationAttempts, 1);
                    call.registration = begun;
                }
            },
            Method::Bye => match attempt {
                Attempt::Again => call.disconnect.state = State::Open,
                _ => {
                    self.page.count(Counter::DisconnectAttempts, 1);
                    call.disconnect = begun;
                    call.leaving = std::mem::take(&mut call.talking);
                    call.talk_until = now;
                }
            },
            _ => match attempt {
                Attempt::Again => call.request.state = State::Open,
                _ => {
                    self.page.count(Counter::RequestAttempts, 1);
                    call.request = begun;
                    call.request_method = method;
                }
            },
        }
    }

    /// Records a response received for the first time, to a request of `method` (from its CSeq). `retry_after`: whether
    /// the response has a Retry-After header field. `bytes`: its length.
    pub fn response_received(
        &mut self,
        call: &mut CallBook,
        now: u64,
        method: Method,
        code: u16,
        retry_after: bool,
        bytes: usize,
    ) {
        self.received(bytes);
        self.page.responses_received.count(method, code, 1);
        if matches!(code, 401 | 402 | 407) {
            self.page.count(Counter::Challenges, 1);
        }
        match method {
            Method::Invite => self.invite_answered(call, now, code),
            Method::Register if call.registration.is_open() => self.register_answered(call, now, code),
            Method::Bye if call.disconnect.is_open() => self.bye_answered(call, now, code, retry_after),
            Method::Ack | Method::Cancel | Method::Prack | Method::Register | Method::Bye => {}
            _ if call.request.is_open() && call.request_method == method => self.request_answered(call, now, code),
            _ => {}
        }
    }

    /// Records a request received for the first time. `bytes`: its length.
    pub fn request_received(&mut self, call: &mut CallBook, now: u64, method: Method, bytes: usize) {
        self.received(bytes);
        self.page.requests_received[method as usize] += 1;
        match method {
            Method::Invite if call.talking == Side::Nobody && !call.asked => {
                self.page.count(Counter::IncomingSessions, 1);
                call.asked = true;
            }
            Method::Bye if call.talking != Side::Nobody => {
                call.leaving = std::mem::take(&mut call.talking);
                self.talked(call, now);
            }
            _ => {}
        }
    }

    /// Records a response sent for the first time, to a request of `method`. `bytes`: its length.
    pub fn response_sent(&mut self, call: &mut CallBook, now: u64, method: Method, code: u16, bytes: usize) {
        self.sent(bytes);
        self.page.responses_sent.count(method, code, 1);
        match method {
            Method::Invite if call.asked => match code {
                // After a challenge the INVITE is sent again, and still belongs to the same attempt.
                ..200 | 401 | 407 => {}
                200..=299 => {
                    self.page.count(Counter::IncomingAnswered, 1);
                    (call.asked, call.talking, call.talk_since) = (false, Side::Terminating, now);
                }
                _ => {
                    self.page.count(Counter::IncomingRefused, 1);
                    call.asked = false;
                }
            },
            Method::Bye if (200..300).contains(&code) && !call.disconnect.is_open() => self.completed(call),
            _ => {}
        }
    }

    /// Records a retransmitted request.
    #[inline]
    pub fn request_resent(&mut self, method: Method, bytes: usize) {
        self.sent(bytes);
        self.page.count(Counter::RetransmissionsSent, 1);
        self.page.requests_resent[method as usize] += 1;
    }

    /// Records a retransmitted response.
    #[inline]
    pub fn response_resent(&mut self, bytes: usize) {
        self.sent(bytes);
        self.page.count(Counter::RetransmissionsSent, 1);
    }

    /// Records a received retransmission. It is counted here and nowhere else.
    #[inline]
    pub fn received_again(&mut self, bytes: usize) {
        self.received(bytes);
        self.page.count(Counter::RetransmissionsReceived, 1);
    }

    /// Records that the scenario did not expect the message just reported.
    #[inline]
    pub fn unexpected(&mut self) {
        self.page.count(Counter::Unexpected, 1);
    }

    /// Records a message that belongs to no known call and begins none. It is counted here and nowhere else.
    #[inline]
    pub fn out_of_call(&mut self, bytes: usize) {
        self.received(bytes);
        self.page.count(Counter::OutOfCall, 1);
    }

    /// Records a message of a call that has ended. It is counted here and nowhere else.
    #[inline]
    pub fn dead_call(&mut self, bytes: usize) {
        self.received(bytes);
        self.page.count(Counter::DeadCall, 1);
    }

    /// Records a message sent outside any call (an automatic answer, for example): bytes and message only.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        self.page.count(Counter::MessagesSent, 1);
        self.page.count(Counter::BytesSent, bytes as u64);
    }

    #[inline]
    fn received(&mut self, bytes: usize) {
        self.page.count(Counter::MessagesReceived, 1);
        self.page.count(Counter::BytesReceived, bytes as u64);
    }

    // ---- timers and the generator itself

    /// Records the time `us` of a named timer of the scenario (SIPp's response time durations). `timer`: its index in
    /// the names given to the collector; another index is ignored.
    #[inline]
    pub fn timer(&mut self, timer: usize, us: u64) {
        let timer = match &self.timer_places {
            Some(places) => places.get(timer).map_or(usize::MAX, |place| usize::from(*place)),
            None => timer,
        };
        if let Some(timer) = self.page.timers.get_mut(timer) {
            timer.record(us);
        }
    }

    /// Adds to any other counter: automatic answers, warnings, watchdog.
    #[inline]
    pub fn count(&mut self, counter: Counter, by: u64) {
        self.page.count(counter, by);
    }

    /// Records a message that could not be sent.
    #[inline]
    pub fn send_failed(&mut self, failure: SendFailure) {
        self.page.count(
            match failure {
                SendFailure::Local => Counter::SendFailuresLocal,
                SendFailure::Remote => Counter::SendFailuresRemote,
            },
            1,
        );
    }

    /// Records `datagrams` that the kernel dropped for lack of room in a receive buffer (growth of SO_RXQ_OVFL).
    #[inline]
    pub fn socket_drops(&mut self, datagrams: u64) {
        self.page.count(Counter::SocketDrops, datagrams);
    }

    /// Records the time `us` that a message waited in the socket before it was read.
    #[inline]
    pub fn receive_lag(&mut self, us: u64) {
        self.delay(Delay::ReceiveLag, us);
    }

    /// Records the time `us` from the recorded sending of a message to its system call.
    #[inline]
    pub fn send_lag(&mut self, us: u64) {
        self.delay(Delay::SendLag, us);
    }

    /// Records that a timer of a call (end of a pause, retransmission) went off `us` late.
    #[inline]
    pub fn timer_lag(&mut self, us: u64) {
        self.delay(Delay::TimerLag, us);
    }

    /// Records that the peer accepted a connection of a call or user `us` after the request.
    #[inline]
    pub fn connected(&mut self, us: u64) {
        self.delay(Delay::Connect, us);
    }

    /// Records the duration `us` of its handshake.
    #[inline]
    pub fn shook_hands(&mut self, us: u64) {
        self.delay(Delay::Handshake, us);
    }

    /// Records that the shard had work but not the processor for `us`.
    pub fn stalled(&mut self, us: u64) {
        self.page.count(Counter::Stalls, 1);
        self.delay(Delay::Stall, us);
    }

    /// Adds the health figures of a second of the answering side in the same process: if that side was stopped or did
    /// not read, the generator itself was the reason why callers got no answers.
    pub fn beside(&mut self, page: &Page) {
        self.page.count(Counter::Stalls, page.counter(Counter::Stalls));
        for delay in [Delay::Stall, Delay::ReceiveLag, Delay::SendLag] {
            self.page.delays[delay as usize].add(page.delays(delay));
        }
    }

    #[inline]
    pub(super) fn delay(&mut self, delay: Delay, us: u64) {
        self.page.record(delay, us);
    }
}

impl Drop for ShardRecorder {
    /// Sends the last page of a shard that ends without closing its recorder, if the collector has room.
    fn drop(&mut self) {
        if !self.closed {
            self.page.covered = self.page.covered.max(1);
            self.page.open = self.open;
            if let Some(leaf) = self.warm_leaf() {
                let _ = self.leaves.try_send(leaf);
            }
            let page = std::mem::replace(&mut self.page, Box::new(Page::new(0)));
            let _ = self.leaves.try_send(Leaf { shard: self.shard, page, last: true, part: false });
        }
    }
}
