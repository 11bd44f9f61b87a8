//! Search for the rows that a database refuses for their values: a refused group is halved until each such row is
//! alone.
//!
//! In a group of `n` rows, one bad row costs `2 log2(n)` attempts, and any number of bad rows costs at most `2n`
//! attempts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use strowger_store::accounting::cdr::Row;
use strowger_store::accounting::sink::{Sink, SinkError, Trouble};

/// Results of the first rows of a group, in order. The other rows were not written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteResults {
    /// Reason of the refusal of each row. `None`: the row is written.
    pub(crate) refusals: Vec<Option<String>>,
    /// Failure that affects all rows.
    pub(crate) trouble: Option<SinkError>,
}

/// Writes rows. Stops after `most`, but not before the first row has a result.
pub(crate) fn write(sink: &mut dyn Sink, rows: &[Box<Row>], now: u64, most: Duration) -> WriteResults {
    let (began, mut outcome) = (Instant::now(), WriteResults::default());
    // This is a stack, and the first group is its last element.
    let mut waiting = vec![rows];
    while let Some(group) = waiting.pop() {
        match caught(|| sink.write(group, now)) {
            Ok(()) => outcome.refusals.extend(group.iter().map(|_| None)),
            Err(error) if error.kind == Trouble::Row && group.len() > 1 => {
                let (first, second) = group.split_at(group.len() / 2);
                waiting.extend([second, first]);
            }
            Err(error) if error.kind == Trouble::Row => outcome.refusals.push(Some(error.detail)),
            Err(error) => {
                outcome.trouble = Some(error);
                break;
            }
        }
        if !outcome.refusals.is_empty() && began.elapsed() >= most {
            break;
        }
    }
    outcome
}

/// Runs work and turns a panic of a driver into an error: the rows wait, and the thread continues.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, SinkError>) -> Result<T, SinkError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let detail = "the driver panicked, which is an error of this program".into();
        Err(SinkError { kind: Trouble::Unusable, detail })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_store::accounting::cdr::Cdr;

    /// Table that refuses some rows, and all rows after `most` attempts.
    struct Picky {
        refuses: fn(usize) -> bool,
        written: Vec<String>,
        attempts: usize,
        most: usize,
    }

    impl Sink for Picky {
        fn place(&self) -> String {
            "a picky place".into()
        }

        fn open(&mut self) -> Result<(), SinkError> {
            Ok(())
        }

        fn write(&mut self, rows: &[Box<Row>], _now: u64) -> Result<(), SinkError> {
            self.attempts += 1;
            let error = |kind, detail: &str| Err(SinkError { kind, detail: detail.into() });
            if self.attempts > self.most {
                return error(Trouble::Unreachable, "gone");
            }
            if let Some(row) = rows.iter().find(|row| (self.refuses)(row.identity().parse().unwrap())) {
                return error(Trouble::Row, row.identity());
            }
            self.written.extend(rows.iter().map(|row| row.identity().to_owned()));
            Ok(())
        }

        fn purge(&mut self, _before: u64) -> Result<bool, SinkError> {
            Ok(false)
        }
    }

    fn run(count: usize, refuses: fn(usize) -> bool, most: usize) -> (Picky, WriteResults) {
        let row = |n: usize| Box::new(Row::Cdr(Cdr { identity: n.to_string(), ..Cdr::default() }));
        let rows: Vec<Box<Row>> = (0..count).map(row).collect();
        let mut picky = Picky { refuses, written: Vec::new(), attempts: 0, most };
        let outcome = write(&mut picky, &rows, 0, Duration::from_secs(60));
        (picky, outcome)
    }

    #[test]
    fn a_bad_row_is_found_by_few_attempts_and_the_others_are_written_in_order() {
        for (refuses, most) in [
            ((|_| false) as fn(usize) -> bool, 1),
            (|n| n == 4_095, 25),
            (|n| n == 0, 25),
            (|n| n == 1_234 || n == 3_000, 50),
            (|n| n % 100 == 7, 1_100),
            (|_| true, 8_191),
        ] {
            let (picky, outcome) = run(4_096, refuses, usize::MAX);
            let refused = |n: usize| refuses(n).then(|| n.to_string());
            assert_eq!(outcome, WriteResults { refusals: (0..4_096).map(refused).collect(), trouble: None });
            let good: Vec<String> = (0..4_096).filter(|n| !refuses(*n)).map(|n| n.to_string()).collect();
            assert_eq!(picky.written, good);
            assert!(picky.attempts <= most, "{}", picky.attempts);
        }
    }

    #[test]
    fn a_trouble_of_all_rows_ends_it_and_no_row_is_refused_for_that() {
        for most in 0..20 {
            let (picky, outcome) = run(64, |n| n == 9, most);
            let trouble = SinkError { kind: Trouble::Unreachable, detail: "gone".into() };
            assert_eq!(outcome.trouble.is_some(), picky.attempts > most);
            assert!(outcome.trouble.is_none_or(|found| found == trouble));
            let refusals = (0..outcome.refusals.len()).map(|n| (n == 9).then(|| n.to_string()));
            assert_eq!(outcome.refusals, refusals.collect::<Vec<_>>());
            let written = outcome.refusals.iter().filter(|refusal| refusal.is_none()).count();
            assert_eq!(picky.written.len(), written);
        }
    }
}
