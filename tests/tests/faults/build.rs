//! Builds of a copy, as cargo reports them.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Source of a program: the unit tests of a crate (`lib`), its suite, or the example `worlds`.
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

/// Builds the targets with this name of these packages. The packages are always the same, so that each build has their dependencies with the same features.
pub(crate) fn build(tree: &Path, target: &Path, packages: &BTreeSet<&str>, name: &str) -> Result<Programs, Vec<Error>> {
    let mut cargo = Command::new(env!("CARGO"));
    match name {
        "lib" => cargo.args(["test", "--no-run", "--lib"]),
        "worlds" => cargo.args(["build", "--example", name]),
        _ => cargo.args(["build", "--test", name]),
    };
    cargo.args(["--locked", "--quiet", "--message-format=json"]);
    for package in packages {
        cargo.args(["--package", &format!("strowger-{package}")]);
    }
    // A changed line is built in 5 s instead of 45 this way, for 600 MB.
    cargo.current_dir(tree).env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "1");
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
