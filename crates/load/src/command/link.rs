//! Connections between controllers. Separate threads read and write them, so that a shard never waits for a connection.

use super::plan::Plan;
use super::word::{LinkEvent, Waiting};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Last byte of a command.
const END: u8 = 0x1b;
/// Maximum number of commands that wait for a connection; a further command is not sent.
const WAITING: usize = 65_536;
/// Default limit of commands read but not yet handled.
const QUEUE_LIMIT: usize = 4_096;
/// Limit of a command's bytes; a sender of more is disconnected.
const LONGEST: usize = 1 << 20;
/// Time limits of connecting, and of a write.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval between the ends of one controller's connections.
const APART: Duration = Duration::from_millis(20);

/// Error of opening a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the other controller cannot be reached at {0}: {1}; it has to be started first")]
    Connect(SocketAddr, std::io::Error),
    #[error("this controller cannot listen at {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// Receiver of events, called on a thread of the link.
pub type Deliver = Arc<dyn Fn(LinkEvent) + Send + Sync>;

/// Sender of commands. Cheap to clone.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    peers: Vec<Peer>,
    /// True for a single other controller with one connection for both directions.
    classic: bool,
    streams: Mutex<Vec<TcpStream>>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    closing: AtomicBool,
}

/// Another controller.
struct Peer {
    /// Name; empty in the classic form.
    name: String,
    address: Option<SocketAddr>,
    out: Mutex<Option<SyncSender<Box<[u8]>>>>,
}

/// Receiving half of a link, which starts once events can be handled.
pub struct LinkReceiver {
    link: Link,
    listener: Option<TcpListener>,
    /// Connections that were made already.
    made: Vec<(usize, TcpStream)>,
    /// True if the controller connects to the other controllers as soon as a peer has connected.
    follows: bool,
    /// Limit of commands read but not yet handled.
    queue_limit: usize,
}

impl Link {
    /// Makes the connections that must exist from the start, and listens.
    ///
    /// # Errors
    /// A required controller cannot be reached; the own address cannot be bound.
    pub fn open(plan: &Plan) -> Result<(Self, LinkReceiver), LinkError> {
        let peer = |name: &str, address| Peer { name: name.to_owned(), address, out: Mutex::default() };
        let (peers, own, calls) = match plan {
            Plan::Call(address) => (vec![peer("", Some(*address))], None, true),
            Plan::Listen(address) => (vec![peer("", None)], Some(*address), false),
            Plan::Extended { own, peers, leads } => {
                (peers.iter().map(|(name, address)| peer(name, Some(*address))).collect(), Some(*own), *leads)
            }
        };
        let listen = |address| TcpListener::bind(address).map_err(|error| LinkError::Listen(address, error));
        let listener = own.map(listen).transpose()?;
        let inner = Inner {
            peers,
            classic: !matches!(plan, Plan::Extended { .. }),
            streams: Mutex::default(),
            writers: Mutex::default(),
            closing: AtomicBool::new(false),
        };
        let link = Self { inner: Arc::new(inner) };
        let mut made = Vec::new();
        for (index, peer) in link.inner.peers.iter().enumerate() {
            if let Some(address) = peer.address.filter(|_| calls) {
                // A command may be sent before the peer handles any: the calls begin while the receivers start.
                let stream = connect(address)
                    .and_then(|stream| link.inner.write_to(index, &stream).map(|()| stream))
                    .map_err(|error| LinkError::Connect(address, error))?;
                made.push((index, stream));
            }
        }
        let follows = !calls && !link.inner.classic;
        let receiver = LinkReceiver { link: link.clone(), listener, made, follows, queue_limit: QUEUE_LIMIT };
        Ok((link, receiver))
    }

    /// Queues a command for the controller of this name (extended form) or for the only other controller. Returns false
    /// if the command cannot be sent.
    pub fn send(&self, to: Option<&str>, word: &[u8]) -> bool {
        let peers = &self.inner.peers;
        let peer = match to {
            Some(name) if !self.inner.classic => peers.iter().find(|peer| peer.name == name),
            _ => peers.first(),
        };
        let Some(peer) = peer else { return false };
        let out = peer.out.lock().unwrap_or_else(|e| e.into_inner());
        out.as_ref().is_some_and(|out| out.try_send([word, &[END]].concat().into()).is_ok())
    }

    /// Returns true for a single other controller.
    pub fn is_classic(&self) -> bool {
        self.inner.classic
    }

    /// Closes the connections once all queued commands are sent.
    pub fn close(&self) {
        self.inner.closing.store(true, Relaxed);
        for peer in &self.inner.peers {
            peer.out.lock().unwrap_or_else(|e| e.into_inner()).take();
        }
        let writers = std::mem::take(&mut *self.inner.writers.lock().unwrap_or_else(|e| e.into_inner()));
        for writer in writers {
            let _ = writer.join();
        }
        for (index, stream) in self.inner.streams.lock().unwrap_or_else(|e| e.into_inner()).drain(..).enumerate() {
            // SIPp 3.6.1 fails if two connections of one controller end at the same time.
            if index > 0 && !self.inner.classic {
                std::thread::sleep(APART);
            }
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl LinkReceiver {
    /// Returns the address on which it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|l| l.local_addr().ok())
    }

    /// Sets the limit of commands read but not yet handled, 4,096 by default. At the limit nothing is read, and the
    /// sender must wait. A command counts as handled when it is dropped.
    #[must_use]
    pub fn queue_limit(mut self, most: usize) -> Self {
        self.queue_limit = most;
        self
    }

    /// Starts the threads: events go to `deliver` from now on.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(self, deliver: Deliver) -> std::io::Result<()> {
        let Self { link, listener, made, follows, queue_limit } = self;
        let waiting = Waiting::new(queue_limit);
        for (index, stream) in made {
            link.inner.clone().read_from(Some(index), stream, &deliver, &waiting)?;
        }
        let Some(listener) = listener else { return Ok(()) };
        let inner = link.inner;
        std::thread::Builder::new().name("3pcc-listen".into()).spawn(move || {
            let mut follows = follows;
            for stream in listener.incoming().map_while(Result::ok) {
                if inner.closing.load(Relaxed) {
                    return;
                }
                // This is done before the first command is delivered, because a call that the command begins may answer
                // at once.
                if std::mem::take(&mut follows) {
                    inner.connect(&deliver, &waiting);
                }
                // Commands contain the name of their sender. Commands to that sender use another connection.
                let index = inner.classic.then_some(0);
                let written = index.map_or(Ok(()), |index| inner.write_to(index, &stream));
                if let Err(error) = written.and_then(|()| inner.clone().read_from(index, stream, &deliver, &waiting)) {
                    tracing::warn!(%error, "a controller that connected is not heard");
                }
            }
        })?;
        Ok(())
    }
}

impl Inner {
    /// Connects to all others.
    fn connect(self: &Arc<Self>, deliver: &Deliver, waiting: &Arc<Waiting>) {
        for (index, peer) in self.peers.iter().enumerate() {
            let Some(address) = peer.address else { continue };
            let made = connect(address).and_then(|stream| {
                self.write_to(index, &stream)?;
                self.clone().read_from(Some(index), stream, deliver, waiting)
            });
            if let Err(error) = made {
                tracing::warn!(%error, %address, name = peer.name, "a controller cannot be reached");
            }
        }
    }

    /// Sends the commands for this peer over this connection.
    fn write_to(&self, peer: usize, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (to, from) = sync_channel(WAITING);
        let writing = stream.try_clone()?;
        let writer = std::thread::Builder::new().name("3pcc-write".into()).spawn(move || write(writing, &from))?;
        self.writers.lock().unwrap_or_else(|e| e.into_inner()).push(writer);
        *self.peers[peer].out.lock().unwrap_or_else(|e| e.into_inner()) = Some(to);
        Ok(())
    }

    /// Delivers the commands of this connection. When it ends, the connection to its peer is closed.
    fn read_from(
        self: Arc<Self>,
        peer: Option<usize>,
        stream: TcpStream,
        deliver: &Deliver,
        waiting: &Arc<Waiting>,
    ) -> std::io::Result<()> {
        self.streams.lock().unwrap_or_else(|e| e.into_inner()).push(stream.try_clone()?);
        let (deliver, waiting) = (deliver.clone(), waiting.clone());
        std::thread::Builder::new().name("3pcc-read".into()).spawn(move || {
            read(stream, |word| deliver(LinkEvent::Command(waiting.word(word, &self.closing))));
            // The departure of a peer is known from the connection that commands to it use.
            let Some(peer) = peer.map(|peer| &self.peers[peer]) else { return };
            peer.out.lock().unwrap_or_else(|e| e.into_inner()).take();
            if !self.closing.load(Relaxed) {
                deliver(LinkEvent::Ended(peer.name.as_str().into()));
            }
        })?;
        Ok(())
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, PATIENCE)
}

/// Writes until all senders are dropped or the connection fails.
fn write(mut stream: TcpStream, words: &Receiver<Box<[u8]>>) {
    while let Ok(word) = words.recv() {
        if stream.write_all(&word).is_err() {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Reads until the connection ends.
fn read(mut stream: TcpStream, mut heard: impl FnMut(Box<[u8]>)) {
    let mut bytes: Vec<u8> = Vec::new();
    let mut part = [0; 16_384];
    loop {
        let n = match stream.read(&mut part) {
            Ok(0) => return,
            Ok(n) => n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let mut rest = &part[..n];
        while let Some(end) = memchr::memchr(END, rest) {
            bytes.extend_from_slice(&rest[..end]);
            heard(std::mem::take(&mut bytes).into());
            rest = &rest[end + 1..];
        }
        bytes.extend_from_slice(rest);
        if bytes.len() > LONGEST {
            tracing::warn!(most = LONGEST, "a controller sent a word without an end and is hung up on");
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}
