//! A service that relays messages: "TO tcp 127.0.0.1:5060 ..." goes to that address ("tls@a.test": to a server that proves this name), and messages
//! back for the same call go to its sender; "FLOW 0 3 2 tcp 127.0.0.1:5060 ..." does so over a flow of this shard, slot and generation. "LATER 100
//! ..." is answered with 200 after that many milliseconds. "SILENCE 300 60000 ..." limits the silence of its connection to 300 ms, for a minute.
//! "REGISTERED 800 ..." makes its connection the flow of a phone for 800 ms, and "TRUNK" that of a gateway.
//! "REPORTED" is answered with the number of reported keep-alives; "STALL" stops the shard while [`GATE`] is locked. Every other message goes back
//! to its source.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport};
use strowger_message::scan;
use strowger_net::{ConnectionKind, Handle, Listener, Net, NetSettings, Node, Service};

/// Lock of a test that stops a shard.
pub(crate) static GATE: Mutex<()> = Mutex::new(());

/// True once a shard has stopped at [`GATE`].
pub(crate) static STOPPED: AtomicBool = AtomicBool::new(false);

pub(crate) struct Relay {
    index: usize,
    handle: Handle<Self>,
    waiting: HashMap<Vec<u8>, Arrival>,
    tokens: HashMap<u64, Arrival>,
    next: u64,
    /// Flows of the reported keep-alives.
    kept_alive: Vec<Flow>,
    kinds: HashMap<Flow, ConnectionKind>,
}

impl Relay {
    fn send(to: Target, bytes: &[u8], token: u64, out: &mut Outbox) {
        let start = out.start();
        out.bytes.extend_from_slice(bytes);
        out.send(to, start..out.bytes.len(), token);
    }
}

impl Service for Relay {
    type ShardMessage = (Arrival, Vec<u8>);
    type Record = ();

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let call = scan::call_id(bytes).map(|range| bytes[range].to_vec()).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let word: Vec<&str> = text.split(' ').collect();
        match word[0] {
            "TO" | "FLOW" => {
                let (flow, to) = if word[0] == "TO" { (&[][..], &word[1..]) } else { word[1..].split_at(3) };
                let numbers: Vec<u32> = flow.iter().map(|n| n.parse().unwrap()).collect();
                let settings = self.handle.settings();
                let flow = |n: &[u32]| Flow {
                    node: settings.node,
                    process: settings.process,
                    shard: n[0] as u8,
                    slot: n[1],
                    generation: n[2],
                };
                let flow = (!numbers.is_empty()).then(|| flow(&numbers));
                let (transport, name) = to[0].split_once('@').map_or((to[0], None), |(t, name)| (t, Some(name)));
                let transport = Transport::of(transport.as_bytes()).unwrap();
                let address: SocketAddr = to[1].parse().unwrap();
                self.next += 1;
                self.tokens.insert(self.next, *arrival);
                self.waiting.insert(call, *arrival);
                let name = name.map(|name| self.handle.name(name));
                let target = Target { flow, name, ..Target::new(transport, ListenerId(0), address) };
                Self::send(target, text.replacen(word[0], "AT", 1).as_bytes(), self.next, out);
            }
            "ALIAS" => {
                self.handle.alias(arrival.flow.unwrap(), arrival.transport, word[1].parse().unwrap());
                Self::send(arrival.reply(), bytes, 0, out);
            }
            "CLOSE" => self.handle.close(arrival.flow.unwrap()),
            "SILENCE" => {
                let [longest, during] = [word[1], word[2]].map(|time| time.parse::<u64>().unwrap());
                let until = if during == 0 { 0 } else { now.mono + during };
                self.handle.limit_silence(arrival.flow.unwrap(), longest, until);
                Self::send(arrival.reply(), bytes, 0, out);
            }
            "REGISTERED" | "TRUNK" => {
                let until = word[1].parse::<u64>().map(|during| now.mono + during);
                let kind = until.map_or(ConnectionKind::Trunk, |until| ConnectionKind::Registered { until });
                self.kinds.insert(arrival.flow.unwrap(), kind);
                Self::send(arrival.reply(), bytes, 0, out);
            }
            "STALL" => {
                STOPPED.store(true, Release);
                drop(GATE.lock());
            }
            "REPORTED" => {
                let of_it = self.kept_alive.iter().filter(|flow| Some(**flow) == arrival.flow).count();
                let text = format!("{of_it} of {}\r\nContent-Length: 0\r\n\r\n", self.kept_alive.len());
                Self::send(arrival.reply(), text.as_bytes(), 0, out);
            }
            "LATER" => {
                let (after, mailbox) = (word[1].parse().unwrap(), self.handle.mailbox(self.index));
                let (arrival, bytes) = (*arrival, bytes.to_vec());
                self.handle.spawn("a task that waits", async move {
                    // A look-up that takes time.
                    tokio::time::sleep(std::time::Duration::from_millis(after)).await;
                    mailbox.send((arrival, bytes));
                });
            }
            _ => {
                let back = self.waiting.remove(&call).unwrap_or(*arrival);
                Self::send(back.reply(), bytes, 0, out);
            }
        }
    }

    fn failed(&mut self, _: Now, token: u64, out: &mut Outbox) {
        let to = self.tokens.remove(&token).unwrap();
        Self::send(to.reply(), b"FAILED\r\nContent-Length: 0\r\n\r\n", 0, out);
    }

    fn cut_off(&mut self, _: Now, token: u64, out: &mut Outbox) {
        if let Some(to) = self.tokens.remove(&token) {
            Self::send(to.reply(), b"CUT OFF\r\nContent-Length: 0\r\n\r\n", 0, out);
        }
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}
    fn deadline(&mut self) -> Option<u64> {
        None
    }
    fn answered(&mut self, _: Now, (to, bytes): (Arrival, Vec<u8>), out: &mut Outbox) {
        Self::send(to.reply(), &[b"SIP/2.0 200 OK\r\n", &bytes[..]].concat(), 0, out);
    }
    fn kept_alive(&mut self, _: Now, flow: Flow) {
        self.kept_alive.push(flow);
    }
    fn connection_kind(&self, _: Now, flow: Flow, _: SocketAddr) -> ConnectionKind {
        self.kinds.get(&flow).copied().unwrap_or(ConnectionKind::Other)
    }
    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }
    fn import(&mut self, _: Now, _: (), _: &mut Outbox) {}
}

pub(crate) fn start(settings: NetSettings, listeners: Vec<Listener>) -> Node<Relay> {
    let make = |index, handle| Relay {
        index,
        handle,
        waiting: HashMap::new(),
        tokens: HashMap::new(),
        next: 0,
        kept_alive: Vec::new(),
        kinds: HashMap::new(),
    };
    Net::bind(settings, listeners).unwrap().spawn(make).unwrap()
}

pub(crate) fn listener(transport: Transport, bind: &str) -> Listener {
    Listener::new(transport, bind.parse().unwrap())
}

/// Returns a message with this start line and call, and a body of this many bytes.
pub(crate) fn message(start: &str, call: &str, body: usize) -> String {
    format!("{start} SIP/2.0\r\nCall-ID: {call}\r\nContent-Length: {body}\r\n\r\n{}", "b".repeat(body))
}
