//! Events of a user agent for its owner.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use strowger_message::Method;

use crate::Arrival;
use crate::slots::ids;

ids! {
    /// Key of a call, from [`super::UserAgent::invite`] or [`Event::Invited`] to [`Event::Failed`] or [`Event::Ended`].
    CallKey
    /// Key of a request of [`super::UserAgent::request`] or [`super::UserAgent::request_within`].
    RequestKey
    /// Key of a registration that is refreshed.
    RegistrationKey
    /// Key of a request that the owner answers, see [`Event::Request`].
    IncomingKey
}

/// Text of an event. It is read with [`super::UserAgent::text`] before the next call of [`super::UserAgent::event`]
/// that returns none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Tells whether there is no text.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns the length of the text in bytes.
    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Cause of the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// [`super::UserAgent::hang_up`].
    Local,
    /// BYE of the peer.
    Remote,
    /// CANCEL of the caller before we answered.
    Cancelled,
    /// No ACK for our 2xx arrived, and a BYE was sent (RFC 3261 section 13.3.1.4).
    NoAck,
    /// No PRACK for a reliable provisional response (RFC 3262 section 3).
    NoPrack,
    /// No refresh of the session arrived in time (RFC 4028 section 10), and a BYE was sent.
    Expired,
    /// Failure of a request within the dialog that ends the dialog (section 12.2.1.2): 408 or 481.
    Fault(u16),
}

/// Event for the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Provisional response to our INVITE: 100 Trying, 180 Ringing, 183 with early media.
    Progress {
        /// Own call.
        call: CallKey,
        /// Status, 100 to 199.
        status: u16,
        /// Session description: an answer to our offer, or an offer.
        body: Span,
        /// Set if the body is an offer: call [`super::UserAgent::prack`] with the answer (RFC 3262 section 5).
        offer: bool,
    },
    /// 2xx to our INVITE. Its ACK was sent, unless `offer` is set.
    Answered {
        /// Own call.
        call: CallKey,
        /// Session description: the answer to our offer, or an offer.
        body: Span,
        /// Set if the body is an offer: call [`super::UserAgent::acknowledge`] with the answer.
        offer: bool,
    },
    /// Our INVITE was refused. The call is gone.
    Failed {
        /// Key, which finds nothing from now on.
        call: CallKey,
        /// Status, 300 to 699.
        status: u16,
        /// Set if the status is not from a peer: no answer in time (408), the request could not be sent (503), or the answer was unusable
        /// (502).
        local: bool,
    },
    /// 3xx to our INVITE. The call is gone.
    Redirected {
        /// Key, which finds nothing from now on.
        call: CallKey,
        /// Status, 300 to 399.
        status: u16,
        /// URI of the first Contact, without angle brackets.
        target: Span,
    },
    /// INVITE for us: call [`super::UserAgent::ring`], [`super::UserAgent::answer`] or [`super::UserAgent::reject`].
    Invited {
        /// New call.
        call: CallKey,
        /// Value of From as received.
        from: Span,
        /// Value of To as received.
        to: Span,
        /// Request-URI as received.
        uri: Span,
        /// Body: the offer, or parts of which one may be the offer; empty if the caller expects the offer from us.
        offer: Span,
    },
    /// The PRACK of our reliable provisional response was received, and answered with 200.
    Acknowledged {
        /// Call that rings.
        call: CallKey,
        /// Answer, if our response had the offer.
        body: Span,
    },
    /// The ACK of our 2xx was received.
    Confirmed {
        /// Call that we answered.
        call: CallKey,
        /// Answer, if our 2xx had the offer.
        body: Span,
    },
    /// The peer wants to change the session.
    Offered {
        /// Call whose session is to change.
        call: CallKey,
        /// Offer; empty if the peer expects the offer from us.
        offer: Span,
        /// Set for an UPDATE, and for a PRACK with a further offer: call [`super::UserAgent::answer_update`] or
        /// [`super::UserAgent::reject_update`]. Else a re-INVITE: call [`super::UserAgent::answer`] or [`super::UserAgent::reject`].
        update: bool,
    },
    /// The peer has cancelled its re-INVITE, which was answered with 487: the session continues unchanged.
    Withdrawn {
        /// Call whose session is unchanged.
        call: CallKey,
    },
    /// Our re-INVITE or UPDATE was granted, also a re-INVITE that refreshed the session (RFC 4028).
    Changed {
        /// Call whose session changed.
        call: CallKey,
        /// Session description of the 2xx: mostly the answer to our offer; may be empty.
        body: Span,
    },
    /// Our re-INVITE or UPDATE was refused; the session continues unchanged.
    Unchanged {
        /// Call whose session is unchanged.
        call: CallKey,
        /// Status, 300 to 699.
        status: u16,
        /// Milliseconds until a new attempt after a 491 (section 14.1).
        wait: u64,
    },
    /// The session or its target was refreshed: by an UPDATE without offer, which was answered with 200.
    Refreshed {
        /// Call of the session.
        call: CallKey,
    },
    /// The next hop of our requests in a dialog is a host name: call [`super::UserAgent::resolve`] with its address (RFC 3263). Until then
    /// requests go to the target of the INVITE, or to its source.
    Unresolved {
        /// Call of the dialog; [`super::UserAgent::leg`] returns the number of the dialog.
        call: CallKey,
        /// URI with the name: the first Route, else the remote target.
        uri: Span,
    },
    /// Request for which the user agent has no rules, within a call or not. The owner answers it by
    /// [`super::UserAgent::respond`], or leaves it to [`super::auto_answer()`].
    Request {
        /// Key for the answer.
        request: IncomingKey,
        /// Call of the request; `None` if it is outside of any call.
        call: Option<CallKey>,
        /// Method of the request; the text of an unknown one is in the message.
        method: Method,
        /// Body of any type; may be empty.
        body: Span,
    },
    /// The agent has sent a BYE of its own accord: the owner has not asked for it. [`Event::Ended`] follows with the response to the BYE, after
    /// 64*T1 at the latest.
    Ending {
        /// Call that ends.
        call: CallKey,
        /// Cause of the end.
        by: Ending,
    },
    /// The call is over.
    Ended {
        /// Key, which finds nothing from now on.
        call: CallKey,
        /// Cause of the end.
        by: Ending,
    },
    /// Final response to a request of the owner; 408 and 503 may mean that none was received.
    Reply {
        /// Own request.
        request: RequestKey,
        /// Status, 200 to 699.
        status: u16,
        /// Body of the response; may be empty.
        body: Span,
    },
    /// The registrar has granted our contact; it is refreshed in time.
    Registered {
        /// Registration that is refreshed.
        registration: RegistrationKey,
        /// Granted seconds.
        expires: u32,
    },
    /// The registrar refused, or did not answer.
    RegistrationFailed {
        /// Registration; it is tried again if the settings say so.
        registration: RegistrationKey,
        /// Status, 300 to 699. 408: no answer in time. 503: the request could not be sent.
        status: u16,
    },
    /// The registrar has answered the removal of our contact, with any status, or did not answer; the key is not valid
    /// any more.
    Unregistered {
        /// Key, which finds nothing from now on.
        registration: RegistrationKey,
    },
}

impl Event {
    /// Returns the call of the event; `None` for an event outside of calls, and for [`Event::Reply`].
    pub const fn call(&self) -> Option<CallKey> {
        match *self {
            Self::Progress { call, .. }
            | Self::Answered { call, .. }
            | Self::Failed { call, .. }
            | Self::Redirected { call, .. }
            | Self::Invited { call, .. }
            | Self::Acknowledged { call, .. }
            | Self::Confirmed { call, .. }
            | Self::Offered { call, .. }
            | Self::Withdrawn { call }
            | Self::Changed { call, .. }
            | Self::Unchanged { call, .. }
            | Self::Refreshed { call }
            | Self::Unresolved { call, .. }
            | Self::Ending { call, .. }
            | Self::Ended { call, .. } => Some(call),
            Self::Request { call, .. } => call,
            Self::Reply { .. }
            | Self::Registered { .. }
            | Self::RegistrationFailed { .. }
            | Self::Unregistered { .. } => None,
        }
    }
}

/// Origin of an event.
#[derive(Clone, Copy, Debug, Default)]
struct About {
    message: Span,
    arrival: Option<Arrival>,
    leg: u16,
}

/// Queue of events, and their texts.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<(Event, About)>,
    text: Vec<u8>,
    /// Origin of the events of the current message, and the lengths of queue and text before it.
    about: About,
    before: (usize, usize),
    /// Origin of the event that was taken last.
    taken: About,
}

impl Events {
    /// Begins a message: events refer to it until [`Events::end`].
    pub(super) fn begin(&mut self, message: &[u8], arrival: &Arrival) {
        self.before = (self.queue.len(), self.text.len());
        let message = self.keep(message);
        self.about = About { message, arrival: Some(*arrival), leg: 0 };
    }

    /// Ends a message. Its text is dropped if it caused no event.
    pub(super) fn end(&mut self) {
        let (events, text) = self.before;
        if self.queue.len() == events {
            self.text.truncate(text);
        }
        self.about = About::default();
    }

    /// Returns the origin of the current message.
    pub(super) const fn source(&self) -> Option<&Arrival> {
        self.about.arrival.as_ref()
    }

    /// Sets the dialog of the current message, which is one of several dialogs that one INVITE of ours has created.
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

    /// Stores a text.
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
