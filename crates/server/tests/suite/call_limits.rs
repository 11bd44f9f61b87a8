//! Limits of calls for each of their keys: users, groups of sources, addresses, callers.

use crate::accounting::rows;
use crate::peer::{answer, invites, receive, sent, statuses};
use crate::site::{ALICE, BOB, Site, credential, credentials_of};
use strowger_store::subscriber;

/// Gateway of every call.
const GATEWAY: &str = "203.0.113.1:5060";

/// Starts a site that allows one call at a time for each of these, to a gateway; `more` is further configuration.
fn site(per: &str, more: &str) -> Site {
    Site::new(&format!(
        "{more}\n[[call_limit]]\nname = \"line\"\nper = \"{per}\"\nmost = 1\nstatus = 486\n\
         [[rule]]\nname = \"all\"\nto = [\"sip:{GATEWAY}\"]\ncall_limits = [\"line\"]\n"
    ))
}

/// Settings under which callers need no password.
const OPEN: &str = "auth.calls = false\nproxy.relay_for = \"everyone\"\n";

fn open_site(per: &str, more: &str) -> Site {
    site(per, &format!("{OPEN}{more}"))
}

/// Writes the INVITE of the `n`th call, from this address and this caller; `more` are further header lines.
fn invite(n: u32, from: &str, caller: &str, more: &str) -> String {
    format!(
        "INVITE sip:4930@example.org SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bKl{n}-{};rport\r\nMax-Forwards: 70\r\n\
         From: <{caller}>;tag=c{n}\r\nTo: <sip:4930@example.org>\r\nCall-ID: l{n}\r\nCSeq: {} INVITE\r\n\
         Contact: <sip:c@{from}>\r\n{more}Content-Length: 0\r\n\r\n",
        more.len(),
        1 + u32::from(!more.is_empty())
    )
}

/// Returns the INVITE that reached the gateway; the error means that the limit refused the call.
fn goes(sent: &[(String, String)], from: &str) -> Result<String, ()> {
    match (&invites(sent)[..], &statuses(sent, from)[..]) {
        ([(at, text)], []) if at == GATEWAY => Ok(text.clone()),
        ([], [486]) => Err(()),
        _ => panic!("{sent:?}"),
    }
}

fn call(site: &mut Site, n: u32, from: &str, caller: &str) -> Result<String, ()> {
    goes(&receive(site, from, &invite(n, from, caller, "")), from)
}

/// Ends a call: the gateway refuses it.
fn end(site: &mut Site, call: &str) {
    receive(site, GATEWAY, &answer(call, 404, ""));
}

/// Returns the values of limits with calls, each with their number.
fn counted(site: &Site) -> Vec<(String, u32)> {
    let all = site.shared.call_limits.list();
    all.into_iter().map(|(counted, calls)| (String::from_utf8_lossy(&counted.value).into_owned(), calls)).collect()
}

fn pairs<const N: usize>(list: [(&str, u32); N]) -> Vec<(String, u32)> {
    list.map(|(value, calls)| (value.to_owned(), calls)).to_vec()
}

#[test]
fn each_user_that_showed_a_password_has_a_limit() {
    let mut site = site("user", "[[source]]\nname = \"carrier\"\nnetworks = [\"203.0.113.0/24\"]\ntrusted = true\n");
    let calls = |site: &mut Site, n, user: &str, from: &str| {
        let (caller, password) = (format!("sip:{user}@example.org"), format!("secret of {user}"));
        site.receive(from, &invite(n, from, &caller, ""));
        let challenged = String::from_utf8_lossy(&site.out.bytes).into_owned();
        let request = ("INVITE", "sip:4930@example.org");
        let line = credentials_of(user, password.as_bytes(), request, &challenged, 1);
        receive(site, from, &invite(n, from, &caller, &line));
        let known = site.says(Ok(subscriber::SubscriberAnswer::Credential(credential(user, password.as_bytes()))));
        site.work(|engine, now, out| engine.answered(now, known, out));
        goes(&sent(site), from)
    };
    let first = calls(&mut site, 1, "alice", ALICE).expect("the first of alice");
    calls(&mut site, 2, "bob", ALICE).expect("the first of bob, from the same address");
    assert_eq!(counted(&site), pairs([("alice", 1), ("bob", 1)]));
    assert_eq!(calls(&mut site, 3, "alice", BOB), Err(()), "the second of alice, from another address");
    // A caller without a password is no user, and is not counted.
    for n in 4..6 {
        assert!(call(&mut site, n, "203.0.113.40:5060", "sip:alice@example.net").is_ok());
    }
    end(&mut site, &first);
    calls(&mut site, 6, "alice", BOB).expect("her call has ended");
    assert_eq!(counted(&site), pairs([("alice", 1), ("bob", 1)]));
}

#[test]
fn each_group_of_sources_has_a_limit() {
    let mut site = open_site(
        "source.group",
        "[[source]]\nname = \"west\"\nnetworks = [\"198.51.100.0/24\"]\n\
         [[source]]\nname = \"east\"\nnetworks = [\"203.0.113.0/24\"]\n",
    );
    let first = call(&mut site, 1, ALICE, "sip:a@example.net").expect("the first of this group");
    call(&mut site, 2, "203.0.113.40:5060", "sip:a@example.net").expect("the first of the other group");
    assert_eq!(counted(&site), pairs([("east", 1), ("west", 1)]));
    assert_eq!(call(&mut site, 3, BOB, "sip:b@example.net"), Err(()), "another address of the group");
    // Addresses outside the groups are not counted.
    for n in 4..6 {
        assert!(call(&mut site, n, "192.0.2.40:5060", "sip:a@example.net").is_ok());
    }
    assert_eq!(counted(&site), pairs([("east", 1), ("west", 1)]));
    end(&mut site, &first);
    assert!(call(&mut site, 6, BOB, "sip:b@example.net").is_ok());
}

#[test]
fn each_source_address_has_a_limit() {
    let mut site = open_site("source.address", "");
    let first = call(&mut site, 1, ALICE, "sip:a@example.net").expect("the first from there");
    call(&mut site, 2, BOB, "sip:a@example.net").expect("the first from elsewhere");
    assert_eq!(counted(&site), pairs([("198.51.100.7", 1), ("198.51.100.8", 1)]));
    assert_eq!(call(&mut site, 3, "198.51.100.7:5070", "sip:b@example.net"), Err(()), "another port of the address");
    assert_eq!(call(&mut site, 4, "[::ffff:198.51.100.7]:5060", "sip:b@example.net"), Err(()), "in its other form");
    end(&mut site, &first);
    assert!(call(&mut site, 5, "198.51.100.7:5070", "sip:b@example.net").is_ok());
}

/// Checks that an IPv6 network has one limit, because a caller that has one address of the network has all of them.
#[test]
fn each_ipv6_network_has_one_limit() {
    for (setting, other, network) in [
        ("", "[2001:db8:0:2::1]:5060", "2001:db8:0:1::"),
        ("limits.ipv6_prefix = 48\n", "[2001:db8:1::1]:5060", "2001:db8::"),
        ("limits.ipv6_prefix = 128\n", "[2001:db8:0:1::2]:5060", "2001:db8:0:1::1"),
    ] {
        let mut site = open_site("source.address", setting);
        call(&mut site, 1, "[2001:db8:0:1::1]:5060", "sip:a@example.net").expect("the first from this network");
        assert_eq!(counted(&site), pairs([(network, 1)]));
        let again = call(&mut site, 2, "[2001:db8:0:1:ffff::2]:5060", "sip:b@example.net");
        assert_eq!(again.is_ok(), setting.contains("128"), "{setting:?}");
        call(&mut site, 3, other, "sip:c@example.net").expect("the first from another");
    }
}

#[test]
fn each_caller_has_a_limit() {
    let mut site = open_site("from.uri", "");
    let first = call(&mut site, 1, ALICE, "sip:carol@example.net").expect("the first of carol");
    call(&mut site, 2, ALICE, "sip:dave@example.net").expect("the first of dave");
    assert_eq!(counted(&site), pairs([("carol@example.net", 1), ("dave@example.net", 1)]));
    for (n, caller) in [(3, "sip:%63arol@EXAMPLE.net;x=y"), (6, "sip:carol@example.net.:5070")] {
        assert_eq!(call(&mut site, n, BOB, caller), Err(()), "the same caller, written otherwise");
    }
    assert!(call(&mut site, 4, ALICE, "sip:carol@example.com").is_ok(), "a user of another domain");
    end(&mut site, &first);
    assert!(call(&mut site, 5, BOB, "sip:carol@example.net").is_ok());
}

/// Writes the INVITE in the form in which an application server, in place of the gateway, sends it to another number.
fn sent_on(forwarded: &str, number: &str) -> String {
    let (_, rest) = forwarded.split_once("\r\n").expect("a start line and headers");
    format!(
        "INVITE sip:{number}@example.org SIP/2.0\r\nVia: SIP/2.0/UDP {GATEWAY};branch=z9hG4bKs{number};rport\r\n{rest}"
    )
}

#[test]
fn a_call_that_passes_again_counts_until_the_last_of_its_invites_has_failed() {
    let mut site = open_site("from.uri", "");
    let caller = "sip:carol@example.net";
    let first = call(&mut site, 1, ALICE, caller).expect("the first of carol");
    for (n, number) in [(2, "4931"), (3, "4932")] {
        let again = receive(&mut site, GATEWAY, &sent_on(&first, number));
        let again = goes(&again, GATEWAY).expect("it counts already");
        let refused = receive(&mut site, GATEWAY, &answer(&again, 486, ""));
        assert_eq!(statuses(&refused, GATEWAY), [486], "{refused:?}");
        assert_eq!(counted(&site), pairs([("carol@example.net", 1)]));
        assert_eq!(call(&mut site, n, BOB, caller), Err(()), "the server behind may try another number");
    }
    end(&mut site, &first);
    assert_eq!(counted(&site), []);
    call(&mut site, 4, BOB, caller).expect("the call has ended");
}

#[test]
fn no_second_call_hides_behind_the_call_id_and_tag_of_one_that_stands() {
    let mut site = open_site("from.uri", "");
    let caller = "sip:carol@example.net";
    let first = call(&mut site, 1, ALICE, caller).expect("the first of carol");
    let second = invite(1, ALICE, caller, "Subject: again\r\n");
    assert_eq!(statuses(&receive(&mut site, ALICE, &second), ALICE), [482], "the first rings");
    let ok = answer(&first, 200, &format!("Contact: <sip:g@{GATEWAY}>\r\n"));
    assert_eq!(statuses(&receive(&mut site, GATEWAY, &ok), ALICE), [200]);
    let third = invite(1, ALICE, caller, "Subject: once more\r\n");
    assert_eq!(statuses(&receive(&mut site, ALICE, &third), ALICE), [482], "the first goes on");
    assert_eq!(counted(&site), pairs([("carol@example.net", 1)]));
}

#[test]
fn a_call_that_comes_again_with_credentials_for_the_gateway_counts_once() {
    let mut site = open_site("from.uri", "");
    let caller = "sip:carol@example.net";
    let first = call(&mut site, 1, ALICE, caller).expect("the first of carol");
    let challenge = "Proxy-Authenticate: Digest realm=\"gateway\", nonce=\"n\"\r\n";
    let refused = receive(&mut site, GATEWAY, &answer(&first, 407, challenge));
    assert_eq!(statuses(&refused, ALICE), [407]);
    let again =
        receive(&mut site, ALICE, &invite(1, ALICE, caller, "Proxy-Authorization: Digest realm=\"gateway\"\r\n"));
    let again = goes(&again, ALICE).expect("it comes again");
    assert_eq!(counted(&site), pairs([("carol@example.net", 1)]));
    // The transaction of the first attempt ends while the second rings.
    receive(&mut site, GATEWAY, &answer(&again, 180, ""));
    site.wait(40_000);
    assert_eq!(counted(&site), pairs([("carol@example.net", 1)]));
    end(&mut site, &again);
    assert_eq!(counted(&site), []);
}

#[test]
fn what_is_left_of_a_call_ends_no_later_one() {
    let caller = "sip:carol@example.net";
    let mut site = open_site("from.uri", "accounting.cdr = true\n");
    let first = call(&mut site, 1, ALICE, caller).expect("the first of carol");
    end(&mut site, &first);
    assert_eq!((counted(&site), rows(&mut site).0.len()), (pairs([]), 1));
    // The caller tries again with the same Call-ID and tag (RFC 3261 section 8.1.3.5) while the transactions of the
    // first attempt still live.
    let second = goes(&receive(&mut site, ALICE, &invite(1, ALICE, caller, "Subject: again\r\n")), ALICE);
    let second = second.expect("the first has ended");
    receive(&mut site, GATEWAY, &answer(&second, 180, ""));
    site.wait(40_000);
    assert_eq!((counted(&site), rows(&mut site).0.len()), (pairs([("carol@example.net", 1)]), 0));
    // A late answer to the first attempt is not the answer to the second.
    let late = answer(&first, 200, &format!("Contact: <sip:g@{GATEWAY}>\r\n")).replace(";tag=t\r\n", ";tag=late\r\n");
    receive(&mut site, GATEWAY, &late);
    let busy = receive(&mut site, GATEWAY, &answer(&second, 486, ""));
    assert_eq!(statuses(&busy, ALICE), [486]);
    let (cdrs, _) = rows(&mut site);
    let outcomes: Vec<_> = cdrs.iter().map(|cdr| (&*cdr.outcome, cdr.status)).collect();
    assert_eq!((counted(&site), outcomes), (pairs([]), vec![("missed", 486)]));
}

#[test]
fn each_target_that_a_server_before_this_one_forks_to_counts() {
    let caller = "sip:carol@example.net";
    // The limit has room for one target; two accounted targets would share one record.
    let accounted = format!("{OPEN}accounting.cdr = true\n[[rule]]\nname = \"all\"\nto = [\"sip:{GATEWAY}\"]\n");
    for (mut site, status, most) in [(open_site("from.uri", ""), 486, 1), (Site::new(&accounted), 482, 0)] {
        let first = call(&mut site, 1, ALICE, caller).expect("the first target");
        let forked = invite(1, ALICE, caller, "").replace("branch=z9hG4bK", "branch=z9hG4bKfork");
        assert_eq!(statuses(&receive(&mut site, ALICE, &forked), ALICE), [status]);
        assert_eq!(counted(&site).len(), most);
        end(&mut site, &first);
        assert_eq!(counted(&site), []);
    }
}

/// Checks that a Via of this server does not prove that a request belongs to this call: a server sends a request back
/// only while the INVITE is open.
#[test]
fn a_via_of_this_server_hides_no_second_call() {
    let caller = "sip:carol@example.net";
    let mut site = open_site("from.uri", "");
    let first = call(&mut site, 1, ALICE, caller).expect("the first of carol");
    let ok = answer(&first, 200, &format!("Contact: <sip:g@{GATEWAY}>\r\n"));
    receive(&mut site, GATEWAY, &ok);
    assert_eq!(statuses(&receive(&mut site, GATEWAY, &sent_on(&first, "4931")), GATEWAY), [482]);
    let later = sent_on(&first, "4932").replace("CSeq: 1 INVITE", "CSeq: 2 INVITE");
    assert_eq!(statuses(&receive(&mut site, GATEWAY, &later), GATEWAY), [482]);
    assert_eq!(counted(&site), pairs([("carol@example.net", 1)]));
}

#[test]
fn a_call_is_accounted_whichever_of_its_passages_the_rules_account() {
    let mut site = open_site(
        "from.uri",
        "accounting.cdr = true\n[[rule]]\nname = \"internal\"\nwhen = \"request.user == '4930'\"\naccount = false\n",
    );
    let caller = "sip:carol@example.net";
    let first = call(&mut site, 1, ALICE, caller).expect("the first of carol");
    let again = receive(&mut site, GATEWAY, &sent_on(&first, "4931"));
    let again = goes(&again, GATEWAY).expect("it counts already");
    receive(&mut site, GATEWAY, &answer(&again, 486, ""));
    end(&mut site, &first);
    let (cdrs, _) = rows(&mut site);
    let callees: Vec<_> = cdrs.iter().map(|cdr| &*cdr.callee).collect();
    assert_eq!(callees, ["sip:4931@example.org"]);
}
