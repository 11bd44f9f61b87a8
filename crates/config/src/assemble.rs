//! Assembly of the tables of a file: listeners and domains of both forms, derived defaults, the secret from the
//! environment.

use std::collections::HashSet;

use super::certificate::{Certificate, CertificateFiles};
use super::domains::{Domain, LocalDomain};
use super::listen::{Identity, ListenAddress, Listener, ListenerTable};
use super::name::Reference;
use super::reader::Reader;
use super::report::Fault;
use super::tls::Tls;
use super::{Auth, Config, SECRET_VARIABLE, Secret, Source, Tables, rules};

/// Builds the configuration from tables whose paths are already absolute.
pub(super) fn assemble(mut tables: Tables, source: Source<'_>, reader: &mut Reader) -> Config {
    let listeners = listeners(&mut tables, source.listen, reader);
    let (domains, realm) = domains(&mut tables, &listeners, reader);
    tables.auth.secret = secret(&tables.auth, source, reader);
    let certificates = std::mem::take(&mut tables.certificate);
    let (sources, sets, rules) =
        (std::mem::take(&mut tables.source), std::mem::take(&mut tables.set), std::mem::take(&mut tables.rule));
    let (filters, failures) = (std::mem::take(&mut tables.filter), std::mem::take(&mut tables.failure));
    let (call_limits, caches) = (std::mem::take(&mut tables.call_limit), std::mem::take(&mut tables.cache));
    let gateway_groups = std::mem::take(&mut tables.gateway_group);
    let lists = rules::Lists {
        rules: &rules,
        sets: &sets,
        sources: &sources,
        failures: &failures,
        filters: &filters,
        call_limits: &call_limits,
        gateway_groups: &gateway_groups,
        emergency: &tables.emergency,
        auth: &tables.auth,
    };
    let decisions = rules::compile(lists, tables.proxy.record_route, reader);
    tables.into_config(
        listeners,
        domains,
        certificates,
        sources,
        sets,
        call_limits,
        gateway_groups,
        filters,
        failures,
        rules,
        caches,
        realm,
        decisions,
    )
}

fn listeners(tables: &mut Tables, from_command_line: &[ListenAddress], reader: &mut Reader) -> Vec<Listener> {
    let short: &[ListenAddress] = match from_command_line {
        [] if tables.listener.is_empty() || reader.has("listen") => &tables.top.listen,
        short => short,
    };
    let mut listeners: Vec<Listener> = short.iter().copied().map(Listener::from).collect();
    if from_command_line.is_empty() {
        for (index, table) in std::mem::take(&mut tables.listener).into_iter().enumerate() {
            check_forms(&table, &format!("listener[{index}]"), reader);
            listeners.push(table.into());
        }
    }
    for listener in &mut listeners {
        if listener.algorithms.is_empty() {
            listener.algorithms.clone_from(&tables.auth.algorithms);
        }
        listener.identity = identity(listener, &tables.tls, &tables.certificate);
    }
    listeners
}

/// Checks that a listener names either `certificates` or the two files of one certificate.
fn check_forms(table: &ListenerTable, path: &str, reader: &mut Reader) {
    if !table.transport.is_secure() {
        return;
    }
    let listener = ListenAddress::from(table);
    let place = |key: &str| reader.value_of(&format!("{path}.{key}"));
    let certificate = table.certificate.as_ref().and_then(|_| place("certificate"));
    let key = table.key.as_ref().and_then(|_| place("key"));
    if let (Some(names), Some(file), false) =
        (place("certificates"), certificate.as_ref().or(key.as_ref()), table.certificates.is_empty())
    {
        let message = format!("{listener} has certificates by name and by file: {}", reader.lines(&names, file));
        let cure =
            "keep `certificates`, and make a [[certificate]] table of the files; or keep `certificate` and `key`";
        reader.error(file.clone(), message, cure);
    } else if certificate.is_some() != key.is_some() {
        let message = format!("{listener} has only one of certificate and key");
        reader.push(Fault::error(certificate.or(key), message, "name both files, or leave both to [tls]"));
    }
}

/// Returns the certificates and client authorities of a listener. The values of `[tls]` are the defaults.
fn identity(listener: &Listener, tls: &Tls, named: &[Certificate]) -> Option<Identity> {
    if !listener.transport.is_secure() {
        return None;
    }
    // The shown certificate and the demanded client authorities are independent settings.
    let own = listener.identity.as_ref();
    let client_ca = own.and_then(|own| own.client_ca.clone()).or_else(|| tls.client_ca.clone());
    let find = |name: &Reference<Certificate>| named.iter().find(|certificate| certificate.name == *name.name());
    let mut certificates: Vec<CertificateFiles> =
        listener.certificates.iter().filter_map(find).map(Certificate::files).collect();
    if certificates.is_empty() {
        let own = own.map(|own| own.certificates.clone()).filter(|own| !own.is_empty());
        certificates = own.unwrap_or_else(|| tls.files().into_iter().collect());
    }
    (!certificates.is_empty()).then_some(Identity { certificates, client_ca })
}

/// Returns the local domains, those of the short form first, and the realm that all domains of the short form have.
fn domains(tables: &mut Tables, listeners: &[Listener], reader: &Reader) -> (Vec<LocalDomain>, String) {
    let own: Vec<LocalDomain> = std::mem::take(&mut tables.domain).into_iter().filter_map(LocalDomain::of).collect();
    let short = tables.top.domains.take().unwrap_or_else(|| {
        if !own.is_empty() && !reader.has("domains") {
            return Vec::new();
        }
        let mut seen: HashSet<Domain> = own.iter().map(|domain| domain.name.clone()).collect();
        let hosts = listeners.iter().filter_map(Listener::host).filter_map(|host| host.parse().ok());
        hosts.filter(|host: &Domain| seen.insert(host.clone())).collect()
    });
    let first = || short.first().map(ToString::to_string).or_else(|| own.first().map(|first| first.realm.clone()));
    let realm = tables.top.realm.take().or_else(first).unwrap_or_else(|| "strowger".into());
    let short =
        short.into_iter().map(|name| LocalDomain { name, realm: realm.clone(), has_table: false, aliases: Vec::new() });
    (short.chain(own).collect(), realm)
}

/// Returns the secret of `auth`. The environment variable takes precedence. Otherwise `secret` and `secret_file` must not both be set. Returns `None`
/// for `secret_file`, because this crate opens no file.
fn secret(auth: &Auth, source: Source<'_>, reader: &mut Reader) -> Option<Secret> {
    if let Some(text) = (source.environment)(SECRET_VARIABLE) {
        return match Secret::new(text.trim_end_matches(['\r', '\n'])) {
            Ok(secret) => Some(secret),
            Err(message) => {
                let cure = "put at least 16 random characters there (openssl rand -hex 32 makes some)";
                reader.push(Fault::error(None, format!("the environment variable {SECRET_VARIABLE} {message}"), cure));
                None
            }
        };
    }
    if auth.secret.is_some() && auth.secret_file.is_some() {
        let message = "auth.secret and auth.secret_file are both set";
        let span = reader.value_of("auth.secret_file");
        reader.push(Fault::error(span, message, "keep one of the two, better secret_file"));
    }
    auth.secret.clone()
}
