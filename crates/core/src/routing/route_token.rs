//! Route token in our Record-Route: proof that a later request belongs to an admitted call, and is for the other party
//! of the call.
//!
//! A dialog has two tokens. The token in a forwarded request is in the route set of the callee, for requests to the
//! caller. In each response that creates a dialog, the server replaces it by the second token, which is in the route
//! set of the caller, for requests to the party that answered (RFC 3261 section 16.7 step 8).
//!
//! A route token contains in clear the time, the scope of the party's source address, the usage of the dialog, a hash
//! of the Contact of the party, and the account of the other party, which holds the token. Its authentication code
//! covers these and three values of the later request: the Call-ID; the To tag, which is the tag of the party to which
//! the request is sent; and the next Route, which is the Record-Route after ours on that side, or none. So a token is
//! invalid in another call, in the other direction, and for any other target.

use super::account_hash::AccountHash;
use super::clock_steps::ClockSteps;
use super::scope::Scope;
use super::uri_target::UriTarget;
use super::usage::Usage;
use crate::siphash::SipKey;
use crate::{Now, base64};
use std::sync::Arc;
use strowger_message::uri::SipUri;
use subtle::ConstantTimeEq;

/// Length of a route token in characters.
pub(crate) const LEN: usize = base64::len(BYTES);

/// Number of bytes of a token: one for scope (three bits), version (two), usage (two) and direction; four for the time,
/// six for the Contact, four for the account, nine for the authentication code.
const BYTES: usize = CLEAR + 9;
const CLEAR: usize = CONTACT_END + AccountHash::LEN;
const CONTACT_END: usize = 11;

/// Version of the format. Versions 0 and 1 contain no account, and have a longer authentication code in its place.
/// Version 0 does not contain a usage either: such a token is read as [`Usage::Early`].
const VERSION: u8 = 2;

/// Route token that is valid for no request, because the party has sent no Contact or no tag, or the next element is
/// unknown.
const NOWHERE: [u8; LEN] = [b'A'; LEN];

/// Value in place of the hash of a Contact, if no Contact reaches the party.
const NO_CONTACT: [u8; 6] = [0; 6];

/// Party that a route token leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Caller = 0,
    Called = 1,
}

/// Next element on the side of a party.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beyond<'a> {
    /// Party itself.
    Party,
    /// Proxy that record-routed too.
    Proxy(UriTarget<'a>),
    /// Unreadable Record-Route, or no SIP URI.
    Unknown,
}

/// Contact of a party in a route token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    /// Contact of the party.
    Contact(&'a SipUri<'a>),
    /// Contact that is the address of the party only with our seal, and of another peer without the seal.
    Seal,
    Nothing,
}

/// Facts that a route token or a seal proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Scope of the party's source address.
    pub(crate) scope: Scope,
    pub(crate) usage: Usage,
    /// Unix time of writing, in seconds of the current wall clock.
    pub(crate) made: u32,
    /// Account of the party that holds the token; `None` if the format has no account.
    pub(crate) account: Option<AccountHash>,
}

/// Result of the verification of a route token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The token is not valid for this call, this party or this next Route.
    Refused,
    /// Valid but too old: the request needs the seal of a later refresh.
    Stale(Grant),
    /// Valid, but the Request-URI is not the Contact of the token: the request needs a seal.
    OtherContact(Grant),
    /// Valid: the request goes to the party.
    Granted(Grant),
}

/// Writer and verifier of route tokens. Every shard, and every server that admits the same calls, has the same secret.
#[derive(Clone)]
pub(crate) struct RouteTokens {
    key: SipKey,
    contacts: SipKey,
    /// Validity in seconds.
    lifetime: u32,
    pub(super) clock_steps: Arc<ClockSteps>,
}

impl std::fmt::Debug for RouteTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RouteTokens(..)")
    }
}

impl RouteTokens {
    pub(crate) fn new(secret: &[u8], lifetime: u32) -> Self {
        Self {
            key: SipKey::derive(secret, b"strowger record-route 3"),
            contacts: SipKey::derive(secret, b"strowger record-route contact 3"),
            lifetime,
            clock_steps: Arc::default(),
        }
    }

    /// Writes the route token for requests to this party of the call. `tag`: tag of the party. `scope`: scope of its
    /// source address. `account`: account of the other party, to which the token is sent.
    #[expect(clippy::too_many_arguments, reason = "each says one thing about the party")]
    pub(crate) fn make(
        &self,
        now: Now,
        party: Party,
        call_id: &[u8],
        tag: &[u8],
        beyond: Beyond<'_>,
        named: Named<'_>,
        (scope, usage, account): (Scope, Usage, AccountHash),
    ) -> [u8; LEN] {
        let contact = match named {
            Named::Contact(uri) => self.contact(uri),
            Named::Seal => NO_CONTACT,
            Named::Nothing => return NOWHERE,
        };
        if matches!(beyond, Beyond::Unknown) || tag.is_empty() {
            return NOWHERE;
        }
        let mut bytes = [0; BYTES];
        let scope = scope.bits();
        bytes[0] = scope << 6 | (scope >> 2) << 5 | VERSION << 3 | (usage as u8) << 1 | party as u8;
        bytes[1..5].copy_from_slice(&seconds(now).to_be_bytes());
        bytes[5..CONTACT_END].copy_from_slice(&contact);
        bytes[CONTACT_END..CLEAR].copy_from_slice(&account.to_bytes());
        let code = self.code(&bytes[..CLEAR], call_id, tag, beyond);
        bytes[CLEAR..].copy_from_slice(&code[..BYTES - CLEAR]);
        let mut text = [0; LEN];
        base64::encode(&bytes, &mut text);
        text
    }

    /// Verifies the route token of a request with this Call-ID, To tag, next Route and Request-URI.
    pub(crate) fn judge(
        &self,
        now: Now,
        token: &[u8],
        call_id: &[u8],
        to_tag: &[u8],
        beyond: Beyond<'_>,
        uri: Option<&SipUri<'_>>,
    ) -> Judgement {
        let mut bytes = [0; BYTES];
        if !base64::decode(token, &mut bytes) || !is_known_version(bytes[0]) || to_tag.is_empty() {
            return Judgement::Refused;
        }
        let states_account = version(bytes[0]) == VERSION;
        let (clear, received) = bytes.split_at(if states_account { CLEAR } else { CONTACT_END });
        let code = self.code(clear, call_id, to_tag, beyond);
        if matches!(beyond, Beyond::Unknown) || !bool::from(code[..received.len()].ct_eq(received)) {
            return Judgement::Refused;
        }
        let made = u32::from_be_bytes(*bytes[1..].first_chunk().expect("more than five bytes"));
        let account = *bytes[CONTACT_END..].first_chunk().expect("more than fifteen bytes");
        let mut grant = Grant {
            scope: Scope::of_bits(bytes[0] >> 6 | (bytes[0] >> 3) & 0b100),
            usage: Usage::of_bits(bytes[0] >> 1),
            made,
            account: states_account.then(|| AccountHash::of_bytes(account)),
        };
        match fresh(now, made, self.lifetime, &self.clock_steps) {
            Some(made) => grant.made = made,
            None => return Judgement::Stale(grant),
        }
        let same = uri.is_some_and(|uri| self.contact(uri)[..].ct_eq(&bytes[5..CONTACT_END]).into());
        if same { Judgement::Granted(grant) } else { Judgement::OtherContact(grant) }
    }

    /// Computes the authentication code. A token contains as many bytes of the code as its version has room for.
    fn code(&self, clear: &[u8], call_id: &[u8], tag: &[u8], beyond: Beyond<'_>) -> [u8; BYTES - CONTACT_END] {
        let mut hash = self.key.begin();
        hash.part(clear);
        hash.part(call_id);
        hash.part(tag);
        if let Beyond::Proxy(place) = beyond {
            place.feed(&mut hash);
        }
        hash.bytes()
    }

    fn contact(&self, uri: &SipUri<'_>) -> [u8; 6] {
        let mut hash = self.contacts.begin();
        UriTarget::of(uri).feed(&mut hash);
        hash.bytes()
    }
}

const fn version(first: u8) -> u8 {
    first >> 3 & 0b11
}

/// Tells whether this version or an earlier one writes such a first byte.
const fn is_known_version(first: u8) -> bool {
    match version(first) {
        1 | VERSION => true,
        0 => matches!(Usage::of_bits(first >> 1), Usage::Early),
        _ => false,
    }
}

/// Returns Unix seconds as in route tokens and seals.
pub const fn seconds(now: Now) -> u32 {
    (now.wall / 1000) as u32
}

/// Tells whether a time is no older than the lifetime, by the clock of any server with the same secret. A time in the
/// future is accepted, because it is from a clock that was set back since, or is fast.
const fn is_fresh(now: Now, made: u32, lifetime: u32) -> bool {
    seconds(now).wrapping_sub(made).cast_signed().unsigned_abs() <= lifetime
}

/// Returns a time of writing by the current wall clock; `None` if it is too long ago. Steps of the clock since then are
/// corrected.
pub(crate) fn fresh(now: Now, made: u32, lifetime: u32, steps: &ClockSteps) -> Option<u32> {
    if is_fresh(now, made, lifetime) { Some(made) } else { steps.translate(now, made, lifetime) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::Uri;

    const NOW: Now = Now { mono: 0, wall: 1_700_000_000_000 };
    const DAY: u32 = 86_400;
    const SITE: (Scope, Usage, AccountHash) = (Scope::Site, Usage::Call, AccountHash::NONE);
    const GRANT: Grant =
        Grant { scope: Scope::Site, usage: Usage::Call, made: 1_700_000_000, account: Some(AccountHash::NONE) };
    const GRANTED: Judgement = Judgement::Granted(GRANT);
    const OTHER_CONTACT: Judgement = Judgement::OtherContact(GRANT);

    fn later(seconds: i64) -> Now {
        Now { wall: NOW.wall.wrapping_add_signed(seconds * 1000), ..NOW }
    }

    fn sip(text: &str) -> SipUri<'_> {
        *Uri::parse(text.as_bytes()).unwrap().sip().unwrap()
    }

    #[test]
    fn a_route_token_is_for_one_party_of_one_call() {
        let route_tokens = RouteTokens::new(b"secret", DAY);
        let (bob, other) = (sip("sip:bob@10.0.0.2"), sip("sip:bob@10.0.0.3"));
        let (edge, far) = (sip("sip:edge.example;lr;x=1"), sip("sip:far.example;lr"));
        for beyond in [Beyond::Party, Beyond::Proxy(UriTarget::of(&edge))] {
            let token = route_tokens.make(NOW, Party::Called, b"call", b"bob", beyond, Named::Contact(&bob), SITE);
            let judge =
                |call: &[u8], tag: &[u8], beyond, uri| route_tokens.judge(NOW, &token, call, tag, beyond, Some(uri));
            assert_eq!(judge(b"call", b"bob", beyond, &bob), GRANTED);
            assert_eq!(judge(b"call", b"bob", beyond, &other), OTHER_CONTACT);
            assert_eq!(route_tokens.judge(NOW, &token, b"call", b"bob", beyond, None), OTHER_CONTACT);
            for (call, tag) in [("other", "bob"), ("call", "alice"), ("call", ""), ("cal", "lbob"), ("callbob", "")] {
                assert_eq!(judge(call.as_bytes(), tag.as_bytes(), beyond, &bob), Judgement::Refused, "{call} {tag}");
            }
            assert_eq!(judge(b"call", b"bob", Beyond::Proxy(UriTarget::of(&far)), &bob), Judgement::Refused);
            assert_eq!(judge(b"call", b"bob", Beyond::Unknown, &bob), Judgement::Refused);
            assert_eq!(
                RouteTokens::new(b"other", DAY).judge(NOW, &token, b"call", b"bob", beyond, Some(&bob)),
                Judgement::Refused
            );
        }
        let token = route_tokens.make(NOW, Party::Called, b"call", b"bob", Beyond::Party, Named::Contact(&bob), SITE);
        let through = Beyond::Proxy(UriTarget::of(&edge));
        assert_eq!(route_tokens.judge(NOW, &token, b"call", b"bob", through, Some(&bob)), Judgement::Refused);
        let token = route_tokens.make(NOW, Party::Called, b"call", b"bob", through, Named::Contact(&bob), SITE);
        assert_eq!(route_tokens.judge(NOW, &token, b"call", b"bob", Beyond::Party, Some(&bob)), Judgement::Refused);
    }

    #[test]
    fn without_a_contact_of_its_own_a_party_needs_its_seal() {
        let route_tokens = RouteTokens::new(b"secret", DAY);
        let token = route_tokens.make(NOW, Party::Caller, b"call", b"alice", Beyond::Party, Named::Seal, SITE);
        for uri in [None, Some(&sip("sip:alice@10.0.0.1"))] {
            assert_eq!(route_tokens.judge(NOW, &token, b"call", b"alice", Beyond::Party, uri), OTHER_CONTACT);
        }
    }

    #[test]
    fn a_route_token_states_scope_usage_and_account() {
        let route_tokens = RouteTokens::new(b"secret", DAY);
        let bob = sip("sip:bob@10.0.0.2");
        for scope in [Scope::Machine, Scope::Link, Scope::Site, Scope::Carrier, Scope::World] {
            for party in [Party::Caller, Party::Called] {
                for usage in [Usage::Subscription, Usage::Early, Usage::Call, Usage::TrackedCall] {
                    let account = AccountHash::of_bytes([scope.bits(), usage as u8, 0xff, party as u8]);
                    let facts = (scope, usage, account);
                    let token =
                        route_tokens.make(NOW, party, b"call", b"tag", Beyond::Party, Named::Contact(&bob), facts);
                    let judged = route_tokens.judge(NOW, &token, b"call", b"tag", Beyond::Party, Some(&bob));
                    assert_eq!(judged, Judgement::Granted(Grant { scope, usage, account: Some(account), ..GRANT }));
                }
            }
        }
    }

    #[test]
    fn no_changed_character_is_accepted() {
        let route_tokens = RouteTokens::new(b"secret", DAY);
        let bob = sip("sip:bob@10.0.0.2");
        let token = route_tokens.make(NOW, Party::Caller, b"call", b"tag", Beyond::Party, Named::Contact(&bob), SITE);
        for at in 0..LEN {
            for character in 0..=255 {
                let mut forged = token;
                forged[at] = character;
                let judged = route_tokens.judge(NOW, &forged, b"call", b"tag", Beyond::Party, Some(&bob));
                assert_eq!(judged == GRANTED, forged == token, "{at} {character}");
            }
        }
        assert_eq!(
            route_tokens.judge(NOW, &token[1..], b"call", b"tag", Beyond::Party, Some(&bob)),
            Judgement::Refused
        );
    }

    #[test]
    fn a_route_token_ends() {
        let route_tokens = RouteTokens::new(b"secret", DAY);
        let bob = sip("sip:bob@10.0.0.2");
        let token = route_tokens.make(NOW, Party::Caller, b"call", b"tag", Beyond::Party, Named::Contact(&bob), SITE);
        for (seconds, judged) in [
            (0, GRANTED),
            (86_400, GRANTED),
            (86_401, Judgement::Stale(GRANT)),
            (-86_400, GRANTED),
            (-86_401, Judgement::Stale(GRANT)),
        ] {
            let now = later(seconds);
            assert_eq!(
                route_tokens.judge(now, &token, b"call", b"tag", Beyond::Party, Some(&bob)),
                judged,
                "{seconds}"
            );
        }
        // The seconds may wrap.
        let last = Now { wall: u64::from(u32::MAX) * 1000, ..NOW };
        let token = route_tokens.make(last, Party::Caller, b"call", b"tag", Beyond::Party, Named::Contact(&bob), SITE);
        let next = Now { wall: last.wall + 5_000, ..NOW };
        assert_eq!(
            route_tokens.judge(next, &token, b"call", b"tag", Beyond::Party, Some(&bob)),
            Judgement::Granted(Grant { made: u32::MAX, ..GRANT })
        );
    }

    #[test]
    fn route_tokens_of_earlier_formats_state_no_account_and_no_usage() {
        let route_tokens = RouteTokens::new(b"secret", DAY);
        let bob = sip("sip:bob@10.0.0.2");
        let written = |first: u8| {
            let mut bytes = [0; BYTES];
            bytes[0] = first;
            bytes[1..5].copy_from_slice(&seconds(NOW).to_be_bytes());
            bytes[5..CONTACT_END].copy_from_slice(&route_tokens.contact(&bob));
            let code = route_tokens.code(&bytes[..CONTACT_END], b"call", b"tag", Beyond::Party);
            bytes[CONTACT_END..].copy_from_slice(&code);
            let mut text = [0; LEN];
            base64::encode(&bytes, &mut text);
            route_tokens.judge(NOW, &text, b"call", b"tag", Beyond::Party, Some(&bob))
        };
        // In the first format the version had the five bits above the direction, and was 1.
        let early = Judgement::Granted(Grant { usage: Usage::Early, account: None, ..GRANT });
        assert_eq!(written(Scope::Site.bits() << 6 | 1 << 1 | Party::Called as u8), early);
        for version in 0..4 {
            for usage in 0..4 {
                let is_known = version == 1 || (version, usage) == (0, 1);
                let judged = written(Scope::Site.bits() << 6 | version << 3 | usage << 1);
                let is_granted = matches!(judged, Judgement::Granted(Grant { account: None, .. }));
                assert_eq!(is_granted, is_known, "{version} {usage}: {judged:?}");
            }
        }
    }

    #[test]
    fn a_party_without_a_contact_is_not_reached() {
        let route_tokens = RouteTokens::new(b"secret", DAY);
        let bob = sip("sip:bob@10.0.0.2");
        for token in [
            route_tokens.make(NOW, Party::Called, b"call", b"bob", Beyond::Party, Named::Nothing, SITE),
            route_tokens.make(NOW, Party::Called, b"call", b"bob", Beyond::Unknown, Named::Contact(&bob), SITE),
            route_tokens.make(NOW, Party::Called, b"call", b"", Beyond::Party, Named::Contact(&bob), SITE),
        ] {
            assert_eq!(token, NOWHERE);
            assert_eq!(route_tokens.judge(NOW, &token, b"call", b"bob", Beyond::Party, Some(&bob)), Judgement::Refused);
        }
    }
}
