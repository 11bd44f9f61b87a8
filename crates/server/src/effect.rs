//! Actions that an engine requests.

#[cfg(doc)]
use crate::engine::{Engine, EngineInput};
use crate::question::HostKey;
use std::net::{IpAddr, SocketAddr};
use strowger_core::{Flow, Transport};
use strowger_media::session::SessionOrder;
use strowger_store::accounting::Row;

/// Action that an engine requests, other than sending a message. The owner carries it out when the call of the engine
/// returns.
#[derive(Debug)]
pub enum Effect {
    /// Connection for messages to this address, while it lives (RFC 5923).
    Alias {
        /// Connection of the request.
        flow: Flow,
        /// Transport of the connection.
        transport: Transport,
        /// Source address of the peer, with the port of its Via.
        address: SocketAddr,
    },
    /// UDP address whose last message is proved to come from the peer there.
    SourceVerified(SocketAddr),
    /// Name look-up for a request; the answer is [`EngineInput::Resolved`].
    Resolve {
        /// Ticket of the suspended request.
        ticket: u64,
        /// Source of the request, by which log lines about failed look-ups are counted.
        source: IpAddr,
        /// Name to look up.
        name: HostKey,
    },
    /// Order to the first shard to look for bindings that need pings.
    WakePings,
    /// Limit of the silence of a connection: it is closed if nothing arrives for this time (RFC 5626 section 5.4). It
    /// replaces an earlier limit.
    LimitSilence {
        /// Connection of the REGISTER.
        flow: Flow,
        /// Longest silence in milliseconds.
        longest: u64,
        /// End of the limit, in milliseconds of [`Now::mono`](strowger_core::Now::mono); 0: there is no limit any more.
        until: u64,
    },
    /// Row of accounting to be written.
    Account(Box<Row>),
    /// State of a call for the next process ([`Engine::take_over`]). It replaces earlier state of the call.
    PersistCall {
        /// Key of the call, equal in all shards.
        call: u64,
        /// State, read by [`read_kept`](strowger_calls::read_kept).
        state: Box<[u8]>,
    },
    /// End of a call that may have been kept. The rows of the call have been sent to the writer.
    FinishCall {
        /// Key of the call.
        call: u64,
        /// Copy of the rows, in case the sent rows are lost; read by [`Row::read_all`].
        rows: Box<[u8]>,
    },
    /// End of a kept call.
    DeleteCall {
        /// Key of the call.
        call: u64,
    },
    /// Order to a media thread; the answers are [`EngineInput::Media`].
    Media {
        /// Number of the thread; `None`: that of the ports, or any for more ports.
        thread: Option<u16>,
        /// The order.
        order: SessionOrder,
    },
    /// Hint that memory may be returned to the operating system, because the load has dropped much.
    GiveBack,
}
