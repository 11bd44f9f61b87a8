//! Cores of the server and of the generator where one machine has both.

use super::chosen::Chosen;
use crate::host::Hosts;
use crate::program::in_path;

/// Number of cores from which on a machine is divided. With fewer cores, a server and its database would share one core, while the
/// generator does not need all of the other.
const LEAST: usize = 4;

/// Program that keeps processes to cores.
const TASKSET: &str = "taskset";

/// Gives the first half of the cores of this machine to the server and its databases and caches, and the other half to the generator. A
/// machine is not divided if it has fewer than four cores or if this process may use only a part of them; nor if the run has several hosts,
/// or a system that runs already or makes its load itself.
pub fn divide(hosts: Hosts, systems: &[Chosen]) -> Hosts {
    let is_ours = |chosen: &Chosen| chosen.folder.address().is_none() && chosen.folder.driver().measure.is_empty();
    let is_here = !hosts.is_distributed() && in_path(TASKSET).is_some();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    match share(cores).filter(|_| is_here && has_all(&status, cores) && systems.iter().all(is_ours)) {
        Some(share) => hosts.clone().pin(share).unwrap_or(hosts),
        None => hosts,
    }
}

/// Returns the number of cores for the server, or `None` if the machine has too few cores to be divided.
fn share(cores: usize) -> Option<usize> {
    (cores >= LEAST).then_some(cores / 2)
}

/// Tells whether a process may use the cores from 0 on, and no others, by its `/proc/PID/status`.
fn has_all(status: &str, cores: usize) -> bool {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.is_some_and(|list| list.trim() == format!("0-{}", cores.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_four_cores_is_divided() {
        assert_eq!([1, 2, 3].map(share), [None; 3]);
        assert_eq!([4, 5, 16].map(share), [Some(2), Some(2), Some(8)]);
        let status = "Name:\tlab\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n";
        assert!(has_all(status, 8) && !has_all(status, 4), "a container may have a part");
        assert!(!has_all(&status.replace("0-7", "0-3,8-11"), 8) && !has_all("", 8));
    }

    #[test]
    fn server_and_generator_have_no_core_in_common() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let hosts = divide(Hosts::local(), &[]);
        let (server, generator) = (&hosts.server_cores, &hosts.generator_cores);
        assert!(server.iter().all(|core| !generator.contains(core)), "{server:?} and {generator:?}");
        // All or none of the machine is dealt out.
        assert!([0, cores].contains(&(server.len() + generator.len())), "{server:?} and {generator:?} of {cores}");
        assert!(cores >= LEAST || server.is_empty());
        if cores > 1 {
            let pinned = Hosts::local().pin(1).expect("one for each");
            assert_eq!((pinned.server_cores, pinned.generator_cores), (vec![0], (1..cores).collect()));
        }
    }
}
