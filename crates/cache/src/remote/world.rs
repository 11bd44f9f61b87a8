//! The connections that one thread has to the servers of a cache: takes requests from a queue, hands each to the connection that its key belongs
//! to, gives answers back.
//!
//! What a shard queues in a round leaves in one write for each connection, and what one read brings goes back to a shard at once.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::cluster::{self, Share};
use super::dial::ask_cluster;
use super::flight::Flight;
use super::link::{Answering, Bounds, Event, Link, State};
use super::queue::{Job, Jobs, Queue};
use super::shared::{DENIED, Shared};
use super::wire::Wire;
use super::{cluster::SLOTS, connection, subscription};
use crate::error::CacheError;
use crate::servers::{Endpoint, Service};
use crate::ticket::{Answered, ReceiverId, Ticket};

/// How often a cluster is asked which server has which slots, if nothing tells that it has changed.
const LEARN: Duration = Duration::from_secs(15);
/// Shortest pause between two such questions.
const LEARN_PAUSE: Duration = Duration::from_millis(200);
/// Times that a request follows to another server.
const HOPS: u8 = 4;
/// No server is known for a slot.
const UNKNOWN: u16 = u16::MAX;

/// A server and the connections to it.
pub(super) struct Node {
    pub(super) server: Endpoint,
    /// It was asked whether it evicts.
    pub(super) is_asked: Cell<bool>,
    connections: Vec<Rc<Connection>>,
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
    pub(super) shared: Arc<Shared>,
    /// The number of the thread.
    pub(super) thread: usize,
    queue: Arc<Queue>,
    nodes: RefCell<Vec<Rc<Node>>>,
    /// Of servers among which keys are shared out.
    hashes: Vec<u64>,
    /// Place in `nodes` of the server that has a slot.
    slots: RefCell<Vec<u16>>,
    answers: RefCell<Vec<(ReceiverId, Answered)>>,
    /// Deadlines are looked after then, or later.
    due: Cell<Option<Instant>>,
    /// The cluster is to be asked for its slots.
    learn: Notify,
}

/// A world that is served. However that ends, each request that was taken gets its answer.
pub(super) struct Served(Rc<World>);

impl Served {
    pub(super) fn new(shared: Arc<Shared>, thread: usize, queue: Arc<Queue>) -> Self {
        Self(World::new(shared, thread, queue))
    }

    /// Serves until the queue is stopped.
    pub(super) async fn serve(self) {
        self.0.serve().await;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cache = &self.0.shared.settings.name;
            tracing::error!(
                cache,
                "a thread of a cache ended by a panic: to those who ask by it the cache is not available"
            );
        }
        self.0.end();
    }
}

impl World {
    fn new(shared: Arc<Shared>, thread: usize, queue: Arc<Queue>) -> Rc<Self> {
        let hashes =
            shared.settings.servers.iter().map(|server| cluster::hash(server.to_string().as_bytes())).collect();
        let slots = if shared.settings.service == Service::Cluster { vec![UNKNOWN; SLOTS] } else { Vec::new() };
        Rc::new(Self {
            shared,
            thread,
            queue,
            nodes: RefCell::default(),
            hashes,
            slots: RefCell::new(slots),
            answers: RefCell::default(),
            due: Cell::new(None),
            learn: Notify::new(),
        })
    }

    /// Whether it is that of the engine's own thread, which does what is done once for all.
    pub(super) const fn is_first(&self) -> bool {
        self.thread == 0
    }

    async fn serve(self: &Rc<Self>) {
        let settings = &self.shared.settings;
        // Sentinels are asked for one server.
        let single = matches!(settings.service, Service::Redis { .. } | Service::Sentinel { .. });
        for server in settings.servers.iter().take(if single { 1 } else { usize::MAX }) {
            self.node(server);
        }
        if settings.service == Service::Cluster {
            tokio::task::spawn_local(self.clone().keep_learning());
        }
        if settings.service != Service::Memcached && self.is_first() {
            tokio::task::spawn_local(subscription::keep(self.clone()));
        }
        let mut jobs = Jobs::default();
        let mut alarm = pin!(tokio::time::sleep(Duration::ZERO));
        let mut armed: Option<Instant> = None;
        while !self.queue.is_stopped() {
            self.queue.take(&mut jobs);
            for job in jobs.list.drain(..) {
                self.dispatch(job, &jobs.bytes);
            }
            jobs.clear();
            self.hand_out();
            // Answers that come in time leave it as it is: it rings once in the time of a deadline, not once for each request.
            if let Some(due) = self.due.get().filter(|due| armed.is_none_or(|armed| *due < armed)) {
                alarm.as_mut().reset(due.into());
                armed = Some(due);
            }
            tokio::select! {
                () = self.queue.wake.notified() => {}
                () = &mut alarm, if armed.is_some() => {
                    armed = None;
                    self.expire();
                }
            }
        }
    }

    /// Takes no more, and answers all that has none.
    fn end(&self) {
        self.queue.stop();
        for node in self.nodes.borrow().iter() {
            for connection in &node.connections {
                self.lose(connection, State::Down);
            }
        }
        let mut jobs = Jobs::default();
        self.queue.take(&mut jobs);
        for job in jobs.list.drain(..) {
            let size = (job.value.end - job.key.start) as u32;
            let (ticket, op, result) = (job.ticket, job.op, Err(CacheError::Unavailable));
            self.answer(Answering { ticket, op, size, result, value: Box::default() });
        }
        self.hand_out();
        self.queue.silent.store(0, Ordering::Relaxed);
        self.shared.said.forget(self.thread);
    }

    fn dispatch(&self, job: Job, bytes: &[u8]) {
        let (key, value) = (&bytes[job.key], &bytes[job.value]);
        self.due.set(Some(self.due.get().map_or(job.due, |due| due.min(job.due))));
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
            _claim: job.claim,
        };
        let node = self.node_of(key);
        self.hand(&node, flight, value);
    }

    /// The server that has a key.
    fn node_of(&self, key: &[u8]) -> Rc<Node> {
        let nodes = self.nodes.borrow();
        let place = match self.shared.settings.service {
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
                Event::Denied(words) => self.log_denial(&words, by),
            }
        }
    }

    /// Logs why a server does not do what it is asked: each of its reasons now and then, since it may be that of all requests.
    fn log_denial(&self, reason: &str, by: &Node) {
        self.shared.denied();
        if self.shared.said.is_news(&by.server, reason, DENIED) {
            tracing::warn!(cache = self.shared.settings.name, server = %by.server, reason, "cache server refuses");
        }
    }

    fn redirect(self: &Rc<Self>, mut flight: Flight, address: &str, once: bool, by: &Node) {
        let Some(ticket) = flight.ticket else { return };
        let server =
            cluster::redirected(address, &by.server).filter(|_| self.shared.settings.service == Service::Cluster);
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
        self.queue.connections.store(up, Ordering::Relaxed);
        self.queue.usable.store(usable, Ordering::Relaxed);
        self.queue.silent.store(silent, Ordering::Relaxed);
    }

    /// Answers requests whose deadline has come.
    fn expire(&self) {
        let (now, mut events, mut next) = (Instant::now(), Vec::new(), None);
        for node in self.nodes.borrow().iter() {
            for connection in &node.connections {
                let mut link = connection.link.borrow_mut();
                if link.expire(now, &mut events) {
                    connection.is_given_up.set(true);
                    connection.wake.notify_one();
                } else {
                    next = next.into_iter().chain(link.next_due()).min();
                }
            }
        }
        self.due.set(next);
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
        let settings = &self.shared.settings;
        let wire = if settings.service == Service::Memcached { Wire::Memcached } else { Wire::Redis };
        let bounds = Bounds { value: settings.value, timeout: settings.timeout, misses: settings.misses };
        let make = |_| {
            Rc::new(Connection {
                link: RefCell::new(Link::new(wire, bounds, settings.service == Service::Cluster)),
                wake: Notify::new(),
                is_given_up: Cell::new(false),
                is_retired: Cell::new(false),
            })
        };
        // A shard asks by one: what it asks in a round leaves together.
        let connections = if self.is_first() { settings.connections.max(1) } else { 1 };
        let node = Rc::new(Node {
            server: server.clone(),
            is_asked: Cell::new(false),
            connections: (0..connections).map(make).collect(),
        });
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
            if was_known && !is_known && self.is_first() {
                tracing::warn!(cache = self.shared.settings.name, "no server of the cluster says which slots it has");
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
        for server in &self.shared.settings.servers {
            if !servers.contains(server) {
                servers.push(server.clone());
            }
        }
        servers
    }

    async fn learn_slots(self: &Rc<Self>) -> bool {
        for server in self.servers() {
            match ask_cluster(&self.shared.settings, &server).await {
                Ok(said) => match cluster::shares(&said.bytes, &said.reply, &server) {
                    Some(shares) if !shares.is_empty() => {
                        self.learned(&shares);
                        return true;
                    }
                    _ => {
                        tracing::debug!(cache = self.shared.settings.name, %server, "a server of the cluster knows no slots")
                    }
                },
                Err(error) => {
                    tracing::debug!(cache = self.shared.settings.name, %server, %error, "a server gives no slots")
                }
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
