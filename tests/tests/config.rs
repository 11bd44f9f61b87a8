//! Wrong configurations through the real program: each error names file, line, column and cure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use strowger_tests::binary::strowger;
use tempfile::TempDir;

/// A configuration with one thing wrong in it.
struct Wrong {
    /// What kind of mistake it is.
    kind: &'static str,
    /// The file; the two marks stand around what the caret must point at and are taken out before the file is written.
    text: &'static str,
    /// A part of the sentence that says what is wrong.
    message: &'static str,
    /// A part of the sentence that says what would be right.
    cure: &'static str,
}

const FROM: char = '»';
const TO: char = '«';

const WRONG: &[Wrong] = &[
    Wrong {
        kind: "a bracket that is not closed",
        text: "listen = [\"udp:127.0.0.1:5060\"\n»[«log]\nlevel = \"info\"\n",
        message: "not TOML",
        cure: "a list stands in brackets",
    },
    Wrong { kind: "text without quotes", text: "[timers]\nt1 = »500ms«\n", message: "not TOML", cure: "quotes" },
    Wrong {
        kind: "a key that stands twice",
        text: "[log]\nlevel = \"info\"\n»level« = \"warn\"\n",
        message: "duplicate key",
        cure: "remove one of the two",
    },
    Wrong {
        kind: "a table that does not exist",
        text: "[»registrer«]\nmin_expires = \"1m\"\n",
        message: "there is no table [registrer]",
        cure: "write [registrar]",
    },
    Wrong {
        kind: "a key with a slip of the pen",
        text: "[registrar]\n\n»min_expire« = \"1m\"\n",
        message: "there is no key min_expire in [registrar]",
        cure: "write min_expires",
    },
    Wrong {
        kind: "a key in the wrong table",
        text: "[timers]\n»record_route« = true\n",
        message: "there is no key record_route in [timers]",
        cure: "record_route belongs in [proxy]",
    },
    Wrong {
        kind: "a key above the first table that belongs in one",
        text: "»relay_for« = \"everyone\"\n",
        message: "there is no key relay_for",
        cure: "relay_for belongs in [proxy]",
    },
    Wrong {
        kind: "text where true or false belongs",
        text: "[registrar]\nauthenticate = »\"yes\"«\n",
        message: "registrar.authenticate must be true or false, not text",
        cure: "write true or false, without quotes",
    },
    Wrong {
        kind: "a number out of its range",
        text: "[server]\nshards = »65«\n",
        message: "server.shards is out of its range",
        cure: "a whole number from 1 to 64, or \"auto\"",
    },
    Wrong {
        kind: "a database server of another kind",
        text: "[store]\nsubscribers = »\"oracle://u@db.example.org/d\"«\n",
        message: "store.subscribers begins with the name of no database server that is known",
        cure: "write a URL such as \"mysql://USER:PASSWORD@HOST:3306/DATABASE\" or \"postgresql://USER:PASSWORD@HOST:5432/DATABASE\", or \"database\"",
    },
    Wrong {
        kind: "a database server without a database",
        text: "[store]\nsubscribers = »\"mysql://u@db.example.org\"«\n",
        message: "store.subscribers names no database",
        cure: "write a URL such as",
    },
    Wrong {
        kind: "a negative number",
        text: "[limits]\nconnections = »-1«\n",
        message: "limits.connections is out of its range",
        cure: "a whole number from 1",
    },
    Wrong {
        kind: "a size that is none",
        text: "[limits]\nmessage_size = »\"64KB\"«\n",
        message: "which is not a size",
        cure: "\"64KiB\"",
    },
    Wrong {
        kind: "a duration without its unit",
        text: "[timers]\nt1 = »500«\n",
        message: "timers.t1 is a number without a unit",
        cure: "for example \"500ms\"",
    },
    Wrong {
        kind: "a duration of words",
        text: "[timers]\nt2 = »\"four seconds\"«\n",
        message: "which is not a duration",
        cure: "from \"10ms\" to \"1m\"",
    },
    Wrong {
        kind: "a word that a key does not know",
        text: "[registrar]\ndurability = »\"powerloss\"«\n",
        message: "unknown value \"powerloss\" for registrar.durability",
        cure: "did you mean \"power-loss\"?",
    },
    Wrong {
        kind: "a transport that does not exist",
        text: "listen = [\"udp:127.0.0.1:5060\", »\"sctp:127.0.0.1:5060\"«]\n",
        message: "names the transport \"sctp\"",
        cure: "transport udp, tcp, tls, ws or wss",
    },
    Wrong {
        kind: "a name where an address belongs",
        text: "listen = [»\"udp:localhost:5060\"«]\n",
        message: "where an IP address and a port belong",
        cure: "udp:192.0.2.10:5060",
    },
    Wrong {
        kind: "a port above 65535",
        text: "[[listener]]\ntransport = \"tcp\"\nport = »70000«\n",
        message: "listener[0].port is out of its range",
        cure: "from 0 to 65535",
    },
    Wrong {
        kind: "two listeners on one port",
        text: "listen = [\"tcp:127.0.0.1:5060\", »\"ws:127.0.0.1:5060\"«]\n",
        message: "want the same port",
        cure: "give one of them another port",
    },
    Wrong {
        kind: "an advertised address that no peer can send to",
        text: "[[listener]]\nadvertise = »\"0.0.0.0:5060\"«\n",
        message: "an address that no peer can send to",
        cure: "that peers can reach",
    },
    Wrong {
        kind: "no listener at all",
        text: "listen = »[]«\n",
        message: "there is no listener",
        cure: "name at least one",
    },
    Wrong {
        kind: "tls without a certificate",
        text: "listen = [»\"tls:127.0.0.1:5061\"«]\n",
        message: "has no certificate",
        cure: "in the table [tls]",
    },
    Wrong {
        kind: "a certificate file that is not there",
        text: "listen = [\"tls:127.0.0.1:5061\"]\n[tls]\ncertificate = »\"missing.pem\"«\nkey = \"a.key\"\n",
        message: "missing.pem: No such file",
        cure: "BEGIN CERTIFICATE",
    },
    Wrong {
        kind: "a key of another certificate",
        text: "listen = [\"tls:127.0.0.1:5061\"]\n[tls]\ncertificate = \"a.pem\"\nkey = »\"b.key\"«\n",
        message: "does not belong to the certificate",
        cure: "the key that the certificate was made with",
    },
    Wrong {
        kind: "a key file with a password",
        text: "listen = [\"tls:127.0.0.1:5061\"]\n[tls]\ncertificate = \"a.pem\"\nkey = »\"encrypted.key\"«\n",
        message: "is encrypted",
        cure: "openssl pkey",
    },
    Wrong {
        kind: "a certificate without its key",
        text: "[tls]\ncertificate = »\"a.pem\"«\n",
        message: "only one of certificate and key",
        cure: "name both files",
    },
    Wrong {
        kind: "a domain that is a URI",
        text: "domains = [\"example.org\", »\"sip:example.org\"«]\n",
        message: "domains[1] is \"sip:example.org\"",
        cure: "a domain alone, such as \"example.org\"",
    },
    Wrong {
        kind: "a domain of both forms",
        text: "domains = [\"a.example\", \"example.org\"]\n[[domain]]\nname = »\"example.org\"«\n",
        message: "the domain example.org is named twice: lines 1 and 3",
        cure: "name it once: in `domains`, or in a [[domain]] table",
    },
    Wrong {
        kind: "a domain with two tables",
        text: "[[domain]]\nname = \"example.org\"\nrealm = \"a\"\n[[domain]]\nname = »\"Example.org\"«\nrealm = \"b\"\n",
        message: "the domain example.org is named twice: lines 2 and 5",
        cure: "name it once",
    },
    Wrong {
        kind: "a domain without its name",
        text: "»[[domain]]«\nrealm = \"office\"\n",
        message: "[[domain]] has no name",
        cure: "write name = and a domain alone, such as \"example.org\"",
    },
    Wrong {
        kind: "a list of domains under the name of the table",
        text: "domain = [»\"example.org\"«]\n",
        message: "domain[0] must be a table, not text",
        cure: "write each domain as a [[domain]] table, or domains = and a list",
    },
    Wrong {
        kind: "one domain under the name of the table",
        text: "»domain« = \"example.org\"\n",
        message: "domain is not a list of tables",
        cure: "write [[domain]], in double brackets, or domains = and a list",
    },
    Wrong {
        kind: "a table in single brackets that belongs in double ones",
        text: "[»domain«]\nname = \"example.org\"\n",
        message: "domain is not a list of tables",
        cure: "write [[domain]], in double brackets",
    },
    Wrong {
        kind: "users in the table of a domain",
        text: "[[domain]]\nname = \"example.org\"\n»domains« = [\"example.net\"]\n",
        message: "there is no key domains in [[domain]]",
        cure: "domains stands at the top of the file, above the first [table]",
    },
    Wrong {
        kind: "a certificate that does not exist",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [»\"west\"«]\n\
               [[certificate]]\nname = \"West\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n",
        message: "certificate 'west' does not exist",
        cure: "did you mean 'West'?",
    },
    Wrong {
        kind: "a certificate that has no table at all",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [»\"a.pem\"«]\n",
        message: "certificate 'a.pem' does not exist",
        cure: "there is no [[certificate]] table: add one with name = \"a.pem\"",
    },
    Wrong {
        kind: "a name that is a path",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [»\"tls/a.pem\"«]\n",
        message: "listener[0].certificates[0] is \"tls/a.pem\", which is not a name",
        cure: "letters, digits, -, _ and .",
    },
    Wrong {
        kind: "a certificate table without its key",
        text: "»[[certificate]]«\nname = \"west\"\ncertificate = \"a.pem\"\n",
        message: "[[certificate]] has no key",
        cure: "write key = and a path in quotes",
    },
    Wrong {
        kind: "two certificates of one name",
        text: "[[certificate]]\nname = \"a\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n\
               [[certificate]]\nname = »\"a\"«\ncertificate = \"b.pem\"\nkey = \"b.key\"\n",
        message: "there are two tables [[certificate]] with the name 'a': lines 2 and 6",
        cure: "give one of them another name",
    },
    Wrong {
        kind: "a key in the table of another certificate",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [\"a\"]\n\
               [[certificate]]\nname = \"a\"\ncertificate = \"a.pem\"\nkey = »\"b.key\"«\n",
        message: "does not belong to the certificate",
        cure: "the key that the certificate was made with",
    },
    Wrong {
        kind: "certificates by name and by file",
        text: "[[listener]]\ntransport = \"tls\"\nport = 5061\ncertificates = [\"a\"]\ncertificate = »\"a.pem\"«\nkey = \"a.key\"\n\
               [[certificate]]\nname = \"a\"\ncertificate = \"a.pem\"\nkey = \"a.key\"\n",
        message: "has certificates by name and by file: lines 4 and 5",
        cure: "keep `certificates`",
    },
    Wrong {
        kind: "a shortest life longer than the longest",
        text: "[registrar]\nmin_expires = »\"3h\"«\nmax_expires = \"1h\"\n",
        message: "min_expires (3h) is longer than max_expires (1h)",
        cure: "make min_expires the shorter",
    },
    Wrong {
        kind: "a default life out of its bounds",
        text: "[registrar]\ndefault_expires = »\"3h\"«\n",
        message: "default_expires (3h) is out of bounds",
        cure: "from min_expires (1m) to max_expires (2h)",
    },
    Wrong {
        kind: "a session timer shorter than the shortest",
        text: "[dialogs]\nsession_expires = »\"2m\"«\nmin_session_expires = \"3m\"\n",
        message: "dialogs.session_expires (2m) is shorter than min_session_expires (3m)",
        cure: "make min_session_expires the shorter",
    },
    Wrong {
        kind: "calls that last longer than the way to their parties is open",
        text: "[dialogs]\ntrack = true\nlifetime = »\"2d\"«\n",
        message: "dialogs.lifetime (2d) is longer than proxy.route_lifetime (1d)",
        cure: "make route_lifetime at least as long",
    },
    Wrong {
        kind: "a database that is the server's for accounting too",
        text: "[accounting]\ncdr = true\npath = »\"strowger.sqlite\"«\n",
        message: "accounting.path is the database of the server, store.database",
        cure: "name a file of its own",
    },
    Wrong {
        kind: "accounting in a folder that is not there",
        text: "[accounting]\ncdr = true\nspool = »\"nowhere/spool\"«\n",
        message: "the folder of accounting.spool, nowhere, does not exist",
        cure: "mkdir -p",
    },
    Wrong {
        kind: "a header field with passwords in the accounts",
        text: "[accounting]\nfields = [»\"Proxy-Authorization\"«]\n",
        message: "which proves passwords",
        cure: "the name of a header field without passwords",
    },
    Wrong {
        kind: "a condition with an unknown field",
        text: "[[rule]]\nname = \"a\"\nwhen = \"»methd« == 'INVITE'\"\n",
        message: "rule 'a': there is no field `methd`",
        cure: "did you mean `method`",
    },
    Wrong {
        kind: "a condition that asks a set that is not there",
        text: "[[set]]\nname = \"gateways\"\n[[rule]]\nname = \"a\"\nwhen = \"from.user in »gateway«\"\n",
        message: "gateway",
        cure: "gateways",
    },
    Wrong {
        kind: "a rule that answers and leads on",
        text: "[[rule]]\nname = \"a\"\nanswer = 403\nto = »[\"sip:192.0.2.1\"]«\n",
        message: "rule 'a' answers, and says where the request goes",
        cure: "make two rules",
    },
    Wrong {
        kind: "a header that a rule may not take off",
        text: "[[rule]]\nname = \"a\"\nremove_headers = [»\"Via\"«]\n",
        message: "is \"Via\", which is not known or may not be taken off",
        cure: "a request can do without",
    },
    Wrong {
        kind: "a network that is none",
        text: "[[source]]\nname = \"a\"\nnetworks = [\"192.0.2.0/24\", »\"192.0.2.0/33\"«]\n",
        message: "192.0.2.0/33",
        cure: "",
    },
    Wrong {
        kind: "two rules of one name",
        text: "[[rule]]\nname = \"a\"\n[[rule]]\nname = »\"a\"«\n",
        message: "there are two tables [[rule]] with the name 'a'",
        cure: "another name",
    },
    Wrong {
        kind: "timers in the wrong order",
        text: "[timers]\nt1 = »\"5s\"«\n",
        message: "t1 (5s) is longer than t2 (4s)",
        cure: "make t1 the shorter",
    },
    Wrong {
        kind: "a secret that is too short",
        text: "[auth]\nsecret = »\"hunter2\"«\n",
        message: "auth.secret has 7 characters",
        cure: "at least 16 random characters",
    },
    Wrong {
        kind: "a secret in two places",
        text: "[auth]\nsecret = \"0123456789abcdef\"\nsecret_file = »\"secret\"«\n",
        message: "auth.secret and auth.secret_file are both set",
        cure: "keep one of the two",
    },
    Wrong {
        kind: "a secret file that is not there",
        text: "[auth]\nsecret_file = »\"missing\"«\n",
        message: "cannot read auth.secret_file",
        cure: "name a file whose first line is the secret",
    },
    Wrong {
        kind: "no algorithm",
        text: "[auth]\nalgorithms = »[]«\n",
        message: "auth.algorithms is empty",
        cure: "name at least one",
    },
    Wrong {
        kind: "an algorithm that stands twice",
        text: "[auth]\nalgorithms = [\"MD5\", \"SHA-256\", »\"MD5\"«]\n",
        message: "names MD5 twice",
        cure: "name each once",
    },
    Wrong {
        kind: "a network with too long a prefix",
        text: "[ban]\nexempt = [»\"10.0.0.0/33\"«]\n",
        message: "which is not a network",
        cure: "192.0.2.0/24",
    },
    Wrong {
        kind: "a route that is no URI",
        text: "[registrar]\nservice_route = [»\"<sip:edge.example.org;lr>\"«]\n",
        message: "which is not a SIP URI",
        cure: "without angle brackets",
    },
    Wrong {
        kind: "a database in memory that shall survive",
        text: "[store]\ndatabase = »\"memory\"«\n",
        message: "promises what a database in memory cannot keep",
        cure: "registrar.durability = \"none\"",
    },
    Wrong {
        kind: "a database in a folder that is not there",
        text: "[store]\ndatabase = »\"missing/strowger.sqlite\"«\n",
        message: "does not exist",
        cure: "mkdir -p",
    },
    Wrong {
        kind: "a database that is something else",
        text: "[store]\ndatabase = »\"secret\"«\n",
        message: "is no sound SQLite database",
        cure: "name another file",
    },
    Wrong {
        kind: "calls of local domains without a local domain",
        text: "domains = []\n[proxy]\nrelay_for = »\"local-domains\"«\n",
        message: "admits no caller",
        cure: "domains = [\"example.org\"]",
    },
    Wrong {
        kind: "a body larger than its message",
        text: "[limits]\nmessage_size = \"8KiB\"\nbody_size = »\"16KiB\"«\n",
        message: "body_size (16384) is larger than message_size (8192)",
        cure: "make body_size at most message_size",
    },
];

/// A folder with two certificates, their keys, an encrypted key and a secret.
pub(crate) fn folder() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("it is ours");
    for name in ["a", "b"] {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        write(&format!("{name}.pem"), &made.cert.pem());
        write(&format!("{name}.key"), &made.signing_key.serialize_pem());
    }
    write("encrypted.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n");
    write("secret", "a secret that is long enough\n");
    folder
}

pub(crate) fn run(arguments: &[&str], folder: &Path) -> Output {
    Command::new(strowger())
        .args(arguments)
        .current_dir(folder)
        .env_remove("STROWGER_CONFIG")
        .env_remove("STROWGER_AUTH_SECRET")
        .stdin(Stdio::null())
        .output()
        .expect("the program runs")
}

pub(crate) fn check(text: &str, folder: &Path) -> Output {
    fs::write(folder.join("strowger.toml"), text).expect("it is ours");
    run(&["check", "strowger.toml"], folder)
}

/// Adds a user, with some password.
fn add_user(address: &str, folder: &Path) -> Output {
    user("add", address, folder)
}

/// An order of `strowger user` about this user that wants a password, and gets some.
pub(crate) fn user(order: &str, address: &str, folder: &Path) -> Output {
    use std::io::Write;
    let mut command = Command::new(strowger());
    command.args(["user", order, address, "--password-stdin", "--config", "strowger.toml"]).current_dir(folder);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the program runs");
    writeln!(child.stdin.as_ref().expect("it is piped"), "open sesame").expect("it reads its password");
    child.wait_with_output().expect("it ends")
}

pub(crate) fn error_of(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("messages are UTF-8")
}

pub(crate) fn text_of(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is UTF-8")
}

#[test]
fn each_mistake_is_reported_with_file_line_column_and_cure() {
    assert!(WRONG.len() >= 20);
    let folder = folder();
    let mut failures = Vec::new();
    for wrong in WRONG {
        let from = wrong.text.find(FROM).expect("each case has its mark");
        let marked = &wrong.text[from + FROM.len_utf8()..wrong.text.find(TO).expect("and the other")];
        let text = wrong.text.replace([FROM, TO], "");
        let line_start = text[..from].rfind('\n').map_or(0, |at| at + 1);
        let line = text[..from].matches('\n').count() + 1;
        let column = text[line_start..from].chars().count() + 1;
        let whole_line = text[line_start..].lines().next().expect("the mark stands in a line");
        // A secret is not shown.
        let (whole_line, marked) =
            if whole_line.starts_with("secret =") { ("secret = ********", "********") } else { (whole_line, marked) };
        let caret = format!("| {}{}\n", " ".repeat(column - 1), "^".repeat(marked.chars().count()));

        let output = check(&text, folder.path());
        let error = error_of(&output);
        let mut expect = |what: &str, right: bool| {
            if !right {
                failures.push(format!("{}: {what}\n{error}", wrong.kind));
            }
        };
        expect("exit code 1", output.status.code() == Some(1));
        expect("nothing on standard output", output.stdout.is_empty());
        expect("place", error.contains(&format!("strowger.toml:{line}:{column}: error: ")));
        expect("line", error.contains(&format!("{line} | {whole_line}\n")));
        expect("caret", error.contains(&caret));
        expect("message", error.contains(wrong.message));
        let cure = error.lines().any(|line| line.trim_start().starts_with("= ") && line.contains(wrong.cure));
        expect("cure", cure);
        expect("one error", error.matches(": error: ").count() == 1);
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), WRONG.len(), failures.join("\n"));
}

#[test]
fn several_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let folder = folder();
    let text = "domains = [\"a b\", \"sip:x\"]\n[timers]\nt1 = 5\nt9 = \"1s\"\n[log]\nlevel = \"loud\"\n";
    let error = error_of(&check(text, folder.path()));
    let places: Vec<&str> = error
        .lines()
        .filter_map(|line| line.strip_prefix("strowger.toml:").and_then(|rest| rest.split_once(": error: ")))
        .map(|(place, _)| place)
        .collect();
    assert_eq!(places, ["1:12", "1:19", "3:6", "4:1", "6:9"], "{error}");
    assert!(error.contains("5 errors"), "{error}");
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_named() {
    let folder = folder();
    let output = run(&["check", "nowhere.toml"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("nowhere.toml: error: cannot read the file"), "{}", error_of(&output));

    fs::write(folder.path().join("binary.toml"), b"realm = \"a\"\n# \xff\n").expect("it is ours");
    let output = run(&["check", "binary.toml"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("binary.toml:2:3: error: the file is not UTF-8"), "{}", error_of(&output));
}

/// A listener that the world reaches.
const PUBLIC: &str = "[[listener]]\naddress = \"0.0.0.0\"\nadvertise = \"sip.example.org\"\n";

/// No warning about what the error is about already.
#[test]
fn one_mistake_is_reported_once() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("it is ours");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("it is ours");
    for (text, part) in [
        ("[auth]\nalgorithms = []\n", "auth.algorithms is empty"),
        ("[store]\ndatabase = \"open\"\n", "open is a folder"),
        ("domains = 5\n", "; or \"auto\" in place of the list"),
    ] {
        let error = error_of(&check(text, folder.path()));
        assert!(error.contains(part) && !error.contains(": warning: "), "{text}{error}");
        assert_eq!(error.matches(": error: ").count(), 1, "{text}{error}");
    }
}

#[test]
fn what_is_only_doubtful_is_a_warning() {
    let folder = folder();
    let doubtful = [
        ("listen = [\"udp:0.0.0.0:5060\"]\n", "none is advertised"),
        ("listen = [\"udp:192.0.2.1:5060\"]\n", "this machine does not have the address 192.0.2.1"),
        (&format!("{PUBLIC}[proxy]\nrelay_for = \"everyone\"\n"), "open relay"),
        (&format!("{PUBLIC}[proxy]\nrelay_for = \"local-domains\"\n[auth]\ncalls = false\n"), "an open relay of"),
        (&format!("{PUBLIC}[registrar]\nauthenticate = false\n"), "register as any user"),
        ("[timers]\ntimer_c = \"3m\"\n", "not over 3 minutes"),
        ("[auth]\nalgorithms = [\"MD5\", \"SHA-256\"]\n", "baresip 1.0, JsSIP 3.13 and SIP.js 0.21"),
        ("[auth]\nalgorithms = [\"SHA-256\", \"MD5\"]\n", "baresip 1.0, SIPp 3.6 and sipsak 0.9.8"),
        ("[[listener]]\nalgorithms = [\"SHA-256\"]\n", "listener[0].algorithms shuts out"),
        ("[tls]\noutbound_verify = false\n", "not checked"),
        ("domains = [\"a.org\", \"A.org\"]\n", "twice"),
        ("[dialogs]\ntrack = true\n[proxy]\nrecord_route = false\n", "dialogs.track has no effect"),
        ("[accounting]\ncdr = true\n[proxy]\nrecord_route = false\n", "tell no end and no duration"),
        ("[accounting]\ncdr = true\nall = false\n", "no call is accounted"),
        ("[[rule]]\nname = \"a\"\naccount = true\n", "nothing is written"),
    ];
    for (text, part) in doubtful {
        let output = check(text, folder.path());
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(0), "{text}{error}");
        assert!(error.contains(": warning: ") && error.contains(part), "{text}{error}");
        assert!(text_of(&output).contains("can be used, 1 warning"), "{text}{}", text_of(&output));
    }
}

#[test]
fn a_certificate_that_peers_refuse_or_soon_will_is_told() {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};
    let folder = folder();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    let in_days =
        |days: i64| date_time_ymd(1970, 1, 1) + Duration::from_secs(since_1970.saturating_add_signed(days * 86_400));
    let text =
        "listen = [\"tls:127.0.0.1:5061\", \"wss:127.0.0.1:5062\"]\n[tls]\ncertificate = \"t.pem\"\nkey = \"t.key\"\n";
    for (from, until, part) in [
        (-400, -1, "t.pem expired on "),
        (2, 90, "t.pem is not good before "),
        (-80, 10, "t.pem expires on "),
        (-30, 60, ""),
    ] {
        let key = KeyPair::generate().expect("keys can be made");
        let mut own = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        (own.not_before, own.not_after) = (in_days(from), in_days(until));
        let pem = own.self_signed(&key).expect("it signs itself").pem();
        fs::write(folder.path().join("t.pem"), pem).expect("it can be written");
        fs::write(folder.path().join("t.key"), key.serialize_pem()).expect("it can be written");
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(folder.path().join("t.key"), private).expect("it is ours");
        let output = check(text, folder.path());
        let error = error_of(&output);
        assert!(output.status.success(), "{error}");
        let told: Vec<&str> = error.lines().filter(|line| line.contains(": warning: ")).collect();
        match part {
            "" => assert!(told.is_empty(), "{error}"),
            _ => {
                assert!(told.len() == 1 && told[0].contains(part) && told[0].starts_with("strowger.toml:3:"), "{error}")
            }
        }
    }
}

/// Digests of passwords hold the realm: they are of no use for another one.
#[test]
fn users_of_another_realm_are_told() {
    let folder = folder();
    let with =
        |realm: &str| format!("realm = \"{realm}\"\ndomains = [\"example.org\"]\nstore.database = \"users.sqlite\"\n");
    fs::write(folder.path().join("strowger.toml"), with("old")).expect("it can be written");
    for user in ["alice@example.org", "bob@example.org"] {
        let output = add_user(user, folder.path());
        assert!(output.status.success(), "{}", error_of(&output));
    }
    let files = || {
        let names =
            fs::read_dir(folder.path()).expect("it is ours").map(|entry| entry.expect("it is there").file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = files();
    for (realm, warnings) in [("old", 0), ("new", 1)] {
        let output = check(&with(realm), folder.path());
        let (error, text) = (error_of(&output), text_of(&output));
        assert_eq!(files(), before, "who checks leaves nothing behind");
        assert!(output.status.success(), "{error}");
        assert_eq!(error.matches(": warning: ").count(), warnings, "{error}");
        if warnings > 0 {
            assert!(
                error.contains("2 users of example.org in users.sqlite cannot register: set for the realm \"old\""),
                "{error}"
            );
            assert!(
                error.contains("write realm = \"old\" above the first table") && error.contains("user passwd"),
                "{error}"
            );
            assert!(text.contains("can be used, 1 warning"), "{text}");
        }
    }
}

#[test]
fn a_secret_comes_from_key_file_or_environment_and_is_never_shown() {
    let folder = folder();
    let effective = |text: &str, variable: Option<&str>| {
        fs::write(folder.path().join("strowger.toml"), text).expect("it is ours");
        let mut command = Command::new(strowger());
        command.args(["check", "strowger.toml", "--effective"]).current_dir(folder.path());
        match variable {
            Some(value) => command.env("STROWGER_AUTH_SECRET", value),
            None => command.env_remove("STROWGER_AUTH_SECRET"),
        };
        command.output().expect("the program runs")
    };
    let masked = "# secret = \"********\" (set, not shown)";
    for (text, variable) in [
        ("auth.secret = \"correct horse battery\"\n", None),
        ("auth.secret_file = \"secret\"\n", None),
        ("", Some("correct horse battery")),
        ("auth.secret_file = \"missing\"\n", Some("correct horse battery")),
    ] {
        let output = effective(text, variable);
        assert_eq!(output.status.code(), Some(0), "{text}{}", error_of(&output));
        let shown = text_of(&output) + &error_of(&output);
        assert!(shown.contains(masked), "{text}{shown}");
        assert!(!shown.contains("horse") && !shown.contains("long enough"), "{text}{shown}");
    }
    let output = effective("", Some("short"));
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("STROWGER_AUTH_SECRET"), "{}", error_of(&output));
    assert!(!text_of(&effective("", None)).contains(masked));
}

/// However a file is wrong, its report shows no secret.
#[test]
fn a_report_of_mistakes_shows_no_secret() {
    let folder = folder();
    for text in [
        "[auth]\nsecret = \"correct-horse-battery\" oops\n",
        "[auth]\nsecret = \"correct-horse-battery\n",
        "[auth]\nsecret = correct-horse-battery\n",
        "[auth]\nsecrte = \"correct-horse-battery\"\n",
        "secret = \"correct-horse-battery\"\n",
        "auth = { secret = \"correct-horse-battery\", qop = 1 }\n",
        "[auth]\nsecret = [\"correct-horse-battery\"]\n",
        "[auth]\nsecret = \"\"\"\ncorrect-horse-battery\n\"\"\" oops\n",
        "[auth]\nsecret = \"\"\"\ncorrect-horse-battery \\q\n\"\"\"\n",
        "[auth]\nsecret = \"correct-horse-battery\"\nsecret = \"correct-horse-battery\"\n",
        "[auth]\nsecret_file = \"secret\"\nsecret = \"correct-horse-battery\"\n",
    ] {
        let output = check(text, folder.path());
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(1), "{text}{error}");
        assert!(error.contains("strowger.toml:") && !error.contains("horse"), "{text}{error}");
        let output = run(&["serve"], folder.path());
        assert!(!error_of(&output).contains("horse"), "{text}{}", error_of(&output));
    }
}

#[test]
fn messages_are_in_plain_words() {
    let folder = folder();
    for (text, message, cure) in [
        ("domains = \"example.org\"\n", "domains must be a list, not text", "write a list in brackets"),
        ("[proxy]\nrelay_for = \"all\"\n", "unknown value \"all\" for proxy.relay_for", "\"authenticated\""),
        ("[proxy]\nrecord_route = yes\n", "this is not TOML", "write true or false, without quotes"),
        ("[[listener]]\nadvertise = \"https://foo\"\n", "which is a URL: write its host alone", "a host or HOST:PORT"),
    ] {
        let output = check(text, folder.path());
        let error = error_of(&output);
        assert!(error.contains(message) && error.contains(cure), "{text}{error}");
    }
    let output = run(&["init", "--domain", "example.org", "--advertise", "https://foo"], folder.path());
    assert!(error_of(&output).contains("which is a URL"), "{}", error_of(&output));
}

#[test]
fn a_database_that_everyone_can_read_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let text = "domains = [\"example.org\"]\nstore.database = \"users.sqlite\"\n";
    fs::write(folder.path().join("strowger.toml"), text).expect("it can be written");
    assert!(add_user("alice@example.org", folder.path()).status.success());
    assert!(!error_of(&check(text, folder.path())).contains("warning"));
    fs::write(folder.path().join("users.secret"), "0123456789abcdef").expect("it can be written");
    for name in ["users.sqlite", "users.secret"] {
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o644)).expect("it is ours");
        let error = error_of(&check(text, folder.path()));
        assert!(error.contains(&format!("everyone on this machine can read {name}")), "{error}");
        assert!(error.contains(&format!("chmod 600 {name}")), "{error}");
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o600)).expect("it is ours");
    }
}

#[test]
fn the_effective_configuration_is_a_file_that_gives_the_same() {
    let folder = folder();
    let text = "listen = [\"udp:127.0.0.1:5070\", \"tls:127.0.0.1:5071\"]\ndomains = [\"example.org\"]\n\
        [tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n[nat]\nping_interval = \"never\"\n[server]\nshards = 2\n";
    fs::write(folder.path().join("strowger.toml"), text).expect("it is ours");
    let first = text_of(&run(&["check", "strowger.toml", "--effective"], folder.path()));
    fs::write(folder.path().join("again.toml"), &first).expect("it is ours");
    let second = run(&["check", "again.toml", "--effective"], folder.path());
    assert_eq!(first, text_of(&second), "{}", error_of(&second));
    assert!(first.contains("ping_interval = \"never\"") && first.contains("shards = 2"), "{first}");
    // The one of this folder, and none at all.
    assert_eq!(text_of(&run(&["check", "--effective"], folder.path())), first);
    let defaults = text_of(&run(&["check", "/dev/null", "--effective"], folder.path()));
    assert!(!defaults.contains("shards = 2"), "{defaults}");
    assert!(defaults.contains("relay_for = \"authenticated\""), "{defaults}");
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the examples are beside the tests")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_example_can_be_used() {
    let folder = folder();
    // The files that tls.toml names by way of example.
    fs::create_dir(folder.path().join("tls")).expect("it is ours");
    fs::copy(folder.path().join("a.pem"), folder.path().join("tls/fullchain.pem")).expect("it is there");
    fs::write(folder.path().join("tls/privkey.pem"), fs::read(folder.path().join("a.key")).expect("it is there"))
        .expect("it is ours");
    let examples = examples();
    assert!(examples.len() >= 6, "{examples:?}");
    // Those of default-kamailio.toml.
    fs::create_dir(folder.path().join("data")).expect("it is ours");
    for name in ["speeddial.csv", "aliases.csv"] {
        let data = examples[0].parent().expect("it lies in a folder").join("data").join(name);
        fs::copy(data, folder.path().join("data").join(name)).expect("it is there");
    }
    for example in examples {
        let output = check(&fs::read_to_string(&example).expect("it can be read"), folder.path());
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(0), "{}: {error}", example.display());
        // The only thing to be told about an example is that the test's own key file is readable by everyone.
        let told = error.lines().filter(|line| line.contains(": warning: "));
        for line in told {
            assert!(line.contains("everyone on this machine can read"), "{}: {line}", example.display());
        }
    }
}

#[test]
fn serve_refuses_what_check_refuses() {
    let folder = folder();
    fs::write(folder.path().join("strowger.toml"), "[log]\nlevel = \"loud\"\n").expect("it is ours");
    for arguments in [&["serve", "--config", "strowger.toml"][..], &["serve", "--config", "strowger.toml", "--check"]] {
        let output = run(arguments, folder.path());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(error_of(&output).contains("strowger.toml:2:9: error: "), "{}", error_of(&output));
    }
    fs::remove_file(folder.path().join("strowger.toml")).expect("it is there");
    let output = run(&["serve", "--check", "--listen", "ws:127.0.0.1:8080"], folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    assert!(text_of(&output).contains("ws:127.0.0.1:8080"), "{}", text_of(&output));
    let output = run(&["serve", "--check", "--listen", "udp:localhost"], folder.path());
    assert_eq!(output.status.code(), Some(2), "a wrong command line");
}

#[test]
fn the_page_of_all_keys_is_the_one_that_the_program_writes() {
    let folder = folder();
    let keys = text_of(&run(&["check", "--keys"], folder.path()));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let written = fs::read_to_string(page).expect("docs/configuration.md is there");
    assert!(keys == written, "docs/configuration.md is old: strowger check --keys > docs/configuration.md");
}

#[test]
fn a_configuration_is_checked_as_it_is_written_to_the_program() {
    use std::io::Write;
    let folder = folder();
    let checked = |text: &[u8]| {
        let mut command = Command::new(strowger());
        command.args(["check", "-"]).current_dir(folder.path()).env_remove("STROWGER_AUTH_SECRET");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the program runs");
        child.stdin.as_ref().expect("it is piped").write_all(text).expect("it reads");
        child.wait_with_output().expect("it ends")
    };
    let good = checked(b"domains = [\"example.org\"]\nlisten = [\"udp:127.0.0.1:5070\"]\n");
    assert_eq!(good.status.code(), Some(0), "{}", error_of(&good));
    assert!(text_of(&good).starts_with("standard input: can be used"), "{}", text_of(&good));
    assert!(text_of(&good).contains("udp:127.0.0.1:5070 for example.org"), "{}", text_of(&good));
    let bad = checked(b"\n[log]\nlevel = \"loud\"\n");
    assert_eq!(bad.status.code(), Some(1), "{}", error_of(&bad));
    assert!(error_of(&bad).contains("standard input:3:9: error: "), "{}", error_of(&bad));
    let none = checked(b"listen = [\"\xff\"]\n");
    assert_eq!(none.status.code(), Some(1), "{}", error_of(&none));
    assert!(error_of(&none).contains("UTF-8"), "{}", error_of(&none));
}
