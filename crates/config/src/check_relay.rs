//! Checks for open relays: rules and settings that let unauthenticated callers reach other servers.

use strowger_message::Uri;
use strowger_rules::{Condition, FlagField, LookupKind, Network, Test, TextField};

use super::failure::FailureTable;
use super::listen::Listener;
use super::proxy::{RelayFor, SipUri};
use super::reader::Reader;
use super::report::Fault;
use super::rules::Action;
use super::{Config, Name};

pub(super) fn check(config: &Config, reader: &mut Reader) {
    if config.proxy.relay_for == RelayFor::LocalDomains && config.domains.is_empty() {
        let span = reader.value_of("proxy.relay_for");
        let message = "proxy.relay_for = \"local-domains\" admits no caller, because domains is empty";
        reader.push(Fault::error(span, message, "name your domains: domains = [\"example.org\"]"));
    }
    let Some(open) = config.listeners.iter().find(|listener| !listener.is_loopback()) else { return };
    check_proxy(config, open, reader);
    check_sources(config, open, reader);
    check_rules(config, open, reader);
}

fn check_proxy(config: &Config, open: &Listener, reader: &mut Reader) {
    if config.proxy.relay_for == RelayFor::Everyone {
        let span = reader.value_of("proxy.relay_for");
        let message =
            format!("proxy.relay_for = \"everyone\" makes an open relay of {open}, which scanners find within hours");
        let cure = "write \"authenticated\", or listen on an address that only trusted machines reach";
        reader.push(Fault::warning(span, message, cure));
    }
    if config.proxy.relay_for == RelayFor::LocalDomains && !config.auth.calls {
        let span = reader.first_of(&["proxy.relay_for", "auth.calls"]);
        let message = format!(
            "proxy.relay_for = \"local-domains\" with auth.calls = false makes an open relay of {open}: anyone can write a \
             From of a local domain"
        );
        let cure = "set auth.calls = true, or listen on an address that only trusted machines reach";
        reader.push(Fault::warning(span, message, cure));
    }
}

/// Prefix length of the largest private network, fc00::/7. A shorter prefix counts as wide.
const FEWEST_BITS: u8 = 7;

fn check_sources(config: &Config, open: &Listener, reader: &mut Reader) {
    let is_wide = |network: &String| {
        let network = Network::read(network).map_or_else(|_| String::new(), |network| network.to_string());
        network.split_once('/').and_then(|(_, bits)| bits.parse::<u8>().ok()).is_some_and(|bits| bits < FEWEST_BITS)
    };
    for (index, source) in config.sources.iter().enumerate().filter(|(_, source)| source.trusted) {
        let Some(place) = source.networks.iter().position(is_wide) else { continue };
        let span = reader.value_of(&format!("source[{index}].networks[{place}]"));
        let message = format!(
            "source '{}' trusts {}, which makes an open relay of {open}: callers there need no password",
            source.name, source.networks[place]
        );
        reader.push(Fault::warning(span, message, "name the addresses of the peers alone that are meant"));
    }
}

fn check_rules(config: &Config, open: &Listener, reader: &mut Reader) {
    let mut told: Vec<&Name> = Vec::new();
    for (index, rule) in config.decisions.rules.iter().enumerate() {
        let Action { to, relay_for, on_failure, .. } = &rule.action;
        if is_narrow(config, &rule.condition) {
            continue;
        }
        let place = to.uris.iter().find(|uri| leads_outside(config, uri));
        let is_for_all = match relay_for {
            Some(RelayFor::Everyone) => true,
            Some(RelayFor::LocalDomains) => !config.auth.calls,
            Some(RelayFor::Authenticated) | None => false,
        };
        if let (Some(place), true) = (place, is_for_all) {
            let message = format!(
                "rule '{}' makes an open relay of {open}: every caller reaches every number by {}",
                rule.name,
                place.as_str()
            );
            let cure = "say in its `when` which callers it is for (authenticated, a source.group) or which users and numbers, or \
                        leave relay_for out";
            reader.push(Fault::warning(reader.value_of(&format!("rule[{index}].relay_for")), message, cure));
        }
        // Access to targets outside the local domains is checked before the request can fail at such a target.
        if place.is_some() && !is_for_all {
            continue;
        }
        for failure in on_failure {
            let Some(place) = config.failures.iter().position(|table| table.name == failure.name) else { continue };
            let table = &config.failures[place];
            if is_for_unknown_users(table) && !told.contains(&&table.name) {
                let Some(outside) = failure.to.uris.iter().find(|uri| leads_outside(config, uri)) else { continue };
                let message = format!(
                    "failure '{}' of rule '{}' makes an open relay of {open} where {} can dial out: every number that is no user's \
                     fails with 404, and no password is asked for",
                    table.name,
                    rule.name,
                    outside.as_str()
                );
                let cure = "say `authenticated` in the `when` of the rule, or leave 404 out of the statuses";
                reader.push(Fault::warning(reader.value_of(&format!("failure[{place}].statuses")), message, cure));
                told.push(&table.name);
            }
        }
    }
}

/// Tells whether a request to this target goes to another server with the Request-URI of the caller.
fn leads_outside(config: &Config, uri: &SipUri) -> bool {
    let Ok(Uri::Sip(uri)) = Uri::parse(uri.as_str().as_bytes()) else { return false };
    let mut host = Vec::new();
    uri.host.write_lower(&mut host);
    let host = String::from_utf8_lossy(&host);
    let is_name = config.is_local(&host)
        || config.server.names.iter().any(|name| name.as_str() == host)
        || config.listeners.iter().any(|listener| listener.host().is_some_and(|own| own.eq_ignore_ascii_case(&host)));
    let is_port = uri.port.is_none_or(|port| config.listeners.iter().any(|own| own.address.port() == port));
    uri.user.is_none() && !(is_name && is_port)
}

/// Tells whether the condition holds only for authenticated or trusted callers, or only for listed users and numbers.
fn is_narrow(config: &Config, condition: &Condition) -> bool {
    let is_target = |field| matches!(field, TextField::RequestUser | TextField::RequestUri | TextField::Number);
    let is_caller = |field| matches!(field, TextField::User | TextField::SourceGroup);
    condition.needs(|test| match test {
        Test::Flag(flag) => flag == FlagField::Authenticated || (flag == FlagField::FromLocal && config.auth.calls),
        Test::There(field) => is_caller(field),
        Test::Listed(field) => is_caller(field) || is_target(field),
        Test::In(field, set) => {
            let is_list = config.decisions.names.of(set).is_some_and(|(_, kind)| kind == LookupKind::Texts);
            is_caller(field) || (is_target(field) && is_list)
        }
        Test::Address(_) => true,
    })
}

/// Tells whether the failure applies to calls to unknown users, which fail with 404, or with 500 if the look-up fails.
fn is_for_unknown_users(table: &FailureTable) -> bool {
    let has = |status: u16| table.statuses.iter().any(|range| (range.first..=range.last).contains(&status));
    has(404) || has(500)
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    /// Warnings about open relays.
    fn warnings(text: &str) -> Vec<String> {
        let public = "domains = [\"example.org\"]\n[[listener]]\naddress = \"192.0.2.1\"\n";
        let text = format!("{public}{text}");
        let (_, report) =
            Config::read(Source { text: &text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
        let messages = report.faults().iter().map(|fault| fault.message.clone());
        messages.filter(|message| message.contains("open relay")).collect()
    }

    fn rule(when: &str, to: &str) -> String {
        let sets = "[[set]]\nname = \"rooms\"\nentries = [\"8000\"]\n[[set]]\nname = \"rates\"\nkind = \"prefixes\"\nentries = [\"49\"]\n";
        format!("{sets}[[rule]]\nname = \"r\"\nwhen = \"{when}\"\nto = [\"{to}\"]\nrelay_for = \"everyone\"\n")
    }

    fn failure(statuses: &str, to: &str, of_rule: &str) -> String {
        format!(
            "[[failure]]\nname = \"f\"\nstatuses = [{statuses}]\nto = [\"{to}\"]\n\
             [[rule]]\nname = \"r\"\non_failure = [\"f\"]\n{of_rule}\n"
        )
    }

    #[test]
    fn sources_that_are_the_world() {
        let source = |networks: &str| format!("[[source]]\nname = \"s\"\nnetworks = [{networks}]\ntrusted = true\n");
        for networks in ["\"0.0.0.0/0\"", "\"::/0\"", "\"::ffff:0.0.0.0/96\"", "\"192.0.2.1\", \"2000::/3\""] {
            assert!(warnings(&source(networks)).concat().contains("source 's' trusts"), "{networks}");
        }
        for networks in ["\"10.0.0.0/8\", \"fc00::/7\"", "\"192.0.2.1\""] {
            assert_eq!(warnings(&source(networks)), [""; 0], "{networks}");
        }
        assert_eq!(warnings(&source("\"0.0.0.0/0\"").replace("true", "false")), [""; 0]);
    }

    #[test]
    fn rules_that_lead_all_callers_to_all_numbers() {
        let gateway = "sip:gw.example.net";
        for (when, to) in [
            ("true", gateway),
            ("request.local", gateway),
            ("number in rates", gateway),
            ("number starts_with '+49'", gateway),
            ("not authenticated", gateway),
            // Another program on the machine of the server.
            ("true", "sip:192.0.2.1:5070"),
        ] {
            assert!(warnings(&rule(when, to)).concat().contains("rule 'r' makes an open relay of"), "{when} {to}");
        }
        for (when, to) in [
            ("authenticated", gateway),
            ("from.local", gateway),
            ("source.group == 'pbx'", gateway),
            ("request.user in rooms", gateway),
            ("number == '8000' or request.user == 'conference'", gateway),
            ("true", "sip:conference@gw.example.net"),
            ("true", "sip:example.org"),
            ("true", "sip:192.0.2.1"),
        ] {
            assert_eq!(warnings(&rule(when, to)), [""; 0], "{when} {to}");
        }
        assert_eq!(warnings(&rule("true", gateway).replace("everyone", "authenticated")), [""; 0]);
        let of_domains = rule("true", gateway).replace("everyone", "local-domains");
        assert_eq!(warnings(&of_domains), [""; 0]);
        assert!(warnings(&format!("{of_domains}[auth]\ncalls = false\n")).concat().contains("rule 'r'"));
    }

    /// A target at any position of a group.
    #[test]
    fn groups_that_lead_all_callers_to_all_numbers() {
        let group = |to: &str| format!("[[gateway_group]]\nname = \"g\"\nto = [{to}]\n");
        for (to, is_open) in [("\"sip:example.org\", \"sip:gw.example.net\"", true), ("\"sip:example.org\"", false)] {
            let by_rule = format!("{}{}", rule("true", "g"), group(to));
            let found = warnings(&by_rule).concat();
            assert_eq!(found.contains("rule 'r' makes an open relay of"), is_open, "{by_rule}\n{found}");
            let by_failure = format!("{}{}", failure("\"404\"", "g", "when = \"method == 'INVITE'\""), group(to));
            let found = warnings(&by_failure).concat();
            assert_eq!(found.contains("failure 'f' of rule 'r'"), is_open, "{by_failure}\n{found}");
        }
    }

    #[test]
    fn failures_that_lead_all_callers_to_all_numbers() {
        let gateway = "sip:gw.example.net";
        let invites = "when = \"method == 'INVITE'\"";
        for (statuses, of_rule) in [("\"404\"", invites), ("\"486\", \"4xx\"", invites), ("\"5xx\"", "")] {
            let found = warnings(&failure(statuses, gateway, of_rule));
            assert!(found.len() == 1 && found[0].starts_with("failure 'f' of rule 'r'"), "{statuses}: {found:?}");
        }
        for (statuses, to, of_rule) in [
            // Failures of existing users.
            ("\"480\", \"486\", \"6xx\"", gateway, invites),
            ("\"404\"", gateway, "when = \"authenticated and method == 'INVITE'\""),
            ("\"404\"", "sip:mailbox@vm.example.net", invites),
            ("\"404\"", "sip:example.org", invites),
            // Access has been checked before.
            ("\"4xx\"", gateway, "to = [\"sip:gw2.example.net\"]"),
        ] {
            assert_eq!(warnings(&failure(statuses, to, of_rule)), [""; 0], "{statuses} {to} {of_rule}");
        }
    }
}
