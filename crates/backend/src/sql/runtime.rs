//! A runtime for the connection of one thread, and how long that waits.

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::sql::connection::Connection;
use crate::sql::error::Failure;

/// How long a connection may take to be made: several times as long as a statement, where a server is slow. No request waits for so long.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

/// How long a server may take to hear that a connection ends.
pub(crate) const FAREWELL: Duration = Duration::from_millis(200);

/// Ends a connection and the runtime that it has.
pub(crate) fn farewell(runtime: Runtime, connection: Option<Connection>) {
    // Not where a runtime is under way: this would have to wait for another one.
    if let Some(connection) = connection
        && Handle::try_current().is_err()
        && !std::thread::panicking()
    {
        let _late = runtime.block_on(async { tokio::time::timeout(FAREWELL, connection.close()).await });
    }
    // It may have looked up a name, which is not waited for.
    runtime.shutdown_background();
}

pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// What comes of this, if it comes in time. To be called within a runtime.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(limit, future).await.unwrap_or(Err(Failure::TimedOut))
}

/// Does this by a thread that has no runtime, if the caller's has one.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
