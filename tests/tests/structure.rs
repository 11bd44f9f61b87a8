//! Structure of the crates: circles of files that use each other, structs with many fields, types with methods in many files.
//!
//! A file uses another one if a path of its code, such as `crate::table::Table` or `super::Table`, leads to an item
//! there, also by the name that a `use` gave. An index of names (`pub use`) does not count as a use of these names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

mod source;

use source::{Source, Type};

/// Largest share of the lines of a crate in a circle of files, in percent.
const CIRCLE: usize = 20;

/// Circles above that bound. They may shrink.
const CIRCLES: &[(&str, usize, &str)] = &[
    ("dns", 100, "one state machine, four files"),
    ("measure", 23, "the page, its parts and the verdict"),
    ("report", 48, "charts and pages of one HTML document"),
    ("rig", 23, "an engine, its phones and their lines"),
    ("scenario", 32, "one reader, whose parts read each other's elements"),
    ("sim", 43, "a world of hosts that send to each other"),
];

/// Largest number of fields of a struct.
const FIELDS: usize = 15;

/// Structs with more fields. They may shrink.
const STRUCTS: &[(&str, &str, usize, &str)] = &[
    ("calls", "Account", 18, VALUES),
    ("calls", "Call", 23, MACHINE),
    ("config", "Action", 21, VALUES),
    ("core", "Call", 26, MACHINE),
    ("core", "Counts", 19, VALUES),
    ("core", "ResponseContext", 16, MACHINE),
    ("core", "Routing", 19, VALUES),
    ("core", "TransactionRecord", 16, MACHINE),
    ("core", "Transactions", 18, MACHINE),
    ("core", "UserAgent", 20, MACHINE),
    ("load", "Call", 50, MACHINE),
    ("load", "Campaign", 24, VALUES),
    ("load", "GeneratorPart", 17, VALUES),
    ("load", "SippStats", 18, VALUES),
    ("load", "Live", 21, VALUES),
    ("load", "Options", 86, VALUES),
    ("load", "Plan", 38, VALUES),
    ("load", "Run", 31, MACHINE),
    ("load", "Session", 38, MACHINE),
    ("load", "ShardContext", 31, MACHINE),
    ("load", "Traces", 20, VALUES),
    ("load", "Traffic", 41, MACHINE),
    ("load", "View", 26, VALUES),
    ("load", "Words", 16, VALUES),
    ("measure", "CallBook", 21, VALUES),
    ("measure", "Page", 21, VALUES),
    ("measure", "Thresholds", 16, VALUES),
    ("net", "Bounds", 17, VALUES),
    ("net", "Connection", 27, MACHINE),
    ("net", "DedicatedSockets", 16, MACHINE),
    ("net", "Dispatcher", 18, MACHINE),
    ("net", "Shard", 20, MACHINE),
    ("net", "Streams", 30, MACHINE),
    ("scenario", "Reader", 21, MACHINE),
    ("scenario", "Scenario", 19, VALUES),
    ("server", "Decision", 21, VALUES),
    ("server", "ProcessState", 29, "all that shards share: its parts are types of their own"),
    ("sim", "Agent", 25, MACHINE),
    ("sim", "Choices", 16, VALUES),
    ("sim", "Process", 19, MACHINE),
    ("sim", "Sent", 18, VALUES),
    ("sim", "ServerHost", 22, MACHINE),
    ("sim", "ServerSettings", 19, VALUES),
    ("sim", "World", 19, MACHINE),
    ("store", "Binding", 16, VALUES),
    ("store", "Cdr", 22, VALUES),
    ("store", "Event", 16, VALUES),
    ("store", "ReadThroughGauges", 16, VALUES),
    ("strowger", "Bounds", 17, VALUES),
    ("strowger", "Traffic", 22, VALUES),
];

/// A record, settings or figures: values that nothing but their names tells apart.
const VALUES: &str = "a record of values";

/// State of one state machine that was written before this bound.
const MACHINE: &str = "state of one machine, not yet divided";

/// Largest number of files with `impl` blocks of a type.
const IMPLS: usize = 6;

/// Types with `impl` blocks in more files. They may shrink.
const TYPES: &[(&str, &str, usize, &str)] = &[
    ("calls", "CallTable", 11, "one concern of the table a file"),
    ("core", "Proxy", 10, "one step of a request or response a file"),
    ("core", "Transactions", 7, "one concern of the table a file"),
    ("core", "Pair", 10, "one kind of event of a bridged call a file"),
    (
        "core",
        "UserAgent",
        12,
        "one role a file: client, server, session and its timer, registration, end at a shutdown",
    ),
    ("load", "CallRunner", 13, "one kind of action a file"),
    ("net", "Streams", 8, "one step in the life of a connection a file"),
    ("node", "Controlled", 7, "one kind of order a file"),
    ("scenario", "Reader", 8, "one kind of element a file"),
    ("server", "Decider", 30, "decisions without change of state: one request or stage a file"),
    ("server", "Engine", 33, "one kind of event or effect a file"),
    ("sim", "ServerHost", 7, "one effect of the engine a file"),
];

/// Returns the crates by name, each with its source text.
fn crates() -> Vec<(String, Source)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let names = fs::read_dir(&folder).expect("the crates").map(|entry| entry.expect("and its entries").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| folder.join(name).join("Cargo.toml").exists());
    names.sort();
    let read = |name: String| {
        let sources = folder.join(&name).join("src");
        (name, Source::read(&|file: &Path| fs::read_to_string(sources.join(file)).ok()))
    };
    names.into_iter().map(read).collect()
}

/// Files that use each other, by position.
type Circle = BTreeSet<usize>;

/// Returns the circle with the most lines; empty if no files use each other.
fn largest_circle(source: &Source) -> Circle {
    let uses = source.uses();
    let reach = |file: usize| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![file]);
        while let Some(file) = left.pop() {
            left.extend(uses[file].keys().filter(|file| reached.insert(**file)));
        }
        reached
    };
    let reached: Vec<BTreeSet<usize>> = (0..uses.len()).map(reach).collect();
    let circle = |file: usize| reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect();
    let circles = (0..uses.len()).map(circle);
    circles.max_by_key(|circle: &Circle| lines(source, circle)).unwrap_or_default()
}

fn lines(source: &Source, files: &Circle) -> usize {
    files.iter().map(|file| source.files[*file].lines).sum()
}

/// Describes a circle: its files, and the paths between them.
fn described(source: &Source, circle: &Circle) -> String {
    let (uses, mut text) = (source.uses(), String::new());
    let name = |file: &usize| source.files[*file].path.display();
    for file in circle {
        let _ = writeln!(text, "  {}", name(file));
        for (other, paths) in uses[*file].iter().filter(|(other, _)| circle.contains(other)) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let _ = writeln!(text, "    uses {} by {}", name(other), paths.join(", "));
        }
    }
    text
}

#[test]
fn circles_of_files_are_small() {
    let mut faults = Vec::new();
    for (name, source) in crates() {
        let circle = largest_circle(&source);
        let share = 100.0 * lines(&source, &circle) as f64 / lines(&source, &(0..source.files.len()).collect()) as f64;
        let exception = CIRCLES.iter().find(|(of, ..)| *of == name);
        let bound = exception.map_or(CIRCLE, |(_, bound, _)| *bound);
        if share > bound as f64 {
            let files = described(&source, &circle);
            faults
                .push(format!("{name}: a circle of files with {share:.1} % of its lines, {bound} % may be:\n{files}"));
        } else if exception.is_some() && share <= CIRCLE as f64 {
            faults.push(format!("{name} has no circle above {CIRCLE} % any more: remove its exception"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Compares figures of types with their bound and with the exceptions.
fn compare(figures: &BTreeMap<(String, String), usize>, bound: usize, exceptions: &[(&str, &str, usize, &str)]) {
    let mut faults = Vec::new();
    for ((name, of), figure) in figures {
        let exception = exceptions.iter().find(|(in_crate, of_type, ..)| in_crate == name && of_type == of);
        let bound = exception.map_or(bound, |(_, _, bound, _)| *bound);
        if *figure > bound {
            faults.push(format!("{name}: {of} has {figure}, may have {bound}"));
        }
    }
    for (name, of, ..) in exceptions {
        if figures.get(&((*name).to_owned(), (*of).to_owned())).is_none_or(|figure| *figure <= bound) {
            faults.push(format!("{name}: {of} is within the bound: remove its exception"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn structs_are_small() {
    let mut figures = BTreeMap::<(String, String), usize>::new();
    for (name, source) in crates() {
        for (Type { name: of, .. }, fields) in source.structs() {
            let figure = figures.entry((name.clone(), of)).or_default();
            *figure = fields.max(*figure);
        }
    }
    assert!(figures.len() > 500, "{}", figures.len());
    compare(&figures, FIELDS, STRUCTS);
}

#[test]
fn types_have_their_methods_in_few_files() {
    let mut figures = BTreeMap::<(String, String), usize>::new();
    for (name, source) in crates() {
        for (Type { name: of, .. }, files) in source.impls() {
            let figure = figures.entry((name.clone(), of)).or_default();
            *figure = files.len().max(*figure);
        }
    }
    assert!(figures.len() > 500, "{}", figures.len());
    compare(&figures, IMPLS, TYPES);
}

/// Reads a crate from the texts of its files.
fn toy(files: &[(&str, &str)]) -> Source {
    let text_of =
        |path: &Path| files.iter().find(|(file, _)| Path::new(file) == path).map(|(_, text)| (*text).to_owned());
    Source::read(&text_of)
}

#[test]
fn circles_fields_and_methods_are_found() {
    let root = "mod a; mod b; mod leaf;\npub use self::a::A;\n#[cfg(test)] mod tests { use crate::b::B; }\n";
    let b = "use std::fmt;\npub struct B;\nimpl fmt::Debug for B { fn f(&self) { crate::A::new(); } }\n";
    let leaf = "pub const fn leaf() -> &'static A { &A { x: 1 } }\n";
    let a = |code: &str| format!("use crate::leaf;\npub struct A {{ pub x: u8, y: Vec<std::fmt::Error> }}\n{code}\n");
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        // Only b uses a.
        ("", &[], &[]),
        ("fn f() { super::b::make(); }", &[], &["a.rs", "b.rs"]),
        ("use super::{leaf, b::{self as other}};\nfn f() { other::B; }", &[], &["a.rs", "b.rs"]),
        ("impl super::b::B {}", &[], &["a.rs", "b.rs"]),
        ("macro_rules! m { () => { $crate::b::B } }", &[], &["a.rs", "b.rs"]),
        ("// crate::b::B\nconst T: &str = \"crate::b::B\";", &[], &[]),
        ("#[cfg(test)]\nmod tests { use crate::b::B; }", &[], &[]),
        // A cycle through a file below and back through its parent.
        ("mod c;\nfn f() { c::f(); }", &[("a/c.rs", "use super::A;\npub fn f() {}\n")], &["a.rs", "a/c.rs"]),
        ("pub mod c;\npub use c::*;", &[("a/c.rs", "pub fn f() { crate::b::g(); }\n")], &["a.rs", "a/c.rs", "b.rs"]),
        ("mod c { pub fn f() { super::super::b::g(); } }", &[], &["a.rs", "b.rs"]),
    ];
    for (code, files, expected) in cases {
        let a = a(code);
        let files = [&[("lib.rs", root), ("a.rs", &*a), ("b.rs", b), ("leaf.rs", leaf)][..], files].concat();
        let source = toy(&files);
        let circle = largest_circle(&source);
        let found: BTreeSet<String> =
            circle.iter().map(|file| source.files[*file].path.display().to_string()).collect();
        assert_eq!(found, expected.iter().map(|file| (*file).to_owned()).collect(), "{code}");
        let structs: Vec<(String, usize)> = source.structs().map(|(of, fields)| (of.name, fields)).collect();
        assert_eq!(structs, [("A".to_owned(), 2), ("B".to_owned(), 0)], "{code}");
    }
    let a = a(
        "impl<'a, T: Fn() -> u8> From<T> for &'a A where T: Copy {}\nunsafe impl Send for super::b::B {}\nfn f() -> impl Copy {}",
    );
    let source = toy(&[
        ("lib.rs", root),
        ("a.rs", &a),
        ("b.rs", b),
        ("leaf.rs", "use crate::A;\nimpl A {}\nimpl Clone for u8 {}"),
    ]);
    let files = source.impls().into_iter().map(|(of, files)| (of.name, files.len())).collect::<Vec<_>>();
    assert_eq!(files, [("A".to_owned(), 2), ("B".to_owned(), 2)]);
}
