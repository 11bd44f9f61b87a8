//! CANCEL (sections 9 and 16.10).

use super::rig::*;

fn cancel_of(invite: &str) -> String {
    invite.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL")
}

fn call(rig: &mut Rig) -> (String, Sent) {
    let text = alice("INVITE", "sip:bob@10.2.2.2", "");
    let sent = only(rig.request(&text, udp(ALICE), &to(BOB)));
    (text, sent)
}

#[test]
fn a_ringing_branch_is_cancelled() {
    let mut rig = Rig::new();
    let (text, sent) = call(&mut rig);
    rig.answer(&sent, 180, "");
    let out = rig.request(&cancel_of(&text), udp(ALICE), &[]);
    assert_eq!(words(&out), ["200", "CANCEL"]);
    let cancel = &out[1];
    assert_eq!((cancel.to().as_str(), cancel.branch(), cancel.uri()), (BOB, sent.branch(), sent.uri()));
    assert_eq!(cancel.all("Via").len(), 1);
    assert_eq!(cancel.one("CSeq"), "1 CANCEL");
    // A copy of the CANCEL is answered again, and no second one leaves.
    assert_eq!(words(&rig.request(&cancel_of(&text), udp(ALICE), &[])), ["200"]);
    assert!(rig.answer(cancel, 200, "").is_empty());
    let end = rig.answer(&sent, 487, "");
    assert_eq!(words(&end), ["ACK", "487"]);
    assert_eq!(end[1].to(), ALICE);
    rig.end();
}

#[test]
fn without_a_response_the_cancel_waits_for_a_provisional_one() {
    let mut rig = Rig::new();
    let (text, sent) = call(&mut rig);
    assert_eq!(words(&rig.request(&cancel_of(&text), udp(ALICE), &[])), ["200"]);
    let out = rig.answer(&sent, 100, "");
    assert_eq!(words(&out), ["CANCEL"]);
    rig.answer(&out[0], 200, "");
    assert_eq!(words(&rig.answer(&sent, 487, "")), ["ACK", "487"]);
    rig.end();
}

#[test]
fn a_cancelled_silent_branch_times_out() {
    let mut rig = Rig::new();
    let (text, _) = call(&mut rig);
    rig.request(&cancel_of(&text), udp(ALICE), &[]);
    let later = rig.pass(33_000);
    let up = later.iter().find(|(_, s)| s.to() == ALICE).expect("a final response");
    assert_eq!(up.1.status(), 408);
    rig.end();
}

#[test]
fn a_branch_that_ignores_its_cancel_times_out() {
    let mut rig = Rig::new();
    let (text, sent) = call(&mut rig);
    rig.answer(&sent, 180, "");
    rig.request(&cancel_of(&text), udp(ALICE), &[]);
    // Section 9.1: after 64*T1 the transaction counts as cancelled.
    let later = rig.pass(33_000);
    let up = later.iter().find(|(_, s)| s.to() == ALICE).expect("a final response");
    assert!(matches!(up.1.status(), 408 | 487), "{}", up.1.status());
    rig.end();
}

#[test]
fn all_branches_and_none_that_waits_for_its_turn() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.org", "");
    let contacts = [contact("10.2.2.1:5061", 900), contact("10.2.2.2:5062", 900), contact("10.2.2.3:5063", 100)];
    let sent = rig.request(&text, udp(ALICE), &contacts);
    assert_eq!(sent.len(), 2);
    for s in &sent {
        rig.answer(s, 180, "");
    }
    assert_eq!(words(&rig.request(&cancel_of(&text), udp(ALICE), &[])), ["200", "CANCEL", "CANCEL"]);
    assert_eq!(words(&rig.answer(&sent[0], 487, "")), ["ACK"]);
    assert_eq!(words(&rig.answer(&sent[1], 487, "")), ["ACK", "487"]);
    rig.end();
}

#[test]
fn a_cancel_after_the_final_response_is_only_answered() {
    let mut rig = Rig::new();
    let (text, sent) = call(&mut rig);
    rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n");
    assert_eq!(words(&rig.request(&cancel_of(&text), udp(ALICE), &[])), ["200"]);
    rig.end();
    let mut rig = Rig::new();
    let (text, sent) = call(&mut rig);
    rig.answer(&sent, 486, "");
    assert_eq!(words(&rig.request(&cancel_of(&text), udp(ALICE), &[])), ["200"]);
    rig.end();
}

#[test]
fn the_answer_crosses_the_cancel() {
    let mut rig = Rig::new();
    let (text, sent) = call(&mut rig);
    rig.answer(&sent, 180, "");
    rig.request(&cancel_of(&text), udp(ALICE), &[]);
    let up = rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n");
    assert_eq!((up[0].status(), up[0].to().as_str()), (200, ALICE));
    rig.end();
}

#[test]
fn a_cancel_without_its_invite_gets_481() {
    let mut rig = Rig::new();
    assert_eq!(words(&rig.request(&cancel_of(&alice("INVITE", "sip:bob@10.2.2.2", "")), udp(ALICE), &[])), ["481"]);
    // A CANCEL with another branch than the ringing one.
    let (text, sent) = call(&mut rig);
    rig.answer(&sent, 180, "");
    let other = cancel_of(&text).replace("bKaINVITE", "bKother");
    assert_eq!(words(&rig.request(&other, udp(ALICE), &[])), ["481"]);
    rig.answer(&sent, 486, "");
    rig.end();
}
