//! The rights that a user of a database server needs: those in docs/running.md are enough, and the start names a
//! missing one.

use std::time::Duration;

use strowger_lab::backend::USER;
use strowger_tests::call::register;
use strowger_tests::database::Database;
use strowger_tests::dialog::{arrives, invite, set_up};
use strowger_tests::server::{Server, Setup};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;

use super::accounting::fails;
use super::sql_rows::db;

/// Upper bound of the time until a server ends that refuses its configuration.
const START: Duration = Duration::from_secs(20);
/// Upper bound of the time until rows are written.
const WRITTEN: Duration = Duration::from_secs(20);

/// User who creates the tables.
const MAKER: &str = "maker";
/// User of the server.
const RUNNER: &str = "runner";

/// A database server, and the differences between the two kinds.
struct Rights<'a> {
    database: &'a Database,
    /// Name of a user in a GRANT statement.
    user: fn(&str) -> String,
    /// Rights on tables of accounting without a retention time.
    rows: &'static [&'static str],
}

impl Rights<'_> {
    fn grant(&self, right: &str, table: &str) {
        self.database.execute(&format!("GRANT {right} ON {table} TO {}", (self.user)(RUNNER)));
    }

    fn revoke(&self, right: &str, table: &str) {
        self.database.execute(&format!("REVOKE {right} ON {table} FROM {}", (self.user)(RUNNER)));
    }

    fn server(&self, user: &str, lines: &str) -> Server {
        let url = self.database.url().replace(&format!("{USER}:{USER}@"), &format!("{user}:{user}@"));
        let lines = format!(
            "accounting.cdr = true\naccounting.events = true\naccounting.to = \"sql\"\naccounting.database = \"{url}\"\n\
             accounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"\nstore.bindings = \"{url}\"\n\
             dialogs.database = \"{url}\"\n{lines}"
        );
        Setup::on(&[Udp]).open_registrar().with(&lines).prepare()
    }

    fn holds(&self, table: &str, rows: usize, server: &Server) {
        let there = || self.database.execute(&format!("SELECT COUNT(*) FROM {table}"));
        let is_so = wait::until(WRITTEN, || there().trim() == rows.to_string());
        assert!(is_so, "{table}: {} of {rows}\n{}", there(), server.log());
    }

    /// Returns each table with the rights that a server needs there.
    fn needed(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let all = vec!["SELECT", "INSERT", "UPDATE", "DELETE"];
        let [cdr, events] = ["strowger_cdr", "strowger_events"].map(|table| (table, self.rows.to_vec()));
        let leases = ("strowger_lease", vec!["SELECT", "INSERT", "UPDATE"]);
        vec![("strowger_binding", all.clone()), ("strowger_call", all), leases, cdr, events]
    }

    fn are_enough_and_none_too_many(&self) {
        let maker = self.server(MAKER, "");
        let (is_done, said) = db(&maker, &["init"]);
        assert!(is_done, "{said}");
        for (table, rights) in self.needed() {
            self.grant(&rights.join(", "), table);
        }
        self.grant("SELECT", "strowger_schema");
        let mut server = self.server(RUNNER, "");
        server.start();
        let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
        register(&mut callee, "bob");
        self.holds("strowger_binding", 1, &server);
        let call = invite("sip:bob@example.org", &caller);
        let (mut end, _) = set_up(&mut caller, &mut callee, &call, true);
        self.holds("strowger_call", 1, &server);
        arrives(&mut caller, &mut callee, &end.request("BYE"), &[]);
        fails(&mut caller, &mut callee, 486);
        self.holds("strowger_cdr", 2, &server);
        self.holds("strowger_events", 3, &server);
        self.holds("strowger_call", 0, &server);
        server.stop();

        for (table, rights) in self.needed() {
            for right in rights {
                self.revoke(right, table);
                refuses(&mut server, right, table);
                self.grant(right, table);
            }
        }
        // With a retention time the user needs the right to delete rows.
        let mut server = self.server(RUNNER, "accounting.retention = \"1h\"");
        refuses(&mut server, "DELETE", "strowger_cdr");
        for table in ["strowger_cdr", "strowger_events"] {
            self.grant("DELETE", table);
        }
        server.start();
        server.stop();
    }
}

#[track_caller]
fn refuses(server: &mut Server, right: &str, table: &str) {
    let before = server.log().len();
    let ended = server.try_start().end(START);
    let log = server.log();
    let said = &log[before..];
    assert!(!ended.success(), "without {right} on {table}: {said}");
    let lack = format!("\"{RUNNER}\" lacks {right} on \"{table}\"");
    assert!(said.replace("\\\"", "\"").contains(&lack), "no {lack} in {said}");
}

#[test]
fn a_user_of_mariadb_needs_the_rights_that_are_documented() {
    let Some((database, _folder)) = Database::mariadb() else { return };
    let user = |name: &str| format!("'{name}'@'%'");
    for name in [MAKER, RUNNER] {
        database.execute(&format!("CREATE USER {} IDENTIFIED BY '{name}'", user(name)));
    }
    let rights = Rights { database: &database, user, rows: &["SELECT", "INSERT", "UPDATE"] };
    // A user who cannot write the version creates no table.
    database.execute(&format!("GRANT CREATE, SELECT, INSERT, DELETE ON {USER}.* TO {}", user(MAKER)));
    let (is_done, said) = db(&rights.server(MAKER, ""), &["init"]);
    assert!(!is_done && said.contains("UPDATE command denied"), "{said}");
    assert_eq!(database.execute("SHOW TABLES").trim(), "strowger_schema");
    database.execute(&format!("GRANT UPDATE ON {USER}.* TO {}", user(MAKER)));
    rights.are_enough_and_none_too_many();
}

#[test]
fn a_user_of_postgresql_needs_the_rights_that_are_documented() {
    let Some((database, _certificate, _folder)) = Database::postgresql() else { return };
    for name in [MAKER, RUNNER] {
        database.execute(&format!("CREATE ROLE {name} LOGIN PASSWORD '{name}'"));
    }
    let rights = Rights { database: &database, user: str::to_owned, rows: &["SELECT", "INSERT"] };
    database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let (is_done, said) = db(&rights.server(MAKER, ""), &["init"]);
    assert!(!is_done && said.contains("permission denied for schema public"), "{said}");
    database.execute(&format!("GRANT CREATE ON SCHEMA public TO {MAKER}"));
    rights.are_enough_and_none_too_many();
}
