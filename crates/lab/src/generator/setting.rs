//! Setting of a generator: all values that stay equal from trial to trial.

use crate::host::{Party, ProcessHost};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use strowger_core::Transport;
use strowger_load::campaign::Connections;
use strowger_measure::Thresholds;

/// Time without an answer after which a call fails, unless a setting has another one.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// Setting of a generator.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Program `strowger`. [`Setting::new`] sets the running program.
    pub program: PathBuf,
    /// System under test: an address and port, or a SIP URI.
    pub target: String,
    /// Transport of callers, and of answering sides at which users register.
    pub transport: Transport,
    /// Sockets and connections of the callers.
    pub connections: CallerConnections,
    /// Calls and registrations.
    pub traffic: Traffic,
    /// Users, `user1` with the password `secret1` and so on; 0 for none.
    pub users: u32,
    /// True if the users register, and call each other. Users that do not register call the answering side.
    pub registers: bool,
    /// Time between the answer and the end of a call.
    pub hold: Duration,
    /// Places of the callers, which share the load.
    pub callers: Vec<Party>,
    /// Addresses of the answering sides. Their ports are free outside of a trial.
    pub sides: Vec<SocketAddr>,
    /// Places of the answering sides, which are dealt to these in turn.
    pub answerers: Vec<ProcessHost>,
    /// Behaviour of the answering sides.
    pub answer: CalleeBehaviour,
    /// Time without an answer after which a call fails.
    pub patience: Duration,
    /// Bounds of the generator's verdict on itself.
    pub thresholds: Thresholds,
    /// Cores of all processes of the generator. Empty for all cores.
    pub cores: Vec<usize>,
}

/// Sockets and connections of callers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallerConnections {
    /// Owner of a socket or connection: the generator, a user, or a call.
    pub owner: Connections,
    /// Users that connect in a second before the load, over all callers, with a call each. Calls of the load then take users at
    /// random. `None`: users connect with their first call of the load.
    pub connect_rate: Option<f64>,
}

/// Calls and registrations of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Documents, each the name of a shipped one or a path, with its share of the calls.
    Documents(Vec<(String, u32)>),
    /// Workload of `strowger load`, and further words of its command line.
    Ready(&'static str, Vec<String>),
}

/// Behaviour of the answering sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CalleeBehaviour {
    /// Ring for this time, then answer. A 180 and a 200 sent together may overtake each other in servers of several
    /// processes.
    Ring(Duration),
    /// Document: the name of a shipped one, or a path.
    Document(String),
}

impl Setting {
    /// Makes a setting by UDP, without users and answering sides.
    ///
    /// # Errors
    /// The path of the running program is not known.
    pub fn new(target: impl Into<String>, traffic: Traffic) -> std::io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            target: target.into(),
            transport: Transport::Udp,
            connections: CallerConnections::default(),
            traffic,
            users: 0,
            registers: true,
            hold: Duration::from_millis(100),
            callers: vec![Party::here(None)],
            sides: Vec::new(),
            answerers: vec![ProcessHost::Here],
            answer: CalleeBehaviour::Ring(Duration::from_millis(50)),
            patience: PATIENCE,
            thresholds: Thresholds::default(),
            cores: Vec::new(),
        })
    }

    /// Returns the time in which the users connect before the load, with half as much for a system that is slower than the rate.
    pub(super) fn connecting(&self) -> Duration {
        let time = |rate: f64| Duration::from_secs_f64(f64::from(self.users) / rate * 1.5) + Duration::from_secs(1);
        self.connections.connect_rate.map_or(Duration::ZERO, time)
    }

    /// Returns the place (machine or host) of the answering side with this number, from 0.
    pub(super) fn answerer(&self, number: usize) -> &ProcessHost {
        self.answerers.get(number % self.answerers.len().max(1)).unwrap_or(&ProcessHost::Here)
    }

    /// Returns the number of users that register.
    pub(super) const fn registered(&self) -> u32 {
        if self.registers { self.users } else { 0 }
    }

    /// Returns the transport of the answering sides. A call that no registration leads there has their address in its Request-URI, without a
    /// transport: the system sends it by UDP (RFC 3263 section 4.1).
    pub(super) const fn answering_transport(&self) -> Transport {
        match (self.registered(), &self.traffic) {
            (0, Traffic::Documents(_)) => Transport::Udp,
            _ => self.transport,
        }
    }

    /// Tells whether the system under test is reached over loopback.
    pub(super) fn is_loopback(&self) -> bool {
        let target = self.target.parse::<strowger_load::campaign::Target>();
        let host = target.ok().and_then(|target| target.host.parse::<std::net::IpAddr>().ok());
        host.is_some_and(|host| host.is_loopback() && host.is_ipv4())
    }
}
