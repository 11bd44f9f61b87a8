//! Planted faults (`tests/faults.toml`): the simulation, or the tests that a fault names, must find each of them: `make faults`.
//! `STROWGER_FAULTS="text|text"` looks for those alone whose law has one of the texts.
//!
//! A copy of the project has all of them in one build, and an environment variable selects the fault of a process (`schemata.rs`).

mod build;
mod list;
mod schemata;
mod tree;

use build::{Program, Programs, build};
use list::{Fault, Search, faults, root};
use schemata::{Planted, plant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

/// Number of worlds that the simulation tries.
const SEEDS: &str = "3000";

fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Errors of the compiler by fault.
type Broken = BTreeMap<u32, String>;

/// Returns the files with all faults but these.
fn plant_all(faults: &[Fault], without: &Broken) -> BTreeMap<PathBuf, Planted> {
    let files: BTreeSet<&PathBuf> = faults.iter().map(|fault| &fault.file).collect();
    let plant_in = |file: &&PathBuf| {
        let of_file = faults.iter().filter(|fault| fault.file == **file && !without.contains_key(&fault.number));
        ((*file).clone(), plant(&read(file), of_file))
    };
    let mut planted: BTreeMap<PathBuf, Planted> = files.iter().map(plant_in).collect();
    let library = |file: &&PathBuf| file.iter().take(2).collect::<PathBuf>().join("src/lib.rs");
    for library in files.iter().map(library).collect::<BTreeSet<_>>() {
        let text = read(&library);
        let file = planted.entry(library).or_insert_with(|| Planted { text, bodies: Vec::new() });
        file.text.push_str(&schemata::module());
    }
    planted
}

#[test]
fn each_fault_changes_bodies_of_functions() {
    let faults = faults();
    let planted = plant_all(&faults, &Broken::new());
    let numbers: BTreeSet<u32> = planted.values().flat_map(|file| &file.bodies).map(|(_, number)| *number).collect();
    assert!(!faults.is_empty());
    assert!(faults.iter().all(|fault| numbers.contains(&fault.number)));
}

/// Builds a copy with all faults, which stays on disk for the next run. Returns its programs, and the faults that do
/// not compile.
fn build_all(faults: &[Fault]) -> (Programs, Broken) {
    let [tree, target] =
        ["tree", "target"].map(|name| Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults").join(name));
    let targets = faults.iter().map(|fault| &fault.search.target);
    let packages: BTreeSet<&str> = targets.clone().map(|target| target.package.as_str()).collect();
    let names: BTreeSet<&str> = targets.map(|target| target.name.as_str()).collect();
    let mut broken = Broken::new();
    loop {
        let planted = plant_all(faults, &broken);
        tree::copy(&tree, &planted.iter().map(|(file, planted)| (file.as_path(), planted.text.as_str())).collect());
        let built: Result<Vec<Programs>, _> = names.iter().map(|name| build(&tree, &target, &packages, name)).collect();
        let errors = match built {
            Ok(programs) => return (programs.into_iter().flatten().collect(), broken),
            Err(errors) => errors,
        };
        let before = broken.len();
        for error in &errors {
            let bodies = |file| planted.get(file).map_or(&[][..], |file| &file.bodies);
            let places = error.places.iter().flat_map(|(file, at)| bodies(file).iter().map(move |body| (body, at)));
            let faulty = places.filter(|((body, _), at)| body.contains(at));
            broken.extend(faulty.map(|((_, number), _)| (*number, error.text.clone())));
        }
        let texts = errors.into_iter().map(|error| error.text);
        assert!(broken.len() > before, "no fault is why the copy does not compile:\n{}", texts.collect::<String>());
    }
}

/// Search with a fault that has to be found, or with none.
struct Job<'a> {
    search: &'a Search,
    fault: Option<&'a Fault>,
}

impl Job<'_> {
    /// Runs the search. Returns an error if the result of the search is wrong.
    fn run(&self, program: &Program) -> Result<String, String> {
        let mut command = Command::new(&program.path);
        command.current_dir(&program.folder).arg(self.search.tests.as_deref().unwrap_or(SEEDS));
        command.env(schemata::VARIABLE, self.fault.map_or(0, |fault| fault.number).to_string());
        let output = command.output().expect("it has been built");
        let text = String::from_utf8_lossy(&output.stdout);
        let failed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("---- ")).collect();
        let said = match self.search.tests {
            None => text.trim().to_owned(),
            Some(_) => failed.join(", "),
        };
        match self.fault {
            Some(_) if output.status.success() => Err("NOT FOUND".to_owned()),
            Some(_) => Ok(if said.is_empty() { output.status.to_string() } else { said }),
            None if !output.status.success() => Err(format!("{}: {said}", output.status)),
            None if text.contains("test result: ok. 0 passed") => Err("no such test".to_owned()),
            None => Ok("passed".to_owned()),
        }
    }

    /// Prints a result. Returns the message if the result is bad.
    fn report(&self, begun: Instant, result: Result<String, String>) -> Option<String> {
        let name = match (self.fault, &self.search.tests) {
            (Some(fault), _) => format!("{} ({}): {}", fault.number, fault.file.display(), fault.law),
            (None, None) => "without a fault: the simulation".to_owned(),
            (None, Some(tests)) => format!("without a fault: {} {tests}", self.search.target.package),
        };
        let (Ok(said) | Err(said)) = &result;
        println!("{:.1} s: {name}: {said}", begun.elapsed().as_secs_f64());
        result.is_err().then(|| format!("{name}: {said}"))
    }
}

#[test]
#[ignore = "minutes: make faults"]
fn each_fault_is_found() {
    let (all, begun) = (faults(), Instant::now());
    let wanted = std::env::var("STROWGER_FAULTS").unwrap_or_default();
    let is_wanted = |fault: &&Fault| wanted.split('|').any(|text| fault.law.contains(text));
    let faults: Vec<&Fault> = all.iter().filter(is_wanted).collect();
    assert!(!faults.is_empty(), "no law has a text of {wanted}");
    let (programs, broken) = build_all(&all);
    println!("{} s: {} faults are built", begun.elapsed().as_secs(), all.len());

    let searches: BTreeSet<&Search> = faults.iter().map(|fault| &fault.search).collect();
    let jobs = searches.into_iter().map(|search| Job { search, fault: None });
    let jobs = jobs.chain(faults.into_iter().map(|fault| Job { search: &fault.search, fault: Some(fault) }));
    let (queue, bad) = (Mutex::new(jobs.collect::<VecDeque<_>>()), Mutex::new(Vec::new()));
    let work = || {
        let take = || queue.lock().expect("nothing panics with it").pop_front();
        while let Some(job) = take() {
            let begun = Instant::now();
            let result = match job.fault.and_then(|fault| broken.get(&fault.number)) {
                Some(error) => Err(format!("DOES NOT COMPILE: {error}")),
                None => job.run(&programs[&job.search.target]),
            };
            let bad_one = job.report(begun, result);
            bad.lock().expect("nothing panics with it").extend(bad_one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let bad = bad.into_inner().expect("nothing panicked with it");
    println!("{} s in all", begun.elapsed().as_secs());
    assert!(bad.is_empty(), "{} of these went wrong:\n{}", bad.len(), bad.join("\n"));
}
