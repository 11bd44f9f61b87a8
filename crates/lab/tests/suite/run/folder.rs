//! Folder of a run: a changed byte is refused, a kill leaves a valid part.

use super::{description, row};
use std::fs;
use std::path::{Path, PathBuf};
use strowger_lab::row::{Profile, Row};
use strowger_lab::run::{Folder, FolderError, ROWS, Recorded, SUMS};

/// Makes a run of these rows, each with a log.
fn run(path: &Path, rows: &[Row]) -> Folder {
    let mut folder = Folder::create(path, &description(), "title").expect("a new folder");
    for row in rows {
        folder.keep_configuration("strowger", "relay.toml", b"configuration").expect("it is written");
        let trial = folder.next_trial().expect("a folder for a trial");
        fs::write(trial.join("samples.log"), format!("samples {}", row.load)).expect("it is written");
        folder.append(row).expect("it is appended");
    }
    folder
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found.sort();
    found
}

#[test]
fn a_changed_byte_of_any_file_is_refused_and_named() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let path = temporary.path().join("run");
    let rows = [row(100.0), row(200.0)];
    run(&path, &rows).finish().expect("the list of hashes is written");
    let recorded = Recorded::open(&path).expect("a whole run");
    assert!(recorded.is_whole && recorded.rows == rows && recorded.files == 6, "{recorded:?}");
    assert_eq!(recorded.description, description());
    for file in files(&path) {
        let bytes = fs::read(&file).expect("it is there");
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&file, &changed).expect("it is written");
            let refusal = Recorded::open(&path).expect_err("a byte was changed").to_string();
            let name = file.strip_prefix(&path).expect("below the folder").display().to_string();
            assert!(refusal.contains(&name), "{name}: {refusal}");
        }
        fs::write(&file, &bytes).expect("it is written");
        fs::remove_file(&file).expect("it is removed");
        assert!(Recorded::open(&path).is_err(), "{}", file.display());
        fs::write(&file, &bytes).expect("it is written");
    }
    let added = path.join("trials/0002/more.log");
    fs::write(&added, "more").expect("it is written");
    let refusal = Recorded::open(&path).expect_err("a file was added").to_string();
    assert!(refusal.contains("trials/0002/more.log: it was added"), "{refusal}");
    fs::remove_file(&added).expect("it is removed");
    fs::write(path.join("report.html"), "a report").expect("it is written");
    assert!(Recorded::open(&path).is_ok(), "reports lie beside the run");
}

#[test]
fn a_kill_at_any_moment_leaves_a_part_that_goes_on() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let path = temporary.path().join("run");
    let rows = [row(100.0), row(200.0), row(300.0)];
    drop(run(&path, &rows[..2]));
    let sums = fs::read(path.join(SUMS)).expect("it is there");
    // The third trial was under way: its log is there, its row at any length, and the list of hashes is that of two rows.
    let line = rows[2].to_line() + "\n";
    let whole = fs::read_to_string(path.join(ROWS)).expect("it is there");
    for length in 0..=line.len() {
        let trial = path.join("trials/0003");
        fs::create_dir_all(&trial).expect("a folder");
        fs::write(trial.join("samples.log"), "a par").expect("it is written");
        fs::write(path.join(format!("{SUMS}.new")), "# strow").expect("it is written");
        fs::write(path.join(ROWS), format!("{whole}{}", &line[..length])).expect("it is written");
        let recorded = Recorded::open(&path).expect("a part");
        assert!(!recorded.is_whole && recorded.rows == rows[..2], "{length} bytes of the row");
        let refusal = Recorded::verify(&path).expect_err("it has more than its hashes cover").to_string();
        assert!(refusal.contains("trials/0003/samples.log: it has no hash"), "{refusal}");
        let behind = format!("{ROWS}: {length} bytes behind its rows");
        assert_eq!(refusal.contains(&behind), length > 0, "{refusal}");
        let (folder, known) = Folder::resume(&path, &description()).expect("the same run");
        assert_eq!((folder.rows(), known.as_slice()), (2, &rows[..2]));
        assert_eq!(fs::read_to_string(path.join(ROWS)).expect("it is there"), whole);
        assert!(!trial.join("samples.log").exists());
        drop(folder);
        assert_eq!(Recorded::verify(&path).expect("a part without more").rows, rows[..2]);
    }
    let (mut folder, _) = Folder::resume(&path, &description()).expect("the same run");
    folder.append(&rows[2]).expect("it is appended");
    folder.finish().expect("the list of hashes is written");
    assert_eq!(Recorded::open(&path).expect("a whole run").rows, rows);
    assert_ne!(fs::read(path.join(SUMS)).expect("it is there"), sums);
    // A whole row must not be changed.
    fs::write(path.join(ROWS), &whole).expect("it is written");
    assert!(matches!(Recorded::open(&path), Err(FolderError::Changed { .. })));
}

#[test]
fn another_run_is_not_resumed_and_no_folder_is_shared() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let path = temporary.path().join("run");
    let folder = run(&path, &[row(100.0)]);
    let refusal = Folder::resume(&path, &description()).expect_err("another process writes it").to_string();
    assert!(refusal.contains("another process writes"), "{refusal}");
    drop(folder);
    let refusal = Folder::create(&path, &description(), "title").expect_err("it is not empty").to_string();
    assert!(refusal.contains("--resume"), "{refusal}");
    let mut other = description();
    other.profile = Profile::Paper;
    let refusal = Folder::resume(&path, &other).expect_err("another profile").to_string();
    assert!(refusal.contains("another profile: it began with quick, and now it is paper"), "{refusal}");
    let mut other = description();
    other.systems[0].version = "0.2.0".into();
    let refusal = Folder::resume(&path, &other).expect_err("another version").to_string();
    assert!(refusal.contains("strowger 0.2.0"), "{refusal}");
    let mut other = description();
    other.overrides.repetitions = Some(7);
    let refusal = Folder::resume(&path, &other).expect_err("other options").to_string();
    assert!(refusal.contains("other options: it began with none, and now it is --repetitions 7"), "{refusal}");
    let mut later = description();
    later.started += 60;
    assert!(Folder::resume(&path, &later).is_ok(), "the same run, later");
    assert!(matches!(Recorded::open(temporary.path()), Err(FolderError::NoRun(_))));
}
