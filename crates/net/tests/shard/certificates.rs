//! Certificates that clients get, and refused files.

use crate::authority::{Authority, Client, read, secure};
use crate::echo::settings;
use crate::relay::start;
use rcgen::{KeyPair, PKCS_ED25519};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ALL_VERSIONS, ClientConfig, ClientConnection, RootCertStore, SignatureScheme};
use std::sync::Arc;
use strowger_net::{Net, tls};

#[test]
fn a_client_is_shown_the_certificate_of_the_name_it_asks_for() {
    let authority = Authority::new();
    let first = authority.issue("first", &["first.test"]);
    let exact = authority.issue("exact", &["b.test", "in.wild.test"]);
    let wildcard = authority.issue("wildcard", &["*.wild.test"]);
    for shards in [1, 3] {
        let node = start(settings(shards), vec![secure(&[&first, &exact, &wildcard])]);
        for version in [&TLS12, &TLS13] {
            let client = Client::new(&[version], None);
            for (name, expected) in [
                (Some("b.test"), &exact),
                (Some("B.Test"), &exact),
                (Some("first.test"), &first),
                (Some("a.wild.test"), &wildcard),
                (Some("A.WILD.TEST"), &wildcard),
                (Some("in.wild.test"), &exact),
                (Some("two.labels.wild.test"), &first),
                (Some("wild.test"), &first),
                (Some("unknown.test"), &first),
                (None, &first),
            ] {
                let mut connection = client.connect(node.handle().addresses()[0], name);
                let shown = connection.exchange().unwrap();
                assert!(shown == read(expected), "{version:?} {name:?} with {shards} shards");
            }
        }
    }
}

/// Assumption of the table above: the client of the tests sends a name unchanged.
#[test]
fn the_client_of_these_tests_does_not_change_the_case_of_a_name() {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from("A.WILD.TEST").unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    assert!(hello.windows(11).any(|window| window == b"A.WILD.TEST"));
}

#[test]
fn of_two_certificates_of_one_name_a_client_gets_the_one_whose_key_it_knows() {
    let authority = Authority::new();
    let p256 = authority.issue("p256", &["a.test"]);
    let ed25519 = authority.issue_for("ed25519", &["a.test"], &KeyPair::generate_for(&PKCS_ED25519).unwrap());
    let old = Client::knowing(|scheme| scheme != SignatureScheme::ED25519, ALL_VERSIONS, None);
    for (certificates, ed_first) in [([&p256, &ed25519], false), ([&ed25519, &p256], true)] {
        let node = start(settings(1), vec![secure(&certificates)]);
        let to = node.handle().addresses()[0];
        for name in [Some("a.test"), None] {
            let shown = |client: &Client| client.connect(to, name).exchange().unwrap();
            let any = if ed_first { &ed25519 } else { &p256 };
            assert!(shown(&Client::new(ALL_VERSIONS, None)) == read(any), "{name:?}");
            assert!(shown(&old) == read(&p256), "{name:?}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_listener() {
    let authority = Authority::new();
    let [good, other, nameless] = [("good", &["a.test"][..]), ("other", &["b.test"]), ("nameless", &[])]
        .map(|(f, names)| authority.issue(f, names));
    let broken = authority.file("broken.pem");
    std::fs::write(&broken, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let nowhere = authority.file("nowhere.pem");
    for (wrong, file, word) in [
        (tls::Certificate::new(&good.chain, &other.key), &other.key, "is not the key of the certificate in"),
        (tls::Certificate::new(&nowhere, &good.key), &nowhere, "No such file"),
        (tls::Certificate::new(&good.chain, &nowhere), &nowhere, "No such file"),
        (tls::Certificate::new(&broken, &good.key), &broken, ""),
        (tls::Certificate::new(&good.chain, &good.chain), &good.chain, ""),
        (nameless.clone(), &nameless.chain, "no DNS name"),
    ] {
        let listener = secure(&[&good, &wrong]);
        let error = Net::bind(settings(1), vec![listener]).err().expect("it is refused").to_string();
        let expected = format!("tls:127.0.0.1:0: {}: ", file.display());
        assert!(error.starts_with(&expected) && error.contains(word), "{error} is not {expected}{word}");
    }
    assert!(Net::bind(settings(1), vec![secure(&[&nameless])]).is_ok(), "as the only one it is shown to all");
    let mut empty = secure(&[&good]);
    empty.tls.as_mut().unwrap().certificates.clear();
    let error = Net::bind(settings(1), vec![empty]).err().expect("it is refused").to_string();
    assert!(error.contains("no certificate given"), "{error}");
}
