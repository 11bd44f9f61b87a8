//! Errors of a database server.

use std::path::PathBuf;
use std::time::Duration;

use strowger_store::error::StoreError;

/// Reason why a database server cannot be used at the start. For display as it is; it names the server without its
/// password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no connection.
    #[error("{server} cannot be reached: {reason}")]
    Unreachable {
        /// Server.
        server: String,
        /// Text of the system.
        reason: String,
    },
    /// The server refused the login or a request.
    #[error("{server} refused: {reason}")]
    Refused {
        /// Server.
        server: String,
        /// Text of the server.
        reason: String,
    },
    /// The server did not answer in time.
    #[error("{server} did not answer within {limit:?}")]
    TimedOut {
        /// Server.
        server: String,
        /// Time limit.
        limit: Duration,
    },
    /// The table does not exist, or not for this user.
    #[error("{server} has no table {table:?} that {user:?} may read (store.subscriber_table)")]
    NoTable {
        /// Server.
        server: String,
        /// Table.
        table: String,
        /// Database user of this process.
        user: String,
    },
    /// The table is no table of subscribers.
    #[error("the table {table:?} of {server} lacks {missing}; it has {present}")]
    NoColumn {
        /// Server.
        server: String,
        /// Table.
        table: String,
        /// Missing columns.
        missing: String,
        /// Present columns.
        present: String,
    },
    /// A column of names has a type that is not text.
    #[error("the column {column:?} of the table {table:?} of {server} is of the type {type_name:?}, which is no text")]
    NoText {
        /// Server.
        server: String,
        /// Table.
        table: String,
        /// Column.
        column: String,
        /// Type of the column.
        type_name: String,
    },
    /// A table that `strowger db init` creates does not exist, or not for this user.
    #[error("{server} has no table {table:?} that {user:?} may use: `strowger db init` makes it")]
    NotMade {
        /// Server.
        server: String,
        /// Table.
        table: String,
        /// Database user of this process.
        user: String,
    },
    /// The database user lacks rights.
    #[error("{server}: {user:?} lacks {rights}; an administrator of the database can grant that")]
    Rights {
        /// Server.
        server: String,
        /// Database user of this process.
        user: String,
        /// Missing rights and their tables.
        rights: String,
    },
    /// A table that must be written lacks columns.
    #[error(
        "the table {table:?} of {server} lacks {missing}: it is another program's, or was changed; give it another name, and `strowger db init` \
         makes one that has them"
    )]
    Lacks {
        /// Server.
        server: String,
        /// Table.
        table: String,
        /// Missing columns of the table.
        missing: String,
    },
    /// The tables were created by an older version of this program.
    #[error(
        "the tables for {part} in {server} are of version {found}, this program needs {known}: `strowger db migrate` makes it so"
    )]
    Older {
        /// Server.
        server: String,
        /// Part of the program that uses them.
        part: &'static str,
        /// Version of the tables.
        found: u32,
        /// Version of this program.
        known: u32,
    },
    /// The tables were created by a newer version of this program.
    #[error(
        "the tables for {part} in {server} are of version {found}, this program knows {known}: use the program that made them"
    )]
    Newer {
        /// Server.
        server: String,
        /// Part of the program that uses them.
        part: &'static str,
        /// Version of the tables.
        found: u32,
        /// Version of this program.
        known: u32,
    },
    /// A power cut may lose committed data.
    #[error(
        "{server} may lose by a power cut what it has committed: {setting}; set it there, or registrar.durability = \"crash\" here"
    )]
    NotDurable {
        /// Server.
        server: String,
        /// Setting with its value, and the correct value.
        setting: String,
    },
    /// The certificates of the trusted authorities cannot be used.
    #[error("{path}: {reason}")]
    Authorities {
        /// File of the certificates.
        path: PathBuf,
        /// Error of the file.
        reason: String,
    },
    /// A thread could not be started.
    #[error("a thread for a database server cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Reason why a statement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no connection, or it is unusable.
    Lost(String),
    /// The server refused the statement.
    Refused(String),
    /// The server refused a value of one row: too long, or against a constraint. The other rows of the statement may be
    /// valid.
    Row(String),
    /// The server refused the statement because its user lacks a right on a table.
    Denied(String),
    /// The server has no space left.
    Full(String),
    /// The deadline has passed.
    TimedOut,
    /// The last attempt to connect failed a moment ago.
    NotTried,
}

impl Failure {
    pub(crate) const fn kind(&self) -> StoreError {
        match self {
            Self::Lost(_) | Self::NotTried => StoreError::Unavailable,
            Self::Refused(_) | Self::Row(_) | Self::Denied(_) => StoreError::Refused,
            Self::Full(_) => StoreError::Full,
            Self::TimedOut => StoreError::TimedOut,
        }
    }

    /// Converts the failure to an error of the start.
    pub(crate) fn at_start(self, server: String, limit: Duration) -> OpenError {
        match self {
            Self::Lost(reason) => OpenError::Unreachable { server, reason },
            Self::Refused(reason) | Self::Row(reason) | Self::Denied(reason) | Self::Full(reason) => {
                OpenError::Refused { server, reason }
            }
            Self::TimedOut => OpenError::TimedOut { server, limit },
            Self::NotTried => OpenError::Unreachable { server, reason: "the last attempt failed a moment ago".into() },
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost(reason)
            | Self::Refused(reason)
            | Self::Row(reason)
            | Self::Denied(reason)
            | Self::Full(reason) => f.write_str(reason),
            Self::TimedOut => f.write_str("it did not answer in time"),
            Self::NotTried => f.write_str("it could not be reached a moment ago"),
        }
    }
}

/// Returns the text of an error with its causes, each once, even if one repeats the beginning of the next.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    let mut parts: Vec<&str> = text.split(": ").collect();
    parts.dedup();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("no input: {0}")]
        struct Outer(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("no input: {0}")]
        struct Inner(std::io::Error);
        let error = Outer(Inner(std::io::Error::other("refused")));
        assert_eq!(with_causes(&error), "no input: refused");
    }
}
