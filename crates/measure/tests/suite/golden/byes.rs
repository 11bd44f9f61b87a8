//! Ends of sessions by either side.

use super::*;

#[test]
fn a_bye_without_answer_fails_with_timer_f() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(20 * MS, Invite, 200)
        .send(1_020 * MS, Bye)
        .end(33_020 * MS, CallOutcome::Failed(Failure::MaxUdpRetransmissions));
    balanced(&page);
    delay(&page, Delay::Disconnect, None);
    delay(&page, Delay::DisconnectFailed, 32 * S);
    delay(&page, Delay::TalkFailed, 33 * S);
    delay(&page, Delay::TalkOriginating, None);
    counts(&page, [(Counter::DisconnectTimedOut, 1), (Counter::SessionCompleted, 0), (Counter::SessionTimedOut, 0)]);
}

#[test]
fn a_bye_may_be_challenged_or_asked_to_come_back() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(20 * MS, Invite, 200)
        .send(1_020 * MS, Bye)
        .answer(1_030 * MS, Bye, 407)
        .send(1_031 * MS, Bye)
        .answer_with(1_040 * MS, Bye, 503, true)
        .send(2_040 * MS, Bye)
        .answer(2_060 * MS, Bye, 200)
        .end(2_060 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::Disconnect, 1_040 * MS);
    delay(&page, Delay::DisconnectFailed, None);
    delay(&page, Delay::TalkOriginating, S);
    counts(
        &page,
        [(Counter::DisconnectAttempts, 1), (Counter::DisconnectSuccessful, 1), (Counter::SessionCompleted, 1)],
    );

    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(20 * MS, Invite, 200)
        .send(1_020 * MS, Bye)
        .answer(1_030 * MS, Bye, 481)
        .end(1_030 * MS, CallOutcome::Successful);
    delay(&page, Delay::DisconnectFailed, 10 * MS);
    delay(&page, Delay::TalkOriginating, S);
    counts(&page, [(Counter::DisconnectFailed, 1), (Counter::SessionCompleted, 0)]);
}

#[test]
fn the_other_side_hangs_up() {
    let page = Flow::outgoing()
        .send(10 * MS, Invite)
        .answer(20 * MS, Invite, 200)
        .asked(5_020 * MS, Bye)
        .respond(5_021 * MS, Bye, 200)
        .end(5_021 * MS, CallOutcome::Successful);
    balanced(&page);
    delay(&page, Delay::TalkOriginating, 5 * S);
    delay(&page, Delay::Disconnect, None);
    counts(&page, [(Counter::SessionCompleted, 1), (Counter::IncomingCompleted, 0)]);
}
