//! Formulas of the stress tests of OpenSIPS 1.6.4, tests 3.1 to 3.11.
//!
//! The loads are those of the whole machine, including the database. The rates are those at which a test was stopped, which
//! are not limits of the processor: test 3.1 was stopped at a load of 19.3 %.

/// Rate in calls a second to which loads are scaled: the rate of test 3.1.
pub const SCALE: f64 = 13_000.0;

/// Scales a load in per cent, measured at `rate` calls a second, to [`SCALE`].
///
/// Returns `None` if the rate is zero.
pub fn scaled_load(load: f64, rate: f64) -> Option<f64> {
    (rate > 0.0).then(|| load * SCALE / rate)
}

/// Computes the penalty in per cent of a scaled load against the scaled load of another test.
///
/// Returns `None` if the other test has no load.
pub fn penalty(scaled: f64, base: f64) -> Option<f64> {
    (base > 0.0).then(|| (scaled / base - 1.0) * 100.0)
}

/// Row of the published table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Letter of the test in the chart.
    pub letter: char,
    /// Rate at which the test was stopped, in calls a second.
    pub rate: f64,
    /// Average load in per cent.
    pub load: f64,
    /// Load scaled to 13,000 calls a second, in per cent.
    pub scaled: f64,
    /// Letter that the penalty is against, and the penalty in per cent.
    pub penalty: Option<(char, f64)>,
}

const fn row(letter: char, rate: f64, load: f64, scaled: f64, penalty: Option<(char, f64)>) -> Published {
    Published { letter, rate, load, scaled, penalty }
}

/// Published table: an i7-920 at 2.67 GHz, OpenSIPS 1.6.4 with 32 processes, MySQL on the same machine.
pub const PUBLISHED: [Published; 11] = [
    row('A', 13_000.0, 19.3, 19.3, None),
    row('B', 12_000.0, 20.6, 22.3, Some(('A', 15.5))),
    row('C', 9_000.0, 20.5, 29.6, Some(('B', 32.7))),
    row('D', 9_000.0, 17.1, 24.7, Some(('B', 10.7))),
    row('E', 9_000.0, 22.3, 32.2, Some(('C', 8.7))),
    row('F', 6_000.0, 26.7, 57.8, Some(('E', 79.6))),
    row('G', 6_000.0, 30.3, 65.6, Some(('F', 13.4))),
    row('H', 6_000.0, 18.0, 39.0, Some(('G', -40.5))),
    row('I', 6_000.0, 43.8, 94.9, Some(('G', 44.6))),
    row('J', 6_000.0, 38.7, 83.8, Some(('I', -11.6))),
    row('K', 6_000.0, 28.1, 60.8, Some(('H', 55.8))),
];
