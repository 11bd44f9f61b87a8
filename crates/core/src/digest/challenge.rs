//! Challenges: value of a WWW-Authenticate or Proxy-Authenticate header field (RFC 7616 section 3.3).

use super::algorithm::Algorithm;
use super::compute::Qop;
use super::params::{HeaderError, Malformed, Params, Text, scheme, write_quoted};

/// Pair of header fields of a challenge and its answer (RFC 3261 section 22.2 and 22.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChallengeHeader {
    /// 401 and WWW-Authenticate, answered by Authorization: registrars and user agents.
    WwwAuthenticate,
    /// 407 and Proxy-Authenticate, answered by Proxy-Authorization: proxies.
    ProxyAuthenticate,
}

impl ChallengeHeader {
    /// Returns the name of the header field of the challenge.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WwwAuthenticate => "WWW-Authenticate",
            Self::ProxyAuthenticate => "Proxy-Authenticate",
        }
    }

    /// Returns the name of the header field of the answer.
    pub const fn answer_name(self) -> &'static str {
        match self {
            Self::WwwAuthenticate => "Authorization",
            Self::ProxyAuthenticate => "Proxy-Authorization",
        }
    }

    /// Returns the status code of the response with the challenge.
    pub const fn status(self) -> u16 {
        match self {
            Self::WwwAuthenticate => 401,
            Self::ProxyAuthenticate => 407,
        }
    }
}

/// Qualities of protection that a challenge offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct QopOffer {
    /// `auth`: the response covers method and URI (RFC 7616 section 3.4.3).
    pub auth: bool,
    /// `auth-int`: the response covers the body too.
    pub auth_int: bool,
}

impl QopOffer {
    /// `auth` alone.
    pub const AUTH: Self = Self { auth: true, auth_int: false };
    /// `auth-int` alone.
    pub const AUTH_INT: Self = Self { auth: false, auth_int: true };
    /// Both: the user agent chooses.
    pub const BOTH: Self = Self { auth: true, auth_int: true };

    /// Tells whether a response may claim this quality.
    pub const fn contains(self, qop: Qop) -> bool {
        match qop {
            Qop::Auth => self.auth,
            Qop::AuthInt => self.auth_int,
        }
    }

    /// Returns the value of the qop parameter; empty if nothing is offered.
    pub const fn list(self) -> &'static str {
        match (self.auth, self.auth_int) {
            (true, true) => "auth,auth-int",
            (true, false) => "auth",
            (false, true) => "auth-int",
            (false, false) => "",
        }
    }

    fn parse(list: &[u8]) -> Self {
        let mut offer = Self::default();
        for token in list.split(|&b| b == b',') {
            match Qop::parse(token.trim_ascii()) {
                Some(Qop::Auth) => offer.auth = true,
                Some(Qop::AuthInt) => offer.auth_int = true,
                None => {}
            }
        }
        offer
    }
}

/// Digest challenge as views into the header field; nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct Challenge<'a> {
    /// Realm: a user has one password in each realm.
    pub realm: Text<'a>,
    /// Text of the server, opaque to the user agent; each answer repeats it.
    pub nonce: Text<'a>,
    /// URIs for which the same credentials are valid, joined with spaces (RFC 7616 section 3.3); unused by this
    /// program.
    pub domain: Option<Text<'a>>,
    /// Text that each answer repeats.
    pub opaque: Option<Text<'a>>,
    /// Set if the nonce was too old but the password right: the client tries again without asking the user.
    pub stale: bool,
    /// Algorithm; `None` if the parameter is missing, which means MD5.
    pub algorithm: Option<Text<'a>>,
    /// Offered qualities; `None` if the parameter is missing, so that the server implements RFC 2069.
    pub qop: Option<QopOffer>,
    /// Set by `userhash=true`: the server knows its users by hashed names (RFC 7616 section 3.4.4).
    pub userhash: bool,
}

impl<'a> Challenge<'a> {
    /// Reads the value of a header field, with or without folds.
    ///
    /// # Errors
    /// Not a Digest challenge, or a malformed one; an unknown algorithm or qop is no error.
    pub fn parse(value: &'a [u8]) -> Result<Self, HeaderError> {
        let (name, params) = scheme(value);
        if !name.eq_ignore_ascii_case(b"Digest") {
            return Err(HeaderError::Scheme);
        }
        let [mut realm, mut nonce, mut domain, mut opaque, mut stale, mut algorithm, mut qop, mut userhash] = [None; 8];
        for param in Params::new(params) {
            let (name, value) = param.map_err(|Malformed(at)| HeaderError::Syntax(at))?;
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let (slot, name) = match name.len() {
                3 if is("qop") => (&mut qop, "qop"),
                5 if is("realm") => (&mut realm, "realm"),
                5 if is("nonce") => (&mut nonce, "nonce"),
                5 if is("stale") => (&mut stale, "stale"),
                6 if is("domain") => (&mut domain, "domain"),
                6 if is("opaque") => (&mut opaque, "opaque"),
                8 if is("userhash") => (&mut userhash, "userhash"),
                9 if is("algorithm") => (&mut algorithm, "algorithm"),
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return Err(HeaderError::Twice(name));
            }
        }
        let is_true = |value: Option<Text<'a>>| value.is_some_and(|value| value.is("true"));
        Ok(Self {
            realm: realm.ok_or(HeaderError::Missing("realm"))?,
            nonce: nonce.ok_or(HeaderError::Missing("nonce"))?,
            domain,
            opaque,
            stale: is_true(stale),
            algorithm,
            qop: qop.map(|list| QopOffer::parse(list.raw())),
            userhash: is_true(userhash),
        })
    }

    /// Returns the algorithm, MD5 if none is named; `None` if the algorithm is unknown.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm.map_or(Some(Algorithm::MD5), |name| Algorithm::parse(name.raw()))
    }

    /// Tells whether this side can answer the challenge: its algorithm is known, and its qop is known or missing.
    pub fn is_supported(&self) -> bool {
        self.algorithm().is_some() && self.qop.is_none_or(|offer| offer != QopOffer::default())
    }
}

/// Returns the supported challenge with the strongest hash. Of several with this hash it returns the first, because the
/// server lists challenges in the order of its preference.
pub fn strongest<'c, 'a>(challenges: &'c [Challenge<'a>]) -> Option<&'c Challenge<'a>> {
    let rank = |challenge: &Challenge<'_>| challenge.algorithm().map(|algorithm| algorithm.hash);
    // `max_by_key` returns the last of equal elements, so the iteration is backwards.
    challenges.iter().rev().filter(|challenge| challenge.is_supported()).max_by_key(|challenge| rank(challenge))
}

/// Parameters of one challenge of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewChallenge<'a> {
    pub(super) realm: &'a [u8],
    pub(super) nonce: &'a [u8],
    pub(super) algorithm: Algorithm,
    pub(super) qop: QopOffer,
    pub(super) stale: bool,
}

impl NewChallenge<'_> {
    /// Writes the header line, CRLF included.
    pub(super) fn write(&self, header: ChallengeHeader, out: &mut Vec<u8>) {
        out.extend_from_slice(header.name().as_bytes());
        out.extend_from_slice(b": Digest realm=");
        write_quoted(out, self.realm);
        out.extend_from_slice(b", nonce=");
        write_quoted(out, self.nonce);
        // stale and algorithm are tokens, qop is a quoted list (RFC 7616 section 3.3).
        if self.stale {
            out.extend_from_slice(b", stale=true");
        }
        out.extend_from_slice(b", algorithm=");
        out.extend_from_slice(self.algorithm.name().as_bytes());
        if !self.qop.list().is_empty() {
            out.extend_from_slice(b", qop=\"");
            out.extend_from_slice(self.qop.list().as_bytes());
            out.push(b'"');
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_challenges_read_back() {
        let mut out = Vec::new();
        for algorithm in Algorithm::ALL {
            for (qop, stale) in [(QopOffer::AUTH, false), (QopOffer::BOTH, true), (QopOffer::AUTH_INT, false)] {
                out.clear();
                let new = NewChallenge { realm: b"a \"b\" c", nonce: b"n", algorithm, qop, stale };
                new.write(ChallengeHeader::ProxyAuthenticate, &mut out);
                let value = out.strip_prefix(b"Proxy-Authenticate: ").and_then(|rest| rest.strip_suffix(b"\r\n"));
                let read = Challenge::parse(value.expect("one whole line")).expect("valid");
                assert_eq!(read.realm.value().as_ref(), b"a \"b\" c");
                assert_eq!(read.nonce.raw(), b"n");
                assert_eq!(read.algorithm(), Some(algorithm));
                assert_eq!((read.qop, read.stale), (Some(qop), stale));
            }
        }
    }

    #[test]
    fn the_strongest_known_one_is_taken() {
        let lines = [
            "Digest realm=\"a\", nonce=\"1\", algorithm=MD5, qop=\"auth\"",
            "Digest realm=\"a\", nonce=\"2\", algorithm=SHA-512-256, qop=\"future\"",
            "Digest realm=\"a\", nonce=\"3\", algorithm=SHA-256, qop=\"auth\"",
            "Digest realm=\"a\", nonce=\"4\", algorithm=SHA-256, qop=\"auth-int , auth\"",
            "Digest realm=\"a\", nonce=\"5\", algorithm=AKAv9",
        ];
        let challenges: Vec<_> = lines.iter().map(|line| Challenge::parse(line.as_bytes()).expect("valid")).collect();
        assert_eq!(strongest(&challenges).expect("some are known").nonce.raw(), b"3");
        assert_eq!(challenges[3].qop, Some(QopOffer::BOTH));
        assert!(strongest(&challenges[4..]).is_none());
        assert_eq!(Challenge::parse(b"Basic realm=\"x\"").map(|_| ()), Err(HeaderError::Scheme));
        assert_eq!(Challenge::parse(b"Digest realm=\"x\"").map(|_| ()), Err(HeaderError::Missing("nonce")));
        assert_eq!(Challenge::parse(b"Digest realm=x, realm=y").map(|_| ()), Err(HeaderError::Twice("realm")));
    }
}
