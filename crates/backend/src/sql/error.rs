//! What can go wrong with a database server.

use std::path::PathBuf;
use std::time::Duration;

use strowger_store::error::StoreError;

/// Why a database server cannot be used from the start. To be shown as it is; it names the server without its password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no connection.
    #[error("{server} cannot be reached: {reason}")]
    Unreachable {
        /// Which one.
        server: String,
        /// In the words of the system.
        reason: String,
    },
    /// It answers, and does not let us in or does not do what it is asked.
    #[error("{server} refused: {reason}")]
    Refused {
        /// Which one.
        server: String,
        /// In its own words.
        reason: String,
    },
    /// It does not answer in time.
    #[error("{server} did not answer within {limit:?}")]
    TimedOut {
        /// Which one.
        server: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The table is not there, or not for this user.
    #[error("{server} has no table {table:?} that {user:?} may read (store.subscriber_table)")]
    NoTable {
        /// Which one.
        server: String,
        /// The table.
        table: String,
        /// Who we are there.
        user: String,
    },
    /// The table is no table of subscribers.
    #[error("the table {table:?} of {server} lacks {missing}; it has {present}")]
    NoColumn {
        /// Which one.
        server: String,
        /// The table.
        table: String,
        /// Which columns it would have to have.
        missing: String,
        /// Which it has.
        present: String,
    },
    /// A column that names are looked for in is of a type that is no text.
    #[error("the column {column:?} of the table {table:?} of {server} is of the type {type_name:?}, which is no text")]
    NoText {
        /// Which one.
        server: String,
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Its type.
        type_name: String,
    },
    /// A table that `strowger db init` makes is not there, or not for this user.
    #[error("{server} has no table {table:?} that {user:?} may use: `strowger db init` makes it")]
    NotMade {
        /// Which one.
        server: String,
        /// The table.
        table: String,
        /// Who we are there.
        user: String,
    },
    /// Its user may not do there what a server does.
    #[error("{server}: {user:?} lacks {rights}; an administrator of the database can grant that")]
    Rights {
        /// Which one.
        server: String,
        /// Who we are there.
        user: String,
        /// Which rights on which tables.
        rights: String,
    },
    /// A table that is to be written lacks columns.
    #[error(
        "the table {table:?} of {server} lacks {missing}: it is another program's, or was changed; give it another name, and `strowger db init` \
         makes one that has them"
    )]
    Lacks {
        /// Which one.
        server: String,
        /// The table.
        table: String,
        /// Its missing columns.
        missing: String,
    },
    /// The tables were made by an older version of this program.
    #[error(
        "the tables for {part} in {server} are of version {found}, this program needs {known}: `strowger db migrate` makes it so"
    )]
    Older {
        /// Which one.
        server: String,
        /// What they are for.
        part: &'static str,
        /// Their version.
        found: u32,
        /// That of this program.
        known: u32,
    },
    /// The tables were made by a newer version of this program.
    #[error(
        "the tables for {part} in {server} are of version {found}, this program knows {known}: use the program that made them"
    )]
    Newer {
        /// Which one.
        server: String,
        /// What they are for.
        part: &'static str,
        /// Their version.
        found: u32,
        /// That of this program.
        known: u32,
    },
    /// What is committed there may be lost by a power cut.
    #[error(
        "{server} may lose by a power cut what it has committed: {setting}; set it there, or registrar.durability = \"crash\" here"
    )]
    NotDurable {
        /// Which one.
        server: String,
        /// The setting, and what is right.
        setting: String,
    },
    /// The certificates of the authorities that are trusted cannot be used.
    #[error("{path}: {reason}")]
    Authorities {
        /// Their file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A thread could not be started.
    #[error("a thread for a database server cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Why a statement has no rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no connection, or it is not good any more.
    Lost(String),
    /// The server answers, and does not do what it is asked.
    Refused(String),
    /// The same, for a value of one row: too long, or against a constraint. The other rows of the statement may be good.
    Row(String),
    /// The same, since its user lacks a right on a table.
    Denied(String),
    /// It answers, and has no room.
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

    /// The same as an error of the start.
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

/// An error with those that caused it, each once, also where one repeats what the next one begins with.
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
