//! From the host of a URI to addresses (RFC 3263).

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::rdata::{NAPTR, SRV};
use hickory_resolver::proto::rr::{RData, RecordType};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::{Duration, Instant};
use strowger_core::Transport;
use tokio::sync::OnceCell;

/// Targets in the order in which they are to be tried.
pub type Targets = Vec<(Transport, SocketAddr)>;

/// Why a name led to no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The name does not exist, or has no address.
    NotFound,
    /// No answer within the deadline.
    Late,
    /// The name servers failed.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the name has no address"),
            Self::Late => f.write_str("the name servers did not answer in time"),
            Self::Failed(why) => write!(f, "the name servers failed: {why}"),
        }
    }
}

impl std::error::Error for Error {}

type Key = (String, Option<u16>, Option<Transport>, bool);
type Cell = Arc<OnceCell<Result<Targets, Error>>>;

/// What a name leads to, and until when that is to be remembered here, since a question was not answered: what was
/// answered stands in the cache of the resolver.
struct Found {
    targets: Targets,
    until: Option<Instant>,
}

/// The answers to one question, and until when they are good.
struct Records {
    all: Vec<RData>,
    until: Instant,
}

/// Resolves names: equal questions at the same time are asked once, failures are remembered for a while, answers
/// as long as the name servers allow. To be used inside a tokio runtime. Cheap to clone.
#[derive(Clone)]
pub struct Resolver {
    inner: Arc<Inner>,
}

/// How long is waited, and how much remembered.
#[derive(Clone, Copy, Debug)]
pub struct ResolverSettings {
    /// For a whole resolution, of several questions maybe.
    pub deadline: Duration,
    /// For one try of one question; a lost datagram costs that much.
    pub timeout: Duration,
    /// Tries of one question, at least one.
    pub attempts: usize,
    /// Answers remembered at most, and as many failures.
    pub entries: usize,
    /// How long a failure is remembered.
    pub failure: Duration,
    /// What is spoken here: services by other transports are not asked for (RFC 3263 section 4.1).
    pub speaks: Speaks,
    /// Addresses that one name leads to at most; the best are kept.
    pub targets: usize,
}

/// A set of transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaks(u8);

impl Speaks {
    /// Every transport.
    pub const ALL: Self = Self(u8::MAX);

    /// These transports.
    pub fn of(transports: impl IntoIterator<Item = Transport>) -> Self {
        Self(transports.into_iter().fold(0, |set, transport| set | 1 << transport as u8))
    }

    /// Whether this one is among them.
    pub const fn has(self, transport: Transport) -> bool {
        self.0 & 1 << transport as u8 != 0
    }
}

impl Default for ResolverSettings {
    fn default() -> Self {
        let [timeout, deadline, failure] = [2, 4, 5].map(Duration::from_secs);
        Self { deadline, timeout, attempts: 2, entries: 8_192, failure, speaks: Speaks::ALL, targets: 16 }
    }
}

struct Inner {
    dns: TokioResolver,
    settings: ResolverSettings,
    /// Questions under way; those that failed lately, and those that a part of the answer is missing of, with the moment to
    /// forget it.
    asked: Mutex<HashMap<Key, (Cell, Option<Instant>)>>,
}

impl Resolver {
    /// Asks the name servers of the machine (`/etc/resolv.conf`, `/etc/hosts`); those of loopback if it names none.
    pub fn system(settings: ResolverSettings) -> Result<Self, Error> {
        match TokioResolver::builder_tokio() {
            Ok(builder) => Self::with(builder, settings),
            Err(_) => Self::of(&[SocketAddr::from(([127, 0, 0, 1], 53))], settings),
        }
    }

    /// Asks these name servers.
    pub fn of(servers: &[SocketAddr], settings: ResolverSettings) -> Result<Self, Error> {
        let server = |address: &SocketAddr| {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut server.connections {
                let connection: &mut ConnectionConfig = connection;
                connection.port = address.port();
            }
            server
        };
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
        Self::with(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()), settings)
    }

    fn with(mut builder: ResolverBuilder<TokioRuntimeProvider>, settings: ResolverSettings) -> Result<Self, Error> {
        let options = builder.options_mut();
        options.timeout = settings.timeout;
        // There it counts the tries after the first.
        options.attempts = settings.attempts.saturating_sub(1);
        options.cache_size = settings.entries as u64;
        let dns = builder.build().map_err(failed)?;
        Ok(Self { inner: Arc::new(Inner { dns, settings, asked: Mutex::default() }) })
    }

    /// Forgets failures whose time is over, and gives their memory back. To be called every few seconds.
    pub fn tidy(&self) {
        let mut asked = self.inner.asked();
        let now = Instant::now();
        asked.retain(|_, (_, until)| until.is_none_or(|until| until > now));
        let needed = asked.len();
        if asked.capacity() > 4 * needed {
            asked.shrink_to(2 * needed);
        }
    }

    /// Where a request goes whose next hop is `host` (a name, an address, IPv6 with or without brackets), with
    /// the port and transport of its URI if there are any; `secure` for a sips URI.
    ///
    /// # Errors
    /// The host is no name, or has no address, or the name servers did not say so in time.
    pub async fn resolve(
        &self,
        host: &str,
        port: Option<u16>,
        transport: Option<Transport>,
        secure: bool,
    ) -> Result<Targets, Error> {
        // RFC 3261 section 26.2.2: sips means TLS on every hop.
        let transport = match (transport, secure) {
            (Some(Transport::Ws | Transport::Wss), true) => Some(Transport::Wss),
            (Some(_), true) => Some(Transport::Tls),
            (transport, _) => transport,
        };
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let plain = transport.unwrap_or(if secure { Transport::Tls } else { Transport::Udp });
        let plain_port = port.unwrap_or_else(|| plain.default_port());
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![(plain, SocketAddr::new(ip, plain_port))]);
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host == "localhost" {
            let both = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
            return Ok(both.map(|ip| (plain, SocketAddr::new(ip, plain_port))).to_vec());
        }
        let key = (host, port, transport, secure);
        let cell = {
            let mut asked = self.inner.asked();
            let now = Instant::now();
            match asked.get(&key) {
                Some((cell, until)) if until.is_none_or(|until| until > now) => cell.clone(),
                _ => {
                    let cell = Cell::default();
                    asked.insert(key.clone(), (cell.clone(), None));
                    cell
                }
            }
        };
        let inner = &self.inner;
        let ask = async {
            let ResolverSettings { deadline, failure, entries, .. } = inner.settings;
            let end = tokio::time::Instant::now() + deadline;
            let found = tokio::time::timeout_at(end, inner.ask(&key, end)).await.unwrap_or(Err(Error::Late));
            let mut asked = inner.asked();
            let until = match &found {
                Ok(found) => found.until,
                Err(_) => Some(Instant::now() + failure),
            };
            match until {
                Some(until) if asked.len() <= entries => {
                    if let Some((_, forget)) = asked.get_mut(&key) {
                        *forget = Some(until);
                    }
                }
                _ => drop(asked.remove(&key)),
            }
            found.map(|found| found.targets)
        };
        cell.get_or_init(|| ask).await.clone()
    }
}

impl Inner {
    fn asked(&self) -> MutexGuard<'_, HashMap<Key, (Cell, Option<Instant>)>> {
        self.asked.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// All questions of one step are asked at once. Those whose answers do not come in a while after others have brought
    /// something are not waited for; those that fail count only if nothing else is found.
    async fn ask(&self, (host, port, transport, secure): &Key, end: tokio::time::Instant) -> Result<Found, Error> {
        let ResolverSettings { speaks, targets: most, .. } = self.settings;
        let plain = transport.unwrap_or(if *secure { Transport::Tls } else { Transport::Udp });
        // Section 4.2: a port ends the search for services, and WebSocket has none of its own.
        if port.is_some() || matches!(plain, Transport::Ws | Transport::Wss) {
            let targets = self.addresses(host, plain, port.unwrap_or_else(|| plain.default_port())).await?;
            return Ok(Found { targets: first(targets, most), until: None });
        }
        // Section 4.1.
        let all: &[Transport] = match (transport, secure) {
            (Some(transport), _) => &[*transport],
            (None, true) => &[Transport::Tls],
            (None, false) => &[Transport::Udp, Transport::Tcp, Transport::Tls],
        };
        let all: Vec<Transport> = all.iter().copied().filter(|t| transport.is_some() || speaks.has(*t)).collect();
        let mut services: Vec<(Transport, String)> = all.iter().map(|t| (*t, service(*t, host))).collect();
        // The first question is which services there are; those that there are by default are asked for meanwhile.
        let mut questions: Vec<(&str, RecordType)> = services.iter().map(|(_, n)| (&**n, RecordType::SRV)).collect();
        if transport.is_none() {
            questions.push((host, RecordType::NAPTR));
        }
        let mut answers = self.all(&questions, end).await;
        let named = match transport {
            Some(_) => None,
            None => answers.pop().flatten(),
        };
        // Some name servers know no NAPTR and fail, or say nothing.
        let mut incomplete = transport.is_none() && !matches!(named, Some(Ok(_)));
        let named = named.and_then(Result::ok).map_or(Vec::new(), |records| offered(&records.all, *secure, speaks));
        if !named.is_empty() {
            services = named;
            let questions: Vec<_> = services.iter().map(|(_, name)| (&**name, RecordType::SRV)).collect();
            answers = self.all(&questions, end).await;
        }
        let (mut servers, mut refused, mut until, mut failure) = (Vec::new(), Vec::new(), None, None);
        for ((transport, _), answer) in services.iter().zip(answers) {
            match answer.unwrap_or(Err(Error::Late)) {
                Ok(records) => {
                    if !records.all.is_empty() {
                        until = until.into_iter().chain([records.until]).min();
                    }
                    let mut of = servers_of(records.all);
                    // RFC 2782: the service is decidedly not available at this domain.
                    if !of.is_empty() && of.iter().all(|srv| srv.target.is_root()) {
                        refused.push(*transport);
                    }
                    of.retain(|srv| !srv.target.is_root());
                    servers.extend(order(of, random).into_iter().map(|srv| (*transport, srv)));
                }
                Err(Error::NotFound) => (),
                Err(error) => {
                    incomplete = true;
                    failure = Some(error);
                }
            }
        }
        servers.truncate(most);
        let lookups = servers.iter().map(|(transport, srv)| {
            let host = srv.target.to_utf8();
            async move { self.addresses(&host, *transport, srv.port).await }
        });
        // One server of several that has no address does not spoil the others.
        let found = answers_of(lookups.collect(), self.grace(), end, |found| found.is_ok()).await;
        incomplete |= found.iter().any(|found| !matches!(found, Some(Ok(_) | Err(Error::NotFound))));
        let mut targets: Targets = found.into_iter().flatten().filter_map(Result::ok).flatten().collect();
        if targets.is_empty() {
            // No services: the address itself (section 4.2), by what is not refused.
            let either: &[Transport] = if transport.is_none() && !secure { &[plain, Transport::Tcp] } else { &[plain] };
            let by = either.iter().find(|t| (transport.is_some() || speaks.has(**t)) && !refused.contains(t));
            let Some(by) = by else { return Err(failure.unwrap_or(Error::NotFound)) };
            targets = self.addresses(host, *by, by.default_port()).await?;
        }
        let until = until.unwrap_or_else(|| Instant::now() + self.settings.failure);
        Ok(Found { targets: first(targets, most), until: incomplete.then_some(until) })
    }

    /// How long the slower ones are waited for when others have answered: a part of what one question may take.
    fn grace(&self) -> Duration {
        self.settings.timeout / 4
    }

    async fn all(
        &self,
        questions: &[(&str, RecordType)],
        end: tokio::time::Instant,
    ) -> Vec<Option<Result<Records, Error>>> {
        let lookups = questions.iter().map(|(name, kind)| self.records(name, *kind)).collect();
        let brings = |answer: &Result<Records, Error>| answer.as_ref().is_ok_and(|records| !records.all.is_empty());
        answers_of(lookups, self.grace(), end, brings).await
    }

    async fn addresses(&self, host: &str, transport: Transport, port: u16) -> Result<Targets, Error> {
        match self.dns.lookup_ip(host).await {
            Ok(found) => {
                let mut all: Targets = found.iter().map(|ip| (transport, SocketAddr::new(ip, port))).collect();
                // A host with both is reached by IPv4 from more places.
                all.sort_by_key(|(_, address)| address.is_ipv6());
                Ok(all)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Nothing if there are none of this type.
    async fn records(&self, name: &str, of: RecordType) -> Result<Records, Error> {
        match self.dns.lookup(name, of).await {
            Ok(found) => {
                let all = found.answers().iter().map(|record| record.data.clone()).collect();
                Ok(Records { all, until: found.valid_until() })
            }
            Err(error) => match failed(error) {
                Error::NotFound => Ok(Records { all: Vec::new(), until: Instant::now() + self.settings.failure }),
                error => Err(error),
            },
        }
    }
}

/// The best of them.
fn first(mut targets: Targets, most: usize) -> Targets {
    targets.truncate(most);
    targets
}

/// Runs them side by side until all have ended, or `end` is reached, or one has brought something and the others have had
/// `grace` since. What had not ended then is none.
async fn answers_of<T>(
    work: Vec<impl Future<Output = T>>,
    grace: Duration,
    end: tokio::time::Instant,
    brings: impl Fn(&T) -> bool,
) -> Vec<Option<T>> {
    let mut work: Vec<_> = work.into_iter().map(|one| (Box::pin(one), None)).collect();
    let mut over = Box::pin(tokio::time::sleep_until(end));
    let mut hurries = false;
    poll_fn(|cx| {
        for (one, answer) in work.iter_mut().filter(|(_, answer)| answer.is_none()) {
            if let Poll::Ready(result) = one.as_mut().poll(cx) {
                if !hurries && brings(&result) {
                    hurries = true;
                    over.as_mut().reset((tokio::time::Instant::now() + grace).min(end));
                }
                *answer = Some(result);
            }
        }
        let all = work.iter().all(|(_, answer)| answer.is_some());
        if all { Poll::Ready(()) } else { over.as_mut().poll(cx) }
    })
    .await;
    work.into_iter().map(|(_, answer)| answer).collect()
}

/// The services that a domain offers, the best first, of those that we speak and may use.
fn offered(records: &[RData], secure: bool, speaks: Speaks) -> Vec<(Transport, String)> {
    let mut found: Vec<&NAPTR> = records
        .iter()
        .filter_map(|data| if let RData::NAPTR(naptr) = data { Some(naptr) } else { None })
        .filter(|naptr| naptr.flags.eq_ignore_ascii_case(b"s"))
        .collect();
    found.sort_by_key(|naptr| (naptr.order, naptr.preference));
    let transport = |services: &[u8]| match services.to_ascii_uppercase().as_slice() {
        b"SIP+D2U" if !secure => Some(Transport::Udp),
        b"SIP+D2T" if !secure => Some(Transport::Tcp),
        b"SIPS+D2T" => Some(Transport::Tls),
        _ => None,
    };
    let of = |n: &&NAPTR| Some((transport(&n.services).filter(|t| speaks.has(*t))?, n.replacement.to_utf8()));
    found.iter().filter_map(of).collect()
}

fn servers_of(records: Vec<RData>) -> Vec<SRV> {
    records.into_iter().filter_map(|data| if let RData::SRV(srv) = data { Some(srv) } else { None }).collect()
}

fn service(transport: Transport, host: &str) -> String {
    match transport {
        Transport::Udp => format!("_sip._udp.{host}."),
        Transport::Tls | Transport::Wss => format!("_sips._tcp.{host}."),
        Transport::Tcp | Transport::Ws => format!("_sip._tcp.{host}."),
    }
}

fn failed(error: NetError) -> Error {
    match error {
        NetError::Timeout => Error::Late,
        error if error.is_no_records_found() || error.is_nx_domain() => Error::NotFound,
        error => Error::Failed(error.to_string()),
    }
}

/// RFC 2782: by priority; among equals one after the other is drawn, a weight being its share of the luck.
fn order(mut servers: Vec<SRV>, mut random: impl FnMut() -> u64) -> Vec<SRV> {
    servers.sort_by_key(|srv| (srv.priority, srv.weight != 0));
    let mut from = 0;
    while from < servers.len() {
        let equals = servers[from..].iter().take_while(|srv| srv.priority == servers[from].priority).count();
        let sum: u64 = servers[from..from + equals].iter().map(|srv| srv.weight as u64).sum();
        let mut luck = random() % (sum + 1);
        let mut chosen = from;
        for (i, srv) in servers[from..from + equals].iter().enumerate() {
            chosen = from + i;
            if luck <= srv.weight as u64 {
                break;
            }
            luck -= srv.weight as u64;
        }
        // The rest keeps its order, those without weight first.
        servers[from..=chosen].rotate_right(1);
        from += 1;
    }
    servers
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::proto::op::{Message, MessageType, OpCode, ResponseCode};
    use hickory_resolver::proto::rr::rdata::{A, AAAA};
    use hickory_resolver::proto::rr::{Name, Record};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn srv(priority: u16, weight: u16, port: u16, target: &str) -> RData {
        RData::SRV(SRV::new(priority, weight, port, name(target)))
    }

    fn naptr(order: u16, preference: u16, services: &str, replacement: &str) -> RData {
        let [flags, services, regexp] = ["s", services, ""].map(|t| t.as_bytes().into());
        RData::NAPTR(NAPTR::new(order, preference, flags, services, regexp, name(replacement)))
    }

    fn waiting(milliseconds: u64) -> ResolverSettings {
        ResolverSettings { deadline: Duration::from_millis(milliseconds), ..ResolverSettings::default() }
    }

    /// A name server with these records that loses the first `lost` questions; how many questions came.
    async fn server(zone: Vec<(&'static str, RData)>, lost: usize) -> (SocketAddr, Arc<AtomicUsize>) {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = asked.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 2_000];
            while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
                let question = Message::from_vec(&buffer[..n]).unwrap();
                if count.fetch_add(1, Relaxed) < lost {
                    continue;
                }
                let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
                answer.metadata.recursion_available = true;
                let query = question.queries[0].clone();
                let mut known = false;
                for (of, data) in &zone {
                    if name(of).to_lowercase() == query.name().to_lowercase() {
                        known = true;
                        if data.record_type() == query.query_type() {
                            answer.add_answer(Record::from_rdata(query.name().clone(), 60, data.clone()));
                        }
                    }
                }
                if !known {
                    answer.metadata.response_code = ResponseCode::NXDomain;
                }
                answer.add_query(query);
                // Late enough for equal questions to meet.
                tokio::time::sleep(Duration::from_millis(20)).await;
                socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            }
        });
        (address, asked)
    }

    fn zone() -> Vec<(&'static str, RData)> {
        vec![
            ("full.test.", naptr(20, 1, "SIP+D2U", "_sip._udp.full.test.")),
            ("full.test.", naptr(10, 2, "SIP+D2T", "_sip._tcp.full.test.")),
            ("full.test.", naptr(10, 1, "SIPS+D2T", "_sips._tcp.full.test.")),
            ("full.test.", naptr(1, 1, "SIP+D2S", "_sip._sctp.full.test.")),
            ("_sip._udp.full.test.", srv(2, 0, 5_062, "b.test.")),
            ("_sip._udp.full.test.", srv(1, 0, 5_061, "a.test.")),
            ("_sip._tcp.full.test.", srv(1, 0, 5_070, "a.test.")),
            ("_sips._tcp.full.test.", srv(1, 0, 5_071, "a.test.")),
            ("a.test.", RData::A(A::new(192, 0, 2, 1))),
            ("b.test.", RData::A(A::new(192, 0, 2, 2))),
            ("b.test.", RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2))),
        ]
    }

    fn targets(list: &[(Transport, &str)]) -> Result<Targets, Error> {
        Ok(list.iter().map(|(t, a)| (*t, a.parse().unwrap())).collect())
    }

    #[tokio::test]
    async fn names_lead_to_targets_as_the_rfc_says() {
        use Transport::*;
        let (address, _) = server(zone(), 0).await;
        let dns = Resolver::of(&[address], waiting(5_000)).unwrap();
        let [a, b, b6] = ["192.0.2.1", "192.0.2.2", "[2001:db8::2]"];
        let at = |ip: &str, port: u16| format!("{ip}:{port}");
        assert_eq!(
            dns.resolve("Full.test", None, None, false).await,
            targets(&[
                (Tls, &at(a, 5_071)),
                (Tcp, &at(a, 5_070)),
                (Udp, &at(a, 5_061)),
                (Udp, &at(b, 5_062)),
                (Udp, &at(b6, 5_062)),
            ])
        );
        assert_eq!(dns.resolve("full.test", None, None, true).await, targets(&[(Tls, &at(a, 5_071))]));
        assert_eq!(dns.resolve("full.test", None, Some(Tcp), false).await, targets(&[(Tcp, &at(a, 5_070))]));
        // No services: the address itself. A port: no question for services.
        assert_eq!(dns.resolve("a.test", None, None, false).await, targets(&[(Udp, &at(a, 5_060))]));
        assert_eq!(dns.resolve("a.test", Some(99), Some(Tcp), true).await, targets(&[(Tls, &at(a, 99))]));
        assert_eq!(dns.resolve("a.test", None, Some(Ws), false).await, targets(&[(Ws, &at(a, 80))]));
        assert_eq!(dns.resolve("none.test", None, None, false).await, Err(Error::NotFound));
    }

    #[tokio::test]
    async fn addresses_need_no_server() {
        let dns = Resolver::of(&["127.0.0.1:9".parse().unwrap()], waiting(5_000)).unwrap();
        let udp = Transport::Udp;
        assert_eq!(dns.resolve("192.0.2.7", None, None, false).await, targets(&[(udp, "192.0.2.7:5060")]));
        assert_eq!(dns.resolve("[::1]", Some(7), None, true).await, targets(&[(Transport::Tls, "[::1]:7")]));
        let both = targets(&[(udp, "127.0.0.1:5060"), (udp, "[::1]:5060")]);
        assert_eq!(dns.resolve("LOCALHOST", None, None, false).await, both);
    }

    #[tokio::test]
    async fn equal_questions_are_asked_once_and_failures_remembered() {
        let (address, asked) = server(zone(), 0).await;
        let dns = Resolver::of(&[address], waiting(5_000)).unwrap();
        let many: Vec<_> = (0..50)
            .map(|_| {
                let dns = dns.clone();
                tokio::spawn(async move { dns.resolve("none.test", Some(5_060), None, false).await })
            })
            .collect();
        for one in many {
            assert_eq!(one.await.unwrap(), Err(Error::NotFound));
        }
        let first = asked.load(Relaxed);
        assert!(first <= 4, "{first} questions");
        assert_eq!(dns.resolve("none.test", Some(5_060), None, false).await, Err(Error::NotFound));
        assert_eq!(asked.load(Relaxed), first);
    }

    #[tokio::test]
    async fn a_silent_server_is_given_up() {
        let (address, _) = server(Vec::new(), usize::MAX).await;
        let dns = Resolver::of(&[address], waiting(200)).unwrap();
        assert_eq!(dns.resolve("a.test", None, None, false).await, Err(Error::Late));
    }

    #[tokio::test]
    async fn a_lost_question_is_asked_again() {
        let (address, asked) = server(zone(), 2).await;
        let settings = ResolverSettings { timeout: Duration::from_millis(100), ..waiting(2_000) };
        let dns = Resolver::of(&[address], settings).unwrap();
        let found = dns.resolve("a.test", Some(5_060), None, false).await;
        assert_eq!(found, targets(&[(Transport::Udp, "192.0.2.1:5060")]), "{asked:?} questions");
    }

    #[tokio::test]
    async fn failures_are_bounded_and_forgotten() {
        let (address, _) = server(zone(), 0).await;
        let settings = ResolverSettings { entries: 10, failure: Duration::from_millis(200), ..waiting(5_000) };
        let dns = Resolver::of(&[address], settings).unwrap();
        for n in 0..30 {
            let name = format!("none{n}.test");
            assert_eq!(dns.resolve(&name, Some(5_060), None, false).await, Err(Error::NotFound));
        }
        assert!((1..=10).contains(&dns.inner.asked().len()));
        tokio::time::sleep(settings.failure).await;
        dns.tidy();
        assert_eq!(dns.inner.asked().capacity(), 0);
    }

    #[test]
    fn weights_share_the_luck() {
        let servers = || {
            [(1, 0, 1), (1, 1, 2), (1, 3, 3), (0, 9, 4)].map(|(p, w, port)| SRV::new(p, w, port, name("a."))).to_vec()
        };
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        let mut first = HashMap::new();
        for _ in 0..10_000 {
            let ports: Vec<u16> = order(servers(), &mut random).iter().map(|s| s.port).collect();
            assert_eq!((ports[0], ports.len()), (4, 4));
            *first.entry(ports[1]).or_insert(0) += 1;
        }
        // Of five draws (0 to 4) one is for the server without weight, one and three for the others.
        assert!((1_700..2_300).contains(&first[&1]) && (1_700..2_300).contains(&first[&2]), "{first:?}");
    }
}
