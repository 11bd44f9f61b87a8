//! A thousand calls per second between two SIPp, through the server: none is lost, whatever the server does meanwhile.

use std::time::Duration;

use strowger_tests::port;
use strowger_tests::program::{SIPP, have};
use strowger_tests::server::Setup;
use strowger_tests::sipp::{Calls, OURS};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::{alone, amount};

fn calls(calls: Option<u32>) -> Calls {
    Calls { scenarios: OURS, transports: ("u1", "u1"), way: "udp", calls, rate: 1_000 }
}

/// Twenty thousand with `STROWGER_WHOLE=1`, otherwise six thousand.
#[test]
fn of_twenty_thousand_calls_at_a_thousand_a_second_none_is_lost_or_reordered() {
    if !have(&[SIPP]) {
        return;
    }
    let _alone = alone();
    let server = Setup::on(&[Udp]).relay().start();
    let count = amount("STROWGER_MANY_CALLS", 20_000, 6_000) as u32;
    calls(Some(count)).run(server.address(Udp), None, port::free());
}

#[test]
fn no_call_is_lost_while_the_number_of_shards_changes() {
    if !have(&[SIPP]) {
        return;
    }
    let _alone = alone();
    let mut server = Setup::on(&[Udp]).relay().with("server.shards = 4").start();
    let calls = calls(None).start(server.address(Udp), None, port::free());
    calls.reach(1_000);
    // 4 -> 3 -> 2 -> 1 -> 2 -> 3 -> 4, and the same again.
    for _ in 0..2 {
        for signal in [libc::SIGUSR2, libc::SIGUSR1] {
            for _ in 0..3 {
                server.process().signal(signal);
                // Calls begin and end with each number of shards.
                std::thread::sleep(Duration::from_millis(300));
            }
        }
    }
    calls.end();
    let log = server.log();
    let changes: Vec<(&str, &str)> = log
        .lines()
        .filter(|line| line.contains("number of shards changes"))
        .filter_map(|line| line.split_once("from=")?.1.split_once(" to="))
        .collect();
    let there_and_back = [("4", "3"), ("3", "2"), ("2", "1"), ("1", "2"), ("2", "3"), ("3", "4")];
    assert_eq!(changes, [there_and_back, there_and_back].concat(), "{log}");
    server.assert_answers(Udp);
}
