//! `strowger db`: the tables that the configuration needs.

use std::fmt::Write;
use std::path::Path;
use std::time::SystemTime;

use serde_json::json;
use strowger_backend::sql::schema::{self, Found, Part, SchemaCommand};
use strowger_backend::sqlite::accounting;
use strowger_backend::sqlite::calls::{FileSettings, Sqlite};
use strowger_backend::sqlite::{OpenError, SqliteSettings, make, pending};
use strowger_config::{AccountingTarget, Config, DatabaseUrl};
use strowger_node::{backends, preflight, server_settings};
use strowger_store::accounting::sink::Sink;

use crate::access::denied;
use crate::cli::{DbArguments, DbCommand, DbOrder};
use crate::output::{self, CommandOutcome};
use crate::user::milliseconds;

pub(crate) fn run(arguments: &DbArguments) -> anyhow::Result<CommandOutcome> {
    let (command, options) = match &arguments.command {
        DbCommand::Init(options) => (SchemaCommand::Init, options),
        DbCommand::Migrate(options) => (SchemaCommand::Migrate, options),
    };
    let choice = options.config.choose();
    choice.announce();
    let config = match preflight::load(choice.file(), &[]) {
        Ok((config, _)) => config,
        Err(report) => {
            output::report(&report);
            return Ok(CommandOutcome::Failed);
        }
    };
    let mut lines = Vec::new();
    let done = carry_out(&config, command, options.dry_run, &mut lines);
    // Printed after a failure too: the earlier steps are done.
    output::print(&shown(&lines, options)?)?;
    done?;
    let unusable: Vec<&Line> = lines.iter().filter(|line| !line.is_usable).collect();
    for line in &unusable {
        output::complain(&line.complaint());
    }
    Ok(if unusable.is_empty() { CommandOutcome::Done } else { CommandOutcome::Failed })
}

/// The tables of one part of a database, and the statements for them.
struct Line {
    database: String,
    part: &'static str,
    found: Found,
    /// Version that a server needs.
    version: u32,
    statements: Vec<String>,
    is_usable: bool,
}

impl Line {
    fn found(&self) -> String {
        match self.found {
            Found::Nothing => "nothing".into(),
            Found::Others => "tables of another program".into(),
            Found::Version(version) => format!("version {version}"),
        }
    }

    /// Describes the state after the statements.
    fn becomes(&self) -> String {
        if self.statements.is_empty() { self.found() } else { format!("version {}", self.version) }
    }

    fn complaint(&self) -> String {
        let Self { database, part, version, .. } = self;
        match self.found {
            Found::Nothing => format!("{database} has no tables for {part}: strowger db init makes them"),
            Found::Others => format!(
                "{database} has a table for {part} that this program did not make: give it another name, then run strowger db init"
            ),
            Found::Version(found) if found > *version => format!(
                "{database} has tables for {part} of version {found}, this program knows {version}: use the program that made them"
            ),
            Found::Version(0) => {
                format!("{database} has half of the tables for {part}: strowger db init makes the rest")
            }
            Found::Version(found) => format!(
                "{database} has tables for {part} of version {found}, a server needs {version}: strowger db migrate makes it so"
            ),
        }
    }
}

fn carry_out(config: &Config, command: SchemaCommand, is_dry: bool, lines: &mut Vec<Line>) -> anyhow::Result<()> {
    if let Some(settings) = backends::sqlite(config) {
        lines.push(of_file(&settings, command, is_dry)?);
    }
    if config.accounting.is_on() && config.accounting.to == AccountingTarget::Sqlite {
        lines.push(of_accounting(config, command, is_dry)?);
    }
    if let Some(path) = config.dialogs.file() {
        // 0: the format version of states, none of which is written here.
        let settings = FileSettings { path: path.to_owned(), form: 0, wait: config.store.busy_timeout };
        lines.push(of_calls(settings, command, is_dry)?);
    }
    // One table of leases serves both.
    let (subscriber_url, binding_url) = (config.store.subscribers.as_ref(), config.store.bindings.as_ref());
    let other_calls = config.dialogs.server().filter(|url| binding_url != Some(*url));
    let subscribers = Part::Subscribers(config.store.subscriber_table.clone());
    let servers: [(Option<&DatabaseUrl>, Part); 6] = [
        (subscriber_url, subscribers),
        (binding_url, Part::Bindings),
        (binding_url, Part::Leases),
        (config.dialogs.server(), Part::Calls),
        (other_calls, Part::Leases),
        (config.accounting.server(), Part::Accounting),
    ];
    for (server, part) in servers {
        let Some(server) = server else { continue };
        let now = milliseconds(SystemTime::now());
        let steps = schema::carry_out(&server_settings(server), &[part], command, is_dry, now)?;
        lines.extend(steps.into_iter().map(|step| Line {
            database: server.to_string(),
            part: step.part.name(),
            found: step.found,
            version: step.part.version(),
            is_usable: step.is_usable(),
            statements: step.statements,
        }));
    }
    Ok(())
}

/// Returns the line of the server's own file. The server migrates the file at each start, so its tables always fit each
/// other.
fn of_file(settings: &SqliteSettings, command: SchemaCommand, is_dry: bool) -> anyhow::Result<Line> {
    let path = &settings.path;
    let wrong = |error: OpenError| denied(error, path);
    let pending = pending(path).map_err(wrong)?;
    // There are only a few migrations.
    let (found, version) = (pending.found as u32, pending.known as u32);
    let is_wanted = (command == SchemaCommand::Init) == (found == 0);
    let statements: Vec<String> = match is_wanted {
        true => {
            pending.statements.iter().map(|statement| (*statement).trim().trim_end_matches(';').to_owned()).collect()
        }
        false => Vec::new(),
    };
    if !is_dry && !statements.is_empty() {
        make(settings).map_err(wrong)?;
    }
    Ok(Line {
        database: path.display().to_string(),
        part: "subscribers and bindings",
        found: if found == 0 { Found::Nothing } else { Found::Version(found) },
        version,
        is_usable: !statements.is_empty() || found == version,
        statements,
    })
}

/// Returns the line of the file with accounting rows.
fn of_accounting(config: &Config, command: SchemaCommand, is_dry: bool) -> anyhow::Result<Line> {
    let path = &config.accounting.path;
    let found = accounting::Sqlite::version(path)?;
    let line = of_own_file(
        path,
        "accounting",
        [found, accounting::VERSION.unsigned_abs()],
        command,
        accounting::Sqlite::statements,
    );
    if !is_dry && !line.statements.is_empty() {
        let mut sink = accounting::Sqlite::new(path, config.store.busy_timeout);
        sink.open().map_err(|error| denied(error, path))?;
    }
    Ok(line)
}

/// Returns the line of the file with persisted calls.
fn of_calls(settings: FileSettings, command: SchemaCommand, is_dry: bool) -> anyhow::Result<Line> {
    let path = settings.path.clone();
    let found = Sqlite::version(&path).map_err(|error| denied(error, &path))?;
    let line = of_own_file(&path, Part::Calls.name(), [found, Sqlite::VERSION], command, Sqlite::statements);
    if !is_dry && !line.statements.is_empty() {
        Sqlite::open(settings).map_err(|error| denied(error, &path))?;
    }
    Ok(line)
}

fn of_own_file(
    path: &Path,
    part: &'static str,
    [found, version]: [u32; 2],
    command: SchemaCommand,
    all: fn() -> Vec<String>,
) -> Line {
    let statements = if found == 0 && command == SchemaCommand::Init { all() } else { Vec::new() };
    Line {
        database: path.display().to_string(),
        part,
        found: if found == 0 { Found::Nothing } else { Found::Version(found) },
        version,
        is_usable: !statements.is_empty() || found == version,
        statements,
    }
}

fn shown(lines: &[Line], options: &DbOrder) -> anyhow::Result<String> {
    if options.json {
        let array: Vec<serde_json::Value> = lines
            .iter()
            .map(|line| {
                json!({
                    "database": line.database,
                    "part": line.part,
                    "found": line.found(),
                    "now": if options.dry_run { line.found() } else { line.becomes() },
                    "needed": line.version,
                    "statements": line.statements,
                    "usable": line.is_usable,
                })
            })
            .collect();
        return Ok(serde_json::to_string_pretty(&array)? + "\n");
    }
    if options.dry_run {
        return Ok(script(lines));
    }
    if lines.is_empty() {
        return Ok("the configuration names no database\n".into());
    }
    let width = |of: &dyn Fn(&Line) -> usize, title: &str| lines.iter().map(of).max().unwrap_or(0).max(title.len());
    let database = width(&|line| line.database.chars().count(), "database");
    let part = width(&|line| line.part.len(), "for");
    let found = width(&|line| line.found().len(), "found");
    let mut out = format!("{:<database$}  {:<part$}  {:<found$}  now\n", "database", "for", "found");
    for line in lines {
        let _ = writeln!(
            out,
            "{:<database$}  {:<part$}  {:<found$}  {}",
            line.database,
            line.part,
            line.found(),
            line.becomes()
        );
    }
    Ok(out)
}

/// Writes all statements as a script for the client program of the database.
fn script(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        let what = if line.statements.is_empty() { ": nothing to do" } else { "" };
        let _ = writeln!(out, "-- {} ({}){what}", line.database, line.part);
        for statement in &line.statements {
            let _ = writeln!(out, "{statement};");
        }
    }
    out
}
