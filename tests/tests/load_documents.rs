//! `strowger load --scenario FILE:SHARE`: several documents in one run.

use std::path::Path;

use serde_json::Value;
use strowger_tests::generator::{answers, load, output, refused};

/// Writes a document with one request of this method, and a timer until its answer.
fn document(folder: &Path, name: &str, method: &str, timer: &str) -> String {
    let text = format!(
        "<?xml version=\"1.0\"?>\n<scenario name=\"{name}\">\n<send start_rtd=\"{timer}\"><![CDATA[\n
        {method} sip:[remote_ip]:[remote_port] SIP/2.0\n
        Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n
        From: <sip:a@[local_ip]:[local_port]>;tag=[pid]x[call_number]\n
        To: <sip:[remote_ip]>\n
        Call-ID: [call_id]\n
        CSeq: 1 {method}\n
        X-Data: [field0]\n
        Content-Length: 0\n
        ]]></send>\n<recv response=\"200\" rtd=\"{timer}\"/>\n</scenario>\n"
    );
    let path = folder.join(name);
    std::fs::write(&path, text.replace("\n\n", "\n")).expect("the folder can be written");
    path.display().to_string()
}

#[test]
fn documents_share_the_calls_of_a_run() {
    let (uas, folder) = (answers(&[]), tempfile::tempdir().expect("a temporary folder can be made"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (target, log, data) = (uas.address.to_string(), path("run.log"), path("data.csv"));
    std::fs::write(&data, "SEQUENTIAL\none\ntwo\n").expect("the folder can be written");
    // A colon that is part of a name.
    let options = document(folder.path(), "options:1.xml", "OPTIONS", "ask");
    let message = document(folder.path(), "message.xml", "MESSAGE", "tell");
    let (options_share, message_share) = (format!("{options}:70"), format!("{message}:30"));
    let words = ["--scenario", &*options_share, "--scenario", &*message_share, "--inf", &data, "--max-lag", "1min"];
    let ran = load(
        &[&[&*target], &words[..], &["-r", "100", "-m", "300", "--log", &log, "--require", "timer.ask.p95<10s"]]
            .concat(),
    );
    ran.ended_with(0);
    ran.all_successful(300);
    let documents = ran.json["documents"].as_array().expect("there are several").clone();
    let of = |place: usize, name: &str| documents[place]["calls"][name].as_u64().unwrap_or(0);
    assert_eq!([of(0, "successful"), of(1, "successful")], [210, 90], "{}", ran.said);
    assert_eq!((&documents[0]["name"], &documents[1]["name"]), (&"options:1.xml".into(), &"message.xml".into()));
    // Timers by their names; each document has its own.
    let timer = |of: &Value, name: &str| of["timers"][name]["count"].as_u64().unwrap_or(0);
    assert_eq!((timer(&documents[0], "ask"), timer(&documents[0], "tell")), (210, 0));
    assert_eq!((timer(&documents[1], "ask"), timer(&documents[1], "tell")), (0, 90));
    assert_eq!((timer(&ran.json, "ask"), timer(&ran.json, "tell")), (210, 90));
    let sent = |method: &str| {
        let all = ran.json["requests"].as_array().cloned().unwrap_or_default();
        all.iter().find(|one| one["method"] == method).and_then(|one| one["sent"].as_u64()).unwrap_or(0)
    };
    assert_eq!((sent("OPTIONS"), sent("MESSAGE")), (210, 90));
    assert_eq!(ran.json["run"]["title"], "options:1.xml + message.xml");
    for part in ["document ", "options:1.xml    70.00 %", "message.xml      30.00 %"] {
        assert!(ran.said.contains(part), "{part}: {}", ran.said);
    }
    // Each second has the shares.
    let columns = ran.json["series"]["columns"].as_array().cloned().unwrap_or_default();
    let column =
        |name: &str| columns.iter().position(|column| column == name).unwrap_or_else(|| panic!("no {name}")) + 1;
    let (ask, tell) = (column("timer.ask.count"), column("timer.tell.count"));
    for row in ran.json["series"]["rows"].as_array().cloned().unwrap_or_default() {
        let count = |place: usize| row[place].as_f64().unwrap_or(0.0);
        let all = count(ask) + count(tell);
        assert!((count(ask) - all * 0.7).abs() <= 4.0, "{} of {all}", count(ask));
    }
    let again = output(&["report", &log, "--json", "-", "--max-lag", "1min"]);
    let json: Value = serde_json::from_slice(&again.stdout).expect("it is JSON");
    assert_eq!(json["documents"], ran.json["documents"]);
    let (code, said) = refused(&[&target, "--scenario", &options_share, "--scenario", &message]);
    assert!(code == 2 && said.contains("has no share"), "{code}: {said}");
    let dry = output(&[&[&*target], &words[..], &["--dry-run"]].concat());
    let dry = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(dry.contains("OPTIONS sip:") && dry.contains("MESSAGE sip:"), "{dry}");
}
