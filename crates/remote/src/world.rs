//! The thread of an engine: takes requests from the queue, hands each to the connection that its key belongs to, gives answers back.
//!
//! One thread has all connections of an engine: what a shard queues in a round leaves in one write for each connection, and what one read
//! brings goes back to a shard at once.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::cluster::{self, Share};
use super::dial::ask_cluster;
use super::flight::Flight;
use super::link::{Answering, Bounds, Event, Link, State};
use super::queue::{Job, Jobs, Shared};
use super::settings::RemoteSettings;
use super::wire::Wire;
use super::{cluster::SLOTS, connection, subscription};
use strowger_cache::error::CacheError;
use strowger_cache::servers::{Endpoint, Service};
use strowger_cache::ticket::{Answered, ReceiverId, Ticket};

/// How often deadlines are looked after while requests are under way: they are kept within twice that.
const STEP: Duration = Duration::from_millis(20);
/// How often a cluster is asked which server has which slots, if nothing tells that it has changed.
const LEARN: Duration = Duration::from_secs(15);
/// Shortest pause between two such questions.
const LEARN_PAUSE: Duration = Duration::from_millis(200);
/// Times that a request follows to another server.
const HOPS: u8 = 4;
/// No server is known for a slot.
const UNKNOWN: u16 = u16::MAX;

/// A reason for which a server does not do what it is asked is logged once in so long, and so long it is said to be one that refuses.
pub(super) const DENIED: Duration = Duration::from_secs(60);
/// Most reasons that are logged in that time.
const REASONS: usize = 8;

/// A server and the connections to it.
pub(super) struct Node {
    pub(super) server: Endpoint,
    connections: Vec<Rc<Connection>>,
    /// Why it did not do what it was asked, as it was logged, and when.
    said: RefCell<Vec<(String, Instant)>>,
}

/// A connection to a server, while there is one and while there is none.
pub(super) struct Connection {
    pub(super) link: RefCell<Link>,
    /// There are bytes to send, or it is to end.
    pub(super) wake: Notify,
    /// The server does not answer.
    pub(super) is_given_up: Cell<bool>,
    /// The server is none of the cluster any more.
    pub(super) is_retired: Cell<bool>,
}

/// What the tasks of the thread share.
pub(super) struct World {
    pub(super) settings: RemoteSettings,
    pub(super) shared: Arc<Shared>,
    nodes: RefCell<Vec<Rc<Node>>>,
    /// Of servers among which keys are shared out.
    hashes: Vec<u64>,
    /// Place in `nodes` of the server that has a slot.
    slots: RefCell<Vec<u16>>,
    answers: RefCell<Vec<(ReceiverId, Answered)>>,
    /// The cluster is to be asked for its slots.
    learn: Notify,
}

impl World {
    pub(super) fn new(settings: RemoteSettings, shared: Arc<Shared>) -> Rc<Self> {
        let hashes = settings.servers.iter().map(|server| cluster::hash(server.to_string().as_bytes())).collect();
        let slots = if settings.service == Service::Cluster { vec![UNKNOWN; SLOTS] } else { Vec::new() };
        Rc::new(Self {
            settings,
            shared,
            nodes: RefCell::default(),
            hashes,
            slots: RefCell::new(slots),
            answers: RefCell::default(),
            learn: Notify::new(),
        })
    }

    /// Serves until the engine is dropped.
    pub(super) async fn serve(self: &Rc<Self>) {
        // Sentinels are asked for one server.
        let single = matches!(self.settings.service, Service::Redis { .. } | Service::Sentinel { .. });
        for server in self.settings.servers.iter().take(if single { 1 } else { usize::MAX }) {
            self.node(server);
        }
        if self.settings.service == Service::Cluster {
            tokio::task::spawn_local(self.clone().keep_learning());
        }
        if self.settings.service != Service::Memcached {
            tokio::task::spawn_local(subscription::keep(self.clone()));
        }
        let mut jobs = Jobs::default();
        let mut step = pin!(tokio::time::sleep(Duration::ZERO));
        let mut is_armed = false;
        while !self.shared.is_stopped() {
            self.shared.take(&mut jobs);
            for job in &jobs.list {
                self.dispatch(job, &jobs.bytes);
            }
            jobs.clear();
            self.hand_out();
            if !is_armed && self.shared.in_flight.load(Ordering::Relaxed) > 0 {
                step.as_mut().reset(tokio::time::Instant::now() + STEP);
                is_armed = true;
            }
            tokio::select! {
                () = self.shared.wake.notified() => {}
                () = &mut step, if is_armed => {
                    is_armed = false;
                    self.expire();
                }
            }
        }
    }

    /// Answers all that has none.
    pub(super) fn end(&self) {
        for node in self.nodes.borrow().iter() {
            for connection in &node.connections {
                self.lose(connection, State::Down);
            }
        }
        let mut jobs = Jobs::default();
        self.shared.take(&mut jobs);
        for job in &jobs.list {
            let size = (job.value.end - job.key.start) as u32;
            let (ticket, op, result) = (job.ticket, job.op, Err(CacheError::Unavailable));
            self.answer(Answering { ticket, op, size, result, value: Box::default() });
        }
        self.hand_out();
    }

    fn dispatch(self: &Rc<Self>, job: &Job, bytes: &[u8]) {
        let (key, value) = (&bytes[job.key.clone()], &bytes[job.value.clone()]);
        let flight = Flight {
            op: job.op,
            key: key.into(),
            value: None,
            // Bounds of keys and values are far below 4 GiB.
            size: (key.len() + value.len()) as u32,
            ticket: Some(job.ticket),
            due: job.due,
            hops: 0,
            is_asking: false,
        };
        let node = self.node_of(key);
        self.hand(&node, flight, value);
    }

    /// The server that has a key.
    fn node_of(&self, key: &[u8]) -> Rc<Node> {
        let nodes = self.nodes.borrow();
        let place = match self.settings.service {
            Service::Memcached if self.hashes.len() > 1 => cluster::chosen(key, &self.hashes),
            Service::Cluster => match self.slots.borrow()[cluster::slot(key)] {
                // Any server that answers says which one has it.
                UNKNOWN => nodes.iter().position(|node| node.is_up()).unwrap_or(0),
                place => usize::from(place),
            },
            _ => 0,
        };
        nodes[place].clone()
    }

    fn hand(&self, node: &Node, flight: Flight, value: &[u8]) {
        // Requests for one key go by one connection, in their order. Other bits than those that choose the server.
        let place = (cluster::hash(&flight.key) >> 32) as usize % node.connections.len();
        let connection = &node.connections[place];
        let mut events = Vec::new();
        if connection.link.borrow_mut().ask(flight, value, &mut events) {
            connection.wake.notify_one();
        }
        for event in events {
            // A connection that takes a request leads it nowhere else.
            if let Event::Answered(answering) = event {
                self.answer(answering);
            }
        }
    }

    /// Takes what came of requests by a connection to this server.
    pub(super) fn settle(self: &Rc<Self>, events: &mut Vec<Event>, by: &Node) {
        for event in events.drain(..) {
            match event {
                Event::Answered(answering) => self.answer(answering),
                Event::Elsewhere(flight, address, once) => self.redirect(flight, &address, once, by),
                Event::Denied(words) => self.log_denial(words, by),
            }
        }
    }

    /// Logs why a server does not do what it is asked: each of its reasons now and then, since it may be that of all requests.
    fn log_denial(&self, words: String, by: &Node) {
        let now = Instant::now();
        *self.shared.denied.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        let mut said = by.said.borrow_mut();
        said.retain(|(_, at)| now.duration_since(*at) < DENIED);
        if said.len() < REASONS && said.iter().all(|(other, _)| *other != words) {
            tracing::warn!(cache = self.settings.name, server = %by.server, reason = words, "cache server refuses");
            said.push((words, now));
        }
    }

    fn redirect(self: &Rc<Self>, mut flight: Flight, address: &str, once: bool, by: &Node) {
        let Some(ticket) = flight.ticket else { return };
        let server = cluster::redirected(address, &by.server).filter(|_| self.settings.service == Service::Cluster);
        let Some(server) = server.filter(|_| flight.hops < HOPS) else {
            let (op, size, result) = (flight.op, flight.size, Err(CacheError::Unavailable));
            return self.answer(Answering { ticket, op, size, result, value: Box::default() });
        };
        flight.hops += 1;
        flight.is_asking = once;
        let place = self.node(&server);
        if !once {
            self.slots.borrow_mut()[cluster::slot(&flight.key)] = place as u16;
            self.learn.notify_one();
        }
        let node = self.nodes.borrow()[place].clone();
        let value = flight.value.take().unwrap_or_default();
        self.hand(&node, flight, &value);
    }

    fn answer(&self, answering: Answering) {
        let Answering { ticket, op, size, result, value } = answering;
        self.shared.count(op, size, result);
        if ticket.receiver != Ticket::NONE.receiver {
            self.answers.borrow_mut().push((ticket.receiver, Answered { ticket: ticket.value, result, value }));
        }
    }

    /// Gives answers to those who asked, all that there are at once.
    pub(super) fn hand_out(&self) {
        let answers = std::mem::take(&mut *self.answers.borrow_mut());
        self.shared.receivers.hand_out(answers);
    }

    /// A connection was made.
    pub(super) fn opened(&self, connection: &Connection) {
        connection.link.borrow_mut().opened();
        self.shared.figures.connected.fetch_add(1, Ordering::Relaxed);
        self.count_connections();
    }

    /// A connection was lost, or could not be made.
    pub(super) fn lose(&self, connection: &Connection, state: State) {
        let mut events = Vec::new();
        connection.link.borrow_mut().lost(state, &mut events);
        for event in events {
            if let Event::Answered(answering) = event {
                self.answer(answering);
            }
        }
        self.count_connections();
        self.hand_out();
        self.learn.notify_one();
    }

    fn count_connections(&self) {
        let (mut up, mut usable, mut silent) = (0, 0, 0);
        for node in self.nodes.borrow().iter() {
            for connection in &node.connections {
                let state = connection.link.borrow().state();
                up += usize::from(state == State::Up);
                usable += usize::from(state != State::Down);
            }
            silent += usize::from(!node.is_retired() && node.is_silent());
        }
        self.shared.figures.connections.store(up, Ordering::Relaxed);
        self.shared.usable.store(usable, Ordering::Relaxed);
        self.shared.silent.store(silent, Ordering::Relaxed);
    }

    /// Answers requests whose deadline has come.
    fn expire(&self) {
        let (now, mut events) = (Instant::now(), Vec::new());
        for node in self.nodes.borrow().iter() {
            for connection in &node.connections {
                if connection.link.borrow_mut().expire(now, &mut events) {
                    connection.is_given_up.set(true);
                    connection.wake.notify_one();
                }
            }
        }
        for event in events {
            if let Event::Answered(answering) = event {
                self.answer(answering);
            }
        }
        self.hand_out();
    }

    /// The place of a server; it and its connections are made if it is not known.
    fn node(self: &Rc<Self>, server: &Endpoint) -> usize {
        let known = self.nodes.borrow().iter().position(|node| node.server == *server);
        if let Some(place) = known.filter(|place| !self.nodes.borrow()[*place].is_retired()) {
            return place;
        }
        let wire = if self.settings.service == Service::Memcached { Wire::Memcached } else { Wire::Redis };
        let bounds =
            Bounds { value: self.settings.value, timeout: self.settings.timeout, misses: self.settings.misses };
        let make = |_| {
            Rc::new(Connection {
                link: RefCell::new(Link::new(wire, bounds, self.settings.service == Service::Cluster)),
                wake: Notify::new(),
                is_given_up: Cell::new(false),
                is_retired: Cell::new(false),
            })
        };
        let connections: Vec<_> = (0..self.settings.connections.max(1)).map(make).collect();
        let node = Rc::new(Node { server: server.clone(), connections, said: RefCell::default() });
        for connection in &node.connections {
            tokio::task::spawn_local(connection::keep(self.clone(), node.clone(), connection.clone()));
        }
        let mut nodes = self.nodes.borrow_mut();
        let place = known.unwrap_or(nodes.len());
        if place < nodes.len() {
            nodes[place] = node;
        } else {
            nodes.push(node);
        }
        drop(nodes);
        self.count_connections();
        place
    }

    /// Asks the cluster again and again which server has which slots.
    async fn keep_learning(self: Rc<Self>) {
        let mut was_known = true;
        loop {
            let is_known = self.learn_slots().await;
            if was_known && !is_known {
                tracing::warn!(cache = self.settings.name, "no server of the cluster says which slots it has");
            }
            was_known = is_known;
            tokio::time::sleep(LEARN_PAUSE).await;
            if is_known {
                let _ = tokio::time::timeout(LEARN, self.learn.notified()).await;
            }
        }
    }

    /// The servers that are known, those first that answer.
    pub(super) fn servers(&self) -> Vec<Endpoint> {
        let nodes = self.nodes.borrow();
        let (mut servers, down): (Vec<&Rc<Node>>, Vec<&Rc<Node>>) = nodes.iter().partition(|node| node.is_up());
        servers.extend(down);
        let mut servers: Vec<Endpoint> = servers.into_iter().map(|node| node.server.clone()).collect();
        for server in &self.settings.servers {
            if !servers.contains(server) {
                servers.push(server.clone());
            }
        }
        servers
    }

    async fn learn_slots(self: &Rc<Self>) -> bool {
        for server in self.servers() {
            match ask_cluster(&self.settings, &server).await {
                Ok(said) => match cluster::shares(&said.bytes, &said.reply, &server) {
                    Some(shares) if !shares.is_empty() => {
                        self.learned(&shares);
                        return true;
                    }
                    _ => tracing::debug!(cache = self.settings.name, %server, "a server of the cluster knows no slots"),
                },
                Err(error) => tracing::debug!(cache = self.settings.name, %server, %error, "a server gives no slots"),
            }
        }
        false
    }

    fn learned(self: &Rc<Self>, shares: &[Share]) {
        let mut slots = vec![UNKNOWN; SLOTS];
        for share in shares {
            // There are fewer servers than slots.
            let place = self.node(&share.server) as u16;
            slots[share.first..=share.last].fill(place);
        }
        for (place, node) in self.nodes.borrow().iter().enumerate() {
            if !shares.iter().any(|share| share.server == node.server) && !slots.contains(&(place as u16)) {
                node.retire();
            }
        }
        *self.slots.borrow_mut() = slots;
    }
}

impl Node {
    /// Whether a connection speaks for all of its server.
    pub(super) fn is_first(&self, connection: &Rc<Connection>) -> bool {
        self.connections.first().is_some_and(|first| Rc::ptr_eq(first, connection))
    }

    fn is_up(&self) -> bool {
        self.connections.iter().any(|connection| connection.link.borrow().state() == State::Up)
    }

    /// A connection could not be made, or was given up since it did not answer. Others may be idle: nothing has tried them.
    fn is_silent(&self) -> bool {
        self.connections.iter().any(|connection| connection.link.borrow().state() == State::Down)
    }

    fn is_retired(&self) -> bool {
        self.connections.iter().any(|connection| connection.is_retired.get())
    }

    fn retire(&self) {
        for connection in &self.connections {
            connection.is_retired.set(true);
            connection.wake.notify_one();
        }
    }
}
