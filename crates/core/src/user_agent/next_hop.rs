//! Remote target and next hop of requests in a dialog. The next hop is an address, or a host name that the owner resolves (RFC 3263).

use strowger_message::{Message, SipUri, Uri};

use super::call::{Call, Leg, LegKey, NamedHop, Stage};
use super::client_request::ClientRequestKind;
use super::{CallKey, Event, UserAgent};
use crate::dialog::{Dialog, Invalid};
use crate::slots::Id;
use crate::transaction::{ClientId, TransactionUser};
use crate::{Round, Target, Transport};

impl UserAgent {
    /// Sets the address of the next hop that [`Event::Unresolved`] reported last for this dialog; later requests in the
    /// dialog are sent to it. An ACK that was sent before is sent again.
    pub fn resolve(&mut self, round: &mut Round<'_>, leg: impl Into<LegKey>, target: Target) {
        let LegKey { call, leg } = leg.into();
        let Some(c) = self.calls.get_mut(call.0) else { return };
        let Some(named) = c.position(leg).and_then(|at| c.legs[at].named.as_mut()) else { return };
        named.target = Some(target);
        if c.stage == Stage::Established && c.ack_branch != 0 {
            self.acknowledge_now(round, call.0);
        }
    }

    /// Returns the target of a request in a dialog: the address that its next hop names, or that the owner found for
    /// the name of the next hop; else `other`.
    pub(super) fn hop(&self, leg: &Leg, other: &Target) -> Target {
        if let Some(outbound) = self.settings.outbound {
            return outbound;
        }
        if let Some(target) = leg.named.as_ref().and_then(|named| named.target) {
            return target;
        }
        let uri = leg.dialog.request_route().hop;
        let Ok(Uri::Sip(uri)) = Uri::parse(uri) else { return *other };
        let Some(ip) = uri.host.ip() else { return *other };
        let transport = transport_of(&uri);
        let address = (ip, uri.port.unwrap_or_else(|| transport.default_port())).into();
        if other.transport == transport && other.address == address {
            return *other;
        }
        match self.identity.listener_for(transport, &address, other.listener) {
            Some(listener) => Target::new(transport, listener, address),
            None => *other,
        }
    }

    /// Creates the dialog of a response to our INVITE. `call`: call of the INVITE, unless it has ended. Section 12.1.1 demands a Contact of the
    /// callee; without one the remote target is a default, until a Contact comes.
    ///
    /// # Errors
    /// As [`Dialog::caller`] returns them.
    pub(super) fn new_dialog(
        &self,
        request: Id,
        call: Option<&Call>,
        message: &Message<'_>,
    ) -> Result<Dialog, Invalid> {
        let secure = self.requests.get(request).is_some_and(|request| request.secure);
        let mut dialog = Dialog::caller(message, secure)?;
        if dialog.target().is_empty() {
            let target = self.default_target(request, call, &dialog);
            dialog.set_target(&target);
        }
        Ok(dialog)
    }

    /// Tells whether no response of this dialog of our INVITE has had a Contact.
    pub(super) fn lacks_contact(&self, request: Id, call: &Call, at: usize) -> bool {
        let dialog = &call.legs[at].dialog;
        *dialog.target() == *self.default_target(request, Some(call), dialog)
    }

    /// Returns the remote target of a dialog without Contact: the Request-URI of the INVITE. That URI may name this server if another role of it has
    /// carried the INVITE; without a route set the target is then the address of the responder.
    fn default_target(&self, request: Id, call: Option<&Call>, dialog: &Dialog) -> Vec<u8> {
        let is_open = |call: &&Call| matches!(call.stage, Stage::Inviting | Stage::Cancelling);
        let uri = call.filter(is_open).map_or(&b""[..], |call| &call.kept[..]);
        let is_carried = self.requests.get(request).is_some_and(|request| request.target.is_loopback());
        if !uri.is_empty() && (!is_carried || !dialog.routes().is_empty()) {
            return uri.to_vec();
        }
        let Target { transport, address, .. } = self.responder(request);
        let is_secure = dialog.is_secure() && transport.is_secure();
        let mut target = if is_secure { b"sips:".to_vec() } else { b"sip:".to_vec() };
        if let Ok(Uri::Sip(SipUri { user: Some(user), .. })) = Uri::parse(uri) {
            target.extend_from_slice(user);
            target.push(b'@');
        }
        target.extend_from_slice(address.to_string().as_bytes());
        if transport != Transport::Udp && !(is_secure && transport == Transport::Tls) {
            target.extend_from_slice(b";transport=");
            target.extend_from_slice(if is_secure { transport.uri_text() } else { transport.text() }.as_bytes());
        }
        target
    }

    /// Tells whether `client` is the transaction of our re-INVITE or UPDATE that went straight to the remote target, because the dialog has no
    /// route set.
    pub fn is_direct(&self, tu: TransactionUser, client: ClientId) -> bool {
        let is_change = |kind| matches!(kind, ClientRequestKind::Reinvite | ClientRequestKind::Update);
        let request = self.request_of(tu, client).and_then(|id| self.requests.get(id));
        let leg = request.filter(|request| is_change(request.kind)).and_then(|request| {
            let call = self.calls.get(request.of?)?;
            call.legs.get(call.position(request.leg)?)
        });
        leg.is_some_and(|leg| leg.dialog.routes().is_empty())
    }

    /// Reports that the next hop of a dialog is a host name, once for each name (RFC 3263 section 4).
    pub(super) fn report_name(&mut self, id: Id, at: usize) {
        let Some(leg) = self.calls.get_mut(id).and_then(|c| c.legs.get_mut(at)) else { return };
        let hop = leg.dialog.request_route().hop;
        let is_name = matches!(Uri::parse(hop), Ok(Uri::Sip(uri)) if uri.host.ip().is_none());
        if !is_name || self.settings.outbound.is_some() {
            leg.named = None;
        } else if leg.named.as_ref().is_none_or(|named| named.uri != hop) {
            let uri = self.events.keep(hop);
            leg.named = Some(Box::new(NamedHop { uri: hop.to_vec(), target: None }));
            self.events.push(Event::Unresolved { call: CallKey(id), uri });
        }
    }
}

/// Returns the transport that a URI names (RFC 3261 sections 19.1.2 and 26.2.2).
fn transport_of(uri: &SipUri<'_>) -> Transport {
    let named = uri.params.transport().and_then(Transport::of);
    match (uri.secure, named) {
        (false, named) => named.unwrap_or(Transport::Udp),
        (true, Some(Transport::Ws | Transport::Wss)) => Transport::Wss,
        (true, _) => Transport::Tls,
    }
}
