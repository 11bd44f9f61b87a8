//! Checks of database servers and of the places of accounting rows.

use strowger_store::database_url::{DatabaseAddress, DatabaseTls, DatabaseUrl};

use super::Config;
use super::accounting::AccountingTarget;
use super::database::Database;
use super::key::duration_text;
use super::reader::Reader;
use super::registrar::Durability;
use super::report::Fault;

pub(super) fn check(config: &Config, reader: &mut Reader) {
    check_subscribers(config, reader);
    check_bindings(config, reader);
    check_accounting(config, reader);
    check_calls(config, reader);
}

/// Notes contradictions between keys of databases as [`check_mixed`](super::check::check_mixed) does.
pub(super) fn check_mixed(config: &Config, reader: &mut Reader) {
    check_durability(config, reader);
    check_accounted(config, reader);
}

fn check_durability(config: &Config, reader: &mut Reader) {
    let is_in_memory = config.store.database.is_none() && config.store.bindings.is_none();
    if is_in_memory && config.registrar.durability != Durability::None && !config.domains.is_empty() {
        let span = reader.first_of(&["registrar.durability", "store.database"]);
        let message = format!(
            "registrar.durability = \"{}\" promises what a database in memory cannot keep",
            config.registrar.durability
        );
        let cure =
            "set registrar.durability = \"none\", or name a file in store.database, or a server in store.bindings";
        reader.push(Fault::error(span, message, cure));
    }
}

/// Notes faults in the keys of the database server of subscribers. The connection itself is tried at the start of the server.
fn check_subscribers(config: &Config, reader: &mut Reader) {
    const KEY: ServerKey = ServerKey {
        url: "store.subscribers",
        harm: "what the server of store.subscribers says crosses the network for all to read, and an HA1 is as good as a password",
    };
    let store = &config.store;
    let Some(server) = &store.subscribers else {
        let (key, reason) = ("store.subscriber_table", "the subscribers are in store.database");
        return warn_of_unused(key, "name the server in store.subscribers", reason, reader);
    };
    if store.subscriber_table.is_empty() || store.subscriber_table.split('.').any(str::is_empty) {
        let span = reader.value_of("store.subscriber_table");
        let message = format!("store.subscriber_table is {:?}, which names no table", store.subscriber_table);
        reader.push(Fault::error(span, message, "write TABLE or SCHEMA.TABLE, such as \"subscriber\""));
    }
    warn_of_shared_realm(config, reader);
    check_server(server, &KEY, reader);
}

/// Warns if several domains share one realm, because OpenSIPS and Kamailio compute the HA1s of each domain with the name of the domain as realm.
/// There is no warning if the file sets the realm.
fn warn_of_shared_realm(config: &Config, reader: &mut Reader) {
    let short: Vec<&str> =
        config.domains.iter().filter(|domain| !domain.has_table).map(|domain| domain.name.as_str()).collect();
    if let ([first, others @ ..], false) = (&short[..], reader.has("realm"))
        && !others.is_empty()
    {
        let others = others.join(", ");
        let message = format!("HA1s of {others} in store.subscribers are read as those of the realm {first}");
        let cure = "write a [[domain]] for each, whose realm is its name, or the realm of all as `realm`";
        reader.push(Fault::warning(reader.value_of("domains"), message, cure));
    }
}

/// Notes contradictory keys of the database server of bindings.
fn check_bindings(config: &Config, reader: &mut Reader) {
    const KEY: ServerKey = ServerKey {
        url: "store.bindings",
        harm: "where phones are crosses the network to the server of store.bindings, and who changes it there takes their calls",
    };
    let Some(server) = &config.store.bindings else { return };
    if config.registrar.durability == Durability::None {
        let span = reader.first_of(&["registrar.durability", "store.bindings"]);
        let message = "registrar.durability = \"none\" keeps no bindings: store.bindings has no effect";
        reader.push(Fault::error(span, message, "remove one of the two"));
    }
    check_server(server, &KEY, reader);
}

/// Notes contradictory keys of the database server of calls.
fn check_calls(config: &Config, reader: &mut Reader) {
    const KEY: ServerKey = ServerKey {
        url: "dialogs.database",
        harm: "who calls whom crosses the network to the server of dialogs.database, and who changes it there ends or makes calls",
    };
    if let Some(server) = config.dialogs.server() {
        check_server(server, &KEY, reader);
    }
}

/// Key of a database server.
struct ServerKey {
    url: &'static str,
    /// Harm without TLS.
    harm: &'static str,
}

/// Warns that a key has no effect. `missing` names the setting without which the key has none.
fn warn_of_unused(key: &str, missing: &str, reason: &str, reader: &mut Reader) {
    if reader.has(key) {
        let message = format!("{key} has no effect: {reason}");
        let cure = format!("{missing}, or remove this");
        reader.push(Fault::warning(reader.value_of(key), message, cure));
    }
}

fn check_server(server: &DatabaseUrl, key: &ServerKey, reader: &mut Reader) {
    if server.tls == DatabaseTls::Off && !server.is_local() {
        let cure = "write ?tls=required at the end of the URL, unless all who reach this network may know it";
        reader.push(Fault::warning(reader.value_of(key.url), key.harm, cure));
    }
}

fn check_accounting(config: &Config, reader: &mut Reader) {
    if config.accounting.is_on() {
        check_accounting_server(config, reader);
        check_accounting_files(config, reader);
    }
}

/// Notes contradictory keys for the selection of accounted calls and their longest duration.
fn check_accounted(config: &Config, reader: &mut Reader) {
    let accounting = &config.accounting;
    let is_on = accounting.is_on();
    let rule = |account| config.rules.iter().position(|rule| rule.accounts() == Some(account));
    for (place, rule) in config.rules.iter().enumerate() {
        if rule.account == Some(false) && rule.account_as.is_some() {
            let message = format!("rule '{}' names an account for calls that it does not account", rule.name);
            let cure = "remove account = false, or account_as";
            reader.push(Fault::error(reader.value_of(&format!("rule[{place}].account_as")), message, cure));
        }
    }
    if let (false, Some(place)) = (is_on, rule(true)) {
        let span = ["account", "account_as"].map(|key| format!("rule[{place}].{key}"));
        let span = reader.first_of(&span.each_ref().map(String::as_str));
        let message = "a rule accounts calls, but nothing is written: accounting.cdr and accounting.events are false";
        reader.push(Fault::warning(span, message, "set accounting.cdr = true or accounting.events = true"));
    }
    if !is_on {
        return;
    }
    if !accounting.all && rule(true).is_none() {
        let span = reader.value_of("accounting.all");
        let message = "accounting.all is false and no rule has account = true or account_as: no call is accounted";
        reader.push(Fault::warning(
            span,
            message,
            "leave accounting.all out, or give a rule account = true or account_as",
        ));
    }
    if !config.proxy.record_route
        && config.rules.iter().all(|rule| rule.record_route != Some(true) && rule.b2bua != Some(true))
    {
        let span = reader.first_of(&["proxy.record_route", "accounting.cdr", "accounting.events"]);
        let message = "without proxy.record_route no BYE comes by: rows of accounting tell no end and no duration";
        reader.push(Fault::warning(span, message, "set proxy.record_route = true"));
    }
    if config.dialogs.lifetime > config.proxy.route_lifetime {
        let span =
            reader.first_of(&["dialogs.lifetime", "proxy.route_lifetime", "accounting.cdr", "accounting.events"]);
        let message = format!(
            "dialogs.lifetime ({}) is longer than proxy.route_lifetime ({}): a BYE of the server would reach no party",
            duration_text(config.dialogs.lifetime),
            duration_text(config.proxy.route_lifetime)
        );
        reader.push(Fault::error(span, message, "make route_lifetime at least as long"));
    }
}

/// Notes contradictory keys of the database server of accounting rows.
fn check_accounting_server(config: &Config, reader: &mut Reader) {
    const KEY: ServerKey = ServerKey {
        url: "accounting.database",
        harm: "who called whom crosses the network to the server of accounting.database for all to read",
    };
    let accounting = &config.accounting;
    match accounting.server() {
        Some(server) => check_server(server, &KEY, reader),
        None if accounting.to == AccountingTarget::Sql => {
            let message = "accounting.to = \"sql\" names no database";
            let cure = "set accounting.database = \"mysql://USER:PASSWORD@HOST:3306/DATABASE\" or \
                        \"postgresql://USER:PASSWORD@HOST:5432/DATABASE\"";
            reader.push(Fault::error(reader.value_of("accounting.to"), message, cure));
        }
        None => {
            let reason = format!("accounting.to is \"{}\"", accounting.to);
            warn_of_unused(KEY.url, "set accounting.to = \"sql\"", &reason, reader);
        }
    }
}

fn check_accounting_files(config: &Config, reader: &mut Reader) {
    let accounting = &config.accounting;
    let is_sql = accounting.to == AccountingTarget::Sql;
    let place = (!is_sql).then_some(("accounting.path", &accounting.path));
    for (key, path) in place.into_iter().chain([("accounting.spool", &accounting.spool)]) {
        if config.store.database.as_ref() == Some(path) {
            let message = format!("{key} is the database of the server, store.database");
            reader.push(Fault::error(reader.first_of(&[key, "store.database"]), message, "name a file of its own"));
        }
    }
    if is_sql {
        return;
    }
    if accounting.path == accounting.spool {
        let span = reader.first_of(&["accounting.spool", "accounting.path"]);
        reader.push(Fault::error(span, "accounting.path and accounting.spool are one file", "name two"));
    }
}

/// Warns of each database server whose URL names a host and no password. A URL with a local socket needs none: the kernel tells the server the user
/// of the client.
pub(super) fn warn_of_open(config: &Config, reader: &mut Reader) {
    let tables = [
        ("store.subscribers".to_owned(), config.store.subscribers.as_ref()),
        ("store.bindings".to_owned(), config.store.bindings.as_ref()),
        ("dialogs.database".to_owned(), config.dialogs.server()),
        ("accounting.database".to_owned(), config.accounting.server()),
    ];
    let sets = config.sets.iter().enumerate().map(|(index, set)| {
        let url = set.database.as_ref().and_then(Database::server);
        (format!("set[{index}].database"), url)
    });
    for (key, url) in tables.into_iter().chain(sets) {
        let is_open =
            |url: &&DatabaseUrl| url.password.is_none() && matches!(url.address, DatabaseAddress::Host { .. });
        if let Some(url) = url.filter(is_open) {
            let message = format!("{key} has no password: a server that asks for none serves whoever reaches it");
            let scheme = url.kind.scheme();
            let cure = format!("give {} a password, and write {scheme}://{}:PASSWORD@...", url.user, url.user);
            reader.push(Fault::warning(reader.value_of(&key), message, cure));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    #[test]
    fn servers_are_named_whole_and_for_something() {
        let read = |text: &str| Config::read(Source { text, ..Source::default() });
        for (text, part) in [
            ("accounting.cdr = true\naccounting.to = \"sql\"", "names no database"),
            ("accounting.database = \"mysql://u:hunter2@h\"", "names no database"),
            ("store.bindings = \"redis://u:hunter2@h/d\"", "no database server that is known"),
            ("store.bindings = \"mysql://u:p@localhost/d\"\nregistrar.durability = \"none\"", "keeps no bindings"),
            ("store.database = \"memory\"", "cannot keep"),
            ("dialogs.database = \"mysql://u:hunter2@h\"", "names no database"),
        ] {
            let report = read(text).expect_err(text).to_string();
            assert!(report.contains(part) && !report.contains("hunter2"), "{text}: {report}");
        }
        let rows = "accounting.cdr = true\naccounting.to = \"sql\"\naccounting.database";
        for (text, part) in [
            (&*format!("{rows} = \"mysql://u:p@db.example/d\""), "who called whom crosses the network"),
            (&format!("{rows} = \"mysql://u:p@127.0.0.1/d\""), ""),
            ("accounting.cdr = true\naccounting.database = \"mysql://u:p@127.0.0.1/d\"", "has no effect"),
            ("store.bindings = \"mysql://u:p@db.example/d\"", "takes their calls"),
            ("store.bindings = \"mysql://u:p@127.0.0.1/d\"\nstore.database = \"memory\"", ""),
            ("store.subscriber_table = \"users\"", "has no effect"),
            ("store.bindings = \"mysql://u:p@db.example/d?tls=required\"", ""),
            ("dialogs.track = true\ndialogs.database = \"mysql://u:p@db.example/d\"", "ends or makes calls"),
            ("dialogs.track = true\ndialogs.database = \"mysql://u:p@127.0.0.1/d\"", ""),
            ("dialogs.track = true\ndialogs.database = \"mysql://u@127.0.0.1/d\"", "dialogs.database has no password"),
            ("store.subscribers = \"postgresql://u@[::1]/d\"", "store.subscribers has no password"),
            ("store.subscribers = \"mysql://u@/d?socket=/run/x\"", ""),
        ] {
            let (_, report) = read(text).unwrap_or_else(|report| panic!("{text}: {report}"));
            let said: String = report.faults().iter().map(|fault| fault.message.clone()).collect();
            assert!(if part.is_empty() { said.is_empty() } else { said.contains(part) }, "{text}: {said}");
        }
    }
}
