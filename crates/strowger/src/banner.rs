//! Start-up text of `serve`: listeners, domains, and settings for a phone.

use std::fmt::Write;
use std::net::SocketAddr;

use strowger_config::{Advertised, Config, Durability, Listener, RelayFor, Transport};

use crate::check;

/// A bound listener with its real port, even if the configuration left the choice of the port to the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundListener {
    pub transport: Transport,
    pub address: SocketAddr,
    pub advertise: Option<Advertised>,
}

impl BoundListener {
    /// Creates the record of a configured listener that was bound to `address`.
    pub(crate) fn new(listener: &Listener, address: SocketAddr) -> Self {
        Self { transport: listener.transport, address, advertise: listener.advertise.clone() }
    }

    /// Returns the address for a phone: the advertised name, or the bound address. Returns `None` if the listener is
    /// bound to all addresses of the machine, so that the address depends on the location of the phone.
    fn reachable_as(&self) -> Option<String> {
        match &self.advertise {
            Some(Advertised { host, port }) => Some(format!("{host}:{}", port.unwrap_or(self.address.port()))),
            None if self.address.ip().is_unspecified() => None,
            None => Some(self.address.to_string()),
        }
    }
}

/// Returns the start-up text, line by line; the last line is `ready`.
pub(crate) fn banner(config: &Config, bound: &[BoundListener]) -> String {
    let mut out = format!("Strowger {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {name:<13} {value}");
    };
    for (index, listener) in bound.iter().enumerate() {
        let known = listener.advertise.as_ref().map_or_else(String::new, |name| format!("   known as {name}"));
        let name = if index == 0 { "listening" } else { "" };
        line(name, &format!("{:<4} {}{known}", listener.transport.text(), listener.address));
    }
    let domains: Vec<&str> = config.domain_names().collect();
    line("domains", &if domains.is_empty() { "none: a pure relay".into() } else { domains.join(", ") });
    line(
        "realm",
        &if config.has_several_realms() { "one for each domain: see below".into() } else { config.realm.clone() },
    );
    let database = config.store.database.as_ref().map_or_else(|| "in memory".into(), |path| path.display().to_string());
    line("database", &database);
    if let Some(url) = &config.store.subscribers {
        line("subscribers", &format!("{url}, table {}", config.store.subscriber_table));
    }
    if let Some(url) = &config.store.bindings {
        line("bindings", &url.to_string());
    }
    line(
        "registrations",
        match config.registrar.durability {
            Durability::Crash => "survive a crash of the process",
            Durability::PowerLoss => "survive a power failure",
            Durability::None => "in memory only, lost at a restart",
        },
    );
    line(
        "calls out",
        match (config.proxy.relay_for, config.auth.calls) {
            (RelayFor::Authenticated, _) => "authenticated users only",
            (RelayFor::LocalDomains, true) => "authenticated users of the local domains",
            (RelayFor::LocalDomains, false) => "callers of the local domains, without a password",
            (RelayFor::Everyone, _) => "everyone (open relay)",
        },
    );
    if let Some(media) = check::media(config) {
        line("media", &media);
    }

    if !config.domains.is_empty() {
        out.push_str("\nWhat a phone needs\n");
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(out, "  {name:<13} {value}");
        };
        let mut servers: Vec<(String, Vec<&str>)> = Vec::new();
        for listener in bound {
            let server = listener
                .reachable_as()
                .unwrap_or_else(|| format!("an address of this machine, port {}", listener.address.port()));
            match servers.iter_mut().find(|(known, _)| *known == server) {
                Some((_, transports)) => transports.push(listener.transport.text()),
                None => servers.push((server, vec![listener.transport.text()])),
            }
        }
        for (index, (server, transports)) in servers.iter().enumerate() {
            line(if index == 0 { "server" } else { "or" }, &format!("{server} by {}", transports.join(" or ")));
        }
        let several = config.has_several_realms();
        let shown = if several { config.domains.len() } else { 1 };
        for (index, domain) in config.domains.iter().take(shown).enumerate() {
            let realm = if several { format!("   realm {}", domain.realm) } else { String::new() };
            line(if index == 0 { "domain" } else { "or" }, &format!("{}{realm}", domain.name));
        }
        if config.registrar.authenticate {
            let domain = if several { "DOMAIN" } else { &config.domains[0].name };
            match &config.store.subscribers {
                None => line("user", &format!("NAME and password of: strowger user add NAME@{domain}")),
                Some(_) => line(
                    "user",
                    &format!(
                        "NAME and password of: a row for NAME@{domain} in the table {}",
                        config.store.subscriber_table
                    ),
                ),
            }
        } else if config.auth.calls {
            line("user", "any name; registering needs no password, calling does (auth.calls)");
        } else {
            line("user", "any name, no password");
        }
    }

    if bound.iter().all(|listener| listener.address.ip().is_loopback()) {
        out.push_str("\nwarning: only this machine can reach the server: name another address in `listen`, or by --listen udp:ADDRESS:5060\n");
    }
    out.push_str("\nready\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;

    fn bound(config: &Config) -> Vec<BoundListener> {
        config.listeners.iter().map(|listener| BoundListener::new(listener, listener.address)).collect()
    }

    #[test]
    fn the_defaults_warn_that_only_this_machine_reaches_them() {
        let config = Config::default();
        let text = banner(&config, &bound(&config));
        assert!(text.contains("udp  127.0.0.1:5060\n"), "{text}");
        assert!(text.contains("server        127.0.0.1:5060 by udp or tcp\n"), "{text}");
        assert!(text.contains("strowger user add NAME@127.0.0.1"), "{text}");
        assert!(text.contains("warning: only this machine"), "{text}");
        assert!(text.ends_with("\nready\n"), "{text}");
    }

    #[test]
    fn an_advertised_name_is_what_the_phone_gets() {
        let mut config = Config::default();
        config.listeners.truncate(1);
        config.listeners[0].address = "0.0.0.0:5070".parse().expect("an address");
        config.listeners[0].advertise = Some("sip.example.org".parse().expect("a name"));
        let text = banner(&config, &bound(&config));
        assert!(text.contains("known as sip.example.org"), "{text}");
        assert!(text.contains("server        sip.example.org:5070 by udp\n"), "{text}");
        assert!(!text.contains("warning"), "{text}");
    }

    #[test]
    fn registration_without_a_password_warns_that_calls_need_one() {
        let mut config = Config::default();
        config.registrar.authenticate = false;
        assert!(banner(&config, &bound(&config)).contains("registering needs no password, calling does"));
        config.auth.calls = false;
        assert!(banner(&config, &bound(&config)).contains("any name, no password\n"));
    }

    #[test]
    fn a_phone_of_each_domain_gets_its_realm() {
        let banner_of = |text: &str| {
            let (config, _) = Config::read(Source { text, ..Source::default() }).expect("right");
            banner(&config, &bound(&config))
        };
        let one = banner_of("domains = [\"a.example\", \"b.example\"]\nrealm = \"office\"");
        assert!(one.contains("domains       a.example, b.example\n  realm         office\n"), "{one}");
        assert!(one.contains(
            "domain        a.example\n  user          NAME and password of: strowger user add NAME@a.example\n"
        ));
        let table = "[[domain]]\nname = \"b.example\"\n[[domain]]\nname = \"c.example\"\nrealm = \"office\"\n";
        let three = banner_of(&format!("domains = [\"a.example\"]\n{table}"));
        assert!(
            three.contains("domains       a.example, b.example, c.example\n  realm         one for each domain"),
            "{three}"
        );
        let phones = "  domain        a.example   realm a.example\n  or            b.example   realm b.example\n\
                      \x20 or            c.example   realm office\n  user          NAME and password of: strowger user add NAME@DOMAIN\n";
        assert!(three.contains(phones), "{three}");
    }

    #[test]
    fn users_of_a_database_server_are_added_there() {
        let text = "domains = [\"a.example\"]\nstore.subscribers = \"mysql://sip@127.0.0.1:3306/sip\"";
        let (config, _) = Config::read(Source { text, ..Source::default() }).expect("right");
        let text = banner(&config, &bound(&config));
        assert!(text.contains("a row for NAME@a.example in the table subscriber\n"), "{text}");
        assert!(!text.contains("strowger user add"), "{text}");
    }

    #[test]
    fn a_pure_relay_needs_no_phone() {
        let config = Config { domains: Vec::new(), ..Config::default() };
        let text = banner(&config, &bound(&config));
        assert!(!text.contains("What a phone needs"), "{text}");
    }
}
