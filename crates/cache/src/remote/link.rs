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
mod tests;
