//! Algorithms of challenges: RFC 7616 section 3.3 and RFC 8760 section 2.

use std::fmt;

use md5::{Digest, Md5};
use sha2::{Sha256, Sha512_256};
use subtle::ConstantTimeEq;

/// Hash function of digest authentication, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// RFC 1321, 16 bytes; for peers that support no other hash.
    Md5,
    /// FIPS 180-4, 32 bytes.
    Sha256,
    /// SHA-512 cut to 32 bytes, with initial values of its own (FIPS 180-4).
    Sha512_256,
}

impl Hash {
    /// Every hash, weakest first.
    pub const ALL: [Self; 3] = [Self::Md5, Self::Sha256, Self::Sha512_256];

    /// Returns the bytes of a hash value: 16 or 32.
    pub const fn size(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha256 | Self::Sha512_256 => 32,
        }
    }

    /// Hashes the concatenation of `parts`.
    pub fn of(self, parts: &[&[u8]]) -> HashValue {
        fn run<D: Digest>(parts: &[&[u8]], out: &mut [u8]) {
            let mut hasher = D::new();
            for part in parts {
                hasher.update(part);
            }
            out.copy_from_slice(&hasher.finalize());
        }
        let mut bytes = [0; 32];
        match self {
            Self::Md5 => run::<Md5>(parts, &mut bytes[..16]),
            Self::Sha256 => run::<Sha256>(parts, &mut bytes),
            Self::Sha512_256 => run::<Sha512_256>(parts, &mut bytes),
        }
        HashValue { hash: self, bytes }
    }
}

/// Value of one of the three hashes, compared in constant time.
#[derive(Clone, Copy)]
pub struct HashValue {
    hash: Hash,
    bytes: [u8; 32],
}

impl HashValue {
    /// Creates the value with these bytes; returns `None` unless there are exactly [`Hash::size`] of them.
    pub fn from_bytes(hash: Hash, bytes: &[u8]) -> Option<Self> {
        let mut all = [0; 32];
        (bytes.len() == hash.size()).then(|| all[..hash.size()].copy_from_slice(bytes))?;
        Some(Self { hash, bytes: all })
    }

    /// Parses hexadecimal digits of either case; returns `None` for a wrong length or another character.
    pub fn from_hex(hash: Hash, hex: &[u8]) -> Option<Self> {
        if hex.len() != 2 * hash.size() {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(Self { hash, bytes })
    }

    /// Returns the hash function of the value.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Returns the [`Hash::size`] bytes of the value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.hash.size()]
    }

    /// Returns lower-case hexadecimal digits, which RFC 7616 uses as input of the next hash.
    pub fn hex(&self) -> Hex {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.as_bytes()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Hex { digits, len: 2 * self.hash.size() }
    }
}

impl PartialEq for HashValue {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && bool::from(self.as_bytes().ct_eq(other.as_bytes()))
    }
}

impl Eq for HashValue {}

impl fmt::Debug for HashValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An HA1 is equivalent to a password, so `Debug` never prints a value.
        write!(f, "HashValue({:?}, ..)", self.hash)
    }
}

/// Hexadecimal digits of a [`HashValue`].
#[derive(Clone, Copy)]
pub struct Hex {
    digits: [u8; 64],
    len: usize,
}

impl Hex {
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[..self.len]
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("hexadecimal digits are ASCII")
    }
}

pub(super) fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Value of the `algorithm` parameter: a hash, with or without the session variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Algorithm {
    /// Hash of HA1, HA2 and the response.
    pub hash: Hash,
    /// Whether the algorithm has the suffix `-sess`: the HA1 is hashed together with nonce and cnonce (RFC 7616 section
    /// 3.4.2).
    pub session: bool,
}

impl Algorithm {
    /// MD5, also meant by a challenge without `algorithm` (RFC 7616 section 3.3).
    pub const MD5: Self = Self { hash: Hash::Md5, session: false };
    /// MD5, the HA1 mixed with nonce and cnonce.
    pub const MD5_SESS: Self = Self { hash: Hash::Md5, session: true };
    /// SHA-256 (RFC 7616 section 3.3).
    pub const SHA_256: Self = Self { hash: Hash::Sha256, session: false };
    /// SHA-256, the HA1 mixed with nonce and cnonce.
    pub const SHA_256_SESS: Self = Self { hash: Hash::Sha256, session: true };
    /// SHA-512/256 (RFC 7616 section 3.3).
    pub const SHA_512_256: Self = Self { hash: Hash::Sha512_256, session: false };
    /// SHA-512/256, the HA1 mixed with nonce and cnonce.
    pub const SHA_512_256_SESS: Self = Self { hash: Hash::Sha512_256, session: true };

    /// Every algorithm, weakest first.
    pub const ALL: [Self; 6] =
        [Self::MD5, Self::MD5_SESS, Self::SHA_256, Self::SHA_256_SESS, Self::SHA_512_256, Self::SHA_512_256_SESS];

    /// Returns the name of the algorithm as registered with IANA.
    pub const fn name(self) -> &'static str {
        match (self.hash, self.session) {
            (Hash::Md5, false) => "MD5",
            (Hash::Md5, true) => "MD5-sess",
            (Hash::Sha256, false) => "SHA-256",
            (Hash::Sha256, true) => "SHA-256-sess",
            (Hash::Sha512_256, false) => "SHA-512-256",
            (Hash::Sha512_256, true) => "SHA-512-256-sess",
        }
    }

    /// Parses the name of an algorithm in any case; returns `None` for an unknown algorithm.
    pub fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| name.eq_ignore_ascii_case(algorithm.name().as_bytes()))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_in_any_case() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::parse(algorithm.name().as_bytes()), Some(algorithm));
            assert_eq!(Algorithm::parse(algorithm.name().to_lowercase().as_bytes()), Some(algorithm));
        }
        assert_eq!(Algorithm::parse(b"SHA-512"), None);
        assert_eq!(Algorithm::parse(b""), None);
    }

    #[test]
    fn hashes_of_the_empty_string() {
        // RFC 1321 appendix A.5 and FIPS 180-4 example values.
        assert_eq!(Hash::Md5.of(&[]).hex().as_str(), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(
            Hash::Sha256.of(&[]).hex().as_str(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            Hash::Sha512_256.of(&[]).hex().as_str(),
            "c672b8d1ef56ed28ab87c3622c5114069bdd3ad7b8f9737498d0c01ecef0967a"
        );
    }

    #[test]
    fn hexadecimal_reads_back_and_bad_digits_are_refused() {
        for hash in Hash::ALL {
            let value = hash.of(&[b"abc"]);
            assert_eq!(HashValue::from_hex(hash, value.hex().as_bytes()), Some(value));
            assert_eq!(HashValue::from_hex(hash, value.hex().as_str().to_uppercase().as_bytes()), Some(value));
            assert_eq!(HashValue::from_bytes(hash, value.as_bytes()), Some(value));
            assert_eq!(HashValue::from_hex(hash, &value.hex().as_bytes()[1..]), None);
            assert_eq!(HashValue::from_hex(hash, &vec![b'g'; 2 * hash.size()]), None);
        }
    }

    #[test]
    fn debug_prints_no_secret() {
        assert_eq!(format!("{:?}", Hash::Md5.of(&[b"secret"])), "HashValue(Md5, ..)");
    }
}
