//! Span of a log: the whole seconds whose figures are wanted, and the number of these seconds that a log lacks.

use super::Page;

/// Wall-clock seconds (since 1970-01-01 UTC), from one to another, the last one not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub until: u64,
}

impl Span {
    /// Whole log.
    pub const WHOLE: Self = Self { from: 0, until: u64::MAX };

    /// Returns the whole seconds between two moments (µs since 1970-01-01 UTC).
    pub const fn between(from: u64, until: u64) -> Self {
        Self { from: from.div_ceil(1_000_000), until: until / 1_000_000 }
    }

    /// Returns the number of seconds.
    pub const fn seconds(self) -> u64 {
        self.until.saturating_sub(self.from)
    }

    /// Returns whether the page of this second belongs to the span.
    pub const fn has(self, second: u64) -> bool {
        self.from <= second && second < self.until
    }

    /// Returns whether most of the time from `until - interval` to `until` (µs since 1970-01-01 UTC) lies in the span.
    pub(super) const fn has_interval(self, until: u64, interval: u64) -> bool {
        self.has(until.saturating_sub(interval / 2 + 1) / 1_000_000)
    }
}

/// Seconds of a span that the pages of a log cover, wholly or in part.
#[derive(Debug)]
pub(super) struct Coverage {
    span: Span,
    /// First second that no page has reached.
    next: u64,
    /// Seconds before it that no page covers.
    passed_over: u64,
}

impl Coverage {
    pub(super) const fn of(span: Span) -> Self {
        Self { span, next: span.from, passed_over: 0 }
    }

    /// Takes the next page of the log, inside the span or outside of it.
    pub(super) fn page(&mut self, page: &Page) {
        let first = page.second.min(page.begun / 1_000_000);
        let end = page.second.max(page.begun.saturating_add(page.covered).saturating_sub(1) / 1_000_000) + 1;
        self.passed_over += first.min(self.span.until).saturating_sub(self.next);
        self.next = self.next.max(end);
    }

    /// Returns the end of a sentence about the seconds that the log lacks, or `None` if it lacks none, or if the span
    /// is the whole log.
    pub(super) fn gap(&self) -> Option<String> {
        let missing = self.passed_over + self.span.until.saturating_sub(self.next);
        if self.span == Span::WHOLE || missing == 0 {
            return None;
        }
        Some(format!("has no figures of {missing} of the {} seconds wanted", self.span.seconds()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_whole_seconds_between_two_moments() {
        let span = Span::between(9_400_000, 13_999_999);
        assert_eq!((span, span.seconds()), (Span { from: 10, until: 13 }, 3));
        assert_eq!([9, 10, 12, 13].map(|second| span.has(second)), [false, true, true, false]);
        assert_eq!(Span::between(9_400_000, 9_600_000).seconds(), 0);
        // A second that was sampled when it was over, and tenths.
        let ends = [(10_000_000, false), (10_050_000, false), (11_000_000, true), (13_400_000, true)];
        assert!(ends.iter().all(|(end, is_in)| span.has_interval(*end, 1_000_000) == *is_in));
        assert!(span.has_interval(10_100_000, 100_000) && !span.has_interval(10_000_000, 100_000));
        assert!(Span::WHOLE.has(0) && Span::WHOLE.has_interval(0, 0));
    }

    #[test]
    fn seconds_without_a_page_are_counted() {
        let gap = |pages: &[(u64, u64)]| {
            let mut coverage = Coverage::of(Span { from: 10, until: 20 });
            for (begun, covered) in pages {
                let mut page = Page::new(0);
                (page.second, page.begun, page.covered) = (begun / 1_000_000, *begun, *covered);
                coverage.page(&page);
            }
            coverage.gap()
        };
        assert_eq!(gap(&[(9_500_000, 500_000), (10_000_000, 10_000_000)]), None);
        assert_eq!(gap(&[(10_400_000, 9_000_000)]), None);
        let missing = |pages: &[(u64, u64)]| gap(pages).expect("some are missing");
        assert_eq!(missing(&[]), "has no figures of 10 of the 10 seconds wanted");
        assert_eq!(missing(&[(30_000_000, 1_000_000)]), missing(&[]));
        let some = missing(&[(8_000_000, 1_000_000), (12_000_000, 3_000_000), (16_000_000, 1_000_000)]);
        assert_eq!(some, "has no figures of 6 of the 10 seconds wanted");
    }
}
