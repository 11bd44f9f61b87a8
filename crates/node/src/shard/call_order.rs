//! Orders of an operator about the tracked calls of a shard.

use std::sync::mpsc;
use strowger_calls::{CallPage, CallView};
use strowger_core::{Now, Outbox};
use strowger_server::engine::Engine;
use tokio::sync::oneshot;

/// An operator's order about the tracked calls of a shard. Without a reply the shard has ended or is stuck.
#[derive(Debug)]
pub enum CallOrder {
    /// Lists calls; see [`Engine::list_calls`].
    List {
        /// Begin of the page.
        from: u32,
        /// Maximum number of calls on the page.
        most: usize,
        /// Part of the caller's or the callee's URI.
        party: Option<Vec<u8>>,
        /// Receives the page.
        reply: oneshot::Sender<CallPage>,
    },
    /// Shows a call; see [`Engine::show_call`].
    Show {
        /// [`CallView::id`].
        id: u64,
        /// Receives the call.
        reply: oneshot::Sender<Option<CallView>>,
    },
    /// Ends a call; see [`Engine::end_call`].
    End {
        /// [`CallView::id`].
        id: u64,
        /// Tells whether the call existed. If the receiver is gone, no call is ended: the operator has been told so.
        reply: oneshot::Sender<Option<()>>,
    },
    /// Ends the calls with media that no next process continues; see [`Engine::end_unkept`].
    EndUnkept {
        /// Receives the number of those that are left.
        reply: mpsc::Sender<usize>,
    },
}

impl CallOrder {
    /// Carries out the order. If the operator no longer waits for the reply, ends no call and sends no reply.
    pub(super) fn carry_out(self, engine: &mut Engine, now: Now, out: &mut Outbox) {
        match self {
            Self::List { from, most, party, reply } => {
                let _ = reply.send(engine.list_calls(now, from, most, party.as_deref()));
            }
            Self::Show { id, reply } => {
                let _ = reply.send(engine.show_call(now, id));
            }
            Self::End { reply, .. } if reply.is_closed() => (),
            Self::End { id, reply } => {
                let _ = reply.send(engine.end_call(now, id, out).then_some(()));
            }
            Self::EndUnkept { reply } => {
                let _ = reply.send(engine.end_unkept(now, out));
            }
        }
    }
}
