//! Binary encoding of pages: sparse, numbers of variable length, histograms without loss.
//!
//! A page is a sequence of unsigned numbers in LEB128: second, start, µs covered, calls open, most calls open, start of
//! the first and of the last call; then, each with its length first, counters, failures, requests sent, received and
//! resent by method; responses received and sent, and those that ended a call as a failure, as (method, code, count);
//! delays and timers. The heading of the log names the figures of these lists once (see [`super::layout`]). A delay is
//! the number of its filled buckets, and if that is not 0: sum, squares (an IEEE 754 double, little-endian), least,
//! most, and for each bucket the growth of its lowest value and its count. At the end a list of further numbers: due
//! times of the first and the last call, calls that wait for a place.

use super::layout::{Layout, Places};
use super::page::{Codes, method};
use super::{Delays, Page};

/// Error of bytes that are no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a page: {0}")]
pub struct DecodeError(&'static str);

/// Maximum length of a page's lists. A longer list shows that the page is damaged.
const LONGEST_LIST: u64 = 1 << 20;

pub(super) fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn list(out: &mut Vec<u8>, values: &[u64]) {
    number(out, values.len() as u64);
    values.iter().for_each(|value| number(out, *value));
}

fn codes(out: &mut Vec<u8>, codes: &Codes) {
    number(out, codes.iter().count() as u64);
    for (method, code, count) in codes.iter() {
        number(out, method as u64);
        number(out, u64::from(code));
        number(out, count);
    }
}

fn delays(out: &mut Vec<u8>, delays: &Delays) {
    let buckets = if delays.is_empty() { 0 } else { delays.buckets().count() };
    number(out, buckets as u64);
    if buckets == 0 {
        return;
    }
    number(out, delays.sum());
    out.extend_from_slice(&delays.squares().to_le_bytes());
    number(out, delays.least().unwrap_or_default());
    number(out, delays.most().unwrap_or_default());
    let mut before = 0;
    for (value, count) in delays.buckets() {
        number(out, value - before);
        number(out, count);
        before = value;
    }
}

impl Page {
    /// Appends the page to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.second, self.begun, self.covered, self.open, self.peak, self.first_start, self.last_start] {
            number(out, value);
        }
        list(out, &self.counters);
        list(out, &self.failures);
        list(out, &self.requests_sent);
        list(out, &self.requests_received);
        list(out, &self.requests_resent);
        codes(out, &self.responses_received);
        codes(out, &self.responses_sent);
        codes(out, &self.refusals);
        for all in [&self.delays, &self.timers] {
            number(out, all.len() as u64);
            all.iter().for_each(|one| delays(out, one));
        }
        list(out, &[self.first_due, self.last_due, self.waiting]);
    }

    /// Decodes a page with this many timers that this program has encoded, in place of the current content.
    pub(super) fn restore(&mut self, bytes: &[u8], timers: usize) {
        let read = self.decode(bytes, &Places::of(&Layout::own(), timers));
        debug_assert!(read.is_ok(), "it was encoded here");
    }

    /// Decodes a page in place of the current content, whose memory is reused. `places`: the position of each of the
    /// page's figures.
    pub(super) fn decode(&mut self, bytes: &[u8], places: &Places) -> Result<(), DecodeError> {
        self.clear();
        let mut reader = Reader(bytes);
        self.second = reader.number()?;
        self.begun = reader.number()?;
        self.covered = reader.number()?;
        self.open = reader.number()?;
        self.peak = reader.number()?;
        self.first_start = reader.number()?;
        self.last_start = reader.number()?;
        reader.list(&mut self.counters, &places.counters)?;
        reader.list(&mut self.failures, &places.failures)?;
        reader.list(&mut self.requests_sent, &places.methods)?;
        reader.list(&mut self.requests_received, &places.methods)?;
        reader.list(&mut self.requests_resent, &places.methods)?;
        for codes in [&mut self.responses_received, &mut self.responses_sent, &mut self.refusals] {
            reader.codes(codes, &places.methods)?;
        }
        self.timers.resize_with(places.timer_count, Delays::new);
        let timers: Vec<Option<usize>> = places.timers.iter().map(|place| Some(*place)).collect();
        for (all, places) in [(&mut self.delays, &places.delays), (&mut self.timers, &timers)] {
            for delay in 0..reader.length()? {
                match places.get(delay).copied().flatten().and_then(|place| all.get_mut(place)) {
                    Some(delays) => reader.delays(delays)?,
                    None => reader.delays(&mut Delays::new())?,
                }
            }
        }
        let mut further = [0; 3];
        reader.list(&mut further, &[Some(0), Some(1), Some(2)])?;
        [self.first_due, self.last_due, self.waiting] = further;
        Ok(())
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(DecodeError("it ends in the middle of a number"))?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError("a number is too long"))
    }

    fn length(&mut self) -> Result<usize, DecodeError> {
        let length = self.number()?;
        // Each entry takes at least a byte.
        if length > LONGEST_LIST || length > self.0.len() as u64 {
            return Err(DecodeError("a list is longer than the page"));
        }
        Ok(length as usize)
    }

    fn list(&mut self, values: &mut [u64], places: &[Option<usize>]) -> Result<(), DecodeError> {
        for place in 0..self.length()? {
            let value = self.number()?;
            if let Some(slot) = places.get(place).copied().flatten().and_then(|place| values.get_mut(place)) {
                *slot = value;
            }
        }
        Ok(())
    }

    fn codes(&mut self, codes: &mut Codes, methods: &[Option<usize>]) -> Result<(), DecodeError> {
        for _ in 0..self.length()? {
            let row = usize::try_from(self.number()?).unwrap_or(usize::MAX);
            let row = methods.get(row).copied().flatten().unwrap_or(usize::MAX);
            let code = u16::try_from(self.number()?).unwrap_or(0);
            codes.count(method(row), code, self.number()?);
        }
        Ok(())
    }

    fn delays(&mut self, delays: &mut Delays) -> Result<(), DecodeError> {
        let buckets = self.length()?;
        if buckets == 0 {
            return Ok(());
        }
        let sum = self.number()?;
        let (squares, rest) = self.0.split_first_chunk().ok_or(DecodeError("it ends in the middle of a delay"))?;
        self.0 = rest;
        let squares = f64::from_le_bytes(*squares);
        let (least, most) = (self.number()?, self.number()?);
        if least > most || !squares.is_finite() {
            return Err(DecodeError("a delay contradicts itself"));
        }
        let mut before = 0u64;
        for _ in 0..buckets {
            before = before.saturating_add(self.number()?);
            delays.restore_bucket(before, self.number()?);
        }
        delays.restore_sums(sum, squares, least, most);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::{CallOutcome, Clock, Collector, Counter, Delay, Failure};
    use proptest::prelude::*;
    use std::time::SystemTime;
    use strowger_message::Method;

    fn places(timers: usize) -> Places {
        Places::of(&Layout::own(), timers)
    }

    fn page() -> Page {
        let mut collector = Collector::new(Clock::new(0, SystemTime::now()), vec!["a".into()], 1);
        let mut recorder = collector.recorder(0);
        for n in 0..2_000u64 {
            let at = n * 10;
            let mut call = recorder.call_started(at, at, 0);
            recorder.request_sent(&mut call, at, Method::Invite, 400);
            recorder.response_received(
                &mut call,
                at + n * n,
                Method::Invite,
                if n % 3 == 0 { 486 } else { 200 },
                false,
                300,
            );
            recorder.timer(0, n << 20);
            recorder.refused(Method::Invite, 486);
            recorder.call_ended(
                &mut call,
                at + n * n,
                CallOutcome::Failed(Failure::ALL[n as usize % Failure::ALL.len()]),
            );
        }
        recorder.close(5_000_000);
        collector.finish(|_| {})
    }

    fn same(a: &Page, b: &Page) {
        assert_eq!((a.second, a.covered, a.open, a.peak), (b.second, b.covered, b.open, b.peak));
        assert_eq!((a.begun, a.first_start, a.last_start), (b.begun, b.first_start, b.last_start));
        assert!(Counter::ALL.iter().all(|counter| a.counter(*counter) == b.counter(*counter)));
        assert!(Failure::ALL.iter().all(|failure| a.failures(*failure) == b.failures(*failure)));
        assert!(a.responses_received().iter().eq(b.responses_received().iter()));
        assert!(a.refusals().iter().eq(b.refusals().iter()) && a.refusals().iter().count() > 0);
        assert_eq!((&a.requests_sent, &a.requests_resent), (&b.requests_sent, &b.requests_resent));
        let pairs = Delay::ALL.iter().map(|delay| (a.delays(*delay), b.delays(*delay)));
        for (a, b) in pairs.chain(a.timers().iter().zip(b.timers())) {
            assert!(a.buckets().eq(b.buckets()));
            assert_eq!((a.sum(), a.squares(), a.least(), a.most()), (b.sum(), b.squares(), b.least(), b.most()));
            for percent in [0.0, 50.0, 99.0, 99.99, 100.0] {
                assert_eq!(a.percentile(percent), b.percentile(percent));
            }
        }
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        let (page, mut bytes) = (page(), Vec::new());
        page.encode(&mut bytes);
        let mut back = Page::new(0);
        back.decode(&bytes, &places(1)).unwrap();
        same(&page, &back);
        // Used again, it holds the second page only.
        back.decode(&bytes, &places(1)).unwrap();
        same(&page, &back);
        let mut blank = Vec::new();
        Page::new(1).encode(&mut blank);
        assert!(blank.len() < 220, "a second in which nothing happened takes {} bytes", blank.len());
    }

    #[test]
    fn a_page_cut_short_is_an_error() {
        let mut bytes = Vec::new();
        page().encode(&mut bytes);
        let mut back = Page::new(1);
        for length in (0..bytes.len()).step_by(7) {
            assert!(back.decode(&bytes[..length], &places(1)).is_err(), "{length} of {} bytes", bytes.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_bytes_are_a_page_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Page::new(0).decode(&bytes, &places(3));
        }
    }
}
