//! Redis and Memcached.

use super::{Backend, is_root};
use crate::program::{MEMCACHED, REDIS};
use crate::{Error, port};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// Starts a Redis that keeps nothing on disk, with its output in this folder.
///
/// # Errors
/// The program is not installed, or does not start.
pub fn redis(folder: &Path) -> Result<Backend, Error> {
    redis_with(folder, &[])
}

/// Starts a Redis as [`redis`] does, with further arguments, such as `--requirepass`.
///
/// # Errors
/// The program is not installed, or does not start.
pub fn redis_with(folder: &Path, arguments: &[&str]) -> Result<Backend, Error> {
    let port = port::free();
    let mut command = Command::new(REDIS.find()?);
    // Without a first argument that names a file, Redis reads no configuration file.
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
    command.args(arguments);
    Backend::start("redis", folder, port, command)
}

/// Starts a Redis for a cluster, with a folder of its own. The server has no slots yet and knows no other server.
///
/// # Errors
/// The program is not installed, or does not start.
pub fn redis_of_cluster(folder: &Path) -> Result<Backend, Error> {
    // By default the port of the cluster is ten thousand above the port of clients, which may be above 65,535.
    let cluster = port::free().to_string();
    redis_with(folder, &["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", &cluster])
}

/// Starts a Sentinel that alone watches this master as the group `group`. It decides by itself, two seconds after the last reply of the
/// master.
///
/// # Errors
/// The program is not installed, or does not start.
pub fn sentinel(folder: &Path, group: &str, master: SocketAddr) -> Result<Backend, Error> {
    let port = port::free();
    let file = folder.join("sentinel.conf");
    let (address, master_port) = (master.ip(), master.port());
    let lines = format!(
        "bind 127.0.0.1\nport {port}\nsentinel monitor {group} {address} {master_port} 1\n\
         sentinel down-after-milliseconds {group} 2000\nsentinel failover-timeout {group} 4000\n"
    );
    std::fs::write(&file, lines).map_err(Error::file(&file))?;
    let mut command = Command::new(REDIS.find()?);
    command.arg(&file).arg("--sentinel");
    Backend::start("sentinel", folder, port, command)
}

/// Starts a Memcached of 1 GB, with its output in this folder.
///
/// # Errors
/// The program is not installed, or does not start.
pub fn memcached(folder: &Path) -> Result<Backend, Error> {
    memcached_with(folder, &[])
}

/// Starts a Memcached as [`memcached`] does, with further arguments, such as `--auth-file=FILE`.
///
/// # Errors
/// The program is not installed, or does not start.
pub fn memcached_with(folder: &Path, arguments: &[&str]) -> Result<Backend, Error> {
    let port = port::free();
    let mut command = Command::new(MEMCACHED.find()?);
    command.args(["--listen=127.0.0.1", "--memory-limit=1024", "--udp-port=0", &format!("--port={port}")]);
    command.args(arguments);
    if is_root() {
        command.arg("--user=root");
    }
    Backend::start("memcached", folder, port, command)
}

/// Ends a cache at once; it can be [started again](Backend::start_again).
///
/// # Errors
/// The cache is still running after twenty seconds.
pub fn stop(cache: &mut Backend) -> Result<(), Error> {
    cache.end(Signal::KILL)
}
