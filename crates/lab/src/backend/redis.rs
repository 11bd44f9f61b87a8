//! Redis.

use super::START;
use crate::process::Process;
use crate::program::REDIS;
use crate::sample::Usage;
use crate::{Error, port};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A Redis that keeps nothing on disk.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
}

impl Redis {
    /// Starts one; what it prints goes to this folder.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        let port = port::free();
        let mut command = Command::new(REDIS.find()?);
        // Without a first argument that names a file it reads none.
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
        let mut process = Process::start("redis", folder, command.current_dir(folder))?;
        process.listens(port, START)?;
        Ok(Self { process, port })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }

    /// As `redis://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Processor time that it used so far.
    pub fn usage(&self) -> Usage {
        Usage::of_tree(self.process.id())
    }

    /// The server.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
