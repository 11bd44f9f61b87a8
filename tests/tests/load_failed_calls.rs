//! `strowger load --keep-failed`: the messages of the first failed calls.

use serde_json::Value;
use strowger_tests::generator::{load, output, peer};

/// Every second call is refused, with a reason that contains a terminal escape sequence.
#[test]
fn the_first_failed_calls_are_kept_with_their_messages() {
    let server = peer(|number, request| {
        let refuses = request.starts_with("INVITE") && number % 3 == 2;
        Some(if refuses { "503 Bu\x1b[2Jsy" } else { "200 OK" })
    });
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (target, log, page) = (server.to_string(), path("run.log"), path("run.html"));
    let words = [&*target, "-r", "50", "-m", "10", "--hold", "0", "--no-preflight", "--max-lag", "1min"];
    let ran = load(&[&words[..], &["--keep-failed", "2", "--log", &log, "--html", &page]].concat());
    ran.ended_with(1);
    assert!(ran.calls("failed") > 2, "{}", ran.said);
    let calls = ran.json["failed_calls"].as_array().expect("there are some");
    assert_eq!(calls.len(), 2, "{}", ran.said);
    for call in calls {
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        assert!(text(&call["cause"]).ends_with("503 Bu\\x1b[2Jsy"), "{call}");
        let messages = call["messages"].as_array().expect("it has some");
        let ladder: Vec<(bool, String)> = messages
            .iter()
            .map(|message| (message["sent"] == true, text(&message["text"]).split(' ').next().unwrap_or("").to_owned()))
            .collect();
        assert_eq!(ladder, [(true, "INVITE".into()), (false, "SIP/2.0".into()), (true, "ACK".into())], "{call}");
        assert!(messages.iter().all(|message| message["peer"] == target.as_str()), "{call}");
        assert_eq!(messages[1]["note"], "unexpected");
        assert!(text(&messages[0]["text"]).contains(&format!("Call-ID: {}", text(&call["call_id"]))), "{call}");
        let times: Vec<u64> = messages.iter().filter_map(|message| message["at"].as_u64()).collect();
        assert!(times.len() == 3 && times.is_sorted(), "{call}");
    }
    for shown in
        ["Failed call", &format!("──▶ {target}  INVITE sip:"), "◀── ", "SIP/2.0 503 Bu\\x1b[2Jsy   (unexpected)"]
    {
        assert!(ran.said.contains(shown), "{shown}: {}", ran.said);
    }
    assert_eq!(ran.said.matches("Failed call ").count(), 2, "{}", ran.said);
    let page = std::fs::read_to_string(page).expect("the page was written");
    assert!(page.matches("<section class=\"ladder\">").count() == 2 && page.contains("503 Bu\\x1b[2Jsy"));
    // The log has them, too.
    let again = output(&["report", &log, "--json", "-", "--max-lag", "1min"]);
    let json: Value = serde_json::from_slice(&again.stdout).expect("it is JSON");
    assert_eq!(json["failed_calls"], ran.json["failed_calls"]);
    // By default none is recorded.
    let none = load(&words);
    assert!(none.json.get("failed_calls").is_none() && !none.said.contains("Failed call "), "{}", none.said);
}
