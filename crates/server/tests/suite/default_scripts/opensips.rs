//! Rules of OpenSIPS' default script, by their numbers.

use super::*;

#[track_caller]
fn opensips(name: Option<&str>, check: impl Fn(&mut Script) -> bool) {
    does("default-opensips.toml", name, check);
}

#[test]
fn opensips_01_max_forwards() {
    opensips(Some("1"), counts_forwards);
}

#[test]
fn opensips_02_acks_belong_to_their_invite() {
    opensips(None, absorbs_acks);
}

#[test]
fn opensips_03_not_here() {
    opensips(Some("3"), |script| script.says(&STRAY_BYE, "404 Not here"));
}

#[test]
fn opensips_04_loose_routing() {
    opensips(None, routes_byes);
}

#[test]
fn opensips_05_byes_are_accounted() {
    opensips(Some("5"), accounts_byes);
}

#[test]
fn opensips_06_a_cancel_that_matches_nothing() {
    opensips(Some("6"), |script| script.ask(&Ask { method: "CANCEL", ..CALL }).is_empty());
}

#[test]
fn opensips_06_a_cancel_that_matches() {
    opensips(None, cancels);
}

#[test]
fn opensips_07_retransmissions() {
    opensips(None, absorbs_copies);
}

#[test]
fn opensips_08_relay_forbidden() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..CALL };
    opensips(Some("8"), |script| script.says(&foreign, "403 Relay Forbidden"));
}

#[test]
fn opensips_09_preloaded_routes() {
    let routed = Ask { more: "Max-Forwards: 70\r\nRoute: <sip:203.0.113.77;lr>\r\n", ..CALL };
    let ack = Ask { method: "ACK", ..routed };
    opensips(Some("9"), |script| script.says(&routed, "403 Preload Route denied") && script.ask(&ack).is_empty());
}

/// Route of a phone that has this server as its outbound proxy: the script removes it.
#[test]
fn opensips_09_a_route_to_the_server_is_no_way_of_its_own() {
    for file in ["default-opensips.toml", "residential-opensips.toml"] {
        let own = Ask { more: "Max-Forwards: 70\r\nRoute: <sip:example.org;lr>\r\n", ..CALL };
        does(file, None, |script| {
            let got = script.forwarded(&own);
            got.is_some_and(|(at, text)| at == BOB && !text.contains("\r\nRoute: "))
        });
        let both = "Max-Forwards: 70\r\nRoute: <sip:example.org;lr>, <sip:203.0.113.77;lr>\r\n";
        does(file, None, |script| script.says(&Ask { more: both, ..CALL }, "403 Preload Route denied"));
    }
}

#[test]
fn opensips_10_record_route() {
    let stays = |script: &mut Script, method: &'static str| {
        let foreign = Ask { method, uri: "sip:dave@203.0.113.77", ..OWN };
        is_record_routed(&script.forwarded(&foreign).expect("it goes on").1)
    };
    let unless = |text: &str| with(text, "[proxy]\n", "[proxy]\nrecord_route = false\n");
    does_unless("default-opensips.toml", unless, |script| stays(script, "INVITE"));
    opensips(None, |script| ["SUBSCRIBE", "REFER", "NOTIFY"].into_iter().all(|method| stays(script, method)));
    // A MESSAGE makes no dialog (RFC 3428 section 5).
    opensips(None, |script| !stays(script, "MESSAGE"));
    // OPTIONS, PUBLISH and INFO make no dialog either, though the script stays in their path too.
    opensips(None, |script| !["OPTIONS", "PUBLISH", "INFO"].into_iter().any(|method| stays(script, method)));
}

#[test]
fn opensips_11_invites_are_accounted() {
    opensips(Some("11"), accounts_invites);
}

#[test]
fn opensips_12_calls_to_other_domains() {
    opensips(Some("12"), |script| marks_what_leaves(script, "P-hint: outbound"));
}

#[test]
fn opensips_13_no_presence() {
    opensips(Some("13"), |script| {
        let mut refused = |method: &'static str| script.says(&Ask { method, ..CALL }, "503 Service Unavailable");
        refused("PUBLISH") && refused("SUBSCRIBE")
    });
}

#[test]
fn opensips_14_registrations_are_saved() {
    opensips(None, saves_registrations);
}

#[test]
fn opensips_15_no_user() {
    for (method, uri) in
        [("INVITE", "sip:example.org"), ("OPTIONS", "sip:example.org"), ("OPTIONS", "sip:192.0.2.1:5060")]
    {
        opensips(Some("15"), |script| script.says(&Ask { method, uri, ..CALL }, "484 Address Incomplete"));
    }
}

#[test]
fn opensips_16_not_registered() {
    opensips(Some("16"), |script| script.says(&Ask { uri: "sip:zoe@example.org", ..CALL }, "404 Not Found"));
    opensips(Some("16a"), |script| script.says(&Ask { method: "REFER", ..CALL }, "404 Not Found"));
}

#[test]
fn opensips_17_missed_calls_are_accounted() {
    opensips(Some("17"), accounts_missed_calls);
}

/// Redirections are handled in a comment of the script, and so in the file.
#[test]
fn opensips_18_calls_have_a_failure_route() {
    let text = example("default-opensips.toml");
    let blocks = |text: &str, method: &'static str| {
        let mut script = Script::of(text);
        assert!(script.registers("dave@example.org", "<sip:dave@203.0.113.99>", BOB));
        statuses(&script.answered(&Ask { method, uri: "sip:dave@example.org", ..CALL }, 302), CAROL)
    };
    assert_eq!(blocks(&uncommented(&text), "INVITE"), [404]);
    assert_eq!(blocks(&text, "INVITE"), [302]);
    assert_eq!(blocks(&uncommented(&without(&text, "18")), "INVITE"), [302]);
    // Other requests have no failure route.
    assert_eq!(blocks(&uncommented(&text), "MESSAGE"), [302]);
}

#[test]
fn opensips_19_no_way() {
    opensips(None, |script| script.says(&NOWHERE, "500 Server Internal Error"));
}

#[test]
fn opensips_20_failures() {
    // A failure goes upstream.
    opensips(None, |script| statuses(&script.answered(&CALL, 486), CAROL) == [486]);
    // After a CANCEL of the caller the failure route is not used.
    let text = uncommented(&example("default-opensips.toml"));
    let got = Script::of(&text).cancelled(&CALL, 302).expect("it is cancelled");
    assert_eq!(statuses(&got, CAROL), [302]);
    assert_eq!(statuses(&Script::of(&text).answered(&CALL, 302), CAROL), [404]);
}

#[test]
fn opensips_t_timers() {
    // The time runs from the first ring on: further responses of the phone do not prolong it.
    opensips(Some("T"), |script| {
        let Some((at, text)) = script.rings(&CALL) else { return false };
        let rang = script.given_up_after(20);
        receive(&mut script.site, &at, &answer(&text, 183, ""));
        let ended = script.given_up_after(12);
        let got = receive(&mut script.site, &at, &answer(&text, 487, ""));
        rang.is_none() && ended.is_some_and(|more| (9..=11).contains(&more)) && statuses(&got, CAROL) == [408]
    });
    // A silent phone.
    opensips(Some("T"), |script| {
        script.ask(&CALL);
        (1..=8).find(|_| script.site.wait(1_000).contains("SIP/2.0 408 ")).is_some_and(|second| second >= 5)
    });
}

// Differences of the script of February 2011 (OpenSIPS 1.6.4), by the changes to the file that
// docs/from-opensips-or-kamailio.md names.

fn of_2011() -> String {
    let text = without(&example("default-opensips.toml"), "8");
    let text = with(&text, "method in ['PUBLISH', 'SUBSCRIBE']", "method == 'PUBLISH'");
    with(&text, "unfit_status = 404\n", "")
}

#[test]
fn opensips_2011_relays_for_all() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..CALL };
    let goes_on = |text: &str| Script::of(text).forwarded(&foreign).is_some_and(|(at, _)| at == ELSEWHERE);
    assert!(goes_on(&of_2011()));
    assert!(!goes_on(&example("default-opensips.toml")));
}

#[test]
fn opensips_2011_only_publish_has_no_presence() {
    let subscribes = |text: &str| {
        let mut script = Script::of(text);
        assert!(script.registers("dave@example.org", "<sip:dave@203.0.113.99>", BOB));
        assert!(script.says(&Ask { method: "PUBLISH", ..CALL }, "503 Service Unavailable"));
        script.forwarded(&Ask { method: "SUBSCRIBE", uri: "sip:dave@example.org", ..CALL }).is_some()
    };
    assert!(subscribes(&of_2011()));
    assert!(!subscribes(&example("default-opensips.toml")));
}

#[test]
fn opensips_2011_the_wrong_method_is_405() {
    let refer = Ask { method: "REFER", ..CALL };
    assert!(Script::of(&of_2011()).says(&refer, "405 Method Not Allowed"));
    assert!(!Script::of(&example("default-opensips.toml")).says(&refer, "405 Method Not Allowed"));
}

/// ACKs without a Route end here with both scripts.
#[test]
fn opensips_2011_acks_without_a_route_end_here() {
    let ack = Ask { method: "ACK", tag: ";tag=t", ..CALL };
    assert!(Script::of(&of_2011()).ask(&ack).is_empty());
    opensips(None, |script| script.ask(&ack).is_empty());
}

/// The script writes another Record-Route there, which changes no route (RFC 3261 section 12.2).
#[test]
fn opensips_2011_a_later_invite_is_not_record_routed() {
    let (_, text) = Script::of(&of_2011()).within(&CALL, "INVITE").expect("it goes on");
    assert!(text.starts_with("INVITE sip:x@203.0.113.99 ") && !is_record_routed(&text), "{text}");
}
