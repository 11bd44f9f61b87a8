//! Phone that answers, and what it hears.

use super::*;

/// Phone by hand.
pub(super) struct Phone {
    pub(super) socket: UdpSocket,
    pub(super) to: SocketAddr,
}

impl Phone {
    pub(super) fn of(to: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
        Self { socket, to }
    }

    /// Sends a request; `tag` belongs to the other side.
    pub(super) fn say(&self, method: &str, call: &str, tag: &str) {
        let own = self.socket.local_addr().expect("it is bound");
        let number = if method == "BYE" { 2 } else { 1 };
        let to = self.to;
        // A CANCEL belongs to the transaction that it cancels (RFC 3261 section 9.1).
        let branch = if method == "CANCEL" { "INVITE" } else { method };
        let text = format!(
            "{method} sip:bob@{to} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{call}{branch}\r\nMax-Forwards: 70\r\n\
             From: <sip:anna@{own}>;tag=1\r\nTo: <sip:bob@{to}>{tag}\r\nCall-ID: {call}\r\nCSeq: {number} {method}\r\n\
             Record-Route: <sip:{own};lr>\r\nContact: <sip:anna@{own}>\r\nContent-Length: 0\r\n\r\n"
        );
        self.socket.send_to(text.as_bytes(), self.to).expect("it is sent");
    }

    /// Returns code and To tag of the next final response; the tag is verbatim.
    pub(super) fn hear(&self) -> (String, String) {
        let mut buffer = [0; 65_536];
        loop {
            let (length, _) = self.socket.recv_from(&mut buffer).expect("an answer comes");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let code = text.split(' ').nth(1).unwrap_or_default().to_owned();
            let to = text.lines().find(|line| line.starts_with("To:")).unwrap_or_default();
            if !code.starts_with('1') {
                return (code, to.find(";tag=").map_or("", |at| &to[at..]).to_owned());
            }
        }
    }

    /// Returns code and method of the next response of any kind.
    pub(super) fn answer(&self) -> (String, String) {
        let mut buffer = [0; 65_536];
        let (length, _) = self.socket.recv_from(&mut buffer).expect("an answer comes");
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let code = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let method = text.lines().find_map(|line| line.strip_prefix("CSeq: 1 ")).unwrap_or_default().to_owned();
        (code, method)
    }

    /// Returns the next request, and its sender.
    pub(super) fn request(&self) -> (String, SocketAddr) {
        let mut buffer = [0; 65_536];
        let (length, from) = self.socket.recv_from(&mut buffer).expect("a request comes");
        (String::from_utf8_lossy(&buffer[..length]).into_owned(), from)
    }

    /// Makes a call that is answered; returns the tag of its dialog.
    pub(super) fn call(&self, call: &str) -> String {
        self.say("INVITE", call, "");
        let (code, tag) = self.hear();
        assert_eq!(code, "200");
        self.say("ACK", call, &tag);
        tag
    }
}
