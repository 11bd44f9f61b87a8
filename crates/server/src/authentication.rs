//! Who sent this? Digest challenges and their answers (RFC 3261 section 22, RFC 7616).

use crate::asked::Asked;
use crate::ban::Standing;
use crate::shard::Shard;
use std::net::IpAddr;
use std::time::Instant;
use strowger_core::digest::{Attempt, ChallengeHeader, Credentials, Demand, Ha1, Ha1Set, Hash, Verdict};
use strowger_message::{Name, Uri};
use strowger_net::shown::shown;
use strowger_store::subscriber::{Answer, Credential, Question};
use strowger_store::ticket::Ticket;

impl Shard {
    /// The sender is a subscriber and, if `user_must_match`, the one that `party` names. False: answered, or waiting for the
    /// database.
    pub(crate) fn authenticate(&mut self, asked: &mut Asked<'_, '_>, header: ChallengeHeader, party: &Uri<'_>) -> bool {
        let request = asked.request;
        if asked.found.authenticated {
            return true;
        }
        let shared = self.shared.clone();
        let realm = shared.config.realm.as_bytes();
        let name = match header {
            ChallengeHeader::WwwAuthenticate => Name::Authorization,
            ChallengeHeader::ProxyAuthenticate => Name::ProxyAuthorization,
        };
        let credentials = request
            .message
            .headers(name)
            .filter_map(|value| Credentials::parse(value).ok())
            .find(|credentials| credentials.realm.value()[..] == *realm);
        let Some(credentials) = credentials else {
            self.challenge(asked, header, false);
            return false;
        };
        let source = source_bytes(request.arrival.remote.ip());
        let attempt = Attempt {
            method: request.message.method_text(),
            uri: request.message.request_uri(),
            body: request.message.body(),
            source: &source,
            algorithms: shared.algorithms(request.arrival.listener),
        };
        let ticket = match shared.authenticator.check(realm, &attempt, &credentials) {
            Ok(ticket) => ticket,
            Err(verdict) => {
                self.deny(asked, header, &credentials, verdict);
                return false;
            }
        };
        let user = credentials.user().unwrap_or_default();
        let answer = match asked.found.subscriber.take() {
            Some(answer) => answer,
            None => {
                let question = Question::Credential { username: &user, realm };
                match self.ask_subscribers(asked, question) {
                    Some(answer) => Ok(answer),
                    None => return false,
                }
            }
        };
        let subscriber = match answer {
            Ok(Answer::Credential(subscriber)) => Some(subscriber),
            Ok(_) => None,
            Err(error) => {
                self.counters().failed_lookups.one();
                if self.may_say(asked) {
                    tracing::error!(call_id = %shown(request.call_id), %error, "cannot authenticate");
                }
                self.reply(asked, 500, |_| ());
                return false;
            }
        };
        let secrets = subscriber.as_deref().map(ha1_set);
        match shared.authenticator.decide(asked.now, &ticket, &attempt, &credentials, secrets.as_ref()) {
            Verdict::Ok => (),
            // A REGISTER has no transaction: this may be a copy of one that was served, which gets its answer again.
            Verdict::Replay if asked.server.is_none() => asked.found.replayed = true,
            verdict => {
                self.deny(asked, header, &credentials, verdict);
                return false;
            }
        }
        let subscriber = subscriber.expect("a right response has a subscriber");
        if shared.config.auth.user_must_match && !is_user(&subscriber, party) {
            if self.may_say(asked) {
                tracing::warn!(
                    call_id = %shown(request.call_id),
                    source = %request.arrival.remote,
                    user = %subscriber.username,
                    "authenticated, but as another user than the request names"
                );
            }
            self.refuse_request(asked, 403);
            return false;
        }
        asked.found.authenticated = true;
        true
    }

    /// What the subscribers say, if it is known. None: the request waits, or was answered 503.
    pub(crate) fn ask_subscribers(&mut self, asked: &mut Asked<'_, '_>, question: Question<'_>) -> Option<Answer> {
        let request = asked.request;
        let shared = self.shared.clone();
        let (Some(subscribers), Some(sink)) = (&shared.subscribers, self.found) else { return Some(Answer::Absent) };
        let instant = Instant::now();
        if let Some(answer) = subscribers.cached(question, instant) {
            return Some(answer);
        }
        asked.found.asks_existence = matches!(question, Question::User { .. });
        let value = self.park(asked);
        if let Err(error) = subscribers.request(Ticket { sink, value }, question, instant) {
            if self.may_say(asked) {
                tracing::warn!(call_id = %shown(request.call_id), %error, "cannot look up a subscriber");
            }
            self.unpark(value, request.call_hash);
            self.reply_overloaded(asked);
        }
        None
    }

    pub(crate) fn challenge(&mut self, asked: &mut Asked<'_, '_>, header: ChallengeHeader, stale: bool) {
        let request = asked.request;
        self.counters().challenges.one();
        let shared = self.shared.clone();
        let source = source_bytes(request.arrival.remote.ip());
        let entropy = self.entropy.u64();
        let demand = Demand {
            header,
            algorithms: shared.algorithms(request.arrival.listener),
            realm: shared.config.realm.as_bytes(),
            source: &source,
            entropy,
            stale,
        };
        let status = header.status();
        let now = asked.now;
        self.reply(asked, status, |text| shared.authenticator.write_challenges(now, &demand, text));
    }

    fn deny(
        &mut self,
        asked: &mut Asked<'_, '_>,
        header: ChallengeHeader,
        credentials: &Credentials<'_>,
        verdict: Verdict,
    ) {
        let request = asked.request;
        let source = request.arrival.remote;
        if let Verdict::BadRequest(reason) = verdict {
            if self.may_say(asked) {
                tracing::info!(call_id = %shown(request.call_id), %source, %reason, "credentials cannot be used");
            }
            // A phone set up for another algorithm or realm gets what it needs to do better.
            return self.challenge(asked, header, false);
        }
        if let Verdict::WrongPassword { .. } = verdict {
            self.counters().failed_authentications.one();
            if self.may_say(asked) {
                let user = credentials.user().unwrap_or_default();
                tracing::warn!(call_id = %shown(request.call_id), %source, user = %shown(&user), "authentication failed");
            }
        }
        if verdict.is_failure_of_source(request.arrival.transport.is_reliable())
            && self.shared.bans.failed(source.ip(), asked.now.mono) == Standing::Banned
        {
            let seconds = self.shared.config.ban.duration.as_secs();
            tracing::warn!(source = %source.ip(), seconds, "source banned: too many failed authentications");
        }
        self.challenge(asked, header, verdict.stale());
    }
}

/// Digests as the authenticator takes them.
fn ha1_set(credential: &Credential) -> Ha1Set {
    let ha1 = &credential.ha1;
    let parts: [(Hash, Option<&[u8]>); 3] = [
        (Hash::Md5, ha1.md5.as_ref().map(|h| &h[..])),
        (Hash::Sha256, ha1.sha256.as_ref().map(|h| &h[..])),
        (Hash::Sha512_256, ha1.sha512_256.as_ref().map(|h| &h[..])),
    ];
    parts.into_iter().filter_map(|(hash, bytes)| Ha1::from_bytes(hash, bytes?)).collect()
}

/// The subscriber is the user that this URI names.
fn is_user(subscriber: &Credential, party: &Uri<'_>) -> bool {
    let Uri::Sip(uri) = party else { return false };
    let Some(user) = uri.user else { return false };
    let mut plain = Vec::with_capacity(user.len());
    strowger_message::uri::sip::unescape(user, &mut plain);
    let mut host = Vec::new();
    uri.host.write_lower(&mut host);
    plain == subscriber.username.as_bytes() && host == subscriber.domain.as_bytes()
}

/// The address without its port, in one form.
fn source_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
