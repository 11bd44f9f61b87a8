//! Credentials, and the challenges that they answered (RFC 3261 section 22).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use strowger_message::{Edit, Message, Name};

use crate::call;
use crate::digest::{Challenge, ChallengeAnswer, Secret, strongest};
use crate::entropy::{Entropy, write_hex};

/// Key of an account: of [`super::UserAgent::add_account`], or by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccountKey(u32);

/// Mark of the keys of named accounts.
const NAMED: u32 = 1 << 31;

impl AccountKey {
    /// Returns the key of the account with this name ([`super::UserAgent::set_named_accounts`]), the same in each shard and process.
    pub fn named(name: &[u8]) -> Self {
        Self(NAMED | call::hash(0, name))
    }
}

/// Accounts of a user agent.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    numbered: Vec<Account>,
    named: BTreeMap<AccountKey, Account>,
}

impl Accounts {
    pub(super) fn add(&mut self, user: &[u8], password: &[u8]) -> AccountKey {
        self.numbered.push(Account::new(user, password));
        AccountKey(self.numbered.len() as u32 - 1)
    }

    /// Replaces the named accounts. One with the same credentials keeps its challenges.
    pub(super) fn set_named<'a>(&mut self, accounts: impl Iterator<Item = (AccountKey, &'a [u8], &'a [u8])>) {
        let mut before = std::mem::take(&mut self.named);
        for (key, user, password) in accounts {
            let is_same = |account: &Account| *account.user == *user && *account.password == *password;
            let known = before.remove(&key).filter(is_same);
            self.named.insert(key, known.unwrap_or_else(|| Account::new(user, password)));
        }
    }

    pub(super) fn get_mut(&mut self, key: AccountKey) -> Option<&mut Account> {
        if key.0 & NAMED == 0 { self.numbered.get_mut(key.0 as usize) } else { self.named.get_mut(&key) }
    }
}

/// User with a password, and the last challenges to them.
#[derive(Debug)]
pub(super) struct Account {
    user: Box<[u8]>,
    password: Box<[u8]>,
    /// Last answered challenge of each header field, and number of its uses.
    known: [Option<Known>; 2],
}

#[derive(Debug)]
struct Known {
    challenge: Box<[u8]>,
    uses: u32,
}

/// Header field of a challenge, and that of its answer.
const HEADERS: [(Name, Name); 2] =
    [(Name::WwwAuthenticate, Name::Authorization), (Name::ProxyAuthenticate, Name::ProxyAuthorization)];

/// Parts of a request that credentials sign.
#[derive(Clone, Copy)]
pub(super) struct Signed<'a> {
    pub(super) method: &'a [u8],
    pub(super) uri: &'a [u8],
    pub(super) body: &'a [u8],
}

impl Account {
    pub(super) fn new(user: &[u8], password: &[u8]) -> Self {
        Self { user: user.into(), password: password.into(), known: [None, None] }
    }

    /// Writes credentials for challenges that were received before.
    pub(super) fn write_known(&mut self, signed: Signed<'_>, entropy: &mut Entropy, out: &mut Vec<u8>) {
        for (known, (_, answer)) in self.known.iter_mut().zip(HEADERS) {
            let Some(known) = known else { continue };
            let Ok(challenge) = Challenge::parse(&known.challenge) else { continue };
            known.uses += 1;
            let before = out.len();
            line(answer, out);
            let (user, password, uses) = (&self.user, &self.password, known.uses);
            if write(user, password, &challenge, uses, signed, entropy, out) {
                out.extend_from_slice(b"\r\n");
            } else {
                out.truncate(before);
            }
        }
    }

    /// Puts the answers to the challenges of a 401 or 407 into `edit`, an edit of the challenged `request`. `again`:
    /// whether the request had credentials for an earlier challenge. Returns false if the peer has refused those
    /// credentials.
    pub(super) fn answer(
        &mut self,
        request: &Message<'_>,
        response: &Message<'_>,
        again: bool,
        entropy: &mut Entropy,
        edit: &mut Edit,
    ) -> bool {
        let signed = Signed { method: request.method_text(), uri: request.request_uri(), body: request.body() };
        let mut answered = false;
        for (known, (ask, answer)) in self.known.iter_mut().zip(HEADERS) {
            let challenges: SmallVec<[Challenge<'_>; 4]> =
                response.headers(ask).filter_map(|v| Challenge::parse(v).ok()).collect();
            // The request gets one answer per realm, to the strongest challenge of the realm (RFC 7616 section 3.7).
            let mut done: SmallVec<[&[u8]; 2]> = SmallVec::new();
            let mut lines = Vec::new();
            for first in &challenges {
                if done.contains(&first.realm.raw()) {
                    continue;
                }
                done.push(first.realm.raw());
                let same: SmallVec<[Challenge<'_>; 4]> =
                    challenges.iter().filter(|c| c.realm.raw() == first.realm.raw()).copied().collect();
                let Some(challenge) = strongest(&same) else { continue };
                // The challenge is for the same realm again, and not because of a stale nonce: the credentials were
                // refused (section 22.1).
                let realm = challenge.realm.raw();
                if again && !challenge.stale && request.headers(answer).any(|v| contains(v, realm)) {
                    continue;
                }
                line(answer, &mut lines);
                if write(&self.user, &self.password, challenge, 1, signed, entropy, &mut lines) {
                    lines.extend_from_slice(b"\r\n");
                    answered = true;
                    let same = |v: &&[u8]| {
                        Challenge::parse(v).is_ok_and(|c| {
                            c.nonce.raw() == challenge.nonce.raw() && c.algorithm() == challenge.algorithm()
                        })
                    };
                    *known = response.headers(ask).find(same).map(|text| Known { challenge: text.into(), uses: 1 });
                }
            }
            if !lines.is_empty() {
                edit.remove_all(request.index(), answer);
                edit.insert(request.index().headers_end(), |out| out.extend_from_slice(&lines));
            }
        }
        answered
    }
}

fn line(name: Name, out: &mut Vec<u8>) {
    out.extend_from_slice(name.text().as_bytes());
    out.extend_from_slice(b": ");
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|w| w == part)
}

/// Appends the credentials. Returns false if the challenge cannot be answered.
fn write(
    user: &[u8],
    password: &[u8],
    challenge: &Challenge<'_>,
    nc: u32,
    signed: Signed<'_>,
    entropy: &mut Entropy,
    out: &mut Vec<u8>,
) -> bool {
    let mut cnonce = Vec::with_capacity(16);
    write_hex(entropy.u64(), &mut cnonce);
    let Signed { method, uri, body } = signed;
    ChallengeAnswer { user, secret: Secret::Password(password), method, uri, body, cnonce: &cnonce, nc }
        .write(challenge, out)
        .is_ok()
}
