//! Control socket and its file. Only the owner may use the file, and the server removes it at its end.

use anyhow::{Context, bail};
use socket2::{Domain, SockAddr, Type};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Maximum number of connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A bound socket. A drop removes its file.
pub(crate) struct Socket {
    path: PathBuf,
    /// Device and inode of the file: another server may have replaced it.
    file: (u64, u64),
}

impl Socket {
    /// Binds the socket, and replaces one left by a killed server.
    ///
    /// # Errors
    /// Another server listens there, a file of another kind is there, or the folder cannot be written.
    pub(crate) fn bind(path: &Path) -> anyhow::Result<(Self, UnixListener)> {
        let shown = path.display();
        match std::fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => bail!("{shown} is no socket, and not removed"),
            Ok(_) if UnixStream::connect(path).is_ok() => bail!("another server listens on {shown}"),
            Ok(_) => std::fs::remove_file(path).with_context(|| format!("{shown} cannot be replaced"))?,
            Err(_) => (),
        }
        let listener = listen(path).with_context(|| format!("{shown} cannot be bound"))?;
        let file = identity(path)?;
        Ok((Self { path: path.to_owned(), file }, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file gets its mode when it is created, so that no other user can connect at any moment.
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_is_its_owners_and_goes_with_the_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.control");
        let (socket, listener) = Socket::bind(&path).expect("it is bound");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = Socket::bind(&path).err().expect("it is in use").to_string();
        assert!(error.starts_with("another server listens on "), "{error}");
        // A killed server does not remove its file.
        std::mem::forget(socket);
        drop(listener);
        let (socket, _listener) = Socket::bind(&path).expect("it is replaced");
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, "precious").expect("the folder can be written");
        assert!(Socket::bind(&path).err().expect("it is a file").to_string().contains("is no socket"));
        assert!(path.exists());
    }
}
