//! Client side of the control socket, for commands.

use super::{ControlOrder, Reply};
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Error: no server answers on the socket.
#[derive(Debug)]
pub struct Unreachable {
    socket: PathBuf,
    error: io::Error,
}

impl Unreachable {
    /// Tells whether no process listens on this socket: the server is down, or uses another socket.
    pub fn is_absent(&self) -> bool {
        matches!(self.error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.socket.display();
        match self.error.kind() {
            _ if self.is_absent() => write!(f, "no server listens on {socket}"),
            io::ErrorKind::PermissionDenied => {
                write!(f, "{socket} is not for this user: its server runs as another one")
            }
            _ => write!(f, "no server answers on {socket}: {}", self.error),
        }
    }
}

impl std::error::Error for Unreachable {}

/// A connection to a running server.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
}

impl Client {
    /// Connects to this socket. A server that is silent for `patience` counts as absent.
    ///
    /// # Errors
    /// No server listens there, or this user may not connect.
    pub fn connect(socket: &Path, patience: Duration) -> Result<Self, Unreachable> {
        let unreachable = |error| Unreachable { socket: socket.to_owned(), error };
        let stream = UnixStream::connect(socket).map_err(unreachable)?;
        stream.set_read_timeout(Some(patience)).map_err(unreachable)?;
        stream.set_write_timeout(Some(patience)).map_err(unreachable)?;
        Ok(Self { stream: BufReader::new(stream), socket: socket.to_owned() })
    }

    /// Sets the longest silence of the server that the client accepts from now on.
    ///
    /// # Errors
    /// An error of the system.
    pub fn wait_for(&mut self, patience: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(patience))
    }

    /// Sends an order and returns the reply.
    ///
    /// # Errors
    /// The server has ended, does not answer in time or is of another version.
    pub fn ask(&mut self, order: &ControlOrder) -> Result<Reply, Unreachable> {
        self.exchange(order).map_err(|error| Unreachable { socket: self.socket.clone(), error })
    }

    fn exchange(&mut self, order: &ControlOrder) -> io::Result<Reply> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        // If the server has no room for a connection, it says so and closes, perhaps before it reads the order.
        let sent = self.stream.get_mut().write_all(&line);
        line.clear();
        if self.stream.read_until(b'\n', &mut line).or_else(|error| sent.and(Err(error)))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }

    /// Waits until the server has ended.
    ///
    /// # Errors
    /// The server has not ended in this time.
    pub fn wait_for_end(&mut self, limit: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(limit))?;
        match self.stream.read_until(b'\n', &mut Vec::new()) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(error),
        }
    }
}
