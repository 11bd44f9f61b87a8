//! Present state of the machine: stolen time, other busy programs, memory.

use super::{Area, Finding, Grade, Kernel};
use std::collections::BTreeMap;
use std::time::Duration;
use strowger_measure::process::tree;
use strowger_measure::{MachineSample, MachineSampler};

/// Time over which the machine is watched.
pub const SPAN: Duration = Duration::from_secs(2);

/// Stolen time above which a trial is invalid.
const STOLEN: f64 = 0.05;

/// Share of a core above which another program disturbs a trial.
const BUSY: f64 = 0.1;

/// Busy programs that are named.
const MOST: usize = 5;

/// Memory that a run needs, bytes.
const MEMORY: u64 = 1 << 30;

/// Watches the machine for [`SPAN`] while this process does nothing.
pub fn present(kernel: &Kernel) -> Vec<Finding> {
    let mut sampler = MachineSampler::default();
    let micros = || std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64);
    sampler.sample(micros());
    let before = ticks(kernel);
    std::thread::sleep(SPAN);
    let after = ticks(kernel);
    let sample = sampler.sample(micros()).unwrap_or_default();
    judge(&sample, &busy(&before, &after))
}

/// Returns the name and the user and system time, in ticks, of each process.
fn ticks(kernel: &Kernel) -> BTreeMap<u32, (String, u64)> {
    let entries = std::fs::read_dir(&kernel.proc).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| {
        let stat = std::fs::read_to_string(kernel.proc.join(id.to_string()).join("stat")).ok()?;
        let (open, close) = (stat.find('(')?, stat.rfind(')')?);
        let fields: Vec<&str> = stat.get(close + 1..)?.split_ascii_whitespace().collect();
        let time = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        Some((id, (stat.get(open + 1..close)?.to_owned(), time)))
    })
    .collect()
}

/// Returns the other programs that were busy between two readings with their shares of a core, the busiest first.
fn busy(before: &BTreeMap<u32, (String, u64)>, after: &BTreeMap<u32, (String, u64)>) -> Vec<(u32, String, f64)> {
    let own = tree(std::process::id());
    let per_second = rustix::param::clock_ticks_per_second().max(1) as f64;
    let share = |(id, (name, time)): (&u32, &(String, u64))| {
        let since = before.get(id).map_or(0, |(_, time)| *time);
        let share = time.saturating_sub(since) as f64 / per_second / SPAN.as_secs_f64();
        // A process that began during the watch does not count, because its earlier use is unknown.
        (before.contains_key(id) && share > BUSY && !own.contains(id)).then(|| (*id, name.clone(), share))
    };
    let mut found: Vec<_> = after.iter().filter_map(share).collect();
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    found.truncate(MOST);
    found
}

fn judge(sample: &MachineSample, busy: &[(u32, String, f64)]) -> Vec<Finding> {
    let good = |subject: &str, found: String| Finding::good(Area::Present, subject, found);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let stolen = good("stolen time", percent(sample.stolen));
    let mut findings = vec![match sample.stolen > STOLEN {
        true => stolen.but(
            Grade::Bad,
            "the host of this virtual machine gives its cores to others, so that trials are invalid",
            "run at another time, or on a machine with cores of its own",
        ),
        false => stolen,
    }];
    if busy.is_empty() {
        findings.push(good("other programs", "none is busy".to_owned()));
    }
    findings.extend(busy.iter().map(|(id, name, share)| {
        good("busy program", format!("{name} (process {id}), {} of a core", percent(*share))).but(
            Grade::Bad,
            "it takes time from the server and the generator",
            format!("end {name}, or wait until it is done"),
        )
    }));
    let available = good("available memory", format!("{} MiB", sample.available >> 20));
    findings.push(match sample.available < MEMORY {
        true => available.but(
            Grade::Bad,
            "systems and databases may be swapped out or killed",
            "end programs that use much memory",
        ),
        false => available,
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_busy_programs_and_scarce_memory_are_bad() {
        let calm = MachineSample { stolen: 0.01, available: MEMORY, ..MachineSample::default() };
        assert_eq!(super::super::worst(&judge(&calm, &[])), Grade::Good);
        let stolen = MachineSample { stolen: 0.06, ..calm.clone() };
        let scarce = MachineSample { available: MEMORY - 1, ..calm.clone() };
        for sample in [&stolen, &scarce] {
            assert_eq!(super::super::worst(&judge(sample, &[])), Grade::Bad);
        }
        let found = judge(&calm, &[(7, "make".into(), 0.5)]);
        assert!(found.iter().any(|finding| finding.found == "make (process 7), 50.0 % of a core"), "{found:?}");
    }

    #[test]
    fn a_program_is_busy_by_the_time_that_it_used_meanwhile() {
        let of = |time| BTreeMap::from([(u32::MAX, ("make".to_owned(), time))]);
        let second = rustix::param::clock_ticks_per_second();
        let found = busy(&of(5), &of(5 + second));
        assert!(found.len() == 1 && (found[0].2 - 0.5).abs() < 0.01, "{found:?}");
        assert!(busy(&of(5), &of(6)).is_empty() && busy(&BTreeMap::new(), &of(second)).is_empty());
    }
}
