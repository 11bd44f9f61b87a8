//! Whom a request says to be from, beside the user whose password it has shown (RFC 3261 section 22.1, RFC 3323, RFC 3325).

use crate::engine::Engine;
use crate::handling::Handling;
use crate::registration::write_aor;
use strowger_core::digest::ChallengeHeader;
use strowger_core::routing::{Request, Routing};
use strowger_message::header::Privacy;
use strowger_message::uri::sip::unescaped;
use strowger_message::{Edit, Message, Name, NameAddr, Uri};
use strowger_store::subscriber::CredentialView;

/// A header field that names another than the user.
pub(crate) struct Claim {
    pub(crate) header: Name,
    /// The address-of-record that it names, or the value as it stands if that cannot be read.
    pub(crate) names: Vec<u8>,
}

/// What names a caller to others than the first proxy.
const NAMING: [Name; 2] = [Name::PAssertedIdentity, Name::RemotePartyId];

/// Whether a request names its caller beside From.
pub(crate) fn names_caller(message: &Message<'_>) -> bool {
    message.has(Name::PPreferredIdentity) || NAMING.iter().any(|name| message.has(*name))
}

impl Claim {
    fn of(header: Name, uri: &Uri<'_>) -> Self {
        let mut names = Vec::new();
        uri.write_aor(&mut names);
        Self { header, names }
    }
}

impl Engine {
    /// Whether the request names no other than this subscriber.
    ///
    /// To of a REGISTER must be the user. So must From of anything else, unless it says that the caller withholds its identity
    /// (RFC 3323 section 4.1.1.3) or names no user of ours and the user stands in P-Preferred-Identity or P-Asserted-Identity
    /// (RFC 3325 section 9), as gateways and PBXes write the number of their own caller into From. In those two no other user
    /// of ours may stand, and nothing that cannot be read.
    pub(crate) fn claims_only(
        &self,
        request: &Request<'_>,
        header: ChallengeHeader,
        party: &Uri<'_>,
        subscriber: CredentialView<'_>,
    ) -> Result<(), Claim> {
        if header == ChallengeHeader::WwwAuthenticate {
            return if is_user(subscriber, party) { Ok(()) } else { Err(Claim::of(Name::To, party)) };
        }
        let mut is_named = false;
        for name in [Name::PPreferredIdentity, Name::PAssertedIdentity] {
            for value in request.message.values::<NameAddr<'_>>(name) {
                let Ok(value) = value else {
                    let names = request.message.header(name).unwrap_or_default().to_vec();
                    return Err(Claim { header: name, names });
                };
                let is_it = is_user(subscriber, &value.uri);
                if !is_it && self.is_of_our_domain(&value.uri) {
                    return Err(Claim::of(name, &value.uri));
                }
                is_named |= is_it;
            }
        }
        let may_differ = is_anonymous(party) || (is_named && !self.is_of_our_domain(party));
        if may_differ || is_user(subscriber, party) { Ok(()) } else { Err(Claim::of(Name::From, party)) }
    }

    /// Writes the request without what it must not say of its caller where it goes. False: it may say all that it says.
    ///
    /// P-Preferred-Identity is for the first proxy alone (RFC 3325 section 5). Where the caller withholds its identity (section 7), what
    /// names it leaves with a call for help alone: of no other next hop do we know that it may be trusted. A user of ours is named by
    /// the requests that have shown its password, and by those of others where calls need none.
    pub(crate) fn conceal(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        edit: &mut Edit,
        out: &mut Vec<u8>,
    ) -> bool {
        let message = &handling.request.message;
        let for_help = routing.route.is_none() && matches!(routing.uri, Uri::Urn(_));
        let withheld = !for_help && withholds_identity(message);
        edit.clear();
        edit.remove_all(message.index(), Name::PPreferredIdentity);
        for name in NAMING {
            if message.has(name) && (withheld || self.names_another(handling, name)) {
                edit.remove_all(message.index(), name);
            }
        }
        let conceals = !edit.is_empty();
        if conceals {
            edit.write(message, out);
        }
        conceals
    }

    /// Whether this header field names a user of ours that the caller has not shown to be, or cannot be read.
    fn names_another(&self, handling: &Handling<'_, '_>, name: Name) -> bool {
        let auth = &self.policy.config.auth;
        if !auth.calls || (handling.progress.proof.user.is_some() && !auth.user_must_match) {
            return false;
        }
        let request = handling.request;
        // Of one that has shown a password these name no other user of ours.
        let is_shown = |user: &Uri<'_>| {
            let said = [Name::PPreferredIdentity, Name::PAssertedIdentity]
                .map(|name| request.message.values::<NameAddr<'_>>(name));
            let said = said.into_iter().flatten().flatten().map(|value| value.uri);
            handling.progress.proof.user.is_some()
                && said
                    .chain([request.mandatory.from.uri])
                    .any(|shown| self.is_of_our_domain(&shown) && is_same(&shown, user))
        };
        let mut values = request.message.values::<NameAddr<'_>>(name);
        values.any(|value| value.map_or(true, |value| self.is_of_our_domain(&value.uri) && !is_shown(&value.uri)))
    }

    /// With any port: a person who reads it looks at the name before it.
    fn is_of_our_domain(&self, uri: &Uri<'_>) -> bool {
        uri.sip().is_some_and(|uri| self.policy.router.identity().is_local_domain(uri.host))
    }
}

/// The caller does not want to be named outside of the trusted network (RFC 3325 section 9.3).
fn withholds_identity(message: &Message<'_>) -> bool {
    message.values::<Privacy<'_>>(Name::Privacy).any(|privacy| privacy.map_or(true, |privacy| privacy.has(b"id")))
}

/// Both are one address-of-record.
fn is_same(a: &Uri<'_>, b: &Uri<'_>) -> bool {
    let aor = |uri: &Uri<'_>| {
        let mut aor = Vec::new();
        write_aor(uri, &mut aor);
        aor
    };
    aor(a) == aor(b)
}

/// A From that withholds its sender.
fn is_anonymous(from: &Uri<'_>) -> bool {
    from.sip().is_some_and(|uri| uri.host.is_lower(b"anonymous.invalid"))
}

/// The subscriber is the user that this URI names.
fn is_user(subscriber: CredentialView<'_>, party: &Uri<'_>) -> bool {
    let Uri::Sip(uri) = party else { return false };
    let is_name = |user| unescaped(user).eq(subscriber.username.bytes());
    uri.user.is_some_and(is_name) && uri.host.is_lower(subscriber.domain.as_bytes())
}
