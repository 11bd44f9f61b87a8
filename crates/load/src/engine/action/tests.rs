use super::*;
use strowger_message::Name;

fn search(text: &str, start_line: bool, ignore_case: bool, occurrence: u32) -> HeaderSearch {
    HeaderSearch { text: text.as_bytes().into(), known: Name::Other, ignore_case, start_line, occurrence }
}

#[test]
fn headers_are_found_anywhere_unless_asked_at_the_start_of_a_line() {
    let message = b"INVITE sip:x SIP/2.0\r\nX-From: cheese\r\nFrom: bread\r\nFrom: wine\r\n\r\n";
    assert_eq!(header(message, &search("From:", false, false, 1)), b" cheese");
    assert_eq!(header(message, &search("From:", true, false, 1)), b" bread");
    assert_eq!(header(message, &search("from:", true, true, 2)), b" wine");
    assert_eq!(header(message, &search("from:", true, false, 1)), b"");
}

#[test]
fn texts() {
    assert_eq!((difference(b"ab", b"ab"), difference(b"ab", b"aa")), (0, 1));
    let (mut there, mut back) = (Vec::new(), Vec::new());
    url_encode(b"a b/\xff%", &mut there);
    url_decode(&there, &mut back);
    assert_eq!((&there[..], &back[..]), (&b"a%20b%2f%ff%25"[..], &b"a b/\xff%"[..]));
    let numbers = [&b" 12.5"[..], b"12.5 ", b"7a", b"", b" ", b"-0x1F", b"1e3"].map(whole_number);
    assert_eq!(numbers, [Some(12.5), None, None, Some(0.0), None, Some(-31.0), Some(1_000.0)]);
}
