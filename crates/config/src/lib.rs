//! The configuration: one TOML file, every key with a default, so that none is needed.
//!
//! Each table of the file is described once, by `section!` in the file of its name; from that description come the
//! struct, the defaults, the reader, [`Config::effective`] and [`reference()`]. Nothing is believed on the way: a key
//! that does not exist, a value of the wrong type or out of its range, and settings that contradict one another are
//! [`Fault`]s with the place in the file and the cure, and as many as possible are found in one go.
//!
//! ```
//! use strowger_config::Config;
//!
//! let config = Config::default();
//! assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:5060");
//! ```

#![warn(missing_docs)]

mod auth;
mod ban;
mod check;
mod control;
mod dns;
mod domains;
mod effective;
mod key;
mod limits;
mod listen;
mod log;
mod machine;
mod mask;
mod metrics;
mod nat;
mod proxy;
mod reader;
mod registrar;
mod reload;
mod report;
mod secret;
mod server;
mod settings;
mod store;
mod timers;
mod tls;
mod validity;

use std::fs;
use std::path::{Path, PathBuf};

pub use strowger_core::Transport;
use toml::de::{DeTable, DeValue};

pub use self::auth::{Algorithm, Auth, Qop, UriCheck};
pub use self::ban::{Ban, Network};
pub use self::control::{Control, ControlSocket};
pub use self::dns::Dns;
pub use self::domains::Domain;
pub use self::effective::reference;
pub use self::limits::Limits;
pub use self::listen::{Advertised, Identity, ListenAddress, Listener};
pub use self::log::{Log, LogFormat, LogLevel};
pub use self::metrics::Metrics;
pub use self::nat::{Nat, PingMethod};
pub use self::proxy::{Fork, Proxy, RelayFor, SipUri};
pub use self::registrar::{Durability, PathRule, Registrar};
pub use self::reload::Change;
pub use self::report::{Fault, Report, Severity};
pub use self::secret::Secret;
pub use self::server::{Scheduling, Server};
pub use self::store::Store;
pub use self::timers::Timers;
pub use self::tls::Tls;

use self::domains::Top;
use self::listen::ListenerTable;
use self::reader::{Reader, Section};

/// Environment variable that holds `auth.secret`.
pub const SECRET_VARIABLE: &str = "STROWGER_AUTH_SECRET";

/// Names the tables once: from this come the fields of [`Config`] and the ways to read, name and write them.
macro_rules! tables {
    ($($field:ident: $type:ident),+ $(,)?) => {
        /// Everything that can be set, read and checked.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            /// Where to listen; at least one.
            pub listeners: Vec<Listener>,
            /// Domains whose users live here; empty for a pure relay.
            pub domains: Vec<Domain>,
            /// Realm of digest authentication.
            pub realm: String,
            $(
                #[doc = concat!("The table `[", stringify!($field), "]`.")]
                pub $field: $type,
            )+
        }

        /// The tables as the file has them, before the parts are put together.
        #[derive(Default)]
        struct Tables {
            top: Top,
            listener: Vec<ListenerTable>,
            $( $field: $type, )+
        }

        impl Tables {
            fn names() -> Vec<(&'static str, &'static [&'static str])> {
                vec![(Top::NAME, Top::KEYS), (ListenerTable::NAME, ListenerTable::KEYS), $( ($type::NAME, $type::KEYS) ),+]
            }

            /// Reads the table `name`; false if there is no such table.
            fn read(&mut self, name: &str, table: &DeTable<'_>, reader: &mut Reader) -> bool {
                match name {
                    $( $type::NAME => self.$field = reader.section(name, table), )+
                    _ => return false,
                }
                true
            }

            fn is_table(name: &str) -> bool {
                [$( $type::NAME ),+].contains(&name)
            }

            fn into_config(self, listeners: Vec<Listener>, domains: Vec<Domain>, realm: String) -> Config {
                Config { listeners, domains, realm, $( $field: self.$field ),+ }
            }
        }

        impl Config {
            /// Each table with its values as TOML, in the order of the documentation.
            fn tables(&self) -> Vec<effective::TableText> {
                vec![$( effective::TableText::new(&self.$field) ),+]
            }

            /// The keys of all tables that have other values than in `running`.
            fn table_changes(&self, running: &Self) -> Vec<Change> {
                [$( self.$field.changes(&running.$field, $type::NAME) ),+].concat()
            }

            fn keep_fixed(&mut self, running: &Self) {
                $( self.$field.keep_fixed(&running.$field); )+
            }
        }
    };
}

tables! {
    server: Server,
    proxy: Proxy,
    registrar: Registrar,
    auth: Auth,
    ban: Ban,
    nat: Nat,
    store: Store,
    tls: Tls,
    limits: Limits,
    timers: Timers,
    dns: Dns,
    log: Log,
    metrics: Metrics,
    control: Control,
}

/// What a configuration is made of besides the defaults.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// What the file is called in a report.
    pub file: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Folder that relative paths start from.
    pub folder: &'a Path,
    /// Listeners of the command line; they stand in for all of the file.
    pub listen: &'a [ListenAddress],
    /// The environment.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Default for Source<'_> {
    fn default() -> Self {
        Self { file: "defaults", text: "", folder: Path::new(""), listen: &[], environment: &|_| None }
    }
}

impl Default for Config {
    /// What an empty file gives, without a look at the environment.
    fn default() -> Self {
        Self::read(Source::default()).expect("the defaults contradict neither their ranges nor each other").0
    }
}

impl Config {
    /// Reads a file, or takes the defaults if none is given; `listen` stands in for the listeners of the file.
    ///
    /// With the configuration comes a report of its warnings, which may be empty.
    ///
    /// # Errors
    /// The report of everything that is wrong, warnings included.
    pub fn load(path: Option<&Path>, listen: &[ListenAddress]) -> Result<(Self, Report), Report> {
        let environment = |name: &str| std::env::var(name).ok();
        let Some(path) = path else {
            return Self::read(Source { listen, environment: &environment, ..Source::default() });
        };
        let file = path.display().to_string();
        let text = match fs::read(path).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                let valid = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let fault = Fault::error(Some(valid..valid + 1), "the file is not UTF-8", "save it as UTF-8 text");
                return Err(Report::new(file, text, vec![fault]));
            }
            Err(error) => {
                let message = format!("cannot read the file: {}", with_reason(&error, path));
                let cure = "name a file that exists and that this user may read; `strowger init` writes one";
                return Err(Report::new(file, "", vec![Fault::error(None, message, cure)]));
            }
        };
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        Self::read(Source { file: &file, text: &text, folder, listen, environment: &environment })
    }

    /// Reads a text; see [`Config::load`].
    ///
    /// # Errors
    /// The report of everything that is wrong, warnings included.
    pub fn read(source: Source<'_>) -> Result<(Self, Report), Report> {
        let report = |faults| Report::new(source.file, source.text, faults);
        let (document, errors) = DeTable::parse_recoverable(source.text);
        if !errors.is_empty() {
            return Err(report(syntax_faults(&errors, source.text)));
        }

        let mut reader = Reader::new(Tables::names());
        let tables = read_tables(document.get_ref(), &mut reader);
        let config = assemble(tables, source, &mut reader);
        // Contradictions between values that are themselves wrong would only confuse.
        if reader.fault_count() == 0 {
            check::check(&config, source, &mut reader);
        }
        let report = report(reader.into_faults());
        if report.errors() > 0 { Err(report) } else { Ok((config, report)) }
    }

    /// Where the control socket is, if there is one.
    pub fn control_socket(&self) -> Option<PathBuf> {
        control_socket(&self.control, &self.store)
    }

    /// Where that of a server with this file is, though other parts of the file may be wrong: a server that runs since before is reached all
    /// the same.
    pub fn control_socket_of(file: &Path) -> Option<PathBuf> {
        let text = fs::read_to_string(file).ok()?;
        let (document, _) = DeTable::parse_recoverable(&text);
        let mut reader = Reader::new(Tables::names());
        let mut tables = read_tables(document.get_ref(), &mut reader);
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        resolve_paths(&mut tables, folder);
        control_socket(&tables.control, &tables.store)
    }

    /// Whether a domain is one whose users live here; whatever the case.
    pub fn is_local(&self, domain: &str) -> bool {
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        self.domains.iter().any(|local| local.eq_ignore_ascii_case(domain))
    }
}

fn control_socket(control: &Control, store: &Store) -> Option<PathBuf> {
    match &control.socket {
        ControlSocket::At(path) => Some(path.clone()),
        ControlSocket::Database => Some(store.database.as_ref()?.with_extension("control")),
        ControlSocket::None => None,
    }
}

/// An error of reading a file, with its owner and mode where they are the reason.
fn with_reason(error: &std::io::Error, path: &Path) -> String {
    match strowger_store::access::denial(path, false) {
        Some(reason) => format!("{error}; {reason}"),
        None => error.to_string(),
    }
}

/// The faults of the TOML text itself, without those that only follow from an earlier one.
fn syntax_faults(errors: &[toml::de::Error], text: &str) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut duplicate_table = false;
    for error in errors {
        let fault = syntax_fault(error, text);
        let line_start = fault.span.as_ref().map_or(0, |span| text[..span.start].rfind('\n').map_or(0, |at| at + 1));
        if error.message().contains("duplicate key") {
            // All keys of a table that stands twice are duplicates too.
            if duplicate_table {
                continue;
            }
            duplicate_table = text[line_start..].trim_start().starts_with('[');
        }
        let same_line = faults.last().and_then(|last| last.span.as_ref()).is_some_and(|last| last.start >= line_start);
        if !same_line {
            faults.push(fault);
        }
        // A bracket that is not closed swallows the rest of the file.
        if error.message().contains("array") || error.message().contains("inline table") {
            break;
        }
    }
    faults
}

/// A fault of the TOML text itself.
fn syntax_fault(error: &toml::de::Error, text: &str) -> Fault {
    let span = error.span().map(|span| span.start.min(text.len())..span.end.min(text.len()));
    let message = error.message();
    let written = span.clone().and_then(|span| text.get(span)).unwrap_or_default();
    let cure = if matches!(&written.to_ascii_lowercase()[..], "yes" | "no" | "on" | "off" | "true" | "false") {
        "write true or false, without quotes"
    } else if message.contains("duplicate key") {
        "a key or table may stand only once: remove one of the two"
    } else if message.contains("string") {
        "text stands between two quotes on one line: key = \"text\""
    } else if message.contains("array") {
        "a list stands in brackets with commas between its items: key = [\"a\", \"b\"]"
    } else if message.contains("table") || message.contains("key") {
        "a line is `key = value`, `[table]`, `[[listener]]` or a # comment"
    } else {
        "write text in quotes, numbers and true or false without, lists in brackets: key = value"
    };
    Fault::error(span, format!("this is not TOML: {message}"), cure)
}

fn read_tables(document: &DeTable<'_>, reader: &mut Reader) -> Tables {
    let mut tables = Tables::default();
    // Keys above the first table first: what is not one of them must be a table.
    let mut top = DeTable::new();
    for (key, value) in document {
        let name = key.get_ref().as_ref();
        match value.get_ref() {
            _ if Top::KEYS.contains(&name) => {
                top.insert(key.clone(), value.clone());
            }
            DeValue::Array(items) if name == ListenerTable::NAME => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{name}[{index}]");
                    match item.get_ref() {
                        DeValue::Table(table) => {
                            reader.note_place(&path, key.span(), item.span());
                            tables.listener.push(reader.section(&path, table));
                        }
                        _ => reader.wrong_type(&path, item, "a table", "write each listener as a [[listener]] table"),
                    }
                }
            }
            DeValue::Table(table) if tables.read(name, table, reader) => {}
            _ if name == ListenerTable::NAME => {
                reader.error(key.span(), "listener is not a list of tables", "write [[listener]], in double brackets");
            }
            _ if Tables::is_table(name) => {
                let message = format!("{name} is not a table here");
                reader.error(key.span(), message, format!("write [{name}] on a line of its own, and its keys below"));
            }
            other => reader.unknown_section(name, key.span(), other),
        }
    }
    tables.top = reader.section("", &top);
    tables
}

/// Relative paths start from this folder.
fn resolve_paths(tables: &mut Tables, folder: &Path) {
    let in_folder = |path: &mut PathBuf| *path = folder.join(&*path);
    for path in [
        &mut tables.store.database,
        &mut tables.auth.secret_file,
        &mut tables.tls.certificate,
        &mut tables.tls.key,
        &mut tables.tls.client_ca,
        &mut tables.tls.outbound_ca,
    ]
    .into_iter()
    .flatten()
    .chain(match &mut tables.control.socket {
        ControlSocket::At(path) => Some(path),
        ControlSocket::Database | ControlSocket::None => None,
    })
    .chain(
        tables
            .listener
            .iter_mut()
            .flat_map(|table| [&mut table.certificate, &mut table.key, &mut table.client_ca].into_iter().flatten()),
    ) {
        in_folder(path);
    }
}

/// Puts the tables together: listeners of both forms, derived defaults, paths from the folder, secrets from elsewhere.
fn assemble(mut tables: Tables, source: Source<'_>, reader: &mut Reader) -> Config {
    resolve_paths(&mut tables, source.folder);
    let listeners = listeners(&mut tables, source.listen, reader);
    let domains = tables.top.domains.take().unwrap_or_else(|| {
        let mut hosts: Vec<Domain> =
            listeners.iter().filter_map(Listener::host).filter_map(|host| host.parse().ok()).collect();
        let mut seen = Vec::new();
        hosts.retain(|host| {
            !seen.contains(host) && {
                seen.push(host.clone());
                true
            }
        });
        hosts
    });
    let realm = tables
        .top
        .realm
        .take()
        .or_else(|| domains.first().map(ToString::to_string))
        .unwrap_or_else(|| "strowger".into());
    tables.auth.secret = secret(&tables.auth, source, reader);
    tables.into_config(listeners, domains, realm)
}

fn listeners(tables: &mut Tables, from_command_line: &[ListenAddress], reader: &Reader) -> Vec<Listener> {
    let short: &[ListenAddress] = match from_command_line {
        [] if tables.listener.is_empty() || reader.has("listen") => &tables.top.listen,
        short => short,
    };
    let mut listeners: Vec<Listener> = short.iter().copied().map(Listener::from).collect();
    if from_command_line.is_empty() {
        for table in tables.listener.drain(..) {
            let port = table.port.unwrap_or_else(|| table.transport.default_port());
            // Whose certificate it shows and of whom it demands one are two questions.
            let tls = &tables.tls;
            let shown = table.certificate.zip(table.key).or_else(|| tls.certificate.clone().zip(tls.key.clone()));
            let client_ca = table.client_ca.or_else(|| tls.client_ca.clone());
            listeners.push(Listener {
                transport: table.transport,
                address: (table.address, port).into(),
                advertise: table.advertise,
                network: table.network,
                algorithms: table.algorithms,
                identity: shown.map(|(certificate, key)| Identity { certificate, key, client_ca }),
            });
        }
    }
    for listener in &mut listeners {
        if listener.algorithms.is_empty() {
            listener.algorithms.clone_from(&tables.auth.algorithms);
        }
        if !listener.transport.is_secure() {
            listener.identity = None;
        } else if listener.identity.is_none() {
            listener.identity = tables
                .tls
                .certificate
                .clone()
                .zip(tables.tls.key.clone())
                .map(|(certificate, key)| Identity { certificate, key, client_ca: tables.tls.client_ca.clone() });
        }
    }
    listeners
}

/// The secret of `auth`: environment before file before key.
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
    let Some(path) = &auth.secret_file else { return auth.secret.clone() };
    let span = reader.value_of("auth.secret_file");
    if auth.secret.is_some() {
        let message = "auth.secret and auth.secret_file are both set";
        reader.push(Fault::error(span, message, "keep one of the two, better secret_file"));
        return None;
    }
    let cure = "name a file whose first line is the secret, and that this user may read";
    match fs::read_to_string(path) {
        Ok(text) => match Secret::new(text.lines().next().unwrap_or_default().trim()) {
            Ok(secret) => Some(secret),
            Err(message) => {
                let message = format!("the first line of auth.secret_file {message}");
                reader.push(Fault::error(
                    span,
                    message,
                    "put at least 16 random characters there (openssl rand -hex 32 makes some)",
                ));
                None
            }
        },
        Err(error) => {
            let message = format!("cannot read auth.secret_file {}: {}", path.display(), with_reason(&error, path));
            reader.push(Fault::error(span, message, cure));
            None
        }
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
        assert_eq!(config.domains.iter().map(Domain::as_str).collect::<Vec<_>>(), ["127.0.0.1"]);
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
        assert_eq!(config.domains[0].as_str(), "ws.example.org");
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

    /// One of each way in which a value, a key or a table can be wrong; contradictions are in `check.rs`.
    #[test]
    fn each_mistake_has_its_place_and_its_cure() {
        for (text, position, cure) in [
            ("listn = []", (1, 1), "write listen"),
            ("[proxy]\n  record-route = true", (2, 3), "write record_route"),
            ("[proxy]\nt1 = \"1s\"", (2, 1), "t1 belongs in [timers]"),
            ("[proxy]\ncolour = 1", (2, 1), "in [proxy] stand relay_for,"),
            ("[log]\nrealm = \"x\"", (2, 1), "above the first [table]"),
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
            // xorshift: a fixed sequence, so that a failure comes again.
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
