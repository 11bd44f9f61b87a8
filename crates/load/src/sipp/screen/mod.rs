//! Screens: on the terminal, on standard output at the end, and in the file of `-trace_screen`.
//!
//! Head, columns and foot are those of SIPp 3.6.1, so that parsers of its files work.

mod actions;
mod repartition;
mod scenario;
mod statistics;

use super::trace::Stamp;
use crate::engine::Circuits;
use crate::engine::sipp_stats::SippStats;
use std::fmt::Write;
use std::time::Duration;
use strowger_scenario::{Role, Scenario, ThirdPartyRole};

/// Source of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrival {
    /// This many calls each period, milliseconds.
    Rate { calls: f64, period: u64 },
    /// `-users`.
    Users(u32),
    /// Calls of peers.
    Answered,
}

/// State in the foot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Paused,
    /// No calls begin any more.
    Waiting,
    Ended,
}

/// Data of a screen.
pub(super) struct View<'a> {
    pub(super) scenario: &'a Scenario,
    /// Out-of-call scenario, if its steps are shown.
    pub(super) aside: Option<&'a Scenario>,
    pub(super) stats: &'a SippStats,
    /// Counts at the start of this screen's period.
    pub(super) before: &'a SippStats,
    pub(super) arrival: Arrival,
    /// `-d`, milliseconds.
    pub(super) duration: u64,
    pub(super) port: u16,
    /// Time since the start, and since the start of the period.
    pub(super) elapsed: Duration,
    pub(super) period: Duration,
    pub(super) started: &'a Stamp,
    pub(super) reset: &'a Stamp,
    pub(super) remote: &'a str,
    pub(super) transport: &'static str,
    /// `-m`.
    pub(super) calls: Option<u64>,
    pub(super) limit: u64,
    /// Seconds until the most calls were open, whole.
    pub(super) peak_after: u64,
    /// Milliseconds.
    pub(super) resolution: u64,
    pub(super) sockets: u64,
    /// Errors of sending, errors of receiving, and messages without room.
    pub(super) errors: [u64; 3],
    /// Rounds of the shards in this period.
    pub(super) woken: u64,
    /// Lines about media.
    pub(super) media: String,
    /// True with `-lost`.
    pub(super) loses: bool,
    pub(super) last_error: Option<String>,
    /// True for third party call control with names.
    pub(super) extended: bool,
    pub(super) circuits: Option<&'a Circuits>,
    pub(super) state: State,
}

impl View<'_> {
    /// Returns screen 1 to 9.
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

    /// Returns the screens for a file: the counts of the steps, the totals, the repartition of each timer.
    pub(super) fn all(&self) -> String {
        let mut text = self.screen(1) + &self.screen(2) + &self.screen(3);
        for timer in 1..self.scenario.timers.len() {
            let mut one = self.further_repartition(timer);
            self.close(&mut one);
            text += &one;
        }
        text
    }

    /// Adds the last error and the foot.
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

    fn calls(stats: &SippStats) -> u64 {
        stats.incoming + stats.outgoing
    }
}

/// Limit of the displayed characters of the last error.
const LONGEST_ERROR: usize = 60;

/// Returns the first line: the name between dashes, and the keys of the other screens.
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
