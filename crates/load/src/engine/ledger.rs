//! What each step of a scenario saw: the counts of SIPp's first screen and of `-trace_counts`.

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
    /// Calls that pause here now.
    pub pausing: u64,
    /// Times that an action or `sendCmd` ran here.
    pub passed: u64,
}

/// Counts of one shard.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub steps: Vec<StepCounts>,
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

impl Ledger {
    pub fn new(steps: usize, counters: usize) -> Self {
        Self { steps: vec![StepCounts::default(); steps], counters: vec![0; counters], ..Self::default() }
    }

    /// The sum of both.
    pub fn add(&mut self, other: &Self) {
        if self.steps.len() < other.steps.len() {
            self.steps.resize(other.steps.len(), StepCounts::default());
        }
        if self.counters.len() < other.counters.len() {
            self.counters.resize(other.counters.len(), 0);
        }
        for (a, b) in self.steps.iter_mut().zip(&other.steps) {
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
        self.outgoing += other.outgoing;
        self.incoming += other.incoming;
        self.open += other.open;
        self.peak += other.peak;
        self.successful += other.successful;
        self.failed += other.failed;
    }
}
