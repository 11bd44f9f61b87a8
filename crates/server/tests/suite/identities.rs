//! Identities in header fields other than From (RFC 3325): the identities in sent messages, by their sender, and the
//! identities that rules assert.

use crate::decisions::GATEWAY;
use crate::peer::{answer, sent, status};
use crate::site::{ALICE, BOB, Site, credentials_of, line};

const NAMING: [&str; 5] =
    ["P-Asserted-Identity", "P-Preferred-Identity", "Remote-Party-ID", "Diversion", "History-Info"];

/// Settings for a PBX of alice with numbers, by an account of its own.
const NUMBERS: &str = "auth.identities = \"numbers\"\n\
    [[set]]\nname = \"numbers\"\nentries = { alice = \"+49301234560, +4930123457*\" }\n";

fn with_bob(settings: &str) -> Site {
    let mut site = Site::new(settings);
    site.register(&format!("<sip:bob@{BOB}>"));
    site
}

fn call(n: u32, cseq: u32, uri: &str, from: &str, more: &str) -> String {
    format!(
        "INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKi{n}-{cseq};rport\r\nMax-Forwards: 70\r\n\
         From: {from};tag=i{n}\r\nTo: <{uri}>\r\nCall-ID: i{n}\r\nCSeq: {cseq} INVITE\r\nContact: <sip:alice@{ALICE}>\r\n\
         {more}Content-Length: 0\r\n\r\n"
    )
}

/// Returns the INVITE that is sent for a call with alice's password, or the status of its refusal.
fn call_of_alice(site: &mut Site, n: u32, uri: &str, from: &str, more: &str) -> Result<String, u16> {
    let challenged = site.receive(ALICE, &call(n, 1, uri, from, more));
    assert!(challenged.starts_with("SIP/2.0 407 "), "{from}: {challenged}");
    let password = b"secret of alice";
    let credentials = credentials_of("alice", password, ("INVITE", uri), &challenged, 1);
    let text = call(n, 2, uri, from, &format!("{more}{credentials}"));
    if site.receive(ALICE, &text).is_empty() {
        site.answer();
    }
    let left = sent(site);
    let invite = left.iter().find(|(_, text)| text.starts_with("INVITE "));
    invite.map(|(_, text)| text.clone()).ok_or_else(|| status(&left[0].1).expect("an answer"))
}

/// Returns the lines with identities; header names in upper or lower case.
fn naming(text: &str) -> Vec<&str> {
    let names = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        NAMING.iter().any(|naming| naming.eq_ignore_ascii_case(name.trim()))
    };
    text.split("\r\n").filter(names).collect()
}

#[test]
fn identities_of_a_sender_without_a_password_are_removed() {
    let mut site = with_bob("");
    let mut n = 0;
    for value in [
        "<sip:alice@example.org>",
        "\"Alice\" <sip:alice@example.org:5999>",
        "sip:alice@example.org",
        "<sips:alice@EXAMPLE.org>",
        "<sip:%61lice@example.org.>",
        "<im:alice@example.org>",
        "<pres:alice@example.org>",
        "<mailto:alice@example.org>",
        "<sip:alice@192.0.2.1>",
        "<sip:alice@192.000.002.001>",
        "<sip:x@example.net>, <sip:alice@example.org>",
        "<sip:alice@example.org",
        "<tel:+4930123>",
        "<sip:+4930123@example.net;user=phone>",
    ] {
        for name in NAMING {
            for name in [name.to_owned(), name.to_ascii_lowercase()] {
                n += 1;
                let text =
                    call(n, 1, "sip:bob@example.org", "<sip:carol@example.net>", &format!("{name}: {value}\r\n"));
                let left = site.receive(ALICE, &text);
                assert!(left.contains("INVITE sip:bob@"), "{name}: {value}: {left}");
                assert_eq!(naming(&left), [""; 0], "{name}: {value}");
            }
        }
    }
}

#[test]
fn im_and_pres_name_a_user_of_a_local_domain_as_sip_does() {
    let mut site = with_bob("");
    for (n, from) in (1..).zip(["<im:alice@example.org>", "<PRES:alice@EXAMPLE.org>", "<sip:alice@example.org>"]) {
        let left = site.receive(ALICE, &call(n, 1, "sip:bob@example.org", from, ""));
        assert!(left.starts_with("SIP/2.0 407 "), "{from}: {left}");
    }
    let left = site.receive(ALICE, &call(9, 1, "sip:bob@example.org", "<im:carol@example.net>", ""));
    assert!(left.contains("INVITE sip:bob@"), "{left}");
}

#[test]
fn an_account_is_named_as_itself() {
    let mut site = with_bob("");
    let own = "P-Asserted-Identity: <sip:alice@example.org>";
    for (n, (more, left)) in (1..).zip([
        ("P-Asserted-Identity: \"Alice\" <sip:alice@example.org>\r\n", &["P-Asserted-Identity: \"Alice\" <sip:alice@example.org>"][..]),
        ("P-Asserted-Identity: <sip:bob@example.org>\r\n", &[own]),
        ("P-Asserted-Identity: <tel:+4911000000>\r\n", &[own]),
        ("P-Asserted-Identity: <sip:alice@example.org>, <tel:+4911000000>\r\n", &[own]),
        ("P-Preferred-Identity: <sip:alice@example.org>\r\n", &[own]),
        ("P-Preferred-Identity: <tel:+4911000000>\r\n", &[own]),
        ("P-Preferred-Identity: <sip:alice@example.org\r\n", &[own]),
        ("P-Asserted-Identity: <sip:bob@example.org>\r\nPrivacy: id\r\n", &[]),
        ("Remote-Party-ID: <sip:alice@example.org>;party=calling\r\n", &["Remote-Party-ID: <sip:alice@example.org>;party=calling"]),
        ("Remote-Party-ID: <sip:bob@example.org>;party=calling\r\n", &[]),
        (
            "Diversion: <sip:alice@example.org>;reason=no-answer\r\nDiversion: <sip:bob@example.org>;reason=unconditional\r\n",
            &["Diversion: <sip:alice@example.org>;reason=no-answer"],
        ),
        ("Diversion: <tel:+4911000000>;reason=unconditional\r\n", &[]),
        (
            "History-Info: <sip:bob@example.org>;index=1, <sip:alice@example.org>;index=1.1\r\n",
            &["History-Info: <sip:alice@example.org>;index=1.1"],
        ),
    ]) {
        let text = call_of_alice(&mut site, n, "sip:bob@example.org", "<sip:alice@example.org>", more);
        assert_eq!(naming(&text.expect("it leaves")), left, "{more}");
    }
}

#[test]
fn an_account_shows_the_numbers_that_it_may_show() {
    let mut site = with_bob(NUMBERS);
    let uri = "sip:carol@203.0.113.5";
    for (n, (from, left)) in (1..).zip([
        ("<sip:+49301234560@example.org>", Ok(())),
        ("<sip:+493012345799@10.99.0.11>", Ok(())),
        ("<sip:+49-30-123457-1@example.org;user=phone>", Ok(())),
        ("<tel:+4930123457>", Ok(())),
        ("<sip:alice@example.org>", Ok(())),
        ("\"Anonymous\" <sip:anonymous@anonymous.invalid>", Ok(())),
        ("<sip:+4930123458@example.org>", Err(403)),
        ("<sip:+49301234570@bank.test>", Err(403)),
        ("<sip:+4911000000@10.99.0.11>", Err(403)),
        ("<tel:+4911000000>", Err(403)),
        ("<sip:bob@example.org>", Err(403)),
    ]) {
        let text = call_of_alice(&mut site, n, uri, from, "");
        if let Ok(text) = &text {
            assert_eq!(line(text, "From"), format!("{from};tag=i{n}"));
        }
        assert_eq!(text.map(|_| ()), left, "{from}");
    }
    for (n, (more, asserted)) in (50..).zip([
        ("P-Preferred-Identity: <sip:+4930123457-12@pbx.local>\r\n", "+49301234560"),
        ("P-Preferred-Identity: <sip:+4930123457-12@10.0.0.1>\r\n", "+493012345712"),
        ("P-Asserted-Identity: <tel:+4911000000>, <tel:+49301234571>\r\n", "+49301234571"),
        ("P-Asserted-Identity: <tel:+4911000000>\r\n", "+49301234560"),
    ]) {
        let text = call_of_alice(&mut site, n, uri, "<sip:alice@example.org>", more).expect("it leaves");
        assert_eq!(naming(&text), [format!("P-Asserted-Identity: <sip:{asserted}@example.org>")], "{more}");
    }
}

#[test]
fn a_rule_asserts_an_identity_at_its_gateway() {
    let rule = |name: &str, identity: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nwhen = \"request.user == '{name}'\"\nto = [\"sip:{GATEWAY}\"]\nidentity = \"{identity}\"\n\
             relay_for = \"everyone\"\n"
        )
    };
    let others = "[[set]]\nname = \"others\"\nentries = { bob = \"+49309\" }\n[[source]]\nname = \"pbx\"\ntrusted = true\n\
                  networks = [\"198.51.100.77\"]\n";
    let rules = [
        rule("fixed", "+4930100"),
        rule("set", "numbers"),
        rule("other", "others"),
        rule("list", "+4930200, +49302*"),
        rule("uri", "sip:+4930300@carrier.example;user=phone"),
        rule("range", "+49302*"),
    ];
    let mut site = with_bob(&format!("{NUMBERS}{others}{}", rules.concat()));
    let range = "P-Preferred-Identity: <tel:+49302771>\r\n";
    for (n, (to, more, asserted)) in (1..).zip([
        ("fixed", "", "+4930100@example.org"),
        ("fixed", range, "+4930100@example.org"),
        ("fixed", "P-Asserted-Identity: <sip:bob@example.org>\r\nPrivacy: id\r\n", "+4930100@example.org"),
        ("set", "", "+49301234560@example.org"),
        ("set", "P-Preferred-Identity: <tel:+49301234571>\r\n", "+49301234571@example.org"),
        // The set has no entry for the account: it gets an identity that it may show, its own number first.
        ("other", "", "alice@example.org"),
        ("list", "", "+4930200@example.org"),
        ("list", range, "+49302771@example.org"),
        ("list", "P-Preferred-Identity: <tel:+4911>\r\n", "+4930200@example.org"),
        ("uri", "", "+4930300@carrier.example;user=phone"),
        ("range", "", "+49301234560@example.org"),
    ]) {
        let uri = format!("sip:{to}@example.org");
        let text = call_of_alice(&mut site, n, &uri, "<sip:alice@example.org>", more).expect("it leaves");
        assert_eq!(naming(&text), [format!("P-Asserted-Identity: <sip:{asserted}>")], "{to} {more}");
        assert_eq!(line(&text, "From"), format!("<sip:alice@example.org>;tag=i{n}"));
    }
    // An unproven caller chooses none; a trusted source does.
    for (n, (source, more, asserted)) in (50..).zip([
        (ALICE, range, "+4930200@example.org"),
        ("198.51.100.77:5060", range, "+49302771@example.org"),
        ("198.51.100.77:5060", "P-Asserted-Identity: <tel:+4911>\r\n", "+4930200@example.org"),
    ]) {
        site.receive(source, &call(n, 1, "sip:list@example.org", "<sip:carol@example.net>", more));
        let left = sent(&site);
        let invite = left.iter().find(|(_, text)| text.starts_with("INVITE ")).expect("it leaves");
        assert_eq!(naming(&invite.1), [format!("P-Asserted-Identity: <sip:{asserted}>")], "{source} {more}");
    }
}

/// Checks that `rule.identity` (a value, a pattern or a set) applies to all header fields with identities, and adds to
/// the identities of the account.
#[test]
fn a_rule_lets_an_account_show_its_numbers() {
    let set = "[[set]]\nname = \"ours\"\nentries = { alice = \"+4930555*\" }\n";
    let mut n = 0;
    for identity in ["+493055512", "+4930555*", "+493055500..+493055599", "ours"] {
        let mut site = with_bob(&format!(
            "{NUMBERS}{set}[[rule]]\nname = \"out\"\nwhen = \"request.user == '0049'\"\nto = [\"sip:{GATEWAY}\"]\nidentity = \"{identity}\"\n"
        ));
        for (uri, number, is_shown) in [
            ("sip:0049@example.org", "+493055512", true),
            ("sip:0049@example.org", "+49301234560", true),
            ("sip:0049@example.org", "+493055612", false),
            // No rule holds.
            ("sip:bob@example.org", "+493055512", false),
        ] {
            for name in ["Diversion", "History-Info", "Remote-Party-ID"] {
                n += 1;
                let more = format!("{name}: <sip:{number}@example.org>;index=1\r\n");
                let left = call_of_alice(&mut site, n, uri, "<sip:alice@example.org>", &more).expect("it leaves");
                let is_there = left.contains(&format!("{name}: <sip:{number}@example.org>"));
                assert_eq!(is_there, is_shown, "{identity} {uri} {more}: {left}");
            }
        }
    }
}

#[test]
fn a_trusted_source_is_believed_and_no_other_answer() {
    let trusted = "[[source]]\nname = \"carrier\"\nnetworks = [\"198.51.100.77\"]\ntrusted = true\n";
    let mut site = with_bob(trusted);
    let said = "P-Asserted-Identity: <tel:+4930123>\r\nRemote-Party-ID: <sip:x@example.net>;party=calling\r\n\
                Diversion: <tel:+4930124>;reason=unconditional\r\nHistory-Info: <sip:bob@example.org>;index=1\r\n";
    let left = site.receive("198.51.100.77:5060", &call(1, 1, "sip:bob@example.org", "<sip:carol@example.net>", said));
    let forwarded = &left[left.find("INVITE ").expect("it leaves")..];
    assert_eq!(naming(forwarded).len(), 4, "{forwarded}");
    // Bob's phone is not trusted.
    let callee = "P-Asserted-Identity: <sip:police@example.org>\r\nRemote-Party-ID: <tel:+49110>;party=called\r\n";
    let got = site.receive(BOB, &answer(forwarded, 180, callee));
    assert!(got.starts_with("SIP/2.0 180 ") && naming(&got).is_empty(), "{got}");
    // The source of the response counts.
    let got = site.receive("198.51.100.77:5060", &answer(forwarded, 183, callee));
    assert_eq!(naming(&got).len(), 2, "{got}");
}
