//! Programs that experiments need, with their Debian packages.

use super::{Area, Finding, Grade};
use crate::program::{KAMAILIO, MARIADB, MARIADBD, MEMCACHED, Program, REDIS, RTPENGINE, in_path};
use std::path::Path;

/// Folders of Kamailio's modules.
const MODULES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/kamailio/modules",
    "/usr/lib/aarch64-linux-gnu/kamailio/modules",
    "/usr/lib/kamailio/modules",
];

/// Programs, and the purpose of each.
const PROGRAMS: [(Program, &str); 8] = [
    (KAMAILIO, "the system kamailio"),
    (RTPENGINE, "the system kamailio-rtpengine"),
    (MARIADBD, "stress F to K, proxy, caches"),
    (MARIADB, "stress F to K, proxy, caches"),
    (REDIS, "caches in Redis"),
    (MEMCACHED, "caches in Memcached"),
    (Program { name: "taskset", package: "util-linux" }, "systems on cores of their own"),
    (Program { name: "ssh", package: "openssh-client" }, "callers, answering sides or a server on other hosts"),
];

/// Modules of Kamailio, the package and the purpose of each.
const KAMAILIO_MODULES: [(&str, &str, &str); 3] = [
    ("db_mysql.so", "kamailio-mysql-modules", "subscribers of all systems, and of Kamailio the accounting"),
    ("memcached.so", "kamailio-memcached-modules", "Kamailio with Memcached"),
    ("ndb_redis.so", "kamailio-redis-modules", "Kamailio with Redis"),
];

/// Looks for the programs that experiments need.
pub fn programs() -> Vec<Finding> {
    let program = |(program, purpose): &(Program, &str)| match program.path() {
        Some(path) => Finding::good(Area::Programs, program.name, path.display().to_string()),
        None => missing(program.name, program.package, purpose),
    };
    let module = |(module, package, purpose): &(&str, &str, &str)| {
        let found = MODULES.iter().map(|folder| Path::new(folder).join(module)).find(|file| file.is_file());
        match found {
            Some(path) => Finding::good(Area::Programs, *module, path.display().to_string()),
            None => missing(module, package, purpose),
        }
    };
    let mut findings: Vec<Finding> = PROGRAMS.iter().map(program).collect();
    findings.extend(KAMAILIO_MODULES.iter().map(module));
    // No shipped experiment needs these programs, so only the installed ones are named.
    let others = ["opensips", "pjsip-perf"].into_iter().filter_map(|name| Some((name, in_path(name)?)));
    findings.extend(others.map(|(name, path)| Finding::good(Area::Programs, name, path.display().to_string())));
    findings
}

fn missing(name: &str, package: &str, purpose: &str) -> Finding {
    let effect = format!("missing for: {purpose}");
    Finding::good(Area::Programs, name, "missing").but(Grade::Notice, effect, format!("apt-get install {package}"))
}
