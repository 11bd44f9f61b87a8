//! `strowger sets`: the data sets that the rules of the running server use.

use std::fmt::Write;

use serde_json::json;
use strowger_node::control::{ControlOrder, Done, Found, Reply, SetEntry, SetList, SetPage, SetReload, SetSummary};

use super::arguments::{
    ReloadSetsArguments, SearchSetArguments, ServerArgument, SetsArguments, SetsCommand, ShowSetArguments,
};
use super::{LONGEST_RELOAD, List, PAGE, ago, as_json, ask, printable, reach, unexpected};
use crate::output::{self, CommandOutcome};

pub(crate) fn sets(arguments: &SetsArguments) -> anyhow::Result<CommandOutcome> {
    match &arguments.command {
        SetsCommand::List(server) => list(server),
        SetsCommand::Show(arguments) => show(arguments),
        SetsCommand::Search(arguments) => search(arguments),
        SetsCommand::Reload(arguments) => reload(arguments),
    }
}

fn list(server: &ServerArgument) -> anyhow::Result<CommandOutcome> {
    reach(server, |client| {
        let SetList { sets } = match ask(client, &ControlOrder::Sets)? {
            Reply::Sets(list) => list,
            other => return unexpected(&other),
        };
        let heading = format!("{:<28} {:<9} {:>10} {:>12}  {:<14} from", "set", "kind", "entries", "bytes", "read");
        let mut list = List::new(server.json, "sets", heading);
        let line = |set: &SetSummary| {
            let SetSummary { name, kind, entries, memory_bytes, origin, read_at, error } = set;
            let read = read_at.map_or_else(String::new, ago);
            let error =
                error.as_ref().map_or_else(String::new, |error| format!("\n  not read since: {}", printable(error)));
            let (name, origin) = (printable(name), printable(origin));
            format!("{name:<28} {kind:<9} {entries:>10} {memory_bytes:>12}  {read:<14} {origin}{error}")
        };
        list.print(&sets, line)?;
        list.end()
    })
}

fn entry_line(entry: &SetEntry) -> String {
    let value = entry.value.as_deref().map(printable).unwrap_or_default();
    format!("{:<32} {value}", printable(&entry.key)).trim_end().to_owned()
}

fn show(arguments: &ShowSetArguments) -> anyhow::Result<CommandOutcome> {
    reach(&arguments.server, |client| {
        let limit = arguments.limit.unwrap_or(usize::MAX);
        let mut list = List::new(arguments.server.json, "entries", format!("{:<32} value", "key"));
        let mut from = None;
        loop {
            let (name, beginning) = (arguments.name.clone(), arguments.beginning.clone());
            let order = ControlOrder::Set { name, beginning, from, most: PAGE.min(limit - list.rows) };
            let SetPage { entries, next } = match ask(client, &order)? {
                Reply::Set(page) => page,
                other => return unexpected(&other),
            };
            let left = limit - list.rows;
            list.print(&entries[..entries.len().min(left)], entry_line)?;
            from = next;
            if from.is_none() || list.rows >= limit {
                return list.end();
            }
        }
    })
}

fn reload(arguments: &ReloadSetsArguments) -> anyhow::Result<CommandOutcome> {
    let ReloadSetsArguments { name, server } = arguments;
    let mut outcome = CommandOutcome::Done;
    let reached = reach(server, |client| {
        client.wait_for(LONGEST_RELOAD)?;
        match ask(client, &ControlOrder::ReloadSets { name: name.clone() })? {
            Reply::Done(Done::SetsReloaded { sets }) if server.json => output::print(&as_json(&sets)?),
            Reply::Done(Done::SetsReloaded { sets }) if sets.is_empty() => output::print(
                "no set was read: none has its entries outside of the configuration, or newer data came meanwhile\n",
            ),
            Reply::Done(Done::SetsReloaded { sets }) => {
                let line = |SetReload { name, origin, before, entries, changed }: &SetReload| {
                    let what =
                        if *changed { format!("{entries} entries, before {before}") } else { "as before".into() };
                    format!("{}: {what}, from {}\n", printable(name), printable(origin))
                };
                output::print(&sets.iter().map(line).collect::<String>())
            }
            Reply::Wrong(wrong) => {
                outcome = CommandOutcome::Failed;
                if server.json {
                    return output::print(&as_json(&json!({"refused": wrong.faults}))?);
                }
                output::report_text(&wrong.text);
                output::complain("the server keeps the sets that it has");
                Ok(())
            }
            other => unexpected(&other),
        }
    })?;
    Ok(super::outcome(reached, outcome))
}

fn search(arguments: &SearchSetArguments) -> anyhow::Result<CommandOutcome> {
    let mut outcome = CommandOutcome::Done;
    let reached = reach(&arguments.server, |client| {
        let order = ControlOrder::Search { name: arguments.name.clone(), key: arguments.key.clone() };
        let Found { entries } = match ask(client, &order)? {
            Reply::Found(found) => found,
            other => return unexpected(&other),
        };
        if entries.is_empty() {
            outcome = CommandOutcome::Failed;
        }
        if arguments.server.json {
            return output::print(&as_json(&entries)?);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        if entries.is_empty() {
            let _ = writeln!(text, "{} is not in {}", printable(&arguments.key), printable(&arguments.name));
        }
        for entry in &entries {
            let _ = writeln!(text, "{}", entry_line(entry));
        }
        output::print(&text)
    })?;
    Ok(super::outcome(reached, outcome))
}
