//! SipHash with 128 bits of output: SipHash-1-3 for keys of tables, SipHash-2-4 to authenticate values that a peer
//! sends back. The input is a sequence of words of 64 bits: each part begins with its length and is padded to a word,
//! so that different divisions into parts give different inputs.

use crate::hmac::Hmac;

/// Hash for keys of tables.
pub(crate) type Fast = Sip<1, 3>;

/// Pseudo-random function, and so a message authentication code too. It is used because a call needs several codes, and
/// a SHA-256 costs several times as much.
pub(crate) type Strong = Sip<2, 4>;

/// SipHash-c-d.
pub(crate) struct Sip<const C: usize, const D: usize> {
    v: [u64; 4],
    /// Number of words fed so far.
    words: u64,
}

/// Key of [`Strong`].
#[derive(Clone, Copy)]
pub(crate) struct SipKey([u64; 2]);

impl SipKey {
    /// Derives the key for one purpose from the secret of a server.
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
        Self { v, words: 0 }
    }

    /// Feeds a number, or several numbers that fill a word.
    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        self.words += 1;
        self.absorb(word);
    }

    #[inline]
    fn absorb(&mut self, word: u64) {
        self.v[3] ^= word;
        for _ in 0..C {
            round(&mut self.v);
        }
        self.v[0] ^= word;
    }

    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.feed(bytes, |word| word);
    }

    /// Feeds a name that is compared without case.
    pub(crate) fn part_lower(&mut self, bytes: &[u8]) {
        self.feed(bytes, lower);
    }

    /// Feeds a part. Its length and first four bytes make one word, so that a short part is a single word.
    #[inline]
    fn feed(&mut self, bytes: &[u8], form: impl Fn(u64) -> u64) {
        let (first, rest) = bytes.split_at(bytes.len().min(4));
        self.word(u64::from(bytes.len() as u32) | form(few(first)) << 32);
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            self.word(form(u64::from_le_bytes(*word)));
        }
        if !rest.is_empty() {
            self.word(form(few(rest)));
        }
    }

    /// Returns the low and the high half.
    pub(crate) fn finish(mut self) -> [u64; 2] {
        self.absorb((8 * self.words) << 56);
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

    /// Returns the first bytes of the hash.
    pub(crate) fn bytes<const N: usize>(self) -> [u8; N] {
        const { assert!(N <= 16) };
        let [low, high] = self.finish();
        let all = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        *all.first_chunk().expect("sixteen at most")
    }
}

/// Converts each byte that is an ASCII capital to lower case.
#[inline]
const fn lower(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let ascii = word & (0x7f * ONES);
    // The high bit of each byte is set where the byte is at or above A, and where it is above Z.
    let from_a = ascii + (0x80 - b'A' as u64) * ONES;
    let above_z = ascii + (0x7f - b'Z' as u64) * ONES;
    let capital = (from_a ^ above_z) & !word & (0x80 * ONES);
    word | capital >> 2
}

/// Returns fewer than eight bytes as the low bytes of a word.
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
        // Three vectors of the authors' reference: key 00..0f, input empty, 00..07 and 00..0f.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let of = |words: &[u64]| {
            let mut hash = Strong::new(key);
            words.iter().for_each(|&word| hash.word(word));
            hash.bytes::<16>()
        };
        let expected = [
            [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93],
            [0x3b, 0x62, 0xa9, 0xba, 0x62, 0x58, 0xf5, 0x61, 0x0f, 0x83, 0xe2, 0x64, 0xf3, 0x14, 0x97, 0xb4],
            [0x6e, 0xe2, 0xa4, 0xca, 0x67, 0xb0, 0x54, 0xbb, 0xfd, 0x33, 0x15, 0xbf, 0x85, 0x23, 0x05, 0x77],
        ];
        assert_eq!([of(&[]), of(&key[..1]), of(&key)], expected);
    }

    #[test]
    fn a_part_is_its_length_and_its_bytes_in_words() {
        let text: Vec<u8> = (1..=100).collect();
        for length in 0..=text.len() {
            let mut bytes = (length as u32).to_le_bytes().to_vec();
            bytes.extend_from_slice(&text[..length]);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let (mut part, mut words) = (Fast::new([1, 2]), Fast::new([1, 2]));
            part.part(&text[..length]);
            bytes.as_chunks::<8>().0.iter().for_each(|word| words.word(u64::from_le_bytes(*word)));
            assert_eq!(part.finish(), words.finish(), "{length}");
        }
    }

    #[test]
    fn parts_do_not_run_into_one_another() {
        let of = |parts: &[&[u8]]| {
            let mut hash = Fast::new([1, 2]);
            parts.iter().for_each(|part| hash.part(part));
            hash.finish()
        };
        let text = b"Zero bytes\0\0\0\0\0\0\0\0 and others, of which there are some";
        let mut seen = std::collections::HashSet::new();
        for end in 0..=text.len() {
            for cut in 0..=end {
                assert!(seen.insert(of(&[&text[..cut], &text[cut..end]])), "{cut} {end}");
            }
            assert!(seen.insert(of(&[&text[..end]])), "{end}");
        }
    }

    #[test]
    fn capitals_are_small_letters() {
        for byte in 0..=255u8 {
            for beside in [0, 0x7f, 0x80, 0xff] {
                let mut word = [beside; 8];
                word[3] = byte;
                let mut small = word;
                small.make_ascii_lowercase();
                assert_eq!(lower(u64::from_le_bytes(word)), u64::from_le_bytes(small), "{byte} {beside}");
            }
        }
        let (mut capitals, mut small) = (Strong::new([1, 2]), Strong::new([1, 2]));
        capitals.part_lower(b"HOST.Example-1.ORG");
        small.part(b"host.example-1.org");
        assert_eq!(capitals.finish(), small.finish());
    }
}
