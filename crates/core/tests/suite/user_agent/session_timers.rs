//! Session timers (RFC 4028).

use super::rig::*;

use strowger_core::user_agent::{CallKey, Capabilities, Ending, Event, SessionTimerSettings, UserAgentSettings};

const CHANGED: &[u8] = b"v=0\r\no=a 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=inactive\r\n";

fn with(session_timer: SessionTimerSettings) -> UserAgentSettings {
    let capabilities = Capabilities { session_timer: Some(session_timer), ..Capabilities::default() };
    UserAgentSettings { capabilities, ..quiet() }
}

/// Returns settings of a phone that asks for this session interval.
fn timed(interval: u32) -> UserAgentSettings {
    with(SessionTimerSettings { interval, ..SessionTimerSettings::default() })
}

/// Returns settings of such a phone without UPDATE.
fn without_update(interval: u32) -> UserAgentSettings {
    let mut settings = timed(interval);
    settings.capabilities.allow = b"INVITE, ACK, CANCEL, BYE, PRACK".to_vec();
    settings
}

/// Returns the last message that starts so.
fn sent(net: &Net, start: &str) -> String {
    net.sent.iter().rev().find(|text| text.starts_with(start)).unwrap_or_else(|| panic!("{start}")).clone()
}

fn has(text: &str, line: &str) -> bool {
    text.contains(&format!("\r\n{line}\r\n"))
}

fn count(net: &Net, n: usize, is: impl Fn(&Event) -> bool) -> usize {
    net.phones[n].heard.iter().filter(|heard| is(&heard.event)).count()
}

/// Lets phone 1 answer the re-INVITE that it has just received.
fn grant(net: &mut Net, callee: CallKey) {
    assert!(matches!(net.last(1).event, Event::Offered { update: false, .. }), "{:?}", net.last(1).event);
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(50);
}

fn end(mut net: Net, call: CallKey) {
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.run(100);
    net.is_clean();
}

/// Sections 7.1, 7.2, 7.4, 9 and 10: the caller refreshes by UPDATE without offer when half of the interval is over, again and again.
#[test]
fn the_caller_refreshes_the_session() {
    let mut net = Net::new([timed(1_800), timed(3_600)]);
    let (caller, _) = net.up();
    let (invite, ok) = (sent(&net, "INVITE"), sent(&net, "SIP/2.0 200"));
    assert!(has(&invite, "Supported: 100rel, timer") && has(&invite, "Session-Expires: 1800"), "{invite}");
    assert!(!invite.contains("Min-SE"));
    assert!(has(&ok, "Supported: 100rel, timer") && has(&ok, "Require: timer"), "{ok}");
    assert!(has(&ok, "Session-Expires: 1800;refresher=uac"), "{ok}");
    net.run(899_900);
    assert!(net.log.is_empty(), "{:?}", net.log);
    for turn in 1..4 {
        net.run(200);
        assert_eq!(net.log, ["0>1 UPDATE", "1>0 200 UPDATE"], "{turn}");
        let (update, ok) = (sent(&net, "UPDATE"), sent(&net, "SIP/2.0 200"));
        assert!(has(&update, "Session-Expires: 1800;refresher=uac") && has(&update, "Supported: 100rel, timer"));
        assert!(update.ends_with("\r\nContent-Length: 0\r\n\r\n"), "{update}");
        assert!(has(&ok, "Session-Expires: 1800;refresher=uac") && has(&ok, "Require: timer"), "{ok}");
        for n in 0..2 {
            assert_eq!(count(&net, n, |event| matches!(event, Event::Refreshed { .. })), turn);
        }
        net.log.clear();
        net.run(899_800 + 20 * turn as u64);
    }
    assert_eq!(count(&net, 0, |event| matches!(event, Event::Changed { .. })), 0);
    end(net, caller);
}

/// Section 9: the callee refreshes if it wants to, and its refresh names itself.
#[test]
fn the_callee_refreshes_the_session() {
    let own = SessionTimerSettings { interval: 600, least: 200, refreshes: true };
    let mut net = Net::new([timed(1_800), with(own)]);
    let (caller, _) = net.up();
    // It has shortened the interval of the caller.
    assert!(has(&sent(&net, "SIP/2.0 200"), "Session-Expires: 600;refresher=uas"));
    net.run(300_000);
    assert_eq!(net.log, ["1>0 UPDATE", "0>1 200 UPDATE"]);
    assert!(
        has(&sent(&net, "UPDATE"), "Session-Expires: 600;refresher=uac") && has(&sent(&net, "UPDATE"), "Min-SE: 200")
    );
    assert!(has(&sent(&net, "SIP/2.0 200"), "Session-Expires: 600;refresher=uac"));
    end(net, caller);
}

/// Section 7.4, RFC 3264 section 8: without UPDATE a re-INVITE repeats the description in force, byte by byte: the version of its o= line
/// shows that nothing has changed.
#[test]
fn a_refresh_by_re_invite_repeats_the_description() {
    let mut net = Net::new([timed(600), without_update(600)]);
    let (caller, callee) = net.up();
    net.run(300_000);
    assert!(sent(&net, "INVITE").ends_with(std::str::from_utf8(OFFER).unwrap()), "{}", sent(&net, "INVITE"));
    assert!(has(&sent(&net, "INVITE"), "Session-Expires: 600;refresher=uac"));
    grant(&mut net, callee);
    assert!(matches!(net.last(0).event, Event::Changed { .. }));
    // After a change the new one is repeated; after a refused change still that.
    net.with(0, |agent, round| agent.reinvite(round, caller, CHANGED)).unwrap();
    net.run(20);
    grant(&mut net, callee);
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(20);
    net.with(1, |agent, round| agent.reject(round, callee, 488));
    net.run(50);
    net.sent.clear();
    net.run(300_000);
    assert!(sent(&net, "INVITE").ends_with(std::str::from_utf8(CHANGED).unwrap()), "{}", sent(&net, "INVITE"));
    grant(&mut net, callee);
    end(net, caller);
}

/// RFC 3264 section 8: an UPDATE without offer ends no exchange, whether its refusal comes before or after the answer to an open re-INVITE.
#[test]
fn an_update_without_offer_leaves_the_open_offer() {
    for is_late in [false, true] {
        let mut net = Net::new([timed(600), without_update(600)]);
        let (caller, callee) = net.up();
        let mut lost = !is_late;
        net.lose = Box::new(move |line| line == "0>1 UPDATE" && !std::mem::replace(&mut lost, true));
        net.with(0, |agent, round| agent.reinvite(round, caller, CHANGED)).unwrap();
        net.run(20);
        net.with(0, |agent, round| agent.update(round, caller, b"")).unwrap();
        net.run(50);
        assert_eq!(net.log.contains(&"1>0 405 UPDATE".to_owned()), !is_late, "{:?}", net.log);
        grant(&mut net, callee);
        net.run(1_000);
        assert!(net.log.contains(&"1>0 405 UPDATE".to_owned()), "{:?}", net.log);
        // No offer is open, and the new description is in force.
        net.with(1, |agent, round| agent.reinvite(round, callee, OFFER)).unwrap();
        net.run(20);
        assert!(matches!(net.last(0).event, Event::Offered { .. }), "{:?}", net.log);
        net.with(0, |agent, round| agent.reject(round, caller, 488));
        net.run(50);
        net.sent.clear();
        net.run(300_000);
        assert!(sent(&net, "INVITE").ends_with(std::str::from_utf8(CHANGED).unwrap()), "{}", sent(&net, "INVITE"));
        grant(&mut net, callee);
        end(net, caller);
    }
}

/// Section 7.4: a callee that refreshes by re-INVITE repeats its answer.
#[test]
fn a_callee_repeats_its_answer() {
    let own = SessionTimerSettings { refreshes: true, ..SessionTimerSettings::default() };
    let mut net = Net::new([without_update(1_800), with(own)]);
    let (caller, callee) = net.up();
    net.run(900_000);
    assert!(sent(&net, "INVITE").ends_with(std::str::from_utf8(ANSWER).unwrap()), "{}", sent(&net, "INVITE"));
    net.with(0, |agent, round| agent.answer(round, caller, OFFER));
    net.run(50);
    assert!(matches!(net.last(1).event, Event::Changed { call, .. } if call == callee));
    end(net, caller);
}

/// Sections 7.3 and 9: an interval that is too short for the callee is refused by 422; the caller tries again with its Min-SE, as the same
/// call, and asks for no less later.
#[test]
fn an_interval_that_is_too_short_is_raised() {
    let mut net = Net::new([timed(300), with(SessionTimerSettings { least: 700, ..SessionTimerSettings::default() })]);
    let caller = net.call(OFFER);
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 422 INVITE", "0>1 ACK", "0>1 INVITE"]);
    assert!(has(&sent(&net, "SIP/2.0 422"), "Min-SE: 700"));
    let (first, again) = (net.sent[0].clone(), sent(&net, "INVITE"));
    for line in ["Session-Expires: 700", "Min-SE: 700", "CSeq: 2 INVITE"] {
        assert!(has(&again, line), "{line}: {again}");
    }
    let line = |text: &str, name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    for same in ["Call-ID", "From", "To", "Contact"] {
        assert_eq!(line(&again, same), line(&first, same));
    }
    assert!(again.ends_with(std::str::from_utf8(OFFER).unwrap()) && line(&again, "Via") != line(&first, "Via"));
    let callee = net.invited(1);
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(50);
    net.log.clear();
    net.run(350_000);
    assert_eq!(net.log, ["0>1 UPDATE", "1>0 200 UPDATE"]);
    assert!(
        has(&sent(&net, "UPDATE"), "Session-Expires: 700;refresher=uac") && has(&sent(&net, "UPDATE"), "Min-SE: 700")
    );
    end(net, caller);
}

/// Section 7.3: a 422 that demands no longer interval, and one after the caller has given up, end the call.
#[test]
fn a_422_without_sense_ends_the_call() {
    for (least, gives_up) in [("Min-SE: 100\r\n", false), ("", false), ("Min-SE: 900\r\n", true)] {
        let mut net = Net::new([timed(300)]);
        let target = net.target(8);
        let call = net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
        if gives_up {
            net.with(0, |agent, round| agent.hang_up(round, call));
        }
        let refused = respond(&net.sent[0], 422, least);
        net.inject(0, &refused);
        assert_eq!(net.log, ["0>? INVITE", "0>? ACK"], "{least:?}");
        let expected = match gives_up {
            true => Event::Ended { call, by: Ending::Local },
            false => Event::Failed { call, status: 422, local: false },
        };
        assert_eq!(net.last(0).event, expected);
        net.is_clean();
    }
}

/// Section 10: a session that is not refreshed is ended by BYE, the smaller of 32 s and a third of the interval before its end; so is one
/// whose refresher gets no answer.
#[test]
fn a_session_that_is_not_refreshed_is_ended() {
    for (interval, end) in [(1_800, 1_768), (90, 60)] {
        let mut net = Net::new([timed(interval), timed(interval)]);
        let (caller, callee) = net.up();
        net.lose = Box::new(|line| line.starts_with("0>1 UPDATE") || line.starts_with("0>1 BYE"));
        // The answer left at 20 ms, and half of the interval later the caller gives up after 32 s.
        net.run(end * 1_000 - 200);
        assert!(!net.log.contains(&"1>0 BYE".to_owned()), "{interval}: {:?}", net.log);
        net.run(400);
        assert!(net.log.contains(&"1>0 BYE".to_owned()), "{interval}: {:?}", net.log);
        assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Expired });
        assert!(count(&net, 0, |event| matches!(event, Event::Ended { call, .. } if *call == caller)) == 1);
        net.is_clean();
    }
}

/// Section 10: a refresher whose refreshes are refused ends the session at the same moment.
#[test]
fn a_session_whose_refreshes_are_refused_is_ended() {
    let mut net = Net::new([timed(600), without_update(600)]);
    let (caller, callee) = net.up();
    // The callee, who began to wait a moment earlier, is not heard.
    net.lose = Box::new(|line| line == "1>0 BYE");
    let mut refreshes = 0;
    // Steps of 10 ms for 15 minutes, half as long again as the interval.
    for _ in 0..90_000 {
        if net.phones[0].endpoint.agent.calls() == 0 {
            break;
        }
        net.run(10);
        if matches!(net.last(1).event, Event::Offered { .. }) {
            refreshes += 1;
            net.with(1, |agent, round| agent.reject_with(round, callee, 503, b"Retry-After: 100\r\n"));
            net.phones[1].heard.pop();
        }
    }
    assert_eq!(refreshes, 3, "after 300, 400 and 500 s");
    assert_eq!(count(&net, 0, |event| matches!(event, Event::Unchanged { .. })), 0, "the owner asked for nothing");
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Expired });
    net.is_clean();
}

/// Section 10: so is one whose refresh by re-INVITE gets no more than a 100; the re-INVITE is cancelled.
#[test]
fn a_session_whose_refresh_is_never_answered_is_ended() {
    let mut net = Net::new([timed(600), UserAgentSettings { trying: true, ..without_update(600) }]);
    let (caller, _) = net.up();
    net.run(301_000);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 100 INVITE"]);
    net.lose = Box::new(|line| line.starts_with("1>0"));
    net.run(365_000);
    assert!(net.log.contains(&"0>1 CANCEL".to_owned()), "{:?}", net.log);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Expired });
    net.is_clean();
}

/// RFC 3261 section 14.1: a refresh that crosses a change of the other side is refused with 491, and sent again later.
#[test]
fn a_refresh_in_glare_is_sent_again() {
    let mut net = Net::new([timed(600), without_update(600)]);
    let (caller, callee) = net.up();
    let due = net.phones[0].endpoint.agent.deadline().expect("a refresh");
    net.run(due - net.now.mono - 5);
    net.with(1, |agent, round| agent.reinvite(round, callee, OFFER)).unwrap();
    net.run(100);
    assert_eq!(net.log.iter().filter(|line| line.contains(" 491 ")).count(), 2, "{:?}", net.log);
    assert!(matches!(net.last(1).event, Event::Unchanged { status: 491, .. }));
    assert_eq!(count(&net, 0, |event| matches!(event, Event::Unchanged { .. })), 0);
    net.log.clear();
    net.run(4_000);
    assert_eq!(net.log[0], "0>1 INVITE");
    grant(&mut net, callee);
    end(net, caller);
}

/// Section 7.4: a refresh waits for another change of the session, which may refresh it itself.
#[test]
fn a_change_under_way_delays_the_refresh() {
    let mut net = Net::new([timed(600), timed(600)]);
    let (caller, callee) = net.up();
    net.run(290_000);
    net.with(0, |agent, round| agent.reinvite(round, caller, CHANGED)).unwrap();
    net.run(20_000);
    assert!(!net.log.contains(&"0>1 UPDATE".to_owned()), "{:?}", net.log);
    grant(&mut net, callee);
    net.log.clear();
    net.run(299_000);
    assert!(net.log.is_empty(), "the change has refreshed the session: {:?}", net.log);
    net.run(2_000);
    assert_eq!(net.log, ["0>1 UPDATE", "1>0 200 UPDATE"]);
    end(net, caller);
}

/// RFC 3311 section 5.2: a peer that refuses UPDATE is asked by re-INVITE.
#[test]
fn a_refused_update_becomes_a_re_invite() {
    let mut net = Net::new([timed(600), timed(600)]);
    let (caller, callee) = net.up();
    net.with(1, |agent, _| {
        let allow = b"INVITE, ACK, CANCEL, BYE".to_vec();
        let session_timer = Some(SessionTimerSettings::default());
        agent.set_capabilities(callee, Capabilities { allow, session_timer, ..Capabilities::default() });
    });
    net.run(300_100);
    assert_eq!(net.log[..3], ["0>1 UPDATE", "1>0 405 UPDATE", "0>1 INVITE"]);
    grant(&mut net, callee);
    end(net, caller);
}

/// Sections 7.2 and 9: a caller without session timers has the callee refresh; a callee without them, no side.
#[test]
fn one_side_may_lack_session_timers() {
    let mut net = Net::new([quiet(), timed(600)]);
    let (caller, _) = net.up();
    let ok = sent(&net, "SIP/2.0 200");
    assert!(has(&ok, "Session-Expires: 600;refresher=uas") && !ok.contains("\r\nRequire:"), "{ok}");
    net.run(300_000);
    assert_eq!(net.log, ["1>0 UPDATE", "0>1 200 UPDATE"]);
    // The caller grants none, and is asked again nevertheless.
    net.run(300_100);
    assert_eq!(net.log.len(), 4, "{:?}", net.log);
    end(net, caller);
    let mut net = Net::new([timed(600), quiet()]);
    let (caller, _) = net.up();
    net.run(1_000_000);
    assert!(net.log.is_empty());
    end(net, caller);
}

/// Section 9: without session timers, the option tag is unknown.
#[test]
fn a_telephone_without_session_timers_refuses_them() {
    let mut net = Net::new([quiet()]);
    let lines = "Contact: <sip:x@127.0.0.99>\nRequire: timer\nSession-Expires: 600\n";
    net.inject(0, &request("INVITE", 1, "", lines, ""));
    assert!(net.sent[0].starts_with("SIP/2.0 420 ") && has(&net.sent[0], "Unsupported: timer"), "{}", net.sent[0]);
    net.is_clean();
}

/// The timers of both sides move with the call, and go on where they were.
#[test]
fn session_timers_move() {
    let mut net = Net::new([timed(600), without_update(600)]);
    let (caller, callee) = net.up();
    net.run(200_000);
    let caller = net.moves(0, 1).call(caller).expect("it moved");
    let callee = net.moves(1, 1).call(callee).expect("it moved");
    net.run(99_000);
    assert!(net.log.is_empty(), "{:?}", net.log);
    net.run(1_000);
    assert!(sent(&net, "INVITE").ends_with(std::str::from_utf8(OFFER).unwrap()));
    // A refresh that is open moves too.
    assert!(net.moves(0, 2).call(caller).is_some());
    grant(&mut net, callee);
    net.moves(0, 3);
    let callee = net.moves(1, 3).call(callee).expect("it moved");
    net.lose = Box::new(|line| line.starts_with("0>1"));
    net.run(567_000);
    assert!(!net.log.contains(&"1>0 BYE".to_owned()), "{:?}", net.log);
    net.run(2_000);
    assert!(net.log.contains(&"1>0 BYE".to_owned()), "{:?}", net.log);
    net.lose = Box::new(|_| false);
    net.run(1_000);
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Expired });
    net.is_clean();
}
