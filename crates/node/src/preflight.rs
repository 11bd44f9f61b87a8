//! Reads a configuration and the files that it names, and checks them: secret, data sets, sounds, certificates, database, folders of
//! recordings and of other files.
//!
//! [`strowger_config`] makes values of a text and knows the position of each key. A fault of a file is reported at the key that names it.

mod certificates;
mod files;
pub(crate) mod findings;
mod kernel;
mod machine;
mod recordings;
mod sounds;
mod tls;
mod validity;

use std::fs;
use std::path::{Path, PathBuf};

use crate::data_sets;
use findings::{Findings, with_reason};
pub use kernel::kernel_limits;
pub use machine::{foreign_listeners, unwritable};
use strowger_config::{Config, Fault, ListenAddress, Report, Secret, SetFault, Source};

/// Reads a configuration file and the files that it names, and checks them. Without a path the defaults are used.
/// `listen` replaces the listeners of the file.
///
/// Returns the configuration with a report of its warnings, which may be empty.
///
/// # Errors
/// The report of all faults, warnings included.
pub fn load(path: Option<&Path>, listen: &[ListenAddress]) -> Result<(Config, Report), Report> {
    let environment = |name: &str| std::env::var(name).ok();
    let Some(path) = path else {
        return read(Source { listen, environment: &environment, ..Source::default() });
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
    read(Source { file: &file, text: &text, folder: folder_of(path), listen, environment: &environment })
}

/// Reads a text as [`load`] reads a file.
///
/// # Errors
/// The report of all faults, warnings included.
pub fn read(source: Source<'_>) -> Result<(Config, Report), Report> {
    let (config, report) = Config::examine(source);
    let Some(mut config) = config else { return Err(report) };
    let mut findings = Findings::new(report.places());
    read_secret(&mut config, &mut findings);
    read_sets(&mut config, &mut findings);
    sounds::read(&mut config, &mut findings);
    recordings::check(&config, &mut findings);
    tls::check(&config, source, &mut findings);
    files::check(&config, Path::new(source.file), &mut findings);
    let faults = findings.faults;
    let report = report.with(faults);
    if report.errors() > 0 { Err(report) } else { Ok((config, report)) }
}

/// Returns the path of the control socket that a server with this configuration file uses, even if other parts of the
/// file are wrong. Reads no other file.
pub fn control_socket_of(file: &Path) -> Option<PathBuf> {
    Config::control_socket_of(&fs::read_to_string(file).ok()?, folder_of(file))
}

/// Returns the folder from which relative paths of a file start.
fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or_else(|| Path::new(""))
}

/// Reads the file of the secret, if neither the environment nor the text has one.
fn read_secret(config: &mut Config, findings: &mut Findings<'_>) {
    let Some(path) = &config.auth.secret_file else { return };
    let span = findings.places.value_of("auth.secret_file");
    findings.warn_if_others_read(path, &span);
    if config.auth.secret.is_some() {
        return;
    }
    let (message, cure) = match fs::read_to_string(path) {
        Ok(text) => match Secret::new(text.lines().next().unwrap_or_default().trim()) {
            Ok(secret) => {
                config.auth.secret = Some(secret);
                return;
            }
            Err(message) => (
                format!("the first line of auth.secret_file {message}"),
                "put at least 16 random characters there (openssl rand -hex 32 makes some)",
            ),
        },
        Err(error) => (
            format!("cannot read auth.secret_file {}: {}", path.display(), with_reason(&error, path)),
            "name a file whose first line is the secret, and that this user may read",
        ),
    };
    findings.push(Fault::error(span, message, cure));
}

/// Reads the files of data sets. Sets of databases are read when the server starts.
fn read_sets(config: &mut Config, findings: &mut Findings<'_>) {
    for (index, SetFault { place, line, message, cure }) in data_sets::read_files(config) {
        let message = match line {
            Some(line) => format!("{place}:{line}: {message}"),
            None => format!("{place} {message}"),
        };
        let span = findings.places.value_of(&format!("set[{index}].file"));
        findings.push(Fault::error(span, message, cure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_database_is_an_error_at_its_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("text"), "no database, but long enough to look at".repeat(100)).expect("it can be written");
        fs::write(at("wrong.toml"), "\nstore.database = \"text\"").expect("it can be written");
        let report = load(Some(&at("wrong.toml")), &[]).expect_err("the file is no database");
        let fault = report.faults().iter().find(|fault| fault.message.contains("is no sound SQLite database"));
        assert_eq!(report.position(fault.expect("it is named")).map(|(line, _)| line), Some(2), "{report}");
        fs::write(at("right.toml"), "store.database = \"new\"").expect("it can be written");
        assert!(load(Some(&at("right.toml")), &[]).is_ok(), "the server makes a file that is not there");
    }
}
