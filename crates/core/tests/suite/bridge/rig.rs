//! Two phones with a bridge between them, on one network that a test controls.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use strowger_core::b2bua::bridge::{Bridge, BridgeEvent, BridgeSettings, BridgedCall, LegMedia, PairKey};
use strowger_core::b2bua::negotiation::{LegPolicy, LegState, LocalStream};
use strowger_core::user_agent::{AccountKey, CallKey, Event, Invite, UserAgent, UserAgentSettings};
use strowger_core::{Round, Target};

use crate::written::through_bytes;

pub(crate) use crate::user_agent::rig::{Heard, Net, quiet, respond, with_body};

/// Numbers of the phones.
pub(crate) const NEAR: usize = 0;
pub(crate) const BRIDGE: usize = 1;
pub(crate) const FAR: usize = 2;
/// Number of a further phone, in tests with four of them.
pub(crate) const THIRD: usize = 3;

/// Number of an address without a phone.
pub(crate) const NO_PHONE: usize = 8;

/// Bridge and its phones.
pub(crate) struct Bridged {
    pub(crate) net: Net,
    pub(crate) bridge: Rc<RefCell<Bridge>>,
    /// Account of the next far calls.
    pub(crate) account: Rc<Cell<Option<AccountKey>>>,
    /// Target of the next far calls.
    pub(crate) target: Rc<Cell<Target>>,
    /// Policy of both legs of the next calls.
    pub(crate) policy: Rc<RefCell<LegPolicy>>,
    /// Number of moves.
    shard: u8,
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a description of a phone with one stream of audio. `formats`: payload types, `0` and `8`.
pub(crate) fn sdp(phone: usize, version: u32, formats: &str, direction: &str) -> Vec<u8> {
    let (address, port) = (format!("127.0.0.{}", phone + 1), 40_000 + 1_000 * phone);
    let mut text = format!(
        "v=0\r\no=- {port} {version} IN IP4 {address}\r\ns=-\r\nc=IN IP4 {address}\r\nt=0 0\r\nm=audio {port} RTP/AVP {formats}\r\n"
    );
    for format in formats.split(' ') {
        text += if format == "0" { "a=rtpmap:0 PCMU/8000\r\n" } else { "a=rtpmap:8 PCMA/8000\r\n" };
    }
    (text + "a=" + direction + "\r\n").into_bytes()
}

/// Returns the same description, held by an unspecified address.
pub(crate) fn held_by_address(phone: usize, version: u32) -> Vec<u8> {
    let text = String::from_utf8(sdp(phone, version, "0", "sendrecv")).expect("text");
    text.replace(&format!("c=IN IP4 127.0.0.{}", phone + 1), "c=IN IP4 0.0.0.0").into_bytes()
}

fn media(session_id: u64, port: u16, policy: &LegPolicy) -> LegMedia {
    let address = "127.0.0.2".parse().expect("an address");
    LegMedia {
        state: LegState::new(session_id, address),
        policy: Arc::new(policy.clone()),
        places: Arc::new([LocalStream { address, port }]),
    }
}

/// Returns the far call of every call, to this phone.
pub(crate) fn far_call(net: &Net, phone: usize) -> Invite<'static> {
    let (from, to) = (b"<sip:caller@bridge.example>", b"<sip:bob@biloxi.example>");
    Invite { uri: Some(b"sip:bob@127.0.0.3"), ..Invite::new(from, to, net.target(phone), b"") }
}

impl Bridged {
    pub(crate) fn new() -> Self {
        Self::of([quiet(), quiet(), quiet()], FAR)
    }

    /// Returns a bridge whose far calls go to this phone.
    pub(crate) fn of(settings: impl IntoIterator<Item = UserAgentSettings>, far: usize) -> Self {
        let mut net = Net::new(settings);
        let bridge = Rc::new(RefCell::new(Bridge::new(BridgeSettings::default())));
        let account = Rc::new(Cell::new(None));
        let policy = Rc::new(RefCell::new(LegPolicy::default()));
        let (own, own_account, far) = (Rc::clone(&bridge), Rc::clone(&account), far_call(&net, far));
        let target = Rc::new(Cell::new(far.target));
        let (own_policy, own_target) = (Rc::clone(&policy), Rc::clone(&target));
        let phone = &mut net.phones[BRIDGE];
        phone.auto_answer = false;
        phone.owner = Some(Box::new(move |agent: &mut UserAgent, round: &mut Round<'_>, event: &Event| {
            let mut bridge = own.borrow_mut();
            if let Event::Invited { call: near, .. } = *event {
                let invite = agent.message().to_vec();
                match bridge.replaced(round.now, agent, &invite) {
                    Ok(Some(leg)) => return bridge.replace(agent, round, leg, near, &invite),
                    Ok(None) => (),
                    Err(status) => return agent.reject(round, near, status),
                }
                let far = Invite { account: own_account.get(), target: own_target.get(), ..far };
                let policy = own_policy.borrow();
                let (near_media, far_media) = (media(1, 50_000, &policy), media(2, 60_000, &policy));
                let call = BridgedCall { near, invite: &invite, far, near_media, far_media };
                bridge.start(agent, round, call);
            } else {
                bridge.handle(agent, round, event);
            }
        }));
        Self { net, bridge, account, target, policy, shard: 0 }
    }

    /// Lets this number of milliseconds pass.
    pub(crate) fn run(&mut self, ms: u64) {
        let until = self.net.now.mono + ms;
        loop {
            let due = self.bridge.borrow_mut().deadline().filter(|&due| due <= until);
            let Some(due) = due else { break };
            self.net.run(due.saturating_sub(self.net.now.mono));
            let bridge = Rc::clone(&self.bridge);
            self.net.with(BRIDGE, |agent, round| bridge.borrow_mut().poll(agent, round));
        }
        self.net.run(until.saturating_sub(self.net.now.mono));
    }

    /// Moves the bridge and its calls to another shard. Returns the old and the new key of each pair.
    pub(crate) fn moves(&mut self) -> Vec<(PairKey, PairKey)> {
        self.shard += 1;
        let record = self.net.export(BRIDGE);
        let mut bridge = self.bridge.borrow_mut();
        let pairs = bridge.export(self.net.now, |call| record.has_call(call));
        assert_eq!((bridge.pairs(), bridge.carried_requests()), (0, 0));
        let moved = self.net.import(BRIDGE, self.shard, through_bytes(record));
        *bridge = Bridge::new(BridgeSettings::default());
        bridge.import(self.net.now, through_bytes(pairs), &moved)
    }

    /// Takes the events of the bridge.
    pub(crate) fn told(&self) -> Vec<BridgeEvent> {
        std::iter::from_fn(|| self.bridge.borrow_mut().event()).collect()
    }

    /// Makes a call that the far phone has received. Returns the keys of both phones.
    pub(crate) fn calling(&mut self, offer: &[u8]) -> (CallKey, CallKey) {
        let near = self.net.call(offer);
        self.run(50);
        (near, self.net.invited(FAR))
    }

    /// Makes an established call with G.711 of both laws. Returns the keys of both phones.
    pub(crate) fn up(&mut self) -> (CallKey, CallKey) {
        let (near, far) = self.calling(&sdp(NEAR, 1, "0 8", "sendrecv"));
        let answer = sdp(FAR, 1, "0", "sendrecv");
        self.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
        self.run(100);
        assert!(matches!(self.net.last(FAR).event, Event::Confirmed { .. }), "{:?}", self.net.log);
        (near, far)
    }

    /// Returns the last event of a phone that `is` selects.
    pub(crate) fn heard(&self, n: usize, is: impl Fn(&Event) -> bool) -> &Heard {
        let found = self.net.phones[n].heard.iter().rev().find(|heard| is(&heard.event));
        found.unwrap_or_else(|| panic!("phone {n} did not hear it: {:?}", self.net.log))
    }

    /// Returns the number of sent messages with this line in the log.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.net.log.iter().filter(|sent| *sent == line).count()
    }

    /// Asserts that both legs have ended and no state is left, and that no side has learned of the other.
    pub(crate) fn is_clean(&mut self) {
        self.run(200_000);
        self.net.is_clean();
        let bridge = self.bridge.borrow();
        assert_eq!((bridge.pairs(), bridge.carried_requests()), (0, 0), "{}", self.net.log.join("\n"));
        drop(bridge);
        self.is_hidden();
    }

    /// Asserts that no message of the bridge has a Call-ID, tag, branch, address or port of the other side.
    pub(crate) fn is_hidden(&self) {
        let sent = || self.net.log.iter().zip(&self.net.sent);
        for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
            let (to_side, to_other) = (format!("{BRIDGE}>{side} "), format!("{BRIDGE}>{other} "));
            let mut secrets = vec![format!("127.0.0.{}", other + 1), format!(" {} RTP", 40_000 + 1_000 * other)];
            let of_other = sent().filter(|(line, _)| line.starts_with(&to_other));
            secrets.extend(of_other.flat_map(|(_, text)| names(text)));
            secrets.sort();
            secrets.dedup();
            for (line, text) in sent().filter(|(line, _)| line.starts_with(&to_side)) {
                for secret in &secrets {
                    assert!(!text.contains(secret.as_str()), "{line} shows {secret}\n{text}");
                }
            }
        }
    }
}

/// Returns the Call-ID, the tags and the branches of a message.
fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines().take_while(|line| !line.is_empty()) {
        names.extend(line.strip_prefix("Call-ID: ").map(str::to_owned));
        for part in ["tag=", "branch="] {
            let found = line.split(part).nth(1).and_then(|rest| rest.split([';', '>', ' ']).next());
            names.extend(found.filter(|name| name.len() > 4).map(str::to_owned));
        }
    }
    names
}
