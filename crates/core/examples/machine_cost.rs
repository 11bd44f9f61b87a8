//! Cost of the registrar and the user agent without sockets: time and allocations.
//!
//! `cargo run --release -p strowger-core --example machine_cost`

mod processor_time;

use std::alloc::System;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use processor_time::processor_time;
use strowger_allocations::{Counting, of_thread};
use strowger_core::entropy::Entropy;
use strowger_core::registrar::{ExistingBinding, RegisterOutcome, Registrar, RegistrarSettings};
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{Endpoint, Event, Invite, UserAgentSettings};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, Transport};
use strowger_message::{Index, Limits, Message};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Runs `work` twice, the first time to warm up. Prints CPU time and allocations per repetition.
fn measure(what: &str, times: u64, mut work: impl FnMut(u64)) {
    work(times);
    let allocations = of_thread();
    let start = processor_time();
    work(times);
    let nanoseconds = (processor_time() - start).as_nanos() as u64 / times;
    let allocations = (of_thread() - allocations) as f64 / times as f64;
    println!("{what:<44} {nanoseconds:>7} ns {allocations:>6.2} allocations");
}

fn register() {
    let text = b"REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKnashds7;rport\r\n\
        Max-Forwards: 70\r\nFrom: <sip:alice@example.org>;tag=456248\r\nTo: <sip:alice@example.org>\r\n\
        Call-ID: 843817637684230@998sdasdh09\r\nCSeq: 1827 REGISTER\r\nUser-Agent: Example/1.0\r\n\
        Contact: <sip:alice@192.0.2.1:5060;transport=udp>;q=0.5\r\nExpires: 3600\r\nContent-Length: 0\r\n\r\n";
    let now = Now { mono: 0, wall: 1_700_000_000_000 };
    let current = [ExistingBinding {
        uri: b"sip:alice@192.0.2.1:5060;transport=udp",
        call_id: b"843817637684230@998sdasdh09",
        cseq: 1826,
        expires_at: now.mono + 1_000_000,
        q: Some(500),
        instance: b"",
        reg_id: 0,
        unreachable: false,
        elsewhere: false,
    }];
    let mut registrar = Registrar::new(RegistrarSettings::default());
    let mut index = Index::new();
    index.parse(text, &Limits::default()).expect("a message");
    let mut out = Vec::with_capacity(1024);
    measure("registrar: decide on a refresh, write the 200", 1_000_000, |times| {
        for _ in 0..times {
            let message = Message::new(black_box(text), &index);
            assert_eq!(registrar.decide(now, &message, &current), Ok(RegisterOutcome::Changed));
            out.clear();
            registrar.write_ok(now, &message, &current, &mut out);
            black_box(&out);
        }
    });
}

/// Measures both ends of calls in one thread, with messages passed in memory: INVITE, 180, 200, ACK, BYE, 200.
fn call() {
    let address = |n: u8| SocketAddr::from(([127, 0, 0, n], 5060));
    let agent = |n: u8| {
        let bound = address(n);
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound,
            sent_by: bound.to_string().into_bytes().into(),
            network: 0,
        };
        let settings = UserAgentSettings { trying: false, ..UserAgentSettings::default() };
        Endpoint::new(Arc::new(Identity::new(vec![listener], [""; 0], &[])), settings, Entropy::new([n; 32]), 7)
    };
    let (mut caller, mut callee) = (agent(1), agent(2));
    let arrival =
        |n: u8| Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: address(n), flow: None };
    let (from_caller, from_callee) = (arrival(1), arrival(2));
    let target = Target::new(Transport::Udp, ListenerId(0), address(2));
    let offer = b"v=0\r\no=a 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n";
    let invite = Invite::new(b"sip:alice@example.org", b"sip:bob@127.0.0.2", target, offer);
    let (mut there, mut back) = (Outbox::new(), Outbox::new());
    let mut now = Now { mono: 0, wall: 1_700_000_000_000 };
    let mut calls = 0u64;
    measure("user agents: a call, both ends", 300_000, |times| {
        for _ in 0..times {
            calls += 1;
            // 5,000 calls a second: state that ended 32 s ago is dropped, as under load.
            if calls.is_multiple_of(5) {
                now.mono += 1;
            }
            let (agent, mut round) = caller.lend(now, &mut there);
            agent.invite(&mut round, &invite).expect("addresses that can be read");
            while !there.is_empty() || !back.is_empty() {
                for send in there.sends() {
                    callee.receive(now, &from_caller, &there.bytes[send.range()], &mut back);
                }
                there.clear();
                let (agent, mut round) = callee.lend(now, &mut back);
                while let Some(event) = agent.event() {
                    if let Event::Invited { call, .. } = event {
                        agent.ring(&mut round, call, 180, b"");
                        agent.answer(&mut round, call, invite.offer);
                    }
                }
                for send in back.sends() {
                    caller.receive(now, &from_callee, &back.bytes[send.range()], &mut there);
                }
                back.clear();
                let (agent, mut round) = caller.lend(now, &mut there);
                while let Some(event) = agent.event() {
                    if let Event::Answered { call, .. } = event {
                        agent.hang_up(&mut round, call);
                    }
                }
            }
            if calls.is_multiple_of(1000) {
                caller.poll(now, &mut there);
                callee.poll(now, &mut back);
            }
        }
    });
    assert_eq!((caller.agent.calls(), callee.agent.calls()), (0, 0), "every call ended");
}

fn main() {
    register();
    call();
}
