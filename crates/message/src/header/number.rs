//! Header fields that are one number: Max-Forwards, Expires, Min-Expires, Content-Length, RSeq, and the numbers of
//! Min-SE and Flow-Timer (RFC 3261 sections 20.14, 20.19, 20.22, 20.23; RFC 3262; RFC 5626).

use super::view;
use crate::Error;
use crate::reader::{self, Field, Reader};
use crate::write::Write;
use std::marker::PhantomData;

/// An exact number below 2^32: Content-Length, RSeq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<'a> {
    /// 0 to 2^32 - 1; an RSeq starts below 2^31 (RFC 3262 section 3).
    pub value: u32,
    of: PhantomData<&'a ()>,
}

view!(Number);

impl Number<'_> {
    /// Creates a number to write.
    pub const fn new(value: u32) -> Self {
        Self { value, of: PhantomData }
    }

    /// Writes decimal digits, no leading zeros.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.value.write(out);
    }
}

impl<'a> Field<'a> for Number<'a> {
    #[inline]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        Some(Self::new(scan.strict_decimal()?))
    }
}

/// Seconds: Expires, Min-Expires, Flow-Timer. A value that does not fit 32 bits is refused (RFC 4475 section 3.1.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaSeconds<'a> {
    /// Seconds.
    pub seconds: u32,
    of: PhantomData<&'a ()>,
}

view!(DeltaSeconds);

impl DeltaSeconds<'_> {
    /// Creates a value to write.
    pub const fn new(seconds: u32) -> Self {
        Self { seconds, of: PhantomData }
    }

    /// Writes decimal digits, no leading zeros.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.seconds.write(out);
    }
}

impl<'a> Field<'a> for DeltaSeconds<'a> {
    #[inline]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        Some(Self::new(scan.strict_decimal()?))
    }
}

/// Hops left, 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxForwards(pub u8);

impl MaxForwards {
    /// Reads a whole value, folded or not.
    ///
    /// # Errors
    /// Not a number up to 255. Leading zeros are allowed.
    #[inline]
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        reader::whole(text)
    }

    /// Writes decimal digits, no leading zeros.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        (self.0 as u32).write(out);
    }
}

impl<'a> Field<'a> for MaxForwards {
    #[inline]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let start = scan.at();
        let hops = u8::try_from(scan.decimal()?).ok();
        if hops.is_none() {
            scan.go(start);
        }
        hops.map(Self)
    }
}

impl Write for MaxForwards {
    fn write(&self, out: &mut Vec<u8>) {
        Self::write(self, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(MaxForwards::parse(b"0068").unwrap(), MaxForwards(68));
        assert_eq!(MaxForwards::parse(b"255").unwrap(), MaxForwards(255));
        for text in [&b"256"[..], b"300", b"-1", b"", b"7 0", b"99999999999999999999"] {
            assert!(MaxForwards::parse(text).is_err());
        }
        assert_eq!(DeltaSeconds::parse(b"4294967295").unwrap().seconds, u32::MAX);
        assert!(DeltaSeconds::parse(b"4294967296").is_err());
        assert!(Number::parse(b"1 2").is_err());
    }
}
