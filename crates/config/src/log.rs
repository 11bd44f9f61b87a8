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
        /// Lowest level that is logged. The environment variable STROWGER_LOG wins: another level, or levels of single targets such as
        /// strowger_net=debug. Libraries log nothing unless their target is named, such as rustls=warn.
        pub level: LogLevel = LogLevel::Info, ANY;
        /// Lines a minute about single requests and connections that were refused or failed, wrong passwords above all. A source has a
        /// tenth of that for each kind of line (connections, forwarding, scanners, malformed, authentication, registrations, requests,
        /// lookups), and half of all is kept for the kinds in equal parts. Suppressed lines are counted by kind, and the numbers are logged
        /// after the minute. Bans for wrong passwords are always logged.
        pub refusals_per_minute: u32 = 100, Rule::number(0, 1_000_000);
        /// Calls a minute that are logged, from their beginning to their end: the number is spread over the minute, a sixth of it at once;
        /// calls without a password leave half of that to others. Suppressed calls are counted, and the number is logged after the minute.
        /// 0: none.
        pub calls_per_minute: u32 = 600, Rule::number(0, 1_000_000);
        /// Lines a minute about registrations that were made, removed or expired, spread over the minute, a sixth of them at once;
        /// suppressed lines are counted, and the number is logged after the minute. Refreshed ones are logged at the level debug. 0: none.
        pub registrations_per_minute: u32 = 600, Rule::number(0, 1_000_000);
        /// Interval at which all counters and gauges other than 0 are logged; "never": only when the server ends.
        pub statistics: Option<Duration> = None, Rule::time(Duration::from_secs(1), Duration::from_secs(86_400)).or("never");
    }
}
