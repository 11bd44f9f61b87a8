//! Binding of the listeners and start of the shards.

use crate::balancers::Balancers;
use crate::directory::Directory;
use crate::extension::{Extension, Plain, WithSockets};
use crate::listen_socket::{ListenSocket, Origin};
use crate::network::Network;
use crate::peer_names::PeerNames;
use crate::process::{Factory, Process, ShardEntry, ShardPool};
use crate::settings::Shards;
use crate::shard_pool;
use crate::source_addresses::SourceAddresses;
use crate::sources::Sources;
use crate::tls::Identities;
use crate::{Failure, Handle, Listener, NetSettings, Service, ServiceWithSockets, bounds};
use arc_swap::ArcSwap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use strowger_core::PeerName;

/// Bound listeners.
pub struct Net {
    settings: NetSettings,
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    sockets: Vec<(ListenSocket, Origin)>,
    identities: Identities,
    bounds: bounds::Current,
    names: Arc<PeerNames>,
}

impl Net {
    /// Binds all listeners.
    ///
    /// # Errors
    /// A listener could not be bound, or its certificates not be read; the text names it.
    pub fn bind(settings: NetSettings, listeners: Vec<Listener>) -> io::Result<Self> {
        Self::with_sockets(settings, listeners, Vec::new())
    }

    /// Binds the listeners for which `sockets` has no open socket. A given socket belongs to the listener with its
    /// transport and exact address; a stream socket need not listen yet. If there may be several shards, the shards
    /// after the first bind their own sockets to the same address. If the kernel refuses this, because the socket
    /// belongs to another user, they share the given socket: all shards accept its connections, and the first shard
    /// reads its datagrams and passes on those of other shards' calls.
    ///
    /// # Errors
    /// As [`Net::bind`]; and [`io::ErrorKind::InvalidInput`] if no listener has the address of a socket, or an IPv6 socket takes IPv4 too.
    pub fn with_sockets(
        settings: NetSettings,
        listeners: Vec<Listener>,
        mut given: Vec<ListenSocket>,
    ) -> io::Result<Self> {
        let identities = Identities::load(&listeners, &settings.tls)?;
        let bounds = Arc::new(ArcSwap::from_pointee(settings.bounds.clone()));
        let names = Arc::new(PeerNames::new(bounds.clone()));
        let (addresses, sockets) = Default::default();
        let mut net = Self { settings, listeners, addresses, sockets, identities, bounds, names };
        for listener in &net.listeners {
            let named = |e: io::Error| {
                let cure = match e.kind() {
                    io::ErrorKind::AddrInUse => "; another process has this port: `ss -lunp` and `ss -ltnp` show which",
                    _ => "",
                };
                listener.named(&e, cure)
            };
            let mine = given.iter().position(|socket| socket.serves(listener.transport, listener.bind));
            let (address, socket, origin) = match mine.map(|i| given.swap_remove(i)) {
                Some(socket) => {
                    socket.adopt(net.settings.shards.most() > 1, &net.settings).map_err(named)?;
                    (listener.bind, socket, Origin::Inherited)
                }
                None => open(listener, &net.settings).map(|(a, socket)| (a, socket, Origin::Opened)).map_err(named)?,
            };
            net.addresses.push(address);
            net.sockets.push((socket, origin));
        }
        if let Some(socket) = given.first() {
            let words = format!("{socket}: an open socket was given, and no listener has this transport and address");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        Ok(net)
    }

    /// Returns the bound addresses, in the order of the listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the number of a name; see [`Handle::name`].
    pub fn name(&self, name: &str) -> PeerName {
        self.names.intern(name)
    }

    /// Returns the names with their numbers, which the shards use too.
    pub fn names(&self) -> Arc<PeerNames> {
        self.names.clone()
    }

    /// Starts the shards. `factory` creates the service of a shard, on its thread.
    ///
    /// # Errors
    /// A thread could not be started, or a socket not be watched.
    pub fn spawn<S, F>(self, factory: F) -> io::Result<Node<S>>
    where
        S: Service + 'static,
        F: Fn(usize, Handle<S>) -> S + Send + Sync + 'static,
    {
        self.spawn_as::<S, Plain>(Box::new(factory))
    }

    /// Starts the shards for a service that opens sockets for itself.
    ///
    /// # Errors
    /// As [`Net::spawn`].
    pub fn spawn_with_sockets<S, F>(self, factory: F) -> io::Result<Node<S>>
    where
        S: ServiceWithSockets + 'static,
        F: Fn(usize, Handle<S>) -> S + Send + Sync + 'static,
    {
        self.spawn_as::<S, WithSockets>(Box::new(factory))
    }

    fn spawn_as<S: Service + 'static, X: Extension<S>>(self, factory: Factory<S>) -> io::Result<Node<S>> {
        let services = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (over, ended) = tokio::sync::oneshot::channel::<()>();
        let (first, peers, prefix) = (self.settings.shards.first(), self.settings.udp.peers, self.settings.ipv6_prefix);
        let process = Arc::new(Process {
            entries: (0..self.settings.shards.most()).map(|_| ShardEntry::default()).collect(),
            network: Arc::new(Network {
                settings: self.settings,
                balancers: ArcSwap::from_pointee(Balancers::of(&self.listeners)),
                listeners: self.listeners,
                addresses: self.addresses,
                identities: ArcSwap::from_pointee(self.identities),
                bounds: self.bounds,
                directory: Directory::new(self.names.clone()),
                sources: Sources::new(prefix),
                source_addresses: Arc::new(SourceAddresses::new(peers)),
                names: self.names,
            }),
            active: AtomicUsize::new(1),
            owners: shard_pool::owners(1),
            draining: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            failure: Default::default(),
            services: services.handle().clone(),
            pool: Mutex::new(ShardPool {
                started: 0,
                threads: Vec::new(),
                factory: Some(Arc::new(factory)),
                run: shard_pool::run::<S, X>,
                open_listeners: Vec::new(),
            }),
        });
        let handle = Handle { process };
        let thread = std::thread::Builder::new().name("services".into()).spawn(move || {
            let _ = services.block_on(ended);
            services.shutdown_timeout(std::time::Duration::from_secs(2));
        })?;
        let node = Node { handle, services: Some((over, thread)) };
        let process = &node.handle.process;
        {
            let mut pool = process.pool.lock().unwrap_or_else(|e| e.into_inner());
            shard_pool::start(process, &mut pool, Some(self.sockets))?;
        }
        if first > 1 {
            shard_pool::set(process, first)?;
            shard_pool::wait(process, || shard_pool::is_settled(process))?;
        }
        if matches!(process.settings.shards, Shards::Auto { most: 2.. }) {
            node.handle.spawn("the watch over the number of shards", shard_pool::watch(node.handle.clone()));
        }
        Ok(node)
    }
}

/// Opens the first socket of a listener. If more sockets will join its group, tries an exclusive socket first:
/// otherwise a second server on the same address would silently get half of the traffic.
fn open(listener: &Listener, settings: &NetSettings) -> io::Result<(SocketAddr, ListenSocket)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let alone = ListenSocket::open(listener.transport, listener.bind, false, settings)?;
        let address = alone.address()?;
        if settings.shards.most() == 1 {
            return Ok((address, alone));
        }
        drop(alone);
        match ListenSocket::open(listener.transport, address, true, settings) {
            // Another program has bound the port that the system chose, so the system chooses another port.
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && listener.bind.port() == 0 && tries < PORT_TRIES => (),
            opened => return Ok((address, opened?)),
        }
    }
}

/// Attempts if the system chooses the port.
const PORT_TRIES: usize = 16;

/// Running shards; a drop ends them.
pub struct Node<S: Service + 'static> {
    handle: Handle<S>,
    services: Option<(tokio::sync::oneshot::Sender<()>, JoinHandle<()>)>,
}

impl<S: Service + 'static> Node<S> {
    /// Returns the handle for other threads.
    pub fn handle(&self) -> &Handle<S> {
        &self.handle
    }

    /// Waits until the shards have ended.
    ///
    /// # Errors
    /// The shards ended because of a failure, not by request.
    pub fn join(mut self) -> Result<(), Failure> {
        self.wait();
        let failure = self.handle.process.failure.borrow().clone();
        failure.map_or(Ok(()), Err)
    }

    fn wait(&mut self) {
        loop {
            // The threads are not joined under the lock, because shards may be started meanwhile.
            let thread = self.handle.process.pool.lock().unwrap_or_else(|e| e.into_inner()).threads.pop();
            match thread {
                Some(thread) => drop(thread.join()),
                None => break,
            }
        }
        // Frees the addresses and the factory, even if a handle is still held.
        let factory = {
            let mut pool = self.handle.process.pool.lock().unwrap_or_else(|e| e.into_inner());
            pool.open_listeners.clear();
            pool.factory.take()
        };
        drop(factory);
        if let Some((over, thread)) = self.services.take() {
            let _ = over.send(());
            let _ = thread.join();
        }
    }
}

impl<S: Service + 'static> Drop for Node<S> {
    fn drop(&mut self) {
        self.handle.stop();
        self.wait();
    }
}
