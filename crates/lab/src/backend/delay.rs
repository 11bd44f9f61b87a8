//! Link with a delay in front of a server of TCP.

use crate::Error;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Maximum number of bytes that are read at once.
const PIECE: usize = 65_536;

/// Link that delays all bytes by a fixed time, in each direction. A dropped link accepts no more connections; an open connection ends
/// when one of its two peers closes it.
#[derive(Debug)]
pub(super) struct Delay {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Delay {
    /// Opens a link to this server with a delay in each direction.
    pub(super) fn start(server: SocketAddr, delay: Duration) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Unexpected {
            what: format!("a link to {server}"),
            reason: error.to_string(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let take = move || {
            for near in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(far) = TcpStream::connect(server) {
                    // Without its threads a connection closes, which its ends see.
                    let _ = both(near, far, delay);
                }
            }
        };
        std::thread::Builder::new().name("delay".into()).spawn(take).map_err(failed)?;
        Ok(Self { address, is_over })
    }

    /// Returns the address of the link's near end.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections.
        drop(TcpStream::connect(self.address));
    }
}

/// Forwards both directions of a connection.
fn both(near: TcpStream, far: TcpStream, delay: Duration) -> std::io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    one(near.try_clone()?, far.try_clone()?, delay)?;
    one(far, near, delay)
}

/// Forwards one direction by two threads: one reads, the other writes the bytes that are due.
fn one(mut from: TcpStream, to: TcpStream, delay: Duration) -> std::io::Result<()> {
    let (sender, receiver): (Sender<(Instant, Vec<u8>)>, Receiver<_>) = channel();
    let read = move || {
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            if sender.send((Instant::now() + delay, piece[..length].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = move || {
        let mut to = to;
        for (due, piece) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    };
    std::thread::Builder::new().name("delay-read".into()).spawn(read)?;
    std::thread::Builder::new().name("delay-write".into()).spawn(write)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_both_delays_and_an_end_reaches_the_other_side() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = server.local_addr().expect("it is bound");
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a connection");
            let mut heard = [0; 4];
            stream.read_exact(&mut heard).expect("four bytes");
            stream.write_all(&heard).expect("it listens");
            stream.read(&mut heard).expect("an end")
        });
        let delay = Duration::from_millis(20);
        let link = Delay::start(at, delay).expect("a link");
        let mut stream = TcpStream::connect(link.address()).expect("it listens");
        let begun = Instant::now();
        stream.write_all(b"ping").expect("it listens");
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).expect("an answer");
        assert!(&heard == b"ping" && begun.elapsed() >= 2 * delay, "{:?}", begun.elapsed());
        drop(stream);
        assert_eq!(echo.join().expect("it ends"), 0);
    }
}
