//! Phones and gateways: user agents of `strowger-core` that make and take calls by a script of random numbers.

mod events;
mod tasks;
mod transfers;

use self::tasks::Task;
use self::transfers::Reference;
pub(super) use self::transfers::Transfer;
use super::sound::Sound;
use super::{DOMAIN, Datagram, PARTIES, SERVER};
use crate::random::Random;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_core::entropy::Entropy;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{
    CallKey, Capabilities, Endpoint, Reliability, SessionTimerSettings, Span, UserAgent, UserAgentSettings,
};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Round, Target, Transport};

/// Behaviour of a phone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    /// True if it supports reliable provisional responses (RFC 3262), and uses them as a callee.
    pub(super) is_reliable: bool,
    /// True if it allows UPDATE (RFC 3311).
    pub(super) updates: bool,
    /// True if it has session timers (RFC 4028).
    pub(super) is_timed: bool,
    /// Calls that it refuses, in thousandths.
    pub(super) refuses: u64,
    /// Largest number of requests that it makes within a call.
    pub(super) busy: u64,
    /// Largest time from the beginning of a call to its answer, and from the answer to its end, in milliseconds.
    pub(super) answers_within: u64,
    pub(super) lasts: u64,
}

/// Call to be made.
#[derive(Clone, Debug)]
struct PlannedCall {
    number: u32,
    to: String,
    /// True if the INVITE has no offer.
    lacks_offer: bool,
    /// Milliseconds until the caller gives up.
    patience: u64,
}

/// Role of a phone in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Caller,
    Callee,
    /// Caller of an INVITE with Replaces. The number is the place of the call in which the phone was referred.
    Newcomer(usize),
}

impl Role {
    pub(super) fn is_caller(self) -> bool {
        self != Self::Callee
    }
}

/// Call of a phone.
#[derive(Debug)]
pub(super) struct PhoneCall {
    key: CallKey,
    /// Number of the call in its world, which the display name of the caller shows to the callee.
    pub(super) number: u32,
    pub(super) role: Role,
    pub(super) call_id: Vec<u8>,
    /// Time of its INVITE.
    pub(super) begun: u64,
    pub(super) sound: Sound,
    /// Offer of the INVITE, until the call is answered.
    offer: Vec<u8>,
    /// True if the INVITE supports reliable provisional responses.
    is_caller_reliable: bool,
    /// True if a reliable provisional response of this phone had the description.
    is_described: bool,
    /// True once the phone sends sound.
    talks: bool,
    /// Time of the answer.
    pub(super) answered: Option<u64>,
    /// True once the requests and the end of the answered call are planned.
    is_up: bool,
    pub(super) ended: Option<u64>,
    /// True if a REFER was sent or received in the call, or has named it: a transfer may last after the end of a side.
    pub(super) is_transferred: bool,
    /// Packets that came from each party.
    pub(super) heard: [u64; PARTIES.len()],
}

/// Counts of the acts of a phone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acts {
    /// Own changes of the session that were granted, and that were refused.
    pub(super) granted: u64,
    pub(super) refused: u64,
    /// Refusals with 491.
    pub(super) glares: u64,
    /// Own requests within a call besides changes.
    pub(super) requests: u64,
    /// Provisional responses with a description.
    pub(super) early: u64,
    /// Own REFERs with Replaces, and NOTIFYs that told of their success.
    pub(super) referrals: u64,
    pub(super) successes: u64,
}

/// Phone or gateway.
pub(super) struct Phone {
    /// Name in URIs.
    user: &'static str,
    /// Name that no other party may see.
    pub(super) label: &'static str,
    /// Number in the world.
    place: u8,
    /// Address as the phone sees it.
    pub(super) address: SocketAddr,
    manners: Manners,
    endpoint: Endpoint,
    random: Random,
    out: Outbox,
    /// Tasks by time, then in the order of planning.
    tasks: BTreeMap<(u64, u64), Task>,
    planned: u64,
    /// Number of ports so far.
    ports: u16,
    plans: Vec<PlannedCall>,
    /// References that it follows, in the order of their REFERs.
    references: Vec<Reference>,
    pub(super) calls: Vec<PhoneCall>,
    pub(super) acts: Acts,
}

/// Milliseconds after which a party ends a call that its peer should have ended.
pub(super) const FALLBACK: u64 = 200_000;

impl Phone {
    pub(super) fn new(
        (user, label): (&'static str, &'static str),
        place: u8,
        address: SocketAddr,
        manners: Manners,
        mut random: Random,
    ) -> Self {
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound: address,
            sent_by: address.to_string().into_bytes().into(),
            network: 0,
        };
        let update = if manners.updates { ", UPDATE" } else { "" };
        let allow = format!("INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, MESSAGE, PRACK, REFER, NOTIFY{update}");
        let timer = SessionTimerSettings { interval: 90, refreshes: random.chance(500), ..Default::default() };
        let capabilities = Capabilities {
            allow: allow.into_bytes(),
            supported: if manners.is_reliable { b"100rel".to_vec() } else { Vec::new() },
            session_timer: manners.is_timed.then_some(timer),
            ..Capabilities::default()
        };
        let settings = UserAgentSettings {
            name: format!("{label}-phone").into_bytes(),
            reliability: if manners.is_reliable { Reliability::Supported } else { Reliability::Required },
            capabilities,
            other_methods: random.chance(500),
            ..UserAgentSettings::default()
        };
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.u64().to_le_bytes()));
        let identity = Arc::new(Identity::new(vec![listener], [""; 0], &[]));
        Self {
            user,
            label,
            place,
            address,
            manners,
            endpoint: Endpoint::new(identity, settings, Entropy::new(seed), random.u64() as u32),
            random,
            out: Outbox::new(),
            tasks: BTreeMap::new(),
            planned: 0,
            ports: 0,
            plans: Vec::new(),
            references: Vec::new(),
            calls: Vec::new(),
            acts: Acts::default(),
        }
    }

    /// Plans a call with this number to a user of the domain.
    pub(super) fn plan_call(&mut self, at: u64, number: u32, user: &str) {
        let gives_up = self.random.chance(250);
        let patience = if gives_up { self.random.between(0, 9_000) } else { FALLBACK };
        let lacks_offer = self.random.chance(150);
        self.plans.push(PlannedCall { number, to: format!("sip:{user}@{DOMAIN}"), lacks_offer, patience });
        self.plan(at, Task::Call(self.plans.len() - 1));
    }

    /// Plans an attended transfer.
    pub(super) fn plan_transfer(&mut self, at: u64, transfer: Transfer) {
        self.plan(at, Task::Transfer(transfer));
    }

    fn plan(&mut self, at: u64, task: Task) {
        self.planned += 1;
        self.tasks.insert((at, self.planned), task);
    }

    /// Writes a REGISTER of this phone.
    pub(super) fn register(&self, number: u32) -> String {
        let Self { user, address, place, .. } = self;
        format!(
            "REGISTER sip:{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP {address};rport;branch=z9hG4bKr{place}{number}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{user}@{DOMAIN}>;tag=r{place}\r\nTo: <sip:{user}@{DOMAIN}>\r\n\
             Call-ID: r{place}\r\nCSeq: {number} REGISTER\r\nContact: <sip:{user}@{address}>\r\nExpires: 3600\r\n\
             Content-Length: 0\r\n\r\n"
        )
    }

    /// Handles a SIP message of the server.
    pub(super) fn receive(&mut self, now: Now, bytes: &[u8], sent: &mut Vec<Datagram>) {
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: SERVER, flow: None };
        self.work(now, sent, |phone, out| phone.endpoint.receive(now, &arrival, bytes, out));
    }

    /// Performs the tasks and timers that are due.
    pub(super) fn wake(&mut self, now: Now, sent: &mut Vec<Datagram>) {
        while let Some(entry) = self.tasks.first_entry().filter(|entry| entry.key().0 <= now.mono) {
            let task = entry.remove();
            match task {
                Task::Talk(at) => self.talk(now, at, sent),
                task => self.work(now, sent, |phone, out| phone.task(now, task, out)),
            }
        }
        if self.endpoint.deadline().is_some_and(|at| at <= now.mono) {
            self.work(now, sent, |phone, out| phone.endpoint.poll(now, out));
        }
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        let task = self.tasks.keys().next().map(|(at, _)| *at);
        task.into_iter().chain(self.endpoint.deadline()).min()
    }

    /// Performs work of the user agent, handles its events, and sends its messages.
    fn work(&mut self, now: Now, sent: &mut Vec<Datagram>, work: impl FnOnce(&mut Self, &mut Outbox)) {
        let mut out = std::mem::take(&mut self.out);
        work(self, &mut out);
        while let Some(event) = self.endpoint.agent.event() {
            self.on_event(now, event, &mut out);
        }
        for send in out.sends() {
            let bytes = out.bytes[send.range()].to_vec();
            sent.push(Datagram { from: self.address, to: send.target.address, bytes });
        }
        out.clear();
        self.out = out;
    }

    /// Calls the user agent.
    fn agent<T>(&mut self, now: Now, out: &mut Outbox, act: impl FnOnce(&mut UserAgent, &mut Round<'_>) -> T) -> T {
        let (agent, mut round) = self.endpoint.lend(now, out);
        act(agent, &mut round)
    }

    fn text(&self, span: Span) -> Vec<u8> {
        self.endpoint.agent.text(span).to_vec()
    }

    /// Returns the place of a call.
    fn call_of(&self, key: CallKey) -> Option<usize> {
        self.calls.iter().position(|call| call.key == key)
    }

    /// Returns the call that has described this port, of RTP or RTCP.
    pub(super) fn call_of_port(&self, port: u16) -> Option<usize> {
        self.calls.iter().position(|call| call.sound.has_port(port & !1))
    }

    /// Returns a port for RTP that no call of this phone had before.
    const fn new_port(&mut self) -> u16 {
        self.ports += 1;
        40_000 + 2 * self.ports
    }

    /// Adds a call that begins now.
    fn begin(&mut self, now: Now, key: CallKey, (number, role): (u32, Role), call_id: Vec<u8>) -> usize {
        let port = self.new_port();
        self.calls.push(PhoneCall {
            key,
            number,
            role,
            call_id,
            begun: now.mono,
            sound: Sound::new(self.label, self.address.ip(), port, &mut self.random),
            offer: Vec::new(),
            is_caller_reliable: false,
            is_described: false,
            talks: false,
            answered: None,
            is_up: false,
            ended: None,
            is_transferred: false,
            heard: [0; PARTIES.len()],
        });
        self.calls.len() - 1
    }

    /// Sends the next packet of sound.
    fn talk(&mut self, now: Now, at: usize, sent: &mut Vec<Datagram>) {
        let (place, ip, call) = (self.place, self.address.ip(), &mut self.calls[at]);
        if call.ended.is_some() {
            return;
        }
        let from = SocketAddr::new(ip, call.sound.port());
        sent.extend(call.sound.packet(place).map(|(to, bytes)| Datagram { from, to, bytes }));
        self.plan(now.mono + super::sound::PACE, Task::Talk(at));
    }

    /// Checks that nothing is left when no work is in progress.
    ///
    /// # Errors
    /// The calls and transactions that are left.
    pub(super) fn leftovers(&self) -> Result<(), String> {
        let (calls, counts) = (self.endpoint.agent.calls(), self.endpoint.counts());
        let open = self.calls.iter().find(|call| call.ended.is_none());
        match (calls, counts.servers + counts.clients, open) {
            (0, 0, None) => Ok(()),
            (_, transactions, open) => {
                let number = open.map(|call| call.number);
                Err(format!("{}: {calls} calls and {transactions} transactions are left: {number:?}", self.label))
            }
        }
    }
}

/// Returns the target of the first message of a call.
const fn server() -> Target {
    Target::new(Transport::Udp, ListenerId(0), SERVER)
}
