//! The call flows of RFC 3665: without edits every message stays byte for byte, and it keeps its meaning when it is
//! parsed into typed values and built again from them.

use crate::corpora::corpus;
use crate::flows;
use strowger_message::view::{self, View};
use strowger_message::{Builder, Edit, Index, Limits, Message, Name};

#[test]
fn the_181_messages_of_the_rfc() {
    let Some(folder) = corpus("rfc3665/messages") else { return };
    let entries = std::fs::read_dir(&folder).expect("a folder that is there");
    let mut files: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 181);
    let mut repaired = 0;
    for file in files {
        let mut bytes = std::fs::read(&file).unwrap();
        // In one message a folded Record-Route lost the white space before its second line, so every reader takes that
        // line for a header line without a name.
        if let Some(at) = bytes.windows(4).position(|w| w == b",\r\n<") {
            bytes.insert(at + 3, b' ');
            repaired += 1;
        }
        check(&file.display().to_string(), &bytes);
    }
    assert!(repaired <= 1);
}

#[test]
fn flows_of_our_own() {
    assert!(flows::ALL.len() >= 5);
    for (name, messages) in flows::ALL {
        assert!(messages.len() > 1);
        for (n, text) in messages.iter().enumerate() {
            check(&format!("{name} {}", n + 1), &flows::wire(text));
        }
    }
}

fn check(what: &str, bytes: &[u8]) {
    let mut index = Index::new();
    index.parse(bytes, &Limits::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let message = Message::new(bytes, &index);

    let mut same = Vec::new();
    Edit::new().write(&message, &mut same);
    assert_eq!(same, message.bytes(), "{what}: not byte-equal");

    let rebuilt = rebuild(what, &message);
    let mut again = Index::new();
    again.parse(&rebuilt, &Limits::default()).unwrap_or_else(|e| panic!("{what} rebuilt: {e}"));
    compare(what, &message, &Message::new(&rebuilt, &again));

    let mut rewritten = Vec::new();
    view::rewrite(&message, &mut rewritten).unwrap();
    again.parse(&rewritten, &Limits::default()).unwrap_or_else(|e| panic!("{what} rewritten: {e}"));
    compare(what, &message, &Message::new(&rewritten, &again));
    // Normal form is its own normal form.
    let mut twice = Vec::new();
    view::rewrite(&Message::new(&rewritten, &again), &mut twice).unwrap();
    assert_eq!(twice, rewritten, "{what}");
}

/// Builds the message again, each value from its view.
fn rebuild(what: &str, message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = match message.status() {
        Some(code) => Builder::response(&mut out, code, Some(message.reason())),
        None => {
            let uri = message.uri().unwrap_or_else(|e| panic!("{what}: {e}"));
            Builder::request_named(&mut out, message.method_text(), &uri)
        }
    };
    for line in message.index().lines() {
        if line.name == Name::ContentLength {
            continue;
        }
        let mut value = Vec::new();
        view::of_line(message, line, |_, view| {
            if !value.is_empty() {
                value.extend_from_slice(b", ");
            }
            view.write(&mut value);
        })
        .unwrap_or_else(|e| panic!("{what}: {e} in {:?}", line.name));
        builder = match line.name {
            Name::Other => builder.line(message.name(line), &value),
            name => builder.header(name, &value[..]),
        };
    }
    let length = builder.finish(message.body());
    assert_eq!(length, out.len());
    out
}

/// Checks that start line, all views and the body are equal.
fn compare(what: &str, one: &Message<'_>, other: &Message<'_>) {
    assert_eq!(one.status(), other.status(), "{what}");
    assert_eq!(one.method_text(), other.method_text(), "{what}");
    assert_eq!(one.reason(), other.reason(), "{what}");
    if one.is_request() {
        assert_eq!(one.uri().unwrap(), other.uri().unwrap(), "{what}");
    }
    assert_eq!(one.body(), other.body(), "{what}");
    let (ours, theirs) = (views(what, one), views(what, other));
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a.0, b.0, "{what}");
        let same = match (&a.1, &b.1) {
            // Folds in free text and in credentials are written as one space.
            (View::Text(x), View::Text(y)) => unfold(x.text) == unfold(y.text),
            (View::Credentials(x), View::Credentials(y)) => x.scheme == y.scheme && unfold(x.rest) == unfold(y.rest),
            (x, y) => x == y,
        };
        assert!(same, "{what}: {a:?} {b:?}");
    }
}

fn unfold(text: &[u8]) -> String {
    String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn views<'a>(what: &str, message: &Message<'a>) -> Vec<(Name, View<'a>)> {
    let mut found = Vec::new();
    view::all(message, |line, view| {
        if line.name != Name::ContentLength {
            found.push((line.name, *view));
        }
    })
    .unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(!found.is_empty());
    found
}
