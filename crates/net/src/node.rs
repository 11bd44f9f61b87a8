//! Binding the listeners and starting the shards.

use crate::handle::{Seat, Shared};
use crate::shard::Shard;
use crate::udp::{self, Udp};
use crate::{Handle, Listener, Service, Settings};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::JoinHandle;
use strowger_core::{ListenerId, Transport};

/// Listeners, bound.
pub struct Net {
    settings: Settings,
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    udp: Vec<(ListenerId, std::net::UdpSocket)>,
}

impl Net {
    /// Binds every listener. The error names the listener that could not be bound.
    pub fn bind(settings: Settings, listeners: Vec<Listener>) -> io::Result<Self> {
        let mut net = Self { settings, listeners, addresses: Vec::new(), udp: Vec::new() };
        for (i, listener) in net.listeners.iter().enumerate() {
            let named = |e: io::Error| {
                io::Error::new(e.kind(), format!("{}:{}: {e}", listener.transport.text(), listener.bind))
            };
            match listener.transport {
                Transport::Udp => {
                    let socket = udp::bind(listener.bind, false, &net.settings).map_err(named)?;
                    net.addresses.push(socket.local_addr().map_err(named)?);
                    net.udp.push((ListenerId(i as u16), socket));
                }
                _ => return Err(named(io::ErrorKind::Unsupported.into())),
            }
        }
        Ok(net)
    }

    /// The addresses bound, in the order of the listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Starts the shards. `factory` makes the service of a shard, on its thread.
    pub fn spawn<S, F>(self, factory: F) -> io::Result<Node<S>>
    where
        S: Service + 'static,
        F: Fn(usize, Handle<S>) -> S + Send + Sync + 'static,
    {
        let services = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (over, ended) = tokio::sync::oneshot::channel::<()>();
        let most = self.settings.shards.most();
        let shared = Arc::new(Shared {
            active: AtomicUsize::new(self.settings.shards.first()),
            settings: self.settings,
            listeners: self.listeners,
            addresses: self.addresses,
            seats: (0..most).map(|_| Seat::default()).collect(),
            draining: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            services: services.handle().clone(),
        });
        let handle = Handle { shared: shared.clone() };
        let service_thread = std::thread::Builder::new().name("services".into()).spawn(move || {
            let _ = services.block_on(ended);
            services.shutdown_timeout(std::time::Duration::from_secs(2));
        })?;
        let mut threads = Vec::new();
        {
            let handle = handle.clone();
            let thread = std::thread::Builder::new().name("shard-0".into()).spawn(move || {
                if let Err(error) = run(&shared, 0, self.udp, || factory(0, handle)) {
                    tracing::error!(%error, shard = 0, "shard ended");
                }
            })?;
            threads.push(thread);
        }
        Ok(Node { handle, threads, services: Some((over, service_thread)) })
    }
}

/// The body of a shard's thread.
fn run<S: Service>(
    shared: &Arc<Shared<S>>,
    index: usize,
    sockets: Vec<(ListenerId, std::net::UdpSocket)>,
    service: impl FnOnce() -> S,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let sockets = sockets.into_iter().map(|(id, socket)| Udp::new(socket, id, &shared.settings));
        let mut shard = Shard::new(shared.clone(), index, service(), sockets.collect::<io::Result<_>>()?);
        poll_fn(|cx| shard.poll(cx)).await;
        Ok(())
    })
}

/// The running shards, owned: dropped, they end.
pub struct Node<S: Service> {
    handle: Handle<S>,
    threads: Vec<JoinHandle<()>>,
    services: Option<(tokio::sync::oneshot::Sender<()>, JoinHandle<()>)>,
}

impl<S: Service> Node<S> {
    pub fn handle(&self) -> &Handle<S> {
        &self.handle
    }

    /// Waits until the shards have ended.
    pub fn join(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some((over, thread)) = self.services.take() {
            let _ = over.send(());
            let _ = thread.join();
        }
    }
}

impl<S: Service> Drop for Node<S> {
    fn drop(&mut self) {
        self.handle.stop();
        self.wait();
    }
}
