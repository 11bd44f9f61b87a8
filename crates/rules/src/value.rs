//! Values that a condition uses: fields, and look-ups in sets.

use crate::condition::Test;
use crate::field::{AddressField, Case, Facts, NumberField, TextField};
use crate::{SetId, Sets};
use std::fmt;
use std::net::IpAddr;

/// The input of an evaluation.
pub(crate) struct Input<'a, F: ?Sized> {
    pub(crate) facts: &'a F,
    pub(crate) sets: &'a Sets,
}

/// A value that is text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Text {
    Field(TextField),
    /// Header field; the name is in lower case.
    Header(Box<str>),
    /// Value of a key in a set. The name is for people.
    Of(SetId, Box<str>, Box<Key>),
}

/// Key of a look-up in a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Text(Text),
    Address(AddressField),
}

/// A value of any type that may be absent.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(Text),
    Number(NumberField),
    Address(AddressField),
}

impl Text {
    pub(crate) fn of<'a, F: Facts + ?Sized>(&self, input: &Input<'a, F>) -> Option<&'a [u8]> {
        match self {
            Self::Field(field) => input.facts.text(*field),
            Self::Header(name) => input.facts.header(name),
            Self::Of(set, _, key) => {
                let set = input.sets.set(*set)?;
                match &**key {
                    Key::Text(text) => set.text_value(text.of(input)?, text.case()),
                    Key::Address(field) => set.address_value(input.facts.address(*field)?),
                }
            }
        }
    }

    /// Visits the sets in which the value is looked up.
    pub(crate) fn each_set(&self, visit: &mut dyn FnMut(SetId)) {
        if let Self::Of(set, _, key) = self {
            visit(*set);
            if let Key::Text(text) = &**key {
                text.each_set(visit);
            }
        }
    }

    /// Tells whether `is_one` returns true for a part without which this value is absent.
    pub(crate) fn needs(&self, is_one: &dyn Fn(Test) -> bool) -> bool {
        match self {
            Self::Field(field) => is_one(Test::There(*field)),
            Self::Header(_) => false,
            Self::Of(_, _, key) => match &**key {
                Key::Text(text) => text.needs(is_one),
                Key::Address(field) => is_one(Test::Address(*field)),
            },
        }
    }

    pub(crate) fn case(&self) -> Case {
        match self {
            Self::Field(field) => field.case(),
            Self::Header(_) | Self::Of(..) => Case::Exact,
        }
    }
}

impl Value {
    pub(crate) fn is_present<F: Facts + ?Sized>(&self, input: &Input<'_, F>) -> bool {
        match self {
            Self::Text(text) => text.of(input).is_some(),
            Self::Number(field) => input.facts.number(*field).is_some(),
            Self::Address(field) => input.facts.address(*field).is_some(),
        }
    }

    /// Formats the value for operators: text in quotes, with control octets escaped and a long text truncated.
    pub(crate) fn shown<F: Facts + ?Sized>(&self, input: &Input<'_, F>) -> String {
        let found = match self {
            Self::Text(text) => text.of(input).map(shown),
            Self::Number(field) => input.facts.number(*field).map(|number| number.to_string()),
            Self::Address(field) => {
                input.facts.address(*field).map(|address: IpAddr| address.to_canonical().to_string())
            }
        };
        found.unwrap_or_else(|| "absent".into())
    }
}

/// Maximum number of octets of a text in the output.
const SHOWN: usize = 64;

fn shown(text: &[u8]) -> String {
    let part = &text[..text.len().min(SHOWN)];
    let more = if part.len() < text.len() { "..." } else { "" };
    let read: String = String::from_utf8_lossy(part)
        .chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect();
    format!("'{read}{more}'")
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(field) => f.write_str(field.name()),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Of(_, name, key) => write!(f, "{name}[{key}]"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => text.fmt(f),
            Self::Address(field) => f.write_str(field.name()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => text.fmt(f),
            Self::Number(field) => f.write_str(field.name()),
            Self::Address(field) => f.write_str(field.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_text_has_no_control_octets_and_an_end() {
        assert_eq!(shown(b"alice"), "'alice'");
        assert_eq!(shown("é\r\n\x1b[1m".as_bytes()), "'é\\r\\n\\u{1b}[1m'");
        assert_eq!(shown(&[b'x'; 65]).len(), SHOWN + 5);
        assert_eq!(shown(b"\xff"), "'\u{fffd}'");
    }
}
