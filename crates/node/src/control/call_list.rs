//! Tracked calls, as the control socket shows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page of tracked calls, and the place of the next one; `None` at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallList {
    /// Calls in no particular order.
    pub calls: Vec<Call>,
    /// Place of the next page of the list of calls.
    pub next: Option<u64>,
    /// True: the configuration tracks calls. False: the list does not show the calls in progress; set `dialogs.track = true`.
    pub tracked: bool,
}

/// A tracked call. Text of peers is unchanged, except for replaced bytes that are not UTF-8.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    /// Id by which it is shown and ended, while it lasts.
    pub id: String,
    /// The URI of From.
    pub caller: String,
    /// The URI of To.
    pub callee: String,
    /// Its Call-ID.
    pub call_id: String,
    /// Call-ID of the call to the callee, if this server has made that call itself; else empty.
    pub far_call_id: String,
    /// File on this machine in which the caller is recorded, if a rule says so; a list of calls leaves it out.
    pub recording: Option<String>,
    /// `calling`, `ringing`, `answered` or `ending`.
    pub state: String,
    /// Time since its INVITE.
    pub seconds: f64,
    /// Time since its answer.
    pub answered_seconds: Option<f64>,
    /// Dialogs, one for each callee that rang or answered and has not ended.
    pub dialogs: Vec<Dialog>,
    /// Media that this server has received so far, by party; a list of calls leaves them out.
    pub media: Vec<CallMedia>,
}

/// Media that this server has received from a party of a call, of the first stream of the description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallMedia {
    /// `caller` or `callee`.
    pub party: String,
    /// Packets, duplicates included.
    pub packets: u64,
    /// Packets that never came.
    pub lost: u64,
    /// Packets that came after one with a higher sequence number.
    pub reordered: u64,
    /// Packets that came before.
    pub doubled: u64,
    /// Mean interarrival jitter (RFC 3550 section 6.4.1), milliseconds.
    pub jitter_ms: f64,
    /// Largest interarrival jitter, milliseconds.
    pub max_jitter_ms: f64,
    /// Largest time between two packets, milliseconds.
    pub max_delay_ms: f64,
    /// Transmission rating R of the E-model (ITU-T G.107), 0 to 100, by the loss alone; null: it is not known for the codec.
    pub rating: Option<f64>,
    /// Mean opinion score of the rating, 1 to 4.5.
    pub mos: Option<f64>,
    /// Way of the packets; null: the session has ended.
    pub path: Option<MediaPath>,
}

/// Way of the packets between this server and a party: why the party is not heard, or does not hear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MediaPath {
    /// Address and port in the description of the party; null: it has none, on hold.
    pub expected: Option<String>,
    /// Packets that came from another address, and were dropped for that.
    pub refused: u64,
    /// Address and port from which the last one of them came.
    pub refused_from: Option<String>,
    /// All packets that were dropped: refused ones, those of formats that were not agreed, and those above a rate.
    pub dropped: u64,
    /// Packets that this server has sent to the party.
    pub sent: u64,
    /// Time since the last packet of the party; null: it has sent none.
    pub silent_seconds: Option<f64>,
}

/// A dialog of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dialog {
    /// The callee's tag.
    pub tag: String,
    /// The callee's Contact; empty before its answer.
    pub contact: String,
    /// Time since its answer.
    pub answered_seconds: Option<f64>,
}
