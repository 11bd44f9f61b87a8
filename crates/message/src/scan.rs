//! Search for line ends and colons, with 64 bytes per word, and for a Call-ID without an index.
//!
//! This is the only file of the crate with `unsafe`: vector instructions, selected at run time. Every version gives the
//! same words; the tests compare each version with the one without vector instructions on random bytes.

use crate::Name;
use std::ops::Range;

/// Words of one window.
const WORDS: usize = 8;
/// Bytes of one window. A header of usual size needs two windows; a long body costs little.
const WINDOW: usize = WORDS * 64;

/// One bit per byte: line ends (CR or LF), and colons. A word of zeros follows the last word of the window.
#[derive(Clone, Copy)]
struct Words {
    ends: [u64; WORDS + 1],
    colons: [u64; WORDS + 1],
    /// True if a byte of the window is below space and not a line end.
    controls: bool,
}

impl Words {
    const NONE: Self = Self { ends: [0; WORDS + 1], colons: [0; WORDS + 1], controls: false };

    /// Returns the 64 bits starting at bit `at`, so that one step finds a line of usual length wherever it starts.
    #[inline(always)]
    fn from(words: &[u64; WORDS + 1], at: usize) -> u64 {
        let (n, bit) = (at / 64 % WORDS, at % 64);
        words[n] >> bit | words[n + 1] << 1 << (63 - bit)
    }
}

/// A window on the bytes that moves forward only.
pub(crate) struct Lines<'a> {
    bytes: &'a [u8],
    base: usize,
    len: usize,
    words: Words,
    controls: bool,
}

impl<'a> Lines<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], from: usize) -> Self {
        Self { bytes, base: from, len: 0, words: Words::NONE, controls: false }
    }

    /// Tells whether a byte of the windows examined so far is below space (HTAB too) and not a line end. The windows
    /// may extend beyond the requested range, so a caller for which this matters must check the range itself.
    #[inline]
    pub(crate) const fn controls(&self) -> bool {
        self.controls
    }

    /// Returns the offset of the first CR or LF at or after `from`, or the end of the bytes. `from` must not precede
    /// the result of an earlier call.
    #[inline]
    pub(crate) fn end(&mut self, from: usize) -> usize {
        self.find(from, |words, at| Words::from(&words.ends, at))
    }

    /// Returns the offset of the first CR, LF or colon at or after `from`, like [`Lines::end`].
    #[inline]
    pub(crate) fn end_or_colon(&mut self, from: usize) -> usize {
        self.find(from, |words, at| Words::from(&words.ends, at) | Words::from(&words.colons, at))
    }

    /// Offsets of the first CR, LF or colon, and of the first CR or LF, at or after `from`.
    #[inline(always)]
    pub(crate) fn colon_and_end(&mut self, from: usize) -> (usize, usize) {
        let offset = from - self.base;
        if offset < self.len {
            let ends = Words::from(&self.words.ends, offset);
            if ends != 0 {
                let both = ends | Words::from(&self.words.colons, offset);
                return (from + both.trailing_zeros() as usize, from + ends.trailing_zeros() as usize);
            }
        }
        let colon = self.end_or_colon(from);
        (colon, self.end(colon))
    }

    #[inline(always)]
    fn find(&mut self, mut from: usize, bits: impl Fn(&Words, usize) -> u64) -> usize {
        loop {
            debug_assert!(from >= self.base);
            let offset = from - self.base;
            if offset < self.len {
                let bits = bits(&self.words, offset);
                if bits != 0 {
                    return from + bits.trailing_zeros() as usize;
                }
                from = (from + 64).min(self.base + self.len);
                if from < self.base + self.len {
                    continue;
                }
            }
            if from >= self.bytes.len() {
                return self.bytes.len();
            }
            self.advance(from);
        }
    }

    fn advance(&mut self, from: usize) {
        let rest = &self.bytes[from..];
        let window = &rest[..rest.len().min(WINDOW)];
        fill(window, &mut self.words);
        self.controls |= self.words.controls;
        let behind = window.len().div_ceil(64);
        (self.words.ends[behind], self.words.colons[behind]) = (0, 0);
        (self.base, self.len) = (from, window.len());
    }
}

/// Returns the offset after the line end (CRLF, LF or CR) at `end`; `end` itself at the end of the bytes.
#[inline]
pub(crate) fn past(bytes: &[u8], end: usize) -> usize {
    match bytes.get(end) {
        None => end,
        Some(b'\r') if bytes.get(end + 1) == Some(&b'\n') => end + 2,
        Some(_) => end + 1,
    }
}

/// Tells whether this is white space inside a header line, folds included (LWS, RFC 3261 section 25.1).
#[inline]
pub(crate) const fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// Removes white space from both sides of `range`.
#[inline]
pub(crate) fn trim(bytes: &[u8], mut range: Range<usize>) -> Range<usize> {
    while range.start < range.end && is_blank(bytes[range.start]) {
        range.start += 1;
    }
    while range.start < range.end && is_blank(bytes[range.end - 1]) {
        range.end -= 1;
    }
    range
}

/// Finds the value of the first Call-ID line, long or compact, without an index of the message.
///
/// A dispatcher uses this function to find the owner of a call before the message is parsed. For bytes that
/// [`crate::Index::parse`] accepts, it finds the same bytes as [`crate::Message::header`] with [`Name::CallId`].
pub fn call_id(bytes: &[u8]) -> Option<Range<usize>> {
    let from = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n'))?;
    let mut lines = Lines::new(bytes, from);
    let mut at = past(bytes, lines.end(from));
    loop {
        match bytes.get(at)? {
            b'\r' | b'\n' => return None,
            b'i' | b'I' | b'c' | b'C' => {
                let colon = lines.end_or_colon(at);
                if bytes.get(colon) == Some(&b':') && is_call_id(&bytes[at..colon]) {
                    let mut end = lines.end(colon);
                    let mut next = past(bytes, end);
                    while let Some(b' ' | b'\t') = bytes.get(next) {
                        end = lines.end(next);
                        next = past(bytes, end);
                    }
                    return Some(trim(bytes, colon + 1..end));
                }
                at = past(bytes, lines.end(colon));
            }
            _ => at = past(bytes, lines.end(at)),
        }
    }
}

/// Tells whether these bytes are the name of Call-ID, with or without white space after it.
#[inline]
fn is_call_id(mut name: &[u8]) -> bool {
    while let [rest @ .., b' ' | b'\t'] = name {
        name = rest;
    }
    match name {
        [letter] => Some(letter | 0x20) == Name::CallId.compact(),
        _ => name.eq_ignore_ascii_case(Name::CallId.text().as_bytes()),
    }
}

/// Fills the words of a window of at most [`WINDOW`] bytes; bits past its end are 0, words past it undefined.
#[inline]
fn fill(window: &[u8], words: &mut Words) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as was just checked; `fill` demands nothing else.
            unsafe { avx2::fill(window, words) }
        } else {
            sse2::fill(window, words);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    plain::fill(window, words);
}

/// Divides a window into blocks of 64 bytes, of which the last one is padded with spaces, and calls a function for
/// each.
#[inline(always)]
fn each_block(window: &[u8], words: &mut Words, mut block: impl FnMut(&[u8; 64]) -> (u64, u64)) {
    debug_assert!(window.len() <= WINDOW);
    let (blocks, rest) = window.as_chunks::<64>();
    for (bytes, (ends, colons)) in blocks.iter().zip(words.ends.iter_mut().zip(words.colons.iter_mut())) {
        (*ends, *colons) = block(bytes);
    }
    if !rest.is_empty()
        && let Some((ends, colons)) = words.ends.get_mut(blocks.len()).zip(words.colons.get_mut(blocks.len()))
    {
        let mut last = [b' '; 64];
        last[..rest.len()].copy_from_slice(rest);
        (*ends, *colons) = block(&last);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Words, each_block};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn fill(window: &[u8], words: &mut Words) {
        let mut controls = _mm256_setzero_si256();
        each_block(window, words, |block| {
            let mut half = |from: usize| {
                // SAFETY: `block` has 64 bytes and `from` is 0 or 32, so 32 bytes from there lie inside it; the load
                // needs no alignment. The caller of this function has made sure of AVX2.
                unsafe {
                    let bytes = _mm256_loadu_si256(block.as_ptr().add(from).cast());
                    let cr = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\r' as i8));
                    let lf = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\n' as i8));
                    let colon = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b':' as i8));
                    let ends = _mm256_or_si256(cr, lf);
                    let low = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x1f)), bytes);
                    controls = _mm256_or_si256(controls, _mm256_andnot_si256(ends, low));
                    (_mm256_movemask_epi8(ends) as u32 as u64, _mm256_movemask_epi8(colon) as u32 as u64)
                }
            };
            let ((e0, c0), (e1, c1)) = (half(0), half(32));
            (e0 | e1 << 32, c0 | c1 << 32)
        });
        words.controls = _mm256_movemask_epi8(controls) != 0;
    }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use super::{Words, each_block};
    use std::arch::x86_64::*;

    pub(super) fn fill(window: &[u8], words: &mut Words) {
        let mut controls = 0;
        each_block(window, words, |block| {
            let (mut ends, mut colons) = (0, 0);
            for (n, quarter) in block.as_chunks::<16>().0.iter().enumerate() {
                // SAFETY: `quarter` has the 16 bytes that are loaded; the load needs no alignment. Every x86-64
                // processor has SSE2, which is all that the others demand.
                unsafe {
                    let bytes = _mm_loadu_si128(quarter.as_ptr().cast());
                    let cr = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\r' as i8));
                    let lf = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\n' as i8));
                    let colon = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b':' as i8));
                    let end = _mm_or_si128(cr, lf);
                    let low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
                    controls |= _mm_movemask_epi8(_mm_andnot_si128(end, low));
                    ends |= (_mm_movemask_epi8(end) as u64) << (n * 16);
                    colons |= (_mm_movemask_epi8(colon) as u64) << (n * 16);
                }
            }
            (ends, colons)
        });
        words.controls = controls != 0;
    }
}

/// Version without vector instructions, eight bytes at a time: the safe twin of the other versions.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod plain {
    use super::{Words, each_block};

    pub(super) fn fill(window: &[u8], words: &mut Words) {
        let mut controls = 0;
        each_block(window, words, |block| {
            let (mut ends, mut colons) = (0, 0);
            for (n, eight) in block.as_chunks::<8>().0.iter().enumerate() {
                let eight = u64::from_le_bytes(*eight);
                let end = equal(eight, b'\r') | equal(eight, b'\n');
                controls |= equal(eight & 0xe0e0_e0e0_e0e0_e0e0, 0) & !end;
                ends |= end << (n * 8);
                colons |= equal(eight, b':') << (n * 8);
            }
            (ends, colons)
        });
        words.controls = controls != 0;
    }

    /// Returns a mask with one bit for each of the eight bytes that equals `byte`.
    fn equal(eight: u64, byte: u8) -> u64 {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        let x = eight ^ (byte as u64 * 0x0101_0101_0101_0101);
        // The high bit of each byte that is now 0.
        let zero = !(((x & LOW) + LOW) | x | LOW);
        // The eight high bits, gathered in the top byte.
        (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Fill = fn(&[u8], &mut Words);

    fn versions() -> Vec<(&'static str, Fill)> {
        let mut all: Vec<(&'static str, Fill)> = vec![("plain", plain::fill), ("chosen", fill)];
        #[cfg(target_arch = "x86_64")]
        {
            all.push(("sse2", sse2::fill));
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                all.push(("avx2", |window, words| unsafe { avx2::fill(window, words) }));
            }
        }
        all
    }

    fn expected(window: &[u8]) -> Words {
        let mut words = Words::NONE;
        for (n, &b) in window.iter().enumerate() {
            let bit = 1 << (n % 64);
            match b {
                b'\r' | b'\n' => words.ends[n / 64] |= bit,
                b':' => words.colons[n / 64] |= bit,
                0..b' ' => words.controls = true,
                _ => (),
            }
        }
        words
    }

    /// Generates bytes: often ones near those that are searched, sometimes any byte.
    fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            3 => prop::sample::select(&b"\r\n: \x8d\x8a\xba;9i"[..]),
            2 => b' '..=255u8,
        ];
        let byte = prop_oneof![30 => byte, 1 => any::<u8>()];
        prop::collection::vec(byte, 0..max)
    }

    proptest! {
        #[test]
        fn all_versions_give_the_same_words(window in bytes(WINDOW + 1)) {
            let want = expected(&window);
            let count = window.len().div_ceil(64);
            for (name, fill) in versions() {
                let mut words = Words { ends: [!0; WORDS + 1], colons: [!0; WORDS + 1], controls: !want.controls };
                fill(&window, &mut words);
                prop_assert_eq!(&words.ends[..count], &want.ends[..count], "{}", name);
                prop_assert_eq!(&words.colons[..count], &want.colons[..count], "{}", name);
                prop_assert_eq!(words.controls, want.controls, "{}", name);
            }
        }

        #[test]
        fn the_window_moves_over_any_length(bytes in bytes(3 * WINDOW), colons in any::<bool>()) {
            let wanted = |b: &u8| matches!(b, b'\r' | b'\n') || (colons && *b == b':');
            let mut lines = Lines::new(&bytes, 0);
            let mut at = 0;
            while at < bytes.len() {
                let want = bytes[at..].iter().position(wanted).map_or(bytes.len(), |n| at + n);
                let found = if colons { lines.end_or_colon(at) } else { lines.end(at) };
                prop_assert_eq!(found, want);
                at = found + 1;
            }
        }
    }

    proptest! {
        #[test]
        fn colon_and_end_are_those_of_the_others(bytes in bytes(3 * WINDOW), plain in 0..200usize) {
            // Long lines too: some plain bytes precede each marked byte.
            let bytes: Vec<u8> = bytes.iter().flat_map(|&b| {
                let gap = if matches!(b, b'\r' | b'\n' | b':') { plain } else { 0 };
                std::iter::repeat_n(b'x', gap).chain([b])
            }).take(8 * WINDOW).collect();
            let (mut lines, mut at) = (Lines::new(&bytes, 0), 0);
            while at < bytes.len() {
                let end = bytes[at..].iter().position(|b| matches!(b, b'\r' | b'\n')).map_or(bytes.len(), |n| at + n);
                let colon = bytes[at..end].iter().position(|&b| b == b':').map_or(end, |n| at + n);
                prop_assert_eq!(lines.colon_and_end(at), (colon, end));
                at = end + 1;
            }
        }
    }

    #[test]
    fn call_id_is_found_however_it_is_written() {
        let value = |bytes: &'static [u8]| call_id(bytes).map(|r| &bytes[r]);
        assert_eq!(value(b"OPTIONS sip:a SIP/2.0\r\nCall-ID: one@x\r\n\r\n"), Some(&b"one@x"[..]));
        assert_eq!(value(b"OPTIONS sip:a SIP/2.0\r\nI:one@x \r\n\r\n"), Some(&b"one@x"[..]));
        let folded = b"\r\nOPTIONS sip:a SIP/2.0\ncontact: i\ncALL-id \t:\n one@x\n\tx\r\n\r\n";
        assert_eq!(value(folded), Some(&b"one@x\n\tx"[..]));
        assert_eq!(value(b"OPTIONS sip:a SIP/2.0\rVia: x\ri: one\r\r"), Some(&b"one"[..]));
        assert_eq!(value(b"i: not a header\r\nVia: x\r\n i: folded\r\n\r\ni: body\r\n"), None);
        assert_eq!(value(b"OPTIONS sip:a SIP/2.0\r\nCall-ID: one"), Some(&b"one"[..]));
        assert_eq!(value(b""), None);
    }
}
