//! Parses an expression into a tree: the extended regular expressions of POSIX (XBD 9.4) as the GNU C library reads
//! them, with its escapes and its choices where POSIX leaves the meaning undefined.
//!
//! Undefined in POSIX and decided here, each checked against `regcomp` in the tests: an operator with nothing to repeat
//! (`*a`, `a|*`, `^*`, `{1}`) is an error; an empty branch (`a|`, `()`, `a||b`) matches the empty string; a `)` that
//! closes nothing is a character; `{,3}` is `{0,3}`; `a{0}` vanishes; `\1` to `\9` are back-references.

use super::bracket;
use super::bytes::ByteSet;
use super::error::{ErrorKind, ExpressionError};

/// Limit of a count in an interval (`RE_DUP_MAX`).
const REPEAT_MAX: u32 = 0x7fff;

/// Conditions on a position, as bits that can be combined.
pub(super) mod condition {
    pub(crate) const AFTER_WORD: u8 = 1;
    pub(crate) const AFTER_NO_WORD: u8 = 2;
    pub(crate) const AT_START: u8 = 4;
    pub(crate) const BEFORE_WORD: u8 = 8;
    pub(crate) const BEFORE_NO_WORD: u8 = 16;
    pub(crate) const AT_END: u8 = 32;
    pub(crate) const AFTER: u8 = AFTER_WORD | AFTER_NO_WORD | AT_START;
}

/// Part of an expression. A part that matches only the empty string and leaves no trace is `None` one level up.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Byte(u8),
    Set(Box<ByteSet>),
    /// Condition on a position, see [`condition`].
    Position(u8),
    BackReference(usize),
    Concatenation(Vec<Self>),
    /// Two or more branches; an empty one is `None`.
    Alternation(Vec<Option<Self>>),
    Group {
        index: usize,
        body: Option<Box<Self>>,
    },
    /// Repetition; `most` is `None` without a bound; never {0,0} and never {1,1}.
    Repeat {
        body: Box<Self>,
        least: u32,
        most: Option<u32>,
    },
}

/// Parsed expression.
#[derive(Debug)]
pub(super) struct Syntax {
    pub(super) tree: Option<Tree>,
    pub(super) groups: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    Any,
    Open,
    Close,
    Or,
    Star,
    Plus,
    Question,
    OpenInterval,
    CloseInterval,
    OpenBracket,
    Position(u8),
    WordEdge,
    WordInside,
    BackReference(usize),
    /// Letter of `\w`, `\s` or their opposites.
    Class(u8),
    /// Backslash as the last byte.
    LoneBackslash,
    End,
}

pub(super) struct Parser<'a> {
    pattern: &'a [u8],
    /// Position after the token.
    at: usize,
    /// Start of the token.
    token_at: usize,
    token: Token,
    ignore_case: bool,
    depth_max: usize,
    groups: usize,
    /// Total number of operators on parts that another operator repeats already (`a+*`). Each of them makes the tree
    /// higher.
    stacked: usize,
    /// Bit n: group n + 1 is complete on this path through the alternatives, so `\n+1` is allowed.
    complete: u16,
}

/// Parses `pattern`; groups may nest `depth_max` deep.
pub(super) fn parse(pattern: &[u8], ignore_case: bool, depth_max: usize) -> Result<Syntax, ExpressionError> {
    let mut parser = Parser {
        pattern,
        at: 0,
        token_at: 0,
        token: Token::End,
        ignore_case,
        depth_max,
        groups: 0,
        stacked: 0,
        complete: 0,
    };
    parser.advance();
    let tree = parser.alternation(0)?;
    Ok(Syntax { tree, groups: parser.groups })
}

impl Parser<'_> {
    fn fail<T>(&self, kind: ErrorKind, at: usize) -> Result<T, ExpressionError> {
        Err(ExpressionError { kind, at })
    }

    /// Folds a byte: if case is ignored, both expression and text are read in upper case.
    fn fold(&self, byte: u8) -> u8 {
        if self.ignore_case { byte.to_ascii_uppercase() } else { byte }
    }

    fn advance(&mut self) {
        self.token_at = self.at;
        let Some(&byte) = self.pattern.get(self.at) else {
            self.token = Token::End;
            return;
        };
        self.at += 1;
        self.token = match byte {
            b'\\' => match self.pattern.get(self.at) {
                None => Token::LoneBackslash,
                Some(&escaped) => {
                    self.at += 1;
                    match escaped {
                        b'1'..=b'9' => Token::BackReference(usize::from(escaped - b'1')),
                        b'<' => Token::Position(condition::BEFORE_WORD | condition::AFTER_NO_WORD),
                        b'>' => Token::Position(condition::AFTER_WORD | condition::BEFORE_NO_WORD),
                        b'b' => Token::WordEdge,
                        b'B' => Token::WordInside,
                        b'`' => Token::Position(condition::AT_START),
                        b'\'' => Token::Position(condition::AT_END),
                        b'w' | b'W' | b's' | b'S' => Token::Class(escaped),
                        // An escaped letter is not folded: without regard to case `\a` matches no letter at all.
                        other => Token::Byte(other),
                    }
                }
            },
            b'.' => Token::Any,
            b'(' => Token::Open,
            b')' => Token::Close,
            b'|' => Token::Or,
            b'*' => Token::Star,
            b'+' => Token::Plus,
            b'?' => Token::Question,
            b'{' => Token::OpenInterval,
            b'}' => Token::CloseInterval,
            b'[' => Token::OpenBracket,
            b'^' => Token::Position(condition::AT_START),
            b'$' => Token::Position(condition::AT_END),
            other => Token::Byte(self.fold(other)),
        };
    }

    fn branch_ends(&self, depth: usize) -> bool {
        matches!(self.token, Token::Or | Token::End) || (depth > 0 && self.token == Token::Close)
    }

    fn alternation(&mut self, depth: usize) -> Result<Option<Tree>, ExpressionError> {
        let before = self.complete;
        let first = self.branch(depth)?;
        if self.token != Token::Or {
            return Ok(first);
        }
        let mut branches = vec![first];
        while self.token == Token::Or {
            self.advance();
            if self.branch_ends(depth) {
                branches.push(None);
                continue;
            }
            // A branch cannot refer to a group of another branch.
            let so_far = std::mem::replace(&mut self.complete, before);
            branches.push(self.branch(depth)?);
            self.complete |= so_far;
        }
        Ok(Some(Tree::Alternation(branches)))
    }

    fn branch(&mut self, depth: usize) -> Result<Option<Tree>, ExpressionError> {
        let mut parts = Vec::new();
        while !self.branch_ends(depth) {
            parts.extend(self.repeated(depth)?);
        }
        Ok(if parts.len() > 1 { Some(Tree::Concatenation(parts)) } else { parts.pop() })
    }

    /// Parses one atom and the operators after it.
    fn repeated(&mut self, depth: usize) -> Result<Option<Tree>, ExpressionError> {
        let at = self.token_at;
        let mut tree = match self.token {
            Token::Byte(byte) => Some(Tree::Byte(byte)),
            // A ) without group is a character.
            Token::Close => Some(Tree::Byte(b')')),
            Token::CloseInterval => Some(Tree::Byte(b'}')),
            Token::Any => Some(Tree::Set(Box::new(ByteSet::all()))),
            Token::Class(letter) => {
                let class = if letter.eq_ignore_ascii_case(&b'w') { ByteSet::word() } else { ByteSet::space() };
                Some(Tree::Set(Box::new(if letter.is_ascii_uppercase() { class.inverse() } else { class })))
            }
            Token::BackReference(group) => {
                if self.complete & (1 << group) == 0 {
                    return self.fail(ErrorKind::BackReference, at);
                }
                Some(Tree::BackReference(group))
            }
            Token::OpenBracket => {
                let (set, end) = bracket::parse(self.pattern, self.at, self.ignore_case)?;
                self.at = end;
                Some(Tree::Set(Box::new(set)))
            }
            Token::Open => self.group(depth + 1)?,
            // A position cannot be repeated, so an operator after it has nothing to repeat.
            Token::Position(condition) => {
                self.advance();
                return Ok(Some(Tree::Position(condition)));
            }
            Token::WordEdge => {
                self.advance();
                return Ok(Some(Tree::Alternation(vec![
                    Some(Tree::Position(condition::AFTER_NO_WORD | condition::BEFORE_WORD)),
                    Some(Tree::Position(condition::AFTER_WORD | condition::BEFORE_NO_WORD)),
                ])));
            }
            Token::WordInside => {
                self.advance();
                return Ok(Some(Tree::Alternation(vec![
                    Some(Tree::Position(condition::AFTER_WORD | condition::BEFORE_WORD)),
                    Some(Tree::Position(condition::AFTER_NO_WORD | condition::BEFORE_NO_WORD)),
                ])));
            }
            Token::Star | Token::Plus | Token::Question | Token::OpenInterval => {
                return self.fail(ErrorKind::NothingToRepeat, at);
            }
            Token::LoneBackslash => return self.fail(ErrorKind::LoneBackslash, at),
            Token::Or | Token::End => return Ok(None),
        };
        self.advance();
        loop {
            let (least, most) = match self.token {
                Token::Star => (0, None),
                Token::Plus => (1, None),
                Token::Question => (0, Some(1)),
                Token::OpenInterval => self.interval()?,
                _ => return Ok(tree),
            };
            if matches!(tree, Some(Tree::Repeat { .. })) {
                self.stacked += 1;
                if self.stacked > self.depth_max {
                    return self.fail(ErrorKind::TooLarge, self.token_at);
                }
            }
            self.advance();
            tree = match tree {
                None => None,
                Some(_) if most == Some(0) => None,
                Some(tree) if (least, most) == (1, Some(1)) => Some(tree),
                Some(tree) => Some(Tree::Repeat { body: Box::new(tree), least, most }),
            };
        }
    }

    /// Parses a group from after `(` up to `)`, which it does not take.
    fn group(&mut self, depth: usize) -> Result<Option<Tree>, ExpressionError> {
        let at = self.token_at;
        if depth > self.depth_max {
            return self.fail(ErrorKind::TooLarge, at);
        }
        let index = self.groups;
        self.groups += 1;
        self.advance();
        let body = if self.token == Token::Close { None } else { self.alternation(depth)? };
        if self.token != Token::Close {
            return self.fail(ErrorKind::OpenGroup, at);
        }
        if index < 9 {
            self.complete |= 1 << index;
        }
        Ok(Some(Tree::Group { index, body: body.map(Box::new) }))
    }

    /// Parses an interval from after `{`; the token is `}` afterwards.
    fn interval(&mut self) -> Result<(u32, Option<u32>), ExpressionError> {
        let at = self.token_at;
        let broken = |parser: &Self| {
            let kind = if parser.token == Token::End { ErrorKind::OpenInterval } else { ErrorKind::Interval };
            Err(ExpressionError { kind, at })
        };
        let Some(least) = self.number() else { return broken(self) };
        let comma = self.token == Token::Byte(b',');
        let least = match least {
            Some(number) => number,
            None if comma => 0,
            None => return self.fail(ErrorKind::Interval, at),
        };
        let most = if self.token == Token::CloseInterval {
            Some(least)
        } else if comma {
            match self.number() {
                Some(most) => most,
                None => return broken(self),
            }
        } else {
            return broken(self);
        };
        if most.is_some_and(|most| least > most) || self.token != Token::CloseInterval {
            return self.fail(ErrorKind::Interval, at);
        }
        if most.unwrap_or(least) > REPEAT_MAX {
            return self.fail(ErrorKind::TooLarge, at);
        }
        Ok((least, most))
    }

    /// Parses digits up to `,` or `}`: `None` if other text follows, `Some(None)` without digits.
    #[expect(clippy::option_option, reason = "absent and wrong are different answers")]
    fn number(&mut self) -> Option<Option<u32>> {
        let mut number = Some(None);
        loop {
            self.advance();
            match self.token {
                Token::End => return None,
                Token::CloseInterval | Token::Byte(b',') => return number,
                Token::Byte(digit @ b'0'..=b'9') => {
                    number = number.map(|so_far: Option<u32>| {
                        Some((so_far.unwrap_or(0) * 10 + u32::from(digit - b'0')).min(REPEAT_MAX + 1))
                    });
                }
                _ => number = None,
            }
        }
    }
}
