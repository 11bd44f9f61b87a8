//! Cost of the transactions of a relayed call, without parsing:
//! `cargo run --release -p strowger-core --example transaction_cost [calls a second of simulated time]`.

mod processor_time;
#[path = "../tests/suite/template.rs"]
mod template;

use processor_time::processor_time;
use std::time::Duration;
use strowger_core::slots::Id;
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Incoming, Role, TransactionUser, Transactions};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use template::Template;

const USER: TransactionUser = TransactionUser::new(Role::UserAgent(Id { slot: 9, generation: 1 }));

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
            clock = processor_time();
        }
        let now = Now { mono: number * 1_000 / rate, wall: 0 };
        for (which, method) in [b"INVITE".as_slice(), b"BYE"].into_iter().enumerate() {
            let request = requests[which].numbered(2 * number);
            let Incoming::Request(server) = table.request(now, &request, &arrival, number as u32, &mut out) else {
                panic!()
            };
            let branch = requests[which].branch();
            let bytes = requests[which].numbered(2 * number + 1).bytes();
            let start = out.start();
            out.bytes.extend_from_slice(bytes);
            let range = start..out.bytes.len();
            table.send(now, range, &bytes[branch], method, arrival.reply(), number as u32, USER, &mut out);
            for (n, status) in [[180, 200], [100, 200]][which].into_iter().enumerate() {
                let response = responses[which][n].numbered(2 * number + 1);
                let outgoing = table.response(now, &response, &mut out);
                assert!(matches!(outgoing, Incoming::Response { tu: USER, .. }));
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
    let whole = processor_time() - clock;
    let counts = table.counts();
    println!(
        "{} calls/s: {} ns a call (4 transactions, 12 messages), timers included; {} transactions held, {} bytes a call",
        rate,
        whole.as_nanos() as u64 / measured,
        counts.servers + counts.clients,
        table.memory() as u64 / (32 * rate),
    );
}
