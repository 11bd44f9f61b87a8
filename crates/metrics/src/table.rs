//! The table of metrics: what each is called, of which kind and unit, and what it means.

/// How a metric behaves, and how those of several shards make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; those of shards are added.
    Counter,
    /// Goes up and down; those of shards are added.
    Gauge,
    /// Goes up and down; of those of shards the highest counts.
    Highest,
    /// How often values of each size came; those of shards are added.
    Histogram,
}

impl Kind {
    /// The word of Prometheus.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge | Self::Highest => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// What two shards have together.
    pub const fn together(self, one: u64, other: u64) -> u64 {
        match self {
            Self::Highest if one > other => one,
            Self::Highest => other,
            _ => one.wrapping_add(other),
        }
    }
}

/// What a metric is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Number,
    /// Bytes.
    Bytes,
    /// Microseconds, which Prometheus is given as seconds.
    Seconds,
}

impl Unit {
    /// For people; empty for things.
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
    /// Its name in the log.
    pub field: &'static str,
    /// Its name for Prometheus, without the `strowger_` in front and the `_total` behind a counter. Metrics of one family differ in labels.
    /// A family `process_...` is one of Prometheus' own names, and has no `strowger_` in front.
    pub family: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// What it means, in one sentence; the same for the whole family.
    pub help: &'static str,
    pub labels: &'static [(&'static str, &'static str)],
    /// Labels whose values are known while the program runs, such as `shard`.
    pub by: &'static [&'static str],
}

impl Metric {
    /// The whole name that Prometheus sees.
    pub fn name(&self) -> String {
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        let own = if self.family.starts_with("process_") { "" } else { "strowger_" };
        format!("{own}{}{total}", self.family)
    }

    /// Names of its labels.
    pub fn label_names(&self) -> impl Iterator<Item = &'static str> {
        self.labels.iter().map(|(name, _)| *name).chain(self.by.iter().copied())
    }

    /// Whether each shard is shown by itself.
    pub fn is_by_shard(&self) -> bool {
        self.by.contains(&"shard")
    }
}

/// Makes of one table the numbers that a thread writes (`Count`), their values at a moment, and the rows of [`Metric`].
///
/// A row is `name: Kind;`, with `in Unit`, `as "family" {label = "value"}` and `by shard` behind the kind where they are needed, in this
/// order. The second form has values alone: of what belongs to the process and is put together when it is asked for.
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
        $live_vis struct $live { $($(#[doc = $doc])+ $live_vis $name: $crate::Count,)* }

        impl $live {
            /// The values of this moment.
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
            /// What each is.
            pub const TABLE: &'static [$crate::Metric] = &[$($crate::Metric {
                field: stringify!($name),
                family: $crate::metrics!(@or stringify!($name), $($family)?),
                kind: $crate::Kind::$kind,
                unit: $crate::metrics!(@unit $($unit)?),
                help: concat!($($doc),+).trim_ascii(),
                labels: &[$($((stringify!($label), $value)),+)?],
                by: &[$(stringify!($shard))?],
            },)*];

            /// Each with its value.
            pub fn each(&self) -> impl Iterator<Item = (&'static $crate::Metric, u64)> + use<> {
                Self::TABLE.iter().zip([$(self.$name),*])
            }
        }

        impl std::ops::AddAssign for $values {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = $crate::Kind::$kind.together(self.$name, other.$name);)*
            }
        }

        $crate::metrics! { @log $of $values $($name)* }
    };
    (@log "" $values:ident $($name:ident)*) => {};
    (@log $of:literal $values:ident $($name:ident)*) => {
        impl $values {
            /// Logs each that is not 0 as a field of one event.
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
