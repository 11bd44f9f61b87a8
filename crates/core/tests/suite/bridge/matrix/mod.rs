//! Matrix of the bridge: each action of each party, by the extensions of both parties, with and without a late offer. `table.rs` states the
//! outcome of each cell, `transcript.rs` the messages of each leg; here two phones play each cell, and the messages of both legs are compared in
//! whole. `documents.rs` has the tables of `docs/b2bua.md`. Silence belongs to the engine: `crates/server/tests/policy/bridges/ends.rs` tests
//! the cells of [`Action::Silence`].

mod documents;
mod phone;
mod table;
mod transcript;

use std::net::SocketAddr;

use strowger_core::b2bua::bridge::{BridgeEnd, BridgeEvent, Side, capabilities};
use strowger_core::b2bua::negotiation::BridgedStream;
use strowger_core::user_agent::{CallKey, Capabilities, Event, Invite, Reliability, UserAgentSettings};
use strowger_message::Method;

use super::rig::*;
use phone::{Phone, TIMER};
use table::{Action, Cell, LATER, Outcome, cells};
use transcript::{described, mirrored, sent, set_up, stated};

/// Prints the cell of a failed run.
struct Named(Cell);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:?}", self.0);
        }
    }
}

/// Call of a cell that is up.
struct Played {
    cell: Cell,
    b2b: Bridged,
    /// Party that acts, with its call; then the other party, and the new party that replaces one.
    own: (Phone, CallKey),
    other: (Phone, CallKey),
    third: Phone,
}

const fn number(side: Side) -> usize {
    match side {
        Side::Near => NEAR,
        Side::Far => FAR,
    }
}

impl Played {
    /// Makes the call of a cell, and compares the messages of both legs.
    fn up(cell: Cell) -> Self {
        let (near, far) = (Phone::new(NEAR, cell.near), Phone::new(FAR, cell.far));
        let third = Phone::new(THIRD, cell.parties().0);
        let bridge = UserAgentSettings {
            reliability: Reliability::Supported,
            capabilities: Capabilities { session_timer: Some(TIMER), ..capabilities() },
            other_methods: true,
            ..quiet()
        };
        let mut b2b = Bridged::of([near.settings(), bridge, far.settings(), third.settings()], FAR);
        for phone in [&near, &far, &third] {
            phone.join(&mut b2b);
        }
        let offer = if cell.is_late { Vec::new() } else { near.describe(table::FIRST, "sendrecv") };
        let near_call = b2b.net.call(&offer);
        b2b.run(150);
        let (far_call, last) = (b2b.net.invited(FAR), far.last());
        b2b.net.with(FAR, |agent, round| agent.answer(round, far_call, &last));
        b2b.run(100);
        let (of_near, of_far) = set_up(&cell);
        assert_eq!((sent(&b2b, NEAR, 0), sent(&b2b, FAR, 0)), (of_near, of_far));
        let (near, far) = ((near, near_call), (far, far_call));
        let (own, other) = if cell.who == Side::Near { (near, far) } else { (far, near) };
        Self { cell, b2b, own, other, third }
    }

    /// Lets the party act. Returns the call of a new party.
    fn act(&mut self) -> Option<CallKey> {
        let (cell, (phone, call)) = (self.cell, self.own.clone());
        let n = phone.number;
        let (codecs, direction) = cell.offer();
        match cell.action {
            Action::Offer
            | Action::Codec
            | Action::Port
            | Action::SendOnly
            | Action::Inactive
            | Action::Unspecified
            | Action::Resume => {
                let offer = text(&phone.describe(codecs, direction));
                let (port, address) = (40_000 + 1_000 * n, format!("c=IN IP4 127.0.0.{}", n + 1));
                let offer = match cell.action {
                    Action::Port => offer.replace(&format!("m=audio {port} "), &format!("m=audio {} ", port + 10)),
                    Action::Unspecified => offer.replace(&address, "c=IN IP4 0.0.0.0"),
                    _ => offer,
                };
                self.reinvite(offer.as_bytes());
            }
            Action::NoOffer => self.reinvite(b""),
            Action::Update => {
                let offer = phone.describe(codecs, direction);
                self.b2b.net.with(n, |agent, round| agent.update(round, call, &offer)).expect("no other change");
            }
            Action::Refresh => self.b2b.run(80_000),
            Action::Info => self.request((n, call), Method::Info, b"Content-Type: text/plain\r\n", b"five"),
            Action::Refer => {
                self.request((n, call), Method::Refer, b"Refer-To: <sip:carol@example.org>\r\n", b"");
                self.b2b.run(100);
                let lines = b"Event: refer\r\nSubscription-State: terminated;reason=noresource\r\n\
                    Content-Type: message/sipfrag;version=2.0\r\n";
                let (number, peer) = (self.other.0.number, self.other.1);
                self.request((number, peer), Method::Notify, lines, b"SIP/2.0 200 Fine\r\n");
            }
            Action::Replaces => return Some(self.replace()),
            Action::Bye => {
                let reason = b"Reason: Q.850;cause=16\r\n";
                self.b2b.net.with(n, |agent, round| agent.hang_up_with(round, call, reason));
            }
            Action::Silence => panic!("media belong to the engine"),
        }
        None
    }

    fn reinvite(&mut self, offer: &[u8]) {
        let (n, call) = (self.own.0.number, self.own.1);
        self.b2b.net.with(n, |agent, round| agent.reinvite(round, call, offer)).expect("no other change");
    }

    fn request(&mut self, (n, call): (usize, CallKey), method: Method, lines: &[u8], body: &[u8]) {
        let sent = self.b2b.net.with(n, |agent, round| agent.request_within(round, call, method, lines, body));
        sent.expect("a dialog");
    }

    /// Calls from the third phone, in the place of the party.
    fn replace(&mut self) -> CallKey {
        let (n, call) = (self.own.0.number, self.own.1);
        let name = self.b2b.net.with(n, |agent, _| agent.dialog_name(call)).expect("the call is up");
        let (call_id, to, from) = (text(&name.call_id), text(&name.remote_tag), text(&name.local_tag));
        let headers = format!("Replaces: {call_id};to-tag={to};from-tag={from}\r\n");
        let target = self.b2b.net.target(BRIDGE);
        let offer = if self.cell.is_late { Vec::new() } else { self.third.describe(LATER, "sendrecv") };
        let invite = Invite {
            headers: headers.as_bytes(),
            ..Invite::new(b"<sip:dave@biloxi.example>", b"<sip:carol@127.0.0.2>", target, &offer)
        };
        self.b2b.net.with(THIRD, |agent, round| agent.invite(round, &invite)).expect("addresses")
    }

    /// Returns the message of the last event of a phone that `is` selects.
    fn heard(&self, n: usize, is: impl Fn(&Event) -> bool) -> &str {
        &self.b2b.heard(n, is).message
    }

    /// Compares the messages since this place of the log with those that the table states.
    fn compare(&self, from: usize) {
        let (cell, b2b) = (self.cell, &self.b2b);
        let mut expected = stated(&cell);
        if cell.action == Action::Refresh {
            // The session of the other leg is refreshed at the same time, by its own rules.
            expected.other = stated(&Cell { who: cell.who.other(), ..cell }).own;
        }
        let (own, other) = (self.own.0.number, self.other.0.number);
        assert_eq!(sent(b2b, own, from), expected.own, "{:?}", b2b.net.log);
        assert_eq!(sent(b2b, other, from), expected.other, "{:?}", b2b.net.log);
        assert_eq!(sent(b2b, THIRD, from), expected.new, "{:?}", b2b.net.log);
        match cell.action {
            Action::Info => {
                assert!(self.heard(other, |event| matches!(event, Event::Request { .. })).ends_with("\r\n\r\nfive"));
                assert!(self.heard(own, |event| matches!(event, Event::Reply { .. })).ends_with("\r\n\r\nsix"));
            }
            Action::Refer => {
                let refer = b2b.net.sent[from].lines().find_map(|line| line.strip_prefix("CSeq: ")).expect("a CSeq");
                let number = refer.split(' ').next().unwrap_or_default();
                let notify = self.heard(own, |event| matches!(event, Event::Request { method: Method::Notify, .. }));
                assert!(notify.contains(&format!("\r\nEvent: refer;id={number}\r\n")), "{notify}");
                assert!(notify.ends_with("\r\n\r\nSIP/2.0 200 OK\r\n"), "{notify}");
            }
            Action::Bye => {
                let bye = self.heard(other, |event| matches!(event, Event::Ended { .. }));
                assert!(bye.contains("\r\nReason: Q.850;cause=16\r\n"), "{bye}");
            }
            Action::Replaces => {
                let to_other = b2b.net.log.iter().zip(&b2b.net.sent).filter(|(line, _)| line.starts_with("1>"));
                let (third, own) = ("1>3 ", format!("1>{own} "));
                let mut shown = to_other.filter(|(line, _)| !line.starts_with(third) && !line.starts_with(&own));
                assert!(shown.all(|(_, message)| !message.contains("127.0.0.4")), "{:?}", b2b.net.log);
            }
            _ => (),
        }
    }

    /// Checks the last event for the owner of the bridge: the session, or the side that has ended the call.
    fn check_told(&self) {
        let (cell, told) = (self.cell, self.b2b.told());
        if cell.action == Action::Bye {
            let by = BridgeEnd::Side(cell.who);
            assert!(matches!(told.last(), Some(BridgeEvent::Ended { by: of, .. }) if *of == by), "{told:?}");
            return;
        }
        let last = told.iter().rev().find_map(|event| match event {
            BridgeEvent::SessionChanged { streams, .. } => Some(streams),
            _ => None,
        });
        let Some([Some(BridgedStream { near, far, .. })]) = last.map(|streams| &streams[..]) else {
            panic!("{told:?}")
        };
        let codec = match cell.action {
            Action::Offer | Action::Codec | Action::Update | Action::NoOffer | Action::Replaces => 8,
            _ => 0,
        };
        for (side, stream) in [(Side::Near, near), (Side::Far, far)] {
            let is_own = side == cell.who;
            let n = if is_own && cell.action == Action::Replaces { THIRD } else { number(side) };
            let port = 40_000 + 1_000 * n + if is_own && cell.action == Action::Port { 10 } else { 0 };
            let is_described = !is_own || cell.action != Action::Unspecified;
            let rtp: Option<SocketAddr> =
                is_described.then(|| format!("127.0.0.{}:{port}", n + 1).parse().expect("an address"));
            let passed = cell.passed_direction();
            let direction = if is_own { passed } else { mirrored(passed) };
            let sends = matches!(direction, "sendrecv" | "sendonly");
            let receives = matches!(direction, "sendrecv" | "recvonly");
            let codecs: Vec<u8> = stream.formats.iter().map(|format| format.payload_type).collect();
            assert_eq!((stream.rtp, stream.sends, stream.receives, codecs), (rtp, sends, receives, vec![codec]));
        }
    }

    /// Checks the descriptions of the bridge to a party: one origin, whose version rises by one exactly if another line differs (RFC 3264
    /// section 8), and the port of its side.
    fn check_descriptions(&self, party: usize, port: u16) {
        let to_party = format!("{BRIDGE}>{party} ");
        let mut before: Option<(&str, u64, String)> = None;
        for (line, message) in self.b2b.net.log.iter().zip(&self.b2b.net.sent) {
            let Some((_, body)) = message.split_once("\r\n\r\n") else { continue };
            if !line.starts_with(&to_party) || !body.starts_with("v=0\r\n") {
                continue;
            }
            assert_eq!(described(message).map(|(_, _, port)| port), Some(port), "{message}");
            let origin = body.lines().find(|line| line.starts_with("o=")).expect("an origin");
            let mut fields = origin.split(' ').skip(1);
            let (id, version) = (fields.next().expect("an id"), fields.next().expect("a version"));
            let version: u64 = version.parse().expect("a number");
            let rest = body.replace(origin, "");
            if let Some((id_before, version_before, rest_before)) = &before {
                let expected = version_before + u64::from(*rest_before != rest);
                assert_eq!((id, version), (*id_before, expected), "{message}");
            }
            before = Some((id, version, rest));
        }
        assert!(before.is_some());
    }

    /// Ends the call, and checks that nothing is left.
    fn end(mut self, new: Option<CallKey>) {
        let (own, call) = (self.own.0.number, self.own.1);
        let ended = match new {
            Some(new) => Some((THIRD, new)),
            None => (self.cell.action != Action::Bye).then_some((own, call)),
        };
        if let Some((n, call)) = ended {
            self.b2b.net.with(n, |agent, round| agent.hang_up(round, call));
            self.b2b.run(100);
        }
        self.b2b.is_clean();
        let log = &self.b2b.net.log;
        for n in [NEAR, FAR, THIRD] {
            let is_end = |heard: &&Heard| matches!(heard.event, Event::Ended { .. } | Event::Failed { .. });
            let ends = self.b2b.net.phones[n].heard.iter().filter(is_end).count();
            assert_eq!(ends, usize::from(n != THIRD || new.is_some()), "phone {n}: {log:?}");
            for (from, to) in [(n, BRIDGE), (BRIDGE, n)] {
                let back = format!("{to}>{from} ");
                let is_final = |line: &&String| line.strip_prefix(&back).is_some_and(is_final_of_invite);
                let counts = (self.b2b.count(&format!("{from}>{to} INVITE")), log.iter().filter(is_final).count());
                assert_eq!(counts.0, counts.1, "{log:?}");
            }
        }
    }
}

/// Tells whether the rest of a line of the log is a final response to an INVITE.
fn is_final_of_invite(rest: &str) -> bool {
    rest.strip_suffix(" INVITE").is_some_and(|status| status.parse().is_ok_and(|status: u16| status >= 200))
}

fn play(cell: Cell) {
    let _named = Named(cell);
    let mut played = Played::up(cell);
    if cell.action == Action::Resume {
        let hold = played.own.0.describe("0", "sendonly");
        played.reinvite(&hold);
        played.b2b.run(100);
    }
    let from = played.b2b.net.log.len();
    let new = played.act();
    played.b2b.run(150);
    played.compare(from);
    played.check_told();
    played.check_descriptions(NEAR, 50_000);
    played.check_descriptions(FAR, 60_000);
    if new.is_some() {
        played.check_descriptions(THIRD, if cell.who == Side::Near { 50_000 } else { 60_000 });
    }
    played.end(new);
}

/// Plays the cells of a side that the bridge decides alone. Returns their number.
fn play_cells(who: Side) -> usize {
    let is_played = |cell: &Cell| cell.who == who && cell.outcome() != Outcome::Silent;
    let cells: Vec<Cell> = cells().into_iter().filter(is_played).collect();
    for cell in &cells {
        play(*cell);
    }
    cells.len()
}

#[test]
fn each_cell_of_the_caller_has_its_outcome() {
    assert_eq!(play_cells(Side::Near), 14 * 64 * 2);
}

#[test]
fn each_cell_of_the_callee_has_its_outcome() {
    assert_eq!(play_cells(Side::Far), 14 * 64 * 2);
}
