//! Builds use the versions of `Cargo.lock`, and tools of pinned versions.

use std::path::Path;

fn read(file: &str) -> String {
    let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_command_of_cargo_keeps_to_the_lock_file() {
    let commands = ["build", "run", "test", "clippy", "install"].map(|word| format!(" {word} "));
    let (mut seen, mut loose) = (0, Vec::new());
    for file in ["Makefile", ".ci/run", "README.md"] {
        let text = read(file).replace("\\\n", " ");
        for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', '@'])) {
            for part in line.split(['&', ';', '`', '|']) {
                let cargo = ["$(CARGO)", "cargo"].iter().filter_map(|cargo| part.split_once(cargo)).next();
                let Some((_, arguments)) = cargo else { continue };
                if commands.iter().any(|word| arguments.starts_with(word.as_str())) {
                    seen += 1;
                    if !arguments.contains("--locked") {
                        loose.push(format!("{file}: {line}"));
                    }
                }
            }
        }
    }
    assert!(seen > 12, "{seen}");
    assert!(loose.is_empty(), "{loose:#?}");
}

#[test]
fn tools_are_of_a_known_version() {
    let text = read(".ci/run");
    for line in text.lines().filter(|line| line.contains("cargo install")) {
        assert!(line.contains("--version"), "{line}");
    }
}

/// The fuzz targets are outside of the workspace, with their own lock file: it must list the current dependencies of
/// each crate.
#[test]
fn the_lock_file_of_the_fuzz_targets_is_up_to_date() {
    let lock: toml::Table = read("fuzz/Cargo.lock").parse().expect("a lock file");
    let packages = lock["package"].as_array().expect("packages");
    let mut seen = 0;
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let Some(folder) = name.strip_prefix("strowger-").filter(|folder| !["fuzz", "tests"].contains(folder)) else {
            continue;
        };
        let manifest: toml::Table = read(&format!("crates/{folder}/Cargo.toml")).parse().expect("a manifest");
        let empty = Vec::new();
        let locked = package.get("dependencies").and_then(|all| all.as_array()).unwrap_or(&empty);
        // With two versions of a package, the version follows the name.
        let is_locked = |wanted: &str| {
            locked.iter().filter_map(|name| name.as_str()).any(|name| name.split(' ').next() == Some(wanted))
        };
        for (wanted, how) in manifest.get("dependencies").and_then(|all| all.as_table()).into_iter().flatten() {
            let is_optional = how.get("optional").is_some_and(|optional| optional.as_bool() == Some(true));
            assert!(is_optional || is_locked(wanted), "cd fuzz && cargo update --workspace: {name} needs {wanted}");
            seen += 1;
        }
    }
    assert!(seen > 12, "{seen}");
}

/// The engine only decides: neither it nor its dependencies can open a socket, start a runtime or connect to a peer.
#[test]
fn the_engine_depends_on_nothing_that_acts() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let tree = |package: &str| {
        let arguments =
            ["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
        let output = std::process::Command::new(&cargo)
            .args(arguments)
            .args(["--package", package, "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")])
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("names are text");
        text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    let acts = [
        "strowger-net",
        "strowger-dns",
        "strowger-node",
        "tokio",
        "mio",
        "socket2",
        "hickory-resolver",
        "rusqlite",
        "strowger-backend",
    ];
    let of_node = tree("strowger-node");
    assert!(acts.iter().all(|name| of_node.iter().any(|found| found == name)), "{of_node:?}");
    for package in [
        "strowger-message",
        "strowger-core",
        "strowger-media",
        "strowger-store",
        "strowger-config",
        "strowger-calls",
        "strowger-server",
        "strowger-sim",
        "strowger-measure",
        "strowger-scenario",
    ] {
        let found: Vec<_> = tree(package).into_iter().filter(|name| acts.contains(&name.as_str())).collect();
        assert!(found.is_empty(), "{package} depends on {found:?}");
    }
}

/// A configuration is made of texts: the process that uses it reads the files that it names.
#[test]
fn the_configuration_opens_no_file() {
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/config/src")];
    let mut seen = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder of the crate");
            left.extend(entries.map(|entry| entry.expect("and its files").path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("source text");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            let acts = ["fs::", "File::", "OpenOptions", ".exists()", ".is_file()", ".is_dir()", ".metadata()"];
            let acts = acts.iter().find(|word| line.contains(**word));
            assert!(acts.is_none(), "{}: {line}: checks of files are in crates/node/src/preflight", path.display());
        }
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
}
