//! Transfer: a REFER is carried to the other side, and the NOTIFYs of its implicit subscription back (RFC 3515, RFC 5589). The party that
//! is referred makes its new call by itself.

use serde::{Deserialize, Serialize};
use strowger_message::header::{Event as EventPackage, SubscriptionState};
use strowger_message::{Index, Limits, Message, Method, Name, Write, status};

use super::carried_request::{CarriedRequest, MOST_CARRIED, respond};
use super::event::BridgeEnd;
use super::pair::{Pair, Side, Stage};
use super::passed_headers::Facts;
use super::referral::Named;
use super::setup::LATER;
use super::{BridgeEvent, Context, PairKey};
use crate::user_agent::{Ending, IncomingKey, RequestKey};

/// REFER that was carried over, with its implicit subscription.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Transfer {
    /// Side that has referred the other one.
    pub(super) by: Side,
    /// CSeq of its REFER: id of the subscription in its dialog.
    asked: u32,
    /// CSeq of our REFER: id of the subscription in the dialog of the other side.
    sent: u32,
    /// Our REFER, until its final response.
    pub(super) request: Option<RequestKey>,
    /// Dialog that its Refer-To names.
    pub(super) named: Option<Named>,
    /// End of the wait for the outcome.
    pub(super) until: u64,
}

/// Largest number of transfers of a pair at a time.
const MOST_TRANSFERS: usize = 4;

/// NOTIFY of a subscription to the outcome of a REFER.
struct Outcome {
    /// Id of the NOTIFY, the CSeq of the REFER; `None`: it has no id. `Some(None)`: the id is no number, and matches no REFER.
    id: Option<Option<u32>>,
    /// Value of Subscription-State.
    state: Vec<u8>,
    is_terminated: bool,
    /// Status of the request that the REFER has caused.
    status: Option<u16>,
}

impl Outcome {
    /// Reads a NOTIFY; `None` if it belongs to another kind of subscription, or lacks Subscription-State.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut index = Index::new();
        index.parse(bytes, &Limits::UNLIMITED).ok()?;
        let message = Message::new(bytes, &index);
        let package = EventPackage::parse(message.header(Name::Event)?).ok()?;
        let state = SubscriptionState::parse(message.header(Name::SubscriptionState)?).ok()?;
        if !package.package.eq_ignore_ascii_case(b"refer") {
            return None;
        }
        let mut value = state.state.to_vec();
        for (name, number) in [(&b";expires="[..], state.expires), (b";retry-after=", state.retry_after)] {
            if let Some(number) = number {
                value.extend_from_slice(name);
                number.write(&mut value);
            }
        }
        if let Some(reason) = state.reason {
            value.extend_from_slice(b";reason=");
            value.extend_from_slice(reason);
        }
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        let code = message.body().strip_prefix(b"SIP/2.0 ").and_then(|rest| number(rest.get(..3)?));
        Some(Self {
            id: package.id.map(|id| std::str::from_utf8(id).ok()?.parse().ok()),
            state: value,
            is_terminated: state.is_terminated(),
            status: code.filter(|code| (100..700).contains(code)),
        })
    }

    fn is_final(&self) -> bool {
        self.is_terminated || self.status.is_some_and(|status| status >= 200)
    }
}

impl Pair {
    /// Carries a REFER to the other side.
    pub(super) fn refer(&mut self, cx: &mut Context<'_, '_>, from: Side, request: IncomingKey, facts: &Facts) {
        let referral = match &facts.referral {
            Some(Ok(referral)) => referral,
            Some(Err(status)) => return respond(cx, request, *status, b""),
            None => return respond(cx, request, 400, b""),
        };
        let now = cx.round.now.mono;
        self.transfers.retain(|transfer| transfer.until > now);
        let is_full = self.transfers.len() >= MOST_TRANSFERS || self.carried.len() >= MOST_CARRIED;
        if self.stage != Stage::Up || self.replaced.is_some() || is_full {
            return respond(cx, request, 500, LATER);
        }
        let headers = [&referral.line[..], &facts.passed[..]].concat();
        let Some(call) = self.call(from.other()) else { return respond(cx, request, 500, LATER) };
        let Ok(sent) = cx.agent.request_within(cx.round, call, Method::Refer, &headers, b"") else {
            return respond(cx, request, 500, LATER);
        };
        cx.index.requests.insert(sent, cx.id);
        self.carried.push(CarriedRequest { asked: request, sent, is_notify: false });
        self.transfers.push(Transfer {
            by: from,
            asked: facts.cseq,
            sent: cx.agent.last_cseq(call).unwrap_or(0),
            request: Some(sent),
            named: referral.named.clone(),
            until: now + cx.settings.ringing,
        });
    }

    /// Handles the final response to a REFER that was carried over.
    pub(super) fn refer_answered(&mut self, cx: &mut Context<'_, '_>, request: RequestKey, status: u16, facts: &Facts) {
        let Some(at) = self.transfers.iter().position(|transfer| transfer.request == Some(request)) else { return };
        if !(200..300).contains(&status) {
            self.transfers.swap_remove(at);
            return;
        }
        let until = cx.round.now.mono + cx.settings.ringing;
        let transfer = &mut self.transfers[at];
        (transfer.request, transfer.until) = (None, until);
        if facts.cseq != 0 {
            // A REFER that is repeated with credentials has a new CSeq.
            transfer.sent = facts.cseq;
        }
        if let Some(named) = transfer.named.clone() {
            await_party(cx, named, Some(until));
        }
    }

    /// Carries the NOTIFY of a side that was referred to the side that has referred it. If the transferor has hung up, the bridge answers the NOTIFY.
    pub(super) fn notified(&mut self, cx: &mut Context<'_, '_>, from: Side, request: IncomingKey) {
        let outcome = Outcome::read(cx.agent.message());
        let found = outcome.and_then(|outcome| {
            let is_of =
                |transfer: &Transfer| transfer.by != from && outcome.id.is_none_or(|id| id == Some(transfer.sent));
            Some((self.transfers.iter().position(is_of)?, outcome))
        });
        // RFC 6665 section 4.1.3: there is no such subscription.
        let Some((at, outcome)) = found else { return respond(cx, request, 481, b"") };
        let asked = self.transfers[at].asked;
        if outcome.is_final()
            && let Some(named) = self.transfers[at].named.clone()
        {
            await_party(cx, named, None);
        }
        if outcome.is_terminated {
            self.transfers.remove(at);
        }
        let Some(call) = self.call(from.other()) else {
            respond(cx, request, 200, b"");
            if let Stage::Alone { by, .. } = self.stage
                && outcome.is_final()
            {
                self.release(cx, BridgeEnd::Side(by), 480, b"");
            }
            return;
        };
        if self.carried.len() >= MOST_CARRIED {
            return respond(cx, request, 500, LATER);
        }
        let mut headers = b"Event: refer;id=".to_vec();
        asked.write(&mut headers);
        headers.extend_from_slice(b"\r\nSubscription-State: ");
        headers.extend_from_slice(&outcome.state);
        headers.extend_from_slice(b"\r\n");
        let mut body = Vec::new();
        if let Some(code) = outcome.status {
            // Only the status line passes: other lines of the fragment may show parts of the new call.
            headers.extend_from_slice(b"Content-Type: message/sipfrag;version=2.0\r\n");
            body = format!("SIP/2.0 {code} {}\r\n", status::reason(code)).into_bytes();
        }
        match cx.agent.request_within(cx.round, call, Method::Notify, &headers, &body) {
            Ok(sent) => {
                cx.index.requests.insert(sent, cx.id);
                self.carried.push(CarriedRequest { asked: request, sent, is_notify: true });
            }
            Err(_) => respond(cx, request, 481, b""),
        }
    }

    /// Keeps the other side up after `side` has hung up, if `side` has transferred it or is to be replaced. Returns false if the pair ends.
    pub(super) fn stays(&mut self, cx: &mut Context<'_, '_>, side: Side, by: Ending) -> bool {
        let now = cx.round.now.mono;
        let referred = self.transfers.iter().filter(|transfer| transfer.by == side && transfer.request.is_none());
        let until = referred.map(|transfer| transfer.until);
        let until = until.chain(self.expected.filter(|(of, _)| *of == side).map(|(_, until)| until)).max();
        let is_free = self.exchange.is_none() && self.waiting.is_empty() && self.replaced.is_none();
        let is_up = self.stage == Stage::Up && self.call(side.other()).is_some();
        let Some(until) = until.filter(|until| *until > now && is_free && is_up && by == Ending::Remote) else {
            return false;
        };
        self.renewal = None;
        self.drop_carried(cx);
        self.stage = Stage::Alone { by: side, until };
        true
    }
}

/// Notes until when a new party is to take the place of the named leg; `None`: no party comes any more.
fn await_party(cx: &mut Context<'_, '_>, named: Named, until: Option<u64>) {
    match named {
        Named::Here(pair, side) => *cx.awaited = Some((pair, until.map(|until| (side, until)))),
        Named::Elsewhere(dialog) => {
            cx.events.push_back(BridgeEvent::Awaited { pair: PairKey(cx.id), dialog, until });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes() {
        for (event, state, body, expected) in [
            (
                "refer",
                "active;expires=60",
                "SIP/2.0 100 Trying\r\n",
                Some((None, "active;expires=60", Some(100), false)),
            ),
            (
                "Refer;id=7",
                "terminated;reason=noresource;x=10.0.0.1",
                "SIP/2.0 486 No\r\n",
                Some((Some(Some(7)), "terminated;reason=noresource", Some(486), true)),
            ),
            ("refer;id=x", "active", "SIP/2.0 9", Some((Some(None), "active", None, false))),
            ("refer", "active", "SIP/2.0 200", Some((None, "active", Some(200), true))),
            ("dialog", "active", "", None),
            ("refer", "active;expires=x", "", None),
        ] {
            let length = body.len();
            let text = format!(
                "NOTIFY sip:a SIP/2.0\r\nEvent: {event}\r\nSubscription-State: {state}\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let outcome = Outcome::read(text.as_bytes());
            let found = outcome.as_ref().map(|outcome| {
                let state = std::str::from_utf8(&outcome.state).expect("text");
                (outcome.id, state, outcome.status, outcome.is_final())
            });
            assert_eq!(found, expected, "{text}");
        }
    }
}
