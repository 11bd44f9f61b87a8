//! Check of `docs/metrics.md`, which lists all metrics of the source. With STROWGER_WRITE_DOCS=1 the test writes the list.

use super::table;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use strowger_metrics::{Metric, MetricKind};

const BEGIN: &str = "<!-- metrics -->\n";
const END: &str = "<!-- end of metrics -->\n";

fn list() -> String {
    let mut out = String::from("\n| metric | kind | unit | labels | meaning |\n|---|---|---|---|---|\n");
    let all: Vec<&Metric> = table().collect();
    for family in all.chunk_by(|one, other| one.family == other.family) {
        let metric = family[0];
        let kind = if metric.kind == MetricKind::Highest { MetricKind::Gauge } else { metric.kind }.word();
        let labels: Vec<String> = metric
            .label_names()
            .map(|label| {
                let values = family.iter().flat_map(|metric| metric.labels).filter(|(name, _)| *name == label);
                let values: Vec<&str> = values.map(|(_, value)| *value).collect();
                let values = if values.is_empty() { String::new() } else { format!(" ({})", values.join(", ")) };
                format!("`{label}`{values}")
            })
            .collect();
        let (name, unit, help) = (metric.name(), metric.unit.word(), metric.help);
        let _ = writeln!(out, "| `{name}` | {kind} | {unit} | {} | {help} |", labels.join(", "));
    }
    out.push('\n');
    out
}

#[test]
fn every_metric_is_in_the_documents() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the list has a beginning");
    let (written, after) = rest.split_once(END).expect("the list has an end");
    let list = list();
    if std::env::var_os("STROWGER_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{list}{END}{after}")).unwrap();
        return;
    }
    assert!(
        written == list,
        "docs/metrics.md is not what the source says; STROWGER_WRITE_DOCS=1 writes the list again"
    );
    assert!(table().count() > 100 && list.contains("`transport` (tcp, tls, ws, wss)"));
}

#[test]
fn a_family_has_one_meaning_and_stands_together() {
    let mut families: BTreeMap<&str, (&Metric, usize)> = BTreeMap::new();
    for (place, metric) in table().enumerate() {
        assert!(metric.help.ends_with('.') && metric.help.len() > 10, "{metric:?}");
        if let Some((first, last)) = families.insert(metric.family, (metric, place)) {
            assert_eq!((first.kind, first.unit, first.help), (metric.kind, metric.unit, metric.help), "{metric:?}");
            assert!(last + 1 == place && !metric.labels.is_empty() && first.labels != metric.labels, "{metric:?}");
        }
    }
    assert!(families.len() > 100, "{}", families.len());
}
