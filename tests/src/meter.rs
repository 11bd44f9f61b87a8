//! Exact changes of a server's metrics: counters that are not named must not move either, unless they count traffic.
//!
//! Names are those of `docs/metrics.md` without the prefix `strowger_`. A name stands for all samples that have its
//! labels: a name without labels for all shards, methods or codes together.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::{scrape, wait};

/// Time limit for a metric to show an event.
const PATIENCE: Duration = Duration::from_secs(20);

/// Expected state of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shows {
    /// A counter has grown by exactly this much since the last reading.
    By(u64),
    /// A counter has grown.
    More,
    /// A gauge has this value.
    At(u64),
    /// A gauge is above this value.
    Above(f64),
}

use Shows::{Above, At, By, More};

/// Counters that grow with any traffic: they may move unnamed.
const TRAFFIC: &[&str] = &[
    "answers_total",
    "call_seconds_total",
    "calls_ended_total",
    "calls_total",
    "batches_in_total",
    "batches_out_total",
    "commit_seconds_count",
    "connections_accepted_total",
    "connections_made_total",
    "crossed_in_total",
    "crossed_out_total",
    "datagram_in_bytes_total",
    "datagram_out_bytes_total",
    "datagrams_in_total",
    "datagrams_out_total",
    "gateway_calls_total",
    "journal_groups_total",
    "journal_kept_total",
    "lookup_hits_total",
    "lookup_misses_total",
    "media_busy_seconds_total",
    "media_jitter_seconds_count",
    "media_looks_total",
    "media_max_delay_seconds_count",
    "media_mos_hundredths_total",
    "media_packets_sent_total",
    "media_sent_bytes_total",
    "media_stream_packets_doubled_total",
    "media_stream_packets_lost_total",
    "media_stream_packets_reordered_total",
    "media_stream_packets_total",
    "media_streams_poor_total",
    "media_streams_rated_total",
    "media_streams_total",
    "process_cpu_seconds_total",
    "registrations_total",
    "requests_forwarded_total",
    "requests_total",
    "responses_total",
    "rounds_total",
    "shard_busy_seconds_total",
    "stream_in_bytes_total",
    "stream_messages_in_total",
    "stream_messages_out_total",
    "stream_out_bytes_total",
    "tls_handshakes_total",
    "wakes_total",
];

/// Observations of a metric by the meters of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// True if a counter grew, or a gauge was not 0.
    pub moved: bool,
    /// True if a gauge was 0.
    pub zero: bool,
}

/// Observations by name and labels as in [`written_name`].
static SEEN: Mutex<BTreeMap<String, Seen>> = Mutex::new(BTreeMap::new());

/// Reader of the metrics of one server.
pub struct Meter {
    connect: Box<dyn Fn() -> io::Result<TcpStream> + Send>,
    /// Expected value of every counter.
    expected: BTreeMap<String, f64>,
}

impl Meter {
    /// Creates a meter for a server with its metrics at this address.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn at(address: SocketAddr) -> Self {
        Self::by(move || TcpStream::connect(address))
    }

    /// Creates a meter with connections from this function.
    ///
    /// # Panics
    /// See [`Meter::at`].
    pub fn by(connect: impl Fn() -> io::Result<TcpStream> + Send + 'static) -> Self {
        let mut meter = Self { connect: Box::new(connect), expected: BTreeMap::new() };
        meter.expected = meter.look();
        meter
    }

    /// Starts over: counts so far, of this server or an earlier server, are ignored from now on.
    ///
    /// # Panics
    /// See [`Meter::at`].
    pub fn begins_again(&mut self) {
        self.expected = self.look();
    }

    /// Reads all samples, by name and labels.
    ///
    /// # Panics
    /// See [`Meter::at`].
    pub fn look(&self) -> BTreeMap<String, f64> {
        let samples = scrape::over((self.connect)().expect("the server listens"));
        samples.into_iter().map(|(name, value)| (name.trim_start_matches("strowger_").to_owned(), value)).collect()
    }

    /// Returns the value of a metric.
    ///
    /// # Panics
    /// There is no metric with this name.
    pub fn value(&self, name: &str) -> f64 {
        value(&self.look(), name)
    }

    /// Waits until the metrics have the expected state, and asserts that no other counter has moved, except those that
    /// count [traffic](TRAFFIC).
    ///
    /// # Panics
    /// The metrics do not reach this state within twenty seconds, a counter grows by more, or another one moves.
    #[track_caller]
    pub fn shows(&mut self, all: &[(&str, Shows)]) {
        let mut found = BTreeMap::new();
        let shown = wait::until(PATIENCE, || {
            found = self.look();
            all.iter().all(|(name, shows)| self.is_so(&found, name, *shows))
        });
        let wrong = all.iter().filter(|(name, shows)| !self.is_so(&found, name, *shows));
        let wrong: Vec<String> = wrong
            .map(|(name, shows)| {
                format!("{name}: {shows:?} of {}, is {}", value(&self.expected, name), value(&found, name))
            })
            .collect();
        assert!(shown, "{wrong:#?}\nmoved: {:#?}", self.moved(&found, &[]));
        let named: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let unnamed = self.moved(&found, &named);
        assert!(unnamed.is_empty(), "counters that were not to move: {unnamed:#?}");
        all.iter().for_each(|(name, shows)| note(&found, name, *shows));
        self.expected = found;
    }

    /// Tells whether a metric has this value at some time within `limit`; other metrics may move.
    ///
    /// # Panics
    /// There is no metric with this name.
    pub fn sees(&self, name: &str, shows: Shows, limit: Duration) -> bool {
        let seen = wait::look(limit, || Some(self.look()).filter(|found| self.is_so(found, name, shows)));
        seen.is_some_and(|found| {
            note(&found, name, shows);
            true
        })
    }

    /// Asserts that promtool accepts the metrics.
    ///
    /// # Panics
    /// promtool refuses the metrics.
    pub fn is_clean(&self) {
        scrape::assert_clean(&scrape::text_over((self.connect)().expect("the server listens")));
    }

    /// Asserts that only traffic counters have moved since the last reading, so that no event is counted twice.
    ///
    /// # Panics
    /// A counter has moved.
    #[track_caller]
    pub fn rests(&mut self) {
        self.shows(&[]);
    }

    /// # Panics
    /// A counter has grown by more, so waiting is useless.
    #[track_caller]
    fn is_so(&self, found: &BTreeMap<String, f64>, name: &str, shows: Shows) -> bool {
        let (before, now) = (value(&self.expected, name), value(found, name));
        match shows {
            By(more) => {
                let due = before + more as f64;
                assert!(
                    now <= due,
                    "{name} has grown by {}, not by {more}\nmoved: {:#?}",
                    now - before,
                    self.moved(found, &[])
                );
                now == due
            }
            More => now > before,
            At(exactly) => now == exactly as f64,
            Above(least) => now > least,
        }
    }

    /// Returns the counters that have moved, except these and traffic.
    fn moved(&self, found: &BTreeMap<String, f64>, named: &[&str]) -> Vec<String> {
        let is_counter = |name: &str| name.ends_with("_total") || name.ends_with("_count");
        let moved = found.iter().filter(|(name, now)| {
            let family = family(name);
            let is_free = named.contains(&name.as_str()) || named.contains(&family) || TRAFFIC.contains(&family);
            is_counter(family) && !is_free && **now != self.expected.get(*name).copied().unwrap_or(0.0)
        });
        moved.map(|(name, now)| format!("{name}: {:?} -> {now}", self.expected.get(name))).collect()
    }
}

/// Marks metrics that no meter observes because a requirement is missing; a message was printed.
pub fn leave_out(names: &[&str]) {
    let names = names.iter().map(|name| ((*name).to_owned(), Seen { moved: true, zero: true }));
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
}

/// Returns all observations of the meters of this process so far, by names as in the documents, with labels after them.
pub fn seen() -> BTreeMap<String, Seen> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn note(samples: &BTreeMap<String, f64>, name: &str, shows: Shows) {
    let mut all = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = all.entry(written_name(samples, name)).or_default();
    match shows {
        At(0) => seen.zero = true,
        By(0) => (),
        By(_) | More | At(_) | Above(_) => seen.moved = true,
    }
}

/// Returns a name without its labels.
fn family(name: &str) -> &str {
    name.split('{').next().unwrap_or(name)
}

#[track_caller]
fn value(samples: &BTreeMap<String, f64>, name: &str) -> f64 {
    if let Some(value) = samples.get(name) {
        return *value;
    }
    let own = family(name);
    let of_family: Vec<_> = samples.iter().filter(|(sample, _)| family(sample) == own).collect();
    assert!(!of_family.is_empty(), "there is no metric {name}");
    // Labels without samples yet have the value 0.
    let labels: Vec<&str> = labels(name).collect();
    let is_meant = |sample: &str| labels.iter().all(|wanted| self::labels(sample).any(|label| label == *wanted));
    of_family.iter().filter(|(sample, _)| is_meant(sample)).map(|(_, value)| **value).sum()
}

/// Returns the labels of a sample with their values, which contain no comma and no brace.
fn labels(sample: &str) -> impl Iterator<Item = &str> {
    let labels = sample.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
    labels.split(',').filter(|label| !label.is_empty())
}

/// Labels whose values the documents list.
const LISTED: &[&str] = &["reason", "state", "transport"];

/// Returns a metric's name as in the documents: names of labels without values unless they are listed, and the name of
/// a histogram for its number of observations.
fn written_name(samples: &BTreeMap<String, f64>, name: &str) -> String {
    let family = family(name);
    let label_names: Vec<&str> = samples
        .keys()
        .find(|sample| self::family(sample) == family)
        .map(|sample| labels(sample).filter_map(|label| label.split('=').next()).collect())
        .unwrap_or_default();
    match label_names.iter().any(|label| !LISTED.contains(label)) {
        true => format!("{family}{{{}}}", label_names.join(",")),
        false => ["_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    /// Serves these samples.
    fn served(samples: &Arc<Mutex<String>>) -> Meter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let samples = samples.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                // Reads the whole request: closing a connection with unread bytes resets it, and the written bytes are
                // lost.
                let request = BufReader::new(&stream).lines().map_while(Result::ok);
                request.take_while(|line| !line.is_empty()).for_each(drop);
                let samples = samples.lock().expect("no thread panics while it holds it");
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n";
                let _ = write!(stream, "{head}content-length: {}\r\n\r\n{samples}", samples.len());
            }
        });
        Meter::at(address)
    }

    #[test]
    fn what_moves_too_far_or_unnamed_is_noticed() {
        let first = "strowger_one_total 1\nstrowger_two_total 5\nstrowger_rounds_total{shard=\"0\"} 9\nstrowger_rounds_total{shard=\"1\"} 9\n";
        let samples = Arc::new(Mutex::new(first.to_owned()));
        let set = |from: &str, to: &str| {
            let mut samples = samples.lock().expect("no thread panics while it holds it");
            *samples = samples.replace(from, to);
        };
        let mut meter = served(&samples);
        meter.rests();
        set("one_total 1", "one_total 3");
        set("rounds_total{shard=\"1\"} 9", "rounds_total{shard=\"1\"} 10");
        let fails =
            |meter: &mut Meter, all: &[(&str, Shows)]| catch_unwind(AssertUnwindSafe(|| meter.shows(all))).is_err();
        assert!(
            fails(&mut meter, &[])
                && fails(&mut meter, &[("one_total", By(1))])
                && fails(&mut meter, &[("three", At(0))])
        );
        meter.shows(&[("one_total", By(2)), ("rounds_total", By(1)), ("two_total", At(5)), ("two_total", Above(4.0))]);
        let seen = seen();
        assert_eq!(
            (seen["one_total"], seen["rounds_total{shard}"]),
            (Seen { moved: true, zero: false }, Seen { moved: true, zero: false })
        );
        assert_eq!(seen["two_total"], Seen { moved: true, zero: false });
        // The change was seen before, and is not counted once more.
        set("one_total 3", "one_total 4");
        assert!(catch_unwind(AssertUnwindSafe(|| meter.rests())).is_err());
    }
}
