//! Refused offers of media in the log: what the caller offered, and what may pass.

use crate::decision::Decision;
use std::fmt::Write;
use strowger_core::b2bua::negotiation::{CodecName, LegPolicy};
use strowger_message::sdp::{Codec, Sdp, Section};

/// Maximum numbers of streams of an offer and of formats of a stream in the log, and of bytes of a name.
const MOST_STREAMS: usize = 4;
const MOST_FORMATS: usize = 12;
const LONGEST_NAME: usize = 24;

/// Role of this server in a call that it refuses for its offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It would bridge the call.
    Bridge,
    /// It would answer the call.
    Endpoint,
}

impl Offered {
    /// Returns the role whose refusal has this reason.
    pub(crate) fn of_reason(reason: &str) -> Option<Self> {
        let is_of = |role: &Self| role.reasons().contains(&reason);
        [Self::Bridge, Self::Endpoint].into_iter().find(is_of)
    }

    /// Returns the reasons for a refusal: in general, and of an offer of nothing but encrypted RTP.
    const fn reasons(self) -> [&'static str; 2] {
        match self {
            Self::Bridge => [
                "no stream or codec of the offer may pass",
                "the offer has only encrypted RTP (SRTP), which may not pass: switch SRTP off in the phone",
            ],
            Self::Endpoint => [
                "no stream of the offer suits an endpoint",
                "the offer has only encrypted RTP (SRTP), which an endpoint does not take: switch SRTP off in the phone",
            ],
        }
    }

    /// Returns the reason for the refusal of an offer.
    pub(crate) fn reason(self, offer: Option<&[u8]>) -> &'static str {
        let [general, encrypted] = self.reasons();
        if offer.is_some_and(is_encrypted) { encrypted } else { general }
    }

    /// Returns what may pass, in words.
    pub(crate) fn allowed(self, decision: &Decision) -> String {
        match self {
            Self::Bridge => {
                let [caller, callee] = decision.bridge_policies();
                let mut text = of_policy(&caller);
                if callee.codecs != caller.codecs {
                    text.push_str(", to the callee ");
                    text.push_str(&names(&callee.codecs));
                }
                text
            }
            Self::Endpoint => {
                let names: Vec<&str> = decision.sound.codecs().iter().map(|codec| codec.encoding).collect();
                format!("audio RTP/AVP {}", names.join(" "))
            }
        }
    }
}

/// Returns the streams that a policy admits.
fn of_policy(policy: &LegPolicy) -> String {
    let mut text = format!("audio RTP/AVP {}", names(&policy.codecs));
    for kind in &policy.media_types {
        text.push_str(", ");
        text.push_str(kind);
    }
    text
}

fn names(codecs: &[CodecName]) -> String {
    if codecs.is_empty() {
        return "all codecs".to_owned();
    }
    codecs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Tells whether all audio of an offer is encrypted (RFC 3711, RFC 5764).
fn is_encrypted(offer: &[u8]) -> bool {
    let Ok(offer) = Sdp::parse(offer) else { return false };
    let audio = offer.all_media().filter_map(Section::media);
    let mut audio = audio.filter(|media| media.port != 0 && media.kind.eq_ignore_ascii_case(b"audio")).peekable();
    let is_secure = |protocol: &[u8]| {
        protocol
            .split(|byte| *byte == b'/')
            .any(|part| [&b"SAVP"[..], b"SAVPF"].iter().any(|name| part.eq_ignore_ascii_case(name)))
    };
    audio.peek().is_some() && audio.all(|media| is_secure(media.protocol))
}

/// Returns the streams of an offer in words: a bounded text of letters, digits and a few signs, which looks like no other field of a log line.
pub(crate) fn offered(offer: Option<&[u8]>) -> String {
    let Some(offer) = offer else { return "no description".to_owned() };
    let Ok(offer) = Sdp::parse(offer) else { return "no readable description".to_owned() };
    let mut text = String::new();
    for section in offer.all_media().take(MOST_STREAMS) {
        let Some(media) = section.media() else { continue };
        if !text.is_empty() {
            text.push_str(", ");
        }
        push_name(&mut text, media.kind);
        text.push(' ');
        push_name(&mut text, media.protocol);
        if media.port == 0 {
            text.push_str(" port 0");
        }
        if !media.is_rtp() {
            continue;
        }
        for payload in media.payloads().take(MOST_FORMATS) {
            text.push(' ');
            match section.rtpmaps().find(|map| map.payload == payload) {
                Some(map) => push_name(&mut text, map.encoding),
                None => match Codec::of_payload(payload) {
                    Some(codec) => text.push_str(codec.encoding),
                    // Writing to a String cannot fail.
                    None => drop(write!(text, "{payload}")),
                },
            }
        }
        if media.payloads().nth(MOST_FORMATS).is_some() {
            text.push_str(" ...");
        }
    }
    match text.is_empty() {
        true => "no stream".to_owned(),
        false if offer.media_count() > MOST_STREAMS => text + ", ...",
        false => text,
    }
}

/// Appends a name of a peer; `?` stands for each other byte than those of names of codecs.
fn push_name(text: &mut String, name: &[u8]) {
    let plain =
        |byte: &u8| if byte.is_ascii_alphanumeric() || b"-./_+".contains(byte) { char::from(*byte) } else { '?' };
    text.extend(name.iter().take(LONGEST_NAME).map(plain));
    if name.len() > LONGEST_NAME {
        text.push_str("...");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n";

    fn said(media: &str) -> String {
        offered(Some(format!("{HEAD}{media}").as_bytes()))
    }

    #[test]
    fn an_offer_is_named_by_its_streams_and_codecs() {
        assert_eq!(
            said(
                "m=audio 4000 RTP/AVP 9 101 77\r\na=rtpmap:101 telephone-event/8000\r\nm=video 4002 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n"
            ),
            "audio RTP/AVP G722 telephone-event 77, video RTP/AVP H264"
        );
        assert_eq!(said("m=image 4000 udptl t38\r\nm=audio 0 RTP/AVP 8\r\n"), "image udptl, audio RTP/AVP port 0 PCMA");
        assert_eq!((said(""), offered(None)), ("no stream".to_owned(), "no description".to_owned()));
        assert_eq!(offered(Some(b"hello")), "no readable description");
    }

    #[test]
    fn a_peer_writes_no_field_and_no_long_text_into_the_log() {
        let name = format!("x=1\u{1b}[0m{}", "y".repeat(4_000));
        let text = said(&format!("m=audio 4000 RTP/AVP 96\r\na=rtpmap:96 {name}/8000\r\n"));
        assert!(text.starts_with("audio RTP/AVP x?1??0m") && text.ends_with("..."), "{text}");
        let formats: String = (0..128).map(|payload| format!(" {payload}")).collect();
        let text = said(&format!("m=audio 4000 RTP/AVP{formats}\r\n").repeat(6));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'=' || byte == b' ';
        assert!(text.len() < 800 && text.ends_with(" ..., ...") && text.bytes().all(is_plain), "{text}");
    }

    #[test]
    fn encrypted_audio_alone_has_a_reason_of_its_own() {
        for (media, is_alone) in [
            ("m=audio 4000 RTP/SAVP 8\r\n", true),
            ("m=audio 4000 UDP/TLS/RTP/SAVPF 8\r\nm=video 4002 RTP/AVP 96\r\n", true),
            ("m=audio 4000 RTP/SAVP 8\r\nm=audio 4002 RTP/AVP 8\r\n", false),
            ("m=audio 4000 RTP/SAVP 8\r\nm=audio 0 RTP/AVP 8\r\n", true),
            ("m=audio 4000 RTP/AVP 8\r\n", false),
            ("m=video 4000 RTP/SAVP 96\r\n", false),
        ] {
            let offer = format!("{HEAD}{media}");
            for role in [Offered::Bridge, Offered::Endpoint] {
                let reason = role.reason(Some(offer.as_bytes()));
                assert_eq!(reason.contains("SRTP"), is_alone, "{media}");
                assert_eq!(Offered::of_reason(reason), Some(role));
            }
        }
        assert!(!Offered::Bridge.reason(None).contains("SRTP"));
        assert_eq!(Offered::of_reason("no port for media is free"), None);
    }
}
