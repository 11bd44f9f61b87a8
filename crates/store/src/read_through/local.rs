//! Asker of a shard: a task on the shard's thread with its own connection, so that a question and its answer wake no
//! other thread.
//!
//! An idle asker takes the questions of its shard's round. If the asker is busy, its engine does not answer or its task
//! has ended, the threads take these questions.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::batch::Questions;
use super::{Batch, Key, ReadThrough, Shared};
use crate::error::StoreError;
pub use strowger_cache::engine::Task;

/// Connection to a database that blocks no thread.
pub trait LocalEngine: 'static {
    /// Type of the engine's questions.
    type Key: Key;

    /// Opens the connection before the first question; if that fails, the first question opens it. Until then the
    /// threads ask.
    fn connect(&mut self) -> impl Future<Output = ()>;

    /// Answers each question, in order; see [`LookupEngine::answer`](super::LookupEngine::answer). Should have a deadline of its
    /// own.
    fn answer(
        &mut self,
        questions: &[Self::Key],
        answers: &mut Vec<<Self::Key as Key>::Value>,
    ) -> impl Future<Output = Result<(), StoreError>>;
}

/// Sends the questions of a shard's rounds on the shard's own connection.
pub struct LocalAsker<K: Key> {
    shared: Arc<Shared<K>>,
    idle: Idle,
}

/// Waker of the task while it waits for questions.
type Idle = Rc<RefCell<Option<Waker>>>;

impl<K: Key> ReadThrough<K> {
    /// Returns an asker for the calling thread, and the task that this thread must run until the cache is dropped.
    pub fn local<E: LocalEngine<Key = K>>(&self, engine: E) -> (LocalAsker<K>, Task) {
        let (shared, idle) = (self.shared.clone(), Idle::default());
        let asker = LocalAsker { shared: shared.clone(), idle: idle.clone() };
        (asker, Box::pin(run(engine, shared, idle)))
    }
}

impl<K: Key> LocalAsker<K> {
    /// Sends the questions requested since the last call; see [`ReadThrough::flush`].
    pub fn flush(&self) {
        if !self.shared.flights.has_unsent() {
            return;
        }
        match self.idle.take() {
            Some(waker) => waker.wake(),
            None => self.shared.flights.flush(),
        }
    }
}

async fn run<E: LocalEngine>(mut engine: E, shared: Arc<Shared<E::Key>>, idle: Idle) {
    shared.flights.begin();
    let _end = EndOnDrop { shared: &shared, idle: &idle };
    let (mut questions, mut answers) = (Questions::none(), Vec::new());
    engine.connect().await;
    while !shared.flights.has_stopped() {
        if !shared.flights.take_round(&mut questions) {
            wait(&idle).await;
            continue;
        }
        let mut asked = InFlight { shared: &shared, batch: Some(shared.depart(questions)) };
        answers.clear();
        let keys = asked.batch.as_ref().map_or(&[][..], Batch::keys);
        let outcome = engine.answer(keys, &mut answers).await;
        let outcome = outcome.and(if answers.len() == keys.len() { Ok(()) } else { Err(StoreError::Refused) });
        questions = asked.land(outcome.map(|()| &mut answers));
    }
}

/// Waits until [`LocalAsker::flush`] wakes the task.
async fn wait(idle: &Idle) {
    let mut is_new = true;
    poll_fn(|context| {
        if !std::mem::take(&mut is_new) && idle.borrow().is_none() {
            return Poll::Ready(());
        }
        idle.replace(Some(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// Questions with the engine. A drop without answers fails them: the engine has panicked, or the shard has ended.
struct InFlight<'s, K: Key> {
    shared: &'s Shared<K>,
    batch: Option<Batch<K>>,
}

impl<K: Key> InFlight<'_, K> {
    fn land(&mut self, outcome: Result<&mut Vec<K::Value>, StoreError>) -> Questions<K> {
        self.batch.take().map_or_else(Questions::none, |batch| self.shared.land(batch, outcome))
    }
}

impl<K: Key> Drop for InFlight<'_, K> {
    fn drop(&mut self) {
        self.land(Err(StoreError::Unavailable));
    }
}

/// Ends the asker of a shard: the threads ask from then on.
struct EndOnDrop<'s, K: Key> {
    shared: &'s Shared<K>,
    idle: &'s Idle,
}

impl<K: Key> Drop for EndOnDrop<'_, K> {
    fn drop(&mut self) {
        self.idle.take();
        self.shared.flights.end();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::task::{Context, Wake};

    use super::*;
    use crate::clock::{Clock, Moment};
    use crate::read_through::{ReadThroughSettings, Steps};
    use crate::subscriber::{Asked, Question, SubscriberAnswer};
    use crate::ticket::{SinkId, Ticket};

    type Answered = (u64, Result<SubscriberAnswer, StoreError>);

    /// Engine that answers [`SubscriberAnswer::Exists`] to every question, once its gate is open.
    struct Gated(Rc<Cell<bool>>);

    impl Gated {
        async fn opened(&self) {
            poll_fn(|_| if self.0.get() { Poll::Ready(()) } else { Poll::Pending }).await;
        }
    }

    impl LocalEngine for Gated {
        type Key = Asked;

        async fn connect(&mut self) {
            self.opened().await;
        }

        async fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
            self.opened().await;
            answers.extend(questions.iter().map(|_| SubscriberAnswer::Exists));
            Ok(())
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Bed {
        cache: ReadThrough<Asked>,
        /// Steps in place of the threads.
        steps: Steps<Asked>,
        asker: LocalAsker<Asked>,
        task: Task,
        gate: Rc<Cell<bool>>,
        wakes: Arc<Wakes>,
        sink: SinkId,
        results: Arc<Mutex<Vec<Answered>>>,
    }

    impl Bed {
        fn new() -> Self {
            Self::with_gate(true)
        }

        /// Creates a test bed. `is_open`: whether the connection opens at once.
        fn with_gate(is_open: bool) -> Self {
            let clock: Clock = Arc::new(|| Moment { mono: 0, wall: 0 });
            let (cache, steps) = ReadThrough::<Asked>::in_steps(ReadThroughSettings::default(), clock);
            let (results, gate) = (Arc::<Mutex<Vec<Answered>>>::default(), Rc::new(Cell::new(is_open)));
            let to = results.clone();
            let sink = cache.receiver(move |more: &[Answered]| {
                to.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(more);
            });
            let (asker, task) = cache.local(Gated(gate.clone()));
            let mut this = Self { cache, steps, asker, task, gate, wakes: Arc::default(), sink, results };
            this.run();
            this
        }

        fn run(&mut self) {
            let waker = self.wakes.clone().into();
            let _runs = self.task.as_mut().poll(&mut Context::from_waker(&waker));
        }

        fn ask(&self, value: u64, name: &str) {
            let question = Question::User { username: name.as_bytes(), domain: b"d" };
            self.cache.request(Ticket { sink: self.sink, value }, question, 0).expect("there is room");
        }

        /// Returns how often the task was woken since the last call.
        fn wakes(&self) -> usize {
            self.wakes.0.swap(0, Ordering::Relaxed)
        }

        fn taken(&self) -> Vec<Answered> {
            std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    const THERE: Result<SubscriberAnswer, StoreError> = Ok(SubscriberAnswer::Exists);

    #[test]
    fn a_round_wakes_the_task_of_its_shard_once_and_no_thread() {
        let mut bed = Bed::new();
        bed.asker.flush();
        assert_eq!(bed.wakes(), 0, "nothing was asked");
        bed.ask(1, "a");
        bed.ask(2, "b");
        bed.asker.flush();
        bed.asker.flush();
        assert_eq!(bed.wakes(), 1);
        bed.run();
        assert_eq!(bed.taken(), [(1, THERE), (2, THERE)]);
        assert!(bed.steps.take().is_none());
        bed.run();
        assert_eq!((bed.taken(), bed.wakes()), (vec![], 0), "woken without a question");
    }

    #[test]
    fn while_its_engine_hangs_the_threads_ask() {
        let mut bed = Bed::new();
        bed.gate.set(false);
        bed.ask(1, "a");
        bed.asker.flush();
        bed.run();
        bed.ask(2, "b");
        bed.asker.flush();
        let batch = bed.steps.take().expect("the question is the threads'");
        assert_eq!(batch.keys().len(), 1);
        bed.steps.answered(batch, Ok(vec![SubscriberAnswer::Absent]));
        assert_eq!(bed.taken(), [(2, Ok(SubscriberAnswer::Absent))]);
        // The task takes the questions that the threads have left, once its own question is answered.
        bed.ask(3, "c");
        bed.asker.flush();
        bed.gate.set(true);
        bed.run();
        assert_eq!(bed.taken(), [(1, THERE), (3, THERE)]);
        assert!(bed.steps.take().is_none());
    }

    #[test]
    fn no_question_waits_for_its_connection_to_be_made() {
        let mut bed = Bed::with_gate(false);
        bed.ask(1, "a");
        bed.asker.flush();
        let batch = bed.steps.take().expect("the question is the threads'");
        bed.steps.answered(batch, Ok(vec![SubscriberAnswer::Exists]));
        bed.gate.set(true);
        bed.run();
        bed.ask(2, "b");
        bed.asker.flush();
        bed.run();
        assert_eq!(bed.taken(), [(1, THERE), (2, THERE)]);
        assert!(bed.steps.take().is_none());
    }

    #[test]
    fn the_end_of_a_shard_fails_what_it_has_asked() {
        let mut bed = Bed::new();
        bed.gate.set(false);
        bed.ask(1, "a");
        bed.asker.flush();
        bed.run();
        let connections = bed.cache.gauges().connections;
        bed.task = Box::pin(async {});
        assert_eq!(bed.taken(), [(1, Err(StoreError::Unavailable))]);
        assert_eq!(bed.cache.gauges().connections, connections - 1);
        bed.ask(2, "b");
        bed.asker.flush();
        assert!(bed.steps.take().is_some(), "the threads go on");

        // The threads also take the questions of a shard whose task was idle.
        let mut bed = Bed::new();
        bed.task = Box::pin(async {});
        bed.ask(1, "a");
        bed.asker.flush();
        assert!(bed.steps.take().is_some());
    }
}
