//! Messages between the laboratory and its agent on a host. Each is a line of JSON, followed by the bytes of a file if the
//! message sends one.
//!
//! Both ends are the same program, so the messages have no version.

use crate::run::SideRequest;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Request to the agent. Each but [`Request::Alive`] has a reply, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request {
    /// Sign of life. An agent ends if it receives none for a while.
    Alive,
    /// Wall clock, in microseconds since 1970-01-01 UTC.
    Clock,
    /// Findings about the machine.
    Examine,
    /// Asks for the local address of the agent on the route to this address.
    Address(SocketAddr),
    /// Free port of this address.
    Port(IpAddr),
    /// File whose bytes follow the line.
    Put { file: String, is_program: bool },
    /// Reads a file; its bytes follow the reply.
    Get(String),
    /// Start of this program with these words as process `number` with a folder of its own.
    Start { number: u32, name: String, cores: Vec<usize>, words: Vec<String> },
    /// Wait until a process has bound a port.
    Listens { number: u32, port: u16, limit: Duration },
    /// Sentence about how a process has ended; none while it runs.
    Ended(u32),
    /// Signal to a process.
    Signal { number: u32, signal: i32 },
    /// Last lines that a process printed.
    Tail(u32),
    /// End of a process; its folder is removed.
    End(u32),
    /// Server's side of a site, by its number.
    Side(u32, SideRequest),
}

/// Line of a message and the bytes behind it.
#[derive(Debug, Serialize, Deserialize)]
struct Line<T> {
    #[serde(rename = "is")]
    message: T,
    #[serde(default)]
    bytes: usize,
}

/// Largest message, in bytes: the program of a system is sent in one message.
const LARGEST: usize = 1 << 30;

/// Writes a message, and these bytes after it.
pub(super) fn write(output: &mut impl Write, message: &impl Serialize, bytes: &[u8]) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Line { message, bytes: bytes.len() })?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.write_all(bytes)?;
    output.flush()
}

/// Reads a message. Returns `None` at the end of the input.
pub(super) fn read<T: for<'de> Deserialize<'de>>(input: &mut impl BufRead) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut line = Vec::new();
    if input.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let line: Line<T> = serde_json::from_slice(&line)?;
    if line.bytes > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; line.bytes];
    input.read_exact(&mut bytes)?;
    Ok(Some((line.message, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_their_bytes_follow_each_other() {
        let mut sent = Vec::new();
        write(&mut sent, &Request::Put { file: "a".into(), is_program: false }, b"x\n{\0").expect("a Vec takes all");
        write(&mut sent, &Request::Ended(7), b"").expect("a Vec takes all");
        let mut input = sent.as_slice();
        let mut next =
            || read::<Request>(&mut input).map(|read| read.map(|(request, bytes)| (format!("{request:?}"), bytes)));
        assert!(next().is_ok_and(|read| read.is_some_and(|(text, bytes)| text.contains("Put") && bytes == b"x\n{\0")));
        assert!(next().is_ok_and(|read| read == Some(("Ended(7)".into(), Vec::new()))));
        assert!(next().is_ok_and(|read| read.is_none()));
        assert!(
            read::<Request>(&mut &b"{\"is\":\"alive\",\"bytes\":9}\nshort"[..]).is_err(),
            "a broken link is no message"
        );
    }
}
