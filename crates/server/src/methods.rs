//! Methods that a device accepts according to its REGISTER: by the `methods` parameter of its Contact (RFC 3840 section
//! 10.1), else by Allow.

use crate::outbound::KEEPS_FLOW;
use std::ops::Range;
use strowger_message::{Message, Method};

/// Bit of [`Binding::flags`](strowger_store::binding::Binding::flags): the methods of the device are known, and are in
/// the bits from [`FIRST`] on.
const KNOWN: u32 = 4;
const FIRST: u32 = 8;

const _: () = assert!(FIRST as usize + Method::KNOWN.len() <= KEEPS_FLOW.trailing_zeros() as usize);

/// Returns the flags of a binding for the methods of its contact. `uri`: position of the contact's URI in this
/// REGISTER.
pub(crate) fn flags(register: &Message<'_>, uri: &Range<usize>) -> u32 {
    let contact = register.contacts().flatten().find(|contact| register.range_of(contact.addr.uri_text) == *uri);
    let listed = contact.and_then(|contact| contact.addr.params.find(b"methods")).and_then(|methods| methods.value);
    let mut methods = 0;
    match listed {
        Some(list) => {
            let names = list.split(|byte| matches!(byte, b'"' | b',' | b' '));
            names.for_each(|name| methods |= bit(Method::of(name)));
        }
        None => register.allow().flatten().for_each(|name| methods |= bit(Method::of(name.text))),
    }
    if methods == 0 { 0 } else { KNOWN | methods }
}

/// Tells whether a device of a binding with these flags accepts this method. A device that has not listed its methods
/// is assumed to accept each. The flags have no bits for methods that this server does not know.
pub(crate) fn takes(flags: u32, method: Method) -> bool {
    let bit = bit(method);
    flags & KNOWN == 0 || bit == 0 || flags & bit != 0
}

fn bit(method: Method) -> u32 {
    let place = Method::KNOWN.iter().position(|known| *known == method);
    place.map_or(0, |place| 1 << (FIRST + place as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::{Index, Limits};

    fn flags_of(contact: &str, more: &str) -> u32 {
        let text = format!(
            "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK1\r\nFrom: <sip:b@example.org>;tag=1\r\n\
             To: <sip:b@example.org>\r\nCall-ID: 1\r\nCSeq: 1 REGISTER\r\nContact: {contact}\r\n{more}Content-Length: 0\r\n\r\n"
        );
        let mut index = Index::new();
        index.parse(text.as_bytes(), &Limits::default()).expect("it is a message");
        let message = Message::new(text.as_bytes(), &index);
        let uri = message.contacts().flatten().next().expect("it has one").addr.uri_text;
        flags(&message, &message.range_of(uri))
    }

    #[test]
    fn a_device_takes_the_methods_that_it_lists() {
        let all = flags_of("<sip:b@192.0.2.9>", "");
        assert_eq!(all, 0);
        assert!(Method::KNOWN.iter().all(|method| takes(all, *method)));
        let allow = flags_of("<sip:b@192.0.2.9>", "Allow: INVITE, ACK, X-OTHER\r\nAllow: BYE\r\n");
        let taken = |flags| [Method::Invite, Method::Bye, Method::Message].map(|method| takes(flags, method));
        assert_eq!(taken(allow), [true, true, false]);
        assert!(takes(allow, Method::Other));
        let contact = flags_of("<sip:b@192.0.2.9>;methods=\"INVITE, MESSAGE\"", "Allow: BYE\r\n");
        assert_eq!(taken(contact), [true, false, true]);
    }

    #[test]
    fn every_method_has_a_bit_of_its_own() {
        let bits: Vec<u32> = Method::KNOWN.iter().map(|method| bit(*method)).collect();
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit).count_ones() as usize, Method::KNOWN.len());
        assert!(bits.iter().all(|bit| bit & (KNOWN | 3) == 0));
    }
}
