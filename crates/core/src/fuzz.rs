//! Invariants of the machines for any input, as functions that panic on a violation. Only mutators and cargo-fuzz call them.

use crate::slots::Id;
use crate::timer::TimerSettings;
use crate::transaction::{ClientId, Event, Incoming, Role, ServerId, Side, TransactionUser, Transactions};
use crate::{Arrival, ListenerId, Now, Outbox, Target, Transport};
use std::collections::{BTreeMap, BTreeSet};
use strowger_message::{Index, Limits, Message};

/// Runs a script: the bytes are commands for messages, timers, failures and moves to another table.
///
/// # Panics
/// If an invariant is violated.
pub fn transaction(data: &[u8]) {
    let mut script = Script { bytes: data };
    let mut world = World::new();
    while let Some(command) = script.byte() {
        world.command(command, &mut script);
        world.check();
    }
    world.finish();
}

struct Script<'a> {
    bytes: &'a [u8],
}

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// Returns the next byte of the script, or 0 at its end.
    fn any(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::from(self.any());
        from.get(at % from.len().max(1)).copied()
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }
}

const METHODS: [&str; 8] = ["INVITE", "INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "FOO", "REGISTER"];
const STATUSES: [u16; 8] = [100, 180, 200, 200, 302, 487, 503, 699];

/// Table of transactions and the state of its user.
struct World {
    now: Now,
    table: Transactions,
    out: Outbox,
    events: Vec<Event>,
    index: Index,
    /// Live server transactions, with the final status of each.
    servers: BTreeMap<u64, Option<u16>>,
    clients: BTreeMap<u64, ()>,
    /// Forgotten server transactions.
    forgotten: BTreeSet<u64>,
    /// Ids of ended transactions.
    gone: Vec<u64>,
    users: u32,
}

impl World {
    fn new() -> Self {
        let mut table = Transactions::new(TimerSettings::default(), [3, 4]);
        table.set_limit(200);
        Self {
            now: Now { mono: 1, wall: 1 },
            table,
            out: Outbox::new(),
            events: Vec::new(),
            index: Index::new(),
            servers: BTreeMap::new(),
            clients: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            gone: Vec::new(),
            users: 0,
        }
    }

    fn next_user(&mut self) -> TransactionUser {
        self.users += 1;
        TransactionUser::new(Role::UserAgent(Id { slot: self.users, generation: 1 }))
    }

    fn command(&mut self, command: u8, script: &mut Script<'_>) {
        match command % 12 {
            0 | 1 => {
                let text = request(script);
                let transport = transport(script.any());
                self.come(text.as_bytes(), transport);
            }
            2 | 3 => {
                let status = script.pick(&STATUSES).unwrap_or(200);
                let request = request(script);
                let text = request.split_once("\r\n").map(|(_, rest)| format!("SIP/2.0 {status} X\r\n{rest}"));
                self.come(text.unwrap_or_default().as_bytes(), Transport::Udp);
            }
            4 => self.respond(script),
            5 => self.send(script),
            6 => {
                if let Some(id) = script.pick(&self.known_clients()) {
                    self.table.cancel(self.now, ClientId::from_u64(id), None, &mut self.out);
                }
            }
            7 => self.pass(u64::from(script.any()) * 10),
            8 => self.pass(u64::from(script.any()) * 1_000),
            9 => {
                let tokens: Vec<u64> = self.out.sends().iter().map(|s| s.token).chain(self.known_clients()).collect();
                let token = script.pick(&tokens).unwrap_or(0);
                self.table.failed(self.now, token, &mut self.out, &mut self.events);
                self.note();
            }
            10 => {
                let length = usize::from(script.any()) * 4;
                let bytes = script.take(length);
                self.come(bytes, Transport::Tcp);
            }
            _ => {
                let bit = script.any();
                if bit & 1 == 0 {
                    self.abandon(script);
                } else {
                    self.move_out(bit);
                }
            }
        }
        if self.out.bytes.len() > 100_000 {
            self.out.clear();
        }
    }

    /// Returns the live ids first, then some ids of ended transactions and some invalid ids.
    fn known_clients(&self) -> Vec<u64> {
        self.clients.keys().chain(self.gone.iter().rev().take(4)).copied().chain([0, u64::MAX]).collect()
    }

    fn known_servers(&self) -> Vec<u64> {
        self.servers.keys().chain(self.gone.iter().rev().take(4)).copied().chain([0, u64::MAX]).collect()
    }

    fn come(&mut self, bytes: &[u8], transport: Transport) {
        let mut index = std::mem::take(&mut self.index);
        if index.parse(bytes, &Limits::default()).is_ok() {
            let message = Message::new(bytes, &index);
            if message.is_request() {
                match self.table.request(self.now, &message, &arrival(transport), 7, &mut self.out) {
                    Incoming::Request(id) | Incoming::Cancel { cancel: id, .. } => {
                        assert!(self.servers.insert(id.to_u64(), None).is_none(), "an id of its own");
                        assert_eq!(self.table.user(id), TransactionUser::NONE);
                        let user = self.next_user();
                        self.table.set_user(id, user);
                    }
                    Incoming::Full => assert!(self.servers.len() + self.clients.len() >= 200),
                    Incoming::Absorbed | Incoming::Ack => (),
                    other => panic!("{other:?} is not for a request"),
                }
            } else if let Incoming::Response { id, tu, .. } = self.table.response(self.now, &message, &mut self.out) {
                assert!(self.clients.contains_key(&id.to_u64()), "a response for what was sent");
                assert_eq!(tu, self.table.client_user(id));
            }
        }
        self.index = index;
    }

    fn respond(&mut self, script: &mut Script<'_>) {
        let Some(id) = script.pick(&self.known_servers()) else { return };
        let status = script.pick(&STATUSES).unwrap_or(200);
        if script.any().is_multiple_of(8) {
            let target = Target { transport: transport(script.any()), ..arrival(Transport::Udp).reply() };
            self.table.set_reply(ServerId::from_u64(id), target);
        }
        let start = self.out.start();
        let length = usize::from(script.any()) * 3;
        self.out.bytes.extend(std::iter::repeat_n(b'x', length));
        let range = start..self.out.bytes.len();
        let sent = self.table.respond(self.now, ServerId::from_u64(id), status, range, &mut self.out);
        match self.servers.get_mut(&id) {
            None => assert!(!sent, "what ended sends nothing"),
            Some(_) if self.forgotten.contains(&id) => assert!(!sent, "what is forgotten is not answered"),
            Some(None) => {
                assert!(sent, "the first final response and all before it are sent");
                if status >= 200 {
                    self.servers.insert(id, Some(status));
                }
            }
            Some(Some(_)) => assert!(!sent || (200..300).contains(&status), "one final response, except for 2xx"),
        }
    }

    fn send(&mut self, script: &mut Script<'_>) {
        if self.clients.len() > 300 {
            return;
        }
        let method = script.pick(&METHODS).filter(|m| *m != "ACK").unwrap_or("INVITE");
        let branch = format!("z9hG4bK{}", script.any() % 8);
        let transport = transport(script.any());
        let mut text = message(method, &branch, 1);
        if script.any().is_multiple_of(16) {
            // From this text no ACK or CANCEL can be made.
            text.truncate(usize::from(script.any()));
        }
        let start = self.out.start();
        self.out.bytes.extend_from_slice(text.as_bytes());
        let range = start..self.out.bytes.len();
        let user = self.next_user();
        let (branch, method, target) = (branch.as_bytes(), method.as_bytes(), arrival(transport).reply());
        let id = self.table.send(self.now, range, branch, method, target, 7, user, &mut self.out);
        assert!(self.clients.insert(id.to_u64(), ()).is_none(), "an id of its own");
        assert_eq!(self.out.sends().last().map(|s| s.token), Some(id.to_u64()));
    }

    fn abandon(&mut self, script: &mut Script<'_>) {
        if let Some(id) = script.pick(&self.known_servers()) {
            self.table.abandon(self.now, ServerId::from_u64(id));
            if self.servers.contains_key(&id) {
                self.forgotten.insert(id);
            }
            if script.any() & 1 == 0 {
                self.pass(0);
                assert!(!self.servers.contains_key(&id) && self.forgotten.is_empty());
            }
        }
    }

    /// Moves all transactions to another table.
    fn move_out(&mut self, offset: u8) {
        let before = self.table.counts();
        let mut records = self.table.export(self.now, |_| true);
        assert_eq!(records.len() as u64, before.servers + before.clients);
        assert_eq!(self.table.counts().keys, 0);
        if offset & 2 == 0 {
            let mut table = Transactions::new(TimerSettings::default(), [3, 4]);
            table.set_limit(200);
            self.table = table;
            self.now.mono += u64::from(offset);
        }
        records.reverse();
        let (mut servers, mut clients, mut forgotten) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        for record in records {
            let (old, side, tu) = (record.id, record.side, record.tu);
            let new = self.table.import(self.now, record, tu);
            match side {
                Side::Server => {
                    let answered = self.servers.remove(&old).expect("a server transaction that was known");
                    servers.insert(new, answered);
                    if self.forgotten.remove(&old) {
                        forgotten.insert(new);
                    }
                }
                // A CANCEL that the table has created has no transaction user.
                Side::Client => {
                    if self.clients.remove(&old).is_some() {
                        clients.insert(new, ());
                    }
                }
            }
        }
        assert!(self.servers.is_empty() && self.clients.is_empty(), "everything moved");
        (self.servers, self.clients, self.forgotten) = (servers, clients, forgotten);
        self.gone.clear();
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now.mono + ms;
        self.now.mono = until;
        self.table.poll(self.now, &mut self.out, &mut self.events);
        assert!(self.table.deadline().is_none_or(|d| d > until), "what was due is done");
        self.note();
    }

    /// Handles the events, and checks that each transaction ends only once.
    fn note(&mut self) {
        for event in self.events.drain(..) {
            match event {
                Event::Timeout { id, .. } | Event::ClientTransportError { id, .. } | Event::TimerC { id, .. } => {
                    assert!(self.clients.contains_key(&id.to_u64()));
                }
                Event::ServerTransportError { id, .. } | Event::NoAck { id, .. } | Event::TryingDue { id, .. } => {
                    assert!(self.servers.contains_key(&id.to_u64()));
                }
                Event::ServerEnded { id, tu } => {
                    assert!(
                        matches!(tu.role(), Role::UserAgent(_)) && self.servers.remove(&id.to_u64()).is_some(),
                        "it ends once"
                    );
                    self.forgotten.remove(&id.to_u64());
                    self.gone.push(id.to_u64());
                }
                Event::ClientEnded { id, tu } => {
                    assert!(
                        matches!(tu.role(), Role::UserAgent(_)) && self.clients.remove(&id.to_u64()).is_some(),
                        "it ends once"
                    );
                    self.gone.push(id.to_u64());
                }
            }
        }
    }

    fn check(&self) {
        let counts = self.table.counts();
        assert_eq!(counts.servers, self.servers.len() as u64, "{counts:?}");
        assert!(counts.clients >= self.clients.len() as u64, "{counts:?}");
        let transactions = counts.servers + counts.clients;
        assert_eq!(
            counts.keys + self.forgotten.len() as u64,
            transactions,
            "what is forgotten is not found: {counts:?}"
        );
        assert!(counts.kept_messages <= transactions && counts.timers <= 2 * transactions, "{counts:?}");
    }

    /// Abandons unanswered requests. Checks that every transaction then ends by itself.
    fn finish(mut self) {
        for id in self.servers.keys() {
            self.table.abandon(self.now, ServerId::from_u64(*id));
        }
        for _ in 0..2 {
            for id in self.clients.keys() {
                self.table.cancel(self.now, ClientId::from_u64(*id), None, &mut self.out);
            }
            self.out.clear();
            let mut rounds = 0;
            while let Some(deadline) = self.table.deadline() {
                if self.clients.is_empty() && self.servers.is_empty() && rounds > 10_000 {
                    break;
                }
                rounds += 1;
                assert!(rounds < 20_000, "no end: {:?}", self.table.counts());
                self.now.mono = self.now.mono.max(deadline);
                self.table.poll(self.now, &mut self.out, &mut self.events);
                self.out.clear();
                self.note();
            }
        }
        let counts = self.table.counts();
        assert!(self.servers.is_empty() && self.clients.is_empty(), "{counts:?}");
        assert_eq!((counts.servers, counts.clients, counts.kept_messages, counts.kept_bytes), (0, 0, 0, 0));
        assert_eq!((counts.timers, self.table.timers_waiting(), counts.keys, self.table.memory()), (0, 0, 0, 0));
    }
}

fn arrival(transport: Transport) -> Arrival {
    let remote = std::net::SocketAddr::from(([127, 0, 0, 1], 5070));
    Arrival { transport, listener: ListenerId(0), remote, flow: None }
}

const fn transport(byte: u8) -> Transport {
    if byte % 4 == 3 { Transport::Tcp } else { Transport::Udp }
}

fn request(script: &mut Script<'_>) -> String {
    let method = script.pick(&METHODS).unwrap_or("INVITE");
    let byte = script.any();
    let cookie = if byte & 0x40 == 0 { "z9hG4bK" } else { "" };
    message(method, &format!("{cookie}{}", byte % 8), 1 + u32::from(byte >> 7))
}

fn message(method: &str, branch: &str, cseq: u32) -> String {
    format!(
        "{method} sip:b@x SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1;branch={branch}\r\nFrom: <sip:a@x>;tag=f\r\n\
         To: <sip:b@x>\r\nCall-ID: c\r\nCSeq: {cseq} {method}\r\nContent-Length: 0\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_random_bytes_end_well() {
        let mut state = 1u64;
        for length in 0..600usize {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    (state >> 56) as u8
                })
                .collect();
            transaction(&bytes);
        }
    }
}
