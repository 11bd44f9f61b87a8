//! `strowger user`: users that may register, and their passwords.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use serde_json::json;
use strowger_backend::sqlite::SqliteSettings;
use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_config::Config;
use strowger_core::digest::{Ha1Set, Hash};
use strowger_files::access;
use strowger_node::preflight;
use strowger_report::rfc3339;
use strowger_store::subscriber::{AdminError, Ha1s, Listed, SubscriberAdmin};

use crate::access::denied;
use crate::cli::{AddressOfRecord, ConfigArgument, UserArguments, UserCommand, UserWithPassword};
use crate::control;
use crate::output::{self, CommandOutcome};
use crate::prompt;

pub(crate) fn run(arguments: &UserArguments) -> anyhow::Result<CommandOutcome> {
    match &arguments.command {
        UserCommand::Add(user) => set(user, Change::Add),
        UserCommand::Passwd(new) => match set(&new.user, Change::Password)? {
            CommandOutcome::Done if new.end_registrations => {
                control::end_registrations(&new.user.user.config, &new.user.user.address)
            }
            outcome => Ok(outcome),
        },
        UserCommand::Remove(user) => {
            let Some(mut users) = Users::open(&user.config)? else { return Ok(CommandOutcome::Failed) };
            let name = &user.address.name;
            let domain = users.stored_domain(name, &user.address.domain)?;
            let removed = users.admin.remove(name, &domain);
            removed.map_err(|error| users.named(error))?;
            output::print(&format!("removed {name}@{domain}; registrations end with it\n"))?;
            Ok(CommandOutcome::Done)
        }
        UserCommand::List(list) => {
            let Some(mut users) = Users::open(&list.config)? else { return Ok(CommandOutcome::Failed) };
            let listed = users.admin.list(None).map_err(|error| users.named(error))?;
            output::print(&if list.json { as_json(&listed)? } else { as_table(&listed) })?;
            Ok(CommandOutcome::Done)
        }
    }
}

/// The database of users, and the settings that passwords depend on.
struct Users {
    config: Config,
    admin: SqliteAdmin,
    /// Name of the configuration file, for people.
    file: String,
    /// The database file, if it was created now.
    made: Option<PathBuf>,
}

impl Users {
    /// Opens the database that the configuration names. Returns `None` if the configuration was reported as wrong.
    fn open(argument: &ConfigArgument) -> anyhow::Result<Option<Self>> {
        let choice = argument.choose();
        choice.announce();
        let config = match preflight::load(choice.file(), &[]) {
            Ok((config, _)) => config,
            Err(report) => {
                output::report(&report);
                return Ok(None);
            }
        };
        let file = choice.file().map_or_else(|| "the defaults".into(), |file| file.display().to_string());
        if let Some(url) = &config.store.subscribers {
            bail!(
                "the subscribers are in {url} (store.subscribers), which is read in place and never written: change them there"
            );
        }
        let Some(path) = config.store.database.clone() else {
            bail!("store.database is \"memory\", which keeps no users: name a file in the configuration");
        };
        let is_new = !path.exists();
        let settings = SqliteSettings { busy_timeout: config.store.busy_timeout, ..SqliteSettings::new(&path) };
        let admin = SqliteAdmin::open(&settings).map_err(|error| denied(error, &path))?;
        Ok(Some(Self { config, admin, file, made: is_new.then_some(path) }))
    }

    /// Returns the domain under which a new user is stored: the given name if the file lists it, else the canonical
    /// one.
    fn domain_of_new(&self, domain: &str) -> String {
        let is_listed = self.config.domain_names().any(|own| own.eq_ignore_ascii_case(domain));
        let canonical = self.config.canonical_domain(domain).filter(|_| !is_listed);
        canonical.unwrap_or(domain).to_owned()
    }

    /// Returns the domain under which a user is stored, which may be any name of that domain; the canonical name if the
    /// user does not exist.
    fn stored_domain(&mut self, name: &str, domain: &str) -> anyhow::Result<String> {
        let Some(canonical) = self.config.canonical_domain(domain).map(str::to_owned) else { return Ok(domain.into()) };
        let aliases = self.config.aliases_on_machine().into_iter().filter(|(_, of)| *of == canonical);
        for domain in std::iter::once(canonical.clone()).chain(aliases.map(|(alias, _)| alias)) {
            let listed = self.admin.list(Some(&domain)).map_err(|error| self.named(error))?;
            if listed.iter().any(|user| user.username == name) {
                return Ok(domain);
            }
        }
        Ok(canonical)
    }

    /// Returns whether a user has a password in this realm, which was once the realm of its domain, and also a password
    /// in the current realm.
    fn is_left_over(&mut self, name: &str, domain: &str, realm: &str) -> anyhow::Result<bool> {
        let now = self.config.realm_of(domain);
        let listed = self.admin.list(Some(domain)).map_err(|error| self.named(error))?;
        let user = listed.iter().find(|user| user.username == name);
        Ok(now != realm && user.is_some_and(|user| user.realms.iter().any(|(realm, _)| realm == now)))
    }

    /// Adds to an error of the database file its name, and how long the program waited for it.
    fn named(&self, error: AdminError) -> anyhow::Error {
        let Some(path) = self.config.store.database.as_deref().map(Path::display) else { return error.into() };
        match error {
            AdminError::Locked => anyhow!(
                "{path}: another process has been writing to this database for {:?} (store.busy_timeout); try again",
                self.config.store.busy_timeout
            ),
            AdminError::NoRoom | AdminError::Database(_) => anyhow!("{path}: {error}"),
            error => error.into(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Password,
}

fn set(arguments: &UserWithPassword, change: Change) -> anyhow::Result<CommandOutcome> {
    let AddressOfRecord { name, domain } = &arguments.user.address;
    let Some(mut users) = Users::open(&arguments.user.config)? else { return Ok(CommandOutcome::Failed) };
    let domain = &match change {
        Change::Add => users.domain_of_new(domain),
        Change::Password => users.stored_domain(name, domain)?,
    };
    if !users.config.is_local(domain) {
        let warning = console::style("warning:").for_stderr().yellow().bold();
        let domains: Vec<&str> = users.config.domain_names().collect();
        let domains = if domains.is_empty() { "none".into() } else { domains.join(", ") };
        output::say(&format!(
            "{warning} {domain} is not a domain of {} (domains: {domains}): this user cannot register",
            users.file
        ));
    }
    // Check this before the user types a password twice.
    let listed = users.admin.list(Some(domain)).map_err(|error| users.named(error))?;
    let known = listed.iter().any(|listed| listed.username == *name);
    match (change, known) {
        (Change::Add, true) => {
            return Err(AdminError::Exists { username: name.clone(), domain: domain.clone() }.into());
        }
        (Change::Password, false) => {
            return Err(AdminError::Missing { username: name.clone(), domain: domain.clone() }.into());
        }
        _ => {}
    }
    let password = prompt::password(arguments.password_stdin, &format!("{name}@{domain}"))?;
    let realm = users.config.realm_of(domain).to_owned();
    let ha1 = ha1s(name, &realm, &password);
    let now = milliseconds(SystemTime::now());
    let write = |admin: &mut SqliteAdmin| match change {
        Change::Add => admin.add(name, domain, &realm, &ha1, now),
        Change::Password => admin.set_password(name, domain, &realm, &ha1, now),
    };
    let mut changed = write(&mut users.admin);
    if let Err(AdminError::RealmTaken { domain: other, .. }) = &changed
        && users.is_left_over(name, other, &realm)?
    {
        users.admin.remove_password(name, other, &realm).map_err(|error| users.named(error))?;
        output::say(&format!(
            "removed the password that {name}@{other} had in the realm {realm:?}, and no longer uses"
        ));
        changed = write(&mut users.admin);
    }
    match changed {
        Err(AdminError::RealmTaken { username, realm, domain: other }) if users.config.realm_of(&other) == realm => {
            bail!(
                "the realm {realm:?} has {username}@{other} already, and a phone proves no more than name and realm: take another \
             name, or give this domain a realm of its own: [[domain]] with name = \"{domain}\" in {}, and no more in `domains`",
                users.file
            )
        }
        Err(AdminError::RealmTaken { username, realm, domain: other }) => bail!(
            "the only password of {username}@{other} is still one of the realm {realm:?}: set it again first (strowger user \
             passwd {username}@{other}), or remove the user"
        ),
        changed => changed.map_err(|error| users.named(error))?,
    }
    let done = if change == Change::Add { "added" } else { "changed the password of" };
    output::print(&format!("{done} {name}@{domain} in the realm {realm:?}\n"))?;
    if let Some(hint) = users.made.as_deref().and_then(access::hint_for_service) {
        output::print(&format!("{hint}\n"))?;
    }
    Ok(CommandOutcome::Done)
}

/// Computes the stored form of a password: its HA1 for each algorithm, so that another list of algorithms needs no new
/// password.
pub(crate) fn ha1s(name: &str, realm: &str, password: &str) -> Ha1s {
    let set = Ha1Set::of_password(name.as_bytes(), realm.as_bytes(), password.as_bytes());
    let bytes = |hash: Hash| set.of(hash).map(|ha1| ha1.value().as_bytes().to_vec());
    Ha1s {
        md5: bytes(Hash::Md5).and_then(|bytes| bytes.try_into().ok()),
        sha256: bytes(Hash::Sha256).and_then(|bytes| bytes.try_into().ok()),
        sha512_256: bytes(Hash::Sha512_256).and_then(|bytes| bytes.try_into().ok()),
    }
}

pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    // A clock before 1970 is a broken clock; the time is shown to people only.
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn as_json(listed: &[Listed]) -> anyhow::Result<String> {
    let users: Vec<serde_json::Value> = listed
        .iter()
        .map(|user| {
            let realms =
                user.realms.iter().map(|(realm, algorithms)| json!({"realm": realm, "algorithms": algorithms}));
            json!({
                "name": user.username,
                "domain": user.domain,
                "realms": realms.collect::<Vec<_>>(),
                "created": utc(user.created_at),
                "updated": utc(user.updated_at),
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&users)? + "\n")
}

fn as_table(listed: &[Listed]) -> String {
    let address = |user: &Listed| format!("{}@{}", user.username, user.domain);
    let width = listed.iter().map(|user| address(user).chars().count()).max().unwrap_or(0).max("user".len());
    let mut out = String::new();
    for user in listed {
        let realms: Vec<String> =
            user.realms.iter().map(|(realm, algorithms)| format!("{realm} ({})", algorithms.join(", "))).collect();
        let _ = writeln!(out, "{:<width$}  {}  {}", address(user), utc(user.updated_at), realms.join("; "));
    }
    match listed.len() {
        0 => "no users; `strowger user add NAME@DOMAIN` makes one\n".into(),
        _ => format!("{:<width$}  {:<20}  realm (algorithms)\n{out}", "user", "password set"),
    }
}

/// Formats a time in UTC as RFC 3339, to the second.
fn utc(milliseconds: u64) -> String {
    rfc3339(milliseconds.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_kept_for_every_algorithm() {
        // The user of RFC 7616 section 3.9.1.
        let kept = ha1s("Mufasa", "http-auth@example.org", "Circle of Life");
        let md5: String = kept.md5.expect("MD5 is one").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(md5, "3d78807defe7de2157e2b0b6573a855f");
        assert!(kept.sha256.is_some() && kept.sha512_256.is_some());
    }
}
