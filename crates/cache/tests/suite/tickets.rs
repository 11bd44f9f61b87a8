//! Immediate answers and answers under a ticket, by one interface.

use std::sync::{Arc, Condvar, Mutex};

use strowger_cache::engine::{CacheHandle, RemoteEngine, Reply};
use strowger_cache::error::CacheError;
use strowger_cache::gauges::Gauges;
use strowger_cache::local::LocalCache;
use strowger_cache::log::Moment;
use strowger_cache::request::{CacheAnswer, Count, Floor, Life, Promise, Request};
use strowger_cache::settings::{LocalSettings, LogSettings};
use strowger_cache::ticket::{Answered, Receiver, Receivers, Ticket};

const NOW: u64 = 1_000_000;

/// Mailbox like a shard's.
#[derive(Default)]
struct Mailbox(Mutex<Vec<Answered>>, Condvar);

impl Receiver for Mailbox {
    fn answered(&self, answers: Vec<Answered>) {
        self.0.lock().unwrap().extend(answers);
        self.1.notify_all();
    }
}

impl Mailbox {
    /// Waits for this many answers.
    fn take(&self, count: usize) -> Vec<Answered> {
        let mut answers = self.0.lock().unwrap();
        while answers.len() < count {
            answers = self.1.wait(answers).unwrap();
        }
        std::mem::take(&mut *answers)
    }
}

const COUNT: Count = Count { by: 2, floor: Floor::Zero, life: Life::FOREVER };

/// Requests and their answers, in sequence.
const TABLE: [(Request<'_>, CacheAnswer); 9] = [
    (Request::Fetch { key: b"key" }, CacheAnswer::Absent),
    (Request::Store { key: b"key", value: b"value", life: Life::FOREVER }, CacheAnswer::Stored),
    (Request::Fetch { key: b"key" }, CacheAnswer::Found),
    (Request::Add { key: b"key", value: b"other", life: Life::FOREVER }, CacheAnswer::Present),
    (Request::Add { key: b"two", value: b"other", life: Life::FOREVER }, CacheAnswer::Stored),
    (Request::Remove { key: b"key" }, CacheAnswer::Removed),
    (Request::Remove { key: b"key" }, CacheAnswer::Absent),
    (Request::Count { key: b"calls", count: COUNT }, CacheAnswer::Count(2)),
    (Request::Count { key: b"calls", count: COUNT }, CacheAnswer::Count(4)),
];

#[test]
fn a_local_engine_answers_at_once() {
    let engine = CacheHandle::Local(Arc::new(LocalCache::new(LocalSettings::default())));
    for promise in [Promise::Held, Promise::Kept] {
        let mut value = Vec::new();
        for (request, answer) in TABLE {
            assert_eq!(engine.ask(&request, promise, Ticket::NONE, NOW, &mut value), Reply::Now(Ok(answer)));
        }
        assert_eq!(value, b"value");
        for key in [&b"two"[..], b"calls"] {
            engine.ask(&Request::Remove { key }, promise, Ticket::NONE, NOW, &mut value);
        }
    }
    let reply = engine.ask(&Request::Fetch { key: b"" }, Promise::Held, Ticket::NONE, NOW, &mut Vec::new());
    assert_eq!(reply, Reply::Now(Err(CacheError::Refused)));
    assert_eq!(engine.gauges().hits, 2);
}

#[test]
fn with_a_log_the_ticket_comes_back_once_the_change_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let at = Moment { now: NOW, wall: NOW };
    let open = || LocalCache::open(LocalSettings::default(), LogSettings::new(folder.path()), at).unwrap().0;
    let engine = CacheHandle::Local(Arc::new(open()));
    let mailbox = Arc::new(Mailbox::default());
    let receiver = engine.register(mailbox.clone());
    let mut want = Vec::new();
    for (number, (request, answer)) in TABLE.into_iter().enumerate() {
        let ticket = Ticket { receiver, value: number as u64 };
        match engine.ask(&request, Promise::Kept, ticket, NOW, &mut Vec::new()) {
            Reply::Later => want.push((number as u64, Ok(answer))),
            Reply::Now(now) => assert_eq!(now, Ok(answer)),
        }
    }
    let got: Vec<_> = mailbox.take(want.len()).into_iter().map(|answer| (answer.ticket, answer.result)).collect();
    assert_eq!(got, want);
    assert!(want.len() >= 4, "the log is not that fast: {want:?}");
    // A change that is only held is answered at once.
    let reply = engine.ask(&TABLE[1].0, Promise::Held, Ticket::NONE, NOW, &mut Vec::new());
    assert_eq!(reply, Reply::Now(Ok(CacheAnswer::Stored)));
    drop(engine);
    assert_eq!(open().len(), 3);
}

/// Engine that behaves like one of another process.
#[derive(Default)]
struct Elsewhere {
    receivers: Arc<Receivers>,
    asked: Mutex<usize>,
}

impl RemoteEngine for Elsewhere {
    fn ask(&self, request: &Request<'_>, ticket: Ticket, _now: u64) -> Result<(), CacheError> {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        if *asked > 2 {
            return Err(CacheError::Full);
        }
        let result =
            if matches!(request, Request::Fetch { .. }) { Ok(CacheAnswer::Found) } else { Err(CacheError::TimedOut) };
        let value = if result.is_ok() { Box::from(*b"value") } else { Box::default() };
        let receivers = self.receivers.clone();
        let answer = Answered { ticket: ticket.value, result, value };
        std::thread::spawn(move || receivers.hand_out(vec![(ticket.receiver, answer)]));
        Ok(())
    }

    fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

#[test]
fn a_remote_engine_answers_under_the_ticket() {
    let engine = CacheHandle::Remote(Arc::new(Elsewhere::default()));
    let mailbox = Arc::new(Mailbox::default());
    let receiver = engine.register(mailbox.clone());
    let ask =
        |n: usize, value| engine.ask(&TABLE[n].0, Promise::Held, Ticket { receiver, value }, NOW, &mut Vec::new());
    assert_eq!(ask(0, 7), Reply::Later);
    let found = Answered { ticket: 7, result: Ok(CacheAnswer::Found), value: Box::from(*b"value") };
    assert_eq!(mailbox.take(1), [found]);
    assert_eq!(ask(1, 8), Reply::Later);
    assert_eq!(mailbox.take(1), [Answered { ticket: 8, result: Err(CacheError::TimedOut), value: Box::default() }]);
    assert_eq!(ask(1, 9), Reply::Now(Err(CacheError::Full)));
}
