//! Next hops with host names (RFC 3263): their addresses come from the owner.

use super::rig::*;

use strowger_core::user_agent::{Event, UserAgentSettings};

const NAMED: &str = "Contact: <sip:bob@pc.biloxi.example>\r\n";

fn unresolved(net: &Net) -> Vec<String> {
    let uri = |heard: &Heard| {
        let is = matches!(heard.event, Event::Unresolved { .. });
        is.then(|| String::from_utf8_lossy(&heard.body).into_owned())
    };
    net.phones[0].heard.iter().filter_map(uri).collect()
}

/// RFC 3261 section 12.2.1.1: a request in a dialog goes to the remote target, whose name is resolved (RFC 3263 section 4).
#[test]
fn requests_in_a_dialog_go_to_the_address_of_the_contact() {
    let mut net = Net::new([quiet(), quiet(), quiet()]);
    let (first, second) = (net.target(1), net.target(2));
    let call = net.with(0, |agent, round| agent.invite(round, &invite(first, OFFER))).unwrap();
    let ok = respond(&net.sent[0], 200, NAMED);
    net.inject(0, &ok);
    assert_eq!(unresolved(&net), ["sip:bob@pc.biloxi.example"]);
    assert!(matches!(net.last(0).event, Event::Answered { .. }));
    assert_eq!(net.log, ["0>1 INVITE", "0>1 ACK"]);
    net.log.clear();
    net.with(0, |agent, round| agent.resolve(round, call, second));
    net.with(0, |agent, round| agent.reinvite(round, call, OFFER)).unwrap();
    assert_eq!(net.log, ["0>2 ACK", "0>2 INVITE"]);
    let reinvite = net.sent.last().unwrap().clone();
    assert!(reinvite.starts_with("INVITE sip:bob@pc.biloxi.example SIP/2.0\r\n"));
    // The same name is not reported again, and keeps its address; another one is, and an address needs none.
    net.inject(0, &respond(&reinvite, 200, NAMED));
    assert_eq!((unresolved(&net).len(), net.log.last().map(String::as_str)), (1, Some("0>2 ACK")));
    for (contact, names) in [("sip:bob@tablet.biloxi.example", 2), ("sip:bob@127.0.0.2", 2)] {
        net.with(0, |agent, round| agent.reinvite(round, call, OFFER)).unwrap();
        let reinvite = net.sent.last().unwrap().clone();
        net.inject(0, &respond(&reinvite, 200, &format!("Contact: <{contact}>\r\n")));
        assert_eq!((unresolved(&net).len(), net.log.last().map(String::as_str)), (names, Some("0>1 ACK")), "{contact}");
    }
    net.with(0, |agent, round| agent.hang_up(round, call));
    assert_eq!(net.log.last().map(String::as_str), Some("0>1 BYE"));
    net.flying.clear();
    net.lose = Box::new(|_| true);
    net.is_clean();
}

/// A called phone reports the name too; with an outbound proxy no name matters.
#[test]
fn a_name_of_the_caller_is_reported_unless_all_goes_to_a_proxy() {
    for outbound in [false, true] {
        let mut net = Net::two();
        if outbound {
            let proxy = Some(net.target(1));
            net = Net::new([UserAgentSettings { outbound: proxy, ..quiet() }]);
        }
        let lines = "Contact: <sip:x@pc.atlanta.example>\n";
        net.inject(0, &request("INVITE", 1, "", lines, ""));
        assert_eq!(unresolved(&net).len(), usize::from(!outbound));
        let call = net.invited(0);
        net.with(0, |agent, round| agent.reject(round, call, 603));
        net.is_clean();
    }
}
