//! Commands to a running shard, and its events.

use crate::command::LinkEvent;
use crate::engine::helper::HelperResult;
use crate::engine::pace::Part;
use crate::engine::run::Run;
use crate::engine::script::Script;
use crate::engine::shard_context::Halt;
use crate::engine::sipp_stats::SippStats;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};
use strowger_measure::ShardRecorder;

/// Events that a shard sends to the thread that started it.
#[derive(Debug)]
pub enum Event {
    /// No call is open and none will begin. Carries the counts of this shard.
    Finished(Box<SippStats>),
    /// An action asked for the end of the run.
    Halt(Halt),
}

/// Commands to a running shard.
#[derive(Debug)]
pub enum ShardCommand {
    /// Sets the rate, calls per second.
    Rate(f64),
    /// Replaces the remaining profile.
    Profile(Vec<Part>),
    /// Sets the limit of concurrent calls.
    Limit(u64),
    /// Sets the number of users, where calls come by users.
    Users(u32),
    /// Makes the connection that calls will use, so that none of them waits for it.
    Connect,
    /// Begins the schedule at this time of the engine's clock (µs), or now; see [`Traffic::waiting`](super::Traffic::waiting).
    Begin(Option<u64>),
    /// Makes other calls on the same sockets before the schedule, for which the shard waits. The sockets stay open.
    Ahead(Box<Following>),
    /// Stops new calls (true) or resumes them (false).
    Pause(bool),
    /// Stops new calls permanently.
    Quit,
    /// Stops new calls, and refuses new calls of peers. Open calls continue, except those that only wait for
    /// retransmissions. The end of calls of the out-of-call scenario is awaited.
    Close,
    /// Stops new calls and ends open ones with a CANCEL or a BYE, which is sent again until it is answered. The sender
    /// of the command bounds that time with [`ShardCommand::End`].
    Leave,
    /// Ends every open call now, with or without a message to the peer.
    End { goodbye: bool },
    /// Delivers a command from another controller, or its departure (third party call control).
    LinkEvent(LinkEvent),
    /// Delivers the result of work outside the shard.
    Helped(HelperResult),
    /// Ends open calls without a message and begins other calls on the same sockets.
    Follow(Box<Following>),
    /// Sends the counts to this channel.
    Report(SyncSender<SippStats>),
}

/// Calls on the sockets of the run, before or after the calls of the run. The out-of-call scenario remains. No call of a
/// peer is accepted after the run.
#[derive(Debug)]
pub struct Following {
    pub run: Arc<Run>,
    pub script: Arc<Script>,
    /// Recorder of these calls; the run counts none of them.
    pub recorder: ShardRecorder,
    /// Receiver of the events of these calls.
    pub events: Sender<Event>,
}
