//! Rules over requests: conditions in a small language, ordered lists of rules that have them, and the data sets that
//! they name.
//!
//! The one rule of use: compiled rules and sets are immutable. A new list of rules or a new set is built while the old
//! one is in use, and then replaces it. A request uses one list and one snapshot of the sets from beginning to end.
//!
//! ```
//! use std::net::IpAddr;
//! use std::sync::Arc;
//! use strowger_rules::{
//!     AddressField, Columns, Condition, Facts, FlagField, LookupKind, NumberField, Rule, Rules, Set, SetNames, Sets, TextField,
//! };
//!
//! // The facts of a request: here one call to a number in Berlin.
//! struct Call;
//!
//! impl Facts for Call {
//!     fn text(&self, field: TextField) -> Option<&[u8]> {
//!         match field {
//!             TextField::Method => Some(b"INVITE"),
//!             TextField::User => Some(b"alice"),
//!             TextField::Number => Some(b"4930123456"),
//!             _ => None,
//!         }
//!     }
//!     fn header(&self, name: &str) -> Option<&[u8]> {
//!         (name == "user-agent").then_some(b"phone 1.0")
//!     }
//!     fn number(&self, _: NumberField) -> Option<u64> {
//!         None
//!     }
//!     fn address(&self, _: AddressField) -> Option<IpAddr> {
//!         Some(IpAddr::from([192, 0, 2, 7]))
//!     }
//!     fn flag(&self, field: FlagField) -> bool {
//!         field == FlagField::Authenticated
//!     }
//! }
//!
//! // The sets: names and kinds are fixed when conditions are compiled, contents may change at any time.
//! let mut names = SetNames::default();
//! let carriers = names.add("carriers", LookupKind::Prefixes)?;
//! let offices = names.add("offices", LookupKind::Networks)?;
//! let text = b"prefix,carrier\n49,west\n4930,berlin\n";
//! let columns = Columns { key: "prefix", value: Some("carrier") };
//! let sets = Sets::empty(&names)
//!     .with(carriers, Arc::new(Set::read_csv(LookupKind::Prefixes, "carriers.csv", &text[..], columns)?))?
//!     .with(offices, Arc::new(Set::new(LookupKind::Networks, [("192.0.2.0/24", None::<&str>)])?))?;
//!
//! // The rules: this crate does not interpret their actions.
//! let rule = |name: &str, when: &str, action| {
//!     Condition::compile(when, &names).map(|condition| Rule { name: name.into(), condition, action })
//! };
//! let rules = Rules::new([
//!     rule("scanners", "header.User-Agent matches 'scanner|sipvicious'", "drop")?,
//!     rule("guests", "method == 'INVITE' and not authenticated and source.address not in offices", "403")?,
//!     rule("berlin", "method == 'INVITE' and carriers[number] == 'berlin'", "gateway-berlin")?,
//!     rule("others", "number in carriers", "gateway")?,
//! ]);
//! assert_eq!(rules.first(&Call, &sets).map(|rule| rule.action), Some("gateway-berlin"));
//!
//! // Why?
//! assert_eq!(
//!     rules.explain(&Call, &sets).to_string(),
//!     "\
//! no   scanners  `header.User-Agent matches 'scanner|sipvicious'` is false: header.user-agent is 'phone 1.0'
//! no   guests    `authenticated` is true
//! yes  berlin    `method == 'INVITE' and carriers[number] == 'berlin'` is true: method is 'INVITE', carriers[number] is 'berlin'
//! yes  others    `number in carriers` is true: number is '4930123456'
//! "
//! );
//!
//! // What does a wrong condition say?
//! let when = "methd == 'INVITE'";
//! let fault = Condition::compile(when, &names).expect_err("there is no such field");
//! assert_eq!(
//!     fault.shown(when),
//!     "\
//! methd == 'INVITE'
//! ^^^^^ there is no field `methd`
//! = did you mean `method`?"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The language
//!
//! A condition combines tests with `and`, `or`, `not` and parentheses; `not` binds tightest, then `and`. There are no
//! loops, calls or variables, so evaluation always ends. Types are checked at compile time, and each fault names the
//! words concerned.
//!
//! | test | holds if |
//! |---|---|
//! | `in_dialog` | the flag is true |
//! | `method == 'INVITE'`, `from.user != user` | the two are equal, or are not: text, numbers, addresses; the right one is a constant or a value |
//! | `size > 4KiB` | the numbers compare so: `<`, `<=`, `>`, `>=` |
//! | `method in ['INVITE', 'BYE']` | the value is in the list |
//! | `user in vips`, `user not in vips` | the set contains the whole text, a prefix of it, or a network around it, depending on the kind of the set |
//! | `source.address in 10.0.0.0/8` | the network contains it |
//! | `number starts_with '+49'`, `ends_with` | the text begins or ends so |
//! | `number matches '^00[1-9]'` | the regular expression is found in it, anywhere: `^` is its beginning, `$` its end |
//! | `exists user` | the value is present |
//! | `true`, `false` | always, never |
//!
//! The value `carriers[number]` is the value that a set has for the key `number`. It may be used like a text field.
//!
//! * **Absent values.** Every test of an absent value fails. `!=` and `not in` are exactly `not` of `==` and `in`, so
//!   they hold for an absent value. If this matters, write `exists user and user != 'guest'`.
//! * **Case.** Every test of domains, transports and schemes ignores the case of ASCII letters, and so do the prefixes
//!   of a set. All other texts are case-sensitive. The table is [`FIELDS`].
//! * **Text** is enclosed in `'` or `"` and has no escapes.
//! * **Regular expressions** match octets, without Unicode, look-around and back-references. Each is compiled to a
//!   table with one step per octet; one whose table would be large is refused.
//! * **Bounds.** [`MAX_LENGTH`], [`MAX_DEPTH`], [`MAX_PATTERN_TABLE`].
//!
//! # Cost
//!
//! A list of rules has an index over the constraints of the conditions (whole texts, beginnings of texts, patterns,
//! numbers, networks, flags, sets), and evaluates only the rules that can match. `make bench-rules` prints the time of
//! a decision among 1,000 rules with 100,000 prefixes, with and without the index, and the bytes per prefix. Evaluation
//! allocates nothing and takes no lock.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | fields of a condition, grammar, faults | `field.rs`; `parser.rs`; `fault.rs` |
//! | rules that may match | `index.rs` |
//! | prefixes, networks and texts of data sets | `set.rs` |
//! | open relay by a condition | `condition.rs`, `needs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod comparison;
mod condition;
mod constraint;
mod csv;
mod explanation;
mod expression;
mod fault;
mod field;
mod index;
mod network;
mod networks;
mod parser;
mod pattern;
mod prefixes;
mod rules;
mod set;
mod sets;
mod texts;
mod token;
mod value;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;

pub use condition::{Condition, MAX_DEPTH, MAX_LENGTH, Test};
pub use explanation::{Explanation, RuleVerdict};
pub use fault::{Fault, Refusal, nearest};
pub use field::{AddressField, Case, FIELDS, Facts, FlagField, NumberField, Row, TextField, Type};
pub use network::Network;
pub use pattern::MAX_PATTERN_TABLE;
pub use rules::{Rule, Rules};
pub use set::{Columns, Entry, EntryFault, FileError, FileFault, LookupKind, Set};
pub use sets::{SetId, SetNames, Sets};
