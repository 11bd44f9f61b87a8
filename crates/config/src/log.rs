//! `[log]`: the log of the server, on standard error.

use std::time::Duration;

use super::key::{Rule, words};
use super::reader::{ANY, section};

words! {
    /// Form of a log line.
    pub enum LogFormat {
        /// Text for people.
        Text = "text",
        /// One JSON object a line, for machines.
        Json = "json",
    }
}

words! {
    /// Lowest logged level.
    pub enum LogLevel {
        /// Failures of the server.
        Error = "error",
        /// Warnings as well.
        Warn = "warn",
        /// Events of the server as a whole as well.
        Info = "info",
        /// Events of each call as well.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

section! {
    /// The log, on standard error.
    pub struct Log = "log" {
        /// Form of a line.
        pub format: LogFormat = LogFormat::Text, ANY.fixed();
        /// Lowest level that is logged. The environment variable STROWGER_LOG takes precedence; it names another level, or levels of single targets,
        /// such as strowger_net=debug. Libraries log nothing unless their target is named, such as rustls=warn.
        pub level: LogLevel = LogLevel::Info, ANY;
        /// Most lines a minute about single requests and connections that were refused or failed, such as wrong passwords. One source may cause a
        /// tenth of these lines for each kind (connections, forwarding, scanners, malformed, authentication, registrations, requests, lookups). Half
        /// of all lines is reserved for the kinds in equal parts. Suppressed lines are counted by kind, and the numbers are logged after the minute.
        /// Bans for wrong passwords are always logged.
        pub refusals_per_minute: u32 = 100, Rule::number(0, 1_000_000);
        /// Most calls a minute that are logged, each from its beginning to its end. The number is spread over the minute; at most a sixth of it is
        /// logged in one burst. Calls without a password may use half of this bound. Suppressed calls are counted, and the number is logged after the
        /// minute. 0: no call is logged.
        pub calls_per_minute: u32 = 600, Rule::number(0, 1_000_000);
        /// Most lines a minute about registrations that were made, removed or expired. The number is spread over the minute; at most a sixth of it is
        /// logged in one burst. Suppressed lines are counted, and the number is logged after the minute. Refreshed registrations are logged at the
        /// level debug. 0: no line.
        pub registrations_per_minute: u32 = 600, Rule::number(0, 1_000_000);
        /// Interval at which all counters and gauges other than 0 are logged; "never": they are logged only when the server ends.
        pub statistics: Option<Duration> = None, Rule::time(Duration::from_secs(1), Duration::from_secs(86_400)).or("never");
    }
}
