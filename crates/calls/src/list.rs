//! Tracked calls as operators see them, and the end of calls by operators.

use crate::call::Call;
use crate::cdr::Ender;
use crate::effect::CallEffect;
use crate::environment::Environment;
use crate::table::CallTable;
use crate::times::moment;
use std::net::SocketAddr;
use std::path::PathBuf;
use strowger_core::Now;
use strowger_store::accounting::PartyMedia;

/// Maximum number of slots that are examined for one page.
const LOOKS: u32 = 1_024;

/// Page of the tracked calls of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPage {
    /// Calls in no particular order.
    pub calls: Vec<CallView>,
    /// Start of the next page; `None`: there are no more calls.
    pub next: Option<u32>,
}

/// Tracked call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// Number by which the call can be ended. It is the same in all shards while the call exists.
    pub id: u64,
    /// URI of From in its INVITE.
    pub caller: Vec<u8>,
    /// URI of To in its INVITE.
    pub callee: Vec<u8>,
    /// Call-ID.
    pub call_id: Vec<u8>,
    /// Call-ID of the far leg; empty if the parties have one dialog.
    pub far_call_id: Vec<u8>,
    /// File in which the caller is recorded; only in the view of a single call.
    pub recording: Option<PathBuf>,
    /// State of the call.
    pub state: CallState,
    /// Milliseconds since its INVITE.
    pub age: u64,
    /// Milliseconds since its first answer.
    pub answered: Option<u64>,
    /// Dialogs of the callees that rang or answered and have not ended.
    pub dialogs: Vec<DialogView>,
    /// Quality of the media of caller and callee, as far as it is known; only in the view of a single call.
    pub media: PartyMedia,
    /// Way of the media of caller and callee, if this server receives them now; only in the view of a single call.
    pub paths: [Option<MediaPath>; 2],
    /// Set if the media thread was asked for the quality, and its answer has not come yet.
    pub awaits_media: bool,
}

/// Way of the media between this server and a party.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaPath {
    /// Address that the party has described; `None`: it is on hold without one.
    pub expected: Option<SocketAddr>,
    /// Packets from other addresses than those that may send.
    pub refused: u64,
    /// Source of the last one of them.
    pub refused_from: Option<SocketAddr>,
    /// All packets of the party that went no further, those from other addresses among them.
    pub dropped: u64,
    /// Packets sent to the party.
    pub sent: u64,
    /// Milliseconds since the last packet of the party; `None`: it has sent none.
    pub silence: Option<u64>,
}

/// Dialog of a tracked call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialogView {
    /// Tag of the callee.
    pub tag: Vec<u8>,
    /// Contact of the callee, as sent to the caller; empty before the answer.
    pub contact: Vec<u8>,
    /// Milliseconds since its answer.
    pub answered: Option<u64>,
}

/// State of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// No callee rings.
    Calling,
    /// At least one callee rings.
    Ringing,
    /// At least one callee has answered.
    Answered,
    /// A BYE of each dialog is in progress.
    Ending,
}

impl CallState {
    /// Returns the state in lower case.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Calling => "calling",
            Self::Ringing => "ringing",
            Self::Answered => "answered",
            Self::Ending => "ending",
        }
    }
}

impl Call {
    fn state(&self) -> CallState {
        let mut answered = self.dialogs.iter().filter(|dialog| dialog.answer.is_some()).peekable();
        match (answered.peek().is_some(), self.dialogs.is_empty()) {
            (true, _) if answered.all(|dialog| dialog.is_ending()) => CallState::Ending,
            (true, _) => CallState::Answered,
            (false, false) => CallState::Ringing,
            (false, true) => CallState::Calling,
        }
    }

    fn view(&self, now: Now) -> CallView {
        let age = |at: i64| moment(now).saturating_sub(at).max(0).cast_unsigned();
        let dialogs = self.dialogs.iter().map(|dialog| DialogView {
            tag: dialog.tag().to_vec(),
            contact: dialog.contact().to_vec(),
            answered: dialog.answer.map(|answer| age(answer.at)),
        });
        let dialogs: Vec<DialogView> = dialogs.collect();
        CallView {
            id: self.key,
            caller: self.caller().to_vec(),
            callee: self.callee().to_vec(),
            call_id: self.call_id().to_vec(),
            far_call_id: self.far_call_id().to_vec(),
            recording: None,
            state: self.state(),
            age: age(self.began),
            answered: dialogs.iter().filter_map(|dialog| dialog.answered).max(),
            dialogs,
            media: [None; 2],
            paths: [None; 2],
            awaits_media: false,
        }
    }
}

impl CallTable {
    /// Returns a page of at most `most` tracked calls, beginning with this slot. A page may be short although more
    /// calls follow. `party`: text that the URI of the caller or callee must contain.
    pub fn list_calls(&self, now: Now, from: u32, most: usize, party: Option<&[u8]>) -> CallPage {
        let calls = &self.calls;
        let mut page = CallPage::default();
        for slot in from..calls.end() {
            if slot - from >= LOOKS || page.calls.len() >= most {
                page.next = Some(slot);
                break;
            }
            let Some((_, call)) = calls.at(slot).filter(|(_, call)| call.tracked) else { continue };
            let names =
                |text: &[u8]| party.is_none_or(|party| text.windows(party.len().max(1)).any(|part| part == party));
            if names(call.caller()) || names(call.callee()) {
                page.calls.push(call.view(now));
            }
        }
        page
    }

    /// Returns the tracked call with this id. It has the quality of its media if their session has ended.
    pub fn show_call(&self, now: Now, id: u64) -> Option<CallView> {
        let call = self.get(id).filter(|call| call.tracked)?;
        let media = call.account.as_ref().map_or([None; 2], |account| account.media());
        Some(CallView { media, ..call.view(now) })
    }

    /// Ends a tracked call: both parties of each answered dialog get a BYE, ringing callees a CANCEL. The requests are
    /// emitted as [`CallEffect`]s. Returns whether a call has this id.
    pub fn end_call(&mut self, env: &mut Environment<'_>, id: u64) -> bool {
        self.end_as(env, id, Ender::Operator)
    }

    /// Ends a tracked call as [`CallTable::end_call`] does, because this server cannot carry it any further.
    pub fn end_carried(&mut self, env: &mut Environment<'_>, id: u64) -> bool {
        self.end_as(env, id, Ender::Server)
    }

    fn end_as(&mut self, env: &mut Environment<'_>, id: u64, by: Ender) -> bool {
        let Some(call) = self.get(id).filter(|call| call.tracked) else { return false };
        let (context, legs) = (call.context(), call.legs);
        if let Some((account, _)) = self.account(id) {
            account.is_ended_by(by);
        }
        let at = moment(env.now);
        self.end_dialogs(env, id, (by, at, [false; 2]), |dialog| dialog.answer.is_some());
        self.effects.push(CallEffect::Cancel { context, legs });
        true
    }
}
