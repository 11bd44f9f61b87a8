//! System calls, observed by a trace.

use strowger_tests::program::{STRACE, have};
use strowger_tests::server::Setup;
use strowger_tests::trace::Trace;
use strowger_tests::wire::Transport::Udp;

use super::{SOON, request, send};

/// Returns the trace of a server with these lines that answers a datagram.
fn trace(lines: &str) -> Option<String> {
    if !have(&[STRACE]) {
        return None;
    }
    let trace = Trace::default();
    let calls = "setsockopt,sched_setscheduler,sched_setattr,prctl";
    let mut server = Setup::on(&[Udp]).relay().with(lines).under(&trace.words(calls, 16)).start();
    let mut wire = server.connect(Udp);
    let options = request(&wire, "OPTIONS", &format!("sip:{}", server.address(Udp)));
    send(&mut wire, &options);
    wire.final_response(SOON).expect("it is answered");
    let id = server.process().id();
    server.stop();
    Some(trace.whole(id))
}

#[test]
fn the_kernel_is_asked_for_what_the_settings_say() {
    let lines = "server.shards = 2\nserver.udp_receive_buffer = 123456\nserver.scheduling = \"normal\"\n\
                 server.huge_pages = true";
    let Some(set) = trace(lines) else { return };
    let Some(default) = trace("server.shards = 2") else { return };
    for (words, of) in [
        ("SO_RCVBUF, [123456]", (true, false)),
        ("SO_RCVBUF, [4194304]", (false, true)),
        ("SO_SNDBUF, [4194304]", (true, true)),
        ("SO_ATTACH_REUSEPORT_CBPF", (true, true)),
        ("SCHED_BATCH", (false, true)),
        // Switched off while the configuration is read.
        ("PR_SET_THP_DISABLE, 1", (true, true)),
        ("PR_SET_THP_DISABLE, 0", (true, false)),
    ] {
        assert_eq!((set.contains(words), default.contains(words)), of, "{words}");
    }
}
