//! Connecting.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// A connection to make.
pub(crate) struct Dial {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(super) from: Option<IpAddr>,
    /// Local port; 0: any.
    pub(super) port: u16,
    pub(super) to: SocketAddr,
    /// Stream of a dedicated socket, which is already connecting.
    pub(super) begun: Option<std::net::TcpStream>,
    pub(super) timeout: Duration,
}

impl Dial {
    /// Connects.
    pub(crate) async fn run(&mut self) -> io::Result<TcpStream> {
        let begun = self.begun.take();
        let connect = async {
            if let Some(stream) = begun {
                let stream = TcpStream::from_std(stream)?;
                stream.writable().await?;
                return match stream.take_error()? {
                    Some(error) => Err(error),
                    None => Ok(stream),
                };
            }
            let socket = if self.to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            let any = |to: &SocketAddr| match to {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            };
            if self.port != 0 {
                // The port's earlier connection may still be in TIME-WAIT.
                socket.set_reuseaddr(true)?;
            }
            if self.from.is_some() || self.port != 0 {
                socket.bind(SocketAddr::new(self.from.unwrap_or_else(|| any(&self.to)), self.port))?;
            }
            socket.connect(self.to).await
        };
        tokio::time::timeout(self.timeout, connect).await.map_err(|_| io::Error::from(ErrorKind::TimedOut))?
    }
}
