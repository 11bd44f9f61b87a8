//! Reload: a configuration for a process that already runs with another one.

use super::domains::Top;
use super::listen::Listener;
use super::reader::{Reader, Section};
use super::report::{Fault, Report};
use super::{Change, Config, check};

impl Config {
    /// Returns this configuration in the form that a process which runs with `running` can adopt, and the changed keys. Keys that need a restart keep
    /// their running values.
    ///
    /// Transport, address and order of the listeners cannot change. If they are the same in both configurations, the other keys of each listener (its
    /// certificate, its algorithms, the name that it advertises) come from the file; otherwise all listeners keep their running values.
    #[must_use]
    pub fn for_running(mut self, running: &Self) -> (Self, Vec<Change>) {
        let listen = self.listen_change(running);
        if listen.is_some() {
            self.listeners.clone_from(&running.listeners);
            // The kept listeners refer to the running certificates.
            self.certificates.clone_from(&running.certificates);
        }
        let mut changes = self.top().changes(&running.top(), Top::NAME);
        changes.extend(listen);
        changes.extend(self.list_changes(running));
        changes.extend(self.table_changes(running));
        self.keep_fixed(running);
        // All keys of `[[cache]]` are fixed.
        self.caches.clone_from(&running.caches);
        (self, changes)
    }

    /// Returns the faults of this configuration, as [`Config::for_running`] returned it, that the file alone does not have: contradictions between
    /// values of the file and values that the process keeps. `of_file` is the report of the file.
    #[must_use]
    pub fn mixed_faults(&self, of_file: &Report) -> Vec<Fault> {
        // These faults have no position: at least one of the two values is not in the file.
        let mut reader = Reader::default();
        check::check_mixed(self, &mut reader);
        let is_new = |fault: &Fault| of_file.faults().iter().all(|known| known.message != fault.message);
        let told = |fault: Fault| Fault {
            message: format!("until a restart, {}", fault.message),
            cure: format!("{}; or restart the server with this file", fault.cure),
            ..fault
        };
        reader.into_faults().into_iter().filter(is_new).map(told).collect()
    }

    /// Returns the keys above the first table except `listen`: listeners are compared as a list.
    fn top(&self) -> Top {
        let short = self.domains.iter().filter(|domain| !domain.has_table);
        let domains = Some(short.map(|domain| domain.name.clone()).collect());
        Top { domains, realm: Some(self.realm.clone()), ..Top::default() }
    }

    fn listen_change(&self, running: &Self) -> Option<Change> {
        let shown = |listeners: &[Listener]| {
            let listeners: Vec<String> = listeners.iter().map(|listener| format!("\"{listener}\"")).collect();
            format!("[{}]", listeners.join(", "))
        };
        let (before, after) = (shown(&running.listeners), shown(&self.listeners));
        (before != after).then(|| Change { key: "listen".into(), running: before, wanted: after, needs_restart: true })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    fn read(text: &str) -> Config {
        Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}")).0
    }

    fn named(changes: &[Change], fixed: bool) -> Vec<&str> {
        changes.iter().filter(|change| change.needs_restart == fixed).map(|change| &*change.key).collect()
    }

    #[test]
    fn keys_that_need_a_restart_keep_their_values_and_are_named() {
        let running = read("[server]\nshards = 1\n[auth]\nsecret = \"one secret of many letters\"");
        let file = "listen = [\"udp:127.0.0.1:5070\"]\ndomains = [\"example.org\"]\n[server]\nshards = 2\nsoftware = \"new\"\n\
                    [auth]\nsecret = \"another secret of many letters\"\n[timers]\nt1 = \"250ms\"";
        let (config, changes) = read(file).for_running(&running);
        assert_eq!(named(&changes, true), ["listen", "server.shards", "auth.secret", "timers.t1"]);
        assert_eq!(named(&changes, false), ["domains", "realm", "server.software"]);
        let shards = changes.iter().find(|change| change.key == "server.shards").expect("it is named");
        assert_eq!((&*shards.running, &*shards.wanted), ("1", "2"));
        assert!(!format!("{changes:?}").contains("letters"), "{changes:?}");
        assert_eq!((&config.listeners, &config.server.shards), (&running.listeners, &Some(1)));
        assert_eq!((&config.auth.secret, config.timers.t1), (&running.auth.secret, running.timers.t1));
        assert_eq!((&*config.server.software, config.domains[0].name.as_str()), ("new", "example.org"));
        assert_eq!(config.clone().for_running(&config).1, []);
    }

    /// Each of the two files is valid by itself.
    #[test]
    fn what_a_file_says_must_fit_what_the_process_keeps() {
        let secret = "[control]\nlisten = \"192.0.2.10:9061\"\nsecret = \"a secret of many letters\"";
        let rows = "accounting.cdr = true\n";
        let shared = |node: u16, servers: &str| {
            format!(
                "server.node = {node}\n[[cache]]\nname = \"far\"\nengine = \"redis\"\nservers = [\"192.0.2.1\"]\n\
                 [[call_limit]]\nname = \"all\"\nmost = 1\ncache = \"far\"\nservers = {servers}"
            )
        };
        for (running, file, errors, message) in [
            (secret, "", 1, "control.listen = \"192.0.2.10:9061\" lets any host give orders"),
            (secret, "control.listen = \"127.0.0.1:9061\"", 1, "lets any host give orders"),
            (rows, "dialogs.lifetime = \"20d\"\nproxy.route_lifetime = \"1d\"", 1, "dialogs.lifetime (20d) is longer"),
            ("domains = []\nstore.database = \"memory\"", "domains = [\"example.org\"]", 1, "registrar.durability"),
            (&shared(1, "[1, 2]"), &shared(3, "[2, 3]"), 1, "among which this one, server.node 1, is not"),
            ("listen = [\"udp:192.0.2.1:5060\"]", "registrar.authenticate = false", 0, "can register as any user"),
            (
                "listen = [\"udp:192.0.2.1:5060\"]",
                "proxy.relay_for = \"everyone\"",
                0,
                "an open relay of udp:192.0.2.1:5060",
            ),
        ] {
            let (running, read_file) = (read(running), Config::read(Source { text: file, ..Source::default() }));
            let (config, of_file) = read_file.unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(config.mixed_faults(&of_file), [], "{file}");
            let faults = config.for_running(&running).0.mixed_faults(&of_file);
            let report = of_file.with(faults.clone());
            assert_eq!((report.errors(), faults.len()), (errors, 1), "{file}\n{report}");
            let said = &faults[0].message;
            assert!(said.starts_with("until a restart, ") && said.contains(message), "{file}\n{report}");
        }
    }

    #[test]
    fn domains_realms_and_certificates_are_those_of_the_file() {
        let running = read("domains = [\"a.example\"]\nrealm = \"one\"");
        let file = "domains = [\"a.example\", \"b.example\"]\nrealm = \"two\"\n[[domain]]\nname = \"c.example\"\n";
        let (config, changes) = read(file).for_running(&running);
        assert_eq!(config, read(file));
        assert_eq!(named(&changes, true), <[&str; 0]>::default());
        assert_eq!(named(&changes, false), ["domains", "realm", "[[domain]]"]);
        assert_eq!(["a.example", "c.example"].map(|domain| config.realm_of(domain)), ["two", "c.example"]);
    }

    /// The kept listeners refer to certificates by name and keep the running ones.
    #[test]
    fn listeners_that_stay_as_they_are_keep_their_certificates() {
        let with = |port: u16, name: &str, file: &str| {
            let text = format!(
                "domains = [\"west.example\", \"east.example\"]\n[[listener]]\ntransport = \"tls\"\nport = {port}\n\
                 certificates = [\"{name}\"]\n[[certificate]]\nname = \"{name}\"\ncertificate = \"{file}.pem\"\n\
                 key = \"{file}.key\"\n"
            );
            read(&text)
        };
        let running = with(5061, "one", "west");
        let (config, changes) = with(5062, "two", "east").for_running(&running);
        assert_eq!(named(&changes, true), ["listen"]);
        assert_eq!(config, running);
        let (config, changes) = with(5061, "two", "east").for_running(&running);
        assert_eq!(config, with(5061, "two", "east"));
        assert_eq!(named(&changes, true), <[&str; 0]>::default());
    }

    #[test]
    fn a_listener_that_stays_takes_the_rest_from_the_file() {
        let table = "[[listener]]\ntransport = \"tcp\"\naddress = \"127.0.0.1\"\nport = 5060\n";
        let running = read(table);
        let more =
            "advertise = \"sip.example.org\"\nalgorithms = [\"SHA-256\"]\nproxy_protocol_from = [\"192.0.2.7\"]\n";
        let file = format!("domains = [\"127.0.0.1\"]\n{table}{more}");
        let (config, changes) = read(&file).for_running(&running);
        assert_eq!(named(&changes, true), <[&str; 0]>::default());
        assert_eq!(
            named(&changes, false),
            ["listener[0].advertise", "listener[0].proxy_protocol_from", "listener[0].algorithms"]
        );
        assert_eq!(config.listeners, read(&file).listeners);
    }

    #[test]
    fn tables_of_lists_are_compared_one_by_one() {
        let table = |name: &str, realm: &str| format!("[[domain]]\nname = \"{name}\"\nrealm = \"{realm}\"\n");
        let running = read(&(table("a.example", "a") + &table("b.example", "b")));
        let changes = |text: &str| read(text).for_running(&running).1;
        let changed = changes(&(table("a.example", "a") + &table("b.example", "new")));
        assert_eq!(named(&changed, false), ["domain[1].realm"]);
        assert_eq!((&*changed[0].running, &*changed[0].wanted), ("\"b\"", "\"new\""));
        let changed = changes(&table("a.example", "a"));
        assert_eq!(named(&changed, false), ["[[domain]]"]);
        assert_eq!((&*changed[0].running, &*changed[0].wanted), ("2 tables", "1 tables"));
    }
}
