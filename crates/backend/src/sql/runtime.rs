//! Runtime for the connection of one thread, with its time limits.

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::sql::connection::Connection;
use crate::sql::error::Failure;

/// Limit of connecting: several times the limit of a statement, for slow servers. No request waits that long.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

/// Limit of closing a connection.
pub(crate) const FAREWELL: Duration = Duration::from_millis(200);

/// Closes a connection and its runtime.
pub(crate) fn farewell(runtime: Runtime, connection: Option<Connection>) {
    // This does not run within a runtime, where it would have to wait for another runtime.
    if let Some(connection) = connection
        && Handle::try_current().is_err()
        && !std::thread::panicking()
    {
        let _late = runtime.block_on(async { tokio::time::timeout(FAREWELL, connection.close()).await });
    }
    // A thread of the runtime may be resolving a name; this function does not wait for that thread.
    runtime.shutdown_background();
}

pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// Returns the result of a future, or a failure at the limit. Must be called within a runtime.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(limit, future).await.unwrap_or(Err(Failure::TimedOut))
}

/// Runs the work. If the caller's thread has a runtime, the work runs on a thread without one.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
