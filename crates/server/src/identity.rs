//! Whom a request says to be from, beside the user whose password it has shown (RFC 3261 section 22.1, RFC 3323, RFC 3325).

use crate::shard::Shard;
use strowger_core::digest::ChallengeHeader;
use strowger_core::proxy::Request;
use strowger_message::{Name, NameAddr, Uri};
use strowger_store::subscriber::Credential;

/// A header field that names another than the user.
pub(crate) struct Claim {
    pub(crate) header: Name,
    /// The address-of-record that it names, or the value as it stands if that cannot be read.
    pub(crate) names: Vec<u8>,
}

impl Claim {
    fn of(header: Name, uri: &Uri<'_>) -> Self {
        let mut names = Vec::new();
        uri.write_aor(&mut names);
        Self { header, names }
    }
}

impl Shard {
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
        subscriber: &Credential,
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

    /// Whatever port stands in it: who reads it looks at the name before it.
    fn is_of_our_domain(&self, uri: &Uri<'_>) -> bool {
        uri.sip().is_some_and(|uri| self.shared.identity.is_local_domain(uri.host))
    }
}

/// A From that withholds who it is from.
fn is_anonymous(from: &Uri<'_>) -> bool {
    const HOST: &[u8] = b"anonymous.invalid";
    let mut host = Vec::new();
    from.sip().is_some_and(|uri| {
        uri.host.write_lower(&mut host);
        host == HOST
    })
}

/// The subscriber is the user that this URI names.
fn is_user(subscriber: &Credential, party: &Uri<'_>) -> bool {
    let Uri::Sip(uri) = party else { return false };
    let Some(user) = uri.user else { return false };
    let mut plain = Vec::with_capacity(user.len());
    strowger_message::uri::sip::unescape(user, &mut plain);
    let mut host = Vec::new();
    uri.host.write_lower(&mut host);
    plain == subscriber.username.as_bytes() && host == subscriber.domain.as_bytes()
}
