//! Rules of Kamailio's default script, by their numbers.

use super::*;
use crate::peer::invites;
use crate::site::credentials;

const FILE: &str = "default-kamailio.toml";

/// Caller of this server who must show a password.
const REMOTE: Ask<'static> = Ask { at: CAROL, ..OWN };

#[track_caller]
fn kamailio(name: Option<&str>, check: impl Fn(&mut Script) -> bool) {
    does(FILE, name, check);
}

/// Puts this line before all others.
fn headed(line: &'static str) -> impl Fn(&str) -> String {
    move |text| format!("{line}\n{text}")
}

#[test]
fn kamailio_01_answers_go_where_requests_come_from() {
    // The Via names another port than the source.
    kamailio(Some("1"), |script| {
        script.sent += 1;
        let text = written(&Ask { method: "OPTIONS", uri: "sip:zoe@example.org", ..OWN }, script.sent)
            .replace("Via: SIP/2.0/UDP 198.51.100.130:5060", "Via: SIP/2.0/UDP 198.51.100.130:7000");
        let got = receive(&mut script.site, ALICE, &text);
        got.first().is_some_and(|(at, _)| at == ALICE)
    });
}

/// The script bans a source that sends too much; here it is a source whose passwords fail.
#[test]
fn kamailio_02_bans() {
    does_unless(FILE, headed("ban.enabled = false"), |script| {
        let challenged = script.ask(&REMOTE).remove(0).1;
        for n in 1..=10 {
            let guess = format!("Max-Forwards: 70\r\n{}", credentials(b"wrong", "INVITE", &challenged, n));
            script.ask(&Ask { more: &guess, ..REMOTE });
            assert!(script.site.answer().starts_with("SIP/2.0 407 "), "guess {n}");
        }
        script.ask(&CALL).is_empty()
    });
}

#[test]
fn kamailio_03_scanners() {
    let scan = Ask { method: "OPTIONS", more: "Max-Forwards: 70\r\nUser-Agent: friendly-scanner\r\n", ..CALL };
    does_unless(FILE, headed("ban.scanners = []"), |script| script.ask(&scan).is_empty());
}

#[test]
fn kamailio_04_large_messages() {
    let more = format!("Max-Forwards: 70\r\nSubject: {}\r\n", "x".repeat(17_000));
    let large = Ask { more: &more, ..CALL };
    kamailio(Some("4"), |script| script.says(&large, "403 Message too large"));
}

#[test]
fn kamailio_05_long_uris() {
    let uri = format!("sip:{}@example.org", "b".repeat(600));
    let long = Ask { uri: &uri, ..CALL };
    kamailio(Some("5"), |script| script.says(&long, "403 R-URI too large"));
}

#[test]
fn kamailio_06_max_forwards() {
    kamailio(Some("6"), counts_forwards);
}

/// The script answers "Keepalive"; this server answers with its capabilities.
#[test]
fn kamailio_07_options_for_the_server() {
    let options = Ask { method: "OPTIONS", uri: "sip:192.0.2.1:5060", ..CALL };
    kamailio(None, |script| {
        let got = script.ask(&options);
        got[0].1.starts_with("SIP/2.0 200 OK\r\n") && got[0].1.contains("\r\nAllow: OPTIONS, REGISTER\r\n")
    });
    // For a local user the request is an ordinary one.
    kamailio(None, |script| script.status(&Ask { uri: "sip:zoe@example.org", ..options }) == Some(404));
}

#[test]
fn kamailio_08_requests_that_are_none() {
    for (right, wrong, code) in [
        (" SIP/2.0\r\nVia", " SIP/3.0\r\nVia", 505),
        ("INVITE sip:bob@example.org", "INVITE nosip:bob@example.org", 416),
        ("From: <sip:carol@example.net>;tag=f900\r\n", "", 400),
        ("CSeq: 1 INVITE", "CSeq: 1 BYE", 400),
        ("CSeq: 1 INVITE", "CSeq: one INVITE", 400),
        ("Content-Length: 0", "Content-Length: 99", 400),
        ("From: <sip:carol@example.net>", "From: <sip:carol@>", 400),
        ("Content-Length", "Proxy-Require: nothing\r\nContent-Length", 420),
    ] {
        let text = with(&written(&CALL, 900), right, wrong);
        kamailio(None, |script| statuses(&receive(&mut script.site, CAROL, &text), CAROL) == [code]);
    }
}

#[test]
fn kamailio_08_answers_that_are_none() {
    for (right, wrong) in [
        ("SIP/2.0 480", "SIP/3.0 480"),
        ("CSeq: 1 INVITE", "CSeq: one INVITE"),
        ("CSeq: 1 INVITE", "CSeq: 1 BYE"),
        ("CSeq: 1 INVITE\r\n", ""),
        ("Content-Length: 0", "Content-Length: 99"),
    ] {
        kamailio(None, |script| {
            let (at, text) = script.forwarded(&CALL).expect("it goes on");
            let good = answer(&text, 480, "");
            let lost = receive(&mut script.site, &at, &with(&good, right, wrong)).is_empty();
            // The correct form is accepted.
            lost && statuses(&receive(&mut script.site, &at, &good), CAROL) == [480]
        });
    }
    // The script also drops a response without From; here its receiver has to judge it.
    kamailio(None, |script| {
        let (at, text) = script.forwarded(&CALL).expect("it goes on");
        let headless = answer(&text, 480, "").replace("From: ", "X-From: ");
        statuses(&receive(&mut script.site, &at, &headless), CAROL) == [480]
    });
}

/// A phone behind a router names an address of its own network.
#[test]
fn kamailio_09_phones_behind_nat() {
    const ROUTER: &str = "203.0.113.44:6000";
    let unless = |text: &str| with(text, "[nat]\n", "[nat]\ncontact_repair = false\n");
    does_unless(FILE, unless, |script| {
        assert!(script.registers("erin@example.org", "<sip:erin@10.0.0.9:5060>", ROUTER));
        script.forwarded(&Ask { uri: "sip:erin@example.org", ..CALL }).is_some_and(|(at, _)| at == ROUTER)
    });
    // The other party of a call reaches the phone by the Contact that the server writes.
    does_unless(FILE, unless, |script| {
        let call = Ask { at: ROUTER, more: "Max-Forwards: 70\r\nContact: <sip:c@10.0.0.9>\r\n", ..CALL };
        script.forwarded(&call).is_some_and(|(_, text)| text.contains("\r\nContact: <sip:c@10.0.0.9;x-strowger="))
    });
}

#[test]
fn kamailio_10_cancels() {
    kamailio(Some("10"), |script| script.ask(&Ask { method: "CANCEL", ..CALL }).is_empty());
    kamailio(None, cancels);
}

#[test]
fn kamailio_11_retransmissions() {
    kamailio(None, absorbs_copies);
}

#[test]
fn kamailio_12_requests_of_dialogs() {
    kamailio(None, routes_byes);
    kamailio(Some("12"), |script| script.says(&STRAY_BYE, "404 Not here"));
    // For the server itself: it has no presence server.
    let subscribe = Ask { method: "SUBSCRIBE", uri: "sip:example.org", ..STRAY_BYE };
    kamailio(Some("12"), |script| script.says(&subscribe, "404 Not here") && script.says(&STRAY_BYE, "404 Not here"));
}

#[test]
fn kamailio_12_acks() {
    kamailio(None, absorbs_acks);
}

#[test]
fn kamailio_12_byes_are_accounted() {
    kamailio(Some("12a"), accounts_byes);
}

/// A Record-Route in a later request changes no route (RFC 3261 section 12.2), but one in a NOTIFY may make a dialog
/// (RFC 6665 section 4.3).
#[test]
fn kamailio_12_later_requests_are_not_record_routed() {
    for method in ["INVITE", "REFER", "NOTIFY"] {
        let is_notify = method == "NOTIFY";
        kamailio(None, |script| {
            script.within(&CALL, method).is_some_and(|(_, text)| is_record_routed(&text) == is_notify)
        });
    }
}

#[test]
fn kamailio_13_who_may_call() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..CALL };
    kamailio(Some("13"), |script| script.says(&foreign, "403 Not relaying"));
    // The Request-URI is of this server, and a Route leads away from it.
    let routed = Ask { more: "Max-Forwards: 70\r\nRoute: <sip:203.0.113.77;lr>\r\n", ..CALL };
    kamailio(Some("13"), |script| script.says(&routed, "403 Not relaying"));
    let own = Ask { more: "Max-Forwards: 70\r\nRoute: <sip:192.0.2.1;lr>\r\n", ..CALL };
    kamailio(None, |script| script.forwarded(&own).is_some_and(|(at, _)| at == BOB));
    // A local user at any other address shows a password.
    does_unless(FILE, headed("auth.calls = false"), |script| script.status(&REMOTE) == Some(407));
    kamailio(Some("13a"), |script| script.forwarded(&OWN).is_some());
    // A phone that registers shows a password, too.
    let registers = |text: &str| {
        Script::as_it_stands(text).status_of_register("alice@example.org", "<sip:alice@203.0.113.40>", CAROL)
    };
    assert_eq!(registers(&example(FILE)), Some(401));
    assert_eq!(registers(&headed("registrar.authenticate = false")(&example(FILE))), Some(200));
}

/// Credentials for this server are removed from the forwarded request.
#[test]
fn kamailio_13_credentials_are_taken_off() {
    kamailio(None, |script| {
        let challenged = script.ask(&REMOTE).remove(0).1;
        let shown = format!("Max-Forwards: 70\r\n{}", credentials(b"secret of alice", "INVITE", &challenged, 1));
        script.ask(&Ask { more: &shown, ..REMOTE });
        let sent = script.site.answer();
        sent.contains("INVITE sip:bob@198.51.100.8:5060 ") && !sent.contains("Authorization")
    });
}

#[test]
fn kamailio_14_record_route() {
    for method in ["INVITE", "SUBSCRIBE", "REFER"] {
        let foreign = Ask { method, uri: "sip:dave@203.0.113.77", ..OWN };
        kamailio(None, |script| is_record_routed(&script.forwarded(&foreign).expect("it goes on").1));
    }
    // A NOTIFY makes a dialog too (RFC 6665), and is none of the three.
    let notify = Ask { method: "NOTIFY", uri: "sip:dave@203.0.113.77", ..OWN };
    kamailio(Some("14"), |script| !is_record_routed(&script.forwarded(&notify).expect("it goes on").1));
    // The Route of a phone for this server, its outbound proxy, is removed.
    let routed = Ask { more: "Max-Forwards: 70\r\nRoute: <sip:192.0.2.1:5060;lr>\r\n", ..CALL };
    kamailio(None, |script| !script.forwarded(&routed).expect("it goes on").1.contains("\r\nRoute: "));
}

#[test]
fn kamailio_15_invites_are_accounted() {
    kamailio(Some("15"), accounts_invites);
}

#[test]
fn kamailio_16_calls_to_other_domains() {
    kamailio(Some("16"), |script| marks_what_leaves(script, "P-Hint: outbound"));
    // Along any route, a call to a user of this server is none to another domain.
    let routed = Ask { more: "Max-Forwards: 70\r\nRoute: <sip:203.0.113.77;lr>\r\n", ..OWN };
    kamailio(None, |script| {
        let (at, text) = script.forwarded(&routed).expect("it goes on");
        at == ELSEWHERE && !text.contains("P-Hint")
    });
}

#[test]
fn kamailio_17_no_presence() {
    let waiting = Ask { method: "SUBSCRIBE", more: "Max-Forwards: 70\r\nEvent: message-summary\r\n", ..CALL };
    kamailio(Some("17"), |script| script.says(&waiting, "404 No voicemail service"));
    kamailio(Some("17a"), |script| {
        let mut refused = |method: &'static str| script.says(&Ask { method, ..CALL }, "404 Not here");
        refused("PUBLISH") && refused("SUBSCRIBE")
    });
}

#[test]
fn kamailio_18_registrations_are_saved() {
    kamailio(None, saves_registrations);
}

#[test]
fn kamailio_19_no_user() {
    kamailio(Some("19"), |script| script.says(&Ask { uri: "sip:example.org", ..CALL }, "484 Address Incomplete"));
}

#[test]
fn kamailio_20_numbers() {
    let dialled = |uri: &'static str| Ask { uri, ..OWN };
    kamailio(Some("20"), |script| {
        let mut goes = |uri: &'static str, as_uri: &str| {
            let (at, text) = script.forwarded(&dialled(uri)).unwrap_or_default();
            at == GATEWAY && super::uri(&text) == as_uri
        };
        goes("sip:+4930123@example.org", "sip:+4930123@example.org")
            && goes("sip:004930123@example.org", "sip:+4930123@example.org")
    });
    let foreign = Ask { uri: "sip:+4930123@example.org", ..CALL };
    kamailio(Some("20"), |script| script.says(&foreign, "403 Not Allowed"));
}

#[test]
fn kamailio_21_short_numbers_and_aliases() {
    for uri in ["sip:*7@example.org", "sip:robert@example.org"] {
        kamailio(Some("21"), |script| {
            let got = script.forwarded(&Ask { uri, ..OWN });
            got.is_some_and(|(at, text)| at == BOB && super::uri(&text) == "sip:bob@198.51.100.8:5060")
        });
    }
}

#[test]
fn kamailio_22_not_registered() {
    let message = Ask { method: "MESSAGE", uri: "sip:zoe@example.org", ..CALL };
    kamailio(Some("22"), |script| script.status(&message) == Some(404));
    kamailio(Some("22"), |script| script.status(&Ask { uri: "sip:bob@example.org", ..message }) == Some(405));
    // A call goes to the voicemail.
    kamailio(Some("25"), |script| {
        script.forwarded(&Ask { uri: "sip:zoe@example.org", ..CALL }).is_some_and(|(at, _)| at == VOICEMAIL)
    });
}

#[test]
fn kamailio_23_missed_calls_are_accounted() {
    kamailio(Some("23"), accounts_missed_calls);
}

/// The script leads media through a relay. This server leaves each body as its author wrote it, and adds no mark to its
/// route.
#[test]
fn kamailio_24_media_is_left_alone() {
    let sdp = "v=0\r\no=- 1 1 IN IP4 10.0.0.9\r\ns=-\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\nm=audio 4000 RTP/AVP 8\r\n";
    kamailio(None, |script| {
        let more = "Max-Forwards: 70\r\nContact: <sip:c@10.0.0.9>\r\nContent-Type: application/sdp\r\n";
        script.sent += 1;
        let call = written(&Ask { more, ..CALL }, script.sent);
        let body = format!("Content-Length: {}\r\n\r\n{sdp}", sdp.len());
        let got = receive(&mut script.site, CAROL, &with(&call, "Content-Length: 0\r\n\r\n", &body));
        let call = got.into_iter().find(|(at, _)| at == BOB).expect("it goes on").1;
        call.ends_with(&format!("\r\n\r\n{sdp}")) && is_record_routed(&call) && !call.contains("nat=yes")
    });
}

fn to_voicemail(got: &[(String, String)]) -> bool {
    invites(got).iter().any(|(at, _)| at == VOICEMAIL)
}

#[test]
fn kamailio_25_redirections_and_challenges_end_here() {
    for code in [302, 401, 407] {
        kamailio(Some("25a"), |script| statuses(&script.answered(&CALL, code), CAROL) == [404]);
        // Also for calls to other domains.
        let foreign = Ask { uri: "sip:dave@203.0.113.77", ..OWN };
        kamailio(Some("25a"), |script| statuses(&script.answered(&foreign, code), ALICE) == [404]);
    }
    // But for calls alone.
    let message = Ask { method: "MESSAGE", uri: "sip:dave@203.0.113.77", ..OWN };
    kamailio(None, |script| statuses(&script.answered(&message, 302), ALICE) == [302]);
}

#[test]
fn kamailio_25_voicemail() {
    kamailio(Some("25"), |script| {
        let got = script.answered(&CALL, 486);
        to_voicemail(&got) && statuses(&got, CAROL).is_empty()
    });
    // The phone is silent.
    kamailio(Some("25"), |script| {
        script.ask(&CALL);
        (0..60).any(|_| script.site.wait(1_000).contains("INVITE sip:bob@example.org "))
    });
    // The caller has cancelled.
    kamailio(None, |script| {
        let got = script.cancelled(&CALL, 486).expect("it is cancelled");
        !to_voicemail(&got) && statuses(&got, CAROL) == [486]
    });
    // Other failures go upstream. But a phone that answers with the status of an unregistered user leads to the
    // voicemail too.
    kamailio(None, |script| statuses(&script.answered(&CALL, 603), CAROL) == [603]);
    kamailio(Some("25"), |script| to_voicemail(&script.answered(&CALL, 404)));
}

#[test]
fn kamailio_t_timers() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..OWN };
    // A ringing phone: 120 s.
    kamailio(Some("T"), |script| {
        let Some((at, text)) = script.rings(&foreign) else { return false };
        let ended = script.given_up_after(125);
        let got = receive(&mut script.site, &at, &answer(&text, 487, ""));
        ended.is_some_and(|seconds| (120..=121).contains(&seconds)) && statuses(&got, ALICE) == [408]
    });
    // A silent phone: 30 s.
    kamailio(Some("T"), |script| {
        script.ask(&foreign);
        let ended = (1..=31).find(|_| script.site.wait(1_000).contains("SIP/2.0 408 "));
        ended.is_some_and(|seconds| seconds >= 30)
    });
}
