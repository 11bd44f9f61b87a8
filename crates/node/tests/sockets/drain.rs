//! A server that ends while a call rings.

use crate::site::*;

#[test]
fn a_call_that_rings_is_answered_while_the_server_ends() {
    let mut site = Site::start("", &["bob"]);
    let (caller, bob) = (site.foreign_phone(), site.phone("bob"));
    bob.register();
    let call = caller.call("INVITE", "sip:bob@example.org");
    caller.send(&caller.text(&call));
    let invite = bob.next();
    bob.respond(&invite, 180, "");
    assert_eq!(caller.answer().status(), 180);
    // The shutdown begins immediately: no other event may make the server count its load.
    let end = site.drain();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!end.is_finished(), "it ended in the middle of a call");
    bob.respond(&invite, 200, "");
    let ok = caller.answer();
    assert_eq!(ok.status(), 200);
    // The server could end meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(100));
    caller.send(&caller.text(&call.within(&ok, "ACK", call.cseq)));
    assert_eq!(bob.next().method(), "ACK");
    end.join().expect("it ends");
}
