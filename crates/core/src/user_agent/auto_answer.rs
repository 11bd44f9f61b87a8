//! Answers of a telephone to requests that need no decision of its user.

use strowger_message::{Limits, Message, Method, Name};

use super::{Event, LegKey, UserAgent};
use crate::Round;

/// Answers an event as a telephone does: OPTIONS with the capabilities (RFC 3261 section 11.2), INFO and MESSAGE with
/// 200, a reliable provisional response with a PRACK. To be called for each event, before the next event is taken.
/// Returns false if the owner must handle the event.
pub fn auto_answer(agent: &mut UserAgent, round: &mut Round<'_>, event: &Event) -> bool {
    match *event {
        Event::Request {
            request, call, method: method @ (Method::Options | Method::Info | Method::Message), ..
        } => {
            let mut index = agent.indexes.pop().unwrap_or_default();
            let is_readable = index.parse(agent.message(), &Limits::UNLIMITED).is_ok()
                && is_readable(&Message::new(agent.message(), &index));
            agent.indexes.push(index);
            let mut lines = Vec::new();
            if is_readable && method == Method::Options {
                let own = agent.capabilities(call.map(|call| call.0));
                own.write(&mut lines);
                own.write_accept(&mut lines);
                lines.extend_from_slice(IDENTITY);
                lines.extend_from_slice(b"Accept-Language: en\r\n");
            }
            if is_readable {
                agent.respond(round, request, 200, &lines, b"");
            } else {
                agent.respond(round, request, 415, IDENTITY, b"");
            }
            true
        }
        Event::Progress { call, offer: true, .. } => {
            let leg = LegKey { call, leg: Some(agent.leg()) };
            agent.prack(round, leg, b"").is_ok()
        }
        _ => false,
    }
}

pub(super) const IDENTITY: &[u8] = b"Accept-Encoding: identity\r\n";

/// Tells whether the body is not encoded (section 8.2.3).
pub(super) fn is_readable(message: &Message<'_>) -> bool {
    message.body().is_empty()
        || message.header(Name::ContentEncoding).is_none_or(|e| e.eq_ignore_ascii_case(b"identity"))
}
