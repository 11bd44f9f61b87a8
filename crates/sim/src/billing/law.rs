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

use super::honest::{How, Seen};
use super::ledger::{Ledger, Span, caller_of, try_of};
use super::server::{KEEP_INTERVAL, Passed};
use super::{GATEWAY, MOST_CALLS};
use crate::world::START;
use std::collections::BTreeMap;
use strowger_store::accounting::Cdr;

/// Longest time until the server learns that a call has ended: a BYE without an answer (64*T1), the question to both
/// parties after a refused one (2 s) or a start (1 s), a minute of patience, and its last transaction.
const SLACK: u64 = 32_000 + 2_000 + 60_000 + 32_000;

/// Maximum number of BYEs of the server to a party: after the refusal of the last one the record ends.
const MOST_BYES: usize = 4;

/// Milliseconds before a kill within which a persisted call or a row may be missing on disk: one group of each.
const UNWRITTEN: u64 = 2 * KEEP_INTERVAL;

/// Events of one world.
pub(super) struct Story<'a> {
    pub(super) seen: Vec<&'a Seen>,
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
    /// Milliseconds of both.
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
    /// Checks that many worlds together exercise the laws.
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

/// A period in which media could flow.
struct Time<'a> {
    seen: &'a Seen,
    begin: u64,
    /// Least end of a record: the time at which the BYE passed the server.
    least: u64,
    /// Time at which the party ended it.
    end: u64,
    /// Earliest time at which it may stop counting under a limit.
    counted: u64,
}

/// Converts a time of a row to the clock of the world.
const fn moment(wall: u64) -> u64 {
    wall - (START.wall - START.mono)
}

impl<'a> Story<'a> {
    pub(super) fn judge(&self) -> Result<Money, String> {
        let mut times = Vec::new();
        for seen in &self.seen {
            times.extend(self.time(seen)?);
        }
        let records: Vec<(&Cdr, Span)> = self.ledger.answered().collect();
        let mut of_record: Vec<Vec<usize>> = records.iter().map(|_| Vec::new()).collect();
        for (place, time) in times.iter_mut().enumerate() {
            if self.may_be_lost(time.begin) {
                time.counted = 0;
                continue;
            }
            let Some(at) = self.covering(time, &records)? else {
                time.counted = 0;
                continue;
            };
            of_record[at].push(place);
            let end = records[at].1.1.map_or(0, moment);
            if Self::is_defied(end, time) {
                time.counted = time.counted.min(end);
            }
        }
        let mut money =
            Money { sessions: times.len() as u64, kills: self.passed.kills.len() as u64, ..Money::default() };
        for ((cdr, span), places) in records.iter().zip(&of_record) {
            let times: Vec<&Time<'_>> = places.iter().map(|place| &times[*place]).collect();
            self.check_record(cdr, *span, &times)?;
            self.check_forms(cdr, *span)?;
            if let Some(first) = times.iter().map(|time| time.begin).min() {
                let last = times.iter().map(|time| time.end).max().unwrap_or(first);
                money.records += 1;
                money.media += last.saturating_sub(first);
                money.recorded += span.1.unwrap_or(span.0) - span.0;
            }
        }
        money.most = Self::most_calls(&times)?;
        Ok(money)
    }

    /// Period of a session; `None` if its 2xx never left the server.
    fn time(&self, seen: &'a Seen) -> Result<Option<Time<'a>>, String> {
        let passed = self.passed.answers.get(&tags(seen)).map_or(&[][..], Vec::as_slice);
        // An earlier call may have had the same tags.
        let begin = match seen.is_callee {
            true => passed.iter().copied().find(|at| *at >= seen.began),
            false => passed.first().copied(),
        };
        let Some(begin) = begin else { return Ok(None) };
        let Some((end, _)) = &seen.ended else { return Err(format!("it never ended: {seen:?}")) };
        let byes = self.passed.byes.get(&(seen.call_id.clone(), seen.own_tag.clone()));
        let taken = byes
            .into_iter()
            .flatten()
            .filter(|(branch, at)| at <= end && *at + 64 * super::T1 >= *end && !seen.refused.contains(branch));
        let least = taken.map(|(_, at)| *at).chain([*end]).min().unwrap_or(*end);
        let least = least.max(begin);
        Ok(Some(Time { seen, begin, least, end: (*end).max(begin), counted: least }))
    }

    /// True if an answer at this moment may be missing on disk, because a kill followed at once.
    fn may_be_lost(&self, at: u64) -> bool {
        self.passed.kills.iter().any(|kill| at <= *kill && at + UNWRITTEN >= *kill)
    }

    /// The one record that covers a period.
    fn covering(&self, time: &Time<'_>, records: &[(&Cdr, Span)]) -> Result<Option<usize>, String> {
        let covers = |at: &usize| {
            let (cdr, (begin, end)) = &records[*at];
            let end = end.map_or(u64::MAX, moment);
            let caller = caller_of(cdr);
            let is_of_call = cdr.call_id == time.seen.call_id
                && !caller.is_empty()
                && [&time.seen.own_tag, &time.seen.peer_tag].into_iter().any(|tag| tag.starts_with(caller));
            is_of_call && moment(*begin) <= time.begin && time.begin <= end
        };
        let is_own = |at: &usize| try_of(records[*at].0) == time.seen.try_;
        let all: Vec<usize> = (0..records.len()).filter(covers).collect();
        let own: Vec<usize> = all.iter().copied().filter(is_own).collect();
        let at = match (&own[..], &all[..]) {
            ([at], _) | ([], [at]) => *at,
            ([], []) if self.continues_lost_end(time, records) || self.has_tags_of_another(time) => return Ok(None),
            ([], []) => return Err(format!("no record covers it: {}", said(time))),
            _ => return Err(format!("several records cover it: {}", said(time))),
        };
        let (cdr, (_, end)) = &records[at];
        match end.map(moment) {
            Some(end) if end < time.least && Self::is_defied(end, time) => Ok(Some(at)),
            Some(end) if end < time.least && self.is_crossing(cdr, end, time) => Ok(Some(at)),
            Some(end) if end < time.least && self.has_tags_of_another(time) => Ok(Some(at)),
            Some(end) if end < time.least => {
                Err(format!("its record ends {} ms too early: {} {cdr:?}", time.least - end, said(time)))
            }
            Some(_) => Ok(Some(at)),
            None => Err(format!("its record has no end: {} {cdr:?}", said(time))),
        }
    }

    /// True if a dialog of the call continues although the end of the call was written to the table: the process was
    /// killed before that end reached the folder of calls.
    fn continues_lost_end(&self, time: &Time<'_>, records: &[(&Cdr, Span)]) -> bool {
        let mut of_call = records.iter().filter(|(cdr, _)| cdr.call_id == time.seen.call_id);
        of_call.any(|(_, (_, end))| end.is_some_and(|end| moment(end) <= time.begin && self.may_be_lost(moment(end))))
    }

    /// True if the session timer of a party, which started when the 2xx reached it, expired after that of the server.
    fn is_crossing(&self, cdr: &Cdr, end: u64, time: &Time<'_>) -> bool {
        let latest = end + if self.loses { 64 * super::T1 } else { 2 * self.delay };
        cdr.ended_by == "session timer" && matches!(time.seen.ended, Some((_, How::Own))) && time.least <= latest
    }

    /// True if a dialog has the tags of another one, because a caller chose the tag of its callee. Excluded: the end of
    /// the one may end the record of the other.
    fn has_tags_of_another(&self, time: &Time<'_>) -> bool {
        time.seen.is_revived || self.is_mirrored(time)
    }

    /// True if a party continues after the end of its record: it has refused as many BYEs as the server sends.
    fn is_defied(end: u64, time: &Time<'_>) -> bool {
        time.seen.defied.get(MOST_BYES - 1).is_some_and(|last| *last <= end)
    }

    /// Checks that a record has media, and is as long as they are.
    fn check_record(&self, cdr: &Cdr, (begin, end): Span, times: &[&Time<'_>]) -> Result<(), String> {
        let Some(first) = times.iter().map(|time| time.begin).min() else {
            // Excluded as above: another call has its tags.
            let is_again = |seen: &Seen| seen.call_id == cdr.call_id && seen.peer_tag.starts_with(caller_of(cdr));
            let is_lost = self.may_be_lost(moment(begin)) || self.seen.iter().any(|seen| is_again(seen));
            let is_of_gateway = cdr.gateway == GATEWAY.to_string();
            return if is_of_gateway && !is_lost { Err(format!("a record without a call: {cdr:?}")) } else { Ok(()) };
        };
        if moment(begin) != first && !self.was_answered(cdr, moment(begin)) {
            return Err(format!("it was answered at {first}: {cdr:?}"));
        }
        let end = end.map_or(0, moment);
        let latest = times.iter().map(|time| self.latest(time)).max().unwrap_or(0);
        match end <= latest {
            true => Ok(()),
            false => {
                let times: Vec<String> = times.iter().map(|time| said(time)).collect();
                Err(format!("a record ends {} ms too late: {cdr:?} {times:?}", end - latest))
            }
        }
    }

    /// True if a 2xx of another callee of this call passed at this moment and never reached its caller.
    fn was_answered(&self, cdr: &Cdr, at: u64) -> bool {
        let is_of_call = |(call_id, caller, _): &(String, String, String)| {
            *call_id == cdr.call_id && caller.starts_with(caller_of(cdr))
        };
        self.loses && self.passed.answers.iter().any(|(tags, passed)| is_of_call(tags) && passed.contains(&at))
    }

    /// Latest end of the record of this period.
    fn latest(&self, time: &Time<'_>) -> u64 {
        match &time.seen.ended {
            // Excluded: the caller has chosen the tag of its callee, and pays for it. Its BYE before the 2xx may go to
            // another callee with this tag.
            Some((_, How::Bye { .. })) if time.seen.is_revived && time.least == time.begin => {
                time.begin + self.lifetime + SLACK
            }
            // After a BYE that passes before the 2xx of its dialog, the server asks both parties.
            Some((_, How::Bye { .. })) if time.least == time.begin => time.end + SLACK,
            // Both dialogs are one to their parties: the server asks after the other one.
            _ if self.is_mirrored(time) => time.end + SLACK,
            // The server asks every callee of such a call that may have taken the tag.
            _ if time.seen.is_revived => time.end + SLACK,
            // After a BYE from another address the server asks the party that it names, and the account may refuse to answer.
            Some((_, How::Bye { .. })) if !self.has_honest_peer(time) => time.end + SLACK,
            Some((_, How::Bye { astray: false, .. })) if !self.loses && self.passed.kills.is_empty() => {
                time.end + 4 * self.delay
            }
            _ => time.end + SLACK,
        }
    }

    /// True if the peer is an honest party. Its tag is no proof: the account may take the tag of an honest one.
    fn has_honest_peer(&self, time: &Time<'_>) -> bool {
        let Seen { call_id, own_tag, peer_tag, .. } = time.seen;
        let is_peer = |seen: &Seen| seen.call_id == *call_id && seen.own_tag == *peer_tag && seen.peer_tag == *own_tag;
        self.seen.iter().any(|seen| is_peer(seen))
    }

    /// True if another call has the tags of this one the other way round.
    fn is_mirrored(&self, time: &Time<'_>) -> bool {
        let (call_id, caller, callee) = tags(time.seen);
        self.passed.answers.contains_key(&(call_id, callee, caller))
    }

    /// Checks that events and record agree.
    fn check_forms(&self, cdr: &Cdr, span: Span) -> Result<(), String> {
        let by_events = self.ledger.by_events(&cdr.identity);
        // A kill may have lost one.
        let is_lost = !self.passed.kills.is_empty();
        match by_events {
            Some(by_events) if by_events == span => Ok(()),
            _ if is_lost => Ok(()),
            by_events => Err(format!("its events say {by_events:?}: {cdr:?}")),
        }
    }

    /// Maximum number of concurrent calls of the account at honest parties.
    fn most_calls(times: &[Time<'_>]) -> Result<u64, String> {
        let own: Vec<&Time<'_>> =
            times.iter().filter(|time| time.seen.is_callee && time.seen.call_id.starts_with('m')).collect();
        let mut most = 0;
        for time in &own {
            let at = time.begin;
            let open = own.iter().filter(|other| other.begin <= at && at < other.counted);
            let mut calls: Vec<(&str, &str)> =
                open.map(|other| (&*other.seen.call_id, &*other.seen.peer_tag)).collect();
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

/// Call-ID, caller's tag and callee's tag.
fn tags(seen: &Seen) -> (String, String, String) {
    let (caller, callee) =
        if seen.is_callee { (&seen.peer_tag, &seen.own_tag) } else { (&seen.own_tag, &seen.peer_tag) };
    (seen.call_id.clone(), caller.clone(), callee.clone())
}

fn said(time: &Time<'_>) -> String {
    let Time { seen, begin, least, end, .. } = time;
    format!("from {begin} to {end} (at least {least}): {seen:?}")
}
