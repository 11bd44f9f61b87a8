//! Privacy (RFC 3323 section 4.2).

use super::view;
use crate::reader::{Field, Reader};

/// Privacy values: `id;header;critical`.
#[derive(Clone, Copy, Debug)]
pub struct Privacy<'a> {
    /// Raw text.
    pub text: &'a [u8],
}

view!(Privacy);

impl<'a> Privacy<'a> {
    /// `none`, `header`, `session`, `user`, `id`, `critical`, ...
    pub fn values(&self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.text.split(|&b| b == b';').map(<[u8]>::trim_ascii)
    }

    /// Tells whether this is among the values, in any case.
    pub fn has(&self, value: &[u8]) -> bool {
        self.values().any(|v| v.eq_ignore_ascii_case(value))
    }

    /// Writes the values with semicolons between them and no white space.
    pub fn write(&self, out: &mut Vec<u8>) {
        for (n, value) in self.values().enumerate() {
            if n > 0 {
                out.push(b';');
            }
            out.extend_from_slice(value);
        }
    }
}

impl<'a> Field<'a> for Privacy<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let start = scan.at();
        loop {
            scan.token()?;
            let text = scan.since(start);
            scan.ws();
            if !scan.take(b';') {
                return Some(Self { text });
            }
            scan.ws();
        }
    }
}

impl PartialEq for Privacy<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.values().eq(other.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let privacy = Privacy::parse(b"Header; id ;\r\n critical").unwrap();
        assert!(privacy.has(b"id") && privacy.has(b"header") && !privacy.has(b"none"));
        let mut out = Vec::new();
        privacy.write(&mut out);
        assert_eq!(out, b"Header;id;critical");
        assert!(Privacy::parse(b"id;").is_err() && Privacy::parse(b"").is_err());
    }
}
