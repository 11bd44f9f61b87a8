//! Event (RFC 6665 section 8.2.1).

use super::view;
use crate::params::Params;
use crate::reader::{Field, Reader, is};

/// An event package: `package.template;id=...`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// The package with its templates, compared byte for byte.
    pub package: &'a [u8],
    /// Subscription id: distinguishes several subscriptions to this package within one dialog.
    pub id: Option<&'a [u8]>,
    /// All parameters, `id` included. If there are none, `id` is written from the field.
    pub params: Params<'a>,
}

view!(Event);

impl<'a> Event<'a> {
    /// Creates an event without an id.
    pub fn new(package: &'a [u8]) -> Self {
        Self { package, id: None, params: Params::default() }
    }

    /// Tells whether both are the same subscription (RFC 6665 section 8.2.1): package and id are equal; other
    /// parameters do not count.
    pub fn matches(&self, other: &Event<'_>) -> bool {
        self.package == other.package && self.id == other.id
    }

    /// Writes the package and its parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.package);
        if let Some(id) = self.id
            && self.params.is_empty()
        {
            out.extend_from_slice(b";id=");
            out.extend_from_slice(id);
        }
        self.params.write(out);
    }
}

impl<'a> Field<'a> for Event<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let package = scan.token()?;
        let mut id = None;
        let params = Params::read(scan, |name, value| {
            if is(name, b"id") {
                id = value;
            }
            true
        })?;
        Some(Self { package, id, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_ids() {
        let one = Event::parse(b"presence.winfo; id=7;x=1").unwrap();
        assert_eq!((one.package, one.id), (&b"presence.winfo"[..], Some(&b"7"[..])));
        assert!(one.matches(&Event::parse(b"presence.winfo;id=7").unwrap()));
        assert!(!one.matches(&Event::parse(b"presence.winfo").unwrap()));
        assert!(Event::parse(b";id=1").is_err());
    }
}
