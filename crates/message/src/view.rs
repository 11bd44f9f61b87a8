//! All header fields of a message as typed views, in order.

use crate::header::*;
use crate::reader::{Field, Reader};
use crate::write::Write;
use crate::{Error, Line, Message, Name, NameAddr, Reason};

/// The value of a header field by type. The one table of the view of each field.
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
    /// Route, Record-Route, Path, Service-Route, P-Asserted-Identity, P-Preferred-Identity, Remote-Party-ID,
    /// Refer-To, Referred-By, Reply-To, Diversion, History-Info
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
    /// A parameter of Authentication-Info
    AuthenticationInfo(AuthenticationInfo<'a>),
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
            Self::AuthenticationInfo(v) => v.write(out),
            Self::Text(v) => v.write(out),
        }
    }
}

impl Write for View<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        View::write(self, out);
    }
}

/// A view of a header field's value, of any kind.
pub trait Typed<'a>: Copy + Write {
    /// Wraps the value in its variant.
    fn view(self) -> View<'a>;
}

macro_rules! typed {
    ($($kind:ident $(=> $variant:ident)?),* $(,)?) => {
        $(typed!(@ $kind $(=> $variant)?);)*
    };
    (@ $kind:ident) => { typed!(@ $kind => $kind); };
    (@ $kind:ident => $variant:ident) => {
        impl<'a> Typed<'a> for $kind<'a> {
            #[inline(always)]
            fn view(self) -> View<'a> {
                View::$variant(self)
            }
        }
    };
}

typed! {
    Via, Party, Contact, NameAddr, CallId, CSeq, Number, DeltaSeconds => Seconds, Token, MediaType, Weighted, Info, Date, Event,
    SubscriptionState, RAck, SessionExpires, ReasonValue => Reason, Replaces, Privacy, Identity, Timestamp, RetryAfter, Warning,
    MimeVersion, Credentials, AuthenticationInfo, Text,
}

impl<'a> Typed<'a> for MaxForwards {
    fn view(self) -> View<'a> {
        View::MaxForwards(self)
    }
}

/// The `*` of a Contact.
#[derive(Clone, Copy, Debug)]
struct Star;

impl Write for Star {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'*');
    }
}

impl<'a> Typed<'a> for Star {
    fn view(self) -> View<'a> {
        View::Star
    }
}

/// Receiver of every value of a message: see [`visit`].
pub trait Visit<'a> {
    /// Receives one value with its line; a line with several values makes several calls.
    fn value<T: Typed<'a>>(&mut self, line: &'a Line, value: &T);
}

/// A [`Visit`] that calls a function.
struct Each<F>(F);

impl<'a, F: FnMut(&'a Line, &View<'a>)> Visit<'a> for Each<F> {
    #[inline]
    fn value<T: Typed<'a>>(&mut self, line: &'a Line, value: &T) {
        (self.0)(line, &value.view());
    }
}

/// Reads every header line and passes each value with its line to `each`: the values of a list one by one, nothing for
/// an empty list.
///
/// # Errors
/// The first value that violates its grammar.
pub fn all<'a>(message: &Message<'a>, each: impl FnMut(&'a Line, &View<'a>)) -> Result<(), Error> {
    visit(message, &mut Each(each))
}

/// Reads one header line: see [`all`].
///
/// # Errors
/// The first value that violates its grammar.
pub fn of_line<'a>(message: &Message<'a>, line: &'a Line, each: impl FnMut(&'a Line, &View<'a>)) -> Result<(), Error> {
    visit_line(message, line, &mut Each(each))
}

/// Acts as [`all`], without the conversion to one type for all kinds.
///
/// # Errors
/// The first value that violates its grammar.
#[inline]
pub fn visit<'a>(message: &Message<'a>, visit: &mut impl Visit<'a>) -> Result<(), Error> {
    for line in message.index().lines() {
        visit_line(message, line, visit)?;
    }
    Ok(())
}

// Inlined into the loop over the lines, while each kind of value has a function of its own to read it. So a line costs
// one call and saves only the registers that its kind needs.
#[inline(always)]
fn visit_line<'a>(message: &Message<'a>, line: &'a Line, visit: &mut impl Visit<'a>) -> Result<(), Error> {
    let text = message.value(line);
    let read = match line.name {
        Name::Via => some::<Via<'_>>(text, line, visit),
        Name::From | Name::To => one::<Party<'_>>(text, line, visit),
        Name::Contact if text == b"*" => {
            visit.value(line, &Star);
            return Ok(());
        }
        Name::Contact => some::<Contact<'_>>(text, line, visit),
        Name::Route
        | Name::RecordRoute
        | Name::Path
        | Name::ServiceRoute
        | Name::PAssertedIdentity
        | Name::PPreferredIdentity
        | Name::RemotePartyId
        | Name::Diversion
        | Name::HistoryInfo => some::<NameAddr<'_>>(text, line, visit),
        Name::ReferTo | Name::ReferredBy | Name::ReplyTo => one::<NameAddr<'_>>(text, line, visit),
        Name::CallId => one::<CallId<'_>>(text, line, visit),
        Name::InReplyTo => some::<CallId<'_>>(text, line, visit),
        Name::CSeq => one::<CSeq<'_>>(text, line, visit),
        Name::MaxForwards => one::<MaxForwards>(text, line, visit),
        Name::ContentLength | Name::MaxBreadth | Name::RSeq => one::<Number<'_>>(text, line, visit),
        Name::Expires | Name::MinExpires | Name::FlowTimer => one::<DeltaSeconds<'_>>(text, line, visit),
        Name::Supported
        | Name::Require
        | Name::ProxyRequire
        | Name::Unsupported
        | Name::Allow
        | Name::AllowEvents
        | Name::ContentEncoding
        | Name::ContentLanguage
        | Name::RequestDisposition => list::<Token<'_>>(text, line, visit),
        Name::Priority | Name::SipETag | Name::SipIfMatch => one::<Token<'_>>(text, line, visit),
        Name::ContentType => one::<MediaType<'_>>(text, line, visit),
        Name::Accept => list::<MediaType<'_>>(text, line, visit),
        Name::AcceptEncoding | Name::AcceptLanguage => list::<Weighted<'_>>(text, line, visit),
        Name::AcceptContact | Name::RejectContact => some::<Weighted<'_>>(text, line, visit),
        Name::ContentDisposition => one::<Weighted<'_>>(text, line, visit),
        Name::AlertInfo | Name::CallInfo | Name::ErrorInfo => some::<Info<'_>>(text, line, visit),
        Name::IdentityInfo => one::<Info<'_>>(text, line, visit),
        Name::Date => one::<Date<'_>>(text, line, visit),
        Name::Event => one::<Event<'_>>(text, line, visit),
        Name::SubscriptionState => one::<SubscriptionState<'_>>(text, line, visit),
        Name::RAck => one::<RAck<'_>>(text, line, visit),
        Name::SessionExpires | Name::MinSe => one::<SessionExpires<'_>>(text, line, visit),
        Name::Reason => some::<ReasonValue<'_>>(text, line, visit),
        Name::Replaces => one::<Replaces<'_>>(text, line, visit),
        Name::Privacy => one::<Privacy<'_>>(text, line, visit),
        Name::Identity => some::<Identity<'_>>(text, line, visit),
        Name::Timestamp => one::<Timestamp<'_>>(text, line, visit),
        Name::RetryAfter => one::<RetryAfter<'_>>(text, line, visit),
        Name::Warning => some::<Warning<'_>>(text, line, visit),
        Name::MimeVersion => one::<MimeVersion<'_>>(text, line, visit),
        Name::Authorization | Name::ProxyAuthorization | Name::WwwAuthenticate | Name::ProxyAuthenticate => {
            one::<Credentials<'_>>(text, line, visit)
        }
        Name::AuthenticationInfo => some::<AuthenticationInfo<'_>>(text, line, visit),
        Name::Organization | Name::Subject | Name::Server | Name::UserAgent | Name::Other => {
            visit.value(line, &Text { text });
            return Ok(());
        }
    };
    read.map_err(|at| Error::new(Reason::Malformed, line.value as usize + at))
}

/// Reads one value with nothing after it. The error is the offset of the fault in the text.
#[inline(never)]
fn one<'a, T: Field<'a> + Typed<'a>>(text: &'a [u8], line: &'a Line, visit: &mut impl Visit<'a>) -> Result<(), usize> {
    let mut reader = Reader::new(text);
    let Some(value) = T::read(&mut reader) else { return Err(reader.at()) };
    reader.ws();
    if !reader.is_done() {
        return Err(reader.at());
    }
    visit.value(line, &value);
    Ok(())
}

/// Reads at least one value, separated by commas.
#[inline(never)]
fn some<'a, T: Field<'a> + Typed<'a>>(text: &'a [u8], line: &'a Line, visit: &mut impl Visit<'a>) -> Result<(), usize> {
    let mut reader = Reader::new(text);
    loop {
        let Some(value) = T::read(&mut reader) else { return Err(reader.at()) };
        reader.ws();
        let more = reader.take(b',');
        if !more && !reader.is_done() {
            return Err(reader.at());
        }
        visit.value(line, &value);
        if !more {
            return Ok(());
        }
        reader.ws();
    }
}

/// Reads values, or none at all.
#[inline]
fn list<'a, T: Field<'a> + Typed<'a>>(text: &'a [u8], line: &'a Line, visit: &mut impl Visit<'a>) -> Result<(), usize> {
    if text.is_empty() { Ok(()) } else { some::<T>(text, line, visit) }
}

/// Writes the whole message again from its views, every value in normal form, the body unchanged, and Content-Length,
/// if there is one, with the length of the body.
///
/// # Errors
/// The first value that violates its grammar; `out` then has the output before it.
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
        of_line(message, line, |line, view| {
            out.extend_from_slice(between);
            between = b", ";
            if line.name == Name::ContentLength { (message.body().len() as u32).write(out) } else { view.write(out) }
        })?;
    }
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(message.body());
    Ok(())
}
