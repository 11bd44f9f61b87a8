//! Invariants for arbitrary bytes, as functions that panic on a violation. Only mutators and cargo-fuzz call them.

use crate::frame::{self, Frame};
use crate::{
    Edit, Form, Index, Limits, MandatoryHeaders, Message, Name, NameAddr, Reason, canonical, fuzz_views, scan,
};

/// Checks the index, the Call-ID scan, and writing with and without edits.
///
/// # Panics
/// An invariant does not hold.
pub fn message(data: &[u8]) {
    let limits = Limits::default();
    let mut index = Index::new();
    let small = Limits { message: 200, body: 20, headers: 3, uri: 20 };
    if index.parse(data, &small).is_ok() {
        assert!(index.lines().len() <= 3 && index.body().len() <= 20);
        index.parse(data, &limits).expect("what small limits pass, larger ones do");
    }
    if let Err(error) = index.parse(data, &limits) {
        assert!(error.offset <= data.len(), "{error} is outside of the bytes");
        assert!((400..600).contains(&error.status()));
        for line in index.lines() {
            assert!(line.start < line.end && line.end as usize <= data.len());
        }
        return;
    }
    let message = Message::new(data, &index);
    in_order(&message);
    call_id(&message, data);
    let mut out = Vec::new();
    Edit::new().write(&message, &mut out);
    assert_eq!(out, message.bytes(), "unedited is byte-equal");
    let mut again = Index::new();
    again.parse(&out, &limits).expect("what was accepted is accepted again");
    assert_eq!((again.lines(), again.start(), again.body()), (index.lines(), index.start(), index.body()));
    edits(&message);
    canonical(&message);
}

/// Checks that a canonical message is one message of a stream, and that a loose one becomes canonical without a change
/// of meaning.
fn canonical(message: &Message<'_>) {
    let unlimited = Limits { message: usize::MAX, headers: usize::MAX, uri: usize::MAX, ..Limits::default() };
    let one_frame = |bytes: &[u8]| {
        assert_eq!(frame::next(bytes, &mut 0, &unlimited), Frame::Message(bytes.len()), "{}", bytes.escape_ascii());
    };
    match message.index().form() {
        Form::Canonical => return one_frame(message.bytes()),
        Form::Ambiguous => return,
        Form::Loose => (),
    }
    let mut out = Vec::new();
    canonical::write(message, &mut out);
    one_frame(&out);
    let mut again = Index::new();
    again.parse(&out, &unlimited).unwrap_or_else(|e| panic!("{e} when canonical: {}", out.escape_ascii()));
    let written = Message::new(&out, &again);
    let differs = Name::KNOWN.iter().any(|name| {
        let first = message.header(*name);
        let once = name.is_single_valued() && *name != Name::ContentLength;
        once && message.headers(*name).any(|value| Some(value) != first)
    });
    let form = if differs { Form::Loose } else { Form::Canonical };
    assert_eq!(again.form(), form, "{}", out.escape_ascii());
    assert_eq!((written.method(), written.status()), (message.method(), message.status()));
    assert_eq!((written.request_uri(), written.body()), (message.request_uri(), message.body()));
    for &name in Name::KNOWN.iter().filter(|name| !name.is_single_valued()) {
        let clean = |value: &[u8]| {
            let mut text = Vec::new();
            canonical::value(value, &mut text);
            text.trim_ascii().to_vec()
        };
        let values: Vec<_> = message.headers(name).map(clean).collect();
        assert_eq!(written.headers(name).map(<[u8]>::to_vec).collect::<Vec<_>>(), values);
    }
}

/// Checks that start line, header lines, blank line and body follow each other without gaps.
fn in_order(message: &Message<'_>) {
    let (bytes, index) = (message.bytes(), message.index());
    let mut at = index.headers_start();
    for (n, line) in index.lines().iter().enumerate() {
        let (start, value, value_end, end) =
            (line.start as usize, line.value as usize, line.value_end as usize, line.end as usize);
        assert_eq!(start, at);
        let name = message.name(line);
        assert!(!name.is_empty() && start + name.len() < value && value <= value_end && value_end < end);
        assert!(name.iter().all(|&b| crate::octet::is_token(b)));
        assert_eq!(Name::of(name), line.name);
        let text = message.value(line);
        assert!(!text.first().is_some_and(|&b| scan::is_blank(b)) && !text.last().is_some_and(|&b| scan::is_blank(b)));
        assert!(line.folded || !bytes[start..value_end].iter().any(|b| matches!(b, b'\r' | b'\n')));
        let first = index.first(line.name).expect("this line, or one before");
        assert!(first.start <= line.start);
        assert_eq!(
            first.start < line.start,
            index.lines_of(line.name).take_while(|l| l.start < line.start).count() > 0
        );
        assert_eq!(index.repeated(line.name), index.lines_of(line.name).count() > 1, "line {n}");
        at = end;
    }
    assert_eq!(at, index.headers_end());
    let body = index.body();
    assert!(matches!(&bytes[at..body.start], b"\r" | b"\n" | b"\r\n"));
    assert_eq!(body.end, index.end());
    assert_eq!(index.end(), bytes.len());
    assert_eq!(message.method().is_some(), message.is_request());
    assert_eq!(message.status().is_some(), !message.is_request());
    assert!(message.request_uri().len() + message.method_text().len() + message.reason().len() < at);
}

fn call_id(message: &Message<'_>, data: &[u8]) {
    let quick = scan::call_id(data);
    let line = message.index().first(Name::CallId).map(|l| l.value as usize..l.value_end as usize);
    assert_eq!(quick, line, "the scan and the index name the same Call-ID");
}

/// Applies the changes of a proxy to any message and checks that all other lines stay.
fn edits(message: &Message<'_>) {
    let index = message.index();
    let mut edit = Edit::new();
    edit.request_uri(message, |out| out.extend_from_slice(b"sip:edited@example.com"));
    edit.prepend(index, Name::Via, |out| out.extend_from_slice(b"SIP/2.0/UDP edited"));
    edit.remove_all(index, Name::Route);
    edit.set(index, Name::MaxForwards, |out| out.extend_from_slice(b"69"));
    edit.append(index, Name::RecordRoute, |out| out.extend_from_slice(b"<sip:edited;lr>"));
    let mut out = Vec::new();
    edit.write(message, &mut out);
    let mut again = Index::new();
    let limits = Limits { message: usize::MAX, headers: usize::MAX, uri: usize::MAX, ..Limits::default() };
    again.parse(&out, &limits).unwrap_or_else(|e| panic!("{e} after edits: {}", out.escape_ascii()));
    let edited = Message::new(&out, &again);

    let mut want: Vec<(&[u8], &[u8])> = vec![(b"Via", b"SIP/2.0/UDP edited")];
    let mut hops = false;
    for line in index.lines().iter().filter(|l| l.name != Name::Route) {
        let first_hops = line.name == Name::MaxForwards && !hops;
        hops |= first_hops;
        want.push((message.name(line), if first_hops { b"69" } else { message.value(line) }));
    }
    if !hops {
        want.push((b"Max-Forwards", b"69"));
    }
    want.push((b"Record-Route", b"<sip:edited;lr>"));
    let got: Vec<_> = again.lines().iter().map(|l| (edited.name(l), edited.value(l))).collect();
    assert_eq!(got, want);
    assert_eq!(edited.body(), message.body());
    assert_eq!(edited.method_text(), message.method_text());
    assert_eq!(edited.reason(), message.reason());
    if message.is_request() {
        assert_eq!(edited.request_uri(), b"sip:edited@example.com");
    }
}

/// Checks the views: all fields of `data` as a message, then `data` as one value (see [`crate::fuzz_views`]).
///
/// # Panics
/// An invariant does not hold.
pub fn views(data: &[u8]) {
    let mut index = Index::new();
    if index.parse(data, &Limits::default()).is_ok() {
        let message = Message::new(data, &index);
        mandatory(&message);
        in_their_places(&message);
        fuzz_views::message(&message);
    }
    fuzz_views::views(data);
}

fn mandatory(message: &Message<'_>) {
    match MandatoryHeaders::of(message) {
        Ok(all) => assert_eq!(all.uri.is_some(), message.is_request()),
        Err(error) => assert!(error.offset <= message.bytes().len() && (400..600).contains(&error.status()), "{error}"),
    }
}

/// Checks that the values of a list follow each other in lines of its name.
fn in_their_places(message: &Message<'_>) {
    let end = message.index().headers_end();
    for &name in Name::KNOWN {
        let mut last = 0;
        for value in message.values::<NameAddr<'_>>(name).flatten() {
            let (range, cut) = (value.range(), value.cut());
            assert!(last <= range.start && range.start < range.end && range.end <= end);
            assert!(cut.start <= range.start && cut.end >= range.end && cut.end <= end);
            assert_eq!(message.index().lines()[value.line()].name, name);
            last = range.end;
        }
    }
}

/// Checks that a stream gives the same frames however it is split, and that the index ends at the end of the frame. The
/// first bytes of `data` select the split.
///
/// # Panics
/// An invariant does not hold.
pub fn framing(data: &[u8]) {
    let Some((head, stream)) = data.split_at_checked(4) else { return };
    let limits = if head[0] & 1 == 0 { Limits::default() } else { Limits { message: 300, ..Limits::default() } };
    let whole = frames(stream, &[usize::MAX], &limits);
    let sizes: Vec<usize> = head.iter().map(|&b| b as usize % 48).collect();
    assert_eq!(frames(stream, &sizes, &limits), whole);
    if stream.len() < 1_500 {
        assert_eq!(frames(stream, &[1], &limits), whole);
    }
    let mut index = Index::new();
    for cut in whole {
        let Cut::Message(range) = cut else { continue };
        match index.parse(&stream[range.clone()], &limits) {
            Ok(()) => assert_eq!(index.end(), range.len()),
            Err(error) => assert!(
                !matches!(
                    error.reason,
                    Reason::BodyTooShort | Reason::ContentLength | Reason::Empty | Reason::Unterminated
                ),
                "{error} in a frame"
            ),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Cut {
    Ping,
    Message(std::ops::Range<usize>),
    Broken(Reason),
}

/// Returns the frames of a stream that arrives in pieces of these sizes, repeated (0 counts as 1).
fn frames(stream: &[u8], sizes: &[usize], limits: &Limits) -> Vec<Cut> {
    let (mut from, mut to, mut memory, mut cuts) = (0usize, 0usize, 0, Vec::new());
    for size in sizes.iter().cycle() {
        to = to.saturating_add(*size.max(&1)).min(stream.len());
        loop {
            match frame::next(&stream[from..to], &mut memory, limits) {
                Frame::Ping(n) => {
                    cuts.push(Cut::Ping);
                    from += n;
                }
                Frame::Skip(n) => from += n,
                Frame::Message(n) => {
                    cuts.push(Cut::Message(from..from + n));
                    from += n;
                }
                Frame::Partial(total) => {
                    assert!(total.is_none_or(|t| from + t > to));
                    break;
                }
                Frame::Broken(reason) => {
                    cuts.push(Cut::Broken(reason));
                    return cuts;
                }
            }
            assert!(from <= to);
        }
        if to == stream.len() {
            return cuts;
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns lines with every kind of end.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop::sample::select(
            [
                &b"X: some value"[..],
                b"Call-ID: abc@example.com",
                b"I :abc",
                b"Via: SIP/2.0/UDP a",
                b"v: SIP/2.0/UDP b",
                b"Route: <sip:a;lr>",
                b"Max-Forwards: 70",
                b"Content-Length: 0",
                b"L: 3",
                b" folded",
                b"\tfolded: too",
                b"Organization:",
                b"abc",
                b"",
            ]
            .to_vec(),
        );
        let end = prop::sample::select([&b"\r\n"[..], b"\n", b"\r"].to_vec());
        let start = prop::sample::select([&b"OPTIONS sip:a@b SIP/2.0"[..], b"SIP/2.0 200 ", b"SIP/2.0 200"].to_vec());
        (start, end.clone(), prop::collection::vec((line, end), 0..16)).prop_map(|(start, end, lines)| {
            [start, end, &lines.iter().map(|(l, e)| [*l, *e].concat()).collect::<Vec<_>>().concat()].concat()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn invariants_hold(text in text(), head in any::<[u8; 4]>()) {
            message(&text);
            views(&text);
            framing(&[&head[..], &text].concat());
        }
    }
}
