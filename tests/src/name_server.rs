//! Name server by hand, at port 53 of a loopback address of its own.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::program;

/// Answer to a question.
#[derive(Clone, Debug)]
pub enum Record {
    /// IPv4 address.
    A(Ipv4Addr),
    /// IPv4 addresses, one per question, in turn.
    Turns(Vec<Ipv4Addr>),
    /// Priority, weight, port and target; "." is none (RFC 2782).
    Srv(u16, u16, u16, String),
    /// Order, preference, service and replacement, with the flag "s" (RFC 3403).
    Naptr(u16, u16, String, String),
    /// Failure of the server: SERVFAIL.
    Fails(u16),
    /// No answer to questions of this type.
    Silent(u16),
}

/// Type A.
pub const A: u16 = 1;
/// Type SRV, see [`Record::Srv`].
pub const SRV: u16 = 33;
/// Type NAPTR, see [`Record::Naptr`].
pub const NAPTR: u16 = 35;

impl Record {
    const fn kind(&self) -> u16 {
        match self {
            Self::A(_) | Self::Turns(_) => A,
            Self::Srv(..) => SRV,
            Self::Naptr(..) => NAPTR,
            Self::Fails(kind) | Self::Silent(kind) => *kind,
        }
    }

    /// Returns the data of the record. `turn`: number of earlier questions.
    fn data(&self, turn: usize) -> Vec<u8> {
        let name = |text: &str| {
            let labels = text.split('.').filter(|label| !label.is_empty());
            labels.flat_map(text_of).chain([0]).collect::<Vec<u8>>()
        };
        let numbers = |all: &[u16]| all.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
        match self {
            Self::A(ip) => ip.octets().to_vec(),
            Self::Turns(ips) => ips[turn % ips.len()].octets().to_vec(),
            Self::Srv(priority, weight, port, target) => [numbers(&[*priority, *weight, *port]), name(target)].concat(),
            Self::Naptr(order, preference, service, replacement) => {
                let texts = [text_of("s"), text_of(service), text_of("")].concat();
                [numbers(&[*order, *preference]), texts, name(replacement)].concat()
            }
            Self::Fails(_) | Self::Silent(_) => Vec::new(),
        }
    }
}

fn text_of(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

/// Name server with its records; it answers from its creation until the drop.
#[derive(Debug)]
pub struct NameServer {
    /// Address it listens on, at port 53.
    pub ip: IpAddr,
    asked: Arc<Mutex<BTreeMap<(String, u16), usize>>>,
    askers: Arc<Mutex<Vec<SocketAddr>>>,
    /// Behaviour of the server. The thread of the server ends with the last strong reference.
    manner: Arc<Manner>,
}

/// Behaviour of the server.
#[derive(Debug)]
struct Manner {
    /// Lifetime of answers in seconds.
    lifetime: AtomicU32,
    is_frozen: AtomicBool,
    /// Milliseconds until an answer leaves.
    delay: AtomicU64,
}

impl NameServer {
    /// Starts a server with these names; any other name does not exist. Returns `None`, with a message, if port 53
    /// cannot be bound.
    ///
    /// # Panics
    /// Port 53 cannot be bound, and `STROWGER_ALLOW_MISSING` is not 1.
    pub fn start(names: &[(&str, Record)]) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let socket = loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id().wrapping_mul(61);
            let ip = Ipv4Addr::new(127, 53, (n >> 8) as u8, n as u8);
            match UdpSocket::bind((ip, 53)) {
                Ok(socket) => break socket,
                Err(error) if error.kind() == ErrorKind::AddrInUse => (),
                Err(error) => {
                    program::lacking(&format!("port 53 of a loopback address cannot be bound: {error}"));
                    return None;
                }
            }
        };
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket can be set");
        let ip = socket.local_addr().expect("it is bound").ip();
        let mut records: Records = HashMap::new();
        for (name, record) in names {
            records.entry(name.to_lowercase()).or_default().push(record.clone());
        }
        let asked = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let manner =
            Manner { lifetime: AtomicU32::new(60), is_frozen: AtomicBool::new(false), delay: AtomicU64::new(0) };
        let manner = Arc::new(manner);
        let (count, watched) = (asked.clone(), Arc::downgrade(&manner));
        let askers = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let seen = askers.clone();
        let late = later(socket.try_clone().expect("a socket can be shared"));
        std::thread::spawn(move || {
            let mut buffer = [0; 2_000];
            loop {
                let came = socket.recv_from(&mut buffer);
                let Some(manner) = watched.upgrade() else { return };
                let Ok((length, from)) = came else { continue };
                seen.lock().expect("no thread panics while it holds it").push(from);
                let lifetime = manner.lifetime.load(Ordering::Relaxed);
                let Some(answer) = answer(&buffer[..length], &records, &count, lifetime) else { continue };
                if manner.is_frozen.load(Ordering::Relaxed) {
                    continue;
                }
                match manner.delay.load(Ordering::Relaxed) {
                    0 => drop(socket.send_to(&answer, from)),
                    delay => drop(late.send((Instant::now() + Duration::from_millis(delay), answer, from))),
                }
            }
        });
        Some(Self { ip, asked, askers, manner })
    }

    /// Sets the lifetime of answers in seconds; initially 60.
    pub fn set_lifetime(&self, seconds: u32) {
        self.manner.lifetime.store(seconds, Ordering::Relaxed);
    }

    /// Stops answering questions, or starts again.
    pub fn freeze(&self, is_frozen: bool) {
        self.manner.is_frozen.store(is_frozen, Ordering::Relaxed);
    }

    /// Delays each answer by this time.
    pub fn set_delay(&self, delay: Duration) {
        self.manner.delay.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the addresses of the clients, in order.
    ///
    /// # Panics
    /// The thread of the server panicked.
    pub fn askers(&self) -> Vec<SocketAddr> {
        self.askers.lock().expect("no thread panics while it holds it").clone()
    }

    /// Returns how often this question was asked.
    ///
    /// # Panics
    /// The thread of the server panicked.
    pub fn asked(&self, name: &str, kind: u16) -> usize {
        let asked = self.asked.lock().expect("no thread panics while it holds it");
        asked.get(&(name.to_lowercase(), kind)).copied().unwrap_or(0)
    }

    /// Returns the line of configuration that makes the server use this name server.
    pub fn line(&self) -> String {
        format!("dns.servers = [\"{}\"]", self.ip)
    }
}

type Asked = Mutex<BTreeMap<(String, u16), usize>>;
type Records = HashMap<String, Vec<Record>>;

/// Starts a thread that sends each answer at its time. Returns its queue, into which answers are put in this order.
fn later(socket: UdpSocket) -> mpsc::Sender<(Instant, Vec<u8>, SocketAddr)> {
    let (sender, waiting) = mpsc::channel::<(Instant, Vec<u8>, SocketAddr)>();
    std::thread::spawn(move || {
        for (due, answer, to) in waiting {
            // The simulated delay.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let _ = socket.send_to(&answer, to);
        }
    });
    sender
}

fn answer(question: &[u8], names: &Records, asked: &Asked, lifetime: u32) -> Option<Vec<u8>> {
    let (mut at, mut name) = (12, String::new());
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&String::from_utf8_lossy(question.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes(question.get(at..at + 2)?.try_into().ok()?);
    let end = at + 4;
    let turn = {
        let mut asked = asked.lock().expect("no thread panics while it holds it");
        let count = asked.entry((name.clone(), kind)).or_insert(0);
        *count += 1;
        *count - 1
    };
    let of: Vec<&Record> = names.get(&name).into_iter().flatten().collect();
    let of_kind: Vec<&Record> = of.iter().copied().filter(|record| record.kind() == kind).collect();
    if of_kind.iter().any(|record| matches!(record, Record::Silent(_))) {
        return None;
    }
    let fails = of_kind.iter().any(|record| matches!(record, Record::Fails(_)));
    let code: u8 = if fails { 2 } else { u8::from(of.is_empty()) * 3 };
    let records = if fails { Vec::new() } else { of_kind };
    // A response, recursion desired and available.
    let mut bytes = [&question[..2], &[0x81, 0x80 | code, 0, 1]].concat();
    bytes.extend_from_slice(&(records.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(question.get(12..end)?);
    for record in records {
        let data = record.data(turn);
        // A pointer to the name in the question, this type, class IN.
        bytes.extend_from_slice(&[0xc0, 12]);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        bytes.extend_from_slice(&lifetime.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&data);
    }
    Some(bytes)
}
