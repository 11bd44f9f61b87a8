//! Parts of messages that an account stores: cause of a failure, parties, encodings, text of header fields.

use strowger_message::header::ReasonValue;
use strowger_message::sdp::{Codec, Sdp};
use strowger_message::uri::sip::{escape_user, unescaped};
use strowger_message::{Message, Name, Uri};
use strowger_store::accounting::mask::Masks;

/// Maximum bytes of a stored text of a peer.
const LONGEST: usize = 512;

/// Maximum number of named encodings.
const MOST_CODECS: usize = 8;

/// Returns the Q.850 cause for a final response other than 2xx: the cause in its Reason (RFC 3326), else the cause for
/// its status (RFC 3398 section 7.2.4.1 in reverse, as section 8.2.6.1 lists it).
pub fn cause(status: u16, response: &Message<'_>) -> u16 {
    reason(response).unwrap_or_else(|| cause_of(status))
}

/// Returns the Q.850 cause that a message names.
pub fn reason(message: &Message<'_>) -> Option<u16> {
    let mut reasons = message.values::<ReasonValue<'_>>(Name::Reason).flatten();
    let cause = reasons.find(|reason| reason.protocol.eq_ignore_ascii_case(b"Q.850"))?.cause?;
    u16::try_from(cause).ok().filter(|cause| *cause < 128)
}

/// Returns the cause that corresponds to a status.
pub const fn cause_of(status: u16) -> u16 {
    match status {
        400 | 481 | 500 | 503 => 41,
        401 | 402 | 403 | 407 | 603 => 21,
        404 | 485 | 604 => 1,
        405 => 63,
        406 | 415 | 501 => 79,
        408 | 504 => 102,
        410 => 22,
        480 => 18,
        482 | 483 => 25,
        484 => 28,
        486 | 600 => 17,
        487 => 16,
        488 | 606 => 31,
        502 => 38,
        _ => 127,
    }
}

/// Returns the part of a text of a peer that is stored.
pub fn kept(bytes: &[u8]) -> String {
    cut(String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned())
}

/// Cuts a text to the maximum stored length.
pub fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// Writes a URI without password, parameters and headers.
pub fn party(text: &[u8], masks: Masks) -> String {
    match Uri::parse(text) {
        Ok(Uri::Sip(uri)) => {
            let mut host = Vec::new();
            uri.host.write_lower(&mut host);
            let user = uri.user.map(|user| masked_user(user, masks) + "@").unwrap_or_default();
            let port = uri.port.map(|port| format!(":{port}")).unwrap_or_default();
            let scheme = kept(text.split(|byte| *byte == b':').next().unwrap_or_default()).to_lowercase();
            cut(format!("{scheme}:{user}{}{port}", masks.addresses(&kept(&host))))
        }
        Ok(Uri::Tel(tel)) => cut(format!("tel:{}", masked_user(tel.number, masks))),
        _ => masks.all(&kept(text.split(|byte| *byte == b';').next().unwrap_or_default())),
    }
}

/// Writes the user part of a URI. If numbers are masked, a number is read as rules and gateways read it, and written in
/// plain form.
fn masked_user(user: &[u8], masks: Masks) -> String {
    if masks.digits == 0 {
        return kept(user);
    }
    let plain: Vec<u8> = unescaped(user).collect();
    let mut text = Vec::new();
    escape_user(masks.user(&kept(&plain)).as_bytes(), &mut text);
    cut(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the values of a header field.
pub fn values<'a>(message: &Message<'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let known = Name::of(name.as_bytes());
    let other = (known == Name::Other).then(|| message.header_named(name.as_bytes())).flatten();
    let of_known = (known != Name::Other).then(|| message.headers(known));
    of_known.into_iter().flatten().chain(other)
}

/// Returns the encodings that an answer names, for all of its media.
pub fn codecs(response: &Message<'_>) -> String {
    let Ok(sdp) = Sdp::parse(response.body()) else { return String::new() };
    let mut names: Vec<String> = Vec::new();
    for section in sdp.all_media() {
        let Some(media) = section.media().filter(|media| media.port != 0 && media.is_rtp()) else { continue };
        for payload in media.payloads() {
            let name = match section.rtpmap(payload) {
                Some(map) => Some(String::from_utf8_lossy(map.encoding).into_owned()),
                None => Codec::of_payload(payload).map(|codec| codec.encoding.to_owned()),
            };
            let name = name.filter(|name| name.len() <= 32 && !names.contains(name) && names.len() < MOST_CODECS);
            names.extend(name);
        }
    }
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::{Index, Limits};

    fn read<T>(text: &str, look: impl FnOnce(&Message<'_>) -> T) -> T {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("a message");
        look(&Message::new(text.as_bytes(), &index))
    }

    fn response(lines: &str, body: &str) -> String {
        format!(
            "SIP/2.0 480 Gone\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nCall-ID: 1\r\nFrom: <sip:a@b>;tag=1\r\n\
             To: <sip:b@c>;tag=2\r\nCSeq: 1 INVITE\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    #[test]
    fn a_reason_says_the_cause_and_else_the_status() {
        let of = |lines: &str| read(&response(lines, ""), |message| cause(480, message));
        assert_eq!(of(""), 18);
        assert_eq!(of("Reason: SIP;cause=200\r\n"), 18);
        assert_eq!(of("Reason: SIP;cause=200, Q.850;cause=19;text=\"no, answer\"\r\n"), 19);
        assert_eq!(of("Reason: Q.850;cause=4711\r\n"), 18);
    }

    #[test]
    fn parties_are_named_without_passwords_and_parameters() {
        let masks = Masks { digits: 3, addresses: true };
        for (uri, plain, masked) in [
            (
                "sip:+4930123456:secret@192.0.2.7:5062;user=phone?a=b",
                "sip:+4930123456@192.0.2.7:5062",
                "sip:+4930123***@192.0.2.0:5062",
            ),
            ("SIPS:Alice@Example.ORG;lr", "sips:Alice@example.org", "sips:Alice@example.org"),
            ("tel:+4930123456;phone-context=x", "tel:+4930123456", "tel:+4930123***"),
            ("sip:example.org", "sip:example.org", "sip:example.org"),
            ("sip:%34%39%33%30123@h", "sip:%34%39%33%30123@h", "sip:4930***@h"),
            ("tel:+49.30.123.45;ext=1", "tel:+49.30.123.45", "tel:+49.30.12*.**"),
            ("sip:49.30.123.45@h", "sip:49.30.123.45@h", "sip:49.30.12*.**@h"),
            ("sip:a%40b@h", "sip:a%40b@h", "sip:a%40b@h"),
        ] {
            assert_eq!(
                (party(uri.as_bytes(), Masks::default()), party(uri.as_bytes(), masks)),
                (plain.into(), masked.into())
            );
        }
        assert!(party(format!("sip:{}@example.org", "x".repeat(2_000)).as_bytes(), masks).len() <= LONGEST);
    }

    #[test]
    fn encodings_are_those_of_the_answer() {
        let sdp = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 96 0 101\r\n\
                   a=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000\r\nm=video 0 RTP/AVP 97\r\na=rtpmap:97 VP8/90000\r\n";
        assert_eq!(read(&response("", sdp), codecs), "opus,PCMU,telephone-event");
        assert_eq!(read(&response("", "no description"), codecs), "");
    }
}
