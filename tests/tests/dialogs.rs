//! Tracked calls: a server that ends those that last too long, and takes no more than it may.

use std::time::Duration;

use strowger_tests::call::{exchange, register};
use strowger_tests::dialog::{arrives, invite, set_up};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{field, parameter, respond, status};
use strowger_tests::wire::Transport::{self, Tcp, Tls, Udp, Ws};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);
const ALL: [Transport; 4] = [Udp, Tcp, Tls, Ws];

fn start(lines: &str) -> Server {
    let open = "domains = [\"example.org\"]\nregistrar.authenticate = false\nauth.calls = false\ndialogs.track = true";
    Setup::on(&ALL).with(open).with(lines).start()
}

/// The BYE that this server sends by itself, answered.
fn bye(wire: &mut Wire) -> Vec<u8> {
    let bye = wire.request("BYE", LIMIT).expect("the server ends the call");
    wire.send(&respond(&bye, 200, "", &[])).expect("the server takes messages");
    bye
}

fn tag(message: &[u8], name: &str) -> Option<String> {
    parameter(&field(message, name)?, "tag")
}

/// Phones of every transport, each reached over the connection that it has made.
#[test]
fn a_call_that_lasts_too_long_is_ended_on_both_sides() {
    let server = start("dialogs.lifetime = \"2s\"");
    let pairs = ALL.iter().flat_map(|caller| ALL.map(|callee| (*caller, callee)));
    let calls = pairs.map(|(caller, callee)| {
        let (mut caller, mut callee) = (server.connect(caller), server.connect(callee));
        let user = strowger_tests::text::unique("user");
        register(&mut callee, &user);
        let invite = invite(&format!("sip:{user}@example.org"), &caller);
        let (mut end, other) = set_up(&mut caller, &mut callee, &invite, true);
        // The caller has said more than its INVITE: the next CSeq is higher.
        arrives(&mut caller, &mut callee, &end.request("INFO"), &[]);
        (caller, callee, end, other)
    });
    for (mut caller, mut callee, end, other) in calls.collect::<Vec<_>>() {
        let (to_caller, to_callee) = (bye(&mut caller), bye(&mut callee));
        for got in [&to_caller, &to_callee] {
            assert_eq!(field(got, "Call-ID").as_ref(), Some(&end.call_id));
        }
        let tags = |message| (tag(message, "From"), tag(message, "To"));
        let (of_caller, of_callee) = (parameter(&end.from, "tag"), parameter(&other.from, "tag"));
        assert_eq!(tags(&to_callee), (of_caller.clone(), of_callee.clone()));
        assert_eq!(tags(&to_caller), (of_callee, of_caller));
        assert_eq!(field(&to_callee, "CSeq"), Some(format!("{} BYE", end.cseq + 1)));
    }
}

#[test]
fn calls_beyond_the_bound_are_refused_until_others_end() {
    let server = start("dialogs.calls = 1\nserver.shards = 1");
    let (mut caller, mut callee) = (server.connect(Udp), server.connect(Udp));
    register(&mut callee, "bob");
    let [first, second, third] = [(); 3].map(|()| invite("sip:bob@example.org", &caller));
    let (mut end, _) = set_up(&mut caller, &mut callee, &first, true);
    let one_more = exchange(&mut caller, &second);
    assert_eq!((status(&one_more), field(&one_more, "Retry-After").is_some()), (Some(503), true));
    arrives(&mut caller, &mut callee, &end.request("BYE"), &[]);
    set_up(&mut caller, &mut callee, &third, true);
}
