//! `strowger accounting`: the rows of the running server, its spool and its quarantine.

use std::fmt::Write;

use strowger_node::control::{AccountingState, ControlOrder, Reply};

use super::arguments::{AccountingArguments, AccountingCommand};
use super::{ago, as_json, ask, reach, sentence, unexpected};
use crate::output::{self, CommandOutcome};

pub(crate) fn accounting(arguments: &AccountingArguments) -> anyhow::Result<CommandOutcome> {
    let (server, order) = match &arguments.command {
        None => (&arguments.server, ControlOrder::Accounting),
        Some(AccountingCommand::Flush(server)) => (server, ControlOrder::FlushAccounting),
        Some(AccountingCommand::Retry(server)) => (server, ControlOrder::RetryAccounting),
    };
    let mut outcome = CommandOutcome::Done;
    let reached = reach(server, |client| {
        let state = match ask(client, &order)? {
            Reply::Accounting(state) => state,
            other => return unexpected(&other),
        };
        let left = match order {
            ControlOrder::FlushAccounting => state.spool.rows,
            ControlOrder::RetryAccounting => state.quarantine.rows,
            _ => 0,
        };
        if left > 0 {
            outcome = CommandOutcome::Failed;
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
    let quarantine = &state.quarantine;
    row("quarantine", &sentence(&quarantine.file));
    let oldest = quarantine.oldest.map_or_else(String::new, |at| format!(", the oldest {}", ago(at)));
    let (rows, bytes, most) = (quarantine.rows, quarantine.bytes, quarantine.most_bytes);
    row("", &format!("{rows} refused rows, {bytes} of {most} bytes{oldest}"));
    row("", &format!("{} rows since the start", quarantine.since_start));
    if let Some(reason) = &quarantine.last_reason {
        row("", &format!("last reason: {}", sentence(reason)));
    }
    row("failures", &state.failures.to_string());
    if let Some(error) = &state.last_error {
        row("last error", &format!("{}: {}", ago(error.at), sentence(&error.message)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_node::control::{AccountingError, QuarantineState, SpoolState};

    #[test]
    fn an_error_is_shown_whole_and_as_it_was_said() {
        let said = format!("mysql://u@db/calls: UPDATE command denied to user 'u'@'{}'", "h".repeat(200));
        let spool = SpoolState { file: "/var/l'été/rows".into(), rows: 1, bytes: 9, most_bytes: 10, oldest: None };
        let quarantine = QuarantineState {
            file: "/var/rows-quarantine".into(),
            rows: 2,
            bytes: 9,
            most_bytes: 10,
            oldest: None,
            last_reason: Some("too long\n".into()),
            since_start: 3,
        };
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
            quarantine,
            last_error,
        };
        let text = table(&state);
        assert!(text.contains(&format!(": {said}\\n\\u{{1b}}[2J\n")) && text.contains(" /var/l'été/rows\n"), "{text}");
        assert!(text.contains(" 2 refused rows, 9 of 10 bytes\n") && text.contains(" last reason: too long"), "{text}");
    }
}
