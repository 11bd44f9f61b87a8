//! Targets of a request, and their candidates.

use super::*;

/// Candidate for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Try {
    pub(crate) uri: Option<String>,
    /// Other flows: target, Contact and Path.
    pub(crate) flows: Vec<(Target, String, String)>,
    pub(crate) path: String,
    pub(crate) at: Vec<Target>,
    pub(crate) q: u16,
    pub(crate) add: String,
    pub(crate) remove: Vec<Name>,
    pub(crate) fixed: bool,
    pub(crate) watched: bool,
    pub(crate) rerouted: bool,
    pub(crate) asks: &'static str,
}

/// Returns a target by UDP.
pub(crate) fn at(address: &str) -> Target {
    let address: SocketAddr = address.parse().expect("an address");
    Target::new(Transport::Udp, UDP, address)
}

/// Returns one candidate at this address by UDP.
pub(crate) fn to(address: &str) -> Vec<Try> {
    vec![Try { at: vec![at(address)], q: 1000, ..Try::default() }]
}

/// Returns a contact of a fork: its own Request-URI and address.
pub(crate) fn contact(address: &str, q: u16) -> Try {
    Try { uri: Some(format!("sip:bob@{address}")), at: vec![at(address)], q, ..Try::default() }
}

type FlowsOfTry<'a> = Vec<(Target, &'a [u8], &'a [u8])>;

type Flows<'a> = Vec<FlowsOfTry<'a>>;

pub(super) fn flows_of(tries: &[Try]) -> Flows<'_> {
    tries
        .iter()
        .map(|t| t.flows.iter().map(|(at, uri, path)| (*at, uri.as_bytes(), path.as_bytes())).collect())
        .collect()
}

pub(super) fn candidates_of<'a>(tries: &'a [Try], flows: &'a Flows<'a>) -> Vec<Candidate<'a>> {
    let candidate = |(t, flows): (&'a Try, &'a FlowsOfTry<'a>)| Candidate {
        uri: t.uri.as_deref().map(str::as_bytes),
        flows,
        path: t.path.as_bytes(),
        targets: &t.at,
        q: t.q,
        add: t.add.as_bytes(),
        remove: &t.remove,
        fixed: t.fixed,
        watched: t.watched,
        rerouting: if t.rerouted { Rerouting::NextHop } else { Rerouting::None },
        asks: t.asks.as_bytes(),
        translated: t.uri.as_deref().is_some_and(|uri| !uri.ends_with(&t.at[0].address.to_string())),
    };
    tries.iter().zip(flows).map(candidate).collect()
}
