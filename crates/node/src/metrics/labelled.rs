//! Metrics with labels whose values are only known at run time: methods, status codes, gateways, limits of calls.
//!
//! The configuration bounds the number of time series: methods and codes unknown to the RFCs of this server are `other`.

use super::Metrics;
use std::collections::HashMap;
use strowger_config::CallLimitTable;
use strowger_core::Now;
use strowger_metrics::{Metric, MetricKind, Unit};
use strowger_net::clock;
use strowger_server::counters::{ByCode, CodeSums, MethodSums, OTHER, method_names};

/// Most set-aside next hops that are compared with addresses of gateways.
const MOST_ASIDE: usize = 10_000;

/// A metric with the values of its labels.
pub(crate) struct Sample {
    pub(crate) metric: &'static Metric,
    /// Values of the labels in [`Metric::by`], in the same order.
    pub(crate) labels: Vec<String>,
    pub(crate) value: u64,
}

const fn metric(kind: MetricKind, family: &'static str, by: &'static [&'static str], help: &'static str) -> Metric {
    Metric { field: family, family, kind, unit: Unit::Number, help, labels: &[], by }
}

static BUILD: Metric = metric(MetricKind::Gauge, "build_info", &["version"], "Always 1; the label says the version.");
static REQUESTS: Metric =
    metric(MetricKind::Counter, "requests", &["method"], "Requests received, retransmissions included.");
static RESPONSES: Metric = metric(
    MetricKind::Counter,
    "responses",
    &["direction", "code"],
    "Responses received and sent, retransmissions included. Codes that were not seen yet are not shown.",
);
static CALLS: Metric = metric(
    MetricKind::Counter,
    "calls",
    &["code"],
    "Calls by the final response to their callers; 408 where there was none. Challenges (401, 407) are not counted, and calls that are refused \
     before the rules are not.",
);
static GATEWAY_CALLS: Metric = metric(
    MetricKind::Counter,
    "gateway_calls",
    &["gateway", "code"],
    "Calls at each gateway of a rule, by its final response; `none`: it sent no response. 503 also where it was not reached. Challenges are not \
     counted.",
);
static GATEWAY_ASIDE: Metric = metric(
    MetricKind::Gauge,
    "gateway_addresses_aside",
    &["gateway"],
    "Addresses of each gateway that are set aside: they failed, and have not answered since.",
);
static LIMIT_CALLS: Metric = metric(
    MetricKind::Gauge,
    "call_limit_calls",
    &["limit"],
    "Calls that count under each limit of calls, of all its users or gateways together.",
);
static LIMIT_HIGHEST: Metric = metric(
    MetricKind::Gauge,
    "call_limit_highest",
    &["limit"],
    "Calls of the user, source or gateway that has the most under each limit of calls.",
);
static LIMIT_BOUND: Metric = metric(
    MetricKind::Gauge,
    "call_limit_bound",
    &["limit"],
    "Calls that each user, source or gateway may have under each limit of calls.",
);

/// All metrics of this file, in the order of their output.
pub(super) static TABLE: [&Metric; 9] =
    [&BUILD, &REQUESTS, &RESPONSES, &CALLS, &GATEWAY_CALLS, &GATEWAY_ASIDE, &LIMIT_CALLS, &LIMIT_HIGHEST, &LIMIT_BOUND];

impl Metrics {
    /// Returns the samples of [`TABLE`], ordered by family.
    pub(crate) fn labelled(&self) -> Vec<Sample> {
        let mut samples = vec![sample(&BUILD, [env!("CARGO_PKG_VERSION").to_owned()], 1)];
        self.add_messages(&mut samples);
        self.add_gateways(clock::now(), &mut samples);
        self.add_limits(&mut samples);
        samples
    }

    /// Logs the numbers of received and sent messages.
    pub(super) fn log_messages(&self, event: &str) {
        let mut samples = Vec::new();
        self.add_messages(&mut samples);
        let sum = |family: &str, label: &str| -> u64 {
            let of_family = samples.iter().filter(|sample| sample.metric.family == family);
            of_family.filter(|sample| label.is_empty() || sample.labels[0] == label).map(|sample| sample.value).sum()
        };
        let (requests, received, sent) = (sum("requests", ""), sum("responses", "received"), sum("responses", "sent"));
        tracing::info!(of = "messages", requests, responses_received = received, responses_sent = sent, "{event}");
    }

    fn add_messages(&self, samples: &mut Vec<Sample>) {
        let shards = &self.shared.messages;
        let mut requests = MethodSums::default();
        shards.iter().for_each(|messages| messages.requests.add_to(&mut requests));
        samples
            .extend(method_names().zip(requests).map(|(method, count)| sample(&REQUESTS, [method.to_owned()], count)));
        let sums = |of: fn(&strowger_server::counters::Messages) -> &ByCode| {
            let mut sums: CodeSums = std::array::from_fn(|_| 0);
            shards.iter().for_each(|messages| of(messages).add_to(&mut sums));
            sums
        };
        let [received, sent, calls] = [sums(|all| &all.received), sums(|all| &all.sent), sums(|all| &all.calls)];
        for (direction, sums) in [("received", received), ("sent", sent)] {
            samples.extend(seen(sums).map(|(code, count)| sample(&RESPONSES, [direction.to_owned(), code], count)));
        }
        samples.extend(seen(calls).map(|(code, count)| sample(&CALLS, [code], count)));
    }

    fn add_gateways(&self, now: Now, samples: &mut Vec<Sample>) {
        let gateways = self.shared.gateways.list(&self.shared.policy().config);
        for (name, gateway) in &gateways {
            let calls = gateway.calls.iter();
            samples.extend(calls.map(|(code, count)| sample(&GATEWAY_CALLS, [name.clone(), code.clone()], *count)));
        }
        let aside: std::collections::HashSet<_> =
            self.shared.list_aside(now, MOST_ASIDE).into_iter().map(|target| target.address).collect();
        for (name, gateway) in gateways {
            let count = gateway.addresses.iter().filter(|address| aside.contains(address)).count();
            samples.push(sample(&GATEWAY_ASIDE, [name], count as u64));
        }
    }

    fn add_limits(&self, samples: &mut Vec<Sample>) {
        let policy = self.shared.policy();
        let mut used: HashMap<Box<str>, (u64, u64)> = HashMap::new();
        let limits = &self.shared.call_limits;
        for part in 0..if policy.config.call_limits.is_empty() { 0 } else { limits.parts() } {
            limits.each(part, &mut |scope, calls| {
                let (all, highest) = match used.get_mut(&scope.name) {
                    Some(used) => used,
                    None => used.entry(scope.name.clone()).or_default(),
                };
                (*all, *highest) = (*all + u64::from(calls), (*highest).max(u64::from(calls)));
            });
        }
        let of = |limit: &CallLimitTable| used.get(limit.name.as_str()).copied().unwrap_or_default();
        let mut add = |metric: &'static Metric, value: &dyn Fn(&CallLimitTable) -> u64| {
            let all = policy.config.call_limits.iter();
            samples.extend(all.map(|limit| sample(metric, [limit.name.as_str().to_owned()], value(limit))));
        };
        add(&LIMIT_CALLS, &|limit| of(limit).0);
        add(&LIMIT_HIGHEST, &|limit| of(limit).1);
        add(&LIMIT_BOUND, &|limit| u64::from(limit.most));
    }
}

fn sample<const N: usize>(metric: &'static Metric, labels: [String; N], value: u64) -> Sample {
    debug_assert_eq!(metric.by.len(), N);
    Sample { metric, labels: labels.into(), value }
}

/// Returns the codes that have occurred, and always the number of unknown ones.
fn seen(sums: CodeSums) -> impl Iterator<Item = (String, u64)> {
    let codes = strowger_message::status::KNOWN.iter().map(|(code, _)| code.to_string()).chain([OTHER.to_owned()]);
    codes.zip(sums).filter(|(code, count)| *count > 0 || code == OTHER)
}
