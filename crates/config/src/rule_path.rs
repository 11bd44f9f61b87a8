//! Path of the calls of a rule through this server: as a proxy, or as a back-to-back user agent (B2BUA).

use strowger_core::b2bua::negotiation::CodecName;

use super::key::{Text, words};

words! {
    /// Media type of a stream beside audio (RFC 8866 section 5.14).
    pub enum MediaType {
        /// Moving pictures.
        Video = "video",
        /// Real-time text (RFC 4103).
        Text = "text",
        /// Fax (ITU-T T.38): UDPTL datagrams, which pass unread.
        Image = "image",
    }
}

words! {
    /// Parties of a bridged call whose REFER goes to the other party.
    #[derive(Default)]
    pub enum ReferFrom {
        /// Users of this server and trusted sources: an authenticated caller, a callee at a registered contact.
        #[default]
        Users = "users",
        /// Both parties.
        Everyone = "everyone",
        /// No party.
        None = "none",
    }
}

/// Audio codec by its name in session descriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codec(CodecName);

impl Text for Codec {
    const EXPECTED: &'static str = "the name of a codec such as \"PCMA\", \"telephone-event\" or \"opus/48000/2\"";

    fn from_text(text: &str) -> Result<Self, String> {
        CodecName::parse(text).map(Self).ok_or_else(|| format!("is {text:?}, which is no name of a codec"))
    }

    fn to_text(&self) -> String {
        self.0.to_string()
    }
}

impl Codec {
    pub(super) fn names(codecs: &[Self]) -> Box<[CodecName]> {
        codecs.iter().map(|codec| codec.0.clone()).collect()
    }

    /// Tells whether both names can mean one format of sound. Telephone events and comfort noise are none.
    pub(super) fn has_sound_of(&self, other: &Self) -> bool {
        let (Self(one), Self(other)) = (self, other);
        let is_silent = ["telephone-event", "CN"].iter().any(|name| one.encoding.eq_ignore_ascii_case(name));
        let agree = |one: Option<u32>, other: Option<u32>| one.is_none() || other.is_none() || one == other;
        let has_same_name = one.encoding.eq_ignore_ascii_case(&other.encoding);
        !is_silent && has_same_name && agree(one.clock_rate, other.clock_rate) && agree(one.channels, other.channels)
    }
}

/// Path of the calls of a rule through this server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathAction {
    /// Record-Route; `None`: `proxy.record_route` decides.
    pub record_route: Option<bool>,
    /// True: calls are bridged, that is, this server has a call with each side. `None`: another rule decides.
    pub b2bua: Option<bool>,
    /// Audio codecs of bridged calls, in order; empty: all, or those of another rule.
    pub codecs: Box<[CodecName]>,
    /// Audio codecs of the side of the callee, in order; empty: as `codecs`, or those of another rule.
    pub callee_codecs: Box<[CodecName]>,
    /// Media types that pass beside audio; empty: none, or those of another rule.
    pub media_types: Box<[MediaType]>,
    /// Parties that may refer the other one; `None`: another rule decides.
    pub refer_from: Option<ReferFrom>,
}

impl PathAction {
    /// Tells whether calls are bridged.
    pub fn is_bridged(&self) -> bool {
        self.b2bua == Some(true)
    }

    /// Tells whether the rule describes the media of bridged calls.
    pub fn has_media(&self) -> bool {
        !(self.codecs.is_empty() && self.callee_codecs.is_empty() && self.media_types.is_empty())
    }

    /// Tells whether the rule sets anything of the path.
    pub(super) fn is_any(&self) -> bool {
        self.record_route.is_some() || self.b2bua.is_some() || self.refer_from.is_some() || self.has_media()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_written_as_they_are_read() {
        for text in ["PCMA", "telephone-event/8000", "opus/48000/2", "G726-32"] {
            assert_eq!(Codec::from_text(text).map(|codec| codec.to_text()), Ok(text.to_owned()));
        }
        for text in ["", "PCMA,PCMU", "opus/", "opus/48000/2/1"] {
            assert!(Codec::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_sound_has_one_name() {
        let has_sound_of = |one: &str, other: &str| {
            let codec = |text: &str| Codec::from_text(text).expect("a name");
            codec(one).has_sound_of(&codec(other))
        };
        for (one, other) in [("PCMA", "pcma/8000"), ("opus/48000/2", "opus/48000"), ("L16", "L16/44100/2")] {
            assert!(has_sound_of(one, other) && has_sound_of(other, one), "{one} {other}");
        }
        for (one, other) in
            [("PCMA", "PCMU"), ("L16/8000", "L16/16000"), ("telephone-event", "telephone-event"), ("CN", "CN")]
        {
            assert!(!has_sound_of(one, other), "{one} {other}");
        }
    }
}
