//! Splits a condition into tokens.

use crate::Fault;
use std::ops::Range;

/// Order relation between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderRelation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl OrderRelation {
    pub(crate) const fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

/// The smallest part with a meaning of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    /// A field, a set, a word of the language, a number, a size or an address; the parser decides which.
    Word(&'t str),
    /// Text between quotes.
    Text(&'t str),
    Compare(OrderRelation),
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
    End,
}

/// Tells whether a word may contain this character; `:` and `/` occur in addresses.
pub(crate) const fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':' | '/')
}

/// Returns the token that begins at `at` or after the blanks there, and its span.
pub(crate) fn next(text: &str, at: usize) -> Result<(Token<'_>, Range<usize>), Fault> {
    let rest = text[at..].trim_start_matches([' ', '\t', '\r', '\n']);
    let start = text.len() - rest.len();
    let Some(first) = rest.chars().next() else { return Ok((Token::End, start..start)) };
    if in_word(first) {
        let word = &rest[..rest.find(|c| !in_word(c)).unwrap_or(rest.len())];
        return Ok((Token::Word(word), start..start + word.len()));
    }
    if matches!(first, '\'' | '"') {
        let Some(length) = rest[1..].find(first) else {
            let cure = format!("text stands between two quotes: write another {first} behind its end");
            return Err(Fault::new(start..text.len(), "this quote is not closed", cure));
        };
        return Ok((Token::Text(&rest[1..=length]), start..start + length + 2));
    }
    let signs: [(&str, Token<'_>); 11] = [
        ("==", Token::Compare(OrderRelation::Equal)),
        ("!=", Token::Compare(OrderRelation::Unequal)),
        ("<=", Token::Compare(OrderRelation::LessOrEqual)),
        (">=", Token::Compare(OrderRelation::GreaterOrEqual)),
        ("<", Token::Compare(OrderRelation::Less)),
        (">", Token::Compare(OrderRelation::Greater)),
        ("(", Token::Open),
        (")", Token::Close),
        ("[", Token::OpenList),
        ("]", Token::CloseList),
        (",", Token::Comma),
    ];
    if let Some((sign, token)) = signs.iter().find(|(sign, _)| rest.starts_with(sign)) {
        return Ok((*token, start..start + sign.len()));
    }
    Err(unknown(rest, first, start))
}

/// Returns the cures for the operators of other languages from `at` on: a text with one of them usually has more.
pub(crate) fn foreign_signs(text: &str, mut at: usize) -> Vec<String> {
    let mut cures: Vec<String> = Vec::new();
    loop {
        match next(text, at) {
            Ok((Token::End, _)) => return cures,
            Ok((_, span)) => at = span.end,
            Err(fault) => {
                at = fault.span.end.max(at + 1);
                if fault.cure.starts_with("write `") {
                    let cure = format!("{} for `{}`", fault.cure, &text[fault.span]);
                    if !cures.contains(&cure) {
                        cures.push(cure);
                    }
                }
            }
        }
    }
}

/// Returns the fault of an unknown sign; for operators of other languages the cure names the operator of this language.
fn unknown(rest: &str, first: char, start: usize) -> Fault {
    let foreign = [
        ("=~", "write `matches`"),
        ("!~", "write `not` before the field and `matches` behind it"),
        ("=", "write `==`"),
        ("&&", "write `and`"),
        ("&", "write `and`"),
        ("||", "write `or`"),
        ("|", "write `or`"),
        ("!", "write `not`"),
        ("~", "write `matches`"),
        ("$", "fields stand by their names alone, such as from.user"),
    ];
    if let Some((sign, cure)) = foreign.iter().find(|(sign, _)| rest.starts_with(sign)) {
        return Fault::new(start..start + sign.len(), format!("`{sign}` means nothing here"), *cure);
    }
    let cure = match first {
        '‘' | '’' | '“' | '”' | '„' | '`' | '´' => "text stands between ' and ' or \" and \"",
        '+' | '*' | '#' => "a number with + * or # is text: write it between quotes",
        _ => "other text than fields, sets, numbers and addresses stands between quotes",
    };
    Fault::new(start..start + first.len_utf8(), format!("`{}` means nothing here", first.escape_debug()), cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let (mut at, mut tokens) = (0, Vec::new());
        loop {
            let (token, span) = next(text, at).expect("tokens");
            if token == Token::End {
                return tokens;
            }
            at = span.end;
            tokens.push(token);
        }
    }

    #[test]
    fn words_texts_and_signs_are_told_apart() {
        use Token::{Close, CloseList, Comma, Compare, Open, OpenList, Text, Word};
        assert_eq!(
            tokens("not(header.X-Y<=4KiB)in['a','\"b\"', \"it's\"]"),
            [
                Word("not"),
                Open,
                Word("header.X-Y"),
                Compare(OrderRelation::LessOrEqual),
                Word("4KiB"),
                Close,
                Word("in"),
                OpenList,
                Text("a"),
                Comma,
                Text("\"b\""),
                Comma,
                Text("it's"),
                CloseList
            ]
        );
        assert_eq!(tokens("2001:db8::/32 \t\r\n ::1"), [Word("2001:db8::/32"), Word("::1")]);
    }

    #[test]
    fn signs_of_other_languages_are_named_with_ours() {
        for (text, sign, cure) in [
            ("= 'x'", "`=`", "write `==`"),
            ("=~ 'x'", "`=~`", "write `matches`"),
            ("&& x", "`&&`", "write `and`"),
            ("!x", "`!`", "write `not`"),
            ("$ru", "`$`", "fields stand by their names alone, such as from.user"),
            ("‘x’", "`‘`", "text stands between ' and ' or \" and \""),
            ("+49", "`+`", "a number with + * or # is text: write it between quotes"),
        ] {
            let fault = next(text, 0).expect_err(text);
            assert_eq!((fault.message, fault.cure), (format!("{sign} means nothing here"), cure.to_owned()));
        }
        let fault = next("  'abc", 0).expect_err("an open quote");
        assert_eq!((fault.span, &fault.message[..]), (2..6, "this quote is not closed"));
    }
}
