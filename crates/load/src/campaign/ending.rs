//! End of a campaign: stops new calls, ends open ones, and sums the figures.

use super::registration::{HASTE, Registration};
use super::{Campaign, Ended, HALTED, INTERRUPTED, LOST, Stage, advice, unsent};
use crate::engine::sipp_stats::SippStats;
use crate::engine::traffic::ShardCommand;
use crate::workload::Workload;
use std::time::{Duration, Instant};
use strowger_measure::{Counter, Level, grouped};
use strowger_net::{Snapshot, clock};

/// Time limit for the answers to the answering side's BYEs, at most the time that calls may take to end by themselves.
const GOODBYE: Duration = Duration::from_secs(2);

impl Campaign {
    /// Stops new calls and ends open ones with CANCEL or BYE. Unanswered messages are repeated as long as
    /// [`grace`](super::Plan::grace) allows. A side that only answers accepts no more calls; open ones may end by
    /// themselves for that long, and then are ended with a BYE.
    pub fn interrupt(&mut self) {
        self.reason = INTERRUPTED;
        self.ending.get_or_insert_with(Instant::now);
        if !self.only_answers() {
            return self.leave();
        }
        self.leaving.get_or_insert_with(Instant::now);
        self.close();
    }

    /// Ends a run that has lost a requirement, as an interruption does.
    pub(super) fn abort_if_lost(&mut self) {
        let Some(lost) = self.journal.lost_requirement().filter(|_| self.ending.is_none()) else { return };
        let after = super::period::show(Duration::from_secs(self.elapsed().as_secs()));
        self.news.push(format!("{} is lost after {after}: {}. Open calls are ended.", lost.requirement, lost.shown));
        self.interrupt();
        self.reason = LOST;
    }

    /// Returns whether the run is over and its registrations are being removed.
    pub(super) fn removes(&self) -> bool {
        self.registration.as_ref().is_some_and(Registration::has_begun_to_remove)
    }

    /// Stops the answering side from accepting calls, from the return of this function on.
    pub(super) fn close(&mut self) {
        self.closed = Some(Instant::now());
        if let Some(side) = &self.answerer {
            side.send_command(ShardCommand::Close);
            side.settle();
        }
    }

    /// Ends open calls with CANCEL or BYE and waits for the answers.
    pub(super) fn leave(&mut self) {
        if self.leaving.is_some() {
            return;
        }
        self.leaving = Some(Instant::now());
        match self.only_answers() {
            true => self.hang_up(),
            // The answering side in this process must receive the BYE too.
            false => self.callers.iter().for_each(|side| side.send_command(ShardCommand::Leave)),
        }
    }

    /// Ends the calls of an answering side that its peers did not end.
    pub(super) fn hang_up(&mut self) {
        match self.hung_up {
            None => {
                self.hung_up = Some(Instant::now());
                self.answerer.iter().for_each(|side| side.send_command(ShardCommand::Leave));
            }
            Some(at) if at.elapsed() > GOODBYE.min(self.plan.grace) => self.cut(),
            Some(_) => (),
        }
    }

    /// Ends open calls at once.
    pub(super) fn cut(&self) {
        for side in self.callers.iter().chain(&self.answerer) {
            side.send_command(ShardCommand::End { goodbye: false });
        }
    }

    /// Ends everything that still runs, at once, and sums the figures.
    pub fn finish(mut self) -> Ended {
        if self.stage != Stage::Over {
            if !self.removes() {
                self.cut();
            }
            let until = Instant::now() + HASTE;
            while self.stage != Stage::Over && Instant::now() < until {
                self.poll(Duration::from_millis(20));
            }
        }
        if let (Some(registration), Some(side)) = (&mut self.registration, &mut self.answerer) {
            registration.remove_within(side, &self.plan, HASTE);
            if let Some(text) = registration.remains(&self.plan) {
                self.note(Level::Warning, text);
            }
        }
        self.tell_change(true);
        self.keep_books();
        let mut stats = SippStats::default();
        for side in &self.callers {
            stats.add(&side.report());
        }
        if let Some(side) = self.answerer.as_ref().filter(|_| self.callers.is_empty()) {
            stats.add(&side.report());
        }
        // The drops of closed sockets of calls and users are known only now.
        let (mut network, mut drops, mut lost) = (Snapshot::default(), 0, 0);
        let receives = self.callers.is_empty() && self.plan.target.is_some();
        let calling = if receives { 1 } else { self.callers.len() };
        let mut handshake = None;
        for (place, side) in self.callers.drain(..).chain(self.answerer.take()).enumerate() {
            handshake = handshake.or_else(|| side.handshakes.last().filter(|_| place < calling));
            let (counters, dropped) = side.end();
            (drops, lost) = (drops + dropped, lost + unsent(&counters));
            if place < calling {
                network += counters;
            }
        }
        self.count_losses(drops, lost);
        if let Some((peer, why)) = &handshake {
            let times = grouped(network.handshakes_failed.max(1) as f64);
            self.note(Level::Warning, format!("{times} × a handshake failed, the last with {peer}: {why}"));
        }
        for (level, text) in notes(&network, self.plan.transport.is_reliable()) {
            self.note(level, text);
        }
        if self.silence.unreported() > 0 {
            let times = grouped(self.silence.times() as f64);
            self.note(Level::Warning, format!("Answers stopped {times} times in all, each for a second or longer."));
        }
        if self.plan.work.is_document() {
            for text in self.remarks.sentences() {
                self.note(Level::Warning, format!("The document: {text}"));
            }
        } else if self.reason == HALTED {
            self.note(Level::Warning, format!("The run was ended: {}", self.remarks.last()));
        }
        let own = &mut self.own;
        let answering = self.aside.take().map(|aside| aside.finish(|page| own.beside(page)));
        // Both ends belong to this process: an end of a call that only one of them saw is reported.
        let calls = matches!(self.plan.workload(), Some(Workload::Call | Workload::RegisterThenCall));
        let there = answering.as_ref().map(|page| page.counter(Counter::IncomingCompleted)).filter(|_| calls);
        if let Some(there) = there.filter(|there| *there < stats.successful) {
            let lost = grouped((stats.successful - there) as f64);
            self.note(
                Level::Warning,
                format!("{lost} calls that succeeded at the callers did not end well at the answering side."),
            );
        }
        for (counter, value) in
            [(Counter::ConnectionsAhead, self.ahead.connected), (Counter::ConnectionsAheadRate, self.ahead.rate())]
        {
            self.own.count(counter, value);
        }
        let now = clock::micros();
        self.own.close(now);
        let run = self.journal.finish(now, self.reason);
        let facts = advice::Facts {
            plan: &self.plan,
            destination: self.destination,
            network,
            answered: answering.as_ref().map(|page| page.counter(Counter::CallsIncoming)),
            stopped: self.silence.times() > 0,
            handshake: handshake.as_ref().map(|(_, why)| &**why),
        };
        let advice = facts.sentences(&run);
        Ended { run, stats, answering, advice, broken: self.broken }
    }
}

/// Returns remarks on sockets and connections.
fn notes(network: &Snapshot, reliable: bool) -> Vec<(Level, String)> {
    let mut notes = Vec::new();
    let number = |n: u64| grouped(n as f64);
    if network.dedicated_full > 0 {
        notes.push((
            Level::Warning,
            format!(
                "{} calls found as many sockets open as may be, and shared one: --max-sockets and `ulimit -n` say how many",
                number(network.dedicated_full)
            ),
        ));
    }
    if network.dedicated_refused > 0 {
        notes.push((
            Level::Warning,
            format!(
                "{} calls got no socket, because no port was free: several --source addresses have more{}",
                number(network.dedicated_refused),
                if reliable {
                    ". A connection that we end keeps its port for a minute (TIME_WAIT); net.ipv4.tcp_tw_reuse=1 makes \
                     that a second"
                } else {
                    ""
                }
            ),
        ));
    }
    if network.tls_handshakes > 1 {
        let (all, resumed) = (number(network.tls_handshakes), number(network.tls_resumed));
        notes.push((Level::Info, format!("{all} TLS handshakes, {resumed} of which resumed a session")));
    }
    notes
}
