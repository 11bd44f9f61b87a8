//! MariaDB and MySQL, by `mysql_async`.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Params, SslOpts, Value};
use strowger_store::database_url::DatabaseAddress;

use crate::connection::{Parameter, Row};
use crate::error::{Failure, with_causes};
use crate::server::Server;

/// Errors of a server that ends the connection or takes none: too many connections, shutdown, killed, idle for too long.
const GONE: [u16; 5] = [1040, 1053, 1203, 1927, 4031];

/// Prepared statements of a connection; there are a few for each size of list.
const STATEMENTS: usize = 64;

/// What a server takes by default. Said here, so that the driver need not ask for it.
const PACKET: usize = 16 << 20;

pub(crate) struct MariaDb(Conn);

impl MariaDb {
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        Conn::new(options(server)).await.map(Self).map_err(|error| failure(&error))
    }

    pub(crate) async fn rows(&mut self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        let mut values = Vec::new();
        let value = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        for parameter in parameters {
            match parameter {
                Parameter::Text(text) => values.push(value(text)),
                Parameter::Texts(texts) => values.extend(texts.iter().map(|text| value(text))),
            }
        }
        let parameters = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
        let rows: Vec<mysql_async::Row> = self.0.exec(statement, parameters).await.map_err(|error| failure(&error))?;
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }

    pub(crate) async fn close(self) {
        // The server sees the end of the connection in any case.
        let _gone = self.0.disconnect().await;
    }
}

fn options(server: &Server) -> Opts {
    let url = &server.url;
    let options = OptsBuilder::default()
        .user(Some(url.user.as_str()))
        .pass(url.password.as_deref())
        .db_name(Some(url.database.as_str()))
        .prefer_socket(false)
        .stmt_cache_size(STATEMENTS)
        .max_allowed_packet(Some(PACKET))
        .wait_timeout(Some(28_800));
    let options = match &url.address {
        DatabaseAddress::Host { host, port } => options.ip_or_hostname(host.as_str()).tcp_port(*port),
        DatabaseAddress::Socket(path) => options.socket(Some(path.to_string_lossy().into_owned())),
    };
    let tls = server.authorities.as_ref().filter(|_| matches!(url.address, DatabaseAddress::Host { .. }));
    let tls = tls.map(|authorities| {
        let pem = authorities.pem.to_vec();
        SslOpts::default().with_root_certs(vec![pem.into()]).with_disable_built_in_roots(true)
    });
    options.ssl_opts(tls).into()
}

fn text(value: Value) -> Vec<u8> {
    match value {
        Value::NULL => Vec::new(),
        Value::Bytes(bytes) => bytes,
        // Numbers; no column that is read is one, and they are shown to people at most.
        value => value.as_sql(true).into_bytes(),
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Server(error) => {
            let text = format!("{} ({})", error.message, error.code);
            if GONE.contains(&error.code) { Failure::Lost(text) } else { Failure::Refused(text) }
        }
        error => Failure::Lost(with_causes(error)),
    }
}
