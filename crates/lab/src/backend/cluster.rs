//! Redis Cluster of three masters.

use super::{Backend, redis_of_cluster};
use crate::{Error, wait};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Slots of each master.
const SLOTS: [&str; 3] = ["0 5460", "5461 10922", "10923 16383"];

/// Time until all masters know each other.
const WHOLE: Duration = Duration::from_secs(30);

/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Cluster that has all slots.
#[derive(Debug)]
pub(super) struct Cluster {
    servers: Vec<Backend>,
}

impl Cluster {
    /// Starts three masters in folders of their own, and waits until they are one cluster.
    pub(super) fn start(folder: &Path) -> Result<Self, Error> {
        let mut servers = Vec::new();
        for (number, slots) in (1..).zip(SLOTS) {
            let folder = folder.join(format!("redis-{number}"));
            std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
            let server = redis_of_cluster(&folder)?;
            done(server.address(), &format!("CLUSTER ADDSLOTSRANGE {slots}"))?;
            servers.push(server);
        }
        let first = servers[0].address();
        for server in &servers[1..] {
            let said = say(server.address(), "CONFIG GET cluster-port")?;
            let bus = said.lines().last().unwrap_or_default().trim().to_owned();
            done(first, &format!("CLUSTER MEET {} {} {bus}", server.address().ip(), server.address().port()))?;
        }
        let is_whole = |server: &Backend| {
            let said = say(server.address(), "CLUSTER INFO").unwrap_or_default();
            said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:3")
        };
        if wait::until(WHOLE, || servers.iter().all(is_whole)) {
            return Ok(Self { servers });
        }
        Err(Error::Unexpected { what: "the Redis Cluster".into(), reason: say(first, "CLUSTER INFO")? })
    }

    /// Returns the masters of the cluster.
    pub(super) fn servers(&self) -> &[Backend] {
        &self.servers
    }
}

fn done(server: SocketAddr, line: &str) -> Result<(), Error> {
    match say(server, line)? {
        said if said == "+OK\r\n" => Ok(()),
        said => Err(Error::Unexpected { what: format!("Redis at {server}, {line}"), reason: said }),
    }
}

/// Sends one line to a cache and returns its answer.
pub(super) fn say(server: SocketAddr, line: &str) -> Result<String, Error> {
    let asked = || {
        let mut stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(format!("{line}\r\n").as_bytes())?;
        // An answer of one or two thousand bytes over loopback is received in one read.
        let mut heard = [0; 16_384];
        let length = stream.read(&mut heard)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&heard[..length]).into_owned())
    };
    asked().map_err(|error| Error::Unexpected {
        what: format!("the cache at {server}, {line}"),
        reason: error.to_string(),
    })
}
