//! Digest authentication from both ends: known answers, then a user agent and servers that judge it.
//!
//! `STROWGER_CORPORA` (default `../shared/corpora` beside the workspace) has more known answers than this file; without
//! it the test prints a message and passes on its own.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use strowger_core::Now;
use strowger_core::digest::{
    Algorithm, Authentication, Authenticator, BadRequest, Challenge, ChallengeAnswer, ChallengeHeader, ChallengeParams,
    Credentials, DigestSettings, Ha1, Ha1Set, Hash, Qop, QopOffer, ReplaySettings, ResponseInput, Secret,
    SignedRequest, Staleness, UriCheck, response, strongest,
};

const REALM: &[u8] = b"example.org";
const SOURCE: &[u8] = &[127, 0, 0, 2];

/// Returns equal values for both clocks.
fn at(seconds: u64) -> Now {
    Now { mono: seconds * 1_000, wall: seconds * 1_000 }
}

/// Long before all other events.
const STARTED: Now = Now { mono: 100_000, wall: 100_000 };

/// User, realm, password, method, uri, nonce, nc, cnonce, body.
type Inputs<'a> = [&'a str; 9];

fn compute(algorithm: Algorithm, qop: Option<Qop>, inputs: Inputs<'_>) -> String {
    let [user, realm, password, method, uri, nonce, nc, cnonce, body] = inputs.map(str::as_bytes);
    let ha1 = Ha1::new(algorithm.hash, user, realm, password);
    let input = ResponseInput { algorithm, qop, nonce, nc, cnonce, method, uri, body };
    response(&ha1, &input).hex().as_str().to_owned()
}

#[test]
fn known_answers_of_the_rfcs() {
    // RFC 2617 section 3.5.
    let mufasa = [
        "Mufasa",
        "testrealm@host.com",
        "Circle Of Life",
        "GET",
        "/dir/index.html",
        "dcd98b7102dd2f0e8b11d0f600bfb0c093",
        "00000001",
        "0a4f113b",
        "",
    ];
    assert_eq!(compute(Algorithm::MD5, Some(Qop::Auth), mufasa), "6629fae49393a05397450978507c4ef1");
    // RFC 7616 section 3.9.1.
    let again = [
        "Mufasa",
        "http-auth@example.org",
        "Circle of Life",
        "GET",
        "/dir/index.html",
        "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
        "00000001",
        "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        "",
    ];
    assert_eq!(compute(Algorithm::MD5, Some(Qop::Auth), again), "8ca523f5e9506fed4657c9700eebdbec");
    assert_eq!(
        compute(Algorithm::SHA_256, Some(Qop::Auth), again),
        "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"
    );
}

#[test]
fn known_answers_computed_by_other_tools() {
    // Computed by chains of `md5sum`, `sha256sum` and `openssl dgst -sha512-256` over the strings of RFC 7616 section
    // 3.4.
    let bob = [
        "bob",
        "biloxi.com",
        "zanzibar",
        "INVITE",
        "sip:alice@atlanta.com",
        "84a4cc6f3082121f32b42a2187831a9e",
        "0000000a",
        "0a4f113b",
        "v=0\r\n",
    ];
    for (algorithm, qop, want) in OWN_ANSWERS {
        assert_eq!(compute(algorithm, qop, bob), want, "{algorithm} {qop:?}");
    }
}

const OWN_ANSWERS: [(Algorithm, Option<Qop>, &str); 18] = [
    (Algorithm::MD5, None, "240ac31b71cac62e00ea935e7fc10f71"),
    (Algorithm::MD5, Some(Qop::Auth), "5b7b9ba997dc45d089cbca18a1af90dc"),
    (Algorithm::MD5, Some(Qop::AuthInt), "032511b746521ffc270f2ad15208dc10"),
    (Algorithm::MD5_SESS, None, "ce091737f35c45428eb04382acaab965"),
    (Algorithm::MD5_SESS, Some(Qop::Auth), "d5909447dc9ab21a828255208b751ff6"),
    (Algorithm::MD5_SESS, Some(Qop::AuthInt), "7fbc54b8b9df2669f4872cdf9490f5fc"),
    (Algorithm::SHA_256, None, "1bbd29d5967fe9913c06ce35f7e782cfd4a922fa46bc53472ecf69ad021c3e1f"),
    (Algorithm::SHA_256, Some(Qop::Auth), "86afedba25b0f8c83716b1720cfc7b5fec65c45a170b37f90c9218b572143b95"),
    (Algorithm::SHA_256, Some(Qop::AuthInt), "123b68f510e18880488549671625aee2e03fdbc704cfbafbaaef54139115b3f6"),
    (Algorithm::SHA_256_SESS, None, "bf42c0e14908e074116b7ae67e3f4329847527265f54912e8ccedd61ba19de08"),
    (Algorithm::SHA_256_SESS, Some(Qop::Auth), "7dacf64d7e7678ae6590dcb48f10387af5f647f889150c03efa0fb2a6757dc6f"),
    (Algorithm::SHA_256_SESS, Some(Qop::AuthInt), "7bc9482e017e922106d9f510e3bec833b9667e0fa5e24605fd457b74eba43e27"),
    (Algorithm::SHA_512_256, None, "7246ac39d7d170cafa4c26f377905503b35a9993bb34e70745026fc9ffe81a01"),
    (Algorithm::SHA_512_256, Some(Qop::Auth), "ac08edc894f9127adff611318a6297dc5cd25cd6bc575fadaf58d678b9e98dc6"),
    (Algorithm::SHA_512_256, Some(Qop::AuthInt), "8969b82e555adafbaa15936e26053b57b42aed06ab57d67139e55b072a479af8"),
    (Algorithm::SHA_512_256_SESS, None, "5d5b78aca342f3e3a05a83b3bfa6c9da744a753adcd315a9c61b865c7b82a306"),
    (Algorithm::SHA_512_256_SESS, Some(Qop::Auth), "e034ddce1f855d9bff66ec45653b13de74257cfe7d039497859e10027501b11c"),
    (
        Algorithm::SHA_512_256_SESS,
        Some(Qop::AuthInt),
        "ad8961b5dce7c4cf05c59368e44fd3db6d9c0f97c1564ee948088ae23d6f8134",
    ),
];

#[test]
fn known_answers_of_the_corpus() {
    let root = std::env::var_os("STROWGER_CORPORA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora"),
        |given| {
            let given = PathBuf::from(given);
            if given.is_absolute() { given } else { PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(given) }
        },
    );
    let path = root.join("digest/kat.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("not there, so its known answers were not tried: {}", path.display());
        return;
    };
    let cases: Vec<Value> = serde_json::from_str(&text).expect("kat.json is JSON");
    let mut tried = 0;
    for case in &cases {
        let name = case["name"].as_str().expect("every case has a name");
        // An example whose recomputation is known to differ is skipped.
        if case["match"] == Value::Bool(false) {
            continue;
        }
        let want = case["expected"].as_str().or_else(|| case["computed"].as_str()).expect("a value to compare with");
        let input = &case["inputs"];
        let text = |key: &str| input[key].as_str().unwrap_or_default();
        let mut algorithm = Algorithm::parse(text("a").as_bytes()).expect("a known algorithm");
        algorithm.session = input["sess"] == Value::Bool(true);
        let qop = input["qop"].as_str().map(|qop| Qop::parse(qop.as_bytes()).expect("a known qop"));
        let inputs = ["u", "r", "p", "m", "uri", "nonce", "nc", "cn", "body"].map(text);
        assert_eq!(compute(algorithm, qop, inputs), want, "{name}");

        // The same through the texts of both headers.
        let [user, realm, password, method, uri, nonce, nc, cnonce, body] = inputs;
        let qop_param = qop.map_or(String::new(), |qop| format!(", qop=\"{}\"", qop.name()));
        let challenge = format!("Digest realm=\"{realm}\", nonce=\"{nonce}\", algorithm={algorithm}{qop_param}");
        let mut header = Vec::new();
        ChallengeAnswer {
            user: user.as_bytes(),
            secret: Secret::Password(password.as_bytes()),
            method: method.as_bytes(),
            uri: uri.as_bytes(),
            body: body.as_bytes(),
            cnonce: cnonce.as_bytes(),
            nc: u32::from_str_radix(nc, 16).unwrap_or(1),
        }
        .write(&Challenge::parse(challenge.as_bytes()).expect("valid"), &mut header)
        .expect("supported");
        let read = Credentials::parse(&header).expect("own writing");
        assert_eq!(read.response.raw(), want.as_bytes(), "{name}");
        tried += 1;
    }
    assert_eq!(tried, 25, "known answers that match");
}

/// User agent that knows one password and counts its uses of a nonce.
struct Phone {
    user: &'static str,
    password: &'static str,
    challenge: String,
    nc: u32,
}

impl Phone {
    fn new(user: &'static str, password: &'static str) -> Self {
        Self { user, password, challenge: String::new(), nc: 0 }
    }

    /// Takes the strongest challenge of a server.
    fn take(&mut self, lines: &[u8]) {
        let lines = std::str::from_utf8(lines).expect("ASCII");
        let values: Vec<&str> =
            lines.lines().map(|line| line.strip_prefix("WWW-Authenticate: ").expect("the header asked for")).collect();
        let challenges: Vec<_> =
            values.iter().map(|value| Challenge::parse(value.as_bytes()).expect("valid")).collect();
        let best = strongest(&challenges).expect("one is supported");
        let index = challenges.iter().position(|other| std::ptr::eq(other, best)).expect("one of them");
        self.challenge = values[index].to_owned();
        self.nc = 0;
    }

    fn answer(&mut self) -> Vec<u8> {
        self.nc += 1;
        self.answer_with(self.nc)
    }

    fn answer_with(&self, nc: u32) -> Vec<u8> {
        let mut out = Vec::new();
        ChallengeAnswer {
            user: self.user.as_bytes(),
            secret: Secret::Password(self.password.as_bytes()),
            method: b"REGISTER",
            uri: b"sip:example.org",
            body: b"body",
            cnonce: b"0a4f113b",
            nc,
        }
        .write(&Challenge::parse(self.challenge.as_bytes()).expect("valid"), &mut out)
        .expect("supported");
        out
    }
}

/// Offered algorithms unless a test sets others.
const OFFERED: &[Algorithm] = &[Algorithm::MD5, Algorithm::SHA_256];

const ATTEMPT: SignedRequest<'_> = SignedRequest {
    method: b"REGISTER",
    uri: b"sip:example.org",
    body: b"body",
    to_registrar: true,
    source: SOURCE,
    source_is_proven: false,
    algorithms: OFFERED,
};

fn judge(server: &Authenticator, now: u64, header: &[u8], ha1: Option<&Ha1Set>) -> Authentication {
    server.verify(at(now), REALM, &ATTEMPT, &Credentials::parse(header).expect("valid"), ha1)
}

fn demand(realm: &[u8], entropy: u64, stale: bool) -> ChallengeParams<'_> {
    ChallengeParams {
        header: ChallengeHeader::WwwAuthenticate,
        algorithms: OFFERED,
        realm,
        source: SOURCE,
        entropy,
        stale,
    }
}

fn challenge(server: &Authenticator, now: u64, entropy: u64) -> Vec<u8> {
    challenge_by(OFFERED, server, now, entropy)
}

fn challenge_by(algorithms: &[Algorithm], server: &Authenticator, now: u64, entropy: u64) -> Vec<u8> {
    let mut out = Vec::new();
    server.write_challenges(at(now), &ChallengeParams { algorithms, ..demand(REALM, entropy, false) }, &mut out);
    out
}

fn bob() -> (Phone, Ha1Set) {
    (Phone::new("bob", "zanzibar"), Ha1Set::of_password(b"bob", REALM, b"zanzibar"))
}

fn server() -> Authenticator {
    Authenticator::new(DigestSettings::default(), b"one secret", 1, STARTED)
}

#[test]
fn every_algorithm_and_quality_from_challenge_to_verdict() {
    for algorithm in Algorithm::ALL {
        for qop in [QopOffer::AUTH, QopOffer::AUTH_INT, QopOffer::BOTH] {
            let settings = DigestSettings { qop, ..DigestSettings::default() };
            let server = Authenticator::new(settings, b"one secret", 1, STARTED);
            let (mut phone, ha1) = bob();
            phone.take(&challenge_by(&[algorithm], &server, 1_000, 1));
            let attempt = SignedRequest { algorithms: &[algorithm], ..ATTEMPT };
            for _ in 0..3 {
                let header = phone.answer();
                let read = Credentials::parse(&header).expect("valid");
                let verdict = server.verify(at(1_010), REALM, &attempt, &read, Some(&ha1));
                assert_eq!(verdict, Authentication::Ok, "{algorithm} {qop:?}");
            }
            let body = SignedRequest { body: b"another body", ..attempt };
            let header = phone.answer();
            let read = Credentials::parse(&header).expect("valid");
            let verdict = server.verify(at(1_010), REALM, &body, &read, Some(&ha1));
            let covered = qop == QopOffer::AUTH_INT;
            assert_eq!(verdict, if covered { Authentication::WrongPassword } else { Authentication::Ok });
        }
    }
}

#[test]
fn the_strongest_algorithm_offered_is_answered() {
    let server = server();
    let (mut phone, ha1) = bob();
    let lines = challenge(&server, 1_000, 1);
    assert_eq!(lines.iter().filter(|&&byte| byte == b'\n').count(), 2);
    phone.take(&lines);
    let header = phone.answer();
    let read = Credentials::parse(&header).expect("valid");
    assert_eq!(read.algorithm(), Some(Algorithm::SHA_256));
    assert_eq!(judge(&server, 1_000, &header, Some(&ha1)), Authentication::Ok);
    // A subscriber with an MD5 value only fails with SHA-256, as with a wrong password.
    let old: Ha1Set = [Ha1::new(Hash::Md5, b"bob", REALM, b"zanzibar")].into_iter().collect();
    let header = phone.answer();
    assert_eq!(judge(&server, 1_000, &header, Some(&old)), Authentication::WrongPassword);
}

#[test]
fn wrong_passwords_and_unknown_users_look_alike_and_leave_no_trace() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let mut wrong = Phone::new("bob", "Zanzibar");
    wrong.challenge = phone.challenge.clone();
    let header = wrong.answer();
    assert_eq!(judge(&server, 1_000, &header, Some(&ha1)), Authentication::WrongPassword);
    let header = phone.answer_with(1);
    assert_eq!(judge(&server, 1_000, &header, None), Authentication::WrongPassword);
    assert_eq!(judge(&server, 1_000, &header, Some(&Ha1Set::default())), Authentication::WrongPassword);
    assert_eq!(server.used().entries(), 0, "only a right response enters");
    assert_eq!(judge(&server, 1_000, &header, Some(&ha1)), Authentication::Ok, "and nobody used up the count");
    assert_eq!(server.used().entries(), 1);
}

#[test]
fn a_nonce_that_went_to_another_address_is_not_judged_by_udp() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let mut wrong = Phone::new("bob", "Zanzibar");
    wrong.challenge = phone.challenge.clone();
    let elsewhere = SignedRequest { source: &[127, 0, 0, 3], ..ATTEMPT };
    for (phone, by_tcp) in [(&mut wrong, Authentication::WrongPassword), (&mut phone, Authentication::Ok)] {
        let header = phone.answer();
        let read = Credentials::parse(&header).expect("valid");
        let by_udp = server.verify(at(1_000), REALM, &elsewhere, &read, Some(&ha1));
        assert_eq!(by_udp, Authentication::Stale(Staleness::OtherSource));
        assert!(by_udp.stale());
        // A handshake proves the source: a phone may have moved from one network to another.
        let proven = SignedRequest { source_is_proven: true, ..elsewhere };
        assert_eq!(server.verify(at(1_000), REALM, &proven, &read, Some(&ha1)), by_tcp);
    }
}

#[test]
fn replayed_counts_are_refused_and_reordered_ones_are_not() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let headers: Vec<_> = (1..=5).map(|nc| phone.answer_with(nc)).collect();
    for index in [0, 2, 1, 4, 3] {
        assert_eq!(judge(&server, 1_000, &headers[index], Some(&ha1)), Authentication::Ok, "{index}");
    }
    for header in &headers {
        let verdict = judge(&server, 1_000, header, Some(&ha1));
        assert_eq!(verdict, Authentication::Replay);
        assert!(verdict.stale());
    }
}

#[test]
fn another_spelling_of_the_user_does_not_make_a_replay_new() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let header = String::from_utf8(phone.answer()).expect("ASCII");
    assert_eq!(judge(&server, 1_000, header.as_bytes(), Some(&ha1)), Authentication::Ok);
    // A store may find the same subscriber by each of these names; the response is computed with none of them.
    for name in ["username=\"BOB\"", "username=\"bob@example.org\"", "username*=UTF-8''bob"] {
        let again = header.replace("username=\"bob\"", name);
        assert_eq!(judge(&server, 1_000, again.as_bytes(), Some(&ha1)), Authentication::Replay, "{name}");
    }
}

#[test]
fn expired_nonces_are_stale_only_to_who_knows_the_password() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let header = phone.answer();
    assert_eq!(judge(&server, 1_301, &header, Some(&ha1)), Authentication::Stale(Staleness::Expired));
    assert_eq!(judge(&server, 1_301, &header, None), Authentication::WrongPassword);
    assert_eq!(judge(&server, 980, &header, Some(&ha1)), Authentication::Stale(Staleness::Expired), "from the future");
    assert_eq!(server.used().entries(), 0);
    assert_eq!(judge(&server, 1_300, &header, Some(&ha1)), Authentication::Ok);
    server.purge(at(2_000));
    assert_eq!(server.used().entries(), 0);

    let mut again = Vec::new();
    server.write_challenges(at(1_301), &demand(REALM, 2, true), &mut again);
    phone.take(&again);
    assert!(Challenge::parse(phone.challenge.as_bytes()).expect("valid").stale);
    let header = phone.answer();
    assert_eq!(judge(&server, 1_301, &header, Some(&ha1)), Authentication::Ok);
}

#[test]
fn forged_nonces_reach_no_secret() {
    let server = server();
    let (mut phone, ha1) = bob();
    for nonce in ["", "84a4cc6f3082121f32b42a2187831a9e", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "a\\\"b"] {
        phone.challenge = format!("Digest realm=\"example.org\", nonce=\"{nonce}\", algorithm=SHA-256, qop=\"auth\"");
        let header = phone.answer();
        let verdict = judge(&server, 1_000, &header, Some(&ha1));
        assert_eq!(verdict, Authentication::ForgedNonce, "{nonce}");
        assert!(verdict.stale());
        let read = Credentials::parse(&header).expect("valid");
        assert_eq!(server.check(at(1_000), REALM, &ATTEMPT, &read).map(|_| ()), Err(Authentication::ForgedNonce));
    }
    // A nonce for another realm of the same server.
    let mut lines = Vec::new();
    server.write_challenges(at(1_000), &demand(b"other.org", 1, false), &mut lines);
    phone.take(&lines);
    phone.challenge = phone.challenge.replace("other.org", "example.org");
    let header = phone.answer();
    assert_eq!(judge(&server, 1_000, &header, Some(&ha1)), Authentication::ForgedNonce);
}

#[test]
fn shards_share_one_table() {
    let server = Arc::new(server());
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    // Every shard gets the same 500 requests; each request must pass exactly once.
    let settled: usize = std::thread::scope(|scope| {
        let (server, phone, ha1) = (&server, &phone, &ha1);
        let shards: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    let passes = (1..=500).filter(|&nc| {
                        let header = phone.answer_with(nc);
                        judge(server, 1_000, &header, Some(ha1)).is_ok()
                    });
                    passes.count()
                })
            })
            .collect();
        shards.into_iter().map(|shard| shard.join().expect("no shard panics")).sum()
    });
    // A thread that is far behind the others finds its counts outside of the window. So some requests may pass in no
    // thread, but none passes twice.
    assert!((1..=500).contains(&settled), "{settled}");
    assert_eq!(judge(&server, 1_000, &phone.answer_with(500), Some(&ha1)), Authentication::Replay);
    assert_eq!(judge(&server, 1_000, &phone.answer_with(501), Some(&ha1)), Authentication::Ok);
    assert_eq!(server.used().entries(), 1);
}

#[test]
fn servers_with_one_secret_accept_each_others_nonces() {
    let first = server();
    let second = Authenticator::new(DigestSettings::default(), b"one secret", 2, STARTED);
    let stranger = Authenticator::new(DigestSettings::default(), b"another secret", 1, STARTED);
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&first, 1_000, 1));
    let header = phone.answer();
    // The clock of the second server is behind by no more than the allowed skew.
    assert_eq!(judge(&second, 990, &header, Some(&ha1)), Authentication::Ok);
    assert_eq!(judge(&second, 1_000, &header, Some(&ha1)), Authentication::Replay);
    assert_eq!(judge(&stranger, 1_000, &header, Some(&ha1)), Authentication::ForgedNonce);
    // Tables are not shared between servers: this is documented, and ends with the nonce's lifetime.
    assert_eq!(judge(&first, 1_000, &header, Some(&ha1)), Authentication::Ok);
}

#[test]
fn nonces_from_before_the_start_are_stale() {
    let (mut phone, ha1) = bob();
    let first = server();
    phone.take(&challenge(&first, 1_000, 1));
    let header = phone.answer();
    assert_eq!(judge(&first, 1_000, &header, Some(&ha1)), Authentication::Ok);
    // The process restarts within the second. It does not know that the count was used.
    let settings = DigestSettings { clock_skew: 2, ..DigestSettings::default() };
    let again = Authenticator::new(settings.clone(), b"one secret", 2, at(1_000));
    let stale = Authentication::Stale(Staleness::BeforeStart);
    assert_eq!(judge(&again, 1_001, &header, Some(&ha1)), stale);
    assert_eq!(judge(&again, 1_001, &header, None), stale, "and says nothing of the password");
    // Nonces of the restarted server are valid from its start.
    phone.take(&challenge(&again, 1_000, 1));
    let header = phone.answer();
    assert_eq!(judge(&again, 1_000, &header, Some(&ha1)), Authentication::Ok);
    // Nonces of another server with the secret are valid, too, once its clock cannot be behind the start any more.
    for (issued, verdict) in [(1_002, stale), (1_003, Authentication::Ok)] {
        phone.take(&challenge(&first, issued, 2));
        let header = phone.answer();
        assert_eq!(judge(&again, 1_003, &header, Some(&ha1)), verdict, "{issued}");
    }
    // A step of the clock moves the start with it.
    let stepped = Now { mono: 1_010_000, wall: 410_000 };
    let mut lines = Vec::new();
    again.write_challenges(stepped, &demand(REALM, 3, false), &mut lines);
    phone.take(&lines);
    let header = phone.answer();
    let read = Credentials::parse(&header).expect("valid");
    assert_eq!(again.verify(stepped, REALM, &ATTEMPT, &read, Some(&ha1)), Authentication::Ok);
}

#[test]
fn passwords_are_right_after_32_bits_of_seconds_too() {
    let server = server();
    let (mut phone, ha1) = bob();
    for now in [1 << 32, (1 << 32) - 1, (1 << 32) + 1_000_000] {
        phone.take(&challenge(&server, now, 1));
        let header = phone.answer();
        assert_eq!(judge(&server, now + 1, &header, Some(&ha1)), Authentication::Ok, "{now}");
        assert_eq!(judge(&server, now + 1, &header, Some(&ha1)), Authentication::Replay, "{now}");
    }
}

#[test]
fn credentials_lead_to_no_other_number() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let header = phone.answer();
    let read = Credentials::parse(&header).expect("valid");
    // The phone's request was for sip:example.org.
    let to = |uri| SignedRequest { uri, to_registrar: false, ..ATTEMPT };
    let elsewhere = server.verify(at(1_000), REALM, &to(b"sip:+1900@example.org"), &read, Some(&ha1));
    assert_eq!(elsewhere, Authentication::BadRequest(BadRequest::Uri));
    let there = server.verify(at(1_000), REALM, &to(b"sip:EXAMPLE.org:5060;transport=tcp"), &read, Some(&ha1));
    assert_eq!(there, Authentication::Ok);
}

#[test]
fn answers_without_qop_use_up_their_nonce() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    phone.challenge = phone.challenge.replace(", qop=\"auth\"", "");
    let header = phone.answer();
    assert_eq!(judge(&server, 1_000, &header, Some(&ha1)), Authentication::Ok);
    assert_eq!(judge(&server, 1_000, &header, Some(&ha1)), Authentication::Replay);

    for settings in [
        DigestSettings { without_qop: false, ..DigestSettings::default() },
        DigestSettings { qop: QopOffer::AUTH_INT, ..DigestSettings::default() },
    ] {
        let strict = Authenticator::new(settings, b"one secret", 1, STARTED);
        assert_eq!(judge(&strict, 1_000, &header, Some(&ha1)), Authentication::BadRequest(BadRequest::Qop));
    }
}

#[test]
fn a_full_table_makes_new_nonces_stale() {
    let replay = ReplaySettings { entries: 3, partitions: 1, window: 0 };
    let server = Authenticator::new(DigestSettings { replay, ..DigestSettings::default() }, b"one secret", 1, STARTED);
    let (mut phone, ha1) = bob();
    let mut verdicts = Vec::new();
    for entropy in 1..=3 {
        phone.take(&challenge(&server, 1_000, entropy));
        verdicts.push(judge(&server, 1_000, &phone.answer(), Some(&ha1)));
    }
    assert_eq!(verdicts, [Authentication::Ok, Authentication::Ok, Authentication::Stale(Staleness::TableFull)]);
    // One user may use only a part of the table; other users still find space.
    let ann = Ha1Set::of_password(b"ann", REALM, b"her own");
    let mut other = Phone::new("ann", "her own");
    other.take(&challenge(&server, 1_000, 4));
    assert_eq!(judge(&server, 1_000, &other.answer(), Some(&ann)), Authentication::Ok);
    assert_eq!(server.used().entries(), server.used().capacity());
    // Space is freed with time.
    phone.take(&challenge(&server, 2_000, 4));
    assert_eq!(judge(&server, 2_000, &phone.answer(), Some(&ha1)), Authentication::Ok);
}

#[test]
fn unusable_credentials_say_why() {
    let server = Authenticator::new(
        DigestSettings { uri_check: UriCheck::Exact, ..DigestSettings::default() },
        b"one secret",
        1,
        STARTED,
    );
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let good = String::from_utf8(phone.answer()).expect("ASCII");
    for (from, to, why) in [
        ("realm=\"example.org\"", "realm=\"Example.org\"", BadRequest::Realm),
        ("algorithm=SHA-256", "algorithm=SHA-512-256", BadRequest::Algorithm),
        ("algorithm=SHA-256", "algorithm=SHA-1", BadRequest::Algorithm),
        ("algorithm=SHA-256", "algorithm=MD5", BadRequest::Response),
        ("qop=auth", "qop=auth-int", BadRequest::Qop),
        ("qop=auth", "qop=auth-conf", BadRequest::Qop),
        ("nc=00000001", "nc=1x", BadRequest::NonceCount),
        (", nc=00000001", "", BadRequest::NonceCount),
        ("cnonce=", "xnonce=", BadRequest::Cnonce),
        ("uri=\"sip:example.org\"", "uri=\"\"", BadRequest::Uri),
        ("uri=\"sip:example.org\"", "uri=\"sip:example.com\"", BadRequest::Uri),
        ("username=\"bob\"", "username*=UTF-8''%zz", BadRequest::Username),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        assert_eq!(judge(&server, 1_000, bad.as_bytes(), Some(&ha1)), Authentication::BadRequest(why), "{to}");
    }
    assert_eq!(judge(&server, 1_000, good.as_bytes(), Some(&ha1)), Authentication::Ok);
}

#[test]
fn a_changed_request_is_a_wrong_response() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let good = String::from_utf8(phone.answer()).expect("ASCII");
    for (from, to) in [
        ("uri=\"sip:example.org\"", "uri=\"sip:example.com\""),
        ("nc=00000001", "nc=00000002"),
        ("nc=00000001", "nc=1"),
        ("cnonce=\"0a4f113b\"", "cnonce=\"0a4f113c\""),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        let verdict = judge(&server, 1_000, bad.as_bytes(), Some(&ha1));
        assert_eq!(verdict, Authentication::WrongPassword, "{to}");
    }
    let invite = SignedRequest { method: b"INVITE", ..ATTEMPT };
    let read = Credentials::parse(good.as_bytes()).expect("valid");
    let verdict = server.verify(at(1_000), REALM, &invite, &read, Some(&ha1));
    assert_eq!(verdict, Authentication::WrongPassword);
}

#[test]
fn no_changed_header_passes_a_second_time_or_panics() {
    let server = server();
    let (mut phone, ha1) = bob();
    phone.take(&challenge(&server, 1_000, 1));
    let good = phone.answer();
    assert_eq!(judge(&server, 1_000, &good, Some(&ha1)), Authentication::Ok);
    // xorshift64: a failure can be reproduced.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound.max(1) as u64) as usize
    };
    let pieces: [&[u8]; 10] =
        [b"\"", b",", b"=", b"\\", b"\r\n ", b"nc=00000002", b"username*=UTF-8''%6", b"%", b"\0", b"userhash=true"];
    for round in 0..20_000 {
        let mut header = good.clone();
        for _ in 0..=below(3) {
            let at = below(header.len());
            match below(4) {
                0 => drop(header.drain(at..(at + below(30)).min(header.len()))),
                1 => header[at] ^= 1 << below(8),
                _ => drop(header.splice(at..at, pieces[below(pieces.len())].iter().copied())),
            }
            header.push(b' ');
        }
        let _ = Challenge::parse(&header);
        if let Ok(read) = Credentials::parse(&header) {
            let verdict = server.verify(at(1_000), REALM, &ATTEMPT, &read, Some(&ha1));
            assert_ne!(verdict, Authentication::Ok, "round {round}: {}", String::from_utf8_lossy(&header));
        }
    }
}

/// Measures a judgement: `cargo test --release -p strowger-tests --test digest -- --ignored --nocapture cost`.
#[test]
#[ignore = "a measurement, for release builds"]
fn cost_of_a_judgement() {
    const ROUNDS: u32 = 200_000;
    for algorithm in [Algorithm::MD5, Algorithm::SHA_256, Algorithm::SHA_512_256] {
        let server = server();
        let offered = &[algorithm][..];
        let attempt = SignedRequest { algorithms: offered, ..ATTEMPT };
        let (mut phone, ha1) = bob();
        let start = std::time::Instant::now();
        let mut lines = Vec::new();
        for entropy in 0..ROUNDS {
            lines.clear();
            let demand = ChallengeParams { algorithms: offered, ..demand(REALM, u64::from(entropy), false) };
            server.write_challenges(at(1_000), &demand, &mut lines);
        }
        let challenge = start.elapsed() / ROUNDS;
        phone.take(&lines);
        let headers: Vec<_> = (0..ROUNDS).map(|_| phone.answer()).collect();
        let start = std::time::Instant::now();
        for header in &headers {
            let read = Credentials::parse(header).expect("valid");
            assert_eq!(server.verify(at(1_000), REALM, &attempt, &read, Some(&ha1)), Authentication::Ok);
        }
        let verify = start.elapsed() / ROUNDS;
        println!("{algorithm}: challenge {challenge:?}, parse and verify {verify:?}");
    }
}
