//! Outcomes of calls in metrics: at their callers, and at each gateway. A challenge is no outcome, and a call has one.

use crate::decisions::{GATEWAY, SECOND, invite, site};
use crate::peer::{answer, ends, goes, pass, receive, statuses};
use crate::site::{ALICE, Site};
use strowger_message::status::KNOWN;
use strowger_server::counters::CodeSums;

const NUMBER: &str = "sip:4930@example.org";

/// Starts a server whose calls lead to two gateways.
fn gateways() -> Site {
    site(&format!(
        "[[rule]]\nname = \"numbers\"\nwhen = \"exists number\"\nto = [\"sip:{GATEWAY}\", \"sip:{SECOND}\"]\n\
         [[rule]]\nname = \"user\"\nwhen = \"request.user == '7'\"\nto = [\"sip:bob@example.org\"]\n"
    ))
}

/// Name, code and number of the calls of a gateway.
type AtGateway = (String, String, u64);

/// Returns calls by code, and calls at gateways.
fn counted(site: &Site) -> (Vec<(u16, u64)>, Vec<AtGateway>) {
    let mut sums: CodeSums = std::array::from_fn(|_| 0);
    site.shared.messages.iter().for_each(|messages| messages.calls.add_to(&mut sums));
    let calls = KNOWN.iter().map(|(code, _)| *code).zip(sums).filter(|(_, count)| *count > 0);
    let list = site.shared.gateways.list(&site.shared.policy().config);
    let of = |(name, gateway): (String, strowger_server::gateways::GatewayCalls)| {
        gateway.calls.into_iter().filter(|(_, count)| *count > 0).map(move |(code, count)| (name.clone(), code, count))
    };
    (calls.collect(), list.into_iter().flat_map(of).collect())
}

fn of(list: &[(&str, &str, u64)]) -> Vec<AtGateway> {
    list.iter().map(|(name, code, count)| ((*name).into(), (*code).into(), *count)).collect()
}

#[test]
fn a_call_has_one_outcome_at_its_caller_and_one_at_each_gateway() {
    let mut site = gateways();
    let first = goes(&receive(&mut site, ALICE, &invite(1, NUMBER)));
    let second = goes(&receive(&mut site, GATEWAY, &answer(&first.1, 503, "")));
    // The 2xx is repeated until its ACK comes.
    for _ in 0..3 {
        assert_eq!(statuses(&receive(&mut site, SECOND, &answer(&second.1, 200, "")), ALICE), [200]);
    }
    assert_eq!(counted(&site), (vec![(200, 1)], of(&[(GATEWAY, "503", 1), (SECOND, "200", 1)])));
    // Both gateways are silent.
    goes(&receive(&mut site, ALICE, &invite(2, NUMBER)));
    pass(&mut site);
    pass(&mut site);
    let (calls, at_gateways) = counted(&site);
    assert_eq!(calls, [(200, 1), (408, 1)]);
    assert!(
        of(&[(GATEWAY, "none", 1), (SECOND, "none", 1)]).iter().all(|one| at_gateways.contains(one)),
        "{at_gateways:?}"
    );
}

#[test]
fn a_challenge_is_the_outcome_of_no_call() {
    let mut site = gateways();
    let first = goes(&receive(&mut site, ALICE, &invite(1, NUMBER)));
    let second = goes(&receive(&mut site, GATEWAY, &answer(&first.1, 407, "")));
    ends(&receive(&mut site, SECOND, &answer(&second.1, 407, "")), 407);
    assert_eq!(counted(&site), (Vec::new(), Vec::new()));
}

#[test]
fn gateways_of_the_configuration_are_listed_without_a_call() {
    let site = gateways();
    let list = site.shared.gateways.list(&site.shared.policy().config);
    assert_eq!(list.keys().collect::<Vec<_>>(), [GATEWAY, SECOND]);
    assert!(list.values().all(|gateway| gateway.calls == [("none".to_owned(), 0)] && gateway.addresses.is_empty()));
}
