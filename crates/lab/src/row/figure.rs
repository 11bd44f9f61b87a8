//! Figures of a row: names, units and values.

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
pub use strowger_measure::Unit;

/// Direction in which a figure improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
    /// The figure describes the trial and is not judged.
    Neither,
}

/// Relation of a figure to the speed of the machine, which the floor measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// A slower machine raises the figure as it raises the floor's cost a call.
    Cost,
    /// A slower machine lowers the figure as it raises the floor's cost a call.
    Speed,
    /// The speed of the machine does not change the figure.
    Fixed,
}

/// Definition of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name in rows and experiments. A name that ends in `/` is followed by a label, such as the name of a thread.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Direction in which it improves.
    pub better: Better,
    /// Relation to the speed of the machine.
    pub scaling: Scaling,
    /// Name for people.
    pub title: &'static str,
}

const fn figure(name: &'static str, unit: Unit, better: Better, scaling: Scaling, title: &'static str) -> Definition {
    Definition { name, unit, better, scaling, title }
}

use Better::{Higher, Lower, Neither};
use Scaling::{Cost, Fixed, Speed};
use Unit::{Bytes, BytesPerSecond, Count, Microseconds, PerSecond, Percent, Seconds};

/// All figures that a row may have. The generator's measures have the names of its reports.
pub const DEFINITIONS: &[Definition] = &[
    figure("attempts", Count, Neither, Fixed, "Calls or registrations attempted in the window"),
    figure("failed", Count, Lower, Fixed, "Attempts that failed"),
    figure("failed.warm_up", Count, Lower, Fixed, "Attempts of the warm-up that failed"),
    figure("refused", Count, Lower, Fixed, "Failed attempts that the server refused with 5xx or 6xx"),
    figure("refused.share", Percent, Lower, Fixed, "Attempts that the server refused with 5xx or 6xx"),
    figure("goodput", PerSecond, Higher, Fixed, "Calls or registrations completed in a second"),
    figure("goodput.share", Percent, Higher, Fixed, "Goodput, as a share of the limit"),
    figure("goodput.ideal", Percent, Neither, Fixed, "Ideal goodput, as a share of the limit"),
    figure("goodput.ratio", Percent, Higher, Fixed, "Goodput, as a share of the ideal goodput"),
    figure("refusal.cost", Percent, Lower, Fixed, "CPU of a refused call, as a share of that of an accepted call"),
    figure("recovery", Seconds, Lower, Fixed, "Time after the window until all new calls are answered"),
    figure("timeouts", Count, Lower, Fixed, "Requests without an answer in time"),
    figure("retransmissions", Count, Lower, Fixed, "Requests sent again"),
    figure("rate.achieved", PerSecond, Neither, Fixed, "Rate of attempts in the window"),
    figure("rrd.mean", Microseconds, Lower, Cost, "Registration request delay, mean"),
    figure("rrd.p50", Microseconds, Lower, Cost, "Registration request delay, median"),
    figure("rrd.p95", Microseconds, Lower, Cost, "Registration request delay, 95th percentile"),
    figure("rrd.p99", Microseconds, Lower, Cost, "Registration request delay, 99th percentile"),
    figure("srd.mean", Microseconds, Lower, Cost, "Session request delay, mean"),
    figure("srd.p50", Microseconds, Lower, Cost, "Session request delay, median"),
    figure("srd.p95", Microseconds, Lower, Cost, "Session request delay, 95th percentile"),
    figure("srd.p99", Microseconds, Lower, Cost, "Session request delay, 99th percentile"),
    figure("response.mean", Microseconds, Lower, Cost, "Call response time, mean"),
    figure("response.p50", Microseconds, Lower, Cost, "Call response time, median"),
    figure("response.p95", Microseconds, Lower, Cost, "Call response time, 95th percentile"),
    figure("response.p99", Microseconds, Lower, Cost, "Call response time, 99th percentile"),
    figure("request.mean", Microseconds, Lower, Cost, "Request response time, mean"),
    figure("request.p50", Microseconds, Lower, Cost, "Request response time, median"),
    figure("request.p95", Microseconds, Lower, Cost, "Request response time, 95th percentile"),
    figure("request.p99", Microseconds, Lower, Cost, "Request response time, 99th percentile"),
    figure("delay.first", Microseconds, Neither, Fixed, "Delay in the first third of the window, 95th percentile"),
    figure("delay.last", Microseconds, Neither, Fixed, "Delay in the last third of the window, 95th percentile"),
    figure("packet.delay.max", Microseconds, Lower, Fixed, "Largest delay between media packets"),
    figure("media.max_delta.p99", Microseconds, Lower, Fixed, "Maximum packet delay, 99th percentile"),
    figure("media.jitter.mean", Microseconds, Lower, Fixed, "Mean interarrival jitter"),
    figure("media.delay.p50", Microseconds, Lower, Cost, "Delay of media packets, median"),
    figure("media.delay.p99", Microseconds, Lower, Cost, "Delay of media packets, 99th percentile"),
    figure("media.rate", PerSecond, Neither, Fixed, "Media packets that both ends received in a second"),
    figure("media.lost", Count, Lower, Fixed, "Media packets that never came"),
    figure("media.silent", Count, Lower, Fixed, "Calls that heard nothing, at either end"),
    figure("ira", Percent, Lower, Fixed, "Ineffective registration attempts (RFC 6076)"),
    figure("isa", Percent, Lower, Fixed, "Ineffective session attempts (RFC 6076)"),
    figure("ira.any", Percent, Lower, Fixed, "Registrations failed for any reason"),
    figure("isa.any", Percent, Lower, Fixed, "Calls failed for any reason, of the successfully registered"),
    figure("failed.any", Percent, Lower, Fixed, "Attempts that failed for any reason"),
    figure("server.cpu", Percent, Lower, Cost, "CPU of the server, of all cores"),
    figure("server.cpu.user", Percent, Lower, Cost, "CPU of the server in its program, of all cores"),
    figure("server.cpu.system", Percent, Lower, Cost, "CPU of the server in the kernel, of all cores"),
    figure("server.cpu.call", Microseconds, Lower, Cost, "CPU of the server for a call"),
    figure("server.cpu.packet", Microseconds, Lower, Cost, "CPU of the server for a relayed media packet"),
    figure("server.thread/", Percent, Neither, Fixed, "CPU of a thread of the server, of one core"),
    figure("server.wait", Percent, Lower, Fixed, "Time that the server's busiest thread waited for a core"),
    figure(
        "server.wait.call",
        Microseconds,
        Lower,
        Cost,
        "Time that threads of the server waited for a core, for a call",
    ),
    figure("server.pss", Bytes, Lower, Fixed, "Memory of the server"),
    figure("server.entry", Bytes, Lower, Fixed, "Memory of the server for an entry, call or connection"),
    figure("server.drops", Count, Lower, Fixed, "Datagrams that the server's sockets dropped"),
    figure("server.cores", Count, Neither, Fixed, "Cores that the server may use"),
    figure("server.workers", Count, Neither, Fixed, "Workers that the server was given"),
    figure("database.cpu", Percent, Lower, Cost, "CPU of the database, of all cores"),
    figure("database.cpu.call", Microseconds, Lower, Cost, "CPU of the database for a call"),
    figure("database.thread/", Percent, Neither, Fixed, "CPU of a thread of the database, of one core"),
    figure("cache.cpu", Percent, Lower, Cost, "CPU of the cache, of all cores"),
    figure("cache.cpu.operation", Microseconds, Lower, Cost, "CPU of the cache for an operation"),
    figure("cache.thread/", Percent, Neither, Fixed, "CPU of a thread of the cache, of one core"),
    figure("cache.entries", Count, Neither, Fixed, "Entries of the cache"),
    figure("cache.entry", Bytes, Lower, Fixed, "Memory of the cache for an entry"),
    figure("cache.pss", Bytes, Lower, Fixed, "Memory of the cache"),
    figure("generator.thread/", Percent, Neither, Fixed, "CPU of a thread of the generator, of one core"),
    figure("generator.cpu.call", Microseconds, Lower, Cost, "CPU of the generator for a call"),
    figure("machine.cores", Count, Neither, Fixed, "Cores of the machine"),
    figure("machine.cpu", Percent, Neither, Fixed, "CPU of all programs, of all cores"),
    figure("machine.other", Percent, Neither, Fixed, "CPU of programs outside of the test, of all cores"),
    figure("machine.stolen", Percent, Neither, Fixed, "Processor time that the hypervisor took"),
    figure("machine.retransmissions", Count, Lower, Fixed, "TCP segments sent again, of the whole machine"),
    figure("machine.memory", Percent, Neither, Fixed, "Used memory, formula (2) of the cache study"),
    figure("machine.network", BytesPerSecond, Neither, Fixed, "Throughput, formula (1) of the cache study"),
    figure("limit", PerSecond, Higher, Speed, "Limit that the finder found"),
    figure("limit.low", PerSecond, Neither, Fixed, "Highest load that met the goal"),
    figure("limit.high", PerSecond, Neither, Fixed, "Lowest load that missed the goal"),
    figure("parse.rate", PerSecond, Higher, Speed, "Messages parsed in a second"),
    figure("print.rate", PerSecond, Higher, Speed, "Messages printed in a second"),
    figure("echo.rate", PerSecond, Neither, Fixed, "Exchanges of the unread echo in a second"),
    figure("echo.ratio", Percent, Lower, Fixed, "Time of a request or call, as a share of the time of its unread echo"),
    figure("program.size", Bytes, Lower, Fixed, "Size of the program as it is loaded"),
    figure("transaction.bytes", Bytes, Lower, Fixed, "Memory of a transaction"),
    figure("dialog.bytes", Bytes, Lower, Fixed, "Memory of a dialog"),
    figure(
        "connect.rate",
        PerSecond,
        Higher,
        Speed,
        "Connections established in a second, their first request answered",
    ),
    figure("registered", Count, Neither, Fixed, "Phones that are registered, as they know it"),
    figure("registered.after", Seconds, Lower, Fixed, "Time until all phones are registered again"),
    figure("registered.after.95", Seconds, Lower, Fixed, "Time until 95 % of the phones are registered again"),
    figure("load", Percent, Lower, Cost, "CPU of server and database together, of all cores"),
    figure("load.scaled", Percent, Lower, Cost, "Load scaled to 13,000 calls a second"),
    figure("penalty", Percent, Neither, Fixed, "Penalty against the row named"),
];

/// Returns the definition of a figure, of `server.thread/shard-0` as well as of `server.cpu`.
pub fn definition(name: &str) -> Option<&'static Definition> {
    let defined = match name.split_once('/') {
        Some((_, label)) if label.is_empty() || label.contains('/') => return None,
        Some((base, _)) => &name[..=base.len()],
        None => name,
    };
    DEFINITIONS.iter().find(|definition| definition.name == defined)
}

/// Figure that a row cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFigure {
    /// The table of figures has no such name.
    #[error("there is no figure {0:?}: the table of figures in crates/lab/src/row/figure.rs lists them")]
    Name(String),
    /// The figure has no values for each second.
    #[error(
        "the figure {0:?} has no values for each second: the list in crates/lab/src/row/series.rs has those that do"
    )]
    NotOverTime(String),
    /// The value is no number, or infinite.
    #[error("the figure {0} is not finite: leave it out where nothing was measured")]
    Value(String),
}

/// Values of figures by name. Each name has a definition, each value is finite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Sets a figure, in the unit of its definition.
    ///
    /// # Errors
    /// The name has no definition, or the value is not finite.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), UnknownFigure> {
        if definition(name).is_none() {
            return Err(UnknownFigure::Name(name.into()));
        }
        if !value.is_finite() {
            return Err(UnknownFigure::Value(name.into()));
        }
        self.0.insert(name.into(), value);
        Ok(())
    }

    /// Removes a figure.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns a figure in the unit of its definition.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Returns the largest of the labelled figures of this name, such as `server.thread/`, with its label.
    pub fn largest(&self, name: &str) -> Option<(&str, f64)> {
        let labelled = self.0.iter().filter_map(|(key, value)| Some((key.strip_prefix(name)?, *value)));
        labelled.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns all figures in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// Form of a figure in a row.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    value: f64,
    unit: Unit,
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().filter_map(|(name, value)| {
            let unit = definition(name)?.unit;
            Some((name, Written { value: *value, unit }))
        }))
    }
}

impl<'de> Deserialize<'de> for Figures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Figures;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("figures by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Figures, A::Error> {
                let mut figures = Figures::default();
                while let Some((name, written)) = map.next_entry::<String, Written>()? {
                    let unit = definition(&name).map(|definition| definition.unit);
                    if let Some(unit) = unit.filter(|unit| *unit != written.unit) {
                        return Err(A::Error::custom(format!("{name} is in {unit}, not in {}", written.unit)));
                    }
                    if figures.0.contains_key(&name) {
                        return Err(A::Error::custom(format!("{name} stands twice")));
                    }
                    figures.set(&name, written.value).map_err(A::Error::custom)?;
                }
                Ok(figures)
            }
        }

        deserializer.deserialize_map(Reader)
    }
}
