//! Phone by hand: requests with credentials, and responses.

use crate::credentials::credentials;
use crate::line::Line;
use crate::text::Got;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Longest wait for a message.
const SOON: Duration = Duration::from_secs(5);

/// Request to send. All fields can be changed before.
#[derive(Clone, Debug)]
pub struct Call {
    /// Method.
    pub method: String,
    /// Request-URI.
    pub uri: String,
    /// Value of From, with tag.
    pub from: String,
    /// Value of To, with tag in a dialog.
    pub to: String,
    /// Call-ID.
    pub call_id: String,
    /// Number of CSeq.
    pub cseq: u32,
    /// Further header lines, each with `\n`.
    pub lines: String,
}

fn uri_of(contact: &str) -> String {
    contact.split(['<', '>']).nth(1).expect("a URI in angle brackets").to_owned()
}

impl Call {
    /// Returns a request of the caller within the dialog of this INVITE and its 200.
    ///
    /// # Panics
    /// The 200 has no Contact.
    #[must_use]
    pub fn within(&self, ok: &Got, method: &str, cseq: u32) -> Self {
        Self {
            method: method.into(),
            uri: uri_of(ok.one("Contact")),
            to: ok.one("To").into(),
            cseq,
            lines: ok.all("Record-Route").iter().rev().map(|route| format!("Route: {route}\n")).collect(),
            ..self.clone()
        }
    }
}

/// Phone with a line to a server.
pub struct Phone {
    line: Line,
    /// Its own address.
    pub address: SocketAddr,
    /// Address-of-record without angle brackets.
    pub aor: String,
}

fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl Phone {
    /// Creates a phone of the user with this address-of-record.
    pub fn new(line: Line, aor: &str) -> Self {
        Self { address: line.local(), line, aor: aor.into() }
    }

    /// Returns a request outside any dialog.
    pub fn call(&self, method: &str, uri: &str) -> Call {
        let number = unique();
        Call {
            method: method.into(),
            uri: uri.into(),
            from: format!("<{}>;tag=f{number}", self.aor),
            to: format!("<{uri}>"),
            call_id: format!("{number}@{}", self.address),
            cseq: 1,
            lines: String::new(),
        }
    }

    /// Returns a request of this callee within the dialog of the INVITE that it received and the 200 that its caller
    /// received.
    ///
    /// # Panics
    /// The INVITE has no Contact.
    pub fn backwards(&self, invite: &Got, ok: &Got, method: &str) -> Call {
        Call {
            uri: uri_of(invite.one("Contact")),
            from: ok.one("To").into(),
            to: ok.one("From").into(),
            call_id: ok.one("Call-ID").into(),
            cseq: 1_000,
            lines: invite.all("Record-Route").iter().map(|route| format!("Route: {route}\n")).collect(),
            ..self.call(method, "sip:x")
        }
    }

    /// Makes a call from this phone to Bob with Alice's password; Bob's phone rings and answers. Returns the INVITE,
    /// the INVITE that Bob received, and the 200.
    ///
    /// # Panics
    /// A message does not arrive.
    pub fn calls(&self, bob: &Self) -> (Call, Got, Got) {
        let call = self.call("INVITE", "sip:bob@example.org");
        let call = self.authorized(&call, &self.ask(&call), "alice", "alice");
        self.send(&self.text(&call));
        let invite = bob.next();
        assert_eq!(invite.method(), "INVITE", "{}", invite.0);
        bob.respond(&invite, 180, "");
        assert_eq!(self.answer().status(), 180);
        bob.respond(&invite, 200, "");
        let ok = self.answer();
        assert_eq!(ok.status(), 200);
        (call, invite, ok)
    }

    /// Sends a request within this phone's call to Bob, whose phone then hangs up.
    ///
    /// # Panics
    /// A message does not arrive.
    pub fn continues_and_ends(&self, bob: &Self, (call, invite, ok): &(Call, Got, Got)) {
        self.send(&self.text(&call.within(ok, "INFO", call.cseq + 1)));
        let info = bob.next();
        assert_eq!(info.method(), "INFO");
        bob.respond(&info, 200, "");
        assert_eq!(self.answer().status(), 200);
        bob.send(&bob.text(&bob.backwards(invite, ok, "BYE")));
        let bye = self.next();
        assert_eq!(bye.method(), "BYE");
        self.respond(&bye, 200, "");
        assert_eq!(bob.answer().status(), 200);
    }

    /// Returns the text of a request.
    pub fn text(&self, call: &Call) -> String {
        let Call { method, uri, from, to, call_id, cseq, lines } = call;
        let (transport, address) = (self.line.transport().via(), self.address);
        let branch = if method == "ACK" { "ack" } else { "" };
        format!(
            "{method} {uri} SIP/2.0\nVia: SIP/2.0/{transport} {address};branch=z9hG4bK{cseq}x{call_id}{branch}\n\
             Max-Forwards: 70\nFrom: {from}\nTo: {to}\nCall-ID: {call_id}\nCSeq: {cseq} {method}\n\
             Contact: <sip:phone@{address}>\n{lines}Content-Length: 0\n\n"
        )
        .replace('\n', "\r\n")
    }

    /// Sends a message.
    ///
    /// # Panics
    /// The connection has ended.
    pub fn send(&self, text: &str) {
        self.line.send(text.as_bytes()).expect("the server takes messages");
    }

    /// Returns the next message, if one arrives within this time. Skips the server's pings.
    pub fn within(&self, time: Duration) -> Option<Got> {
        self.next_of(time, false)
    }

    /// Tells whether a ping of the server arrives within this time. Skips other messages.
    pub fn is_pinged_within(&self, time: Duration) -> bool {
        self.ping_within(time).is_some()
    }

    /// Returns the next ping of the server, if one arrives within this time. Skips other messages.
    pub fn ping_within(&self, time: Duration) -> Option<Got> {
        self.next_of(time, true)
    }

    fn next_of(&self, time: Duration, pings: bool) -> Option<Got> {
        let end = self.line.clock() + time;
        loop {
            let bytes = self.line.receive(end.saturating_sub(self.line.clock()))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if text.contains("Call-ID: ping-") == pings {
                return Some(Got(text));
            }
        }
    }

    /// Returns the next message.
    ///
    /// # Panics
    /// None comes.
    pub fn next(&self) -> Got {
        self.within(SOON).unwrap_or_else(|| panic!("{}: nothing came", self.aor))
    }

    /// Checks that no message arrives for a while.
    ///
    /// # Panics
    /// One arrives.
    pub fn hears_nothing(&self) {
        if let Some(got) = self.within(Duration::from_millis(300)) {
            panic!("{} heard {}", self.aor, got.0);
        }
    }

    /// Returns the next message that is not a 100.
    ///
    /// # Panics
    /// None comes.
    pub fn answer(&self) -> Got {
        loop {
            let got = self.next();
            if got.status() != 100 {
                return got;
            }
        }
    }

    /// Sends a request and returns its response other than 100. Acknowledges a failure of an INVITE.
    ///
    /// # Panics
    /// None comes.
    pub fn ask(&self, call: &Call) -> Got {
        self.send(&self.text(call));
        let got = self.answer();
        if call.method == "INVITE" && got.status() >= 300 {
            let mut ack = self.text(call).replacen("INVITE", "ACK", 1).replace(" INVITE\r\n", " ACK\r\n");
            ack = ack.replace(&format!("To: {}\r\n", call.to), &format!("To: {}\r\n", got.one("To")));
            self.send(&ack);
        }
        got
    }

    /// Returns the request with credentials for this challenge.
    ///
    /// # Panics
    /// There is no challenge, or no algorithm of it is known.
    pub fn authorized(&self, call: &Call, challenge: &Got, user: &str, password: &str) -> Call {
        let request = (&*call.method, &*call.uri, &b""[..]);
        let line = credentials(challenge.0.as_bytes(), user, password.as_bytes(), request, 1);
        let mut call = call.clone();
        call.cseq += 1;
        call.lines.push_str(&line);
        call.lines.push('\n');
        call
    }

    /// Sends a request, and again with credentials of this user, whose password is the name.
    ///
    /// # Panics
    /// The server sends no challenge, or no answer.
    pub fn ask_as(&self, call: &Call, user: &str) -> Got {
        let challenge = self.ask(call);
        self.ask(&self.authorized(call, &challenge, user, user))
    }

    /// Returns a REGISTER of this phone.
    pub fn register_call(&self, lines: &str) -> Call {
        let mut call = self.call("REGISTER", "sip:example.org");
        call.to = format!("<{}>", self.aor);
        call.lines = lines.into();
        call
    }

    /// Registers this phone under its user.
    ///
    /// # Panics
    /// The answer is not 200.
    pub fn register(&self) {
        let user = self.aor.trim_start_matches("sip:").split('@').next().unwrap_or_default();
        let got = self.ask_as(&self.register_call("Expires: 600\n"), user);
        assert_eq!(got.status(), 200, "{}", got.0);
    }

    /// Responds to a received request, with these additional lines.
    pub fn respond(&self, request: &Got, status: u16, lines: &str) {
        let contact = format!("Contact: <sip:phone@{}>\n{lines}", self.address);
        self.send(&self.response(request, status, &contact));
    }

    /// Responds to a received request, with this address as Contact.
    pub fn respond_as(&self, request: &Got, status: u16, address: &str) {
        self.send(&self.response(request, status, &format!("Contact: <sip:phone@{address}>\n")));
    }

    /// Returns the text of a response, with these lines.
    pub fn response(&self, request: &Got, status: u16, lines: &str) -> String {
        request.respond(status, "answer", lines)
    }
}
