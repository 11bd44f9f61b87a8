//! Writes loosely formatted messages in canonical form, so that the next reader finds the same lines and the same body
//! as this one.

use crate::index::Form;
use crate::octet::is_control;
use crate::{Message, Name, scan};

/// Appends the message in [`Form::Canonical`]: CRLF after each line, no folded line (RFC 3261 section 7.3.1), names
/// directly before their colon, a space for each control octet (a quoted pair may contain one), one Content-Length that
/// equals the length of the body (section 20.14), and one of each set of equal lines of a single-valued header field.
/// The body and all other bytes are copied unchanged.
///
/// Single-valued header fields with different values are copied; the output is then still [`Form::Loose`]. An
/// [`Form::Ambiguous`] message is written as this crate parsed it, which may differ from another reader's
/// interpretation, so the caller should refuse such a message.
#[cold]
pub fn write(message: &Message<'_>, out: &mut Vec<u8>) {
    out.reserve(message.bytes().len() + 32);
    match message.status() {
        Some(code) => {
            out.extend_from_slice(b"SIP/2.0 ");
            out.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
            out.push(b' ');
            value(message.reason(), out);
        }
        None => {
            out.extend_from_slice(message.method_text());
            out.push(b' ');
            out.extend_from_slice(message.request_uri());
            out.extend_from_slice(b" SIP/2.0");
        }
    }
    out.extend_from_slice(b"\r\n");
    let index = message.index();
    let length = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"Content-Length: ");
        out.extend_from_slice(itoa::Buffer::new().format(message.body().len()).as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    for line in index.lines() {
        let is_first = index.first(line.name).is_some_and(|first| first.start == line.start);
        let is_copy = || message.header(line.name) == Some(message.value(line));
        if line.name == Name::ContentLength {
            if is_first {
                length(out);
            }
        } else if is_first || !line.name.is_single_valued() || !is_copy() {
            out.extend_from_slice(message.name(line));
            // The text between colon and value is copied, except line ends.
            let between = line.start as usize + line.name_len as usize..line.value as usize;
            let between = message.bytes().get(between).filter(|between| between.starts_with(b":"));
            value(between.unwrap_or(b": "), out);
            value(message.value(line), out);
            out.extend_from_slice(b"\r\n");
        }
    }
    if !message.has(Name::ContentLength) {
        length(out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(message.body());
}

/// Appends a value: one space for each fold with its white space, and for each control octet.
pub(crate) fn value(text: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'\r' | b'\n' => {
                while out.len() > from && matches!(out.last(), Some(b' ' | b'\t')) {
                    out.pop();
                }
                while let [b, tail @ ..] = rest
                    && scan::is_blank(*b)
                {
                    rest = tail;
                }
                out.push(b' ');
            }
            &b if is_control(b) => out.push(b' '),
            &b => out.push(b),
        }
    }
}

/// Appends a value of this message as [`value`] does; a canonical message needs no conversion.
#[inline]
pub(crate) fn copy(message: &Message<'_>, text: &[u8], out: &mut Vec<u8>) {
    if message.index().form() == Form::Canonical { out.extend_from_slice(text) } else { value(text, out) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Index, Limits};

    fn form(text: &str) -> Form {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect(text);
        index.form()
    }

    fn canonical(text: &str) -> String {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect(text);
        let mut out = Vec::new();
        write(&Message::new(text.as_bytes(), &index), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn canonical_messages_stay() {
        for text in [
            "OPTIONS sip:a SIP/2.0\r\nl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nVia:\ta \r\nVia: b\r\nCONTENT-LENGTH:4 \r\n\r\n\n\r\0\n",
            "SIP/2.0 200 \r\nX: \u{85}\u{7f}\r\nl: 0\r\n\r\nbehind it",
        ] {
            assert_eq!(form(text), Form::Canonical, "{text:?}");
        }
    }

    #[test]
    fn loose_messages_become_canonical() {
        for (text, want) in [
            ("OPTIONS sip:a SIP/2.0\r\n\r\n", "OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n"),
            (
                "\r\n\nOPTIONS sip:a sip/2.0\nX:\n 1\n\t 2 \r\n 3\nl:2\n\n\n\nmore",
                "OPTIONS sip:a SIP/2.0\r\nX: 1 2 3\r\nContent-Length: 2\r\n\r\n\n\n",
            ),
            (
                "sip/2.0  200\r\nX :\u{b}a\0b\u{c}\r\nl: 003\r\n\r\n\r\n\r",
                "SIP/2.0 200 \r\nX:  a b \r\nContent-Length: 3\r\n\r\n\r\n\r",
            ),
            (
                "SIP/2.0 200 a\u{1b}b\r\nl: 0\r\nMax-Forwards: 1\r\nContent-Length: 0\r\nmax-forwards : 1\r\nX: 1\r\nX: 1\r\n\r\n",
                "SIP/2.0 200 a b\r\nContent-Length: 0\r\nMax-Forwards: 1\r\nX: 1\r\nX: 1\r\n\r\n",
            ),
            ("SIP/2.0 200\r\nl: 0\r\n\r\n", "SIP/2.0 200 \r\nContent-Length: 0\r\n\r\n"),
            ("SIP/2.0 200 OK\r\nl: 1\r\n\r\nab", "SIP/2.0 200 OK\r\nContent-Length: 1\r\n\r\na"),
        ] {
            assert_eq!(canonical(text), want, "{text:?}");
            assert_eq!(form(want), Form::Canonical, "{want:?}");
        }
    }

    #[test]
    fn different_repeated_values_do_not_become_canonical() {
        let text = "OPTIONS sip:a SIP/2.0\r\nt: a\r\nTo: b\r\nt: a\r\nl: 0\r\n\r\n";
        assert_eq!(form(text), Form::Loose);
        let again = canonical(text);
        assert_eq!(again, "OPTIONS sip:a SIP/2.0\r\nt: a\r\nTo: b\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(form(&again), Form::Loose);
    }

    #[test]
    fn a_bare_cr_is_ambiguous() {
        for text in [
            "OPTIONS sip:a SIP/2.0\rl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nX: a\r\r\nl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nX: a\r b\r\nl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nX: a\r\n b\r c\r\nl: 0\r\n\r\n",
            "OPTIONS sip:a SIP/2.0\r\nl: 0\r\n\r",
        ] {
            assert_eq!(form(text), Form::Ambiguous, "{text:?}");
        }
    }
}
