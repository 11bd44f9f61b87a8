//! Conversion of a row of the table to a credential.

use std::sync::Arc;

use strowger_store::subscriber::{Credential, Ha1s, MD5};

use crate::sql::connection::Row;
use crate::sql::realms::Realm;
use crate::sql::subscribers::HashPassword;
use crate::sql::table::{Field, HA1_OF, SubscriberTable};

/// Row with its table.
pub(crate) struct Record<'a> {
    pub(crate) table: &'a SubscriberTable,
    pub(crate) row: &'a Row,
}

impl<'a> Record<'a> {
    /// Returns the text of a column, without surrounding blanks; empty if the table lacks the column.
    fn text(&self, field: Field) -> &'a str {
        let bytes = self.table.position(field).and_then(|position| self.row.get(position));
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default().trim()
    }

    /// Returns the password unchanged, including blanks.
    fn password(&self) -> &'a str {
        let bytes = self.table.position(Field::Password).and_then(|position| self.row.get(position));
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    pub(crate) fn username(&self) -> &'a str {
        self.text(Field::Username)
    }

    /// Returns the user's domain in the spelling of this server, or `None` if the user does not belong to this realm.
    pub(crate) fn domain<'r>(&self, realm: &'r Realm) -> Option<&'r str> {
        match self.table.has_domains() {
            true => realm.domain(self.text(Field::Domain).as_bytes()),
            // If the table lacks this column, all users have one domain.
            false => realm.domains.first().map(|domain| &**domain),
        }
    }

    /// Returns the credential of this user in a realm. `sent`: the user name of the request; if `has_domain`, this name
    /// includes a domain. The credential always belongs to the user of the row.
    ///
    /// A stored HA1 is used unchanged: those programs compute it for the realm with the name of the domain. A clear
    /// password serves for any realm and algorithm, if there is no HA1, or the HA1 is for another realm.
    pub(crate) fn credential(
        &self,
        realm: &Realm,
        sent: &str,
        has_domain: bool,
        hash: HashPassword,
    ) -> Arc<Credential> {
        let domain = self.domain(realm).unwrap_or_default();
        let password = Some(self.password()).filter(|password| !password.is_empty());
        let is_for_realm = !self.table.has_domains() || domain.eq_ignore_ascii_case(&realm.name);
        let stored = match has_domain {
            false => HA1_OF.into_iter().map(|(algorithm, field)| (algorithm, self.text(field))).collect(),
            true => vec![(MD5, self.text(Field::Ha1b))],
        };
        let mut ha1 = password.map_or_else(Ha1s::default, |password| hash(sent, &realm.name, password));
        for (algorithm, text) in stored {
            if text.is_empty() || (password.is_some() && !is_for_realm) {
                continue;
            }
            if digest_of_hex(text).and_then(|digest| ha1.set(algorithm, &digest)).is_none() {
                let username = self.username();
                tracing::warn!(
                    username,
                    domain,
                    "an HA1 for {algorithm:?} is left out: it is not its digest in hexadecimal"
                );
            }
        }
        Arc::new(Credential { username: self.username().into(), realm: realm.name.clone(), domain: domain.into(), ha1 })
    }
}

fn digest_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        // Two hexadecimal digits are below 256.
        [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use strowger_store::database_url::DatabaseKind;

    use super::*;
    use crate::sql::realms::Realms;
    use crate::sql::table::tests::{KAMAILIO, OPENSIPS, table};

    /// Returns its input in place of a real digest, so that a test sees the input.
    fn hash(username: &str, realm: &str, password: &str) -> Ha1s {
        let mut md5 = [0; 16];
        let text = format!("{username}:{realm}:{password}");
        let length = text.len().min(16);
        md5[..length].copy_from_slice(&text.as_bytes()[..length]);
        Ha1s { md5: Some(md5), sha256: Some([7; 32]), sha512_256: Some([8; 32]) }
    }

    fn row(texts: &[&str]) -> Row {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    const DIGEST: &str = "000102030405060708090a0b0c0d0e0F";
    const DIGEST_B: &str = "ffffffffffffffffffffffffffffffff";

    #[test]
    fn ha1s_and_passwords_in_clear_are_taken() {
        let realms = Realms::new([("d", vec!["d", "e"])]);
        let realm = &realms.all()[0];
        let digest: [u8; 16] = std::array::from_fn(|n| n as u8);
        let kamailio = table(DatabaseKind::MariaDb, &KAMAILIO);
        for (texts, sent, has_domain, md5, has_others) in [
            // The HA1 is used, even beside a password.
            (["al", "d", "", DIGEST, DIGEST_B], "al", false, Some(digest), false),
            (["al", "D", "pw", DIGEST, DIGEST_B], "al", false, Some(digest), true),
            (["al", "d", "pw", "", ""], "al", false, hash("al", "d", "pw").md5, true),
            (["al", "d", "", DIGEST, DIGEST_B], "al@d", true, Some([255; 16]), false),
            (["al", "d", "pw", DIGEST, ""], "al@d", true, hash("al@d", "d", "pw").md5, true),
            // The hash has the user name as sent.
            (["al", "d", "pw", DIGEST, ""], "al@D", true, hash("al@D", "d", "pw").md5, true),
            // An HA1 of the domain `e` is for a realm of that name; a password is for any realm.
            (["al", "e", "pw", DIGEST, ""], "al", false, hash("al", "d", "pw").md5, true),
            (["al", "e", "", DIGEST, ""], "al", false, Some(digest), false),
            // No digests.
            (["al", "d", "", "00zz", ""], "al", false, None, false),
            (["al", "d", "", "0001", ""], "al", false, None, false),
        ] {
            let record = Record { table: &kamailio, row: &row(&texts) };
            let credential = record.credential(realm, sent, has_domain, hash);
            assert_eq!((credential.ha1.md5, credential.ha1.sha256.is_some()), (md5, has_others), "{texts:?}");
            assert_eq!((&*credential.username, &*credential.realm), ("al", "d"));
            assert_eq!(*credential.domain, texts[1].to_ascii_lowercase());
        }
        let (opensips, sha) = (table(DatabaseKind::PostgreSql, &OPENSIPS), "ab".repeat(32));
        let texts = ["al", "d", "", &format!("{DIGEST}  "), &sha, &sha];
        let credential = Record { table: &opensips, row: &row(&texts) }.credential(realm, "al", false, hash);
        assert_eq!(credential.ha1, Ha1s { md5: Some(digest), sha256: Some([0xab; 32]), sha512_256: Some([0xab; 32]) });
        let record = Record { table: &opensips, row: &row(&["al", "f", "", "", "", ""]) };
        assert_eq!(record.domain(realm), None);
    }
}
