//! Leases on shared databases: only the server with the lease keeps registrations or calls there.

use crate::directory::server_settings;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use strowger_backend::sql::lease::{self, Claim, Holder, Lease, Purpose};
use strowger_config::Config;

/// Leases of a server; `None` where the configuration names no shared database.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    pub(crate) bindings: Option<Arc<Lease>>,
    pub(crate) calls: Option<Arc<Lease>>,
}

impl Leases {
    /// Acquires the leases that this configuration needs. Blocks. If `claim` allows waiting, waits until the leases are
    /// free, and returns `None` if `is_cancelled` becomes true.
    ///
    /// # Errors
    /// A database cannot be used, or another server holds a lease there.
    pub fn acquire(config: &Config, claim: Claim, is_cancelled: &AtomicBool) -> anyhow::Result<Option<Self>> {
        let bindings = config.store.bindings.as_ref().map(|server| (server_settings(server), Purpose::Bindings));
        let calls = config.dialogs.server();
        let calls = calls.map(|server| (server_settings(server), Purpose::Calls(config.server.node)));
        let has_bindings = bindings.is_some();
        let wanted: Vec<_> = bindings.into_iter().chain(calls).collect();
        if wanted.is_empty() {
            return Ok(Some(Self::default()));
        }
        let taken = lease::acquire(&wanted, &holder(), claim, is_cancelled).map_err(|unavailable| {
            let key = match unavailable.purpose {
                Purpose::Bindings => "`store.bindings`",
                Purpose::Calls(_) => "`dialogs.database`",
            };
            anyhow::Error::from(unavailable).context(key)
        });
        let Some(leases) = taken? else { return Ok(None) };
        let mut leases = leases.into_iter().map(Arc::new);
        let bindings = if has_bindings { leases.next() } else { None };
        Ok(Some(Self { bindings, calls: leases.next() }))
    }

    /// Returns the description of a lease that another server has taken, if there is one.
    pub(crate) fn lost(&self) -> Option<String> {
        [&self.bindings, &self.calls].into_iter().flatten().find(|lease| lease.is_lost()).map(|lease| lease.shown())
    }
}

fn holder() -> Holder {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let process = std::process::id();
    let name = format!("{} process {process}", host.trim());
    Holder { name, process: identity_of(process).unwrap_or_default(), has_ended }
}

/// Returns boot id, pid namespace, process id and start time, which together identify a process.
fn identity_of(process: u32) -> Option<String> {
    let (boot, space) = here()?;
    Some(format!("{boot} {space} {process} {}", started(process)?))
}

/// Returns the boot id and the pid namespace of this process.
fn here() -> Option<(String, String)> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let space = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Some((boot.trim().to_owned(), space))
}

/// Returns the start time of a process in clock ticks since the boot (proc_pid_stat(5), field 22); `None` if there is
/// no such process, or it is a zombie.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program name may contain blanks and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Tells whether a process of this machine with this identity has ended.
fn has_ended(identity: &str) -> bool {
    let mut parts = identity.split(' ');
    let (Some(boot), Some(space), Some(process), Some(start)) =
        (parts.next(), parts.next(), parts.next().and_then(|id| id.parse().ok()), parts.next())
    else {
        return false;
    };
    here().is_some_and(|here| here == (boot.into(), space.into()))
        && started(process).is_none_or(|started| started.to_string() != start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_this_machine_is_known_to_have_ended() {
        let own = identity_of(std::process::id()).expect("this process runs");
        assert!(!has_ended(&own));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let identity = identity_of(child.id()).expect("it runs");
        assert!(!has_ended(&identity));
        child.kill().expect("it is ours");
        let _status = child.wait();
        assert!(has_ended(&identity));
        // Another start of the same process id.
        let (before, _) = own.rsplit_once(' ').expect("four parts");
        assert!(has_ended(&format!("{before} 1")));
        // The state of another machine's process is unknown.
        let (_, after) = identity.split_once(' ').expect("four parts");
        assert!(!has_ended(&format!("00000000-0000-0000-0000-000000000000 {after}")));
        assert!(!has_ended("") && !has_ended("a b c d"));
    }
}
