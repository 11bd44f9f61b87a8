//! Delays, and the histogram of one of them.

use super::table::table;
use hdrhistogram::Histogram;

// Table of delays. "Wire" figures start when the first request is sent; figures "from the intended time" start when the
// schedule wanted it sent, so that they include a stall of generator or server (no coordinated omission). RFC 6076
// defines the wire figures.
table! {
    /// Measured delay, jitter or score. Every time is in microseconds inside, in the requested unit outside.
    Delay:
    /// Name in requirements, JSON and CSV.
    key,
    /// Name for people.
    title,
    /// Source of the definition.
    source,
    /// Start and end.
    definition;

    Registration = "rrd", "Registration request delay", "RFC 6076 4.1",
        "From the first bit of the initial REGISTER sent to the last bit of its 2xx; a challenge (401, 407) and its answer are within. Successful registrations only.";
    RegistrationIntended = "rrd.intended", "Registration request delay, from the intended time", "RFC 6076 4.1, start moved",
        "As rrd, but from the time at which the schedule wanted the REGISTER sent.";
    Setup = "srd", "Session request delay, successful", "RFC 6076 4.3.1",
        "From the first bit of the initial INVITE sent to the last bit of the first provisional response other than 100, or of the 2xx when there was none. Sessions that were answered with 2xx only; a challenge and its answer are within.";
    SetupIntended = "srd.intended", "Session request delay, successful, from the intended time", "RFC 6076 4.3.1, start moved",
        "As srd, but from the time at which the schedule wanted the INVITE sent.";
    SetupFailed = "srd.failed", "Session request delay, failed", "RFC 6076 4.3.2",
        "From the first bit of the initial INVITE sent to the last bit of the first provisional response other than 100, or of the failure (4xx except 401, 402, 407; 5xx; 6xx) when there was none. Sessions refused; a session never answered at all has no delay and counts in isa.";
    SetupFailedIntended = "srd.failed.intended", "Session request delay, failed, from the intended time", "RFC 6076 4.3.2, start moved",
        "As srd.failed, but from the time at which the schedule wanted the INVITE sent.";
    Disconnect = "sdd", "Session disconnect delay, successful", "RFC 6076 4.4.1",
        "From the first bit of the BYE sent to the last bit of its 2xx; a challenge, or a 503 with Retry-After that is tried again, is within.";
    DisconnectFailed = "sdd.failed", "Session disconnect delay, failed", "RFC 6076 4.4.2",
        "From the first bit of the BYE sent to its failure: the expiry of Timer F, or a final response that is neither 2xx nor a challenge nor a 503 with Retry-After.";
    TalkOriginating = "sdt.originating", "Session duration, at the caller", "RFC 6076 4.5.1",
        "From the receipt of the 200 to the INVITE that we sent to the BYE of either side. Early media is outside.";
    TalkTerminating = "sdt.terminating", "Session duration, at the called side", "RFC 6076 4.5.1",
        "From the sending of the 200 to the INVITE that we received to the BYE of either side.";
    TalkFailed = "sdt.failed", "Session duration when the BYE was never answered", "RFC 6076 4.5.2",
        "From the 200 to the INVITE to the expiry of Timer F of the BYE, either side.";
    Response = "response", "Call response time", "common practice",
        "From the first bit of the initial INVITE sent to the last bit of its 2xx.";
    ResponseIntended = "response.intended", "Call response time, from the intended time", "common practice, start moved",
        "As response, but from the time at which the schedule wanted the INVITE sent.";
    FirstResponse = "ttfr", "Time to first response", "common practice",
        "From the first bit of the initial INVITE sent to the last bit of the first response of any kind, 100 included.";
    Request = "request", "Request response time", "common practice",
        "From the first bit of a request that is neither INVITE, REGISTER, BYE, ACK, CANCEL nor PRACK (OPTIONS, MESSAGE, SUBSCRIBE and others) to the last bit of its 2xx.";
    RequestIntended = "request.intended", "Request response time, from the intended time", "common practice, start moved",
        "As request, but from the time at which the schedule wanted the request sent.";
    CallLength = "call.length", "Call length", "SIPp CallLength",
        "From the start of a call's scenario to its end. Successful calls only.";
    Lag = "lag", "Scheduling lag", "generator health",
        "From the moment at which a call could be started, wanted by the schedule and with a place below the limit of concurrent calls, to its start.";
    LimitWait = "wait.limit", "Wait for the limit of concurrent calls", "generator health",
        "From the time at which the schedule wanted a call started to when there was a place for it below the limit of concurrent calls, for calls that had to wait for one.";
    Stall = "stall", "Stall of the generator", "generator health",
        "For how long a shard that had something to do (a timer due, a message in its socket, a round of work begun) did not get the processor; from 10 ms on. Work that takes long is no stall.";
    DisconnectIntended = "sdd.intended", "Session disconnect delay, successful, from the intended time", "RFC 6076 4.4.1, start moved",
        "As sdd, but from the time at which the BYE should have been sent: the end of the pause before it, the arrival of the message that it follows, or the end of the run, where that ends the call.";
    ReceiveLag = "lag.receive", "Lag of receiving", "generator health",
        "From the arrival of a message at this machine, by the kernel's time stamp, to its being read. It is in no other delay: those end with the arrival.";
    SendLag = "lag.send", "Lag of sending", "generator health",
        "From the moment that counts as that of sending to when the kernel had the message: of each round of the generator the longest. Delays begin so much too early at most.";
    TimerLag = "lag.timer", "Lag of timers within calls", "generator health",
        "From the moment at which a pause was to end, or a message was to be sent again, to when the generator came to it.";
    Connect = "connect", "Set-up of a connection", "common practice",
        "From the start of a TCP connection for one call or user to its acceptance by the peer. Delays of requests begin when the connection carries messages; only those from the intended time contain its set-up.";
    Handshake = "handshake", "Handshake of a connection", "common practice",
        "From the acceptance of such a connection to the end of the handshake of TLS, of WebSocket, or of both.";
    MediaMaxDelta = "media.max_delta", "Maximum packet delay", "Wireshark's Max Delta",
        "The longest time between two packets of a received stream, by the kernel's time stamps; one value a stream, when its call ends. Not counted: the time before a packet with the marker, beside comfort noise, and before a packet that is older than the one before it.";
    MediaJitter = "media.jitter", "Mean interarrival jitter", "RFC 3550 6.4.1",
        "The mean of the jitter after each packet of a received stream, telephone events apart; one value a stream, when its call ends.";
    MediaMaxJitter = "media.max_jitter", "Largest interarrival jitter", "RFC 3550 6.4.1",
        "The largest jitter of a received stream, telephone events apart; one value a stream, when its call ends.";
    MediaDeviation = "media.deviation", "Mean deviation of arrivals", "Mean Jitter of earlier Wireshark",
        "The mean difference of the time between two packets of a received stream from that between their timestamps; one value a stream, when its call ends.";
    MediaDelay = "media.delay", "Delay of packets", "common practice",
        "From the sending of a stamped packet by a generator of the same machine to its arrival here, by the kernel's time stamp; one value a packet.";
    MediaRating = "media.rating", "Transmission rating R", "ITU-T G.107",
        "The E-model's rating of a received stream of sound, 0 to 100, from its loss alone: no delay, which one end cannot measure, and the impairment of the codec of most of its packets, G.711 with concealment (Ie 0, Bpl 25.1) or G.729A (Ie 11, Bpl 19); one value a stream, when its call ends. A stream of another codec has none.";
    MediaScore = "media.mos", "Mean opinion score", "ITU-T G.107 annex B",
        "The mean opinion score of media.rating, 1 to 4.5; one value a stream, when its call ends.";
}

/// Upper limit: longer delays are recorded as this (2^40 µs, 12.7 days).
pub const LONGEST: u64 = 1 << 40;

/// Largest value without growth: 2^20 µs, a second. The histogram then takes 90 KB, and 8 KB more for each doubling.
const WARM: u64 = 1 << 20;

/// Histogram of delays in microseconds with three significant digits (HdrHistogram), and the exact sum, sum of squares,
/// minimum and maximum. So mean, minimum, maximum and deviation are exact, and percentiles are correct within a
/// thousandth.
#[derive(Clone, Debug)]
pub struct Delays {
    /// `None` before the first value of a measure that few runs have.
    counts: Option<Histogram<u64>>,
    sum: u64,
    squares: f64,
    least: u64,
    most: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Self::new()
    }
}

/// Creates an empty histogram.
fn histogram() -> Histogram<u64> {
    let mut counts = Histogram::new_with_bounds(1, WARM, 3).expect("1, 2^20 and 3 digits are valid bounds");
    counts.auto(true);
    counts
}

impl Delays {
    /// Creates a histogram that is ready for values.
    pub fn new() -> Self {
        Self { counts: Some(histogram()), ..Self::unused() }
    }

    /// Creates a histogram whose first value allocates it.
    const fn unused() -> Self {
        Self { counts: None, sum: 0, squares: 0.0, least: u64::MAX, most: 0 }
    }

    /// Creates the histogram of this delay in a page. The delays of media take no memory in a run without media.
    pub(super) fn of(delay: Delay) -> Self {
        if delay.is_of_media() { Self::unused() } else { Self::new() }
    }

    /// Records a delay of `us` microseconds.
    #[inline]
    pub fn record(&mut self, us: u64) {
        let us = us.min(LONGEST);
        // With automatic growth only a lack of address space could refuse; sum and extremes stay right even then.
        let _ = self.counts.get_or_insert_with(histogram).record(us);
        self.sum = self.sum.saturating_add(us);
        self.squares += (us as f64) * (us as f64);
        self.least = self.least.min(us);
        self.most = self.most.max(us);
    }

    /// Adds the delays of `other`.
    pub fn add(&mut self, other: &Self) {
        let Some(counts) = other.counts.as_ref().filter(|counts| !counts.is_empty()) else { return };
        let _ = self.counts.get_or_insert_with(histogram).add(counts);
        self.sum = self.sum.saturating_add(other.sum);
        self.squares += other.squares;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }

    /// Clears all figures and keeps the memory.
    pub fn clear(&mut self) {
        if let Some(counts) = self.counts.as_mut().filter(|counts| !counts.is_empty()) {
            counts.reset();
        }
        (self.sum, self.squares, self.least, self.most) = (0, 0.0, u64::MAX, 0);
    }

    pub fn count(&self) -> u64 {
        self.counts.as_ref().map_or(0, Histogram::len)
    }

    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the sum of all delays, µs, exact.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the sum of the squares, µs².
    pub fn squares(&self) -> f64 {
        self.squares
    }

    /// Returns the mean in µs, exact, or `None` without a delay.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.count() as f64)
    }

    /// Returns the standard deviation (of the population) in µs.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        Some((self.squares / self.count() as f64 - mean * mean).max(0.0).sqrt())
    }

    /// Returns the shortest delay in µs, exact.
    pub fn least(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.least)
    }

    /// Returns the longest delay in µs, exact.
    pub fn most(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.most)
    }

    /// Returns the delay that `percent` (0 to 100) of all do not exceed, µs, correct within a thousandth.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let counts = self.counts.as_ref().filter(|counts| !counts.is_empty())?;
        // 99.9 / 100 is a little more than 0.999, but of a thousand delays the result must still be the 999th.
        Some(counts.value_at_quantile(percent / 100.0 * (1.0 - 1e-12)).clamp(self.least, self.most))
    }

    /// Returns the number of delays below `us`, which is exact if `us` is the edge of a bucket (every multiple of 1 ms
    /// below 2 s is near an edge).
    pub fn below(&self, us: u64) -> u64 {
        let of = |counts: &Histogram<u64>| if us == 0 { 0 } else { counts.count_between(0, us - 1) };
        self.counts.as_ref().map_or(0, of)
    }

    /// Returns the filled buckets: (lowest value of the bucket in µs, count), rising.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().flat_map(|counts| {
            counts.iter_recorded().map(move |b| (counts.lowest_equivalent(b.value_iterated_to()), b.count_at_value()))
        })
    }

    /// Adds a bucket of [`Delays::buckets`].
    pub(super) fn restore_bucket(&mut self, value: u64, count: u64) {
        let _ = self.counts.get_or_insert_with(histogram).record_n(value.min(LONGEST), count);
    }

    /// Adds the figures that the buckets lack, after the last of them.
    pub(super) fn restore_sums(&mut self, sum: u64, squares: f64, least: u64, most: u64) {
        self.sum = self.sum.saturating_add(sum);
        self.squares += squares;
        self.least = self.least.min(least);
        self.most = self.most.max(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Page;

    #[test]
    fn one_delay_is_exact_whatever_its_length() {
        for us in [0, 1, 999, 32_000_000, 86_400_000_001] {
            let mut delays = Delays::new();
            delays.record(us);
            assert_eq!(delays.mean(), Some(us as f64));
            assert_eq!((delays.least(), delays.most()), (Some(us), Some(us)));
            for percent in [0.0, 50.0, 99.99, 100.0] {
                assert_eq!(delays.percentile(percent), Some(us));
            }
        }
    }

    #[test]
    fn percentiles_are_right_within_a_thousandth() {
        let mut delays = Delays::new();
        for us in 1..=100_000 {
            delays.record(us * 10);
        }
        for percent in [50.0, 90.0, 95.0, 99.0, 99.9, 99.99] {
            let exact = percent * 10_000.0;
            let found = delays.percentile(percent).unwrap() as f64;
            assert!((found - exact).abs() <= exact / 1000.0, "p{percent}: {found}, exactly {exact}");
        }
        assert_eq!(delays.mean(), Some(500_005.0));
        assert!((delays.deviation().unwrap() - 288_675.13).abs() < 1.0);
        assert_eq!(delays.below(10_000), 999);
    }

    #[test]
    fn media_take_memory_once_there_are_some() {
        let has_memory = |page: &Page, delay: Delay| page.delays(delay).counts.is_some();
        let (mut page, mut sum) = (Page::new(0), Page::new(0));
        assert!(Delay::ALL.iter().all(|delay| has_memory(&page, *delay) != delay.is_of_media()));
        assert_eq!(Delay::ALL.iter().filter(|delay| delay.is_of_media()).count(), 7);
        let unused = page.delays(Delay::MediaScore);
        assert!(unused.is_empty() && unused.below(9) == 0 && unused.percentile(1.0).is_none());
        assert_eq!((unused.mean(), unused.least(), unused.buckets().count()), (None, None, 0));
        sum.add_after(&page);
        assert!(!has_memory(&sum, Delay::MediaScore));
        page.record(Delay::MediaScore, 4_409);
        sum.add_after(&page);
        assert!(has_memory(&sum, Delay::MediaScore) && !has_memory(&sum, Delay::MediaRating));
        let mut bytes = Vec::new();
        sum.encode(&mut bytes);
        let mut back = Page::new(0);
        back.restore(&bytes, 0);
        for page in [&sum, &back] {
            let scores = page.delays(Delay::MediaScore);
            assert_eq!((scores.count(), scores.percentile(50.0), scores.below(5_000)), (1, Some(4_409), 1));
        }
        // The memory of a page that is used again stays.
        page.clear();
        assert!(has_memory(&page, Delay::MediaScore) && page.delays(Delay::MediaScore).is_empty());
    }

    #[test]
    fn sums_and_clearing() {
        let (mut a, mut b) = (Delays::new(), Delays::new());
        a.record(5);
        b.record(7_000_000);
        a.add(&b);
        assert_eq!((a.count(), a.least(), a.most(), a.sum()), (2, Some(5), Some(7_000_000), 7_000_005));
        a.clear();
        assert!(a.is_empty() && a.percentile(50.0).is_none() && a.mean().is_none());
        a.add(&b);
        assert_eq!(a.most(), Some(7_000_000));
    }
}
