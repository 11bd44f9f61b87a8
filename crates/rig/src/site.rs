//! Server of a test.

use crate::host::{self, Host};
use crate::line::{Line, Listener, lock};
use crate::phone::Phone;
use crate::world::World;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use strowger_calls::CallView;
use strowger_core::Transport;
use strowger_media::session::{SessionEvent, SessionOrder, StreamReport};
use strowger_server::bounds::EngineBounds;
use strowger_server::counters::Counts;
use strowger_store::accounting::Row;

/// Server of a test, in a network of its own or [beside](Self::beside) another.
pub struct Site {
    world: Arc<Mutex<World>>,
    host: usize,
    /// Configuration of the next process.
    text: Mutex<String>,
    folder: PathBuf,
}

impl Site {
    /// Starts a server with the text of a configuration file.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn start(text: &str) -> Self {
        Self::start_in(text, Path::new(""))
    }

    /// Starts a server whose configuration has paths relative to this folder.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn start_in(text: &str, folder: &Path) -> Self {
        Self::of(Arc::new(Mutex::new(World::new())), text, EngineBounds::default(), folder)
    }

    /// Starts a server with these bounds of its engine in place of those of a process.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn start_within(text: &str, bounds: EngineBounds) -> Self {
        Self::of(Arc::new(Mutex::new(World::new())), text, bounds, Path::new(""))
    }

    /// Starts another server of the same network and clock.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn beside(&self, text: &str) -> Self {
        Self::of(self.world.clone(), text, EngineBounds::default(), Path::new(""))
    }

    fn of(world: Arc<Mutex<World>>, text: &str, bounds: EngineBounds, folder: &Path) -> Self {
        let host = {
            let mut world = lock(&world);
            let (now, config) = (world.now, host::read(text, folder));
            let host = Host::start(now, config, bounds, || world.next_port());
            world.add(host)
        };
        Self { world, host, text: Mutex::new(text.into()), folder: folder.into() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Host) -> T) -> T {
        work(&mut lock(&self.world).hosts[self.host])
    }

    /// Returns the address of its first listener with this transport.
    ///
    /// # Panics
    /// There is none.
    pub fn address(&self, transport: Transport) -> SocketAddr {
        let own = self.with(|host| host.listeners().iter().find(|(own, _)| *own == transport).copied());
        let (_, mut address) = own.unwrap_or_else(|| panic!("no listener for {}", transport.text()));
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        address
    }

    /// Returns the address of its first listener of UDP.
    ///
    /// # Panics
    /// There is none.
    pub fn udp(&self) -> SocketAddr {
        self.address(Transport::Udp)
    }

    /// Returns a free address of this machine.
    pub fn free_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, lock(&self.world).next_port()))
    }

    /// Connects a client from 127.0.0.1.
    ///
    /// # Panics
    /// There is no listener for this transport.
    pub fn connect(&self, transport: Transport) -> Line {
        self.connect_from(transport, self.free_address())
    }

    /// Connects a client from this address; port 0 leaves the choice to the system.
    ///
    /// # Panics
    /// There is no listener for this transport.
    pub fn connect_from(&self, transport: Transport, mut from: SocketAddr) -> Line {
        if from.port() == 0 {
            from.set_port(lock(&self.world).next_port());
        }
        Line::connect(&self.world, transport, from, self.address(transport)).expect("the server listens")
    }

    /// Listens for connections of servers.
    pub fn listen(&self) -> Listener {
        self.listen_at(self.free_address())
    }

    /// Listens for connections of servers at this address.
    pub fn listen_at(&self, address: SocketAddr) -> Listener {
        Listener::new(&self.world, address)
    }

    /// Returns a phone of this user of `example.org`.
    pub fn phone(&self, user: &str) -> Phone {
        Phone::new(self.connect(Transport::Udp), &format!("sip:{user}@example.org"))
    }

    /// Returns a phone of a foreign user.
    pub fn foreign_phone(&self) -> Phone {
        Phone::new(self.connect(Transport::Udp), "sip:mallory@example.net")
    }

    /// Adds a user, such as `alice@example.org`, or changes the password.
    ///
    /// # Panics
    /// The address has no domain.
    pub fn add_user(&self, address: &str, password: &str) {
        let (name, domain) = address.rsplit_once('@').expect("an address-of-record");
        self.with(|host| {
            let policy = host.shared().policy();
            let domain = policy.identity().canonical_domain(domain.as_bytes());
            let domain = String::from_utf8_lossy(domain);
            host.users().set(name, &domain, policy.config.realm_of(&domain), password);
        });
    }

    /// Removes a user, with the bindings and route tokens, as a server does within a second.
    ///
    /// # Panics
    /// The address has no domain.
    pub fn remove_user(&self, address: &str) {
        let (name, domain) = address.rsplit_once('@').expect("an address-of-record");
        let world = lock(&self.world);
        world.hosts[self.host].remove_user(world.now, name, domain);
    }

    /// Sets the addresses of a name.
    pub fn set_name(&self, name: &str, targets: &[(Transport, SocketAddr)]) {
        lock(&self.world).names.insert(name.to_ascii_lowercase(), targets.to_vec());
    }

    /// Sets the time of each look-up of a user or a name from now on; at first a millisecond.
    pub fn set_lookup_time(&self, time: Duration) {
        lock(&self.world).lookup = time.as_millis() as u64;
    }

    /// Lets time pass.
    pub fn wait(&self, time: Duration) {
        let mut world = lock(&self.world);
        let end = world.now.mono + time.as_millis() as u64;
        while world.step(end) {}
    }

    /// Handles all messages and timers until the network is quiet.
    pub fn settle(&self) {
        lock(&self.world).settle();
    }

    /// Reports to each shard for how long the oldest unread datagram has waited. The shard keeps this wait until the next report.
    pub fn report_wait(&self, wait: Duration) {
        let mut world = lock(&self.world);
        for shard in 0..world.hosts[self.host].shards() {
            world.work(self.host, shard, |now, engine, _| engine.waited(now, wait.as_micros() as u64, 0));
        }
    }

    /// Tells whether each shard has room for further messages of this peer.
    pub fn has_room(&self, peer: SocketAddr) -> bool {
        let (mut world, mut has_room) = (lock(&self.world), true);
        for shard in 0..world.hosts[self.host].shards() {
            world.work(self.host, shard, |_, engine, _| has_room &= engine.has_room(peer.ip()));
        }
        has_room
    }

    /// Makes the server accept no new requests, as a server that is about to end.
    pub fn drain(&self) {
        self.with(Host::drain);
    }

    /// Changes the text of the configuration, for the next [`restart`](Self::restart) or [`reload`](Self::reload).
    ///
    /// # Panics
    /// The text lacks `from`.
    pub fn rewrite(&self, from: &str, to: &str) {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(text.contains(from), "no {from} in {text}");
        *text = text.replace(from, to);
    }

    /// Adopts the present text of the configuration, except the keys that need a restart.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn reload(&self) {
        let config = host::read(&self.text.lock().unwrap_or_else(PoisonError::into_inner), &self.folder);
        let mut world = lock(&self.world);
        let now = world.now;
        world.hosts[self.host].reload(now, config);
    }

    /// Ends the process and starts another one, with the users and bindings of this one.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn restart(&self) {
        let config = host::read(&self.text.lock().unwrap_or_else(PoisonError::into_inner), &self.folder);
        let mut world = lock(&self.world);
        let now = world.now;
        world.hosts[self.host].restart(now, config);
        world.begin(self.host);
        drop(world);
        self.close_connections();
    }

    /// Lets another program take a port of media before the next [`restart`](Self::restart).
    pub fn take_port(&self, port: u16) {
        self.with(|host| host.foreign_ports.push(port));
    }

    /// Returns the kept states of calls, by their keys.
    pub fn kept_calls(&self) -> Vec<(u64, Box<[u8]>)> {
        self.settle();
        self.with(|host| host.kept_calls.iter().map(|(key, state)| (*key, state.clone())).collect())
    }

    /// Replaces the kept state of a call.
    pub fn set_kept_call(&self, key: u64, state: Box<[u8]>) {
        self.with(|host| host.kept_calls.insert(key, state));
    }

    /// Ends the calls with media that no next process continues, as a server does that is about to end.
    pub fn end_unkept(&self) {
        lock(&self.world).end_unkept(self.host);
    }

    /// Closes the connections of the server.
    pub fn close_connections(&self) {
        let mut world = lock(&self.world);
        for (connection, side) in world.open_of(self.host) {
            world.close(connection, side);
        }
    }

    /// Returns the number of its open connections.
    pub fn connections(&self) -> usize {
        lock(&self.world).open_of(self.host).len()
    }

    /// Returns the counters of all shards.
    pub fn counts(&self) -> Counts {
        self.with(|host| host.shared().counts())
    }

    /// Returns the tracked calls.
    pub fn calls(&self) -> Vec<CallView> {
        let world = lock(&self.world);
        world.hosts[self.host].calls(world.now)
    }

    /// Returns a tracked call as an operator sees it who asks again for the quality of its media.
    pub fn show_call(&self, id: u64) -> Option<CallView> {
        lock(&self.world).show_call(self.host, id);
        self.settle();
        lock(&self.world).show_call(self.host, id)
    }

    /// Ends the tracked call with this id, as an operator does.
    pub fn end_call(&self, id: u64) {
        lock(&self.world).end_call(self.host, id);
    }

    /// Takes all calls out of their shards as bytes, and in again.
    pub fn move_calls(&self) {
        let mut world = lock(&self.world);
        let now = world.now;
        world.hosts[self.host].move_calls(now);
    }

    /// Takes the orders to media threads about sessions since the last call.
    pub fn media_orders(&self) -> Vec<SessionOrder> {
        self.settle();
        self.with(|host| std::mem::take(&mut host.media.orders))
    }

    /// Sets the reports about the stream of each media session from now on: of the caller, and of the callee of a bridged call.
    pub fn set_stream_reports(&self, near: StreamReport, far: Option<StreamReport>) {
        self.with(|host| host.media.reports = (near, far));
    }

    /// Lets a media thread report an event.
    pub fn media_event(&self, event: SessionEvent) {
        lock(&self.world).media_event(self.host, event);
    }

    /// Takes the rows of accounting since the last call.
    pub fn rows(&self) -> Vec<Row> {
        self.settle();
        self.with(|host| std::mem::take(&mut host.rows))
    }

    /// Returns the number of bindings.
    pub fn bindings(&self) -> usize {
        self.with(|host| host.shared().location.gauges().bindings)
    }

    /// Returns the lines of its log, with the event and its fields as the program writes them.
    pub fn log(&self) -> String {
        self.with(|host| host.log.clone())
    }

    /// Returns its log, which contains this text.
    ///
    /// # Panics
    /// It does not.
    pub fn log_with(&self, text: &str) -> String {
        self.settle();
        let log = self.log();
        assert!(log.contains(text), "no {text:?} in\n{log}");
        log
    }
}
