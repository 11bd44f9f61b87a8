//! `strowger status` for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use strowger_node::control::{NextHopAside, Status};

use super::duration;

/// Rows of the output: a title, and metrics with their words.
const ROWS: [(&str, &[(&str, &str)]); 13] = [
    ("registrations", &[("strowger_bindings", ""), ("strowger_registered_users", "users")]),
    (
        "calls",
        &[
            ("strowger_calls_tracked", "tracked"),
            ("strowger_calls_logged", "open in the log"),
            ("strowger_requests_unanswered", "requests without an answer"),
        ],
    ),
    (
        "requests",
        &[
            ("strowger_requests_total", "received"),
            ("strowger_requests_forwarded_total", "forwarded"),
            ("strowger_retransmissions_total", "retransmissions"),
        ],
    ),
    (
        "refused",
        &[
            ("strowger_requests_overloaded_total", "by a bound (503)"),
            ("strowger_overload_refused_total", "in an overload (503)"),
            ("strowger_failed_authentications_total", "failed authentications"),
            ("strowger_messages_banned_total", "messages of banned sources"),
        ],
    ),
    (
        "overload",
        &[
            ("strowger_shards_overloaded", "shards overloaded"),
            ("strowger_overload_refused_percent", "% of the work of new requests refused"),
        ],
    ),
    (
        "connections",
        &[
            ("strowger_connections{transport=\"tcp\"}", "TCP"),
            ("strowger_connections{transport=\"tls\"}", "TLS"),
            ("strowger_connections{transport=\"ws\"}", "WS"),
            ("strowger_connections{transport=\"wss\"}", "WSS"),
        ],
    ),
    (
        "database",
        &[
            ("strowger_journal_queued", "changes wait"),
            ("strowger_failed_writes_total", "failed"),
            ("strowger_lookups_in_flight", "look-ups under way"),
            ("strowger_failed_lookups_total", "failed or late"),
        ],
    ),
    (
        "accounting",
        &[
            ("strowger_accounting_written_total", "rows written"),
            ("strowger_accounting_queued", "wait"),
            ("strowger_accounting_spool_rows", "in the spool"),
            ("strowger_accounting_quarantine_rows", "refused"),
            ("strowger_accounting_dropped_total", "lost"),
            ("strowger_accounting_failures_total", "failures"),
        ],
    ),
    (
        "kept calls",
        &[
            ("strowger_kept_calls", "kept"),
            ("strowger_kept_calls_pending", "to be written"),
            ("strowger_kept_calls_failures_total", "failures"),
        ],
    ),
    (
        "data sets",
        &[("strowger_sets_read_total", "read again"), ("strowger_sets_old", "not read when that was last tried")],
    ),
    ("next hops", &[("strowger_targets_aside", "set aside"), ("strowger_target_failures_total", "failures")]),
    ("banned", &[("strowger_sources_banned", "sources")]),
    ("log", &[("strowger_log_lines_lost_total", "lines lost")]),
];

pub(super) fn table(status: &Status) -> String {
    let mut text = format!("Strowger {}, process {}: {}\n", status.version, status.process, status.state);
    let mut line = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<14} {value}");
    };
    line("up", &duration(status.uptime_seconds));
    for (n, listener) in status.listeners.iter().enumerate() {
        line(if n == 0 { "listening" } else { "" }, listener);
    }
    for (name, values) in ROWS {
        let value = |(metric, words): &(&str, &str)| {
            let value = sum(&status.metrics, metric);
            format!("{value} {words}").trim_end().to_owned()
        };
        line(name, &values.iter().map(value).collect::<Vec<_>>().join(", "));
        if name == "next hops" {
            for hop in &status.next_hops_aside {
                let NextHopAside { transport, address, reason, seconds_left } = hop;
                line("", &format!("{transport}:{address} set aside: {reason}, tried again in {seconds_left} s"));
            }
        }
    }
    let memory = status.metrics.get("process_resident_memory_bytes").copied().unwrap_or_default();
    line("memory", &format!("{:.1} MiB", memory / 1_048_576.0));
    for shard in &status.shards {
        let turn = shard.longest_turn_seconds * 1e3;
        let busy = shard.busy_seconds / (status.uptime_seconds.max(1) as f64) * 100.0;
        let buckets = shard.buckets;
        line(
            &format!("shard {}", shard.shard),
            &format!(
                "{busy:.1} % busy since the start, longest turn {turn:.2} ms, {buckets} of 256 buckets, {} bytes in the kernel",
                shard.backlog_bytes
            ),
        );
    }
    text
}

/// Returns the value of a metric. For a name without labels it returns the sum of all its samples.
fn sum(metrics: &BTreeMap<String, f64>, name: &str) -> f64 {
    let is_of = |sample: &str| sample == name || sample.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
    metrics.iter().filter(|(sample, _)| is_of(sample)).map(|(_, value)| value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_are_added_up() {
        let all = [("a_total{b=\"1\"}", 2.0), ("a_total{b=\"2\"}", 3.0), ("a_total_b", 7.0), ("c", 1.0)];
        let all: BTreeMap<String, f64> = all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!([sum(&all, "a_total"), sum(&all, "c"), sum(&all, "a_total{b=\"2\"}")], [5.0, 1.0, 3.0]);
    }

    #[test]
    fn shown_metrics_exist() {
        for (metric, _) in ROWS.iter().flat_map(|(_, values)| *values) {
            let name = metric.split('{').next().unwrap_or_default();
            assert!(strowger_node::metrics::table().any(|row| row.name() == name), "{metric}");
        }
    }
}
