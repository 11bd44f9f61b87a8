//! RESP2, the serialization of Redis: reading of replies that arrive in pieces.

use std::ops::Range;

/// Longest line: numbers, states, errors.
const LINE: usize = 8192;
/// Largest depth of nested arrays.
const DEPTH: usize = 8;
/// Maximum number of items of an array: a cluster has at most 16,384 slots, each with a few servers.
const ITEMS: usize = 1 << 20;

/// Reply. Ranges are positions in the bytes read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// `+OK`.
    Simple(Range<usize>),
    /// `-ERR ...`.
    Error(Range<usize>),
    /// `:1`.
    Integer(i64),
    /// `$5`.
    Bulk(Range<usize>),
    /// `$-1` or `*-1`.
    Nil,
    /// `*2`.
    Array(Vec<Self>),
}

/// Result of reading at the front of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// No complete reply yet.
    More,
    /// Reply, and the position of the next one.
    Whole(Reply, usize),
    /// Not a reply.
    Broken(&'static str),
}

/// Reads one reply from the front of `input`. `most`: maximum bytes of one text.
pub(super) fn read(input: &[u8], most: usize) -> Front {
    item(input, 0, most, 0)
}

fn item(input: &[u8], at: usize, most: usize, depth: usize) -> Front {
    let Some(&kind) = input.get(at) else { return Front::More };
    if !b"+-:$*".contains(&kind) {
        return Front::Broken("a reply of no known type");
    }
    let rest = &input[at + 1..];
    let Some(length) = rest.iter().take(LINE).position(|octet| *octet == b'\n') else {
        return if rest.len() >= LINE { Front::Broken("a line without an end") } else { Front::More };
    };
    let Some(line) = rest[..length].strip_suffix(b"\r") else { return Front::Broken("a line that ends by LF") };
    let (text, next) = (at + 1..at + 1 + line.len(), at + 1 + length + 1);
    let number = || super::wire::number(line);
    match kind {
        b'+' => Front::Whole(Reply::Simple(text), next),
        b'-' => Front::Whole(Reply::Error(text), next),
        b':' => match number() {
            Some(number) => Front::Whole(Reply::Integer(number), next),
            None => Front::Broken("an integer that is none"),
        },
        b'$' => match number() {
            Some(-1) => Front::Whole(Reply::Nil, next),
            Some(length) if (0..=most as i64).contains(&length) => bulk(input, next, length as usize),
            _ => Front::Broken("a text beyond the bound"),
        },
        _ => match number() {
            Some(-1) => Front::Whole(Reply::Nil, next),
            Some(count) if (0..=ITEMS as i64).contains(&count) && depth < DEPTH => {
                array(input, next, count as usize, most, depth)
            }
            _ => Front::Broken("an array beyond the bound"),
        },
    }
}

fn bulk(input: &[u8], from: usize, length: usize) -> Front {
    match input.get(from + length..from + length + 2) {
        Some(b"\r\n") => Front::Whole(Reply::Bulk(from..from + length), from + length + 2),
        Some(_) => Front::Broken("a text without its end"),
        None => Front::More,
    }
}

fn array(input: &[u8], from: usize, count: usize, most: usize, depth: usize) -> Front {
    // Capacity for possible items: an item has at least three bytes.
    let mut items = Vec::with_capacity(count.min((input.len() - from) / 3));
    let mut at = from;
    for _ in 0..count {
        match item(input, at, most, depth + 1) {
            Front::Whole(reply, next) => {
                items.push(reply);
                at = next;
            }
            other => return other,
        }
    }
    Front::Whole(Reply::Array(items), at)
}

/// Appends a command.
pub(super) fn write(parts: &[&[u8]], out: &mut Vec<u8>) {
    let line = |kind: u8, number: usize, out: &mut Vec<u8>| {
        out.push(kind);
        super::wire::write_number(number as u64, out);
        out.extend_from_slice(b"\r\n");
    };
    line(b'*', parts.len(), out);
    for part in parts {
        line(b'$', part.len(), out);
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_of_each_type_are_read_in_any_pieces() {
        for (text, reply) in [
            ("+OK\r\n", Reply::Simple(1..3)),
            ("-ERR no\r\n", Reply::Error(1..7)),
            (":-12\r\n", Reply::Integer(-12)),
            ("$3\r\na\r\n\r\n", Reply::Bulk(4..7)),
            ("$0\r\n\r\n", Reply::Bulk(4..4)),
            ("$-1\r\n", Reply::Nil),
            ("*-1\r\n", Reply::Nil),
            ("*0\r\n", Reply::Array(vec![])),
            ("*2\r\n:1\r\n*1\r\n$-1\r\n", Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![Reply::Nil])])),
        ] {
            let more = format!("{text}+more");
            assert_eq!(read(more.as_bytes(), 100), Front::Whole(reply, text.len()), "{text}");
            for cut in 0..text.len() {
                assert_eq!(read(&text.as_bytes()[..cut], 100), Front::More, "{text} {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_found_out() {
        let deep = "*1\r\n".repeat(10);
        let long = format!("+{}", "x".repeat(LINE));
        for text in [
            "HTTP/1.1 400\r\n",
            "\r\n",
            ":x\r\n",
            ":1\n",
            "$101\r\n",
            "$-2\r\n",
            "$99999999999999999999\r\n",
            "$3\r\nabcd\r\n",
            "*-2\r\n",
            "*1048577\r\n",
            &deep,
            &long,
        ] {
            assert!(matches!(read(text.as_bytes(), 100), Front::Broken(_)), "{text}");
        }
    }

    fn any_reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            "[a-z ]{0,20}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..50).prop_map(|bytes| [
                format!("${}\r\n", bytes.len()).as_bytes(),
                &bytes,
                b"\r\n"
            ]
            .concat()),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            proptest::collection::vec(inner, 0..5)
                .prop_map(|items| [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat())
        })
    }

    proptest! {
        #[test]
        fn a_reply_ends_where_it_was_written_to_end(reply in any_reply(), behind in proptest::collection::vec(any::<u8>(), 0..20)) {
            let bytes = [reply.clone(), behind].concat();
            match read(&bytes, 100) {
                Front::Whole(_, end) => prop_assert_eq!(end, reply.len()),
                other => prop_assert!(false, "{:?}", other),
            }
            for cut in 0..reply.len() {
                prop_assert_eq!(read(&reply[..cut], 100), Front::More);
            }
        }

        #[test]
        fn no_bytes_make_it_panic_or_read_beyond_them(bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), proptest::sample::select(b"+-:$*0123456789\r\n".to_vec())], 0..200)) {
            if let Front::Whole(_, end) = read(&bytes, 100) {
                prop_assert!(end <= bytes.len());
            }
        }
    }
}
