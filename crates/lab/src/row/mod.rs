//! Rows: the result of one trial, one JSON line each.
//!
//! A trial is one system under one load for one window. Figures, tables and comparisons are made from rows alone.
//!
//! ```
//! use strowger_lab::row::{Load, LoadUnit, Profile, Row, System, read};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let load = Load { value: 1_000.0, unit: LoadUnit::Calls };
//! let mut row = Row::new("relay", System::new("strowger", "0.1.0"), load, Profile::Quick, b"the configuration");
//! row.figures.set("server.cpu.call", 71.5)?;
//! let rows = read("rows.jsonl", &row.to_line())?;
//! assert_eq!(rows, [row]);
//! # Ok(())
//! # }
//! ```

mod digest;
mod figure;
mod limit;
mod reading;
mod series;
mod validity;

pub use digest::Digest;
pub use figure::{Better, DEFINITIONS, Definition, Figures, Scaling, Unit, UnknownFigure, definition};
pub use limit::FoundLimit;
pub use reading::{complete, read};
pub use series::{OVER_TIME, Series, may_lack};
pub use validity::{Check, Reason, Validity};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Format version of a row. Bump on every change that an older reader would misread.
pub const FORMAT: u32 = 1;

/// Result of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Format version, see [`FORMAT`].
    pub format: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// System under test.
    pub system: System,
    /// Values of the axes that the experiment varies, besides system and load.
    pub axes: BTreeMap<String, AxisValue>,
    /// Offered load.
    pub load: Load,
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Profile that set the durations.
    pub profile: Profile,
    /// Measured figures.
    pub figures: Figures,
    /// Values of figures for each second of the window, if the experiment shows them over time.
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub series: Series,
    /// Limit of a search. Only the row that ends a search has one; its load is 0, and its figures are those of the trial that confirmed
    /// the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<FoundLimit>,
    /// Verdict on the trial.
    pub validity: Validity,
    /// Hash of the configuration that the system ran with.
    pub configuration: Digest,
}

impl Row {
    /// Makes a valid row without axes and figures, of the first repetition.
    pub fn new(experiment: &str, system: System, load: Load, profile: Profile, configuration: &[u8]) -> Self {
        Self {
            format: FORMAT,
            experiment: experiment.into(),
            system,
            axes: BTreeMap::new(),
            load,
            repetition: 1,
            profile,
            figures: Figures::default(),
            series: Series::default(),
            limit: None,
            validity: Validity::Valid,
            configuration: Digest::of(configuration),
        }
    }

    /// Returns the row as one line of JSON, without the line feed.
    ///
    /// # Panics
    /// Never: all keys are text and all numbers are finite.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("a row has text as keys and finite numbers")
    }

    /// Returns the cell of the experiment to which the row belongs. Rows of one cell differ only in repetition and
    /// version.
    pub fn cell(&self) -> Cell {
        Cell {
            experiment: self.experiment.clone(),
            system: self.system.name.clone(),
            axes: self.axes.clone(),
            load: self.load,
            profile: self.profile,
        }
    }
}

/// Place of a row in its experiment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the system.
    pub system: String,
    /// Values of the axes.
    pub axes: BTreeMap<String, AxisValue>,
    /// Offered load.
    pub load: Load,
    /// Profile that set the durations.
    pub profile: Profile,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.experiment, self.system)?;
        for (name, value) in &self.axes {
            write!(f, " {name}={value}")?;
        }
        write!(f, " at {}", self.load)
    }
}

/// System under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Name in the experiment.
    pub name: String,
    /// Version that the system states.
    pub version: String,
}

impl System {
    /// Makes a system of this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into() }
    }
}

/// Value of an axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AxisValue {
    /// Number, such as 16 workers.
    Number(f64),
    /// Text, such as the name of a cache.
    Text(String),
}

impl PartialEq for AxisValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for AxisValue {}

impl PartialOrd for AxisValue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AxisValue {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => std::cmp::Ordering::Less,
            (Self::Text(_), Self::Number(_)) => std::cmp::Ordering::Greater,
        }
    }
}

impl fmt::Display for AxisValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Offered load: a rate, or a count of calls or connections that exist at a time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Amount in `unit`.
    pub value: f64,
    /// Unit of the amount.
    pub unit: LoadUnit,
}

impl Load {
    /// Returns the number of calls or connections that exist at a time, or `None` if the load is a rate.
    pub fn at_a_time(&self) -> Option<f64> {
        (!self.unit.is_rate()).then_some(self.value)
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Load {}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.unit.cmp(&other.unit).then(self.value.total_cmp(&other.value))
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.value, self.unit)
    }
}

/// Defines an enum of words, and derives its serde form, `ALL`, `word`, `Display` and `FromStr` from one list.
macro_rules! words {
    ($(#[$doc:meta])+ $name:ident { $( $(#[$variant_doc:meta])+ $variant:ident = $word:literal, )+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $( $(#[$variant_doc])+ #[serde(rename = $word)] $variant, )+
        }

        impl $name {
            /// All of them, in the order of this list.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the word in files.
            pub const fn word(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                Self::ALL.iter().copied().find(|one| one.word() == text).ok_or(())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Unit of a load.
    LoadUnit {
        /// Calls begun in a second.
        Calls = "calls/s",
        /// REGISTER requests of new or refreshed bindings in a second.
        Registrations = "registrations/s",
        /// Requests in a second that belong to no call, such as OPTIONS.
        Requests = "requests/s",
        /// Calls that exist at a time.
        Concurrent = "calls",
        /// Connections that exist at a time.
        Connections = "connections",
    }
}

impl LoadUnit {
    /// Tells whether the load is a rate.
    pub const fn is_rate(self) -> bool {
        matches!(self, Self::Calls | Self::Registrations | Self::Requests)
    }
}

words! {
    /// Set of durations that a run uses.
    Profile {
        /// Two loads a figure, within three minutes; no figure is judged.
        Smoke = "smoke",
        /// Half an hour for all experiments of Strowger, an hour for all systems.
        Quick = "quick",
        /// Seven and a half hours for all experiments and systems.
        Standard = "standard",
        /// Durations of the published measurements.
        Paper = "paper",
    }
}

impl Profile {
    /// Reads a profile's word.
    ///
    /// # Errors
    /// The sentence that names the words.
    pub fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text).map_err(|()| {
            let words: Vec<&str> = Self::ALL.iter().map(|profile| profile.word()).collect();
            format!("there is no profile {text:?}: the profiles are {}", words.join(", "))
        })
    }
}
