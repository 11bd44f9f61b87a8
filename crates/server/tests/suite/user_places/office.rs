//! Users with phones, and the calls to them.

use super::*;

/// Phones: two of anna, and one of each other user.
pub(super) const ANNA: &str = "198.51.100.11:5060";
pub(super) const ANNA_TOO: &str = "198.51.100.12:5060";
pub(super) const BEN: &str = "198.51.100.13:5060";
pub(super) const CLEO: &str = "198.51.100.14:5060";

/// Places of a rule; the user in the middle has no phone.
pub(super) const USERS: &str = "[\"sip:anna@example.org\", \"sip:dora@example.org\", \"sip:ben@example.org\"]";

/// Registers a Contact for a user from this address.
pub(super) fn register(site: &mut Site, user: &str, from: &str, contact: &str) {
    let id = format!("{user}{contact}").replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let text = format!(
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bKr{id};rport\r\n\
         From: <sip:{user}@example.org>;tag=r\r\nTo: <sip:{user}@example.org>\r\nCall-ID: {id}\r\nCSeq: 1 REGISTER\r\n\
         Contact: {contact};expires=3600\r\nContent-Length: 0\r\n\r\n"
    );
    let said = site.receive(from, &text);
    assert!(said.starts_with("SIP/2.0 200 "), "{said}");
}

pub(super) fn phone(site: &mut Site, user: &str, at: &str) {
    register(site, user, at, &format!("<sip:{user}@{at}>"));
}

/// Starts a site where anna has two phones, ben and cleo one each, and dora none.
pub(super) fn office(settings: &str) -> Site {
    let mut site = site(&format!("proxy.fork = \"parallel\"\nregistrar.authenticate = false\n{settings}"));
    for (user, at) in [("anna", ANNA), ("anna", ANNA_TOO), ("ben", BEN), ("cleo", CLEO)] {
        phone(&mut site, user, at);
    }
    site
}

/// Writes a rule for calls of this user.
pub(super) fn rule(user: &str, to: &str, more: &str) -> String {
    format!("[[rule]]\nname = \"{user}\"\nwhen = \"request.user == '{user}'\"\nto = {to}\n{more}\n")
}

pub(super) fn failure(name: &str, statuses: &str, to: &str, more: &str) -> String {
    format!("[[failure]]\nname = \"{name}\"\nstatuses = {statuses}\nto = {to}\n{more}\n")
}

/// Returns the phones that ring now, each with its INVITE.
pub(super) fn rings(sent: &[(String, String)]) -> Vec<(String, String)> {
    let mut all: Vec<_> = invites(sent).into_iter().cloned().collect();
    all.sort();
    all
}

pub(super) fn phones(all: &[(String, String)]) -> Vec<&str> {
    all.iter().map(|(at, _)| &**at).collect()
}

/// Answers at each of these phones with this status. Returns the messages that are sent after the last answer.
pub(super) fn answers(site: &mut Site, all: &[(String, String)], status: u16) -> Vec<(String, String)> {
    let mut last = Vec::new();
    for (at, text) in all {
        last = receive(site, at, &tagged(at, &answer(text, status, "")));
    }
    last
}

/// Sets the tag in To to that of the phone.
pub(super) fn tagged(at: &str, text: &str) -> String {
    text.replace(";tag=t\r\n", &format!(";tag=t{}\r\n", at.replace(['.', ':'], "")))
}

/// Answers a call at its phone.
pub(super) fn takes(site: &mut Site, (at, text): &(String, String)) -> Vec<(String, String)> {
    let ok = answer(text, 200, &format!("Contact: <{}>\r\n", uri(text)));
    receive(site, at, &tagged(at, &ok))
}

pub(super) fn calls(site: &mut Site, n: u32, user: &str) -> Vec<(String, String)> {
    receive(site, ALICE, &invite(n, &format!("sip:{user}@example.org")))
}

/// Waits until a matching message is sent, at most for this number of tenths of a second.
pub(super) fn wait(site: &mut Site, tenths: u32, is_it: impl Fn(&[(String, String)]) -> bool) -> Vec<(String, String)> {
    for _ in 0..tenths {
        site.wait(100);
        let sent = sent(site);
        if is_it(&sent) {
            return sent;
        }
    }
    panic!("nothing came in {tenths} tenths of a second");
}

pub(super) fn cancels(sent: &[(String, String)]) -> Vec<&str> {
    let mut all: Vec<&str> = sent.iter().filter(|(_, text)| text.starts_with("CANCEL ")).map(|(at, _)| &**at).collect();
    all.sort();
    all
}

/// Ends the branches of phones after a CANCEL.
pub(super) fn is_cancelled(site: &mut Site, all: &[(String, String)]) -> Vec<(String, String)> {
    answers(site, all, 487)
}
