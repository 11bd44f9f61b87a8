//! User who registers, for the cache of credentials.

use std::sync::Arc;
use strowger_config::Config;
use strowger_core::routing::Identity;
use strowger_store::credential_cache::Whose;
use strowger_store::subscriber::{Credential, parts_of};

/// User who has registered and shown its password.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    /// User name as the phone writes it in its credentials.
    pub(crate) username: Box<[u8]>,
    pub(crate) credential: Arc<Credential>,
}

impl Registrant {
    pub(crate) fn whose(&self) -> Whose<'_> {
        Whose { username: &self.username, realm: self.credential.realm.as_bytes() }
    }

    /// Returns the names under which the cache may have credentials of this user: its name without a domain, unless a
    /// user of another domain has that name, and its address.
    pub(crate) fn names(&self, config: &Config, identity: &Identity) -> impl Iterator<Item = Vec<u8>> {
        let Credential { username, realm, domain, .. } = &*self.credential;
        let domain = identity.canonical_domain(domain.as_bytes());
        let is_alone = *self.username == *username.as_bytes()
            || config.first_domain_of(realm).is_some_and(|first| first.as_bytes() == domain);
        let name = is_alone.then(|| username.as_bytes().to_vec());
        let (_, sent) = parts_of(&self.username);
        let address = |domain: &[u8]| [username.as_bytes(), b"@", domain].concat();
        // The domain may also be one that only the machine knows, as the phone wrote it.
        let sent = sent.get(1..).filter(|sent| !sent.is_empty()).map(<[u8]>::to_ascii_lowercase);
        let mut names: Vec<_> = identity.names_of(domain).map(address).collect();
        names.extend(sent.as_deref().map(address).filter(|sent| !names.contains(sent)));
        name.into_iter().chain(names)
    }

    /// Tells whether this is the user's own address of record.
    pub(crate) fn owns(&self, aor: &[u8], identity: &Identity) -> bool {
        let Credential { username, domain, .. } = &*self.credential;
        let rest = aor.strip_prefix(username.as_bytes()).and_then(|rest| rest.strip_prefix(b"@"));
        rest == Some(identity.canonical_domain(domain.as_bytes()))
    }
}
