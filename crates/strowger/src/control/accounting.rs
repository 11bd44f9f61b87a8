//! `strowger accounting`: what became of the rows of the running server, and what waits in its spool.

use std::fmt::Write;

use strowger_node::control::{AccountingState, Order, Reply};

use super::arguments::{AccountingArguments, AccountingCommand};
use super::{ago, as_json, ask, reach, sentence, unexpected};
use crate::output::{self, Outcome};

pub(crate) fn accounting(arguments: &AccountingArguments) -> anyhow::Result<Outcome> {
    let (server, is_flush) = match &arguments.command {
        None => (&arguments.server, false),
        Some(AccountingCommand::Flush(server)) => (server, true),
    };
    let mut outcome = Outcome::Done;
    let reached = reach(server, |client| {
        let order = if is_flush { Order::FlushAccounting } else { Order::Accounting };
        let state = match ask(client, &order)? {
            Reply::Accounting(state) => state,
            other => return unexpected(&other),
        };
        if is_flush && state.spool.rows > 0 {
            outcome = Outcome::Failed;
        }
        if server.json { output::print(&as_json(&state)?) } else { output::print(&table(&state)) }
    })?;
    Ok(super::outcome(reached, outcome))
}

fn table(state: &AccountingState) -> String {
    let works = if state.works { "written" } else { "not written: rows go to the spool" };
    let mut text = format!("accounting: {works}\n");
    let mut row = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    row("to", &sentence(&state.place));
    row("written", &state.written.to_string());
    row("waiting", &format!("{} of {}", state.queued, state.queue));
    row("lost", &state.lost.to_string());
    let spool = &state.spool;
    row("spool", &sentence(&spool.file));
    let oldest = spool.oldest.map_or_else(String::new, |at| format!(", the oldest {}", ago(at)));
    row("", &format!("{} rows, {} of {} bytes{oldest}", spool.rows, spool.bytes, spool.most_bytes));
    row("", &format!("{} rows since the start", state.spooled));
    row("failures", &state.failures.to_string());
    if let Some(error) = &state.last_error {
        row("last error", &format!("{}: {}", ago(error.at), sentence(&error.message)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_node::control::{AccountingError, SpoolState};

    #[test]
    fn an_error_is_shown_whole_and_as_it_was_said() {
        let said = format!("mysql://u@db/calls: UPDATE command denied to user 'u'@'{}'", "h".repeat(200));
        let spool = SpoolState { file: "/var/l'été/rows".into(), rows: 1, bytes: 9, most_bytes: 10, oldest: None };
        let last_error = Some(AccountingError { at: 0, message: format!("{said}\n\u{1b}[2J") });
        let state = AccountingState {
            place: "mysql://u@db/calls".into(),
            works: false,
            written: 0,
            spooled: 1,
            lost: 0,
            failures: 1,
            queued: 0,
            queue: 9,
            spool,
            last_error,
        };
        let text = table(&state);
        assert!(text.contains(&format!(": {said}\\n\\u{{1b}}[2J\n")) && text.contains(" /var/l'été/rows\n"), "{text}");
    }
}
