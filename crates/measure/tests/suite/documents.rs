//! Compares the measures listed in `docs/measures.md` with the source. With STROWGER_WRITE_DOCS=1 the list is written.

use std::fmt::Write;
use std::path::PathBuf;
use strowger_measure::catalogue;

const BEGIN: &str = "<!-- measures -->\n";
const END: &str = "<!-- end of measures -->\n";

fn list() -> String {
    let mut out = String::new();
    let all = catalogue();
    let (defined, counted): (Vec<_>, Vec<_>) = all.iter().partition(|entry| !entry.definition.is_empty());
    for (unit, title) in [("time", "Delays"), ("score", "Scores"), ("%", "Ratios"), ("1/s", "Rates")] {
        let _ = writeln!(out, "\n### {title}\n\n| name | what | source |\n|---|---|---|");
        for entry in defined.iter().filter(|entry| entry.unit == unit || (unit == "1/s" && entry.unit == "B/s")) {
            let _ =
                writeln!(out, "| `{}` | **{}.** {} | {} |", entry.name, entry.title, entry.definition, entry.source);
        }
    }
    out.push_str("\n### Counts\n\n| name | what |\n|---|---|\n");
    for entry in counted {
        let _ = writeln!(out, "| `{}` | {} |", entry.name, entry.title);
    }
    out.push('\n');
    out
}

#[test]
fn every_measure_is_in_the_documents() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/measures.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the list has a beginning");
    let (written, after) = rest.split_once(END).expect("the list has an end");
    let list = list();
    if std::env::var_os("STROWGER_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{list}{END}{after}")).unwrap();
        return;
    }
    assert!(written == list, "docs/measures.md is not what the source says; STROWGER_WRITE_DOCS=1 writes it again");
    assert!(catalogue().iter().filter(|entry| entry.unit == "time").count() > 15 && list.contains("RFC 6076 4.3.1"));
}
