//! Memcached.

use super::{START, is_root};
use crate::process::Process;
use crate::program::MEMCACHED;
use crate::sample::Usage;
use crate::{Error, port};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A Memcached of 256 MB.
#[derive(Debug)]
pub struct Memcached {
    process: Process,
    port: u16,
}

impl Memcached {
    /// Starts one; what it prints goes to this folder.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(folder: &Path) -> Result<Self, Error> {
        let port = port::free();
        let mut command = Command::new(MEMCACHED.find()?);
        command.args(["--listen=127.0.0.1", "--memory-limit=256", "--udp-port=0", &format!("--port={port}")]);
        if is_root() {
            command.arg("--user=root");
        }
        let mut process = Process::start("memcached", folder, &mut command)?;
        process.listens(port, START)?;
        Ok(Self { process, port })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
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
