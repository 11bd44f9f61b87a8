//! Checks of the files of certificates and authorities of listeners and of outbound TLS: faulty files, names that do not match.

use super::certificates::{Chain, ServerNames, certificates, check_files, common_names};
use super::findings::Findings;
use crate::authorities;
use strowger_config::{Certificate, Config, Fault, Identity, Listener, Source};

pub(super) fn check(config: &Config, source: Source<'_>, findings: &mut Findings<'_>) {
    let names = ServerNames::of(config);
    let named = check_named(config, &names, findings);
    for (index, path) in source.listeners(config.listeners.len(), findings.places).iter().enumerate() {
        if config.listeners[index].transport.is_secure() {
            check_listener(config, index, path, &names, findings);
            check_choice(config, &config.listeners[index], path, &named, findings);
        }
    }
    check_outbound(config, findings);
}

/// Checks the `[[certificate]]` tables. Returns the chains that can be read, each at the position of its table.
fn check_named(config: &Config, names: &ServerNames, findings: &mut Findings<'_>) -> Vec<Option<Chain>> {
    let check = |(index, certificate): (usize, &Certificate)| {
        let span = |key: &str| findings.places.value_of(&format!("certificate[{index}].{key}"));
        let (chain_span, key_span) = (span("certificate"), span("key"));
        let chain = check_files(&certificate.files(), &chain_span, &key_span, findings)?;
        names.check(&chain, &certificate.certificate, chain_span, findings);
        Some(chain)
    };
    config.certificates.iter().enumerate().map(check).collect()
}

fn check_listener(config: &Config, index: usize, path: &str, names: &ServerNames, findings: &mut Findings<'_>) {
    let listener = &config.listeners[index];
    let Some(identity) = &listener.identity else { return };
    // Files named once for all listeners are reported once.
    if config.listeners[..index].iter().any(|other| other.identity.as_ref() == Some(identity)) {
        return;
    }
    if let (Some(files), true) = (identity.certificates.first(), listener.certificates.is_empty()) {
        let table = if config.tls.files().as_ref() == Some(files) { "tls" } else { path };
        let span = |key: &str| findings.places.value_of(&format!("{table}.{key}"));
        let (span, key_span) = (span("certificate"), span("key"));
        if let Some(chain) = check_files(files, &span, &key_span, findings) {
            names.check(&chain, &files.certificate, span, findings);
        }
    }
    check_client_ca(identity, path, findings);
}

/// Checks that each of the certificates among which a listener chooses has a name that no other of them has.
fn check_choice(
    config: &Config,
    listener: &Listener,
    path: &str,
    named: &[Option<Chain>],
    findings: &mut Findings<'_>,
) {
    let chain = |index: usize| {
        let name = listener.certificates[index].name();
        let place = config.certificates.iter().position(|certificate| certificate.name == *name);
        place.and_then(|place| named.get(place)?.as_ref())
    };
    for second in 1..listener.certificates.len() {
        let name = listener.certificates[second].name();
        // A repetition is a fault of the text.
        if listener.certificates[..second].iter().any(|first| first.name() == name) {
            continue;
        }
        let span = findings.places.value_of(&format!("{path}.certificates[{second}]"));
        for (first, other) in listener.certificates[..second].iter().enumerate() {
            let both = chain(first).zip(chain(second)).map_or_else(Vec::new, |(a, b)| common_names(a, b));
            if !both.is_empty() {
                let other = other.name();
                let message = format!("the certificates '{other}' and '{name}' are both valid for {}", both.join(", "));
                let cure = format!("leave one of them out: who asks for these names gets '{other}', the first");
                findings.push(Fault::warning(span.clone(), message, cure));
            }
        }
    }
}

fn check_client_ca(identity: &Identity, path: &str, findings: &mut Findings<'_>) {
    if let Some(authorities) = &identity.client_ca {
        let span = findings.places.first_of(&[&format!("{path}.client_ca"), "tls.client_ca"]);
        certificates(authorities, &span, findings);
    }
}

/// Checks the certificate and the authorities for outbound connections.
fn check_outbound(config: &Config, findings: &mut Findings<'_>) {
    let (tls, places) = (&config.tls, findings.places);
    if let Some(authorities) = &tls.outbound_ca {
        certificates(authorities, &places.value_of("tls.outbound_ca"), findings);
    }
    let needs_authorities = tls.outbound_verify && places.has("tls.outbound_verify");
    if needs_authorities && authorities::outbound(tls).is_none() {
        let span = places.value_of("tls.outbound_verify");
        let message = "this system keeps no list of trusted authorities, so no server could be connected to by TLS";
        findings.push(Fault::warning(span, message, "install ca-certificates, or name a PEM file in tls.outbound_ca"));
    }
    // Servers may ask for this certificate even if no listener shows it.
    if let Some(files) = tls.files() {
        let listeners = config.listeners.iter().filter(|listener| listener.certificates.is_empty());
        let mut shown = listeners.filter_map(|listener| listener.identity.as_ref());
        if !shown.any(|identity| identity.certificates.contains(&files)) {
            let (span, key_span) = (places.value_of("tls.certificate"), places.value_of("tls.key"));
            check_files(&files, &span, &key_span, findings);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::preflight;
    use strowger_config::Report;
    use strowger_config::Severity::{self, Error, Warning};

    /// Returns the certificates of these names, and their keys.
    fn folder() -> tempfile::TempDir {
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

    fn read(text: &str, folder: &Path) -> Result<(Config, Report), Report> {
        preflight::read(Source { file: "test.toml", text, folder, ..Source::default() })
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
            let pair =
                |files: &strowger_config::CertificateFiles| [name(&files.certificate), name(&files.key)].join(" ");
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
            // No listener shows this certificate, so its names are not checked: they would be the names of a client.
            (listener(5061, "certificate = \"west.pem\"\nkey = \"west.key\""), 0),
        ] {
            let text = format!("{DOMAINS}{listeners}{tls}");
            let (_, report) = read(&text, folder.path()).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(report.warnings(), told, "{text}{report}");
        }
    }
}
