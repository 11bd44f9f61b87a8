//! How many lines the log gets about single requests and connections that were refused or failed: see
//! [`Quota`](strowger_net::Quota). Bans have lines of their own, which are few.

use crate::asked::Asked;
use crate::shard::Shard;
use crate::shared::Shared;
use strowger_core::Now;
use strowger_core::transaction::Event;
use strowger_message::{Index, Message, Name};
use strowger_net::shown::shown;

impl Shard {
    /// A request that was forwarded came to nothing there; the caller hears of it only if it was tried nowhere else.
    #[cold]
    pub(crate) fn log_lost(&self, now: Now, event: &Event, reason: &str) {
        let (id, reason) = match event {
            Event::Timeout { id, .. } => (*id, "no response"),
            Event::ClientTransportError { id, .. } => (*id, reason),
            _ => return,
        };
        let Some(target) = self.transactions.lost_target(id) else { return };
        if !self.shared.quota.may_say(target.address.ip(), now.mono) {
            return;
        }
        let mut index = Index::new();
        let sent = self.transactions.lost_request(id).unwrap_or_default();
        let request = index.parse(sent, &self.shared.limits).ok().map(|()| Message::new(sent, &index));
        let (method, call_id) = request.map(|r| (r.method_text(), r.header(Name::CallId))).unwrap_or_default();
        tracing::info!(
            to = %target.address,
            transport = target.transport.text(),
            method = %shown(method),
            call_id = %shown(call_id.unwrap_or_default()),
            reason,
            "forwarding failed"
        );
    }

    /// Whether a line may be written about this request.
    pub(crate) fn may_say(&self, asked: &Asked<'_, '_>) -> bool {
        self.shared.quota.may_say(asked.request.arrival.remote.ip(), asked.now.mono)
    }
}

/// Says how many were left out, once a minute; `now` in milliseconds.
pub(crate) fn say_left_out(shared: &Shared, now: u64) {
    let count = shared.quota.left_out(now);
    if count > 0 {
        tracing::warn!(count, setting = "log.refusals_per_minute", "suppressed log lines");
    }
}
