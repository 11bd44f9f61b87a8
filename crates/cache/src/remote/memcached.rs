//! Memcached by its meta commands (doc/protocol.txt of Memcached 1.6, "Meta Commands").
//!
//! *Keys.* A key that the protocol does not allow (longer than 250 bytes, or with octets other than visible ASCII) is
//! replaced by its SHA-256; the entry has the original key in front of the value, and a fetch compares it. A number
//! under such a key is stored without it, so that it can be counted.
//!
//! *Lifetimes.* Memcached counts in seconds and its clock ticks once a second: an entry lives as long as requested, and
//! up to two seconds more.
//!
//! *Counters* are from 0 to 2^63-1. A change that may lead below zero, [`Floor::None`], is refused.
//!
//! Each request has a token that the server repeats (not in every version if a fetch finds nothing), and a fetch has
//! its key repeated, too: so a reply to another request is detected.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::flight::{Flight, Op, first};
use super::wire::{Read, ReplyMeaning, number, write_number};
use crate::error::CacheError;
use crate::request::{CacheAnswer, Floor, Life};
use crate::servers::Credentials;

/// Prefix of all hashed keys, and of no others.
const HASHED: &[u8] = b"sha256:";
/// Longest key.
const LONGEST: usize = 250;
/// Longest line of a reply.
const LINE: usize = 2048;
/// Client flag: the value is preceded by the length of the key, in four bytes, and the key.
const WITH_KEY: u32 = 1;
/// Client flag: digits and spaces are stored as given. Without it trailing spaces are removed: Memcached pads a number
/// that becomes shorter when counted down.
const VERBATIM: u32 = 2;
/// Longest relative time in seconds; larger values are absolute times since 1970.
const LONGEST_RELATIVE: u64 = 30 * 86_400;

/// Request that has a reply and changes nothing.
pub(super) const PROBE: &[u8] = b"mn\r\n";
/// Reply to the probe.
pub(super) const PROBED: &[u8] = b"MN\r\n";

pub(super) fn write(op: Op, key: &[u8], value: &[u8], token: u32, out: &mut Vec<u8>) {
    let wire_key = on_the_wire(key);
    let is_hashed = matches!(wire_key, Cow::Owned(_));
    let (verb, life) = match op {
        Op::Fetch => (&b"mg "[..], None),
        // An entry without a lifetime is removed, or only looked up.
        Op::Store(Life::NONE) | Op::Remove => (&b"md "[..], None),
        Op::Add(Life::NONE) => (&b"mg "[..], None),
        Op::Store(life) | Op::Add(life) => (&b"ms "[..], Some(life)),
        Op::Count(_) => (&b"ma "[..], None),
    };
    out.extend_from_slice(verb);
    out.extend_from_slice(&wire_key);
    match (op, life) {
        (Op::Fetch, _) => out.extend_from_slice(b" v f k"),
        (_, Some(life)) => {
            let with_key = is_hashed && number(value).is_none();
            let front = if with_key { 4 + key.len() } else { 0 };
            let flags = if with_key { WITH_KEY } else { 0 } | if looks_padded(value) { VERBATIM } else { 0 };
            out.push(b' ');
            write_number((front + value.len()) as u64, out);
            out.extend_from_slice(b" T");
            write_number(seconds(life), out);
            out.extend_from_slice(b" F");
            write_number(flags.into(), out);
            if matches!(op, Op::Add(_)) {
                out.extend_from_slice(b" ME");
            }
            end(token, out);
            if with_key {
                // A key is far shorter than 4 GiB.
                out.extend_from_slice(&(key.len() as u32).to_be_bytes());
                out.extend_from_slice(key);
            }
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
            return;
        }
        (Op::Count(count), _) => {
            out.extend_from_slice(if count.by < 0 { b" MD D" } else { b" MI D" });
            write_number(count.by.unsigned_abs(), out);
            if count.life != Life::NONE {
                out.extend_from_slice(b" J");
                write_number(first(count).unsigned_abs(), out);
                out.extend_from_slice(b" N");
                write_number(seconds(count.life), out);
            }
            out.extend_from_slice(b" v");
        }
        _ => {}
    }
    end(token, out);
}

fn end(token: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b" O");
    write_number(token.into(), out);
    out.extend_from_slice(b"\r\n");
}

/// Tells whether these credentials can be transmitted: the server reads user and password as words of a line, which are
/// separated by spaces.
pub(super) fn can_be_shown(credentials: &Credentials) -> bool {
    let is_word = |text: &str| !text.is_empty() && !text.contains([' ', '\r', '\n', '\0']);
    is_word(&credentials.user) && is_word(&credentials.password)
}

/// Tells whether Memcached cannot perform the operation, because it may count below zero.
pub(super) const fn refuses(op: Op) -> bool {
    match op {
        Op::Count(count) => count.by < 0 && matches!(count.floor, Floor::None),
        _ => false,
    }
}

pub(super) fn read(input: &[u8], flight: &Flight, token: u32, most: usize) -> Read {
    let Some(line_end) = input.iter().take(LINE).position(|octet| *octet == b'\n') else {
        return if input.len() >= LINE { Read::Broken("a line without an end") } else { Read::More };
    };
    let Some(line) = input[..line_end].strip_suffix(b"\r") else { return Read::Broken("a line that ends by LF") };
    let after = line_end + 1;
    let mut words = line.split(|octet| *octet == b' ');
    let code = words.next().unwrap_or_default();
    if code == b"VA" {
        return value(input, after, words, flight, token, most);
    }
    // Older servers reply to a fetch without a value by "not found" alone.
    if code.len() == 2 && line != b"EN" {
        match check(words, None, token) {
            Ok(_) => {}
            Err(reason) => return Read::Broken(reason),
        }
    }
    let answer = match (flight.op, code) {
        (Op::Fetch, b"EN") | (Op::Remove, b"NF") => Ok(CacheAnswer::Absent),
        (Op::Store(Life::NONE), b"HD" | b"NF") | (Op::Store(_), b"HD") => Ok(CacheAnswer::Stored),
        (Op::Add(Life::NONE), b"EN") => Ok(CacheAnswer::Stored),
        (Op::Add(Life::NONE), b"HD") | (Op::Add(_), b"NS") => Ok(CacheAnswer::Present),
        (Op::Add(_), b"HD") => Ok(CacheAnswer::Stored),
        (Op::Remove, b"HD") => Ok(CacheAnswer::Removed),
        (Op::Count(count), b"NF") if count.life == Life::NONE => Ok(CacheAnswer::Count(first(count))),
        // Another client created the counter at the same time.
        (Op::Count(_), b"NS") => Err(CacheError::Unavailable),
        (Op::Store(_), b"NS") => Err(CacheError::Full),
        _ => return failure(line, code, after),
    };
    Read::Reply(after, ReplyMeaning::done(answer))
}

/// Reads an error reply.
fn failure(line: &[u8], code: &[u8], after: usize) -> Read {
    let has = |text: &[u8]| line.windows(text.len()).any(|part| part == text);
    match code {
        b"CLIENT_ERROR" if has(b"non-numeric value") => {
            Read::Reply(after, ReplyMeaning::done(Err(CacheError::Refused)))
        }
        b"SERVER_ERROR" if has(b"too large") => Read::Reply(after, ReplyMeaning::Denied(CacheError::Refused)),
        b"SERVER_ERROR" if has(b"ut of memory") => Read::Reply(after, ReplyMeaning::Denied(CacheError::Full)),
        b"SERVER_ERROR" => Read::Reply(after, ReplyMeaning::Last(CacheError::Unavailable, "SERVER_ERROR")),
        // The remaining bytes of such a request are in an unknown state.
        b"CLIENT_ERROR" | b"ERROR" => Read::Reply(after, ReplyMeaning::Last(CacheError::Denied, "ERROR")),
        _ => Read::Broken("no reply to what was asked"),
    }
}

/// Reads `VA LENGTH FLAGS`, and the value.
fn value<'a>(
    input: &[u8],
    after: usize,
    mut words: impl Iterator<Item = &'a [u8]>,
    flight: &Flight,
    token: u32,
    most: usize,
) -> Read {
    let Some(length) = words.next().and_then(number).and_then(|length| usize::try_from(length).ok()) else {
        return Read::Broken("a value without a length");
    };
    if length > most + 4 + flight.key.len() {
        return Read::Broken("a value beyond the bound");
    }
    let wire_key = on_the_wire(&flight.key);
    let is_fetch = flight.op == Op::Fetch;
    let flags = match check(words, is_fetch.then_some(&*wire_key), token) {
        Ok(flags) => flags,
        Err(reason) => return Read::Broken(reason),
    };
    let whole = after + length + 2;
    if input.len() < whole {
        return Read::More;
    }
    if &input[after + length..whole] != b"\r\n" {
        return Read::Broken("a value without its end");
    }
    let value = &input[after..after + length];
    let outcome = match flight.op {
        Op::Fetch => fetched(value, after, flags, &flight.key),
        // Memcached counts up to 2^64-1, more than counters allow.
        Op::Count(_) => {
            ReplyMeaning::done(number(value.trim_ascii()).map(CacheAnswer::Count).ok_or(CacheError::Refused))
        }
        _ => return Read::Broken("a value that was not asked for"),
    };
    Read::Reply(whole, outcome)
}

fn fetched(value: &[u8], at: usize, flags: u32, key: &[u8]) -> ReplyMeaning {
    let mut range = at..at + value.len();
    if flags & WITH_KEY != 0 {
        let own = value.strip_prefix(&(key.len() as u32).to_be_bytes()).and_then(|rest| rest.strip_prefix(key));
        if own.is_none() {
            return ReplyMeaning::done(Ok(CacheAnswer::Absent));
        }
        range.start += 4 + key.len();
    } else if flags & VERBATIM == 0 && looks_padded(value) {
        range.end = at + value.trim_ascii_end().len();
    }
    ReplyMeaning::Done(Ok(CacheAnswer::Found), range)
}

/// Checks the flags of a reply: the token, if present, and the key, if required. Returns the client flags.
fn check<'a>(words: impl Iterator<Item = &'a [u8]>, key: Option<&[u8]>, token: u32) -> Result<u32, &'static str> {
    let (mut flags, mut has_token, mut has_key) = (0, false, key.is_none());
    for word in words {
        let Some((name, rest)) = word.split_first() else { continue };
        match name {
            b'O' => {
                has_token = number(rest) == Some(token.into());
                if !has_token {
                    return Err("the reply to another request");
                }
            }
            b'k' if key.is_some() => {
                has_key = key == Some(rest);
                if !has_key {
                    return Err("the reply for another key");
                }
            }
            b'f' => flags = number(rest).and_then(|flags| flags.try_into().ok()).ok_or("flags that are no number")?,
            _ => {}
        }
    }
    if has_token && has_key { Ok(flags) } else { Err("a reply without its token or key") }
}

/// Returns the key in a form that the protocol allows: unchanged if possible, otherwise hashed.
fn on_the_wire(key: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = key.len() <= LONGEST && key.iter().all(u8::is_ascii_graphic) && !key.starts_with(HASHED);
    if is_plain {
        return Cow::Borrowed(key);
    }
    let mut hashed = HASHED.to_vec();
    for octet in Sha256::digest(key) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        hashed.extend([HEX[usize::from(octet >> 4)], HEX[usize::from(octet & 15)]]);
    }
    Cow::Owned(hashed)
}

/// Tells whether a value consists of digits followed by spaces, like a number that was counted down.
fn looks_padded(value: &[u8]) -> bool {
    let digits = value.trim_ascii_end();
    value.ends_with(b" ") && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Returns a lifetime in seconds, never shorter than requested.
fn seconds(life: Life) -> u64 {
    let Some(ms) = life.in_ms() else { return 0 };
    // The clock of the server may be about to tick.
    let seconds = ms.div_ceil(1000).saturating_add(1);
    if seconds <= LONGEST_RELATIVE {
        return seconds;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let end = seconds.saturating_add(now);
    // The server stores times in 32 bits; an entry with a later end lives until it is removed.
    if end > i32::MAX as u64 { 0 } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Count;
    use proptest::prelude::*;
    use std::time::Instant;

    fn flight(op: Op, key: &[u8]) -> Flight {
        let due = Instant::now();
        Flight { op, key: key.into(), value: None, size: 0, ticket: None, due, hops: 0, is_asking: false, _claim: None }
    }

    fn written(op: Op, key: &[u8], value: &[u8]) -> String {
        let mut out = Vec::new();
        write(op, key, value, 7, &mut out);
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_read_beyond_them(
            bytes in proptest::collection::vec(prop_oneof![
                any::<u8>(), proptest::sample::select(b"VAENHDSF kOf0123456789\r\n".to_vec())], 0..120),
            head in proptest::sample::select(vec![&b""[..], b"VA ", b"VA 5 f1 kkey O7\r\n", b"HD O7", b"VA 3 f0 k"]),
        ) {
            let bytes = [head, &bytes].concat();
            for op in [Op::Fetch, Op::Store(Life::FOREVER), Op::Remove, Op::Add(Life::NONE)] {
                if let Read::Reply(end, outcome) = read(&bytes, &flight(op, b"key"), 7, 100) {
                    prop_assert!(end <= bytes.len());
                    if let ReplyMeaning::Done(_, value) = outcome {
                        prop_assert!(value.start <= value.end && value.end <= end);
                    }
                }
            }
        }
    }

    #[test]
    fn requests_are_meta_commands() {
        let life = Life::ms(1_500);
        let count = |by, life| Op::Count(Count { by, floor: Floor::Zero, life });
        for (op, line) in [
            (Op::Fetch, "mg key v f k O7\r\n"),
            (Op::Store(life), "ms key 5 T3 F0 O7\r\nvalue\r\n"),
            (Op::Store(Life::FOREVER), "ms key 5 T0 F0 O7\r\nvalue\r\n"),
            (Op::Store(Life::NONE), "md key O7\r\n"),
            (Op::Add(life), "ms key 5 T3 F0 ME O7\r\nvalue\r\n"),
            (Op::Add(Life::NONE), "mg key O7\r\n"),
            (Op::Remove, "md key O7\r\n"),
            (count(5, life), "ma key MI D5 J5 N3 v O7\r\n"),
            (count(-5, Life::FOREVER), "ma key MD D5 J0 N0 v O7\r\n"),
            (count(-5, Life::NONE), "ma key MD D5 v O7\r\n"),
        ] {
            assert_eq!(written(op, b"key", b"value"), line);
        }
        assert!(seconds(Life::ms(40 * 86_400_000)) > 1_700_000_000);
        assert_eq!(seconds(Life::ms(u64::MAX - 1)), 0);
    }

    #[test]
    fn users_and_passwords_are_words() {
        for (user, password, can) in [
            ("strowger", "open-sesame", true),
            ("strowger", "a:b\t\u{e9}", true),
            ("strowger", "open sesame", false),
            ("str owger", "x", false),
            ("strowger", "", false),
            ("", "x", false),
            ("strowger", "x\r\nflush_all", false),
            ("strowger", "x\0y", false),
        ] {
            let credentials = Credentials { user: user.into(), password: password.into() };
            assert_eq!(can_be_shown(&credentials), can, "{user:?} {password:?}");
        }
    }

    #[test]
    fn keys_that_the_protocol_does_not_take_are_hashed() {
        let long = [b'k'; 251];
        for key in [&long[..], b"a b", b"a\r\nmd b", b"\xc3\xa9", b"sha256:x", b"\x7f"] {
            let wire = on_the_wire(key);
            assert!(wire.starts_with(HASHED) && wire.len() == HASHED.len() + 64, "{wire:?}");
            let value = [&(key.len() as u32).to_be_bytes()[..], key, b"value"].concat();
            let reply = |value: &[u8]| {
                let wire = String::from_utf8_lossy(&wire);
                [format!("VA {} f1 k{wire} O7\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
            };
            let reply_read = |bytes: &[u8]| match read(bytes, &flight(Op::Fetch, key), 7, 1000) {
                Read::Reply(length, ReplyMeaning::Done(answer, range)) if length == bytes.len() => {
                    (answer, bytes[range].to_vec())
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(reply_read(&reply(&value)), (Ok(CacheAnswer::Found), b"value".to_vec()));
            // Another key with the same hash.
            let other = [&3_u32.to_be_bytes()[..], b"xyz", b"value"].concat();
            assert_eq!(reply_read(&reply(&other)).0, Ok(CacheAnswer::Absent));
        }
        assert_eq!(&*on_the_wire(b"plain:key@example.org"), b"plain:key@example.org");
        assert_ne!(on_the_wire(b"a b"), on_the_wire(b"a  b"));
    }

    #[test]
    fn replies_are_answers_to_their_request_alone() {
        let done = |answer| ReplyMeaning::done(answer);
        for (op, reply, outcome) in [
            (Op::Fetch, "EN\r\n", done(Ok(CacheAnswer::Absent))),
            (Op::Fetch, "EN O7 kkey\r\n", done(Ok(CacheAnswer::Absent))),
            (Op::Fetch, "VA 2 f0 kkey O7\r\nab\r\n", ReplyMeaning::Done(Ok(CacheAnswer::Found), 17..19)),
            (Op::Fetch, "VA 0 f0 kkey O7\r\n\r\n", ReplyMeaning::Done(Ok(CacheAnswer::Found), 17..17)),
            // Counted down from 10.
            (Op::Fetch, "VA 2 f0 kkey O7\r\n9 \r\n", ReplyMeaning::Done(Ok(CacheAnswer::Found), 17..18)),
            (Op::Fetch, "VA 2 f2 kkey O7\r\n9 \r\n", ReplyMeaning::Done(Ok(CacheAnswer::Found), 17..19)),
            (Op::Store(Life::FOREVER), "HD O7\r\n", done(Ok(CacheAnswer::Stored))),
            (Op::Add(Life::FOREVER), "NS O7\r\n", done(Ok(CacheAnswer::Present))),
            (Op::Remove, "NF O7\r\n", done(Ok(CacheAnswer::Absent))),
            (Op::Remove, "HD O7\r\n", done(Ok(CacheAnswer::Removed))),
            (
                Op::Store(Life::FOREVER),
                "SERVER_ERROR object too large for cache\r\n",
                ReplyMeaning::Denied(CacheError::Refused),
            ),
            (
                Op::Store(Life::FOREVER),
                "SERVER_ERROR out of memory storing object\r\n",
                ReplyMeaning::Denied(CacheError::Full),
            ),
            (Op::Fetch, "ERROR\r\n", ReplyMeaning::Last(CacheError::Denied, "ERROR")),
        ] {
            let whole = read(reply.as_bytes(), &flight(op, b"key"), 7, 100);
            assert_eq!(whole, Read::Reply(reply.len(), outcome), "{reply}");
            for cut in 0..reply.len() {
                assert_eq!(read(&reply.as_bytes()[..cut], &flight(op, b"key"), 7, 100), Read::More, "{reply} {cut}");
            }
        }
        let long = "x".repeat(3000);
        for (op, reply) in [
            (Op::Fetch, "VA 2 f0 kkey O8\r\nab\r\n"),
            (Op::Fetch, "VA 2 f0 kkez O7\r\nab\r\n"),
            (Op::Fetch, "VA 2 f0 O7\r\nab\r\n"),
            (Op::Fetch, "VA 2 f0 kkey\r\nab\r\n"),
            (Op::Fetch, "VA 2 f0 kkey O7\r\nabcd\r\n"),
            (Op::Fetch, "VA 9999 f0 kkey O7\r\n"),
            (Op::Fetch, "VA -1 f0 kkey O7\r\n"),
            (Op::Fetch, "VA\r\n"),
            (Op::Fetch, "HD O7\r\n"),
            (Op::Fetch, "EN O8 kkey\r\n"),
            (Op::Remove, "HD\r\n"),
            (Op::Store(Life::FOREVER), "HD O8\r\n"),
            (Op::Store(Life::FOREVER), "EN\r\n"),
            (Op::Remove, "+OK\r\n"),
            (Op::Remove, "\n"),
            (Op::Remove, &long),
        ] {
            assert!(matches!(read(reply.as_bytes(), &flight(op, b"key"), 7, 100), Read::Broken(_)), "{reply}");
        }
    }
}
