//! Figures of the samples of a trial.

use super::validity::Evidence;
use crate::formula::caches;
use crate::row::{Figures, UnknownFigure};
use std::collections::BTreeMap;
use std::time::Duration;
use strowger_measure::process::Memory;
use strowger_measure::{MachineSample, Observed, ThreadUse, TreeSample};

/// Names of sampled process trees. A number follows the name if there are several.
pub(crate) const SERVER: &str = "server";
pub(super) const DATABASE: &str = "database";
pub(super) const CACHE: &str = "cache";

/// Threads of a part that have figures, the busiest first.
const THREADS: usize = 8;

/// Samples in the window of a trial.
#[derive(Debug)]
pub(crate) struct Sampled {
    parts: BTreeMap<&'static str, Part>,
    /// Memory of the server at the end of the window.
    pub(crate) memory: Option<Memory>,
    machine: Option<MachineSample>,
    /// Time in which the server was to be away, µs.
    away: u64,
}

/// Process trees of a part of the test bed, together.
#[derive(Debug, Default)]
struct Part {
    cpu: u64,
    user: u64,
    system: u64,
    interval: u64,
    waited: u64,
    drops: Option<u64>,
    threads: Vec<ThreadUse>,
}

impl Part {
    fn add(&mut self, tree: TreeSample) {
        self.cpu += tree.cpu;
        self.user += tree.user;
        self.system += tree.system;
        self.waited += tree.waited;
        // Trees are sampled at the same moments.
        self.interval = if self.interval == 0 { tree.interval } else { self.interval.min(tree.interval) };
        self.drops = self.drops.map_or(tree.udp_drops, |drops| Some(drops + tree.udp_drops.unwrap_or(0)));
        self.threads.extend(tree.threads);
    }
}

impl Sampled {
    /// Takes the samples whose middle lies in the window. Moments are in microseconds since 1970-01-01 UTC.
    pub(crate) fn of(mut observed: Observed, begin: u64, end: u64, evidence: &mut Evidence) -> Self {
        let is_within = |at: u64, interval: u64| (begin..end).contains(&at.saturating_sub(interval / 2));
        let memory = memory(&observed, begin, end);
        observed.trees.retain(|sample| is_within(sample.at, sample.interval));
        observed.machine.retain(|sample| is_within(sample.at, sample.interval));
        if !evidence.away.is_zero() {
            // The observer continues with empty samples of killed processes.
            observed.trees.retain(|sample| sample.processes > 0 || sample.cpu > 0);
        }
        evidence.window = Duration::from_micros(end.saturating_sub(begin));
        evidence.log = observed.missing.clone();
        let away = evidence.away.as_micros() as u64;
        let mut sampled = Self { parts: BTreeMap::new(), memory, machine: observed.whole_machine(), away };
        let time = |interval: u64| Duration::from_micros(interval);
        evidence
            .sampled
            .push(("the machine".into(), time(sampled.machine.as_ref().map_or(0, |sample| sample.interval))));
        for name in observed.names() {
            let Some(tree) = observed.tree(name) else { continue };
            evidence.sampled.push((format!("the {name}"), time(tree.interval)));
            if let Some(part) = [SERVER, DATABASE, CACHE].into_iter().find(|part| name.starts_with(part)) {
                sampled.parts.entry(part).or_default().add(tree);
            }
        }
        sampled
    }

    /// Adds the figures. `rate`: calls or registrations a second in the window.
    pub(crate) fn write(&self, rate: Option<f64>, figures: &mut Figures) -> Result<(), UnknownFigure> {
        let cores = self.machine.as_ref().map_or(0, |machine| machine.cores.len()).max(1) as f64;
        if let Some(machine) = &self.machine {
            figures.set("machine.cores", cores)?;
            figures.set("machine.cpu", machine.busy() * 100.0)?;
            figures.set("machine.stolen", machine.stolen * 100.0)?;
            figures.set("machine.retransmissions", machine.tcp_retransmissions as f64)?;
            if let Some(used) = caches::used_memory(caches::Memory {
                free: machine.free,
                buffers: machine.buffers,
                cache: machine.cached,
                total: machine.memory,
            }) {
                figures.set("machine.memory", used)?;
            }
            let sum = |of: fn(&strowger_measure::InterfaceUse) -> u64| machine.interfaces.iter().map(of).sum();
            let time = Duration::from_micros(machine.interval);
            let (sent, received) = (sum(|one| one.sent), sum(|one| one.received));
            if let Some(network) = caches::throughput(sent, received, time) {
                figures.set("machine.network", network)?;
            }
        }
        let rate = rate.filter(|rate| *rate > 0.0);
        for (name, part) in self.parts.iter().filter(|(_, part)| part.interval > 0) {
            let share = |time: u64| time as f64 / part.interval as f64 * 100.0;
            figures.set(&format!("{name}.cpu"), share(part.cpu) / cores)?;
            // Cost of a call: the part's time divided by the calls made in that time. The time that a restarted server
            // used is divided by the calls of the whole window.
            let away = if *name == SERVER { self.away } else { 0 };
            let cost = rate.map(|rate| part.cpu as f64 / (part.interval + away) as f64 * 1e6 / rate);
            let per = if *name == CACHE { "operation" } else { "call" };
            if let Some(cost) = cost {
                figures.set(&format!("{name}.cpu.{per}"), cost)?;
            }
            for (label, used) in labelled(&part.threads) {
                figures.set(&format!("{name}.thread/{label}"), share(used))?;
            }
            if *name == SERVER {
                if let Some(packets) = figures.value("media.rate").filter(|packets| *packets > 0.0) {
                    let cost = part.cpu as f64 / (part.interval + away) as f64 * 1e6 / packets;
                    figures.set("server.cpu.packet", cost)?;
                }
                if let Some(rate) = rate {
                    figures.set("server.wait.call", share(part.waited) / 100.0 * 1e6 / rate)?;
                }
                figures.set("server.cpu.user", share(part.user) / cores)?;
                figures.set("server.cpu.system", share(part.system) / cores)?;
                if let Some(busiest) = part.threads.iter().max_by_key(|thread| thread.cpu) {
                    figures.set("server.wait", share(busiest.waited))?;
                }
                if let Some(drops) = part.drops {
                    figures.set("server.drops", drops as f64)?;
                }
            }
        }
        let used = |name: &str| figures.value(name).unwrap_or(0.0);
        if figures.value("server.cpu").is_some() {
            let load = used("server.cpu") + used("database.cpu");
            figures.set("load", load)?;
        }
        Ok(())
    }
}

/// Returns the sum of the last memory of each tree of the server in a window, or `None` if the window has no sample of
/// the server.
fn memory(observed: &Observed, begin: u64, end: u64) -> Option<Memory> {
    let mut last: BTreeMap<&str, Memory> = BTreeMap::new();
    let of_server =
        observed.trees.iter().filter(|tree| tree.name.starts_with(SERVER) && (begin..=end).contains(&tree.at));
    last.extend(of_server.filter_map(|tree| Some((tree.name.as_str(), tree.memory()?))));
    last.into_values().reduce(Memory::plus)
}

/// Returns the busiest threads with unique labels: threads of the same name are numbered, the busiest first.
fn labelled(threads: &[ThreadUse]) -> Vec<(String, u64)> {
    let mut busiest: Vec<&ThreadUse> = threads.iter().collect();
    busiest.sort_by_key(|thread| std::cmp::Reverse(thread.cpu));
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut label = |thread: &ThreadUse| {
        let name = thread.name.replace('/', "-");
        let name = if name.is_empty() { "unnamed".to_owned() } else { name };
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        (if *times == 1 { name } else { format!("{name}-{times}") }, thread.cpu)
    };
    busiest.into_iter().take(THREADS).map(&mut label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(name: &str, cpu: u64, waited: u64) -> ThreadUse {
        ThreadUse { name: name.into(), id: cpu, cpu, waited, ..ThreadUse::default() }
    }

    fn tree(name: &str, at: u64, cpu: u64, threads: Vec<ThreadUse>) -> TreeSample {
        let (user, system) = (cpu / 4, cpu / 4 * 3);
        TreeSample {
            name: name.into(),
            at,
            interval: 100_000,
            cpu,
            user,
            system,
            threads,
            waited: cpu / 10,
            pss: Some(at),
            unbacked: Some(at / 2),
            udp_drops: Some(2),
            ..TreeSample::default()
        }
    }

    #[test]
    fn figures_are_of_the_window_alone() {
        let machine = |at| MachineSample {
            at,
            interval: 100_000,
            cores: vec![0.5, 1.0],
            stolen: 0.02,
            tcp_retransmissions: 3,
            // Memory grows: of the samples in the window 31 % are used on average.
            memory: 10_000_000,
            free: 6_000_000 - at,
            buffers: 500_000,
            cached: 1_000_000,
            interfaces: vec![strowger_measure::InterfaceUse { name: "lo".into(), received: 100, sent: 50 }],
            ..MachineSample::default()
        };
        let mut observed = Observed::default();
        for at in (1..=10).map(|n| n * 100_000) {
            observed.machine.push(machine(at));
            let threads = vec![thread("shard/0", 40_000, 5_000), thread("shard/0", 10_000, 9_000)];
            observed.trees.push(tree("server", at, 50_000, threads));
            observed.trees.push(tree("database", at, 20_000, Vec::new()));
        }
        let mut evidence = Evidence::default();
        let sampled = Sampled::of(observed, 300_000, 800_000, &mut evidence);
        assert_eq!(evidence.window, Duration::from_millis(500));
        let memory = Memory { pss: 800_000, unbacked: 400_000 };
        assert_eq!(sampled.memory, Some(memory), "at the end of the window");
        let times: Vec<_> = evidence.sampled.iter().map(|(name, time)| (name.as_str(), time.as_millis())).collect();
        assert_eq!(times, [("the machine", 500), ("the server", 500), ("the database", 500)]);
        let mut figures = Figures::default();
        figures.set("media.rate", 20_000.0).expect("a known figure");
        sampled.write(Some(1_000.0), &mut figures).expect("known figures");
        for (name, value) in [
            ("machine.cores", 2.0),
            ("machine.cpu", 75.0),
            ("machine.stolen", 2.0),
            ("machine.retransmissions", 15.0),
            ("machine.memory", 31.0),
            ("machine.network", 1_500.0),
            ("server.cpu", 25.0),
            ("server.cpu.user", 6.25),
            ("server.cpu.system", 18.75),
            ("server.cpu.call", 500.0),
            ("server.cpu.packet", 25.0),
            ("server.thread/shard-0", 40.0),
            ("server.thread/shard-0-2", 10.0),
            ("server.wait", 5.0),
            ("server.wait.call", 50.0),
            ("server.drops", 10.0),
            ("database.cpu", 10.0),
            ("database.cpu.call", 200.0),
            ("load", 35.0),
        ] {
            let found = figures.value(name).unwrap_or_else(|| panic!("{name} of {figures:?}"));
            assert!((found - value).abs() < 1e-6, "{name}: {found}");
        }
    }

    /// Checks a server that was killed at 0.2 s and ran again from 0.4 s on: samples of the dead processes count for
    /// nothing.
    #[test]
    fn a_server_that_was_away_has_the_calls_of_the_whole_window() {
        let mut observed = Observed::default();
        for at in (1..=5).map(|n| n * 100_000) {
            let is_dead = at > 200_000;
            let first = tree("server", at, if is_dead { 0 } else { 50_000 }, Vec::new());
            observed.trees.push(TreeSample { processes: u32::from(!is_dead), ..first });
            if at > 400_000 {
                observed.trees.push(TreeSample { processes: 1, ..tree("server", at, 100_000, Vec::new()) });
            }
        }
        let mut evidence = Evidence { away: Duration::from_millis(200), ..Evidence::default() };
        let sampled = Sampled::of(observed, 0, 500_000, &mut evidence);
        assert_eq!(evidence.sampled[1], ("the server".to_owned(), Duration::from_millis(300)));
        let mut figures = Figures::default();
        sampled.write(Some(1_000.0), &mut figures).expect("known figures");
        // 200 ms of CPU for the 500 calls of 500 ms.
        assert_eq!(figures.value("server.cpu.call"), Some(400.0));
    }

    #[test]
    fn several_servers_are_one_part() {
        let mut observed = Observed::default();
        for name in ["server", "server/2"] {
            observed.trees.push(tree(name, 100_000, 50_000, vec![thread("a", 50_000, 0)]));
        }
        let mut figures = Figures::default();
        // Before a window, connections may still be missing.
        let later = Sampled::of(observed.clone(), 150_000, 300_000, &mut Evidence::default());
        assert_eq!(later.memory, None);
        let sampled = Sampled::of(observed, 0, 100_000, &mut Evidence::default());
        assert_eq!(sampled.memory, Some(Memory { pss: 200_000, unbacked: 100_000 }));
        sampled.write(None, &mut figures).expect("known figures");
        assert_eq!(figures.value("server.cpu"), Some(100.0));
        assert_eq!(figures.value("server.cpu.call"), None);
    }
}
