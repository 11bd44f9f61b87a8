//! Start lines, lines, bodies, and what the index refuses.

use super::*;
use crate::{Message, Method};

fn error(text: &str, see: impl FnOnce(&Index)) -> (Reason, usize) {
    let mut index = Index::new();
    let error = index.parse(text.as_bytes(), &Limits::default()).expect_err(text);
    see(&index);
    (error.reason, error.offset)
}

#[test]
fn start_lines() {
    for (line, reason, offset, method) in [
        ("INVITE  sip:a SIP/2.0", Reason::RequestUri, 7, Method::Invite),
        ("INVITE sip:a  SIP/2.0", Reason::RequestUri, 7, Method::Invite),
        ("INVITE sip:a SIP/2.0 ", Reason::StartLine, 21, Method::Invite),
        ("INVITE sip:a SIP/7.0", Reason::Version, 13, Method::Invite),
        ("INVITE sip:a HTTP/1.1", Reason::StartLine, 13, Method::Invite),
        ("INVITE SIP/2.0", Reason::StartLine, 7, Method::Invite),
        ("INVITE", Reason::StartLine, 0, Method::Other),
        (" INVITE sip:a SIP/2.0", Reason::Method, 0, Method::Other),
        ("INV@TE sip:a SIP/2.0", Reason::Method, 0, Method::Other),
        ("BYE sip:a\tb SIP/2.0", Reason::RequestUri, 4, Method::Bye),
    ] {
        let text = format!("{line}\r\nVia: x\r\n\r\n");
        let seen = error(&text, |index| {
            // The answer can be routed nevertheless.
            assert!(index.first(Name::Via).is_some(), "{line}");
            assert_eq!(Message::new(text.as_bytes(), index).method(), Some(method), "{line}");
        });
        assert_eq!(seen, (reason, offset), "{line}");
    }
    for (line, reason) in [
        ("SIP/7.0 200 OK", Reason::Version),
        ("SIP/2.0 20 OK", Reason::StatusCode),
        ("SIP/2.0 2000 OK", Reason::StatusCode),
        ("SIP/2.0 099 OK", Reason::StatusCode),
        ("SIP/2.0 700 OK", Reason::StatusCode),
        ("SIP/2.0", Reason::StartLine),
    ] {
        let text = format!("{line}\r\nVia: x\r\n\r\n");
        let seen = error(&text, |index| assert!(!Message::new(text.as_bytes(), index).is_request(), "{line}"));
        assert_eq!(seen.0, reason, "{line}");
    }
}

#[test]
fn header_lines() {
    for (line, offset) in [
        ("no colon", 0),
        (": none", 0),
        ("a b: c", 0),
        ("a\r\n : c", 0),
        (" a: c", 0),
        ("\u{e9}: c", 0),
        ("X: y\r\n\0: c", 6),
    ] {
        let text = format!("OPTIONS sip:a SIP/2.0\r\n{line}\r\nVia: x\r\n\r\n");
        let seen = error(&text, |index| assert!(index.first(Name::Via).is_some(), "{line}"));
        assert_eq!(seen, (Reason::HeaderName, 23 + offset), "{line}");
    }
    assert_eq!(
        error("OPTIONS sip:a SIP/2.0\r\nVia: x\r\n", |i| assert_eq!(i.lines().len(), 1)).0,
        Reason::Unterminated
    );
    assert_eq!(error("\r\n\r\n", |_| ()), (Reason::Empty, 0));
    assert_eq!(error("", |_| ()), (Reason::Empty, 0));
}

#[test]
fn limits_have_their_answers() {
    let limits = Limits { message: 100, body: 4, headers: 2, uri: 8 };
    let long = "x".repeat(100);
    for (text, status) in [
        ("OPTIONS sip:abcd SIP/2.0\r\n\r\nbody".to_owned(), 200),
        ("OPTIONS sip:abcde SIP/2.0\r\n\r\nbody".to_owned(), 414),
        ("OPTIONS sip:abcd SIP/2.0\r\n\r\nbody ".to_owned(), 413),
        ("OPTIONS sip:abcd SIP/2.0\r\nl: 5\r\n\r\nbody ".to_owned(), 413),
        ("OPTIONS sip:abcd SIP/2.0\r\nl: 4\r\n\r\nbody and more".to_owned(), 200),
        ("OPTIONS sip:abcd SIP/2.0\r\nl: 5\r\n\r\nbody".to_owned(), 413),
        ("OPTIONS sip:abcd SIP/2.0\r\nl: 4\r\n\r\nbod".to_owned(), 400),
        ("OPTIONS sip:abcd SIP/2.0\r\na: b\r\na: b\r\n\r\n".to_owned(), 200),
        ("OPTIONS sip:abcd SIP/2.0\r\na: b\r\na: b\r\na: b\r\n\r\n".to_owned(), 400),
        (format!("OPTIONS sip:abcd SIP/2.0\r\na: b\r\n\r\n{long}"), 513),
    ] {
        let mut index = Index::new();
        let status_seen = index.parse(text.as_bytes(), &limits).map_or_else(|e| e.status(), |()| 200);
        assert_eq!(status_seen, status, "{text:?}");
        assert!(status_seen != 513 || index.lines().len() == 1);
    }
}

/// Checks that the values of list header fields are counted like lines, because each value costs as much work as a
/// line.
#[test]
fn as_many_values_as_lines_are_read() {
    let with = |lines: &str| {
        let text = format!("OPTIONS sip:a SIP/2.0\r\nX: {}\r\n{lines}\r\n", "x".repeat(WORTH_COUNTING));
        Index::new().parse(text.as_bytes(), &Limits::default()).map_err(|error| error.reason)
    };
    let list = |name: &str, n: usize| format!("{name}: {}\r\n", vec!["a"; n].join(","));
    for name in ["Route", "Via", "Require", "Contact"] {
        assert_eq!(with(&list(name, 255)), Ok(()), "{name}");
        assert_eq!(with(&list(name, 300)), Err(Reason::TooManyHeaders), "{name}");
        assert_eq!(with(&list(name, 150).repeat(2)), Err(Reason::TooManyHeaders), "{name}");
    }
    assert_eq!(with(&list("Subject", 300)), Ok(()), "text");
    let parameters = |n: usize| format!("Route: <sip:a>{}\r\n", ";a".repeat(n));
    assert_eq!((with(&parameters(2_048)), with(&parameters(2_049))), (Ok(()), Err(Reason::TooManyHeaders)));
}

#[test]
fn a_changed_value_moves_later_offsets() {
    let text = |via: &str| {
        format!(
            "OPTIONS sip:a SIP/2.0\r\nSubject: x\r\nVia:  {via} \r\nVia: b\r\nTo: c\r\nContent-Length: 4\r\n\r\nbody, and more"
        )
    };
    let index = |text: &str| {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("well-formed");
        index
    };
    let before = text("a;rport");
    for via in ["a;rport=5060;received=192.0.2.1", "a", "a;rport"] {
        let (after, mut moved) = (text(via), index(&before));
        moved.moved_by_value(Name::Via, after.len() as isize - before.len() as isize);
        assert_eq!(moved, index(&after), "{via}");
    }
    let (mut other, same) = (index(&before), index(&before));
    other.moved_by_value(Name::From, 5);
    assert_eq!(other, same, "there is no such line");
}

#[test]
fn folds_bare_ends_and_empty_values() {
    let text = b"\r\n\nOPTIONS sip:a SIP/2.0\nA :\r\n\tone\r  two \nB:\r\n \r\nC:\x00\rD: e:f\r\n\nbody";
    let mut index = Index::new();
    index.parse(text, &Limits::default()).expect("lenient");
    let message = Message::new(text, &index);
    let seen: Vec<_> = index.lines().iter().map(|l| (message.name(l), message.value(l), l.folded)).collect();
    let want: [(&[u8], &[u8], bool); 4] =
        [(b"A", b"one\r  two", true), (b"B", b"", true), (b"C", b"\x00", false), (b"D", b"e:f", false)];
    assert_eq!(seen, want);
    assert_eq!(message.body(), b"body");
    assert!(index.bare_line_ends());
    let strict = b"OPTIONS sip:a SIP/2.0\r\nVia: a\r\n b\r\nv: c\r\n\r\n";
    index.parse(strict, &Limits::default()).expect("well-formed");
    assert!(!index.bare_line_ends() && index.repeated(Name::Via) && !index.repeated(Name::To));
}
