//! Every document of the corpus is refused before its first message exactly if SIPp refuses it.
//!
//! SIPp itself is the oracle, run in the document's own folder. It is slow for a test: `make test-sipp-corpus`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::scenario_oracle::Oracle;

use strowger_scenario::{Cause, Environment, Piece, Scenario, StepKind};

/// Returns the folder of the documents, if it exists.
fn corpus() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("STROWGER_CORPORA").map_or_else(|| PathBuf::from("../shared/corpora"), PathBuf::from);
    let folder = root.join(folder).join("sipp-scenarios");
    folder.is_dir().then(|| folder.canonicalize().expect("a folder that is there"))
}

fn documents(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            documents(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "xml") {
            into.push(path);
        }
    }
}

fn all() -> Option<(PathBuf, Vec<PathBuf>)> {
    let folder = corpus()?;
    let mut list = Vec::new();
    documents(&folder, &mut list);
    list.sort();
    Some((folder, list))
}

/// Reads each document: none makes the parser panic, and each refusal has a place.
#[test]
fn each_document_is_read_or_refused_with_a_place() {
    let Some((_, list)) = all() else {
        println!("no corpus: STROWGER_CORPORA names its folder");
        return;
    };
    let mut read = 0;
    for path in &list {
        match Scenario::load(path, &Environment::default()) {
            Ok(scenario) => {
                read += 1;
                assert!(!scenario.steps.is_empty(), "{}", path.display());
                for warning in scenario.warnings.iter().chain(&scenario.newer) {
                    assert!(warning.line > 0 && warning.column > 0, "{}: {warning:?}", path.display());
                }
            }
            Err(refusal) => assert!(refusal.line > 0, "{refusal}"),
        }
    }
    assert!(read > list.len() / 2, "{read} of {} were read", list.len());
}

/// Returns whether a message can come from a template: the texts of the template occur in order, whatever the keywords
/// wrote.
fn written_from(message: &[u8], pieces: &[Piece]) -> bool {
    // Offsets of the message after the pieces so far, and whether the last one wrote nothing at the start of a line.
    let mut places = BTreeSet::from([(0, false)]);
    for piece in pieces {
        let mut next = BTreeSet::new();
        for (place, vanished) in places {
            match piece {
                Piece::Text(text) => {
                    let from = if vanished { text.solid as usize } else { 0 };
                    if message[place..].starts_with(&text.bytes[from..]) {
                        next.insert((place + text.bytes.len() - from, false));
                    }
                }
                Piece::Length(_) => {
                    next.insert(((place + 5).min(message.len()), false));
                }
                _ => {
                    next.insert((place, place > 0 && message[place - 1] == b'\n'));
                    // A keyword of a first message writes a short text within a line.
                    let line = message[place..].iter().position(|b| *b == b'\r').unwrap_or(message.len() - place);
                    next.extend((1..=line).map(|length| (place + length, false)));
                }
            }
        }
        places = next;
    }
    places.iter().any(|(place, _)| *place == message.len())
}

/// Returns the cause of SIPp's message, if it is known.
fn cause(reason: &str) -> Option<Cause> {
    let known = [
        ("Unsupported keyword", Cause::Keyword),
        ("Invalid injection file", Cause::InjectionFile),
        ("No injection file", Cause::InjectionFile),
        ("sendCmd message found", Cause::ThirdParty),
        ("recvCmd message found", Cause::ThirdParty),
        ("Cannot read/cache rtpstream file", Cause::MediaFile),
        ("Can't open PCAP file", Cause::MediaFile),
        ("is not a valid integer", Cause::Document),
    ];
    known.iter().find(|(words, _)| reason.contains(words)).map(|(_, cause)| *cause)
}

#[test]
#[ignore = "runs SIPp on each document: make test-sipp-corpus"]
fn the_corpus_is_refused_as_sipp_refuses_it() {
    let Some((folder, list)) = all() else {
        println!("no corpus: STROWGER_CORPORA names its folder");
        return;
    };
    let Some(oracle) = Oracle::find() else { return };
    let verdicts = oracle.judge(&list, |path| (path.clone(), Vec::new()));
    let (mut equal, mut messages, mut refused) = (0, 0, BTreeMap::new());
    let (mut newer, mut different) = (Vec::new(), Vec::new());
    for (number, path) in list.iter().enumerate() {
        let name = path.strip_prefix(&folder).expect("below the folder").display();
        let theirs = &verdicts[number];
        match (Scenario::load(path, &Environment::default()), theirs.refused) {
            (Ok(scenario), true) if !scenario.newer.is_empty() => {
                newer.push(format!("{name}:{}: {}", scenario.newer[0].line, scenario.newer[0].text));
            }
            (Ok(scenario), false) => {
                equal += 1;
                let sends = scenario.steps.iter().filter_map(|step| match &step.kind {
                    StepKind::Send(send) => Some(&send.template),
                    _ => None,
                });
                if let Some(first) = &theirs.first {
                    let mut sends = sends;
                    if sends.any(|template| written_from(first, &template.pieces)) {
                        messages += 1;
                    } else {
                        let text = String::from_utf8_lossy(first).into_owned();
                        different.push(format!("{name}: no message of ours can be {text:?}"));
                    }
                }
            }
            // Refused for the same reason, too.
            (Err(refusal), true) => match cause(&theirs.reason) {
                Some(cause) if cause != refusal.cause => {
                    different.push(format!("{name}: SIPp says {}, we {refusal}", theirs.reason));
                }
                _ => {
                    equal += 1;
                    *refused.entry(format!("{:?}", refusal.cause)).or_insert(0) += 1;
                }
            },
            (Ok(_), true) => different.push(format!("{name}: SIPp refuses it: {}", theirs.reason)),
            (Err(refusal), false) => different.push(format!("{name}: only we refuse it: {refusal}")),
        }
    }
    println!("{} documents in the syntax of SIPp 3.7, which 3.6.1 refuses and we load:", newer.len());
    newer.iter().for_each(|line| println!("  {line}"));
    println!("{} documents differ:", different.len());
    different.iter().for_each(|line| println!("  {line}"));
    let counted = list.len() - newer.len();
    println!("{messages} first messages of SIPp were read as it read them");
    println!("{equal} of {counted} equal; refused by both: {refused:?}");
    assert!(different.iter().all(|line| !line.contains("no message of ours")), "texts differ");
    assert!(equal * 100 >= counted * 99, "less than 99 % are equal");
}
