//! Answer of a user agent to a challenge: RFC 7616 section 3.4 and RFC 3261 section 22.2.

use std::fmt;

use super::algorithm::Algorithm;
use super::challenge::{Challenge, QopOffer};
use super::compute::{Ha1, Ha1Set, Qop, ResponseInput, response, userhash};
use super::params::write_quoted;

/// Secret of a user agent: its password or HA1 values.
#[derive(Clone, Copy)]
pub enum Secret<'a> {
    /// Password: the HA1 is computed for each answer.
    Password(&'a [u8]),
    /// HA1 values for the realm of the challenge.
    Ha1(&'a Ha1Set),
}

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password(_) => "Password(..)",
            Self::Ha1(_) => "Ha1(..)",
        })
    }
}

/// Request to be repeated, and its sender.
#[derive(Clone, Copy, Debug)]
pub struct ChallengeAnswer<'a> {
    /// User name in the realm; it is sent hashed if the challenge has `userhash=true`.
    pub user: &'a [u8],
    /// Secret for the realm of the challenge.
    pub secret: Secret<'a>,
    /// Method of the start line.
    pub method: &'a [u8],
    /// Request-URI.
    pub uri: &'a [u8],
    /// Whole body, may be empty; used only with auth-int.
    pub body: &'a [u8],
    /// Random text, new for each challenge, without control characters.
    pub cnonce: &'a [u8],
    /// Nonce count: 1 for the first use of the challenge's nonce, and incremented for each further use.
    pub nc: u32,
}

/// Reason why a challenge cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeAnswerError {
    /// The algorithm of the challenge is unknown.
    Algorithm,
    /// The challenge offers only unknown qualities of protection.
    Qop,
    /// No HA1 of its algorithm is available.
    NoHa1,
}

impl fmt::Display for ChallengeAnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Algorithm => "the challenge asks for an unknown algorithm",
            Self::Qop => "the challenge offers no known qop",
            Self::NoHa1 => "no HA1 for the algorithm of the challenge",
        })
    }
}

impl std::error::Error for ChallengeAnswerError {}

impl ChallengeAnswer<'_> {
    /// Appends the value of the header field: `Digest username=...`, without name and line end.
    ///
    /// If both qualities are offered, the answer uses `auth`, because a proxy may change the body.
    ///
    /// # Errors
    /// The challenge needs an unknown algorithm or quality, or a missing HA1; nothing is appended then.
    pub fn write(&self, challenge: &Challenge<'_>, out: &mut Vec<u8>) -> Result<(), ChallengeAnswerError> {
        let algorithm = challenge.algorithm().ok_or(ChallengeAnswerError::Algorithm)?;
        let qop = match challenge.qop {
            None => None,
            Some(QopOffer { auth: true, .. }) => Some(Qop::Auth),
            Some(QopOffer { auth_int: true, .. }) => Some(Qop::AuthInt),
            Some(_) => return Err(ChallengeAnswerError::Qop),
        };
        let realm = challenge.realm.value();
        let nonce = challenge.nonce.value();
        let ha1 = match self.secret {
            Secret::Password(password) => Ha1::new(algorithm.hash, self.user, &realm, password),
            Secret::Ha1(set) => set.of(algorithm.hash).ok_or(ChallengeAnswerError::NoHa1)?,
        };
        let nc = format!("{:08x}", self.nc);
        let value = response(
            &ha1,
            &ResponseInput {
                algorithm,
                qop,
                nonce: &nonce,
                nc: nc.as_bytes(),
                cnonce: self.cnonce,
                method: self.method,
                uri: self.uri,
                body: self.body,
            },
        );
        let quoted = |out: &mut Vec<u8>, name: &str, value: &[u8]| {
            out.extend_from_slice(name.as_bytes());
            write_quoted(out, value);
        };
        let hashed = challenge.userhash.then(|| userhash(algorithm.hash, self.user, &realm).hex());
        quoted(out, "Digest username=", hashed.as_ref().map_or(self.user, |hex| hex.as_bytes()));
        quoted(out, ", realm=", &realm);
        quoted(out, ", nonce=", &nonce);
        quoted(out, ", uri=", self.uri);
        quoted(out, ", response=", value.hex().as_bytes());
        if challenge.algorithm.is_some() || algorithm != Algorithm::MD5 {
            out.extend_from_slice(b", algorithm=");
            out.extend_from_slice(algorithm.name().as_bytes());
        }
        if qop.is_some() || algorithm.session {
            quoted(out, ", cnonce=", self.cnonce);
        }
        if let Some(opaque) = challenge.opaque {
            quoted(out, ", opaque=", &opaque.value());
        }
        if let Some(qop) = qop {
            // qop and nc are tokens here (RFC 7616 section 3.4).
            out.extend_from_slice(b", qop=");
            out.extend_from_slice(qop.name().as_bytes());
            out.extend_from_slice(b", nc=");
            out.extend_from_slice(nc.as_bytes());
        }
        if hashed.is_some() {
            out.extend_from_slice(b", userhash=true");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::credentials::Credentials;
    use super::*;

    fn answer(challenge: &str) -> Result<String, ChallengeAnswerError> {
        let challenge = Challenge::parse(challenge.as_bytes()).expect("valid");
        let mut out = Vec::new();
        ChallengeAnswer {
            user: b"Mufasa",
            secret: Secret::Password(b"Circle of Life"),
            method: b"GET",
            uri: b"/dir/index.html",
            body: b"",
            cnonce: b"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
            nc: 1,
        }
        .write(&challenge, &mut out)?;
        Ok(String::from_utf8(out).expect("ASCII"))
    }

    #[test]
    fn the_example_of_rfc_7616_section_3_9_1() {
        let challenge = "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm=SHA-256, \
            nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\"";
        let line = answer(challenge).expect("supported");
        let read = Credentials::parse(line.as_bytes()).expect("own writing");
        assert_eq!(read.response.raw(), b"753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1");
        assert_eq!(read.opaque.expect("echoed").raw(), b"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS");
        assert_eq!((read.nonce_count(), read.qop()), (Some(1), Some(Some(Qop::Auth))));
    }

    #[test]
    fn parameters_follow_the_challenge() {
        let plain = answer("Digest realm=\"r\", nonce=\"n\"").expect("RFC 2069");
        assert!(!plain.contains("qop") && !plain.contains("cnonce") && !plain.contains("algorithm"), "{plain}");
        let hashed = answer("Digest realm=\"r\", nonce=\"n\", userhash=true, qop=auth-int").expect("supported");
        assert!(hashed.contains("userhash=true") && !hashed.contains("Mufasa") && hashed.contains("qop=auth-int"));
        assert_eq!(answer("Digest realm=\"r\", nonce=\"n\", algorithm=x"), Err(ChallengeAnswerError::Algorithm));
        assert_eq!(answer("Digest realm=\"r\", nonce=\"n\", qop=x"), Err(ChallengeAnswerError::Qop));
    }
}
