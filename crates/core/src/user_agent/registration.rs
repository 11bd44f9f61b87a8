//! Client side of registrations (RFC 3261 section 10.2): a contact kept at a registrar until it is removed.

use serde::{Deserialize, Serialize};
use strowger_message::{Message, Method, NameAddr, Uri, Write};

use super::account::AccountKey;
use super::client_request::{ClientRequestKind, Head, Request, finish};
use super::{BadAddress, Event, RegistrationKey, UserAgent};
use crate::dialog::RequestRoute;
use crate::slots::Id;
use crate::timer::Stamp;
use crate::{Now, Round, Target, call};

/// New registration.
#[derive(Clone, Copy, Debug)]
pub struct Register<'a> {
    /// Address-of-record for To and From: name-addr or URI.
    pub aor: &'a [u8],
    /// Request-URI: the registrar's domain.
    pub registrar: &'a [u8],
    /// Value of Route. Empty: none.
    pub routes: &'a [u8],
    /// Target of the REGISTER.
    pub target: Target,
    /// Account that answers challenges; without one (`None`) a 401 is a failure.
    pub account: Option<AccountKey>,
    /// Requested seconds.
    pub expires: u32,
    /// Further header lines, each with its CRLF.
    pub headers: &'a [u8],
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Registration {
    aor: Vec<u8>,
    registrar: Vec<u8>,
    routes: Vec<u8>,
    headers: Vec<u8>,
    target: Target,
    account: Option<AccountKey>,
    expires: u32,
    call_id: [u8; 16],
    tag: [u8; 16],
    pub(super) cseq: u32,
    /// Set if the contact is to be removed.
    leaving: bool,
    /// Set while a REGISTER is unanswered.
    busy: bool,
    /// Set after the interval was raised for a 423, which is done once.
    lengthened: bool,
    #[serde(skip)]
    pub(super) refresh: Stamp,
}

impl Registration {
    pub(super) const fn call_id(&self) -> &[u8] {
        &self.call_id
    }

    pub(super) const fn target_mut(&mut self) -> &mut Target {
        &mut self.target
    }
}

impl UserAgent {
    /// Registers our contact for an address-of-record and refreshes it.
    ///
    /// # Errors
    /// `aor` is malformed.
    pub fn register(&mut self, round: &mut Round<'_>, register: &Register<'_>) -> Result<RegistrationKey, BadAddress> {
        NameAddr::parse(register.aor)?;
        let registration = Registration {
            aor: register.aor.to_vec(),
            registrar: register.registrar.to_vec(),
            routes: register.routes.to_vec(),
            headers: register.headers.to_vec(),
            target: self.settings.outbound.unwrap_or(register.target),
            account: register.account,
            expires: register.expires,
            call_id: self.own_call_id(),
            tag: self.word(),
            cseq: 0,
            leaving: false,
            busy: false,
            lengthened: false,
            refresh: Stamp::NONE,
        };
        let id = self.registrations.insert(registration);
        self.send_register(round, id);
        Ok(RegistrationKey(id))
    }

    /// Removes our contact; [`Event::Unregistered`] follows.
    pub fn unregister(&mut self, round: &mut Round<'_>, registration: RegistrationKey) {
        let Some(r) = self.registrations.get_mut(registration.0) else { return };
        r.leaving = true;
        // Only one REGISTER may be open at a time (section 10.2), so this one is sent after the answer to the open one.
        if !r.busy {
            self.send_register(round, registration.0);
        }
    }

    /// Returns the number of registrations.
    pub fn registrations(&self) -> usize {
        self.registrations.len()
    }

    pub(super) fn refresh(&mut self, round: &mut Round<'_>, id: Id) {
        if let Some(r) = self.registrations.get_mut(id) {
            r.refresh = Stamp::NONE;
            if !r.busy {
                self.send_register(round, id);
            }
        }
    }

    fn send_register(&mut self, round: &mut Round<'_>, id: Id) {
        let branch = self.branch();
        let Some(r) = self.registrations.get_mut(id) else { return };
        self.refreshes.stop(&mut r.refresh);
        r.cseq += 1;
        r.busy = true;
        let (aor, registrar, routes, headers) =
            (r.aor.clone(), r.registrar.clone(), r.routes.clone(), r.headers.clone());
        let (call_id, tag, cseq, account, target) = (r.call_id, r.tag, r.cseq, r.account, r.target);
        if r.leaving {
            r.expires = 0;
        }
        let expires = r.expires;
        let Ok(party) = NameAddr::parse(&aor) else { return };
        let start = round.out.start();
        let head = Head {
            method: Method::Register,
            route: RequestRoute::new(&registrar, &routes),
            from: &party,
            from_tag: &tag,
            to: &party,
            call_id: &call_id,
            cseq,
            account,
        };
        self.write_head(&head, &target, &branch, b"", &mut round.out.bytes);
        self.write_contact(party.uri_text, &target, party.uri.is_sips(), &mut round.out.bytes);
        round.out.bytes.extend_from_slice(b"Expires: ");
        expires.write(&mut round.out.bytes);
        round.out.bytes.extend_from_slice(b"\r\nSupported: path\r\n");
        round.out.bytes.extend_from_slice(&headers);
        finish(b"", &mut round.out.bytes);
        let call_hash = call::hash(self.call_secret, &call_id);
        self.submit(
            round,
            start,
            &branch,
            Method::Register.text(),
            Request::new(ClientRequestKind::Register, Some(id), account, target, call_hash),
        );
    }

    pub(super) fn register_replied(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        status: u16,
        message: Option<&Message<'_>>,
    ) {
        let retry = self.settings.registration_retry;
        let Some(r) = self.registrations.get_mut(id) else { return };
        let key = RegistrationKey(id);
        r.busy = false;
        if r.leaving {
            // A response with any status ends the registration, unless it answers an earlier refresh.
            let answers_leaving = message.is_none_or(|m| m.cseq().is_ok_and(|c| c.number >= r.cseq)) && r.expires == 0;
            if !answers_leaving {
                return self.send_register(round, id);
            }
            self.registrations.remove(id);
            self.events.push(Event::Unregistered { registration: key });
            return;
        }
        if let (200..300, Some(message)) = (status, message) {
            let (aor, target, asked) = (r.aor.clone(), r.target, r.expires);
            r.lengthened = false;
            let expires = self.granted(message, &aor, &target).unwrap_or(asked);
            self.events.push(Event::Registered { registration: key, expires });
            // The refresh is early enough, and spread: after half of a short interval, ten minutes before the end of a
            // long one.
            let seconds = if expires > 1200 { expires - 600 } else { expires.div_ceil(2) };
            self.refresh_in(round.now, id, u64::from(seconds) * 1000);
            return;
        }
        if let (423, Some(message), false) = (status, message, r.lengthened)
            && let Ok(Some(least)) = message.min_expires()
            && least > r.expires
        {
            r.expires = least;
            r.lengthened = true;
            return self.send_register(round, id);
        }
        self.events.push(Event::RegistrationFailed { registration: key, status });
        if retry > 0 {
            self.refresh_in(round.now, id, retry);
        }
    }

    fn refresh_in(&mut self, now: Now, id: Id, wait: u64) {
        if let Some(r) = self.registrations.get_mut(id) {
            self.refreshes.stop(&mut r.refresh);
            r.refresh = self.refreshes.start_at(now.mono + wait, id.slot);
        }
    }

    /// Returns the seconds that the registrar grants our contact (section 10.2.4).
    fn granted(&self, message: &Message<'_>, aor: &[u8], target: &Target) -> Option<u32> {
        let mut ours = Vec::new();
        let secure = NameAddr::parse(aor).is_ok_and(|a| a.uri.is_sips());
        self.write_contact_uri(aor, target, secure, &mut ours);
        let ours = Uri::parse(&ours).ok()?;
        let contact = message.contacts().flatten().find(|c| c.uri == ours)?;
        contact.expires.or_else(|| message.expires().ok().flatten())
    }
}
