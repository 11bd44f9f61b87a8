//! `[[rule]]` and `[[source]]`: conditional actions on requests; groups of peers by address.
//!
//! [`strowger_rules`] defines the language of conditions. This file defines the tables, their checks and the actions of rules. The data sets that
//! conditions query are in `set.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use strowger_media::sound::Sound;
use strowger_message::Name as HeaderName;
use strowger_rules::{LookupKind, Rule as CompiledRule, Rules, Set, SetNames, Sets};

use super::auth::Auth;
use super::call_limit::{self, CallLimitTable};
use super::check_action::{self, Named};
use super::condition::condition;
use super::emergency::Emergency;
use super::failure::{self, FailureAction, FailureTable};
use super::filter::{self, FilterAction, FilterTable};
use super::gateway_group::{self, GatewayGroup, GatewayGroupTable, RouteTarget, Targets};
use super::identity::{self, Identities, IdentitySource};
use super::key::Rule;
use super::name::{Name, Reference};
use super::proxy::RelayFor;
use super::reader::{ANY, Reader, section};
use super::report::Fault;
use super::rule_answer::{Announcement, CallEndpoint, EndpointFiles, Recording, RuleAnswer};
use super::rule_path::{Codec, MediaType, PathAction, ReferFrom};
use super::rule_text::{AccountName, HeaderLine, RemovableHeader, UserText};
use super::set::{SetTable, load, of_entries};
use super::user_edit::UserEdit;

/// Default of `record_limit`.
pub(super) const RECORD_LIMIT: Duration = Duration::from_secs(600);

section! {
    /// A group of peers by their addresses, such as the gateways of a carrier. In conditions `source.group` is the name of the group. Repeat the
    /// table for each group.
    pub struct SourceTable = "source" {
        /// Name in conditions.
        pub name: Name = Name::UNSET, ANY.required();
        /// Addresses and networks, such as "192.0.2.7" and "2001:db8::/32". If networks of several groups contain an address, the smallest network
        /// determines the group.
        pub networks: Vec<String> = Vec::new(), ANY.required();
        /// Requests of this group need no password, and may go to each target that `[[rule]]` tables allow. Over UDP an address can be forged: set
        /// this only for networks from which no other peer can send.
        pub trusted: bool = false, ANY;
    }
}

section! {
    /// Actions for requests outside dialogs that meet a condition. Repeat the table for each rule; rules are evaluated in the order of the file. Each
    /// rule whose condition holds adds its keys. The first such rule that answers, names a target, or has `stop` ends the evaluation. The other
    /// tables determine everything that no rule sets.
    pub struct RuleTable = "rule" {
        /// Name in the log.
        pub name: Name = Name::UNSET, ANY.required();
        /// Condition, such as "method == 'INVITE' and request.local and not exists request.user"; docs/rules.md has the fields and the language.
        pub when: String = "true".into(), ANY;
        /// Answer to the request: a status, or an endpoint of this server, which answers calls and handles their media by `[media]`. "echo" sends the
        /// caller's media back; "tone" sends a test tone, 1004 Hz with -10 dBm0, until the caller hangs up; "announcement" sends the sound of `play`;
        /// "recording" sends a short tone, and then records the caller in a file of `record_to`. Other requests
        /// for an endpoint are answered as a phone does. "none": this rule does not answer the request.
        pub answer: Option<RuleAnswer> = None, Rule::number(300, 699).or("none");
        /// WAV file of an announcement: 8000 Hz, one channel, samples of 16 bits or G.711, at most 30 minutes. The server reads it at the start and
        /// at each reload. The call ends with the file.
        pub play: Option<PathBuf> = None, ANY.or("");
        /// Play the file of `play` again and again until the caller hangs up.
        pub repeat: bool = false, ANY;
        /// Folder of recordings, which must exist. The server makes a WAV file of 8000 Hz and 16 bits for each call, readable by its user alone. The
        /// name is the time (UTC) and a random number.
        pub record_to: Option<PathBuf> = None, ANY.or("");
        /// Longest recording, after which the server hangs up.
        pub record_limit: Duration = RECORD_LIMIT, Rule::time(Duration::from_secs(1), Duration::from_secs(6 * 3_600));
        /// Reason phrase of the answer; "": the usual phrase of its status.
        pub reason: String = String::new(), ANY;
        /// Drop the request without an answer, for senders that only scan for servers.
        pub drop: bool = false, ANY;
        /// Targets of the request, in order of trying. A URI of a local domain with a user, such as "sip:alice@example.org", means the phones of this
        /// user. Any other URI with a user replaces the Request-URI. A URI without a user is the next hop, and the Request-URI stays unchanged. The
        /// name of a `[[gateway_group]]` means its targets. The Routes of the sender are removed. A request for a sips URI is sent by TLS, or
        /// refused. `[]`: the contacts of the user in the Request-URI, or the target that the request itself names.
        pub to: Vec<RouteTarget> = Vec::new(), ANY;
        /// All targets of `to` ring at once (ring group); `false`: they ring one after the other (hunt group).
        pub at_once: bool = false, ANY;
        /// Callers that may reach targets of `to` outside the local domains, with the values of `proxy.relay_for`; "as-set": the value of that key.
        /// Another caller is asked for a password (407) or refused (403).
        pub relay_for: Option<RelayFor> = None, ANY.or("as-set");
        /// Status codes after which the next of `to` is tried; "any": all but 6xx. After a target that is silent or cannot be reached, the next is
        /// tried in any case.
        pub try_next: Option<Vec<u16>> = None, Rule::number(300, 699).or("any");
        /// Names of `[[failure]]` tables for a failed request; the first unused table for its status is used, and each table at most once.
        pub on_failure: Vec<Reference<FailureTable>> = Vec::new(), ANY;
        /// Names of `[[call_limit]]` tables under which the call counts from its INVITE to its end; such a call is tracked.
        pub call_limits: Vec<Reference<CallLimitTable>> = Vec::new(), ANY;
        /// Do not forward the request, but answer with the targets as Contacts: by 302, or for several targets by 300 with a q for each (RFC 3261
        /// section 8.3).
        pub redirect: bool = false, ANY;
        /// Number of characters to remove from the beginning of the user part of the Request-URI. A user part that has no more characters than this
        /// stays unchanged.
        pub strip: u8 = 0, ANY;
        /// Text to insert before the user part of the Request-URI after `strip`, such as "+".
        pub prepend: UserText = UserText::default(), ANY;
        /// Name of a `[[set]]` of texts: if the set has a value for the user part of the Request-URI, this value replaces the user part, before
        /// `strip` and `prepend`.
        pub translate: Option<Reference<SetTable>> = None, ANY.or("");
        /// P-Asserted-Identity of the forwarded request (RFC 3325), written as `sip:NUMBER@DOMAIN`: a number such as "+49301234560", a list of
        /// numbers and ranges such as "+49301234560, +4930123*", or the name of a `[[set]]` with a list for each account. From a list the sender
        /// chooses by P-Preferred-Identity, P-Asserted-Identity or From; otherwise the first single number counts, then the list of
        /// `auth.identities`, then the address-of-record of the account. Targets of `to` are trusted: they receive the P-Asserted-Identity even with
        /// `Privacy: id`. Remote-Party-ID, Diversion and History-Info of an account may name identities of this list and of the account. "": the
        /// server asserts nothing.
        pub identity: Option<Identities> = None, ANY.or("");
        /// Header lines to add to the request, such as "P-Hint: outbound".
        pub add_headers: Vec<HeaderLine> = Vec::new(), ANY;
        /// Names of header fields to remove from the request.
        pub remove_headers: Vec<RemovableHeader> = Vec::new(), ANY;
        /// Stay in the path of later requests of the call; "as-set": the value of `proxy.record_route`. For a call that counts under a limit the
        /// server stays in the path regardless of this key.
        pub record_route: Option<bool> = None, ANY.or("as-set");
        /// Answer calls as a back-to-back user agent (B2BUA): the server has a call with the caller and another one with the callee, carries the
        /// media between them by `[media]`, and shows neither side the addresses of the other. Such a call is always tracked. Requests other
        /// than INVITE are forwarded. "as-set": a later rule decides; if none does, calls are forwarded.
        pub b2bua: Option<bool> = None, ANY.or("as-set");
        /// Audio codecs that pass in calls with `b2bua`, in the order in which the server lists them. The server converts none, so both sides need
        /// one in common. Without "telephone-event" the keys of a phone (DTMF) do not pass as events. `[]`: all codecs in the order of the offer,
        /// unless a later rule lists some.
        pub codecs: Vec<Codec> = Vec::new(), ANY;
        /// Audio codecs on the side of the callee, in the order in which the server lists them there; a codec passes if both lists have it. `[]`: as
        /// `codecs`, unless a later rule lists some.
        pub callee_codecs: Vec<Codec> = Vec::new(), ANY;
        /// Media types of streams that pass beside audio in calls with `b2bua`, with any codec: "image" is fax by T.38 (UDPTL). A call takes ports
        /// for each of them. `[]`: none, unless a later rule lists some.
        pub media_types: Vec<MediaType> = Vec::new(), ANY;
        /// Parties of calls with `b2bua` whose REFER (transfer) goes to the other party: "users" are authenticated callers, callees at a contact
        /// that they have registered here, and trusted sources. The REFER of another party gets 403: a phone that follows it pays for the new
        /// call. "as-set": a later rule decides; if none does, "users".
        pub refer_from: Option<ReferFrom> = None, ANY.or("as-set");
        /// Keep track of the call; "as-set": the value of `dialogs.track`.
        pub track: Option<bool> = None, ANY.or("as-set");
        /// Account the call; "as-set": the value of `accounting.all`.
        pub account: Option<bool> = None, ANY.or("as-set");
        /// Account the call, with this text in the column `account` of its rows, such as a tariff, a tenant or a cost centre; "": the column is
        /// empty, unless a later rule sets it.
        pub account_as: Option<AccountName> = None, ANY.or("");
        /// Longest ringing of one target. After this time the next target is tried; after the last, the caller gets 408. "as-set": the value of
        /// `proxy.fork_timeout`, without a bound for the last target.
        pub ring_timeout: Option<Duration> = None, Rule::time(Duration::from_secs(1), Duration::from_secs(600)).or("as-set");
        /// Longest silence of a target before the next target is tried; "as-set": until the transaction with the target ends.
        pub answer_timeout: Option<Duration> = None, Rule::time(Duration::from_millis(100), Duration::from_secs(60)).or("as-set");
        /// Evaluate no further rule.
        pub stop: bool = false, ANY;
    }
}

impl RuleTable {
    /// Returns the status by which it answers requests.
    pub const fn status(&self) -> Option<u16> {
        match self.answer {
            Some(RuleAnswer::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// Returns the endpoint that answers its calls.
    pub const fn endpoint(&self) -> Option<CallEndpoint> {
        match self.answer {
            Some(RuleAnswer::Endpoint(endpoint)) => Some(endpoint),
            _ => None,
        }
    }

    /// Returns the files of its endpoint; `None` if it has none.
    pub fn endpoint_files(&self) -> Option<EndpointFiles> {
        let text = |path: &Path| path.to_string_lossy().into();
        match self.endpoint()? {
            CallEndpoint::Announcement => {
                let file = text(self.play.as_deref()?);
                Some(EndpointFiles::Announcement(Announcement { file, repeats: self.repeat }))
            }
            CallEndpoint::Recording => {
                let folder = text(self.record_to.as_deref()?);
                Some(EndpointFiles::Recording(Recording { folder, limit: self.record_limit }))
            }
            CallEndpoint::Echo | CallEndpoint::Tone => None,
        }
    }

    /// Tells whether its calls are accounted; `None`: `accounting.all` decides.
    pub fn accounts(&self) -> Option<bool> {
        self.account.or_else(|| self.account_as.is_some().then_some(true))
    }
}

/// Action of a rule.
#[derive(Debug, PartialEq)]
pub struct Action {
    /// Status and reason phrase of the answer; an empty phrase: the usual one.
    pub answer: Option<(u16, Box<str>)>,
    /// Endpoint of this server that answers the request; `None`: no endpoint does.
    pub endpoint: Option<CallEndpoint>,
    /// Files of this endpoint.
    pub files: Option<EndpointFiles>,
    /// True: the request gets no answer.
    pub drop: bool,
    /// Targets of the request, in order; empty: the rule names none.
    pub to: Targets,
    /// Callers that may use targets outside the local domains; `None`: `proxy.relay_for` decides.
    pub relay_for: Option<RelayFor>,
    /// Status codes after which the next target is tried; `None`: any but 6xx.
    pub try_next: Option<Box<[u16]>>,
    /// Reactions to a failure, in order; shared by the rules that name them.
    pub on_failure: Box<[Arc<FailureAction>]>,
    /// Limits that an INVITE counts under; shared by the rules that name them.
    pub call_limits: Box<[Arc<CallLimitTable>]>,
    /// True: the answer is a redirection to the targets.
    pub redirect: bool,
    /// Edit of the user part of the Request-URI; `None`: it stays.
    pub user: Option<UserEdit>,
    /// Identities for the P-Asserted-Identity of the request.
    pub identity: Option<IdentitySource>,
    /// Header lines, each with its end.
    pub add: Box<[u8]>,
    /// Header fields to remove.
    pub remove: Box<[HeaderName]>,
    /// Path of the call through this server.
    pub path: PathAction,
    /// Tracking of the call; `None`: `dialogs.track` decides.
    pub track: Option<bool>,
    /// Accounting of the call; `None`: `accounting.all` decides.
    pub account: Option<bool>,
    /// Column `account` of the rows; a call with it is accounted.
    pub account_as: Option<Box<str>>,
    /// Longest ringing of one target; `None`: `proxy.fork_timeout` decides.
    pub ring_timeout: Option<Duration>,
    /// Longest silence of a target; `None`: until the transaction ends.
    pub answer_timeout: Option<Duration>,
    /// True: no later rule is evaluated.
    pub ends: bool,
}

impl Action {
    /// Returns the limits that a call may count under before it fails: the limits of the rule, and the limits of the gateway groups of its targets.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<CallLimitTable>> {
        self.call_limits.iter().chain(self.to.call_limits())
    }

    fn of(
        table: &RuleTable,
        names: &SetNames,
        failures: &[Arc<FailureAction>],
        call_limits: &[Arc<CallLimitTable>],
        groups: &[Arc<GatewayGroup>],
    ) -> Self {
        let answer = table.status().map(|status| (status, table.reason.as_str().into()));
        Self {
            ends: table.stop || table.drop || table.redirect || table.answer.is_some() || !table.to.is_empty(),
            answer,
            endpoint: table.endpoint(),
            files: table.endpoint_files(),
            drop: table.drop,
            redirect: table.redirect,
            on_failure: failure::named(&table.on_failure, failures),
            call_limits: call_limit::named(&table.call_limits, call_limits),
            user: UserEdit::of(table.translate.as_ref(), table.strip, &table.prepend, names),
            to: Targets::of(&table.to, table.at_once, groups),
            relay_for: table.relay_for,
            try_next: table.try_next.clone().map(Vec::into),
            identity: IdentitySource::of(table.identity.as_ref(), names),
            add: HeaderLine::lines(&table.add_headers),
            remove: RemovableHeader::names(&table.remove_headers),
            path: PathAction {
                record_route: table.record_route,
                b2bua: table.b2bua,
                codecs: Codec::names(&table.codecs),
                callee_codecs: Codec::names(&table.callee_codecs),
                media_types: table.media_types.as_slice().into(),
                refer_from: table.refer_from,
            },
            track: table.track,
            account: table.accounts(),
            account_as: table.account_as.as_ref().map(|account| account.as_str().into()),
            ring_timeout: table.ring_timeout,
            answer_timeout: table.answer_timeout,
        }
    }
}

/// Compiled rules, sets and sources of a configuration. A clone shares them with the original.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// Filters, evaluated before any other check, in the order of the file.
    pub filters: Arc<Rules<FilterAction>>,
    /// Rules in the order of the file.
    pub rules: Arc<Rules<Action>>,
    /// Data sets of the conditions.
    pub sets: Sets,
    /// Names of the sets.
    pub names: SetNames,
    /// Sounds of announcements by the paths of their files.
    sounds: Arc<BTreeMap<Box<str>, Arc<Sound>>>,
    /// Networks of all sources, each with the name of its source.
    sources: Option<Arc<Set>>,
    trusted: Vec<String>,
    /// Targets of emergency calls; empty: emergency calls are treated like other calls.
    pub emergency: Targets,
    /// P-Asserted-Identity of emergency calls.
    pub emergency_identity: Option<IdentitySource>,
}

impl Default for Decisions {
    fn default() -> Self {
        let names = SetNames::default();
        Self {
            filters: Arc::new(Rules::new([])),
            rules: Arc::new(Rules::new([])),
            sets: Sets::empty(&names),
            names,
            sounds: Arc::default(),
            sources: None,
            trusted: Vec::new(),
            emergency: Targets::default(),
            emergency_identity: None,
        }
    }
}

/// Treats all values as equal, because the comparison of two configurations compares the lists from which these values are compiled.
impl PartialEq for Decisions {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Decisions {
    /// Returns the set of this name.
    pub fn set(&self, name: &str) -> Option<&Arc<Set>> {
        self.sets.set(self.names.id(name)?)
    }

    /// Returns a copy with other data in the set of this name. If no set has this name and kind, the copy is unchanged.
    #[must_use]
    pub fn with_set(&self, name: &str, set: Arc<Set>) -> Self {
        let sets = self.names.id(name).and_then(|id| self.sets.with(id, set).ok());
        Self { sets: sets.unwrap_or_else(|| self.sets.clone()), ..self.clone() }
    }

    /// Returns the sound of an announcement by the path of its file, or `None` before [`Decisions::with_sounds`].
    pub fn sound(&self, file: &str) -> Option<&Arc<Sound>> {
        self.sounds.get(file)
    }

    /// Returns a copy with these sounds of announcements.
    #[must_use]
    pub fn with_sounds(&self, sounds: BTreeMap<Box<str>, Arc<Sound>>) -> Self {
        Self { sounds: Arc::new(sounds), ..self.clone() }
    }

    /// Returns the name of the group to which this address belongs.
    pub fn group_of(&self, source: std::net::IpAddr) -> Option<&str> {
        std::str::from_utf8(self.sources.as_ref()?.address_value(source)?).ok()
    }

    /// Tells whether a rule answers calls by an endpoint of this server.
    pub fn have_endpoint(&self) -> bool {
        self.rules.iter().any(|rule| rule.action.endpoint.is_some())
    }

    /// Tells whether a rule bridges calls.
    pub fn bridge_calls(&self) -> bool {
        self.rules.iter().any(|rule| rule.action.path.is_bridged())
    }

    /// Returns the largest number of streams of a bridged call that have ports: audio and each media type of a rule.
    pub fn bridged_streams(&self) -> usize {
        1 + self.rules.iter().map(|rule| rule.action.path.media_types.len()).max().unwrap_or(0)
    }

    /// Tells whether a rule makes the server track calls that it forwards.
    pub(super) fn track_calls(&self) -> bool {
        let counts = |action: &Action| {
            action.limits().next().is_some()
                || action.on_failure.iter().any(|failure| failure.limits().next().is_some())
        };
        self.rules.iter().any(|rule| rule.action.track == Some(true) || counts(&rule.action))
    }

    /// Tells whether requests of this group need no password.
    pub fn trusts(&self, group: &str) -> bool {
        self.trusted.iter().any(|trusted| trusted == group)
    }
}

/// Lists of the file from which decisions are compiled.
pub(super) struct Lists<'a> {
    pub(super) rules: &'a [RuleTable],
    pub(super) sets: &'a [SetTable],
    pub(super) sources: &'a [SourceTable],
    pub(super) failures: &'a [FailureTable],
    pub(super) filters: &'a [FilterTable],
    pub(super) call_limits: &'a [CallLimitTable],
    pub(super) gateway_groups: &'a [GatewayGroupTable],
    pub(super) emergency: &'a Emergency,
    pub(super) auth: &'a Auth,
}

/// Compiles the lists. Notes each fault, and continues with the next table.
pub(super) fn compile(lists: Lists<'_>, record_route: bool, reader: &mut Reader) -> Arc<Decisions> {
    let Lists { rules, sets, sources, failures, filters, call_limits, gateway_groups, emergency, auth } = lists;
    let (names, loaded) = load(sets, reader);
    let call_limits: Vec<_> = call_limits.iter().cloned().map(Arc::new).collect();
    let groups = gateway_group::all(gateway_groups, &call_limits);
    let action = |table| Arc::new(FailureAction::of(table, &names, &call_limits, &groups));
    let tables = failures;
    let failures: Vec<_> = tables.iter().map(action).collect();
    failure::check(tables, &failures, sets, reader);
    let mut compiled = Vec::new();
    for (index, table) in rules.iter().enumerate() {
        let path = format!("rule[{index}]");
        if let Some(condition) = condition(&table.when, &path, &rule_shown(table), &names, reader) {
            let name = table.name.as_str().into();
            let action = Action::of(table, &names, &failures, &call_limits, &groups);
            compiled.push(CompiledRule { name, condition, action });
        }
        let named = Named { sets, failures: &failures, call_limits: &call_limits, groups: &groups };
        check_action::check(table, &path, &named, record_route, reader);
    }
    let filters = Rules::new(filter::compile(filters, &names, reader));
    let mut filled = Sets::empty(&names);
    for (id, set) in loaded {
        if let Ok(with) = filled.with(id, set) {
            filled = with;
        }
    }
    let trusted = sources.iter().filter(|source| source.trusted).map(|source| source.name.to_string()).collect();
    let sources = of_sources(sources, reader).map(Arc::new);
    let (filters, rules) = (Arc::new(filters), Arc::new(Rules::new(compiled)));
    if let Some(set) = &auth.identities {
        identity::check_set(set, "auth.identities", sets, reader);
    }
    if let Some(Identities::Set(set)) = &emergency.identity {
        identity::check_set(set, "emergency.identity", sets, reader);
    }
    let emergency_identity = IdentitySource::of(emergency.identity.as_ref(), &names);
    let emergency = Targets::of(emergency.target.as_slice(), false, &groups);
    let sounds = Arc::default();
    Arc::new(Decisions { filters, rules, sets: filled, names, sounds, sources, trusted, emergency, emergency_identity })
}

pub(super) fn rule_shown(table: &RuleTable) -> String {
    format!("rule '{}'", table.name)
}

fn of_sources(tables: &[SourceTable], reader: &mut Reader) -> Option<Set> {
    let mut all = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let networks = table.networks.iter().map(|network| (network.as_str(), Some(table.name.as_str())));
        // Each table is first compiled alone, so that its faults have its position.
        of_entries(LookupKind::Networks, networks.clone(), &format!("source[{index}]"), "networks", reader)?;
        all.extend(networks);
    }
    if all.is_empty() {
        return None;
    }
    match Set::new(LookupKind::Networks, all) {
        Ok(set) => Some(set),
        Err(fault) => {
            let span = reader.value_of(&format!("source[{}].networks", tables.len() - 1));
            reader.push(Fault::error(span, fault.message, fault.cure));
            None
        }
    }
}
