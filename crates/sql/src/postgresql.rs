//! PostgreSQL, by `tokio-postgres`.

use std::collections::HashMap;

use strowger_store::database_url::DatabaseAddress;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, NoTls, Statement};

use crate::connection::{Parameter, Row};
use crate::error::{Failure, with_causes};
use crate::server::Server;
use crate::tls::MakeTls;

/// Classes of errors after which a connection is no good: it was lost, the server takes no more, it shuts down (PostgreSQL, appendix A).
const GONE: [&str; 3] = ["08", "53", "57P"];
/// A prepared statement that the server does not have any more, or whose table has changed: the next connection prepares it again.
const OUTDATED: [&str; 2] = ["26000", "0A000"];

pub(crate) struct PostgreSql {
    client: Client,
    /// Moves bytes between the client and the socket.
    mover: Mover,
    prepared: HashMap<String, Statement>,
}

impl PostgreSql {
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        let url = &server.url;
        let mut config = Config::new();
        config.user(url.user.as_str()).dbname(url.database.as_str()).application_name("strowger");
        if let Some(password) = &url.password {
            config.password(password);
        }
        match &url.address {
            DatabaseAddress::Host { host, port } => config.host(host.as_str()).port(*port),
            DatabaseAddress::Socket(folder) => config.host_path(folder),
        };
        let tls = server.authorities.as_ref().filter(|_| matches!(url.address, DatabaseAddress::Host { .. }));
        let (client, mover) = match tls {
            None => {
                let connected = config.ssl_mode(SslMode::Disable).connect(NoTls).await;
                connected.map(|(client, connection)| (client, Mover::of(connection)))
            }
            Some(authorities) => {
                let connected = config.ssl_mode(SslMode::Require).connect(MakeTls::new(authorities)).await;
                connected.map(|(client, connection)| (client, Mover::of(connection)))
            }
        }
        .map_err(|error| failure(&error))?;
        Ok(Self { client, mover, prepared: HashMap::new() })
    }

    pub(crate) async fn rows(&mut self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        let prepared = match self.prepared.get(statement) {
            Some(prepared) => prepared.clone(),
            None => {
                let prepared = self.client.prepare(statement).await.map_err(|error| failure(&error))?;
                self.prepared.insert(statement.into(), prepared.clone());
                prepared
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = parameters
            .iter()
            .map(|parameter| match parameter {
                Parameter::Text(text) => text as &(dyn ToSql + Sync),
                Parameter::Texts(texts) => texts as &(dyn ToSql + Sync),
            })
            .collect();
        let rows = self.client.query(&prepared, &values).await.map_err(|error| failure(&error))?;
        rows.iter().map(columns).collect::<Result<_, _>>().map_err(|error| failure(&error))
    }

    pub(crate) async fn close(self) {
        let Self { client, mover, .. } = self;
        // Without a client the mover takes leave of the server, and ends.
        drop(client);
        mover.finish().await;
    }
}

/// A task that ends with its value: one whose server is silent would wait for it.
struct Mover(JoinHandle<()>);

impl Mover {
    fn of<S, T>(connection: tokio_postgres::Connection<S, T>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // What ends it is what the next statement fails with.
        Self(tokio::spawn(async move { drop(connection.await) }))
    }

    async fn finish(mut self) {
        let _panicked = (&mut self.0).await;
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn columns(row: &tokio_postgres::Row) -> Result<Row, Error> {
    let text = |column| row.try_get::<_, Option<&str>>(column).map(|text| text.unwrap_or_default().into());
    (0..row.len()).map(text).collect()
}

fn failure(error: &Error) -> Failure {
    let Some(said) = error.as_db_error() else { return Failure::Lost(with_causes(error)) };
    let code = said.code().code();
    let text = format!("{} ({code})", said.message());
    let is_gone = GONE.iter().any(|class| code.starts_with(class)) || OUTDATED.contains(&code);
    if is_gone { Failure::Lost(text) } else { Failure::Refused(text) }
}
