//! One connection without its socket: requests in, bytes out, bytes in, answers out. This module alone matches replies
//! to requests: replies arrive in the order of requests, and a mismatch ends the connection.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::flight::{Flight, Op};
use super::redis;
use super::wire::{Read, ReplyMeaning, Wire};
use crate::error::CacheError;
use crate::request::CacheAnswer;
use crate::ticket::Ticket;

/// Maximum size of a server's text in the log, in bytes.
const WORDS: usize = 200;

/// Result of a request.
#[derive(Debug)]
pub(super) enum Event {
    /// Answer.
    Answered(Answering),
    /// Redirection to another server of the cluster, at this address; the flag tells whether for this request only.
    Elsewhere(Flight, String, bool),
    /// Refusal, with the text of the server.
    Denied(String),
}

/// Answer for a ticket.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) ticket: Ticket,
    pub(super) op: Op,
    pub(super) size: u32,
    pub(super) result: Result<CacheAnswer, CacheError>,
    pub(super) value: Box<[u8]>,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Opening, for the first time or after a loss: requests wait.
    Opening,
    /// Open: requests are sent.
    Up,
    /// The server was not reached, or did not answer: requests fail at once.
    Down,
}

/// Bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum size of a value, in bytes.
    pub(super) value: usize,
    /// Deadline of a request.
    pub(super) timeout: Duration,
    /// Number of missed deadlines in a row that ends the connection.
    pub(super) misses: u32,
}

pub(super) struct Link {
    wire: Wire,
    bounds: Bounds,
    /// Set if requests may have to be sent again, to another server.
    keeps_values: bool,
    state: State,
    /// Sent requests, in order.
    flights: VecDeque<Flight>,
    /// Token of the first of them.
    token: u32,
    /// Requests that wait for the connection.
    waiting: VecDeque<Flight>,
    out: Vec<u8>,
    /// Deadlines missed since the last answer in time.
    missed: u32,
}

impl Link {
    pub(super) const fn new(wire: Wire, bounds: Bounds, keeps_values: bool) -> Self {
        Self {
            wire,
            bounds,
            keeps_values,
            state: State::Opening,
            flights: VecDeque::new(),
            token: 1,
            waiting: VecDeque::new(),
            out: Vec::new(),
            missed: 0,
        }
    }

    pub(super) const fn state(&self) -> State {
        self.state
    }

    /// Takes a request. Returns true if there are bytes to send, and there were none before.
    pub(super) fn ask(&mut self, mut flight: Flight, value: &[u8], events: &mut Vec<Event>) -> bool {
        match self.state {
            State::Down => {
                answer(flight, Err(CacheError::Unavailable), &[], events);
                false
            }
            State::Opening => {
                flight.value = Some(value.into());
                self.waiting.push_back(flight);
                false
            }
            State::Up => {
                let was_empty = self.out.is_empty();
                if self.keeps_values {
                    flight.value = Some(value.into());
                }
                self.send(flight, value);
                was_empty
            }
        }
    }

    fn send(&mut self, flight: Flight, value: &[u8]) {
        if flight.is_asking {
            redis::write_asking(&mut self.out);
        }
        let token = self.token.wrapping_add(self.flights.len() as u32);
        self.wire.write(flight.op, &flight.key, value, token, &mut self.out);
        self.flights.push_back(flight);
    }

    /// Marks the connection as open and sends the waiting requests.
    pub(super) fn opened(&mut self) {
        self.state = State::Up;
        self.missed = 0;
        for mut flight in std::mem::take(&mut self.waiting) {
            let value = flight.value.take().unwrap_or_default();
            if self.keeps_values {
                flight.value = Some(value.clone());
            }
            self.send(flight, &value);
        }
    }

    /// Marks the connection as lost and sets its state. Requests that were sent fail; if the new state is `Down`,
    /// waiting requests fail too.
    pub(super) fn lost(&mut self, state: State, events: &mut Vec<Event>) {
        self.state = state;
        self.out.clear();
        self.token = self.token.wrapping_add(self.flights.len() as u32);
        let mut failed = std::mem::take(&mut self.flights);
        if state == State::Down {
            failed.append(&mut self.waiting);
        }
        for flight in failed {
            answer(flight, Err(CacheError::Unavailable), &[], events);
        }
    }

    /// Exchanges the bytes in `sent` for the bytes to send.
    pub(super) fn take_output(&mut self, sent: &mut Vec<u8>) {
        sent.clear();
        std::mem::swap(&mut self.out, sent);
    }

    /// Processes received bytes, and leaves an incomplete reply in `input`.
    ///
    /// # Errors
    /// Reason why the connection is unusable.
    pub(super) fn received(&mut self, input: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<(), &'static str> {
        let mut at = 0;
        let mut result = Ok(());
        while at < input.len() {
            let Some(front) = self.flights.front_mut() else {
                result = Err("a reply that no request waits for");
                break;
            };
            let (length, outcome) = match self.wire.read(&input[at..], front, self.token, self.bounds.value) {
                Read::More => break,
                Read::Broken(reason) => {
                    result = Err(reason);
                    break;
                }
                Read::Reply(length, outcome) => (length, outcome),
            };
            let bytes = &input[at..at + length];
            at += length;
            if outcome == ReplyMeaning::Passed {
                front.is_asking = false;
                continue;
            }
            let Some(flight) = self.flights.pop_front() else { break };
            self.token = self.token.wrapping_add(1);
            if flight.ticket.is_some() {
                self.missed = 0;
            }
            match outcome {
                ReplyMeaning::Done(done, value) => answer(flight, done, &bytes[value], events),
                ReplyMeaning::Denied(error) => {
                    events.push(denied(bytes));
                    answer(flight, Err(error), &[], events);
                }
                ReplyMeaning::Last(error, reason) => {
                    events.push(denied(bytes));
                    answer(flight, Err(error), &[], events);
                    result = Err(reason);
                    break;
                }
                ReplyMeaning::Elsewhere(address, once) => {
                    let address = String::from_utf8_lossy(&bytes[address]).into_owned();
                    events.push(Event::Elsewhere(flight, address, once));
                }
                ReplyMeaning::Passed => {}
            }
        }
        input.drain(..at);
        result
    }

    /// Answers requests whose deadline has passed. Returns true if the server does not answer, so that the connection
    /// must be closed.
    pub(super) fn expire(&mut self, now: Instant, events: &mut Vec<Event>) -> bool {
        for flight in &mut self.flights {
            if flight.due <= now && flight.ticket.is_some() {
                self.missed += 1;
                time_out(flight, events);
            }
        }
        self.waiting.retain_mut(|flight| {
            let is_due = flight.due <= now;
            if is_due {
                time_out(flight, events);
            }
            !is_due
        });
        let hangs = self.flights.front().is_some_and(|front| front.due + self.bounds.timeout <= now);
        self.state == State::Up && (hangs || self.missed >= self.bounds.misses)
    }

    /// Returns the time at which [`expire`](Self::expire) has work next if no request follows; `None` if no request is
    /// in flight.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let hangs = self.flights.front().map(|front| front.due + self.bounds.timeout);
        let asked = self.flights.iter().filter(|flight| flight.ticket.is_some()).chain(&self.waiting);
        asked.map(|flight| flight.due).chain(hangs).min()
    }
}

/// Returns the text of a refusal.
fn denied(line: &[u8]) -> Event {
    let words = line.strip_prefix(b"-").unwrap_or(line).trim_ascii_end();
    Event::Denied(String::from_utf8_lossy(&words[..words.len().min(WORDS)]).into_owned())
}

fn time_out(flight: &mut Flight, events: &mut Vec<Event>) {
    if let Some(ticket) = flight.ticket.take() {
        let (op, size, value) = (flight.op, flight.size, Box::default());
        events.push(Event::Answered(Answering { ticket, op, size, result: Err(CacheError::TimedOut), value }));
    }
}

fn answer(flight: Flight, result: Result<CacheAnswer, CacheError>, value: &[u8], events: &mut Vec<Event>) {
    if let Some(ticket) = flight.ticket {
        let (op, size) = (flight.op, flight.size);
        events.push(Event::Answered(Answering { ticket, op, size, result, value: value.into() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Life;
    use proptest::prelude::*;

    const TIMEOUT: Duration = Duration::from_millis(100);

    fn link(wire: Wire) -> Link {
        let mut link = Link::new(wire, Bounds { value: 1000, timeout: TIMEOUT, misses: 3 }, false);
        link.opened();
        link
    }

    fn flight(number: u64, op: Op, due: Instant) -> Flight {
        Flight {
            op,
            key: key(number).as_slice().into(),
            value: None,
            size: 0,
            ticket: Some(Ticket { value: number, ..Ticket::NONE }),
            due,
            hops: 0,
            is_asking: false,
            _claim: None,
        }
    }

    fn key(number: u64) -> Vec<u8> {
        format!("key{number}").into_bytes()
    }

    /// Returns the value of a key in this test. It is so long that no garbage of a few octets turns it into the value
    /// of another key.
    fn value_of(key: &str) -> String {
        format!("{key}--------------------------{key}")
    }

    /// Returns the replies of a server to these bytes; each reply has the value of its key.
    fn replies(sent: &[u8], wire: Wire) -> Vec<Vec<u8>> {
        let text = String::from_utf8(sent.to_vec()).unwrap();
        let value = |key: &str| value_of(key);
        match wire {
            Wire::Memcached => {
                let line = |line: &str| {
                    let words: Vec<&str> = line.split(' ').collect();
                    let token = words.last().unwrap();
                    match words[0] {
                        "mg" => {
                            let value = value(words[1]);
                            format!("VA {} f0 k{} {token}\r\n{value}\r\n", value.len(), words[1]).into_bytes()
                        }
                        _ => format!("HD {token}\r\n").into_bytes(),
                    }
                };
                text.lines().map(line).collect()
            }
            Wire::Redis => {
                let words: Vec<&str> = text.split("\r\n").collect();
                let command = |words: &[&str]| match words {
                    [.., "GET", _, key] => {
                        let value = value(key);
                        Some(format!("${}\r\n{value}\r\n", value.len()).into_bytes())
                    }
                    [.., "DEL", _, _] => Some(b":1\r\n".to_vec()),
                    _ => None,
                };
                words.windows(3).filter_map(command).collect()
            }
        }
    }

    /// Returns tickets with their answers.
    fn answers(events: Vec<Event>) -> Vec<(u64, Result<CacheAnswer, CacheError>, Vec<u8>)> {
        let answer = |event| match event {
            Event::Answered(answering) => Some((answering.ticket.value, answering.result, answering.value.into_vec())),
            Event::Denied(_) => None,
            other => panic!("{other:?}"),
        };
        events.into_iter().filter_map(answer).collect()
    }

    /// Action of a simulated server.
    #[derive(Clone, Debug)]
    enum Act {
        Ask(bool),
        /// Sends at most this many of the owed bytes.
        Send(usize),
        /// Lets time pass, in milliseconds.
        Wait(u64),
        /// Replaces owed bytes at this place.
        Garble(usize, Vec<u8>),
        /// Closes the connection, and accepts another.
        Break,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            6 => any::<bool>().prop_map(Act::Ask),
            6 => (1_usize..60).prop_map(Act::Send),
            2 => (1_u64..60).prop_map(Act::Wait),
            1 => (0_usize..60, proptest::collection::vec(
                prop_oneof![any::<u8>(), proptest::sample::select(b"VAENHD kO$+-:0123456789\r\n".to_vec())], 1..12))
                .prop_map(|(at, bytes)| Act::Garble(at, bytes)),
            1 => Just(Act::Break),
        ];
        proptest::collection::vec(act, 1..80)
    }

    /// Memcached repeats keys and tokens: no garbage makes a value the answer to another request. Redis repeats
    /// nothing, so there the server is slow, closes and accepts again, and garbles nothing.
    fn no_answer_goes_to_another_request(wire: Wire, acts: Vec<Act>) {
        let start = Instant::now();
        let (mut now, mut asked, mut link) = (start, 0_u64, link(wire));
        let (mut owed, mut input, mut events) = (Vec::new(), Vec::new(), Vec::new());
        let mut got = std::collections::BTreeMap::new();
        for act in acts {
            let mut is_broken = false;
            match act {
                Act::Ask(is_fetch) => {
                    let op = if is_fetch { Op::Fetch } else { Op::Remove };
                    link.ask(flight(asked, op, now + TIMEOUT), &[], &mut events);
                    asked += 1;
                    let mut sent = Vec::new();
                    link.take_output(&mut sent);
                    owed.extend(replies(&sent, wire).concat());
                }
                Act::Send(most) => {
                    let most = most.min(owed.len());
                    input.extend(owed.drain(..most));
                    is_broken = link.received(&mut input, &mut events).is_err();
                }
                Act::Wait(ms) => {
                    now += Duration::from_millis(ms);
                    is_broken = link.expire(now, &mut events);
                }
                Act::Garble(at, bytes) if wire == Wire::Memcached => {
                    let at = at.min(owed.len());
                    owed.splice(at..(at + bytes.len()).min(owed.len()), bytes);
                }
                Act::Garble(..) => {}
                Act::Break => is_broken = true,
            }
            if is_broken {
                link.lost(State::Opening, &mut events);
                link.opened();
                owed.clear();
                input.clear();
            }
            for (number, result, value) in answers(std::mem::take(&mut events)) {
                assert!(number < asked && got.insert(number, ()).is_none(), "an answer of its own, once");
                if result == Ok(CacheAnswer::Found) && !value.is_empty() {
                    // Garbage inside of a value is undetected; a value of another request would be complete.
                    for other in (0..asked).filter(|other| *other != number) {
                        assert_ne!(value, value_of(&format!("key{other}")).into_bytes(), "for {number}");
                    }
                    if wire == Wire::Redis {
                        assert_eq!(value, value_of(&format!("key{number}")).into_bytes());
                    }
                }
            }
        }
        // End of the last requests.
        link.expire(now + TIMEOUT, &mut events);
        link.lost(State::Down, &mut events);
        for (number, ..) in answers(events) {
            assert!(got.insert(number, ()).is_none());
        }
        assert_eq!(got.len() as u64, asked, "each has one answer");
    }

    proptest! {
        #[test]
        fn a_memcached_that_errs_answers_no_request_by_the_reply_to_another(acts in acts()) {
            no_answer_goes_to_another_request(Wire::Memcached, acts);
        }

        #[test]
        fn a_redis_that_is_late_answers_no_request_by_the_reply_to_another(acts in acts()) {
            no_answer_goes_to_another_request(Wire::Redis, acts);
        }
    }

    #[test]
    fn a_late_reply_is_passed_over() {
        for wire in [Wire::Memcached, Wire::Redis] {
            let (mut link, mut events, now) = (link(wire), Vec::new(), Instant::now());
            link.ask(flight(1, Op::Fetch, now + TIMEOUT), &[], &mut events);
            link.ask(flight(2, Op::Fetch, now + TIMEOUT * 2), &[], &mut events);
            assert!(!link.expire(now + TIMEOUT, &mut events));
            assert_eq!(answers(std::mem::take(&mut events)), [(1, Err(CacheError::TimedOut), vec![])]);
            let mut sent = Vec::new();
            link.take_output(&mut sent);
            link.received(&mut replies(&sent, wire).concat(), &mut events).unwrap();
            assert_eq!(answers(events), [(2, Ok(CacheAnswer::Found), value_of("key2").into_bytes())]);
        }
    }

    #[test]
    fn a_server_that_does_not_do_it_says_why() {
        let (mut link, mut events, now) = (link(Wire::Redis), Vec::new(), Instant::now());
        for number in 1..=3 {
            link.ask(flight(number, Op::Fetch, now + TIMEOUT), &[], &mut events);
        }
        let mut input = b"-NOPERM it may not\r\n$-1\r\n-READONLY it is none\r\n".to_vec();
        link.received(&mut input, &mut events).expect_err("the last is the end of it");
        let is_said = |event: &Event| match event {
            Event::Denied(words) => Some(words.clone()),
            _ => None,
        };
        assert_eq!(events.iter().filter_map(is_said).collect::<Vec<_>>(), ["NOPERM it may not", "READONLY it is none"]);
        let results: Vec<_> = answers(events).into_iter().map(|(_, result, _)| result).collect();
        assert_eq!(results, [Err(CacheError::Denied), Ok(CacheAnswer::Absent), Err(CacheError::Unavailable)]);
    }

    #[test]
    fn a_server_that_does_not_answer_is_given_up() {
        let (mut link, mut events, now) = (link(Wire::Redis), Vec::new(), Instant::now());
        link.ask(flight(1, Op::Fetch, now + TIMEOUT), &[], &mut events);
        assert!(!link.expire(now + TIMEOUT, &mut events));
        assert!(link.expire(now + TIMEOUT * 2, &mut events), "a deadline later");
        link.lost(State::Down, &mut events);
        link.ask(flight(2, Op::Fetch, now + TIMEOUT), &[], &mut events);
        let want = [(1, Err(CacheError::TimedOut), vec![]), (2, Err(CacheError::Unavailable), vec![])];
        assert_eq!(answers(events), want);
    }

    #[test]
    fn deadlines_are_looked_after_when_the_first_of_them_comes() {
        let (mut link, mut events, now) = (link(Wire::Redis), Vec::new(), Instant::now());
        assert_eq!(link.next_due(), None);
        link.ask(flight(1, Op::Fetch, now + TIMEOUT * 3), &[], &mut events);
        link.ask(flight(2, Op::Fetch, now + TIMEOUT * 2), &[], &mut events);
        assert_eq!(link.next_due(), Some(now + TIMEOUT * 2));
        link.expire(now + TIMEOUT * 2, &mut events);
        assert_eq!(link.next_due(), Some(now + TIMEOUT * 3));
        // None waits any more, whether the server hangs or not.
        link.expire(now + TIMEOUT * 3, &mut events);
        assert_eq!(link.next_due(), Some(now + TIMEOUT * 4));
        link.lost(State::Opening, &mut events);
        link.ask(flight(3, Op::Fetch, now + TIMEOUT), &[], &mut events);
        assert_eq!(link.next_due(), Some(now + TIMEOUT));
    }

    #[test]
    fn requests_wait_for_a_connection_as_long_as_they_may() {
        let (mut link, mut events, now) = (link(Wire::Memcached), Vec::new(), Instant::now());
        link.lost(State::Opening, &mut events);
        link.ask(flight(1, Op::Store(Life::FOREVER), now + TIMEOUT), b"a", &mut events);
        link.ask(flight(2, Op::Store(Life::FOREVER), now + TIMEOUT * 2), b"b", &mut events);
        link.expire(now + TIMEOUT, &mut events);
        assert_eq!(answers(events), [(1, Err(CacheError::TimedOut), vec![])]);
        link.opened();
        let mut sent = Vec::new();
        link.take_output(&mut sent);
        assert!(sent.starts_with(b"ms key2 1 T0 F0 O") && sent.ends_with(b"\r\nb\r\n"), "{}", sent.escape_ascii());
    }
}
