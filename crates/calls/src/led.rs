//! Limits under which a call counts while it is led to a place: a gateway, or a group of them.
//!
//! Each INVITE of the call holds the limits of the place where it was led last. The call takes room once under a limit
//! that several INVITEs hold, unless a server before this one has forked it.

use crate::call::Call;
use crate::limits::{Claim, LimitScope};
use crate::scopes::{CallScopes, LedScope};
use smallvec::SmallVec;

impl Call {
    fn counted(&self) -> &[LimitScope] {
        self.scopes.as_ref().map_or(&[], |scopes| &scopes.counted)
    }

    fn led(&self) -> &[LedScope] {
        self.scopes.as_ref().map_or(&[], |scopes| &scopes.led)
    }

    /// Returns all limits under which it takes room, each as often as it does.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &LimitScope> {
        let led = self.led().iter().flat_map(|led| std::iter::repeat_n(&led.scope, led.takes as usize));
        self.counted().iter().chain(led)
    }

    fn led_to(&self, claim: &Claim) -> Option<&LedScope> {
        self.led().iter().find(|led| led.scope == claim.counted && led.takes > 0)
    }

    /// Tells whether it takes room under this limit already.
    pub fn counts_under(&self, claim: &Claim) -> bool {
        self.counts_to_its_end(claim) || self.led_to(claim).is_some()
    }

    pub(crate) fn counts_to_its_end(&self, claim: &Claim) -> bool {
        self.counted().contains(&claim.counted)
    }

    /// Makes the call count under these limits to its end. Under those that are not in `taken` it has room already,
    /// where it was led.
    pub(crate) fn count(&mut self, claims: &[Claim], taken: &[Claim]) {
        if claims.is_empty() {
            return;
        }
        let scopes = self.scopes.get_or_insert_default();
        for claim in claims.iter().filter(|claim| !taken.contains(claim)) {
            let led = scopes.led.iter_mut().find(|led| led.scope == claim.counted && led.takes > 0);
            led.into_iter().for_each(|led| led.takes -= 1);
        }
        scopes.counted.extend(claims.iter().map(|claim| claim.counted.clone()));
    }

    /// Notes that one of its INVITEs was led to a place with these limits. `taken`: limits under which room was taken
    /// for that.
    pub(crate) fn lead(&mut self, claims: &[Claim], taken: &[Claim]) {
        if claims.is_empty() {
            return;
        }
        let all = &mut self.scopes.get_or_insert_default().led;
        for claim in claims {
            let place = all.iter().position(|led| led.scope == claim.counted).unwrap_or_else(|| {
                all.push(LedScope { scope: claim.counted.clone(), holds: 0, takes: 0 });
                all.len() - 1
            });
            let led = &mut all[place];
            led.holds += 1;
            led.takes += u32::from(taken.contains(claim));
        }
    }

    /// Notes that one of its INVITEs leaves a place with these limits. Returns the limits to be given back.
    pub(crate) fn leave(&mut self, claims: &[Claim]) -> Vec<LimitScope> {
        let mut given = Vec::new();
        let Some(scopes) = &mut self.scopes else { return given };
        for claim in claims {
            let Some(led) = scopes.led.iter_mut().find(|led| led.scope == claim.counted) else { continue };
            led.holds = led.holds.saturating_sub(1);
            if led.takes > led.holds {
                led.takes -= 1;
                given.push(led.scope.clone());
            }
        }
        scopes.led.retain(|led| led.holds > 0);
        given
    }

    /// Returns its limits for a process in which it is led nowhere else: it counts under all of them to its end.
    /// `None`: it is led nowhere now.
    pub(crate) fn stays_led(&self) -> Option<Box<CallScopes>> {
        let is_led = !self.led().is_empty();
        is_led.then(|| Box::new(CallScopes { counted: self.taken().cloned().collect(), led: SmallVec::new() }))
    }

    /// Takes out the limits of the place that the call is led to.
    pub(crate) fn take_led(&mut self) -> Box<[LedScope]> {
        let scopes = self.scopes.as_mut();
        scopes.map(|scopes| std::mem::take(&mut scopes.led).into_vec().into()).unwrap_or_default()
    }

    /// Sets the limits of the place that the call is led to.
    pub(crate) fn set_led(&mut self, led: Box<[LedScope]>) {
        self.scopes.get_or_insert_default().led = led.into_vec().into();
    }
}
