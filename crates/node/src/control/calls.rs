//! Orders about tracked calls: each shard is asked for its own calls, page by page.

use super::{Call, CallList, CallMedia, Controlled, Dialog, Done, MediaPath, Reply};
use crate::shard::{CallOrder, Input};
use std::time::Duration;
use strowger_calls::{CallView, DialogView};
use strowger_store::accounting::MediaQuality;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Longest wait for a shard. It answers between two rounds, unless it is stuck or has ended.
const SOON: Duration = Duration::from_secs(2);

/// Time between two questions about a call whose media thread was asked for its figures, and number of questions. A media thread looks at its
/// orders once in a few milliseconds.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: usize = 10;

/// Maximum number of calls that a shard copies between two rounds.
const SLICE: usize = 64;

impl Controlled {
    /// Returns a page of calls. The position of a page has the number of the shard in the upper 32 bits, and the
    /// position within the shard in the lower bits. A call that moves to another shard meanwhile may appear twice or
    /// not at all.
    pub(super) async fn calls(&self, party: Option<String>, from: Option<u64>, most: usize) -> Reply {
        let from = from.unwrap_or(0);
        let (mut shard, mut place) = ((from >> 32) as usize, from as u32);
        let mut calls = Vec::new();
        while calls.len() < most && shard < self.metrics.handle().shards() {
            let (most, party) = (SLICE.min(most - calls.len()), party.clone().map(String::into_bytes));
            let page = self.ask(shard, |reply| CallOrder::List { from: place, most, party, reply });
            let Ok(Ok(page)) = timeout(SOON, page).await else { return silent(shard) };
            calls.extend(page.calls.into_iter().map(Call::from));
            (shard, place) = page.next.map_or((shard + 1, 0), |next| (shard, next));
        }
        let is_end = shard >= self.metrics.handle().shards();
        let next = (!is_end).then_some((shard as u64) << 32 | u64::from(place));
        Reply::Calls(CallList { calls, next, tracked: self.shared.policy().config.tracks_calls() })
    }

    pub(super) async fn call(&self, id: &str) -> Reply {
        let mut looks = 0;
        loop {
            let view = match self.ask_all(id, |id, reply| CallOrder::Show { id, reply }).await {
                Ok(view) => view,
                Err(refusal) => return refusal,
            };
            looks += 1;
            // The first question asks the media thread.
            if !view.awaits_media || looks == LOOKS {
                return Reply::Call(Box::new(view.into()));
            }
            sleep(LOOK).await;
        }
    }

    pub(super) async fn end_call(&self, id: String) -> Reply {
        match self.ask_all(&id, |id, reply| CallOrder::End { id, reply }).await {
            Ok(()) => {
                tracing::info!(id, "call ended by command");
                Reply::Done(Done::Ended { id })
            }
            Err(refusal) => refusal,
        }
    }

    fn ask<T>(&self, shard: usize, order: impl FnOnce(oneshot::Sender<T>) -> CallOrder) -> oneshot::Receiver<T> {
        let (reply, replied) = oneshot::channel();
        self.metrics.handle().mailbox(shard).send(Input::Calls(order(reply)));
        replied
    }

    /// Asks all shards about the call with this id, and returns the answer of the shard that has the call. If a shard
    /// does not answer, it may have the call.
    async fn ask_all<T>(
        &self,
        id: &str,
        order: impl Fn(u64, oneshot::Sender<Option<T>>) -> CallOrder,
    ) -> Result<T, Reply> {
        let number = number(id).ok_or_else(|| unknown(id))?;
        let shards = 0..self.metrics.handle().shards();
        let asked: Vec<_> = shards.map(|shard| self.ask(shard, |reply| order(number, reply))).collect();
        let (end, mut refusal) = (Instant::now() + SOON, unknown(id));
        for (shard, replied) in asked.into_iter().enumerate() {
            match timeout_at(end, replied).await {
                Ok(Ok(Some(found))) => return Ok(found),
                Ok(Ok(None)) => (),
                Ok(Err(_)) | Err(_) => refusal = silent(shard),
            }
        }
        Err(refusal)
    }
}

fn number(id: &str) -> Option<u64> {
    u64::from_str_radix(id, 16).ok()
}

fn unknown(id: &str) -> Reply {
    Reply::Refused(format!("no tracked call has the id {id}: it has ended, or `dialogs.track` is off"))
}

fn silent(shard: usize) -> Reply {
    Reply::Unavailable(format!(
        "shard {shard} has not answered in {} s: which calls it has is not known",
        SOON.as_secs()
    ))
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1_000.0
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl From<CallView> for Call {
    fn from(view: CallView) -> Self {
        Self {
            id: format!("{:016x}", view.id),
            caller: text(&view.caller),
            callee: text(&view.callee),
            call_id: text(&view.call_id),
            far_call_id: text(&view.far_call_id),
            recording: view.recording.map(|file| file.display().to_string()),
            state: view.state.text().to_owned(),
            seconds: seconds(view.age),
            answered_seconds: view.answered.map(seconds),
            dialogs: view.dialogs.into_iter().map(Dialog::from).collect(),
            media: ["caller", "callee"]
                .into_iter()
                .zip(view.media.into_iter().zip(view.paths))
                .filter_map(media)
                .collect(),
        }
    }
}

/// Returns the media of a party, if this server has a figure of them.
fn media(
    (party, (quality, path)): (&str, (Option<MediaQuality>, Option<strowger_calls::MediaPath>)),
) -> Option<CallMedia> {
    let MediaQuality { packets, lost, reordered, doubled, jitter, max_jitter, max_delay, rating, score } = quality?;
    let milliseconds = |microseconds: u64| microseconds as f64 / 1_000.0;
    let whole = |hundredths: u64| hundredths as f64 / 100.0;
    Some(CallMedia {
        party: party.to_owned(),
        packets,
        lost,
        reordered,
        doubled,
        jitter_ms: milliseconds(jitter),
        max_jitter_ms: milliseconds(max_jitter),
        max_delay_ms: milliseconds(max_delay),
        rating: rating.map(whole),
        mos: score.map(whole),
        path: path.map(MediaPath::from),
    })
}

impl From<strowger_calls::MediaPath> for MediaPath {
    fn from(path: strowger_calls::MediaPath) -> Self {
        let strowger_calls::MediaPath { expected, refused, refused_from, dropped, sent, silence } = path;
        Self {
            expected: expected.map(|address| address.to_string()),
            refused,
            refused_from: refused_from.map(|address| address.to_string()),
            dropped,
            sent,
            silent_seconds: silence.map(seconds),
        }
    }
}

impl From<DialogView> for Dialog {
    fn from(view: DialogView) -> Self {
        Self { tag: text(&view.tag), contact: text(&view.contact), answered_seconds: view.answered.map(seconds) }
    }
}
