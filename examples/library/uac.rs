//! A telephone that makes calls: `uac SIP-URI [NEXT-HOP] [SECONDS] [CALLS]`.
//!
//! `uac sip:bob@127.0.0.1:5080` calls the example `uas`; `uac sip:bob@127.0.0.1:5080 127.0.0.1:5060` calls it through
//! the example `proxy`. It talks for SECONDS (1) in CALLS concurrent calls (1), hangs up, and exits with 0 if all calls
//! succeeded.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use strowger_core::call::BucketSet;
use strowger_core::entropy::Entropy;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{
    CallKey, Ending, Endpoint, EndpointRecord, Event, Invite, UserAgentSettings, auto_answer,
};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport};
use strowger_message::Uri;
use strowger_net::{Listener, Net, NetSettings, Node, Service};

const OFFER: &[u8] =
    b"v=0\r\no=uac 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n";

/// Order of the main thread to the telephone.
pub(crate) struct Dial {
    pub(crate) uri: String,
    pub(crate) next_hop: SocketAddr,
}

pub(crate) struct Telephone {
    endpoint: Endpoint,
    /// Milliseconds per call.
    talk: u64,
    /// Active calls, and the times to hang up.
    up: HashMap<CallKey, u64>,
    /// Receiver of the result of each call.
    results: Sender<Result<(), String>>,
}

/// State that moves to another shard.
pub(crate) struct Record {
    endpoint: EndpointRecord,
    up: HashMap<CallKey, u64>,
}

impl Telephone {
    fn act(&mut self, now: Now, out: &mut Outbox) {
        let (agent, mut round) = self.endpoint.lend(now, out);
        for (call, _) in self.up.extract_if(|_, until| *until <= now.mono) {
            agent.hang_up(&mut round, call);
        }
        while let Some(event) = agent.event() {
            auto_answer(agent, &mut round, &event);
            let result = match event {
                Event::Progress { status, .. } => {
                    println!("{status}");
                    continue;
                }
                Event::Answered { call, .. } => {
                    println!("talking");
                    self.up.insert(call, now.mono + self.talk);
                    continue;
                }
                // Many telephones confirm after a while that both ends of a call still exist.
                Event::Offered { call, update: false, .. } => {
                    agent.answer(&mut round, call, OFFER);
                    continue;
                }
                Event::Offered { call, update: true, .. } => {
                    agent.answer_update(&mut round, call, OFFER);
                    continue;
                }
                Event::Ended { by: Ending::Local, .. } => Ok(()),
                Event::Ended { call, by } => {
                    self.up.remove(&call);
                    Err(format!("ended: {by:?}"))
                }
                Event::Failed { status, .. } | Event::Redirected { status, .. } => Err(format!("refused: {status}")),
                _ => continue,
            };
            let _ = self.results.send(result);
        }
    }
}

impl Service for Telephone {
    type ShardMessage = Dial;
    type Record = Record;

    /// Handles an order of the main thread: the entry for input other than messages from the network.
    fn answered(&mut self, now: Now, dial: Dial, out: &mut Outbox) {
        let target = Target::new(Transport::Udp, ListenerId(0), dial.next_hop);
        let from = b"\"Example\" <sip:uac@example.invalid>";
        let invite = Invite::new(from, dial.uri.as_bytes(), target, OFFER);
        let (agent, mut round) = self.endpoint.lend(now, out);
        if let Err(error) = agent.invite(&mut round, &invite) {
            let _ = self.results.send(Err(error.to_string()));
        }
    }

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        self.endpoint.receive(now, arrival, bytes, out);
        self.act(now, out);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.endpoint.poll(now, out);
        self.act(now, out);
    }

    fn deadline(&mut self) -> Option<u64> {
        self.endpoint.deadline().into_iter().chain(self.up.values().copied()).min()
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.endpoint.failed(now, token, out);
        self.act(now, out);
    }

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}

    fn export(&mut self, now: Now, bucket: u8) -> Vec<Record> {
        let endpoint = self.endpoint.export(now, BucketSet::of(|of| of == bucket));
        let up = self.up.extract_if(|call, _| endpoint.has_call(*call)).collect();
        vec![Record { endpoint, up }]
    }

    fn import(&mut self, now: Now, record: Record, _: &mut Outbox) {
        let moved = self.endpoint.import(now, record.endpoint);
        self.up.extend(record.up.into_iter().filter_map(|(call, until)| Some((moved.call(call)?, until))));
    }
}

/// Starts the telephone, with the number of shards in `settings`. It talks for `talk` milliseconds in each call.
///
/// # Errors
/// There is no port, or a thread cannot be started.
pub(crate) fn start(
    settings: NetSettings,
    talk: u64,
    results: Sender<Result<(), String>>,
) -> std::io::Result<Node<Telephone>> {
    let (secret, seed) = (settings.secret, seed());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let net = Net::bind(settings, vec![Listener::new(Transport::Udp, any)])?;
    let bound = net.addresses()[0];
    net.spawn(move |shard, _| {
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound,
            sent_by: bound.to_string().into_bytes().into(),
            network: 0,
        };
        let identity = Arc::new(Identity::new(vec![listener], [""; 0], &[]));
        // The same seed in each shard.
        let entropy = Entropy::new(seed);
        let endpoint = Endpoint::of_shard(identity, UserAgentSettings::default(), &entropy, secret, shard);
        Telephone { endpoint, talk, up: HashMap::new(), results: results.clone() }
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let uri = args.first().cloned().ok_or("usage: uac SIP-URI [NEXT-HOP] [SECONDS] [CALLS]")?;
    let next_hop = match args.get(1) {
        Some(address) => address.parse()?,
        None => address_of(&uri).ok_or("the URI names no address; say where to send it")?,
    };
    let talk = (args.get(2).map_or(Ok(1.0), |s| s.parse::<f64>())? * 1000.0) as u64;
    let calls = args.get(3).map_or(Ok(1), |s| s.parse::<usize>())?;

    let (results, over) = channel();
    let node = start(NetSettings::default(), talk, results)?;
    for _ in 0..calls {
        node.handle().mailbox(0).send(Dial { uri: uri.clone(), next_hop });
    }
    for _ in 0..calls {
        over.recv()??;
    }
    node.handle().stop();
    node.join()?;
    Ok(())
}

fn address_of(uri: &str) -> Option<SocketAddr> {
    let uri = Uri::parse(uri.as_bytes()).ok()?;
    let sip = uri.sip()?;
    Some(SocketAddr::new(sip.host.ip()?, sip.port.unwrap_or(5060)))
}

fn seed() -> [u8; 32] {
    use std::hash::BuildHasher;
    let mut seed = [0; 32];
    for (n, part) in seed.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&std::hash::RandomState::new().hash_one(n).to_le_bytes());
    }
    seed
}
