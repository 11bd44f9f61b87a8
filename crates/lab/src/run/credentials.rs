//! Credentials that callers send with their first request, by a nonce that each of them got before.

use crate::Error;
use crate::document::{DOMAIN, user};
use std::net::UdpSocket;
use std::time::Duration;
use strowger_load::authentication::{self, Request};

/// How long a server may take for a challenge, and how often it is asked for one.
const WAIT: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 5;

/// The challenges that users were given, and how often each has been answered.
#[derive(Debug)]
pub(super) struct Credentials {
    challenges: Vec<Vec<u8>>,
    uses: u32,
}

impl Credentials {
    /// Asks a server on this port of 127.0.0.1 for a challenge of each user, from the port from which they call.
    pub(super) fn ask(server: u16, caller: u16, users: u32) -> Result<Self, Error> {
        let failed = |reason: String| Error::Unexpected { what: "the challenges of users".into(), reason };
        let refused = |error: std::io::Error| failed(error.to_string());
        let socket = UdpSocket::bind(("127.0.0.1", caller)).map_err(refused)?;
        socket.connect(("127.0.0.1", server)).map_err(refused)?;
        socket.set_read_timeout(Some(WAIT)).map_err(refused)?;
        let mut heard = vec![0; 65_535];
        let mut one = |number: u32| {
            let (user, _) = user(number);
            let name = format!("Call-ID: nonce{number}@127.0.0.1\r\n");
            let request = format!(
                "REGISTER sip:{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:{caller};branch=z9hG4bKnonce{number}\r\n\
                 Max-Forwards: 70\r\nFrom: <sip:{user}@{DOMAIN}>;tag=nonce{number}\r\nTo: <sip:{user}@{DOMAIN}>\r\n\
                 {name}CSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n"
            );
            for _ in 0..ATTEMPTS {
                socket.send(request.as_bytes()).map_err(refused)?;
                // Any other message belongs to earlier calls.
                while let Ok(length) = socket.recv(&mut heard) {
                    let response = &heard[..length];
                    let text = String::from_utf8_lossy(response);
                    if text.starts_with("SIP/2.0 401 ") && text.contains(&name) {
                        let mut challenges = Vec::new();
                        authentication::write_challenges(response, &mut challenges)
                            .map_err(|error| failed(format!("{error}: {text}")))?;
                        return Ok(challenges);
                    }
                }
            }
            Err(failed(format!("{user} was given none")))
        };
        let challenges = (1..=users).map(&mut one).collect::<Result<_, _>>()?;
        Ok(Self { challenges, uses: 0 })
    }

    /// Returns the next use of all nonces: for each user, from the first, the line that an INVITE to this server shows.
    pub(super) fn next(&mut self, server: u16) -> Result<Vec<String>, Error> {
        self.uses += 1;
        let uri = format!("sip:127.0.0.1:{server}");
        let line = |(number, challenges): (u32, &Vec<u8>)| {
            let (name, password) = user(number);
            let credentials =
                authentication::Credentials { username: name.as_bytes(), password: password.as_bytes(), aka: None };
            let request =
                Request { method: b"INVITE", uri: uri.as_bytes(), body: b"", count: self.uses, cnonce: number };
            let mut line = Vec::new();
            let written = authentication::write_answer(challenges, true, &credentials, &request, &mut line);
            let what = || format!("the challenge of {name}: {}", String::from_utf8_lossy(challenges));
            written.map_err(|error| Error::Unexpected { what: what(), reason: error.to_string() })?;
            Ok(String::from_utf8_lossy(&line).into_owned())
        };
        (1..).zip(&self.challenges).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port;

    /// Checks nonce counts with a server that challenges each request by a new nonce, and that first sends a challenge
    /// without a nonce, which must be ignored.
    #[test]
    fn each_use_of_a_nonce_has_a_count_of_its_own() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let at = server.local_addr().expect("it is bound").port();
        let thread = std::thread::spawn(move || {
            let mut heard = [0; 2_000];
            for number in 1..=2 {
                let (length, from) = server.recv_from(&mut heard).expect("a request");
                let request = String::from_utf8_lossy(&heard[..length]).into_owned();
                let call_id = request.lines().find(|line| line.starts_with("Call-ID")).expect("one").to_owned();
                let challenge = format!("Digest realm=\"{DOMAIN}\", nonce=\"n{number}\", qop=\"auth\"");
                let response = format!(
                    "SIP/2.0 401 No\r\n{call_id}\r\nWWW-Authenticate: {challenge}\r\nContent-Length: 0\r\n\r\n"
                );
                server.send_to(response.replace("nonce", "other").as_bytes(), from).expect("it is sent");
                server.send_to(response.as_bytes(), from).expect("it is sent");
            }
        });
        let mut credentials = Credentials::ask(at, port::free(), 2).expect("challenges");
        thread.join().expect("it was asked");
        for count in ["nc=00000001", "nc=00000002"] {
            let lines = credentials.next(at).expect("lines");
            assert_eq!(lines.len(), 2);
            for (line, number) in lines.iter().zip(1..) {
                assert!(line.starts_with("Proxy-Authorization: Digest "), "{line}");
                let has = [format!("username=\"user{number}\""), format!("nonce=\"n{number}\""), count.to_owned()];
                assert!(has.iter().all(|part| line.contains(part.as_str())) && !line.contains(';'), "{line}");
            }
        }
    }
}
