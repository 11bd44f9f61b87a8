//! Media of one process: sockets, files, threads.

use super::call_port::{APART, CallPort, CallPorts, VIDEO};
use super::capture::{Capture, CaptureError};
use super::echo::Mirror;
use super::hearing::Ear;
use super::leg::{Legs, Refusal, automatic};
use super::player::{CommandQueue, Player};
use super::receiver::Receiver;
use super::settings::{Echo, Settings};
use super::tally::{Snapshot, Tally};
use hashbrown::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use strowger_media::wave;
use strowger_net::datagrams;
use strowger_scenario::Scenario;
use strowger_scenario::action::{Action, RtpStream};

/// Error of starting the media.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    #[error("no media port could be bound on {address}, from {port} on in {tries} tries: {error}")]
    NoPort { address: std::net::IpAddr, port: u16, tries: u16, error: std::io::Error },
    #[error("{} cannot be played: {error}", file.display())]
    Capture { file: PathBuf, error: CaptureError },
    #[error("{} cannot be streamed: {error}", file.display())]
    Samples { file: PathBuf, error: std::io::Error },
    #[error("the media sockets of calls cannot be read: {0}")]
    Calls(std::io::Error),
    #[error("a thread for media cannot be started: {0}")]
    Thread(std::io::Error),
}

/// Media of one process. Its threads end when it is dropped.
pub struct Plane {
    shared: Arc<Shared>,
    player: Option<JoinHandle<()>>,
}

/// State shared by the legs of all shards.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) tally: Arc<Tally>,
    pub(super) queue: Arc<CommandQueue>,
    pub(super) mirror: Mirror,
    pub(super) audio: Arc<UdpSocket>,
    pub(super) video: Arc<UdpSocket>,
    /// Judges of the audio and the video socket.
    pub(super) ears: [Ear; 2],
    calls: CallPorts,
    pub(super) port: u16,
    /// True once a shard reports the counters.
    pub(super) reported: AtomicBool,
    files: Files,
    /// Further sockets, alive while a leg uses them.
    others: Mutex<HashMap<u16, Weak<UdpSocket>, foldhash::fast::RandomState>>,
}

/// Limit of common ports to try.
const TRIES: u16 = 100;

/// Receive buffer of the socket of a call, bytes: seconds of sound.
const CALL_BUFFER: usize = 128 << 10;

/// Files that the scenarios name, read before the first call.
#[derive(Default)]
struct Files {
    captures: std::collections::HashMap<PathBuf, Arc<Capture>>,
    samples: std::collections::HashMap<PathBuf, Arc<[u8]>>,
}

impl Plane {
    /// Binds the sockets, reads every file that the scenarios name, and starts the threads.
    ///
    /// # Errors
    /// No port is free, a file cannot be used, a thread cannot be started.
    pub fn start<'a>(
        settings: Settings,
        scenarios: impl IntoIterator<Item = &'a Scenario>,
    ) -> Result<Self, PlaneError> {
        let files = Files::of(scenarios)?;
        let (port, audio, video) = bind(&settings)?;
        let shared = Arc::new(Shared {
            tally: Arc::new(Tally::new()),
            queue: Arc::new(CommandQueue::new(settings.commands)),
            mirror: Mirror::new(settings.echo == Echo::Always),
            audio: Arc::new(audio),
            video: Arc::new(video),
            ears: [true, false].map(|is_audio| Ear::common(is_audio, settings.streams)),
            calls: CallPorts::new().map_err(PlaneError::Calls)?,
            port,
            reported: AtomicBool::new(false),
            files,
            others: Mutex::default(),
            settings,
        });
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(PlaneError::Thread)
        };
        let (queue, tally, settings) = (shared.queue.clone(), shared.tally.clone(), shared.settings.clone());
        let player = start("media", Box::new(move || Player::run(queue, tally, settings)))?;
        let plane = Self { player: Some(player), shared: shared.clone() };
        for (place, socket) in [&shared.audio, &shared.video].into_iter().enumerate() {
            let (shared, socket) = (shared.clone(), socket.clone());
            let work = move || {
                let stopping = || shared.queue.stopping.load(Relaxed);
                Receiver::new(&shared.mirror, &shared.tally, &shared.settings).run(
                    &socket,
                    place,
                    &shared.ears[place],
                    stopping,
                );
            };
            start(["media-audio", "media-video"][place], Box::new(work))?;
        }
        let work = move || {
            let stopping = || shared.queue.stopping.load(Relaxed);
            Receiver::new(&shared.mirror, &shared.tally, &shared.settings).run_calls(&shared.calls, stopping);
        };
        start("media-calls", Box::new(work))?;
        Ok(plane)
    }

    /// Returns the port of the audio socket; the video port is two above.
    pub fn port(&self) -> u16 {
        self.shared.port
    }

    /// Creates the media of the calls of one shard.
    pub fn legs(&self) -> Legs {
        Legs::new(self.shared.clone())
    }

    pub fn snapshot(&self) -> Snapshot {
        self.shared.tally.snapshot()
    }

    /// Returns the number of datagrams that the kernel dropped because this process did not read its media sockets in time.
    pub fn drops(&self) -> u64 {
        self.shared.tally.heard.drops.load(Relaxed)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.shared.queue.stopping.store(true, Relaxed);
        self.shared.queue.wake();
        if let Some(player) = self.player.take() {
            let _ = player.join();
        }
    }
}

impl Shared {
    pub(super) fn capture(&self, file: &Path) -> Option<Arc<Capture>> {
        self.files.captures.get(file).cloned()
    }

    pub(super) fn samples(&self, file: &Path) -> Option<Arc<[u8]>> {
        self.files.samples.get(file).cloned()
    }

    /// Returns a socket on this port: one of the two, one that a leg has, or a new one.
    ///
    /// # Errors
    /// The port cannot be bound.
    pub(super) fn socket(&self, port: u16) -> std::io::Result<Arc<UdpSocket>> {
        if port == self.port {
            return Ok(self.audio.clone());
        }
        if Some(port) == self.port.checked_add(VIDEO) {
            return Ok(self.video.clone());
        }
        let mut others = self.others.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(socket) = others.get(&port).and_then(Weak::upgrade) {
            return Ok(socket);
        }
        // No thread reads from it unless it is the port of a call: its buffer fills, and the kernel drops further datagrams, uncounted.
        let address = SocketAddr::new(self.settings.address, port);
        let socket = datagrams::bind(address, CALL_BUFFER, self.settings.send_buffer)?;
        datagrams::stamp_arrivals(&socket);
        let socket = Arc::new(socket);
        others.insert(port, Arc::downgrade(&socket));
        if others.len() > 1_024 && others.len().is_power_of_two() {
            others.retain(|_, socket| socket.strong_count() > 0);
        }
        Ok(socket)
    }

    /// Opens the audio port of a single call and reads from it: that of its number, or the next free one. Returns the port alone if it is
    /// the common one.
    ///
    /// # Errors
    /// The error of the last port that was tried.
    pub(super) fn call_port(&self, number: u64) -> std::io::Result<(u16, Option<Arc<CallPort>>)> {
        let place = if self.settings.first_is_common { number } else { number.saturating_add(1) };
        let mut port = automatic(self.port, place);
        if port == self.port && self.settings.first_is_common {
            return Ok((port, None));
        }
        let mut tries = u16::MAX / APART;
        loop {
            match self.open_port(port, true) {
                Ok(open) => return Ok((port, Some(open))),
                Err(error) if tries == 0 || !is_taken(&error) => return Err(error),
                Err(_) => (port, tries) = (self.calls.next(self.port), tries - 1),
            }
        }
    }

    /// Opens a port for a single call and reads from it.
    ///
    /// # Errors
    /// The port is a common one or that of another call, or cannot be bound.
    pub(super) fn open_port(&self, port: u16, is_audio: bool) -> std::io::Result<Arc<CallPort>> {
        if port == 0 || port == self.port || Some(port) == self.port.checked_add(VIDEO) {
            return Err(ErrorKind::AddrInUse.into());
        }
        self.calls.open(port, is_audio, || self.socket(port))
    }

    /// Ends the reading from the port of a call, and counts its last drops.
    pub(super) fn close_port(&self, open: &CallPort) {
        self.calls.close(open);
        open.count_drops(&self.tally);
    }

    /// Counts a refusal that is a fault of this machine.
    pub(super) fn refuse(&self, refusal: Refusal) -> Refusal {
        self.tally.refused.fetch_add(1, Relaxed);
        refusal
    }
}

impl Files {
    fn of<'a>(scenarios: impl IntoIterator<Item = &'a Scenario>) -> Result<Self, PlaneError> {
        let mut files = Self::default();
        for scenario in scenarios {
            for action in scenario.steps.iter().chain(&scenario.init).flat_map(|step| &step.actions) {
                match action {
                    Action::PlayPcap { file, .. } if !files.captures.contains_key(file) => {
                        let capture =
                            Capture::load(file).map_err(|error| PlaneError::Capture { file: file.clone(), error })?;
                        files.captures.insert(file.clone(), Arc::new(capture));
                    }
                    Action::RtpStream(RtpStream::Play { file, format, .. }) if !files.samples.contains_key(file) => {
                        let error = |error| PlaneError::Samples { file: file.clone(), error };
                        let bytes = std::fs::read(file).map_err(error)?;
                        let samples = wave::samples(&bytes, format.payload_type)
                            .map_err(|why| error(std::io::Error::new(ErrorKind::InvalidData, why)))?;
                        if samples.is_empty() {
                            return Err(error(ErrorKind::UnexpectedEof.into()));
                        }
                        files.samples.insert(file.clone(), bytes[samples].into());
                    }
                    _ => (),
                }
            }
        }
        Ok(files)
    }
}

/// Returns whether another port may be free.
fn is_taken(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
}

/// Binds the first free pair of ports. Returns the audio port and both sockets.
fn bind(settings: &Settings) -> Result<(u16, UdpSocket, UdpSocket), PlaneError> {
    let pair = |port: u16| {
        let one = |port| -> std::io::Result<UdpSocket> {
            let address = SocketAddr::new(settings.address, port);
            let socket = datagrams::bind(address, settings.receive_buffer, settings.send_buffer)?;
            datagrams::stamp_arrivals(&socket);
            Ok(socket)
        };
        let audio = one(port)?;
        let video = match audio.local_addr()?.port().checked_add(2) {
            Some(port) => one(port)?,
            None => return Err(ErrorKind::AddrInUse.into()),
        };
        Ok((audio, video))
    };
    let tries = if settings.exact { 1 } else { TRIES };
    // The video port, two above, must be in range too.
    let highest = if settings.exact { u16::MAX } else { settings.highest }.saturating_sub(2);
    let mut port = settings.port;
    let mut error = std::io::Error::from(ErrorKind::AddrInUse);
    let mut tried = 0;
    while tried < tries && port <= highest {
        tried += 1;
        match pair(port) {
            Ok((audio, video)) => {
                let port = audio.local_addr().map_or(port, |a| a.port());
                return Ok((port, audio, video));
            }
            Err(refused) => error = refused,
        }
        // Port 0 means any port.
        let next = if port == 0 { Some(0) } else { port.checked_add(2) };
        match next {
            Some(next) if is_taken(&error) => port = next,
            _ => break,
        }
    }
    Err(PlaneError::NoPort { address: settings.address, port: settings.port, tries: tried, error })
}
