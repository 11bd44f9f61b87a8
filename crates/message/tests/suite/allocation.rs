//! Once warm, reading a message, its mandatory headers and an edit of it allocate nothing.

use strowger_allocations::of_thread;
use strowger_message::{Edit, Index, Limits, MandatoryHeaders, Message, Name, frame, scan};

#[test]
fn a_warm_relay_allocates_nothing() {
    let invite = b"INVITE sip:grace@example.org SIP/2.0\r\n\
        Via: SIP/2.0/UDP edge.example.net;branch=z9hG4bKa, SIP/2.0/UDP [2001:db8::7];branch=z9hG4bKb;rport\r\n\
        Max-Forwards: 70\r\nRoute: <sip:core.example.net;lr>\r\nFrom: \"Ada\" <sip:ada@example.net>;tag=1\r\n\
        To: <sip:grace@example.org>\r\nCall-ID: 1@x\r\nCSeq: 1 INVITE\r\nContact: <sip:ada@192.0.2.7>\r\n\
        Content-Length: 4\r\n\r\nbody";
    let limits = Limits::default();
    let (mut index, mut edit, mut out) = (Index::new(), Edit::new(), Vec::new());
    let mut relay = || {
        assert_eq!(frame::next(invite, &mut 0, &limits), frame::Frame::Message(invite.len()));
        assert!(scan::call_id(invite).is_some());
        index.parse(invite, &limits).expect("well-formed");
        let message = Message::new(invite, &index);
        let mandatory = MandatoryHeaders::of(&message).expect("has what it must have");
        assert_eq!(message.vias().filter(Result::is_ok).count(), 2);
        edit.clear();
        edit.prepend(&index, Name::Via, |out| out.extend_from_slice(b"SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKc"));
        edit.set(&index, Name::MaxForwards, |out| {
            let hops = mandatory.max_forwards.expect("stands there") - 1;
            out.extend_from_slice(&[b'0' + hops / 10, b'0' + hops % 10]);
        });
        edit.remove_all(&index, Name::Route);
        out.clear();
        edit.write(&message, &mut out);
        out.len()
    };
    let first = relay();
    let before = of_thread();
    for _ in 0..1000 {
        assert_eq!(relay(), first);
    }
    assert_eq!(of_thread() - before, 0, "allocations in a thousand messages");
    // The counter counts.
    drop(std::hint::black_box(vec![1u8]));
    assert!(of_thread() > before);
}
