//! Reserve of requests that prove their dialog: they pass when a bound is reached.

use crate::dialogs::{answered, from_phone, of_alice, of_bob, request};
use crate::peer::{receive, status};
use crate::site::{ALICE, BOB, Site, invite, line};
use strowger_server::engine::Effect;

const OPEN: &str = "auth.calls = false\nproxy.record_route = true\n";

fn site(settings: &str) -> Site {
    let mut site = Site::new(&format!("{OPEN}{settings}"));
    site.register(&format!("<sip:bob@{BOB}>"));
    site
}

/// Makes INVITEs from this address ring until one is refused. Returns the number of ringing INVITEs.
fn fill(site: &mut Site, from: &str) -> u32 {
    for number in 1_000..60_000 {
        let text = invite(number, 1, "").replace(ALICE, from).replace("alice@example.org", "eve@example.net");
        let answers = site.receive(from, &text);
        if answers.starts_with("SIP/2.0 503 ") {
            return number - 1_000;
        }
        assert!(answers.contains("INVITE sip:bob@"), "{answers}");
    }
    panic!("no bound was reached");
}

fn reserved(site: &Site) -> u64 {
    site.shared.counts().reserved
}

/// Returns whether a request reaches bob's phone; otherwise it was answered 503.
fn passes(site: &mut Site, from: &str, method: &str, text: &str) -> bool {
    let sent = receive(site, from, text);
    let is_forwarded = sent.iter().any(|(_, text)| text.starts_with(&format!("{method} ")));
    assert!(is_forwarded || sent.iter().any(|(_, text)| status(text) == Some(503)), "{method}: {sent:?}");
    is_forwarded
}

#[test]
fn what_ends_or_renews_a_dialog_passes_a_full_table() {
    let mut site = site("limits.transactions = 16\n");
    let (forwarded, ok) = answered(&mut site, 1);
    let rings = request(&site.receive(ALICE, &invite(2, 1, "")), "INVITE").to_owned();
    site.receive(BOB, &from_phone(&rings, "180 Ringing", "bob"));
    fill(&mut site, "203.0.113.9:5060");
    let before = reserved(&site);
    for (n, method) in ["INVITE", "UPDATE", "PRACK", "NOTIFY", "BYE"].into_iter().enumerate() {
        let of_alice = of_alice(method, &ok, 2 + n as u32, "");
        assert!(passes(&mut site, ALICE, method, &of_alice), "{method}");
    }
    assert!(passes(&mut site, BOB, "BYE", &of_bob("BYE", &forwarded, "bob", 9, "")));
    assert_eq!(reserved(&site), before + 6);
    // A CANCEL has the place of its INVITE.
    let cancel = invite(2, 1, "").replace("INVITE ", "CANCEL ").replace("1 INVITE", "1 CANCEL");
    let sent = receive(&mut site, ALICE, &cancel);
    assert!(sent.iter().any(|(to, text)| to == ALICE && text.starts_with("SIP/2.0 200 ")), "{sent:?}");
    assert!(sent.iter().any(|(to, text)| to == BOB && text.starts_with("CANCEL ")), "{sent:?}");
    assert_eq!(reserved(&site), before + 6);
}

#[test]
fn what_proves_no_dialog_has_no_reserve() {
    let mut site = site("limits.transactions = 16\n");
    let (_, ok) = answered(&mut site, 1);
    fill(&mut site, "203.0.113.9:5060");
    let bye = of_alice("BYE", &ok, 2, "");
    let token = line(&ok, "Record-Route").split("d=").nth(1).expect("a route token").trim_end_matches('>').to_owned();
    let others = [
        bye.replace("Call-ID: 1", "Call-ID: 7"),
        bye.replace(";tag=bob", ";tag=rob"),
        bye.replace(&token, &token.chars().rev().collect::<String>()),
        invite(3, 1, ""),
        invite(3, 1, "").replace("To: <sip:bob@example.org>", "To: <sip:bob@example.org>;tag=invented"),
        of_alice("INFO", &ok, 2, ""),
        of_alice("MESSAGE", &ok, 2, ""),
    ];
    for text in others {
        let method = text.split(' ').next().unwrap_or_default();
        assert!(!passes(&mut site, ALICE, method, &text), "{text}");
    }
    assert_eq!(reserved(&site), 0);
    assert!(passes(&mut site, ALICE, "BYE", &bye));
}

#[test]
fn forged_requests_of_a_source_do_not_make_its_bye_fail() {
    // The source is a trunk, or a proxy in front of the server: all calls come from it.
    let mut site = site("limits.request_memory_per_source = \"128 KiB\"\n");
    let (forwarded, ok) = answered(&mut site, 1);
    let rings = fill(&mut site, &ALICE.replace(":5060", ":6060"));
    assert!((5..200).contains(&rings), "{rings}");
    assert!(passes(&mut site, ALICE, "INVITE", &of_alice("INVITE", &ok, 2, "")));
    assert!(passes(&mut site, ALICE, "BYE", &of_alice("BYE", &ok, 3, "")));
    let of_other = invite(4, 1, "").replace(ALICE, "198.51.100.70:5060");
    assert!(passes(&mut site, "198.51.100.70:5060", "INVITE", &of_other), "another source has its share");
    assert!(passes(&mut site, BOB, "BYE", &of_bob("BYE", &forwarded, "bob", 9, "")));
}

#[test]
fn the_reserve_is_for_all_sources_as_well() {
    let mut site = site("limits.request_memory_of_all = \"1 MiB\"\n");
    let (_, ok) = answered(&mut site, 1);
    fill(&mut site, "203.0.113.9:5060");
    assert!(passes(&mut site, ALICE, "BYE", &of_alice("BYE", &ok, 2, "")));
}

#[test]
fn a_bye_that_waits_for_a_name_has_room_for_that() {
    let mut site = site("limits.request_memory_per_source = \"128 KiB\"\n");
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let ok =
        from_phone(request(&sent, "INVITE"), "200 OK", "bob").replace(&format!("bob@{BOB}>"), "bob@phone.example.net>");
    let ok = site.receive(BOB, &ok);
    fill(&mut site, &ALICE.replace(":5060", ":6060"));
    site.engines[0].effects.clear();
    let answers = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    assert_eq!(answers, "");
    assert!(site.engines[0].effects.iter().any(|effect| matches!(effect, Effect::Resolve { .. })));
}
