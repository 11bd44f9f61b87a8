//! Users whose passwords were set for another realm than the one that phones are asked for.

use strowger_server::config::{Config, Fault, Report};
use strowger_store::sqlite_subscribers::Strangers;

use crate::output;

/// Says so on standard error; the number of warnings.
pub(crate) fn check(config: &Config, file: &str) -> usize {
    let Some(fault) = fault(config) else { return 0 };
    output::report(&Report::new(file, "", vec![fault]));
    1
}

/// Says so in the log, beside the server that starts meanwhile.
pub(crate) fn watch(config: &Config) -> std::io::Result<()> {
    let config = config.clone();
    let look = move || {
        if let Some(Fault { message, cure, .. }) = fault(&config) {
            tracing::warn!("{message}; {cure}");
        }
    };
    std::thread::Builder::new().name("realm".into()).spawn(look).map(drop)
}

/// What is to be said of them. Looks at every user: a second for a million.
fn fault(config: &Config) -> Option<Fault> {
    let settings = config.sqlite_settings()?;
    let database = settings.path.display();
    let Strangers { users, realm } = match Strangers::of(&settings, &config.realm) {
        Ok(strangers) => strangers?,
        Err(error) => return Some(Fault::warning(None, error.to_string(), "the server will not start with it")),
    };
    let who = if users == 1 { "1 user".into() } else { format!("{users} users") };
    let now = &config.realm;
    // A password is kept as a digest of itself with the realm, so it cannot be moved to another one (RFC 7616 section 3.4.2).
    Some(match realm {
        Some(realm) => Fault::warning(
            None,
            format!("{who} of {database} cannot register: set for the realm {realm:?}, no password fits {now:?}"),
            format!("write realm = {realm:?}, or set each password again (strowger user passwd USER@DOMAIN)"),
        ),
        None => Fault::warning(
            None,
            format!("{who} of {database} cannot register: there is no password"),
            "set one for each (strowger user passwd USER@DOMAIN)",
        ),
    })
}
