//! Checks of the certificates that listeners and outbound TLS name. Their files are read by the process that uses them.

use super::listen::Listener;
use super::reader::Reader;
use super::report::Fault;
use super::{Config, Source};

pub(super) fn check(config: &Config, source: Source<'_>, reader: &mut Reader) {
    for (listener, path) in config.listeners.iter().zip(source.listeners(config.listeners.len(), reader.places())) {
        if listener.transport.is_secure() {
            check_listener(listener, &path, reader);
        }
    }
    check_outbound(config, reader);
}

fn check_listener(listener: &Listener, path: &str, reader: &mut Reader) {
    if listener.identity.is_none() {
        let span = reader.value_of(&format!("{path}.transport")).or_else(|| reader.key_of(path));
        let message = format!("{listener} has no certificate");
        let cure = "name the PEM files in the table [tls]: certificate = \"chain.pem\" and key = \"key.pem\"";
        reader.push(Fault::error(span, message, cure));
    }
    for (second, certificate) in listener.certificates.iter().enumerate() {
        let name = certificate.name();
        if listener.certificates[..second].iter().any(|first| first.name() == name) {
            let span = reader.value_of(&format!("{path}.certificates[{second}]"));
            let message = format!("{path}.certificates names '{name}' twice");
            reader.push(Fault::error(span, message, "name each once, the default first"));
        }
    }
}

fn check_outbound(config: &Config, reader: &mut Reader) {
    if config.tls.certificate.is_some() != config.tls.key.is_some() {
        let span = reader.first_of(&["tls.certificate", "tls.key"]);
        reader.push(Fault::error(span, "[tls] has only one of certificate and key", "name both files, or neither"));
    }
    if !config.tls.outbound_verify {
        let span = reader.value_of("tls.outbound_verify");
        let message = "certificates of other servers are not checked: anyone on the way can read and change calls";
        let cure = "set tls.outbound_verify = true, with outbound_ca for your own authority";
        reader.push(Fault::warning(span, message, cure));
    }
}
