//! ACK and CANCEL of a sent INVITE. Both are hop by hop, so each hop writes its own ACK and CANCEL.

use super::key::{TopVia, cseq};
use strowger_message::{Message, Name};

/// Appends the ACK of a 300-699 response (RFC 3261 section 17.1.1.3) to `out`. Returns `None`, and appends nothing, if
/// the INVITE lacks a mandatory header field of the ACK.
pub(super) fn write_ack(invite: &Message<'_>, response: &Message<'_>, out: &mut Vec<u8>) -> Option<()> {
    let to = response.header(Name::To)?;
    write(b"ACK", invite, to, b"", out)
}

/// Appends the CANCEL of the INVITE (section 9.1) with these further header lines.
pub(super) fn write_cancel(invite: &Message<'_>, lines: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let to = invite.header(Name::To)?;
    write(b"CANCEL", invite, to, lines, out)
}

fn write(method: &[u8], invite: &Message<'_>, to: &[u8], lines: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let via = TopVia::of_message(invite)?;
    let (number, _) = cseq(invite.header(Name::CSeq)?)?;
    let (from, call_id) = (invite.header(Name::From)?, invite.header(Name::CallId)?);
    for part in [method, b" ", invite.request_uri(), b" SIP/2.0\r\nVia: ", via.whole, b"\r\n"] {
        out.extend_from_slice(part);
    }
    for line in invite.index().lines_of(Name::Route) {
        field(b"Route: ", invite.value(line), out);
    }
    out.extend_from_slice(b"Max-Forwards: 70\r\n");
    field(b"From: ", from, out);
    field(b"To: ", to, out);
    field(b"Call-ID: ", call_id, out);
    for part in [b"CSeq: ", number, b" ", method, b"\r\n"] {
        out.extend_from_slice(part);
    }
    if method == b"ACK" {
        // Servers may not challenge an ACK; they accept the credentials of its INVITE (section 22.1).
        for (name, text) in
            [(Name::Authorization, &b"Authorization: "[..]), (Name::ProxyAuthorization, b"Proxy-Authorization: ")]
        {
            for line in invite.index().lines_of(name) {
                field(text, invite.value(line), out);
            }
        }
    }
    out.extend_from_slice(lines);
    out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    Some(())
}

fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::{Index, Limits};

    #[test]
    fn the_ack_of_section_17_1_1_3() {
        let invite = "INVITE sip:bob@biloxi.com SIP/2.0\r\n\
            Via: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bKkjshdyff, SIP/2.0/UDP below\r\n\
            Route: <sip:a;lr>\r\nRoute: <sip:b;lr>\r\n\
            To: Bob <sip:bob@biloxi.com>\r\n\
            f: Alice <sip:alice@atlanta.com>;tag=88sja8x\r\n\
            Max-Forwards: 4\r\ni: 987asjd97y7atg\r\nCSeq: 986759 INVITE\r\nProxy-Authorization: Digest x\r\n\
            Content-Length: 4\r\n\r\nbody";
        let response = "SIP/2.0 486 Busy Here\r\nTo: Bob <sip:bob@biloxi.com>;tag=99sa0xk\r\n\r\n";
        let (mut a, mut b) = (Index::new(), Index::new());
        a.parse(invite.as_bytes(), &Limits::default()).unwrap();
        b.parse(response.as_bytes(), &Limits::default()).unwrap();
        let (invite, response) = (Message::new(invite.as_bytes(), &a), Message::new(response.as_bytes(), &b));
        let mut out = Vec::new();
        write_ack(&invite, &response, &mut out).unwrap();
        let want = "ACK sip:bob@biloxi.com SIP/2.0\r\n\
            Via: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bKkjshdyff\r\n\
            Route: <sip:a;lr>\r\nRoute: <sip:b;lr>\r\nMax-Forwards: 70\r\n\
            From: Alice <sip:alice@atlanta.com>;tag=88sja8x\r\n\
            To: Bob <sip:bob@biloxi.com>;tag=99sa0xk\r\n\
            Call-ID: 987asjd97y7atg\r\nCSeq: 986759 ACK\r\nProxy-Authorization: Digest x\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
        let mut out = Vec::new();
        write_cancel(&invite, b"Reason: SIP;cause=200\r\n", &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with("CANCEL sip:bob@biloxi.com SIP/2.0\r\nVia: SIP/2.0/UDP pc33"));
        assert!(
            out.contains("\r\nTo: Bob <sip:bob@biloxi.com>\r\n")
                && out.contains("CSeq: 986759 CANCEL\r\nReason: SIP;cause=200\r\nContent-Length: 0\r\n\r\n")
        );
        assert!(!out.contains("Authorization"));
    }
}
