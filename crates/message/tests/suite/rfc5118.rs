//! The IPv6 torture messages of RFC 5118: which of them the parser accepts, and the addresses that it finds.
//!
//! Read from `$STROWGER_CORPORA/rfc5118`; the cases at the end of the file are the project's own.

use crate::corpora::corpus;
use std::net::IpAddr;
use strowger_message::{Error, Host, Index, Limits, MandatoryHeaders, Message};

fn verdict(bytes: &[u8]) -> Result<(), Error> {
    let mut index = Index::new();
    index.parse(bytes, &Limits::default())?;
    let message = Message::new(bytes, &index);
    MandatoryHeaders::of(&message)?;
    message.vias().try_for_each(|via| via.map(|_| ()))?;
    message.contacts().try_for_each(|contact| contact.map(|_| ()))
}

#[test]
fn the_12_verdicts() {
    let Some(folder) = corpus("rfc5118") else { return };
    let text = std::fs::read(folder.join("expected.json")).expect("the corpus has verdicts");
    let all: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let all = all.as_array().expect("a list");
    assert_eq!(all.len(), 12);
    for case in all {
        let id = case["id"].as_str().expect("text");
        let bytes = std::fs::read(folder.join(id)).expect("the corpus has the message");
        let verdict = verdict(&bytes);
        println!("{id:32} {}", verdict.map_or_else(|e| e.to_string(), |()| "taken".to_owned()));
        // Section 4.10: three colons come from an error in the grammar of RFC 3261; accepting them is allowed.
        if id != "ipv6-bug-abnf-3-colons" {
            assert_eq!(verdict.is_ok(), case["valid"].as_bool().expect("yes or no"), "{id}: {verdict:?}");
        }
        if let Err(error) = verdict {
            assert_eq!(error.status(), 400, "{id}");
        }
    }
}

/// Host, port and `received` of the topmost Via as the parser reads them.
fn via(value: &str) -> Option<(Option<IpAddr>, Option<u16>, Option<IpAddr>)> {
    let text = format!(
        "OPTIONS sip:a@example.com SIP/2.0\r\nVia: {value}\r\nFrom: <sip:a@[2001:db8::1]>;tag=1\r\nTo: <sip:b@b.example>\r\n\
         Call-ID: 1@[2001:db8::1]\r\nCSeq: 1 OPTIONS\r\n\r\n"
    );
    let mut index = Index::new();
    index.parse(text.as_bytes(), &Limits::default()).expect("written here");
    let via = MandatoryHeaders::of(&Message::new(text.as_bytes(), &index)).ok()?.via;
    let host = match via.host {
        Host::Name(_) => None,
        Host::V4(ip) => Some(ip.into()),
        Host::V6(ip) => Some(ip.into()),
    };
    Some((host, via.port, via.received_ip()))
}

#[test]
fn addresses_and_ports() {
    let ip = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
    assert_eq!(via("SIP/2.0/UDP [2001:db8::10:5070]"), Some((ip("2001:db8::10:5070"), None, None)));
    assert_eq!(via("SIP/2.0/UDP [2001:db8::10]:5070"), Some((ip("2001:db8::10"), Some(5070), None)));
    assert_eq!(via("SIP/2.0/TCP [::ffff:192.0.2.10]"), Some((ip("::ffff:192.0.2.10"), None, None)));
    assert_eq!(via("SIP/2.0/UDP a.b;received=[2001:db8::9:255]"), Some((None, None, ip("2001:db8::9:255"))));
    assert_eq!(via("SIP/2.0/UDP a.b;received=2001:db8::9:255"), Some((None, None, ip("2001:db8::9:255"))));
    assert_eq!(via("SIP/2.0/UDP [2001:db8::9:1], SIP/2.0/UDP 192.0.2.1"), Some((ip("2001:db8::9:1"), None, None)));
    assert_eq!(via("SIP/2.0/UDP 2001:db8::10"), None);
    assert_eq!(via("SIP/2.0/UDP [2001:db8::10"), None);
    assert_eq!(via("SIP/2.0/UDP [2001:db8::g]"), None);
    assert_eq!(via("SIP/2.0/UDP [1:2:3:4:5:6:7:8:9]"), None);
    assert_eq!(via("SIP/2.0/UDP []"), None);
}
