//! INVITE without offer: the far side offers (RFC 3261 section 13.2.1, RFC 3262 section 5).

use super::rig::*;

use strowger_core::user_agent::{Event, Invite, Reliability, UserAgentSettings};

fn reliable() -> UserAgentSettings {
    UserAgentSettings { reliability: Reliability::Supported, ..quiet() }
}

/// The offer comes in the 2xx if the near side has no 100rel or no UPDATE, and the far side is not told of 100rel.
#[test]
fn the_offer_of_the_2xx_is_answered_in_the_ack() {
    for (supported, allow) in [("", "INVITE, ACK, CANCEL, BYE, UPDATE"), ("100rel", "INVITE, ACK, CANCEL, BYE, PRACK")]
    {
        let mut settings = [quiet(), reliable(), reliable()];
        settings[NEAR].capabilities.supported = supported.as_bytes().to_vec();
        settings[NEAR].capabilities.allow = allow.as_bytes().to_vec();
        let mut b2b = Bridged::of(settings, FAR);
        let (near, far) = b2b.calling(b"");
        let invited = b2b.heard(FAR, |event| matches!(event, Event::Invited { .. }));
        assert!(invited.body.is_empty() && !invited.message.contains("100rel"), "{}", invited.message);
        let offer = sdp(FAR, 1, "8 0", "sendrecv");
        b2b.net.with(FAR, |agent, round| agent.ring(round, far, 183, &offer));
        b2b.run(50);
        assert!(matches!(b2b.net.last(NEAR).event, Event::Progress { status: 183, offer: false, .. }));
        assert!(b2b.net.last(NEAR).body.is_empty());
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, &offer));
        b2b.run(50);
        let heard = b2b.heard(NEAR, |event| matches!(event, Event::Answered { offer: true, .. }));
        assert!(text(&heard.body).contains("m=audio 50000 RTP/AVP 8 0\r\n"), "{}", text(&heard.body));
        // The answer waits for that of the near side.
        assert_eq!(b2b.count("1>2 ACK"), 0);
        let answer = sdp(NEAR, 1, "8", "sendrecv");
        b2b.net.with(NEAR, |agent, round| agent.acknowledge(round, near, &answer));
        b2b.run(50);
        let heard = b2b.heard(FAR, |event| matches!(event, Event::Confirmed { .. }));
        assert!(text(&heard.body).contains("m=audio 60000 RTP/AVP 8\r\n"), "{}", text(&heard.body));
        b2b.net.with(FAR, |agent, round| agent.hang_up(round, far));
        b2b.is_clean();
    }
}

/// The PRACK of the far side waits for that of the near side; both legs end if the near side sends none.
#[test]
fn the_offer_of_a_183_is_answered_in_the_prack() {
    for answers in [true, false] {
        let mut b2b = Bridged::of([quiet(), reliable(), reliable()], FAR);
        b2b.net.phones[NEAR].auto_answer = false;
        let (near, far) = b2b.calling(b"");
        let offer = sdp(FAR, 1, "8 0", "sendrecv");
        b2b.net.with(FAR, |agent, round| agent.ring(round, far, 183, &offer));
        b2b.run(100);
        let heard = b2b.heard(NEAR, |event| matches!(event, Event::Progress { status: 183, offer: true, .. }));
        assert!(text(&heard.body).contains("m=audio 50000 RTP/AVP 8 0\r\n"), "{}", text(&heard.body));
        assert_eq!(b2b.count("1>2 PRACK"), 0);
        if answers {
            let answer = sdp(NEAR, 1, "0", "sendrecv");
            b2b.net.with(NEAR, |agent, round| agent.prack(round, near, &answer)).expect("a PRACK is due");
            b2b.run(100);
            let heard = b2b.heard(FAR, |event| matches!(event, Event::Acknowledged { .. }));
            assert!(text(&heard.body).contains("m=audio 60000 RTP/AVP 0\r\n"), "{}", text(&heard.body));
            b2b.net.with(FAR, |agent, round| agent.answer(round, far, b""));
            b2b.run(100);
            assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { offer: false, .. }), "{:?}", b2b.net.log);
            b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        } else {
            b2b.run(40_000);
            for n in [NEAR, FAR] {
                let last = b2b.net.last(n).event;
                assert!(matches!(last, Event::Failed { .. } | Event::Ended { .. }), "{last:?}");
            }
        }
        b2b.is_clean();
    }
}

/// An answer that is missing in the ACK ends both legs.
#[test]
fn a_missing_answer_ends_the_call() {
    let mut b2b = Bridged::new();
    let (near, far) = b2b.calling(b"");
    let offer = sdp(FAR, 1, "0", "sendrecv");
    b2b.net.with(FAR, |agent, round| agent.answer(round, far, &offer));
    b2b.run(50);
    b2b.net.with(NEAR, |agent, round| agent.acknowledge(round, near, b""));
    b2b.run(200);
    for n in [NEAR, FAR] {
        assert!(matches!(b2b.net.last(n).event, Event::Ended { .. }), "{:?}", b2b.net.log);
    }
    b2b.is_clean();
}

/// RFC 3262 section 5: the first reliable response to an INVITE without offer has an offer, so ringing before it is not reliable; a caller
/// that requires 100rel gets none.
#[test]
fn ringing_before_the_offer_is_not_reliable() {
    for requires in [false, true] {
        let mut b2b = Bridged::of([quiet(), reliable(), quiet()], FAR);
        let headers: &[u8] = if requires { b"Require: 100rel\r\n" } else { b"" };
        let target = b2b.net.target(BRIDGE);
        let invite =
            Invite { headers, ..Invite::new(b"<sip:alice@atlanta.example>", b"<sip:bob@127.0.0.2>", target, b"") };
        let near = b2b.net.with(NEAR, |agent, round| agent.invite(round, &invite)).expect("addresses");
        b2b.run(50);
        let far = b2b.net.invited(FAR);
        b2b.net.with(FAR, |agent, round| agent.ring(round, far, 180, b""));
        b2b.run(50);
        let rang = b2b.net.sent.iter().filter(|text| text.starts_with("SIP/2.0 180 ")).collect::<Vec<_>>();
        assert_eq!(b2b.count("1>0 180 INVITE"), usize::from(!requires));
        assert!(rang.iter().all(|text| !text.contains("RSeq")), "{rang:?}");
        let offer = sdp(FAR, 1, "0", "sendrecv");
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, &offer));
        b2b.run(50);
        let answer = sdp(NEAR, 1, "0", "sendrecv");
        b2b.net.with(NEAR, |agent, round| agent.acknowledge(round, near, &answer));
        b2b.run(50);
        assert!(matches!(b2b.net.last(FAR).event, Event::Confirmed { .. }), "{:?}", b2b.net.log);
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}
