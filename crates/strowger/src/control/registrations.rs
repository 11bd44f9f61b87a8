//! `strowger registrations`: lists and ends registrations with the running server.

use clap::{Args, Subcommand};
use serde_json::json;
use strowger_node::control::{ControlOrder, Done, Page, Registration, Reply};

use super::arguments::ServerArgument;
use super::{List, PAGE, as_json, ask, duration, printable, reach, reach_at, unexpected};
use crate::cli::{AddressOfRecord, ConfigArgument, address_of_record};
use crate::output::{self, CommandOutcome};

/// List who is registered with the running server, and where; end registrations.
///
/// The list is read page by page while calls continue: a registration that is added or removed meanwhile may be in the
/// list or not.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  strowger registrations
  strowger registrations --user alice@example.org
  strowger registrations --limit 100 --json
  strowger registrations remove alice@example.org
  strowger registrations remove alice@example.org sip:alice@192.0.2.7:5060

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached."
)]
pub(crate) struct RegistrationsArguments {
    #[command(subcommand)]
    command: Option<RegistrationsCommand>,
    /// List the registrations of this user only.
    #[arg(long, value_name = "NAME@DOMAIN", value_parser = address_of_record)]
    user: Option<AddressOfRecord>,
    /// Maximum number of registrations [default: all].
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
    #[command(flatten)]
    server: ServerArgument,
}

#[derive(Debug, Subcommand)]
enum RegistrationsCommand {
    /// End the registrations of a user, or one of them.
    ///
    /// New calls to the user do not reach its phones; existing calls continue. Without CONTACT the route tokens of the
    /// user end too: its phones need the password for the next request within a call or subscription, except BYE and
    /// ACK. A phone that has the password of the user registers again when its registration is due for renewal. To
    /// prevent this, first change the password (`strowger user passwd`) or remove the user, also in the table of
    /// another program if the users are there.
    #[command(after_long_help = "\
Examples:
  strowger registrations remove alice@example.org
  strowger registrations remove alice@example.org sip:alice@192.0.2.7:5060
  strowger registrations remove alice@example.org --json

Exit codes: 0 done, 1 refused or failed (the user has no such contact),
2 the command line cannot be used, 3 no server reached.")]
    Remove(RemoveArguments),
}

#[derive(Debug, Args)]
struct RemoveArguments {
    /// The user.
    #[arg(value_name = "NAME@DOMAIN", value_parser = address_of_record)]
    user: AddressOfRecord,
    /// End only the registration with this contact, as `strowger registrations` shows it [default: all].
    #[arg(value_name = "CONTACT")]
    contact: Option<String>,
    #[command(flatten)]
    server: ServerArgument,
}

pub(crate) fn registrations(arguments: &RegistrationsArguments) -> anyhow::Result<CommandOutcome> {
    match &arguments.command {
        Some(RegistrationsCommand::Remove(arguments)) => remove(arguments),
        None => list(arguments),
    }
}

fn remove(arguments: &RemoveArguments) -> anyhow::Result<CommandOutcome> {
    let RemoveArguments { user, contact, server } = arguments;
    reach(server, |client| {
        let order = ControlOrder::RemoveRegistrations { user: user.to_string(), contact: contact.clone() };
        match ask(client, &order)? {
            Reply::Done(Done::Unregistered { registrations }) if server.json => {
                output::print(&as_json(&json!({"removed": registrations}))?)
            }
            Reply::Done(Done::Unregistered { registrations }) => {
                output::print(&format!("registrations removed: {registrations}\n"))
            }
            other => unexpected(&other),
        }
    })
}

/// Ends the registrations of a user whose password was changed. First the server reads its database again, so that no phone registers with
/// the old password.
pub(crate) fn end_registrations(config: &ConfigArgument, user: &AddressOfRecord) -> anyhow::Result<CommandOutcome> {
    let user = user.to_string();
    reach_at(None, config, |client| {
        // The server refuses this if it has no such cache.
        client.ask(&ControlOrder::DropSubscribers { user: Some(user.clone()) })?;
        match ask(client, &ControlOrder::RemoveRegistrations { user: user.clone(), contact: None })? {
            Reply::Done(Done::Unregistered { registrations }) => {
                output::print(&format!("registrations removed: {registrations}\n"))
            }
            other => unexpected(&other),
        }
    })
}

fn list(arguments: &RegistrationsArguments) -> anyhow::Result<CommandOutcome> {
    reach(&arguments.server, |client| {
        let limit = arguments.limit.unwrap_or(usize::MAX);
        let user = arguments.user.as_ref().map(ToString::to_string);
        let heading = format!("{:<28} {:<44} {:<28} {:>10}  device", "user", "contact", "from", "expires in");
        let mut list = List::new(arguments.server.json, "registrations", heading);
        let mut from = None;
        loop {
            let order = ControlOrder::Registrations { user: user.clone(), from, most: PAGE.min(limit - list.rows) };
            let Page { registrations, next } = match ask(client, &order)? {
                Reply::Registrations(page) => page,
                other => return unexpected(&other),
            };
            let left = limit - list.rows;
            list.print(&registrations[..registrations.len().min(left)], registration_line)?;
            from = next;
            if from.is_none() || list.rows >= limit {
                return list.end();
            }
        }
    })
}

fn registration_line(row: &Registration) -> String {
    let received = row.received.map(|address| address.to_string()).unwrap_or_default();
    let from = format!("{} {received}", row.transport.as_deref().unwrap_or_default());
    let [user, contact, agent] = [&row.user, &row.contact, &row.user_agent].map(|text| printable(text));
    let expires = duration(row.expires_in_seconds);
    format!("{user:<28} {contact:<44} {from:<28} {expires:>10}  {agent}")
}
