//! Laws of billing: the counts and records of the server agree with the notes of the honest parties.
//!
//! 1. Exactly one record covers each period in which an honest party could receive media.
//! 2. A record lasts no longer than the media of its call, plus the time that the server needs to learn of its end:
//!    none after a BYE that a party answers, up to [`SLACK`] otherwise.
//! 3. Rows of calls and rows of events have the same times.
//! 4. An account never exceeds its limit of concurrent calls.
//!
//! A period begins when the 2xx leaves the server. It ends when a BYE that the party accepts leaves the server, or when
//! the party sends a BYE. A 2xx that never left the server is not an answer, because its caller does not know of it.

use super::honest::{SessionEnd, SessionNote};
use super::ledger::{Ledger, Span, caller_of, try_of};
use super::server::{KEEP_INTERVAL, Passed};
use super::{GATEWAY, MOST_CALLS};
use crate::world::START;
use std::collections::BTreeMap;
use strowger_store::accounting::Cdr;

/// Longest time until the server learns that a call has ended. It is the sum of a BYE without an answer (64*T1), the delay
/// before the server sends OPTIONS to both parties after a refused BYE (2 s) or a start (1 s), a minute in which it repeats
/// them, and its last transaction.
const SLACK: u64 = 32_000 + 2_000 + 60_000 + 32_000;

/// Maximum number of BYEs of the server to a party: after the refusal of the last one the record ends.
const MOST_BYES: usize = 4;

/// Milliseconds before a kill within which a persisted call or a row may be missing on disk: one group of each.
const UNWRITTEN: u64 = 2 * KEEP_INTERVAL;

/// Events of one world.
pub(super) struct Story<'a> {
    pub(super) notes: Vec<&'a SessionNote>,
    pub(super) ledger: &'a Ledger,
    pub(super) passed: &'a Passed,
    /// True if datagrams were lost, duplicated or delayed.
    pub(super) loses: bool,
    /// Longest regular delay.
    pub(super) delay: u64,
    /// Maximum duration of a call.
    pub(super) lifetime: u64,
}

/// Totals of one world, or of several.
#[derive(Clone, Debug, Default)]
pub struct Money {
    /// Periods in which media could flow, and records of answered calls.
    pub sessions: u64,
    pub records: u64,
    /// Milliseconds in which media could flow.
    pub media: u64,
    pub recorded: u64,
    /// Kills of the process.
    pub kills: u64,
    /// Maximum number of concurrent calls of the account.
    pub most: u64,
    /// Number of times for each act of the account.
    pub acts: BTreeMap<&'static str, u64>,
}

impl std::ops::AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.records += other.records;
        self.media += other.media;
        self.recorded += other.recorded;
        self.kills += other.kills;
        self.most = self.most.max(other.most);
        other.acts.into_iter().for_each(|(act, count)| *self.acts.entry(act).or_default() += count);
    }
}

impl Money {
    /// Checks that many worlds together have exercised every law.
    ///
    /// # Errors
    /// Totals that are too low.
    pub fn check(&self, worlds: u64) -> Result<(), String> {
        let shows = self.sessions > worlds
            && self.records > worlds
            && self.kills * 10 > worlds
            && self.most == MOST_CALLS as u64
            && self.recorded >= self.media
            && self.acts.len() >= 20;
        if shows { Ok(()) } else { Err(format!("the worlds do not hold what they are for: {self:?}")) }
    }
}

/// Period in which media could flow.
struct Period<'a> {
    note: &'a SessionNote,
    begin: u64,
    /// Least end of a record: the time at which the BYE passed the server.
    least: u64,
    /// Time at which the party ended the session.
    end: u64,
    /// Earliest time at which the call may stop counting under a limit.
    counted: u64,
}

/// Converts a time of a row to the clock of the world.
const fn moment(wall: u64) -> u64 {
    wall - (START.wall - START.mono)
}

impl<'a> Story<'a> {
    pub(super) fn judge(&self) -> Result<Money, String> {
        let mut periods = Vec::new();
        for note in &self.notes {
            periods.extend(self.period(note)?);
        }
        let records: Vec<(&Cdr, Span)> = self.ledger.answered().collect();
        let mut of_record: Vec<Vec<usize>> = records.iter().map(|_| Vec::new()).collect();
        for (place, period) in periods.iter_mut().enumerate() {
            if self.may_be_lost(period.begin) {
                period.counted = 0;
                continue;
            }
            let Some(at) = self.covering(period, &records)? else {
                period.counted = 0;
                continue;
            };
            of_record[at].push(place);
            let end = records[at].1.1.map_or(0, moment);
            if Self::is_defied(end, period) {
                period.counted = period.counted.min(end);
            }
        }
        let mut money =
            Money { sessions: periods.len() as u64, kills: self.passed.kills.len() as u64, ..Money::default() };
        for ((cdr, span), places) in records.iter().zip(&of_record) {
            let periods: Vec<&Period<'_>> = places.iter().map(|place| &periods[*place]).collect();
            self.check_record(cdr, *span, &periods)?;
            self.check_forms(cdr, *span)?;
            if let Some(first) = periods.iter().map(|period| period.begin).min() {
                let last = periods.iter().map(|period| period.end).max().unwrap_or(first);
                money.records += 1;
                money.media += last.saturating_sub(first);
                money.recorded += span.1.unwrap_or(span.0) - span.0;
            }
        }
        money.most = Self::most_calls(&periods)?;
        Ok(money)
    }

    /// Returns the period of a session; `None` if its 2xx never left the server.
    fn period(&self, note: &'a SessionNote) -> Result<Option<Period<'a>>, String> {
        let passed = self.passed.answers.get(&tags(note)).map_or(&[][..], Vec::as_slice);
        // An earlier call may have had the same tags.
        let begin = match note.is_callee {
            true => passed.iter().copied().find(|at| *at >= note.began),
            false => passed.first().copied(),
        };
        let Some(begin) = begin else { return Ok(None) };
        let Some((end, _)) = &note.ended else { return Err(format!("it never ended: {note:?}")) };
        let byes = self.passed.byes.get(&(note.call_id.clone(), note.own_tag.clone()));
        let taken = byes
            .into_iter()
            .flatten()
            .filter(|(branch, at)| at <= end && *at + 64 * super::T1 >= *end && !note.refused.contains(branch));
        let least = taken.map(|(_, at)| *at).chain([*end]).min().unwrap_or(*end);
        let least = least.max(begin);
        Ok(Some(Period { note, begin, least, end: (*end).max(begin), counted: least }))
    }

    /// Returns whether an answer at this moment may be missing on disk, because a kill followed at once.
    fn may_be_lost(&self, at: u64) -> bool {
        self.passed.kills.iter().any(|kill| at <= *kill && at + UNWRITTEN >= *kill)
    }

    /// Returns the one record that covers a period.
    fn covering(&self, period: &Period<'_>, records: &[(&Cdr, Span)]) -> Result<Option<usize>, String> {
        let covers = |at: &usize| {
            let (cdr, (begin, end)) = &records[*at];
            let end = end.map_or(u64::MAX, moment);
            let caller = caller_of(cdr);
            let is_of_call = cdr.call_id == period.note.call_id
                && !caller.is_empty()
                && [&period.note.own_tag, &period.note.peer_tag].into_iter().any(|tag| tag.starts_with(caller));
            is_of_call && moment(*begin) <= period.begin && period.begin <= end
        };
        let is_own = |at: &usize| try_of(records[*at].0) == period.note.try_;
        let all: Vec<usize> = (0..records.len()).filter(covers).collect();
        let own: Vec<usize> = all.iter().copied().filter(is_own).collect();
        let at = match (&own[..], &all[..]) {
            ([at], _) | ([], [at]) => *at,
            ([], []) if self.continues_lost_end(period, records) || self.has_tags_of_another(period) => {
                return Ok(None);
            }
            ([], []) => return Err(format!("no record covers it: {}", said(period))),
            _ => return Err(format!("several records cover it: {}", said(period))),
        };
        let (cdr, (_, end)) = &records[at];
        match end.map(moment) {
            Some(end) if end < period.least && Self::is_defied(end, period) => Ok(Some(at)),
            Some(end) if end < period.least && self.is_crossing(cdr, end, period) => Ok(Some(at)),
            Some(end) if end < period.least && self.has_tags_of_another(period) => Ok(Some(at)),
            Some(end) if end < period.least => {
                Err(format!("its record ends {} ms too early: {} {cdr:?}", period.least - end, said(period)))
            }
            Some(_) => Ok(Some(at)),
            None => Err(format!("its record has no end: {} {cdr:?}", said(period))),
        }
    }

    /// Returns whether a dialog of the call continues although the end of the call was written to the table. This
    /// happens if the process was killed before the end of the call reached the folder of calls.
    fn continues_lost_end(&self, period: &Period<'_>, records: &[(&Cdr, Span)]) -> bool {
        let mut of_call = records.iter().filter(|(cdr, _)| cdr.call_id == period.note.call_id);
        of_call.any(|(_, (_, end))| end.is_some_and(|end| moment(end) <= period.begin && self.may_be_lost(moment(end))))
    }

    /// Returns whether the session timer of a party, which started when the 2xx reached it, expired after that of the
    /// server.
    fn is_crossing(&self, cdr: &Cdr, end: u64, period: &Period<'_>) -> bool {
        let latest = end + if self.loses { 64 * super::T1 } else { 2 * self.delay };
        cdr.ended_by == "session timer"
            && matches!(period.note.ended, Some((_, SessionEnd::Own)))
            && period.least <= latest
    }

    /// Returns whether a dialog has the tags of another dialog, because a caller chose the tag of its callee. Such
    /// dialogs are excluded from the law: the end of one dialog may end the record of the other dialog.
    fn has_tags_of_another(&self, period: &Period<'_>) -> bool {
        period.note.is_revived || self.is_mirrored(period)
    }

    /// Returns whether a party continues after the end of its record, because it has refused as many BYEs as the server
    /// sends.
    fn is_defied(end: u64, period: &Period<'_>) -> bool {
        period.note.defied.get(MOST_BYES - 1).is_some_and(|last| *last <= end)
    }

    /// Checks that a record has a period with media, begins with the first of these periods, and ends no later than the
    /// law allows.
    fn check_record(&self, cdr: &Cdr, (begin, end): Span, periods: &[&Period<'_>]) -> Result<(), String> {
        let Some(first) = periods.iter().map(|period| period.begin).min() else {
            // Excluded for the same reason: another call has the tags of this call.
            let is_again =
                |note: &SessionNote| note.call_id == cdr.call_id && note.peer_tag.starts_with(caller_of(cdr));
            let is_lost = self.may_be_lost(moment(begin)) || self.notes.iter().any(|note| is_again(note));
            let is_of_gateway = cdr.gateway == GATEWAY.to_string();
            return if is_of_gateway && !is_lost { Err(format!("a record without a call: {cdr:?}")) } else { Ok(()) };
        };
        if moment(begin) != first && !self.was_answered(cdr, moment(begin)) {
            return Err(format!("it was answered at {first}: {cdr:?}"));
        }
        let end = end.map_or(0, moment);
        let latest = periods.iter().map(|period| self.latest(period)).max().unwrap_or(0);
        match end <= latest {
            true => Ok(()),
            false => {
                let periods: Vec<String> = periods.iter().map(|period| said(period)).collect();
                Err(format!("a record ends {} ms too late: {cdr:?} {periods:?}", end - latest))
            }
        }
    }

    /// Returns whether a 2xx of another callee of this call passed at this moment and never reached its caller.
    fn was_answered(&self, cdr: &Cdr, at: u64) -> bool {
        let is_of_call = |(call_id, caller, _): &(String, String, String)| {
            *call_id == cdr.call_id && caller.starts_with(caller_of(cdr))
        };
        self.loses && self.passed.answers.iter().any(|(tags, passed)| is_of_call(tags) && passed.contains(&at))
    }

    /// Returns the latest end of the record of this period.
    fn latest(&self, period: &Period<'_>) -> u64 {
        match &period.note.ended {
            // Excluded: the caller has chosen the tag of its callee, and pays for the call. A BYE of the caller before
            // the 2xx may go to another callee with this tag.
            Some((_, SessionEnd::Bye { .. })) if period.note.is_revived && period.least == period.begin => {
                period.begin + self.lifetime + SLACK
            }
            // After a BYE that passes before the 2xx of its dialog, the server asks both parties.
            Some((_, SessionEnd::Bye { .. })) if period.least == period.begin => period.end + SLACK,
            // Both dialogs have the same tags for the parties, so the server may send its OPTIONS in the other dialog.
            _ if self.is_mirrored(period) => period.end + SLACK,
            // The server asks every callee of such a call that may have taken the tag.
            _ if period.note.is_revived => period.end + SLACK,
            // After a BYE from another address the server asks the party that it names, and the account may refuse to answer.
            Some((_, SessionEnd::Bye { .. })) if !self.has_honest_peer(period) => period.end + SLACK,
            Some((_, SessionEnd::Bye { astray: false, .. })) if !self.loses && self.passed.kills.is_empty() => {
                period.end + 4 * self.delay
            }
            _ => period.end + SLACK,
        }
    }

    /// Returns whether the peer is an honest party. The tag of the peer is no proof: the account may use the tag of an
    /// honest party.
    fn has_honest_peer(&self, period: &Period<'_>) -> bool {
        let SessionNote { call_id, own_tag, peer_tag, .. } = period.note;
        let is_peer =
            |note: &SessionNote| note.call_id == *call_id && note.own_tag == *peer_tag && note.peer_tag == *own_tag;
        self.notes.iter().any(|note| is_peer(note))
    }

    /// Returns whether another call has the tags of this call, exchanged between the two parties.
    fn is_mirrored(&self, period: &Period<'_>) -> bool {
        let (call_id, caller, callee) = tags(period.note);
        self.passed.answers.contains_key(&(call_id, callee, caller))
    }

    /// Checks that the events of a call agree with its record.
    fn check_forms(&self, cdr: &Cdr, span: Span) -> Result<(), String> {
        let by_events = self.ledger.by_events(&cdr.identity);
        // One of the two may be missing after a kill.
        let is_lost = !self.passed.kills.is_empty();
        match by_events {
            Some(by_events) if by_events == span => Ok(()),
            _ if is_lost => Ok(()),
            by_events => Err(format!("its events say {by_events:?}: {cdr:?}")),
        }
    }

    /// Returns the maximum number of concurrent calls of the account at honest parties.
    fn most_calls(periods: &[Period<'_>]) -> Result<u64, String> {
        let own: Vec<&Period<'_>> =
            periods.iter().filter(|period| period.note.is_callee && period.note.call_id.starts_with('m')).collect();
        let mut most = 0;
        for period in &own {
            let at = period.begin;
            let open = own.iter().filter(|other| other.begin <= at && at < other.counted);
            let mut calls: Vec<(&str, &str)> =
                open.map(|other| (&*other.note.call_id, &*other.note.peer_tag)).collect();
            calls.sort_unstable();
            calls.dedup();
            if calls.len() > MOST_CALLS {
                let calls: Vec<String> =
                    calls.iter().map(|(call_id, tag)| format!("call_id: {call_id:?} {tag}")).collect();
                return Err(format!("{} calls of the account at {at}: {calls:?}", calls.len()).replace('\\', ""));
            }
            most = most.max(calls.len() as u64);
        }
        Ok(most)
    }
}

/// Returns the Call-ID, the caller's tag and the callee's tag.
fn tags(note: &SessionNote) -> (String, String, String) {
    let (caller, callee) =
        if note.is_callee { (&note.peer_tag, &note.own_tag) } else { (&note.own_tag, &note.peer_tag) };
    (note.call_id.clone(), caller.clone(), callee.clone())
}

fn said(period: &Period<'_>) -> String {
    let Period { note, begin, least, end, .. } = period;
    format!("from {begin} to {end} (at least {least}): {note:?}")
}
