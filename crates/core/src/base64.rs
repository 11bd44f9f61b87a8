//! base64 without padding, in characters that need no escape in a URI or a header field: those of base64url (RFC 4648
//! section 5), with `~` and `.` in place of `Q` and `q`.
//!
//! So no text of ours spells `CSeq`. Readers that look for the name anywhere in a message, as SIPp 3.6.1 does, would take
//! one mark of some 580,000 for that header field of a response, and end the call.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOP~RSTUVWXYZabcdefghijklmnop.rstuvwxyz0123456789-_";

const VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut at = 0;
    while at < 64 {
        values[ALPHABET[at] as usize] = at as u8;
        at += 1;
    }
    values
};

/// Characters for so many bytes.
pub(crate) const fn len(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

/// Writes [`len`]`(bytes.len())` characters.
///
/// # Panics
/// `out` is of another length.
pub(crate) fn encode(bytes: &[u8], out: &mut [u8]) {
    assert_eq!(out.len(), len(bytes.len()), "the length follows from the bytes");
    for (four, three) in out.chunks_mut(4).zip(bytes.chunks(3)) {
        let bits = three.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        for (at, character) in four.iter_mut().enumerate() {
            *character = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
        }
    }
}

/// Reads the text of exactly `out.len()` bytes. False if it is of another length, has a foreign character, or says the same
/// bytes in another way.
#[must_use]
pub(crate) fn decode(text: &[u8], out: &mut [u8]) -> bool {
    if text.len() != len(out.len()) {
        return false;
    }
    for (three, four) in out.chunks_mut(3).zip(text.chunks(4)) {
        let mut bits = 0u32;
        for at in 0..4 {
            let value = four.get(at).map_or(0, |character| VALUES[usize::from(*character)]);
            if value == 0xff {
                return false;
            }
            bits = bits << 6 | u32::from(value);
        }
        let all = bits.to_be_bytes();
        let (own, rest) = all[1..].split_at(three.len());
        if rest.iter().any(|byte| *byte != 0) {
            return false;
        }
        three.copy_from_slice(own);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")]
        {
            let mut written = vec![0; len(bytes.len())];
            encode(bytes.as_bytes(), &mut written);
            assert_eq!(written, text.as_bytes());
            let mut read = vec![0; bytes.len()];
            assert!(decode(text.as_bytes(), &mut read) && read == bytes.as_bytes());
        }
        let mut written = [0; 4];
        encode(&[0xfb, 0xff, 0xbf], &mut written);
        assert_eq!(&written, b"-_-_");
    }

    #[test]
    fn no_bytes_spell_a_name_that_readers_look_for_anywhere() {
        // "CSeq", "cseQ" in base64url.
        for (bytes, text) in [([0x09, 0x27, 0xaa], b"CSe."), ([0x72, 0xc7, 0x90], b"cse~")] {
            let mut written = [0; 4];
            encode(&bytes, &mut written);
            assert_eq!(&written, text);
            let mut read = [0; 3];
            assert!(decode(text, &mut read) && read == bytes);
        }
        assert!(ALPHABET.iter().all(|character| !character.eq_ignore_ascii_case(&b'q')));
    }

    #[test]
    fn bytes_have_one_text() {
        let reads = |text: &[u8], len: usize| decode(text, &mut vec![0; len]);
        assert!(reads(b"Zg", 1) && reads(b"Zm8", 2));
        // Bits that belong to no byte, another length, padding, foreign characters.
        for (text, len) in
            [("Zh", 1), ("Zm9", 2), ("Zg", 2), ("Zg==", 1), ("Zm9v", 2), ("+/+/", 3), ("Z g ", 3), ("Zm9q", 3), ("", 1)]
        {
            assert!(!reads(text.as_bytes(), len), "{text}");
        }
    }
}
