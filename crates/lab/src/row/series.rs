//! Values of figures for each second of a window.

use super::figure::UnknownFigure;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Figures that have a value for each second.
pub const OVER_TIME: &[&str] = &[
    "registered",
    "attempts",
    "failed",
    "refused",
    "timeouts",
    "retransmissions",
    "rate.achieved",
    "rrd.mean",
    "rrd.p50",
    "rrd.p95",
    "rrd.p99",
    "srd.mean",
    "srd.p50",
    "srd.p95",
    "srd.p99",
    "response.mean",
    "response.p50",
    "response.p95",
    "response.p99",
    "request.mean",
    "request.p50",
    "request.p95",
    "request.p99",
    "ira",
    "isa",
    "ira.any",
    "isa.any",
    "failed.any",
    "server.cpu",
    "server.cpu.user",
    "server.cpu.system",
    "database.cpu",
    "cache.cpu",
    "machine.cpu",
];

/// Returns whether a second may lack a value of this figure: a second without an answer has no delay and no share.
pub fn may_lack(name: &str) -> bool {
    let is_delay = ["rrd.", "srd.", "response.", "request."].iter().any(|start| name.starts_with(start));
    is_delay || ["ira", "isa", "ira.any", "isa.any", "failed.any"].contains(&name)
}

/// Values of figures for each second of a window, the first one at 0. `None` means that nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Series(BTreeMap<String, Vec<Option<f64>>>);

impl Series {
    /// Sets the values of a figure, in the unit of its definition.
    ///
    /// # Errors
    /// The figure has no values for each second, or one of the values is not finite.
    pub fn set(&mut self, name: &str, values: Vec<Option<f64>>) -> Result<(), UnknownFigure> {
        if !OVER_TIME.contains(&name) {
            return Err(UnknownFigure::NotOverTime(name.into()));
        }
        if values.iter().flatten().any(|value| !value.is_finite()) {
            return Err(UnknownFigure::Value(name.into()));
        }
        self.0.insert(name.into(), values);
        Ok(())
    }

    /// Returns the values of a figure, or no values if the figure was not requested.
    pub fn values(&self, name: &str) -> &[Option<f64>] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns all figures in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Option<f64>])> {
        self.0.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// Tells whether no figure has values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Series {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut series = Self::default();
        for (name, values) in BTreeMap::<String, Vec<Option<f64>>>::deserialize(deserializer)? {
            series.set(&name, values).map_err(D::Error::custom)?;
        }
        Ok(series)
    }
}
