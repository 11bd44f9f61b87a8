//! Challenges of gateways, and the accounts of their groups.

use super::*;

const GATEWAY: &str = "127.0.0.1:7101";
const CHALLENGE: &str = "WWW-Authenticate: Digest realm=\"carrier\", nonce=\"one\", qop=\"auth\"\n";

/// Starts a server that leads a number to the gateways of a group, which has an account, and to these further targets.
fn start_with(more: &str) -> Site {
    let group = format!(
        "[[gateway_group]]\nname = \"carrier\"\nto = [\"sip:{GATEWAY}\"]\nuser = \"office\"\npassword = \"open sesame\"\n"
    );
    bridge(&group, &format!("when = \"request.user == '4711'\"\nto = [\"carrier\"{more}]\ntry_next = [503]\n"))
}

/// Sends an INVITE of alice to the number. Returns the INVITE that the gateway gets.
fn called(site: &Site, gateway: &Phone) -> (Phone, Call, Got) {
    let alice = site.phone("alice");
    let call = invite_of(&alice, "4711");
    say(&alice, &call, &sdp(4_000, 1, ""));
    (alice, call, gets(gateway, "INVITE"))
}

fn has_credentials(request: &Got) -> bool {
    let credentials = request.all("Authorization");
    credentials.iter().any(|line| line.starts_with("Digest username=\"office\", realm=\"carrier\""))
}

#[test]
fn a_challenge_of_a_gateway_is_answered_by_the_account_of_its_group() {
    let site = start_with("");
    let gateway = phone_at(&site, GATEWAY);
    let (alice, call, far) = called(&site, &gateway);
    assert!(!has_credentials(&far), "{}", far.0);
    gateway.respond(&far, 401, CHALLENGE);
    gets(&gateway, "ACK");
    let again = gets(&gateway, "INVITE");
    assert!(has_credentials(&again), "{}", again.0);
    assert_eq!((again.one("Call-ID"), again.one("CSeq")), (far.one("Call-ID"), "2 INVITE"));
    assert_eq!(site.calls().len(), 1);
    let call = answer((alice, &gateway, call, again));
    // The BYE of the caller has credentials in advance.
    assert_eq!(call.alice.ask(&call.of_alice("BYE", 1)).status(), 200);
    let bye = gets(&gateway, "BYE");
    assert!(has_credentials(&bye), "{}", bye.0);
    gateway.respond(&bye, 200, "");
    assert_eq!(&*record(&site).outcome, "answered");
}

#[test]
fn a_gateway_that_refuses_the_account_refuses_the_call() {
    let site = start_with("");
    let gateway = phone_at(&site, GATEWAY);
    let (alice, _, mut far) = called(&site, &gateway);
    for is_first in [true, false] {
        gateway.respond(&far, 401, CHALLENGE);
        gets(&gateway, "ACK");
        if is_first {
            far = gets(&gateway, "INVITE");
        }
    }
    assert_eq!(alice.answer().status(), 403);
    assert_eq!(record(&site).status, 403);
}

/// Another next hop must not get an answer that is meant for the gateways.
#[test]
fn an_account_is_for_the_gateways_of_its_group_alone() {
    let site = start_with(", \"sip:127.0.0.1:7102\"");
    let gateway = phone_at(&site, GATEWAY);
    let (alice, _, far) = called(&site, &gateway);
    gateway.respond(&far, 401, CHALLENGE);
    gets(&gateway, "ACK");
    assert_eq!(alice.answer().status(), 403);
    gateway.hears_nothing();
}
