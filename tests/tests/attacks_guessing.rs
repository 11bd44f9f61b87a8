//! Disguised guesses at a password, each from a source of its own. The server counts every guess that it judges: beyond
//! the limit of a source it refuses even the right password. It does not judge guesses that it does not count. The
//! configuration is the default, except that loopback addresses are not exempt from bans.

use std::net::SocketAddr;
use std::time::Duration;

use strowger_core::digest::{Algorithm, Qop};
use strowger_tests::digest::DigestAnswer;
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, field, status, unique};
use strowger_tests::wire::Transport::{self, Tcp, Udp};
use strowger_tests::wire::Wire;

const RIGHT: &str = "the right one";
/// `ban.failures` by default.
const FAILURES: usize = 10;
/// Time limit of an answer.
const SHORT: Duration = Duration::from_millis(400);

fn at(server: &Site, transport: Transport, source: [u8; 2]) -> Wire {
    let from = SocketAddr::from(([127, 0, source[0], source[1]], 0));
    server.connect_from(transport, from)
}

/// Returns the answer to this very request; `None` if the source is banned.
fn ask(wire: &mut Wire, bytes: &[u8], branch: &str) -> Option<Vec<u8>> {
    wire.send(bytes).ok()?;
    loop {
        let response = wire.final_response(SHORT)?;
        if field(&response, "Via").is_some_and(|via| via.contains(branch)) {
            return Some(response);
        }
    }
}

/// Guess of an attacker.
struct Guess {
    transport: Transport,
    request: Request,
    /// Changes the credentials, given the challenge.
    credentials: fn(&mut DigestAnswer),
    /// Changes the bytes before they leave.
    bytes: fn(String) -> String,
}

impl Guess {
    fn plain(user: &str, wire_transport: Transport) -> Self {
        let here = SocketAddr::from(([127, 0, 0, 1], 5060));
        let at = format!("sip:{user}@127.0.0.1");
        let request = Request::register(user, "example.org", &at, wire_transport.name(), here);
        Self { transport: wire_transport, request, credentials: |_| (), bytes: |text| text }
    }
}

/// Tells whether this password is accepted on this wire.
fn opens(wire: &mut Wire, guess: &Guess, user: &str, password: &str) -> Option<bool> {
    let mut request = guess.request.clone();
    (request.via.1, request.call_id, request.branch) = (wire.local(), unique("guess"), unique("z9hG4bK"));
    let refusal = ask(wire, (guess.bytes)(text(&request)).as_bytes(), &request.branch)?;
    if !matches!(status(&refusal), Some(401 | 407)) {
        return Some(false);
    }
    let mut answer = DigestAnswer::to(&refusal, &request, user, password);
    (guess.credentials)(&mut answer);
    let request = answer.on(&request);
    let response = ask(wire, (guess.bytes)(text(&request)).as_bytes(), &request.branch)?;
    Some(!matches!(status(&response), Some(400 | 401 | 403 | 407)))
}

fn text(request: &Request) -> String {
    String::from_utf8(request.bytes()).expect("text")
}

type Disguise = (&'static str, fn(&str) -> Guess);

const DISGUISES: &[Disguise] = &[
    ("as it is", |user| Guess::plain(user, Udp)),
    ("over a connection each", |user| Guess::plain(user, Tcp)),
    ("as a call", |user| Guess { request: call(user, "INVITE", "sip:nobody@example.org"), ..Guess::plain(user, Udp) }),
    ("as a call to elsewhere", |user| Guess { request: call(user, "INVITE", "tel:+1900"), ..Guess::plain(user, Udp) }),
    ("as a message", |user| Guess {
        request: call(user, "MESSAGE", "sip:nobody@example.org"),
        ..Guess::plain(user, Udp)
    }),
    ("as a subscription", |user| Guess {
        request: call(user, "SUBSCRIBE", "sip:nobody@example.org"),
        ..Guess::plain(user, Udp)
    }),
    ("as a method that nobody knows", |user| Guess {
        request: call(user, "GUESS", "sip:nobody@example.org"),
        ..Guess::plain(user, Udp)
    }),
    ("as a request within a call", |user| {
        let mut request = call(user, "BYE", "sip:nobody@example.org");
        request.to.push_str(";tag=2");
        Guess { request, ..Guess::plain(user, Udp) }
    }),
    ("as a look at the bindings", |user| {
        let mut guess = Guess::plain(user, Udp);
        guess.request.headers.clear();
        guess
    }),
    ("as the removal of all bindings", |user| {
        let mut guess = Guess::plain(user, Udp);
        guess.request.headers = vec!["Contact: *".into(), "Expires: 0".into()];
        guess
    }),
    ("with counts that go on", |user| Guess { credentials: |answer| answer.nc = 7, ..Guess::plain(user, Udp) }),
    ("with another client nonce", |user| Guess {
        credentials: |answer| answer.cnonce = "x".repeat(60),
        ..Guess::plain(user, Udp)
    }),
    ("as RFC 2069 has it", |user| Guess { credentials: |answer| answer.qop = None, ..Guess::plain(user, Udp) }),
    ("with the body protected", |user| Guess {
        credentials: |answer| answer.qop = Some(Qop::AuthInt),
        ..Guess::plain(user, Udp)
    }),
    ("by another algorithm", |user| Guess {
        credentials: |answer| answer.algorithm = Algorithm::SHA_256,
        ..Guess::plain(user, Udp)
    }),
    ("with another realm", |user| Guess {
        credentials: |answer| answer.realm = "EXAMPLE.ORG".into(),
        ..Guess::plain(user, Udp)
    }),
    ("with another URI", |user| Guess {
        credentials: |answer| answer.uri = "sip:example.org;x=1".into(),
        ..Guess::plain(user, Udp)
    }),
    ("with the user in capitals", |user| Guess {
        credentials: |answer| answer.user = answer.user.to_uppercase(),
        ..Guess::plain(user, Udp)
    }),
    ("with the user and its domain", |user| Guess {
        credentials: |answer| answer.user.push_str("@example.org"),
        ..Guess::plain(user, Udp)
    }),
    ("with a nonce of its own", |user| Guess {
        credentials: |answer| answer.nonce = "A".repeat(36),
        ..Guess::plain(user, Udp)
    }),
    ("in the other header", |user| Guess {
        credentials: |answer| answer.header = "Proxy-Authorization",
        ..Guess::plain(user, Udp)
    }),
    ("with parameters that nobody knows", |user| Guess {
        credentials: |answer| answer.more = ", auth-param=x".into(),
        ..Guess::plain(user, Udp)
    }),
    ("with a second response", |user| Guess {
        credentials: |answer| answer.more = ", response=\"00000000000000000000000000000000\"".into(),
        ..Guess::plain(user, Udp)
    }),
    ("with a second user", |user| Guess {
        credentials: |answer| answer.more = ", username=\"mallory\"".into(),
        ..Guess::plain(user, Udp)
    }),
    ("with the scheme in small letters", |user| Guess {
        bytes: |text| text.replace("Digest ", "dIGEST "),
        ..Guess::plain(user, Udp)
    }),
    ("with the header folded", |user| Guess {
        bytes: |text| text.replace("Digest ", "Digest\r\n "),
        ..Guess::plain(user, Udp)
    }),
    ("with tabs", |user| Guess { bytes: |text| text.replace(", realm", ",\trealm"), ..Guess::plain(user, Udp) }),
    ("behind credentials of another realm", |user| Guess {
        bytes: |text| {
            text.replace("Authorization: Digest", "Authorization: Digest realm=\"a\", username=\"x\", nonce=\"y\", uri=\"sip:a\", response=\"0\"\r\nAuthorization: Digest")
        },
        ..Guess::plain(user, Udp)
    }),
    ("as if received elsewhere", |user| Guess {
        bytes: |text| text.replace(";rport", ";rport=9;received=192.0.2.9"),
        ..Guess::plain(user, Udp)
    }),
    ("as if by another proxy", |user| Guess {
        bytes: |text| text.replacen("Max-Forwards", "Via: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKx\r\nMax-Forwards", 1),
        ..Guess::plain(user, Udp)
    }),
];

/// Returns a request of a user that is no REGISTER.
fn call(user: &str, method: &str, uri: &str) -> Request {
    let mut request = Request::new(method, uri, "udp", SocketAddr::from(([127, 0, 0, 1], 5060)));
    request.from = format!("<sip:{user}@example.org>;tag={}", unique("f"));
    request.with(format!("Contact: <sip:{user}@127.0.0.1>"))
}

#[test]
fn no_disguise_has_more_guesses_than_a_source_has() {
    let server = Setup::on(&[Udp, Tcp]).with("domains = [\"example.org\"]\nban.exempt = []").site();
    // Each case has its own user, because several failures of one account would hide those of a source.
    let users: Vec<String> = (0..DISGUISES.len()).map(|n| format!("u{n}")).collect();
    users.iter().for_each(|user| server.add_user(&format!("{user}@example.org"), RIGHT));
    let cases: Vec<_> = DISGUISES.iter().zip(&users).enumerate().collect();
    let (judged, faults) = attack(&server, &cases);
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
    assert!(judged >= 15, "{judged} were judged");
}

/// Returns the number of judged disguises, and the faults found.
fn attack(server: &Site, cases: &[(usize, (&Disguise, &String))]) -> (usize, Vec<String>) {
    let (mut judged, mut faults) = (0, Vec::new());
    for (n, ((name, make), user)) in cases {
        let guess = make(user);
        let connect = |third: u8| at(server, guess.transport, [third, *n as u8]);
        let is_judged = opens(&mut connect(1), &guess, user, RIGHT) == Some(true);
        judged += usize::from(is_judged);
        let mut wire = connect(2);
        let mut heard = 0;
        for _ in 0..FAILURES + 2 {
            if guess.transport == Tcp && heard > 0 {
                wire = connect(2);
            }
            match opens(&mut wire, &guess, user, "a guess") {
                Some(true) => faults.push(format!("{name}: a guess was right")),
                Some(false) => heard += 1,
                None => break,
            }
        }
        if is_judged && heard > FAILURES {
            faults.push(format!("{name}: {heard} guesses were judged"));
        }
        if opens(&mut connect(2), &guess, user, RIGHT) == Some(true) {
            faults.push(format!("{name}: the right one after {heard} guesses"));
        }
    }
    (judged, faults)
}

/// One password tried on many users counts as many guesses of the source.
#[test]
fn one_password_for_many_users_is_many_guesses() {
    let server = Setup::on(&[Udp]).with("domains = [\"example.org\"]\nban.exempt = []").site();
    server.add_user("bob@example.org", RIGHT);
    let mut wire = at(&server, Udp, [1, 1]);
    let heard = (0..20)
        .take_while(|n| {
            let user = format!("nobody{n}");
            opens(&mut wire, &Guess::plain(&user, Udp), &user, RIGHT).is_some()
        })
        .count();
    assert_eq!(heard, FAILURES);
    assert_eq!(opens(&mut wire, &Guess::plain("bob", Udp), "bob", RIGHT), None, "the source is banned");
    assert_eq!(opens(&mut at(&server, Udp, [1, 2]), &Guess::plain("bob", Udp), "bob", RIGHT), Some(true));
}
