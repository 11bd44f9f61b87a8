//! System calls, observed by a trace.

use std::collections::HashSet;
use std::time::Duration;

use strowger_tests::program::{STRACE, have};
use strowger_tests::server::Setup;
use strowger_tests::trace::Trace;
use strowger_tests::wire::Transport::Udp;

use super::{SOON, request, send};

/// Returns the trace of a server with these lines that reads twenty waiting datagrams, and a hundred in quick
/// succession.
fn trace(lines: &str) -> Option<String> {
    if !have(&[STRACE]) {
        return None;
    }
    let trace = Trace::default();
    let calls = "setsockopt,sched_setscheduler,sched_setattr,recvmmsg,epoll_wait,epoll_pwait,prctl,futex";
    let mut server = Setup::on(&[Udp]).relay().with(lines).under(&trace.words(calls, 16)).start();
    let mut wire = server.connect(Udp);
    let options = request(&wire, "OPTIONS", &format!("sip:{}", server.address(Udp)));
    server.process().signal(libc::SIGSTOP);
    for _ in 0..20 {
        send(&mut wire, &options);
    }
    server.process().signal(libc::SIGCONT);
    for _ in 0..100 {
        send(&mut wire, &options);
        // Two milliseconds are quick.
        std::thread::sleep(Duration::from_millis(2));
    }
    wire.final_response(SOON).expect("it is answered");
    // The trace ends after the last answer, not in the middle of the work.
    for _ in 1..120 {
        if wire.final_response(SOON).is_none() {
            break;
        }
    }
    let id = server.process().id();
    server.stop();
    Some(trace.whole(id))
}

/// Returns the number of datagrams of each read.
fn reads(trace: &str) -> Vec<usize> {
    let received = trace.lines().filter(|line| line.contains("recvmmsg"));
    received.filter_map(|line| line.rsplit_once("= ")?.1.split(' ').next()?.parse().ok()).collect()
}

/// Returns how often a thread that reads datagrams paused without reading: the linger is the only futex wait of a
/// shard.
fn lingers(trace: &str) -> usize {
    let thread = |line: &str| line.split(' ').next().map(str::to_owned);
    let shards: HashSet<String> = trace.lines().filter(|line| line.contains("recvmmsg")).filter_map(thread).collect();
    let ends = trace.lines().filter(|line| line.contains("futex") && line.contains("ETIMEDOUT"));
    ends.filter_map(thread).filter(|thread| shards.contains(thread)).count()
}

#[test]
fn the_kernel_is_asked_for_what_the_settings_say() {
    let lines = "server.shards = 2\nserver.udp_receive_buffer = 123456\nserver.udp_send_buffer = 65432\n\
                 server.udp_batch = 5\nserver.udp_batches = 2\nserver.scheduling = \"normal\"\nserver.kernel_steering = false\n\
                 server.udp_linger = \"17ms\"\nserver.huge_pages = true";
    let Some(set) = trace(lines) else { return };
    let Some(default) = trace("server.shards = 2") else { return };
    for (words, of) in [
        ("SO_RCVBUF, [123456]", (true, false)),
        ("SO_RCVBUF, [4194304]", (false, true)),
        ("SO_SNDBUF, [65432]", (true, false)),
        ("SO_SNDBUF, [4194304]", (false, true)),
        ("SCHED_BATCH", (false, true)),
        ("SO_ATTACH_REUSEPORT_CBPF", (false, true)),
        // Switched off while the configuration is read.
        ("PR_SET_THP_DISABLE, 1", (true, true)),
        ("PR_SET_THP_DISABLE, 0", (true, false)),
    ] {
        assert_eq!((set.contains(words), default.contains(words)), of, "{words}");
    }
    assert_eq!(reads(&set).into_iter().max(), Some(5));
    assert!(reads(&default).into_iter().max() > Some(5), "{:?}", reads(&default));
    // With the setting a shard waits for several datagrams: after the initially waiting ones at the latest.
    assert_eq!((lingers(&set) > 0, lingers(&default)), (true, 0), "{:?}", reads(&set));
    // Between two rounds of reading a shard checks all other events.
    let most = |trace: &str| {
        let calls = trace.lines().filter(|line| line.contains("recvmmsg") || line.contains("epoll_"));
        let (mut row, mut most) = (0, 0);
        for call in calls {
            row = if call.contains("recvmmsg") { row + 1 } else { 0 };
            most = most.max(row);
        }
        most
    };
    assert!(most(&set) <= 2 * 2, "two shards: {}", most(&set));
}
