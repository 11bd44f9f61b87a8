//! Builds of a copy, as cargo reports them.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Example that runs the simulation.
pub(crate) const SIMULATION: &str = "worlds";

/// Source of a program: the unit tests of a crate (`lib`), its suite, or the simulation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) package: String,
    pub(crate) name: String,
}

pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// Folder of its package, in which cargo runs tests.
    pub(crate) folder: PathBuf,
}

pub(crate) type Programs = BTreeMap<Target, Program>;

/// Error of the compiler.
pub(crate) struct Error {
    pub(crate) text: String,
    /// Files and offsets to which it points.
    pub(crate) places: Vec<(PathBuf, usize)>,
}

/// Builds programs: all tests in one go, so that no processor waits for the last of one kind, then the simulation.
pub(crate) fn build(tree: &Path, target: &Path, targets: &BTreeSet<&Target>) -> Result<Programs, Vec<Error>> {
    let is_simulation = |target: &&Target| target.name == SIMULATION;
    let (simulations, tests): (Vec<&Target>, Vec<&Target>) = targets.iter().copied().partition(is_simulation);
    let mut programs = Programs::new();
    if !tests.is_empty() {
        let names: BTreeSet<&str> = tests.iter().map(|target| target.name.as_str()).collect();
        let arguments = names.into_iter().flat_map(|name| match name {
            "lib" => vec!["--lib"],
            _ => vec!["--test", name],
        });
        programs.extend(run(tree, target, ["test", "--no-run"].into_iter().chain(arguments), &tests)?);
    }
    if !simulations.is_empty() {
        // With the packages of the tests, so that what both need has the same features.
        let packages: Vec<&Target> = targets.iter().copied().collect();
        programs.extend(run(tree, target, ["build", "--example", SIMULATION], &packages)?);
    }
    Ok(programs)
}

/// Runs cargo with these arguments on the packages of these targets.
fn run<'a>(
    tree: &Path,
    target: &Path,
    arguments: impl IntoIterator<Item = &'a str>,
    targets: &[&Target],
) -> Result<Programs, Vec<Error>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--locked", "--quiet", "--message-format=json"]);
    for package in targets.iter().map(|target| &target.package).collect::<BTreeSet<_>>() {
        cargo.args(["--package", &format!("strowger-{package}")]);
    }
    cargo.current_dir(tree).env("CARGO_TARGET_DIR", target);
    // A changed line is built in 5 s instead of 45 this way, for 600 MB. The first build takes longer: `.ci/run` does without.
    if std::env::var_os("CARGO_INCREMENTAL").is_none() {
        cargo.env("CARGO_INCREMENTAL", "1");
    }
    let output = cargo.stderr(Stdio::inherit()).output().expect("cargo starts");
    let (mut programs, mut errors) = (Programs::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).expect("cargo writes JSON");
        if let Some(path) = message["executable"].as_str() {
            let manifest = Path::new(message["manifest_path"].as_str().expect("each package has a manifest"));
            let folder = manifest.parent().expect("a manifest is in a folder").to_owned();
            let package = folder.file_name().expect("of a crate").to_string_lossy().into_owned();
            let name =
                if message["target"]["kind"][0] == "lib" { &Value::from("lib") } else { &message["target"]["name"] };
            let target = Target { package, name: name.as_str().expect("a name").to_owned() };
            programs.insert(target, Program { path: path.into(), folder });
        } else if message["message"]["level"] == "error" {
            let spans = message["message"]["spans"].as_array().into_iter().flatten();
            let place =
                |span: &Value| Some((span["file_name"].as_str()?.into(), span["byte_start"].as_u64()? as usize));
            let text = message["message"]["rendered"].as_str().unwrap_or_default().to_owned();
            errors.push(Error { text, places: spans.filter_map(place).collect() });
        }
    }
    if output.status.success() { Ok(programs) } else { Err(errors) }
}
