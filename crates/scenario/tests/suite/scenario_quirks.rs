//! Hundreds of small documents, each with one oddity and SIPp 3.6.1's verdict.
//!
//! `scenario_quirks.txt` lists them: `== refused NAME` or `== accepted NAME`, a line `-- OPTIONS` if SIPp had any, the
//! document with `{H}`, `{S}`, `{R}` and `{F}` for a head, a send, a receive and an end.

use std::path::Path;

use crate::scenario_oracle::Oracle;

use strowger_scenario::{Environment, Scenario};

const HEAD: &str = "<?xml version=\"1.0\"?>\n<scenario name=\"x\">\n";
const SEND: &str = "<send><![CDATA[\n OPTIONS sip:x SIP/2.0\n Call-ID: [call_id]\n CSeq: 1 OPTIONS\n \
                    Content-Length: 0\n\n]]></send>\n";
const RECEIVE: &str = "<recv response=\"200\"/>\n";
const END: &str = "</scenario>\n";

struct Case {
    name: String,
    refused: bool,
    environment: Environment,
    /// Options that SIPp had.
    options: Vec<String>,
    document: Vec<u8>,
}

/// Returns the cases; bytes, because some documents are no UTF-8.
fn cases() -> Vec<Case> {
    let all: &[u8] = include_bytes!("scenario_quirks.txt");
    // One character a byte keeps every byte.
    let all: String = all.iter().map(|byte| char::from(*byte)).collect();
    let mut list = Vec::new();
    for record in format!("\n{all}").split("\n== ").skip(1) {
        let (title, rest) = record.split_once('\n').expect("a title, then a document");
        let (verdict, name) = title.split_once(' ').expect("a verdict, then a name");
        let (options, text) = match rest.strip_prefix("-- ") {
            Some(rest) => rest.split_once('\n').expect("options, then a document"),
            None => ("", rest),
        };
        let mut environment = Environment::default();
        let mut words = options.split(' ');
        while let Some(word) = words.next() {
            match word {
                "-inf" => {
                    let file = words.next().expect("a file");
                    environment.injections.push(file.rsplit('/').next().unwrap_or(file).to_owned());
                }
                "-key" => environment.keys.push((
                    words.next().expect("a name").to_owned(),
                    words.next().unwrap_or_default().as_bytes().to_vec(),
                )),
                _ => {}
            }
        }
        let text = text.replace("{H}", HEAD).replace("{S}", SEND).replace("{R}", RECEIVE).replace("{F}", END);
        let document = text.chars().map(|c| u8::try_from(c).expect("one byte")).collect();
        let refused = match verdict {
            "refused" => true,
            "accepted" => false,
            other => panic!("{other}"),
        };
        let options = match options {
            "" => Vec::new(),
            words => words.split(' ').map(str::to_owned).collect(),
        };
        list.push(Case { name: name.to_owned(), refused, environment, options, document });
    }
    list
}

#[test]
fn each_oddity_has_the_verdict_of_sipp() {
    let cases = cases();
    assert!(cases.len() > 500, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        match Scenario::parse(&case.document, Path::new("a.xml"), &case.environment) {
            Ok(scenario) if case.refused && scenario.newer.is_empty() && scenario.tolerated.is_none() => {
                wrong.push(format!("{}: accepted", case.name))
            }
            Err(refusal) if !case.refused => wrong.push(format!("{}: {refusal}", case.name)),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {} are not as SIPp's:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// Compares SIPp's verdicts with those of the collection.
#[test]
#[ignore = "runs SIPp on each document: make test-sipp-corpus"]
fn the_verdicts_are_those_of_sipp() {
    let Some(oracle) = Oracle::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let cases: Vec<(usize, Case)> = cases().into_iter().enumerate().collect();
    for (number, case) in &cases {
        let own = folder.path().join(number.to_string());
        std::fs::create_dir(&own).expect("a folder");
        std::fs::write(own.join("a.xml"), &case.document).expect("a file");
        std::fs::write(own.join("x.csv"), "SEQUENTIAL\na;b;c;\n").expect("a file");
    }
    let path = |number: &usize| folder.path().join(number.to_string()).join("a.xml");
    let verdicts = oracle.judge(&cases, |(number, case)| (path(number), case.options.clone()));
    let wrong: Vec<_> = cases
        .iter()
        .zip(&verdicts)
        .filter(|((_, case), verdict)| case.refused != verdict.refused)
        .map(|((_, case), theirs)| format!("{}: {} (a message: {})", case.name, theirs.reason, theirs.first.is_some()))
        .collect();
    println!("{} of {} verdicts hold", cases.len() - wrong.len(), cases.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
