//! Conversion of the configuration to the settings of the lower crates.

use std::path::Path;
use std::time::Duration;

use strowger_core::digest::{
    Algorithm as DigestAlgorithm, DigestSettings, QopOffer, ReplaySettings, UriCheck as Check,
};
use strowger_core::proxy::Plan;
use strowger_core::registrar::{PathRule as CorePathRule, RegistrarSettings};
use strowger_core::timer::TimerSettings;
use strowger_core::user_agent::{Capabilities, Reliability, SessionTimerSettings, UserAgentSettings};
use strowger_store::accounting::mask::Masks;
use strowger_store::accounting::sink::GROUP_ROWS;
use strowger_store::calls::Settings as CallStoreSettings;
use strowger_store::journal::{Durability as StoreDurability, JournalSettings};
use strowger_store::location::LocationSettings;
use strowger_store::read_through::ReadThroughSettings;

use super::{AccountingTarget, Algorithm, Ban, Config, Durability, PathRule, Qop, UriCheck};

/// Memory for one request with all its branches; the messages kept for it take [`KEPT_MEMORY`] of this.
const REQUEST_MEMORY: usize = 64 << 10;
/// Memory for the messages kept for one request. The remaining part of the memory of the request is for the entries of its transactions and the
/// overhead of the allocator.
pub const KEPT_MEMORY: usize = REQUEST_MEMORY / 8 * 7;

fn milliseconds(duration: Duration) -> u64 {
    // Every range ends far below 2^64 milliseconds.
    duration.as_millis() as u64
}

fn seconds(duration: Duration) -> u32 {
    // Every range of a protocol time ends at 30 days.
    duration.as_secs() as u32
}

impl Config {
    /// Tells whether any calls are tracked.
    pub fn tracks_calls(&self) -> bool {
        let decisions = &self.decisions;
        let have_anchored = decisions.bridge_calls() || decisions.have_endpoint();
        self.dialogs.track || self.accounting.is_on() || decisions.track_calls() || have_anchored
    }

    /// Returns the paths to which the server writes, each with its key; the database is not among them.
    pub fn written(&self) -> Vec<(String, &Path)> {
        let (accounting, dialogs) = (&self.accounting, &self.dialogs);
        let is_on = accounting.is_on();
        let rows = is_on.then_some(("accounting.spool", accounting.spool.as_path()));
        let place = (is_on && accounting.to != AccountingTarget::Sql).then_some(("accounting.path", &*accounting.path));
        let calls = dialogs.folder.as_deref().map(|folder| ("dialogs.folder", folder));
        let file = dialogs.file().map(|file| ("dialogs.database", file));
        let mut written: Vec<(String, &Path)> =
            [place, rows, calls, file].into_iter().flatten().map(|(key, path)| (key.to_owned(), path)).collect();
        for rule in &self.rules {
            written
                .extend(rule.record_to.as_deref().map(|folder| (format!("record_to of rule '{}'", rule.name), folder)));
        }
        for cache in &self.caches {
            written.extend(cache.folder.as_deref().map(|folder| (format!("cache.folder of '{}'", cache.name), folder)));
        }
        written
    }

    /// Returns the timers of transactions.
    pub fn timer_settings(&self) -> TimerSettings {
        TimerSettings {
            t1: milliseconds(self.timers.t1),
            t2: milliseconds(self.timers.t2),
            t4: milliseconds(self.timers.t4),
            b: self.timers.timer_b.map(milliseconds),
            // Timer D is at least 32 s (RFC 3261 section 17.1.1.2), and at least as long as a slow peer repeats its response.
            d: TimerSettings::default().d.max(milliseconds(self.timers.t1).saturating_mul(64)),
            c: milliseconds(self.timers.timer_c),
            ..TimerSettings::default()
        }
    }

    /// Returns the limits of message sizes.
    pub fn message_limits(&self) -> strowger_message::Limits {
        let message = self.limits.message_size;
        strowger_message::Limits { message, body: message, ..strowger_message::Limits::default() }
    }

    /// Returns the settings of the registrar.
    pub fn registrar_settings(&self) -> RegistrarSettings {
        let registrar = &self.registrar;
        let routes: Vec<String> = registrar.service_route.iter().map(|uri| format!("<{}>", uri.as_str())).collect();
        RegistrarSettings {
            min_expires: seconds(registrar.min_expires),
            max_expires: seconds(registrar.max_expires),
            default_expires: seconds(registrar.default_expires),
            max_contacts: registrar.max_contacts,
            path: match registrar.path {
                PathRule::Ignore => CorePathRule::Ignore,
                PathRule::Keep => CorePathRule::Keep,
                PathRule::Demand => CorePathRule::Demand,
            },
            service_route: routes.join(", ").into_bytes(),
            ..RegistrarSettings::default()
        }
    }

    /// Returns the settings of the proxy.
    pub fn proxy_settings(&self) -> strowger_core::proxy::ProxySettings {
        strowger_core::proxy::ProxySettings {
            max_forwards: self.proxy.max_forwards,
            tcp_above: self.proxy.udp_to_tcp_above,
            contact_repair: self.nat.contact_repair,
            max_branches: self.proxy.max_branches,
            request_memory: KEPT_MEMORY,
            realms: self.realms().into_iter().map(|realm| realm.as_bytes().into()).collect(),
            ..strowger_core::proxy::ProxySettings::default()
        }
    }

    /// Returns the settings of the user agent: of the calls that this server answers itself, and of those that it bridges. It sends no 100: the
    /// first INVITE is answered at once, or has got one. Provisional responses are reliable for each caller that supports that (RFC 3262 section 3).
    /// Requests of other methods are left to its owner, since a bridge carries them over.
    pub fn agent_settings(&self) -> UserAgentSettings {
        let (dialogs, timer) = (&self.dialogs, SessionTimerSettings::default());
        let session_timer = SessionTimerSettings {
            interval: dialogs.session_expires.map_or(timer.interval, seconds),
            least: seconds(dialogs.min_session_expires),
            ..timer
        };
        let capabilities = Capabilities {
            allow: b"INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, PRACK, UPDATE".to_vec(),
            supported: b"100rel, replaces".to_vec(),
            session_timer: Some(session_timer),
            ..Capabilities::default()
        };
        UserAgentSettings {
            name: self.server.software.clone().into_bytes(),
            timers: self.timer_settings(),
            trying: false,
            reliability: Reliability::Supported,
            capabilities,
            other_methods: true,
            ..UserAgentSettings::default()
        }
    }

    /// Returns the settings of bans. Load balancers are exempt: the peers behind them are banned in their place.
    pub fn ban_settings(&self) -> Ban {
        let mut ban = self.ban.clone();
        ban.exempt.extend(self.listeners.iter().flat_map(|listener| &listener.proxy_protocol_from));
        ban
    }

    /// Returns each realm of digest authentication once. The realm of callers from no local domain is the first.
    pub fn realms(&self) -> Vec<&str> {
        let mut realms = vec![&*self.realm];
        for domain in &self.domains {
            if !realms.contains(&&*domain.realm) {
                realms.push(&domain.realm);
            }
        }
        realms
    }

    /// Returns the plan for a request that is forwarded without a context.
    pub fn plan(&self) -> Plan<'static> {
        Plan {
            record_route: self.proxy.record_route,
            ring_timeout: milliseconds(self.proxy.fork_timeout),
            ..Plan::default()
        }
    }

    /// Returns the lifetime in seconds of the route tokens and sealed Contacts that this server writes into a dialog.
    pub fn route_lifetime(&self) -> u32 {
        seconds(self.proxy.route_lifetime)
    }

    /// Returns the settings of digest authentication.
    pub fn digest_settings(&self) -> DigestSettings {
        let auth = &self.auth;
        DigestSettings {
            qop: QopOffer { auth: auth.qop.contains(&Qop::Auth), auth_int: auth.qop.contains(&Qop::AuthInt) },
            without_qop: auth.without_qop,
            nonce_life: seconds(auth.nonce_lifetime),
            uri_check: match auth.uri_check {
                UriCheck::Off => Check::Off,
                UriCheck::Loose => Check::Loose,
                UriCheck::Exact => Check::Exact,
            },
            replay: ReplaySettings { entries: auth.used_nonces, ..ReplaySettings::default() },
            ..DigestSettings::default()
        }
    }

    /// Returns the algorithms of digest authentication that each listener offers, in the order of
    /// [`Config::listeners`].
    pub fn offered_algorithms(&self) -> Vec<Box<[DigestAlgorithm]>> {
        let digest = |algorithm: &Algorithm| DigestAlgorithm { hash: algorithm.hash(), session: false };
        self.listeners.iter().map(|listener| listener.algorithms.iter().map(digest).collect()).collect()
    }

    /// Returns the durability that a commit guarantees.
    pub const fn store_durability(&self) -> StoreDurability {
        match self.registrar.durability {
            Durability::Crash => StoreDurability::Crash,
            Durability::PowerLoss => StoreDurability::PowerLoss,
            Durability::None => StoreDurability::None,
        }
    }

    /// Returns the settings of the call store.
    pub fn call_store_settings(&self) -> CallStoreSettings {
        let (accounting, busy) = (&self.accounting, self.store.busy_timeout);
        // Longest time until an accounting row is in its place or in the spool: it waits for further rows of its group, for the write of the previous
        // group, and for the write of its own group. A database server gets one more millisecond for each row.
        let rows = if self.accounting.is_on() { GROUP_ROWS } else { 0 };
        let patience =
            busy + if accounting.server().is_some() { Duration::from_millis(rows as u64) } else { Duration::ZERO };
        // Adds one second for the pause between two attempts, and one second as a reserve.
        let grace = (accounting.group_interval + patience) * 2 + Duration::from_secs(2);
        CallStoreSettings { grace, ..CallStoreSettings::default() }
    }

    /// Returns the masks for accounting rows.
    pub const fn accounting_masks(&self) -> Masks {
        Masks { digits: self.accounting.mask_numbers, addresses: self.accounting.mask_addresses }
    }

    /// Returns the settings of the writer of bindings.
    pub fn journal_settings(&self) -> JournalSettings {
        JournalSettings {
            longest: self.registrar.max_expires,
            listeners: self.listener_names(),
            aliases: self.aliases_on_machine(),
            ..JournalSettings::default()
        }
    }

    /// Returns the settings of the location table.
    pub fn location_settings(&self) -> LocationSettings {
        LocationSettings {
            node: self.server.node,
            bindings: self.registrar.max_bindings,
            ..LocationSettings::default()
        }
    }

    /// Returns the names by which bindings refer to listeners: `udp:192.0.2.1:5060`. If two listeners have the same name, as with ports that the
    /// system chooses, the second gets the suffix `#2`.
    pub fn listener_names(&self) -> Vec<Box<str>> {
        let mut names: Vec<Box<str>> = Vec::new();
        for listener in &self.listeners {
            let name = format!("{}:{}", listener.transport.text(), listener.address);
            let number = 1 + names.iter().filter(|taken| taken.split('#').next() == Some(&name)).count();
            names.push(if number == 1 { name.into() } else { format!("{name}#{number}").into() });
        }
        names
    }

    /// Returns the settings of the cache of subscribers.
    pub fn read_through_settings(&self) -> ReadThroughSettings {
        let store = &self.store;
        ReadThroughSettings {
            found: store.cache_entries,
            // Names of users that do not exist may take a tenth of the memory of known users.
            absent: (store.cache_entries / 10).max(1),
            found_ttl: store.cache_lifetime,
            absent_ttl: ReadThroughSettings::default().absent_ttl.min(store.cache_lifetime),
            name: "subscriber",
            serve_stale: store.serve_stale,
            deadline: store.lookup_timeout,
            connections: store.lookup_connections,
            ..ReadThroughSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    /// The default of a setting is defined in the lower crate; the configuration must not define a different default.
    #[test]
    fn the_defaults_are_those_of_the_floors_below() {
        let config = Config::default();
        let timers = TimerSettings::default();
        let ours = config.timer_settings();
        assert_eq!(
            (ours.t1, ours.t2, ours.t4, ours.b, ours.d, ours.c, ours.step),
            (timers.t1, timers.t2, timers.t4, timers.b, timers.d, timers.c, timers.step)
        );
        assert_eq!(config.message_limits(), strowger_message::Limits::default());
        assert_eq!(config.registrar_settings(), RegistrarSettings::default());
        let (ours, theirs) = (config.digest_settings(), DigestSettings::default());
        assert_eq!((ours.qop, ours.nonce_life), (theirs.qop, theirs.nonce_life));
        assert_eq!(ours.replay.entries, theirs.replay.entries);
        let (ours, theirs) = (config.read_through_settings(), ReadThroughSettings::default());
        assert_eq!(
            (ours.found, ours.found_ttl, ours.serve_stale),
            (theirs.found, theirs.found_ttl, theirs.serve_stale)
        );
        assert_eq!((ours.absent, ours.absent_ttl), (theirs.absent, theirs.absent_ttl));
        let theirs = strowger_core::proxy::ProxySettings::default();
        let ours = config.proxy_settings();
        assert_eq!((ours.max_forwards, ours.max_branches), (theirs.max_forwards, theirs.max_branches));
        assert_eq!(config.call_store_settings().interval, CallStoreSettings::default().interval);
    }

    /// A setting without a key of its own is derived from the key for the same subject.
    #[test]
    fn bounds_follow_their_keys() {
        let text =
            "timers.t1 = \"1s\"\nlimits.message_size = 2000\nstore.cache_entries = 500\nstore.cache_lifetime = \"7s\"";
        let (config, _) = Config::read(Source { text, ..Source::default() }).expect("right");
        assert_eq!(config.timer_settings().d, 64_000);
        assert_eq!((config.message_limits().message, config.message_limits().body), (2_000, 2_000));
        let answers = config.read_through_settings();
        assert_eq!((answers.absent, answers.absent_ttl), (50, Duration::from_secs(7)));
        let text = "timers.t1 = \"10ms\"\nstore.cache_entries = 1\nstore.cache_lifetime = \"0s\"";
        let (config, _) = Config::read(Source { text, ..Source::default() }).expect("right");
        assert_eq!(config.timer_settings().d, 32_000);
        let answers = config.read_through_settings();
        assert_eq!((answers.absent, answers.absent_ttl), (1, Duration::ZERO));
    }

    #[test]
    fn each_listener_has_a_name_of_its_own() {
        let text = "listen = [\"udp:127.0.0.1:0\", \"tcp:127.0.0.1:5060\", \"udp:127.0.0.1:0\", \"udp:127.0.0.1:0\"]";
        let (config, _) = Config::read(Source { text, ..Default::default() }).expect("right");
        let names = config.listener_names();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        assert_eq!(names, ["udp:127.0.0.1:0", "tcp:127.0.0.1:5060", "udp:127.0.0.1:0#2", "udp:127.0.0.1:0#3"]);
    }

    #[test]
    fn service_routes_are_name_addrs() {
        let text = "registrar.service_route = [\"sip:a.example.org;lr\", \"sip:b.example.org;lr\"]";
        let source = Source { text, ..Default::default() };
        let (config, _) = Config::read(source).expect("right");
        assert_eq!(config.registrar_settings().service_route, b"<sip:a.example.org;lr>, <sip:b.example.org;lr>");
    }

    #[test]
    fn what_is_written_is_known_by_its_key() {
        let written = |text: &str| {
            let (config, _) =
                Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
            let written = config.written().into_iter().map(|(key, path)| format!("{key} {}", path.display()));
            written.collect::<Vec<_>>()
        };
        assert_eq!(written("accounting.path = \"rows\""), [""; 0], "nothing is accounted");
        assert_eq!(
            written("accounting.cdr = true\ndialogs.folder = \"calls\"\n[[cache]]\nname = \"a\"\nfolder = \"c\""),
            [
                "accounting.path accounting",
                "accounting.spool accounting.spool",
                "dialogs.folder calls",
                "cache.folder of 'a' c"
            ]
        );
        let sql = "accounting.cdr = true\naccounting.to = \"sql\"\naccounting.database = \"mysql://u@127.0.0.1/d\"";
        assert_eq!(written(sql), ["accounting.spool accounting.spool"]);
        assert_eq!(written("dialogs.database = \"sqlite:calls.sqlite\""), ["dialogs.database calls.sqlite"]);
    }
}
