//! Cost of a call of the stress tests A to E to the engine alone: `bench_engine [--rounds N] [--letters A,B]`.
//!
//! Each letter's engine gets the configuration that is measured with sockets
//! (`crates/lab/systems/strowger/stress-a.toml` and so on), and the messages of its calls by UDP: INVITE, 180, 200,
//! ACK, BYE and 200, at 1,000 calls a second of simulated time. The messages of the server reach the parties, which
//! answer; their work is not timed. Rounds of the letters alternate, and begin in the steady state (after 32 s).
//! Printed are microseconds and allocations a call, and each letter next to the one on which it builds. These figures
//! do not include the kernel; those of `make bench-stress` do. Exit code 1 when a message of a call is not passed on,
//! or a call allocates more often than its limit.

use serde_json::json;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use strowger_allocations::{Counting, of_thread};
use strowger_benches::bar::Bar;
use strowger_benches::command_line::run;
use strowger_benches::engine_alone::{self, BEGIN, address};
use strowger_benches::median;
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use strowger_lab::document::DOMAIN;
use strowger_lab::experiment::{Axis, Experiment};
use strowger_lab::system::{SystemFolder, fill};
use strowger_server::engine::Engine;

#[global_allocator]
static ALLOCATOR: Counting<mimalloc::MiMalloc> = Counting(mimalloc::MiMalloc);

/// The engine's part of a call in the stress tests A to E
#[derive(clap::Parser)]
struct Arguments {
    /// Which of them
    #[arg(long, value_delimiter = ',', default_value = "A,B,C,D,E")]
    letters: Vec<String>,
    /// Rounds of each letter; the median counts
    #[arg(long, value_name = "N", default_value = "7", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Seconds of simulated time in each round
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// One JSON object in place of the lines
    #[arg(long)]
    json: bool,
}

const CALLER: &str = "127.0.0.1:5070";
const CALLEE: &str = "127.0.0.1:5080";

/// Calls that begin in one step of simulated time; their messages of one kind arrive in one round of the server.
const STEP: u64 = 16;

/// Milliseconds of simulated time in a step.
const STEP_TIME: u64 = 16;

/// Steps after which the state no longer grows: the longest timer of a call has 32 s.
const WARM: u64 = 40_000 / STEP_TIME;

const SESSION: &str = "v=0\r\no=call 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 6000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n";

/// Maximum allocations per call, once warm: none to relay it, some to track it and to look its user up.
const ALLOCATIONS: [(&str, f64); 5] = [("A", 0.5), ("B", 0.5), ("C", 12.0), ("D", 8.0), ("E", 18.0)];

/// Figures of some steps.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    calls: u64,
    time: Duration,
    allocations: u64,
}

/// The engine of a letter, and the parties of its calls.
struct Server {
    letter: String,
    engine: Engine,
    now: Now,
    out: Outbox,
    /// Destination URI of the calls.
    uri: String,
    calls: u64,
    figures: Figures,
}

impl Server {
    fn start(letter: &str, system: &SystemFolder, letters: &Axis) -> Result<Self, String> {
        let scenario = system.scenario(&format!("stress-{letter}"));
        let name = scenario.and_then(|scenario| scenario.configuration.as_ref());
        let file = system.files().iter().find(|(file, _)| Some(file) == name);
        let (_, text) = file.ok_or_else(|| format!("there is no stress test {letter}"))?;
        let values = [("ADDRESS", "127.0.0.1"), ("PORT", "5060"), ("WORKERS", "1"), ("DOMAIN", DOMAIN)];
        let text =
            fill(text, &values.map(|(name, value)| (name, value.to_owned()))).map_err(|error| error.to_string())?;
        let engine = engine_alone::engine(&text, Path::new("."))?;
        let now = BEGIN;
        let has_users = letters.users.get(letter).is_some_and(|users| *users > 0);
        let uri = if has_users { format!("sip:user1@{DOMAIN}") } else { format!("sip:service@{CALLEE}") };
        let (out, figures, letter) = (Outbox::new(), Figures::default(), letter.to_owned());
        let mut server = Self { letter, engine, now, out, uri, calls: 0, figures };
        if has_users {
            let register = format!(
                "REGISTER sip:{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP {CALLEE};branch=z9hG4bKregister\r\nMax-Forwards: 70\r\n\
                 From: <sip:user1@{DOMAIN}>;tag=r\r\nTo: <sip:user1@{DOMAIN}>\r\nCall-ID: register\r\nCSeq: 1 REGISTER\r\n\
                 Contact: <sip:user1@{CALLEE}>\r\nExpires: 3600\r\nContent-Length: 0\r\n\r\n"
            );
            let sent = server.receive(CALLEE, &[register]);
            if !sent.first().is_some_and(|(_, text)| text.starts_with("SIP/2.0 200 ")) {
                return Err(format!("{}: the user could not register: {sent:?}", server.letter));
            }
        }
        Ok(server)
    }

    /// Passes these messages of one party to the engine in one round, and measures the time. Returns the engine's
    /// messages without the 100s.
    fn receive(&mut self, from: &str, messages: &[String]) -> Vec<(SocketAddr, String)> {
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: address(from), flow: None };
        self.out.clear();
        let (allocated, began) = (of_thread(), Instant::now());
        for message in messages {
            self.engine.receive(self.now, &arrival, message.as_bytes(), &mut self.out);
        }
        self.figures.time += began.elapsed();
        self.figures.allocations += of_thread() - allocated;
        self.engine.effects.clear();
        let text = |range| String::from_utf8_lossy(&self.out.bytes[range]).into_owned();
        let all = self.out.sends().iter().map(|send| (send.target.address, text(send.range())));
        all.filter(|(_, text)| !text.starts_with("SIP/2.0 100 ")).collect()
    }

    /// Runs the timers that are due, and measures the time.
    fn poll(&mut self) {
        self.out.clear();
        let (allocated, began) = (of_thread(), Instant::now());
        if self.engine.deadline().is_some_and(|at| at <= self.now.mono) {
            self.engine.poll(self.now, &mut self.out);
        }
        self.figures.time += began.elapsed();
        self.figures.allocations += of_thread() - allocated;
    }

    /// Runs one step of calls, from their INVITE to the answer to their BYE.
    fn step(&mut self) -> Result<(), String> {
        let numbers = self.calls..self.calls + STEP;
        self.calls += STEP;
        (self.now.mono, self.now.wall) = (self.now.mono + STEP_TIME, self.now.wall + STEP_TIME);
        self.poll();
        let invites: Vec<String> = numbers.clone().map(|number| self.invite(number)).collect();
        let arrived = self.pass(CALLER, &invites, CALLEE)?;
        let ringing: Vec<String> = arrived.iter().map(|invite| answer(invite, "180 Ringing", "")).collect();
        self.pass(CALLEE, &ringing, CALLER)?;
        let answers: Vec<String> = arrived.iter().map(|invite| answer(invite, "200 OK", SESSION)).collect();
        let answered = self.pass(CALLEE, &answers, CALLER)?;
        let mut ends = Ends::default();
        for response in &answered {
            ends.add(response, &self.uri);
        }
        let of_calls = |method: &str, cseq: u32| -> Vec<String> {
            numbers.clone().map(|number| ends.request(number, method, cseq)).collect()
        };
        let (acks, byes) = (of_calls("ACK", 1), of_calls("BYE", 3));
        self.pass(CALLER, &acks, CALLEE)?;
        let arrived = self.pass(CALLER, &byes, CALLEE)?;
        let answers: Vec<String> = arrived.iter().map(|bye| answer(bye, "200 OK", "")).collect();
        self.pass(CALLEE, &answers, CALLER)?;
        self.figures.calls += STEP;
        Ok(())
    }

    /// Checks that each of these messages leads to one message to the other party.
    fn pass(&mut self, from: &str, messages: &[String], to: &str) -> Result<Vec<String>, String> {
        let sent = self.receive(from, messages);
        let whole = sent.len() == messages.len() && sent.iter().all(|(at, _)| *at == address(to));
        if !whole {
            let (letter, first) = (&self.letter, messages.first());
            return Err(format!("{letter}: {} of {} were passed on: {first:?}: {sent:?}", sent.len(), messages.len()));
        }
        Ok(sent.into_iter().map(|(_, text)| text).collect())
    }

    fn invite(&self, number: u64) -> String {
        let uri = &self.uri;
        format!(
            "INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {CALLER};branch=z9hG4bKi{number}\r\nMax-Forwards: 70\r\n\
             From: <sip:user1@{DOMAIN}>;tag=c{number}\r\nTo: <{uri}>\r\nCall-ID: {number}@127.0.0.1\r\nCSeq: 1 INVITE\r\n\
             Contact: <sip:user1@{CALLER}>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{SESSION}",
            SESSION.len()
        )
    }
}

/// The caller's knowledge of its calls from their 200s.
#[derive(Default)]
struct Ends {
    /// Request-URI, Route, and To, by Call-ID.
    calls: HashMap<String, (String, String, String)>,
}

impl Ends {
    fn add(&mut self, response: &str, uri: &str) {
        let value = |name: &str| response.split("\r\n").find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let routes: Vec<&str> = response.split("\r\n").filter_map(|line| line.strip_prefix("Record-Route: ")).collect();
        let route: String = routes.iter().rev().map(|route| format!("Route: {route}\r\n")).collect();
        let target = value("Contact: ").trim_start_matches('<').split('>').next().unwrap_or(uri).to_owned();
        self.calls.insert(value("Call-ID: ").to_owned(), (target, route, value("To: ").to_owned()));
    }

    fn request(&self, number: u64, method: &str, cseq: u32) -> String {
        let call_id = format!("{number}@127.0.0.1");
        let (target, route, to) = self.calls.get(&call_id).cloned().unwrap_or_default();
        format!(
            "{method} {target} SIP/2.0\r\nVia: SIP/2.0/UDP {CALLER};branch=z9hG4bK{method}{number}\r\n{route}Max-Forwards: 70\r\n\
             From: <sip:user1@{DOMAIN}>;tag=c{number}\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: {cseq} {method}\r\n\
             Content-Length: 0\r\n\r\n"
        )
    }
}

/// Returns the answer of the callee to a request.
fn answer(request: &str, status: &str, body: &str) -> String {
    let is_copied =
        |line: &&str| ["Via:", "From:", "Call-ID:", "CSeq:", "Record-Route:"].iter().any(|name| line.starts_with(name));
    let copied: String = request.split("\r\n").filter(is_copied).map(|line| format!("{line}\r\n")).collect();
    let to = request.split("\r\n").find(|line| line.starts_with("To:")).unwrap_or_default();
    let tag = if to.contains(";tag=") { "" } else { ";tag=called" };
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    format!(
        "SIP/2.0 {status}\r\n{copied}{to}{tag}\r\nContact: <sip:service@{CALLEE}>\r\n{kind}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    let (experiment, _) = Experiment::shipped("stress").ok_or("there is no experiment stress")?;
    let letters = experiment.axes.first().ok_or("the stress tests have no letters")?;
    let system = SystemFolder::open("strowger", None).map_err(|error| error.to_string())?;
    let start = |letter: &String| Server::start(letter, &system, letters);
    let mut servers: Vec<Server> = arguments.letters.iter().map(start).collect::<Result<_, _>>()?;
    let mut rounds: Vec<Vec<Figures>> = vec![Vec::new(); servers.len()];
    for server in &mut servers {
        (0..WARM).try_for_each(|_| server.step())?;
    }
    let steps = arguments.seconds * 1_000 / STEP_TIME;
    for number in 0..arguments.rounds {
        let mut order: Vec<usize> = (0..servers.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        for n in order {
            servers[n].figures = Figures::default();
            (0..steps).try_for_each(|_| servers[n].step())?;
            rounds[n].push(servers[n].figures);
        }
    }
    let time = |figures: &Figures| figures.time.as_secs_f64() * 1e6 / figures.calls as f64;
    let allocations = |figures: &Figures| figures.allocations as f64 / figures.calls as f64;
    let costs: HashMap<&str, f64> = servers
        .iter()
        .zip(&rounds)
        .map(|(server, rounds)| (server.letter.as_str(), median(rounds.iter().map(time).collect())))
        .collect();
    let (mut lines, mut bars) = (Vec::new(), Vec::new());
    for (server, rounds) in servers.iter().zip(&rounds) {
        let letter = server.letter.as_str();
        let cost = costs[letter];
        let allocations = median(rounds.iter().map(allocations).collect());
        let base = letters.against.get(letter).and_then(|base| Some((base, cost / costs.get(base.as_str())?)));
        if let Some((_, most)) = ALLOCATIONS.iter().find(|(of, _)| *of == letter) {
            bars.push(Bar::most(&format!("{letter}: allocations a call"), allocations, *most));
        }
        lines.push(json!({"letter": letter, "microseconds": cost, "allocations": allocations, "over": base}));
        if !arguments.json {
            let beside = base.map_or_else(String::new, |(base, ratio)| format!(", {ratio:.2} of {base}"));
            let title = letters.titles.get(letter).map_or("", String::as_str);
            println!("{letter}: {cost:.2} µs, {allocations:.1} allocations a call{beside}   ({title})");
        }
    }
    if arguments.json {
        println!("{}", json!({"letters": lines, "bars": bars}));
    } else {
        bars.iter().for_each(|bar| println!("{bar}"));
    }
    Ok(bars.iter().all(Bar::is_met))
}

fn main() -> ExitCode {
    run(measure)
}
