//! Gateways of rules in the metrics: their calls by outcome, and their addresses that are set aside.
//!
//! A gateway is the host and port of a URI in `to` of a rule, a failure or a `[[gateway_group]]`, unless the host is a
//! local domain. The addresses of a gateway are those to which its name resolved when a call was sent there. An address
//! of two gateways counts for the first gateway.

use crate::counters::{CODES, OTHER, place_of};
use crate::destination::Targets;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};
use strowger_config::{Action, Config};
use strowger_message::Uri;
use strowger_message::status::KNOWN;

/// Maximum number of addresses of gateways, which is needed because each look-up of a name may return other addresses.
const MOST_ADDRESSES: usize = 4_096;

/// Label value of a call without a response of its gateway.
const NONE: &str = "none";

/// Length of [`Calls`]: one element for each known status code, one for other codes, one for calls without a response.
const OUTCOMES: usize = CODES + 2;

/// Calls of one gateway by outcome. The counters are shared by all shards and atomic.
type Calls = [AtomicU64; OUTCOMES];

/// Gateways of a process.
#[derive(Debug, Default)]
pub struct Gateways {
    /// Calls by address. The table is read for each outcome of a call, and written when a call is sent to an address
    /// for the first time.
    addresses: RwLock<HashMap<SocketAddr, Gateway>>,
    /// Number of addresses. If it is zero, an outcome costs one load.
    count: AtomicU64,
}

#[derive(Clone, Debug)]
struct Gateway {
    name: Arc<str>,
    calls: Arc<Calls>,
}

/// Calls and addresses of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayCalls {
    /// Calls by outcome: a status code, [`OTHER`] or "none". Outcomes without calls are omitted, except for "none".
    pub calls: Vec<(String, u64)>,
    /// Addresses of the gateway to which calls were sent.
    pub addresses: Vec<SocketAddr>,
}

impl Gateways {
    /// Notes the addresses of a gateway to which a call is sent.
    pub(crate) fn note(&self, uri: &str, targets: &Targets, config: &Config) {
        let is_known = {
            let known = self.addresses.read().unwrap_or_else(PoisonError::into_inner);
            targets.iter().all(|target| known.contains_key(&target.address))
        };
        if !is_known {
            self.add(uri, targets, config);
        }
    }

    #[cold]
    fn add(&self, uri: &str, targets: &Targets, config: &Config) {
        let Some(name) = name(uri, config) else { return };
        let mut known = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        let same = known.values().find(|gateway| *gateway.name == name).cloned();
        let gateway = same
            .unwrap_or_else(|| Gateway { name: name.into(), calls: Arc::new([const { AtomicU64::new(0) }; OUTCOMES]) });
        for target in targets {
            if known.len() < MOST_ADDRESSES {
                known.entry(target.address).or_insert_with(|| gateway.clone());
            }
        }
        self.count.store(known.len() as u64, Relaxed);
    }

    /// Counts the outcome of a call at a next hop, if the next hop is a gateway. `None`: the next hop sent no response.
    #[inline]
    pub(crate) fn count(&self, address: SocketAddr, status: Option<u16>) {
        // The caller sends the request again with credentials.
        if self.count.load(Relaxed) > 0 && !matches!(status, Some(401 | 407)) {
            self.count_known(address, status);
        }
    }

    #[inline(never)]
    fn count_known(&self, address: SocketAddr, status: Option<u16>) {
        let known = self.addresses.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(gateway) = known.get(&address) {
            gateway.calls[status.map_or(CODES + 1, place_of)].fetch_add(1, Relaxed);
        }
    }

    /// Tells whether a gateway has this address: calls were sent to it there, or a URI of the configuration names it.
    pub(crate) fn is_at(&self, ip: IpAddr, config: &Config) -> bool {
        let is_known = {
            let known = self.addresses.read().unwrap_or_else(PoisonError::into_inner);
            known.keys().any(|address| address.ip() == ip)
        };
        is_known || names(config).any(|name| ip_of(&name) == Some(ip))
    }

    /// Lists gateways by name: all of the current configuration, and those of earlier configurations that were used.
    pub fn list(&self, config: &Config) -> BTreeMap<String, GatewayCalls> {
        let configured = names(config).map(|name| (name, [0; OUTCOMES], Vec::new()));
        let known = self.addresses.read().unwrap_or_else(PoisonError::into_inner);
        let used = known.iter().map(|(address, gateway)| {
            let calls = std::array::from_fn(|place| gateway.calls[place].load(Relaxed));
            (gateway.name.to_string(), calls, vec![*address])
        });
        let mut all = BTreeMap::new();
        for (name, calls, addresses) in configured.chain(used) {
            let shown: &mut GatewayCalls = all.entry(name).or_default();
            shown.calls = outcomes(&calls);
            shown.addresses.extend(addresses);
        }
        all.values_mut().for_each(|shown| shown.addresses.sort());
        all
    }
}

fn outcomes(calls: &[u64; OUTCOMES]) -> Vec<(String, u64)> {
    let codes = KNOWN.iter().map(|(code, _)| code.to_string()).chain([OTHER.to_owned(), NONE.to_owned()]);
    codes.zip(calls.iter().copied()).filter(|(code, count)| *count > 0 || code == NONE).collect()
}

/// Returns the gateway that a URI names; `None`: it names a user of this server.
fn name(uri: &str, config: &Config) -> Option<String> {
    let Ok(Uri::Sip(sip)) = Uri::parse(uri.as_bytes()) else { return None };
    let mut host = Vec::new();
    sip.host.write_lower(&mut host);
    let is_local = config.is_local(&String::from_utf8_lossy(&host));
    gateway(uri).filter(|_| !is_local).map(|name| String::from_utf8_lossy(&name).into_owned())
}

/// Returns the next hop that a URI names: its host, and the port if it has one.
pub(crate) fn gateway(uri: &str) -> Option<Vec<u8>> {
    let Ok(Uri::Sip(uri)) = Uri::parse(uri.as_bytes()) else { return None };
    let mut text = Vec::new();
    uri.host.write_lower(&mut text);
    if let Some(port) = uri.port {
        text.extend_from_slice(format!(":{port}").as_bytes());
    }
    Some(text)
}

/// Returns the address in the name of a gateway; `None` if it is a host name.
fn ip_of(name: &str) -> Option<IpAddr> {
    let with_port = name.parse::<SocketAddr>().map(|address| address.ip());
    with_port.or_else(|_| name.trim_matches(['[', ']']).parse()).ok()
}

/// Returns the gateways that a configuration names.
fn names(config: &Config) -> impl Iterator<Item = String> + '_ {
    let of_action = move |action: &Action| {
        let failures = action.on_failure.iter().flat_map(|failure| &failure.to.uris);
        action.to.uris.iter().chain(failures).filter_map(|uri| name(uri.as_str(), config)).collect::<Vec<_>>()
    };
    let of_emergency = config.decisions.emergency.uris.iter().filter_map(|uri| name(uri.as_str(), config));
    config.decisions.rules.iter().flat_map(move |rule| of_action(&rule.action)).chain(of_emergency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_gateway_may_be_in_its_name() {
        for (name, address) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:5070", Some("192.0.2.1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:5070", Some("2001:db8::1")),
            ("gw1.example.net", None),
        ] {
            assert_eq!(ip_of(name), address.map(|text| text.parse().expect("an address")), "{name}");
        }
    }

    #[test]
    fn a_gateway_is_known_by_host_and_port() {
        for (uri, known) in [
            ("sip:GW1.example.net", "gw1.example.net"),
            ("sip:49@gw1.example.net;transport=tcp", "gw1.example.net"),
            ("sip:192.0.2.1:5070", "192.0.2.1:5070"),
            ("sip:[2001:db8::1]:5070", "[2001:db8::1]:5070"),
        ] {
            assert_eq!(gateway(uri).map(|text| String::from_utf8_lossy(&text).into_owned()).as_deref(), Some(known));
        }
    }
}
