//! Requests in the name of a party of a call that come from the address of another peer.

use crate::accounting::rows;
use crate::dialogs::{ack, answer_byes, answered, byes, counts, from_phone, of_alice, of_bob, request};
use crate::site::{ALICE, BOB, Site, invite, line, response};

/// Address of a second phone of alice, which has an account of its own.
const CAROL: &str = "203.0.113.99:5060";

fn site() -> Site {
    let mut site = Site::new(
        "auth.calls = false\naccounting.cdr = true\n[[call_limit]]\nname = \"line\"\nmost = 1\nstatus = 486\n\
         [[rule]]\nname = \"calls\"\nwhen = \"method == 'INVITE'\"\ncall_limits = [\"line\"]\n",
    );
    site.register(&format!("<sip:bob@{BOB}>"));
    site
}

/// Returns the route set of a subscription of alice to Carol with the Call-ID and the tag of alice's call. Its route
/// token is valid for requests to alice.
fn borrowed_route(site: &mut Site) -> String {
    let text = invite(1, 7, "Event: presence\r\n").replace("INVITE", "SUBSCRIBE").replacen("z9hG4bK", "z9hG4bKs", 1);
    let sent = site.receive(ALICE, &text);
    // Carol's phone is one more contact of the user whom alice watches.
    let subscribe = request(&sent, "SUBSCRIBE").to_owned();
    site.receive(BOB, &response(&subscribe, "200 OK"));
    line(&subscribe, "Record-Route").to_owned()
}

/// Sends a request in bob's name from Carol to alice, along this route set.
fn forged(site: &mut Site, forwarded: &str, method: &str, more: &str, route: &str) -> String {
    let text = of_bob(method, forwarded, "bob", 9, more).replace(line(forwarded, "Record-Route"), route);
    let sent = site.receive(CAROL, &text);
    assert!(sent.contains(&format!("{method} sip:alice@")), "{sent}");
    request(&sent, method).to_owned()
}

fn limited(site: &Site) -> u32 {
    site.shared.call_limits.list().iter().map(|(_, calls)| calls).sum()
}

#[test]
fn a_bye_from_elsewhere_ends_no_call_until_its_party_has_ended_it() {
    for status in ["200 OK", "481 Call/Transaction Does Not Exist", "408 Request Timeout"] {
        let mut site = site();
        let (forwarded, _) = answered(&mut site, 1);
        site.wait(5_000);
        let route = borrowed_route(&mut site);
        let bye = forged(&mut site, &forwarded, "BYE", "", &route);
        site.receive(ALICE, &response(&bye, status));
        assert_eq!((counts(&site), limited(&site), rows(&mut site).0.len()), ((1, 0, 1), 1, 0), "{status}");
        // The server asks bob, and the call lasts until he has answered.
        let targets: Vec<String> = byes(&site).into_iter().map(|(to, _)| to).collect();
        assert!(targets.contains(&BOB.to_owned()), "{status}: {targets:?}");
        let own = byes(&site);
        site.wait(3_000);
        assert_eq!((limited(&site), rows(&mut site).0.len()), (1, 0), "{status}");
        own.iter().for_each(|(to, bye)| drop(site.receive(to, &response(bye, "200 OK"))));
        let (cdrs, _) = rows(&mut site);
        assert_eq!((counts(&site), limited(&site), cdrs.len()), ((0, 0, 0), 0, 1), "{status}");
        assert_eq!(cdrs[0].end.expect("an end") - cdrs[0].answer.expect("an answer"), 8_000, "{status}");
    }
}

/// Checks that no target changes, because a changed target would receive the caller's own BYE.
#[test]
fn a_target_refresh_from_elsewhere_changes_no_target() {
    let mut site = site();
    // The route token of an earlier call with the same Call-ID and tag leads to alice.
    let (earlier, ok) = answered(&mut site, 1);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    assert_eq!(rows(&mut site).0.len(), 1);
    let sent = site.receive(ALICE, &invite(1, 5, ""));
    let forwarded = request(&sent, "INVITE").to_owned();
    let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", "bob"));
    ack(&mut site, &ok);
    let contact = format!("Contact: <sip:carol@{CAROL}>\r\n");
    let update = forged(&mut site, &forwarded, "UPDATE", &contact, line(&earlier, "Record-Route"));
    let answer = response(&update, "200 OK")
        .replace("Content-Length", &format!("Contact: <sip:alice@{ALICE}>\r\nContent-Length"));
    let answer = site.receive(ALICE, &answer);
    assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
    // The seal of that Contact leads to Carol.
    let contact = line(&update, "Contact").to_owned();
    let text = of_alice("BYE", &ok, 6, "").replacen(
        line(&ok, "Contact").trim_matches(['<', '>']),
        contact.trim_matches(['<', '>']),
        1,
    );
    let bye = site.receive(ALICE, &text);
    if bye.contains("BYE sip:carol@") {
        site.receive(CAROL, &response(request(&bye, "BYE"), "200 OK"));
    }
    assert_eq!((counts(&site), limited(&site), rows(&mut site).0.len()), ((1, 0, 1), 1, 0), "{bye}");
}

/// Checks that a changed port is accepted, because a new connection, or an address translator that has dropped its
/// mapping, changes only the port.
#[test]
fn a_bye_from_another_port_is_one_of_the_party() {
    let mut site = site();
    let (_, ok) = answered(&mut site, 1);
    let bye = site.receive(&ALICE.replace(":5060", ":49152"), &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    assert_eq!((counts(&site), limited(&site), rows(&mut site).0.len()), ((0, 0, 0), 0, 1));
    assert!(answer_byes(&mut site, "200 OK").is_empty());
}
