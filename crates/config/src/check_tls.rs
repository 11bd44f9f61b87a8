//! Checks of the certificates and authorities of listeners and of outbound TLS: faulty files, names that do not match.

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

/// Checks the `[[certificate]]` tables. Returns, by position, the chains that can be read.
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
    let Some(identity) = &listener.identity else {
        let span = own("transport", reader).or_else(|| reader.key_of(path));
        let message = format!("{listener} has no certificate");
        let cure = "name the PEM files in the table [tls]: certificate = \"chain.pem\" and key = \"key.pem\"";
        return reader.push(Fault::error(span, message, cure));
    };
    // Files named once for all listeners are reported once.
    if config.listeners[..index].iter().any(|other| other.identity.as_ref() == Some(identity)) {
        return;
    }
    if let (Some(files), true) = (identity.certificates.first(), listener.certificates.is_empty()) {
        let table = if config.tls.files().as_ref() == Some(files) { "tls" } else { path };
        let span = |key: &str| reader.value_of(&format!("{table}.{key}"));
        let (span, key_span) = (span("certificate"), span("key"));
        if let Some(chain) = files.check(&span, &key_span, reader) {
            names.check(&chain, &files.certificate, span, reader);
        }
    }
    check_client_ca(identity, path, reader);
}

/// Each certificate among which a listener chooses must have names of its own.
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

/// Checks the certificate and the authorities for outbound connections.
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
    // Servers may ask for it even if no listener shows it.
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

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::super::report::Severity::{self, Error, Warning};
    use super::*;

    /// Certificates of these names, and their keys.
    pub(in super::super) fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (file, names) in [
            ("west", &["west.example", "sip.west.example"][..]),
            ("east", &["east.example"]),
            ("both", &["west.example", "east.example"]),
            ("other", &["other.test"]),
        ] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
            fs::write(folder.path().join(format!("{file}.pem")), made.cert.pem()).expect("it is ours");
            let key = folder.path().join(format!("{file}.key"));
            fs::write(&key, made.signing_key.serialize_pem()).expect("it is ours");
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is ours");
        }
        folder
    }

    fn read(text: &str, folder: &Path) -> Result<(Config, super::super::Report), super::super::Report> {
        Config::read(Source { file: "test.toml", text, folder, ..Source::default() })
    }

    const DOMAINS: &str = "domains = [\"west.example\", \"east.example\"]\n";

    fn certificate(name: &str, file: &str) -> String {
        format!("[[certificate]]\nname = \"{name}\"\ncertificate = \"{file}.pem\"\nkey = \"{file}.key\"\n")
    }

    fn listener(port: u16, lines: &str) -> String {
        format!("[[listener]]\ntransport = \"tls\"\nport = {port}\n{lines}\n")
    }

    #[test]
    fn a_listener_has_the_certificates_that_it_names_in_their_order() {
        let folder = folder();
        let text = [
            DOMAINS,
            &certificate("west", "west"),
            &listener(5061, "certificates = [\"East-1\", \"west\"]\nclient_ca = \"west.pem\""),
            &certificate("East-1", "east"),
            &listener(5062, "certificate = \"both.pem\"\nkey = \"both.key\""),
            &listener(5063, ""),
            "[tls]\ncertificate = \"west.pem\"\nkey = \"west.key\"\n",
        ]
        .concat();
        let (config, report) = read(&text, folder.path()).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(report.faults(), []);
        let shown = |index: usize| -> Vec<String> {
            let identity = config.listeners[index].identity.as_ref().expect("it is for tls");
            let name =
                |path: &Path| path.strip_prefix(folder.path()).expect("it is in the folder").display().to_string();
            let pair = |files: &super::super::CertificateFiles| [name(&files.certificate), name(&files.key)].join(" ");
            identity.certificates.iter().map(pair).collect()
        };
        assert_eq!(shown(0), ["east.pem east.key", "west.pem west.key"]);
        assert_eq!((shown(1), shown(2)), (vec!["both.pem both.key".to_owned()], vec!["west.pem west.key".to_owned()]));
        let again = read(&config.effective(), folder.path()).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(again.0, config);
    }

    #[test]
    fn what_is_wrong_is_told_in_its_place() {
        let folder = folder();
        let (west, east) = (certificate("west", "west"), certificate("east", "east"));
        let (both, other) = (certificate("both", "both"), certificate("other", "other"));
        let use_all = |names: &str| listener(5061, &format!("certificates = [{names}]"));
        let expect: &[(&str, &str, Severity, usize, &str, &str)] = &[
            (&west.replace("west.pem", "no.pem"), "\"west\"", Error, 4, "no.pem: No such file", "BEGIN CERTIFICATE"),
            (&west.replace("west.key", "no.key"), "\"west\"", Error, 5, "no.key: No such file", "a private key in PEM"),
            (&west.replace("west.key", "west.pem"), "\"west\"", Error, 5, "holds no private key", "BEGIN PRIVATE KEY"),
            (
                &west.replace("west.key", "east.key"),
                "\"west\"",
                Error,
                5,
                "does not belong to the certificate",
                "made with",
            ),
            (&west, "\"West\"", Error, 9, "certificate 'West' does not exist", "did you mean 'west'?"),
            (
                &format!("{west}{east}"),
                "\"west\", \"east\", \"west\"",
                Error,
                13,
                "names 'west' twice",
                "name each once",
            ),
            (
                &west,
                "\"west\"]\ncertificate = \"west.pem\"\nkey = \"west.key\" #",
                Error,
                10,
                "by name and by file: lines 9 and 10",
                "keep `certificates`",
            ),
            (
                &west,
                "\"west\"]\nkey = \"west.key\" #",
                Error,
                10,
                "by name and by file: lines 9 and 10",
                "keep `certificates`",
            ),
            (
                &format!("{west}{both}"),
                "\"west\", \"both\"",
                Warning,
                13,
                "'west' and 'both' are both valid for west.example",
                "gets 'west', the first",
            ),
            (
                &format!("{west}{east}"),
                "\"west\"",
                Warning,
                7,
                "certificate 'east' is used nowhere",
                "name it in certificates of [[listener]]",
            ),
            (
                &other,
                "\"other\"",
                Warning,
                4,
                "other.pem is valid for none of the names of this server: west.example, east.example",
                "subjectAltName",
            ),
        ];
        for (tables, names, severity, line, message, cure) in expect {
            // A key after the list of names closes the list itself.
            let names = names
                .strip_suffix(" #")
                .map_or_else(|| use_all(names), |names| listener(5061, &format!("certificates = [{names}")));
            let text = format!("{DOMAINS}{tables}{names}");
            let report = read(&text, folder.path()).map_or_else(|report| report, |(_, report)| report);
            let [fault] = report.faults() else { panic!("not one fault: {text}{report}") };
            assert_eq!(
                (fault.severity, report.position(fault).map(|(line, _)| line)),
                (*severity, Some(*line)),
                "{text}{report}"
            );
            assert!(fault.message.contains(message) && fault.cure.contains(cure), "{text}{report}");
        }
    }

    /// The files of `[tls]` apply to every listener without its own, and to outbound connections.
    #[test]
    fn files_that_several_listeners_show_are_told_once() {
        let folder = folder();
        let tls = "[tls]\ncertificate = \"other.pem\"\nkey = \"other.key\"\n";
        for (listeners, told) in [
            ([listener(5061, ""), listener(5062, "")].concat(), 1),
            (listener(5061, "certificate = \"other.pem\"\nkey = \"other.key\""), 1),
            // No listener shows it: its names would be those of a client.
            (listener(5061, "certificate = \"west.pem\"\nkey = \"west.key\""), 0),
        ] {
            let text = format!("{DOMAINS}{listeners}{tls}");
            let (_, report) = read(&text, folder.path()).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(report.warnings(), told, "{text}{report}");
        }
    }
}
