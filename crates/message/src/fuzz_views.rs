//! Entry points of fuzz targets: arbitrary bytes are parsed as each header field and as a URI. Nothing may panic, and
//! every parsed value must survive a round trip through its own output.

use crate::header::{Contact, Party, Via};
use crate::view::{self, View};
use crate::{Host, Index, Limits, Message, Name, NameAddr, Uri};

/// Parses a value as the header field that the first byte selects, and as a URI, host and address.
///
/// # Panics
/// A view violates its contract: a fault of this crate.
pub fn views(data: &[u8]) {
    let Some((&pick, value)) = data.split_first() else { return };
    uri(value);
    if let Ok(host) = Host::parse(value) {
        let mut out = Vec::new();
        host.write(&mut out);
        assert_eq!(Host::parse(&out).ok(), Some(host));
    }
    let _ = (NameAddr::parse(value), Contact::parse(value), Party::parse(value), Via::parse(value));

    // The value as a header line of a message, with its line ends turned into folds.
    let name = Name::KNOWN[pick as usize % Name::KNOWN.len()];
    let mut bytes = b"OPTIONS sip:a SIP/2.0\r\n".to_vec();
    bytes.extend_from_slice(name.text().as_bytes());
    bytes.extend_from_slice(b": ");
    for &b in value {
        bytes.push(b);
        if matches!(b, b'\r' | b'\n') {
            bytes.push(b' ');
        }
    }
    bytes.extend_from_slice(b"\r\n\r\n");
    let mut index = Index::new();
    if index.parse(&bytes, &Limits::default()).is_ok() {
        message(&Message::new(&bytes, &index));
    }
}

/// Calls every view and every accessor of a message.
///
/// # Panics
/// As [`views`].
pub fn message(message: &Message<'_>) {
    let (mut written, mut count) = (Vec::new(), 0);
    let read = view::all(message, |line, view| {
        count += 1;
        if line.name != Name::ContentLength {
            again(line.name, view, line.folded);
        }
    });
    accessors(message);
    if read.is_err() || view::rewrite(message, &mut written).is_err() {
        return;
    }
    let mut index = Index::new();
    // The output may be longer than the input, and so have more values than the limit of a long message.
    let limits = Limits { headers: 1 << 16, ..Limits::default() };
    index.parse(&written, &limits).expect("a message written from views can be read");
    let mut same = 0;
    view::all(&Message::new(&written, &index), |_, _| same += 1).expect("views can be read again from what they write");
    assert_eq!(same, count, "as many values as before");
    for line in message.index().lines() {
        for count in 0..3 {
            message.cut_first(line.name, count, |range| {
                assert!(range.end <= message.bytes().len() && range.start < range.end)
            });
        }
    }
}

/// Checks that the output of a view parses as an equal view.
fn again(name: Name, view: &View<'_>, folded: bool) {
    let mut bytes = b"OPTIONS sip:a SIP/2.0\r\n".to_vec();
    bytes.extend_from_slice(if name == Name::Other { b"X-Other" } else { name.text().as_bytes() });
    bytes.extend_from_slice(b": ");
    view.write(&mut bytes);
    bytes.extend_from_slice(b"\r\n\r\n");
    let mut index = Index::new();
    index.parse(&bytes, &Limits::default()).expect("a view writes one header line");
    assert_eq!(index.lines().len(), 1, "a view writes one header line");
    let message = Message::new(&bytes, &index);
    let mut seen = 0;
    view::all(&message, |_, other| {
        seen += 1;
        // Folds became spaces, so the text differs, and only the stability of the normal form is checked.
        let mut twice = Vec::new();
        other.write(&mut twice);
        assert_eq!(twice, message.value(&message.index().lines()[0]), "normal form is stable");
        assert!(folded || view == other, "{view:?} is not {other:?}");
    })
    .expect("a view can be read from what it writes");
    assert!(seen == 1 || matches!(view, View::Text(_)), "one view writes one value");
}

fn accessors(message: &Message<'_>) {
    let _ = (message.uri(), message.via(), message.from(), message.to(), message.call_id(), message.cseq());
    let _ = (message.max_forwards(), message.expires(), message.min_expires(), message.contact_star());
    if let Ok(via) = message.via() {
        let _ = (message.range_of(via.text), via.received_ip(), via.rport_port(), via.magic_branch());
        if let Some(place) = via.rport {
            let _ = message.range_of(place);
        }
    }
    for contact in message.contacts().flatten() {
        let bytes = &message.bytes()[contact.range()];
        assert_eq!(Contact::parse(bytes).ok().as_ref(), Some(&contact.value), "a value stands where it says");
        let _ = contact.cut();
    }
    for via in message.vias().flatten() {
        assert_eq!(
            Via::parse(&message.bytes()[via.range()]).ok().as_ref(),
            Some(&via.value),
            "a value stands where it says"
        );
    }
    for route in message.routes().flatten() {
        uri(route.uri_text);
        let _ = (route.cut(), route.display_name());
    }
    let _ = (message.supports(b"path"), message.require().count(), message.allow().count());
}

fn uri(text: &[u8]) {
    let Ok(uri) = Uri::parse(text) else { return };
    let mut out = Vec::new();
    uri.write(&mut out);
    let again = Uri::parse(&out).expect("a URI can be read from what it writes");
    let (there, back) = (uri.eq(&again), again.eq(&uri));
    assert!(there && back, "a URI equals what was read from what it wrote");
    let (mut key, mut other) = (Vec::new(), Vec::new());
    uri.write_aor(&mut key);
    again.write_aor(&mut other);
    assert_eq!(key, other);
    if let Uri::Sip(sip) = &uri {
        assert!(sip.params.iter().all(|(name, _)| sip.params.find(name).is_some()));
        let _ = (sip.params.transport(), sip.params.maddr(), sip.params.gr(), sip.header_pairs().count());
    }
}
