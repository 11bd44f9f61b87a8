//! Commands by HTTP, and display of data sets by HTTP and by commands.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use strowger_tests::binary::strowger;
use strowger_tests::call::register;
use strowger_tests::control::{done, json as said, run};
use strowger_tests::dialog::{invite, set_up};
use strowger_tests::port::free_address;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(10);

/// HTTP answer of a server.
struct HttpAnswer {
    status: u16,
    head: String,
    body: Value,
}

/// Sends a request with these header lines, and with Host if it is not among them.
fn send(address: SocketAddr, method: &str, path: &str, lines: &[&str]) -> HttpAnswer {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !lines.iter().any(|line| line.starts_with("Host:")) {
        text.push_str(&format!("Host: {address}\r\n"));
    }
    lines.iter().for_each(|line| text.push_str(&format!("{line}\r\n")));
    text.push_str("Content-Length: 0\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("it takes requests");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers, and closes");
    let answer = String::from_utf8(answer).expect("it is text");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    HttpAnswer { status, head: head.to_lowercase(), body: serde_json::from_str(body).expect("it is JSON") }
}

fn get(address: SocketAddr, path: &str) -> Value {
    let HttpAnswer { status, body, .. } = send(address, "GET", path, &[]);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Starts a server that accepts commands at the returned address.
fn start(lines: &str) -> (Server, SocketAddr) {
    let address = free_address();
    let server =
        Setup::on(&[Udp]).open_registrar().with(&format!("control.listen = \"{address}\"")).with(lines).start();
    (server, address)
}

#[test]
fn orders_are_taken_by_http_as_json() {
    let (server, address) = start("dialogs.track = true");
    let [mut alice, mut bob] = [(); 2].map(|()| server.connect(Udp));
    register(&mut bob, "bob");
    assert_eq!(get(address, "/v1/status")["metrics"]["strowger_bindings"], 1.0);
    let page = get(address, "/v1/registrations?most=5");
    assert_eq!((&page["registrations"][0]["user"], &page["next"]), (&json!("bob@example.org"), &Value::Null));
    assert_eq!(get(address, "/v1/registrations?user=eve%40example.org")["registrations"], json!([]));

    let call = invite("sip:bob@example.org", &alice);
    set_up(&mut alice, &mut bob, &call, true);
    let calls = get(address, "/v1/calls?party=bob");
    assert_eq!(calls["calls"].as_array().map(Vec::len), Some(1), "{calls}");
    let id = calls["calls"][0]["id"].as_str().expect("it has an id").to_owned();
    assert_eq!(get(address, &format!("/v1/calls/{id}"))["state"], "answered");
    let ended = send(address, "DELETE", &format!("/v1/calls/{id}"), &[]);
    assert_eq!((ended.status, &ended.body["ended"]["id"]), (200, &json!(id)));
    assert!(bob.request("BYE", SOON).is_some() && alice.request("BYE", SOON).is_some());
    let unknown = send(address, "DELETE", "/v1/calls/0123", &[]);
    assert!(unknown.status == 404 && unknown.body["error"].as_str().is_some_and(|text| text.contains("0123")));

    assert_eq!(get(address, "/v1/bans"), json!({ "bans": [], "banned": 0, "next": null }));
    assert_eq!(send(address, "DELETE", "/v1/bans?source=192.0.2.7", &[]).body, json!({ "lifted": { "bans": 0 } }));
    assert_eq!(get(address, "/v1/log-level"), json!({ "level": { "level": "info" } }));
    assert_eq!(send(address, "PUT", "/v1/log-level?level=debug", &[]).body["level"]["level"], "debug");
    assert_eq!(send(address, "PUT", "/v1/log-level?level=loud", &[]).status, 409);

    assert_eq!(get(address, "/v1/limits?most=5"), json!({ "limits": [] }));
    assert_eq!(send(address, "GET", "/v1/limits/west", &[]).status, 404);
    let caches = get(address, "/v1/caches");
    assert_eq!((&caches["subscribers"]["state"], &caches["caches"]), (&json!("works"), &json!([])));
    assert_eq!(send(address, "DELETE", "/v1/caches/shared/entry?key=x", &[]).status, 404);
    assert_eq!(get(address, "/v1/subscribers/zoe%40example.org")["kept"], json!([]));
    assert_eq!(send(address, "GET", "/v1/subscribers/zoe", &[]).status, 404);
    for path in ["/v1/subscribers/zoe%40example.org", "/v1/subscribers"] {
        assert!(send(address, "DELETE", path, &[]).body["dropped"]["answers"].is_u64(), "{path}");
    }
    let accounting = send(address, "POST", "/v1/accounting/flush", &[]);
    assert!(
        accounting.status == 409
            && accounting.body["error"].as_str().is_some_and(|text| text.contains("accounting.cdr"))
    );
    assert_eq!(send(address, "POST", "/v1/sets/reload", &[]).body, json!({ "sets_reloaded": { "sets": [] } }));
    assert_eq!(send(address, "POST", "/v1/sets/carriers/reload", &[]).status, 404);

    let reloaded = send(address, "POST", "/v1/reload", &[]);
    assert_eq!((reloaded.status, &reloaded.body["reloaded"]["changes"]), (200, &json!([])));
    server.rewrite("dialogs.track = true", "dialogs.track = 7");
    let refused = send(address, "POST", "/v1/reload", &[]);
    assert_eq!((refused.status, refused.body["faults"].as_array().map(Vec::len)), (422, Some(1)), "{}", refused.body);

    // Invalid requests get a reason.
    for (method, path, status) in [
        ("GET", "/v1/no", 404),
        ("POST", "/v1/calls", 405),
        ("GET", "/v1/calls?id=1", 400),
        ("GET", "/v1/calls?most=x", 400),
    ] {
        let answer = send(address, method, path, &[]);
        assert!(answer.status == status && answer.body["error"].is_string(), "{path}: {}", answer.body);
        assert_eq!(answer.head.contains("\r\nallow: get"), status == 405, "{}", answer.head);
    }
    // The schema of the commands equals the one in the sources.
    let written =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json")).expect("it is there");
    assert_eq!(get(address, "/openapi.json"), serde_json::from_str::<Value>(&written).expect("it is JSON"));
}

#[test]
fn a_server_is_shut_down_by_http() {
    let (mut server, address) = start("");
    let answer = send(address, "POST", "/v1/drain", &[]);
    assert!(answer.body["draining"]["seconds"].is_u64(), "{}", answer.body);
    server.process().end(SOON);
}

#[test]
fn without_the_secret_no_order_is_taken() {
    const SECRET: &str = "correct horse battery";
    let (mut server, address) = start(&format!("control.secret = \"{SECRET}\"\nlog.refusals_per_minute = 1000"));
    for line in [
        "X: y",
        "Authorization: Bearer wrong horse battery",
        "Authorization: Basic correct horse battery",
        "Authorization: Bearer",
    ] {
        for (method, path) in
            [("GET", "/v1/status"), ("POST", "/v1/drain"), ("GET", "/openapi.json"), ("GET", "/v1/no")]
        {
            let answer = send(address, method, path, &[line]);
            assert_eq!((answer.status, answer.head.contains("www-authenticate: bearer")), (401, true), "{line}");
        }
    }
    let shown = format!("authorization: bearer {SECRET}");
    // Reached by any host name.
    let answer = send(address, "GET", "/v1/status", &[&shown, "Host: sip.example.org"]);
    assert_eq!((answer.status, &answer.body["state"]), (200, &json!("ready")));
    server.stop();
    let log = server.log();
    assert!(log.contains("order by HTTP refused") && !log.contains("horse"), "{log}");
    // On an external address it is mandatory.
    let lines = "listen = [\"udp:127.0.0.1:5060\"]\ncontrol.listen = \"0.0.0.0:9061\"\n";
    std::fs::write(server.config(), lines).expect("it can be written");
    let checked = Command::new(strowger()).arg("check").arg(server.config()).output().expect("it runs");
    let text = format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.code() == Some(1) && text.contains("lets any host give orders"), "{text}");
}

/// The address needs a restart, and the secret does not.
#[test]
fn a_reload_does_not_open_orders_to_the_network() {
    let port = free_address().port();
    let listen = format!("control.listen = \"0.0.0.0:{port}\"");
    let secret = "control.secret = \"correct horse battery\"";
    let server = Setup::on(&[Udp]).open_registrar().with(&listen).with(secret).start();
    server.rewrite(secret, "");
    server.rewrite(&listen, &listen.replace("0.0.0.0", "127.0.0.1"));
    let refused = run(&server, &["reload"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    let reason = format!("error: until a restart, {listen} lets any host give orders");
    assert!(refused.status.code() == Some(1) && said.contains(&reason), "{said}");
    assert_eq!(send(([127, 0, 0, 1], port).into(), "GET", "/v1/status", &[]).status, 401);
    // With this key at the start, the configuration is correct.
    let checked = Command::new(strowger()).arg("check").arg(server.config()).output().expect("it runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Requests of a web page in a browser of this machine (DNS rebinding, a form of another site).
#[test]
fn a_page_of_the_web_gives_no_orders() {
    let (mut server, address) = start("");
    for line in ["Origin: http://evil.example", "Origin: null", "Host: evil.example"] {
        for (method, path) in [("POST", "/v1/drain"), ("GET", "/v1/registrations")] {
            assert_eq!(send(address, method, path, &[line]).status, 403, "{line}");
        }
    }
    assert_eq!(send(address, "GET", "/v1/status", &["Host: localhost:1"]).status, 200);
    assert!(server.process().id() > 0 && get(address, "/v1/status")["state"] == "ready");
}

#[test]
fn data_sets_are_listed_shown_and_searched() {
    const ENTRIES: usize = 2_500;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("carriers.csv");
    let rows: String = (0..ENTRIES).map(|n| format!("49{n:05},carrier{}\n", n % 7)).collect();
    std::fs::write(&file, format!("prefix,carrier\n49,west\n{rows}")).expect("it can be written");
    let (server, address) = start(&format!(
        "[[set]]\nname = \"carriers\"\nkind = \"prefixes\"\nfile = {:?}\nkey = \"prefix\"\nvalue = \"carrier\"\n\
         [[set]]\nname = \"peers\"\nkind = \"networks\"\nentries = [\"192.0.2.0/24\", \"192.0.2.128/25\"]\n",
        file.display().to_string()
    ));
    let sets = get(address, "/v1/sets")["sets"].clone();
    assert_eq!(
        [&sets[0]["name"], &sets[0]["kind"], &sets[1]["entries"]],
        [&json!("carriers"), &json!("prefixes"), &json!(2)]
    );
    assert_eq!(sets[0]["entries"], json!(ENTRIES + 1));
    assert_eq!(said(&server, &["sets", "list"])[0], sets[0]);
    // All entries, page by page, each once and in order.
    let (mut keys, mut from) = (Vec::new(), String::new());
    loop {
        let page = get(address, &format!("/v1/sets/carriers?most=1000{from}"));
        keys.extend(page["entries"].as_array().expect("a list").iter().map(|entry| entry["key"].to_string()));
        match page["next"].as_u64() {
            Some(next) => from = format!("&from={next}"),
            None => break,
        }
    }
    assert!(keys.len() == ENTRIES + 1 && keys.is_sorted(), "{}", keys.len());
    assert_eq!(said(&server, &["sets", "show", "carriers"]).as_array().map(Vec::len), Some(ENTRIES + 1));
    let some = said(&server, &["sets", "show", "carriers", "--beginning", "490000", "--limit", "4"]);
    assert_eq!(some[3], json!({ "key": "4900003", "value": "carrier3" }));
    // The longest prefix or smallest network comes first.
    let found = get(address, "/v1/sets/carriers/search?key=490000812345");
    let [first, second] =
        [("4900008", "carrier1"), ("49", "west")].map(|(key, value)| json!({ "key": key, "value": value }));
    assert_eq!(found["entries"], json!([first, second]));
    let text = done(&server, &["sets", "search", "peers", "192.0.2.200"]);
    assert_eq!(text, "192.0.2.128/25\n192.0.2.0/24\n");
    let missing = run(&server, &["sets", "search", "peers", "198.51.100.1"]);
    assert_eq!((missing.status.code(), &*missing.stdout), (Some(1), &b"198.51.100.1 is not in peers\n"[..]));
    assert_eq!(send(address, "GET", "/v1/sets/nothing", &[]).status, 404);
    assert_eq!(run(&server, &["sets", "show", "nothing"]).status.code(), Some(1));
    // After a reload the entries are others.
    std::fs::write(&file, "prefix,carrier\n44,north\n44,south\n").expect("it can be written");
    let refused = send(address, "POST", "/v1/sets/carriers/reload", &[]);
    assert_eq!((refused.status, &refused.body["faults"][0]["line"]), (422, &json!(3)), "{}", refused.body);
    std::fs::write(&file, "prefix,carrier\n44,north\n").expect("it can be written");
    let reloaded = send(address, "POST", "/v1/sets/carriers/reload", &[]);
    assert_eq!((reloaded.status, &reloaded.body["sets_reloaded"]["sets"][0]["entries"]), (200, &json!(1)));
    assert_eq!(send(address, "POST", "/v1/reload", &[]).status, 200);
    assert_eq!(get(address, "/v1/sets/carriers/search?key=4912")["entries"], json!([]));
    assert_eq!(get(address, "/v1/sets/carriers")["entries"], json!([{ "key": "44", "value": "north" }]));
}

/// A command removes one contact, HTTP commands the others. A restart restores none.
#[test]
fn registrations_are_removed() {
    let (mut server, address) = start("");
    let mut phones: Vec<Wire> = (0..3).map(|_| server.connect(Udp)).collect();
    let contacts: Vec<String> = phones.iter().map(|phone| format!("sip:alice@{}", phone.local())).collect();
    for (phone, contact) in phones.iter_mut().zip(&contacts) {
        let request = Request::register("alice", "example.org", contact, "udp", phone.local());
        phone.send(&request.bytes()).expect("it is sent");
        assert_eq!(status(&phone.final_response(SOON).expect("an answer")), Some(200));
    }
    let shown = |server: &Server| -> Vec<String> {
        let list = said(server, &["registrations"]);
        let rows = list.as_array().expect("a list").iter();
        rows.map(|row| row["contact"].as_str().expect("a text").to_owned()).collect()
    };
    assert_eq!(shown(&server).len(), 3);
    let remove = ["registrations", "remove", "alice@example.org"];
    let missing = run(&server, &[&remove[..], &["sip:alice@192.0.2.1"]].concat());
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&missing.stderr).contains("has no registration with the contact sip:alice@192.0.2.1")
    );
    let words: Vec<&str> = [&remove[..], &[&contacts[1]]].concat();
    assert_eq!(done(&server, &words), "registrations removed: 1\n");
    assert!(!shown(&server).contains(&contacts[1]) && shown(&server).len() == 2);
    let removed = send(address, "DELETE", "/v1/registrations?user=alice@example.org", &[]);
    assert_eq!((removed.status, &removed.body["unregistered"]["registrations"]), (200, &json!(2)), "{}", removed.body);
    assert_eq!(shown(&server), Vec::<String>::new());
    let again = send(address, "DELETE", "/v1/registrations?user=alice@example.org", &[]);
    assert_eq!((again.status, &again.body["unregistered"]["registrations"]), (200, &json!(0)), "{}", again.body);
    assert_eq!(send(address, "DELETE", "/v1/registrations", &[]).status, 400);
    assert_eq!(done(&server, &remove), "registrations removed: 0\n");
    server.log_with("registrations removed by command");
    server.stop();
    server.start();
    assert_eq!(shown(&server), Vec::<String>::new());
}
