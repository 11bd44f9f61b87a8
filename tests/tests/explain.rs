//! `strowger explain`: what a configuration makes of a request, for people and for programs.

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

fn explain(words: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("strowger.toml");
    std::fs::write(&file, RULES).expect("it can be written");
    let mut command = Command::new(binary::strowger());
    command.arg("explain").args(words).arg("--config").arg(&file);
    command.output().expect("it runs")
}

fn text(words: &[&str]) -> String {
    let output = explain(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout).expect("it is text")
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
