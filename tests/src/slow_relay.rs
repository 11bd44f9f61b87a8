//! Relay of TCP connections that delays replies, or passes no bytes while it is cut. It counts the pieces that it sends
//! to the server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Relay on loopback, until this process ends.
#[derive(Debug)]
pub struct SlowRelay {
    address: SocketAddr,
    /// Delay in milliseconds.
    delay: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    is_cut: Arc<AtomicBool>,
}

impl SlowRelay {
    /// Starts a relay to this server, without a delay.
    ///
    /// # Panics
    /// No port is free.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (delay, sent) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let is_cut = Arc::new(AtomicBool::new(false));
        let shared = (delay.clone(), sent.clone(), is_cut.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(server) else { continue };
                let (Ok(near_again), Ok(far_again)) = (near.try_clone(), far.try_clone()) else { continue };
                let (delay, sent, is_cut) = shared.clone();
                let cut_again = is_cut.clone();
                std::thread::spawn(move || {
                    pass(near, far, || {
                        sent.fetch_add(1, Ordering::Relaxed);
                        hold(&is_cut);
                    });
                });
                // The configured delay.
                let wait = move || {
                    std::thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
                    hold(&cut_again);
                };
                std::thread::spawn(move || pass(far_again, near_again, wait));
            }
        });
        Self { address, delay, sent, is_cut }
    }

    /// Returns the relay's address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how many pieces the relay has sent to the server: questions, if they are sent one by one, and handshakes
    /// of connections.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Stops passing bytes in either direction, without closing a connection, until [`mend`](Self::mend). This acts
    /// like a lost network.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// Ends a cut: bytes that were sent meanwhile arrive.
    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }

    /// Delays replies by this time from now on.
    pub fn slow_down(&self, delay: Duration) {
        let milliseconds = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay.store(milliseconds, Ordering::Relaxed);
    }
}

fn hold(is_cut: &AtomicBool) {
    while is_cut.load(Ordering::Relaxed) {
        // This is the poll interval, because nothing signals the end of the cut.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Passes bytes on until one end closes its connection; calls `before` for each piece.
fn pass(mut from: TcpStream, mut to: TcpStream, before: impl Fn()) {
    let mut bytes = [0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        before();
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _closed = to.shutdown(Shutdown::Both);
}
