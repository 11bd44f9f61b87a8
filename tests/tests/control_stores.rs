//! Commands about counted, cached and waiting data: limits of calls, caches, accounting.

use std::time::Duration;

use serde_json::{Value, json};
use strowger_lab::backend;
use strowger_tests::account;
use strowger_tests::call::register;
use strowger_tests::control::{done, json as said, run};
use strowger_tests::dialog::{arrives, invite, set_up};
use strowger_tests::program::{REDIS, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{respond, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(15);

/// Returns exit code and all output.
pub(crate) fn order(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    let output = run(server, words);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn limits_show_what_counts_under_them() {
    let rules = r#"
        [[call_limit]]
        name = "all-calls"
        most = 10
        [[call_limit]]
        name = "per-callee"
        per = "request.uri"
        most = 2
        [[rule]]
        name = "counted"
        call_limits = ["all-calls", "per-callee"]
        "#;
    let server = Setup::on(&[Udp]).open_registrar().with(rules).start();
    let limits = |words: &[&str]| said(&server, &[&["limits"], words].concat());
    assert_eq!((&limits(&[])[0]["calls"], &limits(&[])[0]["highest"]), (&json!(0), &json!([])));
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    let mut ends = Vec::new();
    for (user, calls) in [("bob", 2), ("carol", 1)] {
        register(&mut callee, user);
        for _ in 0..calls {
            let call = invite(&format!("sip:{user}@example.org"), &caller);
            ends.push(set_up(&mut caller, &mut callee, &call, true).0);
        }
    }
    let all = limits(&[]);
    assert_eq!((&all[0]["name"], &all[0]["calls"], &all[0]["keys"]), (&json!("all-calls"), &json!(3), &json!(1)));
    let per_callee = &all[1];
    assert_eq!((&per_callee["most"], &per_callee["keys"], &per_callee["full"]), (&json!(2), &json!(2), &json!(1)));
    let highest = json!([
        { "calls": 2, "key": "bob@example.org" },
        { "calls": 1, "key": "carol@example.org" },
    ]);
    assert_eq!(per_callee["highest"], highest);
    assert_eq!(limits(&["per-callee", "--most", "1"])[0]["highest"].as_array().map(Vec::len), Some(1));
    let one = limits(&["per-callee", "--key", "carol@example.org"]);
    assert_eq!(one[0]["highest"], json!([{ "calls": 1, "key": "carol@example.org" }]));
    assert_eq!(limits(&["per-callee", "--key", "sip:carol@example.org"])[0]["highest"], one[0]["highest"]);
    assert_eq!(limits(&["per-callee", "--key", "unknown"])[0]["highest"][0]["calls"], 0);
    let text = done(&server, &["limits"]);
    assert!(text.contains("\nper-callee ") && text.contains("\n  bob@example.org "), "{text}");
    let (code, text) = order(&server, &["limits", "no"]);
    assert!(code == Some(1) && text.contains("no [[call_limit]] of the configuration has the name no"), "{text}");
    // Calls of a limit that is no longer configured count until they end.
    server.rewrite(", \"per-callee\"]", "]");
    server.rewrite("name = \"per-callee\"", "name = \"another\"");
    done(&server, &["reload"]);
    let all = limits(&[]);
    assert_eq!((&all[1]["name"], &all[1]["calls"]), (&json!("another"), &json!(0)));
    assert_eq!((&all[2]["name"], &all[2]["calls"], &all[2]["most"]), (&json!("per-callee"), &json!(3), &Value::Null));
    for mut end in ends {
        arrives(&mut caller, &mut callee, &end.request("BYE"), &[]);
    }
    assert!(wait::until(SOON, || limits(&[]).as_array().is_some_and(|limits| limits.len() == 2)));
    assert_eq!(limits(&[])[0]["calls"], 0);
}

#[test]
fn what_is_kept_of_a_user_is_shown_without_secrets_and_dropped() {
    let (folder, has_redis) = (tempfile::tempdir().expect("a folder"), have(&[REDIS]));
    let redis = has_redis.then(|| backend::redis(folder.path()).expect("it starts"));
    let local = "{ name = \"near\", memory = \"1MiB\" }";
    let caches = match &redis {
        None => format!("cache = [{local}]\nstore.cache = \"near\""),
        Some(redis) => {
            let remote = format!("{{ name = \"shared\", engine = \"redis\", servers = [\"{}\"] }}", redis.address());
            format!("cache = [{local}, {remote}]\nstore.cache = \"shared\"")
        }
    };
    let second = if has_redis { "shared" } else { "near" };
    let setup = Setup::on(&[Udp]).with(&format!("domains = [\"example.org\"]\nban.enabled = false\n{caches}"));
    let mut server = setup.prepare();
    server.add_user("alice@example.org", "open sesame");
    server.start();
    let list = said(&server, &["caches", "list"]);
    assert_eq!((&list["subscribers"]["second"], &list["subscribers"]["state"]), (&json!(second), &json!("works")));
    assert_eq!((&list["caches"][0]["engine"], &list["caches"][0]["entries"]), (&json!("local"), &json!(0)));
    let of = |words: &[&str]| order(&server, &[&["caches"], words].concat());
    assert_eq!(of(&["user", "alice@example.org"]), (Some(1), "nothing is kept of alice@example.org\n".into()));

    let mut wire = server.connect(Udp);
    account::register(&mut wire, "alice", "open sesame");
    let kept = said(&server, &["caches", "user", "alice@example.org"]);
    let of_memory = |kept: &Value| {
        let all = kept["kept"].as_array().expect("a list");
        all.iter().filter(|row| row["place"] == "memory" && row["question"] == "credential").count()
    };
    assert_eq!(of_memory(&kept), 1, "{kept}");
    // The server answers before the cache has it.
    let is_there =
        |kept: &Value| kept["kept"].as_array().is_some_and(|all| all.iter().any(|row| row["place"] == second));
    assert!(wait::until(SOON, || is_there(&said(&server, &["caches", "user", "alice@example.org"]))));
    let (code, text) = of(&["user", "alice@example.org"]);
    assert!(code == Some(0) && text.contains("alice in example.org: HA1 for "), "{text}");
    let key = "strowger:credential:11:example.org:alice";
    let (code, text) = of(&["get", second, "--key", key]);
    assert!(code == Some(0) && text.starts_with(&format!("{key} is in {second}, with a value of ")), "{text}");
    let all = done(&server, &["caches", "list"]);
    assert!(all.contains("(subscribers) ") && all.contains("near "), "{all}");

    assert_eq!(said(&server, &["caches", "drop", "alice@example.org"])["dropped"].as_u64().map(|n| n > 0), Some(true));
    assert_eq!(of(&["user", "alice@example.org"]).0, Some(1));
    assert_eq!(of(&["get", second, "--key", key]).0, Some(1));
    // The user is read into the caches again, and then all entries are dropped.
    account::register(&mut wire, "alice", "open sesame");
    assert_eq!(of_memory(&said(&server, &["caches", "user", "alice@example.org"])), 1);
    assert!(wait::until(SOON, || of(&["get", second, "--key", key]).0 == Some(0)));
    done(&server, &["caches", "drop", "--all"]);
    assert_eq!(of(&["user", "alice@example.org"]).0, Some(1));
    assert_eq!(of(&["remove", second, "--key", key]), (Some(0), "removed\n".into()));
    let (code, text) = of(&["remove", second, "--key", key]);
    assert!(code == Some(0) && text.contains("was not in"), "{text}");
    let (code, text) = of(&["get", "nothing", "--key", key]);
    assert!(code == Some(1) && text.contains("no [[cache]] of the configuration has the name nothing"), "{text}");
    server.log_with("what caches hold of subscribers dropped by command");
    assert!(!server.log().contains("sesame"));

    // A frozen server does not answer.
    let Some(mut redis) = redis else { return };
    let state = || said(&server, &["caches", "list"])["caches"][1]["state"].as_str().unwrap_or_default().to_owned();
    assert_eq!(state(), "works");
    redis.freeze();
    let is_silent = || {
        let _late = of(&["get", "shared", "--key", key]);
        let state = state();
        state == "its server does not answer: requests fail" || state == "no server is reached: requests fail at once"
    };
    assert!(wait::until(SOON, is_silent), "{}", done(&server, &["caches", "list"]));
    let (code, text) = of(&["drop", "alice@example.org"]);
    assert!(code == Some(1) && text.contains("the cache shared does not answer"), "{text}");
    assert!(
        done(&server, &["caches", "list"]).lines().all(|line| !line.starts_with("shared ") || !line.ends_with("works"))
    );
    redis.thaw();
    assert!(wait::until(SOON, || state() == "works"), "{}", done(&server, &["caches", "list"]));

    // A server that is gone is reported.
    backend::stop_cache(&mut redis).expect("it ends");
    let is_down =
        || said(&server, &["caches", "list"])["caches"][1]["state"] == "no server is reached: requests fail at once";
    assert!(wait::until(SOON, is_down), "{}", done(&server, &["caches", "list"]));
    let (code, text) = of(&["get", "shared", "--key", key]);
    assert!(code == Some(1) && text.contains("the cache shared does not answer"), "{text}");
    let kept = said_of_failure(&server);
    assert!(kept["error"].is_string(), "{kept}");
}

/// Returns the JSON about a user without any stored data.
fn said_of_failure(server: &Server) -> Value {
    let output = run(server, &["caches", "user", "zoe@example.org", "--json"]);
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// Makes a call that its callee declines, so that it has rows.
fn fails(caller: &mut Wire, callee: &mut Wire) {
    let call = invite("sip:bob@example.org", caller);
    caller.send(&call.bytes()).expect("loopback");
    let got = callee.request("INVITE", SOON).expect("it arrives");
    callee.send(&respond(&got, 486, "b", &[])).expect("loopback");
    let answer = caller.final_response(SOON).expect("an answer");
    assert_eq!(status(&answer), Some(486));
    caller.send(&call.ack(&answer).bytes()).expect("loopback");
}

#[test]
fn the_spool_of_accounting_is_shown_and_written_now() {
    let lines = "accounting.cdr = true\naccounting.path = \"rows\"\naccounting.spool = \"rows.spool\"\n\
                 accounting.group_interval = \"10ms\"\nstore.busy_timeout = \"10ms\"";
    let server = Setup::on(&[Udp]).open_registrar().with(lines).start();
    let state = || said(&server, &["accounting"]);
    assert_eq!((&state()["works"], &state()["spool"]["rows"]), (&json!(true), &json!(0)));
    assert_eq!(order(&server, &["accounting", "flush"]).0, Some(0));
    let database = rusqlite::Connection::open(server.folder().join("rows")).expect("it is there");
    database.busy_timeout(SOON).expect("a time");
    database.execute_batch("BEGIN IMMEDIATE").expect("the lock is free for a moment");
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    (0..3).for_each(|_| fails(&mut caller, &mut callee));
    assert!(wait::until(SOON, || state()["spool"]["rows"] == 3), "{}", server.log());
    let spool = &state()["spool"];
    assert!(spool["bytes"].as_u64().is_some_and(|bytes| bytes > 0) && spool["oldest"].as_u64().is_some(), "{spool}");
    assert!(state()["last_error"]["message"].as_str().is_some_and(|error| error.contains("locked")), "{}", state());
    let log = server.log_with("rows of accounting cannot be written: they go to the spool");
    assert!(!log.contains("rows=0"), "{log}");
    let (code, text) = order(&server, &["accounting", "flush"]);
    assert!(code == Some(1) && text.contains("3 rows, "), "{text}");
    assert!(text.starts_with("accounting: not written") && text.contains("last error"), "{text}");
    database.execute_batch("ROLLBACK").expect("it was begun");
    assert_eq!(order(&server, &["accounting", "flush"]).0, Some(0));
    assert_eq!((&state()["works"], &state()["spool"]["rows"]), (&json!(true), &json!(0)));
    let rows: i64 = database.query_row("SELECT count(*) FROM cdr", [], |row| row.get(0)).expect("the table is there");
    assert_eq!(rows, 3);

    let server = Setup::on(&[Udp]).open_registrar().start();
    let (code, text) = order(&server, &["accounting"]);
    assert!(code == Some(1) && text.contains("nothing is accounted"), "{text}");
}
