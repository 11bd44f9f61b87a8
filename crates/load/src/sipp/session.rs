//! Run in progress: its periodic work, and its end.

use super::counts::Counts;
use super::error_codes::ErrorCodes;
use super::errors::Errors;
use super::face::{Failure, code, name_of};
use super::keys::Key;
use super::log_file::LogFile;
use super::media;
use super::options::{Options, Sockets};
use super::screen::{Arrival, State, View};
use super::statistics::Statistics;
use super::terminal::Taken;
use super::trace::{Stamp, Switches};
use crate::command::Link;
use crate::engine::Halt;
use crate::engine::run::Run;
use crate::engine::sipp_stats::SippStats;
use crate::engine::traffic::{Event, ShardCommand, Traffic};
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use strowger_measure::Collector;
use strowger_net::{Node, clock};
use strowger_scenario::{Role, Scenario};

/// Run in progress.
pub(super) struct Session {
    pub(super) options: Options,
    pub(super) scenario: Arc<Scenario>,
    pub(super) run: Arc<Run>,
    pub(super) node: Node<Traffic>,
    pub(super) collector: Collector,
    pub(super) events: Receiver<Event>,
    pub(super) statistics: Option<Statistics>,
    pub(super) started: Instant,
    pub(super) stamp: Stamp,
    pub(super) rate: f64,
    /// Limit of concurrent calls.
    pub(super) limit: u64,
    pub(super) stats: SippStats,
    /// Counts at the last `reset stats`, which are subtracted.
    pub(super) forgotten: Option<SippStats>,
    /// Media, which are sent until this is dropped.
    pub(super) media: Option<media::Shown>,
    /// Connection to the other controllers of third party call control.
    pub(super) link: Option<Link>,
    pub(super) timed_out: bool,
    pub(super) quitting: bool,
    pub(super) keys: Receiver<Key>,
    pub(super) counts: Option<Counts>,
    pub(super) error_codes: Option<ErrorCodes>,
    pub(super) errors: Arc<Errors>,
    pub(super) switches: Arc<Switches>,
    /// File of `-trace_screen`.
    pub(super) screens: LogFile,
    pub(super) screen: u8,
    /// True if nothing is shown.
    pub(super) hide: bool,
    /// Out-of-call scenario, and whether its steps are shown instead of the main ones.
    pub(super) aside: Option<Arc<Scenario>>,
    pub(super) shows_aside: bool,
    /// Command being typed.
    pub(super) typed: Option<String>,
    pub(super) paused: bool,
    /// Target, for the screen.
    pub(super) remote: String,
    /// Exit code given by a signal.
    pub(super) exit: Option<u8>,
    /// Period of the screens: counts, rounds and time at its start.
    pub(super) before: SippStats,
    pub(super) rounds: u64,
    pub(super) period: Instant,
    pub(super) reset: Stamp,
    /// Highest number of open calls, and its time.
    pub(super) peak: (u64, Duration),
    /// Time of the last counts, since the start.
    pub(super) looked: Duration,
    /// Terminal; restored last.
    pub(super) terminal: Taken,
}

impl Session {
    /// Sends a command to all shards.
    pub(super) fn order(&self, order: impl Fn() -> ShardCommand) {
        (0..self.options.threads).for_each(|shard| self.node.handle().mailbox(shard).send(order()));
    }

    /// Fetches the current counts.
    pub(super) fn report(&mut self) {
        let (to, from) = sync_channel(self.options.threads);
        self.order(|| ShardCommand::Report(to.clone()));
        let mut sum: Option<SippStats> = None;
        for _ in 0..self.options.threads {
            let Ok(stats) = from.recv_timeout(Duration::from_millis(500)) else { return };
            match &mut sum {
                Some(sum) => sum.add(&stats),
                None => sum = Some(stats),
            }
        }
        if let Some(stats) = sum {
            self.take(stats);
        }
    }

    /// Takes new counts.
    fn take(&mut self, mut stats: SippStats) {
        if let Some(forgotten) = &self.forgotten {
            stats.subtract(forgotten);
        }
        // Since the last update.
        let looked = std::mem::replace(&mut self.looked, self.started.elapsed());
        if stats.peak > self.peak.0 {
            self.peak = (stats.peak, looked);
        }
        self.stats = stats;
    }

    /// Runs `reset stats`: counts begin at 0.
    pub(super) fn forget(&mut self) {
        self.forgotten = None;
        self.report();
        self.forgotten = Some(self.stats.clone());
        self.report();
        self.before = self.stats.clone();
    }

    pub(super) fn wait(mut self) -> Result<u8, Failure> {
        let period = Duration::from_millis(self.options.screen_period);
        let file_period = Duration::from_millis(self.options.statistics_period);
        let timeout = self.options.timeout.map(Duration::from_millis);
        let rate_interval = Duration::from_millis(self.options.rate_interval.unwrap_or(self.options.statistics_period));
        let (mut screens, mut files, mut rates) = (1u32, 1u32, 1u32);
        let (mut finished, mut sum): (usize, Option<SippStats>) = (0, None);
        // A user at the terminal gets quick answers.
        let patience = Duration::from_millis(if self.terminal.0.shows() { 20 } else { 200 });
        self.draw();
        let stats = loop {
            let elapsed = self.started.elapsed();
            let mut next = (file_period * files).min(period * screens);
            if let Some(timeout) = timeout.filter(|_| !self.timed_out) {
                next = next.min(timeout);
            }
            if self.options.rate_increase != 0.0 {
                next = next.min(rate_interval * rates);
            }
            let patience = next.saturating_sub(elapsed).min(patience);
            match self.events.recv_timeout(patience.max(Duration::from_millis(1))) {
                Ok(Event::Finished(stats)) => {
                    finished += 1;
                    match &mut sum {
                        Some(sum) => sum.add(&stats),
                        None => sum = Some(*stats),
                    }
                    if finished == self.options.threads {
                        break sum.unwrap_or_default();
                    }
                }
                Ok(Event::Halt(Halt::Gracefully)) => self.quitting = true,
                Ok(Event::Halt(halt @ (Halt::Now | Halt::Error))) => {
                    self.report();
                    self.close();
                    self.say_goodbye();
                    return Ok(if halt == Halt::Now { code::INTERNAL } else { code::FATAL });
                }
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure(code::FATAL, "the engine has ended".into()));
                }
            }
            if self.is_unreachable() {
                self.report();
                self.say_unreachable();
                self.close();
                self.say_goodbye();
                return Ok(code::FATAL);
            }
            self.collector.poll(clock::micros(), |_| {});
            self.read_keys();
            let elapsed = self.started.elapsed();
            if elapsed >= file_period * files {
                files = (elapsed.as_nanos() / file_period.as_nanos()) as u32 + 1;
                self.report();
                self.write_files();
            }
            if elapsed >= period * screens {
                screens = (elapsed.as_nanos() / period.as_nanos()) as u32 + 1;
                self.report();
                self.draw();
                self.begin_period();
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
                    self.stats.fatal_errors += 1;
                    let seconds = elapsed.as_secs_f64();
                    let name = name_of(&self.options.scenario);
                    self.errors.say(format_args!("{name} timed out after '{seconds:.3}' seconds"));
                    self.close();
                    self.say_goodbye();
                    return Ok(code::FATAL);
                }
                self.order(|| ShardCommand::Quit);
            }
        };
        self.take(stats);
        let unreachable = self.is_unreachable();
        if unreachable {
            self.say_unreachable();
        }
        let counts = self.stats.clone();
        self.close();
        // The last report of the shards came before the end.
        self.stats = counts;
        self.say_goodbye();
        Ok(match (self.stats.failed, self.stats.successful) {
            _ if unreachable => code::FATAL,
            _ if self.exit.is_some() => self.exit.unwrap_or(code::FATAL),
            (0, 0) if self.timed_out => code::INTERNAL,
            (0, _) => code::SUCCESS,
            _ => code::FAILED,
        })
    }

    /// Returns whether the run's only connection could never be made.
    fn is_unreachable(&self) -> bool {
        let one = self.options.transport.is_reliable() && self.options.sockets == Sockets::One;
        if !one || self.scenario.role == Role::Server || self.options.max_reconnect != 0 {
            return false;
        }
        let total = self.node.handle().total();
        total.connects_failed > 0 && total.connected == 0
    }

    fn say_unreachable(&mut self) {
        self.stats.fatal_errors += 1;
        let (remote, transport) = (&self.remote, self.run.transport.via());
        self.errors.say(format_args!("{remote} cannot be reached: nothing takes the {transport} connection"));
    }

    /// Writes the last lines of all files.
    fn close(&mut self) {
        let stats = self.stats.clone();
        self.say_out();
        self.stats = stats;
        self.node.handle().stop();
        if let Some(link) = &self.link {
            link.close();
        }
        self.write_files();
        if self.options.traces.screen {
            self.quitting = true;
            self.dump();
        }
    }

    /// Restores the terminal, and prints on it how the run ended.
    fn say_goodbye(&self) {
        self.terminal.0.give_back();
        if !self.options.background {
            let view = self.view(State::Ended);
            let _ = std::io::stdout().write_all((view.screen(1) + &view.screen(2)).as_bytes());
        }
        if let Some(text) = self.media.as_ref().and_then(media::Shown::trouble) {
            eprintln!("{text}");
        }
        if let Some(text) = self.errors.farewell() {
            eprint!("{text}");
        }
    }

    /// Waits until the last messages are sent, for a second at most, because a connection may still be in progress.
    fn say_out(&mut self) {
        // A report means that the round of the last messages is over.
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
            // The peer may still be handling the last messages. A call of SIPp that is not at its end fails with its
            // connection.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Appends the screens to their file.
    pub(super) fn dump(&mut self) {
        let text = self.view(self.state()).all();
        self.screens.write(text.as_bytes());
        self.screens.flush();
    }

    /// Returns the target rate in calls per second. With users it returns the number of users, as SIPp shows it.
    fn target_rate(&self) -> f64 {
        self.options.users.map_or(self.rate, f64::from)
    }

    /// Writes the lines of a period.
    fn write_files(&mut self) {
        let trouble = |what: &str, error: std::io::Error| eprintln!("The {what} cannot be written: {error}");
        let rate = self.target_rate();
        if let Some(Err(error)) = self.statistics.as_mut().map(|file| file.write(&self.stats, rate)) {
            trouble("statistics", error);
            self.statistics = None;
        }
        if let Some(Err(error)) = self.counts.as_mut().map(|file| file.write(&self.scenario, &self.stats)) {
            trouble("counts", error);
            self.counts = None;
        }
        if let Some(Err(error)) = self.error_codes.as_mut().map(ErrorCodes::write) {
            trouble("error codes", error);
            self.error_codes = None;
        }
    }

    fn begin_period(&mut self) {
        self.before.clone_from(&self.stats);
        self.rounds = self.node.handle().total().rounds;
        self.period = Instant::now();
        self.reset = Stamp::now();
    }

    const fn state(&self) -> State {
        match (self.quitting, self.paused) {
            (true, _) => State::Waiting,
            (false, true) => State::Paused,
            (false, false) => State::Running,
        }
    }

    fn view(&self, state: State) -> View<'_> {
        let total = self.node.handle().total();
        let connections = total.tcp_connections + total.tls_connections + total.ws_connections + total.wss_connections;
        let media = self.media.as_ref().map(media::Shown::lines);
        View {
            scenario: &self.scenario,
            aside: self.aside.as_deref().filter(|_| self.shows_aside && state != State::Ended),
            stats: &self.stats,
            before: &self.before,
            arrival: match (self.scenario.role, self.options.users) {
                (Role::Server, _) => Arrival::Answered,
                (Role::Client, Some(users)) => Arrival::Users(users),
                (Role::Client, None) => Arrival::Rate { calls: self.rate, period: self.options.rate_period },
            },
            duration: self.options.duration.unwrap_or(0),
            circuits: self.options.circuits.as_deref(),
            port: self.run.local_port,
            elapsed: self.started.elapsed(),
            period: self.period.elapsed(),
            started: &self.stamp,
            reset: &self.reset,
            remote: &self.remote,
            transport: self.run.transport.via(),
            calls: self.options.calls,
            limit: self.limit,
            peak_after: self.peak.1.as_secs(),
            resolution: self.run.load.step,
            // Plus the sockets of the run and of remote control.
            sockets: 2 + connections + total.dedicated,
            errors: [total.datagrams_refused, total.receive_errors, total.datagrams_dropped],
            woken: total.rounds.saturating_sub(self.rounds),
            media: media.unwrap_or_else(media::Shown::nothing),
            loses: self.options.lost > 0.0,
            last_error: self.errors.last(),
            extended: self.options.master.is_some() || self.options.slave.is_some(),
            state,
        }
    }

    pub(super) fn draw(&self) {
        if self.hide || !self.terminal.0.shows() {
            return;
        }
        let mut text = self.view(self.state()).screen(self.screen);
        if let Some(line) = &self.typed {
            text += &format!("Command: {line}");
        }
        self.terminal.0.draw(&text);
    }
}
