//! Digest authentication from both ends: known answers, then a user agent and servers that judge it.
//!
//! `STROWGER_CORPORA` (default `../shared/corpora` beside the workspace) has more known answers than this file; without
//! it the test prints a message and passes on its own.

mod known_answers;
mod phone;

use self::phone::{ATTEMPT, Phone, bob, challenge, challenge_by, demand, judge, server};
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
