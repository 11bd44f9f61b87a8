//! Comparison of runs.

use strowger_lab::compare::{Claim, Comparison, Decision, FLOOR, Run, Withheld, compare};
use strowger_lab::row::{AxisValue, Check, Load, LoadUnit, Profile, Reason, Row, System, Validity};

/// Seeded random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.share() * (high - low)
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

/// Repetitions of a cell in a run, and trials of the floor at its start and end.
const REPETITIONS: u32 = 10;
const FLOORS: u32 = 6;

/// Shared machine during a run: all programs cost more or less for the length of the run, and from trial to trial.
struct Machine {
    random: Random,
    run: f64,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let run = (0.03 * random.normal()).exp();
        Self { random, run }
    }

    /// Returns the factor on the cost of a trial. 5 to 15 % of the time is stolen, which empties caches for a part of the
    /// trial; one trial in twenty has a busy neighbour.
    fn trial(&mut self) -> f64 {
        let stolen = self.random.between(0.05, 0.15);
        let neighbour = if self.random.share() < 0.05 { self.random.between(0.05, 0.15) } else { 0.0 };
        self.run * (1.0 + 0.2 * stolen + neighbour) * (0.02 * self.random.normal()).exp()
    }
}

fn row(system: &str, repetition: u32, figures: &[(&str, f64)]) -> Row {
    let load = Load { value: 1_000.0, unit: LoadUnit::Calls };
    let mut row = Row::new("relay", System::new(system, "1.0"), load, Profile::Standard, b"");
    row.axes.insert("scenario".into(), AxisValue::Text("relay".into()));
    row.repetition = repetition;
    for (figure, value) in figures {
        row.figures.set(figure, *value).expect("a known figure");
    }
    row
}

/// Returns the rows of a run in which the server costs 75 µs a call on a quiet machine, times `slower`.
fn run(seed: u64, slower: f64) -> Vec<Row> {
    let mut machine = Machine::new(seed);
    let floor = |from: u32, machine: &mut Machine| -> Vec<Row> {
        (from..from + FLOORS).map(|n| row(FLOOR, n, &[("server.cpu.call", 50.0 * machine.trial())])).collect()
    };
    let start = floor(1, &mut machine);
    let trials = (1..=REPETITIONS).map(|n| row("strowger", n, &[("server.cpu.call", 75.0 * slower * machine.trial())]));
    let trials: Vec<Row> = trials.collect();
    let end = floor(1 + FLOORS, &mut machine);
    [start, trials, end].concat()
}

fn of(before: &[Row], after: &[Row]) -> Comparison {
    let run = |name, rows| Run { name, machine: "two cores", rows };
    compare(run("before", before), run("after", after))
}

/// Counts the wanted claims among 20 pairs of runs of this batch.
fn claims(batch: u64, slower: f64, wanted: &[Claim]) -> usize {
    (0..20)
        .filter(|pair| {
            let seed = (batch * 20 + pair) * 2;
            let compared = of(&run(seed, 1.0), &run(seed + 1, slower));
            assert_eq!(compared.lines.len(), 1);
            wanted.contains(&compared.lines[0].claim)
        })
        .count()
}

/// Checks the claims of the first 20 pairs, and the rate of claims of ten times this number.
#[test]
fn equal_runs_claim_no_difference_and_ten_per_cent_is_claimed() {
    let equal: Vec<usize> = (0..10).map(|batch| claims(batch, 1.0, &[Claim::Worse, Claim::Better])).collect();
    assert!(
        equal[0] <= 1 && equal.iter().sum::<usize>() <= 6,
        "equal pairs of 20 that are claimed to differ: {equal:?}"
    );
    let slower: Vec<usize> = (0..10).map(|batch| claims(batch, 1.10, &[Claim::Worse])).collect();
    assert!(slower[0] >= 18 && slower.iter().sum::<usize>() >= 185, "slowed pairs of 20 that are claimed: {slower:?}");
}

/// Checks that nothing is claimed if the whole machine is a tenth slower and the floor shows it.
#[test]
fn a_slower_machine_is_no_slower_server() {
    let values = [0.99, 1.0, 1.01, 1.0, 1.005];
    let rows = |factor: f64| -> Vec<Row> {
        let of = |system: &str, cost: f64| -> Vec<Row> {
            let figures = |noise| [("server.cpu.call", cost * noise * factor), ("server.pss", 1e7)];
            (1..).zip(values).map(|(n, noise)| row(system, n, &figures(noise))).collect()
        };
        [of(FLOOR, 50.0), of("strowger", 75.0)].concat()
    };
    let compared = of(&rows(1.0), &rows(1.1));
    assert_eq!(compared.lines[0].claim, Claim::None, "{compared}");
    assert!((compared.lines[0].floor.expect("both have floors") - 1.1).abs() < 1e-9);
    // Beyond 15 % the floor itself is in doubt.
    let compared = of(&rows(1.0), &rows(1.2));
    // So nothing is claimed, of memory either.
    assert!(compared.lines.iter().all(|line| line.claim == Claim::Withheld(Withheld::Floors)), "{compared}");
    assert_eq!((compared.decision(), compared.decision().exit_code()), (Decision::Nothing, 4));
    assert!(compared.to_string().contains("the floors differ by more than 15 %"), "{compared}");
}

/// Judges each figure by its direction and by its relation to the speed of the machine.
#[test]
fn the_direction_of_a_figure_says_what_is_worse() {
    let rows = |factor: f64| -> Vec<Row> {
        let noise = |n: u32| 1.0 + 0.002 * f64::from(n % 3);
        let floor = (1..=5).map(|n| row(FLOOR, n, &[("server.cpu.call", 50.0 * noise(n))]));
        let system = (1..=5).map(|n| {
            let value = 100.0 * factor * noise(n);
            row(
                "strowger",
                n,
                &[("server.cpu.call", value), ("limit", value), ("server.pss", value), ("attempts", value)],
            )
        });
        floor.chain(system).collect()
    };
    let claims = |after: f64| -> Vec<(String, Claim)> {
        of(&rows(1.0), &rows(after)).lines.into_iter().map(|line| (line.figure, line.claim)).collect()
    };
    let expected = |cost, limit| -> Vec<(String, Claim)> {
        [("limit", limit), ("server.cpu.call", cost), ("server.pss", cost)]
            .map(|(name, claim)| (name.to_owned(), claim))
            .into()
    };
    assert_eq!(claims(1.1), expected(Claim::Worse, Claim::Better));
    assert_eq!(claims(0.9), expected(Claim::Better, Claim::Worse));
    assert_eq!(of(&rows(1.0), &rows(0.9)).decision().exit_code(), 1);
    assert_eq!(of(&rows(1.0), &rows(1.0)).decision().exit_code(), 0);
}

#[test]
fn nothing_is_claimed_without_the_same_machine_a_floor_and_repetitions() {
    let (before, after) = (run(1, 1.0), run(2, 1.5));
    let claim = |compared: &Comparison| compared.lines[0].claim;
    let other = Run { name: "after", machine: "four cores", rows: &after };
    let compared = compare(Run { name: "before", machine: "two cores", rows: &before }, other);
    assert_eq!(claim(&compared), Claim::Withheld(Withheld::Machines));
    let without_floor: Vec<Row> = after.iter().filter(|row| row.system.name != FLOOR).cloned().collect();
    assert_eq!(claim(&of(&before, &without_floor)), Claim::Withheld(Withheld::NoFloor));
    let few: Vec<Row> = after.iter().filter(|row| row.system.name == FLOOR || row.repetition <= 1).cloned().collect();
    assert_eq!(claim(&of(&before, &few)), Claim::Withheld(Withheld::Repetitions));
    assert_eq!(claim(&of(&before, &after)), Claim::Worse);
}

#[test]
fn invalid_rows_and_other_cells_are_left_out_and_named() {
    let (before, mut after) = (run(1, 1.0), run(2, 1.0));
    for row in after.iter_mut().filter(|row| row.repetition == 10) {
        row.validity = Validity::of(vec![Reason { check: Check::Neighbour, sentence: "a build ran".into() }]);
        row.figures.set("server.cpu.call", 1e6).expect("a known figure");
    }
    let mut register = row("strowger", 1, &[("server.cpu.call", 9.0)]);
    register.axes.insert("scenario".into(), AxisValue::Text("register".into()));
    after.push(register);
    let compared = of(&before, &after);
    assert_eq!(compared.lines[0].claim, Claim::None, "{compared}");
    assert_eq!(compared.invalid, [0, 2]);
    assert!(compared.only_before.is_empty());
    assert_eq!(compared.only_after, ["relay strowger scenario=register at 1000 calls/s"]);
    let text = compared.to_string();
    assert!(text.contains("Only in after: relay strowger") && text.contains("not valid: 0 and 2 rows"), "{text}");
    assert_eq!(of(&before, &[]).decision(), Decision::Nothing);
}

/// Checks failed calls whose number was zero before: they have no ratio, and are judged by their order.
#[test]
fn zeros_are_judged_by_their_order() {
    let rows = |failed: [f64; 5]| -> Vec<Row> {
        let values = (1..).zip(failed);
        let floor = (1..=5).map(|n| row(FLOOR, n, &[("server.cpu.call", 50.0)]));
        floor.chain(values.map(|(n, failed)| row("strowger", n, &[("failed", failed)]))).collect()
    };
    let claim = |before, after| of(&rows(before), &rows(after)).lines[0].claim;
    assert_eq!(claim([0.0; 5], [0.0; 5]), Claim::None);
    assert_eq!(claim([0.0; 5], [3.0, 4.0, 3.0, 9.0, 5.0]), Claim::Worse);
    assert_eq!(claim([0.0; 5], [0.0, 0.0, 0.0, 9.0, 0.0]), Claim::None);
    assert_eq!(claim([7.0, 4.0, 3.0, 9.0, 5.0], [0.0; 5]), Claim::Better);
    assert_eq!(claim([0.0; 5], [0.02, 0.021, 0.02, 0.022, 0.02]), Claim::Worse);
}
