//! `[accounting]`: records of calls and their destination.

use std::path::PathBuf;
use std::time::Duration;

use strowger_message::Name as HeaderName;
use strowger_store::database_url::DatabaseUrl;

use super::key::{Rule, Text, words};
use super::reader::{ANY, section};

words! {
    /// Destination of accounting rows.
    pub enum AccountingTarget {
        /// Tables of a SQLite file of their own.
        Sqlite = "sqlite",
        /// Files with one JSON object a line.
        Json = "json",
        /// CSV files (RFC 4180).
        Csv = "csv",
        /// Tables of a MariaDB, MySQL or PostgreSQL server.
        Sql = "sql",
    }
}

section! {
    /// Records of calls and their destination; docs/accounting.md describes the columns. An accounted call is tracked if this server stays in its
    /// path, even if `dialogs.track` is false.
    pub struct Accounting = "accounting" {
        /// Write a row to the table `cdr` for each ended call, including failed calls.
        pub cdr: bool = false, ANY.fixed();
        /// Write a row to the table `events` for each answered INVITE, each BYE, and each missed or failed call.
        pub events: bool = false, ANY.fixed();
        /// Account every call except those of rules with `account = false`. False: only calls of rules with `account = true` or `account_as` are
        /// accounted.
        pub all: bool = true, ANY;
        /// Destination of the rows.
        pub to: AccountingTarget = AccountingTarget::Sqlite, ANY.fixed();
        /// Database for "sql", as a URL (see `store.subscribers`). `strowger db init` makes the tables there, `strowger_cdr` and `strowger_events`.
        pub database: Option<DatabaseUrl> = None, ANY.or("none").fixed();
        /// Path for "sqlite": the database file; for "json" and "csv": the folder of the files, one for each day (UTC) and table, such as
        /// `cdr-2026-11-25.jsonl`. The file or folder is created if it is missing; only the user of the server can read it.
        pub path: PathBuf = PathBuf::from("accounting"), ANY.fixed();
        /// File for rows that cannot be written yet; they are written later, in their order, each once. `store.busy_timeout` bounds the wait for a
        /// locked database or a silent server before a row goes to this file.
        pub spool: PathBuf = PathBuf::from("accounting.spool"), ANY.fixed();
        /// Largest size of this file. Beyond it rows wait in memory, and beyond 100,000 they are lost and counted.
        pub spool_size: u64 = 256 << 20, Rule::bytes(64 << 10, 1 << 40).fixed();
        /// Longest wait of the first row of a group for further rows. `kill -9` loses the rows of that time.
        pub group_interval: Duration = Duration::from_millis(100), Rule::time(Duration::from_millis(1), Duration::from_secs(60)).fixed();
        /// Age at which rows are removed, for "json" and "csv" the files of whole days; "forever": no rows are removed.
        pub retention: Option<Duration> = None, Rule::time(Duration::from_secs(60), Duration::from_secs(3_650 * 86_400)).or("forever").fixed();
        /// Number of digits at the end of each number in URIs, users and `fields` that are replaced by `*`. A number has five digits or more, with
        /// `-`, `.`, `(` and `)` allowed between them.
        pub mask_numbers: usize = 0, Rule::number(0, 32);
        /// Write zeros in place of the last octet of IPv4 addresses, and of all but the first 48 bits of IPv6 addresses.
        pub mask_addresses: bool = false, ANY;
        /// Names of header fields of the INVITE whose values are written in addition, such as "User-Agent". "Request-URI": the URI that the caller
        /// dialled, before rules changed it. "Refusal": the reason for which this server refused the call itself, in the words of the log.
        pub fields: Vec<AccountedField> = Vec::new(), ANY;
    }
}

impl Accounting {
    /// Tells whether any rows are written.
    pub const fn is_on(&self) -> bool {
        self.cdr || self.events
    }

    /// Returns the database server of the rows, if they go to one.
    pub fn server(&self) -> Option<&DatabaseUrl> {
        self.database.as_ref().filter(|_| self.to == AccountingTarget::Sql)
    }
}

/// Name of an entry in the column `fields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountedField {
    /// A header field of the INVITE, named as in the file.
    Header(String),
    /// The Request-URI before rules changed it.
    RequestUri,
    /// The reason for which the server refused the call.
    Refusal,
}

impl AccountedField {
    const REQUEST_URI: &'static str = "Request-URI";
    const REFUSAL: &'static str = "Refusal";

    /// Returns the name in the rows.
    pub fn name(&self) -> &str {
        match self {
            Self::Header(name) => name,
            Self::RequestUri => Self::REQUEST_URI,
            Self::Refusal => Self::REFUSAL,
        }
    }
}

impl Text for AccountedField {
    const EXPECTED: &'static str =
        "\"Request-URI\", \"Refusal\" or the name of a header field without passwords, such as \"User-Agent\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "-.!%*_+`'~".contains(c);
        if text.is_empty() || !text.chars().all(is_token) {
            return Err(format!("is {text:?}, which is no name of a header field (RFC 3261 section 25.1)"));
        }
        match HeaderName::of(text.as_bytes()) {
            _ if text.eq_ignore_ascii_case(Self::REQUEST_URI) => Ok(Self::RequestUri),
            _ if text.eq_ignore_ascii_case(Self::REFUSAL) => Ok(Self::Refusal),
            HeaderName::Authorization | HeaderName::ProxyAuthorization => {
                Err(format!("is {text:?}, which proves passwords"))
            }
            _ => Ok(Self::Header(text.to_owned())),
        }
    }

    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Source};

    #[test]
    fn fields_are_names_that_prove_nothing() {
        let read = |text: &str| Config::read(Source { text, ..Source::default() });
        let (config, _) = read("accounting.fields = [\"User-Agent\", \"X-Tenant\"]").expect("right");
        let names: Vec<&str> = config.accounting.fields.iter().map(super::AccountedField::name).collect();
        assert_eq!(names, ["User-Agent", "X-Tenant"]);
        for wrong in ["Proxy-Authorization", "authorization", "a b", ""] {
            assert!(read(&format!("accounting.fields = [{wrong:?}]")).is_err(), "{wrong}");
        }
    }
}
