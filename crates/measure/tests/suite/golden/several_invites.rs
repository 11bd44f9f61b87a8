//! Several INVITEs of one call: forked, side by side, within the session.

use super::*;

#[test]
fn of_a_forked_session_the_first_200_counts() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(40 * MS, Invite, 180)
        .answer(45 * MS, Invite, 180)
        .answer(110 * MS, Invite, 200)
        .send(111 * MS, Ack)
        .answer(150 * MS, Invite, 200)
        .send(151 * MS, Ack)
        .send(1_110 * MS, Bye)
        .answer(1_120 * MS, Bye, 200)
        .end(1_121 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::Setup, 30 * MS);
    delay(&page, Delay::Response, 100 * MS);
    delay(&page, Delay::TalkOriginating, S);
    counts(&page, [(Counter::SessionAnswered, 1), (Counter::SessionForked, 1), (Counter::SessionCompleted, 1)]);
}

#[test]
fn two_invites_of_a_call_are_measured_side_by_side() {
    let mut flow = Flow::outgoing();
    let (recorder, call) = (&mut flow.recorder, &mut flow.call);
    recorder.invite_sent(call, 10 * MS, Attempt::Initial, 1, 100);
    assert!(!call.has_two());
    recorder.invite_sent(call, 30 * MS, Attempt::Initial, 2, 100);
    // The second rings and is refused; then the first is answered.
    for (at, invite, code) in [(50, 2, 180), (60, 1, 180), (100, 2, 486), (210, 1, 200)] {
        assert!(call.has_two());
        call.answers(invite);
        recorder.response_received(call, at * MS, Invite, code, false, 100);
    }
    let page = flow
        .send(211 * MS, Ack)
        .send(1_210 * MS, Bye)
        .answer(1_220 * MS, Bye, 200)
        .end(1_221 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::Setup, 50 * MS);
    delay(&page, Delay::SetupFailed, 20 * MS);
    delay(&page, Delay::Response, 200 * MS);
    delay(&page, Delay::TalkOriginating, S);
    let wanted = [(Counter::SessionAttempts, 2), (Counter::SessionAnswered, 1), (Counter::SessionFailed, 1)];
    counts(&page, wanted);
    counts(&page, [(Counter::SessionForked, 0), (Counter::SessionAbandoned, 0), (Counter::SessionCompleted, 1)]);
}

#[test]
fn two_invites_without_an_answer_are_two_attempts_in_vain() {
    let mut flow = Flow::outgoing();
    for invite in [1, 2] {
        flow.recorder.invite_sent(&mut flow.call, 10 * MS, Attempt::Initial, invite, 100);
    }
    let page = flow.end(500 * MS, CallOutcome::Failed(Failure::TimeoutOnReceive));
    balanced(&page);
    counts(&page, [(Counter::SessionAttempts, 2), (Counter::SessionTimedOut, 2), (Counter::SessionAbandoned, 0)]);
}

#[test]
fn a_challenged_invite_within_the_session_is_one() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(110 * MS, Invite, 200)
        .send(200 * MS, Invite)
        .answer(201 * MS, Invite, 401)
        .send(202 * MS, Invite)
        .answer(250 * MS, Invite, 200)
        .send(1_110 * MS, Bye)
        .answer(1_120 * MS, Bye, 200)
        .end(1_121 * MS, CallOutcome::Successful);
    balanced(&page);
    counts(&page, [(Counter::SessionModified, 1), (Counter::SessionForked, 0), (Counter::SessionAnswered, 1)]);
}

#[test]
fn an_invite_within_the_session_is_no_attempt() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(110 * MS, Invite, 200)
        .send(200 * MS, Invite)
        .answer(201 * MS, Invite, 100)
        .answer(250 * MS, Invite, 488)
        .send(1_110 * MS, Bye)
        .answer(1_120 * MS, Bye, 200)
        .end(1_121 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::Setup, 100 * MS);
    delay(&page, Delay::SetupFailed, None);
    counts(
        &page,
        [
            (Counter::SessionAttempts, 1),
            (Counter::SessionModified, 1),
            (Counter::SessionFailed, 0),
            (Counter::SessionForked, 0),
        ],
    );
}
