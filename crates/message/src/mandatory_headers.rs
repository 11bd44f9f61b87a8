//! The header fields that an element needs to answer, route or match a message (RFC 3261 sections 8.1.1, 8.2, 16.3).

use crate::header::{CSeq, CallId, MaxForwards, Party, Via};
use crate::uri::{SipUri, Uri};
use crate::{Error, Message, Name, Reason};

/// The header fields on which every element acts, parsed and checked, so that code that holds this value need not check
/// them again.
///
/// Other header fields may still be malformed; their views report it on access (RFC 3261 section 16.3 step 1: an
/// element need not understand a header field that it does not use).
#[derive(Clone, Copy, Debug)]
pub struct MandatoryHeaders<'a> {
    /// The Request-URI; `None` in a response. This element may not support its scheme (416).
    pub uri: Option<Uri<'a>>,
    /// The topmost Via.
    pub via: Via<'a>,
    /// From; without a tag if an RFC 2543 element sent it.
    pub from: Party<'a>,
    /// To; if it has a tag, a request belongs to a dialog (section 12.2).
    pub to: Party<'a>,
    /// Call-ID; together with both tags it identifies the dialog (section 12).
    pub call_id: CallId<'a>,
    /// CSeq; in a request its method is the request's.
    pub cseq: CSeq<'a>,
    /// Number of hops left; `None` if an RFC 2543 element sent the request. A proxy then writes 70 (section 16.6 step
    /// 3).
    pub max_forwards: Option<u8>,
}

impl<'a> MandatoryHeaders<'a> {
    /// Parses and checks the mandatory header fields of a message, first the Request-URI and then the others from Via
    /// to Max-Forwards.
    ///
    /// # Errors
    /// - [`Reason::RequestUri`]: a sip, sips, tel or urn Request-URI that violates its grammar or contains header
    ///   fields (section 19.1.1, table 1);
    /// - [`Reason::NoVia`] and its like: no Via, From, To, Call-ID or CSeq (section 8.1.1);
    /// - [`Reason::Repeated`]: two different values of From, To, Call-ID, CSeq or Max-Forwards;
    /// - [`Reason::Malformed`]: one of them violates its grammar;
    /// - [`Reason::MethodMismatch`]: the method of CSeq differs from the one of the start line (section 8.1.1.5).
    ///
    /// Answer a request with [`Error::status`]; drop a response (section 16.7, 18.1.2).
    #[inline]
    pub fn of(message: &Message<'a>) -> Result<Self, Error> {
        Self::with_top(message, message.via())
    }

    /// Acts as [`MandatoryHeaders::of`], for a caller that has read the topmost Via ([`Message::via`]).
    ///
    /// # Errors
    /// As [`MandatoryHeaders::of`].
    #[inline]
    pub fn with_top(message: &Message<'a>, top: Result<Via<'a>, Error>) -> Result<Self, Error> {
        let uri = if message.is_request() { Some(request_uri(message)?) } else { None };
        let mandatory = Self {
            uri,
            via: top?,
            from: message.from()?,
            to: message.to()?,
            call_id: message.call_id()?,
            cseq: message.cseq()?,
            max_forwards: message.max_forwards()?.map(|MaxForwards(hops)| hops),
        };
        if uri.is_some() && mandatory.cseq.method_text != message.method_text() {
            let line = message.index().first(Name::CSeq).map_or(0, |l| l.value as usize);
            return Err(Error::new(Reason::MethodMismatch, line));
        }
        Ok(mandatory)
    }
}

#[inline]
fn request_uri<'a>(message: &Message<'a>) -> Result<Uri<'a>, Error> {
    let uri = message.uri()?;
    match uri {
        Uri::Sip(SipUri { headers, .. }) if !headers.is_empty() => {
            Err(Error::new(Reason::RequestUri, message.range_of(headers).start))
        }
        _ => Ok(uri),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Index, Limits};

    const REQUEST: &str = "OPTIONS sip:bob@example.com SIP/2.0\r\n\
        v: SIP/2.0/UDP a.example.com;branch=z9hG4bK1, SIP/2.0/???\r\n\
        Max-Forwards: 70\r\nf: <sip:alice@example.com>;tag=1\r\nt: sip:bob@example.com\r\ni: 1@a\r\nCSeq: 1 OPTIONS\r\n\r\n";

    fn refused(text: &str) -> (Reason, usize) {
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("written here");
        let error = MandatoryHeaders::of(&Message::new(text.as_bytes(), &index)).expect_err(text);
        (error.reason, error.offset)
    }

    #[test]
    fn of_a_request() {
        let mut index = Index::new();
        index.parse(REQUEST.as_bytes(), &Limits::default()).expect("written here");
        let mandatory = MandatoryHeaders::of(&Message::new(REQUEST.as_bytes(), &index)).expect("has them all");
        assert_eq!(mandatory.max_forwards, Some(70));
        assert_eq!(mandatory.from.tag, Some(&b"1"[..]));
        assert_eq!(mandatory.via.branch, Some(&b"z9hG4bK1"[..]));
        assert_eq!(mandatory.cseq.number, 1);
        assert!(mandatory.uri.is_some_and(|u| u.sip().is_some()));
    }

    #[test]
    fn each_one_is_needed() {
        for (line, reason) in [
            ("v: SIP/2.0/UDP a.example.com;branch=z9hG4bK1, SIP/2.0/???\r\n", Reason::NoVia),
            ("f: <sip:alice@example.com>;tag=1\r\n", Reason::NoFrom),
            ("t: sip:bob@example.com\r\n", Reason::NoTo),
            ("i: 1@a\r\n", Reason::NoCallId),
            ("CSeq: 1 OPTIONS\r\n", Reason::NoCSeq),
        ] {
            assert_eq!(refused(&REQUEST.replace(line, "")).0, reason, "without {line}");
        }
        for (from, to, reason, at) in [
            ("70\r\n", "300\r\n", Reason::Malformed, "300"),
            ("1 OPTIONS", "1 INVITE", Reason::MethodMismatch, "1 INVITE"),
            ("1 OPTIONS", "1 options", Reason::MethodMismatch, "1 options"),
            ("i: 1@a\r\n", "i: 1@a\r\nCall-ID: 2@a\r\n", Reason::Repeated, "Call-ID"),
            ("sip:bob@example.com SIP", "sip:bob@example.com?a=b SIP", Reason::RequestUri, "a=b"),
            ("sip:bob@example.com SIP", "<sip:bob@example.com> SIP", Reason::RequestUri, "<sip:bob"),
            ("SIP/2.0/UDP a.", "SIP/2.0/UDP :a.", Reason::Malformed, ":a."),
        ] {
            let text = REQUEST.replace(from, to);
            assert_eq!(refused(&text), (reason, text.find(at).expect("put there")), "{to}");
        }
    }
}
