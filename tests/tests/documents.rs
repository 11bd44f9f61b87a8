//! Checks of the documents: words, log events, keys, rows and places in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod links;
mod places;
mod promises;
mod prose;
mod sizes;
mod tables;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the Rust files below these folders, with their text.
fn sources(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let mut left: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut files = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a folder of the project can be read");
            let entries = entries.map(|entry| entry.expect("and its entries").path());
            left.extend(entries.filter(|entry| !entry.ends_with("target")));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a file of the project can be read");
            files.push((path, text));
        }
    }
    files
}

/// Returns every test of the project as `file::name`.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, text) in sources(&["crates", "tests"]) {
        let file = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                names.insert(format!("{file}::{name}"));
                is_test = false;
            }
            // A case runs together with other cases of its kind (`strowger_tests::together`).
            if let Some((name, function)) = line.strip_prefix("(\"").and_then(|rest| rest.split_once("\", "))
                && function.strip_suffix("),") == Some(name)
            {
                names.insert(format!("{file}::{name}"));
            }
        }
    }
    names
}

/// Words that hide the actor of a sentence: the peer, the caller, the server.
const WITHOUT_ACTOR: [&str; 11] = [
    "whoever",
    "whomever",
    "somebody",
    "nobody",
    "anybody",
    "everybody",
    "anew",
    "stranger",
    "strangers",
    "let go",
    "is told",
];

/// Crates whose comments and tests must avoid further words.
const PLAIN: [&str; 12] = [
    "message", "core", "store", "records", "metrics", "server", "calls", "rules", "cache", "backend", "files", "report",
];
const NOT_PLAIN: [&str; 4] = ["whatever", "anyone", "no one", "was told"];

/// Returns the words of [`WITHOUT_ACTOR`] in this line. Names of tests and values of settings are between backticks.
fn without_actor(line: &str) -> impl Iterator<Item = &'static str> + use<> {
    of(&WITHOUT_ACTOR, line)
}

/// Returns the words of a list in a line of prose.
fn of(list: &'static [&'static str], line: &str) -> impl Iterator<Item = &'static str> + use<> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let words: Vec<&str> = prose.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let prose = format!(" {} ", words.join(" "));
    list.iter().copied().filter(move |word| prose.contains(&format!(" {word} ")))
}

#[test]
fn public_texts_name_the_actor() {
    let mut files = links::documents();
    files.push(root().join("tests/promises.toml"));
    for folder in ["examples", "examples/library"] {
        let entries = fs::read_dir(root().join(folder)).expect("a folder of the project can be read");
        files.extend(entries.map(|entry| entry.expect("and its entries").path()));
    }
    files.retain(|path| path.extension().is_some_and(|ending| ["md", "toml", "rs"].iter().any(|text| ending == *text)));
    let mut found = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("it is text");
        for (at, line) in text.lines().enumerate() {
            // The other strings of that file are names of tests.
            if path.ends_with("promises.toml") && !line.starts_with("text = ") {
                continue;
            }
            found.extend(without_actor(line).map(|word| format!("{}:{}: {word}", path.display(), at + 1)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn comments_name_the_actor() {
    let mut found = Vec::new();
    for (path, text) in sources(&["crates", "benches", "tests/src"]) {
        for (at, line) in text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            found.extend(without_actor(comment).map(|word| format!("{}:{}: {word}", path.display(), at + 1)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn libraries_are_written_plainly() {
    let mut found = Vec::new();
    let folders = PLAIN.map(|name| format!("crates/{name}"));
    for (path, text) in sources(&folders.each_ref().map(String::as_str)) {
        for (at, line) in text.lines().enumerate() {
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            let name = line.trim_start().strip_prefix("fn ").and_then(|rest| rest.split('(').next()).unwrap_or("");
            let name = name.replace('_', " ");
            let words = of(&NOT_PLAIN, comment).chain(of(&NOT_PLAIN, &name)).chain(without_actor(&name));
            found.extend(words.map(|word| format!("{}:{}: {word}", path.display(), at + 1)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Tests wait for events, not for time: a sleep has its reason on its line or on one of the three before.
#[test]
fn each_sleep_of_a_test_has_its_reason() {
    let mut found = Vec::new();
    for (path, text) in sources(&["crates", "tests"]) {
        let below = path.strip_prefix(root()).expect("below the root");
        let is_source = below.starts_with("crates") && !below.components().any(|part| part.as_os_str() == "tests");
        if is_source || below.ends_with("documents.rs") {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("sleep(")) {
            if !lines[at.saturating_sub(3)..=at].iter().any(|line| line.contains("//")) {
                found.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Returns the last text among the arguments of a call.
fn last_text(call: &str) -> &str {
    let (mut depth, mut text) = (0, "");
    for (n, part) in call.split('"').enumerate() {
        if n % 2 == 1 {
            text = part;
            continue;
        }
        for c in part.chars() {
            depth += i32::from(c == '(') - i32::from(c == ')');
            if depth < 0 {
                return text;
            }
        }
    }
    text
}

/// Returns the log messages of these levels, each up to its first value.
fn events(levels: &[&str]) -> BTreeSet<String> {
    let mut events = BTreeSet::new();
    for (path, text) in sources(&["crates"]) {
        let server = ["strowger", "node", "server", "net", "dns", "store", "backend", "cache"]
            .map(|name| root().join("crates").join(name).join("src"));
        if !server.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for level in levels {
            for call in code.split(&format!("tracing::{level}!(")).skip(1) {
                let event = last_text(call).split(['{', ':', ';']).next().unwrap_or_default().trim();
                events.extend(Some(event.to_owned()).filter(|event| !event.is_empty()));
            }
        }
    }
    events
}

/// Each warning and error is explained, each explained event exists, and so does each key.
#[test]
fn the_log_is_explained() {
    let text = fs::read_to_string(root().join("docs/troubleshooting.md")).expect("it is there");
    let urgent = events(&["warn", "error"]);
    assert!(urgent.len() > 25, "{urgent:?}");
    let missing: Vec<&String> = urgent.iter().filter(|event| !text.contains(event.as_str())).collect();
    assert!(missing.is_empty(), "no word of {missing:?}");
    let code: String = sources(&["crates"]).into_iter().map(|(_, text)| text).collect();
    let mut explained = 0;
    for row in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split(" | ").collect();
        for event in cells[0].split('`').skip(1).step_by(2) {
            explained += 1;
            let parts = event.split("...").map(str::trim).filter(|part| !part.is_empty());
            parts.for_each(|part| assert!(code.contains(part), "no line of the log says {part:?}"));
        }
    }
    assert!(explained >= urgent.len(), "{explained}");
    keys_exist(&text);
}

/// Asserts that each key of the configuration in this text exists.
fn keys_exist(text: &str) {
    let keys = fs::read_to_string(root().join("docs/configuration.md")).expect("it is there");
    let tables: Vec<&str> = keys.lines().filter_map(|line| line.strip_prefix("## `[")?.strip_suffix("]`")).collect();
    let has_key = |table: &str, key: &str| {
        let section = keys.split("\n## ").find(|section| section.starts_with(&format!("`[{table}]`")));
        section.is_some_and(|section| section.contains(&format!("| `{key}` |")))
    };
    let mut named = 0;
    for word in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
        if let Some((table, key)) = word.split_once('.').filter(|(table, _)| tables.contains(table)) {
            let key = key.split([' ', '=']).next().unwrap_or_default();
            assert!(has_key(table, key), "there is no key {table}.{key}");
            named += 1;
        }
    }
    assert!(named > 5, "{named}");
}

/// Each event to watch is logged, and the settings for it exist.
#[test]
fn what_is_watched_in_production_is_counted() {
    let text = fs::read_to_string(root().join("docs/running.md")).expect("it is there");
    let watched = text.split("\n## What to watch\n").nth(1).expect("the section");
    let files = [
        "crates/server/src/counters.rs",
        "crates/net/src/counters.rs",
        "crates/net/src/media/figures.rs",
        "crates/node/src/metrics/tables.rs",
    ];
    let code: String =
        files.into_iter().map(|file| fs::read_to_string(root().join(file)).expect("it is there")).collect();
    let words: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut rows = 0;
    for row in watched.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `strowger ")) {
        rows += 1;
        for field in row.split(" | ").next().unwrap_or_default().split('`').skip(1).step_by(2) {
            assert!(words.contains(field), "the statistics have no {field}");
        }
    }
    assert!(rows > 8, "{rows}");
    keys_exist(&text);
}

/// If a file were created in another way, its mode would depend on the umask.
#[test]
fn files_of_the_server_are_made_in_one_place() {
    let crates = ["node", "server", "store", "cache", "backend", "files", "records", "net", "dns", "config", "rules"]
        .map(|name| root().join("crates").join(name).join("src"));
    let (own, mut users) = (root().join("crates/files/src/private.rs"), 0);
    for (path, text) in sources(&["crates"]) {
        let is_test = path.ends_with("tests.rs") || path.ends_with("metrics/documents.rs");
        if path == own || is_test || !crates.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            let others = ["File::create", "create_dir", "DirBuilder", "fs::write(", "fs::copy(", ".create(true)"];
            let is_other = others.iter().any(|word| line.contains(word));
            assert!(!is_other, "{}: {line}: strowger_files::private makes files", path.display());
            let is_own = line.contains("private::file()");
            assert!(is_own || !line.contains(".create_new(true)"), "{}: {line}", path.display());
            users += usize::from(is_own);
        }
    }
    assert!(users > 5, "{users}");
}

#[test]
fn unsafe_code_stands_where_the_security_policy_says() {
    let mut places = BTreeSet::new();
    for (path, text) in sources(&["crates"]) {
        let path = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        if !path.contains("/src/") {
            continue;
        }
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if !["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"].iter().any(|word| code.contains(word)) {
                continue;
            }
            let said = lines[at.saturating_sub(12)..=at]
                .iter()
                .any(|line| line.contains("SAFETY:") || line.contains("# Safety") || line.contains("unsafe extern"));
            assert!(said, "{path}:{} does not say why it is sound", at + 1);
            places.insert(path.clone());
        }
    }
    let elsewhere: Vec<&String> =
        places.iter().filter(|p| !p.starts_with("crates/net/") && !p.starts_with("crates/allocations/")).collect();
    assert_eq!(elsewhere, ["crates/message/src/scan.rs", "crates/strowger/src/allocator.rs"]);
}

/// Every key by which a source is counted comes from one function, for which an IPv6 network is one source.
#[test]
fn no_counter_takes_the_address_of_a_source_as_it_is() {
    /// Code that compares, routes or scopes an address, or makes the key itself.
    const ALLOWED: [&str; 16] = [
        "counted(arrival.remote.ip()",
        "source_bytes(",
        "is_suspect(",
        "is_banned(",
        "is_trusted(",
        ".believes(",
        "scope_of_sender(",
        ".has_room(",
        "let (source, waiting)",
        "let (source, now)",
        ".charge(",
        ".refund(",
        ".allow(kind",
        "Effect::Resolve {",
        "remote.ip().to_canonical()",
        "SocketAddr::new(arrival.remote.ip(), port)",
    ];
    let mut seen = 0;
    for (path, text) in sources(&["crates/server/src", "crates/calls/src"]) {
        for line in text.lines().filter(|line| line.contains("remote.ip()")) {
            seen += 1;
            let is_key = line.contains("to_string()") || line.contains("octets()");
            let is_allowed =
                ALLOWED.iter().any(|allowed| line.contains(allowed)) || line.contains("reply.address.ip()");
            let is_other = path.ends_with("binding_change.rs") && line.contains("elsewhere:");
            assert!((is_allowed || is_other) && !is_key, "{}: {line}", path.display());
        }
    }
    assert!(seen > 10);
}

/// The page of rules has each field of the table for conditions.
#[test]
fn every_field_of_a_condition_is_in_the_page_of_rules() {
    let text = fs::read_to_string(root().join("docs/rules.md")).expect("it is there");
    for row in strowger_rules::FIELDS {
        let line = format!("| `{}` | ", row.name);
        assert!(
            text.lines().any(|have| have.starts_with(&line) && have.contains(row.doc)),
            "{}: {}",
            row.name,
            row.doc
        );
    }
}

/// Each line of the tables of the scripts has a test by its number, each other line the test that it names, and each
/// part of the files a test that removes it.
#[test]
fn each_line_of_the_scripts_has_its_test() {
    let tests = tests();
    let text = fs::read_to_string(root().join("docs/from-opensips-or-kamailio.md")).expect("it is there");
    let (mut section, mut has_tests, mut rows) = ("", false, [0; 3]);
    for line in text.lines() {
        if line.starts_with('#') {
            section = line;
        }
        has_tests &= line.starts_with('|');
        has_tests |= line.ends_with("| test |");
        let Some(first) = line.strip_prefix("| ").and_then(|row| row.split(" | ").next()) else { continue };
        if line.ends_with("| test |") || first.starts_with('|') {
            continue;
        }
        let script = match section {
            "## OpenSIPS, default script" => "opensips",
            "## Kamailio, default script" => "kamailio",
            _ if has_tests => {
                let named = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default().trim_matches('`');
                assert!(tests.contains(named), "there is no test {named}: {line}");
                rows[2] += 1;
                continue;
            }
            _ => continue,
        };
        let number = match first.parse::<u32>() {
            Ok(number) => format!("{number:02}"),
            Err(_) => first.to_lowercase(),
        };
        let start = format!("{script}::{script}_{number}_");
        assert!(tests.iter().any(|test| test.starts_with(&start)), "there is no test {start}: {line}");
        rows[usize::from(script == "kamailio")] += 1;
    }
    assert!(rows[0] >= 21 && rows[1] >= 26 && rows[2] >= 20, "{rows:?}");

    for (script, file) in [
        ("opensips", "default-opensips.toml"),
        ("kamailio", "default-kamailio.toml"),
        ("residential", "residential-opensips.toml"),
    ] {
        let code = root().join(format!("crates/server/tests/suite/default_scripts/{script}.rs"));
        let code = fs::read_to_string(code).expect("it is there");
        let text = fs::read_to_string(root().join("examples").join(file)).expect("it is there");
        let marks = text.lines().filter_map(|line| line.strip_prefix("# ")).flat_map(|line| line.split(' '));
        let names = marks.filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        let names: Vec<&str> = names.filter(|name| *name != "default").collect();
        assert!(names.len() >= 10, "{file}: {names:?}");
        for name in names {
            assert!(code.contains(&format!("\"{name}\"")), "no test takes [{name}] out of {file}");
        }
    }
}
