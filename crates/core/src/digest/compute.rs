//! HA1, HA2 and response: RFC 7616 section 3.4.1 to 3.4.4.

use std::fmt;

use super::algorithm::{Algorithm, Hash, HashValue};

/// Quality of protection that a response claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Qop {
    /// Method and URI are covered.
    Auth,
    /// The body is covered too.
    AuthInt,
}

impl Qop {
    /// Returns the token of a header field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::AuthInt => "auth-int",
        }
    }

    /// Parses the value of the parameter in any case.
    pub fn parse(token: &[u8]) -> Option<Self> {
        [Self::Auth, Self::AuthInt].into_iter().find(|qop| token.eq_ignore_ascii_case(qop.name().as_bytes()))
    }
}

/// HA1: `H(user ":" realm ":" password)`, kept by a subscriber database in place of a password.
///
/// An HA1 gives access to the account in this realm as the password does, so `Debug` hides the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ha1(HashValue);

impl Ha1 {
    /// Computes the HA1 of a password. Name and realm are without quotes or escapes.
    pub fn new(hash: Hash, user: &[u8], realm: &[u8], password: &[u8]) -> Self {
        Self(hash.of(&[user, b":", realm, b":", password]))
    }

    /// Parses stored hexadecimal digits; returns `None` if they are no value of this hash.
    pub fn from_hex(hash: Hash, hex: &[u8]) -> Option<Self> {
        HashValue::from_hex(hash, hex).map(Self)
    }

    /// Creates the value from its raw bytes: 16 for MD5 and 32 for the other hashes.
    pub fn from_bytes(hash: Hash, bytes: &[u8]) -> Option<Self> {
        HashValue::from_bytes(hash, bytes).map(Self)
    }

    /// Returns the hash value, which is as secret as the password.
    pub fn value(&self) -> &HashValue {
        &self.0
    }

    /// Returns the HA1's hash; only algorithms of this hash can use it.
    pub fn hash(&self) -> Hash {
        self.0.hash()
    }

    /// Returns lower-case hexadecimal digits for the database.
    pub fn to_hex(&self) -> String {
        self.0.hex().as_str().to_owned()
    }
}

impl fmt::Debug for Ha1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ha1({:?}, ..)", self.0.hash())
    }
}

/// HA1 values of one subscriber in one realm, at most one per hash: 83 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Ha1Set {
    md5: Option<[u8; 16]>,
    sha256: Option<[u8; 32]>,
    sha512_256: Option<[u8; 32]>,
}

impl Ha1Set {
    /// Computes all three values of a password.
    pub fn of_password(user: &[u8], realm: &[u8], password: &[u8]) -> Self {
        Hash::ALL.into_iter().map(|hash| Ha1::new(hash, user, realm, password)).collect()
    }

    /// Adds or replaces the value of its hash.
    pub fn insert(&mut self, ha1: Ha1) {
        let bytes = ha1.0.as_bytes();
        match ha1.hash() {
            Hash::Md5 => self.md5 = bytes.try_into().ok(),
            Hash::Sha256 => self.sha256 = bytes.try_into().ok(),
            Hash::Sha512_256 => self.sha512_256 = bytes.try_into().ok(),
        }
    }

    /// Returns the value for this hash, if one is stored.
    pub fn of(&self, hash: Hash) -> Option<Ha1> {
        let bytes: &[u8] = match hash {
            Hash::Md5 => self.md5.as_ref()?,
            Hash::Sha256 => self.sha256.as_ref()?,
            Hash::Sha512_256 => self.sha512_256.as_ref()?,
        };
        Ha1::from_bytes(hash, bytes)
    }

    /// Tells whether no value is stored, so that no response can be right.
    pub fn is_empty(&self) -> bool {
        self.md5.is_none() && self.sha256.is_none() && self.sha512_256.is_none()
    }
}

impl FromIterator<Ha1> for Ha1Set {
    fn from_iter<I: IntoIterator<Item = Ha1>>(values: I) -> Self {
        let mut set = Self::default();
        for ha1 in values {
            set.insert(ha1);
        }
        set
    }
}

impl fmt::Debug for Ha1Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(Hash::ALL.into_iter().filter_map(|hash| self.of(hash))).finish()
    }
}

/// Returns the HA1 of a `-sess` algorithm: `H(HA1 ":" nonce ":" cnonce)` (RFC 7616 section 3.4.2).
pub fn session_ha1(ha1: &Ha1, nonce: &[u8], cnonce: &[u8]) -> HashValue {
    ha1.hash().of(&[ha1.0.hex().as_bytes(), b":", nonce, b":", cnonce])
}

/// Returns HA2: `H(method ":" uri)`, for auth-int `H(method ":" uri ":" H(body))` (RFC 7616 section 3.4.3).
pub fn a2_hash(hash: Hash, qop: Option<Qop>, method: &[u8], uri: &[u8], body: &[u8]) -> HashValue {
    match qop {
        Some(Qop::AuthInt) => {
            let body = hash.of(&[body]).hex();
            hash.of(&[method, b":", uri, b":", body.as_bytes()])
        }
        Some(Qop::Auth) | None => hash.of(&[method, b":", uri]),
    }
}

/// Returns the username of a header field with `userhash`: `H(user ":" realm)` (RFC 7616 section 3.4.4).
pub fn userhash(hash: Hash, user: &[u8], realm: &[u8]) -> HashValue {
    hash.of(&[user, b":", realm])
}

/// Input of a response without the secret. Values are unquoted.
#[derive(Clone, Copy, Debug)]
pub struct ResponseInput<'a> {
    /// Algorithm of the response, which must have the hash of the HA1.
    pub algorithm: Algorithm,
    /// Quality of protection; `None` for a response as in RFC 2069.
    pub qop: Option<Qop>,
    /// Nonce of the challenge.
    pub nonce: &'a [u8],
    /// Digits of the nonce count as received; unused without qop.
    pub nc: &'a [u8],
    /// Client nonce; without qop only `-sess` algorithms use it.
    pub cnonce: &'a [u8],
    /// Method; empty for the `rspauth` of a server.
    pub method: &'a [u8],
    /// Value of the parameter `uri`, which may differ from the Request-URI (RFC 3261 section 22.4).
    pub uri: &'a [u8],
    /// Body, used by auth-int only.
    pub body: &'a [u8],
}

/// Computes the response (RFC 7616 section 3.4.1), or without qop the response of RFC 2069.
///
/// `ha1` must have the algorithm's hash, otherwise the value matches no response.
pub fn response(ha1: &Ha1, input: &ResponseInput<'_>) -> HashValue {
    let hash = input.algorithm.hash;
    let a1 = if input.algorithm.session { session_ha1(ha1, input.nonce, input.cnonce) } else { ha1.0 };
    let a2 = a2_hash(hash, input.qop, input.method, input.uri, input.body).hex();
    let (a1, a2) = (a1.hex(), a2.as_bytes());
    match input.qop {
        Some(qop) => hash.of(&[
            a1.as_bytes(),
            b":",
            input.nonce,
            b":",
            input.nc,
            b":",
            input.cnonce,
            b":",
            qop.name().as_bytes(),
            b":",
            a2,
        ]),
        None => hash.of(&[a1.as_bytes(), b":", input.nonce, b":", a2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ha1_set_keeps_one_value_per_hash() {
        let set = Ha1Set::of_password(b"bob", b"biloxi.com", b"zanzibar");
        for hash in Hash::ALL {
            let ha1 = Ha1::new(hash, b"bob", b"biloxi.com", b"zanzibar");
            assert_eq!(set.of(hash), Some(ha1));
            assert_eq!(Ha1::from_hex(hash, ha1.to_hex().as_bytes()), Some(ha1));
        }
        let one: Ha1Set = [Ha1::new(Hash::Md5, b"a", b"b", b"c")].into_iter().collect();
        assert!(one.of(Hash::Sha256).is_none() && !one.is_empty() && Ha1Set::default().is_empty());
        assert_eq!(format!("{one:?}"), "[Ha1(Md5, ..)]");
        assert!(size_of::<Ha1Set>() <= 83);
    }

    #[test]
    fn known_ha1() {
        // printf 'bob:biloxi.com:zanzibar' | md5sum
        assert_eq!(
            Ha1::new(Hash::Md5, b"bob", b"biloxi.com", b"zanzibar").to_hex(),
            "12af60467a33e8518da5c68bbff12b11"
        );
    }
}
