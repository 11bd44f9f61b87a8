//! Users whose passwords were set for another realm, or without an algorithm, than phones are asked for.

use strowger_config::{Config, Fault, Report};
use strowger_store::sqlite_subscribers::Strangers;

use crate::output;

/// Says so on standard error; the number of warnings.
pub(crate) fn check(config: &Config, file: &str) -> usize {
    let faults = faults(config);
    let number = faults.len();
    if number > 0 {
        output::report(&Report::new(file, "", faults));
    }
    number
}

/// Says so in the log, beside the server that starts meanwhile.
pub(crate) fn watch(config: &Config) -> std::io::Result<()> {
    let config = config.clone();
    let look = move || {
        for Fault { message, cure, .. } in faults(&config) {
            tracing::warn!("{message}; {cure}");
        }
    };
    std::thread::Builder::new().name("realm".into()).spawn(look).map(drop)
}

/// What is to be said of them. Looks at every user: a second for a million.
fn faults(config: &Config) -> Vec<Fault> {
    let Some(settings) = config.sqlite_settings() else { return Vec::new() };
    let database = settings.path.display();
    let mut offered: Vec<&str> =
        config.listeners.iter().flat_map(|l| &l.algorithms).map(|algorithm| algorithm.word()).collect();
    offered.sort_unstable();
    offered.dedup();
    let Strangers { users, realm, lacking } = match Strangers::of(&settings, &config.realm, &offered) {
        Ok(strangers) => strangers,
        Err(error) => return vec![Fault::warning(None, error.to_string(), "the server will not start with it")],
    };
    let who = |users: u64| if users == 1 { "1 user".into() } else { format!("{users} users") };
    let now = &config.realm;
    let mut faults = Vec::new();
    // A password is kept as a digest of itself with the realm, so it cannot be moved to another one (RFC 7616 section 3.4.2).
    match realm {
        _ if users == 0 => (),
        Some(realm) => faults.push(Fault::warning(
            None,
            format!(
                "{} of {database} cannot register: set for the realm {realm:?}, no password fits {now:?}",
                who(users)
            ),
            format!("write realm = {realm:?}, or set each password again (strowger user passwd USER@DOMAIN)"),
        )),
        None => faults.push(Fault::warning(
            None,
            format!("{} of {database} cannot register: there is no password", who(users)),
            "set one for each (strowger user passwd USER@DOMAIN)",
        )),
    }
    // Nor to another algorithm. Passwords are kept for all of them now; older versions left MD5 out where it was not offered.
    for (algorithm, users) in lacking {
        faults.push(Fault::warning(
            None,
            format!("{} of {database} cannot register by {algorithm}: the password was stored without it", who(users)),
            "set each password again (strowger user passwd USER@DOMAIN); `strowger user list` shows the algorithms of each",
        ));
    }
    faults
}
