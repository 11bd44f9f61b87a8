//! Wrong configurations through the real program: each error names file, line, column and cure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use strowger_tests::binary::strowger;
use tempfile::TempDir;

mod mistakes;
mod path_mistakes;

use self::mistakes::{FROM, TO, WRONG};
use self::path_mistakes::WRONG_PATHS;

/// Creates a folder with two certificates, their keys, an encrypted key and a secret.
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

/// Runs a command of `strowger user` about this user that needs a password.
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
    for wrong in WRONG.iter().chain(WRONG_PATHS) {
        let from = wrong.text.find(FROM).expect("each case has its mark");
        let marked = &wrong.text[from + FROM.len_utf8()..wrong.text.find(TO).expect("and the other")];
        let text = wrong.text.replace([FROM, TO], "");
        let line_start = text[..from].rfind('\n').map_or(0, |at| at + 1);
        let line = text[..from].matches('\n').count() + 1;
        let column = text[line_start..from].chars().count() + 1;
        let whole_line = text[line_start..].lines().next().expect("the mark stands in a line");
        // A secret is masked.
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
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), WRONG.len() + WRONG_PATHS.len(), failures.join("\n"));
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

/// Without a file the command looks for the socket beside the default database, in this folder.
#[test]
fn a_command_that_reaches_no_server_says_how_one_is_named() {
    let output = run(&["status"], folder().path());
    assert_eq!(output.status.code(), Some(3));
    let error = error_of(&output);
    for part in ["no server listens on", "--config FILE", "STROWGER_CONFIG", "--socket PATH"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Listener reachable from the Internet.
const PUBLIC: &str = "[[listener]]\naddress = \"0.0.0.0\"\nadvertise = \"sip.example.org\"\n";

/// An error causes no additional warning about the same fact.
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
        (&format!("{PUBLIC}[auth]\nregister_for_others = true\n"), "register as every other one"),
        (
            &format!(
                "{PUBLIC}[[source]]\nname = \"all\"\nnetworks = [\"10.0.0.0/8\", \"0.0.0.0/0\"]\ntrusted = true\n"
            ),
            "source 'all' trusts 0.0.0.0/0, which makes an open relay of",
        ),
        (
            &format!("{PUBLIC}[[rule]]\nname = \"gw\"\nto = [\"sip:gw.example.net\"]\nrelay_for = \"everyone\"\n"),
            "rule 'gw' makes an open relay of",
        ),
        (
            &format!(
                "{PUBLIC}[[failure]]\nname = \"gw\"\nstatuses = [\"4xx\"]\nto = [\"sip:gw.example.net\"]\n\
                 [[rule]]\nname = \"all\"\non_failure = [\"gw\"]\n"
            ),
            "failure 'gw' of rule 'all' makes an open relay of",
        ),
        (
            "domains = [\"a.org\", \"b.org\"]\nstore.subscribers = \"mysql://u@/d?socket=/run/x\"\n",
            "a [[domain]] for each",
        ),
        ("store.subscribers = \"mysql://u@127.0.0.1/d\"\n", "store.subscribers has no password"),
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
        ("# nothing\n\n", "the file says nothing"),
        ("[[rule]]\nname = \"a\"\nanswer = 403\n[[rule]]\nname = \"b\"\ndrop = true\n", "rule 'b' is never asked"),
        ("[[rule]]\nname = \"a\"\nwhen = \"method == 'invite'\"\nanswer = 403\n", "write 'INVITE'"),
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

/// Digests of passwords include the realm: they are useless for another one.
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
        ("[[listener]]\nadvertise = \"sip:203.0.113.5:5060\"\n", "write it without sip:", "a host or HOST:PORT"),
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
    // The configuration of this folder, and an empty one.
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
    // The files named as an example in tls.toml.
    fs::create_dir(folder.path().join("tls")).expect("it is ours");
    fs::copy(folder.path().join("a.pem"), folder.path().join("tls/fullchain.pem")).expect("it is there");
    fs::write(folder.path().join("tls/privkey.pem"), fs::read(folder.path().join("a.key")).expect("it is there"))
        .expect("it is ours");
    let examples = examples();
    assert!(examples.len() >= 6, "{examples:?}");
    // The files of default-kamailio.toml.
    fs::create_dir(folder.path().join("data")).expect("it is ours");
    for name in ["speeddial.csv", "aliases.csv"] {
        let data = examples[0].parent().expect("it lies in a folder").join("data").join(name);
        fs::copy(data, folder.path().join("data").join(name)).expect("it is there");
    }
    for example in examples {
        let output = check(&fs::read_to_string(&example).expect("it can be read"), folder.path());
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(0), "{}: {error}", example.display());
        // The only warning about an example is that the test's own key file is readable by everyone.
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
