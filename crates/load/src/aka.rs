//! AKA for SIP clients: RFC 3310 with Milenage (3GPP TS 35.206), for `AKAv1-MD5`.
//!
//! A challenge's nonce is the base64 of RAND and AUTN. With its own key the client checks that the server has the same
//! key. The client's password for the digest is RES.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use subtle::ConstantTimeEq;

/// Secrets of a subscriber.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct AkaSecret {
    /// K, the subscriber's key.
    pub key: [u8; 16],
    /// OP, the operator's variant of the algorithm.
    pub operator: [u8; 16],
    /// AMF, the authentication management field that the server is expected to use.
    pub management: [u8; 2],
}

impl std::fmt::Debug for AkaSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AkaSecret(..)")
    }
}

/// Reason why an AKA challenge is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AkaError {
    #[error("the nonce is no base64 of RAND and AUTN, 32 bytes at least")]
    Nonce,
    #[error("the MAC of the challenge is not that of K, OP and AMF: the server has other secrets")]
    Mac,
}

/// Milenage functions of a key and a RAND.
pub struct Milenage {
    cipher: Aes128,
    /// Operator's constant OPc.
    operator: [u8; 16],
    /// TEMP, `E(RAND xor OPc)`.
    temp: [u8; 16],
}

impl Milenage {
    pub fn new(secret: &AkaSecret, rand: &[u8; 16]) -> Self {
        let cipher = Aes128::new(&secret.key.into());
        let operator = xor(encrypt(&cipher, secret.operator), secret.operator);
        let temp = encrypt(&cipher, xor(*rand, operator));
        Self { cipher, operator, temp }
    }

    /// Computes f1 and f1*: MAC-A and MAC-S (section 4.1).
    pub fn f1(&self, sequence: &[u8; 6], management: &[u8; 2]) -> ([u8; 8], [u8; 8]) {
        let mut input = [0; 16];
        for half in input.chunks_exact_mut(8) {
            half[..6].copy_from_slice(sequence);
            half[6..].copy_from_slice(management);
        }
        // r1 = 64 bits, c1 = 0.
        let mut rotated = xor(input, self.operator);
        rotated.rotate_left(8);
        let out = xor(encrypt(&self.cipher, xor(self.temp, rotated)), self.operator);
        (first(&out, 0), first(&out, 8))
    }

    /// Computes f2 and f5: RES and AK.
    pub fn f2_f5(&self) -> ([u8; 8], [u8; 6]) {
        // r2 = 0, c2 = 1.
        let out = self.out(0, 1);
        (first(&out, 8), first(&out, 0))
    }

    /// Computes f3: CK.
    pub fn f3(&self) -> [u8; 16] {
        self.out(4, 2)
    }

    /// Computes f4: IK.
    pub fn f4(&self) -> [u8; 16] {
        self.out(8, 4)
    }

    /// Computes f5*: AK for a resynchronisation.
    pub fn f5_star(&self) -> [u8; 6] {
        first(&self.out(12, 8), 0)
    }

    /// Computes `E(rot(TEMP xor OPc, r) xor c) xor OPc`, r in bytes.
    fn out(&self, rotation: usize, constant: u8) -> [u8; 16] {
        let mut block = xor(self.temp, self.operator);
        block.rotate_left(rotation);
        block[15] ^= constant;
        xor(encrypt(&self.cipher, block), self.operator)
    }
}

/// Computes RES for the nonce of a challenge (RFC 3310 section 3.2), once its MAC has shown that the server knows the
/// key.
///
/// # Errors
/// A nonce that is not of AKA, or a MAC made with other secrets.
pub fn response(secret: &AkaSecret, nonce: &[u8]) -> Result<[u8; 8], AkaError> {
    let mut bytes = [0; 32];
    decode_base64(nonce, &mut bytes).ok_or(AkaError::Nonce)?;
    let milenage = Milenage::new(secret, &first(&bytes, 0));
    let (res, anonymity) = milenage.f2_f5();
    let mut sequence: [u8; 6] = first(&bytes, 16);
    sequence.iter_mut().zip(anonymity).for_each(|(byte, mask)| *byte ^= mask);
    // AUTN = SQN xor AK, AMF, MAC. The AMF is ours, as in SIPp, so that a server with another is refused.
    let (mac, _) = milenage.f1(&sequence, &secret.management);
    if bool::from(mac.ct_eq(&bytes[24..])) { Ok(res) } else { Err(AkaError::Mac) }
}

fn encrypt(cipher: &Aes128, block: [u8; 16]) -> [u8; 16] {
    let mut block = block.into();
    cipher.encrypt_block(&mut block);
    block.into()
}

fn xor(mut one: [u8; 16], other: [u8; 16]) -> [u8; 16] {
    one.iter_mut().zip(other).for_each(|(byte, mask)| *byte ^= mask);
    one
}

/// Returns `N` bytes from `at` on; the callers' offsets are constants within the array.
fn first<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Decodes base64 into `out` and ignores further text. `None`: the text is too short or no base64.
fn decode_base64(text: &[u8], out: &mut [u8]) -> Option<()> {
    let (mut bits, mut count, mut filled) = (0u32, 0, 0);
    for &character in text {
        if filled == out.len() {
            break;
        }
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out[filled] = (bits >> count) as u8;
            filled += 1;
        }
    }
    (filled == out.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let mut out = [0; N];
        for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
        out
    }

    struct Set {
        key: &'static str,
        rand: &'static str,
        sequence: &'static str,
        management: &'static str,
        operator: &'static str,
        f1: &'static str,
        f1_star: &'static str,
        f2: &'static str,
        f5: &'static str,
        f3: &'static str,
        f4: &'static str,
        f5_star: &'static str,
    }

    /// Test sets 1 and 2 of 3GPP TS 35.208 section 4.
    const SETS: [Set; 2] = [
        Set {
            key: "465b5ce8b199b49faa5f0a2ee238a6bc",
            rand: "23553cbe9637a89d218ae64dae47bf35",
            sequence: "ff9bb4d0b607",
            management: "b9b9",
            operator: "cdc202d5123e20f62b6d676ac72cb318",
            f1: "4a9ffac354dfafb3",
            f1_star: "01cfaf9ec4e871e9",
            f2: "a54211d5e3ba50bf",
            f5: "aa689c648370",
            f3: "b40ba9a3c58b2a05bbf0d987b21bf8cb",
            f4: "f769bcd751044604127672711c6d3441",
            f5_star: "451e8beca43b",
        },
        Set {
            key: "fec86ba6eb707ed08905757b1bb44b8f",
            rand: "9f7c8d021accf4db213ccff0c7f71a6a",
            sequence: "9d0277595ffc",
            management: "725c",
            operator: "dbc59adcb6f9a0ef735477b7fadf8374",
            f1: "9cabc3e99baf7281",
            f1_star: "95814ba2b3044324",
            f2: "8011c48c0c214ed2",
            f5: "33484dc2136b",
            f3: "5dbdbb2954e8f3cde665b046179a5098",
            f4: "59a92d3b476a0443487055cf88b2307b",
            f5_star: "deacdd848cc6",
        },
    ];

    fn secret(set: &Set) -> AkaSecret {
        AkaSecret { key: hex(set.key), operator: hex(set.operator), management: hex(set.management) }
    }

    #[test]
    fn the_functions_of_milenage() {
        for set in &SETS {
            let milenage = Milenage::new(&secret(set), &hex(set.rand));
            assert_eq!(milenage.f1(&hex(set.sequence), &hex(set.management)), (hex(set.f1), hex(set.f1_star)));
            assert_eq!(milenage.f2_f5(), (hex(set.f2), hex(set.f5)));
            assert_eq!((milenage.f3(), milenage.f4()), (hex(set.f3), hex(set.f4)));
            assert_eq!(milenage.f5_star(), hex(set.f5_star));
        }
    }

    #[test]
    fn a_nonce_is_answered_only_if_its_mac_is_right() {
        let set = &SETS[1];
        let nonce = b"n3yNAhrM9NshPM/wx/caaq5KOptMl3JcnKvD6ZuvcoE=";
        assert_eq!(response(&secret(set), nonce), Ok(hex(set.f2)));
        // RFC 3310 section 3.2 allows server data after RAND and AUTN.
        assert_eq!(response(&secret(set), b"n3yNAhrM9NshPM/wx/caaq5KOptMl3JcnKvD6ZuvcoFzZXJ2ZXI="), Ok(hex(set.f2)));
        let wrong = AkaSecret { management: [0, 0], ..secret(set) };
        assert_eq!(response(&wrong, nonce), Err(AkaError::Mac));
        assert_eq!(response(&AkaSecret::default(), nonce), Err(AkaError::Mac));
        for nonce in [&b"abc123"[..], b"", b"n3yNAhrM9NshPM/wx/caaq5KOptMl3JcnKvD6Zuvc-E="] {
            assert_eq!(response(&secret(set), nonce), Err(AkaError::Nonce));
        }
    }
}
