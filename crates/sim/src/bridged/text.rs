//! Facts of a SIP message that the laws compare.

use strowger_message::uri::sip::unescaped;
use strowger_message::{Index, Limits, Message, Method, Name};

/// Facts of a message.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Status of a response.
    pub(super) status: Option<u16>,
    /// Method of the request, or of the request that a response answers.
    pub(super) method: Method,
    pub(super) cseq: u32,
    pub(super) call_id: Vec<u8>,
    /// Branch of the top Via.
    pub(super) branch: Vec<u8>,
    /// Tags of From and To; empty if there is none.
    pub(super) from_tag: Vec<u8>,
    pub(super) to_tag: Vec<u8>,
    /// Refer-To of a request, without escapes.
    pub(super) refer_to: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl Facts {
    /// Reads a message.
    ///
    /// # Errors
    /// The message lacks a mandatory header field, or is no SIP.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut index = Index::new();
        index.parse(bytes, &Limits::default()).map_err(|error| error.to_string())?;
        let message = Message::new(bytes, &index);
        let cseq = message.cseq().map_err(|error| error.to_string())?;
        let call_id = message.call_id().map_err(|error| error.to_string())?;
        let via = message.via().map_err(|error| error.to_string())?;
        let from_tag = message.from().ok().and_then(|from| from.tag).unwrap_or_default().to_vec();
        let to_tag = message.to().ok().and_then(|to| to.tag).unwrap_or_default().to_vec();
        let refer_to = message.header(Name::ReferTo).filter(|_| message.status().is_none());
        Ok(Self {
            status: message.status(),
            method: cseq.method,
            cseq: cseq.number,
            call_id: call_id.text.to_vec(),
            branch: via.branch.unwrap_or_default().to_vec(),
            from_tag,
            to_tag,
            refer_to: refer_to.map(|value| unescaped(value).collect()).unwrap_or_default(),
            body: message.body().to_vec(),
        })
    }
}
