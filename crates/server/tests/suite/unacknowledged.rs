//! A 2xx without an ACK: the server asks the parties whether its dialog exists.

use crate::accounting::rows;
use crate::dialogs::{ack, counts, from_phone, of_alice, request};
use crate::site::{ALICE, BOB, Site, invite, line, response};
use std::collections::BTreeSet;

const TRACKED: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\ndialogs.lifetime = \"10h\"\n";

/// Waits, and answers each OPTIONS and BYE of the server with a status chosen by target and callee's tag. Returns
/// the number of these requests.
fn answer(site: &mut Site, ms: u64, status: impl Fn(&str, &str) -> &'static str) -> usize {
    let mut seen = BTreeSet::new();
    for _ in 0..ms / 100 {
        site.wait(100);
        let text = |range| String::from_utf8_lossy(&site.out.bytes[range]).into_owned();
        let all: Vec<_> = site
            .out
            .sends()
            .iter()
            .map(|send| (send.target.address.to_string(), text(send.range())))
            .filter(|(_, text)| text.starts_with("OPTIONS ") || text.starts_with("BYE "))
            .collect();
        for (to, asked) in all.into_iter().filter(|asked| seen.insert(asked.clone())) {
            let side = if to == ALICE { line(&asked, "From") } else { line(&asked, "To") };
            let tag = side.split(";tag=").nth(1).expect("a tag").to_owned();
            match status(&to, &tag) {
                "" => (),
                status => drop(site.receive(&to, &response(&asked, status))),
            }
        }
    }
    seen.len()
}

#[test]
fn the_second_answer_of_a_fork_ends_unless_its_ack_passes() {
    const GONE: &str = "481 Call/Transaction Does Not Exist";
    for (acknowledged, alice, left) in [(true, GONE, 2), (false, GONE, 1), (false, "200 OK", 2), (false, "", 1)] {
        let mut site = Site::new(TRACKED);
        site.register(&format!("<sip:bob@{BOB}>"));
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let forwarded = request(&sent, "INVITE").to_owned();
        for tag in ["bob", "bob2"] {
            let ok = site.receive(BOB, &from_phone(&forwarded, "200 OK", tag));
            if acknowledged || tag == "bob" {
                ack(&mut site, &ok);
            }
        }
        assert_eq!(counts(&site), (1, 0, 2));
        assert_eq!(answer(&mut site, 31_900, |_, _| ""), 0, "the ACK may come yet");
        let second = |tag: &str| tag == "bob2";
        let asked = answer(&mut site, 80_000, |to, tag| {
            assert!(second(tag), "the first dialog is no question");
            if to == ALICE { alice } else { "200 OK" }
        });
        assert_eq!(asked > 0, !acknowledged);
        assert_eq!((counts(&site).2, rows(&mut site).0.len()), (left, 0), "{acknowledged} {alice}");
        // A confirmed dialog is not asked about again.
        assert_eq!(answer(&mut site, 100_000, |_, _| ""), 0);
    }
}

/// Covers a caller that does not react to an answer.
#[test]
fn a_call_without_an_ack_ends() {
    for acknowledged in [true, false] {
        let mut site = Site::new(TRACKED);
        site.register(&format!("<sip:bob@{BOB}>"));
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let ok = site.receive(BOB, &from_phone(request(&sent, "INVITE"), "200 OK", "bob"));
        if acknowledged {
            // An ACK that goes to another peer is not of the dialog.
            site.receive(
                ALICE,
                &of_alice("ACK", &ok, 1, "").replacen("sip:bob@198.51.100.8", "sip:bob@198.51.100.9", 1),
            );
            ack(&mut site, &ok);
        }
        answer(&mut site, 100_000, |to, _| if to == ALICE { "" } else { "200 OK" });
        let (cdrs, _) = rows(&mut site);
        assert_eq!((counts(&site).2, cdrs.len()), if acknowledged { (1, 0) } else { (0, 1) });
        assert!(cdrs.iter().all(|cdr| cdr.ended_by == "lost"));
    }
}
