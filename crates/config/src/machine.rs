//! Checks of a configuration against the machine that reads it.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use strowger_files::access::denial;

use super::report::Fault;
use super::{AccountingTarget, Config, Listener};

/// Returns the addresses of this machine that peers may reach: no loopback and no link-local addresses.
pub fn own_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let own = interfaces.into_iter().map(|interface| interface.ip());
    own.filter(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    })
    .collect()
}

impl Config {
    /// Returns a warning for each listener on an address that this machine does not have now.
    pub fn foreign_listeners(&self) -> Vec<Fault> {
        let Ok(interfaces) = if_addrs::get_if_addrs() else { return Vec::new() };
        let own: Vec<IpAddr> = interfaces.into_iter().map(|interface| interface.ip()).collect();
        // All addresses of 127.0.0.0/8 lead to this machine (RFC 1122 section 3.2.1.3).
        let is_here = |ip: &IpAddr| ip.is_unspecified() || ip.is_loopback() || own.contains(ip);
        self.listeners.iter().filter(|listener| !is_here(&listener.address.ip())).map(|l| fault(l, &own)).collect()
    }

    /// Returns a warning for each file and folder, except the database, that this process may not write. The database reports this when it is opened;
    /// some of the other files are first written when a database server fails.
    pub fn unwritable(&self) -> Vec<Fault> {
        self.written()
            .into_iter()
            .filter_map(|(key, path)| Some(refused(&key, path, &may_write(path).err()?)))
            .collect()
    }

    /// Returns the written paths, each with its key.
    fn written(&self) -> Vec<(String, &Path)> {
        let (accounting, dialogs) = (&self.accounting, &self.dialogs);
        let is_on = accounting.is_on();
        let rows = is_on.then_some(("accounting.spool", accounting.spool.as_path()));
        let place = (is_on && accounting.to != AccountingTarget::Sql).then_some(("accounting.path", &*accounting.path));
        let calls = dialogs.folder.as_deref().map(|folder| ("dialogs.folder", folder));
        let file = dialogs.file().map(|file| ("dialogs.database", file));
        let mut written: Vec<(String, &Path)> =
            [place, rows, calls, file].into_iter().flatten().map(|(key, path)| (key.to_owned(), path)).collect();
        for cache in &self.caches {
            written.extend(cache.folder.as_deref().map(|folder| (format!("cache.folder of '{}'", cache.name), folder)));
        }
        written
    }
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

/// Checks that this process may write a path. The deepest existing part of the path decides.
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
    use super::super::Source;
    use super::*;

    /// Denied access is tested with the program, as another user.
    #[test]
    fn what_is_written_is_known_by_its_key() {
        let written = |text: &str| {
            let (config, _) =
                Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(config.unwritable(), [], "the folder of the tests");
            let written = config.written().into_iter().map(|(key, path)| format!("{key} {}", path.display()));
            written.collect::<Vec<_>>()
        };
        assert_eq!(written("accounting.path = \"rows\""), [""; 0], "nothing is accounted");
        assert_eq!(
            written("accounting.cdr = true\ndialogs.folder = \"calls\"\n[[cache]]\nname = \"a\"\nfolder = \"c\""),
            [
                "accounting.path accounting",
                "accounting.spool accounting.spool",
                "dialogs.folder calls",
                "cache.folder of 'a' c"
            ]
        );
        let sql = "accounting.cdr = true\naccounting.to = \"sql\"\naccounting.database = \"mysql://u@127.0.0.1/d\"";
        assert_eq!(written(sql), ["accounting.spool accounting.spool"]);
        assert_eq!(written("dialogs.database = \"sqlite:calls.sqlite\""), ["dialogs.database calls.sqlite"]);
        assert!(may_write(Path::new("no/such/folder")).is_ok() && may_write(Path::new("")).is_ok());
    }
}
