//! Refer-To of a REFER that is carried over. If its Replaces names a dialog of another pair, the line for the other side names the dialog of
//! that pair's other leg.

use serde::{Deserialize, Serialize};
use strowger_message::header::Replaces;
use strowger_message::uri::sip::unescaped;
use strowger_message::{Index, Limits, Message, Name, NameAddr, SipUri, Uri};

use super::Bridge;
use super::pair::Side;
use super::passed_headers::write_line;
use crate::slots::Id;
use crate::user_agent::{DialogName, UserAgent};

/// Reference of a REFER (RFC 3515).
#[derive(Debug)]
pub(super) struct Referral {
    /// Refer-To line for the other side.
    pub(super) line: Vec<u8>,
    /// Dialog that its Replaces names.
    pub(super) named: Option<Named>,
}

/// Dialog of another pair that a REFER names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Named {
    /// Leg of a pair of this bridge.
    Here(Id, Side),
    /// Dialog of another bridge, by its name from our side.
    Elsewhere(DialogName),
}

/// Other bridges of the owner. Returns `None` for a dialog of none of them; otherwise the dialog of the other leg of its pair, from our side, if
/// that is up.
pub type Elsewhere<'a> = &'a dyn Fn(&DialogName) -> Option<Option<DialogName>>;

impl Bridge {
    /// Reads the REFER of the last event, in a call of the pair `id`.
    ///
    /// # Errors
    /// Status that refuses the REFER. 400: there is no readable Refer-To, or more than one. 403: the REFER asks for a method other than
    /// INVITE, or its Replaces names this call. 481: the other call of the named pair is not up, or the named call is over.
    pub(super) fn referral(&self, agent: &UserAgent, id: Id, elsewhere: Elsewhere<'_>) -> Result<Referral, u16> {
        let mut index = Index::new();
        index.parse(agent.message(), &Limits::UNLIMITED).map_err(|_| 400u16)?;
        let message = Message::new(agent.message(), &index);
        let mut values = message.headers(Name::ReferTo);
        let (Some(value), None) = (values.next(), values.next()) else { return Err(400) };
        let address = NameAddr::parse(value).map_err(|_| 400u16)?;
        let mut line = Vec::new();
        write_line(b"Refer-To", value, &mut line);
        let Uri::Sip(uri) = address.uri else { return Ok(Referral { line, named: None }) };
        if uri.params.method().is_some_and(|method| !method.eq_ignore_ascii_case(b"INVITE")) {
            return Err(403);
        }
        let Some((_, text)) = uri.header_pairs().find(|(name, _)| is_replaces(name)) else {
            return Ok(Referral { line, named: None });
        };
        let text: Vec<u8> = unescaped(text).collect();
        let replaces = Replaces::parse(&text).map_err(|_| 400u16)?;
        let dialog = name_of(&replaces);
        let here = agent.call_of(&dialog).and_then(|call| self.index.calls.get(&call).copied());
        let (named, beyond) = match here {
            Some((other, _)) if other == id => return Err(403),
            Some((other, side)) => {
                let beyond = self.pairs.get(other).and_then(|pair| pair.call(side.other()));
                (Named::Here(other, side), beyond.and_then(|call| agent.dialog_name(call)))
            }
            None => match elsewhere(&dialog) {
                Some(beyond) => (Named::Elsewhere(dialog), beyond),
                // It is over, and its names are those of the sender alone.
                None if agent.has_written(&dialog.local_tag) => return Err(481),
                // The dialog belongs to another call of the transferor, which passes through no bridge.
                None => return Ok(Referral { line, named: None }),
            },
        };
        let name = beyond.ok_or(481u16)?;
        let mut uri_text = Vec::new();
        write_uri(&uri, &name.reversed(), replaces.early_only, &mut uri_text);
        line.clear();
        write_line(b"Refer-To", &uri_text, &mut line);
        Ok(Referral { line, named: Some(named) })
    }
}

/// Returns the dialog that Replaces names, as the receiver of the INVITE knows it (RFC 3891 section 3).
pub(super) fn name_of(replaces: &Replaces<'_>) -> DialogName {
    DialogName {
        call_id: replaces.call_id.text.to_vec(),
        local_tag: replaces.to_tag.to_vec(),
        remote_tag: replaces.from_tag.to_vec(),
    }
}

fn is_replaces(name: &[u8]) -> bool {
    unescaped(name).map(|b| b.to_ascii_lowercase()).eq(*b"replaces")
}

/// Writes the URI in angle brackets, with a Replaces that names the dialog as the party of the URI knows it.
fn write_uri(uri: &SipUri<'_>, name: &DialogName, is_early_only: bool, out: &mut Vec<u8>) {
    out.push(b'<');
    SipUri { headers: b"", ..*uri }.write(out);
    let mut mark = b'?';
    for (header, value) in uri.header_pairs().filter(|(header, _)| !is_replaces(header)) {
        out.push(mark);
        out.extend_from_slice(header);
        out.push(b'=');
        out.extend_from_slice(value);
        mark = b'&';
    }
    out.push(mark);
    out.extend_from_slice(b"Replaces=");
    let mut text = Vec::new();
    let mut replaces = Replaces::new(&name.call_id, &name.local_tag, &name.remote_tag);
    replaces.early_only = is_early_only;
    replaces.write(&mut text);
    escape(&text, out);
    out.push(b'>');
}

/// Writes the value of a header in a URI (RFC 3261 section 25.1, hvalue).
fn escape(text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &b in text {
        if b.is_ascii_alphanumeric() || b"-_.!~*'()[]/?:+$".contains(&b) {
            out.push(b);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialog_in_a_uri_is_escaped() {
        let name = DialogName { call_id: b"1@h".to_vec(), local_tag: b"t".to_vec(), remote_tag: b"f".to_vec() };
        for (uri, is_early_only, expected) in [
            ("sip:a@b", false, "<sip:a@b?Replaces=1%40h%3Bto-tag%3Dt%3Bfrom-tag%3Df>"),
            (
                "sips:a@b:5;x=1?Subject=c%20d&replace%73=old",
                true,
                "<sips:a@b:5;x=1?Subject=c%20d&Replaces=1%40h%3Bto-tag%3Dt%3Bfrom-tag%3Df%3Bearly-only>",
            ),
        ] {
            let Ok(Uri::Sip(uri)) = Uri::parse(uri.as_bytes()) else { panic!("{uri}") };
            let mut out = Vec::new();
            write_uri(&uri, &name, is_early_only, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
