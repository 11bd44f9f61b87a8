//! Failures that back-to-back user agents are known for, each with the test that fails if this one has it.
//!
//! | failure | test |
//! |---|---|
//! | another codec is answered by the old description | `changes::an_update_is_carried_over`; `matrix` (codec) |
//! | a hold is answered by sendrecv | `changes::either_side_holds_and_resumes`; `matrix` (holds) |
//! | a hold of the callee tells the caller the callee's codec | [`a_hold_of_a_party_has_the_payload_types_of_the_other_leg`] |
//! | a packet of the codec before ends the call | `a_packet_of_the_codec_before_changes_nothing` of the crate `media` |
//! | a new port in a 2xx is ignored | [`a_new_port_in_a_2xx_counts`]; `forks::the_port_of_the_final_answer_counts` |
//! | after a second 183 media leave another port than the shown one | [`a_second_183_changes_no_port`] |
//! | a reliable 180 has no offer, although the INVITE has none | `late_offers::ringing_before_the_offer_is_not_reliable`; `matrix` (set-up) |
//! | a PRACK goes to the address of record | [`a_prack_goes_to_the_contact_of_its_response`] |
//! | a session has two refreshers | [`each_session_has_one_refresher`]; `matrix` (refresh) |
//! | the BYE of a transferor ends the transfer | `transfers::a_transferor_that_hangs_up_does_not_end_the_transfer` |
//! | a REFER goes in a circle until 483 | `transfers::a_refer_that_cannot_be_carried_is_refused`; `matrix` (REFER) |
//! | after a restart BYE passes in one direction only, and CSeq is lower | [`after_a_move_both_sides_are_served_with_higher_numbers`] |
//! | one payload type stands for two formats | `negotiation::payload_types::a_number_keeps_its_format` |
//! | nothing says how few calls a range of ports carries | `tests/tests/bridge.rs`; `crates/strowger/src/check.rs` |

use super::changes::change;
use super::forks::{RELIABLE, forked, place, pracks};
use super::rig::*;

use strowger_core::b2bua::bridge::BridgeEvent;
use strowger_core::user_agent::{CallKey, Event, SessionTimerSettings, UserAgentSettings};

/// Returns a description of a phone that offers Opus with this payload type.
fn opus(phone: usize, version: u32, number: u8, direction: &str) -> Vec<u8> {
    let text = text(&sdp(phone, version, "8", direction));
    let text = text.replace(" RTP/AVP 8\r\n", &format!(" RTP/AVP {number}\r\n"));
    text.replace("a=rtpmap:8 PCMA/8000", &format!("a=rtpmap:{number} opus/48000/2")).into_bytes()
}

/// RFC 3264 section 8.3.2: a number of one leg means nothing on the other.
#[test]
fn a_hold_of_a_party_has_the_payload_types_of_the_other_leg() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.calling(&opus(NEAR, 1, 96, "sendrecv"));
        let answer = opus(FAR, 1, 96, "sendrecv");
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
        b2b.run(100);
        let (call, peer) = if side == NEAR { (near, far) } else { (far, near) };
        let (hold, answer) = (opus(side, 2, 109, "sendonly"), opus(other, 2, 96, "recvonly"));
        let (offered, reply) = change(&mut b2b, (side, call), (other, peer), (&hold, &answer), false);
        assert!(offered.contains(" RTP/AVP 96\r\na=rtpmap:96 opus/48000/2\r\n"), "{offered}");
        assert!(reply.contains(" RTP/AVP 109\r\na=rtpmap:109 opus/48000/2\r\n"), "{reply}");
        assert!(offered.contains("\r\na=sendonly\r\n") && reply.contains("\r\na=recvonly\r\n"), "{offered}{reply}");
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}

/// RFC 3264 section 8.3.1: the answer to a re-INVITE or an UPDATE may have another port.
#[test]
fn a_new_port_in_a_2xx_counts() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        for is_update in [false, true] {
            let mut b2b = Bridged::new();
            let (near, far) = b2b.up();
            b2b.told();
            let (call, peer) = if side == NEAR { (near, far) } else { (far, near) };
            let port = 40_000 + 1_000 * other;
            let answer = text(&sdp(other, 2, "8", "sendrecv"));
            let answer = answer.replace(&format!("m=audio {port} "), &format!("m=audio {} ", port + 20));
            let offer = sdp(side, 2, "8", "sendrecv");
            change(&mut b2b, (side, call), (other, peer), (&offer, answer.as_bytes()), is_update);
            let told = b2b.told();
            let [BridgeEvent::SessionChanged { streams, .. }] = &told[..] else { panic!("{told:?}") };
            let stream = streams[0].as_ref().expect("a stream");
            let peer = if other == NEAR { &stream.near } else { &stream.far };
            assert_eq!(peer.rtp.map(|rtp| usize::from(rtp.port())), Some(port + 20));
            b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
            b2b.is_clean();
        }
    }
}

/// Every description to a party has the port of its leg, also after a 183 of a further place with another codec.
#[test]
fn a_second_183_changes_no_port() {
    let (mut b2b, near) = forked(true, &sdp(NEAR, 1, "0 8", "sendrecv"));
    place(&mut b2b, "one", 183, "", Some(("0", 7_000)));
    place(&mut b2b, "two", 183, "", Some(("8", 7_002)));
    let answer = sdp(NEAR, 2, "8", "sendrecv");
    b2b.net.with(NEAR, |agent, round| agent.answer_update(round, near, &answer));
    b2b.run(50);
    place(&mut b2b, "two", 200, "", Some(("8", 7_002)));
    for (to, port, least) in [("1>0 ", 50_000, 2), ("1>? ", 60_000, 1)] {
        let sent = b2b.net.log.iter().zip(&b2b.net.sent).filter(|(line, _)| line.starts_with(to));
        let described: Vec<&String> = sent.map(|(_, text)| text).filter(|text| text.contains("m=audio ")).collect();
        assert!(described.len() >= least, "{:?}", b2b.net.log);
        assert!(described.iter().all(|text| text.contains(&format!("m=audio {port} "))), "{described:?}");
    }
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// RFC 3262 section 4: a PRACK is a request within the dialog, so it goes to the remote target.
#[test]
fn a_prack_goes_to_the_contact_of_its_response() {
    let (mut b2b, near) = forked(true, &sdp(NEAR, 1, "0 8", "sendrecv"));
    for name in ["one", "two"] {
        place(&mut b2b, name, 183, RELIABLE, Some(("0", 7_000)));
        let sent = pracks(&b2b);
        let last = sent.last().expect("a PRACK");
        assert!(last.starts_with(&format!("PRACK sip:{name}@127.0.0.98 SIP/2.0\r\n")), "{last}");
    }
    let sent = |line: &str| {
        let at = b2b.net.log.iter().position(|sent| sent == line).expect("it was sent");
        &b2b.net.sent[at]
    };
    let contact = sent("1>0 183 INVITE").lines().find_map(|line| line.strip_prefix("Contact: <"));
    let contact = contact.and_then(|uri| uri.strip_suffix('>')).expect("a Contact");
    assert!(sent("0>1 PRACK").starts_with(&format!("PRACK {contact} SIP/2.0\r\n")), "{}", sent("0>1 PRACK"));
    place(&mut b2b, "one", 200, "", None);
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// RFC 4028 section 7.1: one side of each leg refreshes, also if both want to.
#[test]
fn each_session_has_one_refresher() {
    for near_refreshes in [true, false] {
        for far_refreshes in [true, false] {
            let settings = |refreshes| {
                let mut settings: UserAgentSettings = quiet();
                settings.capabilities.session_timer = Some(SessionTimerSettings { interval: 90, least: 90, refreshes });
                settings
            };
            let mut b2b = Bridged::of([settings(near_refreshes), settings(false), settings(far_refreshes)], FAR);
            let (near, _) = b2b.up();
            b2b.run(80_000);
            let updates = ["0>1 UPDATE", "1>0 UPDATE", "2>1 UPDATE", "1>2 UPDATE"].map(|line| b2b.count(line));
            let (of_far, of_bridge) = (usize::from(far_refreshes), usize::from(!far_refreshes));
            // The caller refreshes, if it can; the callee, if it wants to.
            assert_eq!(updates, [1, 0, of_far, of_bridge], "{:?}", b2b.net.log);
            b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
            b2b.is_clean();
        }
    }
}

/// Returns the number of CSeq and the version in `o=` of the last request of the bridge to a phone.
fn last_request(b2b: &Bridged, n: usize, method: &str) -> (u32, Option<u32>) {
    let line = format!("{BRIDGE}>{n} {method}");
    let at = b2b.net.log.iter().rposition(|sent| *sent == line).unwrap_or_else(|| panic!("{line}: {:?}", b2b.net.log));
    let message = &b2b.net.sent[at];
    let number = |start: &str, place: usize| {
        let line = message.lines().find_map(|line| line.strip_prefix(start))?;
        line.split(' ').nth(place)?.parse().ok()
    };
    (number("CSeq: ", 0).expect("a number"), number("o=", 2))
}

/// After the calls have gone through bytes to another process, a change and the BYE of either side pass, and the numbers of both legs rise.
#[test]
fn after_a_move_both_sides_are_served_with_higher_numbers() {
    for ends in [NEAR, FAR] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.up();
        let parties: [(usize, CallKey); 2] = [(NEAR, near), (FAR, far)];
        let mut before: [(u32, Option<u32>); 2] = [(0, None); 2];
        for (version, format) in [(2, "8"), (3, "0")] {
            for at in [0, 1] {
                let ((side, call), (other, peer)) = (parties[at], parties[1 - at]);
                // The other side had another list of codecs, so the offer is passed on.
                let formats = if format == "0" { "0 8" } else { "8 0" };
                let offer = sdp(side, version + at as u32 * 10, formats, ["sendrecv", "sendonly"][at]);
                let answer = sdp(other, version + 5, format, ["sendrecv", "recvonly"][at]);
                change(&mut b2b, (side, call), (other, peer), (&offer, &answer), false);
                let now = last_request(&b2b, other, "INVITE");
                assert!(now.0 > before[1 - at].0 && now.1 > before[1 - at].1, "{now:?} after {before:?}");
                before[1 - at] = now;
            }
            b2b.moves();
        }
        let at = usize::from(ends == FAR);
        let ((side, call), (other, _)) = (parties[at], parties[1 - at]);
        b2b.net.with(side, |agent, round| agent.hang_up(round, call));
        b2b.run(100);
        assert!(matches!(b2b.net.last(other).event, Event::Ended { .. }), "{:?}", b2b.net.log);
        assert!(last_request(&b2b, other, "BYE").0 > before[1 - at].0);
        b2b.is_clean();
    }
}
