//! A telephone that makes one call: `uac SIP-URI [NEXT-HOP] [SECONDS]`.
//!
//! `uac sip:bob@127.0.0.1:5080` calls the example `uas`; `uac sip:bob@127.0.0.1:5080 127.0.0.1:5060` calls it through
//! the example `proxy`. It talks for so many seconds (1), hangs up, and ends with success if all that went well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use strowger_core::entropy::Entropy;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::user_agent::{CallKey, Ending, Endpoint, Event, Invite, Settings};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport};
use strowger_message::Uri;
use strowger_net::{Handle, Listener, Net, Service, Settings as NetSettings, Shards};

const OFFER: &[u8] =
    b"v=0\r\no=uac 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n";

/// What the main thread asks the telephone to do.
struct Dial {
    uri: String,
    next_hop: SocketAddr,
}

struct Telephone {
    endpoint: Endpoint,
    handle: Handle<Self>,
    talk: u64,
    /// The call that is up, and when to hang up.
    up: Option<(CallKey, u64)>,
    result: Sender<Result<(), String>>,
}

impl Telephone {
    fn act(&mut self, now: Now, out: &mut Outbox) {
        let mut over = None;
        let (agent, mut round) = self.endpoint.lend(now, out);
        if let Some((call, _)) = self.up.take_if(|(_, until)| *until <= now.mono) {
            agent.hang_up(&mut round, call);
        }
        while let Some(event) = agent.event() {
            match event {
                Event::Progress { status, .. } => println!("{status}"),
                Event::Answered { call, .. } => {
                    println!("talking");
                    self.up = Some((call, now.mono + self.talk));
                }
                // Many telephones say after a while that they are still there.
                Event::Offered { call, update: false, .. } => agent.answer(&mut round, call, OFFER),
                Event::Offered { call, update: true, .. } => agent.answer_update(&mut round, call, OFFER),
                Event::Ended { by: Ending::Local, .. } => over = Some(Ok(())),
                Event::Ended { by, .. } => over = Some(Err(format!("ended: {by:?}"))),
                Event::Failed { status, .. } | Event::Redirected { status, .. } => {
                    over = Some(Err(format!("refused: {status}")));
                }
                _ => (),
            }
        }
        if let Some(result) = over {
            self.over(result);
        }
    }

    fn over(&self, result: Result<(), String>) {
        let _ = self.result.send(result);
        self.handle.stop();
    }
}

impl Service for Telephone {
    type Answer = Dial;
    type Record = ();

    /// An order of the main thread: the way in for whatever is no message from the network.
    fn answered(&mut self, now: Now, dial: Dial, out: &mut Outbox) {
        let target = Target::new(Transport::Udp, ListenerId(0), dial.next_hop);
        let invite = Invite {
            from: b"\"Example\" <sip:uac@example.invalid>",
            to: dial.uri.as_bytes(),
            uri: None,
            routes: b"",
            target,
            account: None,
            offer: OFFER,
            headers: b"",
            call_id: b"",
        };
        let (agent, mut round) = self.endpoint.lend(now, out);
        if let Err(error) = agent.invite(&mut round, &invite) {
            self.over(Err(error.to_string()));
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
        self.endpoint.deadline().into_iter().chain(self.up.map(|(_, until)| until)).min()
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.endpoint.failed(now, token, out);
        self.act(now, out);
    }

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}

    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }

    fn import(&mut self, _: Now, (): (), _: &mut Outbox) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let uri = args.first().cloned().ok_or("usage: uac SIP-URI [NEXT-HOP] [SECONDS]")?;
    let next_hop = match args.get(1) {
        Some(address) => address.parse()?,
        None => address_of(&uri).ok_or("the URI names no address; say where to send it")?,
    };
    let talk = (args.get(2).map_or(Ok(1.0), |s| s.parse::<f64>())? * 1000.0) as u64;

    let settings = NetSettings { shards: Shards::Fixed(1), ..NetSettings::default() };
    let secret = settings.secret;
    let net = Net::bind(settings, vec![Listener::new(Transport::Udp, "127.0.0.1:0".parse()?)])?;
    let bound = net.addresses()[0];
    let (result, over) = channel();
    let node = net.spawn(move |_, handle| {
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound,
            sent_by: bound.to_string().into_bytes().into(),
            network: 0,
        };
        let identity = Arc::new(Identity::new(vec![listener], [""; 0], &[]));
        let endpoint = Endpoint::new(identity, Settings::default(), Entropy::new(seed()), secret);
        Telephone { endpoint, handle, talk, up: None, result: result.clone() }
    })?;
    node.handle().mailbox(0).send(Dial { uri, next_hop });
    let result = over.recv()?;
    node.join()?;
    result.map_err(Into::into)
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
