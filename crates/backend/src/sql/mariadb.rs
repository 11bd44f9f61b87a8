//! MariaDB and MySQL, by `mysql_async`.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Params, SslOpts, Value};
use strowger_store::database_url::DatabaseAddress;

use crate::sql::cell::{Cell, Change};
use crate::sql::connection::{Parameter, Row};
use crate::sql::error::{Failure, with_causes};
use crate::sql::server::Server;

/// Errors of a server that ends the connection or accepts none: too many connections, shutdown, killed, idle for too
/// long.
const GONE: [u16; 5] = [1040, 1053, 1203, 1927, 4031];

/// Errors of a server without space: in the file system, in a table, or a write that failed for this reason.
const FULL: [u16; 4] = [3, 1021, 1026, 1114];

/// Errors of a missing right on a table or a column.
const DENIED: [u16; 2] = [1142, 1143];

/// SQLSTATE classes of errors due to a row: a value that does not fit, a constraint.
const ROW_CLASSES: [&str; 3] = ["22", "23", "45"];

/// Numbers of further errors due to a row, whose class is ambiguous: truncated data, a wrong value, no partition, the
/// wrong partition, a row that violates a view, a CHECK of MySQL.
const ROW: [u16; 6] = [1265, 1366, 1526, 1748, 1369, 3819];

/// Errors of these classes that are due to the statement: an ambiguous column.
const NO_ROW: [u16; 1] = [1052];

/// Prepared statements of a connection; there are a few for each size of list.
const STATEMENTS: usize = 64;

/// Default packet limit of a server. Set explicitly, so that the driver need not ask for it.
const PACKET: usize = 16 << 20;

/// Bytes after which a statement that inserts rows, or a packet, is followed by another one. A server with the smallest
/// default (MySQL 5.7, 4 MB) has room for one more row.
const STATEMENT: usize = 1 << 20;
const SENT: usize = 3 << 20;

/// Idle time after which the system probes a connection.
const KEEPALIVE: Duration = Duration::from_secs(5);

pub(crate) struct MariaDb(Conn);

impl MariaDb {
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        Conn::new(options(server)).await.map(Self).map_err(|error| failure(&error))
    }

    pub(crate) async fn rows(&mut self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        let rows = self.values(statement, parameters).await?;
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }

    pub(crate) async fn cells(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Vec<Cell<'static>>>, Failure> {
        let rows = self.values(statement, parameters).await?;
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(cell).collect()).collect())
    }

    async fn values(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<mysql_async::Row>, Failure> {
        let mut values = Vec::new();
        let value = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        for parameter in parameters {
            match parameter {
                Parameter::Text(text) => values.push(value(text)),
                Parameter::Texts(texts) => values.extend(texts.iter().map(|text| value(text))),
                Parameter::Number(number) => values.push(Value::Int(*number)),
            }
        }
        let parameters = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
        self.0.exec(statement, parameters).await.map_err(|error| failure(&error))
    }

    pub(crate) async fn run(&mut self, statement: &str) -> Result<u64, Failure> {
        let ran = async {
            let result = self.0.query_iter(statement).await?;
            let changed = result.affected_rows();
            result.drop_result().await?;
            Ok(changed)
        };
        ran.await.map_err(|error: Error| failure(&error))
    }

    pub(crate) async fn change(&mut self, fence: Option<&str>, changes: &[Change<'_>]) -> Result<(), Failure> {
        let fence = fence.map(str::to_owned).into_iter();
        for sent in packets(fence.chain(statements(changes)).collect()) {
            self.0.query_drop(sent).await.map_err(|error| failure(&error))?;
        }
        Ok(())
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
        .wait_timeout(Some(28_800))
        .tcp_keepalive(Some(KEEPALIVE));
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

/// Returns the statements with literal values: with placeholders each number of rows would need its own prepared
/// statement.
fn statements(changes: &[Change<'_>]) -> Vec<String> {
    let of = |change: &Change<'_>| match change {
        Change::Put(table, rows) => table.literal_insertions(rows, STATEMENT),
        Change::Delete(table, first, keys) => table.literal_deletions(*first, keys),
    };
    changes.iter().flat_map(of).collect()
}

/// Joins statements to packets, separated by semicolons. A single statement is a transaction by itself.
fn packets(statements: Vec<String>) -> Vec<String> {
    if statements.len() < 2 {
        return statements;
    }
    let mut packets = vec!["START TRANSACTION".to_owned()];
    for statement in statements.iter().map(String::as_str).chain(["COMMIT"]) {
        match packets.last_mut() {
            Some(packet) if packet.len() + statement.len() < SENT => {
                packet.push(';');
                packet.push_str(statement);
            }
            _ => packets.push(statement.to_owned()),
        }
    }
    packets
}

fn cell(value: Value) -> Cell<'static> {
    match value {
        Value::NULL => Cell::Null,
        Value::Int(number) => Cell::Number(number),
        Value::UInt(number) => Cell::number(number),
        Value::Bytes(bytes) => Cell::Bytes(bytes.into()),
        // The columns read here have no other type.
        value => Cell::Bytes(value.as_sql(true).into_bytes().into()),
    }
}

fn text(value: Value) -> Vec<u8> {
    match value {
        Value::NULL => Vec::new(),
        Value::Bytes(bytes) => bytes,
        // Numbers; no such column is read, and they are for display only.
        value => value.as_sql(true).into_bytes(),
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Server(error) => {
            let text = format!("{} ({})", error.message, error.code);
            match error.code {
                code if GONE.contains(&code) => Failure::Lost(text),
                code if FULL.contains(&code) => Failure::Full(text),
                code if DENIED.contains(&code) => Failure::Denied(text),
                code if is_rows_own(code, &error.state) => Failure::Row(text),
                _ => Failure::Refused(text),
            }
        }
        error => Failure::Lost(with_causes(error)),
    }
}

/// Tells whether an error is due to the row.
fn is_rows_own(code: u16, state: &str) -> bool {
    ROW.contains(&code) || ROW_CLASSES.iter().any(|class| state.starts_with(class)) && !NO_ROW.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_row_differ_from_errors_of_its_table() {
        for (code, state) in [
            (1406, "22001"), // too long
            (1264, "22003"), // out of range
            (1292, "22007"), // no such date
            (1366, "HY000"), // no such character
            (1048, "23000"), // NULL
            (1452, "23000"), // foreign key
            (4025, "23000"), // CHECK, MariaDB
            (3819, "HY000"), // CHECK, MySQL
            (1526, "HY000"), // no partition
            (1644, "45000"), // SIGNAL of a trigger
        ] {
            assert!(is_rows_own(code, state), "{code}");
        }
        for (code, state) in [
            (1146, "42S02"), // no such table
            (1054, "42S22"), // no such column
            (1052, "23000"), // ambiguous column
            (1136, "21S01"), // other columns
            (1364, "HY000"), // a column without a default
            (1142, "42000"), // a right
            (1205, "HY000"), // waited for a lock
            (1213, "40001"), // deadlock
            (1290, "HY000"), // read only
            (1114, "HY000"), // full
        ] {
            assert!(!is_rows_own(code, state), "{code}");
        }
    }

    #[test]
    fn several_statements_are_one_transaction_and_few_packets() {
        let text = |statements: &[&str]| statements.iter().map(|&statement| statement.to_owned()).collect::<Vec<_>>();
        assert_eq!(packets(Vec::new()), Vec::<String>::new());
        assert_eq!(packets(text(&["a"])), ["a"]);
        assert_eq!(packets(text(&["a", "b"])), ["START TRANSACTION;a;b;COMMIT"]);
        let long = "x".repeat(SENT - 10);
        let sent = packets(text(&[&long, "b"]));
        let lengths: Vec<usize> = sent.iter().map(String::len).collect();
        assert_eq!(lengths, ["START TRANSACTION".len(), long.len() + ";b;COMMIT".len()]);
    }
}
