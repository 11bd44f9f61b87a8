//! Dry run: the first call of a plan against an answering side in this process, on loopback. The target receives
//! nothing.

use super::facts::Facts;
use super::plan::{Connections, Plan, Work};
use super::side::{Part, Side};
use super::{inputs, sockets};
use crate::engine::pace::Part as Pace;
use crate::engine::traffic::Event;
use crate::engine::watch::{Passage, Watch};
use std::fmt::Arguments;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use strowger_core::Transport;
use strowger_measure::{Clock, Collector};
use strowger_net::clock;
use strowger_scenario::Distribution;

/// Message of the first call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// True if the message is sent to the target, false if it is received from the target.
    pub sent: bool,
    pub bytes: Vec<u8>,
}

/// Time limit of a dry run.
const LONGEST: Duration = Duration::from_secs(10);

struct MessageWatch {
    lines: Sender<Line>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Watch for MessageWatch {
    fn message(&mut self, passage: Passage, _: Transport, _: &[u8], bytes: &[u8]) {
        let sent = matches!(passage, Passage::Sent);
        if sent || matches!(passage, Passage::Received) {
            let _ = self.lines.send(Line { sent, bytes: bytes.to_vec() });
        }
    }

    fn warning(&mut self, text: Arguments<'_>) {
        self.warnings.lock().unwrap_or_else(|e| e.into_inner()).push(text.to_string());
    }
}

/// Returns the messages of the first call of each document, and warnings. The answering side of this process answers,
/// without challenges; a document that expects a different answer ends at that point.
///
/// # Errors
/// The reason why there can be no call.
pub fn rehearse(plan: &Plan) -> Result<(Vec<Line>, Vec<String>), String> {
    let (mut lines, mut warnings) = (Vec::new(), Vec::new());
    for plan in plan.parted() {
        let (more, said) = rehearse_one(&plan)?;
        lines.extend(more);
        warnings.extend(said);
    }
    Ok((lines, warnings))
}

fn rehearse_one(plan: &Plan) -> Result<(Vec<Line>, Vec<String>), String> {
    let target = plan.target.as_ref().ok_or("a dry run needs a target")?;
    if let Work::Document(path) = &plan.work {
        super::prepared::right_side(plan, inputs::document(plan, path)?.role)?;
    }
    let resolved = target.resolve(plan.transport)?;
    let own = plan.sources.first().copied().unwrap_or_else(|| sockets::local(plan.proxy.or(Some(resolved))));
    let loopback: IpAddr = if resolved.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    // Encrypted transports run over plain TCP here; the texts name the plan's transport.
    let wire = if plan.transport == Transport::Udp { Transport::Udp } else { Transport::Tcp };
    let local = Plan {
        transport: wire,
        connections: Connections::One,
        profile: vec![Pace::Hold { rate: 1.0 }],
        calls: Some(1),
        sources: vec![loopback],
        hold: Distribution::Fixed(0.0),
        patience: Some(Duration::from_millis(700)),
        ring: 0,
        ..plan.clone()
    };
    let answers = Plan { work: Work::Ready(crate::workload::Workload::Call), target: None, ..local.clone() };
    let bound = sockets::bind(&answers, loopback, 0, true)?;
    let nobody = Facts {
        destination: None,
        target: None,
        direct: false,
        callee: None,
        injections: inputs::data(&answers)?,
        most_sockets: usize::MAX,
    };
    let now = clock::micros();
    let mut collector = Collector::new(Clock::new(now, SystemTime::now()), Vec::new(), 2);
    let scenario = Arc::new(nobody.scenario(&answers, Part::Answerer)?);
    let run = nobody.run(&answers, Part::Answerer, scenario, bound.address)?;
    let there = Side::start(bound, run, collector.recorder(now), None, false)?;

    let part = Part::caller(0, 1);
    let bound = sockets::bind(&local, loopback, 0, false)?;
    let facts = Facts {
        destination: Some(there.address),
        target: Some(resolved),
        direct: false,
        callee: plan.callee.clone(),
        injections: inputs::data(plan)?,
        most_sockets: usize::MAX,
    };
    let scenario = Arc::new(facts.scenario(plan, part)?);
    let mut run = facts.run(&local, part, scenario.clone(), bound.address)?;
    let port = if plan.port == 0 { bound.address.port() } else { plan.port };
    (run.local_ip, run.media_ip, run.local_port) = (own.to_string(), own.to_string(), port);
    run.behaviour.commands = false;
    let (lines, heard) = channel();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let watch = Box::new(MessageWatch { lines, warnings: warnings.clone() });
    let mut collector_here = Collector::new(Clock::new(now, SystemTime::now()), scenario.timed(), 1);
    let here = Side::start(bound, run, collector_here.recorder(now), Some(watch), false)?;
    let until = Instant::now() + LONGEST;
    let mut ended = None;
    while ended.is_none() && Instant::now() < until {
        if let Ok(Event::Finished(stats)) = here.events.recv_timeout(Duration::from_millis(50)) {
            ended = Some(stats.successful > 0);
        }
        collector_here.poll(clock::micros(), |_| {});
        collector.poll(clock::micros(), |_| {});
    }
    drop(here);
    drop(there);
    let mut warnings = std::mem::take(&mut *warnings.lock().unwrap_or_else(|e| e.into_inner()));
    warnings.extend(match ended {
        Some(true) => None,
        Some(false) => Some(
            "the call did not come to its end here: the document expects something else than our own answering side says".into(),
        ),
        None => Some(format!("the call was not over after {} s; what comes later is not shown", LONGEST.as_secs())),
    });
    Ok((heard.try_iter().collect(), warnings))
}
