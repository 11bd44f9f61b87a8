//! Session timers of calls (RFC 4028): they are agreed by INVITE and UPDATE, and one side refreshes the session; a
//! session that is not refreshed is ended.

use serde::{Deserialize, Serialize};
use strowger_message::header::{Refresher, SessionExpires};
use strowger_message::{Message, Name};

use super::client_request::ClientRequestKind;
use super::content::{Content, HeldContent};
use super::{CallKey, Ending, UserAgent};
use crate::slots::Id;
use crate::timer::{Stamp, Timers};
use crate::{Now, Round};

/// Session timers as the owner wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTimerSettings {
    /// Session interval in seconds for which we ask, and the longest that we grant; with 0 we ask for none, and grant
    /// any. Default 1,800 (section 4).
    pub interval: u32,
    /// Shortest interval in seconds that we grant; at least 90 (section 5). Default 90.
    pub least: u32,
    /// Whether we refresh the session ourselves if we may choose. Default off: the caller refreshes, if it can (section
    /// 7.1).
    pub refreshes: bool,
}

impl Default for SessionTimerSettings {
    fn default() -> Self {
        Self { interval: 1_800, least: LEAST, refreshes: false }
    }
}

/// Smallest value of Min-SE, and that of a message without it (section 5).
const LEAST: u32 = 90;

/// Session timer of a call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct SessionTimer {
    /// Agreed interval in seconds. 0: none.
    interval: u32,
    /// Set if we refresh.
    is_ours: bool,
    /// Largest Min-SE of the peer and the proxies, in seconds.
    least: u32,
    /// Set if the peer allows UPDATE.
    updates: bool,
    /// Our session description in force, which a re-INVITE repeats with the same version (RFC 3264 section 8).
    description: Option<Box<HeldContent>>,
    /// Our description in an open re-INVITE or UPDATE.
    offered: Option<Box<HeldContent>>,
    /// Timer of our next refresh.
    #[serde(skip)]
    pub(super) refresh: Stamp,
    /// Timer of the end of a session that is not refreshed.
    #[serde(skip)]
    pub(super) expiry: Stamp,
    /// Moments of both, in milliseconds: a copy of one call must not look at the timers of all.
    #[serde(skip)]
    ends: [u64; 2],
}

impl SessionTimer {
    /// Starts the timers that run for these milliseconds.
    pub(super) fn start(&mut self, now: Now, timers: &mut Timers, slot: u32, lefts: [Option<u64>; 2]) {
        for ((stamp, end), left) in [&mut self.refresh, &mut self.expiry].into_iter().zip(&mut self.ends).zip(lefts) {
            timers.stop(stamp);
            if let Some(left) = left {
                *end = now.mono + left;
                *stamp = timers.start_at(*end, slot);
            }
        }
    }

    /// Returns the remaining milliseconds of both timers; `None` for one that does not run.
    pub(super) fn lefts(&self, now: Now) -> [Option<u64>; 2] {
        let left = |stamp: Stamp, end: u64| stamp.is_running().then(|| end.saturating_sub(now.mono));
        let [refresh, expiry] = self.ends;
        [left(self.refresh, refresh), left(self.expiry, expiry)]
    }

    pub(super) fn stop(&mut self, timers: &mut Timers) {
        timers.stop(&mut self.refresh);
        timers.stop(&mut self.expiry);
    }

    pub(super) fn runs(&self, stamp: Stamp) -> bool {
        self.refresh == stamp || self.expiry == stamp
    }

    fn current(&self) -> Option<(u32, bool)> {
        (self.interval > 0).then_some((self.interval, self.is_ours))
    }

    /// Ends the exchange of our open offer.
    pub(super) fn close_offer(&mut self, is_granted: bool) {
        let offered = self.offered.take();
        if is_granted && offered.is_some() {
            self.description = offered;
        }
    }
}

/// Session timer that a 2xx grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    seconds: u32,
    /// Set if we refresh.
    is_ours: bool,
    /// Set if the sender of the request supports session timers: the response requires them (section 9).
    is_known: bool,
}

impl Grant {
    /// Returns our grant for a request (section 9, table 2). `current`: interval in force, and whether we refresh.
    ///
    /// # Errors
    /// The interval is too short: the request must be refused by 422 with this Min-SE.
    fn of_request(
        message: &Message<'_>,
        own: &SessionTimerSettings,
        current: Option<(u32, bool)>,
    ) -> Result<Option<Self>, u32> {
        let is_known = message.supports(b"timer");
        let asked = session_expires(message, Name::SessionExpires);
        let own_least = own.least.max(LEAST);
        let least = min_se(message).max(own_least);
        let seconds = match asked {
            // A caller that does not support session timers, but whose proxy asks for one, cannot choose another
            // interval.
            Some(asked) if asked.seconds < own_least && is_known => return Err(own_least),
            Some(asked) if own.interval > 0 => own.interval.max(least).min(asked.seconds),
            Some(asked) => asked.seconds,
            None => match current.map_or(own.interval, |(seconds, _)| seconds) {
                0 => return Ok(None),
                seconds => seconds.max(least),
            },
        };
        let is_ours = match asked.and_then(|asked| asked.refresher) {
            _ if !is_known => true,
            Some(refresher) => refresher == Refresher::Uas,
            None => current.map_or(own.refreshes, |(_, is_ours)| is_ours),
        };
        Ok(Some(Self { seconds: seconds.max(LEAST), is_ours, is_known }))
    }

    /// Parses the grant of a 2xx to our request (section 7.2); returns `None` if the session has no timer.
    fn of_response(message: &Message<'_>) -> Option<Self> {
        let granted = session_expires(message, Name::SessionExpires)?;
        let is_ours = granted.refresher != Some(Refresher::Uas);
        Some(Self { seconds: granted.seconds.max(LEAST), is_ours, is_known: true })
    }

    /// Writes the lines of our 2xx.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        if self.is_known {
            out.extend_from_slice(b"Require: timer\r\n");
        }
        let refresher = if self.is_ours { Refresher::Uas } else { Refresher::Uac };
        write_line(Name::SessionExpires, self.seconds, Some(refresher), out);
    }
}

fn session_expires<'a>(message: &Message<'a>, name: Name) -> Option<SessionExpires<'a>> {
    message.header(name).and_then(|value| SessionExpires::parse(value).ok())
}

/// Returns the Min-SE of a message; 0 without one.
fn min_se(message: &Message<'_>) -> u32 {
    session_expires(message, Name::MinSe).map_or(0, |least| least.seconds)
}

/// Writes a line of Session-Expires or Min-SE.
pub(super) fn write_line(name: Name, seconds: u32, refresher: Option<Refresher>, out: &mut Vec<u8>) {
    out.extend_from_slice(name.text().as_bytes());
    out.extend_from_slice(b": ");
    SessionExpires::new(seconds, refresher).write(out);
    out.extend_from_slice(b"\r\n");
}

impl UserAgent {
    fn timer_settings(&self, call: Option<Id>) -> Option<SessionTimerSettings> {
        self.capabilities(call).session_timer
    }

    /// Writes the lines of our INVITE or UPDATE (sections 7.1 and 7.4). Returns whether there are any.
    pub(super) fn ask_timer(&self, id: Id, out: &mut Vec<u8>) -> bool {
        let (Some(own), Some(call)) = (self.timer_settings(Some(id)), self.calls.get(id)) else { return false };
        let session = &call.session;
        let least = own.least.max(session.least).max(LEAST);
        let (seconds, refresher) = match session.current() {
            Some((seconds, true)) => (seconds, Some(Refresher::Uac)),
            Some((seconds, false)) => (seconds, Some(Refresher::Uas)),
            None => (own.interval, own.refreshes.then_some(Refresher::Uac)),
        };
        if seconds == 0 {
            return false;
        }
        write_line(Name::SessionExpires, seconds.max(least), refresher, out);
        if least > LEAST {
            write_line(Name::MinSe, least, None, out);
        }
        true
    }

    /// Returns the session timer for a request of the peer: an INVITE that makes a call, or one in this call.
    ///
    /// # Errors
    /// Min-SE of the 422.
    pub(super) fn grant(&self, call: Option<Id>, request: &Message<'_>) -> Result<Option<Grant>, u32> {
        let Some(own) = self.timer_settings(call) else { return Ok(None) };
        let current = call.and_then(|id| self.calls.get(id)?.session.current());
        Grant::of_request(request, &own, current)
    }

    /// Notes whether a message of the peer shows support for session timers.
    pub(super) fn note_peer(&mut self, id: Id, message: &Message<'_>) {
        if self.timer_settings(Some(id)).is_none() {
            return;
        }
        let Some(call) = self.calls.get_mut(id) else { return };
        call.session.least = call.session.least.max(min_se(message));
        if message.has(Name::Allow) {
            call.session.updates = message.allow().flatten().any(|method| method.text == b"UPDATE");
        }
    }

    /// Notes our description, once it is in force.
    pub(super) fn note_description(&mut self, id: Id, content: Content<'_>) {
        if let Some(session) = self.session_of(id, content) {
            session.description = Some(Box::new(Content { headers: b"", ..content }.into()));
        }
    }

    /// Notes our description in a re-INVITE or UPDATE.
    pub(super) fn note_offer(&mut self, id: Id, content: Content<'_>) {
        if let Some(session) = self.session_of(id, content) {
            session.offered = Some(Box::new(Content { headers: b"", ..content }.into()));
        }
    }

    fn session_of(&mut self, id: Id, content: Content<'_>) -> Option<&mut SessionTimer> {
        let is_wanted = content.is_description() && self.timer_settings(Some(id)).is_some();
        self.calls.get_mut(id).filter(|_| is_wanted).map(|call| &mut call.session)
    }

    /// Starts the session timer that the 2xx to our INVITE or UPDATE grants. If the peer does not support session
    /// timers, we refresh nevertheless, so that we notice when the peer has disappeared.
    pub(super) fn take_grant(&mut self, now: Now, id: Id, response: &Message<'_>) {
        if self.timer_settings(Some(id)).is_none() {
            return;
        }
        self.note_peer(id, response);
        let current = self.calls.get(id).and_then(|call| call.session.current());
        let ours = current.filter(|(_, is_ours)| *is_ours);
        let ours = ours.map(|(seconds, is_ours)| Grant { seconds, is_ours, is_known: false });
        self.start_session(now, id, Grant::of_response(response).or(ours));
    }

    /// Starts the session timer of a 2xx, sent or received. Each 2xx to an INVITE or UPDATE replaces the previous timer
    /// (section 7.2).
    pub(super) fn start_session(&mut self, now: Now, id: Id, grant: Option<Grant>) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let session = &mut call.session;
        session.interval = grant.map_or(0, |grant| grant.seconds);
        session.is_ours = grant.is_some_and(|grant| grant.is_ours);
        let whole = u64::from(session.interval) * 1_000;
        let refresh = session.is_ours.then_some(whole / 2);
        // Section 10.
        let expiry = (whole > 0).then(|| whole - (whole / 3).min(32_000));
        session.start(now, &mut self.timers, id.slot, [refresh, expiry]);
    }

    /// Handles a timer of the session.
    pub(super) fn session_timer(&mut self, round: &mut Round<'_>, id: Id, stamp: Stamp) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.session.refresh == stamp {
            call.session.refresh = Stamp::NONE;
            self.refresh_session(round, id);
        } else {
            call.session.expiry = Stamp::NONE;
            self.end(round, id, Ending::Expired);
        }
    }

    /// Refreshes the session: by an UPDATE without offer, else by a re-INVITE with our description unchanged (section 7.4).
    fn refresh_session(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.is_changing() {
            // The other request may refresh the session; else its side has had its turn.
            let wait = self.glare_wait(id);
            return self.refresh_later(round.now, id, wait);
        }
        let (updates, held) = (call.session.updates, call.session.description.clone());
        let sent = if updates {
            self.update(round, CallKey(id), Content::default())
        } else {
            let content = held.as_deref().map_or_else(Content::default, HeldContent::content);
            self.reinvite(round, CallKey(id), content)
        };
        let Some(call) = self.calls.get(id).filter(|_| sent.is_ok()) else { return };
        let request = if updates { call.legs.first().and_then(|leg| leg.updating) } else { call.inviting };
        if let Some(request) = request.and_then(|request| self.requests.get_mut(request)) {
            request.is_refresh = true;
        }
    }

    /// Handles a refusal of our refresh; the session goes on until its end (section 10).
    pub(super) fn refresh_refused(
        &mut self,
        round: &Round<'_>,
        id: Id,
        kind: ClientRequestKind,
        status: u16,
        wait: Option<u32>,
    ) {
        let glare = self.glare_wait(id);
        let Some(call) = self.calls.get_mut(id) else { return };
        let wait = match status {
            405 | 501 if kind == ClientRequestKind::Update => {
                call.session.updates = false;
                0
            }
            491 => glare,
            _ => {
                wait.map_or_else(|| u64::from(call.session.interval) * 100, |seconds| u64::from(seconds.max(1)) * 1_000)
            }
        };
        self.refresh_later(round.now, id, wait);
    }

    fn refresh_later(&mut self, now: Now, id: Id, wait: u64) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let [_, expiry] = call.session.lefts(now);
        call.session.start(now, &mut self.timers, id.slot, [Some(wait), expiry]);
    }

    /// Repeats an INVITE or UPDATE that was refused by 422 with the interval that its Min-SE demands (section 7.3). Returns false if that
    /// is no longer than the refused one.
    pub(super) fn lengthen_interval(&mut self, round: &mut Round<'_>, request: Id, response: &Message<'_>) -> bool {
        let least = min_se(response);
        // Only these requests belong to a call and ask for an interval.
        let timed = self.requests.get(request).filter(|request| request.is_timed);
        let Some(call) = timed.and_then(|request| request.of) else { return false };
        let known = self.calls.get(call).map_or(0, |call| call.session.least).max(least);
        let sent = self.repeat(round, request, |_, message, edit| {
            let Some(asked) = session_expires(message, Name::SessionExpires) else { return false };
            if least <= asked.seconds {
                return false;
            }
            let value = SessionExpires::new(known.max(asked.seconds), asked.refresher);
            edit.set(message.index(), Name::SessionExpires, |out| value.write(out));
            edit.set(message.index(), Name::MinSe, |out| SessionExpires::new(known, None).write(out));
            true
        });
        if let Some(call) = self.calls.get_mut(call) {
            call.session.least = known;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::{Index, Limits};

    fn granted(
        lines: &str,
        own: SessionTimerSettings,
        current: Option<(u32, bool)>,
    ) -> Result<Option<(u32, bool, bool)>, u32> {
        let text = format!("UPDATE sip:b SIP/2.0\r\n{lines}Content-Length: 0\r\n\r\n");
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("a request");
        let grant = Grant::of_request(&Message::new(text.as_bytes(), &index), &own, current)?;
        Ok(grant.map(|grant| (grant.seconds, grant.is_ours, grant.is_known)))
    }

    /// Section 9 and table 2.
    #[test]
    fn grants() {
        const TIMER: &str = "Supported: timer\r\n";
        let own = SessionTimerSettings { interval: 600, least: 120, refreshes: false };
        let any = SessionTimerSettings { interval: 0, ..own };
        for (lines, own, current, expected) in [
            ("", any, None, Ok(None)),
            ("Supported: timer\r\n", any, None, Ok(None)),
            ("", own, None, Ok(Some((600, true, false)))),
            (TIMER, own, None, Ok(Some((600, false, true)))),
            (TIMER, SessionTimerSettings { refreshes: true, ..own }, None, Ok(Some((600, true, true)))),
            ("Supported: timer\r\nMin-SE: 900\r\n", own, None, Ok(Some((900, false, true)))),
            ("Supported: timer\r\nSession-Expires: 1800\r\n", any, None, Ok(Some((1800, false, true)))),
            ("Supported: timer\r\nSession-Expires: 1800\r\n", own, None, Ok(Some((600, false, true)))),
            ("Supported: timer\r\nSession-Expires: 1800\r\nMin-SE: 1000\r\n", own, None, Ok(Some((1000, false, true)))),
            ("Supported: timer\r\nSession-Expires: 300;refresher=uas\r\n", own, None, Ok(Some((300, true, true)))),
            ("Supported: timer\r\nSession-Expires: 300;refresher=uac\r\n", own, None, Ok(Some((300, false, true)))),
            ("Supported: timer\r\nSession-Expires: 119\r\n", own, None, Err(120)),
            // Its proxy asks.
            ("Session-Expires: 119\r\n", own, None, Ok(Some((119, true, false)))),
            ("Session-Expires: 5\r\n", own, None, Ok(Some((90, true, false)))),
            // A session that has a timer keeps it.
            (TIMER, any, Some((300, true)), Ok(Some((300, true, true)))),
            ("Supported: timer\r\nSession-Expires: 300\r\n", any, Some((300, true)), Ok(Some((300, true, true)))),
        ] {
            assert_eq!(granted(lines, own, current), expected, "{lines:?} {own:?} {current:?}");
        }
    }
}
