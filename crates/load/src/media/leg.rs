//! Media of the calls of one shard: the address to which each peer wants media to be sent, and the port from which they
//! are sent.

use super::call_port::VIDEO;
use super::description::Description;
use super::dtmf;
use super::plane::Shared;
use super::player::{Lane, Play, PlayerCommand};
use super::reception::{MEDIA, Reception};
use super::remote::Remote;
use super::sending::Sending;
use super::stream::{Taken, Until};
use super::tally::COUNTS;
use super::track::Track;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strowger_measure::{Counter, Delays, HeardMedia};
use strowger_net::clock;
use strowger_scenario::action::{Action, EchoCommand, Media, RtpStream};

/// Reason why an action did nothing, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0} cannot be sent: no session description with its address has come")]
    NoAddress(&'static str),
    #[error("{0} is not run: {1}")]
    Unknown(&'static str, &'static str),
    #[error("the media port {0} cannot be used: {1}")]
    Port(u16, String),
    #[error("the call has no media port of its own, and uses the common one: {0}")]
    CallPort(String),
    #[error("media are not played: too many commands wait for the thread that sends them")]
    Busy,
    #[error("play_dtmf without a digit: 0 to 9, *, # and A to D are")]
    NoDigit,
    #[error("the file is not among those that were read when the run began")]
    NoFile,
}

/// Media of the calls of one shard, by their slots.
pub struct Legs {
    shared: Arc<Shared>,
    legs: Vec<Leg>,
    /// Counts already reported. Only the first of the plane's legs reports, so that nothing is counted twice.
    reported: Option<[u64; COUNTS]>,
}

/// Media of one call.
#[derive(Default)]
struct Leg {
    /// Number of the leg at the sending thread; 0 before the leg plays.
    number: u64,
    remote: Remote,
    /// Audio port announced to the peer; 0: the common audio port.
    port: u16,
    /// Received media: audio and video.
    received: [Reception; MEDIA.len()],
    sending: Sending,
    /// First BYE of either side.
    over: Option<Until>,
    /// Stream of its digits, once there was one.
    events: Option<Events>,
    /// Peers whose audio and video are echoed.
    mirrored: [Option<SocketAddr>; 2],
}

/// Stream of telephone events: its source (SSRC) and the sequence number of its next packet.
#[derive(Clone, Copy)]
struct Events {
    source: u32,
    next: u16,
}

/// First SSRC of telephone events, as SIPp's.
const FIRST_SOURCE: u32 = 0x0102_0304;

/// Silence before our BYE, or a hold, that is no fault: a packet may be on its way. Microseconds.
const OURS: u64 = 200_000;

/// Silence before the peer's BYE that is no fault: the BYE may have been sent again. Microseconds.
const THEIRS: u64 = 1_000_000;

impl Leg {
    /// Applies the descriptions to the received media.
    fn listen(&mut self, shared: &Shared) {
        let now = clock::micros();
        let until = self.until(now);
        for (place, received) in self.received.iter_mut().enumerate() {
            received.listen(shared, place, until, now);
        }
    }

    /// Returns the moment up to which the peer should have sent: the first BYE, the end of the call's own media, or `now` (microseconds),
    /// whichever comes first. `None` if the call has not played media.
    fn until(&self, now: u64) -> Option<Until> {
        let over = self.over.unwrap_or(Until { at: now, allowance: OURS });
        let own = self.sending.until();
        (own > 0).then_some(Until { at: over.at.min(own), ..over })
    }
}

impl Legs {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let reported = (!shared.reported.swap(true, Relaxed)).then_some([0; COUNTS]);
        Self { shared, legs: Vec::new(), reported }
    }

    /// Reports the counts since the last call.
    pub fn count(&mut self, mut to: impl FnMut(Counter, u64)) {
        let Some(reported) = &mut self.reported else { return };
        for ((counter, now), before) in self.shared.tally.counts().into_iter().zip(reported) {
            if now > *before {
                to(counter, now - std::mem::replace(before, now));
            }
        }
    }

    /// Reports the delays of stamped packets since the last call, if there are some.
    pub fn report_delays(&self, to: impl FnOnce(&Delays)) {
        if self.reported.is_some() {
            let mut delays = self.shared.tally.heard.delays();
            if !delays.is_empty() {
                to(&delays);
                delays.clear();
            }
        }
    }

    fn leg(&mut self, slot: u32) -> &mut Leg {
        let index = slot as usize;
        if self.legs.len() <= index {
            self.legs.resize_with(index + 1, Leg::default);
        }
        &mut self.legs[index]
    }

    /// Reads a message of the call's peer: a BYE, or the addresses of its media, if the message has them.
    pub fn learn(&mut self, slot: u32, message: &[u8]) {
        self.read_bye(slot, message, THEIRS);
        if let Some((remote, description)) = Remote::read(message) {
            let shared = self.shared.clone();
            let leg = self.leg(slot);
            let before = leg.remote;
            // An address that the new description omits is kept, because the description may be about one medium only.
            leg.remote.audio = remote.audio.or(leg.remote.audio);
            leg.remote.video = remote.video.or(leg.remote.video);
            leg.remote.image = remote.image.or(leg.remote.image);
            for ((received, medium), peer) in
                leg.received.iter_mut().zip(MEDIA).zip([leg.remote.audio, leg.remote.video])
            {
                received.learn(Description::read(description, medium), peer);
            }
            leg.listen(&shared);
            let (number, remote) = (leg.number, leg.remote);
            // Playing streams change to the new address. A full queue is counted by the sending thread.
            if number != 0 && remote != before {
                let _ = self.hand(PlayerCommand::Aim(number, remote));
            }
        }
    }

    /// Reads a message that the call sends: a BYE, or its session description, if the message has one.
    ///
    /// # Errors
    /// The call has a port of its own, and describes video above it, but that port cannot be read.
    pub fn describe(&mut self, slot: u32, message: &[u8]) -> Result<(), Refusal> {
        self.read_bye(slot, message, OURS);
        let Some((own, description)) = Remote::read(message) else { return Ok(()) };
        let shared = self.shared.clone();
        let leg = self.leg(slot);
        for ((received, medium), address) in leg.received.iter_mut().zip(MEDIA).zip([own.audio, own.video]) {
            received.describe(Description::read(description, medium), address);
        }
        let mut opened = Ok(());
        let [audio, video] = &mut leg.received;
        if let (Some(sound), None, Some(address)) = (&audio.own, &video.own, own.video)
            && Some(address.port()) == sound.port.checked_add(VIDEO)
        {
            opened = shared.open_port(address.port(), false).map(|port| video.own = Some(port));
        }
        leg.listen(&shared);
        opened.map_err(|error| shared.refuse(Refusal::Port(leg.port.wrapping_add(VIDEO), error.to_string())))
    }

    /// Reads a message that the call sends and that is not of its scenario: a BYE ends the media.
    pub fn read_sent(&mut self, slot: u32, message: &[u8]) {
        self.read_bye(slot, message, OURS);
    }

    /// Stores the time of the first BYE. `allowance`: silence before it that is no fault, microseconds.
    fn read_bye(&mut self, slot: u32, message: &[u8], allowance: u64) {
        if message.starts_with(b"BYE ")
            && let Some(leg) = self.legs.get_mut(slot as usize)
        {
            leg.over.get_or_insert_with(|| Until { at: clock::micros(), allowance });
        }
    }

    /// Returns the audio port of this call (`[auto_media_port]`), and begins to receive there. `number` is that of the call: ports are four
    /// apart, in a range of 10,000 that begins at the common port. If the port is taken, by another call, another side or another program,
    /// the call gets a free one above the common port.
    ///
    /// # Errors
    /// No port can be opened. The call then has the common port.
    pub fn own_port(&mut self, slot: u32, number: u64) -> Result<u16, Refusal> {
        let shared = self.shared.clone();
        let leg = self.leg(slot);
        if leg.port == 0 {
            let opened = shared.call_port(number);
            let (port, own) = opened.map_err(|error| shared.refuse(Refusal::CallPort(error.to_string())))?;
            (leg.port, leg.received[0].own) = (port, own);
        }
        Ok(leg.port)
    }

    /// Returns the common audio port.
    pub fn port(&self) -> u16 {
        self.shared.port
    }

    /// Runs the element `rtp_echo`: switches the echo of the whole process. Has no effect without an echo requested at
    /// the start.
    pub fn echo(&self, on: bool) {
        if self.shared.settings.echo == super::settings::Echo::Always {
            self.shared.mirror.all.store(on, Relaxed);
        }
    }

    /// Runs a media action for the call in this slot.
    ///
    /// # Errors
    /// The reason why nothing is played.
    pub fn act(&mut self, slot: u32, action: &Action) -> Result<(), Refusal> {
        match action {
            Action::PlayPcap { media, file } => {
                let capture = self.shared.capture(file).ok_or(Refusal::NoFile)?;
                self.play(slot, Lane::Capture, *media, Track::Capture(capture))
            }
            Action::RtpStream(RtpStream::Play { file, video, loops, format }) => {
                let samples = self.shared.samples(file).ok_or(Refusal::NoFile)?;
                let (lane, media) = if *video { (Lane::Video, Media::Video) } else { (Lane::Audio, Media::Audio) };
                self.play(slot, lane, media, Track::samples(samples, *loops, *format))
            }
            Action::RtpStream(RtpStream::Pause) => {
                self.leg(slot).sending.pause(clock::micros());
                self.ask(slot, PlayerCommand::Pause)
            }
            Action::RtpStream(RtpStream::Resume) => {
                self.leg(slot).sending.resume(clock::micros());
                self.ask(slot, PlayerCommand::Resume)
            }
            Action::RtpStream(
                RtpStream::Pattern { .. } | RtpStream::PausePattern { .. } | RtpStream::ResumePattern { .. },
            ) => Err(Refusal::Unknown("the RTP pattern", "play a file with rtp_stream instead")),
            Action::RtpEcho(echo) => self.mirror(slot, echo.command, echo.video),
            _ => Ok(()),
        }
    }

    /// Runs `play_dtmf`: sends digits as telephone events from the audio port, and ends a capture that the call plays.
    ///
    /// # Errors
    /// The reason why nothing is played.
    pub fn digits(&mut self, slot: u32, digits: &[u8]) -> Result<(), Refusal> {
        let source = self.shared.queue.legs.load(Relaxed) as u32;
        let leg = self.leg(slot);
        let events = *leg.events.get_or_insert_with(|| Events { source: FIRST_SOURCE.wrapping_add(source), next: 0 });
        let (capture, count) = dtmf::capture(digits, events.next, events.source).ok_or(Refusal::NoDigit)?;
        leg.events = Some(Events { next: events.next.wrapping_add(count), ..events });
        self.play(slot, Lane::Capture, Media::Audio, Track::Capture(Arc::new(capture)))
    }

    fn play(&mut self, slot: u32, lane: Lane, media: Media, track: Track) -> Result<(), Refusal> {
        let shared = self.shared.clone();
        let leg = self.leg(slot);
        let (target, name) = match media {
            Media::Audio => (leg.remote.audio, "audio"),
            Media::Video => (leg.remote.video, "video"),
            Media::Image => (leg.remote.image, "image"),
        };
        let target = target.ok_or(Refusal::NoAddress(name))?;
        let refused = |port| move |error: std::io::Error| Refusal::Port(port, error.to_string());
        let base = if leg.port == 0 { shared.port } else { leg.port };
        let is_video = media == Media::Video;
        let port = if is_video { base.wrapping_add(VIDEO) } else { base };
        let socket = match &leg.received[usize::from(is_video)].own {
            Some(own) => own.socket.clone(),
            None => shared.socket(port).map_err(refused(port))?,
        };
        let mut above: Vec<(u16, Arc<UdpSocket>)> = Vec::new();
        if let Track::Capture(capture) = &track {
            for packet in capture.packets() {
                if packet.above != 0 && !above.iter().any(|(known, _)| *known == packet.above) {
                    let port = port.wrapping_add(packet.above);
                    above.push((packet.above, shared.socket(port).map_err(refused(port))?));
                }
            }
        }
        if leg.number == 0 {
            leg.number = shared.queue.legs.fetch_add(1, Relaxed);
        }
        let length = track.length();
        let play = Play { leg: leg.number, lane, target, socket, above, track };
        self.hand(PlayerCommand::Play(Box::new(play)))?;
        self.leg(slot).sending.begin(lane, clock::micros(), length);
        Ok(())
    }

    /// Sends a command for a leg that plays.
    fn ask(&mut self, slot: u32, command: impl FnOnce(u64) -> PlayerCommand) -> Result<(), Refusal> {
        match self.leg(slot).number {
            0 => Ok(()),
            number => self.hand(command(number)),
        }
    }

    fn hand(&self, command: PlayerCommand) -> Result<(), Refusal> {
        if self.shared.queue.ask(command) {
            return Ok(());
        }
        Err(self.shared.refuse(Refusal::Busy))
    }

    /// Runs `rtp_echo="startaudio,…"` and its variants: echoes the datagrams from the address in the peer's
    /// description.
    fn mirror(&mut self, slot: u32, command: EchoCommand, video: bool) -> Result<(), Refusal> {
        let shared = self.shared.clone();
        let leg = self.leg(slot);
        let place = &mut leg.mirrored[usize::from(video)];
        if let Some(peer) = place.take() {
            shared.mirror.set(peer, false);
        }
        if command == EchoCommand::Stop {
            return Ok(());
        }
        let (peer, name) = if video { (leg.remote.video, "video") } else { (leg.remote.audio, "audio") };
        let peer = peer.ok_or(Refusal::NoAddress(name))?;
        *place = Some(peer);
        shared.mirror.set(peer, true);
        Ok(())
    }

    /// Ends the media of the call in this slot. Returns what the call received.
    pub fn end(&mut self, slot: u32) -> HeardMedia {
        let Some(leg) = self.legs.get_mut(slot as usize) else { return HeardMedia::default() };
        let mut leg = std::mem::take(leg);
        let now = clock::micros();
        let until = leg.until(now);
        let mut taken = Taken::default();
        for (place, received) in leg.received.iter_mut().enumerate() {
            received.end(&self.shared, place, until, now, &mut taken);
        }
        let counts = &self.shared.tally.heard;
        counts.early.fetch_add(taken.early, Relaxed);
        counts.unjudged.fetch_add(taken.unjudged, Relaxed);
        if leg.number != 0 {
            self.shared.queue.ask(PlayerCommand::End(leg.number));
        }
        for peer in leg.mirrored.into_iter().flatten() {
            self.shared.mirror.set(peer, false);
        }
        // Media from an address that calls share may be another call's; a stream may have ended before its description came.
        let is_silent = leg.number != 0 && !taken.has_come && taken.streams.is_empty();
        HeardMedia { streams: taken.streams, is_silent }
    }
}

/// Computes `[auto_media_port]` of SIPp: the first call has the common port.
pub(crate) const fn automatic(port: u16, number: u64) -> u16 {
    port.wrapping_add((4 * (number.saturating_sub(1)) % 10_000) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_ports_lie_four_apart() {
        let ports: Vec<_> = [1, 2, 3, 2_500, 2_501].iter().map(|n| automatic(6_000, *n)).collect();
        assert_eq!(ports, [6_000, 6_004, 6_008, 15_996, 6_000]);
    }
}
