//! Typed views of a message's header fields, made when asked for.

use crate::header::{CSeq, CallId, Contact, DeltaSeconds, Hop, MaxForwards, Party, Token, Via};
use crate::name_addr::NameAddr;
use crate::reader::Field;
use crate::uri::Uri;
use crate::values::Values;
use crate::{Error, Message, Name, Reason};
use std::ops::Range;

impl<'a> Message<'a> {
    /// The Request-URI.
    ///
    /// # Errors
    /// It is malformed, or this is a response.
    #[inline]
    pub fn uri(&self) -> Result<Uri<'a>, Error> {
        let text = self.request_uri();
        Uri::parse(text).map_err(|e| Error::new(Reason::RequestUri, self.offset_of(text) + e.offset))
    }

    /// Every Via value, topmost first.
    pub fn vias(&self) -> Values<'a, Via<'a>> {
        self.values(Name::Via)
    }

    /// The topmost Via.
    ///
    /// # Errors
    /// There is none, or it is malformed. What stands behind it in the same line is not looked at.
    #[inline]
    pub fn via(&self) -> Result<Via<'a>, Error> {
        let text = self.header(Name::Via).ok_or_else(|| Error::new(missing(Name::Via), self.index().headers_end()))?;
        let mut reader = crate::reader::Reader::new(text);
        let via = Via::read(&mut reader);
        match via {
            Some(via) if matches!(reader.peek(), None | Some(b',')) => Ok(via),
            _ => Err(Error::new(Reason::Malformed, self.offset_of(text) + reader.at())),
        }
    }

    /// The user that makes the request (RFC 3261 section 20.20).
    ///
    /// # Errors
    /// Missing, repeated or malformed.
    #[inline]
    pub fn from(&self) -> Result<Party<'a>, Error> {
        self.mandatory(Name::From)
    }

    /// The user that it is meant for (RFC 3261 section 20.39).
    ///
    /// # Errors
    /// Missing, repeated or malformed.
    #[inline]
    pub fn to(&self) -> Result<Party<'a>, Error> {
        self.mandatory(Name::To)
    }

    /// The call that it belongs to (RFC 3261 section 20.8).
    ///
    /// # Errors
    /// Missing, repeated or malformed.
    #[inline]
    pub fn call_id(&self) -> Result<CallId<'a>, Error> {
        self.mandatory(Name::CallId)
    }

    /// Its number within the call, and its method (RFC 3261 section 20.16).
    ///
    /// # Errors
    /// Missing, repeated or malformed.
    #[inline]
    pub fn cseq(&self) -> Result<CSeq<'a>, Error> {
        self.mandatory(Name::CSeq)
    }

    /// Hops that are left. None if there is none: a proxy then writes 70 (RFC 3261 section 16.6 step 3).
    ///
    /// # Errors
    /// Repeated, or not a number up to 255.
    #[inline]
    pub fn max_forwards(&self) -> Result<Option<MaxForwards>, Error> {
        self.optional(Name::MaxForwards)
    }

    /// How long what is asked for shall last, in seconds (RFC 3261 section 20.19).
    ///
    /// # Errors
    /// Repeated, or not a number of 32 bits.
    pub fn expires(&self) -> Result<Option<u32>, Error> {
        Ok(self.optional::<DeltaSeconds<'a>>(Name::Expires)?.map(|e| e.seconds))
    }

    /// The shortest time that a registrar accepts, in seconds; of a 423 (RFC 3261 section 20.23).
    ///
    /// # Errors
    /// Repeated, or not a number of 32 bits.
    pub fn min_expires(&self) -> Result<Option<u32>, Error> {
        Ok(self.optional::<DeltaSeconds<'a>>(Name::MinExpires)?.map(|e| e.seconds))
    }

    /// Every Contact value. A `*` ends this with an error: ask [`Message::contact_star`] first.
    pub fn contacts(&self) -> Values<'a, Contact<'a>> {
        self.values(Name::Contact)
    }

    /// The one Contact is `*` (RFC 3261 section 10.2.2).
    pub fn contact_star(&self) -> bool {
        let mut all = self.headers(Name::Contact);
        all.next() == Some(b"*") && all.next().is_none()
    }

    /// The proxies that the request still has to pass, the next one first (RFC 3261 section 20.34).
    pub fn routes(&self) -> Values<'a, Hop<'a>> {
        self.values(Name::Route)
    }

    /// The proxies that stay on the way of the dialog, the one that was passed last first (RFC 3261 section 20.30).
    pub fn record_routes(&self) -> Values<'a, Hop<'a>> {
        self.values(Name::RecordRoute)
    }

    /// RFC 3327.
    pub fn paths(&self) -> Values<'a, NameAddr<'a>> {
        self.values(Name::Path)
    }

    /// RFC 3608.
    pub fn service_routes(&self) -> Values<'a, NameAddr<'a>> {
        self.values(Name::ServiceRoute)
    }

    /// Option tags of Supported.
    pub fn supported(&self) -> Values<'a, Token<'a>> {
        self.values(Name::Supported)
    }

    /// Is this option tag in a Supported that can be read?
    pub fn supports(&self, option: &[u8]) -> bool {
        self.supported().flatten().any(|t| t.is(option))
    }

    /// Option tags that the server must know, else it answers 420 (RFC 3261 section 20.32).
    pub fn require(&self) -> Values<'a, Token<'a>> {
        self.values(Name::Require)
    }

    /// Option tags that each proxy must know, else it answers 420 (RFC 3261 section 20.29).
    pub fn proxy_require(&self) -> Values<'a, Token<'a>> {
        self.values(Name::ProxyRequire)
    }

    /// Option tags of a 420 that the server does not know (RFC 3261 section 20.40).
    pub fn unsupported(&self) -> Values<'a, Token<'a>> {
        self.values(Name::Unsupported)
    }

    /// Methods of Allow.
    pub fn allow(&self) -> Values<'a, Token<'a>> {
        self.values(Name::Allow)
    }

    /// Every value of a header field that is a list, read as `T`.
    #[inline]
    pub fn values<T: Field<'a>>(&self, name: Name) -> Values<'a, T> {
        Values::new(self, name)
    }

    /// The value of a header field that must stand once.
    ///
    /// # Errors
    /// [`Reason::Missing`] or that of its name, [`Reason::Repeated`] (unless the other says the same), [`Reason::Malformed`].
    #[inline]
    pub fn mandatory<T: Field<'a>>(&self, name: Name) -> Result<T, Error> {
        self.optional(name)?.ok_or_else(|| Error::new(missing(name), self.index().headers_end()))
    }

    /// The value of a header field that may stand once.
    ///
    /// # Errors
    /// [`Reason::Repeated`] (unless the other says the same), [`Reason::Malformed`].
    #[inline]
    pub fn optional<T: Field<'a>>(&self, name: Name) -> Result<Option<T>, Error> {
        let Some(number) = crate::values::first_number(self, name) else { return Ok(None) };
        let line = &self.index().lines()[number];
        let text = self.value(line);
        if self.index().repeated(name)
            && let Some(other) = self.index().lines_of(name).find(|l| self.value(l) != text)
        {
            return Err(Error::new(Reason::Repeated, other.start as usize));
        }
        match crate::reader::whole(text) {
            Ok(value) => Ok(Some(value)),
            Err(e) => Err(Error::new(e.reason, line.value as usize + e.offset)),
        }
    }

    /// Where a part of this message stands in it: `part` is a slice that a view of this very message gave.
    /// An empty slice has a place too (see [`Via::rport`]).
    ///
    /// # Panics
    /// `part` is no part of this message.
    #[inline]
    pub fn range_of(&self, part: &[u8]) -> Range<usize> {
        let start = self.offset_of(part);
        assert!(start <= self.bytes().len() && part.len() <= self.bytes().len() - start, "not a part of this message");
        start..start + part.len()
    }

    #[inline]
    fn offset_of(&self, part: &[u8]) -> usize {
        (part.as_ptr() as usize).wrapping_sub(self.bytes().as_ptr() as usize)
    }

    /// Whether more than one value of a list stands there, as far as its commas say: none of them is read. Commas in quotes and
    /// brackets do not count.
    pub fn has_several(&self, name: Name) -> bool {
        let Some(value) = self.header(name) else { return false };
        let mut reader = crate::reader::Reader::new(value);
        self.index().repeated(name) || (reader.skip_to_comma().is_some() && reader.take(b','))
    }

    /// Tells `cut` what to remove from the message so that the first `count` values of a list go: whole
    /// lines, then the values of the line that keeps some. Commas in quotes and brackets do not count; of a
    /// malformed list the rest of the line goes.
    pub fn cut_first(&self, name: Name, count: usize, mut cut: impl FnMut(Range<usize>)) {
        let mut left = count;
        for line in self.index().lines_of(name) {
            if left == 0 {
                return;
            }
            if line.value == line.value_end {
                // An empty line holds no value, but must not come to stand above one that stays.
                cut(line.start as usize..line.end as usize);
                continue;
            }
            let mut reader = crate::reader::Reader::new(self.value(line));
            let mut keeps = None;
            while left > 0 {
                left -= 1;
                if reader.skip_to_comma().is_none() || !reader.take(b',') {
                    keeps = None;
                    break;
                }
                reader.ws();
                keeps = Some(reader.at());
            }
            match keeps {
                Some(at) => cut(line.value as usize..line.value as usize + at),
                None => cut(line.start as usize..line.end as usize),
            }
        }
    }
}

/// Says which header field is missing.
const fn missing(name: Name) -> Reason {
    match name {
        Name::Via => Reason::NoVia,
        Name::From => Reason::NoFrom,
        Name::To => Reason::NoTo,
        Name::CallId => Reason::NoCallId,
        Name::CSeq => Reason::NoCSeq,
        _ => Reason::Missing,
    }
}
