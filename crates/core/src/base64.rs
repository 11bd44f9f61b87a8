//! base64 without padding, in characters that need no escape in a URI or a header field: those of base64url (RFC 4648
//! section 5), with `~` and `.` in place of `Q` and `q`.
//!
//! So no text in this encoding contains `CSeq`. A peer that searches the whole message for this name, as SIPp 3.6.1
//! does, would find it in one of some 580,000 texts in base64url, read a wrong CSeq and end the call.

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const ALPHABET: &str = "ABCDEFGHIJKLMNOP~RSTUVWXYZabcdefghijklmnop.rstuvwxyz0123456789-_";

const ENGINE: GeneralPurpose = {
    let Ok(alphabet) = Alphabet::new(ALPHABET) else { panic!("64 different characters") };
    let config = GeneralPurposeConfig::new().with_encode_padding(false);
    GeneralPurpose::new(&alphabet, config.with_decode_padding_mode(DecodePaddingMode::RequireNone))
};

/// Returns the number of characters for this number of bytes.
pub(crate) const fn len(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

/// Encodes `bytes` as [`len`]`(bytes.len())` characters.
///
/// # Panics
/// If `out` has another length.
pub(crate) fn encode(bytes: &[u8], out: &mut [u8]) {
    let written = ENGINE.encode_slice(bytes, out);
    assert_eq!(written, Ok(out.len()), "the length follows from the bytes");
}

/// Decodes the text of exactly `out.len()` bytes. Returns false if the text has another length, a foreign character, or
/// a form that [`encode`] would not write.
#[must_use]
pub(crate) fn decode(text: &[u8], out: &mut [u8]) -> bool {
    text.len() == len(out.len()) && ENGINE.decode_slice(text, out) == Ok(out.len())
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
        assert!(ALPHABET.bytes().all(|character| !character.eq_ignore_ascii_case(&b'q')));
    }

    #[test]
    fn bytes_have_one_text() {
        let reads = |text: &[u8], len: usize| decode(text, &mut vec![0; len]);
        assert!(reads(b"Zg", 1) && reads(b"Zm8", 2));
        // Bits that belong to no byte, a wrong length, padding, and foreign characters are refused.
        for (text, len) in
            [("Zh", 1), ("Zm9", 2), ("Zg", 2), ("Zg==", 1), ("Zm9v", 2), ("+/+/", 3), ("Z g ", 3), ("Zm9q", 3), ("", 1)]
        {
            assert!(!reads(text.as_bytes(), len), "{text}");
        }
    }
}
