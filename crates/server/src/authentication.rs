//! Who sent this? Digest challenges and their answers (RFC 3261 section 22, RFC 7616).

use crate::asked::{Asked, Why};
use crate::engine::Engine;
use crate::identity::Claim;
use std::borrow::Cow;
use std::net::IpAddr;
use strowger_core::digest::{
    Attempt, BadRequest, ChallengeHeader, Credentials, Demand, Ha1, Ha1Set, Hash, Staleness, Ticket as Checked, Verdict,
};
use strowger_core::quota::Kind;
use strowger_core::shown::shown;
use strowger_core::slots::Id;
use strowger_core::source::counted;
use strowger_message::{Method, Name, Uri};
use strowger_store::subscriber::{Answer, Credential, Question};
use strowger_store::ticket::Ticket;

impl Engine {
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
        let readable = request.message.headers(name).filter_map(|value| Credentials::parse(value).ok());
        let Some(credentials) = readable.clone().find(|credentials| credentials.realm.value()[..] == *realm) else {
            if let Some(other) = readable.map(|credentials| credentials.realm).next() {
                self.log_realm(asked, &other.value());
            }
            self.challenge(asked, header, false);
            return false;
        };
        let source = self.source_bytes(request.arrival.remote.ip());
        let attempt = Attempt {
            method: request.message.method_text(),
            uri: request.message.request_uri(),
            body: request.message.body(),
            to_registrar: header == ChallengeHeader::WwwAuthenticate,
            source: &source,
            source_is_proven: request.arrival.transport.is_reliable(),
            algorithms: shared.algorithms(request.arrival.listener),
        };
        let refusal = Refusal { header, credentials: &credentials, party };
        let checked = match shared.authenticator.check(asked.now, realm, &attempt, &credentials) {
            Ok(checked) => checked,
            Err(verdict) => {
                self.deny(asked, &refusal, verdict, "");
                return false;
            }
        };
        let user = credentials.user().unwrap_or_default();
        if shared.bans.is_suspect(request.arrival.remote.ip(), &user, asked.now.mono) {
            // Nothing tells it from a nonce that is too old.
            if self.may_say(asked, Kind::Authentication) {
                let (call_id, source) = (shown(request.call_id), request.arrival.remote);
                tracing::info!(%call_id, %source, user = %shown(&user), "not judged: this source failed while the user's password is being guessed");
            }
            self.challenge(asked, header, true);
            return false;
        }
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
                if self.may_say(asked, Kind::Lookup) {
                    tracing::error!(call_id = %shown(request.call_id), %error, "cannot authenticate");
                }
                asked.why = Why::Logged;
                self.reply(asked, 500, |_| ());
                return false;
            }
        };
        let secrets = subscriber.as_deref().map(ha1_set);
        match shared.authenticator.decide(asked.now, &checked, &attempt, &credentials, secrets.as_ref()) {
            Verdict::Ok => (),
            // A REGISTER has no transaction: this may be a copy of one that was served, which gets its answer again. Of a datagram: by
            // a stream none comes twice, and its nonce may be another source's.
            Verdict::Replay if asked.server.is_none() && !request.arrival.transport.is_reliable() => {
                asked.found.replayed = true;
            }
            verdict => {
                self.deny(asked, &refusal, verdict, why(&checked, secrets.as_ref()));
                return false;
            }
        }
        let subscriber = subscriber.expect("a right response has a subscriber");
        if shared.config.auth.user_must_match
            && let Err(claim) = self.claims_only(request, header, party, &subscriber)
        {
            self.refuse_claim(asked, &subscriber, &claim, party);
            return false;
        }
        asked.found.authenticated = true;
        self.confirm(request);
        true
    }

    /// What the subscribers say, if it is known. None: the request waits, or was answered 503.
    pub(crate) fn ask_subscribers(&mut self, asked: &mut Asked<'_, '_>, question: Question<'_>) -> Option<Answer> {
        let request = asked.request;
        let shared = self.shared.clone();
        let (Some(subscribers), Some(sink)) = (&shared.subscribers, self.found) else { return Some(Answer::Absent) };
        if let Some(answer) = subscribers.cached(question, asked.now.mono) {
            return Some(answer);
        }
        asked.found.asks_existence = matches!(question, Question::User { .. });
        if !self.has_room_to_wait(request.arrival, request.message.bytes().len()) {
            self.reply_overloaded(asked);
            return None;
        }
        let value = self.park(asked, false);
        if let Err(error) = subscribers.request(Ticket { sink, value }, question, asked.now.mono) {
            if self.may_say(asked, Kind::Lookup) {
                tracing::warn!(call_id = %shown(request.call_id), %error, "cannot look up a subscriber");
            }
            self.unpark(Id::from_u64(value));
            self.reply_overloaded(asked);
        }
        None
    }

    pub(crate) fn challenge(&mut self, asked: &mut Asked<'_, '_>, header: ChallengeHeader, stale: bool) {
        let request = asked.request;
        self.counters().challenges.one();
        let shared = self.shared.clone();
        let source = self.source_bytes(request.arrival.remote.ip());
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

    /// Challenges again after a verdict; `why` says what was wrong with a response that was judged.
    fn deny(&mut self, asked: &mut Asked<'_, '_>, refusal: &Refusal<'_>, verdict: Verdict, why: &str) {
        let request = asked.request;
        let source = request.arrival.remote;
        match verdict {
            Verdict::WrongPassword => self.count_failure(asked, refusal, why),
            Verdict::BadRequest(reason) if self.may_say(asked, Kind::Authentication) => {
                let setting = match reason {
                    BadRequest::Uri => "auth.uri_check",
                    BadRequest::Algorithm => "auth.algorithms",
                    BadRequest::Qop => "auth.qop",
                    _ => "",
                };
                let (call_id, method) = (shown(request.call_id), shown(request.message.method_text()));
                let user = refusal.user();
                tracing::info!(
                    %call_id, %source, user = %shown(&user), %method, %reason, setting,
                    "credentials cannot be used"
                );
            }
            Verdict::Stale(reason @ (Staleness::OtherSource | Staleness::TableFull)) => {
                if reason == Staleness::TableFull {
                    self.counters().nonces_refused.one();
                }
                if self.may_say(asked, Kind::Authentication) {
                    let (call_id, user) = (shown(request.call_id), refusal.user());
                    tracing::info!(%call_id, %source, user = %shown(&user), %reason, "challenged again");
                }
            }
            _ => (),
        }
        // A phone set up for another algorithm gets what it needs to do better.
        self.challenge(asked, refusal.header, verdict.stale());
    }

    /// A response was wrong. What it was stands in the log alone: the sender must not learn it.
    fn count_failure(&self, asked: &Asked<'_, '_>, refusal: &Refusal<'_>, why: &str) {
        let request = asked.request;
        let source = request.arrival.remote;
        self.counters().failed_authentications.one();
        let user = refusal.user();
        if self.may_say(asked, Kind::Authentication) {
            let domain = refusal.domain();
            let (call_id, method) = (shown(request.call_id), shown(request.message.method_text()));
            tracing::warn!(
                %call_id, %source, user = %shown(&user), domain = %shown(&domain), %method, reason = why,
                "authentication failed"
            );
        }
        let failure = self.shared.bans.failed(source.ip(), &user, asked.now.mono);
        let ban = &self.shared.config.ban;
        if failure.banned {
            let (seconds, source) =
                (ban.duration.as_secs(), counted(source.ip(), self.shared.config.limits.ipv6_prefix));
            tracing::warn!(%source, seconds, "source banned: too many failed authentications");
        }
        if failure.guessed {
            let (failures, seconds) = (ban.account_failures, ban.window.as_secs());
            tracing::warn!(user = %shown(&user), failures, seconds, "the password of this user is being guessed");
        }
    }

    /// Credentials, but none for our realm.
    fn log_realm(&self, asked: &Asked<'_, '_>, realm: &[u8]) {
        if self.may_say(asked, Kind::Authentication) {
            let request = asked.request;
            tracing::info!(
                call_id = %shown(request.call_id),
                source = %request.arrival.remote,
                method = %shown(request.message.method_text()),
                realm = %shown(realm),
                expected = %self.shared.config.realm,
                "credentials are for another realm"
            );
        }
    }

    /// The right password of a user who says to be another.
    fn refuse_claim(&mut self, asked: &mut Asked<'_, '_>, subscriber: &Credential, claim: &Claim, party: &Uri<'_>) {
        // What a phone has for its domain is wrong: no setting of ours about users would help it.
        let is_domain = asked.request.method == Method::Register
            || party.sip().is_some_and(|uri| self.shared.router.identity().is_own_host(uri.host));
        if claim.header == Name::From && is_domain {
            self.log_domain(asked, party);
        }
        if asked.why != Why::Logged && self.may_say(asked, Kind::Authentication) {
            let request = asked.request;
            let domains: Vec<&str> = self.shared.config.domains.iter().map(|domain| domain.as_str()).collect();
            tracing::warn!(
                call_id = %shown(request.call_id),
                source = %request.arrival.remote,
                method = %shown(request.message.method_text()),
                user = %format_args!("{}@{}", subscriber.username, subscriber.domain),
                header = claim.header.text(),
                names = %shown(&claim.names),
                domains = domains.join(","),
                setting = "auth.user_must_match",
                "authenticated as one user, but the request names another"
            );
        }
        asked.why = Why::Logged;
        self.refuse_request(asked, 403);
    }

    /// The source of which a nonce is made, in one form.
    fn source_bytes(&self, ip: IpAddr) -> [u8; 16] {
        match counted(ip, self.shared.config.limits.ipv6_prefix) {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        }
    }
}

/// Credentials that are not enough.
struct Refusal<'a> {
    header: ChallengeHeader,
    credentials: &'a Credentials<'a>,
    /// To of a REGISTER, From of anything else.
    party: &'a Uri<'a>,
}

impl Refusal<'_> {
    fn user(&self) -> Cow<'_, [u8]> {
        self.credentials.user().unwrap_or_default()
    }

    fn domain(&self) -> Vec<u8> {
        let mut domain = Vec::new();
        if let Some(uri) = self.party.sip() {
            uri.host.write_lower(&mut domain);
        }
        domain
    }
}

/// Why a response that was judged is wrong.
fn why(checked: &Checked, secrets: Option<&Ha1Set>) -> &'static str {
    match secrets {
        None => "unknown user",
        Some(secrets) if secrets.of(checked.algorithm().hash).is_none() => {
            "the password of this user is stored without this algorithm (strowger user passwd)"
        }
        Some(_) => "wrong password",
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
