//! `strowger sets`: the data sets that the rules of the running server ask.

use std::fmt::Write;

use strowger_node::control::{Found, Order, Reply, SetEntry, SetList, SetPage, SetSummary};

use super::arguments::{SearchSetArguments, ServerArgument, SetsArguments, SetsCommand, ShowSetArguments};
use super::{List, PAGE, as_json, ask, printable, reach, unexpected};
use crate::output::{self, Outcome};

pub(crate) fn sets(arguments: &SetsArguments) -> anyhow::Result<Outcome> {
    match &arguments.command {
        SetsCommand::List(server) => list(server),
        SetsCommand::Show(arguments) => show(arguments),
        SetsCommand::Search(arguments) => search(arguments),
    }
}

fn list(server: &ServerArgument) -> anyhow::Result<Outcome> {
    reach(server, |client| {
        let SetList { sets } = match ask(client, &Order::Sets)? {
            Reply::Sets(list) => list,
            other => return unexpected(&other),
        };
        let heading = format!("{:<28} {:<9} {:>10} {:>12}", "set", "kind", "entries", "bytes");
        let mut list = List::new(server.json, "sets", heading);
        let line = |set: &SetSummary| {
            format!("{:<28} {:<9} {:>10} {:>12}", printable(&set.name), set.kind, set.entries, set.memory_bytes)
        };
        list.print(&sets, line)?;
        list.end()
    })
}

fn entry_line(entry: &SetEntry) -> String {
    let value = entry.value.as_deref().map(printable).unwrap_or_default();
    format!("{:<32} {value}", printable(&entry.key)).trim_end().to_owned()
}

fn show(arguments: &ShowSetArguments) -> anyhow::Result<Outcome> {
    reach(&arguments.server, |client| {
        let limit = arguments.limit.unwrap_or(usize::MAX);
        let mut list = List::new(arguments.server.json, "entries", format!("{:<32} value", "key"));
        let mut from = None;
        loop {
            let (name, beginning) = (arguments.name.clone(), arguments.beginning.clone());
            let order = Order::Set { name, beginning, from, most: PAGE.min(limit - list.rows) };
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

fn search(arguments: &SearchSetArguments) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Done;
    let reached = reach(&arguments.server, |client| {
        let order = Order::Search { name: arguments.name.clone(), key: arguments.key.clone() };
        let Found { entries } = match ask(client, &order)? {
            Reply::Found(found) => found,
            other => return unexpected(&other),
        };
        if entries.is_empty() {
            outcome = Outcome::Failed;
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
    Ok(if reached == Outcome::Done { outcome } else { reached })
}
