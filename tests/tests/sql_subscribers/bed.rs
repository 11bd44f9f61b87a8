//! Database server with the tables of other programs.

use super::*;

/// The table of Kamailio's script for PostgreSQL, which Debian has in a separate package.
const KAMAILIO_ON_POSTGRESQL: &str = "CREATE TABLE subscriber (
    id SERIAL PRIMARY KEY NOT NULL,
    username VARCHAR(64) DEFAULT '' NOT NULL,
    domain VARCHAR(64) DEFAULT '' NOT NULL,
    password VARCHAR(64) DEFAULT '' NOT NULL,
    ha1 VARCHAR(128) DEFAULT '' NOT NULL,
    ha1b VARCHAR(128) DEFAULT '' NOT NULL,
    CONSTRAINT subscriber_account_idx UNIQUE (username, domain)
);
CREATE INDEX subscriber_username_idx ON subscriber (username);";

/// The table of OpenSIPS 3.4, under another name.
const OPENSIPS_ON_MARIADB: &str = "CREATE TABLE opensips (
    id INT(10) UNSIGNED AUTO_INCREMENT PRIMARY KEY NOT NULL,
    username CHAR(64) DEFAULT '' NOT NULL,
    domain CHAR(64) DEFAULT '' NOT NULL,
    password CHAR(25) DEFAULT '' NOT NULL,
    ha1 CHAR(64) DEFAULT '' NOT NULL,
    ha1_sha256 CHAR(64) DEFAULT '' NOT NULL,
    ha1_sha512t256 CHAR(64) DEFAULT '' NOT NULL,
    CONSTRAINT account_idx UNIQUE (username, domain)
) ENGINE=InnoDB;
CREATE INDEX username_idx ON opensips (username);";
const OPENSIPS_ON_POSTGRESQL: &str = "CREATE TABLE opensips (
    id SERIAL PRIMARY KEY NOT NULL,
    username CHAR(64) DEFAULT '' NOT NULL,
    domain CHAR(64) DEFAULT '' NOT NULL,
    password CHAR(25) DEFAULT '' NOT NULL,
    ha1 CHAR(64) DEFAULT '' NOT NULL,
    ha1_sha256 CHAR(64) DEFAULT '' NOT NULL,
    ha1_sha512t256 CHAR(64) DEFAULT '' NOT NULL,
    CONSTRAINT opensips_account_idx UNIQUE (username, domain)
);
CREATE INDEX opensips_username_idx ON opensips (username);";

/// A database with the tables of both programs.
pub(super) struct Bed {
    pub(super) database: Database,
    pub(super) certificate: Certificate,
    pub(super) _folder: TempDir,
}

impl Bed {
    /// Returns none if a program or the tables of Kamailio are missing.
    pub(super) fn mariadb() -> Option<Self> {
        if !have(&[MARIADBD, MARIADB]) {
            return None;
        }
        if !Path::new(KAMAILIO_TABLES).is_dir() {
            lacking("the tables of Kamailio are missing: apt-get install kamailio-mysql-modules");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let certificate = Certificate::in_folder(folder.path(), &["db.example"]);
        let tls = [("ca", &certificate.authority), ("cert", &certificate.chain), ("key", &certificate.key)];
        let options = tls.map(|(name, file)| format!("--ssl-{name}={}", file.display()));
        let database = MariaDb::start_with(folder.path(), &options).expect("it starts");
        for script in ["standard", "auth_db"] {
            let file = Path::new(KAMAILIO_TABLES).join(format!("{script}-create.sql"));
            database.execute_file(&file).expect("the tables of Kamailio");
        }
        database.execute(OPENSIPS_ON_MARIADB).expect("a table");
        Some(Self { database: Database::MariaDb(database), certificate, _folder: folder })
    }

    /// Returns none if the program is missing.
    pub(super) fn postgresql() -> Option<Self> {
        if !have(&[POSTGRESQL]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let certificate = Certificate::in_folder(folder.path(), &["db.example"]);
        let database = PostgreSql::start_with(folder.path(), Some((&certificate.chain, &certificate.key)));
        let database = database.expect("it starts");
        database.execute(KAMAILIO_ON_POSTGRESQL).expect("a table");
        database.execute(OPENSIPS_ON_POSTGRESQL).expect("a table");
        Some(Self { database: Database::PostgreSql(database), certificate, _folder: folder })
    }

    pub(super) fn url(&self) -> String {
        self.database.url()
    }

    #[track_caller]
    pub(super) fn execute(&self, statements: &str) -> String {
        self.database.execute(statements)
    }

    pub(super) fn server(&self) -> &Backend {
        self.database.server()
    }

    pub(super) fn stop(&mut self) {
        self.database.stop();
    }

    pub(super) fn start_again(&mut self) {
        self.database.start_again();
    }

    /// Inserts a row into a table: its columns and their values.
    #[track_caller]
    pub(super) fn insert(&self, table: &str, values: &[(&str, &str)]) {
        let columns: Vec<&str> = values.iter().map(|(column, _)| *column).collect();
        let texts: Vec<String> = values.iter().map(|(_, value)| format!("'{value}'")).collect();
        self.execute(&format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), texts.join(", ")));
    }

    /// Adds a user of Kamailio like `kamctl add` without clear-text passwords.
    #[track_caller]
    pub(super) fn add(&self, user: &str, domain: &str, password: &str) {
        let ha1 = ha1(Hash::Md5, user, domain, password);
        let ha1b = ha1_of_address(user, domain, password);
        self.insert("subscriber", &[("username", user), ("domain", domain), ("ha1", &ha1), ("ha1b", &ha1b)]);
    }

    /// Starts a server of `example.org` with these subscribers.
    pub(super) fn start(&self, lines: &str) -> Server {
        self.prepare(lines).start()
    }

    pub(super) fn prepare(&self, lines: &str) -> Setup {
        let url = if lines.contains("store.subscribers") { String::new() } else { self.subscribers() };
        Setup::on(&[Tcp]).with(&format!("domains = [\"example.org\"]\nban.enabled = false\n{url}\n{lines}"))
    }

    pub(super) fn subscribers(&self) -> String {
        format!("store.subscribers = \"{}\"", self.url())
    }
}
