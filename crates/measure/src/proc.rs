//! Texts of `/proc` (proc(5)): its files, and the figures in them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// Folder of the process file system.
pub(crate) const PROC: &str = "/proc";

/// Buffer for files of `/proc`, reused for each.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    /// Reads a file. Returns `None` if it cannot be read, because the process has ended or belongs to another user.
    pub(crate) fn read(&mut self, path: &Path) -> Option<&str> {
        self.0.clear();
        File::open(path).ok()?.read_to_end(&mut self.0).ok()?;
        // Names of threads may hold any byte.
        if let Err(error) = std::str::from_utf8(&self.0) {
            let valid = error.valid_up_to();
            self.0[valid..].iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        }
        std::str::from_utf8(&self.0).ok()
    }
}

/// Returns the period of the kernel's clock of user and system time.
pub(crate) fn tick() -> Duration {
    static TICK: OnceLock<Duration> = OnceLock::new();
    let ask = || Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1);
    *TICK.get_or_init(ask)
}

/// Returns that period in microseconds.
pub(crate) fn tick_us() -> u64 {
    tick().as_micros() as u64
}

/// Returns the folders of the threads of a process, or numbered folders of any other kind.
pub(crate) fn numbered(folder: &Path) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// `stat` of a process or thread. Times are ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat<'a> {
    pub(crate) name: &'a str,
    /// State letter of the kernel: R, S, D, T and so on.
    pub(crate) state: char,
    pub(crate) user: u64,
    pub(crate) system: u64,
    /// Time in user mode of descendants that have ended and were waited for.
    pub(crate) children_user: u64,
    /// Time in system mode of the same descendants.
    pub(crate) children_system: u64,
    /// Start time, in ticks since the machine started, which distinguishes the process from a later one with the same
    /// number.
    pub(crate) started: u64,
    /// Core on which it ran last.
    pub(crate) core: u32,
}

impl<'a> Stat<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        // The name may contain any character, including brackets, so that the last bracket is the end of the name.
        let (open, close) = (text.find('(')?, text.rfind(')')?);
        let mut fields = text.get(close + 1..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        // Fields are counted from 1, which is the process number; the next field is the fourth.
        let mut next = 4;
        let mut field = |number: usize| {
            let value = fields.nth(number - next)?.parse::<u64>().ok();
            next = number + 1;
            value
        };
        Some(Self {
            name: text.get(open + 1..close)?,
            state,
            user: field(14)?,
            system: field(15)?,
            children_user: field(16)?,
            children_system: field(17)?,
            started: field(22)?,
            core: field(39)? as u32,
        })
    }
}

/// Counters of the scheduler for a thread: nanoseconds on a core and in a run queue, turns on a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduled {
    pub(crate) run: u64,
    pub(crate) waited: u64,
    pub(crate) turns: u64,
}

impl Scheduled {
    /// Parses `schedstat` (Documentation/scheduler/sched-stats.rst).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse::<u64>().ok());
        Some(Self { run: numbers.next()?, waited: numbers.next()?, turns: numbers.next()? })
    }

    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            run: self.run.saturating_sub(earlier.run),
            waited: self.waited.saturating_sub(earlier.waited),
            turns: self.turns.saturating_sub(earlier.turns),
        }
    }
}

/// Ticks of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreTicks {
    pub(crate) user: u64,
    pub(crate) system: u64,
    /// Time without work, and time of waiting for a disk.
    pub(crate) idle: u64,
    pub(crate) stolen: u64,
}

/// Returns the ticks of each core, from `/proc/stat`.
pub(crate) fn cores(text: &str) -> impl Iterator<Item = CoreTicks> + '_ {
    let lines = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    lines.map(|line| {
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice.
        let mut of = [0; 8];
        let numbers = line.split_ascii_whitespace().skip(1).filter_map(|number| number.parse::<u64>().ok());
        of.iter_mut().zip(numbers).for_each(|(place, number)| *place = number);
        CoreTicks { user: of[0] + of[1], system: of[2] + of[5] + of[6], idle: of[3] + of[4], stolen: of[7] }
    })
}

/// Returns a figure of `status`, `smaps_rollup` or `meminfo` in bytes. `name` includes the colon.
pub(crate) fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Returns the bytes in RAM, from `statm`.
pub(crate) fn resident(text: &str) -> Option<u64> {
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Returns inode and drops of each socket, from `net/udp` or `net/udp6`.
pub(crate) fn udp_sockets(text: &str) -> impl Iterator<Item = (u64, u64)> + '_ {
    text.lines().skip(1).filter_map(|line| {
        // sl, local, remote, st, queues, timer, retrnsmt, uid, timeout, inode, ref, pointer, drops
        let mut fields = line.split_ascii_whitespace().skip(9);
        Some((fields.next()?.parse().ok()?, fields.nth(2)?.parse().ok()?))
    })
}

/// Returns the inode of a socket, from the link of a descriptor.
pub(crate) fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns a counter of `net/snmp`, which has a line of names and a line of numbers for each protocol.
pub(crate) fn snmp(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace());
    pairs.find(|(found, _)| *found == name)?.1.parse().ok()
}

/// Returns name, bytes received and bytes sent of each interface, from `net/dev`.
pub(crate) fn interfaces(text: &str) -> impl Iterator<Item = (&str, u64, u64)> + '_ {
    text.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let mut numbers = numbers.split_ascii_whitespace();
        Some((name.trim(), numbers.next()?.parse().ok()?, numbers.nth(7)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_processes() {
        let text = "7 (a (b) c) R 1 1 1 0 -1 4194304 0 0 0 0 120 30 5 6 20 0 1 0 2730533 6 7 8 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";
        let stat = Stat {
            name: "a (b) c",
            state: 'R',
            user: 120,
            system: 30,
            children_user: 5,
            children_system: 6,
            started: 2_730_533,
            core: 3,
        };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!((Stat::parse("7 (a"), Stat::parse("7 (a) S 1 2")), (None, None));
        assert_eq!(Scheduled::parse("5000000 2999 7\n"), Some(Scheduled { run: 5_000_000, waited: 2_999, turns: 7 }));
        assert_eq!(Scheduled::parse("5 6"), None);
        let rollup =
            "55e9-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    1612 kB\nPss:     187 kB\nPss_Anon:   112 kB\n";
        assert_eq!((bytes(rollup, "Pss:"), bytes(rollup, "Rss:")), (Some(187 << 10), Some(1_612 << 10)));
        assert_eq!(bytes(rollup, "Swap:"), None);
    }

    #[test]
    fn lines_of_the_machine() {
        let text = "cpu  9 9 9 9\ncpu0 10 1 5 79 3 1 1 2 0 0\ncpu1 1 1 1 1 0 0 0\nintr 4";
        let first = CoreTicks { user: 11, system: 7, idle: 82, stolen: 2 };
        let second = CoreTicks { user: 2, system: 1, idle: 1, stolen: 0 };
        assert_eq!(cores(text).collect::<Vec<_>>(), [first, second]);
        let snmp_text = "Ip: Forwarding DefaultTTL\nIp: 2 64\nTcp: OutSegs RetransSegs\nTcp: 17748786 10936\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(snmp(snmp_text, "Tcp", "RetransSegs"), Some(10_936));
        assert_eq!((snmp(snmp_text, "Tcp", "InErrs"), snmp(snmp_text, "UdpLite", "InDatagrams")), (None, None));
        let device = "Inter-|   Receive            |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n    \
                      lo: 64488 96 0 0 0 0 0 0 64488 96 0 0 0 0 0 0\n  eth0:453051329 19315 0 0 0 0 0 0 1068337 11697 0 0 0 0 0 0\n";
        assert_eq!(interfaces(device).collect::<Vec<_>>(), [("lo", 64_488, 64_488), ("eth0", 453_051_329, 1_068_337)]);
    }

    #[test]
    fn lines_of_sockets() {
        let udp = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
                   213: 0100007F:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 48211 2 0000000000000000 17\n";
        assert_eq!(udp_sockets(udp).collect::<Vec<_>>(), [(48_211, 17)]);
        let udp6 = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
                    213: 00000000000000000000000001000000:13C4 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 48212 2 00000000bc7a5f0e 0\n";
        assert_eq!(udp_sockets(udp6).collect::<Vec<_>>(), [(48_212, 0)]);
        assert_eq!(
            (socket_inode("socket:[48211]"), socket_inode("pipe:[1]"), socket_inode("/tmp/x")),
            (Some(48_211), None, None)
        );
    }

    #[test]
    fn a_file_with_any_bytes_is_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stat");
        std::fs::write(&path, b"7 (a\xff\xc3) S").unwrap();
        let mut text = Text::default();
        assert_eq!(text.read(&path), Some("7 (a??) S"));
        assert_eq!(text.read(&folder.path().join("none")), None);
    }
}
