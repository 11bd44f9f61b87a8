//! Texts of a far INVITE: caller, callee and identities, as the far side may see them.
//!
//! User parts and display names pass. Hosts do not, unless they are names that the far side may know: a local domain, the host of the
//! destination. In place of others stands a name of this server.

use crate::decider::Decider;
use crate::identity::is_anonymous;
use strowger_core::ListenerId;
use strowger_core::routing::{Request, Routing};
use strowger_message::{Name, NameAddr, Uri};

/// Texts of a far INVITE.
#[derive(Debug)]
pub(super) struct FarRequest {
    /// Caller for From.
    pub(super) from: Vec<u8>,
    /// Callee for To.
    pub(super) to: Vec<u8>,
    /// Request-URI, which is that of the near INVITE at this stage.
    pub(super) uri: Vec<u8>,
    /// Header lines with the identities of the caller, each with its line end. They are judged as those of a forwarded INVITE are.
    pub(super) identities: Vec<u8>,
}

impl Decider<'_> {
    /// Returns the texts of the far INVITE of a near one.
    pub(super) fn far_request(&self, request: &Request<'_>, routing: &Routing<'_>) -> FarRequest {
        let mut texts = FarRequest { from: Vec::new(), to: Vec::new(), uri: Vec::new(), identities: Vec::new() };
        self.write_caller(&request.mandatory.from.addr, &mut texts.from);
        texts.to.push(b'<');
        self.write_shown(&routing.uri, true, &mut texts.to);
        texts.to.push(b'>');
        routing.uri.write(&mut texts.uri);
        for name in [Name::PAssertedIdentity, Name::PPreferredIdentity] {
            for identity in request.message.values::<NameAddr<'_>>(name).flatten() {
                texts.identities.extend_from_slice(name.text().as_bytes());
                texts.identities.extend_from_slice(b": ");
                self.write_caller(&identity.value, &mut texts.identities);
                texts.identities.extend_from_slice(b"\r\n");
            }
        }
        texts
    }

    /// Writes an address of the caller.
    fn write_caller(&self, address: &NameAddr<'_>, out: &mut Vec<u8>) {
        let mut uri = Vec::new();
        self.write_shown(&address.uri, false, &mut uri);
        match Uri::parse(&uri) {
            Ok(uri) => NameAddr { display: address.display, ..NameAddr::new(uri) }.write(out),
            Err(_) => out.extend_from_slice(b"<sip:anonymous@anonymous.invalid>"),
        }
    }

    /// Writes a URI with a host that the far side may see. `is_destination`: the URI is that of the callee, whose foreign host stays.
    fn write_shown(&self, uri: &Uri<'_>, is_destination: bool, out: &mut Vec<u8>) {
        let Uri::Sip(sip) = uri else { return uri.write(out) };
        let identity = self.policy.identity();
        out.extend_from_slice(if sip.secure { b"sips:" } else { b"sip:" });
        if let Some(user) = sip.user {
            out.extend_from_slice(user);
            out.push(b'@');
        }
        if let Some(domain) = identity.domain_of(sip.host) {
            out.extend_from_slice(domain);
        } else if is_anonymous(uri) || is_destination && !identity.is_own_host(sip.host) {
            sip.host.write(out);
            if let Some(port) = sip.port {
                out.extend_from_slice(format!(":{port}").as_bytes());
            }
        } else if let Some(domain) = self.policy.config.domain_names().next() {
            out.extend_from_slice(domain.as_bytes());
        } else {
            out.extend_from_slice(&identity.listener(ListenerId(0)).sent_by);
        }
    }
}
