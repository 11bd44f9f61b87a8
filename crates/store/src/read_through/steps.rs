//! Cache without threads: the owner provides connections and a clock. A simulation thus runs the same code as a server.

use std::sync::Arc;

use super::batch::Questions;
use super::{Batch, Changes, Key, ReadThrough, ReadThroughSettings, Shared};
use crate::clock::Clock;
use crate::error::StoreError;

/// Work of the threads of a [`ReadThrough`], one step at a time.
pub struct Steps<K: Key> {
    shared: Arc<Shared<K>>,
}

impl<K: Key> ReadThrough<K> {
    /// Creates the cache without threads: its owner asks the engine as [`Steps`] directs. It starts with one
    /// connection.
    pub fn in_steps(settings: ReadThroughSettings, clock: Clock) -> (Self, Steps<K>) {
        let shared = Arc::new(Shared::new(settings, clock));
        let steps = Steps { shared: shared.clone() };
        steps.connect();
        (Self { shared, threads: Arc::default() }, steps)
    }
}

impl<K: Key> Steps<K> {
    /// Returns the next questions for an idle connection; `None` if all connections are busy or there is no question.
    /// The caller repeats this until it returns `None`.
    pub fn take(&self) -> Option<Batch<K>> {
        let shared = &self.shared;
        let mut questions = Questions::none();
        let broken_at = shared.is_broken().then(|| (shared.clock)().mono);
        shared.flights.try_take(&mut questions, broken_at).then(|| shared.depart(questions))
    }

    /// Handles the engine's answers to a batch, or its error. Afterwards the connection counts as idle.
    pub fn answered(&self, batch: Batch<K>, mut outcome: Result<Vec<K::Value>, StoreError>) {
        self.shared.land(batch, outcome.as_mut().map_err(|error| *error));
        self.shared.flights.is_idle();
    }

    /// Returns overdue tickets to their owners; opens a connection if all connections are busy. Must be called every 25
    /// ms while a question is in flight. Returns how many questions have missed their deadline.
    pub fn keep_time(&self) -> u32 {
        let due = self.shared.look_at_the_time();
        if due.lacks_askers && self.shared.flights.askers() < self.shared.settings.connections {
            self.connect();
        }
        due.missed
    }

    /// Handles the changes in the database since the last call, or the error that the changes are unknown. Must be
    /// called every [`ReadThroughSettings::poll`].
    pub fn hear(&self, changes: Result<Changes<K>, StoreError>) {
        self.shared.hear(changes);
    }

    /// Returns the time at which [`Steps::take`] returns the next trial question to a silent engine, in milliseconds of
    /// the clock; `None` while the engine answers, or while all connections are busy.
    pub fn deadline(&self) -> Option<u64> {
        if self.shared.is_broken() { self.shared.flights.probe_at() } else { None }
    }

    fn connect(&self) {
        self.shared.flights.begin();
        self.shared.flights.is_idle();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use super::*;
    use crate::clock::Moment;
    use crate::subscriber::{Asked, Question, SubscriberAnswer};
    use crate::ticket::{SinkId, Ticket};

    fn user(name: &str) -> Question<'_> {
        Question::User { username: name.as_bytes(), domain: b"d" }
    }

    fn names(batch: &Batch<Asked>) -> Vec<String> {
        let name = |asked: &Asked| match asked.question() {
            Question::User { username, .. } => String::from_utf8_lossy(username).into_owned(),
            Question::Credential { .. } => unreachable!("none is asked"),
        };
        batch.keys().iter().map(name).collect()
    }

    /// Returned ticket with its result.
    type Answered = (u64, Result<SubscriberAnswer, StoreError>);

    /// Cache, its returned tickets, and its clock.
    struct Bed {
        cache: ReadThrough<Asked>,
        steps: Steps<Asked>,
        sink: SinkId,
        results: Arc<Mutex<Vec<Answered>>>,
        time: Arc<AtomicU64>,
    }

    impl Bed {
        fn new(settings: ReadThroughSettings) -> Self {
            let (time, results) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
            let (of_clock, to) = (time.clone(), results.clone());
            let clock: Clock = Arc::new(move || Moment { mono: of_clock.load(Ordering::Relaxed), wall: 0 });
            let (cache, steps) = ReadThrough::<Asked>::in_steps(settings, clock);
            let sink = cache.receiver(move |more: &[Answered]| {
                to.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(more);
            });
            Self { cache, steps, sink, results, time }
        }

        fn now(&self) -> u64 {
            self.time.load(Ordering::Relaxed)
        }

        fn pass_until(&self, moment: u64) {
            self.time.store(moment, Ordering::Relaxed);
            self.steps.keep_time();
        }

        fn ask(&self, value: u64, name: &str) {
            let ticket = Ticket { sink: self.sink, value };
            self.cache.request(ticket, user(name), self.now()).expect("there is room");
        }

        /// Asks the only question of a round.
        fn ask_alone(&self, value: u64, name: &str) {
            self.ask(value, name);
            self.cache.flush();
        }

        fn taken(&self) -> Vec<Answered> {
            std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    #[test]
    fn an_outage_and_its_end_by_a_clock_of_ones_own() {
        let bed = Bed::new(ReadThroughSettings {
            deadline: Duration::from_millis(1_000),
            poll: Duration::from_millis(500),
            breaker_after: 2,
            connections: 2,
            ..ReadThroughSettings::default()
        });
        let Bed { cache, steps, .. } = &bed;

        // Questions of a round leave together, equal ones once.
        bed.ask(1, "a");
        bed.ask(2, "b");
        bed.ask(3, "a");
        assert!(steps.take().is_none(), "the round has not ended");
        cache.flush();
        let first = steps.take().expect("two questions");
        assert_eq!(names(&first), ["a", "b"]);
        // The only connection is busy: a second one is opened, but no third.
        bed.ask_alone(4, "c");
        assert!(steps.take().is_none());
        steps.keep_time();
        let second = steps.take().expect("one more connection");
        assert_eq!((names(&second), cache.gauges().connections), (vec!["c".to_owned()], 2));

        bed.pass_until(1_010);
        let late: Vec<_> = bed.taken().into_iter().map(|(value, result)| (value, result.err())).collect();
        assert_eq!(late, [1, 3, 2, 4].map(|value| (value, Some(StoreError::TimedOut))), "as they were asked");
        assert!(cache.gauges().is_broken && steps.deadline().is_none());
        assert!(steps.take().is_none(), "both connections hang");
        // The engine answers late: the last question is tried again.
        steps.answered(first, Ok(vec![SubscriberAnswer::Exists, SubscriberAnswer::Absent]));
        assert!(steps.deadline().is_some());
        let probe = steps.take().expect("a trial question");
        assert!(names(&probe) == ["c"] && steps.take().is_none());
        steps.answered(probe, Ok(vec![SubscriberAnswer::Exists]));
        assert!(!cache.gauges().is_broken && steps.deadline().is_none());
        steps.answered(second, Err(StoreError::Unavailable));
        assert_eq!(cache.cached(user("a"), bed.now()), Some(Ok(SubscriberAnswer::Exists)));
        assert!(bed.taken().is_empty(), "no ticket comes twice");
        steps.hear(Ok(Changes::Of(vec![user("a").into()])));
        assert_eq!((cache.cached(user("a"), bed.now()), cache.gauges().voided), (None, 1));
    }

    /// A late answer ends no question that was asked after a notice.
    #[test]
    fn a_late_answer_is_not_older_than_a_notice() {
        let bed = Bed::new(ReadThroughSettings::default());
        let steps = &bed.steps;
        bed.ask_alone(1, "a");
        let first = steps.take().expect("a question");
        steps.hear(Ok(Changes::Of(vec![user("a").into()])));
        bed.pass_until(2_000);
        assert_eq!(bed.taken(), [(1, Err(StoreError::TimedOut))]);
        bed.ask_alone(2, "a");
        steps.answered(first, Ok(vec![SubscriberAnswer::Exists]));
        assert!(bed.taken().is_empty());
        let second = steps.take().expect("a question");
        steps.answered(second, Ok(vec![SubscriberAnswer::Absent]));
        assert_eq!(bed.taken(), [(2, Ok(SubscriberAnswer::Absent))]);
    }

    /// A late failure does not end an equal question that was asked later on another connection.
    #[test]
    fn a_late_failure_ends_no_newer_question() {
        let bed = Bed::new(ReadThroughSettings::default());
        let steps = &bed.steps;
        bed.ask_alone(1, "a");
        let first = steps.take().expect("a question");
        bed.pass_until(2_000);
        assert_eq!(bed.taken(), [(1, Err(StoreError::TimedOut))]);
        bed.ask_alone(2, "a");
        steps.keep_time();
        let second = steps.take().expect("the same by another connection");
        steps.answered(first, Err(StoreError::Unavailable));
        assert!(bed.taken().is_empty());
        steps.answered(second, Ok(vec![SubscriberAnswer::Exists]));
        assert_eq!(bed.taken(), [(2, Ok(SubscriberAnswer::Exists))]);
    }

    /// A request after a notice has its own deadline, and is asked when the older question has missed its deadline.
    #[test]
    fn who_asked_after_a_notice_waits_for_its_own_deadline() {
        let bed = Bed::new(ReadThroughSettings::default());
        let steps = &bed.steps;
        bed.ask_alone(1, "a");
        let first = steps.take().expect("a question");
        steps.hear(Ok(Changes::Of(vec![user("a").into()])));
        bed.pass_until(1_500);
        bed.ask_alone(2, "a");
        bed.pass_until(2_000);
        assert_eq!(bed.taken(), [(1, Err(StoreError::TimedOut))]);
        // The first connection is busy: a second one is opened.
        steps.keep_time();
        let second = steps.take().expect("it is asked");
        steps.answered(first, Err(StoreError::Unavailable));
        assert!(bed.taken().is_empty());
        bed.pass_until(3_500);
        assert_eq!(bed.taken(), [(2, Err(StoreError::TimedOut))]);
        assert_eq!(bed.cache.gauges().in_flight, 0);
        steps.answered(second, Ok(vec![SubscriberAnswer::Exists]));
        assert!(bed.taken().is_empty(), "no ticket comes twice");
    }

    /// A late answer ends a question that waits for a connection: the question is not asked any more. If it is
    /// requested again, it is asked once.
    #[test]
    fn what_was_answered_meanwhile_is_not_asked() {
        let bed = Bed::new(ReadThroughSettings { connections: 1, found_ttl: Duration::ZERO, ..Default::default() });
        let steps = &bed.steps;
        bed.ask_alone(1, "a");
        let first = steps.take().expect("a question");
        bed.pass_until(2_000);
        bed.ask_alone(2, "a");
        assert!(steps.take().is_none(), "the only connection is busy");
        steps.answered(first, Ok(vec![SubscriberAnswer::Exists]));
        assert_eq!(bed.cache.gauges().in_flight, 0);
        bed.ask_alone(3, "b");
        bed.ask_alone(4, "a");
        let next = steps.take().expect("two questions");
        assert!(names(&next) == ["a", "b"] && steps.take().is_none());
    }

    /// A request after a notice does not join an earlier flight.
    #[test]
    fn no_answer_is_older_than_a_notice_that_was_heard_before_its_question() {
        let bed = Bed::new(ReadThroughSettings::default());
        let steps = &bed.steps;
        let changes = [Changes::Of(vec![user("a").into()]), Changes::All];
        for (change, first) in changes.into_iter().zip([1, 11]) {
            bed.ask_alone(first, "a");
            let before = steps.take().expect("a question");
            steps.hear(Ok(change.clone()));
            bed.ask_alone(first + 1, "a");
            bed.ask_alone(first + 2, "a");
            assert!(steps.take().is_none(), "the only connection is busy");
            steps.answered(before, Ok(vec![SubscriberAnswer::Exists]));
            assert_eq!(bed.taken(), [(first, Ok(SubscriberAnswer::Exists))]);
            let after = steps.take().expect("it is asked again");
            steps.answered(after, Ok(vec![SubscriberAnswer::Absent]));
            assert_eq!(
                bed.taken(),
                [(first + 1, Ok(SubscriberAnswer::Absent)), (first + 2, Ok(SubscriberAnswer::Absent))]
            );
            assert_eq!((bed.cache.gauges().in_flight, steps.take().is_none()), (0, true));
            // A question not yet asked is asked after the change.
            steps.hear(Ok(Changes::All));
            bed.ask_alone(first + 3, "a");
            steps.hear(Ok(change));
            bed.ask_alone(first + 4, "a");
            let only = steps.take().expect("a question");
            steps.answered(only, Ok(vec![SubscriberAnswer::Exists]));
            assert_eq!(
                bed.taken(),
                [(first + 3, Ok(SubscriberAnswer::Exists)), (first + 4, Ok(SubscriberAnswer::Exists))]
            );
            bed.cache.forget();
        }
    }
}
