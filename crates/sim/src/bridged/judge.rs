//! Laws of a world without work in progress: both legs of each call have ended together, and each answered call has one record.

use super::phone::{Acts, PhoneCall, Role};
use std::collections::BTreeMap;
use strowger_store::accounting::Cdr;

/// Longest time in milliseconds between the ends of both legs of a call: a request that blocks the BYE, the BYE, and its response, each without
/// an answer for 64*T1.
const APART: u64 = 4 * 32_000;

/// Longest time in milliseconds that a request waits for its response, with the time of the network.
const UNANSWERED: u64 = 33_000;

/// Longest time in milliseconds that a message takes.
const TRAVEL: u64 = 1_000;

/// Time in milliseconds after which two parties that talk have heard each other if no packet is lost.
const HEARD: u64 = 3_000;

/// Events of one world.
pub(super) struct Story<'a> {
    /// Calls of each phone, with the acts of the phone.
    pub(super) phones: Vec<(&'a [PhoneCall], Acts)>,
    pub(super) records: &'a [Cdr],
    /// Times at which the process was killed.
    pub(super) kills: &'a [u64],
    /// Times of kills with the Call-ID of each caller whose call the next process has taken over.
    pub(super) continued: &'a [(u64, Vec<u8>)],
    /// Packets that were heard after a kill in calls that were answered before.
    pub(super) heard_on: u64,
    /// Time of the first request in a dialog that has arrived at the server, by Call-ID.
    pub(super) proven: &'a BTreeMap<Vec<u8>, u64>,
    /// True if the translator before a phone has changed its ports.
    pub(super) has_moved_ports: bool,
    /// True if there are no incidents (moves, kills, other ports, outsiders), and no packet is lost.
    pub(super) is_calm: bool,
}

/// Kills of the server, the calls that have gone on after one, and the packets that their parties heard then.
#[derive(Clone, Debug, Default)]
pub struct Kills {
    pub count: u64,
    pub continued: u64,
    pub heard: u64,
}

/// Totals of one world, or of several.
#[derive(Clone, Debug, Default)]
pub struct Bridged {
    /// Calls, and those that were answered on both sides.
    pub calls: u64,
    pub answered: u64,
    pub records: u64,
    /// Packets that the other party heard.
    pub heard: u64,
    /// Changes of the session that were granted and refused, those refused for glare, other requests within calls.
    pub granted: u64,
    pub refused: u64,
    pub glares: u64,
    pub requests: u64,
    /// Provisional responses with a description.
    pub early: u64,
    /// Legs of callees, of which a call may have several.
    pub legs: u64,
    /// REFERs with Replaces, INVITEs with Replaces that were answered, NOTIFYs about them that reached the transferor.
    pub referrals: u64,
    pub transfers: u64,
    pub successes: u64,
    /// Kills of the server.
    pub kills: Kills,
}

impl std::ops::AddAssign for Bridged {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.answered += other.answered;
        self.records += other.records;
        self.heard += other.heard;
        self.granted += other.granted;
        self.refused += other.refused;
        self.glares += other.glares;
        self.requests += other.requests;
        self.early += other.early;
        self.legs += other.legs;
        self.referrals += other.referrals;
        self.transfers += other.transfers;
        self.successes += other.successes;
        self.kills.count += other.kills.count;
        self.kills.continued += other.kills.continued;
        self.kills.heard += other.kills.heard;
    }
}

impl Bridged {
    /// Checks that many worlds together have exercised every law.
    ///
    /// # Errors
    /// Totals that are too low.
    pub fn check(&self, worlds: u64) -> Result<(), String> {
        let shows = self.calls > 2 * worlds
            && self.answered > worlds / 2
            && self.records > 2 * worlds
            && self.heard > 10 * worlds
            && self.legs > worlds
            && [self.granted, self.refused, self.glares, self.requests, self.early].iter().all(|count| *count > 0)
            && self.transfers * 40 > worlds
            && self.successes * 80 > worlds
            && self.referrals > self.transfers
            && self.kills.count * 20 > worlds
            && self.kills.continued * 100 > worlds
            && self.kills.heard > self.kills.continued;
        if shows { Ok(()) } else { Err(format!("the worlds do not hold what they are for: {self:?}")) }
    }
}

/// Both sides of one call. The place of a newcomer is that of its phone.
#[derive(Default)]
struct Sides<'a> {
    caller: Option<&'a PhoneCall>,
    callees: Vec<&'a PhoneCall>,
    newcomers: Vec<(usize, &'a PhoneCall)>,
}

impl Story<'_> {
    /// Judges the world.
    ///
    /// # Errors
    /// The violated law.
    pub(super) fn judge(&self) -> Result<Bridged, String> {
        let mut calls: BTreeMap<u32, Sides<'_>> = BTreeMap::new();
        let all = || {
            self.phones.iter().enumerate().flat_map(|(place, (calls, _))| calls.iter().map(move |call| (place, call)))
        };
        for (place, call) in all() {
            let sides = calls.entry(call.number).or_default();
            match call.role {
                Role::Caller => sides.caller = Some(call),
                Role::Callee => sides.callees.push(call),
                Role::Newcomer(_) => sides.newcomers.push((place, call)),
            }
        }
        let mut totals = Bridged {
            calls: calls.len() as u64,
            kills: Kills { count: self.kills.len() as u64, heard: self.heard_on, continued: 0 },
            ..Bridged::default()
        };
        for (number, sides) in &calls {
            let Some(caller) = sides.caller else { return Err(format!("nobody has made call {number}")) };
            let is_answered =
                self.check_call(caller, &sides.callees).map_err(|error| format!("call {number}: {error}"))?;
            totals.answered += u64::from(is_answered);
            totals.legs += sides.callees.len() as u64;
            totals.kills.continued += u64::from(self.goes_on(caller, &sides.callees));
            for &(place, newcomer) in &sides.newcomers {
                let is_answered = self.check_newcomer((place, newcomer), sides);
                totals.transfers +=
                    u64::from(is_answered.map_err(|error| format!("new party of call {number}: {error}"))?);
            }
        }
        let known = all().map(|(_, call)| call).filter(|call| call.role.is_caller());
        for record in self.records {
            // After a kill, the next process may record the refusal of a re-INVITE whose dialog it does not know.
            if self.kills.is_empty() && known.clone().all(|call| call.call_id != record.call_id.as_bytes()) {
                return Err(format!("a record without a call: {record:?}"));
            }
        }
        totals.records = self.records.iter().filter(|record| record.answer.is_some()).count() as u64;
        totals.heard = all().flat_map(|(_, call)| call.heard).sum();
        for (_, acts) in &self.phones {
            totals.granted += acts.granted;
            totals.refused += acts.refused;
            totals.glares += acts.glares;
            totals.requests += acts.requests;
            totals.early += acts.early;
            totals.referrals += acts.referrals;
            totals.successes += acts.successes;
        }
        Ok(totals)
    }

    /// Checks one call. Returns whether the caller had an answer.
    fn check_call(&self, caller: &PhoneCall, callees: &[&PhoneCall]) -> Result<bool, String> {
        let records = self.records_of(caller)?;
        let Some(answered) = caller.answered else { return Ok(false) };
        if self.is_cut_off(caller, callees) {
            return Ok(true);
        }
        // The next process may record the refusal of a copy of the INVITE.
        let records: Vec<&Cdr> = records.into_iter().filter(|record| record.answer.is_some()).collect();
        let is_of = |record: &Cdr| callees.iter().any(|callee| callee.call_id == record.far_call_id.as_bytes());
        match records.as_slice() {
            [record] if record.end.is_some() && is_of(record) => (),
            _ => return Err(format!("an answered call has not one whole record with both Call-IDs: {records:?}")),
        }
        let taken: Vec<&PhoneCall> = callees.iter().copied().filter(|callee| callee.answered.is_some()).collect();
        if taken.is_empty() {
            return Err("its caller had an answer, and no callee has given one".to_owned());
        }
        self.check_ends(caller, &taken)?;
        if self.is_calm {
            let is_deaf = |call: &PhoneCall| lasts(call, answered) && call.heard.iter().sum::<u64>() == 0;
            // Of several callees only one has the call, and this check does not know which.
            if is_deaf(caller) || taken.len() == 1 && is_deaf(taken[0]) {
                return Err("a party has not heard the other one".to_owned());
            }
        }
        Ok(true)
    }

    /// Tells whether a kill has ended a call, or has come while it was ending. Such a call has no record, and its parties end it by themselves. An
    /// ended call has none either before the BYE to the other party has its response, or none within 64*T1.
    fn is_cut_off(&self, caller: &PhoneCall, callees: &[&PhoneCall]) -> bool {
        let (first, last) = ends(caller, callees);
        let mut kills = self.kills_within(caller.begun, last.saturating_add(UNANSWERED));
        kills.any(|kill| kill + TRAVEL >= first || !self.is_taken_over(kill, caller))
    }

    fn kills_within(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        self.kills.iter().copied().filter(move |kill| (from..=to).contains(kill))
    }

    fn is_taken_over(&self, kill: u64, caller: &PhoneCall) -> bool {
        self.continued.iter().any(|(at, call_id)| *at == kill && *call_id == caller.call_id)
    }

    /// Tells whether a call has gone on after a kill.
    fn goes_on(&self, caller: &PhoneCall, callees: &[&PhoneCall]) -> bool {
        let (first, _) = ends(caller, callees);
        self.kills.iter().any(|kill| kill + TRAVEL < first && self.is_taken_over(*kill, caller))
    }

    /// Returns the records with the Call-ID of a caller.
    ///
    /// # Errors
    /// There are several without a kill.
    fn records_of(&self, caller: &PhoneCall) -> Result<Vec<&Cdr>, String> {
        let records: Vec<&Cdr> =
            self.records.iter().filter(|record| record.call_id.as_bytes() == caller.call_id).collect();
        match records.len() > 1 && self.kills.is_empty() {
            true => Err(format!("it has several records: {records:?}")),
            false => Ok(records),
        }
    }

    /// Checks the call of a party that takes the place of another one. Returns whether it had an answer.
    fn check_newcomer(&self, (place, newcomer): (usize, &PhoneCall), sides: &Sides<'_>) -> Result<bool, String> {
        let records = self.records_of(newcomer)?;
        let Some(answered) = newcomer.answered else { return Ok(false) };
        let begun = sides.caller.map_or(newcomer.begun, |caller| caller.begun);
        let last = newcomer.ended.map_or(u64::MAX, |ended| ended + UNANSWERED);
        if self.kills_within(begun, last).next().is_some() {
            return Ok(true);
        }
        let newcomers = sides.newcomers.iter().map(|(_, call)| *call);
        let others = newcomers.chain(sides.caller).chain(sides.callees.iter().copied());
        let others: Vec<&PhoneCall> =
            others.filter(|call| call.call_id != newcomer.call_id && call.answered.is_some()).collect();
        let remaining = match records.as_slice() {
            [record] if record.answer.is_some() && record.end.is_some() => {
                others.iter().copied().find(|call| call.call_id == record.far_call_id.as_bytes())
            }
            _ => None,
        };
        let Some(remaining) = remaining else {
            return Err(format!("it has not one whole record with the Call-ID of the party that remains: {records:?}"));
        };
        // Another party may take the place of each of both.
        let are_last = !newcomer.is_transferred && !remaining.is_transferred && sides.newcomers.len() == 1;
        let ended = |call: &PhoneCall| call.ended.unwrap_or(u64::MAX);
        let is_proven = self.proven.get(&newcomer.call_id).is_some_and(|proven| *proven <= ended(remaining));
        if are_last && is_proven && !self.has_moved_ports && ended(newcomer).abs_diff(ended(remaining)) > APART {
            return Err("its legs do not end together".to_owned());
        }
        let mut replaced = others.iter().copied().filter(|call| call.call_id != remaining.call_id);
        if are_last && !self.has_moved_ports && replaced.any(|call| ended(call) > answered.saturating_add(APART)) {
            return Err("the party whose place it has taken is not released".to_owned());
        }
        let is_deaf = newcomer.heard.iter().sum::<u64>() == 0 || remaining.heard[place] == 0;
        match self.is_calm && are_last && lasts(newcomer, answered) && lasts(remaining, answered) && is_deaf {
            true => Err("both parties have not heard each other".to_owned()),
            false => Ok(true),
        }
    }

    /// Checks that the end of one leg has ended the other one.
    fn check_ends(&self, caller: &PhoneCall, taken: &[&PhoneCall]) -> Result<(), String> {
        let is_transferred = caller.is_transferred || taken.iter().any(|callee| callee.is_transferred);
        // A phone whose ports have changed is not reached, and a transfer keeps one leg after the end of the other.
        if self.has_moved_ports || is_transferred {
            return Ok(());
        }
        let ended = |call: &PhoneCall| call.ended.unwrap_or(u64::MAX);
        let last = taken.iter().copied().map(ended).max().unwrap_or(u64::MAX);
        // A caller of which no request in its dialog has arrived may have a forged source: it gets one BYE, which may be lost.
        if self.proven.get(&caller.call_id).is_none_or(|proven| *proven > last) {
            return Ok(());
        }
        match last.abs_diff(ended(caller)) {
            0..=APART => Ok(()),
            apart => Err(format!("its legs end {apart} ms apart")),
        }
    }
}

/// Returns the times at which the first and the last answered leg of a call have ended.
fn ends(caller: &PhoneCall, callees: &[&PhoneCall]) -> (u64, u64) {
    let ended = |call: &PhoneCall| call.ended.unwrap_or(u64::MAX);
    let taken = callees.iter().filter(|callee| callee.answered.is_some());
    taken
        .map(|callee| ended(callee))
        .fold((ended(caller), ended(caller)), |(first, last), end| (first.min(end), last.max(end)))
}

/// Tells whether a call lasts so long after an answer that its party has heard the other one.
fn lasts(call: &PhoneCall, answered: u64) -> bool {
    call.ended.unwrap_or_default() >= answered + HEARD
}
