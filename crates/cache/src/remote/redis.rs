//! Redis, version 6 or later, and other servers with its protocol: requests as commands, and the meaning of replies.
//!
//! A script changes a counter that has a floor or a lifetime, as one atomic step. Its numbers stay texts, since Lua
//! numbers have 53 bits.

use std::ops::Range;

use super::flight::{Flight, Op, first};
use super::resp::{self, Front, Reply};
use super::wire::{Read, ReplyMeaning, number};
use crate::error::CacheError;
use crate::request::{CacheAnswer, Floor, Life};

/// Longest lifetime, beyond which an entry lives until it is removed: a thousand years, which Redis can add to any
/// time.
const LONGEST: u64 = 1000 * 366 * 86_400_000;

/// Script of a counter. Key; change, floor (1: zero), lifetime of a new counter in milliseconds (-1: for ever; 0: it is
/// not stored).
const COUNT: &[u8] = b"local there = redis.call('EXISTS', KEYS[1]) == 1
if not there and ARGV[3] == '0' then return false end
local counted = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(counted) == 'table' and counted.err then
  if ARGV[2] == '1' and string.sub(ARGV[1], 1, 1) == '-' and string.find(counted.err, 'overflow') then
    redis.call('SET', KEYS[1], '0', 'KEEPTTL')
  else
    return counted
  end
end
local value = redis.call('GET', KEYS[1])
if ARGV[2] == '1' and string.sub(value, 1, 1) == '-' then
  redis.call('SET', KEYS[1], '0', 'KEEPTTL')
  value = '0'
end
if not there and ARGV[3] ~= '-1' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return value";

pub(super) fn write(op: Op, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let milliseconds = |life: Life| life.in_ms().filter(|ms| *ms <= LONGEST).map(|ms| ms.to_string());
    match op {
        Op::Fetch => resp::write(&[b"GET", key], out),
        // An entry without a lifetime is removed, or only looked up.
        Op::Store(Life::NONE) | Op::Remove => resp::write(&[b"DEL", key], out),
        Op::Add(Life::NONE) => resp::write(&[b"EXISTS", key], out),
        Op::Store(life) => match milliseconds(life) {
            Some(ms) => resp::write(&[b"SET", key, value, b"PX", ms.as_bytes()], out),
            None => resp::write(&[b"SET", key, value], out),
        },
        Op::Add(life) => match milliseconds(life) {
            Some(ms) => resp::write(&[b"SET", key, value, b"NX", b"PX", ms.as_bytes()], out),
            None => resp::write(&[b"SET", key, value, b"NX"], out),
        },
        Op::Count(count) => {
            let (by, life) = (count.by.to_string(), milliseconds(count.life));
            if count.floor == Floor::None && life.is_none() {
                return resp::write(&[b"INCRBY", key, by.as_bytes()], out);
            }
            let floor: &[u8] = if count.floor == Floor::Zero { b"1" } else { b"0" };
            let life = life.as_deref().unwrap_or("-1");
            resp::write(&[b"EVAL", COUNT, b"1", key, by.as_bytes(), floor, life.as_bytes()], out);
        }
    }
}

/// Writes the command in front of a request to a server to which a slot migrates.
pub(super) fn write_asking(out: &mut Vec<u8>) {
    resp::write(&[b"ASKING"], out);
}

pub(super) fn read(input: &[u8], flight: &Flight, most: usize) -> Read {
    // No request expects an array, which has no bound in bytes.
    if input.first() == Some(&b'*') {
        return Read::Broken("an array that was not asked for");
    }
    let (reply, end) = match resp::read(input, most) {
        Front::More => return Read::More,
        Front::Broken(reason) => return Read::Broken(reason),
        Front::Whole(reply, end) => (reply, end),
    };
    if flight.is_asking {
        return match reply {
            Reply::Simple(text) if &input[text.clone()] == b"OK" => Read::Reply(end, ReplyMeaning::Passed),
            _ => Read::Broken("a cluster that does not know ASKING"),
        };
    }
    let is_ok = |text: &Range<usize>| &input[text.clone()] == b"OK";
    let answer = match (flight.op, &reply) {
        (_, Reply::Error(text)) => return failure(input, text.clone(), end),
        (Op::Fetch, Reply::Bulk(value)) => {
            return Read::Reply(end, ReplyMeaning::Done(Ok(CacheAnswer::Found), value.clone()));
        }
        (Op::Fetch, Reply::Nil) | (Op::Remove, Reply::Integer(0)) => Ok(CacheAnswer::Absent),
        (Op::Remove, Reply::Integer(1)) => Ok(CacheAnswer::Removed),
        (Op::Store(Life::NONE), Reply::Integer(0 | 1)) | (Op::Add(Life::NONE), Reply::Integer(0)) => {
            Ok(CacheAnswer::Stored)
        }
        (Op::Add(Life::NONE), Reply::Integer(1)) | (Op::Add(_), Reply::Nil) => Ok(CacheAnswer::Present),
        (Op::Store(life) | Op::Add(life), Reply::Simple(text)) if life != Life::NONE && is_ok(text) => {
            Ok(CacheAnswer::Stored)
        }
        (Op::Count(_), Reply::Integer(counter)) => Ok(CacheAnswer::Count(*counter)),
        (Op::Count(_), Reply::Bulk(text)) => match number(&input[text.clone()]) {
            Some(counter) => Ok(CacheAnswer::Count(counter)),
            None => return Read::Broken("a counter that is no number"),
        },
        (Op::Count(count), Reply::Nil) if count.life == Life::NONE => Ok(CacheAnswer::Count(first(count))),
        _ => return Read::Broken("no reply to what was asked"),
    };
    Read::Reply(end, ReplyMeaning::done(answer))
}

/// Reads an error reply.
fn failure(input: &[u8], text: Range<usize>, end: usize) -> Read {
    let line = &input[text.clone()];
    let code = line.split(|octet| *octet == b' ').next().unwrap_or_default();
    let has = |text: &[u8]| line.windows(text.len()).any(|part| part == text);
    let outcome = match code {
        b"MOVED" | b"ASK" => {
            // MOVED SLOT ADDRESS
            let address =
                line.iter().rposition(|octet| *octet == b' ').map_or(text.end, |space| text.start + space + 1);
            ReplyMeaning::Elsewhere(address..text.end, code == b"ASK")
        }
        b"OOM" => ReplyMeaning::Denied(CacheError::Full),
        b"LOADING" | b"MASTERDOWN" | b"CLUSTERDOWN" | b"TRYAGAIN" | b"BUSY" => {
            ReplyMeaning::Denied(CacheError::Unavailable)
        }
        // Another server has become the master.
        b"READONLY" => ReplyMeaning::Last(CacheError::Unavailable, "READONLY: it is a replica"),
        b"NOAUTH" => ReplyMeaning::Last(CacheError::Unavailable, "NOAUTH: it wants a password"),
        b"ERR" if has(b"Protocol error") => ReplyMeaning::Last(CacheError::Denied, "a protocol error"),
        b"ERR" if has(b"max number of clients") => {
            ReplyMeaning::Last(CacheError::Unavailable, "it has too many clients")
        }
        // The value is no counter.
        _ if has(b"not an integer") || has(b"would overflow") => ReplyMeaning::done(Err(CacheError::Refused)),
        _ => ReplyMeaning::Denied(CacheError::Denied),
    };
    Read::Reply(end, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Count;
    use std::time::Instant;

    fn flight(op: Op) -> Flight {
        let due = Instant::now();
        Flight {
            op,
            key: b"key"[..].into(),
            value: None,
            size: 0,
            ticket: None,
            due,
            hops: 0,
            is_asking: false,
            _claim: None,
        }
    }

    fn written(op: Op) -> Vec<String> {
        let mut out = Vec::new();
        write(op, b"key", b"value", &mut out);
        match resp::read(&out, 10_000) {
            Front::Whole(Reply::Array(parts), end) if end == out.len() => parts
                .into_iter()
                .map(|part| match part {
                    Reply::Bulk(range) => String::from_utf8(out[range].to_vec()).unwrap(),
                    other => panic!("{other:?}"),
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_are_commands() {
        let count = |floor, life| Op::Count(Count { by: -2, floor, life });
        for (op, words) in [
            (Op::Fetch, &["GET", "key"][..]),
            (Op::Store(Life::ms(5)), &["SET", "key", "value", "PX", "5"]),
            (Op::Store(Life::FOREVER), &["SET", "key", "value"]),
            (Op::Store(Life::ms(u64::MAX - 1)), &["SET", "key", "value"]),
            (Op::Store(Life::NONE), &["DEL", "key"]),
            (Op::Add(Life::ms(5)), &["SET", "key", "value", "NX", "PX", "5"]),
            (Op::Add(Life::NONE), &["EXISTS", "key"]),
            (Op::Remove, &["DEL", "key"]),
            (count(Floor::None, Life::FOREVER), &["INCRBY", "key", "-2"]),
        ] {
            assert_eq!(written(op), words);
        }
        let script = written(count(Floor::Zero, Life::ms(9)));
        assert_eq!(
            [&script[0], &script[2], &script[3], &script[4], &script[5], &script[6]],
            ["EVAL", "1", "key", "-2", "1", "9"]
        );
    }

    #[test]
    fn replies_are_answers_to_their_request_alone() {
        let done = |answer| ReplyMeaning::done(answer);
        let count = Op::Count(Count { by: -2, floor: Floor::Zero, life: Life::NONE });
        let store = Op::Store(Life::FOREVER);
        for (op, reply, outcome) in [
            (Op::Fetch, "$2\r\nab\r\n", ReplyMeaning::Done(Ok(CacheAnswer::Found), 4..6)),
            (Op::Fetch, "$-1\r\n", done(Ok(CacheAnswer::Absent))),
            (store, "+OK\r\n", done(Ok(CacheAnswer::Stored))),
            (Op::Add(Life::FOREVER), "$-1\r\n", done(Ok(CacheAnswer::Present))),
            (Op::Add(Life::NONE), ":1\r\n", done(Ok(CacheAnswer::Present))),
            (Op::Remove, ":0\r\n", done(Ok(CacheAnswer::Absent))),
            (count, "$2\r\n41\r\n", done(Ok(CacheAnswer::Count(41)))),
            (count, ":41\r\n", done(Ok(CacheAnswer::Count(41)))),
            (count, "$-1\r\n", done(Ok(CacheAnswer::Count(0)))),
            (store, "-OOM command not allowed\r\n", ReplyMeaning::Denied(CacheError::Full)),
            (store, "-LOADING\r\n", ReplyMeaning::Denied(CacheError::Unavailable)),
            (store, "-MISCONF Redis is configured\r\n", ReplyMeaning::Denied(CacheError::Denied)),
            (Op::Fetch, "-NOPERM x\r\n", ReplyMeaning::Denied(CacheError::Denied)),
            (Op::Fetch, "-WRONGTYPE x\r\n", ReplyMeaning::Denied(CacheError::Denied)),
            (count, "-ERR value is not an integer or out of range\r\n", done(Err(CacheError::Refused))),
            (count, "-ERR increment or decrement would overflow\r\n", done(Err(CacheError::Refused))),
            (Op::Fetch, "-MOVED 5 192.0.2.7:63\r\n", ReplyMeaning::Elsewhere(9..21, false)),
            (Op::Fetch, "-ASK 5 192.0.2.7:63\r\n", ReplyMeaning::Elsewhere(7..19, true)),
        ] {
            assert_eq!(read(reply.as_bytes(), &flight(op), 100), Read::Reply(reply.len(), outcome), "{reply}");
        }
        for (op, reply) in [
            (Op::Fetch, "+OK\r\n"),
            (Op::Fetch, ":1\r\n"),
            (store, ":1\r\n"),
            (store, "$2\r\nOK\r\n"),
            (store, "+QUEUED\r\n"),
            (Op::Remove, ":2\r\n"),
            (Op::Remove, "+OK\r\n"),
            (count, "$1\r\nx\r\n"),
            (Op::Fetch, "EN\r\n"),
            (Op::Fetch, "*"),
            (Op::Fetch, "*-1\r\n"),
        ] {
            assert!(matches!(read(reply.as_bytes(), &flight(op), 100), Read::Broken(_)), "{reply}");
        }
        assert!(matches!(
            read(b"-READONLY x\r\n", &flight(store), 100),
            Read::Reply(13, ReplyMeaning::Last(CacheError::Unavailable, _))
        ));
    }
}
