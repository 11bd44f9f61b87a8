//! Session timers of tracked calls (RFC 4028 section 8): values that this server asks for, and values that it refuses.

use crate::decider::Decider;
use crate::handling::Handling;
use crate::reply::{Lines, Reply};
use strowger_message::header::SessionExpires;
use strowger_message::{Message, Method, Name};

/// Changes to the session timer of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionTimer {
    /// Lines in place of the Session-Expires and Min-SE of the request; empty if these are unchanged.
    pub(crate) lines: Vec<u8>,
    /// Value for [`strowger_core::proxy::Plan::session`].
    pub(crate) session: u32,
}

impl SessionTimer {
    /// Returns the header fields that the lines replace.
    pub(crate) const fn replaced(&self) -> &'static [Name] {
        if self.lines.is_empty() { &[] } else { &[Name::SessionExpires, Name::MinSe] }
    }
}

impl Decider<'_> {
    /// Returns the session timer of a request that is forwarded.
    ///
    /// # Errors
    /// The timer is too short, and the sender can choose a longer one.
    pub(crate) fn session_timer(&self, handling: &Handling<'_, '_>) -> Result<SessionTimer, Reply> {
        if handling.is_far_leg() {
            // The user agent keeps the timers of both dialogs.
            return Ok(SessionTimer::default());
        }
        let (config, request) = (&self.policy.config, handling.request);
        let is_tracked = || match handling.progress.proof.in_dialog {
            _ if handling.begins_call() => self.tracks(handling) && self.stays(handling),
            false => false,
            true => self.calls.is_of_tracked_dialog(request),
        };
        // Each dialog of a bridged call has a session timer of its own.
        if !matches!(request.method, Method::Invite | Method::Update) || handling.begins_bridge() || !is_tracked() {
            return Ok(SessionTimer::default());
        }
        let least = config.dialogs.min_session_expires.as_secs() as u32;
        let most = config.dialogs.session_expires.map(|time| time.as_secs() as u32);
        agree(&request.message, least, most)
    }

    /// Tells whether the call that begins with a request is tracked.
    pub(crate) fn tracks(&self, handling: &Handling<'_, '_>) -> bool {
        let (config, decision) = (&self.policy.config, handling.progress.decision.as_ref());
        // The dialogs of an endpoint and of a bridged call are this server's own, and take ports: the bounds of tracked calls hold for them.
        let is_counted = handling.begins_bridge()
            || decision.is_some_and(|decision| decision.may_count() || decision.role.is_endpoint());
        let tracks = decision.and_then(|decision| decision.track).unwrap_or(config.dialogs.track);
        // So is the dialog of each leg.
        handling.is_far_leg() || is_counted || (tracks || self.accounts(handling)) && self.stays(handling)
    }

    /// Tells whether later requests of the request's call pass this server.
    pub(crate) fn stays(&self, handling: &Handling<'_, '_>) -> bool {
        let decision = handling.progress.decision.as_ref();
        decision.and_then(|decision| decision.stays()).unwrap_or(self.policy.config.proxy.record_route)
    }
}

/// Decides on a session timer. `least`: the shortest timer, in seconds, that this server accepts; `most`: the timer
/// that it asks for.
fn agree(message: &Message<'_>, least: u32, most: Option<u32>) -> Result<SessionTimer, Reply> {
    let seconds = |name| message.header(name).and_then(|value| SessionExpires::parse(value).ok());
    let (asked, refuses_below) = (seconds(Name::SessionExpires), seconds(Name::MinSe).map_or(0, |min| min.seconds));
    let supports = message.supports(b"timer");
    let session = |interval| if supports { interval } else { 0 };
    let refresher = asked.and_then(|asked| asked.refresher);
    let interval = match (asked.map(|asked| asked.seconds), most) {
        (None, None) => return Ok(SessionTimer::default()),
        (None, Some(most)) => most.max(refuses_below),
        (Some(asked), _) if asked < least => {
            if supports {
                return Err(Reply::refused(422).with(Lines::MinSe(least)));
            }
            least
        }
        (Some(asked), Some(most)) if asked > most => most.max(refuses_below).min(asked),
        (Some(asked), _) => return Ok(SessionTimer { lines: Vec::new(), session: session(asked) }),
    };
    let mut lines = Vec::new();
    let mut line = |name: Name, value: SessionExpires<'_>| {
        lines.extend_from_slice(name.text().as_bytes());
        lines.extend_from_slice(b": ");
        value.write(&mut lines);
        lines.extend_from_slice(b"\r\n");
    };
    line(Name::SessionExpires, SessionExpires::new(interval, refresher));
    // No later element may choose a shorter timer than this server accepts.
    let shortest = match asked {
        Some(asked) if asked.seconds < least => refuses_below.max(least),
        _ => refuses_below,
    };
    if shortest > 0 {
        line(Name::MinSe, SessionExpires::new(shortest, None));
    }
    Ok(SessionTimer { lines, session: session(interval) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::{Index, Limits};

    fn agreed(lines: &str, least: u32, most: Option<u32>) -> Result<(String, u32), Reply> {
        let text = format!(
            "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nCall-ID: 1\r\n\
             From: <sip:a@example.org>;tag=1\r\nTo: <sip:b@example.org>\r\nCSeq: 1 INVITE\r\n{lines}Content-Length: 0\r\n\r\n"
        );
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("a request");
        let timer = agree(&Message::new(text.as_bytes(), &index), least, most)?;
        Ok((String::from_utf8(timer.lines).expect("text"), timer.session))
    }

    #[test]
    fn agreed_session_timers() {
        const TIMER: &str = "Supported: timer\r\n";
        for (lines, most, expected) in [
            ("", None, ("", 0)),
            (TIMER, None, ("", 0)),
            ("Session-Expires: 1800\r\nSupported: timer\r\n", None, ("", 1800)),
            ("Session-Expires: 1800\r\n", None, ("", 0)),
            (TIMER, Some(600), ("Session-Expires: 600\r\n", 600)),
            ("", Some(600), ("Session-Expires: 600\r\n", 0)),
            ("Min-SE: 900\r\n", Some(600), ("Session-Expires: 900\r\nMin-SE: 900\r\n", 0)),
            ("Session-Expires: 500;refresher=uas\r\nSupported: timer\r\n", Some(600), ("", 500)),
            (
                "Session-Expires: 1800;refresher=uac\r\nSupported: timer\r\n",
                Some(600),
                ("Session-Expires: 600;refresher=uac\r\n", 600),
            ),
            (
                "Session-Expires: 1800\r\nMin-SE: 1000\r\nSupported: timer\r\n",
                Some(600),
                ("Session-Expires: 1000\r\nMin-SE: 1000\r\n", 1000),
            ),
            ("Session-Expires: 91\r\n", Some(600), ("Session-Expires: 120\r\nMin-SE: 120\r\n", 0)),
        ] {
            let expected = Ok((expected.0.to_owned(), expected.1));
            assert_eq!(agreed(lines, 120, most), expected, "{lines:?} {most:?}");
        }
    }

    #[test]
    fn too_short_a_timer_is_refused_where_its_sender_can_choose_another() {
        let refused = agreed("Session-Expires: 119\r\nSupported: timer\r\n", 120, None);
        assert_eq!(refused, Err(Reply::refused(422).with(Lines::MinSe(120))));
    }
}
