//! Leases in the table `strowger_lease`: the right of a process to write the bindings, or the calls of a node, in a
//! database.
//!
//! The holder renews its lease each second. Another process takes it when the holder has released it, has ended on this
//! machine, or was silent for five seconds. Silence is measured by the clock of the watching process, so no clock of
//! another machine matters.
//!
//! Each take-over gives the lease a larger token, and each writing connection a larger epoch. A transaction that
//! changes rows begins with a fence: it fails if token or epoch is no longer its own. So a holder that has lost its
//! connection writes nothing once another process has the lease, and a late transaction of an abandoned connection is
//! refused.

mod row;

pub(crate) use self::row::table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use strowger_store::database_url::DatabaseKind;
use strowger_store::lasting_failure::LastingFailure;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use self::row::{Row, TABLE, literal, read};
use crate::sql::cell::Cell;
use crate::sql::connection::Connection;
use crate::sql::error::{Failure, OpenError};
use crate::sql::runtime::{CONNECT, apart, farewell, runtime, within};
use crate::sql::schema::{self, Part};
use crate::sql::server::{Server, ServerSettings};

/// Interval of renewals.
const RENEWAL: Duration = Duration::from_secs(1);

/// Silence after which a holder counts as dead.
const SILENCE: Duration = Duration::from_secs(5);

/// Interval at which a candidate reads the lease.
const POLL: Duration = Duration::from_millis(250);

/// Deadline of a release, which delays the end of a process.
const RELEASE: Duration = Duration::from_millis(400);

/// Deadline of one statement. A renewal may have to wait for a transaction of the same holder.
const STATEMENT: Duration = Duration::from_secs(10);

/// Interval of log lines about a lasting failure.
const AGAIN: Duration = Duration::from_secs(10);

/// Rows that a lease protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Registrations.
    Bindings,
    /// Calls of the server with this node number.
    Calls(u16),
}

impl Purpose {
    /// Returns the key of the lease in its table.
    fn key(self) -> String {
        match self {
            Self::Bindings => "bindings".into(),
            Self::Calls(node) => format!("calls {node}"),
        }
    }

    /// Returns cause and cure if another process holds the lease.
    fn refusal(self, holder: &str) -> String {
        let stand_by = "or start this one with --stand-by, or with --take-over to end the other one's right at once";
        match self {
            Self::Bindings => format!(
                "another server keeps its registrations in this database ({holder}); end it first, name a database of its own, {stand_by}"
            ),
            Self::Calls(node) => format!(
                "another server with server.node = {node} keeps its calls in this database ({holder}); end it first, give this one another node, \
                 {stand_by}"
            ),
        }
    }
}

/// The process that holds a lease or wants one.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Name for people: host and process id.
    pub name: String,
    /// Identity of the process, for `has_ended` of a process on the same machine.
    pub process: String,
    /// Tells whether the process with this identity ran on this machine and has ended. False if unknown.
    pub has_ended: fn(&str) -> bool,
}

/// Policy for a lease that another process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// Fail if the holder lives.
    #[default]
    IfFree,
    /// Wait until the holder releases the lease or dies.
    StandBy,
    /// Take it from a living holder.
    TakeOver,
}

/// Failure to take a lease.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unavailable {
    /// Rows of the lease.
    pub purpose: Purpose,
    /// Cause.
    #[source]
    pub error: OpenError,
}

/// Lease of this process. A drop releases it.
#[derive(Debug)]
pub struct Lease {
    right: Right,
    server: String,
    is_lost: Arc<AtomicBool>,
    /// Dropped before the thread is joined: the drop ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    /// Tells whether another process has taken the lease. This process cannot write the rows any more.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Returns a text for the log: the rows and their database.
    pub fn shown(&self) -> String {
        format!("{} in {}", self.right.purpose.key(), self.server)
    }

    pub(crate) const fn right(&self) -> Right {
        self.right
    }

    fn start(mut renewals: Renewals, runtime: Runtime) -> Result<Self, OpenError> {
        let (stop, stopped) = oneshot::channel();
        let (right, server) = (renewals.right, renewals.server.url.to_string());
        let is_lost = renewals.is_lost.clone();
        let thread = std::thread::Builder::new().name("lease".into()).spawn(move || {
            runtime.block_on(renewals.run(stopped));
            farewell(runtime, renewals.connection.take());
        })?;
        Ok(Self { right, server, is_lost, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Purpose and token of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    purpose: Purpose,
    token: i64,
}

impl Right {
    /// Begins a new epoch on this connection. Returns the statement that fences the transactions of the connection.
    pub(crate) async fn fence(self, connection: &mut Connection, kind: DatabaseKind) -> Result<String, Failure> {
        let own = self.condition();
        let begun = connection.run(&format!("UPDATE {TABLE} SET epoch = epoch + 1 WHERE {own}")).await?;
        let rows = connection.cells(&format!("SELECT epoch FROM {TABLE} WHERE {own}"), &[]).await?;
        let (1, Some([Cell::Number(epoch)])) = (begun, rows.first().map(|row| &row[..])) else {
            return Err(Failure::Refused(format!("another server has taken the lease of {}", self.purpose.key())));
        };
        Ok(match kind {
            // The column is NOT NULL, so the update fails if the CASE yields NULL.
            DatabaseKind::MariaDb => format!(
                "UPDATE {TABLE} SET token = CASE WHEN token = {} AND epoch = {epoch} THEN token END WHERE purpose = '{}'",
                self.token,
                self.purpose.key()
            ),
            // Zero rows divide by zero.
            DatabaseKind::PostgreSql => format!(
                "SELECT 1 / count(*) FROM (SELECT 1 FROM {TABLE} WHERE {own} AND epoch = {epoch} FOR SHARE) AS own"
            ),
        })
    }

    /// Returns the statement after which another process can take the lease at once.
    fn release(self) -> String {
        format!("UPDATE {TABLE} SET holder = '', process = '', beat = beat + 1 WHERE {}", self.condition())
    }

    fn condition(self) -> String {
        format!("purpose = '{}' AND token = {}", self.purpose.key(), self.token)
    }
}

/// Thread that renews a lease.
struct Renewals {
    server: Server,
    right: Right,
    connection: Option<Connection>,
    is_lost: Arc<AtomicBool>,
}

impl Renewals {
    /// Renews the lease until it is lost, or until the sender of `stopped` is dropped; then releases the lease.
    async fn run(&mut self, mut stopped: oneshot::Receiver<()>) {
        let mut trouble = LastingFailure::every(AGAIN);
        let renewal = format!("UPDATE {TABLE} SET beat = beat + 1 WHERE {}", self.right.condition());
        let (server, purpose) = (self.server.url.to_string(), self.right.purpose.key());
        while tokio::time::timeout(RENEWAL, &mut stopped).await.is_err() {
            let renewed = tokio::select! {
                _ = &mut stopped => break,
                renewed = self.change(&renewal) => renewed,
            };
            match renewed {
                Ok(0) => {
                    tracing::error!(database = %server, purpose, "lease lost: another server has taken it");
                    self.is_lost.store(true, Ordering::Relaxed);
                    return;
                }
                Ok(_) => {
                    if let Some((renewals, after)) = trouble.works() {
                        tracing::info!(database = %server, purpose, renewals, ?after, "lease renewed again");
                    }
                }
                Err(failure) => {
                    if let Some(renewals) = trouble.fails(true) {
                        tracing::warn!(database = %server, purpose, renewals, error = %failure, "lease not renewed");
                    }
                }
            }
        }
        let release = self.right.release();
        // A failed release has the same effect as silence.
        let _unreachable = within(RELEASE, self.change(&release)).await;
    }

    /// Runs a statement on the existing connection, or on a new one.
    async fn change(&mut self, statement: &str) -> Result<u64, Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => within(CONNECT, Connection::open(&self.server)).await?,
        };
        let changed = within(STATEMENT, connection.run(statement)).await?;
        self.connection = Some(connection);
        Ok(changed)
    }
}

/// Takes all of these leases, or none.
///
/// Waits if another process holds a lease and `claim` allows waiting; returns `None` if `is_cancelled` becomes true
/// meanwhile.
///
/// # Errors
/// [`Unavailable`], whose text is shown unchanged: a database cannot be used, or a holder lives and `claim` does not
/// allow to take the lease.
pub fn acquire(
    wanted: &[(ServerSettings, Purpose)],
    holder: &Holder,
    claim: Claim,
    is_cancelled: &AtomicBool,
) -> Result<Option<Vec<Lease>>, Unavailable> {
    apart(|| {
        let mut candidates = Vec::new();
        for (settings, purpose) in wanted {
            let candidate = Candidate::open(settings, *purpose);
            candidates.push(candidate.map_err(|error| Unavailable { purpose: *purpose, error })?);
        }
        let mut is_said = false;
        while !is_cancelled.load(Ordering::Relaxed) {
            let mut waits_for = None;
            for candidate in &mut candidates {
                let purpose = candidate.purpose;
                let state = candidate.look(holder).map_err(|error| Unavailable { purpose, error })?;
                match (state, claim) {
                    (State::Free, _) | (_, Claim::TakeOver) => {}
                    (State::Living, Claim::IfFree) => {
                        return Err(Unavailable { purpose, error: candidate.refusal() });
                    }
                    _ => waits_for = waits_for.or_else(|| Some(candidate.shown())),
                }
            }
            match waits_for {
                None => {
                    if let Some(tokens) = take_all(&mut candidates, holder)? {
                        let leases = candidates.into_iter().zip(tokens);
                        return leases
                            .map(|(candidate, token)| candidate.into_lease(token))
                            .collect::<Result<_, _>>()
                            .map(Some);
                    }
                }
                Some((server, other)) if !is_said => {
                    tracing::info!(database = %server, holder = %other, "another server has the lease: waiting");
                    is_said = true;
                }
                Some(_) => {}
            }
            std::thread::sleep(POLL);
        }
        Ok(None)
    })
}

/// Takes each lease in order and returns their tokens. If another process was faster, releases the leases already
/// taken.
fn take_all(candidates: &mut [Candidate], holder: &Holder) -> Result<Option<Vec<i64>>, Unavailable> {
    let mut tokens = Vec::new();
    for n in 0..candidates.len() {
        match candidates[n].take(holder) {
            Ok(Some(token)) => tokens.push(token),
            failed => {
                candidates.iter_mut().zip(&tokens).for_each(|(candidate, token)| candidate.release(*token));
                let purpose = candidates[n].purpose;
                return failed.map(|_| None).map_err(|error| Unavailable { purpose, error });
            }
        }
    }
    Ok(Some(tokens))
}

/// State of a wanted lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The lease can be taken.
    Free,
    /// The holder has renewed it while this process watched.
    Living,
    /// Not known yet.
    Watched,
}

/// Lease that this process wants.
struct Candidate {
    server: Server,
    purpose: Purpose,
    runtime: Runtime,
    connection: Option<Connection>,
    /// Last row read, with the time of its last change.
    seen: Option<(Row, Instant)>,
    trouble: LastingFailure,
}

impl Candidate {
    fn open(settings: &ServerSettings, purpose: Purpose) -> Result<Self, OpenError> {
        let (server, runtime) = (Server::new(settings)?, runtime()?);
        let mut this =
            Self { server, purpose, runtime, connection: None, seen: None, trouble: LastingFailure::every(AGAIN) };
        let looked = this.by_connection(async |connection, server| {
            schema::expect(connection, server, Part::Leases, &[&table()], false).await
        });
        looked.map_err(|failure| failure.at_start(this.server.url.to_string(), CONNECT))??;
        Ok(this)
    }

    /// Reads the lease and judges its holder. While this process waits for the lease, a failing database does not prove
    /// that the holder is dead.
    fn look(&mut self, holder: &Holder) -> Result<State, OpenError> {
        let select =
            format!("SELECT token, beat, holder, process FROM {TABLE} WHERE purpose = '{}'", self.purpose.key());
        let rows = match self.by_connection(async |connection, _| connection.cells(&select, &[]).await) {
            Ok(rows) => rows,
            Err(failure) if self.seen.is_none() => {
                return Err(failure.at_start(self.server.url.to_string(), STATEMENT));
            }
            Err(failure) => {
                if let Some(attempts) = self.trouble.fails(true) {
                    tracing::warn!(database = %self.server.url, attempts, error = %failure, "lease cannot be read");
                }
                // Silence counts only while the database answers.
                self.seen = self.seen.take().map(|(row, _)| (row, Instant::now()));
                return Ok(State::Watched);
            }
        };
        let _recovered = self.trouble.works();
        Ok(self.judge(rows.first().and_then(|row| read(row)).unwrap_or_default(), holder))
    }

    fn judge(&mut self, row: Row, holder: &Holder) -> State {
        let is_free = row.holder.is_empty() || (holder.has_ended)(&row.process);
        let state = match &self.seen {
            _ if is_free => State::Free,
            Some((before, since)) if *before == row && since.elapsed() >= SILENCE => State::Free,
            Some((before, _)) if *before == row => State::Watched,
            Some(_) => State::Living,
            None => State::Watched,
        };
        if self.seen.as_ref().is_none_or(|(before, _)| *before != row) {
            self.seen = Some((row, Instant::now()));
        }
        state
    }

    /// Takes the lease if it has not changed since it was read. Returns its token.
    fn take(&mut self, holder: &Holder) -> Result<Option<i64>, OpenError> {
        let (row, purpose) = (self.seen.as_ref().map(|(row, _)| row.clone()).unwrap_or_default(), self.purpose.key());
        let (name, process, token) = (literal(&holder.name), literal(&holder.process), row.token + 1);
        let change = match row.token {
            0 => format!(
                "INSERT INTO {TABLE} (purpose, token, epoch, beat, holder, process) VALUES ('{purpose}', 1, 0, 0, '{name}', '{process}')"
            ),
            // A renewal since then changes the beat.
            before => format!(
                "UPDATE {TABLE} SET token = {token}, beat = beat + 1, holder = '{name}', process = '{process}' \
                 WHERE purpose = '{purpose}' AND token = {before} AND beat = {}",
                row.beat
            ),
        };
        match self.by_connection(async |connection, _| connection.run(&change).await) {
            Ok(1) => Ok(Some(token)),
            Ok(_) => Ok(None),
            // Another process inserted the row first, or a transaction of the last holder is not over yet.
            Err(Failure::Refused(reason) | Failure::Row(reason)) => {
                tracing::info!(database = %self.server.url, purpose, reason, "lease not taken yet");
                Ok(None)
            }
            Err(failure) => Err(failure.at_start(self.server.url.to_string(), STATEMENT)),
        }
    }

    fn release(&mut self, token: i64) {
        let release = Right { purpose: self.purpose, token }.release();
        // A failed release has the same effect as silence.
        let _unreachable = self.by_connection(async |connection, _| connection.run(&release).await);
    }

    fn into_lease(self, token: i64) -> Result<Lease, Unavailable> {
        let Self { server, purpose, runtime, connection, .. } = self;
        let renewals = Renewals { server, right: Right { purpose, token }, connection, is_lost: Arc::default() };
        Lease::start(renewals, runtime).map_err(|error| Unavailable { purpose, error })
    }

    fn refusal(&self) -> OpenError {
        let (server, holder) = self.shown();
        OpenError::Refused { server, reason: self.purpose.refusal(&holder) }
    }

    /// Returns the database, and the name of the holder.
    fn shown(&self) -> (String, String) {
        (self.server.url.to_string(), self.seen.as_ref().map(|(row, _)| row.holder.clone()).unwrap_or_default())
    }

    fn by_connection<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Connection, &Server) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (server, kept) = (&self.server, &mut self.connection);
        self.runtime.block_on(async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => within(CONNECT, Connection::open(server)).await?,
            };
            let done = within(STATEMENT, work(&mut connection, server)).await;
            if !matches!(done, Err(Failure::Lost(_) | Failure::TimedOut)) {
                *kept = Some(connection);
            }
            done
        })
    }
}
