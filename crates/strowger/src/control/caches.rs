//! `strowger caches`: cached answers of the running server about its subscribers, and its caches.

use std::fmt::Write;

use serde_json::json;
use strowger_node::control::{
    CacheList, CacheSummary, CachedUser, ControlOrder, Done, KeptAnswer, Reply, SubscriberCache,
};

use super::arguments::{
    CacheEntryArguments, CachedUserArguments, CachesArguments, CachesCommand, DropSubscribersArguments, ServerArgument,
};
use super::{ago, as_json, ask, printable, reach, sentence, unexpected};
use crate::output::{self, CommandOutcome};

pub(crate) fn caches(arguments: &CachesArguments) -> anyhow::Result<CommandOutcome> {
    match &arguments.command {
        CachesCommand::List(server) => list(server),
        CachesCommand::User(arguments) => user(arguments),
        CachesCommand::Drop(arguments) => drop_subscribers(arguments),
        CachesCommand::Get(arguments) => get(arguments),
        CachesCommand::Remove(arguments) => remove(arguments),
    }
}

fn list(server: &ServerArgument) -> anyhow::Result<CommandOutcome> {
    reach(server, |client| match ask(client, &ControlOrder::Caches)? {
        Reply::Caches(list) if server.json => output::print(&as_json(&list)?),
        Reply::Caches(list) => output::print(&table(&list)),
        other => unexpected(&other),
    })
}

fn table(list: &CacheList) -> String {
    let mut text = format!(
        "{:<24} {:<9} {:>10} {:>12} {:>11} {:>11} {:>9}  state\n",
        "cache", "engine", "entries", "bytes", "hits", "misses", "errors"
    );
    let mut row = |name: &str, engine: &str, [entries, bytes]: [Option<u64>; 2], counts: [u64; 3], state: &str| {
        let [entries, bytes] = [entries, bytes].map(|n| n.map_or_else(|| "-".into(), |n| n.to_string()));
        let [hits, misses, errors] = counts;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{name:<24} {engine:<9} {entries:>10} {bytes:>12} {hits:>11} {misses:>11} {errors:>9}  {state}"
        );
    };
    if let Some(SubscriberCache { state, entries, hits, misses, late, failed, .. }) = &list.subscribers {
        row("(subscribers)", "memory", [Some(*entries), None], [*hits, *misses, late + failed], state);
    }
    for cache in &list.caches {
        let CacheSummary { name, engine, state, entries, memory_bytes, hits, misses, errors, .. } = cache;
        row(&printable(name), engine, [*entries, *memory_bytes], [*hits, *misses, *errors], state);
    }
    text
}

fn user(arguments: &CachedUserArguments) -> anyhow::Result<CommandOutcome> {
    let mut outcome = CommandOutcome::Done;
    let reached = reach(&arguments.server, |client| {
        let found = match ask(client, &ControlOrder::CachedUser { user: arguments.user.to_string() })? {
            Reply::CachedUser(found) => found,
            other => return unexpected(&other),
        };
        if found.kept.is_empty() {
            outcome = CommandOutcome::Failed;
        }
        if arguments.server.json { output::print(&as_json(&found)?) } else { output::print(&kept(&found)) }
    })?;
    Ok(super::outcome(reached, outcome))
}

fn kept(found: &CachedUser) -> String {
    let mut text = String::new();
    if found.kept.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "nothing is kept of {}", printable(&found.user));
    }
    for KeptAnswer { place, question, name, within, exists, algorithms, fresh, read_at } in &found.kept {
        let what = match (&**question, exists) {
            (_, false) => "there is none".into(),
            ("credential" | "registered", true) => format!("HA1 for {}", algorithms.join(", ")),
            (_, true) => "there is one".into(),
        };
        let age = match (read_at, fresh) {
            (Some(at), _) => format!(", read {}", ago(*at)),
            (None, true) => String::new(),
            (None, false) => ", past its lifetime".into(),
        };
        let [place, name, within] = [place, name, within].map(|text| printable(text));
        let _ = writeln!(text, "{place:<16} {question:<10} {name} in {within}: {what}{age}");
    }
    if let Some(error) = &found.error {
        let _ = writeln!(text, "{}", sentence(error));
    }
    text
}

fn drop_subscribers(arguments: &DropSubscribersArguments) -> anyhow::Result<CommandOutcome> {
    let user = arguments.user.as_ref().map(ToString::to_string);
    reach(&arguments.server, |client| match ask(client, &ControlOrder::DropSubscribers { user })? {
        Reply::Done(Done::Dropped { answers }) if arguments.server.json => {
            output::print(&as_json(&json!({"dropped": answers}))?)
        }
        Reply::Done(Done::Dropped { answers }) => output::print(&format!("answers dropped: {answers}\n")),
        other => unexpected(&other),
    })
}

fn get(arguments: &CacheEntryArguments) -> anyhow::Result<CommandOutcome> {
    let CacheEntryArguments { cache, key, server } = arguments;
    let order = ControlOrder::CacheEntry { cache: cache.clone(), key: key.clone() };
    reach(server, |client| match ask(client, &order)? {
        Reply::CacheEntry(entry) if server.json => output::print(&as_json(&entry)?),
        Reply::CacheEntry(entry) => {
            let (key, cache) = (printable(&entry.key), printable(&entry.cache));
            output::print(&format!("{key} is in {cache}, with a value of {} bytes\n", entry.value_bytes))
        }
        other => unexpected(&other),
    })
}

fn remove(arguments: &CacheEntryArguments) -> anyhow::Result<CommandOutcome> {
    let CacheEntryArguments { cache, key, server } = arguments;
    let order = ControlOrder::DropEntry { cache: cache.clone(), key: key.clone() };
    reach(server, |client| match ask(client, &order)? {
        Reply::Done(Done::Removed { was_there }) if server.json => {
            output::print(&as_json(&json!({"was_there": was_there}))?)
        }
        Reply::Done(Done::Removed { was_there: true }) => output::print("removed\n"),
        Reply::Done(Done::Removed { was_there: false }) => {
            output::print(&format!("{} was not in {}\n", printable(key), printable(cache)))
        }
        other => unexpected(&other),
    })
}
