//! Text of a response as sent upstream (RFC 3261 section 16.7).

use super::Proxy;
use super::contact::{FromDevice, SenderContact};
use super::plan::DialogUse;
use super::response_context::ResponseContext;
use crate::routing::route_token::{self, Beyond, Named, Party, RouteTokens};
use crate::routing::{ROUTE_TOKEN, Scope, UriTarget};
use crate::slots::Id;
use crate::transaction::{ClientId, ServerId, Transactions};
use crate::{Arrival, Now, Target, Transport};
use std::net::{IpAddr, Ipv4Addr};
use strowger_message::{Edit, Index, Limits, Message, Name, Uri, build};

/// Facts about the sender of a response, for the seal and the route token that prove them later.
#[derive(Clone, Copy, Debug)]
pub(super) struct SenderFacts {
    device: FromDevice,
    /// Effect of the request on a dialog.
    dialog: DialogUse,
    /// Target of the request, and whether it is behind an address translator.
    sent: (Option<Target>, bool),
    /// Address that the response is sent to.
    receiver: IpAddr,
    /// Session interval, see [`super::Plan::session`].
    session: u32,
}

impl SenderFacts {
    /// Facts of a response that creates no dialog. The Contact of a redirection names another device.
    pub(super) const NOTHING: Self = Self {
        device: FromDevice::No,
        dialog: DialogUse::NONE,
        sent: (None, false),
        receiver: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        session: 0,
    };

    pub(super) fn of(context: &ResponseContext, tx: &Transactions, client: ClientId) -> Self {
        let ResponseContext { dialog, session, server, .. } = *context;
        let branch = context.branch_of(client).copied().unwrap_or_default();
        let receiver = tx.target(server).map_or(Self::NOTHING.receiver, |target| target.address.ip());
        let sent = (tx.client_target(client), branch.translated);
        Self { device: context.device(&branch), dialog, sent, receiver, session }
    }
}

/// Sender of a response, for a role that sends its own requests to it.
#[derive(Clone, Copy, Debug)]
pub struct ResponseSender {
    /// Scope of the sender, which bounds the addresses that its Contact and its Record-Route may name.
    pub scope: Scope,
    /// Address at which the sender is reached if its Contact leads nowhere; `None`: use the Contact.
    pub device: Option<Target>,
    /// Source of the response; over UDP, the address to which its request was sent, since a device may answer from a port at which it does not
    /// listen.
    pub source: Arrival,
    /// Set if the request went to a contact that a user has registered here without Path, and to no place that rules name.
    pub is_registered: bool,
}

impl Proxy {
    /// Returns the server transaction of this response context.
    pub fn server_of(&self, id: Id) -> Option<ServerId> {
        self.contexts.get(id).map(|context| context.server)
    }

    /// Returns the sender of a response that the proxy has not handled yet, to a request of this response context. Without a Record-Route
    /// of this server the response itself carries none of these facts.
    pub fn sender_of(
        &self,
        id: Id,
        client: ClientId,
        response: &Message<'_>,
        arrival: &Arrival,
        tx: &Transactions,
    ) -> Option<ResponseSender> {
        let context = self.contexts.get(id)?;
        // Rules may write Request-URIs as registrations do; their places are watched, contacts are not.
        let is_registered = context.branch_of(client).is_some_and(|branch| branch.registered && !branch.watched);
        let facts = SenderFacts::of(context, tx, client);
        let sent = facts.sent.0;
        let device = match facts.device {
            FromDevice::IfLast if self.is_last(response) => FromDevice::Yes,
            other => other,
        };
        let contact = self.contact_of_response(response, arrival, facts.sent, device, facts.dialog.usage);
        let is_udp = |transport: Transport| transport == Transport::Udp;
        let source = match sent.filter(|sent| is_udp(sent.transport) && is_udp(arrival.transport)) {
            Some(sent) => Arrival { listener: sent.listener, remote: sent.address, ..*arrival },
            None => *arrival,
        };
        let scope = self.policy.router.scope_of_response(arrival, sent);
        let device = contact.and_then(|contact| contact.device());
        Some(ResponseSender { scope, device, source, is_registered })
    }

    /// Writes the response for the next hop upstream: without our Via, with this status, with the route token and seal of its sender.
    pub(super) fn write_upstream(
        &mut self,
        now: Now,
        response: &Message<'_>,
        arrival: &Arrival,
        status: u16,
        facts: SenderFacts,
        out: &mut Vec<u8>,
    ) -> std::ops::Range<usize> {
        self.edit.clear();
        if response.status() != Some(status) {
            self.edit.replace(status_range(response), |text| {
                text.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
                text.push(b' ');
                text.extend_from_slice(strowger_message::status::reason(status).as_bytes());
            });
            // Retry-After of that next hop does not apply to this server.
            for line in response.index().lines_of(Name::RetryAfter) {
                self.edit.remove(line.start as usize..line.end as usize);
            }
        }
        let edit = &mut self.edit;
        response.cut_first(Name::Via, 1, |range| edit.remove(range));
        let dialog = facts.dialog;
        if dialog.recorded || dialog.renews {
            let usage = if dialog.recorded { dialog.usage.after(status) } else { dialog.usage };
            let contact = self.contact_of_response(response, arrival, facts.sent, facts.device, usage);
            let call_id = response.call_id().map_or(&b""[..], |call_id| call_id.text);
            let tag = response.to().ok().and_then(|to| to.tag).unwrap_or_default();
            if dialog.recorded {
                let named = contact.as_ref().map_or(Named::Nothing, SenderContact::named);
                let scope = self.policy.router.scope_of_response(arrival, facts.sent.0);
                let make = |route_tokens: &RouteTokens, beyond: Beyond<'_>| {
                    route_tokens.make(now, Party::Called, call_id, tag, beyond, named, (scope, usage, dialog.account))
                };
                self.renew_route_tokens(response, make);
            }
            if let Some(contact) = &contact {
                self.seal_contact(now, response, call_id, tag, contact, (dialog.renews, facts.receiver));
            }
        }
        if facts.session > 0 && (200..300).contains(&status) && !response.has(Name::SessionExpires) {
            // The callee supports no session timer, so only the caller refreshes (RFC 4028 section 8.2).
            self.edit.insert(response.index().headers_end(), |text| {
                text.extend_from_slice(b"Session-Expires: ");
                text.extend_from_slice(itoa::Buffer::new().format(facts.session).as_bytes());
                text.extend_from_slice(b";refresher=uac\r\nRequire: timer\r\n");
            });
        }
        let from = out.len();
        self.edit.write(response, out);
        from..out.len()
    }

    /// Replaces the route token for requests to the caller by the token for requests to the callee, in each of our
    /// Record-Routes.
    fn renew_route_tokens(
        &mut self,
        response: &Message<'_>,
        make: impl Fn(&RouteTokens, Beyond<'_>) -> [u8; route_token::LEN],
    ) {
        let mut edit = std::mem::take(&mut self.edit);
        let mut made = None;
        let mut beyond = Beyond::Party;
        for value in response.record_routes() {
            let Ok(Uri::Sip(uri)) = value.map(|value| value.uri) else {
                (beyond, made) = (Beyond::Unknown, None);
                continue;
            };
            if !self.policy.router.is_own(&uri) {
                (beyond, made) = (Beyond::Proxy(UriTarget::of(&uri)), None);
            } else if let Some(before) = uri.params.find(ROUTE_TOKEN).flatten()
                && before.len() == route_token::LEN
            {
                let token = *made.get_or_insert_with(|| make(&self.policy.router.route_tokens, beyond));
                edit.replace(response.range_of(before), |text| text.extend_from_slice(&token));
            }
        }
        self.edit = edit;
    }

    /// Returns a response of this server to a request that was sent with our Via on top.
    pub(super) fn local_response(&self, sent: &[u8], status: u16) -> Option<Vec<u8>> {
        let mut index = Index::new();
        index.parse(sent, &Limits::UNLIMITED).ok()?;
        let message = Message::new(sent, &index);
        let mut edit = Edit::new();
        message.cut_first(Name::Via, 1, |range| edit.remove(range));
        let mut received = Vec::new();
        edit.write(&message, &mut received);
        self.respond_to(&received, status)
    }

    /// Returns a response of this server to a request as received.
    pub(super) fn respond_to(&self, request: &[u8], status: u16) -> Option<Vec<u8>> {
        let mut index = Index::new();
        index.parse(request, &Limits::UNLIMITED).ok()?;
        let message = Message::new(request, &index);
        let tag = self.policy.router.own_tag().of(message.call_id().map_or(&b""[..], |call_id| call_id.text));
        let tag = (status != 100).then_some(&tag[..]);
        let mut bytes = Vec::with_capacity(request.len());
        build::respond(&message, status, None, tag, &mut bytes).finish(b"");
        Some(bytes)
    }
}

/// Returns the range of status code and reason phrase, without the line end.
fn status_range(response: &Message<'_>) -> std::ops::Range<usize> {
    let end = response.range_of(response.reason()).end;
    let code = response.bytes()[..end].iter().position(|&b| b == b' ').map_or(end, |n| n + 1);
    code..end
}

/// Returns the response with only its mandatory header fields (RFC 3261 section 8.2.6.2).
pub(super) fn without_extras(response: &[u8]) -> Vec<u8> {
    let (mut index, mut bytes) = (Index::new(), Vec::new());
    if index.parse(response, &Limits::UNLIMITED).is_ok() {
        let message = Message::new(response, &index);
        let status = message.status().unwrap_or(500);
        build::respond(&message, status, None, None, &mut bytes).finish(b"");
    }
    bytes
}

pub(super) fn challenge_lines(bytes: &[u8]) -> Vec<u8> {
    let mut index = Index::new();
    let mut lines = Vec::new();
    if index.parse(bytes, &Limits::UNLIMITED).is_ok() {
        for line in index.lines() {
            if matches!(line.name, Name::WwwAuthenticate | Name::ProxyAuthenticate) {
                lines.extend_from_slice(&bytes[line.start as usize..line.end as usize]);
            }
        }
    }
    lines
}
