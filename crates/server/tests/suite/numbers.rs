//! Barred numbers in all spellings pass no rule, and a user part with control characters passes no rule at all.

use crate::peer::{ends, goes, receive};
use crate::site::{ALICE, Site, invite};

const RULES: &str = "auth.calls = false\nproxy.relay_for = \"everyone\"\n\
    [[rule]]\nname = \"bar\"\nwhen = \"number starts_with '0900'\"\nanswer = 403\n\
    [[rule]]\nname = \"out\"\nto = [\"sip:198.51.100.90\"]\n";

fn calls(site: &mut Site, number: u32, user: &str) -> Vec<(String, String)> {
    receive(
        site,
        ALICE,
        &invite(number, 1, "").replace("sip:bob@example.org SIP", &format!("sip:{user}@example.org SIP")),
    )
}

#[test]
fn no_spelling_of_a_barred_number_reaches_the_gateway() {
    let mut site = Site::new(RULES);
    let spellings = [
        "0900123",
        "0900-123",
        "0900.123",
        "(0900)123",
        "-0900123",
        "0-9-0-0-1-2-3",
        "%30900123",
        "%30%39%30%30123",
        "0900%20123",
        "0900%2D123",
        "0900123;phone-context=+49",
        "0900123;npdi",
        "0900123%3Bx",
        "0900123,1",
        "0900123%2C1",
        "0900123&5",
        "0900123=",
        "0900123$",
        "0900123?x",
        "0900/123",
        "09/00123",
        "0900123:pw",
    ];
    for (number, user) in spellings.into_iter().enumerate() {
        ends(&calls(&mut site, number as u32, user), 403);
    }
    let controls = [
        "0900123%00",
        "0900123%0a",
        "0900123%0D%0Ax",
        "0900123%09",
        "%090900123",
        "09%1F00123",
        "0900123%7f",
        "bob%00",
    ];
    for (number, user) in controls.into_iter().enumerate() {
        ends(&calls(&mut site, 100 + number as u32, user), 400);
    }
    for (number, user) in ["0901123", "bob", "bob%20smith", "bob.0900"].into_iter().enumerate() {
        goes(&calls(&mut site, 200 + number as u32, user));
    }
}

#[test]
fn a_subscription_of_a_user_to_its_own_state_is_answered_by_the_server() {
    let mut site = Site::new("auth.calls = false\n");
    site.register("<sip:bob@198.51.100.8:5060>");
    for method in ["SUBSCRIBE", "PUBLISH"] {
        let own = |cseq| invite(500, cseq, "Event: presence\r\n").replace("INVITE", method);
        let sent = receive(&mut site, ALICE, &own(1).replace("alice@example.org", "bob@example.org"));
        let [(to, text)] = &sent[..] else { panic!("{sent:?}") };
        assert!(to == ALICE && text.starts_with("SIP/2.0 489 ") && text.contains("\r\nAllow-Events:"), "{text}");
        // The request of another user goes to the phone.
        let sent = receive(&mut site, ALICE, &own(2));
        assert!(sent.iter().any(|(_, text)| text.starts_with(&format!("{method} sip:bob@"))), "{sent:?}");
    }
}
