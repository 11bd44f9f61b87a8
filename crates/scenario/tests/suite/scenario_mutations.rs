//! Broken documents: each is read or refused quickly, never a panic.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::scenario_oracle::Oracle;

use strowger_core::entropy::Entropy;
use strowger_scenario::{Environment, Scenario, builtin};

/// Returns the original documents: the built-in ones, the collection of oddities, the corpus if it exists.
fn seeds() -> Vec<Vec<u8>> {
    let mut list: Vec<Vec<u8>> = builtin::NAMES
        .iter()
        .filter_map(|name| builtin::document(name))
        .map(|text| text.lines().filter(|line| !line.contains("play_pcap")).collect::<Vec<_>>().join("\n").into_bytes())
        .collect();
    list.push(EVERYTHING.as_bytes().to_vec());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("STROWGER_CORPORA").map_or_else(|| PathBuf::from("../shared/corpora"), PathBuf::from);
    let mut folders = vec![root.join(folder).join("sipp-scenarios")];
    if !folders[0].is_dir() {
        println!("no corpus: STROWGER_CORPORA names its folder; {} documents of our own", list.len());
    }
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "xml") {
                list.extend(std::fs::read(path));
            }
        }
    }
    list
}

/// Document with one of each element.
const EVERYTHING: &str = r#"<?xml version="1.0"?><!DOCTYPE scenario SYSTEM "sipp.dtd">
<scenario name="everything"><!-- a comment --><Global variables="g"/><User variables="u"/>
<init><label id="i"/><nop><action><assign assign_to="g" value="1"/></action></nop></init>
<DefaultMessage id="bye"><![CDATA[BYE [last_Request_URI] SIP/2.0
  X: [$g]

]]></DefaultMessage>
<send retrans="500" start_txn="t" start_rtd="r" lost="1.5" counter="c" next="end" test="u" chance="0.5"><![CDATA[
  INVITE sip:[service]@[remote_ip]:[remote_port+1] SIP/2.0
  [last_Via:]
  X: [field0 file="f.csv" line="[$g]"] [fill variable="g" text="ab"] [file name="x"] [branch-2] \x5bliteral] [[pid]]
  [authentication username=[$u] password="p"]
  Content-Length: [len]

  m=audio [auto_media_port+2]
]]><action><log message="&lt;[$u]&gt;"/></action></send>
<recv response="100" optional="global" advance_state="false"/><recv response="200" response_txn="t" rtd="r" repeat_rtd="true"
  rrs="true" auth="true" timeout="100" ontimeout="end"><action>
  <ereg regexp="(a|b)*\"c{1,3}[[:alpha:]]" search_in="hdr" header="To:" start_line="true" case_indep="true" occurence="2"
    check_it="true" assign_to="a,b"/><strcmp assign_to="d" variable="a" value="x"/><test assign_to="d" variable="d"
    compare="equal" value="0"/><lookup assign_to="d" file="f.csv" key="[$b]"/><sample assign_to="d" distribution="gamma" k="2"
    theta="3"/><gettimeofday assign_to="a,b"/><exec rtp_stream="apattern,1,-1,0,PCMU/8000"/><urlencode variable="a"/>
  <setdest host="h" port="[$d]" protocol="udp"/><verifyauth assign_to="d" username="u" password="p"/></action></recv>
<send ack_txn="t"><![CDATA[ACK [next_url] SIP/2.0
[routes]
]]></send><pause distribution="normal" mean="10" stdev="2" condexec="d" condexec_inverse="true"/>
<label id="end"/><timewait milliseconds="10"/><ResponseTimeRepartition value="1, 2"/><CallLengthRepartition value="1, 2"/>
<Reference variables="a,b,u"/></scenario>
"#;

fn environment() -> Environment {
    Environment {
        injections: vec!["f.csv".into()],
        keys: vec![("key".into(), b"value".to_vec())],
        ..Environment::default()
    }
}

#[test]
fn the_seed_that_has_everything_is_right() {
    let scenario = Scenario::parse(EVERYTHING.as_bytes(), Path::new("a.xml"), &environment());
    let scenario = scenario.unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!((scenario.steps.len(), scenario.init.len()), (6, 1));
    assert!(scenario.newer.len() >= 2, "{:?}", scenario.newer);
}

const WORDS: [&[u8]; 24] = [
    b"<",
    b">",
    b"/>",
    b"\"",
    b"\\",
    b"[",
    b"]",
    b"<![CDATA[",
    b"]]>",
    b"<!--",
    b"-->",
    b"</send>",
    b"<send>",
    b"=",
    b" ",
    b"\xff",
    b"&lt;",
    b"\n",
    b"\\x",
    b"optional=\"true\"",
    b"<action>",
    b"</recv>",
    b"<recv ",
    b"{999}",
];

/// Returns one of the seeds with up to six changes.
fn mutate(seeds: &[Vec<u8>], entropy: &mut Entropy) -> Vec<u8> {
    let mut pick = |below: usize| (entropy.u64() % below.max(1) as u64) as usize;
    let mut document = seeds[pick(seeds.len())].clone();
    for _ in 0..=pick(6) {
        let at = pick(document.len());
        match pick(5) {
            0 => drop(document.splice(at..at, WORDS[pick(WORDS.len())].iter().copied())),
            1 => drop(document.drain(at..(at + 1 + pick(40)).min(document.len()))),
            2 if pick(4) == 0 => document.truncate(at),
            3 => {
                let other = &seeds[pick(seeds.len())];
                let from = pick(other.len());
                let piece = other[from..(from + pick(300)).min(other.len())].to_vec();
                drop(document.splice(at..at, piece));
            }
            _ => {
                if let Some(byte) = document.get_mut(at) {
                    *byte = pick(256) as u8;
                }
            }
        }
    }
    document
}

/// Errors that SIPp reports only during the run; these documents were not refused.
const LATER: [&str; 9] = [
    "tdmmap] keyword without",
    "no audio or video",
    "authentication",
    "Could not open",
    "Invalid injection file for",
    "receive timeout on",
    "while expecting",
    "not implemented in display",
    "zero-length",
];

/// Checks that mutated documents get the same verdict from SIPp and from this crate.
#[test]
#[ignore = "runs SIPp on each document: make test-sipp-corpus"]
fn broken_documents_are_refused_as_sipp_refuses_them() {
    let Some(oracle) = Oracle::find() else { return };
    // Small ones that SIPp itself runs: others would be refused for missing files.
    let seeds: Vec<Vec<u8>> = seeds()
        .into_iter()
        .filter(|seed| seed.len() < 9000 && Scenario::parse(seed, Path::new("a.xml"), &Environment::default()).is_ok())
        .collect();
    let mut entropy = Entropy::new([5; 32]);
    let folder = tempfile::tempdir().expect("a folder");
    let cases: Vec<(PathBuf, Vec<u8>)> = (0..1500)
        .map(|number| {
            let path = folder.path().join(format!("{number}.xml"));
            let document = mutate(&seeds, &mut entropy);
            std::fs::write(&path, &document).expect("a file");
            (path, document)
        })
        .collect();
    let verdicts = oracle.judge(&cases, |(path, _)| (path.clone(), Vec::new()));
    let (mut equal, mut refused, mut different) = (0, 0, Vec::new());
    for ((path, document), theirs) in cases.iter().zip(&verdicts) {
        if LATER.iter().any(|words| theirs.reason.contains(words)) {
            continue;
        }
        match (Scenario::parse(document, path, &Environment::default()), theirs.refused) {
            (Ok(scenario), true) if !scenario.newer.is_empty() || scenario.tolerated.is_some() => {}
            (Ok(_), false) => equal += 1,
            (Err(_), true) => {
                equal += 1;
                refused += 1;
            }
            (Ok(_), true) => different.push(format!("SIPp refuses {}: {}", path.display(), theirs.reason)),
            (Err(refusal), false) => {
                let sent = theirs.first.is_some();
                different.push(format!("only we refuse {refusal} (SIPp sent something: {sent})"));
            }
        }
    }
    println!("{equal} equal ({refused} refused), {} different", different.len());
    different.iter().for_each(|line| println!("  {line}"));
    assert!(refused > 300 && equal > refused + 300, "{equal}, {refused}");
    assert!(different.len() * 200 <= equal, "more than half a percent differs");
}

#[test]
fn no_mutation_panics_or_takes_long() {
    let seeds = seeds();
    let environment = environment();
    let mut entropy = Entropy::new([3; 32]);
    let start = Instant::now();
    let (mut read, mut refused, mut longest) = (0u32, 0u32, Duration::ZERO);
    while start.elapsed() < Duration::from_secs(4) {
        let document = mutate(&seeds, &mut entropy);
        let before = Instant::now();
        match Scenario::parse(&document, Path::new("a.xml"), &environment) {
            Ok(scenario) => {
                read += 1;
                assert!(
                    scenario
                        .steps
                        .iter()
                        .all(|step| step.next.is_none_or(|next| next.to as usize <= scenario.steps.len()))
                );
            }
            Err(refusal) => {
                refused += 1;
                assert!(refusal.line > 0 && !refusal.what.is_empty(), "{refusal}");
            }
        }
        longest = longest.max(before.elapsed());
    }
    println!("{read} read, {refused} refused, the slowest in {longest:?}");
    assert!(read > 20 && refused > 20);
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}
