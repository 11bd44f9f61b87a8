//! DNS queries that locate the servers of a name (RFC 3263 section 4).

use super::srv_order::{Server, order, random};
use super::{Error, Inner, Key, ResolverSettings, Speaks};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::rdata::{NAPTR, SRV};
use hickory_resolver::proto::rr::{RData, RecordType};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};
use strowger_core::Transport;

/// Servers of a name, and the end of their validity.
pub(super) struct Found {
    pub(super) servers: Vec<Server>,
    pub(super) until: Instant,
}

/// Records from one query, and the end of their validity; `None`: unknown.
struct Records {
    all: Vec<RData>,
    until: Option<Instant>,
}

/// Addresses of a host, and the end of their validity.
struct Addresses {
    all: Vec<IpAddr>,
    until: Instant,
}

impl Inner {
    /// Sends all queries of one step at the same time. Once some have succeeded, waits only a limited time for the
    /// others; failures count only if nothing else is found. `past_cache`: whether to query the name servers even if
    /// the cache of records has an answer.
    pub(super) async fn ask(
        &self,
        (host, port, transport, secure): &Key,
        end: tokio::time::Instant,
        past_cache: bool,
    ) -> Result<Found, Error> {
        let ResolverSettings { speaks, targets: most, failure: soon, .. } = self.settings;
        let plain = transport.unwrap_or(if *secure { Transport::Tls } else { Transport::Udp });
        // A URI with a port needs no search for services (section 4.2), and WebSocket has no services.
        if port.is_some() || matches!(plain, Transport::Ws | Transport::Wss) {
            let port = port.unwrap_or_else(|| plain.default_port());
            return self.host(host, plain, port, past_cache).await;
        }
        // Selection of the transport (section 4.1).
        let all: &[Transport] = match (transport, secure) {
            (Some(transport), _) => &[*transport],
            (None, true) => &[Transport::Tls],
            (None, false) => &[Transport::Udp, Transport::Tcp, Transport::Tls],
        };
        let all: Vec<Transport> = all.iter().copied().filter(|t| transport.is_some() || speaks.has(*t)).collect();
        let mut services: Vec<(Transport, String)> = all.iter().map(|t| (*t, service(*t, host))).collect();
        // NAPTR shows which services exist; SRV of the default services are queried at the same time.
        let mut questions: Vec<(&str, RecordType)> = services.iter().map(|(_, n)| (&**n, RecordType::SRV)).collect();
        if transport.is_none() {
            questions.push((host, RecordType::NAPTR));
        }
        let mut answers = self.all(&questions, end, past_cache).await;
        let named = match transport {
            Some(_) => None,
            None => answers.pop().flatten(),
        };
        let mut until = Until::default();
        let named = match named {
            Some(Ok(records)) => {
                until.hears(&records);
                offered(&records.all, *secure, speaks)
            }
            // Some name servers do not implement NAPTR, and fail or do not answer.
            _ => Vec::new(),
        };
        if !named.is_empty() {
            services = named;
            let questions: Vec<_> = services.iter().map(|(_, name)| (&**name, RecordType::SRV)).collect();
            answers = self.all(&questions, end, past_cache).await;
        }
        let (mut servers, mut refused, mut failure) = (Vec::new(), Vec::new(), None);
        for ((number, (transport, _)), answer) in (0..).zip(&services).zip(answers) {
            match answer.unwrap_or(Err(Error::Late)) {
                Ok(records) => {
                    until.hears(&records);
                    let mut of = servers_of(records.all);
                    // The domain declares that the service is not available (RFC 2782).
                    if !of.is_empty() && of.iter().all(|srv| srv.target.is_root()) {
                        refused.push(*transport);
                    }
                    of.retain(|srv| !srv.target.is_root());
                    servers.extend(of.into_iter().map(|srv| Candidate::of(number, *transport, &srv)));
                }
                Err(Error::NotFound) => (),
                Err(error) => failure = Some(error),
            }
        }
        // At most the allowed number, in the order in which RFC 2782 selects servers.
        let mut candidates = order(servers, |candidate| &candidate.server, random);
        self.counters.left_out.fetch_add(candidates.len().saturating_sub(most) as u64, Relaxed);
        candidates.truncate(most);
        let lookups = candidates.iter().map(|candidate| self.addresses(&candidate.host, past_cache));
        // One server without an address does not make the whole look-up fail.
        let found = answers_of(lookups.collect(), self.grace(), end, |found| found.is_ok()).await;
        let mut servers = Vec::with_capacity(candidates.len());
        for (Candidate { port, server, .. }, found) in candidates.into_iter().zip(found) {
            if let Some(Ok(Addresses { all, until: end })) = found {
                until.ends(end);
                let addresses = all.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
                servers.push(Server { addresses, ..server });
            }
        }
        if servers.is_empty() {
            // There are no services, so the address of the name itself is used (section 4.2), by a transport that was
            // not declared unavailable.
            let either: &[Transport] = if transport.is_none() && !secure { &[plain, Transport::Tcp] } else { &[plain] };
            let by = either.iter().find(|t| (transport.is_some() || speaks.has(**t)) && !refused.contains(t));
            let Some(by) = by else { return Err(failure.unwrap_or(Error::NotFound)) };
            let found = self.host(host, *by, by.default_port(), past_cache).await?;
            until.ends(found.until);
            servers = found.servers;
        }
        Ok(Found { servers, until: until.0.unwrap_or_else(|| Instant::now() + soon) })
    }

    /// Resolves the host itself.
    async fn host(&self, host: &str, transport: Transport, port: u16, past_cache: bool) -> Result<Found, Error> {
        let Addresses { all, until } = self.addresses(host, past_cache).await?;
        let addresses = all.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        Ok(Found { servers: vec![Server::alone(transport, addresses)], until })
    }

    /// Returns the time to wait for slower answers after the first answers have arrived: a part of the time limit of
    /// one query.
    fn grace(&self) -> Duration {
        self.settings.timeout / 4
    }

    async fn all(
        &self,
        questions: &[(&str, RecordType)],
        end: tokio::time::Instant,
        past_cache: bool,
    ) -> Vec<Option<Result<Records, Error>>> {
        let lookups = questions.iter().map(|(name, kind)| self.records(name, *kind, past_cache)).collect();
        let brings = |answer: &Result<Records, Error>| answer.as_ref().is_ok_and(|records| !records.all.is_empty());
        answers_of(lookups, self.grace(), end, brings).await
    }

    async fn addresses(&self, host: &str, past_cache: bool) -> Result<Addresses, Error> {
        if past_cache {
            self.dns.clear_lookup_cache(host, RecordType::A);
            self.dns.clear_lookup_cache(host, RecordType::AAAA);
        }
        let found = self.dns.lookup_ip(host).await.map_err(failed)?;
        let mut all: Vec<IpAddr> = found.iter().collect();
        // A host with addresses of both families is reachable from more networks by IPv4 than by IPv6.
        all.sort_by_key(IpAddr::is_ipv6);
        if all.is_empty() { Err(Error::NotFound) } else { Ok(Addresses { all, until: found.valid_until() }) }
    }

    /// Queries the records of this type. Returns an empty list if there are none.
    async fn records(&self, name: &str, of: RecordType, past_cache: bool) -> Result<Records, Error> {
        if past_cache {
            self.dns.clear_lookup_cache(name, of);
        }
        match self.dns.lookup(name, of).await {
            Ok(found) => {
                let all = found.answers().iter().map(|record| record.data.clone()).collect();
                Ok(Records { all, until: Some(found.valid_until()) })
            }
            Err(error) => {
                // A negative answer is kept only if the name server gives it a lifetime (RFC 2308 section 5).
                let said = match &error {
                    NetError::Dns(DnsError::NoRecordsFound(none)) => none.negative_ttl,
                    _ => None,
                };
                match failed(error) {
                    Error::NotFound => {
                        let until = said.map(|ttl| Instant::now() + Duration::from_secs(ttl.into()));
                        Ok(Records { all: Vec::new(), until })
                    }
                    error => Err(error),
                }
            }
        }
    }
}

/// Earliest end of validity of the answers.
#[derive(Default)]
struct Until(Option<Instant>);

impl Until {
    fn ends(&mut self, end: Instant) {
        self.0 = self.0.into_iter().chain([end]).min();
    }

    fn hears(&mut self, records: &Records) {
        if let Some(end) = records.until {
            self.ends(end);
        }
    }
}

/// A server whose addresses are unknown yet.
struct Candidate {
    host: String,
    port: u16,
    server: Server,
}

impl Candidate {
    fn of(service: u16, transport: Transport, srv: &SRV) -> Self {
        let server =
            Server { service, priority: srv.priority, weight: srv.weight, ..Server::alone(transport, Vec::new()) };
        Self { host: srv.target.to_utf8(), port: srv.port, server }
    }
}

/// Runs these queries concurrently until all have ended, or `end` is reached, or `grace` has passed since one succeeded.
/// Unfinished queries return `None`.
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

/// Returns the services of a domain that have a supported transport, the preferred first.
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

pub(super) fn failed(error: NetError) -> Error {
    match error {
        NetError::Timeout => Error::Late,
        error if error.is_no_records_found() || error.is_nx_domain() => Error::NotFound,
        error => Error::Failed(error.to_string()),
    }
}
