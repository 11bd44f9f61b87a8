//! A server of `example.org` with users.

pub(crate) use strowger_rig::{Call, Got, Phone, Site};

use strowger_core::Transport;
use strowger_server::bounds::EngineBounds;

/// Starts a registrar of example.org, or of the `domains` in `lines`, with these users, whose passwords are their
/// names, and these lines of configuration; `{ip}` in them is its address.
pub(crate) fn start(lines: &str, users: &[&str]) -> Site {
    with_users(Site::start(&text("127.0.100.1", lines)), users)
}

/// Starts the same registrar with these bounds of the engine in place of those of a process.
pub(crate) fn start_within(lines: &str, users: &[&str], bounds: EngineBounds) -> Site {
    with_users(Site::start_within(&text("127.0.100.1", lines), bounds), users)
}

/// Starts another server in the network of this one.
pub(crate) fn start_beside(site: &Site, lines: &str, users: &[&str]) -> Site {
    with_users(site.beside(&text("127.0.100.2", lines)), users)
}

fn text(ip: &str, lines: &str) -> String {
    let domains = if lines.contains("domains =") { "" } else { "domains = [\"example.org\"]\n" };
    let lines = lines.replace("{ip}", ip);
    format!("listen = [\"udp:{ip}:5060\", \"tcp:{ip}:5060\"]\nrealm = \"example.org\"\n{domains}{lines}\n")
}

fn with_users(site: Site, users: &[&str]) -> Site {
    users.iter().for_each(|user| site.add_user(&format!("{user}@example.org"), user));
    site
}

/// Returns a phone without a user at this address.
pub(crate) fn phone_at(site: &Site, address: &str) -> Phone {
    let line = site.connect_from(Transport::Udp, address.parse().expect("an address"));
    Phone::new(line, "sip:mallory@example.net")
}

/// Returns a description of audio at this port.
pub(crate) fn sdp(port: u16, version: u32, lines: &str) -> String {
    format!(
        "v=0\r\no=- 1 {version} IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 8 101\r\n\
         a=rtpmap:101 telephone-event/8000\r\n{lines}"
    )
}

/// Returns a request or response with this description.
pub(crate) fn with_body(text: &str, body: &str) -> String {
    let end = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    text.replace("Content-Length: 0\r\n\r\n", &end)
}

/// Returns the description in a message.
pub(crate) fn body(got: &Got) -> &str {
    got.0.split("\r\n\r\n").nth(1).unwrap_or_default()
}
