//! SipHash with 128 bits of output: SipHash-1-3 for keys of tables, SipHash-2-4 where what it authenticates comes back from
//! a peer. Fed part by part; each part is closed by its length, so that parts do not run into one another.

use crate::hmac::Hmac;

/// What tells entries of a table apart.
pub(crate) type Fast = Sip<1, 3>;

/// A pseudo-random function, which makes it a message authentication code too: of a call several are made and judged, and a
/// SHA-256 costs several times as much.
pub(crate) type Strong = Sip<2, 4>;

/// SipHash-c-d.
pub(crate) struct Sip<const C: usize, const D: usize> {
    v: [u64; 4],
    tail: u64,
    /// Bytes fed so far.
    len: u64,
}

/// A key of [`Strong`].
#[derive(Clone, Copy)]
pub(crate) struct SipKey([u64; 2]);

impl SipKey {
    /// The key for one purpose, made from the secret of a server.
    pub(crate) fn derive(secret: &[u8], purpose: &[u8]) -> Self {
        let bytes = Hmac::derive(secret, purpose).mac(&[b"SipHash-2-4"]);
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight of thirty-two bytes"));
        Self([word(0), word(8)])
    }

    pub(crate) fn begin(&self) -> Strong {
        Strong::new(self.0)
    }
}

impl<const C: usize, const D: usize> Sip<C, D> {
    pub(crate) fn new([k0, k1]: [u64; 2]) -> Self {
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { v, tail: 0, len: 0 }
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.v[3] ^= word;
        for _ in 0..C {
            round(&mut self.v);
        }
        self.v[0] ^= word;
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // Bits of the tail that are taken: what comes is moved behind them.
        let taken = 8 * (self.len % 8) as u32;
        self.len += bytes.len() as u64;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word);
            self.word(self.tail | word << taken);
            self.tail = above(word, taken);
        }
        let word = few(rest);
        let full = taken + 8 * rest.len() as u32 >= 64;
        self.tail |= word << taken;
        if full {
            self.word(self.tail);
            self.tail = above(word, taken);
        }
    }

    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.write(bytes);
        self.write(&(bytes.len() as u32).to_le_bytes());
    }

    /// Names that are compared without regard to case.
    pub(crate) fn part_lower(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(64) {
            let mut lower = [0; 64];
            let lower = &mut lower[..chunk.len()];
            lower.copy_from_slice(chunk);
            lower.make_ascii_lowercase();
            self.write(lower);
        }
        self.write(&(bytes.len() as u32).to_le_bytes());
    }

    /// The low and the high half.
    pub(crate) fn finish(mut self) -> [u64; 2] {
        self.word(self.tail | self.len << 56);
        self.v[2] ^= 0xee;
        for _ in 0..D {
            round(&mut self.v);
        }
        let low = self.v.iter().fold(0, |sum, v| sum ^ v);
        self.v[1] ^= 0xdd;
        for _ in 0..D {
            round(&mut self.v);
        }
        [low, self.v.iter().fold(0, |sum, v| sum ^ v)]
    }

    /// The first bytes of the hash.
    pub(crate) fn bytes<const N: usize>(self) -> [u8; N] {
        const { assert!(N <= 16) };
        let [low, high] = self.finish();
        let all = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        *all.first_chunk().expect("sixteen at most")
    }
}

/// The bits of a word that have no room behind so many others.
#[inline]
const fn above(word: u64, taken: u32) -> u64 {
    if taken == 0 { 0 } else { word >> (64 - taken) }
}

/// Less than eight bytes as the low ones of a word.
#[inline]
fn few(bytes: &[u8]) -> u64 {
    let (mut word, mut rest) = (0, bytes);
    if let Some((four, more)) = rest.split_first_chunk() {
        (word, rest) = (u64::from(u32::from_le_bytes(*four)), more);
    }
    let mut bits = 8 * (bytes.len() - rest.len()) as u32;
    if let Some((two, more)) = rest.split_first_chunk() {
        (word, rest) = (word | u64::from(u16::from_le_bytes(*two)) << bits, more);
        bits += 16;
    }
    word | rest.first().map_or(0, |&one| u64::from(one) << bits)
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_of_siphash_2_4_128() {
        // The first two vectors of the authors' reference: key 00..0f, input empty and 00.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let of = |input: &[u8]| {
            let mut hasher = Strong::new(key);
            hasher.write(input);
            hasher.bytes::<16>()
        };
        let expected = [
            [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93],
            [0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45],
        ];
        assert_eq!([of(b""), of(b"\0")], expected);
    }

    #[test]
    fn feeding_in_pieces_changes_nothing() {
        let text: Vec<u8> = (0..100).collect();
        for cut in 0..100 {
            let (mut whole, mut pieces) = (Fast::new([1, 2]), Fast::new([1, 2]));
            whole.write(&text);
            pieces.write(&text[..cut]);
            pieces.write(&text[cut..]);
            assert_eq!(whole.finish(), pieces.finish());
        }
        for length in 0..100 {
            let (mut whole, mut bytes) = (Strong::new([1, 2]), Strong::new([1, 2]));
            whole.write(&text[..length]);
            text[..length].iter().for_each(|&byte| bytes.write(&[byte]));
            assert_eq!(whole.finish(), bytes.finish());
        }
    }
}
