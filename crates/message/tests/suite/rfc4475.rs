//! The torture messages of RFC 4475: accepted and refused ones. The verdict is that of the index and of
//! [`MandatoryHeaders`] together.
//!
//! The messages are read from `$STROWGER_CORPORA/rfc4475`. If it is missing, only the project's own messages of the
//! same kinds in `torture/` are tested, which are always read.

use crate::corpora::corpus;
use std::path::PathBuf;
use strowger_message::frame::{self, Frame};
use strowger_message::{Edit, Error, Index, Limits, MandatoryHeaders, Message, Name, Reason};

/// Verdict of index and mandatory headers.
fn verdict(bytes: &[u8]) -> Result<(), Error> {
    let mut index = Index::new();
    index.parse(bytes, &Limits::default())?;
    let message = Message::new(bytes, &index);
    MandatoryHeaders::of(&message)?;
    // An accepted message passes on unchanged.
    let mut out = Vec::new();
    Edit::new().write(&message, &mut out);
    assert_eq!(out, message.bytes());
    Ok(())
}

fn parsed(bytes: &[u8], see: impl FnOnce(Message<'_>, MandatoryHeaders<'_>)) {
    let mut index = Index::new();
    index.parse(bytes, &Limits::default()).expect("is a message");
    let message = Message::new(bytes, &index);
    see(message, MandatoryHeaders::of(&message).expect("has what it must have"));
}

#[test]
fn the_49_verdicts() {
    let Some(folder) = corpus("rfc4475") else { return };
    let text = std::fs::read(folder.join("expected.json")).expect("the corpus has verdicts");
    let all: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let all = all.as_array().expect("a list");
    assert_eq!(all.len(), 49);
    let (mut wrong, mut disputed) = (Vec::new(), Vec::new());
    for case in all {
        let text = |key: &str| case[key].as_str().expect("text");
        let (id, class) = (text("id"), text("class"));
        let acceptable: Vec<&str> =
            case["acceptable"].as_array().expect("a list").iter().filter_map(|a| a.as_str()).collect();
        let bytes = std::fs::read(folder.join(format!("{id}.dat"))).expect("the corpus has the message");
        let verdict = verdict(&bytes);
        // These statuses are refusals by the parser. The others of the list need a message that was understood.
        let refusals = ["400", "501", "505", "drop", "close"];
        let right = match verdict {
            Ok(()) => acceptable.iter().any(|a| !refusals.contains(a)) || (class == "app" && acceptable == ["drop"]),
            Err(_) if bytes.starts_with(b"SIP/") => acceptable.contains(&"drop"),
            Err(error) => acceptable.contains(&error.status().to_string().as_str()),
        };
        let said = verdict.map_or_else(|e| format!("{} ({e})", e.status()), |()| "taken".to_owned());
        println!("{id:12} {class:12} {said:60} {}", if right { "right" } else { "WRONG" });
        if !right {
            let list = if text("provenance") == "M" { &mut disputed } else { &mut wrong };
            list.push(format!("{id}: {said}, not {acceptable:?}"));
        }
    }
    if !disputed.is_empty() {
        println!("disputed, not gated: {disputed:#?}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_taken_is_understood() {
    let Some(folder) = corpus("rfc4475") else { return };
    let read = |id: &str| std::fs::read(folder.join(format!("{id}.dat"))).expect("the corpus has the message");
    parsed(&read("wsinv"), |m, e| {
        assert_eq!(m.header_named(b"UnknownHeaderWithUnusualValue"), Some(&b";;,,;;,;"[..]));
        assert_eq!(e.max_forwards, Some(68));
        assert_eq!((e.cseq.number, e.to.tag, e.from.tag), (9, Some(&b"1918181833n"[..]), Some(&b"98asjd8"[..])));
        assert_eq!(
            m.vias().map(|v| v.expect("well-formed").transport.to_vec()).collect::<Vec<_>>(),
            [b"UDP", b"TCP", b"UDP"]
        );
        assert_eq!(m.header(Name::Subject), Some(&b""[..]));
    });
    parsed(&read("escnull"), |m, _| {
        let contacts: Vec<_> = m.contacts().map(|c| c.expect("well-formed").uri_text.to_vec()).collect();
        assert_eq!(contacts, [&b"sip:%00@host5.example.com"[..], b"sip:%00%00@host5.example.com"]);
    });
    parsed(&read("esc02"), |m, _| assert_eq!(m.method(), Some(strowger_message::Method::Other)));
    parsed(&read("dblreq"), |m, _| {
        assert_eq!(m.method(), Some(strowger_message::Method::Register));
        assert_eq!(m.bytes().len(), 300);
    });
    parsed(&read("semiuri"), |_, e| {
        let uri = e.uri.and_then(|u| u.sip().copied()).expect("a sip URI");
        assert_eq!(uri.user, Some(&b"user;par=u%40example.net"[..]));
    });
    parsed(&read("mpart01"), |m, _| assert!(m.body().len() == 553 && m.body().contains(&0)));
    parsed(&read("unreason"), |m, _| {
        assert!(m.reason().starts_with("= 2**3 * 5**2".as_bytes()) && !m.reason().is_ascii())
    });
    parsed(&read("noreason"), |m, _| assert_eq!(m.reason(), b""));
    parsed(&read("inv2543"), |_, e| {
        assert!(e.via.branch.is_none() && e.max_forwards.is_none() && e.from.tag.is_none())
    });
}

#[test]
fn on_a_stream() {
    let Some(folder) = corpus("rfc4475") else { return };
    let read = |id: &str| std::fs::read(folder.join(format!("{id}.dat"))).expect("the corpus has the message");
    let first = |bytes: &[u8]| frame::next(bytes, &mut 0, &Limits::default());
    // Two requests in one datagram: over a stream both count.
    let two = read("dblreq");
    let Frame::Message(one) = first(&two) else { panic!("the REGISTER is whole") };
    let gap = two[one..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    let Frame::Message(other) = first(&two[one + gap..]) else { panic!("the INVITE is whole") };
    assert!(two[one + gap..].starts_with(b"INVITE") && two.len() - one - gap - other < 8);
    // A length beyond the received bytes: wait. No length at all: close.
    assert!(matches!(first(&read("clerr")), Frame::Partial(Some(n)) if n > 9999));
    assert_eq!(first(&read("ncl")), Frame::Broken(Reason::ContentLength));
    assert_eq!(first(&read("mcl01")), Frame::Broken(Reason::ContentLength));
}

/// The project's own messages. The file name begins with the verdict: `ok`, the status of the refusal, or `drop` for a
/// response on which no element may act.
#[test]
fn our_own() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/torture");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the folder is part of the project") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|e| e != "sip") {
            continue;
        }
        let name = path.file_stem().and_then(|n| n.to_str()).expect("UTF-8").to_owned();
        let bytes = std::fs::read(&path).expect("readable");
        let want = name.split('-').next().unwrap_or_default();
        match (want, verdict(&bytes)) {
            ("ok", result) => assert_eq!(result, Ok(()), "{name}"),
            ("drop", result) => assert!(result.is_err() && bytes.starts_with(b"SIP/"), "{name}"),
            (status, Err(error)) => assert_eq!(error.status().to_string(), status, "{name}: {error}"),
            (status, Ok(())) => panic!("{name} is taken, not refused with {status}"),
        }
        seen += 1;
    }
    assert!(seen >= 40, "only {seen} messages found");
}
