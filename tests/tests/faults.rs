//! Planted faults (`tests/faults.toml`): the simulation, or the tests that a fault names, must find each of them. All of them take a
//! quarter of an hour on two cores: `make test-all`. `STROWGER_FAULTS="text|text"` plants those alone whose law has one of the texts.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;
use toml::{Table, Value};

/// So many worlds find a fault.
const SEEDS: &str = "3000";

struct Fault {
    law: String,
    file: String,
    from: String,
    to: String,
    /// The crate whose tests find it, and a part of their names; none: the simulation finds it.
    test: Option<(String, String)>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn faults() -> Vec<Fault> {
    let text = fs::read_to_string(root().join("tests/faults.toml")).expect("the list of faults is there");
    let table: Table = text.parse().unwrap_or_else(|error| panic!("tests/faults.toml: {error}"));
    let list = table["fault"].as_array().expect("a list of faults");
    let word = |fault: &Value, key: &str| fault[key].as_str().expect("a text").to_owned();
    let test = |fault: &Value| {
        let (name, tests) = fault.get("test")?.as_str()?.split_once(' ').expect("a crate and a part of names of tests");
        Some((name.to_owned(), tests.to_owned()))
    };
    let fault = |f: &Value| Fault {
        law: word(f, "law"),
        file: word(f, "file"),
        from: word(f, "from"),
        to: word(f, "to"),
        test: test(f),
    };
    list.iter().map(fault).collect()
}

/// The file with the fault in it.
fn planted(fault: &Fault, text: &str) -> String {
    let Fault { file, from, to, law, .. } = fault;
    assert_eq!(text.matches(from).count(), 1, "the fault of \"{law}\" has one place in {file}:\n{from}");
    text.replace(from, to)
}

#[test]
fn each_fault_has_its_place() {
    let faults = faults();
    assert!(!faults.is_empty());
    for fault in &faults {
        let text =
            fs::read_to_string(root().join(&fault.file)).unwrap_or_else(|error| panic!("{}: {error}", fault.file));
        assert_ne!(planted(fault, &text), text);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the copy can be written");
    for entry in fs::read_dir(from).expect("a folder of the project can be read") {
        let entry = entry.expect("and its entries");
        let (name, path) = (entry.file_name(), entry.path());
        if path.is_dir() && name != "target" && name != ".git" {
            copy(&path, &to.join(&name));
        } else if path.is_file() {
            fs::copy(&path, to.join(&name)).expect("the copy can be written");
        }
    }
}

/// The first world of the copy that fails. Fails if the copy does not compile.
fn found(tree: &Path, target: &Path) -> Result<Option<String>, &'static str> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--locked", "--quiet", "--package", "strowger-sim", "--example", "worlds"]);
    build.current_dir(tree).env("CARGO_TARGET_DIR", target).env("RUSTFLAGS", "-Awarnings");
    // Each fault changes a line, and is built in 5 s instead of 45 this way, for 600 MB.
    build.env("CARGO_INCREMENTAL", "1");
    if !build.status().expect("cargo starts").success() {
        return Err("DOES NOT COMPILE");
    }
    let output = Command::new(target.join("debug/examples/worlds")).arg(SEEDS).output().expect("it has been built");
    Ok((output.status.code() != Some(0)).then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}

/// The tests of this crate's suite that fail in the copy, or its unit tests. Fails if the copy does not compile.
fn found_by(tree: &Path, target: &Path, (name, tests): &(String, String)) -> Result<Option<String>, &'static str> {
    let mut run = Command::new(env!("CARGO"));
    run.args(["test", "--locked", "--quiet", "--package", &format!("strowger-{name}")]);
    run.args(if tests.contains("::tests::") { &["--lib"][..] } else { &["--test", "suite"] }).arg(tests);
    run.current_dir(tree).env("CARGO_TARGET_DIR", target).env("RUSTFLAGS", "-Awarnings").env("CARGO_INCREMENTAL", "1");
    let output = run.output().expect("cargo starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !text.contains("test result: ") {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        return Err("DOES NOT COMPILE");
    }
    let failed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("---- ")).collect();
    Ok((!output.status.success()).then(|| failed.join(", ")))
}

/// Faults that are not planted yet. Two workers take them from its two ends, so that most crates are built for one of them alone.
type Queue<'a> = Mutex<VecDeque<(usize, &'a Fault)>>;

/// Plants fault after fault in a tree of its own, until none is left. Returns those that were not found.
fn work(worker: usize, count: usize, queue: &Queue<'_>) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    copy(&root(), &tree);
    // What it depends on is built once.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{worker}"));
    if worker == 0 {
        assert_eq!(found(&tree, &target), Ok(None), "without a fault");
    }
    let mut unseen = Vec::new();
    let take = || {
        let mut queue = queue.lock().expect("nobody panics with it");
        if worker == 0 { queue.pop_front() } else { queue.pop_back() }
    };
    while let Some((n, fault)) = take() {
        let (path, begun) = (tree.join(&fault.file), Instant::now());
        let text = fs::read_to_string(&path).expect("it was copied");
        fs::write(&path, planted(fault, &text)).expect("the copy can be written");
        let problem = match &fault.test {
            None => found(&tree, &target),
            Some(test) => found_by(&tree, &target, test),
        };
        fs::write(&path, text).expect("the copy can be written");
        let (problem, seconds) = (problem.and_then(|problem| problem.ok_or("NOT FOUND")), begun.elapsed().as_secs());
        let (Ok(said) | Err(said)) = problem.as_deref().map_err(|said| *said);
        println!("{:3} of {}, {seconds} s: {}: {said}", n + 1, count, fault.law);
        if problem.is_err() {
            unseen.push(format!("{}: {}: {}", fault.law, fault.file, fault.from));
        }
    }
    unseen
}

#[test]
#[ignore = "a quarter of an hour on two cores: make test-all"]
fn each_fault_is_found() {
    let mut faults = faults();
    // Some alone: those whose law has one of these texts, with `|` between them.
    if let Ok(wanted) = std::env::var("STROWGER_FAULTS") {
        faults.retain(|fault| wanted.split('|').any(|text| fault.law.contains(text)));
    }
    // Neighbours are of one crate: what stands below it is not built again.
    faults.sort_by(|a, b| a.file.cmp(&b.file));
    let queue: Queue<'_> = Mutex::new(faults.iter().enumerate().collect());
    let unseen: Vec<String> = std::thread::scope(|scope| {
        let workers = [0, 1].map(|worker| {
            let (queue, count) = (&queue, faults.len());
            scope.spawn(move || work(worker, count, queue))
        });
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("the copy builds, and is right without a fault"))
            .collect()
    });
    assert!(unseen.is_empty(), "{} of {} faults were not found:\n{}", unseen.len(), faults.len(), unseen.join("\n"));
}
