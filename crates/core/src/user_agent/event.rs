//! What a user agent tells its owner.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use crate::Arrival;
use crate::slots::ids;

ids! {
    /// A call, from [`super::UserAgent::invite`] or [`Event::Invited`] to [`Event::Failed`] or [`Event::Ended`].
    CallKey
    /// A request of [`super::UserAgent::request`] or [`super::UserAgent::request_within`].
    RequestKey
    /// A registration that is kept up.
    RegistrationKey
    /// A request that the owner answers, see [`Event::Request`].
    IncomingKey
}

/// Text that goes with an event: read it with [`super::UserAgent::text`] before the next [`super::UserAgent::event`]
/// that gives `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// There is no text.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Bytes of the text.
    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// What ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// [`super::UserAgent::hang_up`].
    Local,
    /// The peer's BYE.
    Remote,
    /// The caller's CANCEL before we answered.
    Cancelled,
    /// No ACK came for our 2xx, a BYE was sent (RFC 3261 section 13.3.1.4).
    NoAck,
    /// No PRACK came for a reliable provisional response (RFC 3262 section 3).
    NoPrack,
    /// A request within the dialog failed so that there can be no dialog (section 12.2.1.2): 408 or 481.
    Fault(u16),
}

/// Something that the owner may want to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A provisional response to our INVITE: 100 Trying, 180 Ringing, 183 with early media.
    Progress {
        /// Our call.
        call: CallKey,
        /// 100 to 199.
        status: u16,
        /// The session description, if it is an answer to our offer.
        body: Span,
    },
    /// A 2xx to our INVITE. Its ACK has been sent, unless `offer` is set.
    Answered {
        /// Our call.
        call: CallKey,
        /// The session description: the answer to our offer, or an offer.
        body: Span,
        /// The body is an offer: [`super::UserAgent::acknowledge`] with the answer.
        offer: bool,
    },
    /// Our INVITE was refused. The call is gone.
    Failed {
        /// Finds nothing from now on.
        call: CallKey,
        /// 300 to 699.
        status: u16,
        /// No peer said so: no answer came in time (408), or the request could not be sent (503), or the answer was of no
        /// use (502).
        local: bool,
    },
    /// A 3xx: the URI of the first Contact. The call is gone.
    Redirected {
        /// Finds nothing from now on.
        call: CallKey,
        /// 300 to 399.
        status: u16,
        /// The URI, without angle brackets.
        target: Span,
    },
    /// An INVITE for us: [`super::UserAgent::ring`], [`super::UserAgent::answer`], [`super::UserAgent::reject`].
    Invited {
        /// The new call.
        call: CallKey,
        /// The value of From as it stands.
        from: Span,
        /// The value of To as it stands.
        to: Span,
        /// The Request-URI as it stands.
        uri: Span,
        /// Empty: the caller wants the offer from us.
        offer: Span,
    },
    /// The ACK to our 2xx came.
    Confirmed {
        /// The call that we answered.
        call: CallKey,
        /// The answer, if our 2xx brought the offer.
        body: Span,
    },
    /// The peer wants to change the session.
    Offered {
        /// The call whose session is to change.
        call: CallKey,
        /// Empty: the offer is wanted from us.
        offer: Span,
        /// By UPDATE: [`super::UserAgent::answer_update`] or [`super::UserAgent::reject_update`]; else by re-INVITE:
        /// [`super::UserAgent::answer`] or [`super::UserAgent::reject`].
        update: bool,
    },
    /// Our re-INVITE or UPDATE was granted.
    Changed {
        /// The call whose session changed.
        call: CallKey,
        /// The session description of the 2xx: mostly the answer to our offer; may be empty.
        body: Span,
    },
    /// Our re-INVITE or UPDATE was refused; the session goes on as before.
    Unchanged {
        /// The call.
        call: CallKey,
        /// 300 to 699.
        status: u16,
        /// After a 491: milliseconds after which to try again (section 14.1).
        wait: u64,
    },
    /// A request within a call that needs no dialog usage of its own (INFO, MESSAGE); it has been answered 200.
    Within {
        /// The call.
        call: CallKey,
        /// That of the request.
        method: strowger_message::Method,
        /// Its body, of any type; may be empty.
        body: Span,
    },
    /// A request of a method that this user agent does not know, within a call or not: the owner answers it by
    /// [`super::UserAgent::respond`]. Only with [`super::UserAgentSettings::other_methods`].
    Request {
        /// Names it in the answer.
        request: IncomingKey,
        /// The call that it came within; none: it came outside of any.
        call: Option<CallKey>,
    },
    /// The call is over.
    Ended {
        /// Finds nothing from now on.
        call: CallKey,
        /// What ended it.
        by: Ending,
    },
    /// A MESSAGE outside of any call; it has been answered 200.
    Message {
        /// The value of From as it stands.
        from: Span,
        /// The value of To as it stands.
        to: Span,
        /// The value of Content-Type; empty: there is none.
        content_type: Span,
        /// Of the type that Content-Type says.
        body: Span,
    },
    /// The final response to a request of the owner's; 408 and 503 may mean that none came.
    Reply {
        /// Which of our requests.
        request: RequestKey,
        /// 200 to 699.
        status: u16,
        /// Of the response; may be empty.
        body: Span,
    },
    /// The registrar holds our contact for so many seconds; it is refreshed in time.
    Registered {
        /// The registration that is kept up.
        registration: RegistrationKey,
        /// Seconds that the registrar granted.
        expires: u32,
    },
    /// The registrar refused, or did not answer.
    RegistrationFailed {
        /// The registration; it is tried again if the settings say so.
        registration: RegistrationKey,
        /// 300 to 699; 408: no answer came in time, 503: the request could not be sent.
        status: u16,
    },
    /// The registrar has answered the removal of our contact, with any status, or did not answer; the key is gone.
    Unregistered {
        /// Finds nothing from now on.
        registration: RegistrationKey,
    },
}

/// Where an event comes from.
#[derive(Clone, Copy, Debug, Default)]
struct About {
    message: Span,
    arrival: Option<Arrival>,
    leg: u16,
}

/// Events that wait, and their texts.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<(Event, About)>,
    text: Vec<u8>,
    /// Of the message in hand; and how much was there before it.
    about: About,
    before: (usize, usize),
    /// Of the event that was taken last.
    taken: About,
}

impl Events {
    /// A message came: events tell it until [`Events::end`].
    pub(super) fn begin(&mut self, message: &[u8], arrival: &Arrival) {
        self.before = (self.queue.len(), self.text.len());
        let message = self.keep(message);
        self.about = About { message, arrival: Some(*arrival), leg: 0 };
    }

    /// The message is done with. What tells of nothing is not kept.
    pub(super) fn end(&mut self) {
        let (events, text) = self.before;
        if self.queue.len() == events {
            self.text.truncate(text);
        }
        self.about = About::default();
    }

    /// Of several dialogs that one INVITE of ours makes, the message is of this one.
    pub(super) fn is_of_leg(&mut self, leg: u16) {
        self.about.leg = leg;
    }

    pub(super) fn push(&mut self, event: Event) {
        self.queue.push_back((event, self.about));
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let (event, about) = self.queue.pop_front().unzip();
        self.taken = about.unwrap_or_default();
        if event.is_none() {
            self.text.clear();
        }
        event
    }

    pub(super) fn message(&self) -> &[u8] {
        self.text(self.taken.message)
    }

    pub(super) const fn arrival(&self) -> Option<&Arrival> {
        self.taken.arrival.as_ref()
    }

    pub(super) const fn leg(&self) -> u16 {
        self.taken.leg
    }

    /// Keeps a text.
    pub(super) fn keep(&mut self, text: &[u8]) -> Span {
        if text.is_empty() {
            return Span::default();
        }
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        Span { start, end: self.text.len() as u32 }
    }

    pub(super) fn text(&self, span: Span) -> &[u8] {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }
}
