//! Max-Breadth (RFC 5393 section 5.3).

use super::rig::*;
use strowger_core::proxy::ProxySettings;

fn fork(lines: &str, contacts: usize) -> Vec<Sent> {
    let mut rig = Rig::new();
    let contacts: Vec<Try> = (1..=contacts).map(|n| contact(&format!("10.2.2.{n}:5060"), 1000)).collect();
    rig.request(&alice("INVITE", "sip:bob@example.org", lines), udp(ALICE), &contacts)
}

fn breadths(sent: &[Sent]) -> Vec<&str> {
    sent.iter().flat_map(|s| s.all("Max-Breadth")).collect()
}

#[test]
fn every_request_carries_one() {
    assert_eq!(breadths(&fork("", 1)), ["60"]);
    assert_eq!(breadths(&fork("Max-Breadth: 7\n", 1)), ["7"]);
    // A value above our limit becomes the limit.
    assert_eq!(breadths(&fork("Max-Breadth: 100\n", 1)), ["60"]);
    assert_eq!(breadths(&fork("Max-Breadth: 99999999999999999999\n", 1)), ["60"]);
}

#[test]
fn branches_share_it() {
    assert_eq!(breadths(&fork("", 3)), ["20", "20", "20"]);
    assert_eq!(breadths(&fork("Max-Breadth: 7\n", 3)), ["2", "2", "2"]);
    assert_eq!(breadths(&fork("Max-Breadth: 3\n", 3)), ["1", "1", "1"]);
}

#[test]
fn too_little_for_the_fork_is_440() {
    for (lines, contacts) in [("Max-Breadth: 2\n", 3), ("Max-Breadth: 0\n", 1), ("Max-Breadth: 1\n", 2), ("", 61)] {
        let sent = fork(lines, contacts);
        let up = only(sent);
        assert_eq!((up.start(), up.to().as_str()), ("SIP/2.0 440 Max-Breadth Exceeded", ALICE));
        assert!(up.one("To").contains(";tag="));
    }
    let mut rig = Rig::with(ProxySettings { max_breadth: 1, ..ProxySettings::default() });
    let contacts = ["10.2.2.1:5060", "10.2.2.2:5060"].map(|a| contact(a, 1000));
    let sent = rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
    assert_eq!(words(&sent), ["440"]);
    rig.end();
}

#[test]
fn one_after_the_other_each_has_it_whole() {
    let mut rig = Rig::new();
    let contacts = [contact("10.2.2.1:5060", 900), contact("10.2.2.2:5060", 500)];
    let text = alice("INVITE", "sip:bob@example.org", "Max-Breadth: 1\n");
    let first = only(rig.request(&text, udp(ALICE), &contacts));
    assert_eq!(first.one("Max-Breadth"), "1");
    let next = rig.answer(&first, 486, "");
    assert_eq!((words(&next), next[1].one("Max-Breadth")), (vec!["ACK".to_owned(), "INVITE".to_owned()], "1"));
    rig.end();
}
