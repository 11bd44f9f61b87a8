//! Plan of a campaign, with all choices made.

use super::documents::{self, Document};
use super::target::Target;
use crate::engine::pace::{Arrivals, Part};
use crate::workload::{Mix, Workload};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use strowger_core::Transport;
use strowger_measure::Requirement;
use strowger_scenario::injection::LineOrder;
use strowger_scenario::step::{Pause, StepKind};
use strowger_scenario::{Distribution, Scenario};

/// A user and its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// Password. Empty: challenges are not answered.
    pub password: String,
}

/// Work of a campaign: a ready workload, or documents of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    Ready(Workload),
    /// Document written by the user.
    Document(PathBuf),
    /// Several documents, each with its share of the calls.
    Documents(Vec<Document>),
}

impl Work {
    /// Returns whether the user wrote the document or documents.
    pub const fn is_document(&self) -> bool {
        matches!(self, Self::Document(_) | Self::Documents(_))
    }
}

/// Owner of a socket or connection: a generator, a user or a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connections {
    /// All calls of a generator share one socket or connection.
    #[default]
    One,
    /// One connection for each user of the list (with a document: for each line of its first injection file), which stays
    /// open between calls.
    PerUser,
    /// Each call has one, from its first message to its end.
    PerCall,
}

/// Sockets and connections of users and calls, and the users who have them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// Maximum number of sockets and connections at once, over all generators. Calls above this number share them. `None`:
    /// as many as the process may have.
    pub most: Option<usize>,
    /// Users that connect and register in a second before the schedule, over all generators; above 0. `None`: each user connects
    /// with its first call.
    pub connect_rate: Option<f64>,
    /// Order in which calls take the users of the list: sequential or random.
    pub order: LineOrder,
}

impl Default for Pool {
    fn default() -> Self {
        Self { most: None, connect_rate: None, order: LineOrder::Sequential }
    }
}

/// Certificates.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// PEM file of the authorities, one of which must have issued the target's certificate. `None`: any certificate is accepted.
    pub authorities: Option<PathBuf>,
    /// PEM files of the certificate and key of our answering side.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A campaign.
#[derive(Clone, Debug)]
pub struct Plan {
    pub work: Work,
    /// Target of calls. `None`: this side only answers.
    pub target: Option<Target>,
    pub transport: Transport,
    /// Outbound proxy, to which messages are sent instead of to the target.
    pub proxy: Option<SocketAddr>,
    /// Domain of the users. `None`: the target's host.
    pub domain: Option<String>,
    /// Users that call and register. If the list is empty, names without passwords are invented.
    pub users: Vec<User>,
    /// Callee, if the target names no user. With a password the callee registers first if both ends are ours.
    pub callee: Option<User>,
    /// True if the answering side runs in this process too, so that calls reach it through the target.
    pub pair: bool,
    pub profile: Vec<Part>,
    /// Start of the schedule. `None`: as soon as all is ready.
    pub start_at: Option<SystemTime>,
    /// Lead of the clock of this machine over that of the plan, in µs; negative: lag.
    pub clock_ahead: i64,
    /// Length of the warm-up, the first part of the schedule. Its calls are in no figure of the run.
    pub warm_up: Duration,
    pub arrivals: Arrivals,
    pub calls: Option<u64>,
    /// Maximum number of calls that are open at once.
    pub limit: u64,
    /// Milliseconds from the ACK to the BYE. In a document it is the length of a `<pause/>` without one.
    pub hold: Distribution,
    /// Time limit for an answer, after which its call ends. `None`: 32 s (64 times T1, RFC 3261 section 17.1) for ready
    /// workloads, no limit for documents.
    pub patience: Option<Duration>,
    /// Wait for the answers to CANCEL and BYE when calls are ended before their time. 0: no wait.
    pub grace: Duration,
    /// Address in Contact of the callers' registrations. `None`: the address of the socket, so that each connection has its
    /// own address.
    pub contact: Option<Target>,
    /// Requested lifetime of a registration, in seconds.
    pub expires: u32,
    pub mix: Mix,
    /// Milliseconds from 180 to 200 on the answering side.
    pub ring: u32,
    /// Source addresses, used in turn. Empty: the address from which the target is reached.
    pub sources: Vec<IpAddr>,
    /// Our port. Each further generator takes the next port. 0: any.
    pub port: u16,
    /// Threads that make calls, for each source.
    pub shards: usize,
    pub connections: Connections,
    pub pool: Pool,
    pub trust: Trust,
    /// Values of `-key` for documents.
    pub keys: Vec<(String, String)>,
    /// True if documents that run commands in a shell are refused.
    pub no_exec: bool,
    /// Injection files of documents.
    pub injections: Vec<PathBuf>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Requirements that end the run once one of them is lost.
    pub abort_on: Vec<Requirement>,
    /// Number of failed calls whose messages are kept, the first ones.
    pub keep_failed: usize,
    /// File of the raw log.
    pub log: Option<PathBuf>,
    /// Maximum number of rows of the series. A longer run has rows of several seconds.
    pub rows: usize,
    /// Length in seconds of the windows in which the generator is judged.
    pub window: u64,
    /// Settings as the user wrote them, for reports.
    pub settings: BTreeMap<String, String>,
}

impl Plan {
    /// Returns the wall clock that the plan follows.
    pub(super) fn wall(&self) -> SystemTime {
        let (now, ahead) = (SystemTime::now(), Duration::from_micros(self.clock_ahead.unsigned_abs()));
        if self.clock_ahead < 0 { now + ahead } else { now - ahead }
    }

    /// Creates a plan of ten calls a second for ten seconds to a target.
    pub fn to(target: Target) -> Self {
        let transport = target.transport.unwrap_or(Transport::Udp);
        Self { target: Some(target), transport, ..Self::answering() }
    }

    /// Creates the plan of an answering side.
    pub fn answering() -> Self {
        Self {
            work: Work::Ready(Workload::Call),
            target: None,
            transport: Transport::Udp,
            proxy: None,
            domain: None,
            users: Vec::new(),
            callee: None,
            pair: false,
            profile: vec![Part::Ramp { from: 10.0, to: 10.0, micros: 10_000_000 }],
            start_at: None,
            clock_ahead: 0,
            warm_up: Duration::ZERO,
            arrivals: Arrivals::Fixed,
            calls: None,
            limit: 1_000_000,
            hold: Distribution::Fixed(1_000.0),
            patience: None,
            grace: Duration::from_secs(5),
            contact: None,
            expires: 3_600,
            mix: Mix::default(),
            ring: 0,
            sources: Vec::new(),
            port: 0,
            shards: 1,
            connections: Connections::One,
            pool: Pool::default(),
            trust: Trust::default(),
            keys: Vec::new(),
            no_exec: false,
            injections: Vec::new(),
            seed: 0,
            abort_on: Vec::new(),
            keep_failed: 0,
            log: None,
            rows: 3_600,
            window: strowger_measure::WINDOW,
            settings: BTreeMap::new(),
        }
    }

    /// Returns the name of the work for reports.
    pub fn title(&self) -> String {
        match &self.work {
            Work::Ready(_) if self.target.is_none() => "answer".into(),
            Work::Ready(workload) => workload.name().into(),
            Work::Document(path) => path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
            Work::Documents(documents) => documents::names(documents).join(" + "),
        }
    }

    pub(super) fn workload(&self) -> Option<Workload> {
        match self.work {
            Work::Ready(workload) => Some(workload),
            Work::Document(_) | Work::Documents(_) => None,
        }
    }

    /// Returns the time limit for an answer, in milliseconds.
    pub(super) fn receive_timeout(&self) -> Option<u32> {
        // Our own answering side rings for this time, which is no delay of the target.
        let default = self.workload().map(|_| PATIENCE + Duration::from_millis(u64::from(self.ring)));
        self.patience.or(default).map(|patience| u32::try_from(patience.as_millis()).unwrap_or(u32::MAX).max(1))
    }

    /// Returns how long calls of this document may take to end after the last one has begun: all pauses and waits of the
    /// document in sequence, plus twice the time limit for an answer.
    pub(super) fn drain(&self, scenario: &Scenario) -> Duration {
        let pause = |pause: &Pause| match pause {
            Pause::Default => longest(&self.hold),
            Pause::Drawn(distribution) => longest(distribution),
            // Only the call knows the value of the variable.
            Pause::Variable(_) => 600_000.0,
        };
        let waits = scenario.steps.iter().map(|step| match &step.kind {
            StepKind::Pause(length) | StepKind::TimeWait(length) => pause(length),
            StepKind::Receive(receive) => f64::from(receive.timeout.unwrap_or(0)),
            _ => 0.0,
        });
        let waits = (waits.sum::<f64>() + f64::from(self.ring)).clamp(0.0, 1e12);
        // The answers to INVITE and BYE may both take this long.
        self.patience.unwrap_or(PATIENCE) * 2 + Duration::from_secs_f64(waits / 1e3 + 5.0)
    }
}

/// Timers B and F (RFC 3261 section 17.1): 64 times T1.
const PATIENCE: Duration = Duration::from_secs(32);

/// Returns milliseconds that random values of this distribution hardly ever exceed.
fn longest(pause: &Distribution) -> f64 {
    match *pause {
        Distribution::Fixed(ms) => ms,
        Distribution::Uniform { min, max } => max.max(min),
        Distribution::Normal { mean, deviation } => mean + deviation.abs() * 6.0,
        Distribution::Exponential { mean } => mean * 20.0,
        _ => 600_000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use strowger_scenario::Environment;

    fn plan() -> Plan {
        Plan::to("127.0.0.1".parse().expect("a target"))
    }

    #[test]
    fn calls_of_a_document_have_the_time_of_its_pauses() {
        let text = "<?xml version=\"1.0\"?><scenario name=\"x\"><send><![CDATA[\nOPTIONS sip:x SIP/2.0\nCSeq: 1 OPTIONS\n\n]]></send>\
                    <recv response=\"200\" timeout=\"7000\"/><pause milliseconds=\"120000\"/><pause/>\
                    <pause distribution=\"uniform\" min=\"0\" max=\"30000\"/></scenario>";
        let scenario =
            Scenario::parse(text.as_bytes(), Path::new("x.xml"), &Environment::default()).expect("it is read");
        let plan = Plan { patience: Some(Duration::from_secs(2)), ..plan() };
        // 7 s for the answer, 120 s, the hold of 1 s, at most 30 s; and 2 x 2 s + 5 s.
        assert_eq!(plan.drain(&scenario), Duration::from_secs(7 + 120 + 1 + 30 + 9));
    }

    #[test]
    fn who_rings_long_is_waited_for() {
        assert_eq!(plan().receive_timeout(), Some(32_000));
        assert_eq!(Plan { ring: 40_000, ..plan() }.receive_timeout(), Some(72_000));
        assert_eq!(Plan { ring: 40_000, patience: Some(PATIENCE), ..plan() }.receive_timeout(), Some(32_000));
        assert_eq!(Plan { work: Work::Document("x.xml".into()), ring: 5, ..plan() }.receive_timeout(), None);
    }
}
