//! Redirection: the response has the places to which a request would go (RFC 3261 section 8.3).

use crate::contacts::Contacts;
use crate::decision::Decision;
use crate::destination::Destination;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::reply::Why;
use crate::role::ServerRole;
use strowger_core::routing::Routing;
use strowger_core::shown::shown;

impl Decision {
    /// Tells whether a request is redirected to this destination. A request that itself names the destination is not
    /// redirected.
    pub(crate) fn redirects(&self, destination: &Destination) -> bool {
        self.role == ServerRole::Redirect
            && match destination {
                Destination::Contacts(_) | Destination::Places(_) => true,
                // Rules have changed the URI, so it is not the caller's own.
                Destination::NextHop { .. } => self.has_other_uri,
                Destination::FirstContact(_) => false,
            }
    }
}

impl Engine {
    /// Answers a request with the places to which it would go. The status is 302, or 300 for several targets.
    pub(crate) fn redirect(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &Contacts,
        destination: &Destination,
    ) {
        let mut lines = Vec::new();
        let decision = handling.progress.decision.as_deref();
        let count = match destination {
            Destination::Contacts(_) => {
                let last = contacts.groups().last().unwrap_or(0);
                for (contact, group) in contacts.entries.iter().zip(contacts.groups()) {
                    write_contact(&mut lines, &contacts.text[contact.uri.clone()], group, last);
                }
                contacts.entries.len()
            }
            Destination::Places(_) => {
                let order = decision.map(|decision| self.policy.order_of_groups(handling.request, &decision.to));
                let order = order.unwrap_or_default();
                let to = decision.map_or(&[][..], |decision| &decision.to.uris);
                for (n, uri) in order.iter().filter_map(|place| to.get(*place)).enumerate() {
                    let with_user = routing.at_place(uri.as_bytes());
                    let uri = with_user.as_deref().unwrap_or(uri.as_bytes());
                    write_contact(&mut lines, uri, n as u16, to.len() as u16 - 1);
                }
                to.len()
            }
            Destination::NextHop { .. } | Destination::FirstContact(_) => {
                write_contact(&mut lines, routing.uri_text, 0, 0);
                1
            }
        };
        let status = if count == 1 { 302 } else { 300 };
        tracing::debug!(status, contacts = count, call_id = %shown(handling.request.call_id), "request redirected");
        self.respond(handling, status, Why::Logged, &lines);
    }
}

/// Writes a Contact. The groups of q have numbers from 0, which is tried first, to `last`; if there is only one group,
/// no q is written.
fn write_contact(lines: &mut Vec<u8>, uri: &[u8], group: u16, last: u16) {
    lines.extend_from_slice(b"Contact: <");
    lines.extend_from_slice(uri);
    lines.push(b'>');
    if last > 0 {
        // In thousandths; all groups after the thousandth share one value.
        let q = 1_000 - (u32::from(group) * 1_000 / (u32::from(last) + 1)).min(999);
        let text = if q == 1_000 { ";q=1".to_owned() } else { format!(";q=0.{q:03}") };
        lines.extend_from_slice(text.as_bytes());
    }
    lines.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_have_falling_q_values() {
        let mut lines = Vec::new();
        for group in 0..3 {
            write_contact(&mut lines, b"sip:a@192.0.2.1", group, 2);
        }
        write_contact(&mut lines, b"sip:b@192.0.2.1", 0, 0);
        let expected = "Contact: <sip:a@192.0.2.1>;q=1\r\nContact: <sip:a@192.0.2.1>;q=0.667\r\n\
                        Contact: <sip:a@192.0.2.1>;q=0.334\r\nContact: <sip:b@192.0.2.1>\r\n";
        assert_eq!(String::from_utf8_lossy(&lines), expected);
        lines.clear();
        write_contact(&mut lines, b"sip:a@192.0.2.1", u16::MAX, u16::MAX);
        assert_eq!(lines, b"Contact: <sip:a@192.0.2.1>;q=0.001\r\n");
    }
}
