//! Bracket expressions: POSIX XBD 9.3.5 in the C locale, where characters collate by their byte.

use super::bytes::ByteSet;
use super::error::{ErrorKind, ExpressionError};

/// Limit of a name in `[: :]`, `[. .]` and `[= =]`, in bytes.
const NAME_MAX: usize = 32;

enum Element {
    Byte(u8),
    Class(ByteSet),
    /// `[=x=]`: in the C locale the character alone, yet not an end of a range.
    Equivalent(u8),
}

struct Reader<'a> {
    pattern: &'a [u8],
    at: usize,
    ignore_case: bool,
}

/// Parses from after `[`. Returns the set and the position after `]`.
pub(super) fn parse(pattern: &[u8], start: usize, ignore_case: bool) -> Result<(ByteSet, usize), ExpressionError> {
    let mut reader = Reader { pattern, at: start, ignore_case };
    let mut set = ByteSet::default();
    let inverse = reader.peek() == Some(b'^');
    reader.at += usize::from(inverse);
    let mut first = true;
    loop {
        match reader.peek() {
            None => return Err(ExpressionError { kind: ErrorKind::OpenBracket, at: start - 1 }),
            // The first ] is a character.
            Some(b']') if !first => break,
            Some(_) => reader.range_or_element(start, first, &mut set)?,
        }
        first = false;
    }
    Ok((if inverse { set.inverse() } else { set }, reader.at + 1))
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.pattern.get(self.at).copied()
    }

    fn fold(&self, byte: u8) -> u8 {
        if self.ignore_case { byte.to_ascii_uppercase() } else { byte }
    }

    fn range_or_element(&mut self, start: usize, first: bool, set: &mut ByteSet) -> Result<(), ExpressionError> {
        let at = self.at;
        let open = ExpressionError { kind: ErrorKind::OpenBracket, at: start - 1 };
        let from = self.element(first)?;
        let next = self.peek().ok_or_else(|| open.clone())?;
        // A - before ] is a character and no range.
        let range = next == b'-' && self.pattern.get(self.at + 1).ok_or_else(|| open.clone())? != &b']';
        if range {
            self.at += 1;
            let to = self.element(true)?;
            let (Element::Byte(from), Element::Byte(to)) = (from, to) else {
                return Err(ExpressionError { kind: ErrorKind::Range, at });
            };
            if from > to {
                return Err(ExpressionError { kind: ErrorKind::Range, at });
            }
            (from..=to).for_each(|byte| set.insert(byte));
        } else {
            match from {
                Element::Byte(byte) | Element::Equivalent(byte) => set.insert(byte),
                Element::Class(class) => *set = set.union(&class),
            }
        }
        Ok(())
    }

    /// Parses one element. The caller has checked that at least one byte remains.
    fn element(&mut self, hyphen_may_stand: bool) -> Result<Element, ExpressionError> {
        let at = self.at;
        let Some(byte) = self.peek() else {
            return Err(ExpressionError { kind: ErrorKind::OpenBracket, at });
        };
        self.at += 1;
        if byte == b'[' {
            match self.peek() {
                Some(kind @ (b'.' | b'=' | b':')) => {
                    self.at += 1;
                    return self.named(kind, at);
                }
                _ => return Ok(Element::Byte(b'[')),
            }
        }
        // A - that is neither first, nor last, nor the end of a range is undefined in POSIX.
        if byte == b'-' && !hyphen_may_stand && self.peek() != Some(b']') {
            return Err(ExpressionError { kind: ErrorKind::Range, at });
        }
        Ok(Element::Byte(self.fold(byte)))
    }

    fn named(&mut self, kind: u8, at: usize) -> Result<Element, ExpressionError> {
        let open = ExpressionError { kind: ErrorKind::OpenBracket, at };
        let name_at = self.at;
        loop {
            if self.at - name_at >= NAME_MAX {
                return Err(open);
            }
            let byte = self.peek().ok_or_else(|| open.clone())?;
            self.at += 1;
            let Some(next) = self.peek() else { return Err(open) };
            if byte == kind && next == b']' {
                break;
            }
        }
        let name = &self.pattern[name_at..self.at - 1];
        self.at += 1;
        match (kind, name) {
            (b':', name) => ByteSet::class(name, self.ignore_case)
                .map(Element::Class)
                .ok_or(ExpressionError { kind: ErrorKind::Class, at }),
            (b'=', &[byte]) => Ok(Element::Equivalent(self.fold(byte))),
            (_, &[byte]) => Ok(Element::Byte(self.fold(byte))),
            _ => Err(ExpressionError { kind: ErrorKind::CollatingElement, at }),
        }
    }
}
