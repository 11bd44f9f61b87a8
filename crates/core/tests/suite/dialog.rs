//! Dialogs: RFC 3261 section 12 with the examples of RFC 3665.

use crate::written::through_bytes;
use strowger_core::dialog::{Dialog, Fault, Invalid, Role, State};
use strowger_message::{Index, Limits, Message, Method, Name};

/// Calls `use_it` with `text` as a message; line ends become CRLF.
fn with<T>(text: &str, use_it: impl FnOnce(&Message<'_>) -> T) -> T {
    let text = text.trim_start().replace('\n', "\r\n") + "\r\n";
    let mut index = Index::new();
    index.parse(text.as_bytes(), &Limits::default()).unwrap();
    use_it(&Message::new(text.as_bytes(), &index))
}

const INVITE: &str = "
INVITE sip:bob@biloxi.example.com SIP/2.0
Via: SIP/2.0/TCP client.atlanta.example.com:5060;branch=z9hG4bK74b43
Max-Forwards: 70
Record-Route: <sip:ss2.biloxi.example.com;lr>, \"Proxy 1\" <sip:ss1.atlanta.example.com;lr>;x=1
From: Alice <sip:alice@atlanta.example.com>;tag=9fxced76sl
To: \"Bob, B\" <sip:bob@biloxi.example.com>;note=x
Call-ID: 3848276298220188511@atlanta.example.com
CSeq: 1 INVITE
Contact: <sip:alice@client.atlanta.example.com;transport=tcp>
Content-Length: 0
";

const RINGING: &str = "
SIP/2.0 180 Ringing
Via: SIP/2.0/TCP client.atlanta.example.com:5060;branch=z9hG4bK74b43
Record-Route: <sip:ss2.biloxi.example.com;lr>
Record-Route: <sip:ss1.atlanta.example.com;lr>
From: Alice <sip:alice@atlanta.example.com>;tag=9fxced76sl
To: Bob <sip:bob@biloxi.example.com>;tag=314159
Call-ID: 3848276298220188511@atlanta.example.com
Contact: <sip:bob@client.biloxi.example.com;transport=tcp>
CSeq: 1 INVITE
Content-Length: 0
";

fn caller() -> Dialog {
    with(RINGING, |m| Dialog::caller(m, false)).unwrap()
}

fn callee() -> Dialog {
    with(INVITE, |m| Dialog::callee(m, b"314159", false)).unwrap()
}

fn request(dialog: &Dialog, method: Method, cseq: u32) -> String {
    let mut out = Vec::new();
    dialog.write_request(method, cseq, |out| out.extend_from_slice(b"SIP/2.0/UDP h;branch=z9hG4bKx"), &mut out);
    String::from_utf8(out).unwrap().replace("\r\n", "\n")
}

#[test]
fn the_caller_takes_record_route_backwards() {
    let mut dialog = caller();
    assert_eq!((dialog.role(), dialog.state()), (Role::Caller, State::Early));
    dialog.confirm(None);
    let cseq = dialog.next_cseq(1);
    assert_eq!(
        request(&dialog, Method::Bye, cseq),
        "BYE sip:bob@client.biloxi.example.com;transport=tcp SIP/2.0
Via: SIP/2.0/UDP h;branch=z9hG4bKx
Max-Forwards: 70
Route: <sip:ss1.atlanta.example.com;lr>, <sip:ss2.biloxi.example.com;lr>
From: Alice <sip:alice@atlanta.example.com>;tag=9fxced76sl
To: Bob <sip:bob@biloxi.example.com>;tag=314159
Call-ID: 3848276298220188511@atlanta.example.com
CSeq: 2 BYE
"
    );
}

#[test]
fn the_callee_takes_record_route_as_it_stands() {
    let mut dialog = callee();
    assert_eq!((dialog.role(), dialog.remote_cseq()), (Role::Callee, Some(1)));
    let cseq = dialog.next_cseq(4711);
    assert_eq!(
        request(&dialog, Method::Bye, cseq),
        "BYE sip:alice@client.atlanta.example.com;transport=tcp SIP/2.0
Via: SIP/2.0/UDP h;branch=z9hG4bKx
Max-Forwards: 70
Route: <sip:ss2.biloxi.example.com;lr>, <sip:ss1.atlanta.example.com;lr>;x=1
From: \"Bob, B\" <sip:bob@biloxi.example.com>;note=x;tag=314159
To: Alice <sip:alice@atlanta.example.com>;tag=9fxced76sl
Call-ID: 3848276298220188511@atlanta.example.com
CSeq: 4711 BYE
"
    );
    assert_eq!(dialog.next_cseq(4711), 4712);
}

#[test]
fn a_2xx_replaces_the_route_set() {
    let mut dialog = caller();
    let ok = RINGING
        .replace("180 Ringing", "200 OK")
        .replace("Record-Route: <sip:ss2.biloxi.example.com;lr>\n", "")
        .replace("sip:bob@client.biloxi", "sip:bob@other.biloxi");
    with(&ok, |m| dialog.confirm(Some(m)));
    assert_eq!(dialog.state(), State::Confirmed);
    assert_eq!(dialog.routes(), b"<sip:ss1.atlanta.example.com;lr>");
    assert_eq!(dialog.target(), b"sip:bob@other.biloxi.example.com;transport=tcp");
    // Only the first 2xx does.
    with(RINGING, |m| dialog.confirm(Some(m)));
    assert_eq!(dialog.routes(), b"<sip:ss1.atlanta.example.com;lr>");
}

#[test]
fn numbers_only_grow() {
    let mut dialog = callee();
    let bye = |n: u32| INVITE.replace("INVITE sip", "BYE sip").replace("1 INVITE", &format!("{n} BYE"));
    let ack = INVITE.replace("INVITE sip", "ACK sip").replace("1 INVITE", "1 ACK");
    assert_eq!(with(&ack, |m| dialog.receive(m)), Ok(()), "an ACK has its INVITE's number");
    assert_eq!(with(&bye(1), |m| dialog.receive(m)), Err(Fault::OutOfOrder));
    // Gaps are no fault: a challenge may have taken a number.
    assert_eq!(with(&bye(5), |m| dialog.receive(m)), Ok(()));
    assert_eq!(with(&bye(4), |m| dialog.receive(m)), Err(Fault::OutOfOrder));
    dialog.end();
    assert_eq!(with(&bye(6), |m| dialog.receive(m)), Err(Fault::Ended));
    assert_eq!([Fault::OutOfOrder, Fault::Ended, Fault::Malformed].map(Fault::status), [500, 481, 400]);
}

#[test]
fn requests_that_refresh_the_target_do() {
    let mut dialog = callee();
    let of = |method: &str, n: u32| {
        INVITE
            .replace("INVITE sip", &format!("{method} sip"))
            .replace("1 INVITE", &format!("{n} {method}"))
            .replace("Contact: <sip:alice@client", "Contact: <sip:alice@moved")
    };
    with(&of("INFO", 2), |m| dialog.receive(m)).unwrap();
    assert_eq!(dialog.target(), b"sip:alice@client.atlanta.example.com;transport=tcp");
    with(&of("UPDATE", 3), |m| dialog.receive(m)).unwrap();
    assert_eq!(dialog.target(), b"sip:alice@moved.atlanta.example.com;transport=tcp");
}

#[test]
fn incomplete_messages_make_no_dialog() {
    let untagged = RINGING.replace(";tag=314159", "");
    assert_eq!(with(&untagged, |m| Dialog::caller(m, false)), Err(Invalid::NoTag));
    let no_contact = INVITE.replace("Contact: <sip:alice@client.atlanta.example.com;transport=tcp>\n", "");
    assert_eq!(with(&no_contact, |m| Dialog::callee(m, b"x", false)), Err(Invalid::Header(Name::Contact)));
    let wrong = INVITE.replace("<sip:ss2.biloxi.example.com;lr>,", "<sip:ss2,");
    assert_eq!(with(&wrong, |m| Dialog::callee(m, b"x", false)), Err(Invalid::Header(Name::RecordRoute)));
}

#[test]
fn a_peer_without_tag_is_served() {
    let old = INVITE.replace(";tag=9fxced76sl", "");
    let dialog = with(&old, |m| Dialog::callee(m, b"314159", false)).unwrap();
    assert!(dialog.is(b"3848276298220188511@atlanta.example.com", b"314159", b""));
    assert!(request(&dialog, Method::Bye, 1).contains("\nTo: Alice <sip:alice@atlanta.example.com>\n"));
}

/// The process that wrote the state may have sent its first request after it.
#[test]
fn the_next_process_skips_cseqs_that_may_be_used() {
    for (mut dialog, used) in [(caller(), 1), (callee(), 0)] {
        dialog.skip_cseqs(500, 20);
        let expected = if used == 0 { 521 } else { used + 21 };
        assert_eq!(dialog.next_cseq(77), expected);
    }
}

#[test]
fn a_dialog_is_written_down_and_read_back() {
    for mut dialog in [caller(), callee()] {
        dialog.exchange.send();
        dialog.next_cseq(77);
        dialog.confirm(None);
        assert_eq!(through_bytes(dialog.clone()), dialog);
    }
}
