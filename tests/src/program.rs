//! Programs of other projects that the tests need, with their Debian packages.

use std::io::Write;

pub use strowger_lab::program::{KAMAILIO, MARIADB, MARIADBD, MEMCACHED, POSTGRESQL, Program, REDIS, RTPENGINE};

/// Traffic generator.
pub const SIPP: Program = Program { name: "sipp", package: "sip-tester" };
/// Command that sends one request.
pub const SIPSAK: Program = Program { name: "sipsak", package: "sipsak" };
/// Phone.
pub const BARESIP: Program = Program { name: "baresip", package: "baresip-core" };
/// Another phone.
pub const LINPHONE: Program = Program { name: "linphone-daemon", package: "linphone-cli" };
/// The same phone, which plays and records files.
pub const LINPHONEC: Program = Program { name: "linphonec", package: "linphone-cli" };
/// Browser.
pub const CHROMIUM: Program = Program { name: "chromium", package: "chromium" };
/// Tracer of system calls.
pub const STRACE: Program = Program { name: "strace", package: "strace" };
/// Checker of metrics, as Prometheus reads them.
pub const PROMTOOL: Program = Program { name: "promtool", package: "prometheus" };
/// Judge of captured RTP streams.
pub const TSHARK: Program = Program { name: "tshark", package: "tshark" };
/// Network configuration.
pub const IP: Program = Program { name: "ip", package: "iproute2" };
/// Address translation.
pub const IPTABLES: Program = Program { name: "iptables", package: "iptables" };
/// Mappings of a router that translates addresses.
pub const CONNTRACK: Program = Program { name: "conntrack", package: "conntrack" };

/// Environment variable that lets tests pass without a program or a right; each prints a message.
pub const ALLOW_MISSING: &str = "STROWGER_ALLOW_MISSING";

/// Tells whether all of these programs are installed.
///
/// # Panics
/// One is missing and `STROWGER_ALLOW_MISSING` is not 1; the message names the Debian packages.
pub fn have(programs: &[Program]) -> bool {
    let missing: Vec<&Program> = programs.iter().filter(|program| program.path().is_none()).collect();
    if missing.is_empty() {
        return true;
    }
    let names: Vec<&str> = missing.iter().map(|program| program.name).collect();
    let packages: Vec<&str> = missing.iter().map(|program| program.package).collect();
    lacking(&format!("{} is not installed: apt-get install {}", names.join(", "), packages.join(" ")));
    false
}

/// Prints a message that a test, or a part of one, did not run.
pub fn skipped(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // This does not use `eprintln`, because the test harness hides the output of a passing test.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED {test}: {reason}\n");
}

/// Reports a missing requirement of the test: panics, or with `STROWGER_ALLOW_MISSING=1` prints which test is skipped.
///
/// # Panics
/// `STROWGER_ALLOW_MISSING` is not 1.
pub fn lacking(reason: &str) {
    let allowed = std::env::var_os(ALLOW_MISSING).is_some_and(|value| value == "1");
    assert!(allowed, "{reason}\n({ALLOW_MISSING}=1 skips what needs it)");
    skipped(reason);
}

/// Tells whether this process may create networks and mounts.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
