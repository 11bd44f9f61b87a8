//! Opening of a usable connection: connected, encrypted, authenticated, and to the right server.

use std::io;
use std::time::Duration;

use crate::servers::{Credentials, Endpoint, Service};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::memcached;
use super::resp::{self, Front, Reply};
use super::settings::RemoteSettings;

/// Connection of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Reason why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0:?} is no name that a certificate can prove")]
    Name(String),
    #[error("it does not answer in time")]
    Silent,
    /// Error text of the server.
    #[error("the server says: {0}")]
    Said(String),
    #[error("it speaks another protocol: {0}")]
    Foreign(&'static str),
    #[error("it is not the master of {0}")]
    NoMaster(String),
    /// The Sentinel does not know the group.
    #[error("it does not know the group")]
    NoGroup,
    /// Group, and the error of the last Sentinel asked.
    #[error("none of the Sentinels names a master of {0}: {1}")]
    NoSentinel(String, String),
}

/// Maximum size of a reply during the opening of a connection, in bytes.
const MOST: usize = 8 << 20;

/// Connects to the server or, in a group with Sentinels, to its master.
pub(super) async fn dial(settings: &RemoteSettings, server: &Endpoint) -> Result<Box<dyn Stream>, DialError> {
    let limit = settings.timeout;
    let Service::Sentinel { group, database, credentials } = &settings.service else {
        return within(limit, async {
            let mut stream = reach(settings, server).await?;
            match &settings.service {
                Service::Memcached => greet_memcached(&mut stream, settings.credentials.as_ref()).await?,
                Service::Redis { database } => {
                    greet_redis(&mut stream, settings.credentials.as_ref(), *database).await?
                }
                _ => greet_redis(&mut stream, settings.credentials.as_ref(), 0).await?,
            }
            Ok(stream)
        })
        .await;
    };
    let mut last = String::new();
    for sentinel in &settings.servers {
        let asked = within(limit, ask_sentinel(settings, sentinel, group, credentials.as_ref())).await;
        let master = match asked {
            Ok(master) => master,
            Err(error) => {
                tracing::debug!(cache = settings.name, %sentinel, %error, "a Sentinel names no master");
                last = format!("{sentinel}: {error}");
                continue;
            }
        };
        return within(limit, async {
            let mut stream = reach(settings, &master).await?;
            greet_redis(&mut stream, settings.credentials.as_ref(), *database).await?;
            // A Sentinel may not have noticed a fail-over yet.
            let role = command(&mut stream, &[b"ROLE"]).await?;
            if role.text(0) == Some(b"master") { Ok(stream) } else { Err(DialError::NoMaster(group.clone())) }
        })
        .await;
    }
    Err(DialError::NoSentinel(group.clone(), last))
}

pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    tokio::time::timeout(limit, work).await.unwrap_or(Err(DialError::Silent))
}

async fn reach(settings: &RemoteSettings, server: &Endpoint) -> Result<Box<dyn Stream>, DialError> {
    let (host, port) = match server {
        Endpoint::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        Endpoint::Tcp(host, port) => (host, *port),
    };
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    settings.peers.add(stream.peer_addr()?);
    // The requests of a round are sent in one write, so no request waits for more requests.
    stream.set_nodelay(true)?;
    let Some(tls) = &settings.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.clone()).map_err(|_| DialError::Name(host.clone()))?;
    Ok(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?))
}

async fn greet_memcached(stream: &mut Box<dyn Stream>, credentials: Option<&Credentials>) -> Result<(), DialError> {
    let (mut hello, mut wanted) = (Vec::new(), Vec::new());
    if let Some(Credentials { user, password }) = credentials {
        // Format of `memcached -Y FILE`.
        let line = format!("set strowger 0 0 {}\r\n{user} {password}\r\n", user.len() + 1 + password.len());
        hello.extend_from_slice(line.as_bytes());
        wanted.extend_from_slice(b"STORED\r\n");
    }
    hello.extend_from_slice(memcached::PROBE);
    wanted.extend_from_slice(memcached::PROBED);
    stream.write_all(&hello).await?;
    stream.flush().await?;
    let mut heard = Vec::new();
    while heard.len() < wanted.len() {
        if stream.read_buf(&mut heard).await? == 0 {
            return Err(DialError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        if !wanted.starts_with(&heard) && !heard.starts_with(&wanted) {
            let line = heard.split(|octet| *octet == b'\r').next().unwrap_or_default();
            if line == b"ERROR" {
                return Err(DialError::Foreign("a Memcached older than 1.6 has no meta commands"));
            }
            return Err(DialError::Said(String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned()));
        }
    }
    if heard == wanted { Ok(()) } else { Err(DialError::Foreign("it says more than it was asked")) }
}

async fn greet_redis(
    stream: &mut Box<dyn Stream>,
    credentials: Option<&Credentials>,
    database: u32,
) -> Result<(), DialError> {
    authenticate(stream, credentials).await?;
    if database != 0 {
        command(stream, &[b"SELECT", database.to_string().as_bytes()]).await?;
    }
    let pong = command(stream, &[b"PING"]).await?;
    if pong.bytes == b"+PONG\r\n" { Ok(()) } else { Err(DialError::Foreign("it does not answer PING")) }
}

async fn authenticate(stream: &mut Box<dyn Stream>, credentials: Option<&Credentials>) -> Result<(), DialError> {
    match credentials {
        Some(Credentials { user, password }) if user.is_empty() => {
            command(stream, &[b"AUTH", password.as_bytes()]).await.map(drop)
        }
        Some(Credentials { user, password }) => {
            command(stream, &[b"AUTH", user.as_bytes(), password.as_bytes()]).await.map(drop)
        }
        None => Ok(()),
    }
}

/// Asks a Sentinel for the master.
async fn ask_sentinel(
    settings: &RemoteSettings,
    sentinel: &Endpoint,
    group: &str,
    credentials: Option<&Credentials>,
) -> Result<Endpoint, DialError> {
    let mut stream = reach(settings, sentinel).await?;
    authenticate(&mut stream, credentials).await?;
    let said = command(&mut stream, &[b"SENTINEL", b"get-master-addr-by-name", group.as_bytes()]).await?;
    let text = |place| said.text(place).and_then(|text| std::str::from_utf8(text).ok());
    let (host, port) = text(0).zip(text(1)).ok_or(DialError::NoGroup)?;
    let port = port.parse().map_err(|_| DialError::Foreign("a Sentinel that names no port"))?;
    Ok(Endpoint::Tcp(host.into(), port))
}

/// Asks a node of a cluster for the servers with their slots.
pub(super) async fn ask_cluster(settings: &RemoteSettings, server: &Endpoint) -> Result<Said, DialError> {
    within(settings.timeout, async {
        let mut stream = reach(settings, server).await?;
        authenticate(&mut stream, settings.credentials.as_ref()).await?;
        command(&mut stream, &[b"CLUSTER", b"SLOTS"]).await
    })
    .await
}

/// Reply with its bytes.
pub(super) struct Said {
    pub(super) bytes: Vec<u8>,
    pub(super) reply: Reply,
}

impl Said {
    /// Returns a text of an array.
    fn text(&self, place: usize) -> Option<&[u8]> {
        match &self.reply {
            Reply::Array(items) => match items.get(place)? {
                Reply::Bulk(text) => Some(&self.bytes[text.clone()]),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Sends a command and waits for its reply; a Redis error becomes an error.
pub(super) async fn command(stream: &mut Box<dyn Stream>, parts: &[&[u8]]) -> Result<Said, DialError> {
    let mut bytes = Vec::new();
    resp::write(parts, &mut bytes);
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    bytes.clear();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(DialError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        match resp::read(&bytes, MOST) {
            Front::More if bytes.len() > MOST => return Err(DialError::Foreign("a reply without an end")),
            Front::More => {}
            Front::Broken(reason) => return Err(DialError::Foreign(reason)),
            Front::Whole(_, end) if end < bytes.len() => {
                return Err(DialError::Foreign("it says more than it was asked"));
            }
            Front::Whole(Reply::Error(text), _) => {
                return Err(DialError::Said(String::from_utf8_lossy(&bytes[text]).into_owned()));
            }
            Front::Whole(reply, _) => return Ok(Said { bytes, reply }),
        }
    }
}
