//! Challenges that a call answers, and credentials that it checks.

use super::call_runner::CallRunner;
use super::received_message::ReceivedMessage;
use crate::aka::AkaSecret;
use crate::authentication::{self, Credentials, Request};
use std::io::Write;
use strowger_scenario::Template;
use strowger_scenario::template::Authentication;

/// Source of a credentials header.
pub(super) enum Wanted<'a> {
    /// `[authentication …]` of the document.
    Own(&'a Authentication),
    /// `[authentication …]` in a field of an injection file.
    Injected(Vec<u8>),
}

/// Parameter of the source.
#[derive(Clone, Copy)]
enum Word {
    Username,
    Password,
    AkaOp,
    AkaAmf,
    AkaK,
}

impl Wanted<'_> {
    fn has(&self, word: Word) -> bool {
        match self {
            Self::Own(wanted) => word.of(wanted).is_some(),
            Self::Injected(words) => word.within(words).is_some(),
        }
    }
}

impl Word {
    const fn of(self, wanted: &Authentication) -> Option<&Template> {
        match self {
            Self::Username => wanted.username.as_ref(),
            Self::Password => wanted.password.as_ref(),
            Self::AkaOp => wanted.aka_op.as_ref(),
            Self::AkaAmf => wanted.aka_amf.as_ref(),
            Self::AkaK => wanted.aka_k.as_ref(),
        }
    }

    fn within(self, words: &[u8]) -> Option<&[u8]> {
        let name: &[u8] = match self {
            Self::Username => b"username=",
            Self::Password => b"password=",
            Self::AkaOp => b"aka_OP=",
            Self::AkaAmf => b"aka_AMF=",
            Self::AkaK => b"aka_K=",
        };
        let rest = &words[memchr::memmem::find(words, name)? + name.len()..];
        let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
        let length = rest.iter().position(|b| matches!(b, b' ' | b'"' | b'\t' | b']')).unwrap_or(rest.len());
        Some(&rest[..length])
    }
}

impl CallRunner<'_> {
    /// Writes the credentials header of `[authentication]` at `at` of a message that starts at `start` and is otherwise
    /// finished. A challenge that cannot be answered ends the run, as with SIPp.
    pub(super) fn authenticate(&mut self, wanted: Wanted<'_>, start: usize, at: usize, out: &mut Vec<u8>) {
        let run = self.shard.run.clone();
        let mut username = self.shard.pool.buffer();
        if !self.word(&wanted, Word::Username, &mut username) {
            username.extend_from_slice(run.username.as_deref().unwrap_or(&run.service).as_bytes());
        }
        let mut password = self.shard.pool.buffer();
        if !self.word(&wanted, Word::Password, &mut password) {
            password.extend_from_slice(run.password.as_bytes());
        }
        let secret = wanted.has(Word::AkaOp).then(|| {
            let mut bytes = self.shard.pool.buffer();
            let mut of = |word, default: &[u8]| {
                bytes.clear();
                if !self.word(&wanted, word, &mut bytes) {
                    bytes.extend_from_slice(default);
                }
                secret::<16>(&bytes)
            };
            let (key, operator) = (of(Word::AkaK, &password), of(Word::AkaOp, b""));
            let [high, low, ..] = of(Word::AkaAmf, b"");
            self.shard.pool.give(bytes);
            AkaSecret { key, operator, management: [high, low] }
        });
        let mut uri = self.shard.pool.buffer();
        let _ = match (&run.auth_uri, run.target) {
            _ if run.auth_request_uri => {
                uri.extend_from_slice(out[start..].split(|b| *b == b' ').nth(1).unwrap_or_default());
                Ok(())
            }
            (Some(text), _) => write!(uri, "sip:{text}"),
            (None, Some(target)) => write!(uri, "sip:{target}"),
            (None, None) => write!(uri, "sip:{}", self.call.target.address),
        };
        let cnonce = self.shard.pool.rand.draw();
        let mut answer = self.shard.pool.buffer();
        let extra = self.call.extra.get_or_insert_default();
        extra.nonce_count += 1;
        let message = &out[start..];
        let method = &message[..memchr::memchr(b' ', message).unwrap_or(message.len())];
        let body = memchr::memmem::find(&out[at..], b"\r\n\r\n").map_or(&b""[..], |end| &out[at + end + 4..]);
        let request = Request { method, uri: &uri, body, count: extra.nonce_count, cnonce };
        let credentials = Credentials { username: &username, password: &password, aka: secret.as_ref() };
        let proxy = authentication::is_proxy(extra.challenge_code);
        let written = authentication::write_answer(&extra.challenge, proxy, &credentials, &request, &mut answer);
        match written {
            Ok(()) => super::text::insert(out, at, &answer),
            Err(error) => self.halt(format_args!("[authentication]: {error}")),
        }
        let pool = &mut self.shard.pool;
        for buffer in [username, password, uri, answer] {
            pool.give(buffer);
        }
        if let Wanted::Injected(words) = wanted {
            pool.give(words);
        }
    }

    /// Appends a parameter. Returns false if the source has no value for it.
    fn word(&mut self, wanted: &Wanted<'_>, word: Word, out: &mut Vec<u8>) -> bool {
        match wanted {
            Wanted::Own(wanted) => {
                let Some(template) = word.of(wanted) else { return false };
                self.render_template(template, out);
                true
            }
            Wanted::Injected(words) => word.within(words).map(|value| out.extend_from_slice(value)).is_some(),
        }
    }

    /// Keeps the challenge of a 401 or 407. Returns false if the response has none, which ends the run, as with SIPp.
    pub(super) fn keep_challenge(&mut self, heard: &ReceivedMessage<'_>) -> bool {
        let extra = self.call.extra.get_or_insert_default();
        extra.challenge.clear();
        extra.challenge_code = heard.code;
        extra.nonce_count = 0;
        match authentication::write_challenges(heard.bytes, &mut extra.challenge) {
            Ok(()) => true,
            Err(error) => {
                self.halt(format_args!("{error}"));
                false
            }
        }
    }

    /// Runs `verifyauth`.
    pub(super) fn verify_authentication(&mut self, message: &[u8], username: &[u8], password: &[u8]) -> bool {
        let header = authentication::authorization(message);
        if !authentication::is_digest(header) {
            let header = String::from_utf8_lossy(header);
            self.shard.warn(format_args!("verifyAuthHeader: authentication must be digest is {header}"));
        }
        authentication::verify(message, username, password)
    }
}

/// Parses an AKA secret: `0x` and hexadecimal digits, or the bytes themselves, padded with 0.
fn secret<const N: usize>(text: &[u8]) -> [u8; N] {
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

/// Returns the position of `[authentication …]` in the field of an injection file.
pub(super) fn injected(field: &[u8]) -> Option<std::ops::Range<usize>> {
    let start = memchr::memmem::find(field, b"[authentication")?;
    let end = start + memchr::memchr(b']', &field[start..])?;
    Some(start..end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_hold_credentials() {
        let field = b"x [authentication username=bob password=\"se3cret\"] y";
        let range = injected(field).unwrap();
        assert_eq!((range.start, range.end), (2, 50));
        let words = &field[range];
        assert_eq!(Word::Username.within(words), Some(&b"bob"[..]));
        assert_eq!(Word::Password.within(words), Some(&b"se3cret"[..]));
        assert_eq!(Word::Password.within(b"[authentication password=x]"), Some(&b"x"[..]));
        assert!(Word::AkaOp.within(words).is_none() && injected(b"[authenticat]").is_none());
        assert_eq!(secret::<2>(b"0x0a1B"), [10, 27]);
        assert_eq!(secret::<3>(b"ab"), *b"ab\0");
    }
}
