//! Challenges that a call answers, and credentials that it checks.

use super::script::{Line, Part};
use super::stage::Stage;
use super::world::Halt;
use crate::aka::AkaSecret;
use crate::authentication::{self, Credentials, Request};
use crate::scenario::template::{Authentication, Text};
use crate::scenario::{Piece, Template};

impl Stage<'_> {
    /// Writes the line for `[authentication]` at `at` of a message that starts at `start` and is else finished.
    /// `injected`: what stood in an injection file; else the keyword is one of `line`'s.
    pub(super) fn authenticate(
        &mut self,
        line: &Line,
        injected: Option<&Authentication>,
        start: usize,
        at: usize,
        out: &mut Vec<u8>,
    ) {
        let of_line = line.parts.iter().find_map(|part| match part {
            Part::Piece(Piece::Authentication(wanted)) => Some(&**wanted),
            _ => None,
        });
        let Some(wanted) = injected.or(of_line) else { return };
        let run = self.world.run.clone();
        let or = |stage: &mut Self, template: &Option<Template>, default: &str| match template {
            Some(template) => stage.text(template),
            None => default.as_bytes().to_vec(),
        };
        let username = or(self, &wanted.username, run.username.as_deref().unwrap_or(&run.service));
        let password = or(self, &wanted.password, &run.password);
        let secret = wanted.aka_op.is_some().then(|| {
            let key = wanted.aka_k.as_ref().map_or_else(|| password.clone(), |k| self.text(k));
            let operator = or(self, &wanted.aka_op, "");
            let management = or(self, &wanted.aka_amf, "");
            AkaSecret { key: bytes(&key), operator: bytes(&operator), management: bytes(&management) }
        });
        let uri = match (&run.auth_uri, run.target) {
            _ if run.auth_request_uri => {
                let uri = out[start..].split(|b| *b == b' ').nth(1).unwrap_or_default();
                String::from_utf8_lossy(uri).into_owned()
            }
            (Some(uri), _) => format!("sip:{uri}"),
            (None, Some(target)) => format!("sip:{target}"),
            (None, None) => format!("sip:{}", self.call.target.address),
        };
        let cnonce = self.world.random.word() as u32;
        let extra = self.call.extra.get_or_insert_default();
        extra.nonce_count += 1;
        let message = &out[start..];
        let method = &message[..memchr::memchr(b' ', message).unwrap_or(message.len())];
        let body = memchr::memmem::find(&out[at..], b"\r\n\r\n").map_or(&b""[..], |end| &out[at + end + 4..]);
        let request = Request { method, uri: uri.as_bytes(), body, count: extra.nonce_count, cnonce };
        let credentials = Credentials { username: &username, password: &password, aka: secret.as_ref() };
        let mut answer = Vec::new();
        let proxy = authentication::is_proxy(extra.challenge_code);
        match authentication::write_answer(&extra.challenge, proxy, &credentials, &request, &mut answer) {
            Ok(()) => drop(out.splice(at..at, answer)),
            // SIPp ends the whole run here.
            Err(error) => {
                self.world.warn(format_args!("[authentication]: {error}"));
                self.world.halt = Some(Halt::Error);
            }
        }
    }

    /// `verifyauth`.
    pub(super) fn verify_authentication(message: &[u8], username: &[u8], password: &[u8]) -> bool {
        authentication::verify(message, username, password)
    }
}

/// A secret of AKA: `0x` and hexadecimal digits, or the bytes themselves; what is missing is 0.
fn bytes<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"));
    match digits {
        Some(digits) => {
            for (place, pair) in all.iter_mut().zip(digits.chunks(2)) {
                *place = std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok()).unwrap_or(0);
            }
        }
        None => all.iter_mut().zip(text).for_each(|(place, byte)| *place = *byte),
    }
    all
}

/// `[authentication …]` as it stands in the field of an injection file: where it starts and ends, and what it asks for.
pub(super) fn injected(field: &[u8]) -> Option<(std::ops::Range<usize>, Authentication)> {
    let start = memchr::memmem::find(field, b"[authentication")?;
    let end = start + memchr::memchr(b']', &field[start..])?;
    let words = &field[start + b"[authentication".len()..end];
    let value = |name: &[u8]| {
        let at = memchr::memmem::find(words, name)? + name.len();
        let rest = words[at..].strip_prefix(b"=")?;
        let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
        let length = rest.iter().position(|b| matches!(b, b' ' | b'"' | b'\t')).unwrap_or(rest.len());
        let bytes: Box<[u8]> = rest[..length].into();
        Some(Template {
            literal_length: bytes.len(),
            pieces: vec![Piece::Text(Text { bytes, solid: 0 })],
            ..Template::default()
        })
    };
    let wanted = Authentication {
        username: value(b"username"),
        password: value(b"password"),
        aka_op: value(b"aka_OP"),
        aka_amf: value(b"aka_AMF"),
        aka_k: value(b"aka_K"),
    };
    Some((start..end + 1, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_hold_credentials() {
        let (range, wanted) = injected(b"x [authentication username=bob password=se3cret] y").unwrap();
        assert_eq!((range.start, range.end), (2, 48));
        assert_eq!(wanted.username.unwrap().constant(), Some(&b"bob"[..]));
        assert_eq!(wanted.password.unwrap().constant(), Some(&b"se3cret"[..]));
        assert!(wanted.aka_op.is_none() && injected(b"[authenticat]").is_none());
        assert_eq!(bytes::<2>(b"0x0a1B"), [10, 27]);
        assert_eq!(bytes::<3>(b"ab"), *b"ab\0");
    }
}
