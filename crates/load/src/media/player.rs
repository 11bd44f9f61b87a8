//! Sending thread: plays every stream of the process, each packet when it is due, in batches for each socket.

use super::remote::Remote;
use super::settings::Settings;
use super::stamp;
use super::tally::Tally;
use super::track::Track;
use crate::random::Random;
use crate::wheel::{Alarm, Wheel};
use hashbrown::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::Duration;
use strowger_media::rtp::{Numbering, around};
use strowger_net::clock;
use strowger_net::datagrams::Outgoing;

/// Command of a leg to the thread.
pub(super) enum PlayerCommand {
    Play(Box<Play>),
    /// Pauses the sample streams of this leg.
    Pause(u64),
    Resume(u64),
    /// Redirects the sample streams of this leg.
    Aim(u64, Remote),
    /// Ends the leg and all its streams.
    End(u64),
}

/// Stream to begin.
pub(super) struct Play {
    pub(super) leg: u64,
    pub(super) lane: Lane,
    pub(super) target: SocketAddr,
    pub(super) socket: Arc<UdpSocket>,
    /// Sockets for datagrams of a capture to higher ports: the distance of the port, and the socket at the same distance from
    /// `socket`.
    pub(super) above: Vec<(u16, Arc<UdpSocket>)>,
    pub(super) track: Track,
}

/// Kind of stream. A leg plays one stream of each kind at a time, and a new stream replaces the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Audio,
    Video,
    Capture,
}

/// Number of lanes.
pub(super) const LANES: usize = 3;

/// Command queue between the shards and the thread.
pub(super) struct CommandQueue {
    commands: Mutex<Vec<PlayerCommand>>,
    /// True if the thread is in a long sleep and must be woken.
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
    pub(super) stopping: AtomicBool,
    most: usize,
    pub(super) legs: AtomicU64,
}

impl CommandQueue {
    pub(super) fn new(most: usize) -> Self {
        Self {
            commands: Mutex::default(),
            asleep: AtomicBool::new(false),
            thread: OnceLock::new(),
            stopping: AtomicBool::new(false),
            most,
            legs: AtomicU64::new(1),
        }
    }

    /// Queues a command; returns false if the queue is full. An end is always accepted.
    pub(super) fn ask(&self, command: PlayerCommand) -> bool {
        {
            let mut commands = self.commands.lock().unwrap_or_else(|e| e.into_inner());
            if commands.len() >= self.most && !matches!(command, PlayerCommand::End(_)) {
                return false;
            }
            commands.push(command);
        }
        if self.asleep.load(Acquire) {
            self.wake();
        }
        true
    }

    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Playing stream.
struct Stream {
    generation: u32,
    leg: u64,
    socket: Arc<UdpSocket>,
    above: Vec<(u16, Arc<UdpSocket>)>,
    target: SocketAddr,
    track: Option<Track>,
    /// Microseconds and clock ticks of a sample packet, of which the last one played counts.
    cadence: Option<(u64, u32)>,
    /// Send time of the next packet, microseconds.
    due: u64,
    paused: bool,
    /// Offset in the samples, or the next datagram of the capture.
    at: usize,
    /// Start of the capture.
    began: u64,
    left: Option<u64>,
    numbering: Numbering,
}

/// State of the sending thread.
pub(super) struct Player {
    queue: Arc<CommandQueue>,
    tally: Arc<Tally>,
    settings: Settings,
    wheel: Wheel,
    streams: Vec<Stream>,
    free: Vec<u32>,
    /// Streams of each leg.
    legs: HashMap<u64, [Option<u32>; LANES], foldhash::fast::RandomState>,
    out: Outgoing,
    /// Due times of the packets in `out`.
    dues: Vec<u64>,
    random: Random,
}

/// Longest sleep, in milliseconds, that a command does not interrupt.
const NAP: u64 = 1;

impl Player {
    /// Runs on its own thread.
    pub(super) fn run(queue: Arc<CommandQueue>, tally: Arc<Tally>, settings: Settings) {
        let _ = queue.thread.set(std::thread::current());
        let mut player = Self {
            out: Outgoing::new(settings.batch),
            wheel: Wheel::new(clock::micros() / 1_000),
            streams: Vec::new(),
            free: Vec::new(),
            legs: HashMap::default(),
            dues: Vec::new(),
            random: Random(settings.seed),
            queue,
            tally,
            settings,
        };
        let mut commands = Vec::new();
        let mut due = Vec::new();
        while !player.queue.stopping.load(Relaxed) {
            player.take(&mut commands);
            player.turn(&mut due);
            player.rest();
        }
    }

    fn rest(&mut self) {
        let now = clock::micros();
        let next = self.wheel.deadline().unwrap_or(u64::MAX);
        let next = next.saturating_mul(1_000);
        if next <= now {
            return;
        }
        let wait = Duration::from_micros((next - now).min(60_000_000));
        if next - now <= NAP * 1_000 {
            return std::thread::park_timeout(wait);
        }
        self.queue.asleep.store(true, Release);
        // A command queued before the flag was visible has woken no thread.
        let nothing = self.queue.commands.lock().unwrap_or_else(|e| e.into_inner()).is_empty();
        if nothing && !self.queue.stopping.load(Relaxed) {
            std::thread::park_timeout(wait);
        }
        self.queue.asleep.store(false, Release);
    }

    fn take(&mut self, commands: &mut Vec<PlayerCommand>) {
        {
            let mut posted = self.queue.commands.lock().unwrap_or_else(|e| e.into_inner());
            std::mem::swap(commands, &mut posted);
        }
        if commands.is_empty() {
            return;
        }
        let now = clock::micros();
        for command in commands.drain(..) {
            match command {
                PlayerCommand::Play(play) => self.play(*play, now),
                PlayerCommand::Pause(leg) => self.each(leg, |player, slot| player.pause(slot)),
                PlayerCommand::Resume(leg) => self.each(leg, |player, slot| player.resume(slot, now)),
                PlayerCommand::Aim(leg, remote) => self.aim(leg, &remote),
                PlayerCommand::End(leg) => self.end(leg),
            }
        }
    }

    /// Redirects the streams of a peer that has moved.
    fn aim(&mut self, leg: u64, remote: &Remote) {
        let Some(lanes) = self.legs.get(&leg) else { return };
        for (lane, target) in [(Lane::Audio, remote.audio), (Lane::Video, remote.video)] {
            if let (Some(slot), Some(target)) = (lanes[lane as usize], target) {
                self.streams[slot as usize].target = target;
            }
        }
    }

    /// Runs `work` on the sample streams of a leg.
    fn each(&mut self, leg: u64, mut work: impl FnMut(&mut Self, u32)) {
        let Some(lanes) = self.legs.get(&leg).copied() else { return };
        for slot in [lanes[Lane::Audio as usize], lanes[Lane::Video as usize]].into_iter().flatten() {
            work(self, slot);
        }
    }

    fn word(&mut self) -> u64 {
        self.random.word()
    }

    fn play(&mut self, play: Play, now: u64) {
        let lanes = self.legs.get(&play.leg).copied().unwrap_or_default();
        // Starts at the next whole millisecond, which is the resolution of the wheel.
        let due = now.next_multiple_of(1_000);
        let slot = match lanes[play.lane as usize] {
            Some(slot) => slot,
            None => {
                let slot = self.place(play.leg, &play);
                let lanes = self.legs.entry(play.leg).or_default();
                lanes[play.lane as usize] = Some(slot);
                slot
            }
        };
        let stream = &mut self.streams[slot as usize];
        stream.generation = stream.generation.wrapping_add(1);
        // The stream's clock continued after its last packet.
        stream.skip(due);
        (stream.left, stream.cadence) = match &play.track {
            Track::Samples { packets, format, .. } => {
                let each = u64::from(format.milliseconds_per_packet.max(1)) * 1_000;
                (*packets, Some((each, u32::from(format.ticks_per_packet))))
            }
            Track::Capture(_) => (None, None),
        };
        (stream.socket, stream.above, stream.target) = (play.socket, play.above, play.target);
        (stream.track, stream.at, stream.paused) = (Some(play.track), 0, false);
        (stream.began, stream.due) = (due, due);
        stream.numbering.begin();
        if stream.left == Some(0) {
            stream.track = None;
            return;
        }
        self.wheel.set(Alarm { due: due / 1_000, slot, generation: stream.generation });
    }

    fn place(&mut self, leg: u64, play: &Play) -> u32 {
        // All three values are unpredictable to other parties (RFC 3550 section 5.1).
        let (a, b) = (self.word(), self.word());
        let stream = Stream {
            generation: 0,
            leg,
            socket: play.socket.clone(),
            above: Vec::new(),
            target: play.target,
            track: None,
            cadence: None,
            due: 0,
            paused: false,
            at: 0,
            began: 0,
            left: None,
            numbering: Numbering::new(b as u32, a as u16, (a >> 32) as u32),
        };
        self.tally.streams.fetch_add(1, Relaxed);
        match self.free.pop() {
            Some(slot) => {
                let old = &mut self.streams[slot as usize];
                let generation = old.generation.wrapping_add(1);
                *old = Stream { generation, ..stream };
                slot
            }
            None => {
                self.streams.push(stream);
                self.streams.len() as u32 - 1
            }
        }
    }

    fn pause(&mut self, slot: u32) {
        self.streams[slot as usize].paused = true;
    }

    fn resume(&mut self, slot: u32, now: u64) {
        let stream = &mut self.streams[slot as usize];
        if !std::mem::replace(&mut stream.paused, false) || stream.track.is_none() {
            return;
        }
        stream.generation = stream.generation.wrapping_add(1);
        let due = now.next_multiple_of(1_000).max(stream.due);
        stream.skip(due);
        stream.due = due;
        stream.numbering.begin();
        self.wheel.set(Alarm { due: due.div_ceil(1_000), slot, generation: stream.generation });
    }

    fn end(&mut self, leg: u64) {
        let Some(lanes) = self.legs.remove(&leg) else { return };
        for slot in lanes.into_iter().flatten() {
            let stream = &mut self.streams[slot as usize];
            stream.generation = stream.generation.wrapping_add(1);
            stream.track = None;
            stream.leg = 0;
            stream.above = Vec::new();
            self.free.push(slot);
            self.tally.streams.fetch_sub(1, Relaxed);
        }
    }

    /// Sends all due packets.
    fn turn(&mut self, due: &mut Vec<(usize, u32)>) {
        let now = clock::micros();
        due.clear();
        while let Some(alarm) = self.wheel.ring(now / 1_000) {
            let stream = &self.streams[alarm.slot as usize];
            if stream.generation == alarm.generation && stream.track.is_some() && !stream.paused {
                due.push((Arc::as_ptr(&stream.socket) as usize, alarm.slot));
            }
        }
        // Groups the packets of one socket.
        due.sort_unstable();
        let mut socket: Option<Arc<UdpSocket>> = None;
        for &(_, slot) in due.iter() {
            self.emit(slot, now, &mut socket);
            let stream = &self.streams[slot as usize];
            if stream.track.is_some() {
                let alarm = Alarm { due: stream.due.div_ceil(1_000), slot, generation: stream.generation };
                self.wheel.set(alarm);
            }
        }
        if let Some(socket) = socket {
            self.flush(&socket);
        }
    }

    /// Makes `socket` the one by which later packets leave.
    fn by(&mut self, socket: &Arc<UdpSocket>, current: &mut Option<Arc<UdpSocket>>) {
        let same = current.as_ref().is_some_and(|c| Arc::ptr_eq(c, socket));
        if same && !self.out.is_full() {
            return;
        }
        if let Some(current) = current {
            self.flush(current);
        }
        if !same {
            *current = Some(socket.clone());
        }
    }

    fn flush(&mut self, socket: &UdpSocket) {
        if self.out.is_empty() {
            return;
        }
        let sent = self.out.send(socket);
        self.tally.packets.fetch_add(sent.datagrams, Relaxed);
        self.tally.bytes.fetch_add(sent.bytes, Relaxed);
        self.tally.failures.fetch_add(sent.failed, Relaxed);
        let now = clock::micros();
        let mut late = 0;
        let mut delays = self.tally.delays.lock().unwrap_or_else(|e| e.into_inner());
        for due in self.dues.drain(..) {
            let delay = now.saturating_sub(due);
            late += u64::from(delay > self.settings.late);
            delays.saturating_record(delay);
        }
        drop(delays);
        self.tally.late.fetch_add(late, Relaxed);
    }

    /// Adds the due packets of a stream.
    fn emit(&mut self, slot: u32, now: u64, current: &mut Option<Arc<UdpSocket>>) {
        let index = slot as usize;
        if now.saturating_sub(self.streams[index].due) > self.settings.missed {
            let missed = self.streams[index].miss(now);
            self.tally.missed.fetch_add(missed, Relaxed);
        }
        while self.streams[index].due <= now {
            let stream = &self.streams[index];
            let (mut socket, mut target) = (stream.socket.clone(), stream.target);
            match &stream.track {
                None => return,
                Some(Track::Capture(capture)) => {
                    let capture = capture.clone();
                    let Some(packet) = capture.packets().get(stream.at) else {
                        self.streams[index].track = None;
                        return;
                    };
                    if packet.above != 0 {
                        target.set_port(target.port().wrapping_add(packet.above));
                        if let Some((_, other)) = stream.above.iter().find(|(above, _)| *above == packet.above) {
                            socket = other.clone();
                        }
                    }
                    self.by(&socket, current);
                    self.dues.push(self.streams[index].due);
                    self.out.push(target, |bytes| bytes.extend_from_slice(capture.payload(packet)));
                    let stream = &mut self.streams[index];
                    stream.at += 1;
                    match capture.packets().get(stream.at) {
                        Some(next) => stream.due = stream.began + next.at,
                        None => stream.track = None,
                    }
                }
                Some(Track::Samples { bytes, format, .. }) => {
                    let (bytes, format) = (bytes.clone(), *format);
                    self.by(&socket, current);
                    let stream = &mut self.streams[index];
                    self.dues.push(stream.due);
                    let header = stream.numbering.next(format.payload_type, u32::from(format.ticks_per_packet));
                    let length = usize::from(format.bytes_per_packet);
                    let (mut at, from) = (stream.at, stream.at);
                    self.out.push(target, |out| {
                        header.write(out);
                        let payload = out.len();
                        at = around(&bytes, from, length, out);
                        stamp::write(&mut out[payload..]);
                    });
                    stream.at = at;
                    stream.due += u64::from(format.milliseconds_per_packet.max(1)) * 1_000;
                    if let Some(left) = &mut stream.left {
                        *left -= 1;
                        if *left == 0 {
                            stream.track = None;
                        }
                    }
                }
            }
        }
    }
}

impl Stream {
    /// Advances the stream's clock to `due` by whole packets without sending them. Returns their number.
    fn skip(&mut self, due: u64) -> u64 {
        let Some((each, ticks)) = self.cadence else { return 0 };
        let packets = due.saturating_sub(self.due) / each;
        self.numbering.skip((packets as u32).wrapping_mul(ticks));
        packets
    }

    /// Skips the packets due before `now`. Returns their number.
    fn miss(&mut self, now: u64) -> u64 {
        match &self.track {
            None => 0,
            Some(Track::Capture(_)) => {
                // A capture is delayed instead.
                let behind = now - self.due;
                self.began += behind;
                self.due += behind;
                0
            }
            Some(Track::Samples { bytes, format, .. }) => {
                let (length, each) = (bytes.len(), usize::from(format.bytes_per_packet));
                let mut missed = self.skip(now);
                self.due = now;
                if let Some(left) = &mut self.left {
                    missed = missed.min(*left);
                    *left -= missed;
                    if *left == 0 {
                        self.track = None;
                    }
                }
                self.at = (self.at + missed as usize % length * each) % length;
                missed
            }
        }
    }
}
