//! Obstacles to a measurement, before and during the search: dead port, silence, challenge, refusal, ban.

use super::{CapacityRequest, Work};
use crate::Error;
use crate::generator::Made;
use crate::process;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use strowger_load::campaign::preflight::{Finding, Probing};
use strowger_measure::{Counter, Failure, Run};

/// Reason why a server cannot be measured: a sentence with a cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing listens at the address, or there is no route to it.
    Dead(String),
    /// Nothing comes back.
    Silent(String),
    /// The server asks for a password that was not given, or is wrong.
    Challenge(String),
    /// The server refuses every request.
    Refused(String),
    /// A limiter or a ban stands before the server.
    Banned(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Dead(text) | Self::Silent(text) | Self::Challenge(text) | Self::Refused(text) | Self::Banned(text)) =
            self;
        f.write_str(text)
    }
}

/// Attempts a second of the rehearsal.
pub(super) const REHEARSAL: f64 = 4.0;

/// Requests of the pre-flight: fewer than common limiters allow (pike: 16 messages in 2 s).
const PROBES: usize = 8;

/// Requests a second of the pre-flight.
const RATE: f64 = 50.0;

/// Time in which a server that carries its load answers a request.
const PROMPT: Duration = Duration::from_millis(200);

/// Pause after a load that was too high, if the server answers no OPTIONS.
const PAUSE: Duration = Duration::from_secs(1);

fn probing(request: &CapacityRequest, probes: usize, patience: Duration) -> Probing<'_> {
    let (target, address, transport) = (&request.target, request.address, request.transport);
    Probing { target, address, transport, sources: &[], probes, rate: RATE, patience }
}

fn obstacle(finding: Finding) -> Obstacle {
    match finding {
        Finding::Closed(text) | Finding::Local(text) => Obstacle::Dead(text),
        Finding::Obstacle(found) => Obstacle::Banned(found.to_string()),
    }
}

/// Sends a few OPTIONS, and returns whether the server answers them.
pub(super) fn look(request: &CapacityRequest) -> Result<bool, Obstacle> {
    let found = probing(request, PROBES, Duration::from_millis(500)).run();
    if let Some(finding) = found.into_iter().next() {
        return Err(obstacle(finding));
    }
    probing(request, 1, Duration::from_millis(500)).is_answered().map_err(obstacle)
}

/// Checks that one of the first few attempts succeeded, and returns the obstacle if none did.
pub(super) fn rehearse(request: &CapacityRequest, made: &Made) -> Result<(), Obstacle> {
    let Ok(run) = Run::read(&made.logs) else { return Ok(()) };
    let totals = &run.totals;
    let (attempts, place) = (request.work.attempts(), request.address);
    if totals.counter(Counter::CallsSuccessful) > 0 {
        return Ok(());
    }
    if totals.failures(Failure::Refused) > 0 {
        let port = place.port();
        return Err(Obstacle::Dead(format!(
            "nothing listens on {place}: is the server running, and is port {port} right?"
        )));
    }
    let codes = codes(&run);
    if let Some(code) = [401, 407].into_iter().find(|code| codes.contains_key(code)) {
        return Err(Obstacle::Challenge(challenge(request, code)));
    }
    match codes.iter().max_by_key(|(_, count)| **count) {
        Some((code, _)) => {
            Err(Obstacle::Refused(format!("{place} refuses all {attempts} with {code}: {}", cure(request, *code))))
        }
        None if totals.counter(Counter::MessagesReceived) > 0 => Err(Obstacle::Silent(format!(
            "{place} gives no final response to {attempts}: does the called side answer?"
        ))),
        None => Err(Obstacle::Silent(format!(
            "nothing came back from {place} by {} within 2 s: does it speak SIP there and take {attempts}, does a firewall drop them, or is this address banned?",
            request.transport.text()
        ))),
    }
}

/// Returns the number of final responses other than successes, by status code.
fn codes(run: &Run) -> BTreeMap<u16, u64> {
    let mut codes: BTreeMap<u16, u64> = BTreeMap::new();
    run.totals.responses_received().iter().filter(|(_, code, _)| *code >= 300).for_each(|(_, code, count)| {
        *codes.entry(code).or_default() += count;
    });
    codes
}

/// Returns the obstacle if a server that accepted attempts before refuses all attempts of a trial by a code that is no sign
/// of overload.
pub(super) fn refuses(request: &CapacityRequest, made: &Made, load: f64) -> Option<Obstacle> {
    let run = Run::read(&made.logs).ok()?;
    if run.totals.counter(Counter::CallsSuccessful) > 0 {
        return None;
    }
    let (code, _) = codes(&run).into_iter().max_by_key(|(_, count)| *count)?;
    let is_own = (400..500).contains(&code) && !OF_LOAD.contains(&code);
    let sentence = format!(
        "{} took {attempts} and refuses all with {code} now, at {load} {}: {}",
        request.address,
        request.work.unit(),
        cure(request, code),
        attempts = request.work.attempts(),
    );
    is_own.then_some(Obstacle::Refused(sentence))
}

/// Codes below 500 by which a server may answer because of its load: time-out (408), rate limit (429), absence (480).
const OF_LOAD: [u16; 3] = [408, 429, 480];

fn challenge(request: &CapacityRequest, code: u16) -> String {
    let place = request.address;
    match request.words.iter().any(|word| word == "--users") {
        false => {
            format!("{place} asks for a password ({code}): give --users FILE with a line user;password for each user")
        }
        true => format!(
            "{place} asks for a password again ({code}) after the answer to its challenge: are the passwords of --users right, and does --domain name the domain of the users?"
        ),
    }
}

fn cure(request: &CapacityRequest, code: u16) -> &'static str {
    match (code, &request.work) {
        (403, _) => "this address or the users may be refused or banned, or the server relays for its own users alone",
        (404, Work::Calls) => "name a user that it knows, as --callee USER:PASSWORD with --pair",
        (404, _) => "--domain NAME says which domain the users are of",
        (480, _) => "the called user is not registered; --pair --callee USER:PASSWORD registers and answers here",
        (405 | 501, _) => "measure something else: --users FILE for registrations, --pair for calls",
        (429 | 503, _) => "it is overloaded or limits the rate; lift the limit for this address",
        _ => "its log knows more",
    }
}

/// Makes an obstacle of an error of the generator, from the last sentence of the error.
pub(super) fn of_generator(error: Error) -> super::Failure {
    let text = error.to_string();
    match text.lines().rev().find_map(|line| line.split_once("error: ")) {
        Some((_, sentence)) => Obstacle::Refused(sentence.into()).into(),
        None => error.into(),
    }
}

/// Waits until the server answers promptly again after a load that was too high.
pub(super) fn recovered(
    request: &CapacityRequest,
    answers_options: bool,
    load: f64,
    limit: Duration,
) -> Result<(), Obstacle> {
    if !answers_options {
        std::thread::sleep(PAUSE.min(limit));
        return Ok(());
    }
    let begun = Instant::now();
    loop {
        match probing(request, 3, PROMPT).is_answered() {
            Ok(true) => return Ok(()),
            Ok(false) if process::is_ending() => return Ok(()),
            Err(finding) => {
                let text = obstacle(finding);
                return Err(Obstacle::Dead(format!("after {load} {} the server is gone: {text}", request.work.unit())));
            }
            Ok(false) if begun.elapsed() >= limit => {
                return Err(Obstacle::Banned(format!(
                    "{} stopped answering after {load} {} and did not come back within {:.0} s: a ban (fail2ban, pike, a firewall's limit per source), or the server hangs",
                    request.address,
                    request.work.unit(),
                    limit.as_secs_f64()
                )));
            }
            // The queues of the server may still hold earlier requests.
            Ok(false) => std::thread::sleep(PROMPT),
        }
    }
}
