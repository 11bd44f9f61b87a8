//! Signs that a system is ready, and ports that are taken.

use super::Ready;
use crate::process::{Process, inodes, owns, sockets_of};
use crate::{Error, port, wait};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Time that a system has until it is ready.
const START: Duration = Duration::from_secs(60);

/// Time that an external system has for an answer, and between two requests.
const ANSWER: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);

/// Checks that no program has this address and port of this machine.
pub(super) fn is_free(system: &str, address: SocketAddr) -> Result<(), Error> {
    let (ip, port) = (address.ip(), address.port());
    // The sockets of a server that was killed just now go a moment after it.
    if wait::until(Duration::from_secs(2), || port::is_free_at(ip, port)) {
        return Ok(());
    }
    let by = match owner(port) {
        Some((id, name)) => format!("{name} (process {id})"),
        None => "another program".to_owned(),
    };
    Err(Error::Unexpected {
        what: format!("port {port} of {ip}, for {system}"),
        reason: format!("it is taken by {by}: end it, or choose another port"),
    })
}

/// Waits for the sign of a system on this address and port.
pub(super) fn wait(process: &mut Process, address: SocketAddr, sign: &Ready) -> Result<(), Error> {
    let port = address.port();
    match sign {
        Ready::Udp => process.comes_to(&format!("listen on {port}"), START, |this| owns(this.id(), port, "udp"))?,
        Ready::Tcp => process.comes_to(&format!("listen on {port}"), START, |this| owns(this.id(), port, "tcp"))?,
        Ready::Options => process.comes_to("answer OPTIONS", START, |_| says(address, AGAIN))?,
        Ready::Prints(text) => process.comes_to(&format!("print {text:?}"), START, |this| this.log().contains(text))?,
    }
    // The program may have reached this state and then ended.
    process.runs()
}

/// Checks that a server that runs already answers OPTIONS.
pub(super) fn answers(system: &str, address: SocketAddr) -> Result<(), Error> {
    if wait::until(ANSWER, || says(address, AGAIN)) {
        return Ok(());
    }
    Err(Error::Unexpected {
        what: format!("{address}, for {system}"),
        reason: format!("no answer to OPTIONS by UDP within {ANSWER:?}: start the server, or name its address"),
    })
}

/// Tells whether OPTIONS to this address is answered in this time by any SIP response.
fn says(address: SocketAddr, limit: Duration) -> bool {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let asked = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(limit))?;
        let own = socket.local_addr()?;
        let request = format!(
            "OPTIONS sip:{address} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bKready{port};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:lab@{own}>;tag=ready\r\nTo: <sip:{address}>\r\nCall-ID: ready{port}@{own}\r\nCSeq: 1 OPTIONS\r\n\
             Content-Length: 0\r\n\r\n",
            port = own.port()
        );
        socket.send(request.as_bytes())?;
        let mut heard = [0; 16];
        let length = socket.recv(&mut heard)?;
        Ok::<_, std::io::Error>(heard[..length].starts_with(b"SIP/2.0 "))
    };
    asked().unwrap_or(false)
}

/// Returns the process that has bound a port, and its name.
fn owner(port: u16) -> Option<(u32, String)> {
    let own = std::process::id();
    let bound = [inodes(own, port, "udp"), inodes(own, port, "tcp")].concat();
    let ids = std::fs::read_dir("/proc").ok()?.flatten();
    let mut ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let id = ids.find(|id| sockets_of(*id).is_some_and(|own| bound.iter().any(|inode| own.contains(inode))))?;
    let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    Some((id, name.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_port_that_another_process_has_bound_is_no_sign() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("it is bound").port();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sleeper = Process::start("sleeper", folder.path(), Command::new("sleep").arg("60")).expect("it starts");
        assert!(owns(std::process::id(), port, "udp") && !owns(std::process::id(), port, "tcp"));
        assert!(!owns(sleeper.id(), port, "udp"));
        assert_eq!(owner(port).map(|(id, _)| id), Some(std::process::id()));
    }
}
