//! The lock that belongs to the one connection that writes bindings to a database.

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

/// "STRW" and the number of this lock among ours: PostgreSQL's locks have numbers, one set for each database.
const NUMBER: (u32, u32) = (0x5354_5257, 1);

/// Takes it for this connection. Where an earlier connection of the same holder is left over, that is ended first.
pub(crate) async fn take_lock(connection: &mut Connection, kind: DatabaseKind, holder: &Holder) -> Result<(), Failure> {
    let began = Instant::now();
    let earlier = holder.0.load(Ordering::Relaxed);
    loop {
        let (own, is_taken) = attempt(connection, kind).await?;
        if is_taken {
            holder.0.store(own, Ordering::Relaxed);
            return Ok(());
        }
        let other = holder_of(connection, kind).await?;
        if other == earlier && earlier != 0 {
            let end = match kind {
                DatabaseKind::MariaDb => format!("KILL {other}"),
                DatabaseKind::PostgreSql => format!("SELECT pg_terminate_backend({other})"),
            };
            // It may have ended just now.
            let _gone = connection.run(&end).await;
        }
        if began.elapsed() >= PATIENCE {
            let reason =
                "another server keeps its registrations in this database; end it first, or name a database of its own";
            return Err(Failure::Refused(format!("{reason} (its connection is number {other})")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The number of this connection, and whether it has the lock now. Names of MariaDB's locks are those of the whole server.
async fn attempt(connection: &mut Connection, kind: DatabaseKind) -> Result<(i64, bool), Failure> {
    let select = match kind {
        DatabaseKind::MariaDb => {
            "SELECT CAST(CONNECTION_ID() AS SIGNED), CAST(GET_LOCK(CONCAT('strowger ', MD5(DATABASE())), 0) AS SIGNED)"
                .to_owned()
        }
        DatabaseKind::PostgreSql => format!(
            "SELECT CAST(pg_backend_pid() AS bigint), CAST(CAST(pg_try_advisory_lock({}, {}) AS integer) AS bigint)",
            NUMBER.0, NUMBER.1
        ),
    };
    let rows = connection.cells(&select, &[]).await?;
    let [Cell::Number(own), Cell::Number(is_taken)] = rows.first().map_or(&[][..], |row| row) else {
        return Err(Failure::Refused("it does not say whether it has locked the database".into()));
    };
    Ok((*own, *is_taken == 1))
}

/// The number of the connection that has the lock; 0: none.
async fn holder_of(connection: &mut Connection, kind: DatabaseKind) -> Result<i64, Failure> {
    let select = match kind {
        DatabaseKind::MariaDb => "SELECT CAST(IS_USED_LOCK(CONCAT('strowger ', MD5(DATABASE()))) AS SIGNED)".to_owned(),
        DatabaseKind::PostgreSql => format!(
            "SELECT CAST(pid AS bigint) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {} AND objid = {} \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            NUMBER.0, NUMBER.1
        ),
    };
    let rows = connection.cells(&select, &[]).await?;
    Ok(match rows.first().and_then(|row| row.first()) {
        Some(Cell::Number(number)) => *number,
        _ => 0,
    })
}
