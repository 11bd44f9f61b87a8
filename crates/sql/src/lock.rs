//! The lock that belongs to the one connection that writes bindings, or the calls of a node, to a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use strowger_store::database_url::DatabaseKind;

use crate::cell::Cell;
use crate::connection::Connection;
use crate::error::Failure;

/// The number of the connection that had the lock last, as the server numbers connections; 0: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder(Arc<AtomicI64>);

/// How long another connection may take to let the lock go: one of a process that has ended needs a moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(50);

/// What it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock {
    Bindings,
    /// Calls that this node keeps.
    Calls(u16),
}

/// "STRW", the first number of ours: PostgreSQL's locks have two, and are those of one database.
const STRW: u32 = 0x5354_5257;

impl Lock {
    /// The second one.
    const fn number(self) -> u32 {
        match self {
            Self::Bindings => 1,
            Self::Calls(node) => 1 << 16 | node as u32,
        }
    }

    /// As MariaDB calls it, in at most 64 characters: names of its locks are those of the whole server.
    fn name(self) -> String {
        match self {
            Self::Bindings => "CONCAT('strowger ', MD5(DATABASE()))".into(),
            Self::Calls(node) => format!("CONCAT('strowger calls {node} ', MD5(DATABASE()))"),
        }
    }

    fn refusal(self) -> String {
        match self {
            Self::Bindings => {
                "another server keeps its registrations in this database; end it first, or name a database of its own"
                    .into()
            }
            Self::Calls(node) => format!(
                "another server with server.node = {node} keeps its calls in this database; end it first, or give this one another node"
            ),
        }
    }
}

/// Takes it for this connection. Where an earlier connection of the same holder is left over, that is ended first.
pub(crate) async fn take_lock(
    connection: &mut Connection,
    kind: DatabaseKind,
    lock: Lock,
    holder: &Holder,
) -> Result<(), Failure> {
    let began = Instant::now();
    let earlier = holder.0.load(Ordering::Relaxed);
    loop {
        let (own, is_taken) = attempt(connection, kind, lock).await?;
        if is_taken {
            holder.0.store(own, Ordering::Relaxed);
            return Ok(());
        }
        let other = holder_of(connection, kind, lock).await?;
        if other == earlier && earlier != 0 {
            let end = match kind {
                DatabaseKind::MariaDb => format!("KILL {other}"),
                DatabaseKind::PostgreSql => format!("SELECT pg_terminate_backend({other})"),
            };
            // It may have ended just now.
            let _gone = connection.run(&end).await;
        }
        if began.elapsed() >= PATIENCE {
            return Err(Failure::Refused(format!("{} (its connection is number {other})", lock.refusal())));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The number of this connection, and whether it has the lock now.
async fn attempt(connection: &mut Connection, kind: DatabaseKind, lock: Lock) -> Result<(i64, bool), Failure> {
    let select = match kind {
        DatabaseKind::MariaDb => {
            format!("SELECT CAST(CONNECTION_ID() AS SIGNED), CAST(GET_LOCK({}, 0) AS SIGNED)", lock.name())
        }
        DatabaseKind::PostgreSql => format!(
            "SELECT CAST(pg_backend_pid() AS bigint), CAST(CAST(pg_try_advisory_lock({}, {}) AS integer) AS bigint)",
            STRW,
            lock.number()
        ),
    };
    let rows = connection.cells(&select, &[]).await?;
    let [Cell::Number(own), Cell::Number(is_taken)] = rows.first().map_or(&[][..], |row| row) else {
        return Err(Failure::Refused("it does not say whether it has locked the database".into()));
    };
    Ok((*own, *is_taken == 1))
}

/// The number of the connection that has the lock; 0: none.
async fn holder_of(connection: &mut Connection, kind: DatabaseKind, lock: Lock) -> Result<i64, Failure> {
    let select = match kind {
        DatabaseKind::MariaDb => format!("SELECT CAST(IS_USED_LOCK({}) AS SIGNED)", lock.name()),
        DatabaseKind::PostgreSql => format!(
            "SELECT CAST(pid AS bigint) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {} AND objid = {} \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            STRW,
            lock.number()
        ),
    };
    let rows = connection.cells(&select, &[]).await?;
    Ok(match rows.first().and_then(|row| row.first()) {
        Some(Cell::Number(number)) => *number,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_lock_of_its_own() {
        let locks = [Lock::Bindings, Lock::Calls(0), Lock::Calls(1), Lock::Calls(u16::MAX)];
        let numbers = std::collections::BTreeSet::from(locks.map(Lock::number));
        assert!(numbers.len() == 4 && numbers.iter().all(|number| i32::try_from(*number).is_ok()), "{numbers:?}");
        let longest = locks[3].name().replace("CONCAT('", "").replace("', MD5(DATABASE()))", "");
        assert!(longest.len() + 32 <= 64, "{longest}");
    }
}
