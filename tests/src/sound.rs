//! Sound of a party by hand: it plays a tone in G.711, and notes each sound that it hears.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use strowger_media::g711::Law;
use strowger_media::rtp::{Numbering, Packet};
use strowger_media::tone::Tone;

use crate::rtp::{PACKET_TIME, TICKS};

/// Time after which a thread that hears nothing looks whether it must end.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the payload of a packet of a tone as PCMU. `frequency`: a multiple of 50 Hz, so that all packets of the tone are equal.
pub fn payload(frequency: u16) -> Vec<u8> {
    let samples = Tone::new(f64::from(frequency), -10.0, 8_000).take(TICKS as usize);
    samples.map(|sample| Law::Mu.encode(sample)).collect()
}

/// Sound of a party at a socket. It is silent at first.
#[derive(Debug)]
pub struct Sound {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Target and payload of the tone.
    plays: Option<(SocketAddr, Vec<u8>)>,
    /// Payloads of all received packets.
    heard: BTreeSet<Vec<u8>>,
    is_over: bool,
}

impl Sound {
    /// Begins to listen.
    ///
    /// # Panics
    /// The socket cannot be set.
    pub fn at(socket: UdpSocket) -> Self {
        socket.set_read_timeout(Some(LOOK)).expect("a socket can be set");
        let (socket, state) = (Arc::new(socket), Arc::new(Mutex::new(State::default())));
        let (its_socket, its_state) = (Arc::clone(&socket), Arc::clone(&state));
        thread::spawn(move || listen(&its_socket, &its_state));
        let its_state = Arc::clone(&state);
        thread::spawn(move || play(&socket, &its_state));
        Self { state }
    }

    /// Plays a tone to this address from now on.
    pub fn play(&self, to: SocketAddr, frequency: u16) {
        lock(&self.state).plays = Some((to, payload(frequency)));
    }

    /// Tells whether this tone was heard.
    pub fn hears(&self, frequency: u16) -> bool {
        lock(&self.state).heard.contains(&payload(frequency))
    }

    /// Returns each heard payload that belongs to none of these tones.
    pub fn others(&self, frequencies: &[u16]) -> Vec<Vec<u8>> {
        let known: Vec<Vec<u8>> = frequencies.iter().map(|frequency| payload(*frequency)).collect();
        lock(&self.state).heard.iter().filter(|heard| !known.contains(heard)).cloned().collect()
    }
}

impl Drop for Sound {
    fn drop(&mut self) {
        lock(&self.state).is_over = true;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(socket: &UdpSocket, state: &Mutex<State>) {
    let mut buffer = [0; 2_048];
    while !lock(state).is_over {
        let Ok((length, _)) = socket.recv_from(&mut buffer) else { continue };
        let datagram = &buffer[..length];
        let heard = Packet::read(datagram).map_or(datagram, |packet| packet.payload);
        lock(state).heard.insert(heard.to_vec());
    }
}

fn play(socket: &UdpSocket, state: &Mutex<State>) {
    let mut numbers = Numbering::new(0xfeed, 1, 0);
    let mut due = Instant::now();
    loop {
        let plays = {
            let state = lock(state);
            if state.is_over {
                return;
            }
            state.plays.clone()
        };
        let header = numbers.next(0, TICKS);
        if let Some((to, payload)) = plays {
            let mut packet = Vec::new();
            header.write(&mut packet);
            packet.extend(payload);
            // A packet without a way is lost.
            let _ = socket.send_to(&packet, to);
        }
        due += PACKET_TIME;
        // Until the next packet.
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
