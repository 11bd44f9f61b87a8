//! Counts of each scenario step, for SIPp's first screen and `-trace_counts`.

use strowger_measure::Failure;
use strowger_scenario::Scenario;

/// Counts of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    pub sent: u64,
    pub received: u64,
    pub sent_again: u64,
    pub received_again: u64,
    pub timeouts: u64,
    pub unexpected: u64,
    pub lost: u64,
    /// Calls that pause at this step now.
    pub pausing: u64,
    /// Executions of a step without message: pauses begun, commands sent.
    pub passed: u64,
}

/// Histogram of durations.
#[derive(Clone, Debug, Default)]
pub struct Lengths {
    /// Upper bounds in milliseconds; a last place counts longer durations.
    pub bounds: Vec<u32>,
    pub counts: Vec<u64>,
    pub number: u64,
    /// Sum of milliseconds, and of their squares.
    pub sum: f64,
    pub squares: f64,
}

impl Lengths {
    pub fn new(bounds: &[u32]) -> Self {
        Self { bounds: bounds.to_vec(), counts: vec![0; bounds.len() + 1], ..Self::default() }
    }

    /// Adds a duration in microseconds; whole milliseconds are counted.
    pub fn add(&mut self, micros: u64) {
        let ms = micros / 1_000;
        let place = self.bounds.iter().position(|&b| ms < u64::from(b)).unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        self.number += 1;
        self.sum += ms as f64;
        self.squares += (ms * ms) as f64;
    }

    fn part(&mut self, earlier: &Self) {
        for (a, b) in self.counts.iter_mut().zip(&earlier.counts) {
            *a = a.saturating_sub(*b);
        }
        self.number = self.number.saturating_sub(earlier.number);
        self.sum -= earlier.sum;
        self.squares -= earlier.squares;
    }

    fn join(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.bounds.clone_from(&other.bounds);
            self.counts.resize(other.counts.len(), 0);
        }
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a += b;
        }
        self.number += other.number;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

/// Counts of one shard.
#[derive(Clone, Debug, Default)]
pub struct SippStats {
    pub steps: Vec<StepCounts>,
    /// Counts of the steps of the out-of-call scenario.
    pub aside: Vec<StepCounts>,
    /// Histograms, by timer of the scenario.
    pub timers: Vec<Lengths>,
    pub call_length: Lengths,
    /// Failed calls, by [`Failure`].
    pub failures: Vec<u64>,
    pub out_of_call: u64,
    pub dead_call: u64,
    pub retransmissions: u64,
    pub auto_answered: u64,
    pub warnings: u64,
    pub fatal_errors: u64,
    /// Generic counters.
    pub counters: Vec<u64>,
    /// Calls begun by the schedule and by messages.
    pub outgoing: u64,
    pub incoming: u64,
    pub open: u64,
    pub peak: u64,
    pub successful: u64,
    pub failed: u64,
}

impl SippStats {
    /// Creates empty counts for a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            steps: vec![StepCounts::default(); scenario.steps.len()],
            counters: vec![0; scenario.counters.len()],
            timers: scenario.timers.iter().map(|_| Lengths::new(&scenario.response_time_repartition)).collect(),
            call_length: Lengths::new(&scenario.call_length_repartition),
            failures: vec![0; Failure::ALL.len()],
            ..Self::default()
        }
    }

    /// Adds the steps of a second scenario.
    #[must_use]
    pub(super) fn beside(mut self, aside: Option<&Scenario>) -> Self {
        self.aside = aside.map_or_else(Vec::new, |scenario| vec![StepCounts::default(); scenario.steps.len()]);
        self
    }

    /// Swaps the steps of both scenarios, so that later counts are added to the other scenario.
    pub(super) fn turn(&mut self) {
        std::mem::swap(&mut self.steps, &mut self.aside);
    }

    /// Subtracts the counts of `earlier`. Gauges stay.
    pub fn subtract(&mut self, earlier: &Self) {
        let (steps, aside) = (self.steps.iter_mut().zip(&earlier.steps), self.aside.iter_mut().zip(&earlier.aside));
        for (a, b) in steps.chain(aside) {
            let pairs = [
                (&mut a.sent, b.sent),
                (&mut a.received, b.received),
                (&mut a.sent_again, b.sent_again),
                (&mut a.received_again, b.received_again),
                (&mut a.timeouts, b.timeouts),
                (&mut a.unexpected, b.unexpected),
                (&mut a.lost, b.lost),
                (&mut a.passed, b.passed),
            ];
            pairs.into_iter().for_each(|(new, old)| *new = new.saturating_sub(old));
        }
        for (a, b) in self.timers.iter_mut().zip(&earlier.timers) {
            a.part(b);
        }
        self.call_length.part(&earlier.call_length);
        for (new, old) in self.failures.iter_mut().zip(&earlier.failures) {
            *new = new.saturating_sub(*old);
        }
        for (new, old) in self.counters.iter_mut().zip(&earlier.counters) {
            *new = new.saturating_sub(*old);
        }
        let pairs = [
            (&mut self.out_of_call, earlier.out_of_call),
            (&mut self.dead_call, earlier.dead_call),
            (&mut self.retransmissions, earlier.retransmissions),
            (&mut self.auto_answered, earlier.auto_answered),
            (&mut self.warnings, earlier.warnings),
            (&mut self.fatal_errors, earlier.fatal_errors),
            (&mut self.outgoing, earlier.outgoing),
            (&mut self.incoming, earlier.incoming),
            (&mut self.successful, earlier.successful),
            (&mut self.failed, earlier.failed),
        ];
        pairs.into_iter().for_each(|(new, old)| *new = new.saturating_sub(old));
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        if self.steps.len() < other.steps.len() {
            self.steps.resize(other.steps.len(), StepCounts::default());
        }
        if self.aside.len() < other.aside.len() {
            self.aside.resize(other.aside.len(), StepCounts::default());
        }
        if self.counters.len() < other.counters.len() {
            self.counters.resize(other.counters.len(), 0);
        }
        let (steps, aside) = (self.steps.iter_mut().zip(&other.steps), self.aside.iter_mut().zip(&other.aside));
        for (a, b) in steps.chain(aside) {
            a.sent += b.sent;
            a.received += b.received;
            a.sent_again += b.sent_again;
            a.received_again += b.received_again;
            a.timeouts += b.timeouts;
            a.unexpected += b.unexpected;
            a.lost += b.lost;
            a.pausing += b.pausing;
            a.passed += b.passed;
        }
        for (a, b) in self.counters.iter_mut().zip(&other.counters) {
            *a += b;
        }
        if self.timers.len() < other.timers.len() {
            self.timers.resize(other.timers.len(), Lengths::default());
        }
        for (a, b) in self.timers.iter_mut().zip(&other.timers) {
            a.join(b);
        }
        self.call_length.join(&other.call_length);
        if self.failures.len() < other.failures.len() {
            self.failures.resize(other.failures.len(), 0);
        }
        for (a, b) in self.failures.iter_mut().zip(&other.failures) {
            *a += b;
        }
        self.out_of_call += other.out_of_call;
        self.dead_call += other.dead_call;
        self.retransmissions += other.retransmissions;
        self.auto_answered += other.auto_answered;
        self.warnings += other.warnings;
        self.fatal_errors += other.fatal_errors;
        self.outgoing += other.outgoing;
        self.incoming += other.incoming;
        self.open += other.open;
        self.peak += other.peak;
        self.successful += other.successful;
        self.failed += other.failed;
    }
}
