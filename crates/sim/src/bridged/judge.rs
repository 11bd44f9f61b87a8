//! Laws of a world without work in progress: both legs of each call have ended together, and each answered call has one record.

use super::phone::{Acts, PhoneCall};
use std::collections::BTreeMap;
use strowger_store::accounting::Cdr;

/// Longest time in milliseconds between the ends of both legs of a call: a request that blocks the BYE, the BYE, and its response, each without
/// an answer for 64*T1.
const APART: u64 = 4 * 32_000;

/// Time in milliseconds after which two parties that talk have heard each other if no packet is lost.
const HEARD: u64 = 3_000;

/// Events of one world.
pub(super) struct Story<'a> {
    /// Calls of each phone, with the acts of the phone.
    pub(super) phones: Vec<(&'a [PhoneCall], Acts)>,
    pub(super) records: &'a [Cdr],
    /// Times at which the process was killed. These worlds keep no calls, so a kill ends them.
    pub(super) kills: &'a [u64],
    /// True if the translator before a phone has changed its ports.
    pub(super) has_moved_ports: bool,
    /// True if there are no incidents (moves, kills, other ports, outsiders), and no packet is lost.
    pub(super) is_calm: bool,
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
    pub kills: u64,
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
        self.kills += other.kills;
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
            && self.kills * 20 > worlds;
        if shows { Ok(()) } else { Err(format!("the worlds do not hold what they are for: {self:?}")) }
    }
}

/// Both sides of one call.
#[derive(Default)]
struct Sides<'a> {
    caller: Option<&'a PhoneCall>,
    callees: Vec<&'a PhoneCall>,
}

impl Story<'_> {
    /// Judges the world.
    ///
    /// # Errors
    /// The violated law.
    pub(super) fn judge(&self) -> Result<Bridged, String> {
        let mut calls: BTreeMap<u32, Sides<'_>> = BTreeMap::new();
        for call in self.phones.iter().flat_map(|(calls, _)| calls.iter()) {
            let sides = calls.entry(call.number).or_default();
            match call.is_caller {
                true => sides.caller = Some(call),
                false => sides.callees.push(call),
            }
        }
        let mut totals = Bridged { calls: calls.len() as u64, kills: self.kills.len() as u64, ..Bridged::default() };
        for (number, sides) in &calls {
            let Some(caller) = sides.caller else { return Err(format!("nobody has made call {number}")) };
            let is_answered =
                self.check_call(caller, &sides.callees).map_err(|error| format!("call {number}: {error}"))?;
            totals.answered += u64::from(is_answered);
            totals.legs += sides.callees.len() as u64;
        }
        let known = calls.values().filter_map(|sides| sides.caller);
        for record in self.records {
            // After a kill, the next process may record the refusal of a re-INVITE whose dialog it does not know.
            if self.kills.is_empty() && known.clone().all(|call| call.call_id != record.call_id.as_bytes()) {
                return Err(format!("a record without a call: {record:?}"));
            }
        }
        totals.records = self.records.iter().filter(|record| record.answer.is_some()).count() as u64;
        totals.heard = known.map(|call| call.heard).sum();
        for (calls, acts) in &self.phones {
            totals.heard += calls.iter().filter(|call| !call.is_caller).map(|call| call.heard).sum::<u64>();
            totals.granted += acts.granted;
            totals.refused += acts.refused;
            totals.glares += acts.glares;
            totals.requests += acts.requests;
            totals.early += acts.early;
        }
        Ok(totals)
    }

    /// Checks one call. Returns whether the caller had an answer.
    fn check_call(&self, caller: &PhoneCall, callees: &[&PhoneCall]) -> Result<bool, String> {
        let records: Vec<&Cdr> =
            self.records.iter().filter(|record| record.call_id.as_bytes() == caller.call_id).collect();
        if records.len() > 1 && self.kills.is_empty() {
            return Err(format!("it has several records: {records:?}"));
        }
        let Some(answered) = caller.answered else { return Ok(false) };
        // A call of a process that was killed has no record, and its parties end it by themselves.
        if self.kills.iter().any(|kill| caller.ended.is_none_or(|ended| *kill <= ended)) {
            return Ok(true);
        }
        let is_of = |record: &Cdr| callees.iter().any(|callee| callee.call_id == record.far_call_id.as_bytes());
        match records.as_slice() {
            [record] if record.answer.is_some() && record.end.is_some() && is_of(record) => (),
            _ => return Err(format!("an answered call has not one whole record with both Call-IDs: {records:?}")),
        }
        let taken: Vec<&PhoneCall> = callees.iter().copied().filter(|callee| callee.answered.is_some()).collect();
        if taken.is_empty() {
            return Err("its caller had an answer, and no callee has given one".to_owned());
        }
        self.check_ends(caller, &taken)?;
        if self.is_calm {
            let lasts = |call: &PhoneCall| call.ended.unwrap_or_default() >= answered + HEARD;
            let is_deaf = |call: &PhoneCall| lasts(call) && call.heard == 0;
            // Of several callees only one has the call, and this check does not know which.
            if is_deaf(caller) || taken.len() == 1 && is_deaf(taken[0]) {
                return Err("a party has not heard the other one".to_owned());
            }
        }
        Ok(true)
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
        match last.abs_diff(ended(caller)) {
            0..=APART => Ok(()),
            apart => Err(format!("its legs end {apart} ms apart")),
        }
    }
}
