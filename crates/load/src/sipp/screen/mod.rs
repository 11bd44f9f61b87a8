//! The screens, as they stand on the terminal, on standard output at the end, and in the file of `-trace_screen`.
//!
//! Head, columns and foot are those of SIPp 3.6.1; what reads its files reads these.

mod actions;
mod repartition;
mod scenario;
mod statistics;

use super::trace::Stamp;
use crate::engine::Circuits;
use crate::engine::ledger::Ledger;
use crate::scenario::{Role, Scenario, ThirdPartyRole};
use std::fmt::Write;
use std::time::Duration;

/// How calls come about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrival {
    /// So many each period of so many milliseconds.
    Rate { calls: f64, period: u64 },
    /// `-users`.
    Users(u32),
    /// They come in.
    Answered,
}

/// What the foot tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Paused,
    /// No calls are begun any more.
    Waiting,
    Ended,
}

/// What a screen is made of.
pub(super) struct View<'a> {
    pub(super) scenario: &'a Scenario,
    /// The out-of-call scenario, if its steps are shown.
    pub(super) aside: Option<&'a Scenario>,
    pub(super) ledger: &'a Ledger,
    /// The counts as they were when the period of this screen began.
    pub(super) before: &'a Ledger,
    pub(super) arrival: Arrival,
    /// `-d`, milliseconds.
    pub(super) duration: u64,
    pub(super) port: u16,
    /// Since the start, and since the period began.
    pub(super) elapsed: Duration,
    pub(super) period: Duration,
    pub(super) started: &'a Stamp,
    pub(super) reset: &'a Stamp,
    pub(super) remote: &'a str,
    pub(super) transport: &'static str,
    /// `-m`.
    pub(super) calls: Option<u64>,
    pub(super) limit: u64,
    /// Whole seconds after which most calls were open.
    pub(super) peak_after: u64,
    /// Milliseconds.
    pub(super) resolution: u64,
    pub(super) sockets: u64,
    /// Errors of sending and receiving, and messages for which there was no room.
    pub(super) errors: [u64; 3],
    /// Rounds of the shards in this period.
    pub(super) woken: u64,
    /// The lines about media.
    pub(super) media: String,
    /// `-lost` is given.
    pub(super) loses: bool,
    pub(super) last_error: Option<String>,
    /// Third party call control with names.
    pub(super) extended: bool,
    pub(super) circuits: Option<&'a Circuits>,
    pub(super) state: State,
}

impl View<'_> {
    /// Screen 1 to 9.
    pub(super) fn screen(&self, number: u8) -> String {
        let mut text = match number {
            2 => self.statistics(),
            3 => self.repartition(),
            4 => self.actions(),
            5 => {
                let none = || "  There are no TDM circuits: -tdmmap says which.\n".to_owned();
                head("TDM Map Screen") + &self.circuits.map_or_else(none, Circuits::map)
            }
            6..=9 => self.further_repartition(usize::from(number) - 5),
            _ => self.steps(),
        };
        self.close(&mut text);
        text
    }

    /// What goes into a file: the counts of the steps, the totals, the repartition of each timer.
    pub(super) fn all(&self) -> String {
        let mut text = self.screen(1) + &self.screen(2) + &self.screen(3);
        for timer in 1..self.scenario.timers.len() {
            let mut one = self.further_repartition(timer);
            self.close(&mut one);
            text += &one;
        }
        text
    }

    /// The last error and the foot.
    fn close(&self, text: &mut String) {
        if let Some(error) = self.last_error.as_ref().filter(|_| self.state != State::Ended) {
            let first = error.lines().next().unwrap_or_default();
            let _ = match first.char_indices().nth(LONGEST_ERROR) {
                Some((end, _)) => writeln!(text, "Last Error: {}...", &first[..end]),
                None => writeln!(text, "Last Error: {first}"),
            };
        }
        text.push_str(self.foot());
        text.push('\n');
    }

    const fn foot(&self) -> &'static str {
        match (self.state, self.scenario.third_party, self.scenario.role) {
            (State::Ended, ..) => "------------------------------ Test Terminated --------------------------------",
            (State::Waiting, ..) => "------- Waiting for active calls to end. Press [q] again to force exit. -------",
            (State::Paused, ..) => "----------------- Traffic Paused - Press [p] again to resume ------------------",
            (State::Running, Some(role), _) => match (role, self.extended) {
                (ThirdPartyRole::A, false) => {
                    "----------------------- 3PCC Mode - Controller A side -------------------------"
                }
                (ThirdPartyRole::A, true) => {
                    "-----------------------3PCC extended mode - Master side -------------------------"
                }
                (ThirdPartyRole::PassiveA, false) => {
                    "------------------ 3PCC Mode - Controller A side (passive) --------------------"
                }
                (ThirdPartyRole::PassiveA, true) => {
                    "------------------ 3PCC extended mode - Master side (passive) --------------------"
                }
                (ThirdPartyRole::B, false) => {
                    "----------------------- 3PCC Mode - Controller B side -------------------------"
                }
                (ThirdPartyRole::B, true) => {
                    "----------------------- 3PCC extended mode - Slave side -------------------------"
                }
            },
            (State::Running, None, Role::Client) => {
                "------ [+|-|*|/]: Adjust rate ---- [q]: Soft exit ---- [p]: Pause traffic -----"
            }
            (State::Running, None, Role::Server) => {
                "------------------------------ SIPp Server Mode -------------------------------"
            }
        }
    }

    fn calls(ledger: &Ledger) -> u64 {
        ledger.incoming + ledger.outgoing
    }
}

/// Characters of the last error that are shown.
const LONGEST_ERROR: usize = 60;

/// The first line: the name in the middle of dashes, and how to come to the others.
fn head(name: &str) -> String {
    let left = 30 - (name.len().max(14) - 14) / 2;
    let right = 53_usize.saturating_sub(name.len() + left);
    format!("{} {name} {} [1-9]: Change Screen --\n", "-".repeat(left), "-".repeat(right))
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn heads_have_their_width() {
        for name in
            ["Scenario Screen", "Statistics Screen", "Variables Screen", "Repartition 2 Screen", "TDM Map Screen"]
        {
            assert_eq!(head(name).trim_end().len(), 79, "{name}");
        }
        assert_eq!(
            head("Scenario Screen"),
            "------------------------------ Scenario Screen -------- [1-9]: Change Screen --\n"
        );
    }
}
