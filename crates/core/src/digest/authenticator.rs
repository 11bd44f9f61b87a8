//! Verification of credentials by a server: RFC 3261 section 22 and RFC 7616 section 3.4.6.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::algorithm::{Algorithm, Hash, HashValue, hex_digit};
use super::challenge::{ChallengeHeader, NewChallenge, QopOffer};
use super::compute::{Ha1, Ha1Set, Qop, ResponseInput, response};
use super::credentials::Credentials;
use super::nonce::{Nonce, NonceKey};
use super::replay::{Admission, Count, ReplaySettings, ReplayTable};
use crate::hmac::Hmac;
use crate::now::Now;

/// Settings of challenges and of accepted credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestSettings {
    /// Qualities of protection offered and accepted. auth-int fails if a proxy changes a body.
    pub qop: QopOffer,
    /// Accepts answers without qop (RFC 2069), each of which uses up a nonce. Such answers are never accepted if only
    /// auth-int is offered.
    pub without_qop: bool,
    /// Lifetime of a nonce in seconds.
    pub nonce_life: u32,
    /// Maximum difference in seconds between clocks of servers with the same secret.
    pub clock_skew: u32,
    /// Comparison of the `uri` parameter with the Request-URI.
    pub uri_check: UriCheck,
    /// Number of remembered nonces, and window of their counts.
    pub replay: ReplaySettings,
}

impl Default for DigestSettings {
    fn default() -> Self {
        Self {
            qop: QopOffer::AUTH,
            without_qop: true,
            nonce_life: 300,
            clock_skew: 10,
            uri_check: UriCheck::Loose,
            replay: ReplaySettings::default(),
        }
    }
}

/// Comparison of the `uri` parameter with the Request-URI (RFC 7616 section 3.4.6).
///
/// The response covers the parameter and not the Request-URI. Without a comparison, an attacker could take intercepted credentials that
/// have not arrived yet, or that another server with the same secret accepts as well, and call any number with them. Proxies may rewrite a
/// Request-URI (RFC 3261 section 22.4 item 5), mostly its port and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UriCheck {
    /// No comparison.
    Off,
    /// Same user and same host; scheme, port, parameters and the form of escapes may differ. For a REGISTER any value
    /// is accepted, since To names the user of the binding.
    #[default]
    Loose,
    /// Same bytes.
    Exact,
}

/// Request with credentials.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    /// Method of the start line.
    pub method: &'a [u8],
    /// Request-URI.
    pub uri: &'a [u8],
    /// Whole body, may be empty; used only with auth-int.
    pub body: &'a [u8],
    /// Set for a REGISTER to this server.
    pub to_registrar: bool,
    /// Source address without port, as bytes in any fixed form, which must be the form used for the challenge.
    pub source: &'a [u8],
    /// Set if a handshake has proved that the source receives messages at its address; a datagram proves nothing.
    pub source_is_proven: bool,
    /// Algorithms offered where the request arrived; no other is accepted.
    pub algorithms: &'a [Algorithm],
}

/// Parameters of new challenges.
#[derive(Clone, Copy, Debug)]
pub struct ChallengeParams<'a> {
    /// Header field: of a registrar or a proxy.
    pub header: ChallengeHeader,
    /// Algorithms, one challenge each, in this order (RFC 8760 section 2.3).
    pub algorithms: &'a [Algorithm],
    /// Realm in which a user has one password (RFC 7616 section 3.3), without quotes; an HA1 belongs to one realm.
    pub realm: &'a [u8],
    /// Source address, as in [`SignedRequest`].
    pub source: &'a [u8],
    /// Random bits, as needed by [`NonceKey::issue`].
    pub entropy: u64,
    /// [`Authentication::stale`] of the refused credentials; false if there were none.
    pub stale: bool,
}

/// Result of the verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// The user knows the password, and this request was not seen before.
    Ok,
    /// The nonce is not valid, or not valid any more: challenge again with stale=true.
    Stale(Staleness),
    /// The response is wrong or the user unknown. The source receives messages at its address, as proved by a nonce
    /// that was sent to this address, or by a handshake. So the failure counts against the source.
    WrongPassword,
    /// The nonce is not ours (or made with an earlier secret); nothing else was verified. The new challenge has stale=true, so that a phone
    /// tries again by itself, and no peer learns whether the response was right.
    ForgedNonce,
    /// The response is right, but its nonce count was used before: challenge again with stale=true.
    Replay,
    /// The request gets 400.
    BadRequest(BadRequest),
}

impl From<BadRequest> for Authentication {
    fn from(reason: BadRequest) -> Self {
        Self::BadRequest(reason)
    }
}

impl Authentication {
    /// Tells whether the request may continue as this user.
    pub fn is_ok(self) -> bool {
        self == Self::Ok
    }

    /// Returns `stale` of the challenge after this verdict.
    pub fn stale(self) -> bool {
        matches!(self, Self::Stale(_) | Self::ForgedNonce | Self::Replay)
    }
}

/// Reason why a nonce is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// The lifetime of the nonce is over, but the response is right.
    Expired,
    /// The table of used nonces is full, or the share of this user is, but the response is right.
    TableFull,
    /// The nonce came by UDP, but was issued to another source. A peer that guesses passwords could use the nonces of
    /// one source and send from another, so that no failure would count. The response was not verified. A phone that
    /// changed its network tries again by itself; a phone whose address changes with each datagram can never
    /// authenticate by UDP.
    OtherSource,
    /// The nonce was issued before this process began, so its uses are unknown. The response was not verified.
    BeforeStart,
}

impl fmt::Display for Staleness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the nonce has expired",
            Self::TableFull => "no more nonces of this user can be remembered",
            Self::OtherSource => "the nonce was issued to another address",
            Self::BeforeStart => "the nonce is of a time before this server started",
        })
    }
}

/// Defect of credentials that needs no secret to detect (RFC 7616 section 3.4: 400).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// The realm is another one.
    Realm,
    /// The algorithm is unknown or was not offered.
    Algorithm,
    /// The qop is unknown or was not offered, or it is missing and required.
    Qop,
    /// nc is missing or no number, although qop is present.
    NonceCount,
    /// cnonce is missing, although qop or a `-sess` algorithm needs it.
    Cnonce,
    /// The response is not hexadecimal of the algorithm's length.
    Response,
    /// The `uri` parameter names another resource than the Request-URI.
    Uri,
    /// The username cannot be decoded.
    Username,
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Realm => "credentials are for another realm",
            Self::Algorithm => "the algorithm was not offered",
            Self::Qop => "the qop was not offered",
            Self::NonceCount => "nc is missing or no number",
            Self::Cnonce => "cnonce is missing",
            Self::Response => "the response has not the length of its algorithm",
            Self::Uri => "the uri parameter names another resource",
            Self::Username => "the username cannot be read",
        })
    }
}

/// Well-formed credentials with a nonce of ours, kept while the subscriber is looked up.
#[derive(Clone, Copy, Debug)]
pub struct CheckedCredentials {
    nonce: Nonce,
    algorithm: Algorithm,
    qop: Option<Qop>,
    count: Count,
    given: HashValue,
}

impl CheckedCredentials {
    /// Returns the algorithm of the credentials, so that a store need fetch only the HA1 for it.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// Writer of challenges and verifier of credentials for one process; shared by all shards.
#[derive(Debug)]
pub struct Authenticator {
    settings: DigestSettings,
    lasting: Arc<Lasting>,
}

/// State that stays when settings change.
#[derive(Debug)]
struct Lasting {
    key: NonceKey,
    decoy: Ha1Set,
    used: ReplayTable,
    /// [`Now::mono`] at the start of this process.
    started: u64,
}

impl Authenticator {
    /// Creates an authenticator. `secret`: shared by servers that accept each other's nonces. Each server has its own
    /// table of used counts, so a request that one server has accepted can be replayed to another until its nonce
    /// expires. `seed`: random per process. Nonces of other servers are valid only if they were issued after `started`,
    /// since the table does not know earlier uses.
    pub fn new(settings: DigestSettings, secret: &[u8], seed: u64, started: Now) -> Self {
        let decoy = Hmac::new(secret);
        let decoy = Hash::ALL.into_iter().filter_map(|hash| {
            let value = decoy.mac(&[b"strowger digest nobody 1"]);
            Ha1::from_bytes(hash, &value[..hash.size()])
        });
        // Nonces contain this value, so it must not reveal the seed.
        let [a, b, c, ..] = Hmac::new(&seed.to_le_bytes()).mac(&[b"strowger digest process"]);
        let lasting = Lasting {
            key: NonceKey::new(secret, u32::from_be_bytes([0, a, b, c])),
            decoy: decoy.collect(),
            started: started.mono,
            used: ReplayTable::new(settings.replay, settings.nonce_life, settings.clock_skew, seed),
        };
        Self { settings, lasting: Arc::new(lasting) }
    }

    /// Returns the current settings.
    pub fn settings(&self) -> &DigestSettings {
        &self.settings
    }

    /// Returns an authenticator with other settings. Issued nonces stay valid, and used nonces stay known. The settings
    /// of the table of used nonces do not change: lifetime of a nonce, clock skew, bounds of the table.
    #[must_use]
    pub fn with_settings(&self, settings: DigestSettings) -> Self {
        let DigestSettings { nonce_life, clock_skew, replay, .. } = self.settings;
        Self { settings: DigestSettings { nonce_life, clock_skew, replay, ..settings }, lasting: self.lasting.clone() }
    }

    /// Returns the table of used counts, so that its gauges can be read.
    pub fn used(&self) -> &ReplayTable {
        &self.lasting.used
    }

    /// Drops used nonces whose lifetime is over. Verification drops them too, partition by partition; a call every few
    /// seconds keeps the table of an idle server empty.
    pub fn purge(&self, now: Now) {
        self.lasting.used.purge(seconds(now));
    }

    /// Writes one header line per algorithm, all with the same new nonce.
    pub fn write_challenges(&self, now: Now, demand: &ChallengeParams<'_>, out: &mut Vec<u8>) {
        let nonce = self.lasting.key.issue(seconds(now), demand.realm, demand.source, demand.entropy);
        for &algorithm in demand.algorithms {
            let (realm, nonce) = (demand.realm, nonce.as_bytes());
            let new = NewChallenge { realm, nonce, algorithm, qop: self.settings.qop, stale: demand.stale };
            new.write(demand.header, out);
        }
    }

    /// Verifies everything that needs no secret of the user: form, offer, and whether the nonce is ours and valid for this source.
    ///
    /// # Errors
    /// The verdict, if it needs no password: never [`Authentication::Ok`] or [`Authentication::WrongPassword`].
    pub fn check(
        &self,
        now: Now,
        realm: &[u8],
        attempt: &SignedRequest<'_>,
        credentials: &Credentials<'_>,
    ) -> Result<CheckedCredentials, Authentication> {
        if credentials.realm.value().as_ref() != realm {
            return Err(BadRequest::Realm.into());
        }
        let algorithm = credentials.algorithm().ok_or(BadRequest::Algorithm)?;
        if !attempt.algorithms.contains(&algorithm) {
            return Err(BadRequest::Algorithm.into());
        }
        let qop = credentials.qop().ok_or(BadRequest::Qop)?;
        let allowed = match qop {
            Some(qop) => self.settings.qop.contains(qop),
            None => self.settings.without_qop && self.settings.qop != QopOffer::AUTH_INT,
        };
        if !allowed {
            return Err(BadRequest::Qop.into());
        }
        let count = match qop {
            Some(_) => Count::Nc(credentials.nonce_count().ok_or(BadRequest::NonceCount)?),
            None => Count::Once,
        };
        if (qop.is_some() || algorithm.session) && credentials.cnonce.is_none() {
            return Err(BadRequest::Cnonce.into());
        }
        let given = credentials.response_value().ok_or(BadRequest::Response)?;
        if credentials.user().is_none() {
            return Err(BadRequest::Username.into());
        }
        let uri = credentials.uri.value();
        if uri.is_empty() || !self.settings.uri_check.accepts(&uri, attempt) {
            return Err(BadRequest::Uri.into());
        }
        let nonce = self.lasting.key.open(credentials.nonce.raw(), realm).ok_or(Authentication::ForgedNonce)?;
        if !attempt.source_is_proven && !self.lasting.key.was_issued_to(&nonce, attempt.source) {
            return Err(Authentication::Stale(Staleness::OtherSource));
        }
        if !self.lasting.key.is_own(&nonce) && self.is_before_start(&nonce, now) {
            return Err(Authentication::Stale(Staleness::BeforeStart));
        }
        Ok(CheckedCredentials { nonce, algorithm, qop, count, given })
    }

    /// Verifies the response. `ha1`: `None` for an unknown user. An unknown user, or a set without the algorithm, takes
    /// the same computing time as a wrong password.
    pub fn decide(
        &self,
        now: Now,
        ticket: &CheckedCredentials,
        attempt: &SignedRequest<'_>,
        credentials: &Credentials<'_>,
        ha1: Option<&Ha1Set>,
    ) -> Authentication {
        let hash = ticket.algorithm.hash;
        let known = ha1.and_then(|set| set.of(hash));
        let ha1 = known.or_else(|| self.lasting.decoy.of(hash)).expect("the decoy has every hash");
        let cnonce = credentials.cnonce.map_or(Cow::Borrowed(&b""[..]), |cnonce| cnonce.value());
        let right = response(
            &ha1,
            &ResponseInput {
                algorithm: ticket.algorithm,
                qop: ticket.qop,
                nonce: credentials.nonce.raw(),
                nc: credentials.nc.map_or(b"", |nc| nc.raw()),
                cnonce: &cnonce,
                method: attempt.method,
                uri: &credentials.uri.value(),
                body: attempt.body,
            },
        );
        if right != ticket.given || known.is_none() {
            return Authentication::WrongPassword;
        }
        if !ticket.nonce.is_fresh(seconds(now), self.settings.nonce_life, self.settings.clock_skew) {
            return Authentication::Stale(Staleness::Expired);
        }
        // The key of the entry is the HA1 and not the username, because another spelling of the username may name the
        // same subscriber, and the response does not cover the spelling.
        match self.lasting.used.admit(seconds(now), &ticket.nonce, ha1.value().as_bytes(), ticket.count) {
            Admission::New => Authentication::Ok,
            Admission::Replayed => Authentication::Replay,
            Admission::Full => Authentication::Stale(Staleness::TableFull),
        }
    }

    /// Calls [`Authenticator::check`] and [`Authenticator::decide`].
    pub fn verify(
        &self,
        now: Now,
        realm: &[u8],
        attempt: &SignedRequest<'_>,
        credentials: &Credentials<'_>,
        ha1: Option<&Ha1Set>,
    ) -> Authentication {
        match self.check(now, realm, attempt, credentials) {
            Ok(ticket) => self.decide(now, &ticket, attempt, credentials, ha1),
            Err(verdict) => verdict,
        }
    }

    /// Tells whether an earlier run of this process may have issued the nonce, with uses that this run does not know. The monotonic clock
    /// gives the start of the process; a step back of the wall clock between two runs is tolerated up to the clock skew.
    fn is_before_start(&self, nonce: &Nonce, now: Now) -> bool {
        let started = now.wall.saturating_sub(now.mono.saturating_sub(self.lasting.started)) / 1_000;
        nonce.issued_at(seconds(now)) <= started + u64::from(self.settings.clock_skew)
    }
}

/// Returns the seconds of the wall clock, which verifies nonces because other servers verify them too.
fn seconds(now: Now) -> u64 {
    now.wall / 1_000
}

impl UriCheck {
    fn accepts(self, parameter: &[u8], attempt: &SignedRequest<'_>) -> bool {
        match self {
            Self::Off => true,
            Self::Exact => parameter == attempt.uri,
            Self::Loose if attempt.to_registrar || parameter == attempt.uri => true,
            Self::Loose => {
                let (a, b) = (user_and_host(parameter), user_and_host(attempt.uri));
                unescaped(a.0).eq(unescaped(b.0)) && a.1.eq_ignore_ascii_case(b.1)
            }
        }
    }
}

/// Returns the bytes of a user part with its escapes decoded (RFC 3261 section 19.1.4).
fn unescaped(user: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = user;
    std::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        rest = after;
        if let (b'%', [high, low, after @ ..]) = (first, after)
            && let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low))
        {
            rest = after;
            return Some(high << 4 | low);
        }
        Some(first)
    })
}

/// Returns the user part (without a password) and the host of a URI, as far as present.
fn user_and_host(uri: &[u8]) -> (&[u8], &[u8]) {
    let rest = match uri.iter().position(|&b| b == b':') {
        Some(colon) if uri[..colon].iter().all(u8::is_ascii_alphabetic) => &uri[colon + 1..],
        _ => uri,
    };
    // Headers may contain an `@`, but a host may not; a user part may contain `;` and `?` (RFC 3261 section 25.1).
    let (user, rest) = match rest.iter().position(|&b| b == b'@') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (&rest[..0], rest),
    };
    let user = user.split(|&b| b == b':').next().unwrap_or_default();
    let end = match rest {
        [b'[', ..] => rest.iter().position(|&b| b == b']').map(|end| end + 1),
        _ => rest.iter().position(|b| b":;?>".contains(b)),
    };
    let host = &rest[..end.unwrap_or(rest.len())];
    // A host name may end with the dot of the root domain.
    (user, host.strip_suffix(b".").unwrap_or(host))
}

#[cfg(test)]
mod tests;
