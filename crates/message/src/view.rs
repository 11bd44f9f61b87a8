//! All header fields of a message as typed views, one after the other.

use crate::header::*;
use crate::reader::{Field, Reader};
use crate::write::Write;
use crate::{Error, Line, Message, Name, NameAddr, Reason};

/// The value of a header field, by its kind. The one table of which view reads which field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum View<'a> {
    /// Via
    Via(Via<'a>),
    /// From, To
    Party(Party<'a>),
    /// Contact
    Contact(Contact<'a>),
    /// The `*` of a Contact.
    Star,
    /// Route, Record-Route, Path, Service-Route, P-Asserted-Identity, P-Preferred-Identity, Refer-To,
    /// Referred-By, Reply-To, Diversion, History-Info
    NameAddr(NameAddr<'a>),
    /// Call-ID, In-Reply-To
    CallId(CallId<'a>),
    /// CSeq
    CSeq(CSeq<'a>),
    /// Max-Forwards
    MaxForwards(MaxForwards),
    /// Content-Length, Max-Breadth, RSeq
    Number(Number<'a>),
    /// Expires, Min-Expires, Flow-Timer
    Seconds(DeltaSeconds<'a>),
    /// Supported, Require, Proxy-Require, Unsupported, Allow, Allow-Events, Content-Encoding,
    /// Content-Language, Priority, Request-Disposition, SIP-ETag, SIP-If-Match
    Token(Token<'a>),
    /// Content-Type, Accept
    MediaType(MediaType<'a>),
    /// Accept-Encoding, Accept-Language, Content-Disposition, Accept-Contact, Reject-Contact
    Weighted(Weighted<'a>),
    /// Alert-Info, Call-Info, Error-Info, Identity-Info
    Info(Info<'a>),
    /// Date
    Date(Date<'a>),
    /// Event
    Event(Event<'a>),
    /// Subscription-State
    SubscriptionState(SubscriptionState<'a>),
    /// RAck
    RAck(RAck<'a>),
    /// Session-Expires, Min-SE
    SessionExpires(SessionExpires<'a>),
    /// Reason
    Reason(ReasonValue<'a>),
    /// Replaces
    Replaces(Replaces<'a>),
    /// Privacy
    Privacy(Privacy<'a>),
    /// Identity
    Identity(Identity<'a>),
    /// Timestamp
    Timestamp(Timestamp<'a>),
    /// Retry-After
    RetryAfter(RetryAfter<'a>),
    /// Warning
    Warning(Warning<'a>),
    /// MIME-Version
    MimeVersion(MimeVersion<'a>),
    /// Authorization and its relatives
    Credentials(Credentials<'a>),
    /// Subject, Organization, Server, User-Agent, and every name without a view of its own
    Text(Text<'a>),
}

impl View<'_> {
    /// Writes the value in normal form.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Via(v) => v.write(out),
            Self::Party(v) => v.write(out),
            Self::Contact(v) => v.write(out),
            Self::Star => out.push(b'*'),
            Self::NameAddr(v) => v.write(out),
            Self::CallId(v) => v.write(out),
            Self::CSeq(v) => v.write(out),
            Self::MaxForwards(v) => v.write(out),
            Self::Number(v) => v.write(out),
            Self::Seconds(v) => v.write(out),
            Self::Token(v) => v.write(out),
            Self::MediaType(v) => v.write(out),
            Self::Weighted(v) => v.write(out),
            Self::Info(v) => v.write(out),
            Self::Date(v) => v.write(out),
            Self::Event(v) => v.write(out),
            Self::SubscriptionState(v) => v.write(out),
            Self::RAck(v) => v.write(out),
            Self::SessionExpires(v) => v.write(out),
            Self::Reason(v) => v.write(out),
            Self::Replaces(v) => v.write(out),
            Self::Privacy(v) => v.write(out),
            Self::Identity(v) => v.write(out),
            Self::Timestamp(v) => v.write(out),
            Self::RetryAfter(v) => v.write(out),
            Self::Warning(v) => v.write(out),
            Self::MimeVersion(v) => v.write(out),
            Self::Credentials(v) => v.write(out),
            Self::Text(v) => v.write(out),
        }
    }
}

impl Write for View<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        View::write(self, out);
    }
}

/// Reads every header line and tells each value with its line to `visit`: of a list, each value by itself;
/// of an empty list, nothing.
///
/// # Errors
/// The first value that does not follow its grammar.
pub fn all<'a>(message: &Message<'a>, mut visit: impl FnMut(&'a Line, &View<'a>)) -> Result<(), Error> {
    for line in message.index().lines() {
        of_line(message, line, &mut visit)?;
    }
    Ok(())
}

/// Reads one header line: see [`all`].
///
/// # Errors
/// The first value that does not follow its grammar.
#[inline]
pub fn of_line<'a>(message: &Message<'a>, line: &'a Line, visit: &mut impl FnMut(&'a Line, &View<'a>)) -> Result<(), Error> {
    let mut reader = Reader::new(message.value(line));
    let read = match line.name {
        Name::Via => some(&mut reader, line, View::Via, visit),
        Name::From | Name::To => one(&mut reader, line, View::Party, visit),
        Name::Contact if reader.rest() == b"*" => {
            visit(line, &View::Star);
            return Ok(());
        }
        Name::Contact => some(&mut reader, line, View::Contact, visit),
        Name::Route
        | Name::RecordRoute
        | Name::Path
        | Name::ServiceRoute
        | Name::PAssertedIdentity
        | Name::PPreferredIdentity
        | Name::Diversion
        | Name::HistoryInfo => some(&mut reader, line, View::NameAddr, visit),
        Name::ReferTo | Name::ReferredBy | Name::ReplyTo => one(&mut reader, line, View::NameAddr, visit),
        Name::CallId => one(&mut reader, line, View::CallId, visit),
        Name::InReplyTo => some(&mut reader, line, View::CallId, visit),
        Name::CSeq => one(&mut reader, line, View::CSeq, visit),
        Name::MaxForwards => one(&mut reader, line, View::MaxForwards, visit),
        Name::ContentLength | Name::MaxBreadth | Name::RSeq => one(&mut reader, line, View::Number, visit),
        Name::Expires | Name::MinExpires | Name::FlowTimer => one(&mut reader, line, View::Seconds, visit),
        Name::Supported
        | Name::Require
        | Name::ProxyRequire
        | Name::Unsupported
        | Name::Allow
        | Name::AllowEvents
        | Name::ContentEncoding
        | Name::ContentLanguage
        | Name::RequestDisposition => list(&mut reader, line, View::Token, visit),
        Name::Priority | Name::SipETag | Name::SipIfMatch => one(&mut reader, line, View::Token, visit),
        Name::ContentType => one(&mut reader, line, View::MediaType, visit),
        Name::Accept => list(&mut reader, line, View::MediaType, visit),
        Name::AcceptEncoding | Name::AcceptLanguage => list(&mut reader, line, View::Weighted, visit),
        Name::AcceptContact | Name::RejectContact => some(&mut reader, line, View::Weighted, visit),
        Name::ContentDisposition => one(&mut reader, line, View::Weighted, visit),
        Name::AlertInfo | Name::CallInfo | Name::ErrorInfo => some(&mut reader, line, View::Info, visit),
        Name::IdentityInfo => one(&mut reader, line, View::Info, visit),
        Name::Date => one(&mut reader, line, View::Date, visit),
        Name::Event => one(&mut reader, line, View::Event, visit),
        Name::SubscriptionState => one(&mut reader, line, View::SubscriptionState, visit),
        Name::RAck => one(&mut reader, line, View::RAck, visit),
        Name::SessionExpires | Name::MinSe => one(&mut reader, line, View::SessionExpires, visit),
        Name::Reason => some(&mut reader, line, View::Reason, visit),
        Name::Replaces => one(&mut reader, line, View::Replaces, visit),
        Name::Privacy => one(&mut reader, line, View::Privacy, visit),
        Name::Identity => some(&mut reader, line, View::Identity, visit),
        Name::Timestamp => one(&mut reader, line, View::Timestamp, visit),
        Name::RetryAfter => one(&mut reader, line, View::RetryAfter, visit),
        Name::Warning => some(&mut reader, line, View::Warning, visit),
        Name::MimeVersion => one(&mut reader, line, View::MimeVersion, visit),
        Name::Authorization | Name::ProxyAuthorization | Name::WwwAuthenticate | Name::ProxyAuthenticate => {
            one(&mut reader, line, View::Credentials, visit)
        }
        Name::AuthenticationInfo | Name::Organization | Name::Subject | Name::Server | Name::UserAgent | Name::Other => {
            visit(line, &View::Text(Text { text: reader.rest() }));
            return Ok(());
        }
    };
    read.ok_or_else(|| Error::new(Reason::Malformed, line.value as usize + reader.at()))
}

/// One value and nothing behind it.
#[inline]
fn one<'a, T: Field<'a>>(
    reader: &mut Reader<'a>,
    line: &'a Line,
    wrap: impl Fn(T) -> View<'a>,
    visit: &mut impl FnMut(&'a Line, &View<'a>),
) -> Option<()> {
    let view = wrap(T::read(reader)?);
    reader.ws();
    if !reader.is_done() {
        return None;
    }
    visit(line, &view);
    Some(())
}

/// At least one value, commas between them.
#[inline]
fn some<'a, T: Field<'a>>(
    reader: &mut Reader<'a>,
    line: &'a Line,
    wrap: impl Fn(T) -> View<'a>,
    visit: &mut impl FnMut(&'a Line, &View<'a>),
) -> Option<()> {
    loop {
        let view = wrap(T::read(reader)?);
        reader.ws();
        if reader.is_done() {
            visit(line, &view);
            return Some(());
        }
        if !reader.take(b',') {
            return None;
        }
        visit(line, &view);
        reader.ws();
    }
}

/// Values, or none at all.
#[inline]
fn list<'a, T: Field<'a>>(
    reader: &mut Reader<'a>,
    line: &'a Line,
    wrap: impl Fn(T) -> View<'a>,
    visit: &mut impl FnMut(&'a Line, &View<'a>),
) -> Option<()> {
    if reader.is_done() { Some(()) } else { some(reader, line, wrap, visit) }
}

/// Writes the whole message anew from its views, every value in normal form; the body as it stands, and
/// Content-Length, if there is one, what the body has.
///
/// # Errors
/// The first value that does not follow its grammar; `out` then holds what was written before it.
pub fn rewrite(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    out.reserve(message.bytes().len() + 64);
    match message.status() {
        Some(code) => {
            out.extend_from_slice(b"SIP/2.0 ");
            (code as u32).write(out);
            out.push(b' ');
            out.extend_from_slice(message.reason());
        }
        None => {
            out.extend_from_slice(message.method_text());
            out.push(b' ');
            message.uri()?.write(out);
            out.extend_from_slice(b" SIP/2.0");
        }
    }
    for line in message.index().lines() {
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(if line.name == Name::Other { message.name(line) } else { line.name.text().as_bytes() });
        out.push(b':');
        let mut between = &b" "[..];
        of_line(message, line, &mut |line, view| {
            out.extend_from_slice(between);
            between = b", ";
            if line.name == Name::ContentLength { (message.body().len() as u32).write(out) } else { view.write(out) }
        })?;
    }
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(message.body());
    Ok(())
}
