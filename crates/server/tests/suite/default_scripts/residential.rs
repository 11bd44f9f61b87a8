//! Switches of OpenSIPS' residential script, by their names.

use super::*;
use crate::dialogs::of_alice;
use crate::peer::invites;
use crate::site::credentials;
use strowger_config::{Config, Source};

const FILE: &str = "residential-opensips.toml";

/// Caller of this server who must show a password.
const REMOTE: Ask<'static> = Ask { at: CAROL, ..OWN };

#[track_caller]
fn residential(name: Option<&str>, check: impl Fn(&mut Script) -> bool) {
    does(FILE, name, check);
}

/// Sends this request for bob with alice's password. Returns the messages that leave.
fn with_password(script: &mut Script, ask: &Ask<'_>) -> String {
    let challenged = script.ask(&REMOTE).remove(0).1;
    let shown = format!("Max-Forwards: 70\r\n{}", credentials(b"secret of alice", "INVITE", &challenged, 1));
    script.ask(&Ask { more: &shown, ..*ask });
    script.site.answer()
}

/// Makes a call of a gateway. Its caller has a number of this server, and is no user.
fn from_gateway(script: &mut Script) -> Option<(String, String)> {
    script.forwarded(&Ask { from: "sip:+4930123@example.org", at: GATEWAY, ..CALL })
}

#[test]
fn residential_rules_of_the_default_script() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..CALL };
    residential(None, counts_forwards);
    residential(None, |script| script.says(&STRAY_BYE, "404 Not here"));
    residential(None, routes_byes);
    residential(None, cancels);
    residential(None, |script| script.ask(&Ask { method: "CANCEL", ..CALL }).is_empty());
    residential(None, |script| script.says(&foreign, "403 Relay Forbidden"));
    residential(None, |script| script.says(&Ask { method: "PUBLISH", ..CALL }, "503 Service Unavailable"));
    residential(None, |script| script.says(&Ask { uri: "sip:example.org", ..CALL }, "484 Address Incomplete"));
    residential(None, |script| script.says(&Ask { method: "REFER", ..CALL }, "404 Not Found"));
    residential(Some("5"), accounts_byes);
    residential(Some("11"), accounts_invites);
    residential(Some("17"), accounts_missed_calls);
}

#[test]
fn residential_use_auth() {
    let open = |text: &str| uncommented(text);
    does_unless(FILE, open, |script| script.status(&REMOTE) == Some(407));
    let registers = |text: &str| {
        Script::as_it_stands(text).status_of_register("alice@example.org", "<sip:alice@203.0.113.40>", CAROL)
    };
    assert_eq!(registers(&example(FILE)), Some(401));
    assert_eq!(registers(&open(&example(FILE))), Some(200));
    // A user who claims to be another one: the script answers "Forbidden auth ID".
    let other = Ask { from: "sip:zoe@example.org", ..REMOTE };
    let unless = |text: &str| format!("auth.user_must_match = false\n{text}");
    does_unless(FILE, unless, |script| with_password(script, &other).starts_with("SIP/2.0 403 "));
}

#[test]
fn residential_use_aliases() {
    residential(Some("USE_ALIASES"), |script| {
        let got = script.forwarded(&Ask { uri: "sip:robert@example.org", ..CALL });
        got.is_some_and(|(at, text)| at == BOB && uri(&text) == "sip:bob@198.51.100.8:5060")
    });
}

#[test]
fn residential_use_dialog() {
    let tracked = |script: &mut Script| {
        script.answered(&CALL, 200);
        script.site.engines[0].show_gauges();
        script.site.shared.counts().calls_tracked
    };
    // Accounting tracks its calls too.
    let text = without(&example(FILE), "5");
    assert_eq!(tracked(&mut Script::of(&text)), 1);
    assert_eq!(tracked(&mut Script::of(&without(&text, "USE_DIALOG"))), 0);
    // Tracked calls end by themselves.
    residential(Some("USE_DIALOG"), |script| {
        let got = script.answered(&CALL, 200);
        let ok = got.iter().find(|(_, text)| text.starts_with("SIP/2.0 200 "));
        receive(&mut script.site, CALL.at, &of_alice("ACK", &ok.expect("a 200").1, 1, ""));
        let mut sent = String::new();
        (0..6 * 60 + 1).for_each(|_| sent += &script.site.wait(60_000));
        sent.matches("BYE sip:").count() >= 2
    });
    // A full table: the script answers 500.
    let full = |text: &str| with(text, "dialogs.track = true\n", "dialogs.track = true\ndialogs.calls = 1\n");
    let mut script = Script::of(&full(&example(FILE)));
    script.answered(&CALL, 200);
    assert!(script.says(&CALL, "503 Service Unavailable"));
}

/// `tests/tests/control_http.rs` tests the interface itself.
#[test]
fn residential_use_http_management_interface() {
    let takes_orders = |text: &str| {
        let (config, _) = Config::read(Source { text, ..Source::default() }).expect("it is right");
        config.control.listen.is_some_and(|address| address.ip().is_loopback())
    };
    // Data sets are read from the folder of the file.
    let text = without(&example(FILE), "USE_ALIASES");
    assert!(takes_orders(&text));
    assert!(!takes_orders(&without(&text, "USE_HTTP_MANAGEMENT_INTERFACE")));
}

#[test]
fn residential_use_multidomain() {
    residential(Some("USE_MULTIDOMAIN"), |script| {
        let saved = script.registers("dave@example.com", "<sip:dave@203.0.113.40>", CAROL);
        let mut goes_to = |uri| script.forwarded(&Ask { uri, ..CALL }).unwrap_or_default().0;
        // The user of this name in the other domain is another one, who has no phone.
        saved && goes_to("sip:dave@example.com") == CAROL && goes_to("sip:dave@example.org") == VOICEMAIL
    });
}

#[test]
fn residential_use_nat() {
    const ROUTER: &str = "203.0.113.44:6000";
    let unless = |text: &str| format!("nat.contact_repair = false\n{text}");
    does_unless(FILE, unless, |script| {
        assert!(script.registers("erin@example.org", "<sip:erin@10.0.0.9:5060>", ROUTER));
        script.forwarded(&Ask { uri: "sip:erin@example.org", ..CALL }).is_some_and(|(at, _)| at == ROUTER)
    });
}

#[test]
fn residential_use_dialplan() {
    let call = Ask { uri: "sip:004930123@example.org", at: GATEWAY, ..OWN };
    residential(Some("USE_DIALPLAN"), |script| {
        let got = script.forwarded(&call);
        got.is_some_and(|(at, text)| at == GATEWAY && uri(&text) == "sip:+4930123@example.org")
    });
}

#[test]
fn residential_vm_diversion() {
    let to_voicemail =
        |got: &[(String, String)]| got.iter().any(|(at, text)| at == VOICEMAIL && status(text).is_none());
    residential(Some("VM_DIVERSION"), |script| to_voicemail(&script.answered(&CALL, 486)));
    for method in ["INVITE", "MESSAGE"] {
        let absent = Ask { method, uri: "sip:zoe@example.org", ..CALL };
        residential(Some("VM_DIVERSION"), |script| to_voicemail(&script.ask(&absent)));
    }
    residential(Some("VM_DIVERSION"), |script| {
        script.ask(&CALL);
        (0..8).any(|_| script.site.wait(1_000).contains("INVITE sip:bob@example.org "))
    });
    // A phone that takes no REFER is not away.
    residential(None, |script| script.says(&Ask { method: "REFER", ..CALL }, "404 Not Found"));
}

#[test]
fn residential_have_inbound_pstn() {
    residential(Some("HAVE_INBOUND_PSTN"), |script| from_gateway(script).is_some_and(|(at, _)| at == BOB));
}

#[test]
fn residential_have_outbound_pstn() {
    let call = Ask { uri: "sip:+4930123@example.org", at: GATEWAY, ..OWN };
    residential(Some("HAVE_OUTBOUND_PSTN"), |script| {
        let Some((at, text)) = script.forwarded(&call) else { return false };
        // The next gateway takes the call if the first one does not.
        let got = receive(&mut script.site, &at, &answer(&text, 503, ""));
        at == GATEWAY && invites(&got).iter().any(|(at, _)| at == "203.0.113.81:5060")
    });
    // Callers of other domains reach no gateway.
    residential(None, |script| script.forwarded(&Ask { uri: "sip:+4930123@example.org", ..CALL }).is_none());
}

#[test]
fn residential_use_dr_pstn() {
    let call = Ask { uri: "sip:+12125550100@example.org", at: GATEWAY, ..OWN };
    residential(Some("USE_DR_PSTN"), |script| script.says(&call, "500 No PSTN Route found"));
}
