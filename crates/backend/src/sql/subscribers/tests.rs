//! Look-ups of users by the names of their domains.

use strowger_store::database_url::DatabaseKind;

use super::*;
use crate::sql::table::tests::{KAMAILIO, table};

fn realms() -> Realms {
    Realms::new([("b.example", vec!["a.example", "b.example"]), ("office", vec!["c.example"])])
}

fn credential<'a>(username: &'a str, realm: &'a str) -> Question<'a> {
    Question::Credential { username: username.as_bytes(), realm: realm.as_bytes() }
}

#[test]
fn questions_are_asked_by_realm_name_and_domain() {
    let (realms, table, long) = (realms(), table(DatabaseKind::MariaDb, &KAMAILIO), "a".repeat(65));
    let of = |question| {
        let wanted = Wanted::of(question, &realms, &table)?;
        Some((wanted.realm, wanted.username.to_owned(), wanted.domain.map(str::to_owned)))
    };
    let wanted = |realm, username: &str, domain: Option<&str>| Some((realm, username.into(), domain.map(Into::into)));
    assert_eq!(of(credential("alice", "b.example")), wanted(0, "alice", None));
    assert_eq!(of(credential("alice@A.example", "b.example")), wanted(0, "alice", Some("a.example")));
    assert_eq!(of(credential("alice@c.example", "office")), wanted(1, "alice", Some("c.example")));
    // This name is not of a domain of this realm: the name itself has an `@`.
    assert_eq!(of(credential("alice@c.example", "b.example")), wanted(0, "alice@c.example", None));
    let user = |domain: &'static [u8]| Question::User { username: b"bob", domain };
    assert_eq!(of(user(b"c.example")), wanted(1, "bob", Some("c.example")));
    // Such users cannot exist.
    assert_eq!(of(user(b"d.example")), None);
    assert_eq!(of(credential("alice", "a.example")), None);
    assert_eq!(of(credential(&long, "office")), None);
    assert_eq!(of(Question::Credential { username: b"\xff", realm: b"office" }), None);
}

/// A name identifies one user among all domains of a realm. If two domains have the name, the domain with the name
/// of the realm is chosen.
#[test]
fn one_row_is_chosen() {
    let (realms, table) = (realms(), table(DatabaseKind::PostgreSql, &KAMAILIO));
    let row = |username: &str, domain: &str| -> Row {
        [username, domain, "", "", ""].map(|text| text.as_bytes().to_vec()).into()
    };
    let rows = vec![row("alice", "a.example"), row("alice", "B.example"), row("alice", "elsewhere.example")];
    let found = Found([((0, "alice".to_owned()), rows)].into());
    let chosen = |question| {
        let wanted = Wanted::of(question, &realms, &table)?;
        let realm = &realms.all()[wanted.realm];
        wanted.record(&found, realm, &table)?.domain(realm).map(str::to_owned)
    };
    assert_eq!(chosen(credential("alice", "b.example")).as_deref(), Some("b.example"));
    assert_eq!(chosen(credential("alice@a.example", "b.example")).as_deref(), Some("a.example"));
    let user = |domain: &'static [u8]| Question::User { username: b"alice", domain };
    assert_eq!(chosen(user(b"a.example")).as_deref(), Some("a.example"));
    assert_eq!(chosen(user(b"c.example")), None);
    assert_eq!(chosen(credential("Alice", "b.example")), None);
}

/// Of two rows with one name, in two names of the same domain, only the first counts, so that no password of the
/// other row is accepted.
#[test]
fn a_user_has_one_row_among_all_names_of_a_domain() {
    let aliases = [("a.example", "b.example"), ("192.0.2.1", "b.example")];
    let (realms, table) = (realms().with_aliases(aliases), table(DatabaseKind::PostgreSql, &KAMAILIO));
    let row = |username: &str, domain: &str| -> Row {
        [username, domain, "", "", ""].map(|text| text.as_bytes().to_vec()).into()
    };
    let rows = |name: &str| ((0, name.to_owned()), vec![row(name, "a.example"), row(name, "192.0.2.1")]);
    let alice = vec![row("alice", "a.example"), row("alice", "B.example")];
    let found = Found([((0, "alice".to_owned()), alice), rows("bob")].into());
    let chosen = |question| {
        let wanted = Wanted::of(question, &realms, &table)?;
        let realm = &realms.all()[wanted.realm];
        wanted.record(&found, realm, &table)?.domain(realm).map(str::to_owned)
    };
    let user = |username: &'static [u8], domain: &'static [u8]| Question::User { username, domain };
    for question in [
        credential("alice", "b.example"),
        credential("alice@a.example", "b.example"),
        credential("alice@192.0.2.1", "b.example"),
        user(b"alice", b"a.example"),
        user(b"alice", b"192.0.2.1"),
    ] {
        assert_eq!(chosen(question).as_deref(), Some("b.example"), "{question:?}");
    }
    for question in [credential("bob@b.example", "b.example"), user(b"bob", b"b.example")] {
        assert_eq!(chosen(question).as_deref(), Some("a.example"), "{question:?}");
    }
}

#[test]
fn lists_are_filled_up() {
    assert_eq!(filled(&["a", "b"], Some(4)), ["a", "b", "b", "b"]);
    assert_eq!(filled(&["a", "b"], None), ["a", "b"]);
}
