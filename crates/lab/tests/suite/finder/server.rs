//! Synthetic servers in simulated time.

use std::time::Duration;
use strowger_lab::finder::TrialOutcome;

/// Server with a known capacity.
pub(super) trait Server {
    /// Returns the load that the server carries now, in calls a second.
    fn capacity(&self) -> f64;

    /// Returns the outcome of a trial.
    fn serve(&mut self, load: f64, duration: Duration) -> TrialOutcome;
}

/// Seeded random numbers (splitmix64).
#[derive(Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a random number from 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.share() * (high - low)
    }

    /// Draws a capacity whose logarithm is uniform.
    pub(super) fn capacity(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.share()).ln() / rate
    }
}

/// Creates the figures of failed calls (a share from 0 to 1) and of delays in milliseconds: all, first and last third.
pub(super) fn outcome(failed: f64, [p95, first, last]: [f64; 3]) -> TrialOutcome {
    let mut outcome = TrialOutcome::default();
    let figures = [
        ("isa.any", failed * 100.0),
        ("failed", (failed * 1e6).ceil()),
        ("srd.p95", p95 * 1e3),
        ("delay.first", first * 1e3),
        ("delay.last", last * 1e3),
    ];
    for (figure, value) in figures {
        outcome.figures.set(figure, value).expect("a known figure");
    }
    outcome
}

/// Server that accepts this rate of calls and refuses the others.
pub(super) struct Fixed(pub f64);

impl Server for Fixed {
    fn capacity(&self) -> f64 {
        self.0
    }

    fn serve(&mut self, load: f64, _: Duration) -> TrialOutcome {
        outcome((1.0 - self.0 / load).max(0.0), [2.0; 3])
    }
}

/// Server with one worker, exponential service times and an endless queue (M/M/1).
pub(super) struct Queue {
    service_rate: f64,
    random: Random,
}

impl Queue {
    /// Creates a server by its capacity. The 95th percentile of the time in a stationary M/M/1 system is ln 20 / (service
    /// rate - load): 300 ms at the capacity.
    pub(super) fn new(capacity: f64, random: Random) -> Self {
        Self { service_rate: capacity + 20.0_f64.ln() / 0.3, random }
    }
}

impl Server for Queue {
    fn capacity(&self) -> f64 {
        self.service_rate - 20.0_f64.ln() / 0.3
    }

    fn serve(&mut self, load: f64, duration: Duration) -> TrialOutcome {
        let end = duration.as_secs_f64();
        let (mut now, mut work) = (0.0, 0.0_f64);
        let mut delays: [Vec<f64>; 3] = Default::default();
        loop {
            let pause = self.random.exponential(load);
            now += pause;
            if now >= end {
                break;
            }
            work = (work - pause).max(0.0) + self.random.exponential(self.service_rate);
            delays[((now / end * 3.0) as usize).min(2)].push(work * 1e3);
        }
        let p95 = |mut delays: Vec<f64>| {
            delays.sort_by(f64::total_cmp);
            delays.get(delays.len() * 95 / 100).copied().unwrap_or(0.0)
        };
        let all = delays.concat();
        let [first, _, last] = delays;
        outcome(0.0, [p95(all), p95(first), p95(last)])
    }
}

/// Server whose delays rise slowly with the load: 300 ms at the capacity.
pub(super) struct Gradual(pub f64);

impl Server for Gradual {
    fn capacity(&self) -> f64 {
        self.0
    }

    fn serve(&mut self, load: f64, _: Duration) -> TrialOutcome {
        outcome(0.0, [10.0 + 290.0 * (load / self.0).powi(4); 3])
    }
}

/// Server whose capacity changes by up to 20 % both ways from trial to trial.
pub(super) struct Noisy(pub f64, pub Random);

impl Server for Noisy {
    fn capacity(&self) -> f64 {
        self.0
    }

    fn serve(&mut self, load: f64, duration: Duration) -> TrialOutcome {
        Fixed(self.0 * self.1.between(0.8, 1.2)).serve(load, duration)
    }
}

/// Server whose capacity falls with each call that it served.
pub(super) struct Leaking {
    pub fresh: f64,
    pub served: f64,
    /// Seconds of full load in which the capacity falls to 0.37.
    pub seconds: f64,
}

impl Server for Leaking {
    fn capacity(&self) -> f64 {
        self.fresh * (-self.served / (self.fresh * self.seconds)).exp()
    }

    fn serve(&mut self, load: f64, duration: Duration) -> TrialOutcome {
        const PARTS: u32 = 50;
        let part = duration.as_secs_f64() / f64::from(PARTS);
        let mut failed = 0.0;
        for _ in 0..PARTS {
            let carried = load.min(self.capacity());
            self.served += carried * part;
            failed += (load - carried) * part;
        }
        outcome(failed / (load * duration.as_secs_f64()), [2.0; 3])
    }
}

/// Server that carries any load below its capacity for some seconds: its delays grow while the load stays, and it recovers when the load ends.
pub(super) struct Tiring(pub f64);

impl Server for Tiring {
    fn capacity(&self) -> f64 {
        self.0
    }

    fn serve(&mut self, load: f64, duration: Duration) -> TrialOutcome {
        let failed = (1.0 - self.0 / load).max(0.0);
        let last = 5.0 * duration.as_secs_f64();
        outcome(failed, [last, last / 5.0, last])
    }
}
