//! Connection of a writing thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::sql::back_off::BackOff;
use crate::sql::connection::Connection;
use crate::sql::error::{Failure, OpenError};
use crate::sql::lease::{Lease, Right};
use crate::sql::runtime::{CONNECT, FAREWELL, farewell, runtime, within};
use crate::sql::server::{Server, ServerSettings};
use strowger_store::database_url::DatabaseKind;

/// Failure of a piece of work.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) failure: Failure,
    /// True if the work was sent, so that the server may have done it although no reply came.
    pub(crate) is_in_doubt: bool,
}

/// Connection that is opened when needed, and again when lost.
pub(crate) struct WritingConnection {
    server: Server,
    /// First statements on each connection.
    greeting: Vec<String>,
    /// Lease on the written rows, if they have one.
    lease: Option<Arc<Lease>>,
    /// `None` during a run and once it is dropped.
    runtime: Option<Runtime>,
    connection: Option<Connection>,
    /// Connection attempt in progress.
    pending: Option<JoinHandle<Result<Connection, Failure>>>,
    back_off: BackOff,
}

impl WritingConnection {
    /// Creates the connection object without connecting.
    pub(crate) fn new(settings: &ServerSettings) -> Result<Self, OpenError> {
        let greeting = match settings.url.kind {
            // With this setting the server refuses a value that does not fit, and does not truncate it.
            DatabaseKind::MariaDb => {
                vec!["SET SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION autocommit = 1".to_owned()]
            }
            DatabaseKind::PostgreSql => Vec::new(),
        };
        let (server, runtime) = (Server::new(settings)?, Some(runtime()?));
        let back_off = BackOff::default();
        Ok(Self { server, greeting, lease: None, runtime, connection: None, pending: None, back_off })
    }

    /// Creates a connection object with a fence: its transactions fail once another process has this lease, or once
    /// this process has a newer connection.
    pub(crate) fn fenced(settings: &ServerSettings, lease: Arc<Lease>) -> Result<Self, OpenError> {
        let mut this = Self::new(settings)?;
        // If this machine is lost during a transaction, the server soon releases the lock on the row of the lease.
        this.greet(match settings.url.kind {
            DatabaseKind::MariaDb => {
                "SET SESSION innodb_lock_wait_timeout = 5 /*M!100300 , SESSION idle_transaction_timeout = 5 */"
            }
            DatabaseKind::PostgreSql => {
                "SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '5s'; SET tcp_keepalives_idle = 5; \
                 SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"
            }
        });
        this.lease = Some(lease);
        Ok(this)
    }

    /// Adds a statement without rows to the beginning of each connection.
    pub(crate) fn greet(&mut self, statement: &str) {
        self.greeting.push(statement.to_owned());
    }

    pub(crate) const fn server(&self) -> &Server {
        &self.server
    }

    /// Runs work on the connection, within a total limit. If an existing connection turns out to be closed, the work is
    /// repeated once on a new connection, so it must be idempotent. Must not be called within a runtime.
    pub(crate) fn run<T>(
        &mut self,
        limit: Duration,
        work: impl AsyncFnMut(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Broken> {
        let lost = |error: std::io::Error| Broken { failure: Failure::Lost(error.to_string()), is_in_doubt: false };
        // The runtime is gone if the last work panicked.
        let runtime = self.runtime.take().map_or_else(runtime, Ok).map_err(lost)?;
        let done = runtime.block_on(self.attempt(Instant::now() + limit, work));
        self.runtime = Some(runtime);
        done
    }

    async fn attempt<T>(
        &mut self,
        end: Instant,
        mut work: impl AsyncFnMut(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Broken> {
        let mut is_in_doubt = false;
        loop {
            let is_old = self.connection.is_some();
            let connection = self.connected(end).await;
            let mut connection = connection.map_err(|failure| Broken { failure, is_in_doubt })?;
            match within(end.saturating_duration_since(Instant::now()), work(&mut connection)).await {
                Ok(value) => {
                    self.connection = Some(connection);
                    return Ok(value);
                }
                // The connection may have ended while idle, for example by a restart of the server.
                Err(Failure::Lost(_)) if is_old => is_in_doubt = true,
                Err(failure) => {
                    let is_gone = matches!(failure, Failure::Lost(_) | Failure::TimedOut);
                    let is_kept = matches!(failure, Failure::Row(_)) && self.lease.is_none();
                    if is_kept && rolled_back(&mut connection).await {
                        // The next attempt follows at once, with fewer rows.
                        self.connection = Some(connection);
                        return Err(Broken { failure, is_in_doubt });
                    }
                    if is_gone {
                        // A late answer may still arrive on this connection.
                        drop(connection);
                        self.back_off.failed(Instant::now());
                    } else {
                        // A transaction may be open, and ends with the connection.
                        let _late = tokio::time::timeout(FAREWELL, connection.close()).await;
                    }
                    // The drivers close sockets in tasks, which need a few turns of this runtime.
                    for _ in 0..4 {
                        tokio::task::yield_now().await;
                    }
                    return Err(Broken { failure, is_in_doubt: is_in_doubt || is_gone });
                }
            }
        }
    }

    /// Returns the existing connection, or a new one. An attempt that takes too long continues, and the next call may
    /// find its connection ready.
    async fn connected(&mut self, end: Instant) -> Result<Connection, Failure> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        if !self.back_off.may_try(Instant::now()) {
            return Err(Failure::NotTried);
        }
        let (server, greeting, right) = (&self.server, &self.greeting, self.lease.as_ref().map(|lease| lease.right()));
        let pending = self.pending.get_or_insert_with(|| {
            let (server, greeting) = (server.clone(), greeting.clone());
            tokio::spawn(within(CONNECT, async move { greeted(&server, &greeting, right).await }))
        });
        let left = end.saturating_duration_since(Instant::now());
        let Ok(joined) = tokio::time::timeout(left, pending).await else {
            self.back_off.failed(Instant::now());
            return Err(Failure::TimedOut);
        };
        self.pending = None;
        let connection = joined.unwrap_or_else(|panic| Err(Failure::Lost(panic.to_string())));
        match &connection {
            Ok(_) => drop(self.back_off.succeeded()),
            Err(_) => self.back_off.failed(Instant::now()),
        }
        connection
    }
}

/// Ends a transaction that may be open. Returns whether this succeeded.
async fn rolled_back(connection: &mut Connection) -> bool {
    tokio::time::timeout(FAREWELL, connection.run("ROLLBACK")).await.is_ok_and(|done| done.is_ok())
}

async fn greeted(server: &Server, greeting: &[String], right: Option<Right>) -> Result<Connection, Failure> {
    let mut connection = Connection::open(server).await?;
    for statement in greeting {
        connection.run(statement).await?;
    }
    if let Some(right) = right {
        let fence = right.fence(&mut connection, server.url.kind).await?;
        connection.set_fence(fence);
    }
    Ok(connection)
}

impl Drop for WritingConnection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            farewell(runtime, self.connection.take());
        }
    }
}
