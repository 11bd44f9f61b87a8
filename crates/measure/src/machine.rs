//! Samples of a machine: cores, memory, network.

use crate::proc::{CoreTicks, PROC, Text, bytes, cores, interfaces, snmp, tick_us};
use crate::sample::{mean, means};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Use of a machine in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineSample {
    /// End of the interval, µs since 1970-01-01 UTC.
    pub at: u64,
    /// Length of the interval, µs.
    pub interval: u64,
    /// Load of each core, 0 to 1.
    pub cores: Vec<f64>,
    /// Share of all cores in user mode, 0 to 1.
    pub user: f64,
    /// Share of all cores in system mode, interrupts included, 0 to 1.
    pub system: f64,
    /// Share of all cores that the host of a virtual machine gave to others while there was work for them, 0 to 1.
    pub stolen: f64,
    /// Memory of the machine, bytes.
    pub memory: u64,
    /// Memory available to programs, bytes; of several samples the least.
    pub available: u64,
    /// Memory that nothing uses, bytes. For several samples this figure and the next two are means.
    pub free: u64,
    /// Buffers of block devices, bytes.
    pub buffers: u64,
    /// Page cache, bytes.
    pub cached: u64,
    /// Retransmitted TCP segments of all sockets of this network namespace.
    pub tcp_retransmissions: u64,
    /// Interfaces of this network namespace with traffic.
    pub interfaces: Vec<InterfaceUse>,
}

/// Traffic of a network interface in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceUse {
    pub name: String,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

impl MachineSample {
    /// Appends the next sample, so that both become one sample of a longer time.
    pub fn append(&mut self, next: Self) {
        let weights = [self.interval, next.interval];
        self.cores = means(&self.cores, &next.cores, weights);
        self.user = mean([self.user, next.user], weights);
        self.system = mean([self.system, next.system], weights);
        self.stolen = mean([self.stolen, next.stolen], weights);
        (self.at, self.interval, self.memory) = (next.at, self.interval + next.interval, next.memory);
        self.available = self.available.min(next.available);
        let mean_bytes = |both: [u64; 2]| mean(both.map(|bytes| bytes as f64), weights).round() as u64;
        self.free = mean_bytes([self.free, next.free]);
        self.buffers = mean_bytes([self.buffers, next.buffers]);
        self.cached = mean_bytes([self.cached, next.cached]);
        self.tcp_retransmissions += next.tcp_retransmissions;
        for used in next.interfaces {
            match self.interfaces.iter_mut().find(|known| known.name == used.name) {
                Some(known) => {
                    known.received += used.received;
                    known.sent += used.sent;
                }
                None => self.interfaces.push(used),
            }
        }
    }

    /// Returns the mean load of all cores, 0 to 1.
    pub fn busy(&self) -> f64 {
        self.cores.iter().sum::<f64>() / self.cores.len().max(1) as f64
    }
}

/// Cores at the last reading.
#[derive(Debug, Default)]
pub(crate) struct Cores(Vec<Core>);

/// Core at the last reading.
#[derive(Clone, Copy, Debug, Default)]
struct Core {
    ticks: CoreTicks,
    /// Busy time not yet in a sample; negative if samples have too much. At most a tick.
    carry: i64,
}

/// Shares since the last reading, 0 to 1.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CoreShares {
    /// Busy share of each core, including stolen time.
    pub(crate) busy: Vec<f64>,
    /// Shares of all cores together.
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) stolen: f64,
}

impl Cores {
    /// Reads the text of `/proc/stat`, `interval` µs after the last reading.
    ///
    /// A core is busy when it is not idle. The kernel measures idle time by the clock, but samples all other time at
    /// each tick, and so does not see a server that works between two ticks. Therefore the counts of user and system
    /// time only divide the busy time.
    pub(crate) fn look(&mut self, text: &str, interval: u64) -> CoreShares {
        let mut all = CoreTicks::default();
        let mut shares = CoreShares::default();
        let known = std::mem::take(&mut self.0);
        for (place, ticks) in cores(text).enumerate() {
            let Some(before) = known.get(place).filter(|_| interval > 0) else {
                shares.busy.push(0.0);
                self.0.push(Core { ticks, carry: 0 });
                continue;
            };
            let since = |of: fn(&CoreTicks) -> u64| of(&ticks).saturating_sub(of(&before.ticks));
            let idle = since(|ticks| ticks.idle) * tick_us();
            let busy = interval as i64 - idle as i64 + before.carry;
            let shown = busy.clamp(0, interval as i64);
            let tick = tick_us() as i64;
            self.0.push(Core { ticks, carry: (busy - shown).clamp(-tick, tick) });
            shares.busy.push(shown as f64 / interval as f64);
            all.user += since(|ticks| ticks.user);
            all.system += since(|ticks| ticks.system);
            all.stolen += since(|ticks| ticks.stolen);
        }
        let whole = (interval * self.0.len() as u64).max(1) as f64;
        shares.stolen = ((all.stolen * tick_us()) as f64 / whole).min(1.0);
        let own = (shares.busy.iter().sum::<f64>() / self.0.len().max(1) as f64 - shares.stolen).max(0.0);
        let seen = (all.user + all.system).max(1) as f64;
        (shares.user, shares.system) = (own * all.user as f64 / seen, own * all.system as f64 / seen);
        shares
    }
}

/// Sampler of this machine; the first call of [`MachineSampler::sample`] sets the zero.
#[derive(Debug)]
pub struct MachineSampler {
    proc: PathBuf,
    cores: Cores,
    retransmissions: u64,
    interfaces: HashMap<String, [u64; 2]>,
    text: Text,
    taken: Option<u64>,
}

impl Default for MachineSampler {
    fn default() -> Self {
        Self::of(PROC.into())
    }
}

impl MachineSampler {
    fn of(proc: PathBuf) -> Self {
        Self {
            proc,
            cores: Cores::default(),
            retransmissions: 0,
            interfaces: HashMap::new(),
            text: Text::default(),
            taken: None,
        }
    }

    /// Returns the use since the last call, at `now` (µs since 1970-01-01 UTC), or `None` at the first call.
    pub fn sample(&mut self, now: u64) -> Option<MachineSample> {
        let (text, proc) = (&mut self.text, &self.proc);
        let mut read =
            |file: &str, take: &mut dyn FnMut(&str)| take(text.read(&proc.join(Path::new(file))).unwrap_or_default());
        let before = self.taken.replace(now);
        let interval = before.map_or(0, |before| now.saturating_sub(before));
        let mut sample = MachineSample { at: now, interval, ..MachineSample::default() };
        read("stat", &mut |text| {
            let shares = self.cores.look(text, interval);
            (sample.cores, sample.user, sample.system) = (shares.busy, shares.user, shares.system);
            sample.stolen = shares.stolen;
        });
        read("meminfo", &mut |text| {
            sample.memory = bytes(text, "MemTotal:").unwrap_or_default();
            sample.available = bytes(text, "MemAvailable:").unwrap_or_default();
            sample.free = bytes(text, "MemFree:").unwrap_or_default();
            sample.buffers = bytes(text, "Buffers:").unwrap_or_default();
            sample.cached = bytes(text, "Cached:").unwrap_or_default();
        });
        read("net/snmp", &mut |text| {
            let counted = snmp(text, "Tcp", "RetransSegs").unwrap_or_default();
            sample.tcp_retransmissions = counted.saturating_sub(std::mem::replace(&mut self.retransmissions, counted));
        });
        read("net/dev", &mut |text| {
            for (name, received, sent) in interfaces(text) {
                let before = match self.interfaces.get_mut(name) {
                    Some(known) => std::mem::replace(known, [received, sent]),
                    None => self.interfaces.insert(name.into(), [received, sent]).unwrap_or_default(),
                };
                let (received, sent) = (received.saturating_sub(before[0]), sent.saturating_sub(before[1]));
                if received > 0 || sent > 0 {
                    sample.interfaces.push(InterfaceUse { name: name.into(), received, sent });
                }
            }
        });
        before.map(|_| sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_between_two_looks() {
        let folder = tempfile::tempdir().unwrap();
        let write = |stat: &str, available: u64, retransmissions: u64, eth: [u64; 2]| {
            std::fs::create_dir_all(folder.path().join("net")).unwrap();
            let file = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
            file("stat", stat.into());
            let free = available / 100;
            let memory = format!("MemTotal: 1000 kB\nMemFree: {free} kB\nMemAvailable: {available} kB\n");
            file("meminfo", memory + "Buffers: 20 kB\nCached: 300 kB\nSwapCached: 9 kB\n");
            file("net/snmp", format!("Tcp: OutSegs RetransSegs\nTcp: 9 {retransmissions}\n"));
            let [received, sent] = eth;
            file("net/dev", format!("a|b\nlo: 7 1 0 0 0 0 0 0 7 1\neth0: {received} 1 0 0 0 0 0 0 {sent} 1 0\n"));
        };
        let mut sampler = MachineSampler::of(folder.path().into());
        write("cpu0 100 0 100 100 0 0 0 0\ncpu1 0 0 0 500 0 0 0 0\n", 800, 5, [1_000, 2_000]);
        assert_eq!(sampler.sample(10_000_000), None);
        // One core: 50 user, 20 system, 10 interrupts, 10 stolen, 10 idle; the other: idle.
        write("cpu0 130 20 120 110 0 4 6 10\ncpu1 0 0 0 590 10 0 0 0\n", 700, 12, [6_000, 2_500]);
        let mut sample = sampler.sample(11_000_000).unwrap();
        let eth = |received, sent| vec![InterfaceUse { name: "eth0".into(), received, sent }];
        let want = MachineSample {
            at: 11_000_000,
            interval: 1_000_000,
            cores: vec![0.9, 0.0],
            user: 0.25,
            system: 0.15,
            stolen: 0.05,
            memory: 1_000 << 10,
            available: 700 << 10,
            free: 7 << 10,
            buffers: 20 << 10,
            cached: 300 << 10,
            tcp_retransmissions: 7,
            interfaces: eth(5_000, 500),
        };
        assert_eq!(sample, want);
        write("cpu0 130 20 120 410 0 4 6 10\ncpu1 0 0 0 890 10 0 0 0\n", 1_100, 12, [6_100, 2_500]);
        sample.append(sampler.sample(14_000_000).unwrap());
        assert_eq!((sample.at, sample.interval, sample.available), (14_000_000, 4_000_000, 700 << 10));
        // Of 7 kB in 1 s and 11 kB in 3 s.
        assert_eq!((sample.free, sample.buffers, sample.cached), (10 << 10, 20 << 10, 300 << 10));
        assert!((sample.cores[0] - 0.225).abs() < 1e-9 && (sample.busy() - 0.1125).abs() < 1e-9, "{sample:?}");
        assert!((sample.user - 0.0625).abs() < 1e-9 && (sample.stolen - 0.0125).abs() < 1e-9, "{sample:?}");
        assert_eq!((sample.tcp_retransmissions, sample.interfaces), (7, eth(5_100, 500)));
    }

    #[test]
    fn work_between_two_ticks_is_seen() {
        let mut cores = Cores::default();
        cores.look("cpu0 0 0 0 1000\n", 0);
        // A fifth of a second of work that no tick saw.
        assert_eq!(cores.look("cpu0 0 0 0 1080\n", 1_000_000).busy, [0.2]);
        // Samples of a tenth of a second on an idle core, whose idle ticks sometimes come a little late.
        let mut idle = 1_080;
        let busy: f64 = (0..100)
            .map(|n| {
                idle += [9, 11, 10, 10][n % 4];
                cores.look(&format!("cpu0 0 0 0 {idle}\n"), 100_000).busy[0]
            })
            .sum();
        assert!(busy <= 0.11, "{busy}");
    }

    #[test]
    fn this_machine() {
        let mut sampler = MachineSampler::default();
        assert!(sampler.sample(1_000_000).is_none());
        let sample = sampler.sample(2_000_000).unwrap();
        assert!(!sample.cores.is_empty() && sample.cores.iter().all(|share| (0.0..=1.0).contains(share)));
        assert!(sample.memory >= sample.available && sample.available > 1 << 20, "{sample:?}");
        assert!(sample.free > 0 && sample.free + sample.buffers + sample.cached <= sample.memory, "{sample:?}");
    }
}
