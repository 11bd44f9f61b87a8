//! Session-Expires and Min-SE (RFC 4028 sections 4, 5).

use super::view;
use crate::params::Params;
use crate::reader::{DIGIT, Field, Reader, is, strict_number};
use crate::write::Write;

/// A session interval: `1800;refresher=uac`; a Min-SE has no refresher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionExpires<'a> {
    /// Session interval: the session ends if no refresh comes in this time. In a Min-SE, the shortest accepted
    /// interval.
    pub seconds: u32,
    /// Refreshing side; `None` in a request that leaves the choice to the other side.
    pub refresher: Option<Refresher>,
    /// All parameters, `refresher` included. If there are none, the field is written instead.
    pub params: Params<'a>,
}

/// The side that refreshes the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresher {
    /// The side that sent the request with this header field.
    Uac,
    /// The side that answers it.
    Uas,
}

view!(SessionExpires);

impl SessionExpires<'_> {
    /// Creates a value to write.
    pub fn new(seconds: u32, refresher: Option<Refresher>) -> Self {
        Self { seconds, refresher, params: Params::default() }
    }

    /// Writes seconds and the parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.seconds.write(out);
        if self.params.is_empty() {
            match self.refresher {
                Some(Refresher::Uac) => out.extend_from_slice(b";refresher=uac"),
                Some(Refresher::Uas) => out.extend_from_slice(b";refresher=uas"),
                None => (),
            }
        }
        self.params.write(out);
    }
}

impl<'a> Field<'a> for SessionExpires<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let seconds = strict_number(scan.some(DIGIT)?)?;
        let mut refresher = None;
        let params = Params::read(scan, |name, value| {
            if is(name, b"refresher") {
                refresher = match value {
                    Some(v) if v.eq_ignore_ascii_case(b"uac") => Some(Refresher::Uac),
                    Some(v) if v.eq_ignore_ascii_case(b"uas") => Some(Refresher::Uas),
                    _ => return false,
                };
            }
            true
        })?;
        Some(Self { seconds, refresher, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refreshers() {
        let timer = SessionExpires::parse(b"4000;refresher=UAC").unwrap();
        assert_eq!((timer.seconds, timer.refresher), (4000, Some(Refresher::Uac)));
        assert!(SessionExpires::parse(b"90;refresher=me").is_err());
        let mut out = Vec::new();
        SessionExpires::new(90, Some(Refresher::Uas)).write(&mut out);
        assert_eq!(out, b"90;refresher=uas");
    }
}
