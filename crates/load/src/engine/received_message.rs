//! Received message, and the fields by which it is matched.

use strowger_message::{Index, Method, Name};

/// Fields of a received message that matching needs.
#[derive(Clone, Copy)]
pub(super) struct ReceivedMessage<'a> {
    /// Status code; 0 for requests.
    pub(super) code: u16,
    /// Method of the start line (requests) or of the CSeq (responses).
    pub(super) method: Method,
    pub(super) method_text: &'a [u8],
    pub(super) bytes: &'a [u8],
}

/// Returns number and method of the CSeq, or 0 and an empty method if there is none.
pub(super) fn cseq<'a>(bytes: &'a [u8], index: &Index) -> (u32, &'a [u8]) {
    let Some(line) = index.first(Name::CSeq) else { return (0, b"") };
    let value = &bytes[line.value as usize..line.value_end as usize];
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = value[..digits].iter().fold(0u32, |n, d| n.wrapping_mul(10).wrapping_add(u32::from(d - b'0')));
    let method = value[digits..].trim_ascii_start();
    let end = method.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(method.len());
    (number, &method[..end])
}

/// Returns the branch of the topmost Via.
pub(super) fn branch(bytes: &[u8]) -> &[u8] {
    let Some(at) = memchr::memmem::find(bytes, b"branch=") else { return b"" };
    let rest = &bytes[at + 7..];
    let end = rest.iter().position(|b| matches!(b, b';' | b',' | b' ' | b'\r' | b'\n' | b'\t')).unwrap_or(rest.len());
    &rest[..end]
}

/// Returns the Call-ID of our message, if the part that an ICMP error quotes has it.
pub(super) fn quoted_call_id(quoted: &[u8]) -> Option<&[u8]> {
    let mut lines = quoted.split_inclusive(|&b| b == b'\n').skip(1);
    lines.find_map(|line| {
        // The last line may be truncated.
        let line = line.strip_suffix(b"\n")?;
        let colon = memchr::memchr(b':', line)?;
        let name = line[..colon].trim_ascii();
        (name.eq_ignore_ascii_case(b"Call-ID") || name.eq_ignore_ascii_case(b"i"))
            .then(|| line[colon + 1..].trim_ascii())
    })
}

/// Returns the tag of a To header value.
pub(super) fn tag(value: &[u8]) -> Option<&[u8]> {
    // Search starts after the address: a `tag` inside angle brackets is a URI parameter.
    let from = memchr::memchr(b'>', value).unwrap_or(0);
    let value = &value[from..];
    let at = memchr::memchr_iter(b';', value).find(|&i| {
        let rest = value[i + 1..].trim_ascii_start();
        rest.len() >= 4 && rest[..4].eq_ignore_ascii_case(b"tag=")
    })?;
    let rest = &value[at + 1..].trim_ascii_start()[4..];
    let end = rest.iter().position(|b| matches!(b, b';' | b',' | b' ' | b'\r' | b'\n' | b'\t')).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Returns whether the To of our message has a tag.
pub(super) fn has_tag(bytes: &[u8], shard: &mut super::shard_context::ShardContext) -> bool {
    shard.parsed = None;
    let read = shard.index.parse(bytes, &shard.limits);
    let to = shard.index.first(Name::To).map(|to| &bytes[to.value as usize..to.value_end as usize]);
    read.is_err() || to.is_some_and(|to| tag(to).is_some())
}

/// Hashes a whole message, so that retransmissions are recognised.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    use std::hash::BuildHasher;
    // Never 0, which means none.
    foldhash::fast::FixedState::with_seed(0x5350).hash_one(bytes) | 1
}

/// Returns the three digits of a status code.
pub(super) fn digits(code: u16) -> [u8; 3] {
    [code / 100 % 10, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_as_text() {
        assert_eq!((digits(404), digits(99)), (*b"404", *b"099"));
    }

    #[test]
    fn the_call_id_is_found_in_a_quoted_message() {
        let text =
            b"INVITE sip:a SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nCall-ID: 7-1@a\r\nCSeq: 1 INVITE\r\n";
        let end = text.len() - b"CSeq: 1 INVITE\r\n".len();
        for length in 0..=text.len() {
            assert_eq!(quoted_call_id(&text[..length]), (length >= end).then_some(&b"7-1@a"[..]), "{length}");
        }
        assert_eq!(quoted_call_id(b"BYE sip:a SIP/2.0\ni : 9\n"), Some(&b"9"[..]));
    }
}
