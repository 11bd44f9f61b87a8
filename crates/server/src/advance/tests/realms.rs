//! Users of several domains and realms: whose password proves what.

use super::*;

const ALICE_A: &str = "sip:alice@a.example";
const ALICE_B: &str = "sip:alice@b.example";

/// Returns a REGISTER of this user, sent to the domain in `uri`.
fn registers(uri: &str, user: &str) -> String {
    text("REGISTER", uri, user, "").replace("To: <sip:bob@example.org>", &format!("To: <{user}>"))
}

#[test]
fn each_domain_is_judged_in_its_realm() {
    use ChallengeHeader::{ProxyAuthenticate, WwwAuthenticate};
    let mut engine = engine_of(TWO, "");
    for (stage, header, plain, realm) in [
        (Stage::Register, WwwAuthenticate, registers("sip:a.example", ALICE_A), "a.example"),
        (Stage::Register, WwwAuthenticate, registers("sip:b.example", ALICE_B), "office"),
        // To names the user whose bindings they are.
        (Stage::Register, WwwAuthenticate, registers("sip:a.example", ALICE_B), "office"),
        (Stage::Authorize, ProxyAuthenticate, text("MESSAGE", ALICE_B, ALICE_A, ""), "a.example"),
        (Stage::Authorize, ProxyAuthenticate, text("MESSAGE", ALICE_A, ALICE_B, ""), "office"),
        (Stage::Authorize, ProxyAuthenticate, text("MESSAGE", "sip:carol@example.net", GUEST, ""), "a.example"),
    ] {
        let refused = Verdict::Reply(Reply::challenge(header, false));
        assert_eq!(first(&engine, stage, &plain), refused, "{plain}");
        let challenge = challenge(&mut engine, &plain, header);
        assert!(challenge.contains(&format!("realm=\"{realm}\"")), "{plain}{challenge}");
        let right = with_credentials(&plain, &challenge, header, "secret");
        let asks = Question::Credential { username: b"alice"[..].into(), realm: realm.as_bytes().into() };
        assert_eq!(first(&engine, stage, &right), Verdict::Ask(asks), "{plain}");
    }
}

#[test]
fn what_one_domain_has_shown_proves_nothing_in_another() {
    let header = ChallengeHeader::ProxyAuthenticate;
    let refused = Verdict::Reply(Reply::challenge(header, false));
    let mut engine = engine_of(TWO, "auth.user_must_match = false\n");
    let (of_a, of_b) = (text("MESSAGE", BOB, ALICE_A, ""), text("MESSAGE", BOB, ALICE_B, ""));
    let (by_a, by_b) = (challenge(&mut engine, &of_a, header), challenge(&mut engine, &of_b, header));
    let stored = || found(Ok(credential_in("office", "alice@b.example", "of b")));
    let admitted = Verdict::Admit(shown_by("alice@b.example"));
    // Credentials of another realm, or with a nonce of another realm, cause no question.
    assert_eq!(first(&engine, Stage::Authorize, &with_credentials(&of_b, &by_a, header, "of a")), refused);
    let moved = by_a.replace("realm=\"a.example\"", "realm=\"office\"");
    let again = Verdict::Reply(Reply::challenge(header, true));
    assert_eq!(first(&engine, Stage::Authorize, &with_credentials(&of_b, &moved, header, "of b")), again);
    // The password of the other alice is wrong.
    let guessed = with_credentials(&of_b, &by_b, header, "of a");
    assert_eq!(says(&engine, Stage::Authorize, stored(), &guessed), refused);
    let right = with_credentials(&of_b, &by_b, header, "of b");
    // The user got this credential when the other domain had this realm: the password is right, but proves nothing.
    let left = found(Ok(credential_in("office", "alice@a.example", "of b")));
    assert_eq!(says(&engine, Stage::Authorize, left, &right), refused);
    assert_eq!(says(&engine, Stage::Authorize, stored(), &right), admitted);
}

#[test]
fn a_name_with_a_domain_of_its_realm_is_no_other_account() {
    let engine = engine_of("", "domains = [\"a.example\", \"b.example\"]\n[[domain]]\nname = \"c.example\"\n");
    for (username, name) in [
        ("alice", "alice"),
        ("alice@a.example", "alice"),
        ("alice@B.Example", "alice"),
        // Names of no user.
        ("alice@c.example", "alice@c.example"),
        ("alice@", "alice@"),
        ("Alice@a.example", "Alice"),
        ("a@b@a.example", "a@b"),
    ] {
        let account = engine.decider().account(username.as_bytes(), "a.example");
        assert_eq!((account.name, account.realm), (name.as_bytes(), "a.example"), "{username}");
    }
}

#[test]
fn domains_may_share_a_realm() {
    // Two names of one domain, and two domains.
    let names = "domains = [\"a.example\", \"b.example\"]\nrealm = \"office\"\n";
    let table = |name| format!("[[domain]]\nname = \"{name}\"\nrealm = \"office\"\n");
    let domains = [table("a.example"), table("b.example")].concat();
    let header = ChallengeHeader::ProxyAuthenticate;
    let of_b = text("MESSAGE", BOB, ALICE_B, "");
    for (domains, must_match, verdict) in [
        (names, true, Verdict::Admit(shown_by("alice@a.example"))),
        (&*domains, false, Verdict::Admit(shown_by("alice@a.example"))),
        (&*domains, true, Reply { why: Why::Logged, ..Reply::refused(403) }.into()),
    ] {
        let mut engine = engine_of("", &format!("{domains}[auth]\nuser_must_match = {must_match}\n"));
        let challenge = challenge(&mut engine, &of_b, header);
        let right = with_credentials(&of_b, &challenge, header, "of a");
        let stored = found(Ok(credential_in("office", "alice@a.example", "of a")));
        assert_eq!(says(&engine, Stage::Authorize, stored, &right), verdict);
    }
}

/// Checks callers that withhold their identity (RFC 3323) or show another identity (RFC 3325): From does not tell whose
/// user such a caller is.
#[test]
fn a_caller_named_outside_from_is_judged_by_that_name() {
    let mut engine = engine_of(TWO, "");
    let header = ChallengeHeader::ProxyAuthenticate;
    let hidden = "sip:anonymous@anonymous.invalid";
    let plain = text("MESSAGE", "sip:carol@example.net", hidden, "P-Preferred-Identity: <sip:alice@b.example>\r\n");
    let challenge = challenge(&mut engine, &plain, header);
    let right = with_credentials(&plain, &challenge, header, "of b");
    let stored = |user| found(Ok(credential_in("office", user, "of b")));
    assert_eq!(
        says(&engine, Stage::Authorize, stored("alice@a.example"), &right),
        Verdict::Reply(Reply::challenge(header, false))
    );
    let shown = Verdict::Admit(shown_by("alice@b.example"));
    assert_eq!(says(&engine, Stage::Authorize, stored("alice@b.example"), &right), shown);
}
