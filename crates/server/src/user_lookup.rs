//! Existence of a local user, whose row may be stored under any name of its domain.

use crate::decider::Decider;
use crate::handling::Handling;
use crate::question::Question;
use strowger_message::SipUri;
use strowger_message::uri::sip::unescape;
use strowger_store::error::StoreError;
use strowger_store::subscriber::{self, SubscriberAnswer};

impl Decider<'_> {
    /// Returns the answer of the subscribers if it is available without waiting. Without subscribers every user is
    /// absent.
    pub(crate) fn known(
        &self,
        question: subscriber::Question<'_>,
        now: u64,
    ) -> Option<Result<SubscriberAnswer, StoreError>> {
        match (&self.shared.subscribers, self.sinks.found) {
            (Some(subscribers), Some(_)) => subscribers.cached(question, now),
            _ => Some(Ok(SubscriberAnswer::Absent)),
        }
    }

    /// Returns the answer of the subscribers about the user of a URI: under the canonical name of the domain first,
    /// then under its other names. If an answer is missing, returns the next question. `unasked`: answer to use if the
    /// database is not asked.
    pub(crate) fn exists(
        &self,
        handling: &Handling<'_, '_>,
        uri: &SipUri<'_>,
        unasked: Result<SubscriberAnswer, StoreError>,
    ) -> Result<Result<SubscriberAnswer, StoreError>, Question> {
        let is_explained = handling.progress.trace_request.is_some();
        let has_users = is_explained || self.shared.subscribers.is_some();
        if !has_users || !self.policy.config.registrar.authenticate {
            return Ok(unasked);
        }
        let (mut username, mut written) = (Vec::new(), Vec::new());
        unescape(uri.user.unwrap_or_default(), &mut username);
        uri.host.write_lower(&mut written);
        let identity = self.policy.identity();
        let names = identity.names_of(identity.domain_of(uri.host).unwrap_or(&written));
        for (domain, place) in names.zip(0..=u8::MAX) {
            let known = match &handling.progress.answers.user {
                // The user was absent under that name, because otherwise the next name would not have been asked.
                Some((asked, _)) if place < *asked => continue,
                Some((asked, answer)) if place == *asked => Some(answer.clone()),
                _ if is_explained => None,
                _ => self.known(subscriber::Question::User { username: &username, domain }, handling.now.mono),
            };
            match known {
                Some(Ok(SubscriberAnswer::Absent)) => (),
                Some(answer) => return Ok(answer),
                None => return Err(Question::User { username: username[..].into(), domain: domain.into(), place }),
            }
        }
        Ok(Ok(SubscriberAnswer::Absent))
    }
}
