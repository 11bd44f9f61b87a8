//! Requests within a dialog (RFC 3261 section 12.2.1.1).

use strowger_message::{Method, SipUri, Uri, Write};

use super::Dialog;

/// Start line, Route and next hop of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRoute<'a> {
    /// Request-URI.
    pub uri: &'a [u8],
    /// Value of Route. Empty: none.
    pub routes: &'a [u8],
    /// Target to append after `routes` for a strict router; empty if there is none.
    pub last: &'a [u8],
    /// URI of the next hop.
    pub hop: &'a [u8],
    /// Set if the first route is a strict router: its URI is the Request-URI (RFC 3261 section 12.2.1.1).
    pub strict: bool,
}

impl<'a> RequestRoute<'a> {
    /// Returns the route to `target` over `routes`, a Route value of name-addrs that start with their brackets.
    pub fn new(target: &'a [u8], routes: &'a [u8]) -> Self {
        let Some((hop, rest)) = first_route(routes) else {
            return Self { uri: target, routes: b"", last: b"", hop: target, strict: false };
        };
        let loose = matches!(Uri::parse(hop), Ok(Uri::Sip(uri)) if uri.params.lr());
        if loose {
            Self { uri: target, routes, last: b"", hop, strict: false }
        } else {
            Self { uri: hop, routes: rest, last: target, hop, strict: true }
        }
    }

    /// Writes the Request-URI for the start line: without header components, and without `method` (section 19.1.1, table 1).
    pub fn write_uri(&self, out: &mut Vec<u8>) {
        match Uri::parse(self.uri) {
            Ok(Uri::Sip(uri)) if !uri.headers.is_empty() || uri.params.method().is_some() => {
                SipUri { headers: b"", params: Default::default(), ..uri }.write(out);
                for (name, value) in uri.params.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(b"method")) {
                    out.push(b';');
                    out.extend_from_slice(name);
                    if let Some(value) = value {
                        out.push(b'=');
                        out.extend_from_slice(value);
                    }
                }
            }
            _ => out.extend_from_slice(self.uri),
        }
    }

    /// Writes the Route line, if there is one.
    pub fn write_routes(&self, out: &mut Vec<u8>) {
        if self.routes.is_empty() && self.last.is_empty() {
            return;
        }
        out.extend_from_slice(b"Route: ");
        out.extend_from_slice(self.routes);
        if !self.last.is_empty() {
            out.extend_from_slice(if self.routes.is_empty() { b"<" } else { b", <" });
            out.extend_from_slice(self.last);
            out.push(b'>');
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Dialog {
    /// Returns the route of the next request.
    pub fn request_route(&self) -> RequestRoute<'_> {
        RequestRoute::new(self.target(), self.routes())
    }

    /// Appends the start line of a request, and its header lines up to CSeq. `via` writes the value of Via. The caller
    /// adds its own lines, Content-Length, the blank line and the body.
    pub fn write_request(&self, method: Method, cseq: u32, via: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        self.write_request_named(method.text(), cseq, via, out);
    }

    /// Appends the start of a request as [`Dialog::write_request`] does, of any method that is a token.
    pub fn write_request_named(&self, method: &[u8], cseq: u32, via: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        let route = self.request_route();
        out.extend_from_slice(method);
        out.push(b' ');
        route.write_uri(out);
        out.extend_from_slice(b" SIP/2.0\r\nVia: ");
        via(out);
        out.extend_from_slice(b"\r\nMax-Forwards: 70\r\n");
        route.write_routes(out);
        out.extend_from_slice(b"From: ");
        tagged(self.local(), self.local_tag(), out);
        out.extend_from_slice(b"\r\nTo: ");
        tagged(self.remote(), self.remote_tag(), out);
        out.extend_from_slice(b"\r\nCall-ID: ");
        out.extend_from_slice(self.call_id());
        out.extend_from_slice(b"\r\nCSeq: ");
        cseq.write(out);
        out.push(b' ');
        out.extend_from_slice(method);
        out.extend_from_slice(b"\r\n");
    }
}

fn tagged(party: &[u8], tag: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(party);
    if !tag.is_empty() {
        out.extend_from_slice(b";tag=");
        out.extend_from_slice(tag);
    }
}

/// Splits routes into the URI of the first one and the others.
fn first_route(routes: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = routes.strip_prefix(b"<")?;
    let end = inner.iter().position(|&b| b == b'>')?;
    let (mut quoted, mut escaped) = (false, false);
    let comma = inner[end..].iter().position(|&b| {
        let found = b == b',' && !quoted;
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => (),
        }
        found
    });
    let rest = comma.map_or(&b""[..], |n| inner[end + n + 1..].trim_ascii_start());
    Some((&inner[..end], rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(route: RequestRoute<'_>) -> (String, String) {
        let (mut uri, mut routes) = (Vec::new(), Vec::new());
        route.write_uri(&mut uri);
        route.write_routes(&mut routes);
        (String::from_utf8(uri).unwrap(), String::from_utf8(routes).unwrap())
    }

    #[test]
    fn loose_routes_go_before_the_target() {
        let route = RequestRoute::new(b"sip:bob@192.0.2.4", b"<sip:p1;lr>;x=\"a,b\", <sip:p2;lr>");
        assert_eq!((route.hop, route.strict), (&b"sip:p1;lr"[..], false));
        let (uri, routes) = written(route);
        assert_eq!(uri, "sip:bob@192.0.2.4");
        assert_eq!(routes, "Route: <sip:p1;lr>;x=\"a,b\", <sip:p2;lr>\r\n");
    }

    /// The example of section 12.2.1.1.
    #[test]
    fn a_strict_router_takes_the_request_uri() {
        let route = RequestRoute::new(
            b"sip:user@remoteua",
            b"<sip:proxy1;method=INVITE;x?Subject=a>;y=\"a,b\", <sip:proxy2>, <sip:proxy3;lr>, <sip:proxy4>",
        );
        assert!(route.strict);
        let (uri, routes) = written(route);
        assert_eq!(uri, "sip:proxy1;x");
        assert_eq!(routes, "Route: <sip:proxy2>, <sip:proxy3;lr>, <sip:proxy4>, <sip:user@remoteua>\r\n");
        let (uri, routes) = written(RequestRoute::new(b"sip:user@remoteua", b"<sip:proxy1>"));
        assert_eq!((uri.as_str(), routes.as_str()), ("sip:proxy1", "Route: <sip:user@remoteua>\r\n"));
    }

    #[test]
    fn no_routes_go_straight() {
        let route = RequestRoute::new(b"sip:bob@192.0.2.4;transport=tcp", b"");
        assert_eq!(route.hop, b"sip:bob@192.0.2.4;transport=tcp");
        assert_eq!(written(route).1, "");
    }
}
