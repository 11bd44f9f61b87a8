//! Keys: from the terminal, by UDP, by signals. All mean the same.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::Sender;
use tokio::signal::unix::{SignalKind, signal};

/// Something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// One of `+ - * / p s q Q 1…9`.
    Letter(u8),
    /// A line behind `c`: `set rate 10`.
    Command(String),
    /// Write the screens now (SIGUSR2).
    Dump,
}

/// Reads the terminal, as far as it hands keys on.
pub(super) fn terminal(to: Sender<Key>) {
    std::thread::spawn(move || {
        let mut bytes = std::io::BufReader::new(std::io::stdin()).bytes().map_while(Result::ok);
        while let Some(byte) = bytes.next() {
            let key = if byte == b'c' {
                let line: Vec<u8> = bytes.by_ref().take_while(|&b| b != b'\n').collect();
                Key::Command(String::from_utf8_lossy(&line).trim().to_owned())
            } else {
                Key::Letter(byte)
            };
            if to.send(key).is_err() {
                return;
            }
        }
    });
}

/// Listens on the control port: on `port` if given, else on the first free one from 8888 on, silently on none.
///
/// # Errors
/// The port that was asked for is not free.
pub(super) fn control(ip: IpAddr, port: Option<u16>, to: Sender<Key>) -> std::io::Result<()> {
    let socket = match port {
        Some(port) => Some(UdpSocket::bind(SocketAddr::new(ip, port))?),
        None => (8_888..8_888 + 60).find_map(|port| UdpSocket::bind(SocketAddr::new(ip, port)).ok()),
    };
    let Some(socket) = socket else { return Ok(()) };
    std::thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((n, _)) = socket.recv_from(&mut buffer) {
            let bytes = &buffer[..n];
            let keys: Vec<Key> = match bytes.split_first() {
                Some((b'c', line)) => vec![Key::Command(String::from_utf8_lossy(line).trim().to_owned())],
                _ => bytes.iter().map(|&b| Key::Letter(b)).collect(),
            };
            if keys.into_iter().any(|key| to.send(key).is_err()) {
                return;
            }
        }
    });
    Ok(())
}

/// SIGUSR1 is `q`, SIGUSR2 writes the screens, SIGINT and SIGTERM are `Q`.
pub(super) fn signals(runtime: &tokio::runtime::Handle, to: &Sender<Key>) {
    let meanings = [
        (SignalKind::user_defined1(), Key::Letter(b'q')),
        (SignalKind::user_defined2(), Key::Dump),
        (SignalKind::interrupt(), Key::Letter(b'Q')),
        (SignalKind::terminate(), Key::Letter(b'Q')),
    ];
    for (kind, key) in meanings {
        let to = to.clone();
        runtime.spawn(async move {
            let Ok(mut stream) = signal(kind) else { return };
            while stream.recv().await.is_some() {
                if to.send(key.clone()).is_err() {
                    return;
                }
            }
        });
    }
}
