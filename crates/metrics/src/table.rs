//! The table of metrics: name, kind, unit and meaning of each.

/// Behaviour of a metric, and the rule that combines the values of several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; the values of shards are added.
    Counter,
    /// Goes up and down; the values of shards are added.
    Gauge,
    /// Goes up and down; the highest value of the shards counts.
    Highest,
    /// Distribution of values; the counts of shards are added.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the kind in Prometheus.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge | Self::Highest => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// Combines the values of two shards.
    pub const fn together(self, one: u64, other: u64) -> u64 {
        match self {
            Self::Highest if one > other => one,
            Self::Highest => other,
            _ => one.wrapping_add(other),
        }
    }
}

/// Unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    Number,
    /// Bytes.
    Bytes,
    /// Microseconds, exported to Prometheus as seconds.
    Seconds,
}

impl Unit {
    /// Returns the name for people; empty for a plain number.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Number => "",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name in the log.
    pub field: &'static str,
    /// Name in Prometheus, without the prefix `strowger_` and the suffix `_total` of a counter. Metrics of one family
    /// differ in labels. A family `process_...` is one of Prometheus' own names and has no prefix.
    pub family: &'static str,
    pub kind: MetricKind,
    pub unit: Unit,
    /// Meaning in one sentence; the same for the whole family.
    pub help: &'static str,
    pub labels: &'static [(&'static str, &'static str)],
    /// Labels whose values are known at run time only, such as `shard`.
    pub by: &'static [&'static str],
}

impl Metric {
    /// Returns the full name in Prometheus.
    pub fn name(&self) -> String {
        let total = if self.kind == MetricKind::Counter { "_total" } else { "" };
        let own = if self.family.starts_with("process_") { "" } else { "strowger_" };
        format!("{own}{}{total}", self.family)
    }

    /// Names of the labels.
    pub fn label_names(&self) -> impl Iterator<Item = &'static str> {
        self.labels.iter().map(|(name, _)| *name).chain(self.by.iter().copied())
    }

    /// Returns whether each shard is shown separately.
    pub fn is_by_shard(&self) -> bool {
        self.by.contains(&"shard")
    }
}

/// Creates from one table the numbers that a thread writes (`Count`), their values at a moment, and the rows of
/// [`Metric`].
///
/// A row is `name: MetricKind;`. The kind may be followed by `in Unit`, `as "family" {label = "value"}` and `by shard`, in
/// this order. The second form has values alone, for metrics of the process that are computed on demand.
#[macro_export]
macro_rules! metrics {
    (
        of = $of:literal;
        $(#[$live_meta:meta])* $live_vis:vis struct $live:ident;
        $($rest:tt)*
    ) => {
        $crate::metrics! { @live [$(#[$live_meta])* $live_vis $live] of = $of; $($rest)* }
    };
    (
        values of = $of:literal;
        $($rest:tt)*
    ) => {
        $crate::metrics! { @values of = $of; $($rest)* }
    };
    (
        @live [$(#[$live_meta:meta])* $live_vis:vis $live:ident] of = $of:literal;
        $(#[$meta:meta])* $vis:vis struct $values:ident;
        $(
            $(#[doc = $doc:literal])+
            $name:ident: $kind:ident $(in $unit:ident)? $(as $family:literal)? $({$($label:ident = $value:literal),+})? $(by $shard:ident)?;
        )*
    ) => {
        $(#[$live_meta])*
        #[derive(Debug, Default)]
        // The counters have cache lines of their own: each writing thread has such a structure, and these may be
        // adjacent in memory.
        #[repr(align(128))]
        $live_vis struct $live { $($(#[doc = $doc])+ $live_vis $name: $crate::Count,)* }

        impl $live {
            /// Returns the values of this moment.
            $live_vis fn snapshot(&self) -> $values {
                $values { $($name: self.$name.value(),)* }
            }
        }

        $crate::metrics! {
            @values of = $of;
            $(#[$meta])* $vis struct $values;
            $(
                $(#[doc = $doc])+
                $name: $kind $(in $unit)? $(as $family)? $({$($label = $value),+})? $(by $shard)?;
            )*
        }
    };
    (
        @values of = $of:literal;
        $(#[$meta:meta])* $vis:vis struct $values:ident;
        $(
            $(#[doc = $doc:literal])+
            $name:ident: $kind:ident $(in $unit:ident)? $(as $family:literal)? $({$($label:ident = $value:literal),+})? $(by $shard:ident)?;
        )*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $values { $($(#[doc = $doc])+ pub $name: u64,)* }

        impl $values {
            /// Rows of the table.
            pub const TABLE: &'static [$crate::Metric] = &[$($crate::Metric {
                field: stringify!($name),
                family: $crate::metrics!(@or stringify!($name), $($family)?),
                kind: $crate::MetricKind::$kind,
                unit: $crate::metrics!(@unit $($unit)?),
                help: concat!($($doc),+).trim_ascii(),
                labels: &[$($((stringify!($label), $value)),+)?],
                by: &[$(stringify!($shard))?],
            },)*];

            /// Returns all metrics with their values.
            pub fn each(&self) -> impl Iterator<Item = (&'static $crate::Metric, u64)> + use<> {
                Self::TABLE.iter().zip([$(self.$name),*])
            }
        }

        impl std::ops::AddAssign for $values {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = $crate::MetricKind::$kind.together(self.$name, other.$name);)*
            }
        }

        $crate::metrics! { @log $of $values $($name)* }
    };
    (@log "" $values:ident $($name:ident)*) => {};
    (@log $of:literal $values:ident $($name:ident)*) => {
        impl $values {
            /// Logs all values that are not 0 as fields of one event.
            #[allow(dead_code, reason = "what is not logged is still shown")]
            pub fn log(&self, event: &str) {
                tracing::info!(of = $of, $($name = $crate::counted(self.$name),)* "{event}");
            }
        }
    };
    (@or $default:expr,) => { $default };
    (@or $default:expr, $given:literal) => { $given };
    (@unit) => { $crate::Unit::Number };
    (@unit $unit:ident) => { $crate::Unit::$unit };
}
