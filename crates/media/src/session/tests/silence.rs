//! Silence of peers.

use super::*;

/// A caller describes another host for its media, and its own one for RTCP.
#[test]
fn reports_of_another_host_than_that_of_the_media_keep_no_call() {
    let ends_by_silence = |rtcp: &str| {
        let mut order = relay();
        order.near.rtcp = Some(at(rtcp));
        let (mut call, mut report) = (Call::new(order), Vec::new());
        CompoundWriter::new(&mut report).receiver_report(8, &[]);
        (1..30).for_each(|second| call.hear_rtcp(second * 1_000, Side::Near, rtcp, &report));
        call.poll(TIMEOUT);
        let [SessionEvent::Silent { end: SessionEnd::Silence(side), .. }] = call.events()[..] else {
            panic!("the far side sends nothing")
        };
        side
    };
    assert_eq!([STRANGER, "192.0.2.1:4001"].map(ends_by_silence), [Side::Near, Side::Far]);
}

#[test]
fn packets_that_were_not_read_for_a_while_are_no_silence() {
    let mut call = Call::new(relay());
    call.session.begin_silence(20_000_000);
    // An earlier time changes nothing.
    call.session.begin_silence(10_000_000);
    for time in [TIMEOUT, TIMEOUT + 19_999_999] {
        call.poll(time);
        assert!(call.events().is_empty(), "{time}");
    }
    call.poll(TIMEOUT + 20_000_000);
    assert_eq!(call.events(), [SessionEvent::Silent { key: SessionKey(7), end: SessionEnd::Silence(Side::Near) }]);
}

#[test]
fn a_peer_that_never_had_to_send_is_not_silent() {
    let mut order = relay();
    order.near.sends = false;
    let mut call = Call::new(order.clone());
    assert!(!call.near().is_silent() && call.far().is_silent());
    // It resumes; a further hold does not make its silence right.
    order.near.sends = true;
    call.set(9_500, order.clone());
    assert_eq!((call.near().is_silent(), call.near().expected_since), (true, Some(9_500_000)));
    order.near.sends = false;
    call.set(12_000, order);
    let report = call.near();
    assert_eq!((report.is_silent(), report.is_expected, report.expected_since), (true, false, Some(9_500_000)));
}

/// RFC 3264 section 8.2: peers may remove all streams, and add others later. A session in which they add none is silent.
#[test]
fn a_session_without_an_open_stream_is_silent() {
    let mut call = Call::new(relay());
    let set = |call: &mut Call, time: u64, stream: Option<StreamOrder>| {
        call.session.set(moment(time), vec![stream], &mut call.random, &mut call.out);
        call.take();
    };
    let silent = [SessionEvent::Silent { key: SessionKey(7), end: SessionEnd::Silence(Side::Near) }];
    set(&mut call, 1_000_000, None);
    // The same order again changes nothing.
    set(&mut call, 9_000_000, None);
    assert_eq!(call.session.deadline(), Some(1_000_000 + TIMEOUT));
    call.poll(TIMEOUT);
    assert_eq!(call.events(), []);
    for time in [1_000_000 + TIMEOUT, 1_000_000 + 2 * TIMEOUT] {
        call.poll(time);
        assert_eq!(call.events(), silent, "{time}");
    }
    // A stream is open again.
    let mut held = relay();
    held.near.sends = false;
    held.far = held.far.map(|far| StreamPeer { sends: false, ..far });
    set(&mut call, 2_000_000 + 2 * TIMEOUT, Some(held));
    call.poll(9 * TIMEOUT);
    assert_eq!(call.events(), [], "a hold is no silence");
}

#[test]
fn a_session_that_begins_without_an_open_stream_is_silent() {
    for timeout in [Some(TIMEOUT), None] {
        let mut call = Call::new(relay());
        call.session = Session::new(0, SessionKey(7), timeout, vec![None, None], &mut call.random);
        call.poll(TIMEOUT);
        assert_eq!(call.events().len(), usize::from(timeout.is_some()));
    }
}
