//! Settings of the kernel.

use super::{Area, Finding, Grade};
use std::path::{Path, PathBuf};

/// Folders of the kernel's files.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
}

impl Default for Kernel {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

/// Bytes of a socket buffer that servers and the generator ask for.
const BUFFER: u64 = 4 << 20;

/// Ports for connections from one address. With 300 TCP connections a second, the connections of a minute wait in
/// TIME_WAIT.
const PORTS: u64 = 20_000;

/// Descriptors of a process: an experiment opens up to 15,000 connections.
const DESCRIPTORS: u64 = 16_384;

/// Datagrams that wait for the kernel's own reader of loopback.
const BACKLOG: u64 = 1_000;

/// Tracked connections at least.
const TRACKED: u64 = 65_536;

/// Examines the settings of the kernel.
pub fn kernel(kernel: &Kernel) -> Vec<Finding> {
    let checks: [fn(&Kernel) -> Vec<Finding>; 6] =
        [buffers, ports, descriptors, memory, processors, connection_tracking];
    checks.iter().flat_map(|check| check(kernel)).collect()
}

fn good(subject: &str, found: impl ToString) -> Finding {
    Finding::good(Area::Kernel, subject, found.to_string())
}

fn text(folder: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned())
}

fn number(folder: &Path, file: &str) -> Option<u64> {
    text(folder, file)?.split_ascii_whitespace().next()?.parse().ok()
}

fn buffers(kernel: &Kernel) -> Vec<Finding> {
    let one = |(name, effect): (&str, &str)| {
        let found = number(&kernel.proc, &format!("sys/net/core/{name}"))?;
        let finding = good(&format!("net.core.{name}"), found);
        Some(match found < BUFFER {
            true => finding.but(Grade::Bad, effect, format!("sysctl -w net.core.{name}={BUFFER}")),
            false => finding,
        })
    };
    let mut findings: Vec<Finding> = [
        ("rmem_max", "bursts of datagrams are lost before a server reads them"),
        ("wmem_max", "a full send buffer delays datagrams"),
    ]
    .into_iter()
    .filter_map(one)
    .collect();
    findings.extend(number(&kernel.proc, "sys/net/core/netdev_max_backlog").map(|found| {
        let finding = good("net.core.netdev_max_backlog", found);
        match found < BACKLOG {
            true => finding.but(
                Grade::Notice,
                "datagrams over loopback are lost at high rates",
                format!("sysctl -w net.core.netdev_max_backlog={BACKLOG}"),
            ),
            false => finding,
        }
    }));
    findings
}

fn ports(kernel: &Kernel) -> Vec<Finding> {
    let read = || {
        let text = text(&kernel.proc, "sys/net/ipv4/ip_local_port_range")?;
        let mut ends = text.split_ascii_whitespace().map_while(|end| end.parse::<u64>().ok());
        let (first, last) = (ends.next()?, ends.next()?);
        let finding = good("net.ipv4.ip_local_port_range", format!("{first} {last}"));
        Some(match last.saturating_sub(first) < PORTS {
            true => finding.but(
                Grade::Notice,
                "connections of an experiment find no free port",
                "sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
            ),
            false => finding,
        })
    };
    read().into_iter().collect()
}

fn descriptors(kernel: &Kernel) -> Vec<Finding> {
    let read = || {
        let limits = text(&kernel.proc, "self/limits")?;
        let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
        // A process may raise its own limit up to the hard one.
        let hard = line.split_ascii_whitespace().nth(4)?;
        let finding = good("descriptors of a process", hard);
        Some(match hard.parse().unwrap_or(u64::MAX) < DESCRIPTORS {
            true => finding.but(
                Grade::Notice,
                "experiments with many connections end early",
                format!("ulimit -Hn {DESCRIPTORS} as root, or a line in /etc/security/limits.conf"),
            ),
            false => finding,
        })
    };
    read().into_iter().collect()
}

fn memory(kernel: &Kernel) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(meminfo) = text(&kernel.proc, "meminfo") {
        let kib = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let used = kib("SwapTotal").saturating_sub(kib("SwapFree"));
        let swappiness = number(&kernel.proc, "sys/vm/swappiness").unwrap_or(0);
        let finding = good("vm.swappiness", format!("{swappiness}, {} MiB swapped out", used / 1_024));
        findings.push(match used > 0 && swappiness > 10 {
            true => finding.but(
                Grade::Notice,
                "memory that is swapped out is missing in figures and comes back during a trial",
                "sysctl -w vm.swappiness=1, and swapoff -a with swapon -a where memory is free",
            ),
            false => finding,
        });
    }
    findings.extend(text(&kernel.sys, "kernel/mm/transparent_hugepage/enabled").map(|modes| {
        let mode = modes.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or(&modes);
        let finding = good("transparent huge pages", mode);
        match mode == "always" {
            true => finding.but(
                Grade::Notice,
                "memory of a process grows by 2 MiB at a time, so that bytes of an entry are not measured",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            ),
            false => finding,
        }
    }));
    findings
}

fn processors(kernel: &Kernel) -> Vec<Finding> {
    let mut findings = Vec::new();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let finding = good("cores", cores);
    findings.push(match cores {
        1 => finding.but(
            Grade::Bad,
            "the generator and the server share one core, so that each limits the other",
            "measure on a machine of two cores or more, or give this process more (taskset, cgroup)",
        ),
        _ => finding,
    });
    findings.extend(text(&kernel.sys, "devices/system/cpu/cpu0/cpufreq/scaling_governor").map(|governor| {
        let finding = good("CPU frequency governor", &governor);
        match governor == "performance" {
            true => finding,
            false => finding.but(
                Grade::Notice,
                "the frequency follows the load, so that CPU of a call differs from load to load",
                "cpupower frequency-set -g performance",
            ),
        }
    }));
    findings.push(quota(kernel).map_or_else(
        || good("CPU quota", "none"),
        |cores| {
            good("CPU quota", format!("{cores:.2} cores")).but(
                Grade::Bad,
                "the kernel stops this group of processes when its share of a period is used up",
                "run outside of the container, or remove the quota (cpu.max, cpu.cfs_quota_us)",
            )
        },
    ));
    findings
}

/// Returns the quota of the cgroup of this process, in cores, or `None` if the cgroup has no quota.
fn quota(kernel: &Kernel) -> Option<f64> {
    let groups = text(&kernel.proc, "self/cgroup")?;
    let mut quotas = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        // A limit of a parent applies to its children too.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            if controllers.is_empty() {
                for root in ["fs/cgroup", "fs/cgroup/unified"] {
                    let max = text(&kernel.sys.join(root).join(group), "cpu.max");
                    let max = max.and_then(|max| {
                        let (quota, period) = max.split_once(' ')?;
                        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
                    });
                    quotas.extend(max);
                }
            } else if controllers.split(',').any(|name| name == "cpu") {
                let folder = kernel.sys.join("fs/cgroup/cpu").join(group);
                // -1 means no limit.
                let quota = number(&folder, "cpu.cfs_quota_us").zip(number(&folder, "cpu.cfs_period_us"));
                quotas.extend(quota.map(|(quota, period)| quota as f64 / period.max(1) as f64));
            }
        }
    }
    quotas.into_iter().min_by(f64::total_cmp)
}

fn connection_tracking(kernel: &Kernel) -> Vec<Finding> {
    let read = || {
        let most = number(&kernel.proc, "sys/net/netfilter/nf_conntrack_max")?;
        let count = number(&kernel.proc, "sys/net/netfilter/nf_conntrack_count").unwrap_or(0);
        let finding = good("connection tracking", format!("{count} of {most}"));
        Some(match most < TRACKED || count * 2 > most {
            true => finding.but(
                Grade::Bad,
                "the kernel drops packets of new connections when its table is full",
                format!("sysctl -w net.netfilter.nf_conntrack_max={}", most.max(TRACKED) * 4),
            ),
            false => finding,
        })
    };
    read().into_iter().collect()
}
