//! `[[rule]]`, `[[set]]` and `[[source]]`: what becomes of requests, by conditions on them; the data that conditions ask; groups of peers by
//! address.
//!
//! The language of conditions and the sets are those of [`strowger_rules`]; here stands what the file says, where it is wrong, and what a rule
//! does.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strowger_core::proxy::may_be_removed;
use strowger_message::Name as HeaderName;
use strowger_rules::{Columns, Condition, Kind, Rule as CompiledRule, Rules, Set, SetId, SetNames, Sets};

use super::key::{Rule, Text, words};
use super::name::Name;
use super::proxy::SipUri;
use super::reader::{ANY, Reader, section};
use super::report::Fault;
use super::with_reason;

words! {
    /// How the keys of a set are found.
    pub enum SetKind {
        /// Whole texts: numbers, users, domains.
        Texts = "texts",
        /// The longest prefix of a number or another text.
        Prefixes = "prefixes",
        /// The smallest network that an address is in.
        Networks = "networks",
    }
}

impl SetKind {
    const fn kind(self) -> Kind {
        match self {
            Self::Texts => Kind::Texts,
            Self::Prefixes => Kind::Prefixes,
            Self::Networks => Kind::Networks,
        }
    }
}

section! {
    /// A set of data that conditions of rules ask: `number in NAME`, or with values `NAME[number] == 'west'`; repeat the table for each.
    pub struct SetTable = "set" {
        /// What conditions call it.
        pub name: Name = Name::UNSET, ANY.required();
        /// How its keys are found.
        pub kind: SetKind = SetKind::Texts, ANY;
        /// Its keys, without values.
        pub entries: Vec<String> = Vec::new(), ANY;
        /// A CSV file (RFC 4180) with further entries; its first line names the columns. `strowger reload` reads it again.
        pub file: Option<PathBuf> = None, ANY.or("");
        /// Name of the column of keys in the file.
        pub key: String = "key".into(), ANY;
        /// Name of the column of values in the file; "": its entries have no values.
        pub value: Option<String> = None, ANY.or("");
    }
}

section! {
    /// A group of peers by their addresses, such as the gateways of a carrier: conditions know it as `source.group`; repeat the table for each.
    pub struct SourceTable = "source" {
        /// What conditions call it.
        pub name: Name = Name::UNSET, ANY.required();
        /// Addresses and networks, such as "192.0.2.7" and "2001:db8::/32". Of overlapping ones the smallest counts.
        pub networks: Vec<String> = Vec::new(), ANY.required();
        /// Its requests need no password, and may go anywhere that `[[rule]]` tables let them. By UDP an address can be forged: only for
        /// networks that no other peer sends from.
        pub trusted: bool = false, ANY;
    }
}

section! {
    /// What becomes of requests outside dialogs for which a condition holds; repeat the table for each, in their order. Each rule that holds
    /// adds what it says, until one answers, says where the request goes, or stops. What no rule says is as the other tables have it.
    pub struct RuleTable = "rule" {
        /// What the log calls it.
        pub name: Name = Name::UNSET, ANY.required();
        /// When it holds, such as "method == 'INVITE' and request.local and not exists request.user"; the fields and the language stand in
        /// docs/rules.md.
        pub when: String = "true".into(), ANY;
        /// Status of the answer that the request gets; "none": it is not answered here.
        pub answer: Option<u16> = None, Rule::number(300, 699).or("none");
        /// Reason phrase of that answer; "": the usual one.
        pub reason: String = String::new(), ANY;
        /// Where the request goes, in order of trying: a URI with a user takes the place of the Request-URI, one without leads there with the
        /// Request-URI as it is. `[]`: to its contacts or where it says itself.
        pub to: Vec<SipUri> = Vec::new(), ANY;
        /// Status codes after which the next of `to` is tried; "any": all but 6xx. One that is silent or not reached leads on in any case.
        pub try_next: Option<Vec<u16>> = None, Rule::number(300, 699).or("any");
        /// Header lines that the request gets, such as "P-Hint: outbound".
        pub add_headers: Vec<HeaderLine> = Vec::new(), ANY;
        /// Names of header fields that the request loses.
        pub remove_headers: Vec<RemovableHeader> = Vec::new(), ANY;
        /// Stay in the path of later requests; "as-set": as `proxy.record_route` says.
        pub record_route: Option<bool> = None, ANY.or("as-set");
        /// Keep track of the call; "as-set": as `dialogs.track` says.
        pub track: Option<bool> = None, ANY.or("as-set");
        /// How long it may ring in one place; "as-set": as `proxy.fork_timeout` says.
        pub ring_timeout: Option<Duration> = None, Rule::time(Duration::from_secs(1), Duration::from_secs(600)).or("as-set");
        /// How long a target may say nothing at all before the next is tried; "as-set": until its transaction ends.
        pub answer_timeout: Option<Duration> = None, Rule::time(Duration::from_millis(100), Duration::from_secs(60)).or("as-set");
        /// No further rule is asked.
        pub stop: bool = false, ANY;
    }
}

/// A line that a request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderLine(String);

impl Text for HeaderLine {
    const EXPECTED: &'static str = "a header line such as \"P-Hint: outbound\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("is {text:?}, {what}"));
        let Some((name, value)) = text.split_once(':') else { return wrong("which has no colon") };
        let is_token = |c: char| c.is_ascii_alphanumeric() || "-.!%*_+`'~".contains(c);
        if name.is_empty() || !name.chars().all(is_token) {
            return wrong("whose name is no token (RFC 3261 section 25.1)");
        }
        if value.trim().is_empty() || text.chars().any(char::is_control) {
            return wrong("whose value is empty or has control characters");
        }
        let known = HeaderName::of(name.as_bytes());
        if known != HeaderName::Other && !may_be_removed(known) {
            return wrong("which the server writes itself");
        }
        Ok(Self(format!("{name}: {}", value.trim())))
    }

    fn to_text(&self) -> String {
        self.0.clone()
    }
}

/// A header field that a request may do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovableHeader(HeaderName);

impl Text for RemovableHeader {
    const EXPECTED: &'static str = "the name of a header field that a request can do without, such as \"User-Agent\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let name = HeaderName::of(text.as_bytes());
        match may_be_removed(name) {
            true => Ok(Self(name)),
            false => Err(format!("is {text:?}, which is not known or may not be taken off")),
        }
    }

    fn to_text(&self) -> String {
        self.0.text().to_owned()
    }
}

/// What a rule does.
#[derive(Debug, PartialEq)]
pub struct Action {
    /// Status and reason phrase of the answer; an empty phrase: the usual one.
    pub answer: Option<(u16, Box<str>)>,
    /// Where the request goes, in order.
    pub to: Box<[SipUri]>,
    /// Status codes after which the next of `to` is tried; none: any but 6xx.
    pub try_next: Option<Box<[u16]>>,
    /// Header lines, each with its end.
    pub add: Box<[u8]>,
    /// Header fields that go.
    pub remove: Box<[HeaderName]>,
    /// None: as `proxy.record_route` says.
    pub record_route: Option<bool>,
    /// None: as `dialogs.track` says.
    pub track: Option<bool>,
    /// None: as `proxy.fork_timeout` says.
    pub ring_timeout: Option<Duration>,
    /// None: until the transaction ends.
    pub answer_timeout: Option<Duration>,
    /// No further rule is asked.
    pub ends: bool,
}

impl Action {
    fn of(table: &RuleTable) -> Self {
        let lines = table.add_headers.iter().flat_map(|line| [line.0.as_bytes(), b"\r\n"]);
        let answer = table.answer.map(|status| (status, table.reason.as_str().into()));
        Self {
            ends: table.stop || answer.is_some() || !table.to.is_empty(),
            answer,
            to: table.to.clone().into(),
            try_next: table.try_next.clone().map(Vec::into),
            add: lines.flatten().copied().collect(),
            remove: table.remove_headers.iter().map(|header| header.0).collect(),
            record_route: table.record_route,
            track: table.track,
            ring_timeout: table.ring_timeout,
            answer_timeout: table.answer_timeout,
        }
    }
}

/// The rules, sets and sources of a configuration, compiled.
#[derive(Debug)]
pub struct Decisions {
    /// In the order of the file.
    pub rules: Rules<Action>,
    /// What their conditions ask.
    pub sets: Sets,
    /// What the sets are called.
    pub names: SetNames,
    /// The networks of all sources, each with the name of its own.
    sources: Option<Set>,
    trusted: Vec<String>,
}

impl Default for Decisions {
    fn default() -> Self {
        let names = SetNames::default();
        Self { rules: Rules::new([]), sets: Sets::empty(&names), names, sources: None, trusted: Vec::new() }
    }
}

/// They are made of lists of the configuration, which are compared themselves.
impl PartialEq for Decisions {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Decisions {
    /// The set of this name.
    pub fn set(&self, name: &str) -> Option<&Arc<Set>> {
        self.sets.set(self.names.id(name)?)
    }

    /// The group that this address belongs to.
    pub fn group_of(&self, source: std::net::IpAddr) -> Option<&str> {
        std::str::from_utf8(self.sources.as_ref()?.address_value(source)?).ok()
    }

    /// Whether requests of this group need no password.
    pub fn trusts(&self, group: &str) -> bool {
        self.trusted.iter().any(|trusted| trusted == group)
    }
}

/// Compiles what the file says. Where something is wrong that is noted, and the rest compiled.
pub(super) fn compile(
    rules: &[RuleTable],
    sets: &[SetTable],
    sources: &[SourceTable],
    reader: &mut Reader,
) -> Arc<Decisions> {
    let (names, loaded) = load(sets, reader);
    let mut compiled = Vec::new();
    for (index, table) in rules.iter().enumerate() {
        let path = format!("rule[{index}]");
        match Condition::compile(&table.when, &names) {
            Ok(condition) => {
                let name = table.name.as_str().into();
                compiled.push(CompiledRule { name, condition, action: Action::of(table) });
            }
            Err(fault) => {
                let span = reader.value_of(&format!("{path}.when")).map(|value| within(&value, &fault.span));
                let message = format!("{}: {}", rule_shown(table), fault.message);
                reader.push(Fault::error(span, message, fault.cure));
            }
        }
        check_action(table, &path, reader);
    }
    let mut filled = Sets::empty(&names);
    for (id, set) in loaded {
        if let Ok(with) = filled.with(id, set) {
            filled = with;
        }
    }
    let trusted = sources.iter().filter(|source| source.trusted).map(|source| source.name.to_string()).collect();
    let sources = of_sources(sources, reader);
    Arc::new(Decisions { rules: Rules::new(compiled), sets: filled, names, sources, trusted })
}

fn rule_shown(table: &RuleTable) -> String {
    format!("rule '{}'", table.name)
}

/// A place in the text of a value, which stands between quotes. With escapes in front of it it lies elsewhere, and never beyond the value.
fn within(value: &Range<usize>, span: &Range<usize>) -> Range<usize> {
    let at = |place: usize| (value.start + 1 + place).min(value.end.saturating_sub(1)).max(value.start);
    at(span.start)..at(span.end).max(at(span.start))
}

fn check_action(table: &RuleTable, path: &str, reader: &mut Reader) {
    let place = |key: &str, reader: &Reader| reader.value_of(&format!("{path}.{key}"));
    if table.answer.is_some() && !table.to.is_empty() {
        let message = format!("{} answers, and says where the request goes", rule_shown(table));
        reader.push(Fault::error(place("to", reader), message, "keep `answer` or `to`, or make two rules"));
    }
    if table.answer.is_none() && !table.reason.is_empty() {
        let message = format!("{} has a reason and no answer", rule_shown(table));
        reader.push(Fault::error(place("reason", reader), message, "add `answer`, or remove `reason`"));
    }
    if table.to.is_empty() && table.try_next.is_some() {
        let message = format!("{} has try_next without `to`", rule_shown(table));
        reader.push(Fault::error(place("try_next", reader), message, "add `to`, or remove `try_next`"));
    }
}

/// The sets by name, and what is in them.
fn load(tables: &[SetTable], reader: &mut Reader) -> (SetNames, Vec<(SetId, Arc<Set>)>) {
    let (mut names, mut loaded) = (SetNames::default(), Vec::new());
    for (index, table) in tables.iter().enumerate() {
        let path = format!("set[{index}]");
        let id = match names.add(table.name.as_str(), table.kind.kind()) {
            Ok(id) => id,
            // A name that stands twice was noted where it was read.
            Err(_) if names.id(table.name.as_str()).is_some() => continue,
            Err(refusal) => {
                let span = reader.value_of(&format!("{path}.name"));
                reader.push(Fault::error(span, refusal.message, refusal.cure));
                continue;
            }
        };
        if let Some(set) = read(table, &path, reader) {
            loaded.push((id, Arc::new(set)));
        }
    }
    (names, loaded)
}

fn read(table: &SetTable, path: &str, reader: &mut Reader) -> Option<Set> {
    let kind = table.kind.kind();
    let Some(file) = &table.file else {
        return of_entries(kind, table.entries.iter().map(|key| (key.as_str(), None)), path, "entries", reader);
    };
    let span = reader.value_of(&format!("{path}.file"));
    if !table.entries.is_empty() {
        let message = format!("set '{}' has entries and a file", table.name);
        reader.push(Fault::error(span, message, "put the entries into the file, or make two sets"));
        return None;
    }
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("cannot read {}: {}", file.display(), with_reason(&error, file));
            reader.push(Fault::error(span, message, "name a CSV file in UTF-8 that this user may read"));
            return None;
        }
    };
    let columns = Columns { key: &table.key, value: table.value.as_deref() };
    match Set::read_csv(kind, &file.display().to_string(), &text, columns) {
        Ok(set) => Some(set),
        Err(fault) => {
            let message = format!("{}:{}: {}", fault.file, fault.line, fault.message);
            reader.push(Fault::error(span, message, fault.cure));
            None
        }
    }
}

fn of_entries<'a>(
    kind: Kind,
    entries: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    path: &str,
    key: &str,
    reader: &mut Reader,
) -> Option<Set> {
    match Set::new(kind, entries) {
        Ok(set) => Some(set),
        Err(fault) => {
            let span = reader.value_of(&format!("{path}.{key}[{}]", fault.place));
            reader.push(Fault::error(span, fault.message, fault.cure));
            None
        }
    }
}

fn of_sources(tables: &[SourceTable], reader: &mut Reader) -> Option<Set> {
    let mut all = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let networks = table.networks.iter().map(|network| (network.as_str(), Some(table.name.as_str())));
        // By itself first: what is wrong stands in this table.
        of_entries(Kind::Networks, networks.clone(), &format!("source[{index}]"), "networks", reader)?;
        all.extend(networks);
    }
    if all.is_empty() {
        return None;
    }
    match Set::new(Kind::Networks, all) {
        Ok(set) => Some(set),
        Err(fault) => {
            let span = reader.value_of(&format!("source[{}].networks", tables.len() - 1));
            reader.push(Fault::error(span, fault.message, fault.cure));
            None
        }
    }
}
