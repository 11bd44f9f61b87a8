//! What is built is what `Cargo.lock` names, with tools of a known version.

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
