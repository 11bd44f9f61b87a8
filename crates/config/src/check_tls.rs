//! What listeners show and demand by TLS, and what other servers are shown: files that are not what their key says, names that do not fit.

use super::certificate::{Chain, ServerNames, Span, certificates, common_names};
use super::check::listener_paths;
use super::listen::{Identity, Listener};
use super::reader::Reader;
use super::report::Fault;
use super::{Config, Source};

pub(super) fn check(config: &Config, source: Source<'_>, reader: &mut Reader) {
    let names = ServerNames::of(config);
    let named = check_named(config, &names, reader);
    for (index, path) in listener_paths(config, source, reader).iter().enumerate() {
        if config.listeners[index].transport.is_secure() {
            check_listener(config, index, path, &names, reader);
            check_choice(config, &config.listeners[index], path, &named, reader);
        }
    }
    check_outbound(config, reader);
}

/// The `[[certificate]]` tables, each in its place; the chains of those that can be read.
fn check_named(config: &Config, names: &ServerNames, reader: &mut Reader) -> Vec<Option<Chain>> {
    let check = |(index, certificate): (usize, &super::Certificate)| {
        let span = |key: &str, reader: &Reader| reader.value_of(&format!("certificate[{index}].{key}"));
        let (chain_span, key_span) = (span("certificate", reader), span("key", reader));
        let chain = certificate.files().check(&chain_span, &key_span, reader)?;
        names.check(&chain, &certificate.certificate, chain_span, reader);
        Some(chain)
    };
    config.certificates.iter().enumerate().map(check).collect()
}

fn check_listener(config: &Config, index: usize, path: &str, names: &ServerNames, reader: &mut Reader) {
    let listener = &config.listeners[index];
    let own = |key: &str, reader: &Reader| reader.value_of(&format!("{path}.{key}"));
    let certificate = own("certificate", reader);
    let key = own("key", reader);
    if !listener.certificates.is_empty()
        && let Some(second) = certificate.as_ref().or(key.as_ref())
    {
        let lines = own("certificates", reader).map(|first| reader.lines(&first, second)).unwrap_or_default();
        let message = format!("{listener} has certificates by name and by file: {lines}");
        let cure =
            "keep `certificates`, and make a [[certificate]] table of the files; or keep `certificate` and `key`";
        reader.push(Fault::error(Some(second.clone()), message, cure));
        return;
    }
    if certificate.is_some() != key.is_some() {
        let message = format!("{listener} has only one of certificate and key");
        reader.push(Fault::error(certificate.or(key), message, "name both files, or leave both to [tls]"));
        return;
    }
    let Some(identity) = &listener.identity else {
        let span = own("transport", reader).or_else(|| reader.key_of(path));
        let message = format!("{listener} has no certificate");
        let cure = "name the PEM files in the table [tls]: certificate = \"chain.pem\" and key = \"key.pem\"";
        return reader.push(Fault::error(span, message, cure));
    };
    // The same files named once for all listeners are reported once.
    if config.listeners[..index].iter().any(|other| other.identity.as_ref() == Some(identity)) {
        return;
    }
    if listener.certificates.is_empty() {
        let span = certificate.or_else(|| reader.value_of("tls.certificate"));
        let key_span = key.or_else(|| reader.value_of("tls.key"));
        for files in &identity.certificates {
            if let Some(chain) = files.check(&span, &key_span, reader) {
                names.check(&chain, &files.certificate, span.clone(), reader);
            }
        }
    }
    check_client_ca(identity, path, reader);
}

/// Of the certificates among which a listener chooses each must have names of its own.
fn check_choice(config: &Config, listener: &Listener, path: &str, named: &[Option<Chain>], reader: &mut Reader) {
    let chain = |index: usize| {
        let name = listener.certificates[index].name();
        let place = config.certificates.iter().position(|certificate| certificate.name == *name);
        place.and_then(|place| named.get(place)?.as_ref())
    };
    for second in 1..listener.certificates.len() {
        let name = listener.certificates[second].name();
        let span: Span = reader.value_of(&format!("{path}.certificates[{second}]"));
        if listener.certificates[..second].iter().any(|first| first.name() == name) {
            let message = format!("{path}.certificates names '{name}' twice");
            reader.push(Fault::error(span, message, "name each once, the default first"));
            continue;
        }
        for (first, other) in listener.certificates[..second].iter().enumerate() {
            let both = chain(first).zip(chain(second)).map_or_else(Vec::new, |(a, b)| common_names(a, b));
            if !both.is_empty() {
                let other = other.name();
                let message = format!("the certificates '{other}' and '{name}' are both valid for {}", both.join(", "));
                let cure = format!("leave one of them out: who asks for these names gets '{other}', the first");
                reader.push(Fault::warning(span.clone(), message, cure));
            }
        }
    }
}

fn check_client_ca(identity: &Identity, path: &str, reader: &mut Reader) {
    if let Some(authorities) = &identity.client_ca {
        let span = reader.first_of(&[&format!("{path}.client_ca"), "tls.client_ca"]);
        certificates(authorities, &span, reader);
    }
}

/// What this server shows and demands where it is the client.
fn check_outbound(config: &Config, reader: &mut Reader) {
    if let Some(authorities) = &config.tls.outbound_ca {
        let span = reader.value_of("tls.outbound_ca");
        certificates(authorities, &span, reader);
    }
    let needs_authorities = config.tls.outbound_verify && reader.has("tls.outbound_verify");
    if needs_authorities && config.tls.outbound_authorities().is_none() {
        let span = reader.value_of("tls.outbound_verify");
        let message = "this system keeps no list of trusted authorities, so no server could be connected to by TLS";
        reader.push(Fault::warning(span, message, "install ca-certificates, or name a PEM file in tls.outbound_ca"));
    }
    if config.tls.certificate.is_some() != config.tls.key.is_some() {
        let span = reader.first_of(&["tls.certificate", "tls.key"]);
        reader.push(Fault::error(span, "[tls] has only one of certificate and key", "name both files, or neither"));
    }
    // Shown to servers that ask for it, also where no listener shows it.
    if let Some(files) = config.tls.files() {
        let listeners = config.listeners.iter().filter(|listener| listener.certificates.is_empty());
        let mut shown = listeners.filter_map(|listener| listener.identity.as_ref());
        if !shown.any(|identity| identity.certificates.contains(&files)) {
            let (span, key_span) = (reader.value_of("tls.certificate"), reader.value_of("tls.key"));
            files.check(&span, &key_span, reader);
        }
    }
    if !config.tls.outbound_verify {
        let span = reader.value_of("tls.outbound_verify");
        let message = "certificates of other servers are not checked: anyone on the way can read and change calls";
        let cure = "set tls.outbound_verify = true, with outbound_ca for your own authority";
        reader.push(Fault::warning(span, message, cure));
    }
}
