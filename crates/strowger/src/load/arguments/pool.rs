//! Options of sockets and connections.

use clap::Args;
use strowger_load::campaign::period;

use super::values::{Apart, apart};
use crate::cli::whole;

#[derive(Debug, Args)]
#[command(next_help_heading = "Traffic")]
pub(crate) struct Pool {
    /// Sockets and connections: one for all calls of a generator, per-user, or per-call, each with a port of its own. A
    /// number instead sets the number of generators, each with a thread of its own.
    #[arg(long, value_name = "HOW", default_value = "one", value_parser = apart)]
    pub connections: Apart,
    /// Maximum number of sockets and connections that per-user and per-call open at once; further calls share them
    /// [default: the number that the system allows].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=u64::from(u32::MAX)))]
    pub max_sockets: Option<u32>,
    /// Connect each user before the schedule, RATE users a second, and hold the connections for the calls (--connections
    /// per-user): each user of --users registers; each line of the first --inf file makes one call of the document.
    #[arg(long, value_name = "RATE", value_parser = period::rate)]
    pub connect_rate: Option<f64>,
    /// Calls take the users of --users at random, not in turn. (A file of --inf has RANDOM in its first line instead.)
    #[arg(long, requires = "users")]
    pub random_users: bool,
}
