//! `strowger init`: a commented configuration from a few answers.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::Context;
use strowger_config::{Advertised, Domain, ListenAddress, Source, own_addresses};
use strowger_files::{access, private};
use strowger_node::preflight;

use crate::cli::{Advertise, InitArguments};
use crate::configuration;
use crate::output::{self, CommandOutcome};
use crate::prompt;

/// The contents of the file.
#[derive(Debug)]
struct Answers {
    domains: Vec<Domain>,
    /// Realm of all domains. Without it each domain has a realm of its own.
    realm: Option<String>,
    listen: Vec<ListenAddress>,
    advertise: Option<Advertised>,
    tls: Option<(PathBuf, PathBuf)>,
    secret: String,
}

pub(crate) fn run(arguments: InitArguments) -> anyhow::Result<CommandOutcome> {
    let output_file = arguments.output.clone();
    if output_file.exists() && !arguments.force {
        output::complain(&format!("{} is already there; --force overwrites it", output_file.display()));
        return Ok(CommandOutcome::Failed);
    }
    let Some(answers) = answers(arguments)? else { return Ok(CommandOutcome::Usage) };
    let text = file(&answers);

    // The file must be valid, so the configuration reader of the server checks it.
    let folder = output_file.parent().unwrap_or_else(|| Path::new(""));
    let name = output_file.display().to_string();
    match preflight::read(Source { file: &name, text: &text, folder, ..Source::default() }) {
        Ok((_, warnings)) => output::report(&warnings),
        Err(report) => {
            output::report(&report);
            output::complain("nothing was written");
            return Ok(CommandOutcome::Failed);
        }
    }
    write(&output_file, &text)?;
    output::print(&next_steps(&answers.domains, &output_file))?;
    Ok(CommandOutcome::Done)
}

/// Asks for each answer that no flag gives. Returns `None`, after an error message, if no person is there to answer.
fn answers(arguments: InitArguments) -> anyhow::Result<Option<Answers>> {
    let missing: Vec<&str> = [
        ("--domain", arguments.domain.is_empty()),
        (
            "--advertise",
            arguments.advertise.is_none()
                && (arguments.listen.is_empty() || arguments.listen.iter().any(is_unspecified)),
        ),
    ]
    .into_iter()
    .filter_map(|(flag, missing)| missing.then_some(flag))
    .collect();
    if !prompt::can_ask() && !missing.is_empty() {
        output::complain(&format!("there is no terminal to ask on; give {}", missing.join(" and ")));
        return Ok(None);
    }
    let ask = prompt::can_ask();

    let mut domains = match arguments.domain {
        domains if !domains.is_empty() => domains,
        _ => prompt::ask("Domain of the users, as in alice@DOMAIN; several with spaces between", None, |answer| {
            let domains = words(answer).map(str::parse).collect::<Result<Vec<Domain>, _>>();
            domains.map_err(|error| format!("that {error}; write domains such as example.org"))
        })?,
    };
    let mut seen = HashSet::new();
    domains.retain(|domain| seen.insert(domain.clone()));
    let realm = match arguments.realm {
        Some(realm) => Some(realm),
        // Each of several domains gets a realm of its own, which is its name.
        None if domains.len() > 1 => None,
        None if ask => prompt::ask("Realm of the passwords, which phones may show", Some(&domains[0]), |answer| {
            Ok(Some(answer.to_owned()))
        })?,
        None => Some(domains[0].to_string()),
    };
    let everywhere = "udp:0.0.0.0:5060 tcp:0.0.0.0:5060";
    let read_listen = |answer: &str| {
        let listen = words(answer).map(str::parse::<ListenAddress>);
        listen
            .collect::<Result<Vec<_>, _>>()
            .and_then(|listen| if listen.is_empty() { Err("has no listener".into()) } else { Ok(listen) })
    };
    let listen = match arguments.listen {
        listen if !listen.is_empty() => listen,
        _ if ask => {
            prompt::ask("Listen on, as TRANSPORT:ADDRESS:PORT with spaces between", Some(everywhere), |answer| {
                read_listen(answer).map_err(|error| format!("that {error}; write for example udp:192.0.2.10:5060"))
            })?
        }
        _ => read_listen(everywhere).map_err(anyhow::Error::msg)?,
    };
    let advertise = match arguments.advertise {
        Some(Advertise::As(name)) => Some(name),
        Some(Advertise::None) => None,
        None if ask => {
            let choice = if listen.iter().any(is_unspecified) { reachable(&listen) } else { Vec::new() };
            let has = match &choice[..] {
                [] | [_] => String::new(),
                several => format!("; this machine has {}", several.join(", ")),
            };
            prompt::ask(
                &format!("Host that phones reach this machine by (none: the address it listens on{has})"),
                Some(choice.first().map_or("none", String::as_str)),
                |answer| match answer {
                    "none" => Ok(None),
                    _ => answer.parse().map(Some).map_err(|error| format!("that {error}")),
                },
            )?
        }
        None => None,
    };
    let mut tls = arguments.certificate.zip(arguments.key);
    if tls.is_none() && listen.iter().any(|listen| listen.transport.is_secure()) {
        if !ask {
            output::complain("tls and wss need --certificate and --key");
            return Ok(None);
        }
        let path = |answer: &str| match std::fs::metadata(answer) {
            Ok(_) => Ok(PathBuf::from(answer)),
            Err(error) => Err(format!("cannot read {answer}: {error}")),
        };
        tls = Some((
            prompt::ask("Certificate chain for tls, a PEM file", None, path)?,
            prompt::ask("Private key for tls, a PEM file", None, path)?,
        ));
    }
    // The file may be in another folder.
    let tls = match tls {
        Some((certificate, key)) => Some((std::path::absolute(certificate)?, std::path::absolute(key)?)),
        None => None,
    };
    Ok(Some(Answers { domains, realm, listen, advertise, tls, secret: secret()? }))
}

/// Splits a list that is separated by spaces or commas into its words.
fn words(answer: &str) -> impl Iterator<Item = &str> {
    answer.split([' ', ',']).filter(|word| !word.is_empty())
}

fn is_unspecified(listen: &ListenAddress) -> bool {
    listen.address.ip().is_unspecified()
}

/// Returns the addresses of this machine at which listeners on all addresses are reached; the address of the default
/// route, if there is one, is the first.
fn reachable(listen: &[ListenAddress]) -> Vec<String> {
    let has = |ip: &IpAddr| listen.iter().any(|listen| listen.address.is_ipv6() || ip.is_ipv4());
    let mut own: Vec<IpAddr> = own_addresses().into_iter().filter(has).collect();
    let towards_the_world = own_address();
    own.sort_by_key(|ip| (Some(*ip) != towards_the_world, ip.is_ipv6()));
    let text = |ip: &IpAddr| if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    own.iter().map(text).collect()
}

/// Returns the address of this machine on its default route, without sending anything.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address for documentation (RFC 5737): only the routing table is consulted.
    socket.connect("192.0.2.1:5060").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Draws 32 random bytes from the system and writes them as text.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot draw a secret from /dev/urandom")?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn file(answers: &Answers) -> String {
    let quoted = |text: &str| toml_text(text);
    let mut out = String::from(
        "# Configuration of Strowger. Every key has a default; `strowger check --effective FILE` shows them all,\n\
         # `strowger check FILE` finds what is wrong.\n\n",
    );
    // Keys that precede the first table, then the tables.
    let mut tables = String::new();
    match &answers.realm {
        Some(realm) => {
            let domains: Vec<String> = answers.domains.iter().map(|domain| quoted(domain)).collect();
            let _ = writeln!(out, "# Whose users live here: alice@{} registers with this server.", answers.domains[0]);
            let _ = writeln!(out, "domains = [{}]\n", domains.join(", "));
            out.push_str(
                "# Realm of the passwords. They are stored hashed with it: after a change every password must be set again.\n",
            );
            let _ = writeln!(out, "realm = {}\n", quoted(realm));
        }
        None => {
            tables.push_str(
                "# Whose users live here. Each domain has a realm, so users of one name in two domains are two users. Passwords are stored\n\
                 # hashed with it: after a change every password of the domain must be set again.\n",
            );
            for domain in &answers.domains {
                let domain = quoted(domain);
                let _ = write!(tables, "[[domain]]\nname = {domain}\nrealm = {domain}\n\n");
            }
        }
    }
    match &answers.advertise {
        None => {
            out.push_str("# Where to listen: udp, tcp, tls, ws or wss.\n");
            let listen: Vec<String> = answers.listen.iter().map(|listen| quoted(&listen.to_string())).collect();
            let _ = write!(out, "listen = [{}]\n\n{tables}", listen.join(", "));
        }
        Some(advertise) => {
            out.push_str(&tables);
            out.push_str(
                "# Where to listen, and the name that phones reach it by: it goes into Via and Record-Route.\n",
            );
            for listen in &answers.listen {
                let _ = write!(
                    out,
                    "[[listener]]\ntransport = \"{}\"\naddress = \"{}\"\nport = {}\nadvertise = {}\n\n",
                    listen.transport.text(),
                    listen.address.ip(),
                    listen.address.port(),
                    quoted(&advertise.to_string())
                );
            }
        }
    }
    if let Some((certificate, key)) = &answers.tls {
        let _ = write!(
            out,
            "# Certificate of the tls and wss listeners.\n[tls]\ncertificate = {}\nkey = {}\n\n",
            quoted(&certificate.to_string_lossy()),
            quoted(&key.to_string_lossy())
        );
    }
    let _ = write!(
        out,
        "[auth]\n\
         # Key of nonces and of the routes of calls; servers that stand in for one another share it. It may also stand\n\
         # in a file (secret_file) or in the environment variable STROWGER_AUTH_SECRET.\n\
         secret = \"{}\"\n\
         # MD5 is what every phone tried registers with. SHA-256 beside it or in its stead makes passwords harder to guess\n\
         # from what is read on the way, and shuts out baresip 1.0, browsers with JsSIP or SIP.js, and others; passwords are\n\
         # stored for both, so this can be changed at any time. A [[listener]] may have a list of its own.\n\
         algorithms = [\"MD5\"]\n\n\
         [proxy]\n\
         # Who may call out of the local domains: \"authenticated\", \"local-domains\" or \"everyone\" (an open relay).\n\
         relay_for = \"authenticated\"\n\n\
         [registrar]\n\
         # What a registration survives: \"crash\" of the process, \"power-loss\", or \"none\".\n\
         durability = \"crash\"\n\n\
         [dialogs]\n\
         # Whether each call is tracked: `strowger calls` lists, shows and ends those that are. A tracked call takes about 1 KB\n\
         # and a seventh more processor time. Calls with a limit or an accounting row are tracked in any case.\n\
         track = false\n\n\
         [store]\n\
         # Users and registrations; a relative path starts at the folder of this file.\n\
         database = \"strowger.sqlite\"\n\n\
         [log]\n\
         # error, warn, info, debug or trace; format text or json.\n\
         level = \"info\"\n",
        answers.secret
    );
    out
}

/// Writes a text as a basic string of TOML.
fn toml_text(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Writes the file, readable by its owner alone, because it contains a secret.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = private::file().truncate(true).open(path)?;
        // A file that existed before (--force) keeps its access rights.
        private::narrow(&file)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn next_steps(domains: &[Domain], path: &Path) -> String {
    // Commands find it in this folder without an option.
    let config =
        if path == Path::new(configuration::NAME) { String::new() } else { format!(" --config {}", path.display()) };
    let mut out = format!("wrote {}\n\nNext\n", path.display());
    for domain in domains {
        let _ = writeln!(out, "  strowger user add alice@{domain}{config}");
    }
    let _ = writeln!(out, "  strowger serve{config}");
    if let Some(hint) = access::hint_for_service(path) {
        let _ = write!(out, "\n{hint}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use strowger_config::Config;

    fn answers() -> Answers {
        Answers {
            domains: vec!["example.org".parse().expect("a domain"), "example.net".parse().expect("another")],
            realm: Some("The \"office\" \\ here".into()),
            listen: vec!["udp:0.0.0.0:5060".parse().expect("a listener"), "tcp:[::]:5070".parse().expect("another")],
            advertise: Some("sip.example.org".parse().expect("a name")),
            tls: None,
            secret: secret().expect("there is a source of randomness"),
        }
    }

    #[test]
    fn the_written_file_has_the_answers() {
        for (advertise, realm) in
            [(None, answers().realm), (answers().advertise, answers().realm), (None, None), (answers().advertise, None)]
        {
            let answers = Answers { advertise, realm, ..answers() };
            let text = file(&answers);
            let (config, report) = Config::read(Source { text: &text, ..Source::default() })
                .unwrap_or_else(|report| panic!("{report}\n{text}"));
            assert!(config.domain_names().eq(answers.domains.iter().map(|domain| &**domain)), "{text}");
            for domain in config.domain_names() {
                assert_eq!(config.realm_of(domain), answers.realm.as_deref().unwrap_or(domain), "{report}{text}");
            }
            assert_eq!(config.listeners.len(), 2);
            assert_eq!(config.listeners[1].address, answers.listen[1].address);
            assert_eq!(config.listeners[1].advertise, answers.advertise);
            assert_eq!(config.auth.secret.expect("it was set").reveal(), answers.secret.as_bytes());
        }
    }

    #[test]
    fn a_file_with_a_secret_is_its_owners_alone_even_when_it_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("strowger.toml");
        std::fs::write(&path, "old").expect("it can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
        write(&path, "new").expect("it can be written");
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    }

    /// Checks that each offered address gives a file without a warning.
    #[test]
    fn an_address_that_is_offered_makes_a_file_without_a_warning() {
        for listen in ["udp:0.0.0.0:5060", "udp:[::]:5060"] {
            let listen: Vec<ListenAddress> = vec![listen.parse().expect("a listener")];
            for own in reachable(&listen) {
                let is_v6 = listen[0].address.is_ipv6();
                let ip = own.trim_matches(['[', ']']).parse::<IpAddr>();
                assert!(ip.is_ok_and(|ip| !ip.is_loopback() && (is_v6 || ip.is_ipv4())), "{own}");
                let advertise = Some(own.parse().unwrap_or_else(|error| panic!("{own} {error}")));
                let text = file(&Answers { listen: listen.clone(), advertise, ..answers() });
                let read = Config::read(Source { text: &text, ..Source::default() });
                let (config, warnings) = read.unwrap_or_else(|report| panic!("{report}\n{text}"));
                assert!(warnings.faults().is_empty() && !config.dialogs.track, "{warnings}\n{text}");
                assert!(text.contains("a seventh more processor time"), "the file says what tracking costs");
            }
        }
    }

    #[test]
    fn each_file_has_its_own_secret() {
        let (one, two) = (answers().secret, answers().secret);
        assert_eq!(one.len(), 64);
        assert_ne!(one, two);
    }
}
