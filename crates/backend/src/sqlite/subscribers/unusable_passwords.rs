//! Passwords in the SQLite file that the challenges of the server do not use.

use rusqlite::{Connection, OptionalExtension};

use crate::sqlite::{self, OpenError, SqliteSettings};

/// Query of the next domain with users, if there is one.
const NEXT_DOMAIN: &str = "SELECT min(domain) FROM subscriber WHERE domain > ?1";
const WITHOUT_REALM: &str = "SELECT count(*) FROM subscriber s WHERE s.domain = ?1 \
    AND NOT EXISTS (SELECT 1 FROM credential c WHERE c.subscriber = s.id AND c.realm = ?2)";
const THEIR_REALM: &str = "SELECT o.realm FROM subscriber s JOIN credential o ON o.subscriber = s.id WHERE s.domain = ?1 \
    AND NOT EXISTS (SELECT 1 FROM credential c WHERE c.subscriber = s.id AND c.realm = ?2) \
    GROUP BY o.realm ORDER BY count(DISTINCT s.id) DESC, o.realm LIMIT 1";
const WITHOUT_ALGORITHM: &str = "SELECT count(*) FROM subscriber s WHERE s.domain = ?1 \
    AND EXISTS (SELECT 1 FROM credential c WHERE c.subscriber = s.id AND c.realm = ?2) \
    AND NOT EXISTS (SELECT 1 FROM credential c WHERE c.subscriber = s.id AND c.realm = ?2 AND c.algorithm = ?3)";

/// Users of one domain whose stored HA1s do not match the challenges of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnusablePasswords {
    /// Domain, in lower case.
    pub domain: String,
    /// Number of users without an HA1 for its realm: they cannot answer a challenge.
    pub users: u64,
    /// Realm for which most of these users have an HA1; `None`: none of them has any.
    pub realm: Option<String>,
    /// Algorithms for which users of the realm lack an HA1, with the number of such users, never 0: they cannot answer
    /// with it.
    pub lacking: Vec<(String, u64)>,
}

impl UnusablePasswords {
    /// Searches for such users in each domain with its realm. Leaves out domains without such users. Changes nothing: a
    /// missing file, or a file without tables of users, has no such users.
    ///
    /// # Errors
    /// [`OpenError`], for display as it is.
    pub fn of<'r>(
        settings: &SqliteSettings,
        realm_of: impl Fn(&str) -> &'r str,
        algorithms: &[&str],
    ) -> Result<Vec<Self>, OpenError> {
        if !settings.path.exists() {
            return Ok(Vec::new());
        }
        let look = || -> rusqlite::Result<Vec<Self>> {
            let connection = sqlite::open_to_look(&settings.path, settings.busy_timeout)?;
            if !connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'credential'")?.exists([])? {
                return Ok(Vec::new());
            }
            let mut found = Vec::new();
            let mut domain = String::new();
            let next = |domain: &str| -> rusqlite::Result<Option<String>> {
                connection.prepare_cached(NEXT_DOMAIN)?.query_row([domain], |row| row.get(0))
            };
            while let Some(next) = next(&domain)? {
                domain = next;
                let unusable = Self::of_domain(&connection, &domain, realm_of(&domain), algorithms)?;
                found.extend(Some(unusable).filter(|unusable| unusable.users > 0 || !unusable.lacking.is_empty()));
            }
            Ok(found)
        };
        look().map_err(|error| sqlite::explain(&settings.path, settings.busy_timeout, &error))
    }

    fn of_domain(connection: &Connection, domain: &str, realm: &str, algorithms: &[&str]) -> rusqlite::Result<Self> {
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(i64::cast_unsigned);
        let users = connection.prepare_cached(WITHOUT_REALM)?.query_row([domain, realm], count)?;
        let mut theirs = connection.prepare_cached(THEIR_REALM)?;
        let realm_of_most = match users {
            0 => None,
            _ => theirs.query_row([domain, realm], |row| row.get(0)).optional()?,
        };
        let mut lacking = Vec::new();
        for algorithm in algorithms {
            let mut select = connection.prepare_cached(WITHOUT_ALGORITHM)?;
            let users = select.query_row([domain, realm, algorithm], count)?;
            if users > 0 {
                lacking.push(((*algorithm).to_owned(), users));
            }
        }
        Ok(Self { domain: domain.into(), users, realm: realm_of_most, lacking })
    }
}
