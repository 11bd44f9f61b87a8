//! WebSocket for SIP (RFC 6455, RFC 7118): the opening handshake and the frames, as bytes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Largest HTTP header of an opening handshake, bytes.
const HEADER: usize = 8_192;

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// Reason of a regular close (RFC 6455 section 7.4.1).
pub(crate) const NORMAL: u16 = 1_000;

/// A frame at the start of the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) last: bool,
    pub(crate) code: u8,
    /// Length of the header, where the payload begins.
    pub(crate) header: usize,
    pub(crate) payload: usize,
    mask: Option<[u8; 4]>,
}

impl Frame {
    pub(crate) const fn length(&self) -> usize {
        self.header + self.payload
    }

    /// Unmasks the payload.
    pub(crate) fn unmask(&self, payload: &mut [u8]) {
        if let Some(key) = self.mask {
            mask(payload, key);
        }
    }
}

fn mask(payload: &mut [u8], key: [u8; 4]) {
    for (i, byte) in payload.iter_mut().enumerate() {
        *byte ^= key[i % 4];
    }
}

/// Parses the frame at the start of `bytes`, even if its payload is incomplete. Returns `None` if the header is
/// incomplete. `masked`: whether the peer is a client, whose frames must be masked (RFC 6455 section 5.1).
pub(crate) fn frame(bytes: &[u8], masked: bool, limit: usize) -> Result<Option<Frame>, &'static str> {
    let &[first, second, ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err("WebSocket frame with unknown extension");
    }
    if (second & 0x80 != 0) != masked {
        return Err("WebSocket frame masked wrongly");
    }
    let code = first & 0x0f;
    if !matches!(code, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG) {
        return Err("WebSocket frame of unknown kind");
    }
    let last = first & 0x80 != 0;
    let (size, mut header) = match second & 0x7f {
        126 => match bytes.get(2..4) {
            Some(n) => (u16::from_be_bytes([n[0], n[1]]) as u64, 4),
            None => return Ok(None),
        },
        127 => match bytes.get(2..10) {
            Some(n) => (u64::from_be_bytes(n.try_into().expect("eight bytes")), 10),
            None => return Ok(None),
        },
        n => (n as u64, 2),
    };
    if code >= CLOSE && (size > 125 || !last) {
        return Err("WebSocket control frame too large or in pieces");
    }
    if size > limit as u64 {
        return Err("WebSocket message is larger than the limit");
    }
    let mut key = None;
    if masked {
        match bytes.get(header..header + 4) {
            Some(k) => key = Some([k[0], k[1], k[2], k[3]]),
            None => return Ok(None),
        }
        header += 4;
    }
    Ok(Some(Frame { last, code, header, payload: size as usize, mask: key }))
}

/// Appends a complete frame. `key`: the mask, if this side is a client.
pub(crate) fn write(code: u8, payload: &[u8], key: Option<[u8; 4]>, out: &mut Vec<u8>) {
    out.push(0x80 | code);
    let masked = if key.is_some() { 0x80 } else { 0 };
    match payload.len() {
        n @ 0..126 => out.push(masked | n as u8),
        n @ 126..65_536 => {
            out.push(masked | 126);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        n => {
            out.push(masked | 127);
            out.extend_from_slice(&(n as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(key.as_ref().map_or(&[][..], |k| &k[..]));
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = key {
        mask(&mut out[start..], key);
    }
}

/// Returns a mask that cannot be predicted from earlier frames (RFC 6455 section 10.3).
pub(crate) fn key(counter: u64) -> [u8; 4] {
    use std::hash::{BuildHasher, Hasher};
    thread_local!(static KEYED: std::hash::RandomState = std::hash::RandomState::new());
    let mut hasher = KEYED.with(|k| k.build_hasher());
    hasher.write_u64(counter);
    (hasher.finish() as u32).to_be_bytes()
}

/// Returns the end of an HTTP header, after the blank line; `None` if it is incomplete.
///
/// # Errors
/// The header is too long.
pub(crate) fn header_end(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let end = bytes.windows(4).take(HEADER).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
    if end.is_none() && bytes.len() >= HEADER { Err("WebSocket handshake is too long") } else { Ok(end) }
}

/// Returns the server's response to an opening handshake.
///
/// # Errors
/// The response that refuses the handshake, and the reason.
pub(crate) fn answer(request: &[u8]) -> Result<Vec<u8>, (&'static [u8], &'static str)> {
    const BAD: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const VERSION: &[u8] = b"HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\n\
        Connection: Upgrade, close\r\nContent-Length: 0\r\n\r\n";
    if !request.starts_with(b"GET ") {
        return Err((BAD, "not a WebSocket handshake"));
    }
    if !lists(request, "upgrade", "websocket") || !lists(request, "connection", "upgrade") {
        return Err((BAD, "no upgrade to WebSocket"));
    }
    if !lists(request, "sec-websocket-version", "13") {
        return Err((VERSION, "WebSocket of another version"));
    }
    // Required subprotocol (RFC 7118 section 4.1).
    if !lists(request, "sec-websocket-protocol", "sip") {
        return Err((BAD, "WebSocket without the sip protocol"));
    }
    let Some(key) = values(request, "sec-websocket-key").next().filter(|k| k.len() == 24) else {
        return Err((BAD, "no Sec-WebSocket-Key"));
    };
    let mut text = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Accept: "
        .to_vec();
    text.extend_from_slice(derive_accept_key(key).as_bytes());
    text.extend_from_slice(b"\r\n\r\n");
    Ok(text)
}

/// Returns a client's opening handshake, and the key for which the response must have the proof.
pub(crate) fn request(host: &str, counter: u64) -> (Vec<u8>, String) {
    let mut nonce = [0; 16];
    for (i, part) in nonce.chunks_mut(4).enumerate() {
        part.copy_from_slice(&key(counter.wrapping_mul(4).wrapping_add(i as u64)));
    }
    let key = BASE64_STANDARD.encode(nonce);
    let text = format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\
         Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    (text.into_bytes(), key)
}

/// Checks that the server's response opens the connection.
pub(crate) fn check(response: &[u8], key: &str) -> Result<(), &'static str> {
    if !response.starts_with(b"HTTP/1.1 101") {
        return Err("the peer refused the WebSocket handshake");
    }
    if values(response, "sec-websocket-accept").next() != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err("the peer answered another WebSocket handshake");
    }
    if !lists(response, "sec-websocket-protocol", "sip") {
        return Err("the peer does not speak SIP over WebSocket");
    }
    Ok(())
}

fn values<'a>(header: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    header.split(|&b| b == b'\n').skip(1).filter_map(move |line| {
        let colon = line.iter().position(|&b| b == b':')?;
        line[..colon].trim_ascii().eq_ignore_ascii_case(name.as_bytes()).then(|| line[colon + 1..].trim_ascii())
    })
}

fn lists(header: &[u8], name: &str, token: &str) -> bool {
    values(header, name)
        .flat_map(|value| value.split(|&b| b == b','))
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_writing_and_reading() {
        for size in [0, 1, 125, 126, 65_535, 65_536] {
            for key in [None, Some([1, 2, 3, 4])] {
                let payload: Vec<u8> = (0..size).map(|i| i as u8).collect();
                let mut bytes = Vec::new();
                write(TEXT, &payload, key, &mut bytes);
                for cut in 0..bytes.len().min(14) {
                    let partial = frame(&bytes[..cut], key.is_some(), 100_000).unwrap();
                    assert!(partial.is_none_or(|f| f.length() == bytes.len()));
                }
                let found = frame(&bytes, key.is_some(), 100_000).unwrap().unwrap();
                assert_eq!((found.length(), found.code, found.last), (bytes.len(), TEXT, true));
                found.unmask(&mut bytes[found.header..]);
                assert_eq!(&bytes[found.header..], &payload[..]);
                assert!(frame(&bytes, key.is_none(), 100_000).is_err());
            }
        }
        assert!(frame(&[0x81, 127, 0, 0, 0, 1, 0, 0, 0, 0], false, 65_535).is_err());
        assert!(frame(&[0x89, 126, 1, 0], false, 65_535).is_err());
        assert!(frame(&[0xc1, 0], false, 65_535).is_err());
        assert!(frame(&[0x83, 0], false, 65_535).is_err());
    }

    #[test]
    fn a_handshake_of_ours_is_accepted_by_us() {
        let (asked, key) = request("example.com", 7);
        assert_eq!(header_end(&asked), Ok(Some(asked.len())));
        let answered = answer(&asked).unwrap();
        check(&answered, &key).unwrap();
        assert!(check(&answered, "other").is_err());
        let text = String::from_utf8(asked).unwrap();
        for (from, to) in
            [("GET", "PUT"), ("sip", "chat"), (": 13", ": 8"), ("websocket\r\n", "h2c\r\n"), ("-Key", "-No")]
        {
            assert!(answer(text.replace(from, to).as_bytes()).is_err(), "{from}");
        }
    }
}
