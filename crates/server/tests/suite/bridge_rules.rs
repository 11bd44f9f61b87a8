//! Rules that bridge calls: which requests they bridge, and their policies, as `explain` shows them.

use crate::decisions::{GATEWAY, MAILBOX, invite, request, site};
use crate::explain::explained;
use crate::site::{ALICE, Site};
use strowger_server::explain::{BridgeView, Course, ExplainedOutcome, PlanView};

/// Starts a server with these rules, which has an address for media.
fn bridging(rules: &str) -> Site {
    site(&format!("[media]\naddresses = [\"192.0.2.1\"]\n{rules}"))
}

/// Returns the course of a request of ALICE.
fn course(site: &Site, text: &str) -> Course {
    explained(site, ALICE, text).course
}

/// Returns the plan of a request that is forwarded or bridged.
fn plan(site: &Site, text: &str) -> PlanView {
    match course(site, text).outcome {
        ExplainedOutcome::Forward(plan) => *plan,
        other => panic!("{other:?}: {text}"),
    }
}

/// Returns a rule that bridges calls to GATEWAY, after one that names codecs.
fn to_gateway() -> String {
    format!(
        "[[rule]]\nname = \"codecs\"\ncodecs = [\"PCMA\", \"telephone-event\"]\nmedia_types = [\"video\"]\n\
         [[rule]]\nname = \"out\"\nwhen = \"number starts_with '00'\"\nb2bua = true\ncodecs = [\"PCMU\"]\n\
         callee_codecs = [\"PCMU\", \"PCMA\"]\ntrack = true\nrefer_from = \"none\"\nto = [\"sip:{GATEWAY}\"]\n"
    )
}

#[test]
fn explain_shows_a_bridged_call_with_the_codecs_of_each_side() {
    let site = bridging(&to_gateway());
    let text = invite(1, "sip:0049@example.org");
    let shown = plan(&site, &text);
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let expected = BridgeView {
        caller_codecs: names(&["PCMA", "telephone-event"]),
        callee_codecs: names(&["PCMU", "PCMA"]),
        media_types: names(&["video"]),
        refer_from: "none",
    };
    assert_eq!((shown.bridge, shown.record_route, shown.track), (Some(expected), false, true));
    assert_eq!(shown.to[0].at, [format!("udp:{GATEWAY}")]);
    let said = explained(&site, ALICE, &text).to_string();
    let path = "\npath    two calls, with media of this server: caller PCMA, telephone-event; callee PCMU, PCMA; video; REFER of none\n";
    assert!(said.contains(path) && said.contains("\ntrack   the call is tracked\n"), "{said}");
}

#[test]
fn only_an_invite_that_begins_a_call_is_bridged() {
    let site = bridging(&to_gateway());
    let uri = "sip:0049@example.org";
    for (n, method, records_route) in [(1, "MESSAGE", false), (2, "SUBSCRIBE", true), (3, "OPTIONS", false)] {
        let shown = plan(&site, &request(n, method, uri, ""));
        assert_eq!((shown.bridge, shown.record_route), (None, records_route), "{method}");
    }
    // The dialog of this INVITE is not known, and the rule lets nobody refer the callee.
    let within = invite(4, uri).replace(&format!("To: <{uri}>"), &format!("To: <{uri}>;tag=there"));
    for (text, expected) in [(within, 481), (request(5, "REFER", uri, "Refer-To: <sip:0050@example.org>\r\n"), 403)] {
        let outcome = course(&site, &text).outcome;
        assert!(matches!(outcome, ExplainedOutcome::Answer { status, .. } if status == expected), "{outcome:?}");
    }
}

#[test]
fn a_bridged_call_is_tracked_and_has_no_session_timer_of_the_proxy() {
    let keys = |b2bua: bool| {
        format!(
            "dialogs.track = false\ndialogs.session_expires = \"10m\"\n[media]\naddresses = [\"192.0.2.1\"]\n\
             [[rule]]\nname = \"out\"\nb2bua = {b2bua}\nto = [\"sip:{GATEWAY}\"]\n"
        )
    };
    for is_bridged in [true, false] {
        let text = request(1, "INVITE", "sip:0049@example.org", "Session-Expires: 1800\r\nSupported: timer\r\n");
        let shown = plan(&site(&keys(is_bridged)), &text);
        assert_eq!((shown.bridge.is_some(), shown.track), (is_bridged, is_bridged));
    }
    // A tracked call that the server forwards gets a shorter timer.
    let tracked = keys(false).replace("dialogs.track = false", "dialogs.track = true");
    let text = request(1, "INVITE", "sip:0049@example.org", "Session-Expires: 1800\r\nSupported: timer\r\n");
    let has_timer = |plan: &PlanView| plan.add.iter().any(|line| line.starts_with("Session-Expires"));
    assert!(has_timer(&plan(&site(&tracked), &text)));
    let bridged = tracked.replace("b2bua = false", "b2bua = true");
    assert!(!has_timer(&plan(&site(&bridged), &text)));
}

#[test]
fn a_redirection_is_not_bridged_and_its_failure_is() {
    let rules = format!(
        "[[failure]]\nname = \"mailbox\"\nstatuses = [\"480\"]\nto = [\"sip:mailbox@{MAILBOX}\"]\n\
         [[rule]]\nname = \"all\"\nb2bua = true\non_failure = [\"mailbox\"]\n\
         [[rule]]\nname = \"moved\"\nredirect = true\n"
    );
    let mut site = bridging(&rules);
    let text = invite(1, "sip:bob@example.org");
    // He has no phone: the failure leads to the mailbox.
    let shown = plan(&site, &text);
    assert_eq!(shown.to[0].uri, format!("sip:mailbox@{MAILBOX}"));
    assert!(shown.bridge.is_some());
    site.register("<sip:bob@198.51.100.8:5060>");
    let outcome = course(&site, &text).outcome;
    assert_eq!(outcome, ExplainedOutcome::Redirect { contacts: vec!["sip:bob@198.51.100.8:5060".to_owned()] });
}

#[test]
fn an_earlier_rule_can_keep_calls_from_being_bridged() {
    let rules = format!(
        "[[rule]]\nname = \"inside\"\nwhen = \"request.user == 'bob'\"\nb2bua = false\n\
         [[rule]]\nname = \"all\"\nb2bua = true\nto = [\"sip:{GATEWAY}\"]\n"
    );
    let site = bridging(&rules);
    assert!(plan(&site, &invite(1, "sip:bob@example.org")).bridge.is_none());
    let shown = plan(&site, &invite(2, "sip:carol@example.org"));
    let (caller_codecs, callee_codecs, media_types) = (Vec::new(), Vec::new(), Vec::new());
    let any = BridgeView { caller_codecs, callee_codecs, media_types, refer_from: "users" };
    assert_eq!(shown.bridge, Some(any));
    assert!(
        explained(&site, ALICE, &invite(3, "sip:carol@example.org"))
            .to_string()
            .contains("caller any codec; callee any codec\n")
    );
}

#[test]
fn an_emergency_call_is_not_bridged() {
    let site = site(&format!(
        "emergency.numbers = [\"112\"]\nemergency.target = \"sip:{GATEWAY}\"\n[media]\naddresses = [\"192.0.2.1\"]\n\
         [[rule]]\nname = \"all\"\nb2bua = true\n"
    ));
    let text = invite(1, "sip:112@example.org").replace("<sip:carol@example.net>", "<sip:carol@example.org>");
    let shown = plan(&site, &text);
    assert_eq!((shown.bridge, &*shown.to[0].uri), (None, &*format!("sip:{GATEWAY}")));
}
