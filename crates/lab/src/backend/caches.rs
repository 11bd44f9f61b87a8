//! Redis and Memcached.

use super::{Backend, is_root};
use crate::program::{MEMCACHED, REDIS};
use crate::{Error, port};
use std::path::Path;
use std::process::Command;

/// Starts a Redis that keeps nothing on disk. What it prints goes to this folder.
///
/// # Errors
/// It is not installed, or does not start.
pub fn redis(folder: &Path) -> Result<Backend, Error> {
    let port = port::free();
    let mut command = Command::new(REDIS.find()?);
    // Without a first argument that names a file it reads none.
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
    Backend::start("redis", folder, port, command)
}

/// Starts a Memcached of 256 MB. What it prints goes to this folder.
///
/// # Errors
/// It is not installed, or does not start.
pub fn memcached(folder: &Path) -> Result<Backend, Error> {
    let port = port::free();
    let mut command = Command::new(MEMCACHED.find()?);
    command.args(["--listen=127.0.0.1", "--memory-limit=256", "--udp-port=0", &format!("--port={port}")]);
    if is_root() {
        command.arg("--user=root");
    }
    Backend::start("memcached", folder, port, command)
}
