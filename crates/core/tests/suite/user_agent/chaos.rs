//! Lossy networks, and messages that no sane peer sends.

use super::rig::*;

use strowger_core::entropy::Entropy;
use strowger_core::user_agent::{CallKey, Event, Reliability, SessionTimerSettings, UserAgentSettings};
use strowger_core::{Arrival, ListenerId, Transport};
use strowger_message::Method;

/// Prints the seed of a failed run: `STROWGER_SEED` replays it.
struct Named(u16);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("STROWGER_SEED={}", self.0);
        }
    }
}

/// With loss, duplication and delay, and random steps of both ends: every call ends once for each end, and no state is left.
#[test]
fn every_call_ends_in_any_weather() {
    let seeds = std::env::var("STROWGER_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(300u16);
    let first = std::env::var("STROWGER_SEED").ok().and_then(|s| s.parse().ok());
    for seed in first.map_or(0..seeds, |s| s..s + 1) {
        let _named = Named(seed);
        let mut key = [0; 32];
        key[..2].copy_from_slice(&seed.to_be_bytes());
        let mut random = Entropy::new(key);
        let reliability = if random.u64().is_multiple_of(2) { Reliability::Supported } else { Reliability::Required };
        let trying = random.u64().is_multiple_of(2);
        let mut settings = [quiet(), UserAgentSettings { reliability, trying, ..quiet() }];
        for settings in &mut settings {
            let (interval, refreshes) = (90, random.u64().is_multiple_of(2));
            let timer = SessionTimerSettings { interval, refreshes, ..SessionTimerSettings::default() };
            settings.capabilities.session_timer = random.u64().is_multiple_of(2).then_some(timer);
        }
        let mut net = Net::new(settings);
        net.weather = Some(Entropy::new(key).derive(b"weather"));
        let caller = net.call(if random.u64().is_multiple_of(4) { b"" } else { OFFER });
        // Number of events of each phone that its owner has handled.
        let mut taken = [0, 0];
        for step in 0..30 {
            net.run(random.u64() % 1_000);
            // Owners answer most of their events.
            #[expect(clippy::needless_range_loop, reason = "both ends are named by their number")]
            for n in 0..2 {
                let heard: Vec<Heard> = net.phones[n].heard.iter().skip(taken[n]).cloned().collect();
                taken[n] += heard.len();
                for h in heard {
                    match h.event {
                        Event::Answered { call, offer: true, .. } => {
                            net.with(n, |a, round| a.acknowledge(round, call, ANSWER))
                        }
                        Event::Offered { call, update: true, .. } => {
                            net.with(n, |a, round| a.answer_update(round, call, ANSWER))
                        }
                        Event::Offered { call, .. } => net.with(n, |a, round| a.answer(round, call, ANSWER)),
                        Event::Invited { call, offer, .. } => {
                            let body: &[u8] =
                                if offer.is_empty() || random.u64().is_multiple_of(2) { b"" } else { ANSWER };
                            net.with(n, |a, round| a.ring(round, call, 180, body));
                            if random.u64().is_multiple_of(2) {
                                net.with(n, |a, round| a.ring(round, call, 183, b""));
                            }
                        }
                        _ => (),
                    }
                }
            }
            let n = random.u64() as usize % 2;
            let call = if n == 0 {
                Some(caller)
            } else {
                net.phones[1].heard.iter().find_map(|h| match h.event {
                    Event::Invited { call, .. } => Some(call),
                    _ => None,
                })
            };
            let Some(call) = call else { continue };
            match random.u64() % 8 {
                0 | 1 if n == 1 => net.with(n, |a, round| a.answer(round, call, ANSWER)),
                2 => drop(net.with(n, |a, round| a.reinvite(round, call, OFFER))),
                3 => drop(net.with(n, |a, round| a.update(round, call, OFFER))),
                4 => drop(net.with(n, |a, round| a.request_within(round, call, Method::Info, b"", b""))),
                5 if step > 10 => net.with(n, |a, round| a.hang_up(round, call)),
                6 if step > 20 && n == 1 => net.with(n, |a, round| a.reject(round, call, 486)),
                _ => (),
            }
        }
        net.with(0, |a, round| a.hang_up(round, caller));
        // The callee may have a call whose caller disappeared; it hangs up as well.
        net.run(40_000);
        let open: Vec<CallKey> = net.phones[1]
            .heard
            .iter()
            .filter_map(|h| match h.event {
                Event::Invited { call, .. } => Some(call),
                _ => None,
            })
            .collect();
        for call in open {
            net.with(1, |a, round| a.hang_up(round, call));
        }
        net.is_clean();
        for n in 0..2 {
            let ends = |h: &&Heard| matches!(h.event, Event::Ended { .. } | Event::Failed { .. });
            let begun = if n == 0 {
                1
            } else {
                net.phones[1].heard.iter().filter(|h| matches!(h.event, Event::Invited { .. })).count()
            };
            assert_eq!(
                net.phones[n].heard.iter().filter(ends).count(),
                begun,
                "seed {seed}, phone {n}\n{}",
                net.log.join("\n")
            );
        }
    }
}

/// With any input nothing panics and no state is left.
#[test]
fn mutated_messages_do_no_harm() {
    let mut net = Net::new([quiet(), UserAgentSettings { reliability: Reliability::Supported, ..quiet() }]);
    let (caller, _) = net.up();
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(50);
    let seeds: Vec<String> = net.sent.clone();
    let mut random = Entropy::new([3; 32]);
    for _ in 0..20_000 {
        let seed = &seeds[random.u64() as usize % seeds.len()];
        let mut bytes = seed.clone().into_bytes();
        for _ in 0..1 + random.u64() % 4 {
            let at = random.u64() as usize % bytes.len();
            match random.u64() % 3 {
                0 => bytes[at] = random.u64() as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\r\n ;,<>\"@:0"[random.u64() as usize % 11]),
            }
        }
        let arrival = Arrival {
            transport: Transport::Udp,
            listener: ListenerId(0),
            remote: "127.0.0.99:5060".parse().unwrap(),
            flow: None,
        };
        for n in 0..2 {
            net.at(n, |endpoint, now, out| endpoint.receive(now, &arrival, &bytes, out));
        }
        net.flying.clear();
    }
    for n in 0..2 {
        let calls: Vec<CallKey> = net.phones[n]
            .heard
            .iter()
            .filter_map(|h| match h.event {
                Event::Invited { call, .. } => Some(call),
                _ => None,
            })
            .collect();
        for call in calls.into_iter().chain([caller]) {
            net.with(n, |agent, round| agent.hang_up(round, call));
        }
    }
    net.lose = Box::new(|_| true);
    net.is_clean();
}
