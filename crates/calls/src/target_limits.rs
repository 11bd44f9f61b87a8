//! Limits under which a call counts while it is sent to a target: a gateway, or a group of them.
//!
//! Each INVITE of the call holds the limits of its last target. If several INVITEs of the call hold the same limit, the
//! call takes room under it only once, unless a server before this one has forked the call.

use crate::call::Call;
use crate::limits::{Claim, LimitScope};
use crate::scopes::{CallScopes, HeldLimit};
use smallvec::SmallVec;

impl Call {
    fn counted(&self) -> &[LimitScope] {
        self.scopes.as_ref().map_or(&[], |scopes| &scopes.counted)
    }

    fn held(&self) -> &[HeldLimit] {
        self.scopes.as_ref().map_or(&[], |scopes| &scopes.held)
    }

    /// Returns all limits under which the call takes room. A limit under which it takes room several times occurs as
    /// often.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &LimitScope> {
        let held = self.held().iter().flat_map(|held| std::iter::repeat_n(&held.scope, held.takes as usize));
        self.counted().iter().chain(held)
    }

    fn held_under(&self, claim: &Claim) -> Option<&HeldLimit> {
        self.held().iter().find(|held| held.scope == claim.counted && held.takes > 0)
    }

    /// Tells whether the call takes room under this limit already.
    pub fn counts_under(&self, claim: &Claim) -> bool {
        self.counts_to_its_end(claim) || self.held_under(claim).is_some()
    }

    pub(crate) fn counts_to_its_end(&self, claim: &Claim) -> bool {
        self.counted().contains(&claim.counted)
    }

    /// Makes the call count under these limits to its end. It has room already, at its target, under the limits that
    /// are not in `taken`.
    pub(crate) fn count(&mut self, claims: &[Claim], taken: &[Claim]) {
        if claims.is_empty() {
            return;
        }
        let scopes = self.scopes.get_or_insert_default();
        for claim in claims.iter().filter(|claim| !taken.contains(claim)) {
            let held = scopes.held.iter_mut().find(|held| held.scope == claim.counted && held.takes > 0);
            held.into_iter().for_each(|held| held.takes -= 1);
        }
        scopes.counted.extend(claims.iter().map(|claim| claim.counted.clone()));
    }

    /// Notes that an INVITE of the call is sent to a target with these limits. `taken`: limits under which room was
    /// taken for this INVITE.
    pub(crate) fn hold(&mut self, claims: &[Claim], taken: &[Claim]) {
        if claims.is_empty() {
            return;
        }
        let all = &mut self.scopes.get_or_insert_default().held;
        for claim in claims {
            let place = all.iter().position(|held| held.scope == claim.counted).unwrap_or_else(|| {
                all.push(HeldLimit { scope: claim.counted.clone(), holds: 0, takes: 0 });
                all.len() - 1
            });
            let held = &mut all[place];
            held.holds += 1;
            held.takes += u32::from(taken.contains(claim));
        }
    }

    /// Notes that an INVITE of the call leaves a target with these limits. Returns the limits under which room is to be
    /// freed.
    pub(crate) fn leave(&mut self, claims: &[Claim]) -> Vec<LimitScope> {
        let mut given = Vec::new();
        let Some(scopes) = &mut self.scopes else { return given };
        for claim in claims {
            let Some(held) = scopes.held.iter_mut().find(|held| held.scope == claim.counted) else { continue };
            held.holds = held.holds.saturating_sub(1);
            if held.takes > held.holds {
                held.takes -= 1;
                given.push(held.scope.clone());
            }
        }
        scopes.held.retain(|held| held.holds > 0);
        given
    }

    /// Returns the limits of the call for a process in which it is sent to no other target: it counts under all of them
    /// to its end. Returns `None` if the call has no target now.
    pub(crate) fn without_target(&self) -> Option<Box<CallScopes>> {
        let is_held = !self.held().is_empty();
        is_held.then(|| Box::new(CallScopes { counted: self.taken().cloned().collect(), held: SmallVec::new() }))
    }

    /// Takes out the limits of the target of the call.
    pub(crate) fn take_held(&mut self) -> Box<[HeldLimit]> {
        let scopes = self.scopes.as_mut();
        scopes.map(|scopes| std::mem::take(&mut scopes.held).into_vec().into()).unwrap_or_default()
    }

    /// Sets the limits of the target of the call.
    pub(crate) fn set_held(&mut self, held: Box<[HeldLimit]>) {
        self.scopes.get_or_insert_default().held = held.into_vec().into();
    }
}
