//! Files of a campaign: documents, and the data of calls.

use super::Work;
use super::plan::{Plan, User};
use std::path::Path;
use std::sync::Arc;
use strowger_scenario::injection::{Injection, InjectionOptions, LineOrder};
use strowger_scenario::{Command, Environment, Scenario};

/// Returns the names that documents may use.
pub(super) fn environment(plan: &Plan) -> Environment {
    Environment {
        keys: plan.keys.iter().map(|(k, v)| (k.clone(), v.clone().into_bytes())).collect(),
        injections: injections(plan),
        no_exec: plan.no_exec,
        command: Command::Load,
        ..Environment::default()
    }
}

/// Returns the names of the timers of a plan before anything is sent. A ready workload has no timers.
///
/// # Errors
/// The document cannot be read; the error is a sentence.
pub fn timers(plan: &Plan) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for plan in plan.parted() {
        if let Work::Document(path) = &plan.work {
            add_names(&mut names, document(&plan, path)?.timed());
        }
    }
    Ok(names)
}

/// Adds names of timers that are not yet among them.
pub(super) fn add_names(names: &mut Vec<String>, more: Vec<String>) {
    for name in more {
        if !names.contains(&name) {
            names.push(name);
        }
    }
}

/// Reads a document of the user.
pub(super) fn document(plan: &Plan, path: &Path) -> Result<Scenario, String> {
    Scenario::load(path, &environment(plan)).map_err(|refusal| refusal.to_string())
}

/// Returns the parts of a plan's documents that the reader ignores or interprets differently, each with file, line and column.
///
/// # Errors
/// The document cannot be read; the error is a sentence.
pub fn warnings(plan: &Plan) -> Result<Vec<String>, String> {
    let mut said = Vec::new();
    for plan in plan.parted() {
        let Work::Document(path) = &plan.work else { continue };
        let (scenario, file) = (document(&plan, path)?, path.display());
        said.extend(scenario.remarks().iter().map(|w| format!("{file}:{}:{}: {}", w.line, w.column, w.text)));
    }
    Ok(said)
}

/// Returns whether calls take their users from a list made of the plan's users.
pub(super) fn has_list(plan: &Plan) -> bool {
    plan.users.len() > 1 && plan.workload().is_some()
}

/// Returns the base names of injection files, of which the list of users is the first.
fn injections(plan: &Plan) -> Vec<String> {
    let base =
        |path: &std::path::PathBuf| path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    has_list(plan).then(|| "users".into()).into_iter().chain(plan.injections.iter().map(base)).collect()
}

/// Reads the data that the generators of a campaign share. Lines in turn begin again at the first after the last.
pub(super) fn data(plan: &Plan) -> Result<Arc<[Injection]>, String> {
    let mut all = Vec::new();
    if has_list(plan) {
        all.push(users_list(plan.users.iter(), plan.pool.order)?);
    }
    for path in &plan.injections {
        all.push(Injection::load(path, OPTIONS).map_err(|error| error.to_string())?);
    }
    Ok(all.into())
}

/// Reads the files of a document for generator `index` of `count`: its share of the lines of the first file, and the others. `in_turn`:
/// calls take the lines of the first file in turn, whatever the file says.
pub(super) fn data_of(plan: &Plan, index: usize, count: usize, in_turn: bool) -> Result<Arc<[Injection]>, String> {
    let mut all = Vec::new();
    for (place, path) in plan.injections.iter().enumerate() {
        let name = path.display().to_string();
        let mut bytes = std::fs::read(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
        if place == 0 {
            bytes = share(&bytes, index, count, in_turn);
        }
        all.push(Injection::new(name, bytes, OPTIONS).map_err(|error| error.to_string())?);
    }
    Ok(all.into())
}

/// Returns the first line of an injection file, and every `count`-th of the others from line `index` on.
fn share(bytes: &[u8], index: usize, count: usize, in_turn: bool) -> Vec<u8> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let head = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let head = if in_turn { head.replace("RANDOM", "SEQUENTIAL") } else { head };
    // An empty line ends the data.
    let data =
        lines.take_while(|line| !matches!(*line, [b'\n'] | [b'\r', b'\n'])).filter(|line| !line.starts_with(b"#"));
    let own = data.skip(index).step_by(count);
    std::iter::once(head.as_bytes()).chain(own).collect::<Vec<_>>().concat()
}

/// Reading of injection files.
const OPTIONS: InjectionOptions = InjectionOptions { strip_carriage_return: true, index: None };

/// Makes an injection file of users, which calls take in turn or at random.
pub(super) fn users_list<'a>(users: impl Iterator<Item = &'a User>, order: LineOrder) -> Result<Injection, String> {
    let mut text = String::from(if order == LineOrder::Random { "RANDOM\n" } else { "SEQUENTIAL\n" });
    for user in users {
        text.push_str(&format!("{};{}\n", user.name, user.password));
    }
    Injection::new("users".into(), text.into_bytes(), InjectionOptions::default()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_taken_in_turn_or_at_random() {
        let users: Vec<User> =
            (0..9).map(|i| User { name: format!("user{i}"), password: format!("secret{i}") }).collect();
        for order in [LineOrder::Sequential, LineOrder::Random] {
            let list = users_list(users.iter(), order).expect("a list");
            assert_eq!((list.order(), list.lines()), (order, 9));
            let mut text = Vec::new();
            list.write_field(8, 1, &mut text).expect("a field");
            assert_eq!(text, b"secret8");
        }
    }

    #[test]
    fn each_line_of_a_file_belongs_to_one_generator() {
        let of =
            |index, in_turn| String::from_utf8(share(b"RANDOM\na\n#\nb\nc\n\nd\n", index, 2, in_turn)).expect("a text");
        assert_eq!((of(0, false), of(1, false)), ("RANDOM\na\nc\n".into(), "RANDOM\nb\n".into()));
        assert_eq!((of(0, true), of(1, true)), ("SEQUENTIAL\na\nc\n".into(), "SEQUENTIAL\nb\n".into()));
    }
}
