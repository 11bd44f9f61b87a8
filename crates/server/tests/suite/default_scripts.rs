//! What the default scripts of OpenSIPS and Kamailio do, by `examples/default-opensips.toml` and `default-kamailio.toml`: a test for each rule, by
//! its number. Where a part of the file does it, that part is taken out too, and what was there must then be gone.

use crate::peer::{answer, invites, receive, status, statuses, uri};
use crate::site::{BOB, Site};
use std::path::Path;

/// A caller of another domain.
const CAROL: &str = "203.0.113.40:5060";
/// A caller of this server, at an address that needs no password.
const ALICE: &str = "198.51.100.130:5060";
/// Another domain, by its address.
const ELSEWHERE: &str = "203.0.113.77:5060";
const GATEWAY: &str = "203.0.113.80:5060";
const VOICEMAIL: &str = "203.0.113.90:5060";

/// One request of one caller, and a registered bob.
struct Script {
    site: Site,
    sent: u32,
}

/// A request, part by part.
struct Ask<'a> {
    from: &'a str,
    at: &'a str,
    method: &'a str,
    uri: &'a str,
    /// Of To, with its semicolon.
    tag: &'a str,
    more: &'a str,
}

/// An INVITE of a caller elsewhere to bob.
const CALL: Ask<'static> = Ask {
    from: "sip:carol@example.net",
    at: CAROL,
    method: "INVITE",
    uri: "sip:bob@example.org",
    tag: "",
    more: "Max-Forwards: 70\r\n",
};

/// The same of a user of this server.
const OWN: Ask<'static> = Ask { from: "sip:alice@example.org", at: ALICE, ..CALL };

impl Script {
    fn of(text: &str) -> Self {
        // Bob registers without a password: the digests of registrations are tested elsewhere.
        let open = "registrar.authenticate = false\n";
        let mut site = Site::of_example(&if text.contains(open) { text.to_owned() } else { format!("{open}{text}") });
        let register = Ask {
            from: "sip:bob@example.org",
            at: BOB,
            method: "REGISTER",
            uri: "sip:example.org",
            more: "Contact: <sip:bob@198.51.100.8:5060>;methods=\"INVITE,ACK,BYE,CANCEL\"\r\n",
            ..CALL
        };
        let text = written(&register, 0).replace("To: <sip:example.org>", "To: <sip:bob@example.org>");
        assert_eq!(statuses(&receive(&mut site, BOB, &text), BOB), [200]);
        Self { site, sent: 0 }
    }

    fn ask(&mut self, ask: &Ask<'_>) -> Vec<(String, String)> {
        self.sent += 1;
        let text = written(ask, self.sent);
        receive(&mut self.site, ask.at, &text)
    }

    /// The status that this gets at once; none: it gets none.
    fn status(&mut self, ask: &Ask<'_>) -> Option<u16> {
        statuses(&self.ask(ask), ask.at).first().copied()
    }

    /// The request as it goes on, and where.
    fn forwarded(&mut self, ask: &Ask<'_>) -> Option<(String, String)> {
        self.ask(ask).into_iter().find(|(_, text)| status(text).is_none())
    }

    /// The callee answers so; what leaves then.
    fn answered(&mut self, ask: &Ask<'_>, code: u16) -> Vec<(String, String)> {
        let Some((at, text)) = self.forwarded(ask) else { return Vec::new() };
        let response = answer(&text, code, "Contact: <sip:x@203.0.113.99>\r\n");
        receive(&mut self.site, &at, &response)
    }
}

fn written(ask: &Ask<'_>, n: u32) -> String {
    let Ask { from, at, method, uri, tag, more } = ask;
    let contact = if more.contains("Contact:") { String::new() } else { format!("Contact: <sip:c@{at}>\r\n") };
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bKs{n}\r\nFrom: <{from}>;tag=f{n}\r\nTo: <{uri}>{tag}\r\n\
         Call-ID: s{n}\r\nCSeq: 1 {method}\r\n{contact}{more}Content-Length: 0\r\n\r\n"
    )
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::read_to_string(path).expect("the example is there")
}

/// The configuration without what stands behind this number, up to the next number or table that has none.
fn without(text: &str, number: &str) -> String {
    let mark = format!("# [{number}]");
    let from = text.find(&mark).unwrap_or_else(|| panic!("nothing of the file is {mark}"));
    let rest = &text[from + mark.len()..];
    let ends = ["\n# [", "\n[proxy]", "\n[nat]"].iter().filter_map(|end| rest.find(end)).min();
    let end = ends.map_or(text.len(), |end| from + mark.len() + end + 1);
    format!("{}{}", &text[..from], &text[end..])
}

/// The script does it; where a number is named, by what stands there.
#[track_caller]
fn does(name: &str, number: Option<&str>, check: impl Fn(&mut Script) -> bool) {
    let text = example(name);
    assert!(check(&mut Script::of(&text)), "{name} does not");
    if let Some(number) = number {
        let less = without(&text, number);
        assert!(!check(&mut Script::of(&less)), "{name} does it without [{number}]");
    }
}

#[track_caller]
fn opensips(number: Option<&str>, check: impl Fn(&mut Script) -> bool) {
    does("default-opensips.toml", number, check);
}

#[track_caller]
fn kamailio(number: Option<&str>, check: impl Fn(&mut Script) -> bool) {
    does("default-kamailio.toml", number, check);
}

fn has_line(text: &str, line: &str) -> bool {
    text.contains(&format!("\r\n{line}\r\n"))
}

/// A request without Max-Forwards gets 10, each loses one, and 0 is 483.
fn counts_forwards(script: &mut Script) -> bool {
    let of = |script: &mut Script, more: &'static str| script.forwarded(&Ask { more, ..CALL }).expect("it goes on").1;
    let none = of(script, "");
    let some = of(script, "Max-Forwards: 7\r\n");
    let refused = script.status(&Ask { more: "Max-Forwards: 0\r\n", ..CALL });
    has_line(&none, "Max-Forwards: 10") && has_line(&some, "Max-Forwards: 6") && refused == Some(483)
}

#[test]
fn opensips_01_max_forwards() {
    opensips(Some("1"), counts_forwards);
}

/// The ACK of a failure ends its repetitions; one of no call goes nowhere.
fn absorbs_acks(script: &mut Script) -> bool {
    script.answered(&CALL, 486);
    let ack = Ask { method: "ACK", tag: ";tag=t", ..CALL };
    let text = written(&ack, script.sent);
    let absorbed = receive(&mut script.site, CAROL, &text).is_empty();
    let stray = script.ask(&Ask { method: "ACK", tag: ";tag=other", ..CALL }).is_empty();
    absorbed && stray
}

#[test]
fn opensips_02_acks_belong_to_their_invite() {
    opensips(None, absorbs_acks);
}

#[test]
fn opensips_03_not_here() {
    let bye = Ask { method: "BYE", tag: ";tag=t", ..CALL };
    opensips(Some("3"), |script| {
        let got = script.ask(&bye);
        got[0].1.starts_with("SIP/2.0 404 Not here\r\n")
    });
}

/// A BYE goes by the route that the call wrote.
fn routes_byes(script: &mut Script) -> bool {
    let got = script.answered(&CALL, 200);
    let Some((_, ok)) = got.iter().find(|(at, _)| at == CAROL) else { return false };
    let value = |name: &str| ok.split("\r\n").find_map(|line| line.strip_prefix(name));
    let (Some(route), Some(contact)) = (value("Record-Route: "), value("Contact: <")) else { return false };
    let more = format!("Max-Forwards: 70\r\nRoute: {route}\r\n");
    let uri = contact.split('>').next().unwrap_or_default();
    let bye = Ask { method: "BYE", uri, tag: ";tag=t", more: &more, ..CALL };
    let text = written(&bye, script.sent).replace("z9hG4bKs", "z9hG4bKbye").replace("CSeq: 1", "CSeq: 2");
    let got = receive(&mut script.site, CAROL, &text);
    got.first().is_some_and(|(_, text)| text.starts_with("BYE sip:x@203.0.113.99 ") && !text.contains("\r\nRoute: "))
}

#[test]
fn opensips_04_loose_routing() {
    opensips(None, routes_byes);
}

#[test]
fn opensips_06_a_cancel_that_matches_nothing() {
    opensips(Some("6"), |script| script.ask(&Ask { method: "CANCEL", ..CALL }).is_empty());
}

/// A CANCEL that matches reaches the phone, and its caller gets 487.
fn cancels(script: &mut Script) -> bool {
    let Some((at, text)) = script.forwarded(&CALL) else { return false };
    receive(&mut script.site, &at, &answer(&text, 180, ""));
    let cancel = written(&Ask { method: "CANCEL", ..CALL }, script.sent);
    let got = receive(&mut script.site, CAROL, &cancel);
    let cancelled = got.iter().any(|(to, text)| *to == at && text.starts_with("CANCEL "));
    let got = receive(&mut script.site, &at, &answer(&text, 487, ""));
    cancelled && statuses(&got, CAROL) == [487]
}

#[test]
fn opensips_06_a_cancel_that_matches() {
    opensips(None, cancels);
}

/// What comes again gets what was answered, and rings nowhere.
fn absorbs_copies(script: &mut Script) -> bool {
    script.answered(&CALL, 486);
    let again = written(&CALL, script.sent);
    let got = receive(&mut script.site, CAROL, &again);
    statuses(&got, CAROL) == [486] && got.len() == 1
}

#[test]
fn opensips_07_retransmissions() {
    opensips(None, absorbs_copies);
}

#[test]
fn opensips_08_relay_forbidden() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..CALL };
    opensips(Some("8"), |script| script.ask(&foreign)[0].1.starts_with("SIP/2.0 403 Relay Forbidden\r\n"));
}

#[test]
fn opensips_09_preloaded_routes() {
    let routed = Ask { more: "Max-Forwards: 70\r\nRoute: <sip:203.0.113.77;lr>\r\n", ..CALL };
    let ack = Ask { method: "ACK", ..routed };
    opensips(Some("9"), |script| {
        script.ask(&routed)[0].1.starts_with("SIP/2.0 403 Preload Route denied\r\n") && script.ask(&ack).is_empty()
    });
}

#[test]
fn opensips_10_record_route() {
    let message = Ask { method: "MESSAGE", uri: "sip:dave@203.0.113.77", ..OWN };
    let stays = |text: &str| text.contains("\r\nRecord-Route: ");
    opensips(None, |script| stays(&script.forwarded(&CALL).expect("it goes on").1));
    // A MESSAGE makes no dialog (RFC 3428 section 5).
    opensips(None, |script| !stays(&script.forwarded(&message).expect("it goes on").1));
}

#[test]
fn opensips_12_calls_to_other_domains() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..OWN };
    opensips(Some("12"), |script| {
        let (at, text) = script.forwarded(&foreign).expect("it goes on");
        at == ELSEWHERE && has_line(&text, "P-hint: outbound")
    });
}

#[test]
fn opensips_13_no_presence() {
    opensips(Some("13"), |script| {
        let mut refused = |method: &'static str| script.status(&Ask { method, ..CALL }) == Some(503);
        refused("PUBLISH") && refused("SUBSCRIBE")
    });
}

#[test]
fn opensips_14_registrations_are_saved() {
    opensips(None, |script| {
        let register = Ask {
            from: "sip:dave@example.org",
            method: "REGISTER",
            uri: "sip:example.org",
            more: "Contact: <sip:dave@203.0.113.40>\r\n",
            ..CALL
        };
        script.sent += 1;
        let text = written(&register, script.sent).replace("To: <sip:example.org>", "To: <sip:dave@example.org>");
        let saved = statuses(&receive(&mut script.site, CAROL, &text), CAROL) == [200];
        let call = script.forwarded(&Ask { uri: "sip:dave@example.org", ..CALL }).expect("it goes on");
        saved && uri(&call.1) == "sip:dave@203.0.113.40"
    });
}

#[test]
fn opensips_15_no_user() {
    opensips(Some("15"), |script| script.status(&Ask { uri: "sip:example.org", ..CALL }) == Some(484));
}

#[test]
fn opensips_16_not_registered() {
    opensips(Some("16"), |script| script.status(&Ask { uri: "sip:zoe@example.org", ..CALL }) == Some(404));
    opensips(Some("16a"), |script| script.status(&Ask { method: "REFER", ..CALL }) == Some(404));
}

#[test]
fn opensips_19_no_way() {
    let nowhere = Ask { uri: "sip:dave@203.0.113.77;transport=sctp", ..OWN };
    opensips(None, |script| script.status(&nowhere).is_some_and(|status| status >= 500));
}

/// Nothing is tried where the caller has cancelled; other failures go upstream.
#[test]
fn opensips_20_failures_and_timers() {
    opensips(None, |script| statuses(&script.answered(&CALL, 486), CAROL) == [486]);
    opensips(Some("20"), |script| {
        let Some((at, text)) = script.forwarded(&CALL) else { return false };
        receive(&mut script.site, &at, &answer(&text, 180, ""));
        let mut ended = Vec::new();
        for _ in 0..35 {
            let said = script.site.wait(1_000);
            ended.extend(said.contains("CANCEL ").then_some(()));
        }
        let got = receive(&mut script.site, &at, &answer(&text, 487, ""));
        !ended.is_empty() && statuses(&got, CAROL) == [408]
    });
    opensips(Some("20"), |script| {
        script.ask(&CALL);
        (0..8).any(|_| script.site.wait(1_000).contains("SIP/2.0 408 "))
    });
}

#[test]
fn kamailio_01_answers_go_where_requests_come_from() {
    // The Via names another port than the one that it comes from.
    kamailio(Some("1"), |script| {
        script.sent += 1;
        let text = written(&Ask { method: "OPTIONS", uri: "sip:zoe@example.org", ..OWN }, script.sent)
            .replace("Via: SIP/2.0/UDP 198.51.100.130:5060", "Via: SIP/2.0/UDP 198.51.100.130:7000");
        let got = receive(&mut script.site, ALICE, &text);
        got.first().is_some_and(|(at, _)| at == ALICE)
    });
}

#[test]
fn kamailio_03_scanners() {
    let scan = Ask { method: "OPTIONS", more: "Max-Forwards: 70\r\nUser-Agent: friendly-scanner\r\n", ..CALL };
    kamailio(None, |script| script.ask(&scan).is_empty());
}

#[test]
fn kamailio_04_large_messages() {
    let more = format!("Max-Forwards: 70\r\nSubject: {}\r\n", "x".repeat(17_000));
    let large = Ask { more: &more, ..CALL };
    kamailio(Some("4"), |script| script.ask(&large)[0].1.starts_with("SIP/2.0 403 Message too large\r\n"));
}

#[test]
fn kamailio_05_long_uris() {
    let uri = format!("sip:{}@example.org", "b".repeat(600));
    let long = Ask { uri: &uri, ..CALL };
    kamailio(Some("5"), |script| script.ask(&long)[0].1.starts_with("SIP/2.0 403 R-URI too large\r\n"));
}

#[test]
fn kamailio_06_max_forwards() {
    kamailio(Some("6"), counts_forwards);
}

#[test]
fn kamailio_07_options_for_the_server() {
    let options = Ask { method: "OPTIONS", uri: "sip:192.0.2.1:5060", ..CALL };
    kamailio(None, |script| script.status(&options) == Some(200));
}

#[test]
fn kamailio_08_what_is_no_sip() {
    kamailio(None, |script| {
        let text = written(&CALL, 900).replace("CSeq: 1 INVITE", "CSeq: 1 BYE");
        statuses(&receive(&mut script.site, CAROL, &text), CAROL) == [400]
    });
}

#[test]
fn kamailio_10_cancels() {
    kamailio(Some("10"), |script| script.ask(&Ask { method: "CANCEL", ..CALL }).is_empty());
    kamailio(None, cancels);
}

#[test]
fn kamailio_11_retransmissions() {
    kamailio(None, |script| {
        script.answered(&CALL, 603);
        let again = written(&CALL, script.sent);
        statuses(&receive(&mut script.site, CAROL, &again), CAROL) == [603]
    });
}

#[test]
fn kamailio_12_requests_of_dialogs() {
    kamailio(None, routes_byes);
    let bye = Ask { method: "BYE", tag: ";tag=t", ..CALL };
    kamailio(Some("12"), |script| script.ask(&bye)[0].1.starts_with("SIP/2.0 404 Not here\r\n"));
}

#[test]
fn kamailio_13_who_may_call() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..CALL };
    kamailio(Some("13"), |script| script.ask(&foreign)[0].1.starts_with("SIP/2.0 403 Not relaying\r\n"));
    // A user of ours at any other address shows a password.
    let own = Ask { at: CAROL, ..OWN };
    kamailio(None, |script| script.status(&own) == Some(407));
    kamailio(Some("13a"), |script| script.forwarded(&OWN).is_some());
}

#[test]
fn kamailio_14_record_route() {
    let stays = |text: &str| text.contains("\r\nRecord-Route: ");
    kamailio(None, |script| stays(&script.forwarded(&CALL).expect("it goes on").1));
    // A NOTIFY makes a dialog too (RFC 6665), and is none of the three.
    let notify = Ask { method: "NOTIFY", uri: "sip:dave@203.0.113.77", ..OWN };
    kamailio(Some("14"), |script| !stays(&script.forwarded(&notify).expect("it goes on").1));
    // A Route that a phone has for this server, its outbound proxy, is taken off.
    let routed = Ask { more: "Max-Forwards: 70\r\nRoute: <sip:192.0.2.1:5060;lr>\r\n", ..CALL };
    kamailio(None, |script| !script.forwarded(&routed).expect("it goes on").1.contains("\r\nRoute: "));
}

#[test]
fn kamailio_16_calls_to_other_domains() {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..OWN };
    kamailio(Some("16"), |script| {
        let (at, text) = script.forwarded(&foreign).expect("it goes on");
        at == ELSEWHERE && has_line(&text, "P-Hint: outbound")
    });
}

#[test]
fn kamailio_17_no_presence() {
    let waiting = Ask { method: "SUBSCRIBE", more: "Max-Forwards: 70\r\nEvent: message-summary\r\n", ..CALL };
    kamailio(Some("17"), |script| {
        let publishes = script.status(&Ask { method: "PUBLISH", uri: "sip:bob@example.org", ..CALL }) == Some(404);
        publishes && script.ask(&waiting)[0].1.starts_with("SIP/2.0 404 No voicemail service\r\n")
    });
}

#[test]
fn kamailio_19_no_user() {
    kamailio(Some("19"), |script| script.status(&Ask { uri: "sip:example.org", ..CALL }) == Some(484));
}

#[test]
fn kamailio_20_numbers() {
    let dialled = |uri: &'static str| Ask { uri, ..OWN };
    kamailio(Some("20"), |script| {
        let mut goes = |uri: &'static str, as_uri: &str| {
            let (at, text) = script.forwarded(&dialled(uri)).unwrap_or_default();
            at == GATEWAY && self::uri(&text) == as_uri
        };
        goes("sip:+4930123@example.org", "sip:+4930123@example.org")
            && goes("sip:004930123@example.org", "sip:+4930123@example.org")
    });
    let foreign = Ask { uri: "sip:+4930123@example.org", ..CALL };
    kamailio(Some("20"), |script| script.ask(&foreign)[0].1.starts_with("SIP/2.0 403 Not Allowed\r\n"));
}

#[test]
fn kamailio_21_short_numbers_and_aliases() {
    kamailio(Some("21"), |script| {
        let mut reaches_bob = |uri: &'static str| {
            let got = script.forwarded(&Ask { uri, ..OWN });
            got.is_some_and(|(at, text)| at == BOB && self::uri(&text) == "sip:bob@198.51.100.8:5060")
        };
        reaches_bob("sip:*7@example.org") && reaches_bob("sip:robert@example.org")
    });
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
fn kamailio_25_failures() {
    for code in [302, 401, 407] {
        kamailio(Some("T"), |script| statuses(&script.answered(&CALL, code), CAROL) == [404]);
    }
    kamailio(Some("25"), |script| {
        let got = script.answered(&CALL, 486);
        invites(&got).iter().any(|(at, _)| at == VOICEMAIL) && statuses(&got, CAROL).is_empty()
    });
    // Nothing answers at all.
    kamailio(Some("25"), |script| {
        script.ask(&CALL);
        (0..60).any(|_| script.site.wait(1_000).contains("INVITE sip:bob@example.org "))
    });
}
