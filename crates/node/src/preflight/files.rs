//! Checks of database files, folders and authorities of database servers, and of the rights of files with secrets.

use std::path::Path;

use strowger_backend::sqlite::{self, OpenError};
use strowger_backend::technology::{self, PlaceKind};

use super::findings::Findings;
use crate::authorities;
use crate::backends::{self, Placed};
use strowger_config::{Config, Database, DatabaseUrl, Fault};

/// Checks the files that a configuration names. `file` is the file of the configuration.
pub(super) fn check(config: &Config, file: &Path, findings: &mut Findings<'_>) {
    if has_secret(config, findings) {
        // The warning has no position, because a report shows the line of its position, and that line has the secret.
        findings.warn_if_others_read(file, &None);
    }
    check_database(config, findings);
    for (key, url) in servers(config) {
        check_authorities(&key, url, findings);
    }
    if config.accounting.is_on() {
        check_accounting(config, findings);
    }
    check_calls(config, findings);
}

/// Tells whether the text has a secret or a password.
fn has_secret(config: &Config, findings: &Findings<'_>) -> bool {
    config.caches.iter().any(|cache| cache.password.is_some())
        || findings.places.has("auth.secret") && config.auth.secret.is_some()
        || servers(config).any(|(_, url)| url.password.is_some())
}

/// Returns the database servers in use, each with its key.
fn servers(config: &Config) -> impl Iterator<Item = (String, &DatabaseUrl)> {
    let rows = Some(&config.accounting).filter(|rows| rows.is_on());
    let servers = [
        ("store.subscribers", config.store.subscribers.as_ref()),
        ("store.bindings", config.store.bindings.as_ref()),
        ("accounting.database", rows.and_then(|rows| rows.server())),
        ("dialogs.database", config.dialogs.server()),
    ];
    let of_sets = config.sets.iter().enumerate().map(|(index, set)| {
        let url = set.database.as_ref().and_then(Database::server);
        (format!("set[{index}].database"), url)
    });
    let servers = servers.into_iter().map(|(key, url)| (key.to_owned(), url));
    servers.chain(of_sets).filter_map(|(key, url)| Some((key, url?)))
}

fn check_database(config: &Config, findings: &mut Findings<'_>) {
    let Some(path) = &config.store.database else { return };
    let span = findings.places.value_of("store.database");
    // It contains HA1s, which are equivalent to passwords; the file next to it contains the key of routes and nonces.
    for file in [path.clone(), path.with_extension("secret")].iter().filter(|file| !file.is_dir()) {
        findings.warn_if_others_read(file, &span);
    }
    if path.is_dir() {
        let cure = "name a file in it, such as \"strowger.sqlite\"";
        findings.push(Fault::error(span, format!("store.database {} is a folder", path.display()), cure));
    } else if findings.check_folder_of("store.database", path)
        && let Some((reason, cure)) = database(path)
    {
        findings.push(Fault::error(span, format!("store.database {} {reason}", path.display()), cure));
    }
}

/// Checks a database file. If it cannot be used, returns the reason, as the end of a sentence that begins with the name
/// of the file, and the cure. Returns `None` if the file can be used or does not exist.
fn database(path: &Path) -> Option<(String, &'static str)> {
    Some(match sqlite::look(path) {
        Err(OpenError::Corrupt { detail, .. }) => (
            format!("is no sound SQLite database ({detail})"),
            "name another file; or restore this one from a backup, or move it away",
        ),
        Err(OpenError::Foreign { .. }) => ("belongs to another program".into(), "name a file of its own"),
        Err(OpenError::Newer { found, known, .. }) => (
            format!("was written by a newer version: its schema is {found}, this program knows {known}"),
            "use the version that wrote it, or name another file",
        ),
        // Other errors may be temporary, or depend on the user of this process.
        Err(_) | Ok(()) => return None,
    })
}

fn check_authorities(key: &str, url: &DatabaseUrl, findings: &mut Findings<'_>) {
    let Some(path) = authorities::of_server(url).filter(|path| !path.is_file()) else { return };
    let message = match path.as_os_str().is_empty() {
        true => format!("{key} asks for TLS, and this system keeps no authorities where they are looked for"),
        false => format!("{key} names the ca {}, which is no file", path.display()),
    };
    let cure = "name the PEM file of the authority that signed the certificate of the server: ?tls=required&ca=FILE";
    findings.push(Fault::error(findings.places.value_of(key), message, cure));
}

fn check_accounting(config: &Config, findings: &mut Findings<'_>) {
    check_place("accounting.path", &backends::rows(config), "accounting.sqlite", findings);
    findings.check_folder_of("accounting.spool", &config.accounting.spool);
}

/// Checks the folder or file of kept calls.
fn check_calls(config: &Config, findings: &mut Findings<'_>) {
    if let Some((key, calls)) = config.dialogs.place().zip(backends::call_files(config)) {
        check_place(key, &calls, "sqlite:calls.sqlite", findings);
    }
}

/// Checks a file or folder as its technology requires. `example`: an example value for the key that names the file.
fn check_place(key: &str, (technology, place): &Placed, example: &str, findings: &mut Findings<'_>) {
    let (kind, path) = (technology::find(technology, |technology| Some(technology.place)), &place.path);
    let (is_wrong, cure) = match kind {
        Ok(PlaceKind::File) => (path.is_dir(), format!("name a file, such as \"{example}\"")),
        Ok(PlaceKind::Folder) => {
            (path.exists() && !path.is_dir(), "name a folder, which the server makes if it is missing".to_owned())
        }
        Ok(PlaceKind::Server) | Err(_) => return,
    };
    findings.check_folder_of(key, path);
    if is_wrong {
        let found = if path.is_dir() { "folder" } else { "file" };
        let message = format!("{key} {} is a {found}", path.display());
        findings.push(Fault::error(findings.places.value_of(key), message, cure));
    }
}

#[cfg(test)]
mod tests {
    use crate::preflight;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use strowger_config::{Report, Source};

    #[test]
    fn a_file_that_does_not_fit_its_key_has_its_place_and_its_cure() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), "text").expect("it can be written");
        let report = |text: &str| -> Report {
            let read = preflight::read(Source { file: "test.toml", text, folder: folder.path(), ..Source::default() });
            read.map_or_else(|report| report, |(_, report)| report)
        };
        let rows = "accounting.cdr = true\naccounting.to";
        for (text, line, part) in [
            ("store.database = \"/\"".to_owned(), 1, "is a folder"),
            ("\nstore.database = \"no/a.sqlite\"".to_owned(), 2, "the folder of store.database"),
            (
                "[store]\nsubscribers = \"postgresql://u@h/d?tls=required&ca=no.pem\"".to_owned(),
                2,
                "store.subscribers names the ca",
            ),
            (
                "store.bindings = \"mysql://u:p@localhost/d?tls=required&ca=no.pem\"".to_owned(),
                1,
                "store.bindings names the ca",
            ),
            (
                "dialogs.database = \"mysql://u:p@localhost/d?tls=required&ca=no.pem\"".to_owned(),
                1,
                "dialogs.database names the ca",
            ),
            (
                "[[set]]\nname = \"a\"\ndatabase = \"mysql://u:p@h/d?tls=required&ca=no.pem\"\nquery = \"SELECT 1 AS key\""
                    .to_owned(),
                3,
                "set[0].database names the ca",
            ),
            ("[[set]]\nname = \"a\"\nfile = \"no.csv\"".to_owned(), 3, "no.csv cannot be read"),
            ("\ntls.certificate = \"no.pem\"\ntls.key = \"no.key\"".to_owned(), 2, "cannot read"),
            ("\nauth.secret_file = \"no\"".to_owned(), 2, "cannot read auth.secret_file"),
            ("auth.secret_file = \"file\"".to_owned(), 1, "the first line of auth.secret_file has 4 characters"),
            (format!("{rows} = \"sqlite\"\naccounting.path = \".\""), 3, "is a folder"),
            (format!("{rows} = \"csv\"\naccounting.path = \"file\""), 3, "is a file"),
            ("dialogs.folder = \"file\"".to_owned(), 1, "name a folder"),
            ("dialogs.folder = \"no/calls\"".to_owned(), 1, "make it"),
            ("dialogs.database = \"sqlite:.\"".to_owned(), 1, "sqlite:calls.sqlite"),
            ("dialogs.database = \"sqlite:no/calls\"".to_owned(), 1, "make it"),
        ] {
            let report = report(&text);
            let is_meant = |fault: &&strowger_config::Fault| format!("{}{}", fault.message, fault.cure).contains(part);
            let fault = report.faults().iter().find(is_meant).unwrap_or_else(|| panic!("{text}\n{report}"));
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{text}\n{report}");
        }
        let right = report("dialogs.track = true\ndialogs.folder = \"calls\"");
        assert!(right.faults().iter().all(|fault| !fault.message.contains("dialogs")), "{right}");
    }

    /// A contradiction between values of keys does not prevent the report of a faulty file.
    #[test]
    fn faults_of_values_and_of_files_are_in_one_report() {
        let text = "auth.qop = []\ntls.certificate = \"no.pem\"\ntls.key = \"no.key\"";
        let report = preflight::read(Source { text, ..Source::default() }).expect_err("it is wrong").to_string();
        assert!(report.contains("auth.qop is empty") && report.contains("cannot read no.pem"), "{report}");
    }

    #[test]
    fn the_secret_of_a_file_is_the_secret_of_the_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        fs::write(&path, "correct horse battery\nmore\n").expect("it can be written");
        let text = "dialogs = { track = true, folder = \"calls\" }\nstore.database = \"memory\"\n\
                    registrar.durability = \"none\"\nauth.secret_file = \"secret\"";
        let own = |name: &str| (name == strowger_config::SECRET_VARIABLE).then(|| "of the environment".to_owned());
        for (mode, environment, warnings, secret) in [
            (0o644, &(|_: &str| None) as &dyn Fn(&str) -> Option<String>, 1, "correct horse battery"),
            (0o600, &|_: &str| None, 0, "correct horse battery"),
            (0o600, &own, 0, "of the environment"),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let source = Source { text, folder: folder.path(), environment, ..Source::default() };
            let (config, report) = preflight::read(source).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(report.warnings(), warnings, "{report}");
            assert_eq!(config.auth.secret.expect("it is set").reveal(), secret.as_bytes());
        }
    }

    #[test]
    fn a_secret_that_everyone_can_read_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("strowger.toml");
        fs::write(&path, "[auth]\nsecret = \"correct horse battery\"\n").expect("it can be written");
        for (mode, warnings) in [(0o644, 1), (0o600, 0)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let (_, report) = preflight::load(Some(&path), &[]).expect("it can be used");
            assert_eq!(report.warnings(), warnings, "{report}");
            assert!(!report.to_string().contains("horse"), "{report}");
        }
    }
}
