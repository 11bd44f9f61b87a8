//! Lists over several lines, and the edits that take values out of them.

use strowger_message::{Edit, Index, Limits, Message, Name, Reason};

fn parse(text: &str) -> (Vec<u8>, Index) {
    let bytes = text.replace('\n', "\r\n").into_bytes();
    let mut index = Index::new();
    index.parse(&bytes, &Limits::default()).unwrap();
    (bytes, index)
}

fn routes(text: &str) -> Vec<String> {
    let (bytes, index) = parse(text);
    let message = Message::new(&bytes, &index);
    message.routes().map(|r| String::from_utf8(r.unwrap().uri_text.to_vec()).unwrap()).collect()
}

const ROUTES: &str = "INVITE sip:a@b SIP/2.0
Route: \"A, <b>\" <sip:1.example,x;lr> , <sip:2.example;lr>
Subject: x
Route: <sip:3.example;lr>
route:
Route: <sip:4.example;lr>,
  <sip:5.example;lr>;p=\"a,b\",<sip:6.example>
Via: SIP/2.0/UDP h;branch=1
Content-Length: 0

";

#[test]
fn values_stand_where_they_say() {
    let text = ROUTES.replace(".example,x", ".example");
    assert_eq!(routes(&text).len(), 6);
    let (bytes, index) = parse(&text);
    let message = Message::new(&bytes, &index);
    for (route, starts) in
        message.routes().map(Result::unwrap).zip(["\"A", "<sip:2", "<sip:3", "<sip:4", "<sip:5", "<sip:6"])
    {
        assert!(bytes[route.range()].starts_with(starts.as_bytes()));
        assert!(matches!(bytes[route.range().end - 1], b'>' | b'"'));
        assert_eq!(
            message.range_of(route.uri_text).start,
            route.range().start + text_before_uri(&bytes[route.range()])
        );
    }
}

fn text_before_uri(value: &[u8]) -> usize {
    value.windows(4).position(|w| w == b"sip:").unwrap()
}

#[test]
fn one_value_goes_and_the_others_stay() {
    let text = ROUTES.replace(".example,x", ".example");
    let all = routes(&text);
    for gone in 0..all.len() {
        let (bytes, index) = parse(&text);
        let message = Message::new(&bytes, &index);
        let mut edit = Edit::new();
        edit.remove(message.routes().nth(gone).unwrap().unwrap().cut());
        let mut out = Vec::new();
        edit.write(&message, &mut out);
        let mut expected = all.clone();
        expected.remove(gone);
        assert_eq!(routes(&String::from_utf8(out).unwrap().replace("\r\n", "\n")), expected);
    }
}

#[test]
fn the_first_values_go_together() {
    let text = ROUTES.replace(".example,x", ".example");
    let all = routes(&text);
    for count in 0..=all.len() + 1 {
        let (bytes, index) = parse(&text);
        let message = Message::new(&bytes, &index);
        let mut edit = Edit::new();
        message.cut_first(Name::Route, count, |range| edit.remove(range));
        let mut out = Vec::new();
        edit.write(&message, &mut out);
        let out = String::from_utf8(out).unwrap().replace("\r\n", "\n");
        assert!(out.contains("Subject: x\n") && out.contains("Via: SIP/2.0/UDP h;branch=1\n"));
        let left = all.get(count..).unwrap_or_default();
        assert_eq!(routes(&out), left, "{out}");
    }
}

#[test]
fn several_values_are_known_by_their_commas() {
    for (lines, several) in [
        ("Route: <sip:1.example>\n", false),
        ("Route: <sip:1.example,x;lr>;p=\"a,\\\"b\"\n", false),
        ("Route: \"A, B\" <sip:1.example>\n", false),
        ("Route: <sip:1.example>, <sip:2.example>\n", true),
        ("Route: <sip:1.example>;p=\"a\",\n", true),
        ("Route: <sip:1.example>\nRoute: <sip:2.example>\n", true),
        ("Route: <sip:1.example\n", false),
        ("Route:\n", false),
        ("", false),
    ] {
        let (bytes, index) = parse(&format!("INVITE sip:a@b SIP/2.0\nVia: SIP/2.0/UDP h, SIP/2.0/UDP i\n{lines}\n"));
        assert_eq!(Message::new(&bytes, &index).has_several(Name::Route), several, "{lines}");
    }
}

#[test]
fn a_top_via_is_filled_in() {
    let (bytes, index) = parse(
        "OPTIONS sip:b SIP/2.0\nv: SIP/2.0/UDP h:5070;rport;branch=z9hG4bK1 , SIP/2.0/TCP i;branch=2\nVia: SIP/2.0/UDP j;branch=3\n\n",
    );
    let message = Message::new(&bytes, &index);
    let via = message.via().unwrap();
    let mut edit = Edit::new();
    edit.insert(message.range_of(via.rport.unwrap()).start, |out| out.extend_from_slice(b"=4711"));
    edit.insert(message.range_of(via.text).end, |out| out.extend_from_slice(b";received=192.0.2.9"));
    let mut out = Vec::new();
    edit.write(&message, &mut out);
    assert!(
        String::from_utf8_lossy(&out).contains(
            "v: SIP/2.0/UDP h:5070;rport=4711;branch=z9hG4bK1;received=192.0.2.9 , SIP/2.0/TCP i;branch=2\r\n"
        )
    );
    let branches: Vec<_> = message.vias().map(|v| v.unwrap().branch.unwrap()).collect();
    assert_eq!(branches, [&b"z9hG4bK1"[..], b"2", b"3"]);
}

#[test]
fn mistakes_are_named_with_their_place() {
    let (bytes, index) = parse(
        "INVITE sip:a@b SIP/2.0\nRoute: <sip:a>,,<sip:b>\nTo: <sip:a>\nTo: <sip:b>\nFrom: <sip:x\nCSeq: 1 A\nCSeq: 1 A\nContact: *\n\n",
    );
    let message = Message::new(&bytes, &index);
    let mut routes = message.routes();
    assert!(routes.next().unwrap().is_ok());
    let wrong = routes.next().unwrap().unwrap_err();
    assert_eq!((wrong.reason, &bytes[wrong.offset..wrong.offset + 5]), (Reason::Malformed, &b",<sip"[..]));
    assert!(routes.next().is_none());
    assert_eq!(message.to().unwrap_err().reason, Reason::Repeated);
    assert_eq!(message.from().unwrap_err().reason, Reason::Malformed);
    assert_eq!(message.call_id().unwrap_err().reason, Reason::NoCallId);
    assert!(message.cseq().is_ok(), "two that agree count as one");
    assert!(message.contact_star());
    assert_eq!(message.via().unwrap_err().reason, Reason::NoVia);
    assert_eq!(message.max_forwards().unwrap(), None);
}
