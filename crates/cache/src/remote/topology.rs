//! Connections of one thread to the servers of a cache: takes requests from a queue, passes each to the connection of
//! its key, and returns answers.
//!
//! Requests that a shard queues in a round leave in one write per connection, and the answers in one read return to a
//! shard at once.

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
use super::{cluster::SLOTS, connection};
use crate::error::CacheError;
use crate::servers::{Endpoint, Service};
use crate::ticket::{Answered, ReceiverId, Ticket};

/// Interval of questions for the slots of a cluster, if nothing indicates a change.
const LEARN: Duration = Duration::from_secs(15);
/// Shortest pause between two such questions.
const LEARN_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of redirections of a request.
const HOPS: u8 = 4;
/// Mark of a slot without a known server.
const UNKNOWN: u16 = u16::MAX;

/// Server with its connections.
pub(super) struct CacheServer {
    pub(super) server: Endpoint,
    /// True once the server was asked whether it evicts entries.
    pub(super) is_asked: Cell<bool>,
    connections: Vec<Rc<Connection>>,
}

/// Connection to a server, open or not.
pub(super) struct Connection {
    pub(super) link: RefCell<Link>,
    /// Notified when there are bytes to send, or the connection must end.
    pub(super) wake: Notify,
    /// Set when the server does not answer.
    pub(super) is_given_up: Cell<bool>,
    /// Set when the server has left the cluster.
    pub(super) is_retired: Cell<bool>,
}

/// State shared by the tasks of the thread.
pub(super) struct Topology {
    pub(super) shared: Arc<Shared>,
    /// Number of the thread.
    pub(super) thread: usize,
    queue: Arc<Queue>,
    nodes: RefCell<Vec<Rc<CacheServer>>>,
    /// Hashes of the servers that share the keys.
    hashes: Vec<u64>,
    /// Index in `nodes` of the server of each slot.
    slots: RefCell<Vec<u16>>,
    answers: RefCell<Vec<(ReceiverId, Answered)>>,
    /// Time of the next deadline check, or earlier than necessary.
    due: Cell<Option<Instant>>,
    /// Notified when the cluster must be asked for its slots.
    learn: Notify,
}

/// Running world. However it ends, each accepted request gets its answer.
pub(super) struct Served(Rc<Topology>);

impl Served {
    pub(super) fn new(shared: Arc<Shared>, thread: usize, queue: Arc<Queue>) -> Self {
        Self(Topology::new(shared, thread, queue))
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

impl Topology {
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

    /// Tells whether this is the engine's own thread, which does the common work.
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
            // Answers in time do not change the alarm: it fires once per deadline interval, not once per request.
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

    /// Stops the queue, and answers all open requests.
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
            // Keys and values are far below 4 GiB.
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

    /// Returns the server of a key.
    fn node_of(&self, key: &[u8]) -> Rc<CacheServer> {
        let nodes = self.nodes.borrow();
        let place = match self.shared.settings.service {
            Service::Memcached if self.hashes.len() > 1 => cluster::chosen(key, &self.hashes),
            Service::Cluster => match self.slots.borrow()[cluster::slot(key)] {
                // Any server that answers redirects to the right one.
                UNKNOWN => nodes.iter().position(|node| node.is_up()).unwrap_or(0),
                place => usize::from(place),
            },
            _ => 0,
        };
        nodes[place].clone()
    }

    fn hand(&self, node: &CacheServer, flight: Flight, value: &[u8]) {
        // Requests for one key use one connection, in order. These bits of the hash differ from those that select the
        // server.
        let place = (cluster::hash(&flight.key) >> 32) as usize % node.connections.len();
        let connection = &node.connections[place];
        let mut events = Vec::new();
        if connection.link.borrow_mut().ask(flight, value, &mut events) {
            connection.wake.notify_one();
        }
        for event in events {
            // A connection that accepts a request does not redirect it.
            if let Event::Answered(answering) = event {
                self.answer(answering);
            }
        }
    }

    /// Handles the results of requests on a connection to this server.
    pub(super) fn settle(self: &Rc<Self>, events: &mut Vec<Event>, by: &CacheServer) {
        for event in events.drain(..) {
            match event {
                Event::Answered(answering) => self.answer(answering),
                Event::Elsewhere(flight, address, once) => self.redirect(flight, &address, once, by),
                Event::Denied(words) => self.log_denial(&words, by),
            }
        }
    }

    /// Logs a refusal: each reason repeatedly at intervals, since it may apply to all requests.
    fn log_denial(&self, reason: &str, by: &CacheServer) {
        self.shared.denied();
        if self.shared.said.is_news(&by.server, reason, DENIED) {
            tracing::warn!(cache = self.shared.settings.name, server = %by.server, reason, "cache server refuses");
        }
    }

    fn redirect(self: &Rc<Self>, mut flight: Flight, address: &str, once: bool, by: &CacheServer) {
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

    /// Returns all available answers to their callers.
    pub(super) fn hand_out(&self) {
        let answers = std::mem::take(&mut *self.answers.borrow_mut());
        self.shared.receivers.hand_out(answers);
    }

    /// Records an opened connection.
    pub(super) fn opened(&self, connection: &Connection) {
        connection.link.borrow_mut().opened();
        self.shared.figures.connected.fetch_add(1, Ordering::Relaxed);
        self.count_connections();
    }

    /// Records a connection that was lost, or could not be opened.
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

    /// Answers requests whose deadline has passed.
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

    /// Returns the index of a server; creates it and its connections if it is unknown.
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
        // A shard has one: its requests of a round leave together.
        let connections = if self.is_first() { settings.connections.max(1) } else { 1 };
        let node = Rc::new(CacheServer {
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

    /// Asks the cluster repeatedly for its slots.
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

    /// Returns the known servers; those that answer come first.
    fn servers(&self) -> Vec<Endpoint> {
        let nodes = self.nodes.borrow();
        let (mut servers, down): (Vec<&Rc<CacheServer>>, Vec<&Rc<CacheServer>>) =
            nodes.iter().partition(|node| node.is_up());
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

impl CacheServer {
    /// Tells whether this connection represents its server.
    pub(super) fn is_first(&self, connection: &Rc<Connection>) -> bool {
        self.connections.first().is_some_and(|first| Rc::ptr_eq(first, connection))
    }

    fn is_up(&self) -> bool {
        self.connections.iter().any(|connection| connection.link.borrow().state() == State::Up)
    }

    /// Tells whether a connection could not be opened, or was closed because the server did not answer. Other
    /// connections may be idle and untested.
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
