//! Media of the calls of one shard: the address to which each peer wants media to be sent, and the port from which they
//! are sent.

use super::call_port::CallPort;
use super::dtmf;
use super::formats::Formats;
use super::plane::Shared;
use super::player::{Lane, Play, PlayerCommand};
use super::remote::Remote;
use super::tally::COUNTS;
use super::track::Track;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strowger_measure::{Counter, HeardMedia};
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
    /// Socket of `port`, if it is no common one.
    own: Option<Arc<CallPort>>,
    /// Formats of the last description of each side: ours, which the peer sends in, and the peer's.
    ours: Formats,
    theirs: Formats,
    /// Addresses from which media are expected, and the place of their common socket: 0 audio, 1 video.
    expected: Vec<(usize, SocketAddr)>,
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

/// Limit of addresses from which a call expects media. Peers that move more often are judged at the first ones.
const ADDRESSES: usize = 16;

impl Leg {
    /// Expects media from the peer's addresses, in the formats of both descriptions.
    fn listen(&mut self, shared: &Shared) {
        let formats = self.ours.clone().or(&self.theirs);
        if let Some(own) = &self.own {
            own.ear.describe(&formats);
        }
        for (place, address) in [self.remote.audio, self.remote.video].into_iter().enumerate() {
            // Address 0.0.0.0 holds the call.
            let Some(address) = address.filter(|address| !address.ip().is_unspecified()) else { continue };
            let is_new = !self.expected.contains(&(place, address));
            if is_new && self.expected.len() == ADDRESSES {
                continue;
            }
            if is_new {
                self.expected.push((place, address));
            }
            shared.ears[place].expect(address, is_new, &formats);
        }
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

    fn leg(&mut self, slot: u32) -> &mut Leg {
        let index = slot as usize;
        if self.legs.len() <= index {
            self.legs.resize_with(index + 1, Leg::default);
        }
        &mut self.legs[index]
    }

    /// Reads a message of the call's peer, and stores the addresses of its media, if the message has them.
    pub fn learn(&mut self, slot: u32, message: &[u8]) {
        if let Some((remote, description)) = Remote::read(message) {
            let shared = self.shared.clone();
            let leg = self.leg(slot);
            let before = leg.remote;
            // An address that the new description omits is kept, because the description may be about one medium only.
            leg.remote.audio = remote.audio.or(leg.remote.audio);
            leg.remote.video = remote.video.or(leg.remote.video);
            leg.remote.image = remote.image.or(leg.remote.image);
            leg.theirs = Formats::read(description);
            leg.listen(&shared);
            let (number, remote) = (leg.number, leg.remote);
            // Playing streams change to the new address. A full queue is counted by the sending thread.
            if number != 0 && remote != before {
                let _ = self.hand(PlayerCommand::Aim(number, remote));
            }
        }
    }

    /// Reads a message that the call sends, and stores the formats of its session description, if the message has one.
    pub fn describe(&mut self, slot: u32, message: &[u8]) {
        if let Some((_, description)) = Remote::read(message) {
            let shared = self.shared.clone();
            let leg = self.leg(slot);
            leg.ours = Formats::read(description);
            leg.listen(&shared);
        }
    }

    /// Returns the audio port of this call (`[auto_media_port]`), and begins to receive there. Ports are four apart, in a range of 10,000
    /// that begins at the common port. `number` is that of the call.
    pub fn own_port(&mut self, slot: u32, number: u64) -> u16 {
        let port = automatic(self.shared.port, number);
        let shared = self.shared.clone();
        let leg = self.leg(slot);
        if leg.port != port {
            (leg.port, leg.own) = (port, shared.call_port(port));
        }
        port
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
            Action::RtpStream(RtpStream::Pause) => self.ask(slot, PlayerCommand::Pause),
            Action::RtpStream(RtpStream::Resume) => self.ask(slot, PlayerCommand::Resume),
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
        let port = if media == Media::Video { base.wrapping_add(2) } else { base };
        if leg.port != 0 && leg.own.is_none() {
            leg.own = shared.call_port(leg.port);
            if leg.own.is_some() {
                leg.listen(&shared);
            }
        }
        let socket = match &leg.own {
            Some(own) if media != Media::Video => own.socket.clone(),
            _ => shared.socket(port).map_err(refused(port))?,
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
        let play = Play { leg: leg.number, lane, target, socket, above, track };
        self.hand(PlayerCommand::Play(Box::new(play)))
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
        self.shared.tally.refused.fetch_add(1, Relaxed);
        Err(Refusal::Busy)
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
        let mut heard = HeardMedia::default();
        let Some(leg) = self.legs.get_mut(slot as usize) else { return heard };
        let leg = std::mem::take(leg);
        let now = clock::micros();
        let mut is_heard = false;
        for (place, address) in &leg.expected {
            is_heard |= self.shared.ears[*place].take(*address, now, &mut heard.streams);
        }
        if let Some(own) = &leg.own {
            own.ear.take_all(&mut heard.streams);
        }
        // Media from an address that calls share may be another call's.
        heard.is_silent = leg.number != 0 && !is_heard && heard.streams.is_empty();
        if leg.number != 0 {
            self.shared.queue.ask(PlayerCommand::End(leg.number));
        }
        for peer in leg.mirrored.into_iter().flatten() {
            self.shared.mirror.set(peer, false);
        }
        heard
    }
}

/// Computes `[auto_media_port]`.
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
