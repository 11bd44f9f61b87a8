//! Protection of TLS records (RFC 8446 sections 5.2 and 5.3, RFC 5288, RFC 7905), and the derivation of later keys (RFC 8446 section 7.2).

use super::record_fault::Fault;
use super::record_format::{APPLICATION_DATA, CHANGE_CIPHER_SPEC, HEADER, LONGEST_DATA};
use super::records::{RecordKeys, Suite, Version};
use aws_lc_rs::aead::{self, AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use std::ops::Range;
use zeroize::{Zeroize, Zeroizing};

/// Length of the tag of a record in bytes, in all suites.
const TAG: usize = 16;

/// Length of the part of the nonce in a record in bytes (AES-GCM in TLS 1.2, RFC 5288 section 3).
const EXPLICIT_NONCE: usize = 8;

/// Version of the header in all protected records (RFC 8446 section 5.2).
const TLS12: [u8; 2] = [3, 3];

/// Context of the AEAD for one direction. It has about 600 bytes on the heap, so a connection keeps none.
pub(super) struct Context {
    key: LessSafeKey,
    iv: [u8; 12],
    version: Version,
    /// Length of the part of the nonce that each record has.
    explicit: usize,
}

impl Context {
    pub(super) fn new(suite: Suite, version: Version, keys: &RecordKeys) -> Self {
        let algorithm = match suite {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::Aes256Gcm => &AES_256_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, &keys.key[..suite.key_length()])
            .expect("the key has the length of its algorithm");
        let explicit = match (version, suite) {
            (Version::Tls12, Suite::Aes128Gcm | Suite::Aes256Gcm) => EXPLICIT_NONCE,
            _ => 0,
        };
        Self { key: LessSafeKey::new(key), iv: keys.iv, version, explicit }
    }

    /// Decrypts the payload of a record in place. Returns the type of its data and their place in `payload`.
    pub(super) fn open(&self, seq: u64, header: [u8; HEADER], payload: &mut [u8]) -> Result<(u8, Range<usize>), Fault> {
        let Some(length) = payload.len().checked_sub(self.explicit + TAG) else { return Err(Fault::Decrypt) };
        let mut nonce = self.nonce(seq);
        nonce[12 - self.explicit..].copy_from_slice(&payload[..self.explicit]);
        let sealed = &mut payload[self.explicit..];
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let opened = match self.version {
            Version::Tls12 => {
                self.key.open_in_place(nonce, aad_12(seq, header[0], [header[1], header[2]], length), sealed)
            }
            Version::Tls13 => self.key.open_in_place(nonce, aad_13(length + TAG), sealed),
        };
        let data = opened.map_err(|_| Fault::Decrypt)?;
        match self.version {
            Version::Tls12 if length > LONGEST_DATA => Err(Fault::Oversized),
            Version::Tls12 => Ok((header[0], self.explicit..self.explicit + length)),
            Version::Tls13 => inner_type(data).map(|(kind, length)| (kind, 0..length)),
        }
    }

    /// Appends a record with these data, at most [`LONGEST_DATA`], to `wire`.
    pub(super) fn seal(&self, seq: u64, kind: u8, data: &[u8], wire: &mut Vec<u8>) {
        let nonce = self.nonce(seq);
        // TLS 1.3 hides the type behind the data.
        let (outer, inner_type) = match self.version {
            Version::Tls12 => (kind, None),
            Version::Tls13 => (APPLICATION_DATA, Some(kind)),
        };
        let length = self.explicit + data.len() + usize::from(inner_type.is_some()) + TAG;
        wire.reserve(HEADER + length);
        wire.push(outer);
        wire.extend_from_slice(&TLS12);
        wire.extend_from_slice(&(length as u16).to_be_bytes());
        wire.extend_from_slice(&nonce[12 - self.explicit..]);
        let start = wire.len();
        wire.extend_from_slice(data);
        wire.extend(inner_type);
        let (nonce, clear) = (aead::Nonce::assume_unique_for_key(nonce), &mut wire[start..]);
        let tag = match self.version {
            Version::Tls12 => self.key.seal_in_place_separate_tag(nonce, aad_12(seq, kind, TLS12, data.len()), clear),
            Version::Tls13 => self.key.seal_in_place_separate_tag(nonce, aad_13(length), clear),
        };
        wire.extend_from_slice(tag.expect("a record is shorter than the limit of its algorithm").as_ref());
    }

    /// Returns the nonce: a sequence number never repeats with a key, so a nonce does not either.
    fn nonce(&self, seq: u64) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, of_seq) in nonce[4..].iter_mut().zip(seq.to_be_bytes()) {
            *byte ^= of_seq;
        }
        nonce
    }
}

impl Drop for Context {
    /// The library zeroes the key.
    fn drop(&mut self) {
        self.iv.zeroize();
    }
}

/// Returns the authenticated header of TLS 1.3. A record with another type or version in its header is read like this, as other servers do: the
/// real type is inside.
fn aad_13(length: usize) -> Aad<[u8; HEADER]> {
    let [high, low] = (length as u16).to_be_bytes();
    Aad::from([APPLICATION_DATA, TLS12[0], TLS12[1], high, low])
}

/// Returns the additional data of TLS 1.2 (RFC 5246 section 6.2.3.3).
fn aad_12(seq: u64, kind: u8, version: [u8; 2], length: usize) -> Aad<[u8; 13]> {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&seq.to_be_bytes());
    aad[8..11].copy_from_slice(&[kind, version[0], version[1]]);
    aad[11..].copy_from_slice(&(length as u16).to_be_bytes());
    Aad::from(aad)
}

/// Finds the type of decrypted data behind them, and the padding behind it (RFC 8446 section 5.4). Returns the type and the length of the data.
fn inner_type(data: &[u8]) -> Result<(u8, usize), Fault> {
    if data.len() > LONGEST_DATA + 1 {
        return Err(Fault::Oversized);
    }
    let place = data.iter().rposition(|byte| *byte != 0).ok_or(Fault::NoInnerType)?;
    match data[place] {
        CHANGE_CIPHER_SPEC => Err(Fault::ProtectedChangeCipherSpec),
        _ if place > LONGEST_DATA => Err(Fault::Oversized),
        kind => Ok((kind, place)),
    }
}

/// Replaces a traffic secret and its keys by the next generation (RFC 8446 section 7.2).
pub(super) fn next_generation(suite: Suite, secret: &mut [u8; 48], keys: &mut RecordKeys) {
    let mut next = Zeroizing::new([0; 48]);
    let prk = expandable(suite, secret);
    expand(&prk, b"traffic upd", &mut next[..suite.hash_length()]);
    *secret = *next;
    derive_keys(suite, secret, keys);
}

/// Derives the key and the IV of a traffic secret (RFC 8446 section 7.3).
pub(super) fn derive_keys(suite: Suite, secret: &[u8; 48], keys: &mut RecordKeys) {
    let prk = expandable(suite, secret);
    expand(&prk, b"key", &mut keys.key[..suite.key_length()]);
    expand(&prk, b"iv", &mut keys.iv);
    keys.seq = 0;
}

fn expandable(suite: Suite, secret: &[u8; 48]) -> Prk {
    let algorithm = if suite.hash_length() == 48 { HKDF_SHA384 } else { HKDF_SHA256 };
    Prk::new_less_safe(algorithm, &secret[..suite.hash_length()])
}

/// Derives a value by HKDF-Expand-Label with an empty context (RFC 8446 section 7.1).
fn expand(secret: &Prk, label: &[u8], into: &mut [u8]) {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    const PREFIX: &[u8] = b"tls13 ";
    let (length, label_length) = ((into.len() as u16).to_be_bytes(), [(PREFIX.len() + label.len()) as u8]);
    let info = [&length[..], &label_length, PREFIX, label, &[0]];
    let derived = secret.expand(&info, Length(into.len())).and_then(|derived| derived.fill(into));
    derived.expect("a key is shorter than 255 hashes");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::record_format::ALERT;

    /// Records of RFC 8448 section 3, without their headers, and what is inside.
    #[test]
    fn the_records_of_the_published_trace_are_sealed_and_opened() {
        let data: Vec<u8> = (0..50).collect();
        let client = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
        let server = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
        for (secret, seq, kind, content, record) in [
            (
                client,
                0,
                APPLICATION_DATA,
                data.as_slice(),
                "a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb\
                 21694915e4",
            ),
            (client, 1, ALERT, &[1, 0], "c9872760655666b74d7ff1153efd6db6d0b0e3"),
            (
                server,
                1,
                APPLICATION_DATA,
                &data,
                "2e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc49c4bf2e5f0a21c0047c2abf332540dd032\
                 e167c2955d",
            ),
            (server, 2, ALERT, &[1, 0], "b58fd67166ebf599d24720cfbe7efa7a8864a9"),
        ] {
            let (mut whole, mut keys) = ([0; 48], RecordKeys::default());
            whole[..32].copy_from_slice(&bytes(secret));
            derive_keys(Suite::Aes128Gcm, &whole, &mut keys);
            let context = Context::new(Suite::Aes128Gcm, Version::Tls13, &keys);
            let (mut wire, mut expected) = (Vec::new(), bytes(record));
            context.seal(seq, kind, content, &mut wire);
            let header = [23, 3, 3, 0, expected.len() as u8];
            assert_eq!(wire, [&header[..], &expected].concat(), "{seq}");
            let (found, place) = context.open(seq, header, &mut expected).expect("it is authentic");
            assert_eq!((found, &expected[place]), (kind, content), "{seq}");
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }
}
