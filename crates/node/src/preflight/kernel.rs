//! Limits of the kernel that are too small for `limits.connections` and the stream listeners, each with the command that cures it.

use std::fs;
use std::path::Path;

use strowger_config::{Config, Fault};
use strowger_net::{BACKLOG, descriptors};

use crate::media_capacity::OTHERS;

/// Ports for outbound connections that a server can have to one address and port of a next hop: lower ports are for listeners.
const PORTS: [u64; 2] = [10_240, 65_535];

/// Limits of the kernel. `None`: the system does not show the limit.
#[derive(Debug, Clone, Copy, Default)]
struct KernelLimits {
    /// RLIMIT_NOFILE: open descriptors of this process, as far as it may raise the limit itself.
    descriptors: Option<u64>,
    /// Largest RLIMIT_NOFILE that a process can have.
    nr_open: Option<u64>,
    /// Open files of the whole system.
    file_max: Option<u64>,
    /// Memory of all TCP buffers in pages: without pressure, where pressure begins, and at most.
    tcp_mem: Option<[u64; 3]>,
    /// Connections that wait to be accepted, of each listener.
    somaxconn: Option<u64>,
    /// First and last local port of outbound connections.
    port_range: Option<[u64; 2]>,
}

/// Returns a warning for each limit of the kernel that is too small for the connections that this configuration admits. The default of
/// `limits.connections` is a bound and no wish, so it needs nothing. Raises RLIMIT_NOFILE to the most that the system admits.
pub fn kernel_limits(config: &Config) -> Vec<Fault> {
    faults(config, &KernelLimits::read())
}

impl KernelLimits {
    fn read() -> Self {
        Self {
            descriptors: descriptors::raise().ok().map(|limit| limit as u64),
            nr_open: numbers("fs/nr_open").map(|[limit]| limit),
            file_max: numbers("fs/file-max").map(|[limit]| limit),
            tcp_mem: numbers("net/ipv4/tcp_mem"),
            somaxconn: numbers("net/core/somaxconn").map(|[limit]| limit),
            port_range: numbers("net/ipv4/ip_local_port_range"),
        }
    }
}

/// Reads the numbers of a file below `/proc/sys`.
fn numbers<const N: usize>(name: &str) -> Option<[u64; N]> {
    parsed(&fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?)
}

fn parsed<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = text.split_ascii_whitespace().map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

fn faults(config: &Config, kernel: &KernelLimits) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !config.listeners.iter().any(|listener| listener.transport.is_reliable()) {
        return faults;
    }
    let mut check = |limit: &str, value: Option<u64>, needed: u64, by: &str, cure: String| {
        if let Some(value) = value.filter(|value| *value < needed) {
            let message = format!("{limit} is {value}: {by} needs {needed}");
            faults.push(Fault::warning(None, message, cure));
        }
    };
    let waiting = u64::from(BACKLOG.unsigned_abs());
    let cure = format!("sysctl -w net.core.somaxconn={waiting}");
    check("net.core.somaxconn", kernel.somaxconn, waiting, "each stream listener", cure);
    let connections = config.limits.connections as u64;
    if config.limits.connections == Config::default().limits.connections {
        return faults;
    }
    let by = format!("limits.connections = {connections}");
    let files = connections.saturating_add((OTHERS + 2 * config.media.calls()) as u64);
    let cure = format!("set LimitNOFILE={files} in the unit of systemd, or `ulimit -n {files}` before the start");
    check("RLIMIT_NOFILE", kernel.descriptors, files, &by, cure);
    check("fs.nr_open", kernel.nr_open, files, &by, format!("sysctl -w fs.nr_open={files}"));
    check("fs.file-max", kernel.file_max, files, &by, format!("sysctl -w fs.file-max={files}"));
    // A connection with data in one direction has at least a page of them.
    let [low, pressure, pages] = kernel.tcp_mem.unwrap_or_default();
    let (low, pressure) = (low.max(connections / 2), pressure.max(connections / 4 * 3));
    let cure = format!("sysctl -w net.ipv4.tcp_mem='{low} {pressure} {connections}'");
    check("net.ipv4.tcp_mem (pages at most)", kernel.tcp_mem.map(|_| pages), connections, &by, cure);
    let [first, last] = PORTS;
    let ports = kernel.port_range.map(|[first, last]| (last + 1).saturating_sub(first));
    let cure = format!("sysctl -w net.ipv4.ip_local_port_range='{first} {last}'");
    check("net.ipv4.ip_local_port_range (ports)", ports, connections.min(last + 1 - first), &by, cure);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;

    const AMPLE: KernelLimits = KernelLimits {
        descriptors: Some(1_048_576),
        nr_open: Some(1_048_576),
        file_max: Some(u64::MAX),
        tcp_mem: Some([500_000, 750_000, 1_000_000]),
        somaxconn: Some(4_096),
        port_range: Some([1_024, 65_535]),
    };

    const NOTHING: [(String, String); 0] = [];

    fn told(text: &str, kernel: KernelLimits) -> Vec<(String, String)> {
        let (config, _) =
            Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
        faults(&config, &kernel).into_iter().map(|fault| (fault.message, fault.cure)).collect()
    }

    #[test]
    fn each_limit_that_is_too_small_is_told_with_its_cure() {
        let text = "limits.connections = 400000\n";
        assert_eq!(told(text, AMPLE), NOTHING);
        for (kernel, message, cure) in [
            (
                KernelLimits { descriptors: Some(400_255), ..AMPLE },
                "RLIMIT_NOFILE is 400255: limits.connections = 400000 needs 400256",
                "set LimitNOFILE=400256 in the unit of systemd, or `ulimit -n 400256` before the start",
            ),
            (
                KernelLimits { nr_open: Some(400_255), ..AMPLE },
                "fs.nr_open is 400255: limits.connections = 400000 needs 400256",
                "sysctl -w fs.nr_open=400256",
            ),
            (
                KernelLimits { file_max: Some(400_255), ..AMPLE },
                "fs.file-max is 400255: limits.connections = 400000 needs 400256",
                "sysctl -w fs.file-max=400256",
            ),
            (
                KernelLimits { tcp_mem: Some([287_901, 383_869, 399_999]), ..AMPLE },
                "net.ipv4.tcp_mem (pages at most) is 399999: limits.connections = 400000 needs 400000",
                "sysctl -w net.ipv4.tcp_mem='287901 383869 400000'",
            ),
            (
                KernelLimits { tcp_mem: Some([100_000, 130_000, 200_000]), ..AMPLE },
                "net.ipv4.tcp_mem (pages at most) is 200000: limits.connections = 400000 needs 400000",
                "sysctl -w net.ipv4.tcp_mem='200000 300000 400000'",
            ),
            (
                KernelLimits { somaxconn: Some(128), ..AMPLE },
                "net.core.somaxconn is 128: each stream listener needs 4096",
                "sysctl -w net.core.somaxconn=4096",
            ),
            (
                KernelLimits { port_range: Some([32_768, 60_999]), ..AMPLE },
                "net.ipv4.ip_local_port_range (ports) is 28232: limits.connections = 400000 needs 55296",
                "sysctl -w net.ipv4.ip_local_port_range='10240 65535'",
            ),
        ] {
            assert_eq!(told(text, kernel), [(message.to_owned(), cure.to_owned())]);
        }
        let all = KernelLimits {
            descriptors: Some(1_024),
            nr_open: Some(1_024),
            file_max: Some(1_024),
            tcp_mem: Some([1, 2, 3]),
            somaxconn: Some(1),
            port_range: Some([60_000, 60_999]),
        };
        assert_eq!(told(text, all).len(), 6);
        assert_eq!(told(text, KernelLimits::default()), NOTHING, "limits that the system does not show");
    }

    #[test]
    fn a_server_needs_what_it_wants_and_no_more() {
        let few = KernelLimits { descriptors: Some(20_000), port_range: Some([32_768, 60_999]), ..AMPLE };
        assert_eq!(told("limits.connections = 19744", few), NOTHING);
        assert_eq!(told("limits.connections = 19745", few).len(), 1);
        // Two descriptors for each pair of ports.
        let media = "limits.connections = 10000\nmedia.addresses = [\"192.0.2.1\"]\nmedia.ports = \"20000-29999\"\n";
        let message = |text| told(text, few).into_iter().map(|(message, _)| message).collect::<Vec<_>>();
        assert_eq!(message(media), ["RLIMIT_NOFILE is 20000: limits.connections = 10000 needs 20256"]);
        let small = KernelLimits { somaxconn: Some(128), ..few };
        // The default is no wish, and a server without stream listeners accepts no connection.
        assert_eq!(told("", small).len(), 1);
        assert_eq!(told("listen = [\"udp:192.0.2.1:5060\"]\nlimits.connections = 400000", small), NOTHING);
    }

    #[test]
    fn numbers_are_those_of_the_file() {
        assert_eq!(parsed("287901\t383869\t575802\n"), Some([287_901, 383_869, 575_802]));
        assert_eq!(parsed("9223372036854775807\n"), Some([u64::MAX / 2]));
        assert_eq!((parsed::<1>(""), parsed::<1>("1 2"), parsed::<1>("many")), (None, None, None));
        let KernelLimits { descriptors, nr_open, file_max, .. } = KernelLimits::read();
        assert!([descriptors, nr_open, file_max].into_iter().all(|limit| limit.is_some_and(|limit| limit > 0)));
    }
}
