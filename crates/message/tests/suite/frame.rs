//! A stream gives the same frames however it is split, and framing and index always agree on the end of a message.

use proptest::prelude::*;
use strowger_message::frame::{self, Frame};
use strowger_message::{Index, Limits, Reason};

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Ping,
    Message(Vec<u8>),
    Broken(Reason),
}

/// Reads a stream that arrives in pieces of the given sizes (the rest in one), as a connection does.
fn read(stream: &[u8], pieces: &[usize], limits: &Limits) -> Vec<Seen> {
    let (mut buffer, mut memory, mut seen) = (Vec::new(), 0, Vec::new());
    let mut at = 0;
    for size in pieces.iter().copied().chain([stream.len()]) {
        let end = (at + size).min(stream.len());
        buffer.extend_from_slice(&stream[at..end]);
        at = end;
        loop {
            match frame::next(&buffer, &mut memory, limits) {
                Frame::Ping(n) => {
                    seen.push(Seen::Ping);
                    buffer.drain(..n);
                }
                Frame::Skip(n) => {
                    assert!(n > 0);
                    buffer.drain(..n);
                }
                Frame::Message(n) => seen.push(Seen::Message(buffer.drain(..n).collect())),
                Frame::Partial(total) => {
                    assert!(total.is_none_or(|t| t > buffer.len()));
                    break;
                }
                Frame::Broken(reason) => {
                    seen.push(Seen::Broken(reason));
                    return seen;
                }
            }
        }
    }
    seen
}

/// Pieces of streams: whole messages with every kind of line end, keep-alives, halves, rubbish.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop::sample::select(
        [
            &b"OPTIONS sip:a@example.com SIP/2.0\r\n"[..],
            b"SIP/2.0 200 OK\n",
            b"Content-Length: 5\r\n",
            b"l:0\n",
            b"l:\r\n 12\r",
            b"Content-Length: 5\r",
            b"content-length : 0\r\n",
            b"X: some value\r\n",
            b"X: some value\r l: 3\r\n",
            b"no colon\r\n",
            b"Call-ID: abc@example.com\n",
            b"v=0\r\n",
            b"hello",
            b"\r\n",
            b"\r\n\r\n",
            b"\r",
            b"\n",
            b" ",
            b"\0",
            b"l",
            b":",
        ]
        .to_vec(),
    );
    prop::collection::vec(fragment, 0..30).prop_map(|f| f.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same_frames(stream in stream(), pieces in prop::collection::vec(0..9usize, 0..200), small in 0..150usize, is_small in any::<bool>()) {
        let limits = if is_small { Limits { message: small, ..Limits::default() } } else { Limits::default() };
        let whole = read(&stream, &[], &limits);
        prop_assert_eq!(&read(&stream, &pieces, &limits), &whole);
        prop_assert_eq!(&read(&stream, &vec![1; stream.len()], &limits), &whole);
    }

    #[test]
    fn the_index_ends_where_the_frame_ends(stream in stream()) {
        let limits = Limits::default();
        let mut index = Index::new();
        for seen in read(&stream, &[], &limits) {
            let Seen::Message(message) = seen else { continue };
            // The index may refuse a frame (a start line of rubbish), but never because of its length.
            match index.parse(&message, &limits) {
                Ok(()) => prop_assert_eq!(index.end(), message.len()),
                Err(error) => prop_assert!(
                    !matches!(error.reason, Reason::BodyTooShort | Reason::ContentLength | Reason::Empty | Reason::Unterminated),
                    "{} in {:?}", error, message.escape_ascii().to_string()
                ),
            }
            // With more bytes after it, it still ends there if it has a Content-Length.
            let with_more = [&message[..], b"INVITE sip:b SIP/2.0\r\n\r\n"].concat();
            let last_is_cr = message.last() == Some(&b'\r');
            if index.parse(&with_more, &limits).is_ok() && index.first(strowger_message::Name::ContentLength).is_some() && !last_is_cr {
                prop_assert_eq!(index.end(), message.len());
            }
        }
    }
}

#[test]
fn a_header_in_single_bytes_is_not_searched_again() {
    // Quadratic work on a header of 60 KB would examine 1.8 GB here; linear work takes no time.
    let stream = [&b"OPTIONS sip:a SIP/2.0\r\nX: "[..], &vec![b'x'; 60_000], b"\r\nl: 0\r\n\r\n"].concat();
    let (mut memory, mut steps) = (0, Vec::new());
    for end in 1..=stream.len() {
        match frame::next(&stream[..end], &mut memory, &Limits::default()) {
            Frame::Partial(_) => steps.push(memory),
            other => assert_eq!((other, end), (Frame::Message(stream.len()), stream.len())),
        }
    }
    // The state advances with the received bytes.
    assert!(steps.iter().enumerate().all(|(n, &seen)| n + 1 - seen <= 4), "the search falls behind");
}

#[test]
fn two_requests_in_one_go_are_two() {
    let one = b"REGISTER sip:example.com SIP/2.0\r\nContent-Length: 2\r\n\r\nab";
    let two = b"INVITE sip:joe@example.com SIP/2.0\nl: 0\n\n";
    let stream = [&one[..], b"\r\n\r\n", two].concat();
    let want = [Seen::Message(one.to_vec()), Seen::Ping, Seen::Message(two.to_vec())];
    assert_eq!(read(&stream, &[], &Limits::default()), want);
}
