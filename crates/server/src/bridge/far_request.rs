//! Texts of a far INVITE: caller, callee and identities, as the far side may see them; and the IP version of its media addresses.
//!
//! User parts and display names pass. Hosts do not, unless they are names that the far side may know: a local domain, the host of the
//! destination. A name of this server stands in place of others only for callers that may have one ([`Decider::caller_host`]): no other caller looks
//! like a user of a local domain, whose From needs a password.

use crate::contacts::Contacts;
use crate::decider::Decider;
use crate::handling::Handling;
use crate::identity::is_anonymous;
use crate::question::Question;
use crate::request_facts::number_of;
use crate::stage::Verdict;
use strowger_core::ListenerId;
use strowger_core::routing::Routing;
use strowger_message::{Name, NameAddr, Uri};

/// Host in place of that of a foreign caller (RFC 2606 section 2).
const FOREIGN: &[u8] = b"foreign.invalid";

/// Host that the far side sees in place of one that is no local domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownHost {
    /// The same.
    Same,
    /// Name of this server.
    Own,
    /// [`FOREIGN`].
    Hidden,
}

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
    /// Tells whether the far call of an INVITE goes to IPv4: by the first address of its destination, as the far INVITE will find it. `None`: this
    /// server has media addresses of one version alone, or the destination has no address; the far INVITE then tells why.
    ///
    /// The description is written before the far INVITE is routed, so the near one is routed here. A later target of another version, after a failure
    /// or a redirection, gets the same description.
    ///
    /// # Errors
    /// Name that must be looked up first.
    pub(crate) fn far_family(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &mut Contacts,
    ) -> Result<Option<bool>, Question> {
        let media = &self.policy.config.media;
        let has_family = |wanted: bool| media.addresses.iter().any(|own| own.public.is_ipv4() == wanted);
        if !has_family(true) || !has_family(false) {
            return Ok(None);
        }
        match self.first_destination(handling, routing, contacts) {
            Verdict::Ask(question @ Question::Name(_)) => Err(question),
            Verdict::Forward(destination) => {
                Ok(destination.first().map(|target| target.address.ip().to_canonical().is_ipv4()))
            }
            _ => Ok(None),
        }
    }

    /// Returns the texts of the far INVITE of a near one.
    pub(super) fn far_request(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> FarRequest {
        let request = handling.request;
        let mut texts = FarRequest { from: Vec::new(), to: Vec::new(), uri: Vec::new(), identities: Vec::new() };
        let from = &request.mandatory.from.addr;
        self.write_caller(from, self.caller_host(handling, &from.uri), &mut texts.from);
        let is_own = routing.uri.sip().is_some_and(|uri| self.policy.identity().is_own_host(uri.host));
        texts.to.push(b'<');
        self.write_shown(&routing.uri, if is_own { ShownHost::Own } else { ShownHost::Same }, &mut texts.to);
        texts.to.push(b'>');
        routing.uri.write(&mut texts.uri);
        for name in [Name::PAssertedIdentity, Name::PPreferredIdentity] {
            for identity in request.message.values::<NameAddr<'_>>(name).flatten() {
                let host = self.caller_host(handling, &identity.value.uri);
                if host == ShownHost::Hidden {
                    // It would assert nothing.
                    continue;
                }
                texts.identities.extend_from_slice(name.text().as_bytes());
                texts.identities.extend_from_slice(b": ");
                self.write_caller(&identity.value, host, &mut texts.identities);
                texts.identities.extend_from_slice(b"\r\n");
            }
        }
        texts
    }

    /// Returns the host that the far side sees in an address of the caller. A name of this server: of its users, who may write its address for their
    /// domain, and of numbers that a trusted source shows.
    fn caller_host(&self, handling: &Handling<'_, '_>, uri: &Uri<'_>) -> ShownHost {
        let identity = self.policy.identity();
        let is_local = uri.sip().is_some_and(|uri| identity.domain_of(uri.host).is_some());
        let is_own = uri.sip().is_some_and(|uri| identity.is_own_host(uri.host));
        let is_believed = self.believes(handling.request.arrival.remote.ip());
        let is_user = is_own && (is_believed || handling.progress.proof.is_any());
        if is_anonymous(uri) {
            ShownHost::Same
        } else if is_local || is_user || is_believed && number_of(uri).is_some() {
            ShownHost::Own
        } else {
            ShownHost::Hidden
        }
    }

    /// Writes an address of the caller.
    fn write_caller(&self, address: &NameAddr<'_>, host: ShownHost, out: &mut Vec<u8>) {
        let mut uri = Vec::new();
        self.write_shown(&address.uri, host, &mut uri);
        match Uri::parse(&uri) {
            Ok(uri) => NameAddr { display: address.display, ..NameAddr::new(uri) }.write(out),
            Err(_) => out.extend_from_slice(b"<sip:anonymous@anonymous.invalid>"),
        }
    }

    /// Writes a URI with a host that the far side may see: a local domain, or `host`.
    fn write_shown(&self, uri: &Uri<'_>, host: ShownHost, out: &mut Vec<u8>) {
        let Uri::Sip(sip) = uri else { return uri.write(out) };
        let identity = self.policy.identity();
        out.extend_from_slice(if sip.secure { b"sips:" } else { b"sip:" });
        if let Some(user) = sip.user {
            out.extend_from_slice(user);
            out.push(b'@');
        }
        if let Some(domain) = identity.domain_of(sip.host) {
            return out.extend_from_slice(domain);
        }
        match host {
            ShownHost::Same => {
                sip.host.write(out);
                if let Some(port) = sip.port {
                    out.extend_from_slice(format!(":{port}").as_bytes());
                }
            }
            ShownHost::Own => match self.policy.config.domain_names().next() {
                Some(domain) => out.extend_from_slice(domain.as_bytes()),
                None => out.extend_from_slice(&identity.listener(ListenerId(0)).sent_by),
            },
            ShownHost::Hidden => out.extend_from_slice(FOREIGN),
        }
    }
}
