//! The eleven stress tests of OpenSIPS' table, and one beside them: what each part of a server's work costs.
//!
//! Seed of the table: a stateful relay, then one thing more with each letter, up to digest from a database with a cache and a row for each
//! call. Where OpenSIPS was driven to a load, here every system gets the same calls, and what counts is processor time a call: of the
//! server, and of the database beside it.

mod calls;
pub(crate) mod credentials;
mod letter;
mod report;
mod traffic;

pub use crate::document::DOMAIN;
pub use calls::Calls;
pub use letter::{Accounting, Letter};
pub use report::{Row, table};
pub use traffic::{Ends, Outcome, Traffic};

use crate::Error;
use crate::backend::MariaDb;
use crate::driver::{Configuration, Driver};
use crate::wait;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use strowger_measure::process::Usage;

/// How long rows may take to be in the table when the last call has ended.
const WRITTEN: Duration = Duration::from_secs(10);

/// One system under the traffic of one letter, from its start to its end.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Calls that were wanted.
    pub calls: u64,
    /// Calls a second.
    pub rate: u32,
    /// What came of them.
    pub outcome: Outcome,
    /// Processor time of the server while they were made.
    pub server: Usage,
    /// That of the database.
    pub database: Usage,
    /// Memory of the server when they had ended, in bytes.
    pub pss: u64,
    /// Rows that accounting wrote, and how many it should have written.
    pub rows: Option<(u64, u64)>,
}

impl Round {
    /// No call was lost, the generator kept up, and each call has its rows.
    pub fn is_whole(&self) -> bool {
        self.outcome.is_whole(self.calls) && self.rows.is_none_or(|(written, wanted)| written == wanted)
    }

    /// Microseconds a call.
    pub fn server_cost(&self) -> f64 {
        self.server.total().as_secs_f64() * 1e6 / self.calls as f64
    }

    /// Microseconds a call.
    pub fn database_cost(&self) -> f64 {
        self.database.total().as_secs_f64() * 1e6 / self.calls as f64
    }
}

/// How a round is made.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// The program of the generator.
    pub generator: &'a Path,
    /// Calls a second.
    pub rate: u32,
    /// For so long at least: each user calls once.
    pub seconds: u32,
}

/// What Kamailio is started with for a letter.
pub fn kamailio(letter: Letter, database: &MariaDb) -> Configuration {
    let parts = [
        (letter.record_routes(), "WITH_RECORD_ROUTE"),
        (letter.has_dialogs(), "WITH_DIALOG"),
        (letter.users() > 0, "WITH_USERS"),
        (letter.authenticates(), "WITH_AUTH"),
        (letter.caches(), "WITH_CACHE"),
        (letter.sends_at_once(), "WITH_NONCE_COUNT"),
        (letter.accounting() == Some(Accounting::Events), "WITH_EVENTS"),
        (letter.accounting() == Some(Accounting::Cdr), "WITH_CDR"),
    ];
    Configuration {
        text: include_str!("../../systems/kamailio/stress.cfg")
            .replace("DATABASE_URL", &format!("\"{}\"", database.url())),
        defines: parts.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, define)| define).collect(),
        values: vec![("DOMAIN", DOMAIN.into())],
        first: &[],
    }
}

/// What ours is started with for a letter: the shipped configuration with this database. None: there is none yet.
///
/// # Errors
/// The file cannot be read.
pub fn strowger(letter: Letter, examples: &Path, database: &MariaDb) -> Result<Option<Configuration>, Error> {
    let file = examples.join(format!("stress-{}.toml", letter.lower()));
    if !file.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&file).map_err(Error::file(&file))?;
    let first: &[&str] = if letter.accounting().is_some() { &["db", "init"] } else { &[] };
    let values = vec![("DOMAIN", DOMAIN.into()), ("DATABASE", database.url()), ("WORKERS", "1".into())];
    Ok(Some(Configuration { text, first, values, ..Configuration::default() }))
}

/// Starts a system in this folder, registers the users of the calls, makes a second of calls that do not count, then those that do.
///
/// # Errors
/// A program does not run, or a user cannot register.
pub fn round(
    driver: &Driver,
    configuration: &Configuration,
    calls: Calls,
    load: &Load<'_>,
    ends: Ends,
    database: &MariaDb,
    folder: &Path,
) -> Result<Round, Error> {
    let accounting = calls.accounting();
    let table = accounting.map(|accounting| match (accounting, driver) {
        (Accounting::Events, Driver::Strowger { .. }) => "strowger_events",
        (Accounting::Cdr, Driver::Strowger { .. }) => "strowger_cdr",
        (Accounting::Events, _) => "acc",
        (Accounting::Cdr, _) => "acc_cdrs",
    });
    let server = driver.start(folder, configuration)?;
    // It may have made the table just now.
    if let Some(table) = table {
        database.execute(&format!("TRUNCATE TABLE {table}"))?;
    }
    let mut traffic = Traffic::start(load.generator, folder, server.port(), ends, calls)?;
    if let Some(registered) = traffic.register(load.rate)?.filter(|outcome| outcome.failed > 0) {
        let reason = format!("{registered:?}\n{}", server.tail());
        return Err(Error::Unexpected { what: format!("registrations at {}", driver.name()), reason });
    }
    let first = u64::from(load.rate);
    traffic.call(first, load.rate)?;
    let wanted = (u64::from(load.rate) * u64::from(load.seconds)).max(calls.users().into());
    let before = (server.usage(), database.server().usage());
    let outcome = traffic.call(wanted, load.rate)?;
    let rows = table.map(|table| rows(database, table, accounting, first + wanted)).transpose()?;
    Ok(Round {
        calls: wanted,
        rate: load.rate,
        outcome,
        server: server.usage().since(&before.0),
        database: database.server().usage().since(&before.1),
        pss: server.pss(),
        rows,
    })
}

/// Rows that were written, once there are enough, and how many there should be.
fn rows(database: &MariaDb, table: &str, accounting: Option<Accounting>, calls: u64) -> Result<(u64, u64), Error> {
    let wanted = if accounting == Some(Accounting::Events) { 2 * calls } else { calls };
    let count = || database.count(table).ok().filter(|count| *count >= wanted);
    let written = match wait::look(WRITTEN, count) {
        Some(count) => count,
        None => database.count(table)?,
    };
    Ok((written, wanted))
}
