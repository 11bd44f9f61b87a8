//! Comparison of real runs: no difference is claimed between runs of one build, and a slower server is detected.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use strowger_lab::system::SystemFolder;
use strowger_tests::{alone, binary};
use tempfile::TempDir;

/// Repetitions that reveal a difference of 30 % in the order of the values of thirty figures.
const EXPERIMENT: &str = r#"
title = "CPU of a relayed call"
[call]
document = "call"
answer = "answer"
[load]
values = [500]
[[system]]
name = "strowger"
configuration = "relay"
[profile.standard]
warm_up = "0.5s"
window = "2s"
repetitions = 8
[[figure]]
name = "cost"
title = "CPU of a call"
form = "table"
y = ["server.cpu.call"]
"#;

/// Program that runs another one and uses additional processor time: its first argument is the share of the other's.
const SLOWED: &str = "import glob, subprocess, sys, time
child = subprocess.Popen(sys.argv[2:])
def used():
    threads = [open(file).read() for file in glob.glob(f'/proc/{child.pid}/task/*/schedstat')]
    return sum(int(text.split()[0]) for text in threads) / 1e9
while True:
    due = float(sys.argv[1]) * used()
    while time.process_time() < due:
        pass
    try:
        sys.exit(child.wait(0.02))
    except subprocess.TimeoutExpired:
        pass
";

struct RunsFolder(TempDir);

impl RunsFolder {
    fn lab(&self, words: &[&str]) -> Output {
        let mut command = Command::new(binary::strowger());
        command.arg("lab").args(words).current_dir(self.0.path()).output().expect("it runs")
    }

    /// Makes a run of a system, and returns the name of its folder.
    fn run<'n>(&self, name: &'n str, system: &Path) -> &'n str {
        let system = format!("strowger={}", system.display());
        let output = self.lab(&["run", "mine.toml", "--profile", "standard", "--out", name, "--system", &system]);
        // A busy machine may leave a trial invalid: it is excluded from the comparison then.
        assert!(matches!(output.status.code(), Some(0 | 4)), "{}", said(&output));
        name
    }

    /// Returns exit code and text of a comparison.
    fn compare(&self, before: &str, after: &str) -> (Option<i32>, String) {
        let output = self.lab(&["compare", before, after]);
        println!("{}", said(&output));
        (output.status.code(), said(&output))
    }

    /// Returns the folder of a system that is Strowger and uses 30 % more processor time.
    fn slowed(&self) -> PathBuf {
        let folder = self.0.path().join("slowed");
        let strowger = SystemFolder::open("strowger", None).expect("it is shipped");
        let (_, relay) = strowger.files().iter().find(|(name, _)| name == "relay.toml").expect("it is shipped");
        let driver = format!(
            "title = \"Slowed Strowger\"\nprogram = \"python3\"\n\
             start = [\"@PROGRAM@\", \"@FOLDER@/slowed.py\", \"0.3\", \"{}\", \"serve\", \"--config\", \"@CONFIG@\"]\n\
             [[scenario]]\nname = \"relay\"\nconfiguration = \"relay.toml\"\nfiles = [\"slowed.py\"]\n",
            binary::strowger().display()
        );
        std::fs::create_dir(&folder).expect("a folder");
        for (name, text) in [("driver.toml", driver.as_str()), ("relay.toml", relay), ("slowed.py", SLOWED)] {
            std::fs::write(folder.join(name), text).expect("it is written");
        }
        folder
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs of one build that are made at most. If the speed of the machine changes between two runs, their comparison judges nothing.
const RUNS: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];
const SLOWED_RUNS: [&str; 3] = ["slower", "slower-again", "slower-at-last"];

/// By chance two runs of one build differ in one of twenty comparisons at most, so one difference is allowed.
#[test]
#[ignore = "takes minutes; make test-long"]
fn equal_builds_do_not_differ_and_a_slower_server_is_claimed() {
    let _alone = alone();
    let place = RunsFolder(tempfile::tempdir().expect("a temporary folder"));
    std::fs::write(place.0.path().join("mine.toml"), EXPERIMENT).expect("it is written");
    let build = binary::strowger();
    let (mut last, mut differences, mut is_equal) = (place.run(RUNS[0], build), 0, false);
    for name in &RUNS[1..] {
        let (code, text) = place.compare(last, place.run(name, build));
        last = name;
        let differs = code == Some(1) || text.lines().any(|line| line.ends_with("  better"));
        differences += u32::from(differs);
        is_equal = code == Some(0) && !differs;
        if is_equal {
            break;
        }
    }
    assert!(is_equal, "no pair of runs was judged equal");
    assert!(differences < 2, "equal builds differ twice");
    let slowed = place.slowed();
    let mut compared = SLOWED_RUNS.iter().map(|name| place.compare(last, place.run(name, &slowed)));
    let (code, text) = compared.find(|(code, _)| *code != Some(4)).expect("the machine keeps its speed");
    assert_eq!(code, Some(1), "{text}");
    let cost = text.lines().find(|line| line.trim_start().starts_with("server.cpu.call ")).expect("it is compared");
    assert!(cost.ends_with("  WORSE"), "{cost}");
    let ratio = cost.split_whitespace().nth(4).and_then(|ratio| ratio.parse::<f64>().ok()).expect("it has a ratio");
    assert!((1.15..1.5).contains(&ratio), "{cost}");
}
