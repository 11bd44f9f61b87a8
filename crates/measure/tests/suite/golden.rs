//! Golden flows: sequences of events with known delays, and their results by RFC 6076. Times in microseconds.

mod byes;
mod several_invites;

use std::time::SystemTime;
use strowger_measure::{
    Attempt, CallBook, CallOutcome, Clock, Collector, Counter, Delay, Failure, Page, ShardRecorder,
};
use strowger_message::Method::{self, Ack, Bye, Invite, Options, Register};

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

/// Shard that runs one flow; every call's intended start was 7 ms before its start.
struct Flow {
    collector: Collector,
    recorder: ShardRecorder,
    call: CallBook,
}

impl Flow {
    fn outgoing() -> Self {
        let mut collector = Collector::new(Clock::new(0, SystemTime::now()), vec!["1".into()], 1);
        let mut recorder = collector.recorder(0);
        recorder.calls_intended(1);
        let call = recorder.call_started(10 * MS, 3 * MS, 0);
        Self { collector, recorder, call }
    }

    fn incoming() -> Self {
        let mut collector = Collector::new(Clock::new(0, SystemTime::now()), vec![], 1);
        let mut recorder = collector.recorder(0);
        let call = recorder.call_accepted(10 * MS);
        Self { collector, recorder, call }
    }

    fn send(mut self, at: u64, method: Method) -> Self {
        self.recorder.request_sent(&mut self.call, at, method, 100);
        self
    }

    fn answer(self, at: u64, method: Method, code: u16) -> Self {
        self.answer_with(at, method, code, false)
    }

    fn answer_with(mut self, at: u64, method: Method, code: u16, retry_after: bool) -> Self {
        self.recorder.response_received(&mut self.call, at, method, code, retry_after, 100);
        self
    }

    fn asked(mut self, at: u64, method: Method) -> Self {
        self.recorder.request_received(&mut self.call, at, method, 100);
        self
    }

    fn respond(mut self, at: u64, method: Method, code: u16) -> Self {
        self.recorder.response_sent(&mut self.call, at, method, code, 100);
        self
    }

    fn end(mut self, at: u64, outcome: CallOutcome) -> Page {
        self.recorder.call_ended(&mut self.call, at, outcome);
        assert_eq!(self.recorder.open(), 0);
        self.recorder.close(at + 1);
        self.collector.finish(|_| {})
    }
}

/// Checks that the page has this delay exactly once, or, for `None`, that it has no such delay.
#[track_caller]
fn delay(page: &Page, delay: Delay, want: impl Into<Option<u64>>) {
    let (found, want) = (page.delays(delay), want.into());
    assert_eq!(found.count(), u64::from(want.is_some()), "how often {}", delay.key());
    if let Some(want) = want {
        for figure in [found.mean().unwrap(), found.percentile(50.0).unwrap() as f64, found.most().unwrap() as f64] {
            assert!((figure - want as f64).abs() < MS as f64, "{}: {figure} µs, {want} expected", delay.key());
        }
    }
}

#[track_caller]
fn counts<const N: usize>(page: &Page, expected: [(Counter, u64); N]) {
    for (counter, want) in expected {
        assert_eq!(page.counter(counter), want, "{}", counter.key());
    }
}

/// Checks that every attempt has exactly one end.
#[track_caller]
fn balanced(page: &Page) {
    use Counter::*;
    let sum = |counters: &[Counter]| counters.iter().map(|counter| page.counter(*counter)).sum::<u64>();
    assert_eq!(
        page.counter(SessionAttempts),
        sum(&[
            SessionAnswered,
            SessionRedirected,
            SessionFailed,
            SessionTimedOut,
            SessionTransport,
            SessionChallenged,
            SessionAbandoned,
            SessionUnresolved,
        ])
    );
    assert_eq!(
        page.counter(RegistrationAttempts),
        sum(&[
            RegistrationSuccessful,
            RegistrationRedirected,
            RegistrationFailed,
            RegistrationTimedOut,
            RegistrationTransport,
            RegistrationChallenged,
            RegistrationAbandoned,
            RegistrationUnresolved,
        ])
    );
    assert_eq!(
        page.counter(CallsOutgoing) + page.counter(CallsIncoming),
        sum(&[CallsSuccessful, CallsFailed, CallsStopped])
    );
}

#[test]
fn a_call_that_rings_and_is_answered() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(12 * MS, Invite, 100)
        .answer(60 * MS, Invite, 180)
        .answer(90 * MS, Invite, 183)
        .answer(2_010 * MS, Invite, 200)
        .send(2_011 * MS, Ack)
        .send(32_010 * MS, Bye)
        .answer(32_025 * MS, Bye, 200)
        .end(32_025 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::Setup, 50 * MS);
    delay(&page, Delay::SetupIntended, 57 * MS);
    delay(&page, Delay::SetupFailed, None);
    delay(&page, Delay::FirstResponse, 2 * MS);
    delay(&page, Delay::Response, 2 * S);
    delay(&page, Delay::ResponseIntended, 2_007 * MS);
    delay(&page, Delay::TalkOriginating, 30 * S);
    delay(&page, Delay::Disconnect, 15 * MS);
    delay(&page, Delay::CallLength, 32_015 * MS);
    delay(&page, Delay::Lag, 7 * MS);
    counts(
        &page,
        [
            (Counter::SessionAttempts, 1),
            (Counter::SessionAnswered, 1),
            (Counter::SessionCompleted, 1),
            (Counter::MessagesSent, 3),
            (Counter::MessagesReceived, 5),
            (Counter::BytesSent, 300),
            (Counter::SessionForked, 0),
        ],
    );
    assert_eq!(page.responses_received().of(Invite, 180), 1);
    assert_eq!(page.requests_sent(Ack), 1);
}

#[test]
fn a_call_with_100_only_is_set_up_at_the_200() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(11 * MS, Invite, 100)
        .answer(310 * MS, Invite, 200)
        .end(400 * MS, CallOutcome::Successful);
    delay(&page, Delay::Setup, 300 * MS);
    delay(&page, Delay::Response, 300 * MS);
    delay(&page, Delay::FirstResponse, MS);
}

#[test]
fn a_challenge_is_within_the_attempt() {
    for challenge in [401, 407] {
        let page = Flow::outgoing()
            .send(10 * MS, Invite)
            .answer(30 * MS, Invite, challenge)
            .send(31 * MS, Ack)
            .send(32 * MS, Invite)
            .answer(50 * MS, Invite, 100)
            .answer(110 * MS, Invite, 183)
            .answer(210 * MS, Invite, 200)
            .end(300 * MS, CallOutcome::Successful);
        balanced(&page);
        delay(&page, Delay::Setup, 100 * MS);
        delay(&page, Delay::Response, 200 * MS);
        delay(&page, Delay::SetupFailed, None);
        delay(&page, Delay::FirstResponse, 20 * MS);
        counts(
            &page,
            [
                (Counter::SessionAttempts, 1),
                (Counter::SessionAnswered, 1),
                (Counter::SessionFailed, 0),
                (Counter::Challenges, 1),
            ],
        );
        assert_eq!(page.requests_sent(Invite), 2);
    }
}

#[test]
fn an_unanswered_challenge_is_neither_success_nor_failure() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(30 * MS, Invite, 407)
        .send(31 * MS, Ack)
        .end(32 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::SetupFailed, None);
    counts(&page, [(Counter::SessionChallenged, 1), (Counter::SessionFailed, 0)]);
}

#[test]
fn registration_includes_its_challenge() {
    let page = Flow::outgoing()
        .send(10 * MS, Register)
        .answer(25 * MS, Register, 401)
        .send(26 * MS, Register)
        .answer(27 * MS, Register, 100)
        .answer(52 * MS, Register, 200)
        .end(53 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::Registration, 42 * MS);
    delay(&page, Delay::RegistrationIntended, 49 * MS);
    counts(&page, [(Counter::RegistrationAttempts, 1), (Counter::RegistrationSuccessful, 1)]);
}

#[test]
fn registrations_that_fail_have_no_delay() {
    for (code, counter) in [
        (403, Counter::RegistrationFailed),
        (423, Counter::RegistrationFailed),
        (500, Counter::RegistrationFailed),
        (603, Counter::RegistrationFailed),
        (302, Counter::RegistrationRedirected),
    ] {
        let page = Flow::outgoing()
            .send(10 * MS, Register)
            .answer(25 * MS, Register, code)
            .end(53 * MS, CallOutcome::Failed(Failure::UnexpectedMessage));
        balanced(&page);
        delay(&page, Delay::Registration, None);
        counts(&page, [(counter, 1), (Counter::RegistrationSuccessful, 0), (Counter::RegistrationAbandoned, 0)]);
    }
    let page =
        Flow::outgoing().send(10 * MS, Register).end(32_010 * MS, CallOutcome::Failed(Failure::MaxUdpRetransmissions));
    balanced(&page);
    delay(&page, Delay::Registration, None);
    counts(&page, [(Counter::RegistrationTimedOut, 1), (Counter::RegistrationFailed, 0)]);
}

#[test]
fn a_refused_session_has_a_failed_delay_and_its_class() {
    for (code, effective, ineffective) in [(486, 1, 0), (480, 1, 0), (600, 1, 0), (603, 1, 0), (404, 0, 0)]
        .into_iter()
        .chain([(408, 0, 1), (500, 0, 1), (503, 0, 1), (504, 0, 1), (487, 0, 0)])
    {
        let page = Flow::outgoing()
            .send(10 * MS, Invite)
            .answer(11 * MS, Invite, 100)
            .answer(95 * MS, Invite, code)
            .send(96 * MS, Ack)
            .end(97 * MS, CallOutcome::Failed(Failure::UnexpectedMessage));
        balanced(&page);
        delay(&page, Delay::SetupFailed, 85 * MS);
        delay(&page, Delay::SetupFailedIntended, 92 * MS);
        delay(&page, Delay::Setup, None);
        delay(&page, Delay::Response, None);
        counts(
            &page,
            [
                (Counter::SessionFailed, 1),
                (Counter::SessionEffective, effective),
                (Counter::SessionIneffective, ineffective),
            ],
        );
    }
}

#[test]
fn a_session_that_rang_and_was_refused_failed_at_the_ringing() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(50 * MS, Invite, 180)
        .answer(9_000 * MS, Invite, 486)
        .end(9_001 * MS, CallOutcome::Successful);
    delay(&page, Delay::SetupFailed, 40 * MS);
    delay(&page, Delay::Setup, None);
}

#[test]
fn a_redirected_session_is_taken_out() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(20 * MS, Invite, 302)
        .send(21 * MS, Ack)
        .send(30 * MS, Invite)
        .answer(70 * MS, Invite, 200)
        .end(71 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::Setup, 40 * MS);
    delay(&page, Delay::SetupFailed, None);
    counts(
        &page,
        [
            (Counter::SessionAttempts, 2),
            (Counter::SessionRedirected, 1),
            (Counter::SessionAnswered, 1),
            (Counter::SessionForked, 0),
        ],
    );
}

#[test]
fn no_answer_at_all() {
    for failure in [Failure::MaxUdpRetransmissions, Failure::TimeoutOnReceive] {
        let page = Flow::outgoing()
            .send(10 * MS, Invite)
            .answer(12 * MS, Invite, 100)
            .end(32_010 * MS, CallOutcome::Failed(failure));
        balanced(&page);
        delay(&page, Delay::Setup, None);
        delay(&page, Delay::SetupFailed, None);
        counts(&page, [(Counter::SessionTimedOut, 1), (Counter::SessionFailed, 0)]);
        assert_eq!(page.failures(failure), 1);
    }
    let page = Flow::outgoing().send(10 * MS, Invite).end(11 * MS, CallOutcome::Failed(Failure::TcpConnect));
    balanced(&page);
    counts(&page, [(Counter::SessionTransport, 1), (Counter::SessionTimedOut, 0)]);
}

#[test]
fn the_end_of_the_run_is_no_failure() {
    let page = Flow::outgoing().send(10 * MS, Invite).answer(12 * MS, Invite, 180).end(500 * MS, CallOutcome::Stopped);
    balanced(&page);
    delay(&page, Delay::SetupFailed, None);
    counts(&page, [(Counter::SessionUnresolved, 1), (Counter::CallsStopped, 1), (Counter::CallsFailed, 0)]);
}

#[test]
fn the_called_side_has_books_of_its_own() {
    let page = Flow::incoming()
        .asked(10 * MS, Invite)
        .respond(11 * MS, Invite, 180)
        .respond(511 * MS, Invite, 200)
        .asked(520 * MS, Ack)
        .asked(10_511 * MS, Bye)
        .respond(10_512 * MS, Bye, 200)
        .end(10_512 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::TalkTerminating, 10 * S);
    delay(&page, Delay::TalkOriginating, None);
    delay(&page, Delay::Setup, None);
    counts(
        &page,
        [
            (Counter::CallsIncoming, 1),
            (Counter::IncomingSessions, 1),
            (Counter::IncomingAnswered, 1),
            (Counter::IncomingCompleted, 1),
            (Counter::SessionCompleted, 0),
            (Counter::SessionAttempts, 0),
        ],
    );
    assert_eq!((page.requests_received(Invite), page.responses_sent().of(Invite, 180)), (1, 1));

    let page = Flow::incoming()
        .asked(10 * MS, Invite)
        .respond(11 * MS, Invite, 407)
        .asked(12 * MS, Ack)
        .asked(20 * MS, Invite)
        .respond(30 * MS, Invite, 486)
        .end(31 * MS, CallOutcome::Successful);
    counts(&page, [(Counter::IncomingSessions, 1), (Counter::IncomingRefused, 1), (Counter::IncomingAnswered, 0)]);
}

#[test]
fn the_called_side_hangs_up() {
    let page = Flow::incoming()
        .asked(10 * MS, Invite)
        .respond(11 * MS, Invite, 200)
        .send(3_011 * MS, Bye)
        .answer(3_031 * MS, Bye, 200)
        .end(3_031 * MS, CallOutcome::Successful);
    delay(&page, Delay::TalkTerminating, 3 * S);
    delay(&page, Delay::Disconnect, 20 * MS);
    counts(&page, [(Counter::IncomingCompleted, 1)]);
}

#[test]
fn other_requests() {
    let page = Flow::outgoing()
        .send(10 * MS, Options)
        .answer(12 * MS, Options, 407)
        .send(13 * MS, Options)
        .answer(33 * MS, Options, 200)
        .send(40 * MS, Method::Message)
        .answer(41 * MS, Method::Message, 404)
        .send(50 * MS, Method::Info)
        .end(60 * MS, CallOutcome::Failed(Failure::TimeoutOnReceive));
    delay(&page, Delay::Request, 23 * MS);
    delay(&page, Delay::RequestIntended, 30 * MS);
    counts(
        &page,
        [
            (Counter::RequestAttempts, 3),
            (Counter::RequestSuccessful, 1),
            (Counter::RequestFailed, 1),
            (Counter::RequestTimedOut, 1),
        ],
    );
}

#[test]
fn register_then_call_is_intended_when_each_is() {
    let mut flow = Flow::outgoing().send(10 * MS, Register).answer(20 * MS, Register, 200);
    // A pause of a second should have ended at 1,020 ms; the generator came 4 ms late.
    flow.call.due(1_020 * MS);
    let page = flow
        .send(1_024 * MS, Invite)
        .answer(1_034 * MS, Invite, 503)
        .end(1_034 * MS, CallOutcome::Failed(Failure::UnexpectedMessage));
    balanced(&page);
    delay(&page, Delay::RegistrationIntended, 17 * MS);
    delay(&page, Delay::SetupFailed, 10 * MS);
    delay(&page, Delay::SetupFailedIntended, 14 * MS);
    counts(&page, [(Counter::SessionRegistered, 1), (Counter::SessionRegisteredAnswered, 0)]);
}

#[test]
fn time_outs_within_a_call_that_goes_on() {
    let mut flow = Flow::outgoing().send(10 * MS, Invite);
    flow.recorder.timed_out(&mut flow.call, 32_010 * MS, Invite);
    let page =
        flow.send(33_000 * MS, Invite).answer(33_100 * MS, Invite, 200).end(33_200 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::Setup, 100 * MS);
    counts(&page, [(Counter::SessionAttempts, 2), (Counter::SessionTimedOut, 1), (Counter::SessionAnswered, 1)]);
}

#[test]
fn a_stalled_server_loses_no_call_from_the_books() {
    // 1,000 calls a second for four seconds; the server answers within 1 ms, but not from 1.0 to 3.0 s. The generator
    // sends on time throughout, so every call of the stall waits for its end.
    let mut collector = Collector::new(Clock::new(0, SystemTime::now()), vec![], 1);
    let mut recorder = collector.recorder(0);
    let mut waiting = std::collections::VecDeque::new();
    let mut seconds = Vec::new();
    for ms in 0..=4_100 {
        let now = ms * MS;
        recorder.tick(now);
        if ms < 4_000 {
            recorder.calls_intended(1);
            let mut call = recorder.call_started(now, now, 0);
            recorder.request_sent(&mut call, now, Invite, 500);
            waiting.push_back((now + MS, call));
        }
        while !(1_000..3_000).contains(&ms) && waiting.front().is_some_and(|(due, _)| *due <= now) {
            let (_, mut call) = waiting.pop_front().unwrap();
            recorder.response_received(&mut call, now, Invite, 200, false, 500);
            recorder.call_ended(&mut call, now, CallOutcome::Successful);
        }
        collector.poll(now, |page| seconds.push(page.clone()));
    }
    recorder.close(4_100 * MS);
    let page = collector.finish(|page| seconds.push(page.clone()));
    balanced(&page);
    counts(
        &page,
        [(Counter::CallsIntended, 4_000), (Counter::CallsOutgoing, 4_000), (Counter::CallsSuccessful, 4_000)],
    );
    let delays = page.delays(Delay::ResponseIntended);
    assert_eq!(delays.count(), 4_000);
    assert!(delays.most().unwrap().abs_diff(2_000 * MS) <= 2 * MS);
    // Half of the calls waited, evenly from 0 to 2 s: three quarters of all waited less than a second.
    assert!(delays.percentile(75.0).unwrap().abs_diff(S) < 5 * MS, "{:?}", delays.percentile(75.0));
    assert!(page.peak >= 1_999 && page.open == 0, "{} {}", page.peak, page.open);
    assert_eq!(seconds.iter().map(|page| page.counter(Counter::CallsOutgoing)).sum::<u64>(), 4_000);
    assert_eq!(seconds.iter().map(|page| page.covered).sum::<u64>(), 4_100 * MS);
    assert!(seconds.windows(2).all(|pair| pair[0].second + 1 == pair[1].second));
}
