//! Typed views of a message's header fields, created on demand.

use crate::header::{CSeq, CallId, Contact, DeltaSeconds, Hop, MaxForwards, Party, Token, Via};
use crate::name_addr::NameAddr;
use crate::reader::Field;
use crate::uri::Uri;
use crate::values::Values;
use crate::{Error, Index, Line, Message, Name, Reason};
use std::ops::Range;

impl Index {
    /// Returns the topmost Via of the message with these bytes. The result borrows only the bytes, so the index may be
    /// changed afterwards.
    ///
    /// # Errors
    /// Errors of [`Message::via`].
    #[inline]
    pub fn via<'a>(&self, bytes: &'a [u8]) -> Result<Via<'a>, Error> {
        let line = self.first(Name::Via).ok_or_else(|| Error::new(missing(Name::Via), self.headers_end()))?;
        let at = line.value as usize;
        let mut reader = crate::reader::Reader::new(&bytes[at..line.value_end as usize]);
        let via = Via::read(&mut reader);
        match via {
            Some(via) if matches!(reader.peek(), None | Some(b',')) => Ok(via),
            _ => Err(Error::new(Reason::Malformed, at + reader.at())),
        }
    }
}

impl<'a> Message<'a> {
    /// Returns the Request-URI.
    ///
    /// # Errors
    /// The Request-URI is malformed, or the message is a response.
    #[inline]
    pub fn uri(&self) -> Result<Uri<'a>, Error> {
        let text = self.request_uri();
        Uri::parse(text).map_err(|e| Error::new(Reason::RequestUri, self.offset_of(text) + e.offset))
    }

    /// Returns all Via values, topmost first.
    pub fn vias(&self) -> Values<'a, Via<'a>> {
        self.values(Name::Via)
    }

    /// Returns the topmost Via.
    ///
    /// # Errors
    /// There is none, or it is malformed. Later values of the same line are not checked.
    #[inline]
    pub fn via(&self) -> Result<Via<'a>, Error> {
        self.index().via(self.bytes())
    }

    /// Returns From: the user that makes the request (RFC 3261 section 20.20).
    ///
    /// # Errors
    /// Missing, repeated or malformed.
    #[inline]
    pub fn from(&self) -> Result<Party<'a>, Error> {
        self.mandatory(Name::From)
    }

    /// Returns To: the user to whom the request is addressed (RFC 3261 section 20.39).
    ///
    /// # Errors
    /// Missing, repeated or malformed.
    #[inline]
    pub fn to(&self) -> Result<Party<'a>, Error> {
        self.mandatory(Name::To)
    }

    /// Returns the Call-ID (RFC 3261 section 20.8).
    ///
    /// # Errors
    /// Missing, repeated or malformed.
    #[inline]
    pub fn call_id(&self) -> Result<CallId<'a>, Error> {
        self.mandatory(Name::CallId)
    }

    /// Returns the CSeq: number within the call, and method (RFC 3261 section 20.16).
    ///
    /// # Errors
    /// Missing, repeated or malformed.
    #[inline]
    pub fn cseq(&self) -> Result<CSeq<'a>, Error> {
        self.mandatory(Name::CSeq)
    }

    /// Returns Max-Forwards: the number of hops left. Without one, a proxy writes 70 (RFC 3261 section 16.6 step 3).
    ///
    /// # Errors
    /// Repeated, or not a number up to 255.
    #[inline]
    pub fn max_forwards(&self) -> Result<Option<MaxForwards>, Error> {
        self.optional(Name::MaxForwards)
    }

    /// Returns Expires: the lifetime of a registration, subscription or invitation, in seconds (RFC 3261 section
    /// 20.19).
    ///
    /// # Errors
    /// Repeated, or not a number of 32 bits.
    pub fn expires(&self) -> Result<Option<u32>, Error> {
        Ok(self.optional::<DeltaSeconds<'a>>(Name::Expires)?.map(|e| e.seconds))
    }

    /// Returns Min-Expires of a 423: the shortest time that a registrar accepts, in seconds (RFC 3261 section
    /// 20.23).
    ///
    /// # Errors
    /// Repeated, or not a number of 32 bits.
    pub fn min_expires(&self) -> Result<Option<u32>, Error> {
        Ok(self.optional::<DeltaSeconds<'a>>(Name::MinExpires)?.map(|e| e.seconds))
    }

    /// Returns all Contact values. A `*` ends the iteration with an error: call [`Message::contact_star`] first.
    pub fn contacts(&self) -> Values<'a, Contact<'a>> {
        self.values(Name::Contact)
    }

    /// Tells whether the only Contact is `*` (RFC 3261 section 10.2.2).
    pub fn contact_star(&self) -> bool {
        let mut all = self.headers(Name::Contact);
        all.next() == Some(b"*") && all.next().is_none()
    }

    /// Proxies that the request still has to pass, the next one first (RFC 3261 section 20.34).
    pub fn routes(&self) -> Values<'a, Hop<'a>> {
        self.values(Name::Route)
    }

    /// Proxies that stay on the path of the dialog, the last one first (RFC 3261 section 20.30).
    pub fn record_routes(&self) -> Values<'a, Hop<'a>> {
        self.values(Name::RecordRoute)
    }

    /// Returns the Path values (RFC 3327).
    pub fn paths(&self) -> Values<'a, NameAddr<'a>> {
        self.values(Name::Path)
    }

    /// Returns the Service-Route values (RFC 3608).
    pub fn service_routes(&self) -> Values<'a, NameAddr<'a>> {
        self.values(Name::ServiceRoute)
    }

    /// Returns the option tags of Supported.
    pub fn supported(&self) -> Values<'a, Token<'a>> {
        self.values(Name::Supported)
    }

    /// Tells whether a Supported that can be read lists this option tag.
    pub fn supports(&self, option: &[u8]) -> bool {
        self.supported().flatten().any(|t| t.is(option))
    }

    /// Returns the option tags that the server must support; otherwise it answers 420 (RFC 3261 section 20.32).
    pub fn require(&self) -> Values<'a, Token<'a>> {
        self.values(Name::Require)
    }

    /// Returns the option tags that each proxy must support; otherwise it answers 420 (RFC 3261 section 20.29).
    pub fn proxy_require(&self) -> Values<'a, Token<'a>> {
        self.values(Name::ProxyRequire)
    }

    /// Returns the option tags in a 420 that the server does not support (RFC 3261 section 20.40).
    pub fn unsupported(&self) -> Values<'a, Token<'a>> {
        self.values(Name::Unsupported)
    }

    /// Methods of Allow.
    pub fn allow(&self) -> Values<'a, Token<'a>> {
        self.values(Name::Allow)
    }

    /// Returns all values of a list header field, read as `T`.
    #[inline]
    pub fn values<T: Field<'a>>(&self, name: Name) -> Values<'a, T> {
        Values::new(self, name)
    }

    /// Returns the value of a header field that must occur once.
    ///
    /// # Errors
    /// [`Reason::Missing`] or the reason of its name, [`Reason::Repeated`] (unless the values are equal),
    /// [`Reason::Malformed`].
    #[inline]
    pub fn mandatory<T: Field<'a>>(&self, name: Name) -> Result<T, Error> {
        // `optional` is not used here, because each step would copy the value.
        match self.single_valued_line(name)? {
            Some(line) => crate::reader::whole_at(self.value(line), line.value as usize),
            None => Err(Error::new(missing(name), self.index().headers_end())),
        }
    }

    /// Returns the value of a header field that may occur once.
    ///
    /// # Errors
    /// [`Reason::Repeated`] (unless the values are equal), [`Reason::Malformed`].
    #[inline]
    pub fn optional<T: Field<'a>>(&self, name: Name) -> Result<Option<T>, Error> {
        match self.single_valued_line(name)? {
            Some(line) => crate::reader::whole_at(self.value(line), line.value as usize).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the line of a single-valued header field: several lines MUST have equal values.
    #[inline]
    fn single_valued_line(&self, name: Name) -> Result<Option<&'a Line>, Error> {
        let Some(number) = crate::values::first_number(self, name) else { return Ok(None) };
        let line = &self.index().lines()[number];
        if self.index().repeated(name) {
            let text = self.value(line);
            if let Some(other) = self.index().lines_of(name).find(|l| self.value(l) != text) {
                return Err(Error::new(Reason::Repeated, other.start as usize));
            }
        }
        Ok(Some(line))
    }

    /// Returns the position of `part`, a slice that a view of this message returned. An empty slice has a position too
    /// (see [`Via::rport`]).
    ///
    /// # Panics
    /// `part` is not a slice of this message.
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

    /// Tells whether the first line of a list has several values by its commas; no value is parsed. Commas in quotes
    /// and brackets do not count.
    pub fn has_several(&self, name: Name) -> bool {
        let Some(value) = self.header(name) else { return false };
        let mut reader = crate::reader::Reader::new(value);
        self.index().repeated(name) || (reader.skip_to_comma().is_some() && reader.take(b','))
    }

    /// Reports to `cut` the ranges to remove so that the first `count` values of a list are removed: whole lines, then
    /// the values of a line that keeps some. Commas in quotes and brackets do not separate values; of a malformed line
    /// the remaining text is removed.
    pub fn cut_first(&self, name: Name, count: usize, mut cut: impl FnMut(Range<usize>)) {
        let mut left = count;
        for line in self.index().lines_of(name) {
            if left == 0 {
                return;
            }
            if line.value == line.value_end {
                // An empty line has no value, but must not remain above a line that is kept.
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

/// Returns the reason for a missing header field.
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
