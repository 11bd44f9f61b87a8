//! A service that sends each message back to its source.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_net::{Bounds, Handle, Lifetimes, Listener, Net, NetSettings, Node, Service, Shards};

pub(crate) struct Echo {
    pub(crate) index: usize,
    pub(crate) handle: Handle<Self>,
    /// Deadlines set by messages "timer MILLISECONDS", with the source to notify.
    alarms: Vec<(u64, Arrival)>,
    asked: HashMap<u32, Arrival>,
    failures: HashMap<u64, Arrival>,
    next: u32,
}

impl Echo {
    fn say(&self, to: &Arrival, text: &str, out: &mut Outbox) {
        let start = out.start();
        out.bytes.extend_from_slice(text.as_bytes());
        out.send(to.reply(), start..out.bytes.len(), 0);
    }
}

impl Service for Echo {
    type ShardMessage = u32;
    type Record = ();

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if let Some(delay) = bytes.strip_prefix(b"timer ") {
            let delay: u64 = std::str::from_utf8(delay).unwrap().parse().unwrap();
            self.alarms.push((now.mono + delay, *arrival));
        } else if bytes == b"ask" {
            self.next += 1;
            self.asked.insert(self.next, *arrival);
            let (mailbox, number) = (self.handle.mailbox(self.index), self.next);
            self.handle.services().spawn(async move { mailbox.send(number) });
        } else if bytes == b"bad between good" {
            let start = out.start();
            out.bytes.extend_from_slice(b"good");
            let range = start..out.bytes.len();
            out.send(arrival.reply(), range.clone(), 0);
            let mut bad = arrival.reply();
            bad.address.set_port(0);
            self.failures.insert(77, *arrival);
            out.send(bad, range.clone(), 77);
            out.send(arrival.reply(), range, 0);
        } else {
            let start = out.start();
            out.bytes.extend_from_slice(bytes);
            out.send(arrival.reply(), start..out.bytes.len(), 0);
        }
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        let (over, later) = self.alarms.drain(..).partition(|(at, _)| *at <= now.mono);
        self.alarms = later;
        for (_, arrival) in &over as &Vec<(u64, Arrival)> {
            self.say(arrival, "passed", out);
        }
    }

    fn deadline(&mut self) -> Option<u64> {
        self.alarms.iter().map(|a| a.0).min()
    }

    fn answered(&mut self, _: Now, answer: u32, out: &mut Outbox) {
        let to = self.asked.remove(&answer).unwrap();
        self.say(&to, "answered", out);
    }

    fn failed(&mut self, _: Now, token: u64, out: &mut Outbox) {
        let to = self.failures.remove(&token).unwrap();
        self.say(&to, "failed", out);
    }

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}

    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }

    fn import(&mut self, _: Now, _: (), _: &mut Outbox) {}
}

/// The services of these tests send no final responses: a peer with an open request would wait forever.
pub(crate) fn bounds() -> Bounds {
    let soon = Duration::from_millis(50);
    let lifetimes = Lifetimes { transaction: soon, ..Lifetimes::default() };
    Bounds { answer_timeout: soon, lifetimes, ..Bounds::default() }
}

pub(crate) fn settings(shards: usize) -> NetSettings {
    NetSettings { shards: Shards::Fixed(shards), bounds: bounds(), ..NetSettings::default() }
}

/// Starts an echo server with one listener for each of `binds`.
pub(crate) fn start(settings: NetSettings, binds: &[(Transport, &str)]) -> Node<Echo> {
    let listeners = binds.iter().map(|(t, bind)| Listener::new(*t, bind.parse::<SocketAddr>().unwrap())).collect();
    Net::bind(settings, listeners)
        .unwrap()
        .spawn(|index, handle| Echo {
            index,
            handle,
            alarms: Vec::new(),
            asked: HashMap::new(),
            failures: HashMap::new(),
            next: 0,
        })
        .unwrap()
}
