//! Text of a request as sent downstream (RFC 3261 section 16.6).

use super::Proxy;
use super::contact::{self, SenderContact};
use super::plan::DialogUse;
use super::response_context::{Rerouting, Share, may_be_removed};
use crate::digest::{Credentials, HeaderError};
use crate::routing::loop_detection::{self, Visit};
use crate::routing::request_uri::{is_unfit, write_clean};
use crate::routing::route_token::{Named, Party};
use crate::routing::{AccountHash, ROUTE_TOKEN, Request, Routing, Usage};
use crate::{ListenerId, Now, Target, Transport};
use std::ops::Range;
use strowger_message::{Message, Method, Name, Uri};

/// One copy of a request: its differences from the received request.
#[derive(Clone, Copy)]
pub(super) struct OutgoingBranch<'a> {
    /// Request-URI of the copy; `None` for the Request-URI of the request.
    pub(super) uri: Option<&'a [u8]>,
    pub(super) path: &'a [u8],
    pub(super) add: &'a [u8],
    pub(super) remove: &'a [Name],
    pub(super) target: Target,
    pub(super) share: Share,
    pub(super) dialog: DialogUse,
    pub(super) registered: bool,
    pub(super) translated: bool,
    pub(super) watched: bool,
    pub(super) enlarged: bool,
    pub(super) rerouting: Rerouting,
}

impl Proxy {
    /// Writes the request for this branch.
    pub(super) fn write_request(
        &mut self,
        now: Now,
        request: &Request<'_>,
        routing: &Routing<'_>,
        branch: &OutgoingBranch<'_>,
        unique: u64,
        out: &mut Vec<u8>,
    ) -> (Range<usize>, [u8; loop_detection::LEN]) {
        let OutgoingBranch { uri, path, add, remove, target, share, dialog, rerouting, .. } = *branch;
        let message = &request.message;
        let index = message.index();
        let top = index.headers_start();
        let visit = Visit { of_request: self.policy.router.loop_hash(request), left: share.left };
        let branch = self.policy.router.branch_key.write(unique, visit);
        self.edit.clear();
        self.write_uri(message, routing, uri, routing.strict.filter(|_| rerouting.is_none()));

        // Our Via (step 8).
        let listener = self.policy.router.identity().listener(target.listener);
        self.edit.insert(top, |text| {
            text.extend_from_slice(b"Via: SIP/2.0/");
            text.extend_from_slice(listener.transport.via().as_bytes());
            text.push(b' ');
            text.extend_from_slice(&listener.sent_by);
            text.extend_from_slice(b";branch=");
            text.extend_from_slice(&branch);
            text.extend_from_slice(b"\r\n");
        });
        // The user agent of this server does not know the listener of each copy, where the receiver reaches it.
        if request.arrival.is_loopback()
            && let Some((text, uri)) = contact::contact(message)
        {
            let write = |out: &mut Vec<u8>| listener.write_contact_uri(uri.user, listener.transport, uri.secure, out);
            self.edit.replace(message.range_of(text), write);
        }

        // Record-Route (step 4).
        let contact = self.contact_of_request(request, dialog);
        if dialog.recorded {
            let secure = match (routing.route.filter(|_| rerouting.is_none()), uri) {
                (Some(_), _) => routing.next().is_sips(),
                (None, Some(uri)) => uri.len() > 4 && uri[..5].eq_ignore_ascii_case(b"sips:"),
                (None, None) => routing.uri.is_sips(),
            };
            // A NOTIFY within a dialog is received by the Contact of its subscriber, and not by a user (RFC 6665 section 4.4.1). Its route
            // token keeps the time of the dialog, so that it is not younger than the removal of an account.
            let (receiver, made) = match dialog.within {
                true => (request.mandatory.to.uri, Now { wall: u64::from(routing.made) * 1_000, ..now }),
                false => (routing.uri, now),
            };
            let account = match rerouting {
                Rerouting::User(account) => account,
                Rerouting::None | Rerouting::NextHop => self.policy.router.account_of(&receiver),
            };
            let facts = (dialog.usage, account);
            self.write_record_route(made, request, target.listener, secure, contact.as_ref(), facts);
        }

        // Max-Forwards (step 3).
        match index.first(Name::MaxForwards) {
            Some(line) => {
                let left = request.max_forwards.unwrap_or(self.policy.settings.max_forwards as u32).saturating_sub(1);
                self.edit.replace(line.value as usize..line.value_end as usize, |text| {
                    text.extend_from_slice(itoa::Buffer::new().format(left).as_bytes());
                });
            }
            None => {
                let most = self.policy.settings.max_forwards;
                self.edit.insert(top, |text| {
                    text.extend_from_slice(b"Max-Forwards: ");
                    text.extend_from_slice(itoa::Buffer::new().format(most).as_bytes());
                    text.extend_from_slice(b"\r\n");
                });
            }
        }
        // An ACK is not forked.
        if request.method != Method::Ack {
            let mut number = itoa::Buffer::new();
            let text = number.format(share.breadth).as_bytes();
            match index.first(Name::MaxBreadth) {
                Some(line) if message.value(line) == text => (),
                Some(line) => {
                    self.edit.replace(line.value as usize..line.value_end as usize, |out| out.extend_from_slice(text));
                }
                None => self.edit.insert(top, |out| {
                    for part in [&b"Max-Breadth: "[..], text, b"\r\n"] {
                        out.extend_from_slice(part);
                    }
                }),
            }
        }

        // Adds the Path of the binding, then removes our Routes. Edits at one position apply in this order.
        if !path.is_empty() {
            let at = index.first(Name::Route).map_or(top, |l| l.start as usize);
            self.edit.insert(at, |text| {
                text.extend_from_slice(b"Route: ");
                text.extend_from_slice(path);
                text.extend_from_slice(b"\r\n");
            });
        }
        match rerouting {
            Rerouting::NextHop | Rerouting::User(_) => self.edit.remove_all(index, Name::Route),
            Rerouting::None => routing.remove.iter().for_each(|range| self.edit.remove(range.clone())),
        }

        if message.has(Name::ProxyAuthorization) || message.has(Name::Authorization) {
            self.consume_credentials(message);
        }
        for name in remove.iter().filter(|name| may_be_removed(**name)) {
            self.edit.remove_all(index, *name);
        }
        if !add.is_empty() {
            self.edit.insert(index.headers_end(), |text| text.extend_from_slice(add));
        }
        if let Some(contact) = &contact {
            let receiver = (dialog.within, target.address.ip());
            self.seal_contact(now, message, request.call_id, request.from_tag, contact, receiver);
        }
        let from = out.len();
        self.edit.write(message, out);
        (from..out.len(), branch)
    }

    /// Writes the Request-URI (step 2); for a strict router the next Route (step 6).
    fn write_uri(&mut self, message: &Message<'_>, routing: &Routing<'_>, uri: Option<&[u8]>, strict: Option<&[u8]>) {
        let target = uri.unwrap_or(routing.uri_text);
        let cleaned = match uri {
            Some(text) => is_unfit(text).then(|| Uri::parse(text).ok()).flatten(),
            None => (routing.spent.is_some() || routing.own_maddr).then_some(routing.uri),
        };
        let write = |text: &mut Vec<u8>| match cleaned {
            Some(Uri::Sip(uri)) => write_clean(&uri, routing.spent, routing.own_maddr, text),
            _ => text.extend_from_slice(target),
        };
        if let Some(strict) = strict {
            self.edit.request_uri(message, |text| text.extend_from_slice(strict));
            self.edit.append(message.index(), Name::Route, |text| {
                text.push(b'<');
                write(text);
                text.push(b'>');
            });
        } else if uri.is_some() || routing.uri_changed || cleaned.is_some() {
            self.edit.request_uri(message, write);
        }
    }

    /// Writes one Record-Route, or one for each side if transport, network, address or sips differ between the sides;
    /// the downstream one is on top. `secure`: whether the request is sent to a sips URI. `account`: account of the
    /// receiver.
    fn write_record_route(
        &mut self,
        now: Now,
        request: &Request<'_>,
        out_by: ListenerId,
        secure: bool,
        contact: Option<&SenderContact<'_>>,
        (usage, account): (Usage, AccountHash),
    ) {
        let index = request.message.index();
        let at = index.first(Name::RecordRoute).map_or_else(|| index.headers_start(), |l| l.start as usize);
        let beyond = self.policy.router.behind_us(&request.message);
        let named = contact.map_or(Named::Nothing, SenderContact::named);
        let scope = self.policy.router.scope_of_sender(request);
        let token = self.policy.router.route_tokens.make(
            now,
            Party::Caller,
            request.call_id,
            request.from_tag,
            beyond,
            named,
            (scope, usage, account),
        );
        let (down, up) = (
            self.policy.router.identity().listener(out_by),
            self.policy.router.identity().listener(request.arrival.listener),
        );
        // A sips URI may name a secure listener only.
        let secure_down = secure && down.transport.is_secure();
        let secure_up = request.uri.is_sips() && up.transport.is_secure();
        let changes = down.transport != up.transport
            || down.network != up.network
            || down.bound.ip() != up.bound.ip()
            || secure_down != secure_up;
        let both = changes.then_some((up, secure_up));
        for (listener, secure) in [Some((down, secure_down)), both].into_iter().flatten() {
            self.edit.insert(at, |text| {
                text.extend_from_slice(b"Record-Route: <");
                text.extend_from_slice(if secure { &b"sips:"[..] } else { b"sip:" });
                text.extend_from_slice(&listener.sent_by);
                // A sips URI means TLS without a transport parameter (section 26.2.2).
                if listener.transport != Transport::Udp && !(secure && listener.transport == Transport::Tls) {
                    text.extend_from_slice(b";transport=");
                    text.extend_from_slice(listener.transport.uri_text().as_bytes());
                }
                text.extend_from_slice(b";lr;");
                text.extend_from_slice(ROUTE_TOKEN);
                text.push(b'=');
                text.extend_from_slice(&token);
                text.extend_from_slice(b">\r\n");
            });
        }
    }

    /// Removes credentials for our own realms (section 22.3).
    fn consume_credentials(&mut self, message: &Message<'_>) {
        let realms = &self.policy.settings.realms;
        if realms.is_empty() {
            return;
        }
        // A phone may also send the credentials of its registration. No next hop may get these credentials, since it
        // could try passwords against them.
        let index = message.index();
        for line in index.lines_of(Name::ProxyAuthorization).chain(index.lines_of(Name::Authorization)) {
            let ours = match Credentials::parse(message.value(line)) {
                Ok(credentials) => {
                    let realm = credentials.realm.value();
                    realms.iter().any(|ours| **ours == *realm)
                }
                // Credentials of another scheme are never for our realms.
                Err(HeaderError::Scheme) => false,
                // No element can use such credentials, and a more tolerant reader might interpret them.
                Err(_) => true,
            };
            if ours {
                self.edit.remove(line.start as usize..line.end as usize);
            }
        }
    }
}
