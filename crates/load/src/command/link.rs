//! The connections between controllers. Threads of their own read and write: a shard never waits for a connection.

use super::plan::Plan;
use super::word::{Heard, Waiting};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ends a word.
const END: u8 = 0x1b;
/// Words that wait for a connection at most; with one more it is not sent.
const WAITING: usize = 65_536;
/// Words that were read and not yet heard at most, unless set otherwise.
const UNHEARD: usize = 4_096;
/// Bytes of a word at most; who sends more is hung up on.
const LONGEST: usize = 1 << 20;
/// How long a connection is tried, and how long one may refuse what is written.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far apart the connections of one controller end.
const APART: Duration = Duration::from_millis(20);

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the other controller cannot be reached at {0}: {1}; it has to be started first")]
    Connect(SocketAddr, std::io::Error),
    #[error("words of other controllers cannot be waited for at {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// Takes what comes, on a thread of the link.
pub type Deliver = Arc<dyn Fn(Heard) + Send + Sync>;

/// Sends words. Cheap to clone.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    peers: Vec<Peer>,
    /// Only one other controller, both ways by one connection.
    classic: bool,
    streams: Mutex<Vec<TcpStream>>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    closing: AtomicBool,
}

/// Another controller.
struct Peer {
    /// Empty in the classic form.
    name: String,
    address: Option<SocketAddr>,
    out: Mutex<Option<SyncSender<Box<[u8]>>>>,
}

/// What is still to be started once what comes can be taken.
pub struct Ear {
    link: Link,
    listener: Option<TcpListener>,
    /// Connections that were made already.
    made: Vec<(usize, TcpStream)>,
    /// Connects to the others as soon as a peer has connected.
    follows: bool,
    /// Words that were read and not yet heard, at most.
    unheard: usize,
}

impl Link {
    /// Makes the connections that have to be there from the start, and listens.
    ///
    /// # Errors
    /// Another controller that has to be there is not; the own address cannot be had.
    pub fn open(plan: &Plan) -> Result<(Self, Ear), LinkError> {
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
                // Words may be sent before a peer hears: the calls begin while the ears are opened.
                let stream = connect(address)
                    .and_then(|stream| link.inner.write_to(index, &stream).map(|()| stream))
                    .map_err(|error| LinkError::Connect(address, error))?;
                made.push((index, stream));
            }
        }
        let follows = !calls && !link.inner.classic;
        let ear = Ear { link: link.clone(), listener, made, follows, unheard: UNHEARD };
        Ok((link, ear))
    }

    /// Hands a word over, to the controller of this name (extended) or to the only one; false if it cannot be sent.
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

    /// Only one other controller.
    pub fn is_classic(&self) -> bool {
        self.inner.classic
    }

    /// Ends the connections once all that was handed over is sent.
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
            // SIPp 3.6.1 fails over two connections of one controller that end at once.
            if index > 0 && !self.inner.classic {
                std::thread::sleep(APART);
            }
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Ear {
    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|l| l.local_addr().ok())
    }

    /// So many words may be read and not yet heard, 4,096 unless set: with more, nothing is read, and who speaks must wait. A
    /// word counts as heard when it is dropped.
    #[must_use]
    pub fn unheard(mut self, most: usize) -> Self {
        self.unheard = most;
        self
    }

    /// Starts the threads: what comes goes to `deliver` from now on.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn hear(self, deliver: Deliver) -> std::io::Result<()> {
        let Self { link, listener, made, follows, unheard } = self;
        let waiting = Waiting::new(unheard);
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
                // Before the first word is heard: what it begins may answer at once.
                if std::mem::take(&mut follows) {
                    inner.connect(&deliver, &waiting);
                }
                // By name it is known only when it speaks; it is answered by another connection then.
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

    /// What is said to this peer goes by this connection.
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

    /// What comes by this connection is delivered; with it ends the way to the peer whose it is.
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
            read(stream, |word| deliver(Heard::Word(waiting.word(word, &self.closing))));
            // Who has gone is known of the connection by which it was spoken to.
            let Some(peer) = peer.map(|peer| &self.peers[peer]) else { return };
            peer.out.lock().unwrap_or_else(|e| e.into_inner()).take();
            if !self.closing.load(Relaxed) {
                deliver(Heard::Ended(peer.name.as_str().into()));
            }
        })?;
        Ok(())
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, PATIENCE)
}

/// Until no sender hands words over any more, or the connection takes none.
fn write(mut stream: TcpStream, words: &Receiver<Box<[u8]>>) {
    while let Ok(word) = words.recv() {
        if stream.write_all(&word).is_err() {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Until the connection ends.
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
