//! Datagrams that the kernel dropped at the UDP sockets of some processes.

use crate::proc::{Text, numbered, socket_inode, udp_sockets};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Shortest interval of searches of the descriptors for new sockets, µs: a server may have a hundred thousand.
const AGAIN: u64 = 10_000_000;

/// Drops at the last reading, by inode; `None`: another process has the socket.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    known: HashMap<u64, Option<u64>>,
    /// Time of the last search of the descriptors, µs.
    searched: Option<u64>,
}

impl Sockets {
    /// Returns the drops since the last reading at the sockets of these processes, which are all in the network
    /// namespace of the first process. A new socket counts with all its drops, except at the first reading. Returns
    /// `None` if the kernel does not let this user see the sockets. `now`: µs.
    pub(crate) fn look(&mut self, proc: &Path, processes: &[u32], now: u64, text: &mut Text) -> Option<u64> {
        let folder = |id: &u32| proc.join(id.to_string());
        let of = folder(processes.first()?);
        let (mut sockets, mut readable) = (Vec::new(), false);
        for table in ["net/udp", "net/udp6"] {
            if let Some(text) = text.read(&of.join(table)) {
                sockets.extend(udp_sockets(text));
                readable = true;
            }
        }
        let is_new = sockets.iter().any(|(inode, _)| !self.known.contains_key(inode));
        let first = self.searched.is_none();
        if first || (is_new && self.searched.is_some_and(|before| now.saturating_sub(before) >= AGAIN)) {
            let owned = inodes(processes.iter().map(|id| folder(id).join("fd")))?;
            for (inode, drops) in &sockets {
                let before = if first { *drops } else { 0 };
                self.known.entry(*inode).or_insert_with(|| owned.contains(inode).then_some(before));
            }
            self.searched = Some(now);
        }
        let current: HashMap<u64, u64> = sockets.into_iter().collect();
        self.known.retain(|inode, _| current.contains_key(inode));
        let mut sum = 0;
        for (inode, before) in &mut self.known {
            if let Some(before) = before {
                let drops = current[inode];
                sum += drops.saturating_sub(std::mem::replace(before, drops));
            }
        }
        readable.then_some(sum)
    }
}

/// Returns the inodes of the sockets in these folders of descriptors, or `None` if none of the folders may be read.
fn inodes(folders: impl Iterator<Item = std::path::PathBuf>) -> Option<HashSet<u64>> {
    let (mut inodes, mut readable) = (HashSet::new(), false);
    for folder in folders {
        readable |= std::fs::read_dir(&folder).is_ok();
        let links = numbered(&folder).filter_map(|(_, path)| std::fs::read_link(path).ok());
        inodes.extend(links.filter_map(|link| socket_inode(link.to_str()?)));
    }
    readable.then_some(inodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn drops_of_the_sockets_of_a_process_and_of_no_other() {
        let proc = tempfile::tempdir().unwrap();
        for id in ["7", "8"] {
            std::fs::create_dir_all(proc.path().join(id).join("fd")).unwrap();
            std::fs::create_dir_all(proc.path().join(id).join("net")).unwrap();
        }
        let table = |name: &str, sockets: &[(u64, u64)]| {
            let line = |(inode, drops): &(u64, u64)| format!(" 1: A:1 B:2 07 0:0 00:0 0 0 0 {inode} 2 0 {drops}\n");
            let lines: String = sockets.iter().map(line).collect();
            std::fs::write(proc.path().join("7/net").join(name), format!("head\n{lines}")).unwrap();
        };
        let open = |id: &str, descriptor: &str, link: &str| {
            symlink(link, proc.path().join(id).join("fd").join(descriptor)).unwrap()
        };
        open("7", "3", "socket:[100]");
        open("7", "4", "/dev/null");
        open("8", "3", "socket:[101]");
        let (mut sockets, mut text) = (Sockets::default(), Text::default());
        let mut look = |now: u64| sockets.look(proc.path(), &[7, 8], now, &mut text);
        table("udp", &[(100, 5), (300, 9)]);
        table("udp6", &[(101, 2)]);
        assert_eq!(look(0), Some(0));
        table("udp", &[(100, 6), (300, 50)]);
        table("udp6", &[(101, 4)]);
        assert_eq!(look(1_000_000), Some(3));
        // A new socket is found with the next search of the descriptors.
        open("8", "5", "socket:[102]");
        table("udp", &[(100, 6), (300, 60), (102, 11)]);
        assert_eq!(look(2_000_000), Some(0));
        assert_eq!(look(AGAIN), Some(11));
        // A closed socket takes its count along.
        table("udp", &[(102, 12)]);
        table("udp6", &[]);
        assert_eq!(look(AGAIN + 1), Some(1));
        std::fs::remove_dir_all(proc.path().join("7/net")).unwrap();
        assert_eq!(look(AGAIN + 2), None);
    }
}
