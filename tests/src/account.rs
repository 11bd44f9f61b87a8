//! User with a password (RFC 3261 section 22).

use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_rig::{credentials, ha1s};
use strowger_store::subscriber::SubscriberAdmin;

use crate::call::exchange;
use crate::text::{Request, status, unique};
use crate::wire::Wire;

/// Adds users of `example.org`, each with its name as password.
///
/// # Panics
/// A user exists already, or the database cannot be written.
pub fn add(admin: &mut SqliteAdmin, users: impl IntoIterator<Item = impl AsRef<str>>) {
    for user in users {
        let user = user.as_ref();
        admin.add(user, "example.org", "example.org", &ha1s(user, "example.org", user), 0).expect("a new user");
    }
}

/// Returns the request with credentials for this challenge.
///
/// # Panics
/// There is no challenge, or no algorithm of it is known.
pub fn authorized(request: &Request, challenge: &[u8], user: &str, password: &str) -> Request {
    authorized_again(request, challenge, user, password, 1)
}

/// Returns the request with credentials whose nonce count is `nc`.
///
/// # Panics
/// See [`authorized`].
pub fn authorized_again(request: &Request, challenge: &[u8], user: &str, password: &str, nc: u32) -> Request {
    let what = (&*request.method, &*request.uri, &*request.body);
    let mut again = request.clone().with(credentials(challenge, user, password.as_bytes(), what, nc));
    again.cseq += 1;
    again.branch = unique("z9hG4bK");
    again
}

/// Returns the request with this user's credentials. Sends it once without credentials to get the challenge.
///
/// # Panics
/// The server sends no challenge.
pub fn challenged(wire: &mut Wire, request: &Request, user: &str, password: &str) -> Request {
    let challenge = exchange(wire, request);
    if request.method == "INVITE" {
        wire.send(&request.ack(&challenge).bytes()).expect("the server takes messages");
    }
    authorized(request, &challenge, user, password)
}

/// Registers a user of `example.org` with this password at a Contact.
///
/// # Panics
/// The answer is not 200.
pub fn register_at(wire: &mut Wire, user: &str, password: &str, contact: &str) {
    let request = Request::register(user, "example.org", contact, wire.transport().name(), wire.local());
    let request = challenged(wire, &request, user, password);
    let answer = exchange(wire, &request);
    assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
}

/// Registers a user at this wire's own address.
///
/// # Panics
/// The answer is not 200.
pub fn register(wire: &mut Wire, user: &str, password: &str) {
    let contact = format!("sip:{user}@{};transport={}", wire.local(), wire.transport().name());
    register_at(wire, user, password, &contact);
}
