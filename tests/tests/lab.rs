//! Commands of the laboratory that need no system: they list, check, report, compare and verify.

use std::fs;
use std::path::Path;

use strowger_lab::compare::FLOOR;
use strowger_lab::experiment::{Experiment, SHIPPED};
use strowger_lab::report::FILES;
use strowger_lab::row::{Profile, Row};
use tempfile::TempDir;

use crate::config::{error_of, run, text_of};

#[expect(dead_code, reason = "the example has a main function")]
#[path = "../../crates/lab/examples/recorded_run.rs"]
pub(crate) mod recorded;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

/// Writes a run of the relay into a folder, after a change of its rows.
fn write_run(folder: &Path, name: &str, change: impl Fn(&mut Row)) {
    let (experiment, text) = Experiment::shipped("relay").expect("it is shipped");
    let mut rows = recorded::rows(&experiment, Profile::Standard, &[]);
    rows.iter_mut().for_each(change);
    recorded::write(&folder.join(name), &experiment, text, &rows).expect("the folder can be written");
}

/// Runs a command, and returns its exit code, text and errors.
fn lab(arguments: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let output = run(&[&["lab"], arguments].concat(), folder);
    (output.status.code(), text_of(&output), error_of(&output))
}

#[test]
fn experiments_are_listed_shown_and_checked() {
    let folder = folder();
    let (code, text, _) = lab(&["list"], folder.path());
    assert_eq!(code, Some(0));
    let column = text.lines().next().and_then(|line| line.find("title")).expect("a head");
    for (name, _) in SHIPPED {
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        let is_below = |line: &str| line.get(column..) == Some(experiment.title.as_str());
        assert!(text.lines().any(is_below), "{name}: {text}");
    }
    let (_, json, _) = lab(&["list", "--json"], folder.path());
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    for (name, file) in SHIPPED {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
        let entry = json.as_array().expect("a list").iter().find(|entry| entry["name"] == *name).expect("it is there");
        assert!(entry["seconds"]["smoke"].as_f64().is_some_and(|seconds| seconds > 0.0), "{entry}");
        let (code, shown, _) = lab(&["show", name], folder.path());
        assert_eq!((code, shown.as_str()), (Some(0), *file), "{name}");
        fs::write(folder.path().join("mine.toml"), shown).expect("it is ours");
        let (code, plan, error) = lab(&["check", "mine.toml", "--profile", "smoke"], folder.path());
        assert_eq!((code, error.as_str()), (Some(0), ""), "{name}");
        assert!(plan.contains("Plan of the profile smoke:") && plan.contains("in all"), "{plan}");
    }
    let (code, _, error) = lab(&["show", "relai"], folder.path());
    assert_eq!(code, Some(2));
    assert!(error.contains("there is no experiment \"relai\": write relay"), "{error}");
}

#[test]
fn mistakes_of_an_experiment_are_named_with_line_and_cure() {
    let folder = folder();
    let (_, right) = Experiment::shipped("relay").expect("it is shipped");
    let mistaken = right.replace("finder", "finde").replace("workers = 2", "workers = \"two\"").replacen(
        "form = \"bars\"",
        "form = \"bar\"",
        1,
    );
    fs::write(folder.path().join("mine.toml"), &mistaken).expect("it is ours");
    let (code, text, error) = lab(&["check", "mine.toml"], folder.path());
    assert_eq!((code, text.as_str()), (Some(1), ""));
    let line = |part: &str| mistaken.lines().position(|line| line.contains(part)).expect("it is there") + 1;
    for (part, cure) in [("workers = \"two\"", "write workers = 4"), ("form = \"bar\"", "write bars")] {
        assert!(error.contains(&format!("mine.toml:{}:", line(part))) && error.contains(cure), "{part}: {error}");
    }
    let silent = "title = \"t\"\n[call]\ndocument = \"call\"\n[load]\nvalues = [1]\n[[system]]\nname = \"s\"\nconfiguration = \"c\"\n";
    fs::write(folder.path().join("mine.toml"), silent).expect("it is ours");
    let (code, _, error) = lab(&["check", "mine.toml"], folder.path());
    assert_eq!(code, Some(0));
    assert!(error.contains("warning: the experiment shows and judges nothing"), "{error}");
    let (code, _, error) = lab(&["check", "mine.toml", "--system", "other"], folder.path());
    assert_eq!(code, Some(2));
    assert!(error.contains("the systems of this experiment are s"), "{error}");
    let (_, stress) = Experiment::shipped("stress").expect("it is shipped");
    fs::write(folder.path().join("stress.toml"), stress).expect("it is ours");
    let words = ["check", "stress.toml", "--system", "kamailio", "--only", "letter=A,B,A", "--repetitions", "7"];
    let (code, plan, error) = lab(&words, folder.path());
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(plan.contains("kamailio         14 trials"), "{plan}");
    let (code, _, error) = lab(&["check", "stress.toml", "--only", "letter=L"], folder.path());
    assert_eq!(code, Some(2));
    assert!(error.contains("the axis letter has no value \"L\": its values are A, B"), "{error}");
    let (_, caches) = Experiment::shipped("caches").expect("it is shipped");
    fs::write(folder.path().join("caches.toml"), caches).expect("it is ours");
    let words = ["check", "caches.toml", "--system", "kamailio", "--only", "cache=local-kept"];
    let (code, _, error) = lab(&words, folder.path());
    assert_eq!(code, Some(2));
    assert!(error.contains("no system has these values"), "{error}");
    let words = ["check", "stress", "--system", "kamailio", "--only", "letter=A,B,A", "--repetitions", "7"];
    assert_eq!(lab(&words, folder.path()), (Some(0), plan, String::new()), "a shipped experiment by its name");
    let (code, _, error) = lab(&["check", "stres"], folder.path());
    assert_eq!(code, Some(2));
    assert!(error.contains("write stress"), "{error}");
    let (code, _, error) = lab(&["check", "none.toml"], folder.path());
    assert_eq!(code, Some(2));
    assert!(error.contains("none.toml cannot be read"), "{error}");
    assert_eq!(lab(&["check", "mine.toml", "--profile", "fast"], folder.path()).0, Some(2));
}

#[test]
fn a_run_is_reported() {
    let folder = folder();
    write_run(folder.path(), "run", |_| {});
    let (code, text, error) = lab(&["report", "run"], folder.path());
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(text.starts_with("CPU of the server for a call: strowger "), "{text}");
    for name in FILES {
        assert!(fs::metadata(folder.path().join("run").join(name)).is_ok_and(|file| file.len() > 1_000), "{name}");
    }
    // A report beside the rows changes nothing of the run.
    assert_eq!(lab(&["verify", "run"], folder.path()).0, Some(0));
    fs::create_dir(folder.path().join("www")).expect("it is ours");
    assert_eq!(lab(&["report", "run", "--out", "www"], folder.path()).0, Some(0));
    assert!(folder.path().join("www/report.html").exists());
    let (code, _, error) = lab(&["report", "run", "--out", "nowhere"], folder.path());
    assert_eq!(code, Some(1));
    assert!(error.contains("nowhere/report.html"), "{error}");
    let (code, markdown, _) = lab(&["report", "run", "--markdown"], folder.path());
    assert_eq!(code, Some(0));
    assert!(markdown.starts_with("# CPU of a call") && markdown.contains("- ✓ server.cpu.call"), "{markdown}");
    assert_eq!(lab(&["report", "run", "--whole"], folder.path()).0, Some(0));
    let (experiment, file) = Experiment::shipped("relay").expect("it is shipped");
    let mut rows = recorded::rows(&experiment, Profile::Standard, &[]);
    rows.retain(|row| row.axes.get("scenario").is_none_or(|value| value.to_string() != "register"));
    recorded::write(&folder.path().join("part"), &experiment, file, &rows).expect("the folder can be written");
    let (code, _, error) = lab(&["report", "part", "--whole"], folder.path());
    assert_eq!(code, Some(1), "{error}");
    for part in ["figure cost: 1 of 3 points of strowger", "table figures: 2 of 6 lines"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    write_run(folder.path(), "slow", |row| scale(row, "strowger", 1.4));
    let (code, text, _) = lab(&["report", "slow"], folder.path());
    assert_eq!(code, Some(3), "a gate is missed");
    assert!(text.contains("gates missed"), "{text}");
    let (code, _, error) = lab(&["report", "."], folder.path());
    assert_eq!(code, Some(2));
    assert!(error.contains("is no run of the laboratory"), "{error}");
}

/// Multiplies the cost of a call of a system.
fn scale(row: &mut Row, system: &str, factor: f64) {
    if row.system.name == system {
        let cost = row.figures.value("server.cpu.call").expect("it was measured");
        row.figures.set("server.cpu.call", cost * factor).expect("a known figure");
    }
}

#[test]
fn runs_are_compared() {
    let folder = folder();
    write_run(folder.path(), "before", |_| {});
    write_run(folder.path(), "slower", |row| scale(row, "strowger", 1.3));
    write_run(folder.path(), "disturbed", |row| scale(row, FLOOR, 1.3));
    let (code, text, _) = lab(&["compare", "before", "before"], folder.path());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("before after before") && text.ends_with("No figure is claimed to be worse.\n"), "{text}");
    let (code, text, _) = lab(&["compare", "before", "slower"], folder.path());
    assert_eq!(code, Some(1), "{text}");
    let worse: Vec<&str> = text.lines().filter(|line| line.contains("WORSE")).collect();
    assert!(worse.len() == 3 && worse.iter().all(|line| line.contains("server.cpu.call")), "{text}");
    assert_eq!(lab(&["compare", "slower", "before"], folder.path()).0, Some(0), "faster is not worse");
    let (code, text, _) = lab(&["compare", "before", "disturbed"], folder.path());
    assert!(code == Some(4) && text.contains("the floors differ by more than 15 %"), "{code:?} {text}");
    assert_eq!(lab(&["compare", "before", "none"], folder.path()).0, Some(2));
}

#[test]
fn a_changed_byte_is_refused() {
    let folder = folder();
    write_run(folder.path(), "run", |_| {});
    let (code, text, _) = lab(&["verify", "run"], folder.path());
    assert_eq!(code, Some(0));
    assert!(text.contains("are as they were written: all trials of its plan, experiment relay"), "{text}");
    for file in ["rows.jsonl", "run.json", "experiment.toml", "trials/0001/samples.log"] {
        let path = folder.path().join("run").join(file);
        let bytes = fs::read(&path).expect("it is there");
        let mut changed = bytes.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        fs::write(&path, changed).expect("it is ours");
        for command in ["verify", "report"] {
            let (code, _, error) = lab(&[command, "run"], folder.path());
            assert_eq!(code, Some(1), "{command} {file}");
            assert!(error.contains(file), "{command} {file}: {error}");
        }
        fs::write(&path, bytes).expect("it is ours");
    }
    assert_eq!(lab(&["verify", "run"], folder.path()).0, Some(0));
    assert_eq!(lab(&["verify", "."], folder.path()).0, Some(2));
}

/// The pictures of a report that documents show are there, and small.
#[test]
fn the_pictures_of_the_document_are_small() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let [page, readme] =
        ["docs/lab.md", "README.md"].map(|name| fs::read_to_string(root.join(name)).expect("it is there"));
    assert!(readme.contains("(docs/lab-report-light.png)"));
    for name in ["lab-report-light.png", "lab-report-dark.png"] {
        assert!(page.contains(&format!("({name})")), "{name}");
        let picture = fs::read(root.join("docs").join(name)).expect("make lab-pictures makes it");
        assert!(picture.starts_with(b"\x89PNG") && picture.len() <= 200_000, "{name}: {} bytes", picture.len());
    }
}

/// The experiment of the document can be run, and each of its mistakes there is named as the document says.
#[test]
fn the_experiment_of_the_document_is_right() {
    let folder = folder();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lab.md")).expect("it is there");
    let block = |start: &str| {
        let (_, rest) = page.split_once(start).unwrap_or_else(|| panic!("docs/lab.md has no {start}"));
        rest.split_once("```").expect("the block ends").0
    };
    let experiment = block("```toml\n");
    let lines = experiment.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 30, "an experiment of thirty lines has {lines}");
    fs::write(folder.path().join("mine.toml"), experiment).expect("it is ours");
    let (code, plan, error) = lab(&["check", "mine.toml"], folder.path());
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(
        block("```console\n$ strowger lab check mine.toml\n").contains(&plan),
        "the document has another plan:\n{plan}"
    );
    let shown = block("```console\n$ strowger lab check wrong.toml\n");
    let wrong = experiment.replacen("window", "windw", 1).replacen("\"load\"", "\"lod\"", 1);
    assert_ne!(wrong, experiment);
    fs::write(folder.path().join("wrong.toml"), wrong).expect("it is ours");
    let (code, _, error) = lab(&["check", "wrong.toml"], folder.path());
    assert_eq!(code, Some(1));
    assert_eq!(shown.trim_end(), error.trim_end());
}
