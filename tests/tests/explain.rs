//! `strowger explain`: the decisions of a configuration about a request, for people and for programs.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use strowger_tests::binary;

const RULES: &str = r#"
listen = ["udp:0.0.0.0:5060"]
domains = ["example.org"]

[[set]]
name = "carriers"
kind = "prefixes"
entries = ["4930"]

[[failure]]
name = "voicemail"
statuses = ["408", "486", "5xx"]
to = ["sip:203.0.113.90:5060"]

[[filter]]
name = "scanners"
when = "header.User-Agent starts_with 'scan'"

[[rule]]
name = "no-user"
when = "request.local and not exists request.user"
answer = 484

[[rule]]
name = "berlin"
when = "number in carriers and user == 'alice'"
to = ["sip:203.0.113.80:5060", "sip:gw.example.net"]
try_next = [503]
answer_timeout = "4s"
add_headers = ["X-Carrier: west"]
track = true
on_failure = ["voicemail"]
"#;

/// Two gateways in turn, with all settings that a rule may have for a call.
const GATEWAYS: &str = r#"
listen = ["udp:0.0.0.0:5060"]
domains = ["example.org"]
auth.calls = false
proxy.relay_for = "everyone"

[accounting]
cdr = true
all = false

[[call_limit]]
name = "caller"
per = "from.uri"
most = 2
status = 486

[[call_limit]]
name = "west"
most = 30
over = "next-rule"

[[call_limit]]
name = "boxes"
most = 1

[[failure]]
name = "voicemail"
statuses = ["408", "486"]
to = ["sip:203.0.113.90"]
add_headers = ["Diversion: <sip:bob@example.org>;reason=no-answer"]
call_limits = ["boxes"]

[[failure]]
name = "busy"
statuses = ["6xx"]
answer = 486

[[rule]]
name = "abroad"
when = "number starts_with '00'"
strip = 2
prepend = "+"
account = true
call_limits = ["caller"]

[[rule]]
name = "west"
when = "exists number"
to = ["sip:203.0.113.80", "sip:203.0.113.81"]
call_limits = ["west"]
ring_timeout = "30s"
answer_timeout = "4s"
add_headers = ["X-Carrier: west"]
remove_headers = ["User-Agent"]
on_failure = ["voicemail", "busy"]

[[rule]]
name = "east"
when = "exists number"
to = ["sip:203.0.113.85"]
"#;

fn explain_by(config: &str, words: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("strowger.toml");
    std::fs::write(&file, config).expect("it can be written");
    let mut command = Command::new(binary::strowger());
    command.arg("explain").args(words).arg("--config").arg(&file);
    command.output().expect("it runs")
}

fn explain(words: &[&str]) -> Output {
    explain_by(RULES, words)
}

fn text_of(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout).expect("it is text")
}

fn text(words: &[&str]) -> String {
    text_of(explain(words))
}

#[test]
fn the_path_of_decisions_and_the_plan_are_printed() {
    let text = text(&["--from", "alice@example.org", "--to", "sip:493012@example.org", "--user", "alice"]);
    assert_eq!(
        text,
        "filter  no  scanners: header.User-Agent starts_with 'scan' is false, header.user-agent is absent\n\
         rule    no  no-user: exists request.user is true, request.user is '493012'\n\
         rule    yes berlin: number in carriers and user == 'alice' is true, number is '493012', user is 'alice'\n\
         name    gw.example.net is looked up when a request goes there\n\
         to      sip:203.0.113.80:5060 at udp:203.0.113.80:5060\n\
         then    sip:gw.example.net\n\
         next    after 503\n\
         silence at most 4000 ms\n\
         add     X-Carrier: west\n\
         path    record-route\n\
         track   the call is tracked\n\
         failure 408, 486, 500-599: sip:203.0.113.90:5060\n"
    );
}

/// The new number, limits, accounting, edits, time-outs, continuation after each failure; and the decision at a full
/// limit.
#[test]
fn all_that_rules_say_of_a_call_is_printed() {
    let words = ["--from", "alice@example.net", "--to", "sip:00441@example.org"];
    let abroad = "rule    yes abroad: number starts_with '00' is true, number is '00441'";
    let [west, east] =
        ["west", "east"].map(|name| format!("rule    yes {name}: exists number is true, number is '00441'"));
    let caller = "limit   caller of alice@example.net: at most 2 calls, one more is answered 486";
    let to_east = format!(
        "{east}\nuri     becomes sip:+441@example.org\nto      sip:203.0.113.85 at udp:203.0.113.85:5060\n{caller}\n\
         path    record-route\ntrack   the call is tracked\naccount the call is accounted\n"
    );
    assert_eq!(
        text_of(explain_by(GATEWAYS, &words)),
        format!(
            "{abroad}\n{west}\nuri     becomes sip:+441@example.org\n\
             to      sip:203.0.113.80 at udp:203.0.113.80:5060\nthen    sip:203.0.113.81 at udp:203.0.113.81:5060\n\
             next    after any but 6xx\nring    at most 30000 ms\nsilence at most 4000 ms\n{caller}\n\
             limit   west: at most 30 calls, one more goes to the next rule\n\
             add     X-Carrier: west\nremove  User-Agent\npath    record-route\ntrack   the call is tracked\n\
             account the call is accounted\n\
             failure 408, 486: sip:203.0.113.90 with Diversion: <sip:bob@example.org>;reason=no-answer; \
             limit boxes: at most 1 call, one more goes to the next failure\n\
             failure 600-699: answer 486\n\
             \nif caller is full:\n{abroad}; limit caller is full\nanswer  486: caller\n\
             \nif west is full:\n{west}; limit west is full\n{to_east}"
        )
    );
    let json = text_of(explain_by(GATEWAYS, &[&words[..], &["--json"]].concat()));
    let value: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&value["uri"], &value["outcome"]["account"]), (&"sip:+441@example.org".into(), &true.into()));
    let failures = &value["outcome"]["on_failure"];
    assert_eq!(failures[0]["add"][0], "Diversion: <sip:bob@example.org>;reason=no-answer");
    let limit = &failures[0]["limits"][0];
    assert_eq!((&limit["name"], &limit["of_failure"], &limit["answer"]), (&"boxes".into(), &true.into(), &Value::Null));
    let limits = &value["outcome"]["limits"];
    assert_eq!((&limits[0]["of"], &limits[0]["answer"]), (&"alice@example.net".into(), &486.into()));
    assert_eq!((&limits[1]["name"], &limits[1]["answer"]), (&"west".into(), &Value::Null));
    let case = &value["if_full"][1];
    assert_eq!((&case["limits"][0], &case["rules"][1]["full"]), (&"west".into(), &"west".into()));
    assert_eq!(case["outcome"]["to"][0]["uri"], "sip:203.0.113.85");
}

/// The output has the group of each target, and the handling of the call when the group is full.
#[test]
fn groups_of_gateways_are_printed() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/trunk.toml");
    let example =
        std::fs::read_to_string(example).expect("it is there").replace("database = \"trunk", "database = \"/tmp/none");
    let words = ["--from", "alice@office.example.org", "--to", "0049301234@office.example.org", "--user", "alice"];
    let said = text_of(explain_by(&example, &words));
    let (first, full) = said.split_once("\nif trunk is full:\n").expect("it is followed");
    for line in [
        "uri     becomes sip:+49301234@office.example.org",
        "to      sip:192.0.2.33:5060 at udp:192.0.2.33:5060 of group carrier",
        "then    sip:192.0.2.34:5060 at udp:192.0.2.34:5060 of group carrier",
        "group   carrier, in order",
        "limit   trunk: at most 30 calls, one more goes to the next place",
        "limit   channels of 192.0.2.34:5060: at most 20 calls, one more goes to the next place",
    ] {
        assert!(first.lines().any(|said| said == line), "{line}\n{said}");
    }
    assert!(full.contains("; limit trunk is full\nanswer  503: trunk\n"), "{said}");
    let json = text_of(explain_by(&example, &[&words[..], &["--json"]].concat()));
    let value: Value = serde_json::from_str(&json).expect("JSON");
    let outcome = &value["outcome"];
    assert_eq!((&outcome["to"][0]["group"], &outcome["groups"][0]["pick"]), (&"carrier".into(), &"in_order".into()));
    assert_eq!(outcome["limits"][0]["of_place"], true);
}

/// `border.toml` bridges calls to the carrier, and forwards calls between phones of the office.
#[test]
fn a_bridged_call_is_printed_with_its_codecs() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/border.toml");
    let example =
        std::fs::read_to_string(example).expect("it is there").replace("database = \"border", "database = \"/tmp/none");
    let words = ["--from", "alice@office.example.org", "--to", "0049301234@office.example.org", "--user", "alice"];
    let said = text_of(explain_by(&example, &words));
    let path = "path    two calls, with media of this server: caller PCMA, PCMU, telephone-event; callee PCMA, PCMU, telephone-event";
    assert!(said.lines().any(|line| line == path), "{said}");
    let json = |words: &[&str]| -> Value {
        serde_json::from_str(&text_of(explain_by(&example, &[words, &["--json"]].concat()))).expect("JSON")
    };
    let outcome = &json(&words)["outcome"];
    assert_eq!((&outcome["does"], &outcome["bridge"]["caller_codecs"][0]), (&"forward".into(), &"PCMA".into()));
    assert_eq!((&outcome["bridge"]["callee_codecs"][2], &outcome["track"]), (&"telephone-event".into(), &true.into()));
    let message = json(&[&words[..], &["--method", "MESSAGE"]].concat());
    assert_eq!((&message["outcome"]["does"], &message["outcome"]["bridge"]), (&"forward".into(), &Value::Null));
}

/// `office-media.toml` bridges the calls to the carrier by a rule without `when`.
#[test]
fn an_office_with_media_bridges_its_calls_to_the_carrier() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/office-media.toml");
    let example = std::fs::read_to_string(example).expect("it is there").replace("\"office-media", "\"/tmp/none");
    let words = ["--from", "alice@office.example.org", "--to", "0049301234@office.example.org", "--user", "alice"];
    let said = text_of(explain_by(&example, &words));
    let path = "path    two calls, with media of this server: caller PCMA, PCMU, telephone-event; ";
    assert!(said.lines().any(|line| line.starts_with(path)), "{said}");
    assert!(said.contains("192.0.2.33"), "{said}");
}

/// The server stays in the path of requests that can create a dialog, and of no other requests.
#[test]
fn the_method_decides_whether_the_server_stays_in_the_path() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/default-opensips.toml");
    // From loopback addresses there is no route to the next hop.
    let example = std::fs::read_to_string(example).expect("it is there").replace("127.0.0.1", "192.0.2.1");
    let methods = ["INVITE", "SUBSCRIBE", "REFER", "NOTIFY", "MESSAGE", "OPTIONS", "PUBLISH", "INFO", "UPDATE"];
    let stays = |method: &&str| {
        let words = ["--from", "alice@example.org", "--to", "sip:dave@203.0.113.77", "--method", method];
        let text = text_of(explain_by(&example, &words));
        let lines = ["path    record-route\n", "path    not in the path\n"].map(|line| text.contains(line));
        assert!(lines[0] != lines[1], "{text}");
        lines[0]
    };
    let staying: Vec<&str> = methods.into_iter().filter(stays).collect();
    assert_eq!(staying, ["INVITE", "SUBSCRIBE", "REFER", "NOTIFY"]);
}

#[test]
fn programs_get_json() {
    let from = ["--from", "carol@example.net", "--to", "example.org"];
    let value: Value =
        serde_json::from_str(&text(&[&from[..], &["--method", "MESSAGE", "--json"]].concat())).expect("JSON");
    assert_eq!(value["outcome"]["does"], "answer");
    assert_eq!((&value["outcome"]["status"], &value["outcome"]["because"]), (&484.into(), &"no-user".into()));
    assert_eq!(value["rules"].as_array().map(Vec::len), Some(1));
    let scan = [&from[..], &["--header", "User-Agent: scanner", "--json"]].concat();
    let value: Value = serde_json::from_str(&text(&scan)).expect("JSON");
    assert_eq!((&value["outcome"]["does"], &value["filters"][0]["holds"]), (&"drop".into(), &true.into()));
}

#[test]
fn what_is_no_request_is_refused_with_a_reason() {
    let refused = |words: &[&str], code: i32, reason: &str| {
        let output = explain(words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && errors.contains(reason), "{words:?}: {errors}");
    };
    let parties = ["--from", "a@example.org", "--to", "b@example.org"];
    refused(&["--from", "a b", "--to", "b@example.org"], 2, "--from is \"a b\", which is no URI");
    refused(&[&parties[..], &["--method", "IN VITE"]].concat(), 2, "--method is \"IN VITE\"");
    refused(&[&parties[..], &["--header", "no header"]].concat(), 2, "--header is \"no header\"");
    refused(&[&parties[..], &["--transport", "tls"]].concat(), 1, "no listener takes tls; they are udp:0.0.0.0:5060");
    refused(&[&parties[..], &["--method", "ACK"]].concat(), 1, "an ACK or a CANCEL goes where its INVITE went");
}

/// The database is not asked: the server answers 404 if the user does not exist.
#[test]
fn a_user_who_is_taken_to_exist_is_named() {
    let config = "listen = [\"udp:0.0.0.0:5060\"]\ndomains = [\"example.org\", \"192.0.2.1\"]\n";
    let words = ["--from", "sip:bob@elsewhere.test", "--to", "sip:alice@192.0.2.1", "--source", "198.51.100.7:5060"];
    let said = text_of(explain_by(config, &words));
    let lines = "user    alice@example.org: the server answers 404 if it is no user\nanswer  480: the user is not registered; 404 if there is no such user\n";
    assert!(said.ends_with(lines), "{said}");
    let json: Value =
        serde_json::from_str(&text_of(explain_by(config, &[&words[..], &["--json"]].concat()))).expect("JSON");
    assert_eq!(json["users"][0], "alice@example.org");
}
