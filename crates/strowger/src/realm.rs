//! Finds users whose passwords were stored for another realm, or without an algorithm, that the server now requires.

use strowger_backend::sqlite::subscribers::UnusablePasswords;
use strowger_config::{Config, Fault, Report};
use strowger_node::backends;

use crate::output;

/// Reports such users on standard error; returns the number of warnings.
pub(crate) fn check(config: &Config, file: &str) -> usize {
    let faults = faults(config);
    let number = faults.len();
    if number > 0 {
        output::report(&Report::new(file, "", faults));
    }
    number
}

/// Logs such users in the background while the server starts.
pub(crate) fn watch(config: &Config) -> std::io::Result<()> {
    let config = config.clone();
    let look = move || {
        for Fault { message, cure, .. } in faults(&config) {
            tracing::warn!("{message}; {cure}");
        }
    };
    std::thread::Builder::new().name("realm".into()).spawn(look).map(drop)
}

/// Collects realm problems. Scans all users, about 1 s per million.
fn faults(config: &Config) -> Vec<Fault> {
    if config.store.subscribers.is_some() {
        // The server checks their table when it starts.
        return Vec::new();
    }
    let Some(settings) = backends::sqlite(config) else { return Vec::new() };
    let database = settings.path.display();
    let mut offered: Vec<&str> =
        config.listeners.iter().flat_map(|l| &l.algorithms).map(|algorithm| algorithm.word()).collect();
    offered.sort_unstable();
    offered.dedup();
    let unusable = match UnusablePasswords::of(&settings, |domain| config.realm_of(domain), &offered) {
        Ok(unusable) => unusable,
        Err(error) => return vec![Fault::warning(None, error.to_string(), "the server will not start with it")],
    };
    unusable.iter().flat_map(|unusable| faults_of(unusable, config, &database.to_string())).collect()
}

/// Collects the problems of the users of one domain.
fn faults_of(unusable: &UnusablePasswords, config: &Config, database: &str) -> Vec<Fault> {
    let UnusablePasswords { domain, users, realm, lacking } = unusable;
    let who = |users: u64| format!("{users} {} of {domain} in {database}", if users == 1 { "user" } else { "users" });
    let asked = config.realm_of(domain);
    let mut faults = Vec::new();
    // A password is stored as a digest of itself with the realm, so it cannot be moved to another realm (RFC 7616
    // section 3.4.2).
    match realm {
        _ if *users == 0 => (),
        Some(realm) if !config.is_local(domain) => faults.push(Fault::warning(
            None,
            format!(
                "{} can neither register nor call: the domain is none of this server's, and set for the realm {realm:?}, no password \
                 fits {asked:?}",
                who(*users)
            ),
            format!("name it: [[domain]] with name = {domain:?} and realm = {realm:?}; or remove them (strowger user remove)"),
        )),
        Some(realm) => {
            let table = config.domains.iter().any(|local| local.name.as_str() == domain && local.has_table);
            let place = if table { "in its [[domain]] table" } else { "above the first table" };
            faults.push(Fault::warning(
                None,
                format!("{} cannot register: set for the realm {realm:?}, no password fits {asked:?}", who(*users)),
                format!("write realm = {realm:?} {place}, or set each password again (strowger user passwd USER@{domain})"),
            ));
        }
        None => faults.push(Fault::warning(
            None,
            format!("{} cannot register: there is no password", who(*users)),
            format!("set one for each (strowger user passwd USER@{domain})"),
        )),
    }
    // A password may also be missing for an algorithm. Passwords are now stored for all algorithms; older versions
    // omitted MD5 if it was not offered.
    for (algorithm, users) in lacking {
        faults.push(Fault::warning(
            None,
            format!("{} cannot register by {algorithm}: the password was stored without it", who(*users)),
            format!(
                "set each password again (strowger user passwd USER@{domain}); `strowger user list` shows the algorithms of each"
            ),
        ));
    }
    faults
}
