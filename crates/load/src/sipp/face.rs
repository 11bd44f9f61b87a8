//! From the command line to the exit code.

use super::counts::Counts;
use super::keys::{self, Key};
use super::options::{Options, Sockets, Source};
use super::screen::View;
use super::statistics::Statistics;
use super::trace::{self, Tracer};
use super::{background, host};
use crate::command::Link;
use crate::engine::Halt;
use crate::engine::ledger::Ledger;
use crate::engine::pace::{Arrivals, Part};
use crate::engine::run::{Behaviour, Load, Retransmission, Run};
use crate::engine::script::Script;
use crate::engine::traffic::{Event, Order, Traffic};
use crate::engine::watch::Watch;
use crate::injection::{Injection, InjectionOptions};
use crate::measure::{Books, Clock, Collector};
use crate::media::{Legs, Plane};
use crate::scenario::step::{Kind, Pause};
use crate::scenario::{Cause, Distribution, Environment, Role, Scenario, builtin};
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use strowger_core::{ListenerId, Transport};
use strowger_net::{Listener, Net, Node, Settings, Shards, clock, tls};

/// Exit codes, as SIPp has them.
pub mod code {
    /// All calls were successful.
    pub const SUCCESS: u8 = 0;
    /// A call failed; the command line cannot be used.
    pub const FAILED: u8 = 1;
    /// The end came by a command or a timeout, and no call has succeeded or failed.
    pub const INTERNAL: u8 = 97;
    /// The work goes on in the background.
    pub const BACKGROUND: u8 = 99;
    /// Something made the run impossible.
    pub const FATAL: u8 = 255;
}

/// Why there is no run: the exit code and a sentence.
struct Failure(u8, String);

/// Runs SIPp's command line (the words behind the program's name) and gives the exit code.
pub fn run(words: &[String]) -> u8 {
    match try_run(words) {
        Ok(code) => code,
        Err(Failure(code, text)) => {
            eprintln!("{text}");
            code
        }
    }
}

fn try_run(words: &[String]) -> Result<u8, Failure> {
    let options = Options::parse(words).map_err(|text| Failure(code::FAILED, text))?;
    if options.version {
        println!("\n SIPp v3.6.1-SCTP-PCAP-RTPSTREAM, as Strowger {} has it.\n", env!("CARGO_PKG_VERSION"));
        return Ok(code::FAILED);
    }
    if options.help {
        print!("{}", HELP);
        return Ok(code::FAILED);
    }
    if let Some(name) = &options.dump {
        let text = builtin::document(name).ok_or_else(|| Failure(code::FAILED, unknown(name)))?;
        print!("{text}");
        return Ok(code::SUCCESS);
    }
    if options.sockets != Sockets::One {
        eprintln!(
            "Warning: all calls share one socket or connection; those of -t un, ui, tn and ln have none of their own."
        );
    }
    for name in &options.ignored {
        eprintln!("Warning: '-{name}' is accepted and does nothing.");
    }
    let scenario = Arc::new(load(&options, &options.scenario)?);
    let out_of_call = match &options.out_of_call {
        Some(source) => Some(Arc::new(load(&options, source)?)),
        None => None,
    };
    if options.background {
        let pid = background::start(words).map_err(|e| Failure(code::FATAL, format!("Forking error: {e}")))?;
        println!("Background mode - PID=[{pid}]");
        return Ok(code::BACKGROUND);
    }
    std::thread::sleep(Duration::from_millis(options.sleep));
    Session::start(options, scenario, out_of_call)?.wait()
}

const HELP: &str = "\
Usage: sipp remote_host[:remote_port] [options]

  sipp -sn uas                              answer calls on port 5060
  sipp -sn uac 127.0.0.1                    make calls, 10 a second
  sipp -sn uac 127.0.0.1 -r 100 -m 1000     100 a second, 1,000 in all
  sipp -sf mine.xml -inf users.csv host     a scenario of your own, with data

Options are SIPp's: -sf -sn -sd -r -rp -m -l -d -s -p -i -t -key -set -inf -au -ap -rsa -timeout -timeout_error
-recv_timeout -aa -nd -default_behaviors -bg -nostdin -trace_msg -trace_err -trace_stat -trace_rtt -trace_logs ...
";

fn unknown(name: &str) -> String {
    format!("Unknown built-in scenario '{name}'; there are {}", builtin::NAMES.join(", "))
}

/// Reads a scenario, and says what is wrong with it.
fn load(options: &Options, source: &Source) -> Result<Scenario, Failure> {
    let base = |path: &Path| path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let (third_party, peers) = super::third_party::form(options).map_err(|text| Failure(code::FAILED, text))?;
    let environment = Environment {
        keys: options.keys.clone(),
        injections: options.injections.iter().map(|p| base(p)).collect(),
        globals: options.sets.iter().map(|s| s.0.clone()).collect(),
        third_party,
        peers,
        ..Environment::default()
    };
    let loaded = match source {
        Source::File(path) => Scenario::load(path, &environment),
        Source::BuiltIn(name) => {
            let text = builtin::document(name).ok_or_else(|| Failure(code::FAILED, unknown(name)))?;
            Scenario::parse(text.as_bytes(), Path::new(name), &environment)
        }
    };
    let scenario = loaded.map_err(|refusal| {
        let code = if refusal.cause == Cause::ThirdParty { code::FATAL } else { code::FAILED };
        Failure(code, refusal.to_string())
    })?;
    for warning in &scenario.warnings {
        tracing::debug!(line = warning.line, column = warning.column, "{}", warning.text);
    }
    Ok(scenario)
}

/// Reads the injection files, with the indices that are asked for.
fn injections(options: &Options) -> Result<Arc<[Injection]>, Failure> {
    let file = |path: &PathBuf| {
        let index = options.indices.iter().rev().find(|(of, _)| of.file_name() == path.file_name()).map(|i| i.1);
        let loaded = Injection::load(path, InjectionOptions { index, ..InjectionOptions::default() });
        loaded.map_err(|error| Failure(code::FAILED, error.to_string()))
    };
    options.injections.iter().map(file).collect()
}

/// A run under way.
struct Session {
    options: Options,
    scenario: Arc<Scenario>,
    run: Arc<Run>,
    node: Node<Traffic>,
    collector: Collector,
    events: Receiver<Event>,
    statistics: Option<Statistics>,
    started: Instant,
    rate: f64,
    base: String,
    ledger: Ledger,
    /// Media are sent as long as it is there.
    media: Option<super::media::Shown>,
    /// To the other controllers of third party call control.
    link: Option<Link>,
    timed_out: bool,
    quitting: bool,
    keys: Receiver<Key>,
    counts: Option<Counts>,
    screen: u8,
    paused: bool,
    /// The target, for the screen.
    remote: String,
    /// Every call was asked to end at once.
    ended: bool,
    /// Screens are shown.
    show: bool,
}

impl Session {
    fn start(
        mut options: Options,
        scenario: Arc<Scenario>,
        out_of_call: Option<Arc<Scenario>>,
    ) -> Result<Self, Failure> {
        options.threads = threads(&options, &scenario);
        let fatal = |text: String| Failure(code::FATAL, text);
        let remote = match &options.remote {
            Some((name, port)) => Some(host::resolve(name, *port).map_err(fatal)?),
            None => None,
        };
        if remote.is_none() && scenario.role == Role::Client {
            return Err(fatal("Missing remote host parameter. This scenario requires it.".into()));
        }
        let sending_address = match &options.sending_address {
            Some((name, port)) => Some(host::resolve(name, *port).map_err(fatal)?),
            None => None,
        };
        let local: IpAddr = match &options.local_ip {
            Some(ip) => host::resolve(ip, 0).map_err(fatal)?.ip(),
            None => host::local(remote),
        };
        let (net, local_port) = bind(&options, local, scenario.role == Role::Client)?;
        let played: Vec<&Scenario> =
            [Some(&scenario), out_of_call.as_ref()].into_iter().flatten().map(|s| &**s).collect();
        let plane = super::media::plane(&options, &played, local).map_err(fatal)?;
        let mut run = plan(&options, &scenario, remote, sending_address, local, local_port);
        run.media_port = plane.as_ref().map_or(run.media_port, Plane::port);
        run.injections = injections(&options)?;
        let run = Arc::new(run);
        let main = Arc::new(Script::new(scenario.clone(), &run).map_err(fatal)?);
        let out_of_call = match out_of_call {
            Some(scenario) => Some(Arc::new(Script::new(scenario, &run).map_err(fatal)?)),
            None => None,
        };
        let base = format!("{}_{}", name_of(&options.scenario), run.pid);
        let now = clock::micros();
        let mut collector =
            Collector::new(Clock::new(now, SystemTime::now()), scenario.timers.clone(), options.threads);
        let statistics = statistics(&options, &scenario, &base).map_err(fatal)?;
        let tracer = Tracer::new(&options.traces, &base, options.rtt_frequency);
        let (events_out, events) = channel();
        // Made here, one for each shard.
        type Parts = (Books, std::sync::mpsc::Sender<Event>, Option<Box<dyn Watch>>, Option<Legs>);
        let mut watch = tracer.map(|t| t as Box<dyn Watch>);
        let mut part =
            || -> Parts { (collector.books(now), events_out.clone(), watch.take(), plane.as_ref().map(Plane::legs)) };
        let parts: Vec<Parts> = (0..options.threads).map(|_| part()).collect();
        let parts = Mutex::new(parts.into_iter());
        let several = options.threads > 1;
        let shared = run.clone();
        let (opened, ear) = match super::third_party::plan(&options, &scenario).map_err(fatal)? {
            Some(plan) => {
                Link::open(&plan).map(|(link, ear)| (Some(link), Some(ear))).map_err(|e| fatal(e.to_string()))?
            }
            None => (None, None),
        };
        let link = opened.clone();
        let node = net
            .spawn(move |index, handle| {
                let parts = parts.lock().unwrap_or_else(|e| e.into_inner()).next();
                let (books, events, watch, legs) = parts.expect("each shard is started once");
                let traffic = Traffic::new(shared.clone(), main.clone(), out_of_call.clone(), books, events)
                    .watched(watch)
                    .with_link(link.clone())
                    .with_media(legs);
                if !several {
                    return traffic;
                }
                // Nothing begins before each shard has its calls.
                traffic.paused().owning(Box::new(move |name| handle.owner(handle.bucket(name)) == index))
            })
            .map_err(|e| fatal(format!("the engine could not be started: {e}")))?;
        if several {
            (0..options.threads).for_each(|i| node.handle().mailbox(i).send(Order::Pause(false)));
        }
        if let Some(ear) = ear {
            let mailbox = node.handle().mailbox(0);
            ear.hear(Arc::new(move |heard| mailbox.send(Order::Heard(heard))))
                .map_err(|e| fatal(format!("other controllers cannot be heard: {e}")))?;
        }
        let (keys_in, keys) = channel();
        keys::signals(node.handle().services(), &keys_in);
        let control = match &options.control_ip {
            Some(ip) => host::resolve(ip, 0).map_err(fatal)?.ip(),
            None if options.local_ip.is_some() => local,
            None if local.is_ipv6() => Ipv6Addr::UNSPECIFIED.into(),
            None => Ipv4Addr::UNSPECIFIED.into(),
        };
        keys::control(control, options.control_port, keys_in.clone())
            .map_err(|e| fatal(format!("Unable to bind remote control socket: {e}")))?;
        if options.keyboard {
            keys::terminal(keys_in);
        }
        let counts = counts(&options, &scenario, &base).map_err(fatal)?;
        let run_remote = run.target.map_or(String::new(), |target| target.to_string());
        let rate = options.rate;
        let media = plane.map(|plane| super::media::Shown::new(plane, &options));
        Ok(Self {
            ledger: Ledger::new(&scenario),
            options,
            scenario,
            run,
            node,
            collector,
            events,
            statistics,
            started: Instant::now(),
            rate,
            base,
            media,
            link: opened,
            timed_out: false,
            quitting: false,
            keys,
            counts,
            remote: run_remote,
            ended: false,
            show: std::io::stdout().is_terminal(),
            screen: 1,
            paused: false,
        })
    }

    /// Tells all shards.
    fn order(&self, order: impl Fn() -> Order) {
        (0..self.options.threads).for_each(|shard| self.node.handle().mailbox(shard).send(order()));
    }

    /// The counts as they are now.
    fn report(&mut self) {
        let (to, from) = sync_channel(self.options.threads);
        self.order(|| Order::Report(to.clone()));
        let mut sum: Option<Ledger> = None;
        for _ in 0..self.options.threads {
            let Ok(ledger) = from.recv_timeout(Duration::from_millis(500)) else { return };
            match &mut sum {
                Some(sum) => sum.add(&ledger),
                None => sum = Some(ledger),
            }
        }
        self.ledger = sum.unwrap_or_else(|| self.ledger.clone());
    }

    fn wait(mut self) -> Result<u8, Failure> {
        let period = Duration::from_millis(self.options.screen_period);
        let file_period = Duration::from_millis(self.options.statistics_period);
        let timeout = self.options.timeout.map(Duration::from_millis);
        let rate_interval = Duration::from_millis(self.options.rate_interval.unwrap_or(self.options.statistics_period));
        let (mut screens, mut files, mut rates) = (1u32, 1u32, 1u32);
        let (mut finished, mut sum): (usize, Option<Ledger>) = (0, None);
        let ledger = loop {
            let elapsed = self.started.elapsed();
            let mut next = file_period * files;
            if self.show {
                next = next.min(period * screens);
            }
            if let Some(timeout) = timeout.filter(|_| !self.timed_out) {
                next = next.min(timeout);
            }
            if self.options.rate_increase != 0.0 {
                next = next.min(rate_interval * rates);
            }
            let patience = next.saturating_sub(elapsed).min(Duration::from_millis(200));
            match self.events.recv_timeout(patience.max(Duration::from_millis(1))) {
                Ok(Event::Finished(ledger)) => {
                    finished += 1;
                    match &mut sum {
                        Some(sum) => sum.add(&ledger),
                        None => sum = Some(*ledger),
                    }
                    if finished == self.options.threads {
                        break sum.unwrap_or_default();
                    }
                }
                Ok(Event::Halt(Halt::Gracefully)) => self.quitting = true,
                Ok(Event::Halt(Halt::Now)) => {
                    self.report();
                    self.close(&self.ledger.clone());
                    return Ok(code::INTERNAL);
                }
                Ok(Event::Halt(Halt::Error)) => {
                    self.report();
                    self.close(&self.ledger.clone());
                    return Ok(code::FATAL);
                }
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure(code::FATAL, "the engine has ended".into()));
                }
            }
            self.collector.poll(clock::micros(), |_| {});
            self.read_keys();
            let elapsed = self.started.elapsed();
            if elapsed >= file_period * files {
                files = (elapsed.as_nanos() / file_period.as_nanos()) as u32 + 1;
                self.report();
                let (ledger, rate) = (self.ledger.clone(), self.rate);
                self.write_statistics(&ledger, rate);
                self.write_counts(&ledger);
            }
            if self.show && elapsed >= period * screens {
                screens = (elapsed.as_nanos() / period.as_nanos()) as u32 + 1;
                self.report();
                self.draw(false);
            }
            if self.options.rate_increase != 0.0 && elapsed >= rate_interval * rates {
                rates += 1;
                self.increase();
            }
            if timeout.is_some_and(|t| elapsed >= t) && !self.timed_out {
                self.timed_out = true;
                self.quitting = true;
                if self.options.timeout_error {
                    self.report();
                    self.close(&self.ledger.clone());
                    let seconds = elapsed.as_secs_f64();
                    let name = name_of(&self.options.scenario);
                    return Err(Failure(code::FATAL, format!("{name} timed out after '{seconds:.3}' seconds")));
                }
                self.order(|| Order::Quit);
            }
        };
        self.close(&ledger);
        self.ledger = ledger;
        if self.show {
            self.draw(true);
        } else if !self.options.background {
            let _ = std::io::stdout().write_all(self.view(true).scenario().as_bytes());
        }
        Ok(match (self.ledger.failed, self.ledger.successful) {
            (0, 0) if self.timed_out => code::INTERNAL,
            (0, _) => code::SUCCESS,
            _ => code::FAILED,
        })
    }

    /// The last lines of all files.
    fn close(&mut self, ledger: &Ledger) {
        self.say_out();
        self.node.handle().stop();
        if let Some(link) = &self.link {
            link.close();
        }
        if let Some(text) = self.media.as_ref().and_then(super::media::Shown::trouble) {
            eprintln!("{text}");
        }
        let rate = self.rate;
        self.write_statistics(ledger, rate);
        self.write_counts(ledger);
        if self.options.traces.screen {
            self.ledger = ledger.clone();
            self.dump(true);
        }
    }

    /// What was said last still goes out: a connection may just be under way. A second at most.
    fn say_out(&mut self) {
        // An answer means that the round of the last words is over.
        self.report();
        let end = Instant::now() + Duration::from_secs(1);
        let waiting = |this: &Self| {
            let total = this.node.handle().total();
            total.stream_bytes_waiting + total.datagrams_waiting
        };
        while waiting(self) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.options.transport.is_reliable() {
            // The peer may still be busy with what we said; a call of SIPp's that is not at its end fails with its
            // connection.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Writes the screens into their file.
    fn dump(&self, ending: bool) {
        let text = self.view(ending).scenario() + &self.view(ending).statistics();
        let file = trace::create(self.options.traces.screen_file.as_deref(), &self.base, "screen.log");
        if let Err(error) = file.and_then(|mut f| f.write_all(text.as_bytes()).map_err(|e| e.to_string())) {
            eprintln!("{error}");
        }
    }

    fn write_counts(&mut self, ledger: &Ledger) {
        if let Some(counts) = &mut self.counts
            && let Err(error) = counts.write(&self.scenario, ledger)
        {
            eprintln!("The counts cannot be written: {error}");
            self.counts = None;
        }
    }

    fn write_statistics(&mut self, ledger: &Ledger, rate: f64) {
        if let Some(statistics) = &mut self.statistics
            && let Err(error) = statistics.write(ledger, rate)
        {
            eprintln!("The statistics cannot be written: {error}");
            self.statistics = None;
        }
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.max(0.0);
        self.order(|| Order::Rate(self.rate * 1_000.0 / self.options.rate_period as f64));
    }

    /// `-rate_increase`, up to `-rate_max`.
    fn increase(&mut self) {
        let mut rate = self.rate + self.options.rate_increase;
        if let Some(most) = self.options.rate_max.filter(|&most| rate > most) {
            rate = most;
            if self.options.rate_quit && self.rate >= most {
                self.quitting = true;
                self.order(|| Order::Quit);
            }
        }
        self.set_rate(rate);
    }

    /// No calls are begun any more; asked for again, those that are open end.
    fn quit(&mut self, at_once: bool) {
        let goodbye = self.options.behaviours.goodbye;
        if at_once || self.quitting {
            self.ended = true;
            self.order(|| Order::End { goodbye });
        } else {
            self.order(|| Order::Quit);
        }
        self.quitting = true;
    }

    fn read_keys(&mut self) {
        while let Ok(key) = self.keys.try_recv() {
            let step = self.options.rate_scale;
            match key {
                Key::Letter(b'q') => self.quit(false),
                Key::Letter(b'Q') => self.quit(true),
                Key::Letter(b'+') => self.set_rate(self.rate + step),
                Key::Letter(b'-') => self.set_rate(self.rate - step),
                Key::Letter(b'*') => self.set_rate(self.rate + 10.0 * step),
                Key::Letter(b'/') => self.set_rate(self.rate - 10.0 * step),
                Key::Letter(b'p') => {
                    self.paused = !self.paused;
                    self.order(|| Order::Pause(self.paused));
                }
                Key::Letter(b's') | Key::Dump => {
                    self.report();
                    self.dump(false);
                }
                Key::Letter(digit @ b'1'..=b'9') => self.screen = digit - b'0',
                Key::Letter(_) => (),
                Key::Command(line) => self.command(&line),
            }
        }
    }

    /// A line of the command mode.
    fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| *n >= 0.0);
        match words[..] {
            ["set", "rate", rate] if number(rate).is_some() => self.set_rate(number(rate).unwrap_or(self.rate)),
            ["set", "rate-scale", scale] if number(scale).is_some() => {
                self.options.rate_scale = number(scale).unwrap_or(1.0);
            }
            ["set", "limit", limit] if number(limit).is_some() => {
                self.order(|| Order::Limit(number(limit).unwrap_or(0.0) as u64));
            }
            ["set", "hide", value] => self.show = value != "true" && std::io::stdout().is_terminal(),
            ["dump", _] => {
                self.report();
                self.dump(false);
            }
            _ => eprintln!("Unrecognized command: \"{line}\"; there are set rate, rate-scale, limit, hide, and dump"),
        }
    }

    fn view(&self, ending: bool) -> View<'_> {
        View {
            scenario: &self.scenario,
            ledger: &self.ledger,
            rate: self.rate,
            period: self.options.rate_period,
            duration: self.options.duration.unwrap_or(0),
            port: self.run.local_port,
            seconds: self.started.elapsed().as_secs_f64(),
            remote: &self.remote,
            transport: self.run.transport.via(),
            limit: self.run.load.limit.saturating_mul(self.options.threads as u64),
            media: self.media.as_ref().map_or_else(String::new, super::media::Shown::lines),
            ending,
        }
    }

    fn draw(&self, ending: bool) {
        let view = self.view(ending);
        let text = if self.screen == 2 { view.statistics() } else { view.scenario() };
        let mut out = std::io::stdout().lock();
        let _ = write!(out, "\x1b[2J\x1b[H{text}");
        let _ = out.flush();
    }
}

/// The name by which SIPp calls the files of a run.
fn name_of(source: &Source) -> String {
    match source {
        Source::BuiltIn(name) => name.clone(),
        Source::File(path) => {
            let path = path.to_string_lossy();
            path.strip_suffix(".xml").unwrap_or(&path).to_owned()
        }
    }
}

fn counts(options: &Options, scenario: &Scenario, base: &str) -> Result<Option<Counts>, String> {
    if !options.traces.counts {
        return Ok(None);
    }
    let file = trace::create(None, base, "counts.csv")?;
    let mut counts = Counts::new(file, &options.delimiter, scenario).map_err(|e| format!("the counts: {e}"))?;
    let _ = counts.write(scenario, &Ledger::new(scenario));
    Ok(Some(counts))
}

fn statistics(options: &Options, scenario: &Scenario, base: &str) -> Result<Option<Statistics>, String> {
    if !options.traces.statistics {
        return Ok(None);
    }
    let file = trace::create(options.traces.statistics_file.as_deref(), base, ".csv")?;
    let mut statistics =
        Statistics::new(file, &options.delimiter, scenario).map_err(|e| format!("the statistics: {e}"))?;
    let _ = statistics.write(&Ledger::new(scenario), options.rate);
    Ok(Some(statistics))
}

/// How many shards share the calls: one where they need to know of each other.
fn threads(options: &Options, scenario: &Scenario) -> usize {
    let traces = &options.traces;
    let traced = traces.messages || traces.short_messages || traces.errors || traces.logs || traces.error_codes;
    let why = if traced || traces.rtt {
        "traces are written by one"
    } else if options.users.is_some() {
        "-users are served by one"
    } else if scenario.role == Role::Server && options.calls.is_some() {
        "-m is counted by one"
    } else if scenario.third_party.is_some() || options.transport.is_reliable() {
        "connections are served by one"
    } else {
        return options.threads;
    };
    if options.threads > 1 {
        eprintln!("Warning: -threads {}: {why}.", options.threads);
    }
    1
}

/// The sockets: on the port that is asked for, else the first free from 5060 on. Who calls over streams listens
/// nowhere that matters: the port is that from which it connects, that of `-p` or any free one.
fn bind(options: &Options, local: IpAddr, calls: bool) -> Result<(Net, u16), Failure> {
    let any: IpAddr = if local.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let ip = if options.local_ip.is_some() || options.bind_local { local } else { any };
    let dials = calls && options.transport.is_reliable();
    let settings = |port: u16| Settings {
        shards: Shards::Fixed(options.threads),
        kernel_steering: options.threads > 1,
        force_buffers: true,
        segment: true,
        coalesce: true,
        batch: 256,
        exact_timers: true,
        receive_buffer: 64 << 20,
        send_buffer: 16 << 20,
        dial_port: if dials && options.sockets == Sockets::One { port } else { 0 },
        tls: tls_client(options),
        ..Settings::default()
    };
    let try_port = |port: u16| -> std::io::Result<(Net, u16)> {
        if !dials {
            let mut listener = Listener::new(options.transport, SocketAddr::new(ip, port));
            listener.tls = tls_server(options);
            let net = Net::bind(settings(port), vec![listener])?;
            let port = net.addresses().first().map_or(port, SocketAddr::port);
            return Ok((net, port));
        }
        // Whether it is free.
        let port = TcpListener::bind(SocketAddr::new(ip, port))?.local_addr()?.port();
        let listener = Listener::new(Transport::Tcp, SocketAddr::new(ip, 0));
        Ok((Net::bind(settings(port), vec![listener])?, port))
    };
    let refused = |error: std::io::Error, port: u16| {
        Failure(code::FATAL, format!("Unable to bind main socket to {ip}:{port}: {error}"))
    };
    if let Some(port) = options.local_port {
        return try_port(port).map_err(|e| refused(e, port));
    }
    if dials {
        // Nobody has asked for one: any free port, and messages name it.
        return try_port(0).map_err(|e| refused(e, 0));
    }
    for port in 5060..5060 + 60 {
        if let Ok(bound) = try_port(port) {
            return Ok(bound);
        }
    }
    try_port(0).map_err(|e| refused(e, 0))
}

/// Our certificate, for those who connect to us.
fn tls_server(options: &Options) -> Option<tls::Server> {
    if !options.transport.is_secure() {
        return None;
    }
    let or = |given: &Option<PathBuf>, name: &str| given.clone().unwrap_or_else(|| name.into());
    Some(tls::Server {
        certificate: or(&options.tls_certificate, "cacert.pem"),
        key: or(&options.tls_key, "cakey.pem"),
        client_authorities: None,
    })
}

/// Whom we trust: with `-tls_ca` those whom it vouches for, else everybody, as SIPp does.
fn tls_client(options: &Options) -> tls::Client {
    tls::Client { authorities: options.tls_ca.clone(), unverified: options.tls_ca.is_none(), identity: None }
}

/// Milliseconds between two moments at which calls are begun: about six calls each, which is finer than SIPp's own
/// bunches, and at most 3 ms.
fn bunch(rate: f64) -> u64 {
    if rate > 0.0 { (6_000.0 / rate).clamp(1.0, 3.0) as u64 } else { 1 }
}

/// What the engine has to know.
fn plan(
    options: &Options,
    scenario: &Arc<Scenario>,
    remote: Option<SocketAddr>,
    sending_address: Option<SocketAddr>,
    local: IpAddr,
    local_port: u16,
) -> Run {
    let duration = options.duration.unwrap_or(0);
    let calls = options.rate;
    let rate = calls * 1_000.0 / options.rate_period as f64;
    // Pauses of the scenario, as far as they are known beforehand.
    let pauses: f64 = scenario
        .steps
        .iter()
        .map(|step| match &step.kind {
            Kind::Pause(Pause::Drawn(Distribution::Fixed(ms))) => *ms,
            Kind::Pause(Pause::Default) => duration as f64,
            _ => 0.0,
        })
        .sum();
    let limit = options.limit.unwrap_or_else(|| {
        let length = pauses.max(duration as f64).max(1_000.0);
        ((3.0 * options.rate * length / options.rate_period as f64) as u64).max(1)
    });
    let or = |value: Option<u64>, default: u32| value.map_or(default, |v| u32::try_from(v).unwrap_or(u32::MAX));
    let retransmission = Retransmission::default();
    let behaviour = Behaviour::default();
    Run {
        target: remote,
        target_host: options.remote.as_ref().map_or(String::new(), |(host, _)| host.clone()),
        sending_address,
        transport: options.transport,
        listener: ListenerId(0),
        local_ip: local.to_string(),
        local_port,
        media_ip: options.media_ip.clone().unwrap_or_else(|| local.to_string()),
        media_port: options.media_port.or(options.min_rtp_port).unwrap_or(6_000),
        service: options.service.clone(),
        username: options.username.clone(),
        password: options.password.clone().unwrap_or_else(|| "password".into()),
        auth_uri: options.auth_uri.clone(),
        keys: options.keys.clone(),
        globals: options.sets.clone(),
        call_id: options.call_id.clone().unwrap_or_else(|| "%u-%p@%s".into()),
        dynamic_id: options.dynamic_id,
        // The first request has it.
        base_cseq: options.base_cseq.saturating_sub(1),
        load: Load {
            profile: vec![Part::Hold { rate }],
            arrivals: Arrivals::Fixed,
            calls: options.calls,
            limit: if options.users.is_some() {
                options.limit.unwrap_or(u64::MAX)
            } else {
                limit.div_ceil(options.threads as u64)
            },
            keep_limited: false,
            users: options.users,
            step: options.timer_resolution.unwrap_or_else(|| bunch(rate)),
        },
        behaviour: Behaviour {
            goodbye: options.behaviours.goodbye,
            abort_unexpected: options.behaviours.abort_unexpected,
            answer_ping: options.behaviours.answer_ping,
            auto_answer: options.auto_answer,
            ignore_in_pause: options.ignore_in_pause,
            keep_slashes: options.keep_slashes,
            pause: Distribution::Fixed(duration as f64),
            receive_timeout: options.receive_timeout.filter(|&t| t > 0).map(|t| or(Some(t), 0)),
            send_timeout: options.send_timeout.filter(|&t| t > 0).map(|t| or(Some(t), 0)),
            dead_call_wait: or(options.dead_call_wait, behaviour.dead_call_wait),
            lost: options.lost,
        },
        retransmission: Retransmission {
            enabled: options.retransmit && options.transport == Transport::Udp,
            t2: or(options.t2, retransmission.t2),
            most: options.most.unwrap_or(retransmission.most),
            most_invite: options.most_invite.unwrap_or(retransmission.most_invite),
            most_non_invite: options.most_non_invite.unwrap_or(retransmission.most_non_invite),
            rfc3261: false,
            whole: !options.loose,
        },
        seed: options.seed.unwrap_or_else(|| u64::from(std::process::id()) ^ clock::micros()),
        ..Run::new(scenario.clone())
    }
}
