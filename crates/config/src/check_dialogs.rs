//! Checks of the places of kept calls.

use super::Config;
use super::reader::Reader;
use super::report::Fault;

/// Notes contradictory keys for the place of kept calls. [`check_database`](super::check_database) checks a database server.
pub(super) fn check(config: &Config, reader: &mut Reader) {
    let Some(place) = config.dialogs.place() else { return };
    check_places(config, reader);
    if !config.auth.has_secret() && config.store.database.is_none() {
        let message = "calls are kept over a restart and the secret that lets their BYE through is not";
        let cure = "set auth.secret, or store.database, beside which the server keeps the one that it draws";
        reader.push(Fault::error(reader.value_of(place), message, cure));
    }
}

/// Warns if the file names a place for calls but no call is tracked or accounted.
pub(super) fn check_use(config: &Config, reader: &mut Reader) {
    let Some(place) = config.dialogs.place() else { return };
    if !config.tracks_calls() {
        let message = format!("{place} is set, and no call is tracked or accounted: none is kept");
        let cure = "set dialogs.track = true or accounting.cdr = true";
        reader.push(Fault::warning(reader.value_of(place), message, cure));
    }
}

fn check_places(config: &Config, reader: &mut Reader) {
    if config.dialogs.folder.is_some() && config.dialogs.database.is_some() {
        let message = "calls are kept in a folder and in a database";
        let span = reader.value_of("dialogs.database");
        reader.push(Fault::error(span, message, "remove dialogs.folder or dialogs.database"));
    }
    let Some(file) = config.dialogs.file() else { return };
    let rows = config.accounting.is_on().then_some(&config.accounting);
    let others = [
        ("store.database", config.store.database.as_ref()),
        ("accounting.path", rows.map(|rows| &rows.path)),
        ("accounting.spool", rows.map(|rows| &rows.spool)),
    ];
    if let Some((key, _)) = others.into_iter().find(|(_, path)| path.is_some_and(|path| path == file)) {
        let message = format!("dialogs.database is the file of {key}");
        reader.push(Fault::error(reader.value_of("dialogs.database"), message, "name a file of its own"));
    }
}
