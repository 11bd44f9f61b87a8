//! Data sets that are reloaded while the server runs: by command, automatically, from files and databases; and the
//! effects of failures.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use strowger_lab::backend::Backend;
use strowger_tests::call::exchange;
use strowger_tests::certificate::Certificate;
use strowger_tests::control::{done, json as said, metric, run};
use strowger_tests::server::{Server, Setup};
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::text::{Request, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(15);

/// Returns a setup with a set of prefixes with these lines, and rules that show its entries.
fn setup(lines: &str) -> Setup {
    let rules = r#"
        [[rule]]
        name = "closed"
        when = "carriers[number] == 'closed'"
        answer = 503
        [[rule]]
        name = "unknown"
        when = "exists number and number not in carriers"
        answer = 604
        "#;
    let set =
        format!("[[set]]\nname = \"carriers\"\nkind = \"prefixes\"\nkey = \"prefix\"\nvalue = \"carrier\"\n{lines}");
    Setup::on(&[Udp]).open_registrar().with("server.software = \"first\"").with(&format!("{set}\n{rules}"))
}

/// Returns the status of a request to this number: 503 if its carrier is closed, 604 without one, else 480.
fn ask(wire: &mut Wire, number: &str) -> Option<u16> {
    status(&exchange(wire, &Request::new("OPTIONS", &format!("sip:{number}@example.org"), "udp", wire.local())))
}

/// Returns exit code and all output.
fn order(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    let output = run(server, words);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Replaces a file atomically.
fn replace(file: &Path, text: &str) {
    let draft = file.with_extension("new");
    std::fs::write(&draft, text).expect("the folder can be written");
    std::fs::rename(&draft, file).expect("the folder can be written");
}

#[test]
fn a_set_is_read_again_without_the_rest_of_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prefixes.csv");
    std::fs::write(&file, "prefix,carrier\n49,west\n4930,closed\n").expect("it can be written");
    let other = "[[set]]\nname = \"here\"\nentries = [\"x\"]\n";
    let lines = format!("file = {:?}\n{other}", file.display().to_string());
    let server = setup(&lines).start();
    let mut wire = server.connect(Udp);
    assert_eq!(["49301", "4940", "33"].map(|number| ask(&mut wire, number)), [Some(503), Some(480), Some(604)]);

    // Other parts of the configuration may be wrong: they are not read.
    server.rewrite("\"first\"", "nothing");
    std::fs::write(&file, "prefix,carrier\n33,closed\n").expect("it can be written");
    let text = done(&server, &["sets", "reload", "carriers"]);
    assert_eq!(text, format!("carriers: 1 entries, before 2, from {}\n", file.display()));
    assert_eq!(["49301", "33"].map(|number| ask(&mut wire, number)), [Some(604), Some(503)]);
    assert_eq!(done(&server, &["sets", "reload"]), format!("carriers: as before, from {}\n", file.display()));

    // A wrong set is refused as a whole, with place and cure.
    std::fs::write(&file, "prefix,carrier\n44,west\n33,a\n33,b\n").expect("it can be written");
    let (code, text) = order(&server, &["sets", "reload", "carriers"]);
    assert!(code == Some(1) && text.contains("prefixes.csv:4: error: 33 has another value at line 3"), "{text}");
    assert!(text.contains("= give each key one value") && text.contains("keeps the sets that it has"), "{text}");
    let refused = run(&server, &["sets", "reload", "--json"]);
    let refused: serde_json::Value = serde_json::from_slice(&refused.stdout).expect("it is JSON");
    assert_eq!(refused["refused"][0]["line"], 4);
    assert_eq!(["44", "33"].map(|number| ask(&mut wire, number)), [Some(604), Some(503)]);
    let listed = said(&server, &["sets", "list"]);
    assert!(listed[0]["error"].as_str().is_some_and(|error| error.contains("prefixes.csv:4")), "{listed}");
    assert_eq!((&listed[1]["origin"], &listed[1]["read_at"]), (&json!("configuration"), &json!(null)));
    assert_eq!(metric(&server, "strowger_sets_old"), 1.0);
    server.log_with("data set refused by command");

    std::fs::write(&file, "prefix,carrier\n44,west\n").expect("it can be written");
    done(&server, &["sets", "reload", "carriers"]);
    assert_eq!(["44", "33"].map(|number| ask(&mut wire, number)), [Some(480), Some(604)]);
    assert_eq!(metric(&server, "strowger_sets_old"), 0.0);
    let (code, text) = order(&server, &["sets", "reload", "nothing"]);
    assert!(code == Some(1) && text.contains("no [[set]] of the configuration has the name nothing"), "{text}");
    let (code, text) = order(&server, &["sets", "reload", "here"]);
    assert!(code == Some(1) && text.contains("stand in the configuration"), "{text}");
}

#[test]
fn a_set_is_read_again_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prefixes.csv");
    replace(&file, "prefix,carrier\n49,west\n");
    let server = setup(&format!("file = {:?}\nrefresh = \"1s\"", file.display().to_string())).start();
    let mut wire = server.connect(Udp);
    let mut comes_to = |number: &str, answer: u16| wait::until(SOON, || ask(&mut wire, number) == Some(answer));
    assert!(comes_to("491", 480));
    replace(&file, "prefix,carrier\n49,closed\n");
    assert!(comes_to("491", 503), "{}", server.log());
    server.log_with("data set read again set=carriers entries=1 before=1");
    // A wrong set is ignored, and logged once.
    replace(&file, "prefix,carrier\n49\n");
    server.log_with("data set not read: it stays as it was");
    assert!(comes_to("491", 503));
    let text = done(&server, &["sets", "list"]);
    assert!(text.contains("not read since: ") && text.contains("prefixes.csv:2"), "{text}");
    replace(&file, "prefix,carrier\n49,west\n");
    assert!(comes_to("491", 480), "{}", server.log());
    let log = server.log_with("data set can be read again");
    assert_eq!(log.matches("data set not read").count(), 1, "{log}");
}

#[test]
fn a_set_may_be_in_a_file_of_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("carriers.sqlite");
    let lines = format!(
        "database = \"sqlite:{}\"\nquery = \"SELECT prefix, carrier FROM carriers\"\nrefresh = \"1s\"",
        path.display()
    );
    // A set that was never read is not treated as empty.
    let mut server = setup(&lines).prepare();
    assert_eq!(server.try_start().end(SOON).code(), Some(1));
    let log = server.log();
    assert!(log.contains("a set of the rules cannot be read: set 'carriers': "), "{log}");
    let database = rusqlite::Connection::open(&path).expect("it can be made");
    database
        .execute_batch(
            "CREATE TABLE carriers (prefix INTEGER, carrier TEXT); INSERT INTO carriers VALUES (49, 'closed')",
        )
        .expect("a table");
    server.start();
    let mut wire = server.connect(Udp);
    assert_eq!(["491", "331"].map(|number| ask(&mut wire, number)), [Some(503), Some(604)]);
    database.execute_batch("INSERT INTO carriers VALUES (33, NULL)").expect("a row");
    assert!(wait::until(SOON, || ask(&mut wire, "331") == Some(480)), "{}", server.log());
    // A simulated decision uses the same data.
    let words = ["explain", "--from", "a@example.org", "--to", "491@example.org"];
    let text = done(&server, &words);
    assert!(text.contains("carriers[number] is 'closed'"), "{text}");
}

/// Tests the same with a database server, which is frozen and thawed here.
pub(crate) fn of_server(url: &str, certificate: &Certificate, backend: &Backend, execute: &dyn Fn(&str)) {
    let numbers = match url.starts_with("mysql") {
        true => "SELECT seq, NULL FROM seq_100000_to_199999",
        false => "SELECT n, NULL FROM generate_series(100000, 199999) AS n",
    };
    execute("CREATE TABLE carriers (prefix INT, carrier VARCHAR(16))");
    execute(&format!("INSERT INTO carriers (prefix, carrier) {numbers}"));
    execute("INSERT INTO carriers VALUES (49, 'closed')");
    let lines = format!(
        "database = \"{url}?tls=required&ca={}\"\nquery = \"SELECT * FROM carriers WHERE prefix > 9 -- all\"\ntimeout = \"3s\"\n",
        certificate.authority.display()
    );
    let server = setup(&lines).start();
    let mut wire = server.connect(Udp);
    let mut answers = |numbers: [&str; 2]| numbers.map(|number| ask(&mut wire, number));
    assert_eq!(answers(["491", "331"]), [Some(503), Some(604)]);
    let listed = said(&server, &["sets", "list"]);
    assert_eq!(listed[0]["entries"], 100_001);
    assert!(listed[0]["origin"].as_str().is_some_and(|origin| !origin.contains("strowger:strowger")), "{listed}");
    execute("INSERT INTO carriers VALUES (33, 'closed')");
    done(&server, &["sets", "reload", "carriers"]);
    assert_eq!(answers(["491", "331"]), [Some(503), Some(503)]);
    // With a silent server the rest of the configuration takes effect, and the set stays unchanged.
    execute("DELETE FROM carriers WHERE prefix = 33");
    server.rewrite("\"first\"", "\"second\"");
    backend.freeze();
    let since = Stopwatch::start();
    let (code, text) = order(&server, &["reload"]);
    assert!(code == Some(0) && text.contains("\"first\" -> \"second\""), "{text}");
    assert!(text.contains("did not answer within 3s; the set goes on with what was read before"), "{text}");
    assert!(since.took().is_below(Duration::from_secs(9)), "{:?}", since.took());
    assert_eq!(answers(["491", "331"]), [Some(503), Some(503)]);
    let (code, text) = order(&server, &["sets", "reload"]);
    assert!(code == Some(1) && text.contains("did not answer within 3s"), "{text}");
    backend.thaw();
    done(&server, &["sets", "reload"]);
    assert_eq!(answers(["491", "331"]), [Some(503), Some(604)]);
    // Another authority is another URL, and so another source: nothing of it was read before.
    let folder = tempfile::tempdir().expect("a folder");
    let foreign = Certificate::in_folder(folder.path(), &["db.example"]);
    let [own, other] = [&certificate.authority, &foreign.authority].map(|file| file.display().to_string());
    server.rewrite(&own, &other);
    let (code, text) = order(&server, &["reload"]);
    assert!(code == Some(1) && text.contains("certificate") && text.contains("keeps its own"), "{text}");
    server.rewrite(&other, &own);
    // A refusal is no outage: the query is wrong.
    server.rewrite("FROM carriers", "FROM nothing");
    let (code, text) = order(&server, &["reload"]);
    assert!(code == Some(1) && text.contains("set 'carriers'") && text.contains("nothing"), "{text}");
    assert_eq!(answers(["491", "331"]), [Some(503), Some(604)]);
    execute("DROP TABLE carriers");
}
