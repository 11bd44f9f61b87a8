//! Authentication: digest challenges and credentials (RFC 3261 section 22, RFC 7616).

use crate::ban::Account;
use crate::credentials::Found;
use crate::decider::Decider;
use crate::handling::Handling;
use crate::identity::Claim;
use crate::proof::{Proof, User};
use crate::question::Question;
use crate::registrant::Registrant;
use crate::reply::{Party, Reply, Why};
use crate::stage::Unproven;
use std::borrow::Cow;
use std::net::IpAddr;
use strowger_core::digest::{
    self, BadRequest, ChallengeHeader, CheckedCredentials, Credentials, Ha1, Ha1Set, Hash, SignedRequest, Staleness,
};
use strowger_core::log_limiter::LogSubject;
use strowger_core::shown::shown;
use strowger_core::source::counted;
use strowger_message::{Method, Name, Uri};
use strowger_store::credential_cache::{Scratch, Whose};
use strowger_store::error::StoreError;
use strowger_store::subscriber::{self, CredentialView, SubscriberAnswer, parts_of};

impl Decider<'_> {
    /// Verifies that the sender is a subscriber and, unless the configuration says otherwise, the subscriber that `party`
    /// names. Returns the proof, and the registrant if its credentials must be stored while it is registered. The
    /// error is the next step for a request without proof.
    pub(crate) fn authenticate(
        &self,
        handling: &Handling<'_, '_>,
        header: ChallengeHeader,
        party: &Uri<'_>,
    ) -> Result<(Proof, Option<Box<Registrant>>), Unproven> {
        let mut scratch = self.sinks.scratch.take();
        let shown = self.judge(handling, header, party, &mut scratch);
        self.sinks.scratch.set(scratch);
        shown
    }

    fn judge(
        &self,
        handling: &Handling<'_, '_>,
        header: ChallengeHeader,
        party: &Uri<'_>,
        scratch: &mut Scratch,
    ) -> Result<(Proof, Option<Box<Registrant>>), Unproven> {
        let (request, policy) = (handling.request, &self.policy);
        let identity = policy.identity();
        let realm = policy.realms.judging(identity, request, header);
        let name = match header {
            ChallengeHeader::WwwAuthenticate => Name::Authorization,
            ChallengeHeader::ProxyAuthenticate => Name::ProxyAuthorization,
        };
        let readable = request.message.headers(name).filter_map(|value| Credentials::parse(value).ok());
        let Some(credentials) = readable.clone().find(|credentials| credentials.realm.value()[..] == *realm.as_bytes())
        else {
            if let Some(other) = readable.map(|credentials| credentials.realm).next() {
                self.log_realm(handling, &other.value(), realm);
            }
            return Err(Reply::challenge(header, false).into());
        };
        let source = self.source_bytes(request.arrival.remote.ip());
        let attempt = SignedRequest {
            method: request.message.method_text(),
            uri: request.message.request_uri(),
            body: request.message.body(),
            to_registrar: header == ChallengeHeader::WwwAuthenticate,
            source: &source,
            source_is_proven: request.arrival.transport.is_reliable(),
            algorithms: policy.algorithms(request.arrival.listener),
        };
        let refusal = Refusal { header, credentials: &credentials, realm, party };
        // The nonce had to be fresh when the request arrived; the time for which the request has waited since does not
        // count.
        let checked = policy
            .authenticator
            .check(handling.progress.began, realm.as_bytes(), &attempt, &credentials)
            .map_err(|verdict| self.deny(handling, &refusal, verdict, ""))?;
        let sent = refusal.user();
        let account = self.account(&sent, realm);
        if policy.bans.is_suspect(request.arrival.remote.ip(), account, handling.now.mono) {
            // The sender cannot distinguish this answer from the answer to a stale nonce.
            if self.may_say(handling, LogSubject::Authentication) {
                let (call_id, source) = (shown(request.call_id), request.arrival.remote);
                tracing::info!(%call_id, %source, user = %shown(&sent), %realm, "not judged: this source failed while the user's password is being guessed");
            }
            return Err(Reply::challenge(header, true).into());
        }
        let whose = Whose { username: &sent, realm: realm.as_bytes() };
        // The database verifies a REGISTER. If registered users are in a cache, the cache verifies all other requests.
        let cache = self.credentials();
        let only_cache = cache.filter(|_| header == ChallengeHeader::ProxyAuthenticate);
        let found = match only_cache {
            Some((cache, _)) => {
                self.find_registered(handling, cache, whose, scratch)?.map_err(|error| error.to_string())
            }
            None => self.find_credential(handling, whose)?.map_err(|error| error.to_string()),
        };
        // Other requests of its source may have failed while this one waited.
        if self.is_banned(request.arrival, handling.now) {
            return Err(Unproven::Drop);
        }
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.counters().failed_lookups.one();
                if self.may_say(handling, LogSubject::Lookup) {
                    tracing::error!(call_id = %shown(request.call_id), %error, "cannot authenticate");
                }
                return Err(Reply { why: Why::Logged, ..Reply::new(500) }.into());
            }
        };
        // The password may date from a time when the domain of its user had this realm. Now the password proves nothing
        // to the users of another domain.
        let subscriber = found.view(scratch, whose);
        let is_missing = only_cache.is_some() && subscriber.is_none();
        let domain = subscriber.as_ref().map(|found| identity.canonical_domain(found.domain.as_bytes()));
        let realm_of = |domain: &[u8]| policy.realms.of_domain(domain).unwrap_or(&policy.config.realm);
        let is_elsewhere = domain.is_some_and(|domain| realm_of(domain) != realm);
        let subscriber = subscriber.filter(|_| !is_elsewhere);
        let secrets = subscriber.as_ref().map(ha1_set);
        let verdict = policy.authenticator.decide(handling.now, &checked, &attempt, &credentials, secrets.as_ref());
        // A REGISTER has no transaction, so this request may be a copy of an answered REGISTER; a copy gets the
        // response again. This holds only for UDP: a stream delivers no copies, and a nonce that arrives over a stream
        // may have been issued to another source.
        let replayed = verdict == digest::Authentication::Replay
            && header == ChallengeHeader::WwwAuthenticate
            && !request.arrival.transport.is_reliable();
        if is_missing && verdict == digest::Authentication::WrongPassword {
            return Err(self.not_registered(handling, &refusal).into());
        }
        if verdict != digest::Authentication::Ok && !replayed {
            let why = if is_elsewhere { OF_ANOTHER_DOMAIN } else { why(&checked, secrets.as_ref()) };
            return Err(self.deny(handling, &refusal, verdict, why).into());
        }
        let subscriber = subscriber.expect("a right response has a subscriber");
        let auth = &policy.config.auth;
        let must_match = match header {
            ChallengeHeader::WwwAuthenticate => !auth.register_for_others,
            ChallengeHeader::ProxyAuthenticate => auth.user_must_match,
        };
        let user = User { name: subscriber.username.as_bytes().into(), domain: domain.unwrap_or_default().into() };
        if must_match && let Err(claim) = self.claims_only(header, party, &user) {
            return Err(self.refuse_claim(handling, subscriber, &claim, party).into());
        }
        let registrant = match &found {
            Found::Credential(credential) if cache.is_some() && only_cache.is_none() => {
                Some(Box::new(Registrant { username: sent[..].into(), credential: credential.clone() }))
            }
            _ => None,
        };
        Ok((Proof { user: Some(user), replayed, in_dialog: false }, registrant))
    }

    /// Returns the account that credentials with this user name are for, whether or not such a user exists. The name
    /// may be an address whose domain, in upper or lower case, repeats the realm.
    pub(crate) fn account<'a>(&self, username: &'a [u8], realm: &'a str) -> Account<'a> {
        let (name, domain) = parts_of(username);
        let is_of_realm = |domain: &[u8]| {
            let domain = domain.to_ascii_lowercase();
            self.policy.realms.of_domain(self.policy.identity().canonical_domain(&domain)) == Some(realm)
        };
        let is_address = domain.strip_prefix(b"@").is_some_and(is_of_realm);
        Account { name: if is_address { name } else { username }, realm }
    }

    /// Returns the answer of the subscribers about the credential of this user.
    fn find_credential(
        &self,
        handling: &Handling<'_, '_>,
        whose: Whose<'_>,
    ) -> Result<Result<Found, StoreError>, Unproven> {
        let Whose { username, realm } = whose;
        let answer = match &handling.progress.answers.credential {
            Some(answer) => answer.clone(),
            None => match self.known(subscriber::Question::Credential { username, realm }, handling.now.mono) {
                Some(answer) => answer,
                None => {
                    return Err(Unproven::Ask(Question::Credential { username: username.into(), realm: realm.into() }));
                }
            },
        };
        Ok(answer.map(|answer| match answer {
            SubscriberAnswer::Credential(credential) => Found::Credential(credential),
            SubscriberAnswer::Exists | SubscriberAnswer::Absent => Found::Absent,
        }))
    }

    /// Challenges a user again whose credentials are not in the cache of registered users, as an unknown user is
    /// challenged. No failure is counted: the cache may have lost the credentials, and a phone with the right password
    /// must not be banned for that.
    fn not_registered(&self, handling: &Handling<'_, '_>, refusal: &Refusal<'_>) -> Reply {
        let request = handling.request;
        self.counters().credentials_missing.one();
        if self.may_say(handling, LogSubject::Authentication) {
            let (call_id, source, user) = (shown(request.call_id), request.arrival.remote, refusal.user());
            let method = shown(request.message.method_text());
            tracing::info!(
                %call_id, %source, user = %shown(&user), %method, setting = "auth.credential_cache",
                "challenged again: no credentials in the cache"
            );
        }
        Reply::challenge(refusal.header, false)
    }

    /// Replies with a new challenge after a verdict. `why`: fault of a response that was judged.
    fn deny(
        &self,
        handling: &Handling<'_, '_>,
        refusal: &Refusal<'_>,
        verdict: digest::Authentication,
        why: &str,
    ) -> Reply {
        let request = handling.request;
        let source = request.arrival.remote;
        match verdict {
            digest::Authentication::WrongPassword => self.count_failure(handling, refusal, why),
            digest::Authentication::BadRequest(reason) if self.may_say(handling, LogSubject::Authentication) => {
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
            digest::Authentication::Stale(reason @ (Staleness::OtherSource | Staleness::TableFull)) => {
                if reason == Staleness::TableFull {
                    self.counters().nonces_refused.one();
                }
                if self.may_say(handling, LogSubject::Authentication) {
                    let (call_id, user) = (shown(request.call_id), refusal.user());
                    tracing::info!(%call_id, %source, user = %shown(&user), %reason, "challenged again");
                }
            }
            _ => (),
        }
        // The challenge tells a phone that was set up for another algorithm which ones it can use.
        Reply::challenge(refusal.header, verdict.stale())
    }

    /// Counts a wrong response. Only the log has the reason: the sender must not learn it.
    fn count_failure(&self, handling: &Handling<'_, '_>, refusal: &Refusal<'_>, why: &str) {
        let request = handling.request;
        let source = request.arrival.remote;
        self.counters().failed_authentications.one();
        let user = refusal.user();
        if self.may_say(handling, LogSubject::Authentication) {
            let domain = refusal.domain();
            let (call_id, method) = (shown(request.call_id), shown(request.message.method_text()));
            tracing::warn!(
                %call_id, %source, user = %shown(&user), domain = %shown(&domain), %method, reason = why,
                "authentication failed"
            );
        }
        let account = self.account(&user, refusal.realm);
        let failure = self.policy.bans.failed(source.ip(), account, handling.now.mono);
        let ban = &self.policy.config.ban;
        if failure.banned {
            let (seconds, source) =
                (ban.duration.as_secs(), counted(source.ip(), self.policy.config.limits.ipv6_prefix));
            tracing::warn!(%source, seconds, "source banned: too many failed authentications");
        }
        if failure.guessed {
            let (failures, seconds) = (ban.account_failures, ban.window.as_secs());
            let Account { name, realm } = account;
            tracing::warn!(user = %shown(name), %realm, failures, seconds, "the password of this user is being guessed");
        }
    }

    /// Logs credentials that are not for the realm in which the request is judged.
    fn log_realm(&self, handling: &Handling<'_, '_>, realm: &[u8], expected: &str) {
        if self.may_say(handling, LogSubject::Authentication) {
            let request = handling.request;
            tracing::info!(
                call_id = %shown(request.call_id),
                source = %request.arrival.remote,
                method = %shown(request.message.method_text()),
                realm = %shown(realm),
                %expected,
                "credentials are for another realm"
            );
        }
    }

    /// Refuses a user with the right password who claims to be another.
    fn refuse_claim(
        &self,
        handling: &Handling<'_, '_>,
        subscriber: CredentialView<'_>,
        claim: &Claim,
        party: &Uri<'_>,
    ) -> Reply {
        let reply = Reply::refused(403);
        let identity = self.policy.router.identity();
        // The domain that is configured in the phone is wrong: no setting of this server about users would help.
        let is_register = handling.request.method == Method::Register;
        let is_domain = party.sip().is_some_and(|uri| {
            (is_register || identity.is_own_host(uri.host)) && identity.domain_of(uri.host).is_none()
        });
        if claim.header == Name::From && is_domain {
            return Reply { why: Why::Domain(Party::From), ..reply };
        }
        if self.may_say(handling, LogSubject::Authentication) {
            let request = handling.request;
            let domains: Vec<&str> = self.policy.config.domain_names().collect();
            let setting = if is_register { "auth.register_for_others" } else { "auth.identities" };
            tracing::warn!(
                call_id = %shown(request.call_id),
                source = %request.arrival.remote,
                method = %shown(request.message.method_text()),
                user = %format_args!("{}@{}", subscriber.username, subscriber.domain),
                header = claim.header.text(),
                names = %shown(&claim.names),
                domains = domains.join(","),
                setting,
                "authenticated as one user, but the request names another"
            );
        }
        Reply { why: Why::Logged, ..reply }
    }

    /// Returns the source for a nonce, in the same form for IPv4 and IPv6.
    pub(crate) fn source_bytes(&self, ip: IpAddr) -> [u8; 16] {
        match counted(ip, self.policy.config.limits.ipv6_prefix) {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        }
    }
}

/// Credentials that do not suffice.
struct Refusal<'a> {
    header: ChallengeHeader,
    credentials: &'a Credentials<'a>,
    /// Realm in which they were judged.
    realm: &'a str,
    /// To of a REGISTER, From of any other request.
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

/// Reason for the failure of a password that may be right, but whose user is of a domain with another realm.
const OF_ANOTHER_DOMAIN: &str = "the user who has this realm is of another domain (strowger user list)";

/// Returns the fault of a response that was judged.
fn why(checked: &CheckedCredentials, secrets: Option<&Ha1Set>) -> &'static str {
    match secrets {
        None => "unknown user",
        Some(secrets) if secrets.of(checked.algorithm().hash).is_none() => {
            "the password of this user is stored without this algorithm (strowger user passwd)"
        }
        Some(_) => "wrong password",
    }
}

/// Converts the digests of a credential for the authenticator.
fn ha1_set(credential: &CredentialView<'_>) -> Ha1Set {
    let ha1 = &credential.ha1;
    let parts: [(Hash, Option<&[u8]>); 3] = [
        (Hash::Md5, ha1.md5.as_ref().map(|h| &h[..])),
        (Hash::Sha256, ha1.sha256.as_ref().map(|h| &h[..])),
        (Hash::Sha512_256, ha1.sha512_256.as_ref().map(|h| &h[..])),
    ];
    parts.into_iter().filter_map(|(hash, bytes)| Ha1::from_bytes(hash, bytes?)).collect()
}
