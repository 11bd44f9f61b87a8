//! A run under way: what happens each period, and how it ends.

use super::counts::Counts;
use super::face::{Failure, code, name_of};
use super::keys::Key;
use super::options::Options;
use super::screen::View;
use super::statistics::Statistics;
use super::{media, trace};
use crate::command::Link;
use crate::engine::Halt;
use crate::engine::ledger::Ledger;
use crate::engine::run::Run;
use crate::engine::traffic::{Event, Order, Traffic};
use crate::measure::Collector;
use crate::scenario::Scenario;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use strowger_net::{Node, clock};

/// A run under way.
pub(super) struct Session {
    pub(super) options: Options,
    pub(super) scenario: Arc<Scenario>,
    pub(super) run: Arc<Run>,
    pub(super) node: Node<Traffic>,
    pub(super) collector: Collector,
    pub(super) events: Receiver<Event>,
    pub(super) statistics: Option<Statistics>,
    pub(super) started: Instant,
    pub(super) rate: f64,
    pub(super) base: String,
    pub(super) ledger: Ledger,
    /// Media are sent as long as it is there.
    pub(super) media: Option<media::Shown>,
    /// To the other controllers of third party call control.
    pub(super) link: Option<Link>,
    pub(super) timed_out: bool,
    pub(super) quitting: bool,
    pub(super) keys: Receiver<Key>,
    pub(super) counts: Option<Counts>,
    pub(super) screen: u8,
    pub(super) paused: bool,
    /// The target, for the screen.
    pub(super) remote: String,
    /// Every call was asked to end at once.
    pub(super) ended: bool,
    /// Screens are shown.
    pub(super) show: bool,
}

impl Session {
    /// Tells all shards.
    pub(super) fn order(&self, order: impl Fn() -> Order) {
        (0..self.options.threads).for_each(|shard| self.node.handle().mailbox(shard).send(order()));
    }

    /// The counts as they are now.
    pub(super) fn report(&mut self) {
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

    pub(super) fn wait(mut self) -> Result<u8, Failure> {
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
        if let Some(text) = self.media.as_ref().and_then(media::Shown::trouble) {
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
    pub(super) fn dump(&self, ending: bool) {
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
            media: self.media.as_ref().map_or_else(String::new, media::Shown::lines),
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
