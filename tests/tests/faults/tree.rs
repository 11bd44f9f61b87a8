//! Copies of the project, in which faults are planted, and what of its build they can use.

use crate::list::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes `tree` a copy of the project in which files have these texts. A file that is already right keeps its
/// modification time, so cargo does not build it again.
pub(crate) fn copy(tree: &Path, texts: &BTreeMap<&Path, &str>) {
    copy_folder(tree, Path::new(""), texts);
}

fn copy_folder(tree: &Path, folder: &Path, texts: &BTreeMap<&Path, &str>) {
    let to = tree.join(folder);
    fs::create_dir_all(&to).expect("the copy can be written");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(root().join(folder)).expect("a folder of the project can be read") {
        let entry = entry.expect("and its entries");
        let (name, from) = (entry.file_name(), entry.path());
        let place = folder.join(&name);
        let to = tree.join(&place);
        if name == "target" || name == ".git" {
            continue;
        } else if from.is_dir() {
            copy_folder(tree, &place, texts);
        } else if let Some(text) = texts.get(place.as_path()) {
            write(&to, text);
        } else if from.is_file() && fs::read(&from).expect("a file of the project can be read") != read(&to) {
            fs::copy(&from, &to).expect("the copy can be written");
        }
        names.insert(name);
    }
    for entry in fs::read_dir(&to).expect("the copy can be read") {
        let entry = entry.expect("and its entries");
        if !names.contains(&entry.file_name()) {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.expect("the copy can be written");
        }
    }
}

/// Copies what the build of this program has made of crates from outside, unless the copy of the project has been built before. Their names in a
/// build are the same in each workspace, for the same version, features and profile; cargo builds again what is missing or differs.
pub(crate) fn take_dependencies(target: &Path) {
    let program = std::env::current_exe().expect("this program has a path");
    let built = program.ancestors().nth(2).expect("a program of tests is in the folder `deps` of its profile");
    let target = target.join(built.file_name().expect("the profile"));
    if target.exists() {
        return;
    }
    for (folder, prefix) in [(".fingerprint", ""), ("build", ""), ("deps", "lib")] {
        let is_outside = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(prefix));
            name.is_some_and(|name| !name.starts_with("strowger"))
        };
        let Ok(entries) = fs::read_dir(built.join(folder)) else { continue };
        let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_outside).collect();
        let to = target.join(folder);
        fs::create_dir_all(&to).expect("the copy can be written");
        for some in paths.chunks(500) {
            // With their times, by which cargo sees that they are up to date.
            let copied = Command::new("cp").arg("--archive").args(some).arg(&to).status();
            if !copied.is_ok_and(|status| status.success()) {
                println!("not all of {} is copied: the build takes longer", built.join(folder).display());
            }
        }
    }
}

/// Writes a file of a copy, unless it has this text.
pub(crate) fn write(path: &Path, text: &str) {
    if read(path) != text.as_bytes() {
        fs::write(path, text).expect("the copy can be written");
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}
