//! Facts of a request for rules, which cost no allocation: the same requests at a server whose rules ask for every
//! fact, and at one without rules.

use crate::site::*;

/// Conditions that ask for each fact, and never hold.
const RULES: &str = "[[source]]\nname = \"near\"\nnetworks = [\"198.51.100.0/24\"]\n\
    [[set]]\nname = \"prefixes\"\nkind = \"prefixes\"\nentries = [\"00\"]\n\
    [[filter]]\nname = \"hosts\"\n\
    when = \"from.domain == 'x' or to.domain == 'x' or request.domain == 'x' or exists user\"\n\
    [[rule]]\nname = \"user\"\nwhen = \"user in ['x', 'y'] or user == from.uri\"\nanswer = 403\n\
    [[rule]]\nname = \"texts\"\nwhen = \"transport == 'ws' or to.user == 'x' or to.uri == 'x' or request.uri == 'x' \
    or request.scheme == 'tel' or from.scheme == 'tel' or to.scheme == 'tel' or number in prefixes or source.group == 'far' or header.X-Missing == 'x'\"\nanswer = 403\n\
    [[rule]]\nname = \"rest\"\nwhen = \"source.port == 1 or request.port == 1 or from.port == 1 or to.port == 1 or size > 64KiB or max_forwards == 1 \
    or source.address in 10.0.0.0/8 or in_dialog or not (authenticated and from.local)\"\nanswer = 403\n";

/// Writes alice's message to an address, with an address in To as well.
fn message(number: u32, cseq: u32, uri: &str, more: &str) -> String {
    format!(
        "MESSAGE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{number}-{cseq};rport\r\n\
         From: <sip:alice@example.org>;tag=a\r\nTo: <sip:bob@[2001:db8::1:2:3]:5070>\r\nCall-ID: {number}\r\n\
         CSeq: {cseq} MESSAGE\r\nMax-Forwards: 70\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

/// Counts the allocations of requests to an address. `spelled`: alice's name in her credentials.
fn allocations(rules: &str, spelled: &str) -> u64 {
    let uri = "sip:bob@198.51.100.8:5060";
    let mut site = Site::new(&format!("timers.t1 = \"10ms\"\n{rules}"));
    let challenged = site.receive(ALICE, &message(0, 1, uri, ""));
    let message = |number| {
        let line = credentials_of("alice", b"secret of alice", ("MESSAGE", uri), &challenged, number);
        let line = line.replace("username=\"alice\"", &format!("username=\"{spelled}\""));
        assert!(line.contains(spelled), "{line}");
        message(number, 2, uri, &line)
    };
    site.allocations(message, |site| site.known()).iter().sum()
}

#[test]
fn facts_of_a_request_allocate_nothing() {
    for spelled in ["alice", "al\\ice"] {
        let (without, with) = (allocations("", spelled), allocations(RULES, spelled));
        assert_eq!(with, without, "of 200 requests of {spelled}");
    }
}
