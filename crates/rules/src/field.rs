//! The table of fields of a request that a condition can test, and the trait that supplies their values.

use std::net::IpAddr;

/// Case sensitivity of the texts of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Octet by octet.
    Exact,
    /// Without regard to the case of ASCII letters.
    Ignored,
}

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Bytes, mostly readable.
    Text(Case),
    /// A whole number.
    Number,
    /// An IPv4 or IPv6 address.
    Address,
    /// True or false.
    Flag,
}

impl Type {
    /// Returns the name in a sentence.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Number => "a number",
            Self::Address => "an address",
            Self::Flag => "a flag",
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name in conditions; `header.NAME` represents all header fields.
    pub name: &'static str,
    /// Type of its value.
    pub of: Type,
    /// Meaning in one line.
    pub doc: &'static str,
}

/// The facts of one request. A condition asks for a value only when it needs it, perhaps several times, so an answer
/// should be cheap and allocate nothing.
pub trait Facts {
    /// Returns the text of a field; `None` if the request does not have it.
    fn text(&self, field: TextField) -> Option<&[u8]>;
    /// Returns the first value of a header field. The name is in lower case, as the condition spells it: long form or
    /// compact.
    fn header(&self, name: &str) -> Option<&[u8]>;
    /// Returns the number of a field; `None` if the request does not have it.
    fn number(&self, field: NumberField) -> Option<u64>;
    /// Address of a field; `None` if the request does not have it.
    fn address(&self, field: AddressField) -> Option<IpAddr>;
    /// Returns the value of a flag.
    fn flag(&self, field: FlagField) -> bool;
}

/// Case sensitivity of a text field, from the words after its name.
macro_rules! of {
    (TextField) => {
        Type::Text(Case::Exact)
    };
    (TextField ignoring case) => {
        Type::Text(Case::Ignored)
    };
    (NumberField) => {
        Type::Number
    };
    (AddressField) => {
        Type::Address
    };
    (FlagField) => {
        Type::Flag
    };
}

macro_rules! fields {
    ($($(#[doc = $of_doc:literal])+ $of:ident { $(
        #[doc = $doc:literal]
        $field:ident = $name:literal $(ignoring $case:ident)?;
    )+ })+) => {
        $(
            $(#[doc = $of_doc])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $of { $(#[doc = concat!("`", $name, "`:", $doc)] $field,)+ }

            impl $of {
                /// All fields of this type.
                pub const ALL: &'static [Self] = &[$(Self::$field,)+];

                /// Returns the name in conditions.
                pub const fn name(self) -> &'static str {
                    match self { $(Self::$field => $name,)+ }
                }

                /// Returns the type of its value.
                pub const fn of(self) -> Type {
                    match self { $(Self::$field => of!($of $(ignoring $case)?),)+ }
                }
            }
        )+

        /// The table of fields.
        pub const FIELDS: &[Row] = &[
            $($(Row { name: $name, of: of!($of $(ignoring $case)?), doc: $doc.trim_ascii() },)+)+
            Row {
                name: "header.NAME",
                of: Type::Text(Case::Exact),
                doc: "First value of the header field NAME in the message as it came, such as header.User-Agent; the case of NAME does not matter.",
            },
        ];

        impl Field {
            fn of_table(name: &str) -> Option<Self> {
                match name { $($($name => Some($of::$field.into()),)+)+ _ => None }
            }
        }
    };
}

fields! {
    /// A field whose value is text.
    TextField {
        /// Method of the request, such as INVITE.
        Method = "method";
        /// Transport by which the request came: udp, tcp, tls, ws or wss.
        Transport = "transport" ignoring case;
        /// Name of the group that the source of the request belongs to.
        SourceGroup = "source.group";
        /// User part of the URI in From, escapes decoded: `%62ob` is `bob`.
        FromUser = "from.user";
        /// Host of the URI in From.
        FromDomain = "from.domain" ignoring case;
        /// The URI in From as received, without decoding.
        FromUri = "from.uri";
        /// Scheme of the URI in From: sip, sips, tel or another.
        FromScheme = "from.scheme" ignoring case;
        /// User part of the URI in To, escapes decoded: `%62ob` is `bob`.
        ToUser = "to.user";
        /// Host of the URI in To.
        ToDomain = "to.domain" ignoring case;
        /// The URI in To as received, without decoding.
        ToUri = "to.uri";
        /// Scheme of the URI in To: sip, sips, tel or another.
        ToScheme = "to.scheme" ignoring case;
        /// User part of the Request-URI, escapes decoded.
        RequestUser = "request.user";
        /// Host of the Request-URI without a dot at its end. The domain replaces an alias or an address of the server, also in `from.domain`, `to.domain`.
        RequestDomain = "request.domain" ignoring case;
        /// The Request-URI as received, without decoding.
        RequestUri = "request.uri";
        /// Scheme of the Request-URI: sip, sips or tel.
        RequestScheme = "request.scheme" ignoring case;
        /// Name of the authenticated user as the database stores it: without the domain, even if the phone sends one.
        User = "user";
        /// The number that was dialled, without separators and parameters; see [Numbers](#numbers).
        Number = "number";
    }
    /// A field whose value is a number.
    NumberField {
        /// Port from which the request came.
        SourcePort = "source.port";
        /// Port of the URI in From, if it names one.
        FromPort = "from.port";
        /// Port of the URI in To, if it names one.
        ToPort = "to.port";
        /// Port of the Request-URI, if it names one.
        RequestPort = "request.port";
        /// Size of the message in bytes.
        Size = "size";
        /// Octets of the Request-URI.
        RequestLength = "request.length";
        /// Max-Forwards of the request as it came.
        MaxForwards = "max_forwards";
    }
    /// A field whose value is an address.
    AddressField {
        /// Address from which the request came.
        SourceAddress = "source.address";
    }
    /// A field that holds or does not.
    FlagField {
        /// The domain of From is one of ours.
        FromLocal = "from.local";
        /// The domain of To is one of ours.
        ToLocal = "to.local";
        /// The domain of the Request-URI is one of ours, or names this server.
        RequestLocal = "request.local";
        /// A Route to another server, or the `maddr` of the Request-URI, determines the next hop in place of the domain of the Request-URI.
        RequestRouted = "request.routed";
        /// The sender has proved by a password that it is the user whom the request names.
        Authenticated = "authenticated";
        /// The request belongs to a dialog: its To has a tag. The dialog of an INVITE must be known as one that this server has forwarded.
        InDialog = "in_dialog";
    }
}

impl TextField {
    /// Returns the case sensitivity of the field's texts.
    pub const fn case(self) -> Case {
        match self.of() {
            Type::Text(case) => case,
            _ => Case::Exact,
        }
    }
}

/// Any field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Text(TextField),
    /// Header field; the name is in lower case.
    Header(Box<str>),
    Number(NumberField),
    Address(AddressField),
    Flag(FlagField),
}

impl Field {
    /// The prefix of header fields.
    pub(crate) const HEADER: &str = "header.";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.strip_prefix(Self::HEADER) {
            Some(header) if !header.is_empty() => Some(Self::Header(header.to_ascii_lowercase().into())),
            _ => Self::of_table(name),
        }
    }
}

macro_rules! from {
    ($($of:ident => $kind:ident,)+) => {
        $(impl From<$of> for Field {
            fn from(field: $of) -> Self {
                Self::$kind(field)
            }
        })+
    };
}

from! {
    TextField => Text,
    NumberField => Number,
    AddressField => Address,
    FlagField => Flag,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_found_by_its_name_and_has_a_line() {
        for row in FIELDS.iter().filter(|row| row.name != "header.NAME") {
            assert!(Field::named(row.name).is_some(), "{row:?}");
            assert!(row.doc.ends_with('.') && row.doc.len() > 10, "{row:?}");
        }
        assert_eq!(Field::named("request"), None);
        assert_eq!(Field::named("header."), None);
        assert_eq!(Field::named("header.X-Way"), Some(Field::Header("x-way".into())));
    }

    #[test]
    fn methods_and_users_have_a_case_domains_have_none() {
        assert_eq!(TextField::Method.case(), Case::Exact);
        assert_eq!(TextField::FromUser.case(), Case::Exact);
        assert_eq!(TextField::FromDomain.case(), Case::Ignored);
        assert_eq!(TextField::Transport.case(), Case::Ignored);
        assert_eq!(TextField::RequestScheme.case(), Case::Ignored);
    }
}
