//! What the transactions of a relayed call cost, parsing not counted:
//! `cargo run --release -p strowger-core --example transaction_cost [calls a second of simulated time]`.

use std::time::Duration;
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Incoming, Outgoing, Transactions};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use strowger_message::{Index, Limits, Message};

/// CPU time of this thread so far: other programs do not count.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number"))
}

/// A message, and where the number of its call stands in it.
struct Template {
    bytes: Vec<u8>,
    at: Vec<usize>,
    index: Index,
}

impl Template {
    fn new(start: &str, cseq: &str, padding: usize) -> Self {
        let text = format!(
            "{start}\r\nVia: SIP/2.0/UDP 127.0.0.1:5070;branch=z9hG4bK########\r\nMax-Forwards: 70\r\n\
             From: <sip:a@x>;tag=f\r\nTo: <sip:b@x>;tag=t\r\nCall-ID: ########@x\r\nCSeq: {cseq}\r\n\
             X: {}\r\nContent-Length: 0\r\n\r\n",
            "x".repeat(padding)
        );
        let at = text.match_indices("########").map(|(at, _)| at).collect();
        let mut index = Index::new();
        let bytes = text.into_bytes();
        index.parse(&bytes, &Limits::default()).expect("well-formed");
        Self { bytes, at, index }
    }

    /// The message of this call; its index stays true, for the number always takes eight places.
    fn numbered(&mut self, number: u64) -> Message<'_> {
        for &at in &self.at {
            for digit in 0..8 {
                self.bytes[at + digit] = b'a' + (number >> (4 * digit) & 15) as u8;
            }
        }
        Message::new(&self.bytes, &self.index)
    }
}

fn main() {
    let rate = std::env::args().nth(1).map_or(2_500, |n| n.parse().expect("calls a second"));
    let mut table = Transactions::new(TimerSettings::default(), [1, 2]);
    let (mut out, mut events) = (Outbox::new(), Vec::new());
    let remote = "127.0.0.1:5070".parse().expect("an address");
    let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
    let mut requests =
        [Template::new("INVITE sip:b@x SIP/2.0", "1 INVITE", 500), Template::new("BYE sip:b@x SIP/2.0", "2 BYE", 100)];
    let mut responses = [
        [Template::new("SIP/2.0 180 Ringing", "1 INVITE", 100), Template::new("SIP/2.0 200 OK", "1 INVITE", 400)],
        [Template::new("SIP/2.0 100 Trying", "2 BYE", 10), Template::new("SIP/2.0 200 OK", "2 BYE", 100)],
    ];
    let warm = 40 * rate;
    let measured = 10 * rate;
    let mut clock = Duration::ZERO;
    for number in 0..warm + measured {
        if number == warm {
            clock = cpu();
        }
        let now = Now { mono: number * 1_000 / rate, wall: 0 };
        for (which, method) in [b"INVITE".as_slice(), b"BYE"].into_iter().enumerate() {
            let request = requests[which].numbered(2 * number);
            let Incoming::New(server) = table.request(now, &request, &arrival, number as u32, &mut out) else {
                panic!()
            };
            let at = requests[which].at[0];
            let bytes = requests[which].numbered(2 * number + 1).bytes();
            let start = out.start();
            out.bytes.extend_from_slice(bytes);
            let range = start..out.bytes.len();
            table.send(now, range, &bytes[at - 7..at + 8], method, arrival.reply(), number as u32, 9, &mut out);
            for (n, status) in [[180, 200], [100, 200]][which].into_iter().enumerate() {
                let response = responses[which][n].numbered(2 * number + 1);
                let outgoing = table.response(now, &response, &mut out);
                assert!(matches!(outgoing, Outgoing::Deliver { owner: 9, .. }));
                let start = out.start();
                out.bytes.extend_from_slice(response.bytes());
                let range = start..out.bytes.len();
                assert!(table.respond(now, server, status, range, &mut out));
            }
        }
        out.clear();
        table.poll(now, &mut out, &mut events);
        let _ = table.deadline();
        events.clear();
    }
    let whole = cpu() - clock;
    let counts = table.counts();
    println!(
        "{} calls/s: {} ns a call (4 transactions, 12 messages), timers included; {} transactions held, {} bytes a call",
        rate,
        whole.as_nanos() as u64 / measured,
        counts.servers + counts.clients,
        table.memory() as u64 / (32 * rate),
    );
}
