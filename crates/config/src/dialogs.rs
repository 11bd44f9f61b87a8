//! `[dialogs]`: calls that the server keeps track of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strowger_store::database_url::DatabaseUrl;

use super::database::Database;
use super::key::Rule;
use super::reader::{ANY, section};

/// Shortest session interval (RFC 4028 section 4).
const SHORTEST: Duration = Duration::from_secs(90);
const LONGEST: Duration = Duration::from_secs(86_400);

section! {
    /// Calls that the server keeps track of, from their INVITE to the end of their dialogs.
    pub struct Dialogs = "dialogs" {
        /// Keep track of each call that this server forwards while it stays in the path of the call (`proxy.record_route`). The server stores the
        /// dialogs of the call, early dialogs included, and the routes to both parties. Tracked calls are counted, can be listed and ended by
        /// operators, and end after `lifetime`.
        pub track: bool = false, ANY;
        /// Longest duration of a tracked dialog after its answer; then the server sends a BYE to both parties. The value is at most
        /// `proxy.route_lifetime`, because this BYE needs a valid route token as the BYE of a party does.
        pub lifetime: Duration = Duration::from_secs(12 * 3_600), Rule::time(Duration::from_secs(1), Duration::from_secs(30 * 86_400));
        /// Session timer (RFC 4028) that the server requests in a tracked call if the parties request no timer or a longer one, unless their Min-SE
        /// is higher. If the parties do not refresh the call within this time, the server sends a BYE to both. "never": the server requests no timer.
        /// A timer that the parties agree on is enforced in any case, if it is at least Min-SE and 90 s, and at most the offered timer.
        pub session_expires: Option<Duration> = None, Rule::time(SHORTEST, LONGEST).or("never");
        /// Shortest session timer that the server accepts in a tracked call: an INVITE or UPDATE with a shorter one is answered 422, or gets this
        /// value if its sender does not support session timers (RFC 4028 section 8.1).
        pub min_session_expires: Duration = SHORTEST, Rule::time(SHORTEST, LONGEST);
        /// Folder in which answered calls are stored, created if it is missing. A process that starts with this folder continues the calls of the
        /// previous process, even if that process was killed: the calls are still counted, limited, accounted, and ended after `lifetime`
        /// (docs/running.md). "": calls are not stored in a folder. Only one process at a time may use the folder.
        pub folder: Option<PathBuf> = None, ANY.or("").fixed();
        /// Database in which answered calls are stored, in place of a folder. "sqlite:FILE": a separate file, created if it is missing; only one
        /// process at a time may use it. A URL: a database server (see `store.subscribers`); `strowger db init` creates its table `strowger_call`,
        /// and each SIP server that shares the table needs another `server.node`. The database must be available at the start, when the calls are
        /// read. If the database is unavailable, locked, full or silent later, calls continue, and the changes are written when it works again.
        /// `store.busy_timeout` bounds the time of a group of changes.
        pub database: Option<Database> = None, ANY.or("none").fixed();
        /// Most tracked calls at a time, of all shards together; a further call is answered 503. One account, and one source without a password, may
        /// have at most as many calls as are still free (but at least 8 in each shard); a further call of such a party, or to its address, is also
        /// answered 503. Calls of a trusted `[[source]]`, such as a proxy in front, count for no party.
        pub calls: usize = 1_000_000, Rule::number(1, 100_000_000);
    }
}

impl Dialogs {
    /// Returns the database server that stores calls, if there is one.
    pub fn server(&self) -> Option<&DatabaseUrl> {
        self.database.as_ref()?.server()
    }

    /// Returns the SQLite file that stores calls, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.database.as_ref()?.file()
    }

    /// Returns the key that names the place of answered calls; `None`: calls are kept in memory only.
    pub const fn place(&self) -> Option<&'static str> {
        match (&self.folder, &self.database) {
            (Some(_), _) => Some("dialogs.folder"),
            (None, Some(_)) => Some("dialogs.database"),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Source};

    #[test]
    fn what_keeps_no_call_has_its_place_and_its_cure() {
        let report = |text: &str| {
            let source = Source { text, ..Source::default() };
            Config::read(source).map_or_else(|report| report, |(_, report)| report)
        };
        for (value, more, cure) in [
            ("calls", "store.database = \"memory\"\n", "set auth.secret"),
            ("calls", "dialogs.track = false\n", "dialogs.track = true"),
        ] {
            let report = report(&format!("{more}dialogs.folder = \"{value}\""));
            let line = more.lines().count() + 1;
            let fault = report.faults().iter().find(|fault| fault.cure.contains(cure));
            let fault = fault.unwrap_or_else(|| panic!("{value}, {more}: {report}"));
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{report}");
        }
        let right = report("dialogs.track = true\ndialogs.folder = \"calls\"");
        assert!(right.faults().iter().all(|fault| !fault.message.contains("dialogs")), "{right}");
        let counted = report(
            "dialogs.folder = \"calls\"\n[[call_limit]]\nname = \"l\"\nmost = 1\n[[failure]]\nname = \"f\"\nstatuses = [\"486\"]\n\
             to = [\"sip:192.0.2.1\"]\ncall_limits = [\"l\"]\n[[rule]]\nname = \"r\"\non_failure = [\"f\"]\n",
        );
        assert!(counted.faults().iter().all(|fault| !fault.message.contains("dialogs")), "{counted}");
        let (url, file) = ("mysql://u@127.0.0.1/d", "sqlite:calls.sqlite");
        for (text, line, cure) in [
            (format!("dialogs.folder = \"calls\"\ndialogs.database = \"{url}\""), 2, "remove dialogs.folder or"),
            (format!("store.database = \"memory\"\ndialogs.database = \"{url}\""), 2, "set auth.secret"),
            (format!("dialogs.database = \"{url}\""), 1, "dialogs.track = true"),
            ("dialogs.database = \"sqlite:calls.sqlite\"".to_owned(), 1, "dialogs.track = true"),
            (format!("dialogs.folder = \"calls\"\ndialogs.database = \"{file}\""), 2, "remove dialogs.folder or"),
            (format!("store.database = \"memory\"\ndialogs.database = \"{file}\""), 2, "set auth.secret"),
            (format!("store.database = \"calls.sqlite\"\ndialogs.database = \"{file}\""), 2, "file of its own"),
            (
                format!("accounting = {{ cdr = true, path = \"calls.sqlite\" }}\ndialogs.database = \"{file}\""),
                2,
                "of its own",
            ),
        ] {
            let report = report(&text);
            let fault = report.faults().iter().find(|fault| fault.cure.contains(cure));
            let fault = fault.unwrap_or_else(|| panic!("{text}: {report}"));
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{report}");
        }
        assert_eq!(Config::default().dialogs.place(), None);
    }
}
