//! Names of a domain: a user is the same under each of them, and under the address of the server.

use super::site::{ALICE, BOB, Site, line, response};

const SHORT: &str = "domains = [\"example.org\"]";
const LIST: &str = "domains = [\"example.org\", \"sip.example.org\"]";
const TABLE: &str = "[[domain]]\nname = \"example.org\"\naliases = [\"sip.example.org\"]";
const TENANTS: &str = "[[domain]]\nname = \"b.example\"\n[[domain]]\nname = \"example.org\"\naliases = [\"sip.example.org\", \"192.0.2.1\"]";
const UNSTATED: &str = "[[domain]]\nname = \"example.org\"\n[[domain]]\nname = \"b.example\"\n";

const HOSTS: [&str; 6] =
    ["example.org", "EXAMPLE.org:5060", "192.0.2.1", "192.0.2.1:5060", "sip.example.org", "sip.example.org:5060"];

fn site(domains: &str, more: &str) -> Site {
    let top =
        format!("listen = [\"udp:192.0.2.1:5060\"]\nregistrar.authenticate = false\nauth.calls = false\n{more}\n");
    Site::of_example(&format!("{top}{domains}\n"))
}

fn request(method: &str, uri: &str, from: &str, to: &str, call: usize) -> String {
    let contact = from.split(['@', ':']).nth(1).unwrap_or_default();
    let phone = if contact == "bob" { BOB } else { ALICE };
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {phone};branch=z9hG4bK{call};rport\r\nMax-Forwards: 70\r\n\
         From: <{from}>;tag=a\r\nTo: <{to}>\r\nCall-ID: {call}\r\nCSeq: 1 {method}\r\nEvent: dialog\r\n\
         Contact: <sip:{contact}@{phone}>;expires=3600\r\nContent-Length: 0\r\n\r\n"
    )
}

fn register(site: &mut Site, host: &str, call: usize) -> String {
    let (uri, user) = (format!("sip:{host}"), format!("sip:bob@{host}"));
    site.receive(BOB, &request("REGISTER", &uri, &user, &user, call))
}

/// Checks that users who register under one name are reached under each name.
#[test]
fn a_user_is_one_under_each_name_of_the_domain() {
    let mut call = 0;
    for (domains, hosts) in [(SHORT, &HOSTS[..4]), (LIST, &HOSTS[..]), (TABLE, &HOSTS[..]), (TENANTS, &HOSTS[..])] {
        for registered in hosts {
            let mut site = site(domains, "");
            call += 1;
            let ok = register(&mut site, registered, call);
            assert!(ok.starts_with("SIP/2.0 200 "), "{domains} {registered}: {ok}");
            for host in hosts {
                for method in ["INVITE", "MESSAGE", "SUBSCRIBE", "OPTIONS"] {
                    call += 1;
                    let (from, to) = (format!("sip:alice@{host}"), format!("sip:bob@{host}"));
                    let sent = site.receive(ALICE, &request(method, &to, &from, &to, call));
                    let goes_on = format!("{method} sip:bob@{BOB} SIP/2.0\r\n");
                    assert!(sent.contains(&goes_on), "{domains} {registered} {host} {method}: {sent}");
                }
                // The phones of a user do not answer for the user's own state.
                call += 1;
                let (from, to) = (format!("sip:bob@{host}"), format!("sip:bob@{registered}"));
                let own = site.receive(BOB, &request("SUBSCRIBE", &to, &from, &to, call));
                assert!(own.starts_with("SIP/2.0 489 "), "{domains} {registered} {host}: {own}");
            }
            // Both names mean one user: the other name shows the same binding, and removes it.
            call += 1;
            let gone = register(&mut site, hosts[0], call).replace("REGISTER", "");
            assert_eq!(gone.matches("Contact: ").count(), 1, "{gone}");
        }
    }
}

/// Checks that an address of the server belongs to no domain if there are two domains, and has no target.
#[test]
fn an_address_is_of_none_of_two_domains_unless_one_names_it() {
    let mut site = site(UNSTATED, "proxy.relay_for = \"everyone\"");
    assert!(register(&mut site, "example.org", 1).starts_with("SIP/2.0 200 "));
    assert!(register(&mut site, "192.0.2.1", 2).starts_with("SIP/2.0 404 "));
    for (call, host) in ["192.0.2.1", "192.0.2.1:5060"].into_iter().enumerate() {
        let to = format!("sip:bob@{host}");
        let sent = site.receive(ALICE, &request("INVITE", &to, "sip:x@example.net", &to, 10 + call));
        assert!(sent.starts_with("SIP/2.0 404 "), "{host}: {sent}");
    }
    // A port without a listener is another program, in the other cases too.
    for domains in [SHORT, TENANTS] {
        let mut site = self::site(domains, "");
        assert!(register(&mut site, "example.org", 1).starts_with("SIP/2.0 200 "));
        let to = "sip:bob@192.0.2.1:5099";
        let sent = site.receive(ALICE, &request("INVITE", to, "sip:x@example.net", to, 2));
        assert!(!sent.contains(&format!("INVITE sip:bob@{BOB}")), "{sent}");
    }
}

/// Covers a contact that names its own user by another name of the domain, which would make a loop.
#[test]
fn a_contact_with_another_name_of_its_user_is_refused_and_one_of_another_user_leads_on() {
    for domains in [LIST, TABLE, TENANTS] {
        for (n, host) in HOSTS.iter().enumerate() {
            let mut site = site(domains, "");
            let of = |user: &str| {
                let text = request("REGISTER", "sip:example.org", "sip:bob@example.org", "sip:bob@example.org", n + 1);
                text.replace(&format!("<sip:bob@{BOB}>"), &format!("<sip:{user}@{host}>"))
            };
            let own = site.receive(BOB, &of("bob"));
            assert!(own.starts_with("SIP/2.0 403 "), "{domains} {host}: {own}");
            let forwards = site.receive(BOB, &of("carol").replace("Call-ID: ", "Call-ID: c"));
            assert!(forwards.starts_with("SIP/2.0 200 "), "{domains} {host}: {forwards}");
            let carol = request("REGISTER", "sip:example.org", "sip:carol@example.org", "sip:carol@example.org", 99);
            assert!(site.receive(ALICE, &carol).starts_with("SIP/2.0 200 "));
            let call = request("INVITE", "sip:bob@192.0.2.1", "sip:alice@example.org", "sip:bob@192.0.2.1", 100);
            let sent = site.receive(ALICE, &call);
            assert!(sent.contains(&format!("INVITE sip:carol@{ALICE} ")), "{domains} {host}: {sent}");
        }
    }
}

/// Checks that a number that is called at the address of the server is a number of the office: rules see the domain.
#[test]
fn a_carrier_calls_numbers_at_the_address_of_the_server() {
    const RULES: &str = "[[source]]\nname = \"carrier\"\nnetworks = [\"198.51.100.7\"]\ntrusted = true\n\
        [[set]]\nname = \"office\"\nentries = { \"+49301234560\" = \"bob\" }\n\
        [[rule]]\nname = \"in\"\nwhen = \"source.group == 'carrier' and number in office and request.domain == 'example.org' and request.local\"\n\
        translate = \"office\"\n";
    for domains in [SHORT, TABLE, TENANTS] {
        for host in ["example.org", "192.0.2.1", "192.0.2.1:5060"] {
            let mut site = site(&format!("{domains}\n{RULES}"), "");
            assert!(register(&mut site, "example.org", 1).starts_with("SIP/2.0 200 "));
            let to = format!("sip:+49301234560@{host}");
            let sent = site.receive(ALICE, &request("INVITE", &to, "sip:+4477@carrier.example", &to, 2));
            assert!(sent.contains(&format!("INVITE sip:bob@{BOB} ")), "{domains} {host}: {sent}");
        }
    }
}

/// Checks that a limit of calls has one count for a user under all names.
#[test]
fn limits_count_a_user_once() {
    for (per, varied) in [("from.uri", "caller"), ("request.uri", "callee")] {
        let limit = format!(
            "[[call_limit]]\nname = \"few\"\nmost = 2\nper = \"{per}\"\nstatus = 486\n[[rule]]\nname = \"all\"\nwhen = \"method == 'INVITE'\"\n\
             call_limits = [\"few\"]\n"
        );
        let mut site = site(&format!("{LIST}\n{limit}"), "");
        assert!(register(&mut site, "example.org", 1).starts_with("SIP/2.0 200 "));
        for (n, host) in HOSTS[..3].iter().enumerate() {
            let (from, to) = match varied {
                "caller" => (format!("sip:alice@{host}"), "sip:bob@example.org".to_owned()),
                _ => (format!("sip:alice{n}@example.org"), format!("sip:bob@{host}")),
            };
            let sent = site.receive(ALICE, &request("INVITE", &to, &from, &to, 10 + n));
            if n < 2 {
                let at = sent.find("INVITE ").unwrap_or_else(|| panic!("{per} {host}: {sent}"));
                assert!(site.receive(BOB, &response(&sent[at..], "180 Ringing")).starts_with("SIP/2.0 180 "));
            } else {
                assert!(sent.starts_with("SIP/2.0 486 "), "{per} {host}: {sent}");
                assert_eq!(line(&sent, "Call-ID"), (10 + n).to_string());
            }
        }
    }
}
