//! Settings of a run: caller and target, schedule, and the behaviour where the scenario is silent.

use super::pace::{Arrivals, Part};
use crate::media::{self, Plane, PlaneError};
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_core::{ListenerId, PeerName, Target, Transport};
use strowger_scenario::injection::Injection;
use strowger_scenario::{Distribution, Scenario};

/// The constants of one run, shared by its shards.
#[derive(Clone, Debug)]
pub struct Run {
    pub scenario: Arc<Scenario>,
    /// Scenario for calls that a message of no known call begins, while `scenario` makes calls (`-oocsf`, `-oocsn`).
    pub out_of_call: Option<Arc<Scenario>>,
    /// Destination of calls. An answering side answers the caller instead.
    pub target: Option<SocketAddr>,
    /// Target as the user wrote it.
    pub target_host: String,
    /// Destination of messages in place of the target (`-rsa`); texts still name the target.
    pub sending_address: Option<SocketAddr>,
    /// Name that the target must prove by TLS; also the host name of a WebSocket request.
    pub peer: Option<PeerName>,
    pub transport: Transport,
    pub sockets: super::socket_plan::Sockets,
    /// Listener from which calls are made.
    pub listener: ListenerId,
    /// Address in Via and Contact, without brackets.
    pub local_ip: String,
    pub local_port: u16,
    pub media_ip: String,
    pub media_port: u16,
    pub service: String,
    pub username: Option<String>,
    pub password: String,
    pub auth_uri: Option<String>,
    /// True if credentials name the Request-URI (RFC 3261 section 22.4) and not, as SIPp's, `sip:` and the target.
    pub auth_request_uri: bool,
    /// Keys of `-key`, in the order of [`strowger_scenario::Environment::keys`].
    pub keys: Vec<(String, Vec<u8>)>,
    /// Files of `-inf`, in the order of [`strowger_scenario::Environment::injections`].
    pub injections: Arc<[Injection]>,
    /// Global variables of `-set`, with their values.
    pub globals: Vec<(String, String)>,
    /// Format of Call-IDs: `%u` the call's number, `%p` the process, `%s` the local address, `%%` a percent sign.
    pub call_id: String,
    pub pid: u32,
    /// Range of `[dynamic_id]`.
    pub dynamic_id: DynamicId,
    /// First CSeq (`-base_cseq`).
    pub base_cseq: u32,
    /// TDM circuits, one a call (`-tdmmap`).
    pub circuits: Option<Arc<super::Circuits>>,
    pub load: Load,
    pub behaviour: Behaviour,
    pub retransmission: Retransmission,
    pub seed: u64,
    /// Seed of the numbers that SIPp draws with the C library's `rand`: `chance`, lines of RANDOM files, the client's
    /// nonces. SIPp's own is 1.
    pub rand: u32,
}

/// Number of calls and their schedule.
#[derive(Clone, Debug)]
pub struct Load {
    pub profile: Vec<Part>,
    /// Warm-up, µs from the start; no figure of the run includes it.
    pub warm_up: u64,
    pub arrivals: Arrivals,
    /// Total of calls to begin; `None`: no end.
    pub calls: Option<u64>,
    /// Limit of concurrent calls.
    pub limit: u64,
    /// True if calls that fall due at the limit wait. False if such calls are never begun, as with SIPp.
    pub keep_limited: bool,
    /// Closed loop instead of the profile: this many users, each of whom calls again when the call before has ended.
    pub users: Option<u32>,
    /// Calls begin at multiples of this many milliseconds, several at once if several are due. 1 to 1,000; at 1 calls
    /// begin to the microsecond, as far as `gather` allows.
    pub step: u64,
    /// Mean interval between the wake-ups of a sleeping shard for calls, µs. At higher rates several calls begin
    /// together, late by at most this much.
    pub gather: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            profile: vec![Part::Hold { rate: 10.0 }],
            warm_up: 0,
            arrivals: Arrivals::Fixed,
            calls: None,
            limit: u64::MAX,
            keep_limited: true,
            users: None,
            step: 1,
            gather: 1_000,
        }
    }
}

/// Numbers of `[dynamic_id]`: from `first` (`-dynamicStart`) in steps of `step` (`-dynamicStep`). After `last`
/// (`-dynamicMax`) they begin again at `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicId {
    pub first: u64,
    pub last: u64,
    pub step: u64,
}

impl Default for DynamicId {
    /// Returns SIPp's defaults.
    fn default() -> Self {
        Self { first: 10_000, last: 12_000, step: 4 }
    }
}

/// Behaviour where the scenario is silent.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// A call that is given up ends with a CANCEL or a BYE (`bye`).
    pub goodbye: bool,
    /// An unexpected message ends its call (`abortunexp`).
    pub abort_unexpected: bool,
    /// PING is answered (`pingreply`).
    pub answer_ping: bool,
    /// INFO, NOTIFY, OPTIONS and UPDATE are answered with 200 (`-aa`).
    pub auto_answer: bool,
    /// A message received during a pause is ignored (`-pause_msg_ign`).
    pub ignore_in_pause: bool,
    /// Call-IDs are compared literally, with any `///` (`-callid_slash_ign`).
    pub keep_slashes: bool,
    /// Length of a `<pause/>` that gives none.
    pub pause: Distribution,
    /// Time limit of a receive step, milliseconds; `None`: no limit.
    pub receive_timeout: Option<u32>,
    /// Time for which an ended call's Call-ID stays known, milliseconds; 0: none.
    pub dead_call_wait: u32,
    /// `exec command` may run programs.
    pub commands: bool,
    /// Percentage of messages lost on purpose if the step sets none.
    pub lost: f64,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            goodbye: true,
            abort_unexpected: true,
            answer_ping: true,
            auto_answer: false,
            ignore_in_pause: false,
            keep_slashes: false,
            pause: Distribution::Fixed(0.0),
            receive_timeout: None,
            dead_call_wait: 33_000,
            commands: true,
            lost: 0.0,
        }
    }
}

/// Retransmission of unanswered messages over UDP.
#[derive(Clone, Debug)]
pub struct Retransmission {
    /// False: no retransmissions (`-nr`).
    pub enabled: bool,
    /// T2, milliseconds (RFC 3261 section 17.1.2.1).
    pub t2: u32,
    /// Limits of retransmissions: of any message, of an INVITE, of other requests.
    pub most: u32,
    pub most_invite: u32,
    pub most_non_invite: u32,
    /// True if a repeated message is answered as before or ignored, however long ago the first came (RFC 3261 section
    /// 17). False, as SIPp: only the message received last is remembered, and an INVITE repeated after two answers is
    /// unexpected.
    pub rfc3261: bool,
    /// Retransmissions are recognised by the whole message; false: only by the fields that name their transaction
    /// (`-rtcheck loose`).
    pub whole: bool,
}

impl Default for Retransmission {
    fn default() -> Self {
        Self {
            enabled: true,
            t2: 4_000,
            most: u32::MAX,
            most_invite: 5,
            most_non_invite: 9,
            rfc3261: false,
            whole: true,
        }
    }
}

impl Run {
    /// Starts the media that the scenarios need, from the media port on, and takes over the bound port. `None` if
    /// nothing is played or received.
    ///
    /// # Errors
    /// As [`Plane::start`].
    pub fn start_media(&mut self) -> Result<Option<Plane>, PlaneError> {
        let scenarios: Vec<&Scenario> =
            [Some(&self.scenario), self.out_of_call.as_ref()].into_iter().flatten().map(|s| &**s).collect();
        if !scenarios.iter().any(|scenario| media::hears(scenario)) {
            return Ok(None);
        }
        let defaults = media::Settings::default();
        let address = self.media_ip.trim_matches(['[', ']']).parse().unwrap_or(defaults.address);
        let settings = media::Settings { address, port: self.media_port, seed: self.seed, ..defaults };
        let plane = Plane::start(settings, scenarios)?;
        self.media_port = plane.port();
        Ok(Some(plane))
    }

    /// Returns the target for messages to `address`.
    pub fn to(&self, address: SocketAddr) -> Target {
        Target { name: self.peer, ..Target::new(self.transport, self.listener, address) }
    }

    /// Creates a run of `scenario` over UDP with default settings.
    pub fn new(scenario: Arc<Scenario>) -> Self {
        Self {
            scenario,
            out_of_call: None,
            target: None,
            target_host: String::new(),
            sending_address: None,
            peer: None,
            transport: Transport::Udp,
            sockets: super::socket_plan::Sockets::default(),
            listener: ListenerId(0),
            local_ip: "127.0.0.1".into(),
            local_port: 5060,
            media_ip: "127.0.0.1".into(),
            media_port: 6000,
            service: "service".into(),
            username: None,
            password: "password".into(),
            auth_uri: None,
            auth_request_uri: false,
            keys: Vec::new(),
            injections: Arc::new([]),
            globals: Vec::new(),
            call_id: "%u-%p@%s".into(),
            pid: std::process::id(),
            dynamic_id: DynamicId::default(),
            base_cseq: 0,
            circuits: None,
            load: Load::default(),
            behaviour: Behaviour::default(),
            retransmission: Retransmission::default(),
            seed: 0,
            rand: 1,
        }
    }
}
