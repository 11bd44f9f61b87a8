//! Checks that a configuration can be used on the machine that reads it.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use strowger_config::{Config, Fault, Listener};
use strowger_files::access::denial;

/// Returns a warning for each listener on an address that this machine does not have now.
pub fn foreign_listeners(config: &Config) -> Vec<Fault> {
    let Ok(interfaces) = if_addrs::get_if_addrs() else { return Vec::new() };
    let own: Vec<IpAddr> = interfaces.into_iter().map(|interface| interface.ip()).collect();
    // All addresses of 127.0.0.0/8 lead to this machine (RFC 1122 section 3.2.1.3).
    let is_here = |ip: &IpAddr| ip.is_unspecified() || ip.is_loopback() || own.contains(ip);
    config.listeners.iter().filter(|listener| !is_here(&listener.address.ip())).map(|l| fault(l, &own)).collect()
}

/// Returns a warning for each file and folder, except the database, that this process may not write. The database is
/// left out because its opening reports this; some of the other files are not written before a database server fails.
pub fn unwritable(config: &Config) -> Vec<Fault> {
    let refused = |(key, path): (String, &Path)| Some(refused(&key, path, &may_write(path).err()?));
    config.written().into_iter().filter_map(refused).collect()
}

fn fault(listener: &Listener, own: &[IpAddr]) -> Fault {
    let others: Vec<String> = own.iter().filter(|ip| !ip.is_loopback()).map(ToString::to_string).collect();
    let has = if others.is_empty() { "loopback alone".into() } else { others.join(", ") };
    Fault::warning(
        None,
        format!("{listener}: this machine does not have the address {}", listener.address.ip()),
        format!("the server cannot start until it does; now it has {has}"),
    )
}

/// Checks that this process may write to a path. The rights of the deepest existing part of the path decide.
///
/// # Errors
/// The part that may not be written, and the reason.
fn may_write(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    let at = path.ancestors().map(|at| if at.as_os_str().is_empty() { Path::new(".") } else { at });
    let Some(at) = at.into_iter().find(|at| at.exists()) else { return Ok(()) };
    let asked = if at.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
    access(at, asked).map_err(|error| (at.to_owned(), error.into()))
}

fn refused(key: &str, path: &Path, (at, error): &(PathBuf, io::Error)) -> Fault {
    let why = denial(path, true).unwrap_or_else(|| format!("{}: {error}", at.display()));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Fault::warning(
        None,
        format!("{key}: nothing can be written to {}: {why}", path.display()),
        format!(
            "write the whole path in a folder that the user of the server may write, such as /var/lib/strowger/{name}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of the program cover denied access, as another user.
    #[test]
    fn the_deepest_part_of_a_path_that_exists_decides() {
        assert!(may_write(Path::new("no/such/folder")).is_ok() && may_write(Path::new("")).is_ok());
        let config = Config {
            dialogs: strowger_config::Dialogs { folder: Some("calls".into()), ..Default::default() },
            ..Config::default()
        };
        assert_eq!(unwritable(&config), [], "the folder of the tests");
    }
}
