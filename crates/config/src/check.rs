//! Checks for settings that contradict each other.

use std::net::IpAddr;
use std::time::Duration;

use super::certificate::Span;
use super::domains::Domain;
use super::key::duration_text;
use super::listen::Listener;
use super::reader::Reader;
use super::report::Fault;
use super::{
    Config, Source, check_cache, check_call_limit, check_database, check_dialogs, check_emergency, check_media,
    check_relay, check_rules, check_tls, gateway_group,
};

pub(super) fn check(config: &Config, source: Source<'_>, reader: &mut Reader) {
    warn_if_empty(source, reader);
    check_domains(config, reader);
    check_listeners(config, source, reader);
    check_tls::check(config, source, reader);
    check_expiry(config, reader);
    check_timers(config, reader);
    check_limits(config, reader);
    check_auth(config, reader);
    check_database::check(config, reader);
    check_dialogs(config, reader);
    check_dialogs::check(config, reader);
    check_cache::check(config, reader);
    check_cache::warn_of_open(config, reader);
    check_database::warn_of_open(config, reader);
    gateway_group::check(&config.gateway_groups, reader);
    check_emergency::check(config, reader);
    check_media::check(config, reader);
    check_rules::check(config, reader);
    check_mixed(config, reader);
    reader.check_unused();
}

/// Notes contradictions between keys that need a restart and keys that do not. After a reload a process can have such a pair of values even though no
/// file ever had it.
pub(super) fn check_mixed(config: &Config, reader: &mut Reader) {
    check_registering(config, reader);
    check_relay::check(config, reader);
    check_database::check_mixed(config, reader);
    check_dialogs::check_use(config, reader);
    check_call_limit::check(config, reader);
    check_media::check_use(config, reader);
    check_control(config, reader);
}

/// Warns of an empty file, which probably was truncated during a write and is no intended choice of the defaults.
fn warn_if_empty(source: Source<'_>, reader: &mut Reader) {
    let is_file = source.file != Source::default().file;
    let says_nothing = source.text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if is_file && says_nothing {
        let message =
            "the file says nothing: the server goes by its defaults, without domains, users and rules of yours";
        reader.push(Fault::warning(None, message, "write what is meant, such as domains = [\"example.org\"]"));
    }
}

fn check_domains(config: &Config, reader: &mut Reader) {
    let cure = "write the name that phones show when they ask for the password, such as \"example.org\", or \"auto\"";
    if config.realm.is_empty() {
        reader.push(Fault::error(reader.value_of("realm"), "realm is empty", cure));
    }
    let short = config.domains.iter().filter(|domain| !domain.has_table).count();
    // Each name with its position; the names of `domains` belong to one domain.
    let mut named: Vec<(&Domain, usize, Span)> = Vec::new();
    for (index, domain) in config.domains.iter().enumerate() {
        let table = index.checked_sub(short);
        if domain.has_table && domain.realm.is_empty() {
            let path = format!("domain[{}].realm", index - short);
            reader.push(Fault::error(reader.value_of(&path), format!("{path} is empty"), cure));
        }
        let of = table.map_or(0, |table| table + 1);
        let path = table.map_or_else(|| format!("domains[{index}]"), |table| format!("domain[{table}].name"));
        let alias = |n: usize| format!("domain[{}].aliases[{n}]", table.unwrap_or_default());
        let aliases = domain.aliases.iter().enumerate().map(|(n, name)| (name, alias(n)));
        for (name, path) in std::iter::once((&domain.name, path)).chain(aliases) {
            let span = reader.value_of(&path);
            let Some((_, other, before)) = named.iter().find(|(other, ..)| *other == name) else {
                named.push((name, of, span));
                continue;
            };
            let lines = before.clone().zip(span.clone()).map(|(other, this)| reader.lines(&other, &this));
            let lines = lines.unwrap_or_default();
            let message = format!("the domain {name} is named twice: {lines}");
            reader.push(match *other == of {
                true => Fault::warning(span, message, "name it once"),
                // Otherwise the name would belong to two sets of users.
                false => Fault::error(
                    span,
                    message,
                    "name it once: in `domains`, or in a [[domain]] table, as its `name` or in its `aliases`",
                ),
            });
        }
    }
}

fn check_listeners(config: &Config, source: Source<'_>, reader: &mut Reader) {
    if config.listeners.is_empty() {
        let span = reader.value_of("listen");
        let cure = "name at least one, such as listen = [\"udp:127.0.0.1:5060\"], or leave the key out";
        reader.push(Fault::error(span, "there is no listener", cure));
    }
    let paths = source.listeners(config.listeners.len(), reader.places());
    for (index, (listener, path)) in config.listeners.iter().zip(&paths).enumerate() {
        let place = |reader: &Reader, keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| format!("{path}.{key}")).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            reader.first_of(&keys).or_else(|| reader.key_of(path))
        };
        let shown = listener.to_string();
        if let Some(other) = config.listeners[..index].iter().find(|other| clash(other, listener)) {
            let span = place(reader, &["port", "address", "transport"]);
            let message = format!("{shown} and {other} want the same port");
            reader.push(Fault::error(span, message, "give one of them another port, or remove it"));
        }
        if listener.address.ip().is_unspecified() && listener.advertise.is_none() {
            let span = place(reader, &["address"]);
            let mut message = format!("{shown} listens on all addresses, and none is advertised");
            let mut cure =
                "name the address that peers reach in a [[listener]] table: advertise = \"sip.example.org\"".to_owned();
            if config.domains.is_empty() && !reader.has("domains") {
                message.push_str("; nor is there a domain, so no user can register");
                cure.push_str(", and whose users live here: domains = [\"example.org\"]");
            }
            reader.push(Fault::warning(span, message, cure));
        }
        check_balancers(listener, path, reader);
        let own_list = format!("{path}.algorithms");
        if reader.has(&own_list) && listener.algorithms != config.auth.algorithms {
            check_list(&own_list, &listener.algorithms, super::Algorithm::word, "[\"MD5\"]", reader);
            check_phones(&own_list, &listener.algorithms, reader);
        }
    }
}

/// Checks the load balancers of a listener.
fn check_balancers(listener: &Listener, path: &str, reader: &mut Reader) {
    let path = format!("{path}.proxy_protocol_from");
    if !listener.transport.is_reliable() && !listener.proxy_protocol_from.is_empty() {
        let message = format!("{listener} has proxy_protocol_from, and no connections");
        let cure = "leave it out: only tcp, tls, ws and wss have the PROXY protocol";
        reader.push(Fault::error(reader.value_of(&path), message, cure));
    }
    for (index, network) in listener.proxy_protocol_from.iter().enumerate().filter(|(_, network)| network.prefix() == 0)
    {
        let span = reader.value_of(&format!("{path}[{index}]"));
        let message = format!(
            "{path} has {network}: every peer may name any address as its own, so no ban and no limit by source holds it"
        );
        reader.push(Fault::warning(span, message, "name the addresses of the load balancers alone"));
    }
}

/// Tells whether two listeners need the same socket. A UDP port and a TCP port of the same number do not conflict.
fn clash(a: &Listener, b: &Listener) -> bool {
    use super::Transport::Udp;
    let same_kind = (a.transport == Udp) == (b.transport == Udp);
    let overlap = match (a.address.ip(), b.address.ip()) {
        (IpAddr::V4(x), IpAddr::V4(y)) => x == y || x.is_unspecified() || y.is_unspecified(),
        (IpAddr::V6(x), IpAddr::V6(y)) => x == y || x.is_unspecified() || y.is_unspecified(),
        _ => false,
    };
    same_kind && overlap && a.address.port() == b.address.port() && a.address.port() != 0
}

fn check_expiry(config: &Config, reader: &mut Reader) {
    let registrar = &config.registrar;
    if registrar.min_expires > registrar.max_expires {
        let span = reader.first_of(&["registrar.min_expires", "registrar.max_expires"]);
        let message = format!(
            "registrar.min_expires ({}) is longer than max_expires ({})",
            duration_text(registrar.min_expires),
            duration_text(registrar.max_expires)
        );
        reader.push(Fault::error(span, message, "make min_expires the shorter of the two"));
    } else if !(registrar.min_expires..=registrar.max_expires).contains(&registrar.default_expires) {
        let span = reader.first_of(&["registrar.default_expires", "registrar.max_expires", "registrar.min_expires"]);
        let message =
            format!("registrar.default_expires ({}) is out of bounds", duration_text(registrar.default_expires));
        let cure = format!(
            "write a duration from min_expires ({}) to max_expires ({})",
            duration_text(registrar.min_expires),
            duration_text(registrar.max_expires)
        );
        reader.push(Fault::error(span, message, cure));
    }
}

fn check_dialogs(config: &Config, reader: &mut Reader) {
    let dialogs = &config.dialogs;
    if dialogs.track && !config.proxy.record_route {
        let span = reader.first_of(&["proxy.record_route", "dialogs.track"]);
        let message = "dialogs.track has no effect: without proxy.record_route no later request of a call comes by";
        reader.push(Fault::warning(span, message, "set proxy.record_route = true, or leave dialogs.track out"));
    }
    if (dialogs.track || config.decisions.track_calls()) && dialogs.lifetime > config.proxy.route_lifetime {
        let span = reader.first_of(&["dialogs.lifetime", "proxy.route_lifetime", "dialogs.track"]);
        let message = format!(
            "dialogs.lifetime ({}) is longer than proxy.route_lifetime ({}): a BYE of the server would reach no party",
            duration_text(dialogs.lifetime),
            duration_text(config.proxy.route_lifetime)
        );
        reader.push(Fault::error(span, message, "make route_lifetime at least as long"));
    }
    if let Some(asked) = dialogs.session_expires.filter(|asked| *asked < dialogs.min_session_expires) {
        let span = reader.first_of(&["dialogs.session_expires", "dialogs.min_session_expires"]);
        let message = format!(
            "dialogs.session_expires ({}) is shorter than min_session_expires ({})",
            duration_text(asked),
            duration_text(dialogs.min_session_expires)
        );
        reader.push(Fault::error(span, message, "make min_session_expires the shorter of the two"));
    }
}

fn check_timers(config: &Config, reader: &mut Reader) {
    if config.timers.t1 > config.timers.t2 {
        let span = reader.first_of(&["timers.t1", "timers.t2"]);
        let message = format!(
            "timers.t1 ({}) is longer than t2 ({})",
            duration_text(config.timers.t1),
            duration_text(config.timers.t2)
        );
        reader.push(Fault::error(span, message, "make t1 the shorter of the two; RFC 3261 has 500ms and 4s"));
    }
    if config.timers.timer_c <= Duration::from_secs(180) {
        let span = reader.value_of("timers.timer_c");
        let message = "timers.timer_c is not over 3 minutes, as RFC 3261 section 16.6 step 11 asks";
        reader.push(Fault::warning(span, message, "write more than \"3m\", or calls that ring long are cut off"));
    }
}

fn check_limits(config: &Config, reader: &mut Reader) {
    let limits = &config.limits;
    if limits.connections_per_source > limits.connections && reader.has("limits.connections_per_source") {
        let span = reader.value_of("limits.connections_per_source");
        let message = "limits.connections_per_source is larger than connections, so it can never be reached";
        reader.push(Fault::warning(span, message, "make it at most connections"));
    }
    if let (Some(others), Some(all)) = (limits.unregistered_connection_timeout, limits.idle_connection_timeout)
        && others > all
    {
        let span = reader.first_of(&["limits.unregistered_connection_timeout", "limits.idle_connection_timeout"]);
        let message = format!(
            "limits.unregistered_connection_timeout ({}) is longer than idle_connection_timeout ({})",
            duration_text(others),
            duration_text(all)
        );
        reader.push(Fault::error(span, message, "make it the shorter of the two, or write \"auto\""));
    }
    let cores = std::thread::available_parallelism().map_or(usize::MAX, std::num::NonZero::get);
    if config.server.shards.is_some_and(|shards| usize::from(shards) > cores) {
        let span = reader.value_of("server.shards");
        let message = format!("server.shards is more than the {cores} cores of this machine");
        reader.push(Fault::warning(span, message, "write \"auto\", or at most the number of cores"));
    }
}

fn check_auth(config: &Config, reader: &mut Reader) {
    let auth = &config.auth;
    check_list("auth.algorithms", &auth.algorithms, super::Algorithm::word, "[\"MD5\"]", reader);
    check_list("auth.qop", &auth.qop, super::Qop::word, "[\"auth\"]", reader);
    check_phones("auth.algorithms", &auth.algorithms, reader);
}

fn check_registering(config: &Config, reader: &mut Reader) {
    let is_open = config.listeners.iter().any(|listener| !listener.is_loopback());
    if !config.registrar.authenticate && is_open {
        let span = reader.value_of("registrar.authenticate");
        let message = "anyone who reaches this server can register as any user";
        reader.push(Fault::warning(span, message, "set registrar.authenticate = true, or listen on 127.0.0.1 only"));
    }
    if config.registrar.authenticate && config.auth.register_for_others && is_open {
        let span = reader.value_of("auth.register_for_others");
        let message = "each user can register as every other one of its realm, and take its calls";
        let cure = "set auth.register_for_others = false, unless each user of this server may do that";
        reader.push(Fault::warning(span, message, cure));
    }
    // With "local-domains" this is an open relay, which `check_relay` reports.
    if !config.auth.calls && is_open && config.proxy.relay_for != super::RelayFor::LocalDomains {
        let span = reader.value_of("auth.calls");
        let message = "auth.calls = false lets anyone who reaches this server call as any of its users";
        let cure = "set auth.calls = true; peers that know no password are a [[source]] with trusted = true, and \
                    emergency calls need none where [emergency] names their numbers";
        reader.push(Fault::warning(span, message, cure));
    }
    if config.auth.calls && !config.auth.user_must_match && is_open {
        let span = reader.value_of("auth.user_must_match");
        let message = "auth.user_must_match = false lets each user call under the name and number of every other one";
        let cure = "set auth.user_must_match = true; which numbers an account may show besides says auth.identities";
        reader.push(Fault::warning(span, message, cure));
    }
}

fn check_list<T: Copy + PartialEq>(
    name: &str,
    items: &[T],
    word: fn(T) -> &'static str,
    example: &str,
    reader: &mut Reader,
) {
    if items.is_empty() {
        let span = reader.value_of(name);
        reader.push(Fault::error(span, format!("{name} is empty"), format!("name at least one: {example}")));
    }
    if let Some(index) = (1..items.len()).find(|index| items[..*index].contains(&items[*index])) {
        let span = reader.value_of(&format!("{name}[{index}]"));
        let message = format!("{name} names {} twice", word(items[index]));
        reader.push(Fault::error(span, message, "name each once, the preferred first"));
    }
}

/// Warns of the tested phones that cannot register if `offered` is the list of algorithms of the table or listener `name`.
fn check_phones(name: &str, offered: &[super::Algorithm], reader: &mut Reader) {
    let phones = super::Algorithm::shuts_out(offered);
    if reader.has(name) && !offered.is_empty() && !phones.is_empty() {
        let message = format!("{name} shuts out phones that register with MD5 alone: {}", phones.join(", "));
        let cure = "write [\"MD5\"], or keep this list where every phone is known to answer it (docs/phones.md)";
        reader.push(Fault::warning(reader.value_of(name), message, cure));
    }
}

/// Notes an HTTP address beyond loopback without a secret: any host that reaches the address could shut the server down.
fn check_control(config: &Config, reader: &mut Reader) {
    if let Some(listen) = config.control.listen.filter(|listen| !listen.ip().is_loopback())
        && config.control.secret.is_none()
    {
        let message = format!("control.listen = \"{listen}\" lets any host give orders");
        let cure = "set control.secret (openssl rand -hex 32 makes one), or listen on 127.0.0.1";
        reader.push(Fault::error(reader.value_of("control.listen"), message, cure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_point_at_the_key_that_was_written() {
        for (text, line, part) in [
            ("registrar.min_expires = \"3h\"", 1, "longer than max_expires"),
            ("\nregistrar.max_expires = \"30s\"", 2, "longer than max_expires"),
            ("registrar.max_expires = \"30m\"", 1, "default_expires (1h) is out of bounds"),
            ("timers.t2 = \"100ms\"", 1, "t1 (500ms) is longer than t2 (100ms)"),
            ("realm = \"\"", 1, "realm is empty"),
            ("auth.qop = []", 1, "auth.qop is empty"),
            ("listen = [\"udp:0.0.0.0:5060\", \"udp:127.0.0.1:5060\"]", 1, "want the same port"),
            ("[[listener]]\n[[listener]]\nport = 5060\n", 3, "want the same port"),
            ("[[listener]]\ntransport = \"wss\"", 2, "has no certificate"),
            ("[[listener]]\ntransport = \"tls\"\nkey = \"a\"", 3, "only one of certificate and key"),
            (
                "[[listener]]\naddress = \"192.0.2.1\"\nproxy_protocol_from = [\"192.0.2.7\"]",
                3,
                "udp:192.0.2.1:5060 has proxy_protocol_from, and no connections",
            ),
            ("\nstore.subscribers = \"sqlite://u:p@h/d\"", 2, "no database server that is known"),
            ("store.subscribers = \"mysql://u:p@h\"", 1, "names no database"),
            ("store.subscribers = \"mysql://u@localhost/d\"\nstore.subscriber_table = \"a..b\"", 2, "names no table"),
            ("[[domain]]\nname = \"a.org\"\nrealm = \"\"", 3, "domain[0].realm is empty"),
            (
                "domains = [\"a.org\"]\n[[domain]]\nname = \"A.org.\"",
                3,
                "the domain a.org is named twice: lines 1 and 3",
            ),
            (
                "[[domain]]\nname = \"b.org\"\n[[domain]]\nname = \"b.org\"",
                4,
                "the domain b.org is named twice: lines 2 and 4",
            ),
            (
                "[[domain]]\nname = \"a.org\"\naliases = [\"192.0.2.1\"]\n[[domain]]\nname = \"b.org\"\naliases = [\"c.org\",\n\"192.0.2.1\"]",
                7,
                "the domain 192.0.2.1 is named twice: lines 3 and 7",
            ),
            (
                "domains = [\"a.org\"]\n[[domain]]\nname = \"b.org\"\naliases = [\"A.org\"]",
                4,
                "the domain a.org is named twice: lines 1 and 4",
            ),
        ] {
            let report = match Config::read(Source { file: "test.toml", text, ..Source::default() }) {
                Ok((config, _)) => panic!("{text} gave {config:?}"),
                Err(report) => report,
            };
            let fault = report.faults().iter().find(|fault| fault.message.contains(part));
            let fault = fault.unwrap_or_else(|| panic!("{text}\n{report}"));
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{text}\n{report}");
        }
    }

    /// `strowger serve --listen udp:0.0.0.0:5060` would register no user.
    #[test]
    fn who_listens_everywhere_hears_that_there_is_no_domain() {
        let message = |text: &str| {
            let (_, report) = Config::read(Source { text, ..Source::default() }).expect("it can be used");
            report.faults().iter().map(|fault| format!("{} = {}", fault.message, fault.cure)).collect::<String>()
        };
        let without = message("listen = [\"udp:0.0.0.0:5060\"]");
        assert!(without.contains("no user can register") && without.contains("domains = ["), "{without}");
        for with in ["domains = []", "domains = [\"example.org\"]"] {
            let with = message(&format!("listen = [\"udp:0.0.0.0:5060\"]\n{with}"));
            assert!(with.contains("none is advertised") && !with.contains("register"), "{with}");
        }
    }

    #[test]
    fn calls_without_passwords_and_under_other_names_are_doubtful_where_strangers_reach_the_server() {
        let warnings = |address: &str, text: &str| {
            let text = format!("domains = [\"a.org\"]\n{text}\n[[listener]]\naddress = \"{address}\"");
            let (_, report) = Config::read(Source { text: &text, ..Source::default() }).expect("it can be used");
            report.faults().iter().map(|fault| format!("{} = {}", fault.message, fault.cure)).collect::<String>()
        };
        for (text, message, cure) in [
            ("auth.calls = false", "call as any of its users", "[emergency]"),
            ("auth.user_must_match = false", "name and number of every other one", "auth.identities"),
        ] {
            let said = warnings("192.0.2.1", text);
            assert!(said.contains(message) && said.contains(cure), "{text}: {said}");
            assert_eq!(warnings("127.0.0.1", text), "", "{text}");
        }
    }

    #[test]
    fn a_balancer_that_may_be_any_peer_is_doubtful() {
        let text =
            "[[listener]]\ntransport = \"tcp\"\nproxy_protocol_from = [\"192.0.2.7\",\n\"0.0.0.0/0\", \"10.0.0.0/8\"]";
        let (config, report) = Config::read(Source { text, ..Source::default() }).expect("it can be used");
        let [fault] = report.faults() else { panic!("{report}") };
        assert!(fault.message.contains("0.0.0.0/0: every peer may name any address"), "{report}");
        assert_eq!((fault.severity, report.position(fault)), (super::super::Severity::Warning, Some((4, 1))));
        // Balancers are exempt from bans, besides the networks that the file exempts.
        let exempt: Vec<String> = config.ban_settings().exempt.iter().map(ToString::to_string).collect();
        assert_eq!(exempt, ["127.0.0.0/8", "::1/128", "192.0.2.7/32", "0.0.0.0/0", "10.0.0.0/8"]);
    }

    /// A repetition within `domains` has no effect.
    #[test]
    fn a_domain_that_the_short_form_names_twice_is_doubtful() {
        let text = "domains = [\"a.org\", \"b.org\",\n  \"A.org\"]";
        let (_, report) = Config::read(Source { text, ..Source::default() }).expect("it can be used");
        let [fault] = report.faults() else { panic!("{report}") };
        assert_eq!((&*fault.message, &*fault.cure), ("the domain a.org is named twice: lines 1 and 2", "name it once"));
        assert_eq!((fault.severity, report.position(fault)), (super::super::Severity::Warning, Some((2, 3))));
    }

    #[test]
    fn the_password_of_a_database_is_not_shown() {
        for (text, shown) in [
            ("store.subscribers = \"mysql://u:correct horse@h/d\"", "mysql://u:********@h"),
            ("store.subscribers = \"mysql://u:correct horse@h\"", "mysql://u:********@h"),
            ("store.subscribers = \"mysq://u:correct horse@h/d\" bad", "mysq://u:********@h"),
            ("[store]\nsubscriber = \"mysql://u:correct/horse@h/d\"", "mysql://u:********@h"),
        ] {
            let said = match Config::read(Source { text, ..Source::default() }) {
                Ok((config, report)) => format!("{report}{}{config:?}", config.effective()),
                Err(report) => report.to_string(),
            };
            assert!(said.contains(shown) && !said.contains("horse"), "{text}\n{said}");
        }
        let warned = |text: &str| {
            let (_, report) = Config::read(Source { text, ..Source::default() }).expect("it can be used");
            report.faults().iter().map(|fault| fault.message.clone()).collect::<String>()
        };
        assert!(warned("store.subscribers = \"mysql://u@db.example/d\"").contains("crosses the network"));
        assert_eq!(warned("store.subscribers = \"mysql://u:p@127.0.0.1/d\""), "");
        assert!(warned("store.subscriber_table = \"users\"").contains("has no effect"));
    }

    #[test]
    fn one_port_may_serve_udp_and_one_stream() {
        for text in [
            "listen = [\"udp:127.0.0.1:5060\", \"tcp:127.0.0.1:5060\"]",
            "listen = [\"udp:127.0.0.1:5060\", \"udp:127.0.0.2:5060\"]",
            "listen = [\"udp:127.0.0.1:0\", \"udp:127.0.0.1:0\"]",
            "listen = [\"udp:127.0.0.1:5060\", \"udp:[::1]:5060\"]",
        ] {
            let read = Config::read(Source { text, ..Source::default() });
            assert!(read.is_ok_and(|(_, report)| report.faults().is_empty()), "{text}");
        }
    }
}
