//! Session of a call: its streams, between the peers of two dialogs, or between one peer and this server.

mod order;

pub use order::{
    PayloadFormat, PortPair, SessionEnd, SessionEvent, SessionKey, SessionOrder, Side, StreamKind, StreamOrder, StreamPeer, StreamReport,
};
