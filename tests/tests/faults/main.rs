//! Planted faults (`tests/faults.toml`): the simulation, or the tests that a fault names, must find each of them: `make faults`.
//! `STROWGER_FAULTS="text|text"` looks for those alone whose law has one of the texts. `STROWGER_FAULT_SEEDS=1` writes into the list which worlds of
//! the simulation have found faults, so that these worlds are the first to be tried.
//!
//! A copy of the project has all of them in one build, and an environment variable selects the fault of a process (`schemata.rs`).

mod build;
mod list;
mod schemata;
mod tree;

use build::{Program, Programs, Target, build};
use list::{Fault, Search, WORLDS, faults, root};
use schemata::{Planted, plant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

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
    let targets: BTreeSet<&Target> = faults.iter().map(|fault| &fault.search.target).collect();
    let mut broken = Broken::new();
    tree::take_dependencies(&target);
    loop {
        let planted = plant_all(faults, &broken);
        tree::copy(&tree, &planted.iter().map(|(file, planted)| (file.as_path(), planted.text.as_str())).collect());
        let errors = match build(&tree, &target, &targets) {
            Ok(programs) => return (programs, broken),
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
    /// A part of names of tests, or the number of worlds and the seeds of those before them.
    arguments: Vec<String>,
}

impl<'a> Job<'a> {
    fn of_fault(fault: &'a Fault) -> Self {
        let seed = fault.seed.map(|seed| seed.to_string());
        Self {
            fault: Some(fault),
            arguments: Self::whole(&fault.search).into_iter().chain(seed).collect(),
            search: &fault.search,
        }
    }

    fn without_fault(search: &'a Search) -> Self {
        Self { search, fault: None, arguments: Self::whole(search) }
    }

    /// Returns the arguments for everything that a search tries.
    fn whole(search: &Search) -> Vec<String> {
        vec![search.tests.clone().unwrap_or_else(|| WORLDS.to_string())]
    }

    /// Runs the search. Returns an error if the result of the search is wrong.
    fn run(&self, program: &Program) -> Result<String, String> {
        let mut command = Command::new(&program.path);
        command.current_dir(&program.folder).args(&self.arguments);
        command.env(schemata::VARIABLE, self.fault.map_or(0, |fault| fault.number).to_string());
        // Backtraces of tests that have to fail would take longer than most of them.
        command.env_remove("RUST_BACKTRACE").env_remove("STROWGER_SIM_FIRST");
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

/// Results of the simulation with faults.
#[derive(Default)]
struct Simulated {
    results: usize,
    /// Seeds of the worlds that found faults, by fault.
    seeds: BTreeMap<u32, u64>,
    /// True if a fault was not found by a single world but by the totals of all, or by the end of the process.
    needs_all: bool,
}

impl Simulated {
    fn add(&mut self, fault: &Fault, result: &Result<String, String>) {
        self.results += 1;
        let Ok(said) = result else { return };
        let seed: Option<u64> = said.strip_prefix("seed ").and_then(|said| said.split_once(':')?.0.parse().ok());
        self.needs_all |= seed.is_none();
        self.seeds.extend(seed.map(|seed| (fault.number, seed)));
    }

    /// Returns the search without a fault: of the worlds that have found one, since a world is the same each time. With
    /// `STROWGER_WHOLE=1` `make test` tries all worlds.
    fn without_fault<'a>(&self, simulation: &'a Search) -> Job<'a> {
        let job = Job::without_fault(simulation);
        if self.needs_all {
            return job;
        }
        let seeds: BTreeSet<&u64> = self.seeds.values().collect();
        Job { arguments: ["0".to_owned()].into_iter().chain(seeds.into_iter().map(u64::to_string)).collect(), ..job }
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

    // The simulation comes first: a fault that it finds late takes longer than any test.
    let simulation = Search::simulation();
    let is_simulated = |fault: &&Fault| fault.search.is_simulation();
    let (by_simulation, by_tests): (Vec<&Fault>, Vec<&Fault>) = faults.into_iter().partition(is_simulated);
    let searches: BTreeSet<&Search> = by_tests.iter().map(|fault| &fault.search).collect();
    let jobs = by_simulation.iter().copied().map(Job::of_fault);
    let jobs = jobs.chain(searches.into_iter().map(Job::without_fault));
    let jobs = jobs.chain(by_tests.iter().copied().map(Job::of_fault));
    let (queue, bad) = (Mutex::new(jobs.collect::<VecDeque<_>>()), Mutex::new(Vec::new()));
    let simulated = Mutex::new(Simulated::default());
    let work = || {
        let take = || queue.lock().expect("nothing panics with it").pop_front();
        while let Some(job) = take() {
            let begun = Instant::now();
            let result = match job.fault.and_then(|fault| broken.get(&fault.number)) {
                Some(error) => Err(format!("DOES NOT COMPILE: {error}")),
                None => job.run(&programs[&job.search.target]),
            };
            if let Some(fault) = job.fault.filter(is_simulated) {
                let mut simulated = simulated.lock().expect("nothing panics with it");
                simulated.add(fault, &result);
                if simulated.results == by_simulation.len() {
                    let without_fault = simulated.without_fault(&simulation);
                    queue.lock().expect("nothing panics with it").push_front(without_fault);
                }
            }
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
    if std::env::var_os("STROWGER_FAULT_SEEDS").is_some() {
        list::write_seeds(&simulated.into_inner().expect("nothing panicked with it").seeds);
    }
    assert!(bad.is_empty(), "{} of these went wrong:\n{}", bad.len(), bad.join("\n"));
}
