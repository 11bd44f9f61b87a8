//! A telephone that answers every call: `uas [ADDR:PORT]`, by default on 127.0.0.1:5080.
//!
//! The user agent of `strowger_core` knows the protocol and does no I/O; the shard of `strowger_net` has the socket,
//! the clock and the loop. The [`Service`] below connects them: bytes and time go in, messages and events come out. If
//! one processor is not enough, there are more shards, and calls move among them while they are active.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_core::call::BucketSet;
use strowger_core::entropy::Entropy;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{Endpoint, EndpointRecord, Event, UserAgentSettings, auto_answer};
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_net::{Listener, Net, NetSettings, Node, Service};

/// Our session description. No program listens at this port; the example is about signalling.
const ANSWER: &[u8] =
    b"v=0\r\no=uas 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40002 RTP/AVP 0\r\n";

pub(crate) struct Telephone {
    endpoint: Endpoint,
}

impl Telephone {
    /// Acts as the user of a telephone: handles the events of the agent after each round.
    fn act(&mut self, now: Now, out: &mut Outbox) {
        let (agent, mut round) = self.endpoint.lend(now, out);
        while let Some(event) = agent.event() {
            // OPTIONS, and requests within a call that need no decision.
            auto_answer(agent, &mut round, &event);
            match event {
                Event::Invited { call, from, .. } => {
                    println!("call from {}", String::from_utf8_lossy(agent.text(from)));
                    agent.ring(&mut round, call, 180, b"");
                    agent.answer(&mut round, call, ANSWER);
                }
                Event::Offered { call, update: false, .. } => agent.answer(&mut round, call, ANSWER),
                Event::Offered { call, update: true, .. } => agent.answer_update(&mut round, call, ANSWER),
                Event::Confirmed { .. } => println!("talking"),
                Event::Ended { by, .. } => println!("ended: {by:?}"),
                _ => (),
            }
        }
    }
}

impl Service for Telephone {
    type ShardMessage = ();
    type Record = EndpointRecord;

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        self.endpoint.receive(now, arrival, bytes, out);
        self.act(now, out);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.endpoint.poll(now, out);
        self.act(now, out);
    }

    fn deadline(&mut self) -> Option<u64> {
        self.endpoint.deadline()
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.endpoint.failed(now, token, out);
        self.act(now, out);
    }

    fn answered(&mut self, _: Now, (): (), _: &mut Outbox) {}

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}

    fn export(&mut self, now: Now, bucket: u8) -> Vec<EndpointRecord> {
        vec![self.endpoint.export(now, BucketSet::of(|of| of == bucket))]
    }

    fn import(&mut self, now: Now, record: EndpointRecord, _: &mut Outbox) {
        self.endpoint.import(now, record);
    }
}

/// Starts the telephone, with the number of shards in `settings`.
///
/// # Errors
/// The address is in use or not of this machine, or a thread cannot be started.
pub(crate) fn start(listen: SocketAddr, settings: NetSettings) -> std::io::Result<Node<Telephone>> {
    let (secret, seed) = (settings.secret, seed());
    let net = Net::bind(settings, vec![Listener::new(Transport::Udp, listen)])?;
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
        Telephone { endpoint: Endpoint::of_shard(identity, UserAgentSettings::default(), &entropy, secret, shard) }
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen: SocketAddr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:5080").parse()?;
    let node = start(listen, NetSettings::default())?;
    println!("listening on {}", node.handle().addresses()[0]);
    node.join()?;
    Ok(())
}

/// Returns a random seed that no peer can guess, for tags and branches. The seed comes from the keys that the standard
/// library draws for its tables.
fn seed() -> [u8; 32] {
    use std::hash::BuildHasher;
    let mut seed = [0; 32];
    for (n, part) in seed.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&std::hash::RandomState::new().hash_one(n).to_le_bytes());
    }
    seed
}
