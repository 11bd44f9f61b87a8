//! Random steps of both phones, on good and bad networks.

use super::rig::*;

use strowger_core::b2bua::bridge::capabilities;
use strowger_core::entropy::Entropy;
use strowger_core::user_agent::{CallKey, DialogName, Event, Invite, Reliability, SessionTimerSettings};
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

/// Returns the seeds of a test: 0 to `most`, or as `STROWGER_SEEDS` (a number of seeds) or `STROWGER_SEED` (one seed) say.
fn seeds(most: u16) -> std::ops::Range<u16> {
    let seeds = std::env::var("STROWGER_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(most);
    let first: Option<u16> = std::env::var("STROWGER_SEED").ok().and_then(|s| s.parse().ok());
    first.map_or(0..seeds, |s| s..s + 1)
}

/// Returns the number of calls of a phone that have ended.
fn ends(b2b: &Bridged, n: usize) -> usize {
    let is_end = |h: &&Heard| matches!(h.event, Event::Ended { .. } | Event::Failed { .. });
    b2b.net.phones[n].heard.iter().filter(is_end).count()
}

const REFER: &[u8] = b"Refer-To: <sip:carol@example.org>\r\n";

const NOTIFY: &[u8] = b"Event: refer\r\nSubscription-State: terminated;reason=noresource\r\n";

/// Calls of a phone.
fn calls(b2b: &Bridged, n: usize) -> Vec<CallKey> {
    let invited = |heard: &Heard| match heard.event {
        Event::Invited { call, .. } => Some(call),
        _ => None,
    };
    b2b.net.phones[n].heard.iter().filter_map(invited).collect()
}

/// Answers an event as the user of a phone would.
fn react(b2b: &mut Bridged, n: usize, event: Event, random: &mut Entropy) {
    let answer = sdp(n, 1 + (random.u64() % 9) as u32, "0", ["sendrecv", "recvonly"][random.u64() as usize % 2]);
    match event {
        Event::Answered { call, offer: true, .. } => b2b.net.with(n, |a, round| a.acknowledge(round, call, &answer)),
        Event::Progress { call, offer: true, .. } => {
            // Another place may have won meanwhile.
            let _ = b2b.net.with(n, |a, round| a.prack(round, call, &answer));
        }
        Event::Offered { call, update: true, .. } if random.u64().is_multiple_of(4) => {
            b2b.net.with(n, |a, round| a.reject_update(round, call, 488));
        }
        Event::Offered { call, update: true, .. } => {
            b2b.net.with(n, |a, round| a.answer_update(round, call, &answer));
        }
        Event::Offered { call, .. } if random.u64().is_multiple_of(4) => {
            b2b.net.with(n, |a, round| a.reject(round, call, 488));
        }
        Event::Offered { call, .. } => b2b.net.with(n, |a, round| a.answer(round, call, &answer)),
        Event::Invited { call, .. } => {
            let body: &[u8] = if random.u64().is_multiple_of(2) { b"" } else { &answer };
            b2b.net.with(n, |a, round| a.ring(round, call, 180, body));
            if random.u64().is_multiple_of(2) {
                b2b.net.with(n, |a, round| a.ring(round, call, 183, b""));
            }
        }
        Event::Request { request, .. } => b2b.net.with(n, |a, round| a.respond(round, request, 200, b"", b"")),
        _ => (),
    }
}

/// Random steps of both sides, on a good network or one with loss, duplication and delay, and with a bridge that moves: the caller has one
/// final response, both legs end, no state is left, and no side learns of the other.
#[test]
fn both_legs_end_in_any_weather() {
    for seed in seeds(300) {
        let _named = Named(seed);
        let mut key = [7; 32];
        key[..2].copy_from_slice(&seed.to_be_bytes());
        let mut random = Entropy::new(key);
        let mut settings = [quiet(), quiet(), quiet()];
        settings[BRIDGE].capabilities = capabilities();
        for (n, settings) in settings.iter_mut().enumerate() {
            let is = |odds: u64, random: &mut Entropy| random.u64().is_multiple_of(odds);
            settings.reliability = if is(2, &mut random) { Reliability::Supported } else { Reliability::Required };
            settings.trying = is(2, &mut random);
            settings.other_methods = n != BRIDGE;
            let timer = SessionTimerSettings { interval: 90, refreshes: is(2, &mut random), ..Default::default() };
            settings.capabilities.session_timer = is(2, &mut random).then_some(timer);
            if n != BRIDGE && is(3, &mut random) {
                settings.capabilities.allow = b"INVITE, ACK, CANCEL, BYE, PRACK, INFO".to_vec();
            }
            if n != BRIDGE && is(3, &mut random) {
                settings.capabilities.supported = Vec::new();
            }
        }
        let mut b2b = Bridged::of(settings, FAR);
        for n in [NEAR, FAR] {
            b2b.net.phones[n].auto_answer = false;
        }
        b2b.net.weather = random.u64().is_multiple_of(2).then(|| Entropy::new(key).derive(b"weather"));
        let offer = sdp(NEAR, 1, "0 8", "sendrecv");
        let near = b2b.net.call(if random.u64().is_multiple_of(3) { b"" } else { &offer });
        // Number of events of each phone that its user has handled.
        let mut taken = [0; 3];
        for step in 0..30 {
            b2b.run(random.u64() % 1_000);
            if random.u64().is_multiple_of(8) {
                b2b.moves();
            }
            for n in [NEAR, FAR] {
                let heard: Vec<Event> = b2b.net.phones[n].heard.iter().skip(taken[n]).map(|h| h.event).collect();
                taken[n] += heard.len();
                for event in heard {
                    react(&mut b2b, n, event, &mut random);
                }
            }
            let n = [NEAR, FAR][random.u64() as usize % 2];
            let call = if n == NEAR { Some(near) } else { calls(&b2b, FAR).last().copied() };
            let Some(call) = call else { continue };
            let direction = ["sendrecv", "sendonly", "inactive"][random.u64() as usize % 3];
            let offer = sdp(n, 10 + step, ["0", "8 0", "8"][random.u64() as usize % 3], direction);
            let body: &[u8] = if random.u64().is_multiple_of(4) { b"" } else { &offer };
            match random.u64() % 10 {
                0..=2 if n == FAR => b2b.net.with(n, |a, round| a.answer(round, call, &offer)),
                3 => drop(b2b.net.with(n, |a, round| a.reinvite(round, call, body))),
                4 => drop(b2b.net.with(n, |a, round| a.update(round, call, body))),
                5 => drop(b2b.net.with(n, |a, round| a.request_within(round, call, Method::Info, b"", b""))),
                6 if step > 15 => b2b.net.with(n, |a, round| a.hang_up(round, call)),
                8 | 9 => {
                    let (method, lines) = [(Method::Refer, REFER), (Method::Notify, NOTIFY)][random.u64() as usize % 2];
                    let _ = b2b.net.with(n, |a, round| a.request_within(round, call, method, lines, b""));
                }
                7 if step > 20 && n == FAR => b2b.net.with(n, |a, round| a.reject(round, call, 486)),
                _ => (),
            }
        }
        b2b.net.with(NEAR, |a, round| a.hang_up(round, near));
        // The far phone may have a call whose BYE was lost; its user hangs up too.
        b2b.run(40_000);
        for call in calls(&b2b, FAR) {
            b2b.net.with(FAR, |a, round| a.hang_up(round, call));
        }
        b2b.is_clean();
        let log = b2b.net.log.join("\n");
        assert_eq!((ends(&b2b, NEAR), ends(&b2b, FAR)), (1, calls(&b2b, FAR).len()), "seed {seed}\n{log}");
        // Retransmissions apart, the first INVITE of the caller has one final response.
        let is_first = |text: &&String| text.contains("\r\nCSeq: 1 INVITE\r\n");
        let finals = b2b.net.log.iter().zip(&b2b.net.sent).filter(|(line, text)| {
            line.starts_with("1>0 ") && line.ends_with(" INVITE") && !line.starts_with("1>0 1") && is_first(text)
        });
        let mut statuses: Vec<&str> = finals.map(|(line, _)| &line[4..7]).collect();
        statuses.sort_unstable();
        statuses.dedup();
        assert!(statuses.len() <= 1, "seed {seed}: {statuses:?}\n{log}");
    }
}

/// Calls the bridge from the third phone, in the place of a party whose dialog has this name.
fn call_in_place(b2b: &mut Bridged, name: &DialogName, offer: &[u8]) -> CallKey {
    let (call_id, to, from) = (text(&name.call_id), text(&name.remote_tag), text(&name.local_tag));
    let headers = format!("Replaces: {call_id};to-tag={to};from-tag={from}\r\n");
    let target = b2b.net.target(BRIDGE);
    let invite = Invite {
        headers: headers.as_bytes(),
        ..Invite::new(b"<sip:dave@biloxi.example>", b"<sip:carol@127.0.0.2>", target, offer)
    };
    b2b.net.with(THIRD, |agent, round| agent.invite(round, &invite)).expect("addresses")
}

/// A third phone takes the place of any party, also of itself, on good and bad networks: each call of each phone ends once, and no state is
/// left.
#[test]
fn parties_are_replaced_in_any_weather() {
    for seed in seeds(100) {
        let _named = Named(seed);
        let mut key = [9; 32];
        key[..2].copy_from_slice(&seed.to_be_bytes());
        let mut random = Entropy::new(key);
        let mut settings = [quiet(), quiet(), quiet(), quiet()];
        settings[BRIDGE].capabilities = capabilities();
        for (n, settings) in settings.iter_mut().enumerate() {
            settings.trying = random.u64().is_multiple_of(2);
            settings.other_methods = n != BRIDGE;
        }
        let mut b2b = Bridged::of(settings, FAR);
        for n in [NEAR, FAR, THIRD] {
            b2b.net.phones[n].auto_answer = false;
        }
        b2b.net.weather = random.u64().is_multiple_of(2).then(|| Entropy::new(key).derive(b"weather"));
        let near = b2b.net.call(&sdp(NEAR, 1, "0 8", "sendrecv"));
        let mut taken = [0; 4];
        // Calls that the third phone has made.
        let mut made: Vec<CallKey> = Vec::new();
        for step in 0..40 {
            b2b.run(random.u64() % 500);
            if random.u64().is_multiple_of(8) {
                b2b.moves();
            }
            for n in [NEAR, FAR, THIRD] {
                let heard: Vec<Event> = b2b.net.phones[n].heard.iter().skip(taken[n]).map(|h| h.event).collect();
                taken[n] += heard.len();
                for event in heard {
                    react(&mut b2b, n, event, &mut random);
                }
            }
            let n = [NEAR, FAR, THIRD][random.u64() as usize % 3];
            let own = match n {
                NEAR => Some(near),
                FAR => calls(&b2b, FAR).last().copied(),
                _ => made.last().copied(),
            };
            let Some(call) = own.or_else(|| calls(&b2b, FAR).last().copied()) else { continue };
            let n = if own.is_none() { FAR } else { n };
            let offer = sdp(n, 10 + step, ["0", "8 0", "8"][random.u64() as usize % 3], "sendrecv");
            match random.u64() % 10 {
                0..=2 if n == FAR => b2b.net.with(n, |a, round| a.answer(round, call, &offer)),
                3 => drop(b2b.net.with(n, |a, round| a.reinvite(round, call, &offer))),
                4..=7 => {
                    if let Some(name) = b2b.net.with(n, |a, _| a.dialog_name(call)) {
                        let offer = sdp(THIRD, 1, ["0", "8 0"][random.u64() as usize % 2], "sendrecv");
                        let has_offer = !random.u64().is_multiple_of(4);
                        made.push(call_in_place(&mut b2b, &name, if has_offer { &offer } else { b"" }));
                    }
                }
                8 if step > 20 => b2b.net.with(n, |a, round| a.hang_up(round, call)),
                9 => drop(b2b.net.with(n, |a, round| a.request_within(round, call, Method::Refer, REFER, b""))),
                _ => (),
            }
        }
        for &call in &made {
            b2b.net.with(THIRD, |a, round| a.hang_up(round, call));
        }
        b2b.net.with(NEAR, |a, round| a.hang_up(round, near));
        b2b.run(40_000);
        for call in calls(&b2b, FAR) {
            b2b.net.with(FAR, |a, round| a.hang_up(round, call));
        }
        b2b.is_clean();
        let ended = (ends(&b2b, NEAR), ends(&b2b, FAR), ends(&b2b, THIRD));
        let log = b2b.net.log.join("\n");
        assert_eq!(ended, (1, calls(&b2b, FAR).len(), made.len()), "seed {seed}\n{log}");
    }
}
