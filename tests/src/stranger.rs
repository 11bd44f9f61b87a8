//! Host that sends RTP to all ports of another one, again and again.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use strowger_media::rtp::Numbering;

use crate::sound::payload;
use crate::wait;

/// Longest time between two looks at the clock.
const STEP: Duration = Duration::from_millis(2);

/// Running outsider. It ends when it is dropped.
#[derive(Debug)]
pub struct Stranger {
    count: Arc<Count>,
    /// Number of its target ports.
    ports: u64,
}

#[derive(Debug, Default)]
struct Count {
    /// Number of times that a port has got a packet from each address.
    reached: AtomicU64,
    is_over: AtomicBool,
}

impl Stranger {
    /// Begins to send a tone of this frequency to these ports, from each of these sockets. `packets`: packets a second.
    pub fn start(
        sockets: Vec<UdpSocket>,
        target: IpAddr,
        ports: RangeInclusive<u16>,
        packets: u32,
        frequency: u16,
    ) -> Self {
        let count = Arc::new(Count::default());
        let this = Self { count: Arc::clone(&count), ports: ports.len() as u64 };
        thread::spawn(move || {
            let pause = Duration::from_secs(1) * sockets.len() as u32 / packets;
            let (mut numbers, mut due) = (Numbering::new(0xbad, 1, 0), Instant::now());
            let sound = payload(frequency);
            for port in ports.cycle() {
                if count.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let mut packet = Vec::new();
                numbers.next(0, sound.len() as u32).write(&mut packet);
                packet.extend(&sound);
                let target = SocketAddr::new(target, port);
                if sockets.iter().all(|socket| socket.send_to(&packet, target).is_ok()) {
                    count.reached.fetch_add(1, Ordering::Relaxed);
                }
                due += pause;
                let early = due.saturating_duration_since(Instant::now());
                if early >= STEP {
                    // Keeps the rate.
                    thread::sleep(early);
                }
            }
        });
        this
    }

    /// Returns the number of ports that have got a packet from each address so far; a port counts each time.
    pub fn reached(&self) -> u64 {
        self.count.reached.load(Ordering::Relaxed)
    }

    /// Waits until each port has got a packet from each address after this call.
    ///
    /// # Panics
    /// This does not happen before the limit.
    pub fn sweep(&self, limit: Duration) {
        // A packet may be under way.
        let end = self.reached() + self.ports + 1;
        assert!(wait::until(limit, || self.reached() >= end), "{} of {end} ports reached", self.reached());
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.count.is_over.store(true, Ordering::Relaxed);
    }
}
