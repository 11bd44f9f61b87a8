//! Formulas against the published figures.

use std::time::Duration;
use strowger_lab::formula::caches::{Memory, response_time, throughput, used_memory};
use strowger_lab::formula::methodology::{
    DELAY_LIMIT, INEFFECTIVE_LIMIT, PACKET_DELAY_LIMIT, call_rate, ineffective_registrations, ineffective_sessions,
    rating_factor,
};
use strowger_lab::formula::overload::{ideal_goodput, refusal_cost};
use strowger_lab::formula::stress::{PUBLISHED, penalty, scaled_load};

fn near(found: Option<f64>, wanted: f64, tolerance: f64) {
    let found = found.expect("the formula is defined here");
    assert!((found - wanted).abs() <= tolerance, "{found} is not {wanted} within {tolerance}");
}

/// Computes with the paper's values: 35.91 KB/s were received from the client, 32.20 KB/s with Memcached.
#[test]
fn throughput_is_the_sum_of_both_directions_over_time() {
    let second = Duration::from_secs(1);
    near(throughput(0, 35_910, second), 35_910.0, 1e-9);
    near(throughput(322_000, 359_100, 10 * second), 35_910.0 + 32_200.0, 1e-9);
    assert_eq!(throughput(1, 1, Duration::ZERO), None);
}

/// Computes with the paper's values: the server has 16 GB, of which 5.76 % were used with the local cache and 6.61 %
/// with Memcached.
#[test]
fn used_memory_subtracts_what_is_available_from_all() {
    const TOTAL: u64 = 16_000_000_000;
    for (used, available) in [(5.76, 15_078_400_000_u64), (6.61, 14_942_400_000)] {
        let memory =
            Memory { free: available - 3_000_000_000, buffers: 1_000_000_000, cache: 2_000_000_000, total: TOTAL };
        near(used_memory(memory), used, 1e-9);
    }
    let memory = Memory { free: 1, buffers: 1, cache: 1, total: 2 };
    assert_eq!(used_memory(memory), None);
    assert_eq!(used_memory(Memory { total: 0, free: 0, buffers: 0, cache: 0 }), None);
}

/// Computes the paper's 0.763 s of call response time.
#[test]
fn response_time_runs_from_invite_to_200() {
    let sent = Duration::from_millis(1_500);
    assert_eq!(response_time(sent, Duration::from_millis(2_263)), Some(Duration::from_millis(763)));
    assert_eq!(response_time(sent, Duration::from_millis(1_499)), None);
}

/// Checks that 600 calls at a time that last 60 s are 10 calls a second. The product, as the formula is printed, would
/// be 36,000.
#[test]
fn a_call_rate_is_calls_over_their_duration() {
    near(call_rate(600.0, Duration::from_secs(60)), 10.0, 1e-12);
    near(call_rate(660.0, Duration::from_secs(60)), 11.0, 1e-12);
    assert_eq!(call_rate(600.0, Duration::ZERO), None);
}

/// Computes with the paper's result that translation from G.711 µ-law to A-law costs about 20 % more CPU.
#[test]
fn the_rating_factor_is_a_percentage_of_the_case_without_translation() {
    near(rating_factor(36.0, 30.0), 120.0, 1e-9);
    near(rating_factor(30.0, 30.0), 100.0, 1e-9);
    assert_eq!(rating_factor(1.0, 0.0), None);
}

#[test]
fn sessions_are_counted_of_the_registered() {
    near(ineffective_registrations(1_000, 900), 10.0, 1e-9);
    // Of 1,000 calls 900 registered, and 882 of them were answered: 2 %, not 11.8 %.
    near(ineffective_sessions(900, 882), 2.0, 1e-9);
    assert_eq!(ineffective_sessions(0, 0), None);
    assert_eq!((DELAY_LIMIT.as_millis(), PACKET_DELAY_LIMIT.as_millis(), INEFFECTIVE_LIMIT), (300, 90, 1.0));
}

#[test]
fn scaled_loads_and_penalties_are_those_of_the_published_table() {
    for row in PUBLISHED {
        let scaled = scaled_load(row.load, row.rate);
        near(scaled, row.scaled, 0.5);
        let Some((base, published)) = row.penalty else { continue };
        let base = PUBLISHED.iter().find(|other| other.letter == base).expect("it is in the table");
        near(penalty(scaled.expect("it has a rate"), scaled_load(base.load, base.rate).expect("too")), published, 0.5);
    }
    assert_eq!(scaled_load(1.0, 0.0), None);
    assert_eq!(penalty(1.0, 0.0), None);
}

/// Computes with a refusal that costs a twentieth of a call.
#[test]
fn the_ideal_goodput_pays_for_refusals() {
    for (multiple, cost, wanted) in [
        (0.5, 0.05, 0.5),
        (1.0, 0.05, 1.0),
        (2.0, 0.05, 1.0 - 0.05 / 0.95),
        (10.0, 0.05, 1.0 - 0.45 / 0.95),
        (10.0, 0.0, 1.0),
    ] {
        let ideal = ideal_goodput(multiple, cost);
        near(ideal, wanted, 1e-9);
        // The work of accepted and refused calls is that of one call.
        if multiple >= 1.0 {
            near(ideal.map(|ideal| ideal + (multiple - ideal) * cost), 1.0, 1e-9);
        }
    }
    // At 21 times the limit the refusals alone take all the time.
    near(ideal_goodput(21.0, 0.05), 0.0, 1e-9);
    // Nothing is refused.
    near(ideal_goodput(0.5, 2.0), 0.5, 1e-9);
    assert_eq!(ideal_goodput(2.0, 1.0), None);
}

#[test]
fn the_cost_of_a_refusal_is_that_of_the_refused_part() {
    // A tenth is accepted at 50 µs each, and the others cost 2 µs each.
    near(refusal_cost(0.1 * 50.0 + 0.9 * 2.0, 0.1, 50.0), 0.04, 1e-9);
    near(refusal_cost(4.0, 0.1, 50.0), 0.0, 1e-9);
    assert_eq!((refusal_cost(50.0, 1.0, 50.0), refusal_cost(5.0, 0.1, 0.0)), (None, None));
}
