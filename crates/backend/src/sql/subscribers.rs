//! Subscribers of a database server: the engine that answers shards, behind the cache of `strowger-store`.
//!
//! One statement asks the questions of a round that have the same realm. A row belongs to a user only if its name is
//! equal byte by byte: a server compares less strictly. The tables report no changes: only the lifetime limits an
//! answer, and a removed user keeps bindings and route tokens until they end, or an operator ends them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use strowger_store::cached_subscribers::CachedSubscribers;
use strowger_store::clock::Clock;
use strowger_store::error::StoreError;
use strowger_store::read_through::{LocalEngine, LookupEngine, ReadThroughSettings};
use strowger_store::second_level::SecondLevel;
use strowger_store::subscriber::{Asked, Ha1s, Question, SubscriberAnswer};
use tokio::runtime::Runtime;

use crate::sql::back_off::BackOff;
use crate::sql::connection::{Connection, Parameter, Row};
use crate::sql::credential::Record;
use crate::sql::dialect::{Dialect, LONGEST_LIST};
use crate::sql::error::{Failure, OpenError};
use crate::sql::realms::{Realm, Realms};
use crate::sql::runtime::{CONNECT, farewell, runtime, within};
use crate::sql::server::{Server, ServerSettings};
use crate::sql::table::{Named, SubscriberTable};

/// Function that computes the HA1s of a user name, a realm and a password (RFC 7616 section 3.4.2).
pub type HashPassword = fn(username: &str, realm: &str, password: &str) -> Ha1s;

/// Settings of the subscribers.
#[derive(Clone, Debug)]
pub struct SqlSettings {
    /// Server.
    pub server: ServerSettings,
    /// Table: `TABLE` or `SCHEMA.TABLE`.
    pub table: String,
    /// Realms of the server.
    pub realms: Realms,
    /// Computes HA1s from a clear password.
    pub hash: HashPassword,
}

/// Running reader of subscribers.
pub struct Started {
    /// Subscribers.
    pub subscribers: CachedSubscribers,
    /// Realms, which may be changed at run time.
    pub realms: CurrentRealms,
    /// Algorithms for which some users had an HA1 at the start; for an empty table, the algorithms with a column.
    pub algorithms: Vec<&'static str>,
}

/// Current realms of the reader.
#[derive(Clone)]
pub struct CurrentRealms(Arc<Shared>);

impl CurrentRealms {
    /// Replaces the realms, from the next question on.
    ///
    /// # Errors
    /// The table has users of one domain only.
    pub fn set(&self, realms: Realms) -> Result<(), OpenError> {
        if has_several_domains(&realms) && !self.0.table.has_domains() {
            return Err(OpenError::NoColumn {
                server: self.0.server.url.to_string(),
                table: self.0.table_name.clone(),
                missing: "the column \"domain\", which tells the users of this server's domains apart".into(),
                present: "users of one domain".into(),
            });
        }
        *self.0.realms.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(realms);
        Ok(())
    }
}

/// Connects, checks whether the table is a table of subscribers, and starts the threads. `second`: a cache that is
/// asked before the server.
///
/// # Errors
/// [`OpenError`], for display as it is.
pub fn start(
    settings: &SqlSettings,
    second: Option<&SecondLevel>,
    cache: ReadThroughSettings,
    clock: Clock,
) -> Result<Started, OpenError> {
    // This runs on a thread without a runtime, because the caller's thread may have a runtime.
    let (first, shared, algorithms) = std::thread::scope(|scope| {
        let open = || SqlSubscribers::open(settings, cache.deadline);
        let opened = std::thread::Builder::new().name("subscriber-open".into()).spawn_scoped(scope, open)?;
        opened.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let again = shared.clone();
    let connect = move || SqlSubscribers::further(again.clone());
    let of_shards = shared.clone();
    let reader = move || Reader::new(of_shards.clone());
    let subscribers = match second.cloned() {
        None => CachedSubscribers::start_unwatched(first, connect, cache, clock)?.with_local(move || (reader(), None)),
        Some(second) => {
            let (first, of_shards) = (second.before(first), second.clone());
            let connect = move || connect().map(|engine| second.before(engine));
            CachedSubscribers::start_unwatched(first, connect, cache, clock)?
                .with_local(move || of_shards.before_local(reader()))
        }
    };
    Ok(Started { subscribers, realms: CurrentRealms(shared), algorithms })
}

/// State common to all connections.
struct Shared {
    server: Server,
    dialect: Dialect,
    table: SubscriberTable,
    table_name: String,
    realms: RwLock<Arc<Realms>>,
    hash: HashPassword,
    /// Limit of a statement.
    limit: Duration,
    back_off: BackOff,
    /// Time of the last log line about a failure.
    said: Mutex<Option<Instant>>,
}

fn has_several_domains(realms: &Realms) -> bool {
    realms.domains() > 1
}

/// Interval of log lines about a lasting failure: questions arrive as fast as requests do.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// Time added to the deadline of a statement, so that the keeper of deadlines notices a missed deadline first. This
/// distinguishes a silent server from a failing server.
const AFTER_DEADLINE: Duration = Duration::from_millis(100);

impl Shared {
    fn say(&self, failure: &Failure) {
        if *failure == Failure::NotTried {
            return;
        }
        let now = Instant::now();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| now - said >= SAY_AGAIN) {
            *said = Some(now);
            tracing::error!(database = %self.server.url, error = %failure, "subscribers cannot be read");
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        if !self.back_off.may_try(Instant::now()) {
            return Err(Failure::NotTried);
        }
        let opened = within(CONNECT, Connection::open(&self.server)).await;
        let connection = opened.inspect_err(|_| self.back_off.failed(Instant::now()))?;
        if self.back_off.succeeded() {
            *self.said.lock().unwrap_or_else(PoisonError::into_inner) = None;
            tracing::info!(database = %self.server.url, "connected again");
        }
        Ok(connection)
    }
}

/// Lengths of the lists of domains and of names; see [`Dialect::length`].
type Lengths = (Option<usize>, Option<usize>);

/// Connection, common state, and the algorithms of the table.
type Opened = (SqlSubscribers, Arc<Shared>, Vec<&'static str>);

/// Answers questions on the connection of a thread.
struct SqlSubscribers {
    /// `None` while it answers and once it is dropped.
    runtime: Option<Runtime>,
    reader: Reader,
}

/// Reader with its own connection.
struct Reader {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    /// Statements by the lengths of their lists.
    statements: HashMap<Lengths, Arc<str>>,
}

impl SqlSubscribers {
    /// Opens the first connection and inspects the table.
    fn open(settings: &SqlSettings, deadline: Duration) -> Result<Opened, OpenError> {
        let server = Server::new(&settings.server)?;
        let (shown, dialect) = (server.url.to_string(), Dialect(server.url.kind));
        let runtime = runtime()?;
        let looked = runtime.block_on(within(CONNECT, async {
            let mut connection = Connection::open(&server).await?;
            let columns = SubscriberTable::describe(&mut connection, dialect, &settings.table).await?;
            Ok((connection, columns))
        }));
        let (connection, columns) = match looked {
            Ok(looked) => looked,
            Err(failure) => {
                // A thread of the runtime may still be resolving a name.
                runtime.shutdown_background();
                return Err(failure.at_start(shown, CONNECT));
            }
        };
        let named = Named { server: &shown, user: &server.url.user, table: &settings.table };
        let table = SubscriberTable::of(dialect, &columns, has_several_domains(&settings.realms), &named)?;
        let mut connection = Some(connection);
        let algorithms = match runtime.block_on(within(deadline, algorithms_in_use(&table, &mut connection))) {
            // Many users without such an HA1, or a slow server.
            Err(Failure::TimedOut) => table.algorithms(),
            used => used.map_err(|failure| failure.at_start(shown, deadline))?,
        };
        let shared = Arc::new(Shared {
            server,
            dialect,
            table,
            table_name: settings.table.clone(),
            realms: RwLock::new(Arc::new(settings.realms.clone())),
            hash: settings.hash,
            limit: deadline + AFTER_DEADLINE,
            back_off: BackOff::default(),
            said: Mutex::default(),
        });
        let reader = Reader { connection, ..Reader::new(shared.clone()) };
        Ok((Self { runtime: Some(runtime), reader }, shared, algorithms))
    }

    /// Creates an engine that connects at its first question.
    fn further(shared: Arc<Shared>) -> Result<Self, StoreError> {
        let runtime = runtime().map_err(|error| {
            tracing::error!(%error, "a further connection for look-ups cannot be made");
            StoreError::Unavailable
        })?;
        Ok(Self { runtime: Some(runtime), reader: Reader::new(shared) })
    }
}

impl Reader {
    /// Creates a reader that connects at its first question.
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, connection: None, statements: HashMap::new() }
    }

    /// Reads the rows of all these users, ordered by realm and name, one statement after the other.
    async fn read(&mut self, wanted: &[Option<Wanted<'_>>], realms: &Realms) -> Result<Found, Failure> {
        let mut found = Found::default();
        for (number, realm) in realms.all().iter().enumerate() {
            let of_realm = wanted.iter().flatten().filter(|wanted| wanted.realm == number);
            let mut names: Vec<&str> = of_realm.map(|wanted| wanted.username).collect();
            names.sort_unstable();
            names.dedup();
            if names.is_empty() {
                continue;
            }
            let domains: Vec<&str> = realm.names().collect();
            // There is nearly always one chunk of domains and one of names.
            for domains in domains.chunks(LONGEST_LIST) {
                for names in names.chunks(LONGEST_LIST) {
                    for row in self.rows(domains, names).await? {
                        let username = Record { table: &self.shared.table, row: &row }.username().to_owned();
                        found.0.entry((number, username)).or_default().push(row);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Reads the rows of users with these names and domains.
    async fn rows(&mut self, domains: &[&str], names: &[&str]) -> Result<Vec<Row>, Failure> {
        let shared = self.shared.clone();
        let lengths = (shared.dialect.length(domains.len()), shared.dialect.length(names.len()));
        let (domains, names) = (filled(domains, lengths.0), filled(names, lengths.1));
        let statement = || shared.table.statement(lengths.0, lengths.1).into();
        let statement = self.statements.entry(lengths).or_insert_with(statement).clone();
        let lists = [Parameter::Texts(&domains), Parameter::Texts(&names)];
        let lists = if shared.table.has_domains() { &lists[..] } else { &lists[1..] };
        let mut is_old = self.connection.is_some();
        loop {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => shared.connect().await?,
            };
            // A connection that has missed its deadline is dropped, because its late answer would be taken for the
            // answer to another question.
            match within(shared.limit, connection.rows(&statement, lists)).await {
                // The connection may have ended while idle, for example by a restart of the server.
                Err(Failure::Lost(_)) if is_old => is_old = false,
                Err(failure @ (Failure::Lost(_) | Failure::TimedOut)) => return Err(failure),
                rows => {
                    self.connection = Some(connection);
                    return rows;
                }
            }
        }
    }
}

/// Returns the algorithms for which any user of the table has an HA1. If the returned future is dropped before its end,
/// the connection is lost.
async fn algorithms_in_use(
    table: &SubscriberTable,
    connection: &mut Option<Connection>,
) -> Result<Vec<&'static str>, Failure> {
    let mut own = connection.take().ok_or(Failure::NotTried)?;
    let mut used = Vec::new();
    for algorithm in table.algorithms() {
        if !own.rows(&table.any_user_with(algorithm), &[]).await?.is_empty() {
            used.push(algorithm);
        }
    }
    *connection = Some(own);
    Ok(if used.is_empty() { table.algorithms() } else { used })
}

/// Rows by the number of their realm and by user name.
#[derive(Default)]
struct Found(HashMap<(usize, String), Vec<Row>>);

/// User of a question.
struct Wanted<'q> {
    realm: usize,
    username: &'q str,
    /// Only in this domain.
    domain: Option<&'q str>,
}

impl<'q> Wanted<'q> {
    /// Converts a question. Returns `None` if the table cannot have such a user; then the server is not asked.
    fn of(question: Question<'q>, realms: &'q Realms, table: &SubscriberTable) -> Option<Self> {
        let wanted = match question {
            Question::User { username, domain } => {
                let (realm, domain) = realms.of_domain(domain)?;
                Self { realm, username: std::str::from_utf8(username).ok()?, domain: Some(domain) }
            }
            Question::Credential { username, realm } => {
                let (realm, username) = (realms.named(realm)?, std::str::from_utf8(username).ok()?);
                // A phone may send its address in place of its name.
                let parts = username.rsplit_once('@');
                let parts =
                    parts.and_then(|(name, domain)| Some((name, realms.all()[realm].domain(domain.as_bytes())?)));
                match parts {
                    Some((username, domain)) => Self { realm, username, domain: Some(domain) },
                    None => Self { realm, username, domain: None },
                }
            }
        };
        table.can_hold(wanted.username).then_some(wanted)
    }

    /// Returns the user's row. Prefers the domain with the name of the realm. Each user has only one row, even if its
    /// domain has several names.
    fn record<'f>(&self, found: &'f Found, realm: &Realm, table: &'f SubscriberTable) -> Option<Record<'f>> {
        let rows = found.0.get(&(self.realm, self.username.to_owned()))?;
        let records = rows.iter().map(|row| Record { table, row });
        let rank = |record: &Record<'_>| {
            let domain = record.domain(realm)?;
            let is_wanted = self.domain.is_none_or(|wanted| realm.canonical(wanted) == realm.canonical(domain));
            realm.names().position(|own| own == domain).filter(|_| is_wanted)
        };
        records
            .filter_map(|record| Some((rank(&record)?, record)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, record)| record)
    }
}

impl LocalEngine for Reader {
    type Key = Asked;

    async fn connect(&mut self) {
        // The first question reports an error.
        self.connection = self.shared.connect().await.ok();
    }

    async fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let realms = shared.realms.read().unwrap_or_else(PoisonError::into_inner).clone();
        let table = &shared.table;
        let wanted: Vec<_> = questions.iter().map(|asked| Wanted::of(asked.question(), &realms, table)).collect();
        let found = self.read(&wanted, &realms).await.map_err(|failure| {
            shared.say(&failure);
            failure.kind()
        })?;
        let answer = |(asked, wanted): (&Asked, &Option<Wanted<'_>>)| {
            let wanted = wanted.as_ref()?;
            let realm = &realms.all()[wanted.realm];
            let record = wanted.record(&found, realm, table)?;
            Some(match asked.question() {
                Question::User { .. } => SubscriberAnswer::Exists,
                Question::Credential { username, .. } => {
                    let sent = std::str::from_utf8(username).unwrap_or_default();
                    SubscriberAnswer::Credential(record.credential(realm, sent, sent != wanted.username, shared.hash))
                }
            })
        };
        answers.extend(questions.iter().zip(&wanted).map(|pair| answer(pair).unwrap_or(SubscriberAnswer::Absent)));
        Ok(())
    }
}

impl LookupEngine for SqlSubscribers {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        // The runtime is gone if the last look-up panicked.
        let runtime = self.runtime.take().map_or_else(runtime, Ok).map_err(|error| {
            self.reader.shared.say(&Failure::Lost(error.to_string()));
            StoreError::Unavailable
        })?;
        let answered = runtime.block_on(self.reader.answer(questions, answers));
        self.runtime = Some(runtime);
        answered
    }
}

impl Drop for SqlSubscribers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            farewell(runtime, self.reader.connection.take());
        }
    }
}

/// Pads a list to this length with its last item.
fn filled<'a>(list: &[&'a str], length: Option<usize>) -> Vec<&'a str> {
    let mut list = list.to_vec();
    if let (Some(length), Some(last)) = (length, list.last().copied()) {
        list.resize(length, last);
    }
    list
}

#[cfg(test)]
mod tests;
