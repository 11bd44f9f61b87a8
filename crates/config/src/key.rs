//! A key of the file: how its value is read, checked against its range and written back.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::reader::Reader;

mod duration;

pub(crate) use self::duration::duration_text;

/// Range, unit and other properties of a key, written as a constant next to the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    unit: Unit,
    low: u64,
    high: u64,
    word: Option<&'static str>,
    fixed: bool,
    required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Plain,
    Bytes,
    Milliseconds,
}

impl Rule {
    /// Returns the rule that admits any value of the type.
    pub(crate) const fn any() -> Self {
        Self { unit: Unit::Plain, low: 0, high: u64::MAX, word: None, fixed: false, required: false }
    }

    /// Returns the rule for a whole number from `low` to `high`, both included.
    pub(crate) const fn number(low: u64, high: u64) -> Self {
        Self { low, high, ..Self::any() }
    }

    /// Returns the rule for a size from `low` to `high` bytes, written as a number of bytes or as text such as `"64KiB"`.
    pub(crate) const fn bytes(low: u64, high: u64) -> Self {
        Self { unit: Unit::Bytes, low, high, ..Self::any() }
    }

    /// Returns the rule for a duration from `low` to `high`, written with its unit, such as `"500ms"`.
    pub(crate) const fn time(low: Duration, high: Duration) -> Self {
        let (low, high) = (low.as_millis() as u64, high.as_millis() as u64);
        Self { unit: Unit::Milliseconds, low, high, ..Self::any() }
    }

    /// Tells whether a duration lies between the bounds.
    fn admits(&self, found: Duration) -> bool {
        (u128::from(self.low)..=u128::from(self.high)).contains(&found.as_millis())
    }

    /// Adds a word that the file uses for an absent value (an `Option` that is `None`).
    pub(crate) const fn or(self, word: &'static str) -> Self {
        Self { word: Some(word), ..self }
    }

    /// Marks a key whose change needs a restart, because a process keeps the value until it ends.
    pub(crate) const fn fixed(self) -> Self {
        Self { fixed: true, ..self }
    }

    pub(crate) const fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Marks a key that each table of a list must have.
    pub(crate) const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub(crate) const fn is_required(&self) -> bool {
        self.required
    }
}

/// Meaning of the value of a key for other tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// No role.
    Value,
    /// Name by which other tables refer to its table.
    Name,
    /// Name or names of tables of this list.
    Reference(&'static str),
}

/// A value that a key of the file can have.
pub(crate) trait Key: Sized {
    /// Role of the value for other tables.
    const ROLE: Role = Role::Value;

    /// Reads the value of the key `path`. Notes a fault and returns `None` if the value is not admitted.
    fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self>;
    /// Writes the value as TOML.
    fn write(&self, rule: &Rule) -> String;
    /// Describes the admitted values for the documentation.
    fn allowed(rule: &Rule) -> String;
    /// Makes a relative path start at this folder.
    fn resolve(&mut self, _folder: &Path) {}
}

/// Writes text as a basic string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Returns the kind of a value, as a noun with its article for a message.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl Reader {
    /// Notes that the value has another type than the key needs.
    pub(super) fn wrong_type(
        &mut self,
        path: &str,
        value: &Spanned<DeValue<'_>>,
        wanted: &str,
        cure: impl Into<String>,
    ) {
        let message = format!("{path} must be {wanted}, not {}", kind(value.get_ref()));
        self.error(value.span(), message, cure);
    }
}

impl Key for bool {
    fn read(path: &str, value: &Spanned<DeValue<'_>>, _: &Rule, reader: &mut Reader) -> Option<Self> {
        if let DeValue::Boolean(value) = value.get_ref() {
            return Some(*value);
        }
        reader.wrong_type(path, value, "true or false", "write true or false, without quotes");
        None
    }

    fn write(&self, _: &Rule) -> String {
        self.to_string()
    }

    fn allowed(_: &Rule) -> String {
        "`true` or `false`".into()
    }
}

fn read_whole(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, most: u64, reader: &mut Reader) -> Option<u64> {
    let cure = format!("write {}", range_in_words(rule, most));
    let number = match value.get_ref() {
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok(),
        DeValue::String(text) if rule.unit == Unit::Bytes => match size(text) {
            Some(bytes) => Some(i128::from(bytes)),
            None => {
                reader.error(value.span(), format!("{path} is {text:?}, which is not a size"), cure);
                return None;
            }
        },
        _ => {
            let wanted = if rule.unit == Unit::Bytes { "a size" } else { "a whole number" };
            reader.wrong_type(path, value, wanted, cure);
            return None;
        }
    };
    match number.and_then(|number| u64::try_from(number).ok()) {
        Some(number) if number >= rule.low && number <= rule.high.min(most) => Some(number),
        _ => {
            reader.error(value.span(), format!("{path} is out of its range"), cure);
            None
        }
    }
}

fn range_in_words(rule: &Rule, most: u64) -> String {
    let high = rule.high.min(most);
    match (rule.unit, rule.low, high) {
        (Unit::Bytes, low, high) => {
            format!("a size from {} to {} bytes, as a number or like \"64KiB\" or \"4MiB\"", low, high)
        }
        (_, 0, u64::MAX) => "a whole number".into(),
        (_, low, u64::MAX) => format!("a whole number from {low}"),
        (_, low, high) => format!("a whole number from {low} to {high}"),
    }
}

/// Parses a size such as `64KiB`, `4 MiB`, `1GiB` or `512B` to bytes.
fn size(text: &str) -> Option<u64> {
    let split = text.find(|character: char| !character.is_ascii_digit())?;
    let (digits, unit) = text.split_at(split);
    let scale = match unit.trim() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

macro_rules! whole_numbers {
    ($($integer:ty),+) => {$(
        impl Key for $integer {
            fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self> {
                read_whole(path, value, rule, <$integer>::MAX as u64, reader)
                    .map(|number| number as $integer) // in range: `most` is the type's own
            }

            fn write(&self, _: &Rule) -> String {
                self.to_string()
            }

            fn allowed(rule: &Rule) -> String {
                range_in_words(rule, <$integer>::MAX as u64)
            }
        }
    )+};
}
whole_numbers!(u8, u16, u32, u64, usize);

/// Types that the file writes as one text.
pub(super) trait Text: Sized {
    /// Noun that names the text in a message, with an example.
    const EXPECTED: &'static str;
    /// Parses the text. The error is a part of a sentence that follows the name of the key.
    fn from_text(text: &str) -> Result<Self, String>;
    /// Writes the text as `from_text` reads it.
    fn to_text(&self) -> String;
    /// Makes a relative path start at this folder.
    fn resolve(&mut self, _folder: &Path) {}
}

impl<T: Text> Key for T {
    fn read(path: &str, value: &Spanned<DeValue<'_>>, _: &Rule, reader: &mut Reader) -> Option<Self> {
        let cure = || format!("write {}", T::EXPECTED);
        let DeValue::String(text) = value.get_ref() else {
            reader.wrong_type(path, value, "text", cure());
            return None;
        };
        match T::from_text(text) {
            Ok(found) => Some(found),
            Err(message) => {
                reader.error(value.span(), format!("{path} {message}"), cure());
                None
            }
        }
    }

    fn write(&self, _: &Rule) -> String {
        quoted(&self.to_text())
    }

    fn allowed(_: &Rule) -> String {
        T::EXPECTED.into()
    }

    fn resolve(&mut self, folder: &Path) {
        Text::resolve(self, folder);
    }
}

impl Text for String {
    const EXPECTED: &'static str = "text in quotes on one line";

    fn from_text(text: &str) -> Result<Self, String> {
        // Most of these texts are written into a header field, where a line end would let the text forge another header field.
        if text.chars().any(char::is_control) {
            return Err("contains a control character".into());
        }
        Ok(text.to_owned())
    }

    fn to_text(&self) -> String {
        self.clone()
    }
}

impl Text for PathBuf {
    const EXPECTED: &'static str = "a path in quotes; a relative one starts at the folder of the configuration file";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err("is not a path".into());
        }
        Ok(Self::from(text))
    }

    fn to_text(&self) -> String {
        self.to_string_lossy().into_owned()
    }

    fn resolve(&mut self, folder: &Path) {
        *self = folder.join(&*self);
    }
}

impl Text for IpAddr {
    const EXPECTED: &'static str = "an IP address such as \"192.0.2.10\" or \"2001:db8::10\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        bare.parse().map_err(|_| format!("is {text:?}, which is not an IP address"))
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl<T: Key> Key for Option<T> {
    const ROLE: Role = T::ROLE;

    fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self> {
        if let (DeValue::String(text), Some(word)) = (value.get_ref(), rule.word)
            && text == word
        {
            return Some(None);
        }
        let before = reader.fault_count();
        let found = T::read(path, value, rule, reader);
        if let (None, Some(word)) = (&found, rule.word)
            && !word.is_empty()
        {
            reader.amend(before, &or_word(&T::allowed(rule), word));
        }
        found.map(Some)
    }

    fn write(&self, rule: &Rule) -> String {
        match self {
            Some(value) => value.write(rule),
            None => quoted(rule.word.unwrap_or_default()),
        }
    }

    fn allowed(rule: &Rule) -> String {
        match rule.word {
            None => T::allowed(rule),
            Some("") => format!("{}, or \"\" for none", T::allowed(rule)),
            Some(word) => {
                let allowed = T::allowed(rule);
                let or = or_word(&allowed, word);
                allowed + &or
            }
        }
    }

    fn resolve(&mut self, folder: &Path) {
        self.iter_mut().for_each(|value| value.resolve(folder));
    }
}

/// Adds the word for an absent value to the description of the admitted values. For a list, the word replaces the whole list and is not an item.
fn or_word(allowed: &str, word: &str) -> String {
    match allowed.starts_with(LIST) {
        true => format!("; or \"{word}\" in place of the list"),
        false => format!(", or \"{word}\""),
    }
}

/// Beginning of the description of a list.
const LIST: &str = "a list; ";

impl<T: Key> Key for Vec<T> {
    const ROLE: Role = T::ROLE;

    fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self> {
        let DeValue::Array(items) = value.get_ref() else {
            let cure = format!("write a list in brackets; each item is {}", T::allowed(rule));
            reader.wrong_type(path, value, "a list", cure);
            return None;
        };
        // Reports each wrong item, not only the first.
        let mut read = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            reader.note_place(&path, item.span(), item.span());
            read.push(T::read(&path, item, rule, reader));
        }
        read.into_iter().collect()
    }

    fn write(&self, rule: &Rule) -> String {
        let items: Vec<String> = self.iter().map(|item| item.write(rule)).collect();
        format!("[{}]", items.join(", "))
    }

    fn allowed(rule: &Rule) -> String {
        format!("{LIST}each item is {}", T::allowed(rule))
    }

    fn resolve(&mut self, folder: &Path) {
        self.iter_mut().for_each(|value| value.resolve(folder));
    }
}

/// Defines an enum whose values are words of the file.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl $name {
            /// All values, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the word that the file uses.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Returns the value of a word of the file.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl $crate::key::Key for $name {
            fn read(
                path: &str,
                value: &toml::Spanned<toml::de::DeValue<'_>>,
                rule: &$crate::key::Rule,
                reader: &mut $crate::reader::Reader,
            ) -> Option<Self> {
                let found = match value.get_ref() {
                    toml::de::DeValue::String(text) => Self::from_word(text),
                    _ => None,
                };
                if found.is_none() {
                    let words: &[&str] = &[$($word),+];
                    reader.wrong_word(path, value, words, &Self::allowed(rule));
                }
                found
            }

            fn write(&self, _: &$crate::key::Rule) -> String {
                format!("\"{}\"", self.word())
            }

            fn allowed(_: &$crate::key::Rule) -> String {
                $crate::key::alternatives(&[$($word),+])
            }
        }
    };
}
pub(super) use words;

/// Joins words with commas and a final "or": `"a", "b" or "c"`.
pub(super) fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
