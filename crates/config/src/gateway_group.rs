//! `[[gateway_group]]`: several next hops under one name, as targets of rules and failures.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::cache::Password;
use super::call_limit::{self, CallLimitTable};
use super::key::{Key, Role, Rule, words};
use super::name::{Name, Reference, read_reference};
use super::proxy::SipUri;
use super::reader::{ANY, Reader, Section, section};
use super::report::Fault;

words! {
    /// Choice of the first target. The other targets follow in the order of the list, which continues at its beginning after its end.
    pub enum Pick {
        /// First of the list.
        InOrder = "in_order",
        /// Next one with each request.
        InTurn = "in_turn",
        /// Target selected by a hash of the Call-ID, so that all requests of a call go to the same target.
        ByCall = "by_call",
    }
}

section! {
    /// Targets under one name, such as the gateways of a carrier or the servers of a cluster, which `to` of rules and failures can name in place of a
    /// URI; repeat the table for each group.
    pub struct GatewayGroupTable = "gateway_group" {
        /// Name of the group, for `to` of rules and failures.
        pub name: Name = Name::UNSET, ANY.required();
        /// At least one target, as a URI as in `rule.to`.
        pub to: Vec<SipUri> = Vec::new(), ANY.required();
        /// First target to try: the first of the list, the next one with each request, or one selected by a hash of the Call-ID. The other targets
        /// follow in the order of the list, which continues at its beginning after its end.
        pub pick: Pick = Pick::InOrder, ANY;
        /// Names of `[[call_limit]]` tables under which a call counts while a target of this group is tried or has the call, until the call ends or
        /// is tried at a target after the group. A group without room is skipped; if no other target is left, `over` and `status` of the limit decide
        /// about the call.
        pub call_limits: Vec<Reference<CallLimitTable>> = Vec::new(), ANY;
        /// User by which this server answers a 401 or 407 of the targets, in calls with `b2bua` that can go to targets of this group alone: `to` names no
        /// other target, and no failure does. In other calls a challenge of a gateway refuses the call, or goes to the caller. "": none.
        pub user: String = String::new(), ANY;
        /// Password of that user; "": none.
        pub password: Option<Password> = None, ANY.or("");
    }
}

/// One entry of a `to`.
#[derive(Debug, Clone, PartialEq)]
pub enum RouteTarget {
    /// A target.
    Uri(SipUri),
    /// All targets of a group.
    Group(Reference<GatewayGroupTable>),
}

impl Key for RouteTarget {
    const ROLE: Role = Role::Reference(GatewayGroupTable::NAME);

    fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) if text.contains(':') => {
                let before = reader.fault_count();
                let uri = SipUri::read(path, value, rule, reader);
                reader.amend(before, OR_GROUP);
                uri.map(Self::Uri)
            }
            DeValue::String(text) if !Name::is_one(text) => {
                let message = format!("{path} is {text:?}, which is neither a SIP URI nor a name");
                reader.error(value.span(), message, format!("write {}", Self::allowed(rule)));
                None
            }
            _ => read_reference(path, value, "a URI begins with sip:", reader).map(Self::Group),
        }
    }

    fn write(&self, rule: &Rule) -> String {
        match self {
            Self::Uri(uri) => uri.write(rule),
            Self::Group(name) => name.write(rule),
        }
    }

    fn allowed(rule: &Rule) -> String {
        SipUri::allowed(rule) + OR_GROUP
    }
}

const OR_GROUP: &str = ", or the name of a `[[gateway_group]]`";

/// Compiled gateway group.
#[derive(Debug, PartialEq)]
pub struct GatewayGroup {
    /// Name of the group.
    pub name: Name,
    /// Index among the groups of the configuration.
    pub number: usize,
    /// Targets of the group.
    pub to: Box<[SipUri]>,
    /// Choice of the first target.
    pub pick: Pick,
    /// Limits under which a call counts while it is at this group.
    pub call_limits: Box<[Arc<CallLimitTable>]>,
}

impl GatewayGroup {
    fn of(number: usize, table: &GatewayGroupTable, call_limits: &[Arc<CallLimitTable>]) -> Self {
        Self {
            name: table.name.clone(),
            number,
            to: table.to.clone().into(),
            pick: table.pick,
            call_limits: call_limit::named(&table.call_limits, call_limits),
        }
    }
}

/// Places in [`Targets::uris`] that belong to one group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupPlaces {
    /// Group; shared by all that name it.
    pub group: Arc<GatewayGroup>,
    /// Indexes of its targets.
    pub places: Range<usize>,
}

/// Targets of a `to`, with groups expanded in place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Targets {
    /// Targets in order of trying, each group from its first.
    pub uris: Box<[SipUri]>,
    /// Groups and their places, in this order.
    pub groups: Box<[GroupPlaces]>,
    /// True: all targets are tried at the same time, not in order.
    pub at_once: bool,
}

impl Targets {
    pub(super) fn of(places: &[RouteTarget], at_once: bool, groups: &[Arc<GatewayGroup>]) -> Self {
        let (mut uris, mut parts) = (Vec::new(), Vec::new());
        for place in places {
            match place {
                RouteTarget::Uri(uri) => uris.push(uri.clone()),
                RouteTarget::Group(name) => {
                    // A group that does not exist was noted when the reference was read.
                    let Some(group) = groups.iter().find(|group| group.name == *name.name()) else { continue };
                    let from = uris.len();
                    uris.extend_from_slice(&group.to);
                    parts.push(GroupPlaces { group: group.clone(), places: from..uris.len() });
                }
            }
        }
        Self { uris: uris.into(), groups: parts.into(), at_once }
    }

    /// Returns the limits of the groups among the targets.
    pub fn call_limits(&self) -> impl Iterator<Item = &Arc<CallLimitTable>> {
        self.groups.iter().flat_map(|part| &part.group.call_limits)
    }
}

/// Compiles the groups of a configuration.
pub(super) fn all(tables: &[GatewayGroupTable], call_limits: &[Arc<CallLimitTable>]) -> Vec<Arc<GatewayGroup>> {
    let of = |(number, table)| Arc::new(GatewayGroup::of(number, table, call_limits));
    tables.iter().enumerate().map(of).collect()
}

impl GatewayGroupTable {
    /// Returns the credentials for its targets: user and password.
    pub fn credentials(&self) -> Option<(&[u8], &[u8])> {
        self.password.as_ref().map(|password| (self.user.as_bytes(), password.reveal()))
    }
}

/// Notes groups without targets, except groups whose targets could not be read, which were noted before. Notes groups with half of an account.
pub(super) fn check(tables: &[GatewayGroupTable], reader: &mut Reader) {
    for (index, table) in
        tables.iter().enumerate().filter(|(_, table)| table.user.is_empty() == table.password.is_some())
    {
        let key = if table.user.is_empty() { "password" } else { "user" };
        let span = reader.value_of(&format!("gateway_group[{index}].{key}"));
        let message = format!("gateway group '{}' has `{key}` alone", table.name);
        reader.push(Fault::error(span, message, "write both `user` and `password`, or remove it"));
    }
    for (index, table) in tables.iter().enumerate().filter(|(_, table)| table.to.is_empty()) {
        let span = reader.value_of(&format!("gateway_group[{index}].to"));
        let message = format!("gateway group '{}' has no target", table.name);
        reader.push(Fault::error(span, message, "write at least one URI such as \"sip:gw1.example.net\""));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Report, Source};
    use super::*;

    const GROUPS: &str = "[[call_limit]]\nname = \"lines\"\nmost = 1\n\
        [[gateway_group]]\nname = \"West\"\nto = [\"sip:192.0.2.1\", \"sip:192.0.2.2\"]\npick = \"in_turn\"\n\
        [[gateway_group]]\nname = \"east\"\nto = [\"sip:192.0.2.3\"]\ncall_limits = [\"lines\"]\n";

    #[test]
    fn an_account_has_a_user_and_a_password() {
        for (keys, message) in [
            ("user = \"office\"", Some("gateway group 'gw' has `user` alone")),
            ("password = \"sesame\"", Some("gateway group 'gw' has `password` alone")),
            ("user = \"office\"\npassword = \"sesame\"", None),
        ] {
            let text = format!("[[gateway_group]]\nname = \"gw\"\nto = [\"sip:192.0.2.1\"]\n{keys}\n");
            match (read(&text), message) {
                (Ok((config, _)), None) => {
                    let account = config.gateway_groups[0].credentials();
                    assert_eq!(account, Some((&b"office"[..], &b"sesame"[..])));
                    assert!(!config.effective().contains("sesame"));
                }
                (Err(report), Some(message)) => {
                    assert!(report.faults().iter().any(|fault| fault.message == message), "{report}");
                }
                (other, _) => panic!("{keys}: {}", other.is_ok()),
            }
        }
    }

    fn read(text: &str) -> Result<(Config, Report), Report> {
        Config::read(Source { text, ..Source::default() })
    }

    fn uris(targets: &Targets) -> Vec<&str> {
        targets.uris.iter().map(SipUri::as_str).collect()
    }

    #[test]
    fn the_targets_of_a_group_stand_where_its_name_does() {
        let text = format!(
            "{GROUPS}[[failure]]\nname = \"f\"\nstatuses = [\"5xx\"]\nto = [\"east\", \"sip:192.0.2.9\"]\n\
             [[rule]]\nname = \"r\"\nto = [\"sip:192.0.2.8\", \"West\", \"east\"]\non_failure = [\"f\"]\n"
        );
        let (config, report) = read(&text).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(report.faults(), []);
        let rule = &config.decisions.rules.iter().next().expect("there is one").action;
        assert_eq!(uris(&rule.to), ["sip:192.0.2.8", "sip:192.0.2.1", "sip:192.0.2.2", "sip:192.0.2.3"]);
        let shown = |targets: &Targets| -> Vec<_> {
            let part = |part: &GroupPlaces| (part.group.number, part.group.pick, part.places.clone());
            targets.groups.iter().map(part).collect()
        };
        assert_eq!(shown(&rule.to), [(0, Pick::InTurn, 1..3), (1, Pick::InOrder, 3..4)]);
        let failure = &rule.on_failure[0];
        assert_eq!(uris(&failure.to), ["sip:192.0.2.3", "sip:192.0.2.9"]);
        let limits = [rule.limits().count(), failure.limits().count()];
        assert_eq!((shown(&failure.to), limits), (vec![(1, Pick::InOrder, 0..1)], [1, 1]));
        // The output of `effective` is read as the same configuration.
        let effective = config.effective();
        let again = read(&effective).unwrap_or_else(|report| panic!("{report}")).0;
        assert_eq!((again.rules, again.gateway_groups), (config.rules, config.gateway_groups));
    }

    #[test]
    fn what_is_wrong_with_groups_has_its_place_and_its_cure() {
        let rule = |to: &str, more: &str| format!("{GROUPS}[[rule]]\nname = \"r\"\nto = [{to}]\n{more}");
        for (text, line, message, cure) in [
            (rule("\"west\"", ""), 14, "gateway group 'west' does not exist", "did you mean 'West'?"),
            (rule("\"gw.example.net\"", ""), 14, "gateway group 'gw.example.net'", "a URI begins with sip:"),
            (rule("\"a b\"", ""), 14, "neither a SIP URI nor a name", "or the name of a `[[gateway_group]]`"),
            (rule("\"http://a\"", ""), 14, "not a SIP URI", "or the name of a `[[gateway_group]]`"),
            (rule("1", ""), 14, "rule[0].to[0] must be text", "write a name"),
            (
                "[[rule]]\nname = \"r\"\nto = [\"west\"]\n".into(),
                3,
                "does not exist",
                "there is no [[gateway_group]] table: add one with name = \"west\"; a URI begins with sip:",
            ),
            ("[[gateway_group]]\nname = \"g\"\nto = []\n".into(), 3, "gateway group 'g' has no target", "at least one"),
            ("[[gateway_group]]\nname = \"g\"\nto = [\"g\"]\n".into(), 3, "not a SIP URI", "a URI without angle"),
            (GROUPS.replace("in_turn", "turn"), 7, "gateway_group[0].pick", "\"in_order\", \"in_turn\" or \"by_call\""),
            (GROUPS.replace("[\"lines\"]", "[\"line\"]"), 11, "call limit 'line' does not exist", "'lines'"),
            (
                rule("\"West\", \"east\"", "record_route = false"),
                14,
                "'east', which counts calls whose end",
                "record_route = true",
            ),
            (rule("\"east\"", "redirect = true"), 14, "redirects to gateway group 'east'", "without limits"),
            (rule("\"east\"", "at_once = true"), 15, "rings all of `to` at once", "remove `at_once`"),
            (rule("\"West\"", "at_once = true\nredirect = true"), 15, "says what rings at once", "keep `redirect` or"),
            ("[[rule]]\nname = \"r\"\nat_once = true\n".into(), 3, "at_once without `to`", "add `to`"),
            (
                format!(
                    "{GROUPS}[[failure]]\nname = \"f\"\nstatuses = [\"5xx\"]\nto = [\"east\"]\nat_once = true\n\
                     [[rule]]\nname = \"r\"\non_failure = [\"f\"]\n"
                ),
                16,
                "failure 'f' rings all of `to` at once",
                "no gateway group with limits",
            ),
            (
                format!(
                    "{GROUPS}[[failure]]\nname = \"f\"\nstatuses = [\"5xx\"]\nto = [\"east\"]\n[[rule]]\nname = \"r\"\n\
                     track = false\non_failure = [\"f\"]\n"
                ),
                19,
                "has a failure, 'f', that counts",
                "track = false",
            ),
            (
                GROUPS.replace("most = 1", "most = 1\nper = \"gateway\"")
                    + "[[rule]]\nname = \"r\"\ncall_limits = [\"lines\"]\n",
                15,
                "call limit 'lines' counts the calls of each gateway",
                "that has the gateways",
            ),
        ] {
            let report = read(&text).expect_err(&text);
            let fault = report.faults().iter().find(|fault| fault.message.contains(message));
            let fault = fault.unwrap_or_else(|| panic!("{text}\n{report}"));
            assert_eq!(report.position(fault).map(|(at, _)| at), Some(line), "{text}\n{report}");
            assert!(fault.cure.contains(cure), "{text}\n{report}");
        }
    }

    #[test]
    fn a_group_that_nothing_names_is_doubtful() {
        let (_, report) = read(GROUPS).unwrap_or_else(|report| panic!("{report}"));
        let said = report.to_string();
        for part in [
            "gateway group 'West' is used nowhere",
            "gateway group 'east' is used nowhere",
            "to of [[failure]] or to of [[rule]]",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}
