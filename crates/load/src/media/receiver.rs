//! Threads of the media sockets: receive datagrams, judge their streams, and send back those to be echoed.

use super::call_port::CallPorts;
use super::echo::Mirror;
use super::hearing::Ear;
use super::settings::Settings;
use super::stamp;
use super::tally::Tally;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use strowger_net::clock;
use strowger_net::datagrams::{self, Incoming, Outgoing};

/// Longest time until a thread notices `stopping`.
const PATIENCE: Duration = Duration::from_millis(200);

/// Time between two looks at the drops of a common socket, and of the sockets of calls, microseconds.
const COMMON_CHECK: u64 = 200_000;
const CALLS_CHECK: u64 = 1_000_000;

/// Time before a look at the drops, microseconds. Drops damage each stream that had a packet in this time: it may have lost all later ones.
const PRESENT: u64 = 1_000_000;

/// Receiver of one thread.
pub(super) struct Receiver<'a> {
    mirror: &'a Mirror,
    tally: &'a Tally,
    incoming: Incoming,
    out: Outgoing,
    /// Delays of the stamped packets of a batch, microseconds.
    delays: Vec<u64>,
}

impl<'a> Receiver<'a> {
    /// Creates a receiver, on its thread.
    pub(super) fn new(mirror: &'a Mirror, tally: &'a Tally, settings: &Settings) -> Self {
        let (incoming, out) = (Incoming::with_arrivals(settings.batch), Outgoing::new(settings.batch));
        Self { mirror, tally, incoming, out, delays: Vec::new() }
    }

    /// Reads from a common socket until `stopping`. `place`: 0 is the audio socket, 1 the video socket.
    pub(super) fn run(mut self, socket: &UdpSocket, place: usize, ear: &Ear, stopping: impl Fn() -> bool) {
        if let Err(error) = socket.set_read_timeout(Some(PATIENCE)) {
            tracing::warn!(%error, "the media socket cannot be read");
            return;
        }
        let (mut checked, mut dropped) = (clock::micros(), datagrams::drops(socket));
        while !stopping() {
            if self.receive(socket, Some(place), ear).is_err() {
                // Waits for a datagram without taking it, which also clears an error of an earlier send.
                let _ = socket.peek(&mut [0]);
            }
            let now = clock::micros();
            if now.saturating_sub(checked) >= COMMON_CHECK {
                let before = std::mem::replace(&mut dropped, datagrams::drops(socket));
                let drops = dropped.wrapping_sub(before);
                if drops > 0 {
                    self.tally.heard.drops.fetch_add(u64::from(drops), Relaxed);
                    ear.streams().damage(checked.saturating_sub(PRESENT));
                }
                checked = now;
            }
        }
    }

    /// Reads from the sockets of single calls until `stopping`.
    pub(super) fn run_calls(mut self, calls: &CallPorts, stopping: impl Fn() -> bool) {
        let (mut names, mut readable) = (Vec::new(), Vec::new());
        let mut checked = clock::micros();
        while !stopping() {
            if let Err(error) = calls.wait(PATIENCE, &mut names, &mut readable) {
                tracing::warn!(%error, "the media sockets of the calls cannot be read");
                return;
            }
            for port in readable.drain(..) {
                // An error of an earlier send ends with its report; the next wait reports what remains.
                let _ = self.receive(&port.socket, None, &port.ear);
            }
            let now = clock::micros();
            if now.saturating_sub(checked) >= CALLS_CHECK {
                calls.count_drops(self.tally);
                checked = now;
            }
        }
    }

    /// Receives a batch. `place`: number of a common socket; `None`: socket of a single call, where only chosen peers have an echo, as
    /// SIPp's `-rtp_echo` is for its common ports.
    fn receive(&mut self, socket: &UdpSocket, place: Option<usize>, ear: &Ear) -> io::Result<()> {
        let count = self.incoming.receive(socket)?;
        let (mut bytes, mut unjudged, mut ahead) = (0, 0, None);
        {
            let mut streams = ear.streams();
            for i in 0..count {
                let Some((datagram, peer)) = self.incoming.datagram(i) else { continue };
                bytes += datagram.len() as u64;
                let arrival = self.incoming.arrival(i);
                unjudged += u64::from(!streams.datagram(arrival, datagram, peer));
                if let Some(sent) = stamp::read(datagram) {
                    let arrived = arrival.wrapping_add(*ahead.get_or_insert_with(stamp::ahead));
                    self.delays.extend(stamp::delay(sent, arrived));
                }
                if self.mirror.has_chosen(peer) || place.is_some() && self.mirror.wants_all() {
                    self.out.push(peer, |out| out.extend_from_slice(datagram));
                }
            }
            streams.tidy(clock::micros());
        }
        self.tally.received.fetch_add(count as u64, Relaxed);
        self.tally.received_bytes.fetch_add(bytes, Relaxed);
        self.tally.heard.unjudged.fetch_add(unjudged, Relaxed);
        self.tally.heard.record_delays(&mut self.delays);
        if !self.out.is_empty() {
            let sent = self.out.send(socket);
            let place = place.unwrap_or(0);
            self.tally.echoed[place].fetch_add(sent.datagrams, Relaxed);
            self.tally.echoed_bytes[place].fetch_add(sent.bytes, Relaxed);
            self.tally.failures.fetch_add(sent.failed, Relaxed);
        }
        Ok(())
    }
}
