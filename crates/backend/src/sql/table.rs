//! Table of subscribers in the schema of OpenSIPS 3 or Kamailio 5: its columns, and the statement that reads them.

use strowger_store::subscriber::{MD5, SHA_256, SHA_512_256};

use crate::sql::connection::{Connection, Parameter};
use crate::sql::dialect::{Dialect, Repertoire};
use crate::sql::error::{Failure, OpenError};

/// Column to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Username,
    Domain,
    /// Clear password, or empty.
    Password,
    /// MD5 of username, realm and password, in hexadecimal, or empty; so are the next three.
    Ha1,
    /// MD5 with `username@domain` as the user name, for phones that send that.
    Ha1b,
    Ha1Sha256,
    Ha1Sha512t256,
}

/// Names of the columns. Most are optional; [`SubscriberTable::of`] checks the mandatory ones.
const COLUMNS: [(Field, &str); 7] = [
    (Field::Username, "username"),
    (Field::Domain, "domain"),
    (Field::Password, "password"),
    (Field::Ha1, "ha1"),
    (Field::Ha1b, "ha1b"),
    (Field::Ha1Sha256, "ha1_sha256"),
    (Field::Ha1Sha512t256, "ha1_sha512t256"),
];

/// Column of the HA1 of each algorithm.
pub(crate) const HA1_OF: [(&str, Field); 3] =
    [(MD5, Field::Ha1), (SHA_256, Field::Ha1Sha256), (SHA_512_256, Field::Ha1Sha512t256)];

/// Existing table of subscribers.
#[derive(Clone, Debug)]
pub(crate) struct SubscriberTable {
    dialect: Dialect,
    /// Quoted name, with its schema if one was given.
    name: String,
    /// Fields in the order of the statement, each with its quoted column.
    fields: Vec<(Field, String)>,
    username: TextColumn,
    /// `None`: all users have one domain.
    domain: Option<TextColumn>,
}

/// Column in which names are searched.
#[derive(Clone, Debug)]
struct TextColumn {
    quoted: String,
    type_name: String,
    /// Maximum number of characters.
    longest: usize,
    repertoire: Repertoire,
}

/// Column as the server describes it.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) longest: Option<usize>,
    pub(crate) character_set: String,
}

/// Names for errors about a missing or unsuitable table.
pub(crate) struct Named<'a> {
    pub(crate) server: &'a str,
    pub(crate) user: &'a str,
    pub(crate) table: &'a str,
}

impl SubscriberTable {
    /// Returns the server's description of the columns of a table: `TABLE` or `SCHEMA.TABLE`.
    pub(crate) async fn describe(
        connection: &mut Connection,
        dialect: Dialect,
        table: &str,
    ) -> Result<Vec<Described>, Failure> {
        let (schema, name) = table.split_once('.').unwrap_or(("", table));
        let parameters = [name, schema, schema].map(Parameter::Text);
        let rows = connection.rows(dialect.columns_of_table(), &parameters).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let described = rows.iter().filter_map(|row| {
            let [name, type_name, longest, character_set] = row.first_chunk()?;
            Some(Described {
                name: text(name),
                type_name: text(type_name),
                longest: text(longest).parse().ok(),
                character_set: text(character_set),
            })
        });
        Ok(described.collect())
    }

    /// Creates the table from these columns. It must have `username` and a password or HA1, and `domain` if users of
    /// several domains are read.
    pub(crate) fn of(
        dialect: Dialect,
        described: &[Described],
        has_several_domains: bool,
        named: &Named<'_>,
    ) -> Result<Self, OpenError> {
        let (server, table) = (|| named.server.to_owned(), || named.table.to_owned());
        if described.is_empty() {
            return Err(OpenError::NoTable { server: server(), table: table(), user: named.user.to_owned() });
        }
        let column = |name: &str| described.iter().find(|column| column.name.eq_ignore_ascii_case(name));
        let there: Vec<(Field, &Described)> =
            COLUMNS.into_iter().filter_map(|(field, name)| Some((field, column(name)?))).collect();
        let has = |field: Field| there.iter().find(|(there, _)| *there == field).map(|(_, column)| *column);
        let mut missing = Vec::new();
        if has(Field::Username).is_none() {
            missing.push("the column \"username\"".to_owned());
        }
        if has_several_domains && has(Field::Domain).is_none() {
            missing.push("the column \"domain\", which tells the users of this server's domains apart".into());
        }
        if has(Field::Password).is_none() && HA1_OF.into_iter().all(|(_, field)| has(field).is_none()) {
            missing.push("the column \"ha1\" (or \"ha1_sha256\", \"ha1_sha512t256\" or \"password\")".into());
        }
        let username = match has(Field::Username) {
            Some(username) if missing.is_empty() => username,
            _ => {
                let present: Vec<&str> = described.iter().map(|column| &*column.name).collect();
                let (missing, present) = (missing.join(", and "), present.join(", "));
                return Err(OpenError::NoColumn { server: server(), table: table(), missing, present });
            }
        };
        let searched = |column: &Described| match dialect.is_text(&column.type_name) {
            true => Ok(TextColumn {
                quoted: dialect.quoted(&column.name),
                type_name: column.type_name.clone(),
                longest: column.longest.unwrap_or(usize::MAX),
                repertoire: dialect.repertoire(&column.character_set),
            }),
            false => Err(OpenError::NoText {
                server: server(),
                table: table(),
                column: column.name.clone(),
                type_name: column.type_name.clone(),
            }),
        };
        let quoted: Vec<String> = named.table.splitn(2, '.').map(|part| dialect.quoted(part)).collect();
        Ok(Self {
            dialect,
            name: quoted.join("."),
            fields: there.iter().map(|(field, column)| (*field, dialect.quoted(&column.name))).collect(),
            username: searched(username)?,
            domain: has(Field::Domain).map(searched).transpose()?,
        })
    }

    /// Tells whether the table can have a user with this name.
    pub(crate) fn can_hold(&self, username: &str) -> bool {
        self.username.repertoire.has(username) && username.chars().nth(self.username.longest).is_none()
    }

    pub(crate) const fn has_domains(&self) -> bool {
        self.domain.is_some()
    }

    /// Returns the position of a column in a row.
    pub(crate) fn position(&self, field: Field) -> Option<usize> {
        self.fields.iter().position(|(own, _)| *own == field)
    }

    /// Returns the algorithms for which users can have an HA1: a clear password allows all.
    pub(crate) fn algorithms(&self) -> Vec<&'static str> {
        let has = |field| self.position(field).is_some();
        let known = HA1_OF.into_iter().filter(|(_, field)| has(*field) || has(Field::Password));
        known.map(|(algorithm, _)| algorithm).collect()
    }

    /// Returns the statement that finds one user with an HA1 for this algorithm.
    pub(crate) fn any_user_with(&self, algorithm: &str) -> String {
        let has = |field| HA1_OF.contains(&(algorithm, field)) || field == Field::Password;
        let columns = self.fields.iter().filter(|(field, _)| has(*field));
        let conditions: Vec<String> = columns.map(|(_, column)| format!("{column} <> ''")).collect();
        let username = self.dialect.as_text(&self.username.quoted);
        format!("SELECT {username} FROM {} WHERE {} LIMIT 1", self.name, conditions.join(" OR "))
    }

    /// Returns the statement that reads the users with these names in these domains. Both are lists of this
    /// [length](Dialect::length); the list of domains comes first, if the table has a column of domains.
    pub(crate) fn statement(&self, domains: Option<usize>, usernames: Option<usize>) -> String {
        let columns: Vec<String> = self.fields.iter().map(|(_, column)| self.dialect.as_text(column)).collect();
        let mut conditions = Vec::new();
        if let Some(domain) = &self.domain {
            conditions.push(self.dialect.is_one_of(&domain.quoted, &domain.type_name, 1, domains));
        }
        let number = conditions.len() + 1;
        conditions.push(self.dialect.is_one_of(&self.username.quoted, &self.username.type_name, number, usernames));
        format!("SELECT {} FROM {} WHERE {}", columns.join(", "), self.name, conditions.join(" AND "))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use strowger_store::database_url::DatabaseKind;

    use super::*;

    pub(crate) const OPENSIPS: [&str; 6] = ["username", "domain", "password", "ha1", "ha1_sha256", "ha1_sha512t256"];
    pub(crate) const KAMAILIO: [&str; 5] = ["username", "domain", "password", "ha1", "ha1b"];

    const NAMED: Named<'static> = Named { server: "mysql://u@h:3306/d", user: "u", table: "subscriber" };

    fn described(names: &[&str]) -> Vec<Described> {
        let column = |name: &&str| Described {
            name: (*name).into(),
            type_name: "varchar".into(),
            longest: Some(64),
            character_set: "utf8mb4".into(),
        };
        // Further columns are ignored.
        ["id"].iter().chain(names).map(column).collect()
    }

    pub(crate) fn table(kind: DatabaseKind, names: &[&str]) -> SubscriberTable {
        SubscriberTable::of(Dialect(kind), &described(names), true, &NAMED).expect("a table of subscribers")
    }

    #[test]
    fn both_programs_have_their_statements() {
        let kamailio = table(DatabaseKind::MariaDb, &KAMAILIO);
        assert_eq!(
            kamailio.statement(Some(1), Some(4)),
            "SELECT `username`, `domain`, `password`, `ha1`, `ha1b` FROM `subscriber` WHERE `domain` IN (?) AND `username` IN (?,?,?,?)"
        );
        assert_eq!(kamailio.algorithms(), ["MD5", "SHA-256", "SHA-512-256"], "of passwords in clear");
        let opensips =
            table(DatabaseKind::PostgreSql, &OPENSIPS[..2].iter().chain(&OPENSIPS[3..5]).copied().collect::<Vec<_>>());
        assert_eq!(
            opensips.statement(None, None),
            "SELECT CAST(\"username\" AS text), CAST(\"domain\" AS text), CAST(\"ha1\" AS text), CAST(\"ha1_sha256\" AS text) \
             FROM \"subscriber\" WHERE \"domain\" = ANY(CAST($1 AS text[])) AND \"username\" = ANY(CAST($2 AS text[]))"
        );
        assert_eq!(opensips.algorithms(), ["MD5", "SHA-256"]);
        assert_eq!(
            opensips.any_user_with("SHA-256"),
            "SELECT CAST(\"username\" AS text) FROM \"subscriber\" WHERE \"ha1_sha256\" <> '' LIMIT 1"
        );
        assert_eq!(
            kamailio.any_user_with("MD5"),
            "SELECT `username` FROM `subscriber` WHERE `password` <> '' OR `ha1` <> '' LIMIT 1"
        );
        assert!(opensips.can_hold(&"å".repeat(64)) && !opensips.can_hold(&"a".repeat(65)) && !opensips.can_hold("a\0"));
    }

    #[test]
    fn a_table_of_one_domain_needs_no_column_for_it() {
        let columns = described(&["USERNAME", "Ha1"]);
        let table = SubscriberTable::of(
            Dialect(DatabaseKind::MariaDb),
            &columns,
            false,
            &Named { table: "voip.users", ..NAMED },
        );
        let table = table.expect("a table of subscribers");
        assert_eq!(
            table.statement(Some(1), Some(1)),
            "SELECT `USERNAME`, `Ha1` FROM `voip`.`users` WHERE `USERNAME` IN (?)"
        );
        assert!(!table.has_domains() && table.algorithms() == ["MD5"]);
    }

    #[test]
    fn what_a_table_lacks_is_named() {
        let of = |names: &[&str]| {
            let columns = if names.is_empty() { Vec::new() } else { described(names) };
            SubscriberTable::of(Dialect(DatabaseKind::MariaDb), &columns, true, &NAMED)
                .expect_err("it lacks something")
                .to_string()
        };
        assert_eq!(
            of(&[]),
            "mysql://u@h:3306/d has no table \"subscriber\" that \"u\" may read (store.subscriber_table)"
        );
        let error = of(&["name", "domain", "ha1"]);
        assert!(error.contains("lacks the column \"username\"; it has id, name, domain, ha1"), "{error}");
        let error = of(&["username", "ha1b"]);
        assert!(error.contains("\"domain\", which") && error.contains("\"ha1\" (or"), "{error}");
        let mut columns = described(&KAMAILIO);
        columns[1].type_name = "int".into();
        let error = SubscriberTable::of(Dialect(DatabaseKind::MariaDb), &columns, true, &NAMED).expect_err("no text");
        assert!(error.to_string().contains("the column \"username\""), "{error}");
    }
}
