//! Errors of expressions.

use std::fmt;

/// Kind of error, one for each code of `regcomp` that an extended expression can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `REG_ECOLLATE`: `[[.name.]]` or `[[=name=]]` of something that is not one character.
    CollatingElement,
    /// `REG_ECTYPE`: `[[:name:]]` that does not exist.
    Class,
    /// `REG_EESCAPE`: a backslash at the end.
    LoneBackslash,
    /// `REG_ESUBREG`: `\n` before its group is complete.
    BackReference,
    /// `REG_EBRACK`: `[` that is never closed.
    OpenBracket,
    /// `REG_EPAREN`: `(` that is never closed.
    OpenGroup,
    /// `REG_EBRACE`: `{` that is never closed.
    OpenInterval,
    /// `REG_BADBR`: the text between `{` and `}` is no interval.
    Interval,
    /// `REG_ERANGE`: a range in brackets that ends before it begins, or whose end is no character.
    Range,
    /// `REG_BADRPT`: `*`, `+`, `?` or `{` with nothing before it that can be repeated.
    NothingToRepeat,
    /// `REG_ESIZE`: a count above 32,767; or larger than [`super::Options`] allows.
    TooLarge,
}

/// Expression that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    pub kind: ErrorKind,
    /// Offset of the error in the expression, bytes from 0.
    pub at: usize,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ErrorKind::CollatingElement => "a collating element is one character here, as in [[.-.]]",
            ErrorKind::Class => {
                "no such character class; there are alnum, alpha, blank, cntrl, digit, graph, lower, print, punct, space, upper, xdigit"
            }
            ErrorKind::LoneBackslash => "a backslash needs a character behind it; write \\\\ for the backslash itself",
            ErrorKind::BackReference => "this back-reference has no complete group ( ) before it",
            ErrorKind::OpenBracket => "[ without ]; write \\[ for the bracket itself",
            ErrorKind::OpenGroup => "( without ); write \\( for the parenthesis itself",
            ErrorKind::OpenInterval => "{ without }; write \\{ for the brace itself",
            ErrorKind::Interval => {
                "an interval is {n}, {n,} or {n,m} with n not above m; write \\{ for the brace itself"
            }
            ErrorKind::Range => "a range in brackets goes from a lower to a higher character; put a literal - last",
            ErrorKind::NothingToRepeat => {
                "this operator has nothing before it to repeat; write \\* for the character itself"
            }
            ErrorKind::TooLarge => "the expression is too large",
        };
        write!(f, "at byte {}: {what}", self.at)
    }
}

impl std::error::Error for ExpressionError {}
