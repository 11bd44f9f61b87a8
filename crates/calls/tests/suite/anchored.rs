//! Calls that a role anchors: records, limits, list, kept state and ends come from the table.

use crate::role::{FAR_CALL_ID, LIFETIME, Site, line};
use strowger_calls::{CallState, Context, OwnRequest};
use strowger_core::notice::{NoticeEvent, Party};
use strowger_core::{ListenerId, Target, Transport};
use strowger_store::accounting::MediaQuality;

/// Sets up an anchored call that bob answers.
fn answered(site: &mut Site) -> u64 {
    let context = site.begin("1");
    site.wait(1_000);
    site.respond("1", context, 180);
    site.wait(2_000);
    site.respond("1", context, 200);
    context
}

/// Returns the contexts of the BYEs that the role is to send, to the caller and to the callee.
#[track_caller]
fn byes(site: &mut Site) -> [u64; 2] {
    let orders = site.orders();
    let [(caller, Party::Caller, OwnRequest::Bye), (callee, Party::Callee, OwnRequest::Bye)] = orders[..] else {
        panic!("{orders:?}")
    };
    [caller, callee]
}

#[test]
fn an_operator_ends_an_anchored_call_on_both_legs() {
    let mut site = Site::new();
    let context = site.begin("1");
    assert_eq!((site.list()[0].state, &site.list()[0].caller[..]), (CallState::Calling, &b"sip:alice@example.org"[..]));
    assert_eq!(site.invite("2"), Context::Limited(line()), "it counts under its limit");
    site.wait(1_000);
    site.respond("1", context, 180);
    assert_eq!(site.list()[0].state, CallState::Ringing);
    site.wait(2_000);
    site.respond("1", context, 200);
    let view = site.list().remove(0);
    assert_eq!((view.state, view.age, view.answered), (CallState::Answered, 3_000, Some(0)));
    assert_eq!(view.dialogs[0].contact, b"sip:192.0.2.1");
    assert!(site.kept.is_some(), "an answered call is kept");

    site.wait(5_000);
    assert!(site.work(|calls, env| calls.end_call(env, view.id)));
    let [caller, callee] = byes(&mut site);
    assert_eq!((site.list()[0].state, &site.cancelled[..]), (CallState::Ending, &[context][..]));
    site.confirm(caller);
    assert_eq!((site.list().len(), site.limits.calls(&line().counted)), (1, 1), "the callee has not ended it");
    site.confirm(callee);
    assert_eq!((site.list().len(), site.limits.calls(&line().counted)), (0, 0));
    assert!(site.kept.is_none() && site.calls.is_empty());
    let record = site.record();
    assert_eq!((&*record.outcome, &*record.ended_by, record.status), ("answered", "operator", 200));
    assert_eq!((record.ring, record.answer), (Some(record.setup + 1_000), Some(record.setup + 3_000)));
    assert_eq!((record.end, &*record.codecs), (Some(record.setup + 8_000), "PCMA"));
    assert_eq!(record.call_id, "", "the policy names none");
}

#[test]
fn the_party_that_hangs_up_ends_the_record() {
    for (by, peer, name) in [(Party::Caller, Party::Callee, "caller"), (Party::Callee, Party::Caller, "callee")] {
        let mut site = Site::new();
        let context = answered(&mut site);
        site.wait(4_000);
        site.emit(context, NoticeEvent::HungUp { by, cause: Some(31) });
        let orders = site.orders();
        let [(bye, party, OwnRequest::Bye)] = orders[..] else { panic!("{orders:?}") };
        assert_eq!(party, peer, "the party itself gets none");
        site.wait(700);
        site.confirm(bye);
        let record = site.record();
        assert_eq!((&*record.ended_by, record.cause), (name, 31));
        assert_eq!(record.end, Some(record.setup + 7_000), "not when the peer has answered");
        assert!(site.calls.is_empty());
    }
}

#[test]
fn byes_of_both_parties_may_cross() {
    let mut site = Site::new();
    let context = answered(&mut site);
    site.emit(context, NoticeEvent::HungUp { by: Party::Caller, cause: None });
    assert_eq!(site.orders().len(), 1);
    site.emit(context, NoticeEvent::HungUp { by: Party::Callee, cause: None });
    assert!(site.orders().is_empty() && site.calls.is_empty());
    assert_eq!((&*site.record().ended_by, site.record().cause), ("caller", 16));
}

#[test]
fn a_refused_call_has_its_record() {
    let mut site = Site::new();
    let context = site.begin("1");
    let gateway = Target::new(Transport::Udp, ListenerId(0), "192.0.2.9:5060".parse().expect("an address"));
    site.emit(context, NoticeEvent::Refused { status: 486, by: Some(gateway) });
    site.respond("1", context, 486);
    let record = site.record();
    assert_eq!((&*record.outcome, &*record.ended_by, &*record.gateway), ("missed", "callee", "192.0.2.9:5060"));
    assert_eq!((record.status, record.cause, record.attempts), (486, 17, 1));
    assert_eq!((site.calls.is_empty(), site.limits.calls(&line().counted)), (true, 0));
}

#[test]
fn a_cancelled_call_has_its_record() {
    let mut site = Site::new();
    let context = site.begin("1");
    site.emit(context, NoticeEvent::Cancelled);
    site.respond("1", context, 487);
    assert_eq!((&*site.record().outcome, &*site.record().ended_by), ("cancelled", "caller"));
}

#[test]
fn the_first_callee_that_answers_has_the_dialog() {
    let mut site = Site::new();
    let context = site.begin("1");
    let at = |last: u8| Target::new(Transport::Udp, ListenerId(0), ([192, 0, 2, last], 5060).into());
    site.respond_as("b", 2, ("far", context, 180));
    site.respond_as("a", 1, ("far", context, 180));
    assert_eq!(site.list()[0].dialogs.len(), 2);
    site.emit(context, NoticeEvent::Refused { status: 503, by: Some(at(7)) });
    site.emit(context, NoticeEvent::TimedOut { target: Some(at(8)) });
    site.wait(1_000);
    site.respond_as("a", 1, ("far", context, 200));
    site.emit(context, NoticeEvent::BranchEnded { branch: 2 });
    // The role ends the dialogs of others that answer, and copies of a 2xx change nothing.
    site.respond_as("b", 2, ("far", context, 200));
    site.respond_as("a", 2, ("far", context, 200));
    site.emit(context, NoticeEvent::Ended);
    let view = site.list().remove(0);
    assert_eq!((view.state, view.dialogs.len(), &view.dialogs[0].tag[..]), (CallState::Answered, 1, &b"a"[..]));
    assert_eq!((&view.call_id[..], &view.far_call_id[..]), (&b"1"[..], FAR_CALL_ID));

    site.emit(context, NoticeEvent::HungUp { by: Party::Callee, cause: None });
    let orders = site.orders();
    let [(bye, Party::Caller, OwnRequest::Bye)] = orders[..] else { panic!("{orders:?}") };
    site.confirm(bye);
    assert_eq!((&*site.record().ended_by, site.record().attempts), ("callee", 3));
    assert_eq!(site.record().far_call_id.as_bytes(), FAR_CALL_ID);
    assert!(site.calls.is_empty());
}

#[test]
fn an_anchored_call_ends_at_its_lifetime() {
    let mut site = Site::new();
    answered(&mut site);
    let due = site.calls.deadline().expect("a deadline");
    assert!(due >= site.now.mono + LIFETIME);
    site.wait(due - site.now.mono);
    assert!(site.work(|calls, env| calls.end_due(env)));
    // The callee refuses the first BYE, and gets another BYE.
    let [caller, callee] = byes(&mut site);
    site.confirm(caller);
    site.calls.set_responded(Some("192.0.2.9:5060".parse().expect("an address")));
    site.emit(callee, NoticeEvent::Exhausted { status: 500, bytes: 0..0 });
    site.calls.set_responded(None);
    assert!(site.orders().is_empty() && !site.calls.is_empty());
    site.wait(600);
    while site.work(|calls, env| calls.end_due(env)) {}
    let orders = site.orders();
    let [(again, Party::Callee, OwnRequest::Bye)] = orders[..] else { panic!("{orders:?}") };
    site.confirm(again);
    assert_eq!((&*site.record().ended_by, site.calls.is_empty()), ("lifetime", true));
}

#[test]
fn an_anchored_call_continues_in_the_next_process() {
    let mut site = Site::new();
    answered(&mut site);
    site.wait(3_000);
    site.restart();
    assert_eq!((site.list()[0].state, site.list()[0].answered), (CallState::Answered, Some(4_000)));
    assert_eq!(site.limits.calls(&line().counted), 1);
    // The table doubts the calls of an earlier process, so it orders the role to ask on both legs.
    let due = site.calls.deadline().expect("a deadline");
    site.wait(due - site.now.mono);
    assert!(site.work(|calls, env| calls.end_due(env)));
    let orders = site.orders();
    let [(caller, Party::Caller, OwnRequest::Question), (callee, Party::Callee, OwnRequest::Question)] = orders[..]
    else {
        panic!("{orders:?}")
    };
    site.confirm(caller);
    assert!(site.orders().is_empty());
    // The callee has lost its dialog.
    site.calls.set_responded(Some("192.0.2.9:5060".parse().expect("an address")));
    site.emit(callee, NoticeEvent::Exhausted { status: 481, bytes: 0..0 });
    site.calls.set_responded(None);
    let [caller, _] = byes(&mut site);
    site.confirm(caller);
    assert_eq!((&*site.record().ended_by, site.calls.is_empty()), ("lost", true));
    assert_eq!(site.limits.calls(&line().counted), 0);
}

#[test]
fn a_call_that_its_role_has_lost_ends() {
    let mut site = Site::new();
    answered(&mut site);
    site.restart();
    let due = site.calls.deadline().expect("a deadline");
    site.wait(due - site.now.mono);
    assert!(site.work(|calls, env| calls.end_due(env)));
    let orders = site.orders();
    let [(caller, Party::Caller, OwnRequest::Question), _] = orders[..] else { panic!("{orders:?}") };
    // The role of the next process answers: no party has said so.
    site.emit(caller, NoticeEvent::Exhausted { status: 481, bytes: 0..0 });
    for bye in byes(&mut site) {
        site.emit(bye, NoticeEvent::Exhausted { status: 481, bytes: 0..0 });
    }
    assert_eq!((&*site.record().ended_by, site.calls.is_empty()), ("lost", true));
    assert_eq!(site.limits.calls(&line().counted), 0);
}

/// Quality of the media of a party.
fn heard(packets: u64) -> Option<MediaQuality> {
    Some(MediaQuality { packets, lost: 2, rating: Some(9_320), score: Some(441), ..MediaQuality::default() })
}

/// Sets up a call, and ends it by a BYE of the caller while its media session is being closed. Returns its key.
fn ended_with_media(site: &mut Site) -> u64 {
    let context = answered(site);
    let key = site.list()[0].id;
    site.wait(4_000);
    site.work(|calls, _| calls.await_media(key));
    site.emit(context, NoticeEvent::HungUp { by: Party::Caller, cause: None });
    let orders = site.orders();
    let [(bye, Party::Callee, OwnRequest::Bye)] = orders[..] else { panic!("{orders:?}") };
    site.confirm(bye);
    key
}

#[test]
fn the_record_of_a_call_with_media_waits_for_their_quality() {
    let mut site = Site::new();
    let key = ended_with_media(&mut site);
    assert!(site.calls.is_empty() && site.rows.is_empty() && site.kept.is_some());
    assert_eq!(site.limits.calls(&line().counted), 0, "the call has ended");
    site.wait(5);
    site.work(|calls, _| calls.media_ended(key, [heard(50), None]));
    let record = site.record();
    assert_eq!((record.media, record.end), ([heard(50), None], Some(record.setup + 7_000)));
    assert!(site.kept.is_none() && site.calls.deadline().is_none());
}

#[test]
fn a_record_waits_for_a_second_at_most() {
    let mut site = Site::new();
    let key = ended_with_media(&mut site);
    assert_eq!(site.calls.deadline(), Some(site.now.mono + 1_000));
    site.wait(999);
    assert!(!site.work(|calls, env| calls.end_due(env)) && site.rows.is_empty());
    site.wait(1);
    assert!(site.work(|calls, env| calls.end_due(env)));
    assert_eq!((site.record().media, &*site.record().ended_by), ([None; 2], "caller"));
    // A report that comes later belongs to no call.
    site.work(|calls, _| calls.media_ended(key, [heard(50), None]));
    assert_eq!(site.rows.len(), 1);
}

#[test]
fn media_may_end_before_their_call() {
    let mut site = Site::new();
    let context = answered(&mut site);
    let key = site.list()[0].id;
    site.work(|calls, _| calls.await_media(key));
    site.work(|calls, _| calls.media_ended(key, [heard(3), heard(4)]));
    for by in [Party::Caller, Party::Callee] {
        site.emit(context, NoticeEvent::HungUp { by, cause: None });
    }
    assert_eq!((site.record().media, site.calls.is_empty()), ([heard(3), heard(4)], true));
}

#[test]
fn the_end_of_the_process_waits_for_no_media() {
    let mut site = Site::new();
    ended_with_media(&mut site);
    site.work(|calls, env| calls.cut_off_accounts(env.now));
    assert_eq!((&*site.record().outcome, &*site.record().ended_by), ("answered", "caller"));
}
