//! The configuration: one TOML text, every key with a default, so that none is needed.
//!
//! The one rule of use: [`Config::read`] parses a text to values and opens no file. The process must read the files that the values name;
//! [`Report::places`] has the position of each key for its messages. In a server `strowger_node::preflight` reads these files.
//!
//! `section!` describes each table once, in the file of its name. The struct, the defaults, the reader, [`Config::effective`] and
//! [`reference()`] come from that description. A table is single (`[log]`) or in a list (`[[certificate]]`), in which each table has a name
//! that other tables refer to. An unknown key, a value of the wrong type or out of its range, and contradicting keys are [`Fault`]s with the
//! position in the file and the cure. The reader finds as many as possible in one pass.
//!
//! ```
//! use strowger_config::Config;
//!
//! let config = Config::default();
//! assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:5060");
//! ```
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | keys of a table, with defaults, ranges and documentation | one file a table, `auth.rs` and others; `docs/configuration.md` is made from them |
//! | all tables; lists of tables; names and references to them | `config.rs`, `Config`; `tables.rs`, `document`; `name.rs`, `Reference` |
//! | shown and masked parts of a wrong file | `report.rs`; `mask.rs` |
//! | reload: changed, fixed and contradicting keys | `reload.rs`, `for_running` |
//! | rules: actions, compilation; conditions; bridged calls | `rules.rs`, `Action`, `compile`; `condition.rs`; `rule_path.rs`, `PathAction` |
//! | answers: a status, an endpoint and its sound; edit of the user part | `rule_answer.rs`, `RuleAnswer`; `user_edit.rs`, `UserEdit` |
//! | failures, limits of calls, filters, identities | `failure.rs`; `call_limit.rs`; `filter.rs`; `identity.rs` |
//! | gateway groups; data sets | `gateway_group.rs`; `set.rs` |
//! | domains: names, aliases, realms | `domains.rs`, `LocalDomain`; `domain_names.rs` |
//! | positions of keys, for checks of the files that they name | `key_positions.rs`, `KeyPositions` |
//! | services that the server uses, which no peer may name | `services.rs` |
//! | warnings of `strowger check`: rules, open relay, certificates | `check_rules.rs`; `check_relay.rs`; `check_tls.rs` |

#![warn(missing_docs)]

mod accounting;
mod assemble;
mod auth;
mod ban;
mod cache;
mod call_limit;
mod certificate;
mod change;
mod check;
mod check_action;
mod check_cache;
mod check_call_limit;
mod check_database;
mod check_dialogs;
mod check_emergency;
mod check_media;
mod check_relay;
mod check_rules;
mod check_tls;
mod condition;
mod config;
mod control;
mod database;
mod dialogs;
mod dns;
mod domain_names;
mod domains;
mod effective;
mod emergency;
mod failure;
mod filter;
mod gateway_group;
mod identity;
mod key;
mod key_positions;
mod limits;
mod listen;
mod log;
mod machine;
mod mask;
mod media;
mod metrics;
mod name;
mod nat;
mod proxy;
mod reader;
mod registrar;
mod reload;
mod removed;
mod report;
mod rule_answer;
mod rule_path;
mod rule_text;
mod rules;
mod secret;
mod server;
mod services;
mod set;
mod settings;
mod source;
mod store;
mod syntax;
mod table_text;
mod tables;
mod timers;
mod tls;
mod user_edit;

use std::path::{Path, PathBuf};

pub use strowger_core::Transport;
pub use strowger_rules::nearest;
pub use strowger_store::database_url::{DatabaseTls, DatabaseUrl};
use toml::de::DeTable;

pub use self::accounting::{AccountedField, Accounting, AccountingTarget};
pub use self::auth::{Algorithm, Auth, Qop, UriCheck};
pub use self::ban::{Ban, Network};
pub use self::cache::{CacheEngine, CacheMode, CacheTable, Password};
pub use self::call_limit::{CallLimitTable, CountedPer, OverLimit, WithoutCache};
pub use self::certificate::{Certificate, CertificateFiles};
pub use self::change::Change;
pub use self::config::Config;
pub use self::control::{Control, ControlSocket};
pub use self::database::Database;
pub use self::dialogs::Dialogs;
pub use self::dns::Dns;
pub use self::domains::{Domain, LocalDomain};
pub use self::effective::reference;
pub use self::emergency::Emergency;
pub use self::failure::{FailureAction, FailureTable, StatusRange};
pub use self::filter::{FilterAction, FilterTable};
pub use self::gateway_group::{GatewayGroup, GatewayGroupTable, GroupPlaces, Pick, RouteTarget, Targets};
pub use self::identity::{EmergencyNumber, Identities, IdentityEntry, IdentityList, IdentitySource};
pub use self::key_positions::KeyPositions;
pub use self::limits::Limits;
pub use self::listen::{Advertised, Identity, ListenAddress, Listener};
pub use self::log::{Log, LogFormat, LogLevel};
pub use self::machine::own_addresses;
pub use self::media::{Media, MediaAddress, PortRange};
pub use self::metrics::Metrics;
pub use self::name::{Name, Reference};
pub use self::nat::{Nat, PingMethod};
pub use self::proxy::{Fork, Proxy, RelayFor, SipUri, UnmatchedCancel};
pub use self::registrar::{Durability, PathRule, Registrar};
pub use self::report::{Fault, Report, Severity};
pub use self::rule_answer::{Announcement, CallEndpoint, EndpointFiles, Recording, RuleAnswer};
pub use self::rule_path::{Codec, MediaType, PathAction, ReferFrom};
pub use self::rule_text::{AccountName, HeaderLine, RemovableHeader, UserText, is_user_text};
pub use self::rules::{Action, Decisions, RuleTable, SourceTable};
pub use self::secret::Secret;
pub use self::server::{Scheduling, Server};
pub use self::set::{SetFault, SetKind, SetTable};
pub use self::settings::KEPT_MEMORY;
pub use self::source::Source;
pub use self::store::Store;
pub use self::syntax::faults as syntax_faults;
pub use self::timers::Timers;
pub use self::tls::Tls;
pub use self::user_edit::UserEdit;

use self::config::Tables;
use self::reader::Reader;
use self::tables::Document;

/// Environment variable that holds `auth.secret`.
pub const SECRET_VARIABLE: &str = "STROWGER_AUTH_SECRET";

impl Default for Config {
    /// Returns the configuration of an empty file, without reading the environment.
    fn default() -> Self {
        Self::read(Source::default()).expect("the defaults contradict neither their ranges nor each other").0
    }
}

impl Config {
    /// Reads a text. The process that uses the configuration must open the files that the text names; this function opens none of them.
    ///
    /// Returns the configuration with a report of its warnings, which may be empty.
    ///
    /// # Errors
    /// The report of all faults, warnings included.
    pub fn read(source: Source<'_>) -> Result<(Self, Report), Report> {
        match Self::examine(source) {
            (Some(config), report) if report.errors() == 0 => Ok((config, report)),
            (_, report) => Err(report),
        }
    }

    /// Reads a text as [`Config::read`] does, but returns the values even if some of them contradict each other, so that further checks can add their
    /// faults to the same report. [`Report::places`] has the positions of the keys.
    pub fn examine(source: Source<'_>) -> (Option<Self>, Report) {
        let report = |faults| Report::new(source.file, source.text, faults);
        let (document, errors) = DeTable::parse_recoverable(source.text);
        if !errors.is_empty() {
            return (None, report(syntax::faults(&errors, source.text)));
        }

        let mut reader = Reader::new(Tables::names(), source.text);
        let mut tables: Tables = tables::read(document.get_ref(), &mut reader);
        reader.check_references();
        tables.resolve(source.folder);
        let config = assemble::assemble(tables, source, &mut reader);
        // Contradictions are checked only between valid values; those of wrong values would be misleading.
        let is_whole = reader.error_count() == 0;
        if is_whole {
            check::check(&config, source, &mut reader);
        }
        let (faults, places) = reader.into_parts();
        (is_whole.then_some(config), report(faults).with_places(places))
    }

    /// Returns the path of the control socket, if there is one.
    pub fn control_socket(&self) -> Option<PathBuf> {
        control_socket(&self.control, &self.store)
    }

    /// Returns the path of the control socket that this text names, even if other parts of the text are wrong, since the running server may have read
    /// an earlier version. Relative paths start at `folder`.
    pub fn control_socket_of(text: &str, folder: &Path) -> Option<PathBuf> {
        let (document, _) = DeTable::parse_recoverable(text);
        let mut reader = Reader::new(Tables::names(), text);
        let mut tables: Tables = tables::read(document.get_ref(), &mut reader);
        tables.resolve(folder);
        control_socket(&tables.control, &tables.store)
    }
}

fn control_socket(control: &Control, store: &Store) -> Option<PathBuf> {
    match &control.socket {
        ControlSocket::At(path) => Some(path.clone()),
        ControlSocket::Database => Some(store.database.as_ref()?.with_extension("control")),
        ControlSocket::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Config {
        match Config::read(Source { file: "test.toml", text, ..Source::default() }) {
            Ok((config, _)) => config,
            Err(report) => panic!("{report}"),
        }
    }

    fn refusal(text: &str) -> Report {
        match Config::read(Source { file: "test.toml", text, ..Source::default() }) {
            Ok((config, _)) => panic!("{text} gave {config:?}"),
            Err(report) => report,
        }
    }

    fn shown(config: &Config) -> Vec<String> {
        config.listeners.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nothing_needs_to_be_set() {
        let config = Config::default();
        assert_eq!(shown(&config), ["udp:127.0.0.1:5060", "tcp:127.0.0.1:5060"]);
        assert_eq!(config.domain_names().collect::<Vec<_>>(), ["127.0.0.1"]);
        assert_eq!(config.realm, "127.0.0.1");
        assert_eq!(config.proxy.relay_for, RelayFor::Authenticated);
        assert!(config.registrar.authenticate && config.auth.secret.is_none());
    }

    #[test]
    fn listeners_of_both_forms_stand_together_and_the_command_line_in_their_stead() {
        let table =
            "[[listener]]\ntransport = \"ws\"\naddress = \"::1\"\nadvertise = \"ws.example.org\"\nnetwork = \"web\"\n";
        let config = read(table);
        assert_eq!(shown(&config), ["ws:[::1]:80"]);
        assert_eq!(config.listeners[0].network, "web");
        assert_eq!(config.domains[0].name.as_str(), "ws.example.org");
        let text = format!("listen = [\"udp:127.0.0.1:5080\"]\n{table}");
        assert_eq!(shown(&read(&text)), ["udp:127.0.0.1:5080", "ws:[::1]:80"]);
        let listen = ["tcp:127.0.0.2:0".parse().expect("a listener")];
        let source = Source { text: &text, listen: &listen, ..Source::default() };
        let (config, _) = Config::read(source).expect("right");
        assert_eq!(shown(&config), ["tcp:127.0.0.2:0"]);
    }

    #[test]
    fn domains_may_be_none_and_the_realm_follows_them() {
        let config = read("domains = []");
        assert!(config.domains.is_empty());
        assert_eq!(config.realm, "strowger");
        let config = read("domains = [\"Example.org\", \"example.net\"]");
        assert_eq!(config.realm, "example.org");
        assert!(config.is_local("EXAMPLE.org") && config.is_local("example.net.") && !config.is_local("a.example.net"));
        assert_eq!(read("realm = \"r\"\ndomains = [\"example.org\"]").realm, "r");
    }

    #[test]
    fn a_domain_may_have_a_realm_of_its_own() {
        let tables = "[[domain]]\nname = \"B.example\"\nrealm = \"office\"\n[[domain]]\nname = \"c.example\"\n";
        let config = read(&format!("domains = [\"a.example\"]\nrealm = \"shared\"\n{tables}"));
        assert_eq!(config.domain_names().collect::<Vec<_>>(), ["a.example", "b.example", "c.example"]);
        for (domain, realm) in [
            ("a.example", "shared"),
            ("A.Example.", "shared"),
            ("b.example", "office"),
            ("B.EXAMPLE", "office"),
            ("c.example", "c.example"),
            ("d.example", "shared"),
        ] {
            assert_eq!(config.realm_of(domain), realm, "{domain}");
        }
        assert!(config.is_local("b.example") && !config.is_local("d.example") && config.has_several_realms());
        assert_eq!(config.realms(), ["shared", "office", "c.example"]);
        assert_eq!(
            ["shared", "office"].map(|realm| config.first_domain_of(realm)),
            [Some("a.example"), Some("b.example")]
        );
        // Without `domains` the table is the only domain, and the first realm is that of callers from no local domain.
        let config = read(tables);
        assert_eq!(config.domain_names().collect::<Vec<_>>(), ["b.example", "c.example"]);
        assert_eq!(config.realm, "office");
        let config = read(&format!("domains = \"auto\"\n{tables}[[domain]]\nname = \"127.0.0.1\"\nrealm = \"r\""));
        assert_eq!(config.domain_names().collect::<Vec<_>>(), ["b.example", "c.example", "127.0.0.1"]);
        let config = read("domains = [\"a.example\", \"b.example\"]\nrealm = \"B.example\"");
        assert!(!config.has_several_realms());
        assert_eq!((config.first_domain_of("B.example"), config.first_domain_of("none")), (Some("a.example"), None));
    }

    #[test]
    fn relative_paths_start_at_the_folder_of_the_file() {
        let text = "store.database = \"data.sqlite\"";
        let folder = std::env::temp_dir();
        let (config, _) = Config::read(Source { text, folder: &folder, ..Source::default() }).expect("right");
        assert_eq!(config.store.database, Some(folder.join("data.sqlite")));
        let text = "store.database = \"/tmp/data.sqlite\"";
        let (config, _) = Config::read(Source { text, folder: Path::new("/etc"), ..Source::default() }).expect("right");
        assert_eq!(config.store.database, Some(PathBuf::from("/tmp/data.sqlite")));
    }

    #[test]
    fn the_environment_has_the_last_word_on_the_secret() {
        let environment = |name: &str| (name == SECRET_VARIABLE).then(|| "from the environment\n".to_owned());
        let text = "auth.secret = \"from the file itself\"";
        let (config, _) = Config::read(Source { text, environment: &environment, ..Source::default() }).expect("right");
        assert_eq!(config.auth.secret.expect("it is set").reveal(), b"from the environment");
    }

    /// One example of each way in which a value, a key or a table can be wrong; contradictions are in `check.rs`.
    #[test]
    fn each_mistake_has_its_place_and_its_cure() {
        for (text, position, cure) in [
            ("listn = []", (1, 1), "write listen"),
            ("[proxy]\n  record-route = true", (2, 3), "write record_route"),
            ("[proxy]\nt1 = \"1s\"", (2, 1), "t1 belongs in [timers]"),
            ("[proxy]\ncolour = 1", (2, 1), "in [proxy] stand relay_for,"),
            ("[log]\nrealm = \"x\"", (2, 1), "above the first [table]"),
            (
                "[log]\ndialogs.folder = \"x\"",
                (2, 1),
                "above the first [table], where a key may have its table before a dot, or into [dialogs]",
            ),
            ("[[rule]]\nname = \"a\"\nstore.database = \"x\"", (3, 1), "or into [store]"),
            ("[lgo]", (1, 2), "write [log]"),
            ("[telephone]", (1, 2), "the tables are"),
            ("log = 1", (1, 1), "write [log] on a line of its own"),
            ("[listener]", (1, 2), "write [[listener]]"),
            ("listener = [1]", (1, 13), "as a [[listener]] table"),
            ("listen = \"udp:127.0.0.1:5060\"", (1, 10), "write a list in brackets"),
            ("realm = 1", (1, 9), "text in quotes"),
            ("realm = \"a\\nb\"", (1, 9), "on one line"),
            ("limits.connections = 1.5", (1, 22), "a whole number from 1"),
            ("limits.connections = 99999999999999999999999", (1, 22), "a whole number from 1"),
            ("limits.idle_connection_timeout = \"nevr\"", (1, 34), "or \"never\""),
            ("timers.t1 = \"1h\"", (1, 13), "from \"10ms\" to \"10s\""),
            ("timers.t1 = 1979-05-27", (1, 13), "a duration from"),
            ("dns.servers = [\"one.example\"]", (1, 16), "an IP address"),
            ("ban.exempt = [\"10.0.0.0/8\", \"x\"]", (1, 29), "a network such as"),
            ("nat.ping_method = \"OPTIONS\"", (1, 19), "did you mean \"options\"?"),
            ("= 1", (1, 1), "a line is `key = value`"),
        ] {
            let report = refusal(text);
            assert_eq!(report.errors(), 1, "{text}\n{report}");
            let fault = &report.faults()[0];
            assert_eq!(report.position(fault), Some(position), "{text}\n{report}");
            assert!(fault.cure.contains(cure), "{text}\n{report}");
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic() {
        const NOISE: &[u8] = b"\"[]=.\n #0aZ\x7f{},";
        let seed = Config::default().effective();
        let mut state = 1_u64;
        let mut random = move |below: usize| {
            // xorshift: a fixed sequence, so that a failure can be repeated.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let lines: Vec<&str> = seed.lines().filter(|line| !line.starts_with('#')).collect();
        for _ in 0..2_000 {
            let mut text: Vec<u8> =
                (0..1 + random(6)).flat_map(|_| [lines[random(lines.len())], "\n"]).flat_map(str::bytes).collect();
            for _ in 0..random(4) {
                let at = random(text.len());
                text[at] = NOISE[random(NOISE.len())];
            }
            let text = String::from_utf8(text).expect("all of it is ASCII");
            let found = Config::read(Source { text: &text, ..Source::default() });
            if let Err(report) = found {
                assert!(report.errors() > 0 && !report.to_string().is_empty(), "{text}");
            }
        }
    }
}
