//! Route set and remote target of a dialog (RFC 3261 section 12.1).

use super::call_runner::CallRunner;
use super::received_message::ReceivedMessage;
use strowger_message::Name;

impl CallRunner<'_> {
    /// Stores the route set and the remote target of `rrs` (RFC 3261 section 12.1). Without Record-Route and Contact
    /// the target is unchanged.
    pub(super) fn keep_routes(&mut self, heard: &ReceivedMessage<'_>) {
        let index = &self.shard.index;
        let value = |line: &strowger_message::Line| &heard.bytes[line.value as usize..line.value_end as usize];
        let contact = index.first(Name::Contact).map_or(&b""[..], value);
        // Elements of all lines, in the order of the message.
        let places = &mut self.shard.pool.places;
        places.clear();
        for line in index.lines_of(Name::RecordRoute) {
            split(value(line), |from, to| places.push((line.value as usize + from, line.value as usize + to)));
        }
        // The caller's route set is reversed.
        if heard.code != 0 {
            places.reverse();
        }
        let extra = self.call.extra.get_or_insert_default();
        extra.has_routes = true;
        extra.routes.clear();
        if places.is_empty() && contact.is_empty() {
            return;
        }
        let url = address(contact);
        extra.next_url.clear();
        let element = |&(from, to): &(usize, usize)| &heard.bytes[from..to];
        let mut rest = &places[..];
        // A strict router becomes the Request-URI, and the target the last route (section 12.2.1.1).
        let strict = rest.first().map(element).filter(|first| memchr::memmem::find(first, b";lr").is_none());
        match strict {
            Some(first) => {
                extra.next_url.extend_from_slice(address(first));
                rest = &rest[1..];
            }
            None => extra.next_url.extend_from_slice(url),
        }
        let comma = |routes: &mut Vec<u8>| {
            if !routes.is_empty() {
                routes.extend_from_slice(b", ");
            }
        };
        for route in rest.iter().map(element) {
            comma(&mut extra.routes);
            extra.routes.extend_from_slice(route);
        }
        if strict.is_some() && !url.is_empty() {
            comma(&mut extra.routes);
            for part in [&b"<"[..], url, b">"] {
                extra.routes.extend_from_slice(part);
            }
        }
    }
}

/// Returns the text between the angle brackets of an address, or the whole text if there are no brackets.
fn address(value: &[u8]) -> &[u8] {
    memchr::memchr(b'<', value)
        .and_then(|a| memchr::memchr(b'>', &value[a..]).map(|b| &value[a + 1..a + b]))
        .unwrap_or(value)
}

/// Splits a list of addresses at commas outside of angle brackets and quotes. Reports each element's start and end,
/// without white space around it.
fn split(value: &[u8], mut tell: impl FnMut(usize, usize)) {
    let (mut start, mut quoted, mut inside) = (0, false, false);
    let mut close = |start: usize, end: usize| {
        let element = &value[start..end];
        let from = start + element.len() - element.trim_ascii_start().len();
        let length = element.trim_ascii().len();
        if length > 0 {
            tell(from, from + length);
        }
    };
    for (i, &b) in value.iter().enumerate() {
        match b {
            b'"' => quoted = !quoted,
            b'<' if !quoted => inside = true,
            b'>' if !quoted => inside = false,
            b',' if !quoted && !inside => {
                close(start, i);
                start = i + 1;
            }
            _ => (),
        }
    }
    close(start, value.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_addresses() {
        let value = b" <sip:a;x=1,2>;lr , \"B, C\" <sip:b>,,sip:c ";
        let mut parts = Vec::new();
        split(value, |from, to| parts.push(String::from_utf8_lossy(&value[from..to]).into_owned()));
        assert_eq!(parts, ["<sip:a;x=1,2>;lr", "\"B, C\" <sip:b>", "sip:c"]);
        assert_eq!((address(b"\"B\" <sip:b>;x"), address(b"sip:c")), (&b"sip:b"[..], &b"sip:c"[..]));
    }
}
