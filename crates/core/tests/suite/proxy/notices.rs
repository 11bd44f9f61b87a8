//! Notices for the user of the proxy about its forwarded requests.

use super::rig::*;

fn invite(rig: &mut Rig, contacts: &[Try]) -> Vec<Sent> {
    rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), contacts)
}

fn heard(rig: &Rig) -> Vec<&str> {
    rig.heard.get(&1).map_or(Vec::new(), |heard| heard.iter().map(String::as_str).collect())
}

#[test]
fn a_call_rings_is_answered_and_ends() {
    let mut rig = Rig::new();
    let sent = only(invite(&mut rig, &[contact(BOB, 1000)]));
    // A 100 goes no further.
    rig.answer(&sent, 100, "");
    assert_eq!(heard(&rig), [""; 0]);
    rig.answer(&sent, 180, "");
    rig.answer(&sent, 183, "");
    rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n");
    // A copy is another notice, not a first answer.
    rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n");
    rig.end();
    assert_eq!(heard(&rig), ["rang 180", "rang 183", "answered 200", "also answered 200", "ended"]);
}

#[test]
fn each_branch_names_the_next_hop_that_refused() {
    let mut rig = Rig::new();
    let contacts = [contact("10.2.2.1:5061", 1000), contact("10.2.2.2:5062", 1000), contact("10.2.2.3:5063", 500)];
    let sent = invite(&mut rig, &contacts);
    rig.answer(&sent[0], 486, "");
    let next = rig.answer(&sent[1], 404, "");
    let last = next.iter().find(|s| s.method() == "INVITE").expect("the next group").clone();
    rig.answer(&last, 503, "");
    rig.end();
    let wanted = [
        "refused 486 by 10.2.2.1:5061",
        "refused 404 by 10.2.2.2:5062",
        "refused 503 by 10.2.2.3:5063",
        "exhausted 486",
        "ended",
    ];
    assert_eq!(heard(&rig), wanted);
}

#[test]
fn unsent_and_unanswered_requests() {
    let mut rig = Rig::new();
    let contacts = [contact("10.2.2.1:5061", 1000), contact("10.2.2.2:5062", 1000)];
    let sent = invite(&mut rig, &contacts);
    rig.fail(&sent[0]);
    assert_eq!(heard(&rig), ["refused 503 by 10.2.2.1:5061"]);
    rig.end();
    assert_eq!(heard(&rig)[1..], ["timed out at 10.2.2.2:5062", "exhausted 408", "ended"]);
}

#[test]
fn a_group_that_rings_too_long_timed_out() {
    let mut rig = Rig::new();
    let contacts = [contact("10.2.2.1:5061", 1000), contact("10.2.2.2:5062", 1000), contact("10.2.2.3:5063", 500)];
    let sent = invite(&mut rig, &contacts);
    rig.answer(&sent[0], 180, "");
    // The silent phone cannot be cancelled; the other answers its CANCEL, and the third is tried.
    rig.pass(20_500);
    rig.answer(&sent[0], 487, "");
    assert_eq!(heard(&rig), ["rang 180", "timed out at 10.2.2.2:5062", "timed out at 10.2.2.1:5061"]);
}

#[test]
fn the_caller_cancels() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.org", "");
    let sent = only(rig.request(&text, udp(ALICE), &[contact(BOB, 1000)]));
    rig.answer(&sent, 180, "");
    let cancel = text.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
    rig.request(&cancel, udp(ALICE), &[]);
    rig.answer(&sent, 487, "");
    rig.end();
    assert_eq!(heard(&rig), ["rang 180", "cancelled", "refused 487 by 10.2.2.2:5060", "exhausted 487", "ended"]);
}

#[test]
fn notices_go_on_in_another_shard() {
    let mut rig = Rig::new();
    let sent = only(invite(&mut rig, &[contact(BOB, 1000)]));
    rig.answer(&sent, 180, "");
    rig.moved(9);
    rig.answer(&sent, 486, "");
    rig.end();
    assert_eq!(heard(&rig), ["rang 180", "refused 486 by 10.2.2.2:5060", "exhausted 486", "ended"]);
}

type End<'a> = &'a dyn Fn(&mut Rig, &[Sent]);

/// Checks that the end of a ringing branch is reported, even after another branch has answered.
#[test]
fn a_branch_that_rang_ends_without_an_answer() {
    let contacts = [contact("10.2.2.1:5061", 1000), contact("10.2.2.2:5062", 1000)];
    let ends: [End<'_>; 4] = [
        &|rig, sent| drop(rig.answer(&sent[0], 486, "")),
        // The other one takes the call; this one responds, or is silent.
        &|rig, sent| {
            rig.answer(&sent[1], 200, "");
            assert_eq!(rig.ringing.len(), 2, "the answer ends no other branch by itself");
            rig.answer(&sent[0], 487, "");
        },
        &|rig, sent| {
            rig.answer(&sent[1], 200, "");
            rig.pass(33_000);
        },
        // In another shard it has the same number.
        &|rig, sent| {
            rig.moved(9);
            rig.answer(&sent[1], 200, "");
            rig.answer(&sent[0], 487, "");
        },
    ];
    for (n, end) in ends.iter().enumerate() {
        let mut rig = Rig::new();
        let sent = invite(&mut rig, &contacts);
        for sent in &sent {
            rig.answer(sent, 180, "");
        }
        assert_eq!(rig.ringing.len(), 2, "end {n}");
        end(&mut rig, &sent);
        assert_eq!(rig.ringing.len(), 1, "end {n}");
    }
}

#[test]
fn a_branch_that_has_answered_does_not_end() {
    let mut rig = Rig::new();
    let sent = only(invite(&mut rig, &[contact(BOB, 1000)]));
    rig.answer(&sent, 180, "");
    rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n");
    rig.end();
    assert_eq!(rig.ringing.len(), 1);
}
