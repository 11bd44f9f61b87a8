//! What a run knows beforehand: who calls whom, how often, and what is done when the scenario does not say.

use super::pace::{Arrivals, Part};
use crate::injection::Injection;
use crate::scenario::{Distribution, Scenario};
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_core::{ListenerId, PeerName, Target, Transport};

/// The constants of one run, shared by its shards.
#[derive(Clone, Debug)]
pub struct Run {
    pub scenario: Arc<Scenario>,
    /// For calls that a message of no known call begins, while `scenario` makes calls (`-oocsf`, `-oocsn`).
    pub out_of_call: Option<Arc<Scenario>>,
    /// Whom calls are made to; for answers, the caller.
    pub target: Option<SocketAddr>,
    /// The target as it was written.
    pub target_host: String,
    /// Where messages are sent instead of the target (`-rsa`): the target stays in the texts.
    pub sending_address: Option<SocketAddr>,
    /// The name that the target must prove, by TLS; it is asked for by WebSocket too.
    pub peer: Option<PeerName>,
    pub transport: Transport,
    pub sockets: super::sockets::Sockets,
    /// The listener from which calls are made.
    pub listener: ListenerId,
    /// What stands in Via and Contact, without brackets.
    pub local_ip: String,
    pub local_port: u16,
    pub media_ip: String,
    pub media_port: u16,
    pub service: String,
    pub username: Option<String>,
    pub password: String,
    pub auth_uri: Option<String>,
    /// Credentials name the Request-URI (RFC 3261 section 22.4), not SIPp's `sip:` and the target.
    pub auth_request_uri: bool,
    /// `-key`, in the order of [`crate::scenario::Environment::keys`].
    pub keys: Vec<(String, Vec<u8>)>,
    /// `-inf`, in the order of [`crate::scenario::Environment::injections`].
    pub injections: Arc<[Injection]>,
    /// `-set`: global variables and their values.
    pub globals: Vec<(String, String)>,
    /// The form of Call-IDs: `%u` the call's number, `%p` the process, `%s` the local address, `%%` a percent sign.
    pub call_id: String,
    pub pid: u32,
    /// `[dynamic_id]`.
    pub dynamic_id: DynamicId,
    /// `-base_cseq`.
    pub base_cseq: u32,
    /// `-tdmmap`: calls have a circuit each.
    pub circuits: Option<Arc<super::Circuits>>,
    pub load: Load,
    pub behaviour: Behaviour,
    pub retransmission: Retransmission,
    pub seed: u64,
    /// Where the numbers begin that SIPp draws with the C library's `rand`: `chance`, lines of RANDOM files, the client's
    /// nonces. SIPp's own is 1.
    pub rand: u32,
}

/// How many calls, and when.
#[derive(Clone, Debug)]
pub struct Load {
    pub profile: Vec<Part>,
    /// The first µs of it, which are in no figure of the run.
    pub warm_up: u64,
    pub arrivals: Arrivals,
    /// Calls begun in all; none: no end.
    pub calls: Option<u64>,
    /// Calls open at once.
    pub limit: u64,
    /// What falls due while the limit is reached: waits (true), or is never begun (false, as SIPp has it).
    pub keep_limited: bool,
    /// A closed loop instead of the profile: so many users, each of whom calls again when the call before has ended.
    pub users: Option<u32>,
    /// Calls are begun at multiples of so many milliseconds, several at once if several are due. 1 to 1,000; 1: to the
    /// microsecond, as far as `gather` lets them.
    pub step: u64,
    /// A shard that sleeps is woken for calls so many microseconds apart in the mean: where more are due, several begin together,
    /// late by as much at most.
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

/// The numbers of `[dynamic_id]`: from `first` (`-dynamicStart`) by `step` (`-dynamicStep`), and again from `first` once
/// `last` (`-dynamicMax`) is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicId {
    pub first: u64,
    pub last: u64,
    pub step: u64,
}

impl Default for DynamicId {
    /// SIPp's.
    fn default() -> Self {
        Self { first: 10_000, last: 12_000, step: 4 }
    }
}

/// What is done where the scenario does not say.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// A call that is given up says so to the peer: CANCEL, BYE (`bye`).
    pub goodbye: bool,
    /// An unexpected message ends its call (`abortunexp`).
    pub abort_unexpected: bool,
    /// PING is answered (`pingreply`).
    pub answer_ping: bool,
    /// INFO, NOTIFY, OPTIONS and UPDATE are answered with 200 (`-aa`).
    pub auto_answer: bool,
    /// A message that comes during a pause is ignored (`-pause_msg_ign`).
    pub ignore_in_pause: bool,
    /// Call-IDs are compared as they are, `///` or not (`-callid_slash_ign`).
    pub keep_slashes: bool,
    /// `<pause/>` without a length.
    pub pause: Distribution,
    /// Milliseconds; none: for ever.
    pub receive_timeout: Option<u32>,
    /// How long the name of an ended call is known, milliseconds; 0: not at all.
    pub dead_call_wait: u32,
    /// `exec command` runs a program.
    pub commands: bool,
    /// Percent of messages lost where the step does not say.
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

/// When and how often what is not answered is sent again over UDP.
#[derive(Clone, Debug)]
pub struct Retransmission {
    /// False: never (`-nr`).
    pub enabled: bool,
    /// Milliseconds (T2, RFC 3261 section 17.1.2.1).
    pub t2: u32,
    /// Most retransmissions of any message, of an INVITE, of others.
    pub most: u32,
    pub most_invite: u32,
    pub most_non_invite: u32,
    /// Whatever was taken before and comes again is answered as it was, or ignored (RFC 3261 section 17), however long
    /// ago; else only what came last is known, as SIPp has it, and an INVITE that comes again behind two answers is
    /// unexpected.
    pub rfc3261: bool,
    /// Compare repeated messages whole, or (false) only what names their transaction (`-rtcheck loose`).
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
    /// Where what is sent to this address goes.
    pub fn to(&self, address: SocketAddr) -> Target {
        Target { name: self.peer, ..Target::new(self.transport, self.listener, address) }
    }

    /// A run of `scenario` by UDP with nothing else said.
    pub fn new(scenario: Arc<Scenario>) -> Self {
        Self {
            scenario,
            out_of_call: None,
            target: None,
            target_host: String::new(),
            sending_address: None,
            peer: None,
            transport: Transport::Udp,
            sockets: super::sockets::Sockets::default(),
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
