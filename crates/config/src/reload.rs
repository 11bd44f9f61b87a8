//! A configuration for a process that already runs with another one.

use super::{Config, Listener};

/// A key that has another value in the file than the running process has for life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedKey {
    /// With its table, such as `server.shards`.
    pub name: String,
    /// The value that the process keeps, as TOML; secrets are masked.
    pub running: String,
    /// The value in the file, as TOML; secrets are masked.
    pub wanted: String,
}

impl Config {
    /// This configuration as a process can take it that runs with `running`: the keys that need a restart keep their values, and are
    /// returned where the file has others.
    ///
    /// Listeners are fixed by transport, address and order. If those are the same, the rest of each listener (its certificate, its
    /// algorithms, the name that it advertises) is that of the file; else the listeners stay as they are.
    pub fn for_running(mut self, running: &Self) -> (Self, Vec<FixedKey>) {
        let mut changed = Vec::new();
        let shown = |listeners: &[Listener]| {
            let listeners: Vec<String> = listeners.iter().map(|listener| format!("\"{listener}\"")).collect();
            format!("[{}]", listeners.join(", "))
        };
        let (before, after) = (shown(&running.listeners), shown(&self.listeners));
        if before != after {
            self.listeners.clone_from(&running.listeners);
            changed.push(FixedKey { name: "listen".into(), running: before, wanted: after });
        }
        self.keep_fixed_tables(running, &mut changed);
        (self, changed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    fn read(text: &str) -> Config {
        Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}")).0
    }

    #[test]
    fn what_needs_a_restart_keeps_its_value_and_is_named() {
        let running = read("[server]\nshards = 1\n[auth]\nsecret = \"one secret of many letters\"");
        let file = "listen = [\"udp:127.0.0.1:5070\"]\ndomains = [\"example.org\"]\n[server]\nshards = 2\nsoftware = \"new\"\n\
                    [auth]\nsecret = \"another secret of many letters\"\n[timers]\nt1 = \"250ms\"";
        let (config, changed) = read(file).for_running(&running);
        let names: Vec<&str> = changed.iter().map(|key| &*key.name).collect();
        assert_eq!(names, ["listen", "server.shards", "auth.secret", "timers.t1"]);
        assert_eq!((&*changed[1].running, &*changed[1].wanted), ("1", "2"));
        assert!(!changed.iter().any(|key| format!("{key:?}").contains("letters")), "{changed:?}");
        assert_eq!((&config.listeners, &config.server.shards), (&running.listeners, &Some(1)));
        assert_eq!((&config.auth.secret, config.timers.t1), (&running.auth.secret, running.timers.t1));
        assert_eq!((&*config.server.software, config.domains[0].as_str()), ("new", "example.org"));
    }

    #[test]
    fn a_listener_that_stays_takes_the_rest_from_the_file() {
        let table = "[[listener]]\ntransport = \"tcp\"\naddress = \"127.0.0.1\"\nport = 5060\n";
        let running = read(table);
        let file = format!("{table}advertise = \"sip.example.org\"\nalgorithms = [\"SHA-256\"]\n");
        let (config, changed) = read(&file).for_running(&running);
        assert_eq!(changed, []);
        assert_eq!(config.listeners, read(&file).listeners);
    }
}
