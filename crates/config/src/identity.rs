//! Lists of identities (RFC 3325): numbers and URIs that an account may show, or that a rule asserts.

use strowger_message::Uri;
use strowger_message::uri::tel::dialled;
use strowger_rules::{SetId, SetNames};
use toml::Spanned;
use toml::de::DeValue;

use super::check_action::{NOT_TRANSLATING, translates};
use super::key::{Key, Role, Rule, Text};
use super::name::{Name, Reference, read_reference};
use super::reader::{Reader, Section};
use super::report::Fault;
use super::set::SetTable;

/// List of identities: numbers, ranges of numbers and SIP URIs, with commas or spaces between them.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityList<'a>(&'a str);

/// Entry of an [`IdentityList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityEntry<'a> {
    /// One number, such as `+49301234560`.
    Number(&'a str),
    /// All numbers with this beginning, such as `+4930123*`.
    Prefix(&'a str),
    /// First and last number of a range, such as `+49301200..+49301299`: numbers of this length.
    Range(&'a str, &'a str),
    /// A SIP URI.
    Uri(&'a str),
}

impl<'a> IdentityEntry<'a> {
    fn read(text: &'a str) -> Option<Self> {
        if text.contains(':') {
            return matches!(Uri::parse(text.as_bytes()), Ok(Uri::Sip(uri)) if uri.user.is_some())
                .then_some(Self::Uri(text));
        }
        if let Some(prefix) = text.strip_suffix('*') {
            return (prefix.is_empty() || prefix == "+" || is_number(prefix)).then_some(Self::Prefix(prefix));
        }
        if let Some((first, last)) = text.split_once("..") {
            let fits = is_number(first) && is_number(last) && first.len() == last.len() && first <= last;
            return (fits && first.starts_with('+') == last.starts_with('+')).then_some(Self::Range(first, last));
        }
        is_number(text).then_some(Self::Number(text))
    }

    fn admits_number(&self, number: &str) -> bool {
        match self {
            Self::Number(own) => *own == number,
            Self::Prefix(prefix) => number.starts_with(prefix) && is_number(number),
            Self::Range(first, last) => {
                let is_alike = number.len() == first.len() && number.starts_with('+') == first.starts_with('+');
                is_alike && (*first..=*last).contains(&number)
            }
            Self::Uri(_) => false,
        }
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

impl<'a> IdentityList<'a> {
    /// Reads a text as a list. An entry that cannot be read admits no identity.
    pub const fn of(text: &'a str) -> Self {
        Self(text)
    }

    fn texts(self) -> impl Iterator<Item = &'a str> {
        self.0.split([',', ' ']).filter(|text| !text.is_empty())
    }

    /// Returns the readable entries.
    pub fn entries(self) -> impl Iterator<Item = IdentityEntry<'a>> {
        self.texts().filter_map(IdentityEntry::read)
    }

    /// Returns the first entry that is a single identity: the default.
    pub fn first(self) -> Option<IdentityEntry<'a>> {
        self.entries().find(|entry| matches!(entry, IdentityEntry::Number(_) | IdentityEntry::Uri(_)))
    }

    /// Tells whether a number without visual separators is in the list.
    pub fn admits_number(self, number: &[u8]) -> bool {
        std::str::from_utf8(number).is_ok_and(|number| self.entries().any(|entry| entry.admits_number(number)))
    }

    /// Returns the URI of the list with this address-of-record. `aor` returns the address-of-record of a URI.
    pub fn uri(self, uri: &Uri<'_>, aor: impl Fn(&Uri<'_>) -> Vec<u8>) -> Option<&'a str> {
        let wanted = aor(uri);
        self.entries().find_map(|entry| match entry {
            IdentityEntry::Uri(text) => {
                Uri::parse(text.as_bytes()).is_ok_and(|own| aor(&own) == wanted).then_some(text)
            }
            _ => None,
        })
    }

    /// Returns the first entry that cannot be read.
    fn fault(self) -> Option<&'a str> {
        self.texts().find(|text| IdentityEntry::read(text).is_none())
    }
}

/// Description of a list in error messages.
const LIST: &str = "numbers such as \"+49301234560\", \"+4930123*\" or \"+49301200..+49301299\", or a SIP URI, with commas between them";

/// Identities that a rule asserts.
#[derive(Debug, Clone, PartialEq)]
pub enum Identities {
    /// One list for all senders.
    List(String),
    /// A set with a list for each account.
    Set(Reference<SetTable>),
}

impl Key for Identities {
    const ROLE: Role = Role::Reference(SetTable::NAME);

    fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self> {
        match value.get_ref() {
            // A name begins with a letter, and a scheme ends with a colon.
            DeValue::String(text)
                if text.starts_with(|first: char| first.is_ascii_alphabetic()) && Name::is_one(text) =>
            {
                read_reference(path, value, "a number begins with + or a digit, a URI with sip:", reader).map(Self::Set)
            }
            DeValue::String(text) => {
                let list = IdentityList::of(text);
                if let Some(wrong) = list.fault().or_else(|| list.0.trim().is_empty().then_some("")) {
                    let message = format!("{path} has {wrong:?}, which is neither a number nor a SIP URI");
                    reader.error(value.span(), message, format!("write {}", Self::allowed(rule)));
                    return None;
                }
                Some(Self::List(text.to_string()))
            }
            _ => {
                reader.wrong_type(path, value, "text", format!("write {}", Self::allowed(rule)));
                None
            }
        }
    }

    fn write(&self, rule: &Rule) -> String {
        match self {
            Self::List(text) => text.write(rule),
            Self::Set(name) => name.write(rule),
        }
    }

    fn allowed(_: &Rule) -> String {
        format!("{LIST}, or the name of a `[[set]]`")
    }
}

/// [`Identities`], compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentitySource {
    /// An [`IdentityList`].
    List(Box<str>),
    /// A set with a list for each account.
    Set(SetId),
}

impl IdentitySource {
    pub(super) fn of(identities: Option<&Identities>, names: &SetNames) -> Option<Self> {
        match identities? {
            Identities::List(text) => Some(Self::List(text.as_str().into())),
            // A set that does not exist was noted when the reference was read.
            Identities::Set(set) => names.id(set.name()).map(Self::Set),
        }
    }
}

/// Notes a set without values, and each value of its inline entries that is no list of identities. Entries of a file or database are not checked.
pub(super) fn check_set(set: &Reference<SetTable>, path: &str, sets: &[SetTable], reader: &mut Reader) {
    let span = reader.value_of(path);
    if !translates(set, sets) {
        let message = format!("{path} names a set that has no value for a text");
        return reader.push(Fault::error(span, message, NOT_TRANSLATING));
    }
    let Some(place) = sets.iter().position(|table| table.name == *set.name()) else { return };
    for (index, (key, value)) in sets[place].entries.iter().enumerate() {
        if let Some(wrong) = IdentityList::of(value.unwrap_or_default()).fault() {
            let span = reader.value_of(&format!("set[{place}].entries[{index}]"));
            let message = format!("set '{}' has {wrong:?} for '{key}', which is no identity", set.name());
            reader.push(Fault::error(span, message, format!("write {LIST}")));
        }
    }
}

/// Emergency number, such as 112.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmergencyNumber(String);

impl EmergencyNumber {
    /// Returns the number without visual separators.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text for EmergencyNumber {
    const EXPECTED: &'static str = "a number as it is dialled, such as \"112\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let number = dialled(text.as_bytes()).map(|number| number.map(char::from).collect());
        number.map(Self).ok_or_else(|| format!("is {text:?}, which is no number"))
    }

    fn to_text(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Report, Source};
    use super::*;

    fn read(text: &str) -> Result<Config, Report> {
        Config::read(Source { text, ..Source::default() }).map(|(config, _)| config)
    }

    #[test]
    fn numbers_ranges_and_uris() {
        let list = IdentityList::of("+4930120, +49301200..+49301299,4940*  sip:desk@example.org");
        for number in ["+4930120", "+49301200", "+49301250", "+49301299", "4940", "494012345"] {
            assert!(list.admits_number(number.as_bytes()), "{number}");
        }
        for number in ["+49301300", "+493012000", "49301250", "+4940", "4940#1", "", "+4930121", "desk"] {
            assert!(!list.admits_number(number.as_bytes()), "{number}");
        }
        assert_eq!(list.first(), Some(IdentityEntry::Number("+4930120")));
        let aor = |uri: &Uri<'_>| {
            let mut aor = Vec::new();
            uri.write_aor(&mut aor);
            aor
        };
        let uri = |text: &str| list.uri(&Uri::parse(text.as_bytes()).expect("a URI"), aor);
        assert_eq!(uri("sip:%64esk@EXAMPLE.org;user=phone"), Some("sip:desk@example.org"));
        assert_eq!(uri("sip:desk@example.net"), None);
        assert!(IdentityList::of("*").admits_number(b"0301") && IdentityList::of("+*").admits_number(b"+1"));
        assert_eq!(IdentityList::of("+4930*").first(), None);
    }

    #[test]
    fn what_is_no_identity_is_refused_with_its_place() {
        let set = |value: &str| {
            format!("auth.identities = \"dids\"\n[[set]]\nname = \"dids\"\nentries = {{ pbx = \"{value}\" }}")
        };
        let rule = |value: &str| format!("[[rule]]\nname = \"out\"\nidentity = \"{value}\"\n");
        for wrong in ["4930x", "+49..50", "+12..+11", "12..+1", "sip:example.org", "tel:+1", "++1*"] {
            assert!(read(&set(wrong)).expect_err(wrong).to_string().contains("no identity"), "{wrong}");
            assert!(read(&rule(wrong)).is_err(), "{wrong}");
        }
        for right in ["+4930", "4930*", "10..19", "sip:+4930@carrier.example;user=phone", "+1, +2"] {
            read(&set(right)).unwrap_or_else(|report| panic!("{report}"));
            read(&rule(right)).unwrap_or_else(|report| panic!("{report}"));
        }
        let without = "auth.identities = \"dids\"\n[[set]]\nname = \"dids\"\nentries = [\"pbx\"]";
        assert!(read(without).expect_err("no values").to_string().contains("no value for a text"));
        assert!(read(&rule("dids")).expect_err("no set").to_string().contains("there is no [[set]] table"));
    }
}
