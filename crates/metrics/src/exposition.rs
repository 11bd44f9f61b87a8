//! Metrics as text for Prometheus (its text format 0.0.4).

use crate::{Metric, MetricKind, Observed, Unit};
use std::fmt::{Display, Write};

/// `Content-Type` of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text under construction; all samples of a family are consecutive.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    /// Name of the current family.
    family: String,
}

impl Exposition {
    /// Begins a family by its full name, unless it is the current one.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        if self.family == name {
            return;
        }
        self.family = name.to_owned();
        let _ = writeln!(self.text, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
    }

    /// Adds a sample of a family.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{}{label}=\"{escaped}\"", if place == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Adds a counter or gauge of the table, with labels besides its own.
    pub fn metric(&mut self, metric: &Metric, more: &[(&str, &str)], value: u64) {
        let name = metric.name();
        self.family(&name, metric.kind.word(), metric.help);
        let labels: Vec<(&str, &str)> = metric.labels.iter().chain(more).copied().collect();
        match metric.unit {
            Unit::Seconds => self.sample(&name, &labels, seconds(value)),
            Unit::Number | Unit::Bytes => self.sample(&name, &labels, value),
        }
    }

    /// Adds a histogram of the table.
    pub fn histogram(&mut self, metric: &Metric, observed: &Observed) {
        debug_assert_eq!(metric.kind, MetricKind::Histogram);
        let name = metric.name();
        self.family(&name, metric.kind.word(), metric.help);
        let (bucket, count) = (format!("{name}_bucket"), observed.count());
        let mut labels: Vec<(&str, &str)> = metric.labels.to_vec();
        for (bound, up_to) in observed.up_to() {
            let bound = seconds(bound).to_string();
            self.sample(&bucket, &[&labels[..], &[("le", &bound)]].concat(), up_to);
        }
        labels.push(("le", "+Inf"));
        self.sample(&bucket, &labels, count);
        labels.pop();
        self.sample(&format!("{name}_sum"), &labels, seconds(observed.sum()));
        self.sample(&format!("{name}_count"), &labels, count);
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.text
    }
}

fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    const METRIC: Metric = Metric {
        field: "taken",
        family: "taken_seconds",
        kind: MetricKind::Counter,
        unit: Unit::Seconds,
        help: "Time that was taken.",
        labels: &[("by", "a \"thief\"")],
        by: &[],
    };

    #[test]
    fn a_family_has_its_words_once_and_seconds_are_seconds() {
        let mut text = Exposition::default();
        text.metric(&METRIC, &[("shard", "0")], 1_500_000);
        text.metric(&METRIC, &[("shard", "1")], 10);
        assert_eq!(
            text.finish(),
            "# HELP strowger_taken_seconds_total Time that was taken.\n\
             # TYPE strowger_taken_seconds_total counter\n\
             strowger_taken_seconds_total{by=\"a \\\"thief\\\"\",shard=\"0\"} 1.5\n\
             strowger_taken_seconds_total{by=\"a \\\"thief\\\"\",shard=\"1\"} 0.00001\n"
        );
    }

    #[test]
    fn a_histogram_has_buckets_that_grow() {
        let histogram = Histogram::default();
        [200, 300, 70_000_000].into_iter().for_each(|n| histogram.observe(n));
        let mut text = Exposition::default();
        text.histogram(&Metric { kind: MetricKind::Histogram, labels: &[], ..METRIC }, &histogram.observed());
        let text = text.finish();
        for line in [
            "# TYPE strowger_taken_seconds histogram",
            "strowger_taken_seconds_bucket{le=\"0.0001\"} 0",
            "strowger_taken_seconds_bucket{le=\"0.00025\"} 1",
            "strowger_taken_seconds_bucket{le=\"60\"} 2",
            "strowger_taken_seconds_bucket{le=\"+Inf\"} 3",
            "strowger_taken_seconds_sum 70.0005",
            "strowger_taken_seconds_count 3",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
