//! Thread with a connection that asks the engine for answers which the cache lacks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::batch::Questions;
use super::{Key, LookupEngine, Shared, StopOnDrop};
use crate::error::StoreError;

type Connect<E> = Arc<dyn Fn() -> Result<E, StoreError> + Send + Sync>;

pub(super) struct Asker<E: LookupEngine> {
    /// `None`: not open yet.
    engine: Option<E>,
    connect: Connect<E>,
    shared: Arc<Shared<E::Key>>,
}

impl<E: LookupEngine> Asker<E> {
    pub(super) fn new(engine: Option<E>, connect: Connect<E>, shared: Arc<Shared<E::Key>>) -> Self {
        Self { engine, connect, shared }
    }

    /// Returns an asker whose connection is not open yet.
    pub(super) fn another(&self) -> Self {
        Self::new(None, self.connect.clone(), self.shared.clone())
    }

    /// Answers questions until the cache is dropped.
    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        let _stop = StopOnDrop(shared.clone());
        let (mut questions, mut answers) = (Questions::none(), Vec::new());
        shared.flights.begin();
        while shared.flights.take(&mut questions, || (shared.clock)().mono, || shared.is_broken()) {
            let batch = shared.depart(questions);
            answers.clear();
            let outcome = self.ask(batch.keys(), &mut answers);
            questions = shared.land(batch, outcome.map(|()| &mut answers));
        }
    }

    fn ask(&mut self, keys: &[E::Key], answers: &mut Vec<<E::Key as Key>::Value>) -> Result<(), StoreError> {
        let Self { engine, connect, .. } = self;
        let ask = || {
            let engine = match engine {
                Some(engine) => engine,
                none => none.insert(connect()?),
            };
            engine.answer(keys, answers)
        };
        // A panic in an engine fails its questions as any other failure does.
        let asked = catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| {
            tracing::error!(of = self.shared.settings.name, "asking the database panicked: the questions are given up");
            Err(StoreError::Refused)
        });
        asked.and(if answers.len() == keys.len() { Ok(()) } else { Err(StoreError::Refused) })
    }
}
