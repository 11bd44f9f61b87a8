//! Samples of the server, where it can be seen, and of its machine or of this one.

use super::{Capacity, CapacityRequest, Server, Step};
use crate::Error;
use crate::finder::{Limit, Part};
use crate::generator::Made;
use crate::row::{Check, Reason};
use crate::run::{Evidence, FarServer, SERVER, Sampled};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use strowger_measure::{Heading, MOST_SAMPLES, Observed, Observer, Span};

/// Share of the processor time that the hypervisor may take, in per cent.
const STOLEN: f64 = 5.0;

/// Samplers of a measurement.
pub(super) struct Sampling {
    path: PathBuf,
    by: Sampler,
}

enum Sampler {
    /// Observer of this machine, and of the server if it runs here.
    Here { _observer: Observer },
    /// Observer on the host of the server, in each trial.
    There(FarServer),
}

impl Sampling {
    pub(super) fn start(request: &CapacityRequest) -> Result<Self, Error> {
        let path = request.folder.join("samples.results");
        if let Server::There(host) = &request.server {
            return Ok(Self { path, by: Sampler::There(FarServer::find(request.address, host)?) });
        }
        let observer = Observer::start(&path, Heading::default(), MOST_SAMPLES).map_err(Error::file(&path))?;
        if let Server::Here(id) = request.server {
            observer.watch(SERVER, id);
        }
        Ok(Self { path, by: Sampler::Here { _observer: observer } })
    }

    /// Begins the samples of a trial.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        match &mut self.by {
            Sampler::Here { .. } => Ok(()),
            Sampler::There(server) => server.begin(&self.path, MOST_SAMPLES),
        }
    }

    /// Adds the figures of the window.
    pub(super) fn add(&mut self, made: &mut Made) -> Result<(), Error> {
        if let Sampler::There(server) = &mut self.by {
            let clock = server.finish()?;
            made.reasons.extend(clock.map(|sentence| Reason { check: Check::Clock, sentence }));
        }
        let wrong = |reason: String| Error::Unexpected { what: "samples".into(), reason };
        let observed = Observed::read(&self.path, Span::WHOLE).map_err(|error| wrong(error.to_string()))?;
        let sampled = Sampled::of(observed, micros(made.begin), micros(made.end), &mut Evidence::default());
        let rate = made.figures.value("rate.achieved");
        sampled.write(rate, &mut made.figures).map_err(|error| wrong(error.to_string()))?;
        let stolen = made.figures.value("machine.stolen").unwrap_or(0.0);
        if stolen > STOLEN {
            let sentence = format!("the hypervisor took {stolen:.0} % of the processor time");
            made.reasons.push(Reason { check: Check::Stolen, sentence });
        }
        Ok(())
    }
}

/// Converts a moment to microseconds since 1970-01-01 UTC.
fn micros(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Names the server as the cause if it could not be sampled and all other parts were seen to have spare capacity. Seen from
/// outside, the databases of the server and the network are parts of the server.
pub(super) fn seen_from_outside(mut limit: Limit, steps: &[Step], request: &CapacityRequest) -> Limit {
    let Some(beyond) = limit.beyond.filter(|_| limit.cause.part == Part::Unknown) else { return limit };
    let shown = steps.iter().filter(|step| step.load == beyond && !step.is_met).find_map(|step| {
        let used = step.outcome.figures.largest("generator.thread/")?.1;
        step.outcome.value("machine.cpu").map(|machine| (used, machine))
    });
    if let Some((used, machine)) = shown {
        limit.cause.part = Part::Server;
        let where_to =
            if matches!(request.server, Server::Unseen) { ", as far as it is seen from outside" } else { "" };
        let machine_of = if matches!(request.server, Server::There(_)) { "its" } else { "this" };
        limit.cause.sign = format!(
            "the generator had {:.0} % of a core left, and {machine_of} machine {:.0} % of its cores{where_to}",
            (100.0 - used).max(0.0),
            (100.0 - machine).max(0.0)
        );
    }
    limit
}

impl Capacity {
    /// Returns the highest share of a core that a thread of the generator used at the limit, in per cent.
    pub fn generator_at_limit(&self) -> Option<f64> {
        let at = |load: f64| self.steps.iter().rev().find(|step| step.load == load);
        let step = self.limit.beyond.and_then(at).or_else(|| at(self.limit.load))?;
        step.outcome.figures.largest("generator.thread/").map(|(_, share)| share)
    }
}
