//! Every metric of the server is really counted: for each there is a scene that moves it, by exactly the right amount.
//! The list of metrics comes from the documents, so that a metric without a scene is detected.

mod accounting;
mod bindings;
mod caches;
mod calls;
mod connections;
mod datagrams;
mod gateways;
mod kept;
mod lookups;
mod media;
mod passwords;
mod process;
mod refusals;
mod shards;
mod streams;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use strowger_tests::meter::{self, Meter, Shows};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, field, status};
use strowger_tests::wire::Wire;
use strowger_tests::{port, together};

/// Time limit of a step.
const SOON: Duration = Duration::from_secs(10);

/// Server whose metrics are read.
struct Stage {
    server: Server,
    meter: Meter,
    /// Address of its metrics.
    metrics: SocketAddr,
}

impl Stage {
    /// Starts a server of one shard: its events have one order.
    fn start(setup: Setup) -> Self {
        Self::with_users(setup, &[])
    }

    /// Starts a server with users of `example.org`, each with its name as password.
    fn with_users(setup: Setup, users: &[&str]) -> Self {
        Self::with_shards(setup, 1, users)
    }

    fn with_shards(setup: Setup, shards: usize, users: &[&str]) -> Self {
        let address = port::free_address();
        let setup = setup.with(&format!("metrics.listen = \"{address}\"\nserver.shards = {shards}"));
        let mut server = setup.prepare();
        // Before it starts: so it gets no notice of a change.
        users.iter().for_each(|user| server.add_user(&format!("{user}@example.org"), user));
        server.start();
        Self { server, meter: Meter::at(address), metrics: address }
    }

    /// Restarts the stopped server: its counters begin at 0.
    fn restart(&mut self) {
        self.server.start();
        self.meter.begins_again();
    }

    /// See [`Meter::shows`].
    #[track_caller]
    fn shows(&mut self, all: &[(&str, Shows)]) {
        self.meter.shows(all);
    }

    /// Ends the scene: nothing was counted late.
    fn end(mut self) {
        self.meter.rests();
        self.meter.is_clean();
    }
}

/// Gauges that are not 0 while a server runs, or not again so soon.
const NEVER_ZERO: &[&str] = &[
    "accounting_bound",
    "cache_requests_bound",
    "journal_bound",
    "journal_longest_commit_seconds",
    "kept_calls_bytes",
    "lookup_connections",
    "lookups_bound",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "shard_longest_turn_seconds{shard}",
    "shards",
    "udp_only_peers",
    "build_info{version}",
    "call_limit_bound{limit}",
];

/// Counters at bounds that a process reaches late: each with the test that moves it.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "accounting_dropped_total",
        "crates/backend/src/accounting/writer/tests.rs::where_nothing_can_be_written_rows_wait_and_those_beyond_the_bound_are_counted",
    ),
    (
        "call_counts_outdated_total",
        "tests/tests/shared_counts.rs::without_its_cache_a_limit_counts_here_or_lets_no_call_through",
    ),
    ("calls_forgotten_total", "crates/server/tests/policy/bounds.rs::a_logged_call_without_an_end_is_forgotten"),
    ("calls_unlogged_total", "crates/server/tests/policy/bounds.rs::so_many_calls_are_logged_at_a_time"),
    ("journal_refused_total", "crates/store/src/journal/tests.rs::a_full_queue_refuses_and_changes_nothing"),
    (
        "lookups_refused_total",
        "crates/store/src/read_through/tests.rs::a_slow_database_is_answered_for_at_the_deadline",
    ),
    ("media_events_waiting", "crates/net/src/media/tests.rs::many_orders_and_events_pass_full_rings"),
    ("media_packets_dropped_total{reason=\"format\"}", "crates/net/src/media/figures.rs::each_reason_has_its_counter"),
    ("media_packets_dropped_total{reason=\"hold\"}", "crates/net/src/media/figures.rs::each_reason_has_its_counter"),
    ("media_packets_dropped_total{reason=\"jump\"}", "crates/net/src/media/figures.rs::each_reason_has_its_counter"),
    ("media_packets_dropped_total{reason=\"rate\"}", "crates/net/src/media/figures.rs::each_reason_has_its_counter"),
    (
        "media_packets_dropped_total{reason=\"unproven\"}",
        "crates/net/src/media/figures.rs::each_reason_has_its_counter",
    ),
    ("media_packets_unsent_total", "crates/net/src/media/tests.rs::a_packet_that_the_kernel_refuses_is_counted"),
    (
        "media_recording_packets_lost_total",
        "crates/net/src/media/recorder.rs::a_full_ring_loses_packets_and_no_opening_or_end",
    ),
    (
        "media_recordings_failed_total",
        "tests/tests/recording.rs::a_recording_that_cannot_be_written_ends_its_call_alone",
    ),
    (
        "name_addresses_left_out_total",
        "tests/tests/resolving.rs::of_the_addresses_that_a_name_leads_to_as_many_are_tried_as_may_be",
    ),
    ("overload_acks_total", "crates/server/tests/policy/overload.rs::new_requests_are_refused_until_the_overload_ends"),
    (
        "overload_dropped_total",
        "crates/server/tests/policy/overload.rs::of_an_old_datagram_and_its_copy_one_is_answered",
    ),
    (
        "overload_refused_percent",
        "crates/server/tests/policy/overload.rs::new_requests_are_refused_until_the_overload_ends",
    ),
    (
        "overload_refused_total{class=\"call\"}",
        "crates/server/tests/policy/overload.rs::new_requests_are_refused_until_the_overload_ends",
    ),
    (
        "overload_refused_total{class=\"other\"}",
        "crates/server/tests/policy/overload.rs::new_requests_are_refused_until_the_overload_ends",
    ),
    (
        "overload_refused_total{class=\"refresh\"}",
        "crates/server/tests/policy/overload.rs::registrations_are_refused_after_calls_and_refreshes_last",
    ),
    (
        "overload_refused_total{class=\"registration\"}",
        "crates/server/tests/policy/overload.rs::registrations_are_refused_after_calls_and_refreshes_last",
    ),
    ("shards_overloaded", "crates/server/tests/policy/overload.rs::new_requests_are_refused_until_the_overload_ends"),
];

#[test]
fn metrics_without_a_scene_have_a_test() {
    for (metric, test) in ELSEWHERE {
        let (file, name) = test.split_once("::").expect("a file and a name");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text.contains(&format!("fn {name}(")), "{metric}: {test}");
        assert!(documented().contains_key(*metric), "{metric}");
    }
}

#[test]
fn every_metric_moves_by_as_much_as_it_should() {
    let scenes = [
        accounting::SCENES,
        bindings::SCENES,
        caches::SCENES,
        passwords::SCENES,
        lookups::SCENES,
        calls::SCENES,
        kept::SCENES,
        refusals::SCENES,
        connections::SCENES,
        datagrams::SCENES,
        gateways::SCENES,
        process::SCENES,
        media::SCENES,
        shards::SCENES,
        streams::SCENES,
    ];
    together(&scenes.concat());
    if std::env::var_os("CASE").is_some_and(|case| !case.is_empty()) {
        return;
    }
    meter::leave_out(&ELSEWHERE.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let (seen, documented) = (meter::seen(), documented());
    assert!(documented.len() > 120, "{documented:?}");
    let is_missing = |name: &str, kind: &str| {
        let seen = seen.get(name).copied().unwrap_or_default();
        !seen.moved || (kind == "gauge" && !seen.zero && !NEVER_ZERO.contains(&name))
    };
    let missing: Vec<_> = documented.iter().filter(|(name, kind)| is_missing(name, kind)).collect();
    assert!(missing.is_empty(), "no scene moves these, a gauge off 0 and back: {missing:#?}");
    let unknown: Vec<_> = seen.keys().filter(|name| !documented.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "the documents have none of these: {unknown:#?}");
}

/// Returns the metrics in the documents, with their labels and kinds.
fn documented() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("the documents are there");
    let (_, list) = text.split_once("<!-- metrics -->").expect("the list has a beginning");
    let rows = list.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| row.trim_start_matches("strowger_"));
    let metrics = rows.flat_map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (name, kind, labels) = (cells[0].trim_end_matches('`'), cells[1], cells[3]);
        let names = match labels.trim_end_matches(')').split_once(" (") {
            None if labels.trim().is_empty() => vec![name.to_owned()],
            None => vec![format!("{name}{{{}}}", labels.replace(", ", ",").replace('`', "").trim())],
            Some((label, values)) => {
                let label = label.trim_matches('`');
                values.split(", ").map(|value| format!("{name}{{{label}=\"{value}\"}}")).collect()
            }
        };
        names.into_iter().map(|name| (name, kind.to_owned()))
    });
    metrics.collect()
}

fn send(wire: &mut Wire, request: &Request) {
    wire.send(&request.bytes()).expect("the server takes messages");
}

/// Returns the final response to a request that is sent once: a retransmission would be counted.
#[track_caller]
fn ask(wire: &mut Wire, request: &Request) -> Vec<u8> {
    send(wire, request);
    loop {
        let answer = wire.final_response(SOON).expect("an answer");
        if field(&answer, "Via").is_some_and(|via| via.contains(&request.branch)) {
            return answer;
        }
    }
}

/// Returns the status code of the response.
#[track_caller]
fn code(wire: &mut Wire, request: &Request) -> u16 {
    status(&ask(wire, request)).expect("a response")
}
