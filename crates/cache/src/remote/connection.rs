//! Task of a connection: opens it, moves bytes, and opens it again when it is lost.

use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};

use super::dial::{DialError, Stream, dial};
use super::eviction;
use super::link::State;
use super::topology::{CacheServer, Connection, Topology};

/// Pause after the first failed attempt; each further pause is twice as long, up to the bound of the settings.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A lost connection that lasted this long is opened again at once, and requests wait for it.
const STEADY: Duration = Duration::from_secs(1);
/// Size of a read.
const READ: usize = 16 << 10;
/// Memory above this is freed after a large reply.
const KEPT: usize = 1 << 20;

/// Reason of a connection's end.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the server closed it")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server sent {0}")]
    Broken(&'static str),
    #[error("the server does not answer")]
    GivenUp,
    #[error("the server is none of the cluster any more")]
    Retired,
}

/// Maintains a connection to a server until the thread ends, or the server has left the cluster.
pub(super) async fn keep(world: Rc<Topology>, node: Rc<CacheServer>, connection: Rc<Connection>) {
    let (shared, server) = (&world.shared, &node.server);
    let name = &shared.settings.name;
    let mut pause = FIRST_PAUSE;
    let mut is_missing = false;
    while !connection.is_retired.get() {
        match open(&world, &node, &connection).await {
            Ok(stream) => {
                let was_missing = std::mem::take(&mut is_missing) && node.is_first(&connection);
                if was_missing && shared.said.reached(server, world.thread) {
                    tracing::info!(cache = name, %server, "cache server reached again");
                }
                let since = Instant::now();
                connection.is_given_up.set(false);
                world.opened(&connection);
                let end = drive(&world, &node, &connection, stream).await;
                shared.figures.lost.fetch_add(1, Ordering::Relaxed);
                let is_steady = since.elapsed() >= STEADY;
                let again = is_steady && !matches!(end, End::GivenUp | End::Retired);
                world.lose(&connection, if again { State::Opening } else { State::Down });
                match end {
                    End::Retired => {}
                    // The server restarts, or closes idle connections.
                    End::Closed => tracing::debug!(cache = name, %server, "cache connection closed"),
                    end => {
                        let reason = end.to_string();
                        // Other connections to the same server are lost at the same time.
                        if shared.said.is_news(server, &reason, STEADY) {
                            tracing::warn!(cache = name, %server, reason, "cache connection lost");
                        }
                    }
                }
                if is_steady {
                    pause = FIRST_PAUSE;
                }
                if again {
                    continue;
                }
            }
            Err(error) => {
                world.lose(&connection, State::Down);
                // All connections to a server notice this at once.
                let is_new = !std::mem::replace(&mut is_missing, true) && node.is_first(&connection);
                if is_new && shared.said.missed(server, world.thread) {
                    tracing::warn!(cache = name, %server, %error, "cache server not reached");
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(shared.settings.pause.max(FIRST_PAUSE));
    }
    if is_missing && node.is_first(&connection) {
        let _is_last = shared.said.reached(server, world.thread);
    }
}

/// Opens the connection. One of all connections to a server asks once whether the server evicts entries. A server that
/// closes the connection because of this question is used nevertheless.
async fn open(world: &Topology, node: &CacheServer, connection: &Rc<Connection>) -> Result<Box<dyn Stream>, DialError> {
    let settings = &world.shared.settings;
    let mut stream = dial(settings, &node.server).await?;
    if settings.is_relied_upon && world.is_first() && node.is_first(connection) && !node.is_asked.replace(true) {
        eviction::warn(settings, &node.server, &mut stream).await?;
    }
    Ok(stream)
}

/// Moves bytes until the connection ends.
async fn drive(world: &Rc<Topology>, node: &CacheServer, connection: &Connection, stream: Box<dyn Stream>) -> End {
    let (mut reader, writer) = tokio::io::split(stream);
    let mut output = Output { writer, bytes: Vec::new(), written: 0, is_flushed: true };
    let (mut input, mut events) = (Vec::new(), Vec::new());
    loop {
        if connection.is_given_up.take() {
            return End::GivenUp;
        }
        if connection.is_retired.get() {
            return End::Retired;
        }
        if output.is_written() {
            connection.link.borrow_mut().take_output(&mut output.bytes);
            output.written = 0;
        }
        input.reserve(READ);
        tokio::select! {
            biased;
            written = output.write() => if let Err(error) = written {
                return error.into();
            },
            read = reader.read_buf(&mut input) => {
                match read {
                    Ok(0) => return End::Closed,
                    Ok(_) => {}
                    Err(error) => return error.into(),
                }
                let result = connection.link.borrow_mut().received(&mut input, &mut events);
                world.settle(&mut events, node);
                world.hand_out();
                if let Err(reason) = result {
                    return End::Broken(reason);
                }
                if input.is_empty() {
                    input.shrink_to(KEPT);
                }
            }
            () = connection.wake.notified() => {}
        }
    }
}

/// Bytes being written. A write in progress resumes at its position after any interruption.
struct Output {
    writer: WriteHalf<Box<dyn Stream>>,
    bytes: Vec<u8>,
    written: usize,
    is_flushed: bool,
}

impl Output {
    const fn is_written(&self) -> bool {
        self.written == self.bytes.len() && self.is_flushed
    }

    /// Writes the output, and completes when all bytes are written. Never completes if there is nothing to write.
    async fn write(&mut self) -> io::Result<()> {
        if self.is_written() {
            return std::future::pending().await;
        }
        while self.written < self.bytes.len() {
            let written = self.writer.write(&self.bytes[self.written..]).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written += written;
            self.is_flushed = false;
        }
        self.writer.flush().await?;
        self.is_flushed = true;
        Ok(())
    }
}
