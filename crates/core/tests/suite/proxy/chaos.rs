//! Random order of events: branches answer, fail, forget or retransmit. The caller gets one final response, and no
//! state is left. Each seed is one call; a failing call can be replayed.

use super::rig::*;
use std::collections::HashMap;
use strowger_core::entropy::Entropy;
use strowger_core::proxy::ProxySettings;

struct Dice(Entropy);

impl Dice {
    fn of(seed: u32) -> Self {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&seed.to_le_bytes());
        Self(Entropy::new(bytes))
    }

    /// Returns a number below `n`.
    fn roll(&mut self, n: u64) -> u64 {
        self.0.u64() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len() as u64) as usize]
    }
}

/// Messages that the caller and the callees have seen.
#[derive(Default)]
struct Seen {
    finals: Vec<(u16, String)>,
    /// Requests of branches that may still answer.
    branches: Vec<Sent>,
    cancelled: Vec<String>,
    provisional: HashMap<String, bool>,
}

impl Seen {
    fn note(&mut self, sent: &[Sent], seed: u32) {
        for s in sent {
            match (s.method(), s.status()) {
                (_, 200..) => {
                    assert_eq!(s.to(), ALICE, "seed {seed}");
                    if !s.one("CSeq").ends_with("CANCEL") {
                        self.finals.push((s.status(), s.one("To").to_owned()));
                    }
                }
                ("INVITE" | "MESSAGE", _) if !self.branches.iter().any(|b| b.branch() == s.branch()) => {
                    self.branches.push(s.clone());
                }
                ("CANCEL", _) => {
                    let branch = s.branch().to_owned();
                    // Section 9.1: only after a provisional response.
                    assert!(self.provisional.contains_key(&branch), "seed {seed}: a CANCEL before anything was heard");
                    if !self.cancelled.contains(&branch) {
                        self.cancelled.push(branch);
                    }
                }
                _ => (),
            }
        }
    }

    fn check(&self, method: &str, seed: u32) {
        let failures: Vec<u16> = self.finals.iter().map(|f| f.0).filter(|s| *s >= 300).collect();
        let first_2xx = self.finals.iter().position(|f| f.0 < 300);
        assert!(failures.windows(2).all(|w| w[0] == w[1]), "seed {seed}: {:?}", self.finals);
        if let Some(at) = first_2xx {
            // A late 2xx of an abandoned branch is forwarded while the failure is repeated.
            let told = self.finals[..at].first().map_or(0, |f| f.0);
            assert!(self.finals[at..].iter().all(|f| f.0 < 300 || f.0 == told), "seed {seed}: {:?}", self.finals);
        }
        if method == "INVITE" {
            assert!(!self.finals.is_empty(), "seed {seed}: no final response for the caller");
        } else {
            assert!(!failures.contains(&408), "seed {seed}");
        }
    }
}

fn call(seed: u32) -> Seen {
    let mut dice = Dice::of(seed);
    let mut rig = Rig::with(ProxySettings::default());
    let method = *dice.pick(&["INVITE", "INVITE", "INVITE", "MESSAGE"]);
    let contacts: Vec<Try> = (0..=dice.roll(5))
        .map(|n| {
            let mut one = contact(&format!("10.2.2.{n}:5060"), *dice.pick(&[1000, 1000, 500, 100]));
            if dice.one_in(4) {
                one.at.push(at(&format!("10.3.3.{n}:5060")));
            }
            if dice.one_in(6) {
                one.path = "<sip:edge.example.net;lr>".into();
            }
            one
        })
        .collect();
    let lines = *dice.pick(&["", "Route: <sip:10.0.0.1;lr>\n", "Max-Breadth: 5\n", "Record-Route: <sip:p;lr>\n"]);
    let text = alice(method, "sip:bob@example.org", lines);
    let (mut seen, begin) = (Seen::default(), rig.now.mono);
    let sent = rig.request(&text, udp(ALICE), &contacts);
    seen.note(&sent, seed);
    for _ in 0..dice.roll(40) {
        let out = match dice.roll(12) {
            0..=6 if !seen.branches.is_empty() => {
                let branch = dice.pick(&seen.branches).clone();
                let status =
                    *dice.pick(&[100, 180, 183, 180, 200, 302, 401, 404, 407, 408, 480, 486, 487, 500, 503, 503, 603]);
                if status < 200 {
                    seen.provisional.insert(branch.branch().to_owned(), true);
                }
                let lines =
                    *dice.pick(&["", "Contact: <sip:b@192.168.9.9>\n", "WWW-Authenticate: Digest realm=\"r\"\n"]);
                rig.answer(&branch, status, lines)
            }
            7 if !seen.branches.is_empty() => {
                let branch = dice.pick(&seen.branches).clone();
                rig.fail(&branch)
            }
            8 if method == "INVITE" && dice.one_in(3) => {
                let cancel = text.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
                rig.request(&cancel, udp(ALICE), &[])
            }
            // A later copy would be a new request: its transaction may have ended.
            9 if rig.now.mono < begin + 30_000 => rig.request(&text, udp(ALICE), &contacts),
            10 if dice.one_in(3) => {
                rig.moved(dice.roll(200) as u8);
                Vec::new()
            }
            _ => {
                let ms = *dice.pick(&[0, 1, 400, 3_000, 21_000, 33_000, 100_000]);
                rig.pass(ms).into_iter().map(|(_, s)| s).collect()
            }
        };
        seen.note(&out, seed);
    }
    // Cancelled phones respond in the end.
    for branch in seen.branches.clone() {
        if seen.cancelled.contains(&branch.branch().to_owned()) && dice.one_in(2) {
            let out = rig.answer(&branch, 487, "");
            seen.note(&out, seed);
        }
    }
    let rest: Vec<Sent> = rig.pass(900_000).into_iter().map(|(_, s)| s).collect();
    seen.note(&rest, seed);
    rig.end();
    seen.check(method, seed);
    seen
}

#[test]
fn the_caller_gets_one_final_response() {
    let mut ends: HashMap<u16, u32> = HashMap::new();
    for seed in 0..3_000 {
        for (status, _) in call(seed).finals {
            *ends.entry(status).or_default() += 1;
        }
    }
    // Every kind of end occurred.
    for status in [200, 302, 401, 404, 408, 486, 487, 500, 603] {
        assert!(ends.contains_key(&status), "{status} never came: {ends:?}");
    }
}
