//! Sockets and addresses of a campaign, opened before it begins.

use super::facts::Facts;
use super::plan::{Connections, Plan};
use super::side::Side;
use super::sockets::{self, Bound};
use super::{ahead, inputs, moment};
use crate::engine::traffic::ShardCommand;
use crate::workload::Workload;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use strowger_measure::{Clock, GeneratorRole, Heading};
use strowger_scenario::Role;

/// Limit of generators; each is a thread.
const MOST: usize = 256;

/// Sockets and addresses.
pub(super) struct Prepared {
    pub(super) facts: Facts,
    pub(super) callers: Vec<Bound>,
    pub(super) answerer: Option<Bound>,
    /// True if the answering side registers first.
    pub(super) registers: bool,
}

impl Prepared {
    /// Opens sockets and resolves addresses.
    ///
    /// # Errors
    /// The reason why the campaign cannot begin, with a cure.
    pub(super) fn new(plan: &Plan) -> Result<Self, String> {
        // With a proxy the target's name need not resolve here.
        let resolved = match (&plan.target, plan.proxy) {
            (Some(target), None) => Some(target.resolve(plan.transport)?),
            (Some(target), Some(proxy)) => target.resolve(plan.transport).ok().or(Some(proxy)),
            (None, _) => None,
        };
        let destination = plan.proxy.or(resolved);
        let receives = plan.workload() == Some(Workload::RegisterThenReceive);
        let own =
            |ip: IpAddr| if ip.is_unspecified() && destination.is_some() { sockets::local(destination) } else { ip };
        let sources = match (&plan.sources[..], destination) {
            // A side that only answers is reachable at every address of this machine.
            ([], None) => vec![Ipv4Addr::UNSPECIFIED.into()],
            ([], _) => vec![sockets::local(destination)],
            (named, _) => named.iter().copied().map(own).collect(),
        };
        if let Some(destination) = destination
            && let Some(other) = sources.iter().find(|ip| ip.is_ipv4() != destination.is_ipv4())
        {
            return Err(format!("{destination} cannot be reached from {other}: one is IPv4, the other IPv6"));
        }
        let shards = plan.shards.max(1) * plan.documents().len().max(1);
        let count = if plan.target.is_some() && !receives { sources.len() * shards } else { 0 };
        if count > MOST {
            return Err(format!(
                "{count} generators are too many for one process: at most {MOST} sources times shards times documents"
            ));
        }
        if plan.connections == Connections::PerUser && plan.users.len() < count && plan.workload().is_some() {
            return Err(format!(
                "{} users cannot be shared out among {count} generators, each with connections of its own users",
                plan.users.len()
            ));
        }
        let both = matches!(plan.workload(), Some(Workload::RegisterThenCall | Workload::Mix)) && plan.pair;
        if let Some(callee) =
            plan.callee.as_ref().filter(|callee| both && plan.users.iter().any(|u| u.name == callee.name))
        {
            return Err(format!(
                "{} is called and is one of the users that register, so its calls would come back to the caller: let it \
                 be only the one or the other",
                callee.name
            ));
        }
        if plan.connections == Connections::PerCall && receives {
            return Err(
                "a user whose connection ends with its registration cannot be called: --connections per-user keeps it"
                    .into(),
            );
        }
        let last = usize::from(plan.port) + shards - 1;
        if count > 0 && plan.port != 0 && last > usize::from(u16::MAX) {
            return Err(format!(
                "{} generators from port {} on would need port {last}: the highest is 65535",
                shards, plan.port
            ));
        }
        let mut callers = Vec::new();
        for index in 0..count {
            let port = if plan.port == 0 { 0 } else { plan.port + (index / sources.len()) as u16 };
            callers.push(sockets::bind(plan, sources[index % sources.len()], port, false)?);
        }
        let answers = plan.pair || plan.target.is_none() || receives;
        let port = if count == 0 { plan.port } else { 0 };
        let answerer = if answers { Some(sockets::bind(plan, sources[0], port, true)?) } else { None };
        let at = answerer.as_ref().map(|bound| bound.address);
        let registers = receives || (plan.pair && plan.callee.is_some());
        let direct = plan.pair && plan.callee.is_none() && !receives;
        let most_sockets = sockets::most_sockets(plan, count);
        let injections = inputs::data(plan)?;
        let users = injections.first().map_or(plan.users.len(), |list| list.lines() as usize);
        ahead::check(plan, users, count, most_sockets, sources.len())?;
        let facts = Facts {
            destination,
            target: if direct { at } else { resolved },
            direct,
            callee: plan.callee.clone(),
            injections,
            most_sockets,
        };
        Ok(Self { facts, callers, answerer, registers })
    }
}

/// Checks that documents that make calls have a target, and that documents that answer have none.
pub(super) fn right_side(plan: &Plan, role: Role) -> Result<(), String> {
    match role {
        Role::Server if plan.target.is_some() => Err(format!(
            "{} waits for calls, it makes none: run it with `strowger load uas --scenario FILE`",
            plan.title()
        )),
        Role::Client if plan.target.is_none() => {
            Err(format!("{} makes calls: run it with `strowger load TARGET --scenario FILE`", plan.title()))
        }
        _ => Ok(()),
    }
}

pub(super) fn heading(plan: &Plan, answers: bool, clock: Clock, now: u64, timers: Vec<String>) -> Heading {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let target = match &plan.target {
        Some(target) => target.to_string(),
        None => String::new(),
    };
    Heading {
        generator: host.trim().into(),
        role: if answers { GeneratorRole::Answerer } else { GeneratorRole::Caller },
        program: format!("Strowger {}", env!("CARGO_PKG_VERSION")),
        title: plan.title(),
        target,
        transport: plan.transport.text().to_ascii_uppercase(),
        started: plan.start_at.map_or(0, moment::microseconds).max(clock.wall(now)),
        timers,
        settings: plan.settings.clone(),
        cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        seed: Some(plan.seed),
    }
}

/// Makes the connections before the first call is due. A handshake takes milliseconds of a shard, which must not appear
/// as a lag of its schedule or a delay of its first calls. A generator that cannot connect begins nevertheless, and its
/// calls fail.
pub(super) fn connect(callers: &[Side], plan: &Plan, stopped: &dyn Fn() -> bool) {
    if !plan.transport.is_reliable() || plan.connections != Connections::One {
        return;
    }
    callers.iter().for_each(|side| side.send_command(ShardCommand::Connect));
    let until = Instant::now() + callers.iter().map(Side::connect_timeout).max().unwrap_or_default();
    let came_to_something = |side: &Side| {
        let counters = side.counters();
        counters.connected + counters.connects_failed + counters.handshakes_failed > 0
    };
    while Instant::now() < until && !callers.iter().all(came_to_something) && !stopped() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
