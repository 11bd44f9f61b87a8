//! Forks: one request to several contacts (sections 16.6 and 16.7).

use super::rig::*;

const INVITE: (&str, &str) = ("INVITE", "sip:bob@example.org");

fn fork(rig: &mut Rig, contacts: &[Try]) -> Vec<Sent> {
    rig.request(&alice(INVITE.0, INVITE.1, ""), udp(ALICE), contacts)
}

fn three(rig: &mut Rig) -> [Sent; 3] {
    let contacts = ["10.2.2.1:5061", "10.2.2.2:5062", "10.2.2.3:5063"].map(|a| contact(a, 1000));
    fork(rig, &contacts).try_into().expect("three at once")
}

fn to_alice(sent: &[Sent]) -> Vec<u16> {
    sent.iter().filter(|s| s.to() == ALICE).map(|s| s.status()).collect()
}

#[test]
fn all_of_one_q_ring_at_once_each_on_its_own_branch() {
    let mut rig = Rig::new();
    let sent = three(&mut rig);
    for (s, address) in sent.iter().zip(["10.2.2.1:5061", "10.2.2.2:5062", "10.2.2.3:5063"]) {
        assert_eq!((s.to().as_str(), s.uri()), (address, &*format!("sip:bob@{address}")));
    }
    assert_ne!(sent[0].branch(), sent[1].branch());
    assert_ne!(sent[1].branch(), sent[2].branch());
    for s in &sent {
        assert_eq!(to_alice(&rig.answer(s, 180, "")), [180]);
    }
    let at_accept = rig.answer(&sent[1], 200, "Contact: <sip:b@10.2.2.2:5062>\n");
    assert_eq!(words(&at_accept), ["200", "CANCEL", "CANCEL"]);
    let cancelled: Vec<(String, String)> = at_accept[1..].iter().map(|c| (c.to(), c.branch().to_owned())).collect();
    let wanted: Vec<(String, String)> = [0, 2].iter().map(|&n| (sent[n].to(), sent[n].branch().to_owned())).collect();
    assert_eq!(cancelled, wanted);
    for n in [0, 2] {
        assert_eq!(words(&rig.answer(&sent[n], 487, "")), ["ACK"]);
    }
    rig.end();
}

#[test]
fn the_caller_gets_the_2xx_of_both_phones() {
    let mut rig = Rig::new();
    let sent = three(&mut rig);
    for s in &sent {
        rig.answer(s, 180, "");
    }
    assert_eq!(to_alice(&rig.answer(&sent[0], 200, "Contact: <sip:b@10.2.2.1>\n")), [200]);
    let late = only(rig.answer(&sent[2], 200, "Contact: <sip:b@10.2.2.3>\n"));
    assert_eq!((late.status(), late.to().as_str()), (200, ALICE));
    assert!(late.one("To").contains("at5063"));
    rig.answer(&sent[1], 487, "");
    rig.end();
}

#[test]
fn a_2xx_after_a_failure_went_up_goes_up_too() {
    let mut rig = Rig::new();
    let sent = three(&mut rig);
    // A 6xx of one; the others are cancelled, but two answers cross the CANCELs.
    rig.answer(&sent[1], 180, "");
    rig.answer(&sent[2], 180, "");
    assert_eq!(words(&rig.answer(&sent[0], 603, "")), ["ACK", "CANCEL", "CANCEL"]);
    assert_eq!(to_alice(&rig.answer(&sent[1], 200, "Contact: <sip:b@10.2.2.2>\n")), [200]);
    assert_eq!(to_alice(&rig.answer(&sent[2], 200, "Contact: <sip:b@10.2.2.3>\n")), [200]);
    rig.end();
}

#[test]
fn the_best_failure_goes_up_when_all_have_failed() {
    // Statuses of the three branches in order of arrival, and the status that the caller gets.
    let cases = [
        ([404, 486, 408], 486),
        ([486, 404, 408], 486),
        ([408, 404, 500], 404),
        ([500, 503, 502], 500),
        ([503, 503, 503], 500),
        ([302, 404, 500], 302),
        ([486, 302, 404], 302),
        ([480, 487, 404], 480),
        ([404, 415, 486], 415),
        ([401, 486, 404], 401),
    ];
    for (statuses, best) in cases {
        let mut rig = Rig::new();
        let sent = three(&mut rig);
        assert!(to_alice(&rig.answer(&sent[0], statuses[0], "")).is_empty());
        assert!(to_alice(&rig.answer(&sent[1], statuses[1], "")).is_empty());
        assert_eq!(to_alice(&rig.answer(&sent[2], statuses[2], "")), [best], "{statuses:?}");
        rig.end();
    }
}

#[test]
fn a_6xx_ends_the_others_and_wins() {
    let mut rig = Rig::new();
    let sent = three(&mut rig);
    rig.answer(&sent[1], 180, "");
    assert_eq!(words(&rig.answer(&sent[0], 486, "")), ["ACK"]);
    // The third has not responded yet: its CANCEL waits for a provisional response (section 9.1).
    assert_eq!(words(&rig.answer(&sent[2], 600, "")), ["ACK", "CANCEL"]);
    assert_eq!(to_alice(&rig.answer(&sent[1], 487, "")), [600]);
    rig.end();
}

#[test]
fn a_6xx_stops_those_that_wait_for_their_turn() {
    let mut rig = Rig::new();
    let sent = only(fork(&mut rig, &[contact("10.2.2.1:5061", 900), contact("10.2.2.2:5062", 500)]));
    assert_eq!(words(&rig.answer(&sent, 603, "")), ["ACK", "603"]);
    rig.end();
}

#[test]
fn challenges_of_all_branches_go_up_together() {
    let mut rig = Rig::new();
    let sent = three(&mut rig);
    rig.answer(&sent[0], 401, "WWW-Authenticate: Digest realm=\"one\", nonce=\"1\"\n");
    rig.answer(&sent[1], 404, "");
    let lines = "Proxy-Authenticate: Digest realm=\"two\", nonce=\"2\"\nProxy-Authenticate: Digest realm=\"three\", nonce=\"3\"\n";
    let last = rig.answer(&sent[2], 407, lines);
    let up = last.iter().find(|s| s.to() == ALICE).expect("a final response");
    assert_eq!(up.status(), 401);
    assert_eq!(up.all("WWW-Authenticate"), ["Digest realm=\"one\", nonce=\"1\""]);
    assert_eq!(
        up.all("Proxy-Authenticate"),
        ["Digest realm=\"two\", nonce=\"2\"", "Digest realm=\"three\", nonce=\"3\""]
    );
    rig.end();
    // In any order, and only if the challenge is the best response.
    let mut rig = Rig::new();
    let sent = three(&mut rig);
    rig.answer(&sent[0], 404, "");
    rig.answer(&sent[1], 407, "Proxy-Authenticate: Digest realm=\"two\", nonce=\"2\"\n");
    let last = rig.answer(&sent[2], 302, "Contact: <sip:elsewhere@example.net>\n");
    let up = last.iter().find(|s| s.to() == ALICE).expect("a final response");
    assert_eq!((up.status(), up.all("Proxy-Authenticate").len()), (302, 0));
    rig.end();
}

#[test]
fn lower_q_rings_when_higher_has_failed() {
    let mut rig = Rig::new();
    let contacts = [
        contact("10.2.2.3:5063", 200),
        contact("10.2.2.1:5061", 1000),
        contact("10.2.2.2:5062", 500),
        contact("10.2.2.4:5064", 500),
    ];
    let first = only(fork(&mut rig, &contacts));
    assert_eq!(first.to(), "10.2.2.1:5061");
    let second = rig.answer(&first, 486, "");
    assert_eq!(words(&second), ["ACK", "INVITE", "INVITE"]);
    assert_eq!((second[1].to(), second[2].to()), ("10.2.2.2:5062".into(), "10.2.2.4:5064".into()));
    assert_eq!(words(&rig.answer(&second[1], 404, "")), ["ACK"]);
    let third = rig.answer(&second[2], 480, "");
    assert_eq!(words(&third), ["ACK", "INVITE"]);
    assert_eq!(third[1].to(), "10.2.2.3:5063");
    assert_eq!(words(&rig.answer(&third[1], 404, "")), ["ACK", "486"]);
    rig.end();
}

#[test]
fn a_phone_that_rings_too_long_is_cancelled_for_the_next() {
    let mut rig = Rig::new();
    let first = only(fork(&mut rig, &[contact("10.2.2.1:5061", 900), contact("10.2.2.2:5062", 500)]));
    rig.answer(&first, 180, "");
    let then = rig.pass(23_000);
    assert_eq!(then.iter().map(|(_, s)| s.method()).collect::<Vec<_>>()[0], "CANCEL");
    assert!((20_000..=22_000).contains(&then[0].0), "{}", then[0].0);
    let second = rig.answer(&first, 487, "");
    assert_eq!(words(&second), ["ACK", "INVITE"]);
    // The second target has a ring time of its own, and the caller gets no 487 without a CANCEL.
    assert_eq!(to_alice(&rig.answer(&second[1], 486, "")), [486]);
    rig.end();
}

#[test]
fn a_phone_cancelled_for_the_next_counts_as_one_that_did_not_answer() {
    for (other, heard) in [(404, 404), (480, 480), (408, 408), (487, 487)] {
        let mut rig = Rig::new();
        let first = only(fork(&mut rig, &[contact("10.2.2.1:5061", 900), contact("10.2.2.2:5062", 500)]));
        rig.answer(&first, 180, "");
        rig.pass(23_000);
        let second = rig.answer(&first, 487, "").pop().expect("the next one rings");
        assert_eq!(to_alice(&rig.answer(&second, other, "")), [heard]);
        rig.end();
    }
}

#[test]
fn a_silent_phone_does_not_hold_the_next_up() {
    let mut rig = Rig::new();
    let first = only(fork(&mut rig, &[contact("10.2.2.1:5061", 900), contact("10.2.2.2:5062", 500)]));
    let then = rig.pass(23_000);
    let second = then.iter().find(|(_, s)| s.to() == "10.2.2.2:5062").expect("the second rings");
    assert!((20_000..=22_000).contains(&second.0), "{}", second.0);
    // The first phone wakes up: after its 180 it can be cancelled.
    let woken = rig.answer(&first, 180, "");
    assert!(words(&woken).contains(&"CANCEL".to_owned()), "{:?}", words(&woken));
    rig.answer(&first, 487, "");
    assert_eq!(to_alice(&rig.answer(&second.1, 200, "Contact: <sip:b@10.2.2.2>\n")), [200]);
    rig.end();
}

#[test]
fn no_phone_answers() {
    let mut rig = Rig::new();
    fork(&mut rig, &[contact("10.2.2.1:5061", 900), contact("10.2.2.2:5062", 500)]);
    let all = rig.pass(60_000);
    let up: Vec<&Sent> = all.iter().map(|(_, s)| s).filter(|s| s.to() == ALICE).collect();
    assert!(!up.is_empty() && up.iter().all(|s| s.status() == 408), "{up:#?}");
    assert_eq!(up[0].all("Via"), ["SIP/2.0/UDP 10.1.1.1:5060;branch=z9hG4bKaINVITE"]);
    rig.end();
}

#[test]
fn another_request_forks_too() {
    let mut rig = Rig::new();
    let contacts = ["10.2.2.1:5061", "10.2.2.2:5062"].map(|a| contact(a, 1000));
    let sent = rig.request(&alice("MESSAGE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
    assert_eq!(words(&sent), ["MESSAGE", "MESSAGE"]);
    assert!(rig.answer(&sent[0], 404, "").is_empty());
    assert_eq!(only(rig.answer(&sent[1], 200, "")).status(), 200);
    rig.end();
    // Two 2xx: the first one counts.
    let mut rig = Rig::new();
    let sent = rig.request(&alice("MESSAGE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
    assert_eq!(only(rig.answer(&sent[0], 200, "")).status(), 200);
    assert!(rig.answer(&sent[1], 200, "").is_empty());
    rig.end();
}

/// Checks that an unreachable phone counts less than any answer, and that without another answer the user is not
/// available (section 21.4.18).
#[test]
fn a_user_whose_phones_cannot_be_reached_is_not_available() {
    let mut rig = Rig::new();
    let sent = three(&mut rig);
    for lost in &sent[..2] {
        assert!(to_alice(&rig.fail(lost)).is_empty());
    }
    assert_eq!(to_alice(&rig.fail(&sent[2])), [480]);
    rig.end();
    for status in [404, 408, 486] {
        let mut rig = Rig::new();
        let sent = three(&mut rig);
        rig.fail(&sent[0]);
        rig.answer(&sent[1], status, "");
        assert_eq!(to_alice(&rig.fail(&sent[2])), [status]);
        rig.end();
    }
}

/// Checks that the memory of one request is bounded.
#[test]
fn a_large_request_goes_to_fewer_at_once_and_the_largest_to_the_first_alone() {
    for (bytes, at_once, then) in [(10_000, 3, 0), (25_000, 1, 1), (40_000, 1, 0)] {
        let mut rig = Rig::new();
        let contacts = ["10.2.2.1:5061", "10.2.2.2:5062", "10.2.2.3:5063"].map(|a| contact(a, 1000));
        let text = alice(INVITE.0, INVITE.1, &format!("X: {}\n", "x".repeat(bytes)));
        let sent = rig.request(&text, udp(ALICE), &contacts);
        assert_eq!(sent.len(), at_once, "{bytes}");
        let after = rig.answer(&sent[0], 486, "");
        let further = after.iter().filter(|s| words(std::slice::from_ref(s)) == ["INVITE"]).count();
        assert_eq!(further, then, "{bytes}: {:?}", words(&after));
    }
}

#[test]
fn the_kept_response_of_a_fork_is_charged_to_the_caller_or_shortened() {
    let long = format!("X: {}\n", "x".repeat(9_000));
    for (share, is_whole) in [(30_000, true), (8_000, false)] {
        for (statuses, up) in [([486, 486, 603], 603), ([503, 486, 480], 486)] {
            let mut rig = Rig::new();
            rig.tx.set_shares(share, usize::MAX, 64);
            let sent = three(&mut rig);
            let billed = rig.tx.counts().charged_bytes;
            rig.answer(&sent[0], statuses[0], &long);
            let held = rig.tx.counts().charged_bytes - billed;
            assert_eq!(held > 9_000, is_whole, "{held} bytes more for what is held");
            rig.answer(&sent[1], statuses[1], &long);
            let answers = rig.answer(&sent[2], statuses[2], &long);
            let answer = answers.iter().find(|sent| sent.to() == ALICE).expect("an answer");
            assert_eq!(answer.status(), up);
            assert_eq!((answer.0.len() > 9_000, answer.one("CSeq")), (is_whole, "1 INVITE"));
            assert!(answer.one("To").contains(";tag="));
        }
    }
}
