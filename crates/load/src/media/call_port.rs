//! Sockets of single calls (`[auto_media_port]`), of which one thread reads.

use super::hearing::Ear;
use hashbrown::HashMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use strowger_net::ready_set::ReadySet;

/// Audio socket of a call.
pub(super) struct CallPort {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) ear: Ear,
    set: Arc<ReadySet>,
}

impl Drop for CallPort {
    fn drop(&mut self) {
        // A stream that is still played may keep the socket open.
        self.set.remove(self.socket.as_fd());
    }
}

/// Sockets of all calls by their ports.
pub(super) struct CallPorts {
    set: Arc<ReadySet>,
    ports: Mutex<HashMap<u16, Weak<CallPort>, foldhash::fast::RandomState>>,
}

impl CallPorts {
    /// Creates an empty table.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { set: Arc::new(ReadySet::new()?), ports: Mutex::default() })
    }

    /// Begins to read from the socket of a call. Calls may share a port: there are no more than 2,500. `limit`: streams judged at once.
    ///
    /// # Errors
    /// The kernel has no room for one more.
    pub(super) fn open(&self, port: u16, socket: Arc<UdpSocket>, limit: usize) -> io::Result<Arc<CallPort>> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = ports.get(&port).and_then(Weak::upgrade) {
            return Ok(open);
        }
        self.set.add(socket.as_fd(), u64::from(port))?;
        let open = Arc::new(CallPort { socket, ear: Ear::of_call(limit), set: self.set.clone() });
        ports.insert(port, Arc::downgrade(&open));
        Ok(open)
    }

    /// Waits for readable sockets, at most for `limit`, and appends them.
    ///
    /// # Errors
    /// Errors of the system call.
    pub(super) fn wait(
        &self,
        limit: Duration,
        names: &mut Vec<u64>,
        readable: &mut Vec<Arc<CallPort>>,
    ) -> io::Result<()> {
        names.clear();
        self.set.wait(limit, names)?;
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let port = |name: &u64| ports.get(&u16::try_from(*name).ok()?).and_then(Weak::upgrade);
        readable.extend(names.iter().filter_map(port));
        Ok(())
    }
}
