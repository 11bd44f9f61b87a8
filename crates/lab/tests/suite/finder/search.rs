//! The default search.

use super::server::{Fixed, Gradual, Leaking, Noisy, Queue, Random, Server, Tiring};
use super::{Found, search};
use std::time::Duration;
use strowger_lab::finder::{Finder, Finding, Goal, Next, Search, Settings};

const SEEDS: u64 = 20;

fn default_search(server: &mut dyn Server) -> Found {
    search(&mut Search::new(Settings::default(), Goal::calls()), server)
}

/// Searches of all seeds, each of which has to be short and careful.
fn searches(make: impl Fn(Random) -> Box<dyn Server>) -> Vec<Found> {
    let found: Vec<Found> = (0..SEEDS).map(|seed| default_search(&mut *make(Random::new(seed)))).collect();
    for found in &found {
        assert!(found.limit.loads <= 18, "{found:?}");
        assert!(found.too_high <= 1, "{found:?}");
    }
    found
}

fn within(found: &[Found], tolerance: f64) -> usize {
    found.iter().filter(|found| found.limit.finding == Finding::Found && found.error() <= tolerance).count()
}

#[test]
fn a_fixed_capacity_is_found_within_five_per_cent() {
    let found = searches(|mut random| Box::new(Fixed(random.capacity(50.0, 20_000.0))));
    assert_eq!(within(&found, 0.05), 20, "{found:#?}");
    for found in found {
        let beyond = found.limit.beyond.expect("a load was too high");
        assert!(beyond <= found.limit.load * 1.06 && beyond > found.capacity, "{:?}", found.limit);
        assert_eq!(found.limit.missed.as_deref(), Some("isa.any"));
        assert!(found.time <= Duration::from_secs(3 * 60), "{:?}", found.time);
    }
}

#[test]
fn the_capacity_of_a_queue_is_found_within_five_per_cent() {
    let found = searches(|mut random| Box::new(Queue::new(random.capacity(400.0, 4_000.0), random)));
    assert_eq!(within(&found, 0.05), 20, "{found:#?}");
}

#[test]
fn a_capacity_is_found_where_delays_rise_slowly() {
    let found = searches(|mut random| Box::new(Gradual(random.capacity(50.0, 20_000.0))));
    assert_eq!(within(&found, 0.05), 20, "{found:#?}");
}

/// Searches on a server that loses 2 to 3 % of its capacity during the search.
#[test]
fn a_capacity_is_found_while_the_server_slowly_degrades() {
    let server = |fresh| Leaking { fresh, served: 0.0, seconds: 3_000.0 };
    let found = searches(|mut random| Box::new(server(random.capacity(50.0, 20_000.0))));
    assert_eq!(within(&found, 0.05), 20, "{found:#?}");
}

#[test]
fn a_capacity_with_twenty_per_cent_of_noise_is_found_within_ten() {
    let found = searches(|mut random| Box::new(Noisy(random.capacity(50.0, 20_000.0), random)));
    assert!(within(&found, 0.10) >= 19, "{found:#?}");
}

#[test]
fn a_server_that_leaks_is_called_unstable() {
    let found = searches_of_leaks(|mut random| {
        let (fresh, seconds) = (random.capacity(50.0, 20_000.0), random.between(40.0, 120.0));
        Box::new(Leaking { fresh, served: 0.0, seconds })
    });
    assert!(found.iter().all(|found| found.limit.finding == Finding::Unstable), "{found:#?}");
    let found = searches_of_leaks(|mut random| Box::new(Tiring(random.capacity(50.0, 20_000.0))));
    assert!(found.iter().all(|found| found.limit.finding == Finding::Unstable), "{found:#?}");
}

/// Checks the time of a brief search, including a second and a half for start and end of the generator in each trial.
#[test]
fn a_brief_search_answers_within_three_minutes() {
    let brief = |server: &mut dyn Server| search(&mut Search::new(Settings::brief(), Goal::calls()), server);
    let took = |found: &Found| found.time.as_secs_f64() + 1.5 * found.limit.trials as f64;
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let found = brief(&mut Fixed(random.capacity(50.0, 20_000.0)));
        assert!(found.error() <= 0.05 && took(&found) <= 180.0, "{} s: {found:?}", took(&found));
        let found = brief(&mut Noisy(random.capacity(50.0, 20_000.0), random));
        assert!(found.error() <= 0.25 && took(&found) <= 240.0, "{} s: {found:?}", took(&found));
    }
}

/// Runs a search for each seed. The capacity of a leaking server is soon below the load of earlier trials, so that the
/// distance of a trial from it cannot be judged.
fn searches_of_leaks(make: impl Fn(Random) -> Box<dyn Server>) -> Vec<Found> {
    (0..SEEDS).map(|seed| default_search(&mut *make(Random::new(seed)))).collect()
}

#[test]
fn a_search_ends_at_the_highest_load_and_below_the_lowest() {
    let settings = Settings { most: 1_000.0, ..Settings::default() };
    let found = search(&mut Search::new(settings.clone(), Goal::calls()), &mut Fixed(3_000.0));
    assert_eq!((found.limit.finding, found.limit.load, found.limit.beyond), (Finding::AtLeast, 1_000.0, None));
    assert_eq!(found.limit.cause.to_string(), "unknown: no load was too high");
    // The first load is too high: lower ones are tried.
    let found = search(&mut Search::new(settings.clone(), Goal::calls()), &mut Fixed(4.0));
    assert_eq!(found.limit.finding, Finding::Found);
    assert!((3.8..=4.05).contains(&found.limit.load), "{found:?}");
    let found = search(&mut Search::new(settings, Goal::calls()), &mut Fixed(0.01));
    assert_eq!((found.limit.finding, found.limit.load), (Finding::Nothing, 0.0));
}

#[test]
fn a_trial_without_a_figure_of_the_goal_carries_nothing() {
    let found = search(&mut Search::new(Settings::default(), Goal::registrations()), &mut Fixed(1_000.0));
    assert_eq!((found.limit.finding, found.limit.missed.as_deref()), (Finding::Nothing, Some("ira.any")));
}

#[test]
fn a_hurried_search_confirms_what_it_knows() {
    let mut server = Fixed(700.0);
    let mut search = Search::new(Settings::default(), Goal::calls());
    let mut trials = 0;
    let limit = loop {
        match search.next() {
            Next::Trial(trial) => {
                trials += 1;
                search.take(server.serve(trial.load, trial.duration));
                // 10, 20, 40, 80, 160.
                if trials == 5 {
                    assert_eq!((search.so_far().finding, search.so_far().load), (Finding::AtLeast, 160.0));
                    search.hurry();
                }
            }
            Next::Done(limit) => break limit,
        }
    };
    assert_eq!((limit.finding, limit.load, trials), (Finding::AtLeast, 160.0, 6));
}
