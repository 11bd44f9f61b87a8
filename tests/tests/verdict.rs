//! Verdict of the generator on itself: do its figures describe the server? Each planted condition has a truth that is known
//! beforehand: the machine kept the generator from its work, or did not. The verdict VALID or INVALID must match that truth.
//!
//! A busy machine can make any generator late. So a witness on the generator's core has a timer of its own, and reads from the kernel
//! how long the generator waited for the core. If the witness was disturbed, an INVALID proves nothing and the run is repeated, in the
//! end before all other work (SCHED_FIFO) if this user may ask for that. Likewise a VALID beside programs on the generator's core is
//! wrong only if the generator did wait for the core.
//!
//! `make test` tries a part of the conditions once, `make test-verdict` tries all of them twenty times.

mod conditions;
mod site;

use std::collections::BTreeSet;
use std::time::Instant;

use strowger_tests::alone;
use strowger_tests::generator::Ran;
use strowger_tests::plant::{Scheduling, Testimony, Witness, may_be_real_time};

use conditions::{CONDITIONS, Condition, Truth};
use site::Site;

/// Result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptResult {
    /// The verdict is the truth.
    Right,
    /// The verdict is not the truth, but the machine spoilt the attempt: it delayed the generator by itself, or the planted condition
    /// did not delay it.
    Disturbed,
    Wrong,
}

fn thresholds(reasons: &serde_json::Value) -> Vec<String> {
    let of = |reason: &serde_json::Value| reason["threshold"].as_str().unwrap_or_default().to_owned();
    reasons.as_array().map(|all| all.iter().map(of).collect()).unwrap_or_default()
}

/// Compares a report with the truth.
fn judge(truth: Truth, ran: &Ran, testimony: Testimony) -> (AttemptResult, String) {
    let valid = ran.json["verdict"]["valid"].as_bool();
    let generator = &ran.json["generators"][0];
    let reasons = thresholds(&generator["reasons"]);
    let windows = generator["windows"].as_array().cloned().unwrap_or_default();
    let spoilt: Vec<String> = windows.iter().flat_map(|window| thresholds(&window["reasons"])).collect();
    let named = |by: &[&str], said: &[String]| said.iter().any(|reason| by.contains(&reason.as_str()));
    let code = (ran.code == 4) == (valid == Some(false));
    let right = code
        && match truth {
            Truth::Valid => valid == Some(true),
            Truth::Invalid(by) | Truth::Starved(by) => valid == Some(false) && named(by, &reasons),
            Truth::Spoilt(by) => valid == Some(true) && named(by, &spoilt),
        };
    let outcome = match truth {
        _ if right => AttemptResult::Right,
        _ if valid.is_none() || !code => AttemptResult::Wrong,
        // A disturbance by the machine cannot explain any other wrong VALID.
        Truth::Starved(_) if valid == Some(true) && !testimony.is_starved() => AttemptResult::Disturbed,
        Truth::Valid | Truth::Spoilt(_) if valid == Some(false) && !testimony.is_quiet() => AttemptResult::Disturbed,
        Truth::Valid | Truth::Invalid(_) | Truth::Starved(_) | Truth::Spoilt(_) => AttemptResult::Wrong,
    };
    let said = format!("{truth:?}, said {valid:?} {reasons:?} {spoilt:?}, exit {}, witness {testimony:?}", ran.code);
    (outcome, if outcome == AttemptResult::Wrong { format!("{said}\n{}", ran.said) } else { said })
}

/// Results of a condition.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Number of right verdicts.
    right: usize,
    ordinary: usize,
    /// Number of disturbed attempts.
    disturbed: usize,
    wrong: usize,
}

/// Tries a condition until the machine lets it be judged.
fn judged(condition: &Condition, privileged: bool, tally: &mut Tally) -> Result<(), String> {
    let first = match condition.truth {
        // A generator that was stopped is late, however busy the machine is.
        Truth::Invalid(_) if privileged => Scheduling::RealTime,
        _ => Scheduling::Ordinary,
    };
    let again = if privileged { Scheduling::RealTime } else { Scheduling::Ordinary };
    for scheduling in &[first, again, again, again] {
        let site = Site::new(*scheduling);
        let witness = Witness::on(site.own, site.shown.clone(), site.peers.clone());
        let ran = (condition.plant)(&site);
        let testimony = witness.says();
        if site.missed.get() {
            tally.disturbed += 1;
            continue;
        }
        let (outcome, said) = judge(condition.truth, &ran, testimony);
        match outcome {
            AttemptResult::Right => {
                tally.right += 1;
                tally.ordinary += usize::from(*scheduling == Scheduling::Ordinary);
                return Ok(());
            }
            AttemptResult::Disturbed => {
                eprintln!("passed over ({scheduling:?}): {said}");
                tally.disturbed += 1;
            }
            AttemptResult::Wrong => return Err(format!("{} ({scheduling:?}): {said}", condition.name)),
        }
    }
    Ok(())
}

/// Tries each condition `runs` times and prints the results. No verdict may be wrong, and of several runs at least one must give
/// the right verdict.
fn try_all(conditions: &[&Condition], runs: usize) {
    let (begun, privileged) = (Instant::now(), may_be_real_time());
    let mut wrong = Vec::new();
    let mut rows: Vec<_> = conditions.iter().map(|condition| (*condition, Tally::default())).collect();
    rows.retain(|(condition, _)| privileged || !condition.privileged);
    for run in 1..=runs {
        for (condition, tally) in &mut rows {
            let begun = Instant::now();
            if let Err(said) = judged(condition, privileged, tally) {
                tally.wrong += 1;
                eprintln!("WRONG {said}");
                wrong.push(said);
            }
            eprintln!("{run}/{runs} {} ({:.1} s) {tally:?}", condition.name, begun.elapsed().as_secs_f64());
        }
    }
    eprintln!(
        "\n{:64} {:>8} {:>5} {:>9} {:>9} {:>5}",
        "condition", "truth", "right", "(ordinary)", "disturbed", "wrong"
    );
    for (Condition { name, truth, .. }, Tally { right, ordinary, disturbed, wrong }) in &rows {
        let truth = match truth {
            Truth::Valid => "VALID",
            Truth::Invalid(_) | Truth::Starved(_) => "INVALID",
            Truth::Spoilt(_) => "in part",
        };
        eprintln!("{name:64} {truth:>8} {right:>5} {ordinary:>10} {disturbed:>9} {wrong:>5}");
    }
    let sum = |of: fn(&Tally) -> usize| rows.iter().map(|(_, tally)| of(tally)).sum::<usize>();
    eprintln!(
        "{} conditions in {:.0} s: {} verdicts right, {} wrong; {} runs disturbed",
        rows.len(),
        begun.elapsed().as_secs_f64(),
        sum(|tally| tally.right),
        wrong.len(),
        sum(|tally| tally.disturbed),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let never: Vec<&str> =
        rows.iter().filter(|(_, tally)| tally.right == 0).map(|(condition, _)| condition.name).collect();
    assert!(runs == 1 || never.is_empty(), "the machine was too busy to judge: {}", never.join(", "));
}

#[test]
fn no_verdict_is_wrong() {
    let _alone = alone();
    let runs = std::env::var("STROWGER_VERDICT_RUNS").ok().map(|runs| runs.parse().expect("a number of runs"));
    let wanted = std::env::var("CASE").unwrap_or_default();
    let all = runs.is_some() || !wanted.is_empty();
    let chosen = CONDITIONS.iter().filter(|condition| (all || condition.often) && condition.name.contains(&wanted));
    try_all(&chosen.collect::<Vec<_>>(), runs.unwrap_or(1));
}

#[test]
fn conditions_have_names_of_their_own() {
    let names: BTreeSet<&str> = CONDITIONS.iter().map(|condition| condition.name).collect();
    assert_eq!(names.len(), CONDITIONS.len());
    assert!(names.len() >= 40, "{}", names.len());
    assert!(CONDITIONS.iter().filter(|condition| condition.often).count() >= 12);
}
