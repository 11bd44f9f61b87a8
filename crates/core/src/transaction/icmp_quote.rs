//! Start of a request of this server as quoted by an ICMP error (RFC 3261 section 18.4).

use super::key::TopVia;

/// Returns the branch of the topmost Via and the method of the request with this start; `None` if it is a response, no
/// message, or too short.
pub(super) fn request(quoted: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut lines = quoted.split_inclusive(|&b| b == b'\n');
    let start = lines.next()?;
    let method = &start[..start.iter().position(|&b| b == b' ')?];
    if method.is_empty() || method.starts_with(b"SIP/") {
        return None;
    }
    for line in lines {
        let (line, end) = line.split_at(line.iter().position(|&b| matches!(b, b'\r' | b'\n'))?);
        // The quote may end within a line, even within the branch.
        if line.is_empty() || !end.ends_with(b"\n") {
            return None;
        }
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        let name = line[..colon].trim_ascii();
        if name.eq_ignore_ascii_case(b"Via") || name.eq_ignore_ascii_case(b"v") {
            let via = TopVia::of(line[colon + 1..].trim_ascii())?;
            return (!via.branch.is_empty()).then_some((via.branch, method));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_via_is_found_if_it_is_there_whole() {
        let text = b"INVITE sip:a SIP/2.0\r\nMax-Forwards: 9\r\nv: SIP/2.0/UDP a;branch=z9hG4bK1, SIP/2.0/UDP b;branch=2\r\nVia: c\r\n";
        let whole = text.len() - b"Via: c\r\n".len();
        for end in 0..=text.len() {
            let found = request(&text[..end]);
            assert_eq!(found, (end >= whole).then_some((&b"z9hG4bK1"[..], &b"INVITE"[..])), "{end}");
        }
    }

    #[test]
    fn other_quotations_name_no_transaction() {
        for quoted in [
            &b""[..],
            b"\r\n\r\n",
            b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n\r\n",
            b"BYE sip:a SIP/2.0\r\nVia: SIP/2.0/UDP a\r\n\r\n",
            b"BYE sip:a SIP/2.0\r\n\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n",
            b" \r\nVia\r\nVia: \xff;branch=1\r\n",
            b"\x80\x60\0\x01\n\n\n:\n",
        ] {
            assert_eq!(request(quoted), None, "{}", String::from_utf8_lossy(quoted));
        }
    }
}
