//! Files of a generator: documents with their marks filled in, and the data of users.

use super::{CalleeBehaviour, Setting, Traffic};
use crate::document::{self, Parties};
use crate::{Error, document::user};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Files of a generator.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Documents of callers with their shares.
    pub(super) calling: Vec<(PathBuf, u32)>,
    /// Data of callers.
    pub(super) data: PathBuf,
    /// Document of the answering sides, if they have one.
    pub(super) answering: Option<PathBuf>,
    /// Registration at each answering side: document, data, number of users.
    pub(super) registering: Vec<(PathBuf, PathBuf, u32)>,
}

/// First line of data whose lines calls take in turn.
const IN_TURN: &str = "SEQUENTIAL";

/// Writes all files of a setting.
pub(super) fn write(setting: &Setting, folder: &Path) -> Result<Files, Error> {
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let mut files = Files { data: folder.join("users.csv"), ..Files::default() };
    let mut lines = data(setting.users, 0, 1);
    if setting.connections.connect_rate.is_some() {
        lines = lines.replacen(IN_TURN, "RANDOM", 1);
    }
    write_file(&files.data, &lines)?;
    // A document that names no answering side is filled in with the port that discards everything.
    let nowhere = [SocketAddr::from((Ipv4Addr::LOCALHOST, 9))];
    let sides = if setting.sides.is_empty() { &nowhere[..] } else { &setting.sides };
    let parties = |answer: SocketAddr| Parties { users: setting.registered(), answer, hold: setting.hold };
    if let Traffic::Documents(documents) = &setting.traffic {
        // With registered users the system finds the answering side by itself. Without users the document names it.
        let named = if setting.registered() == 0 { sides } else { &sides[..1] };
        for (number, (name, share)) in documents.iter().enumerate() {
            for (side, answer) in named.iter().enumerate() {
                let file = folder.join(format!("call-{}-{}.xml", number + 1, side + 1));
                document::write(&file, &document::text(name, &parties(*answer))?)?;
                files.calling.push((file, *share));
            }
        }
    }
    if let CalleeBehaviour::Document(name) = &setting.answer {
        let file = folder.join("answer.xml");
        document::write(&file, &document::text(name, &parties(sides[0]))?)?;
        files.answering = Some(file);
    }
    if setting.registered() > 0 {
        let step = sides.len() as u32;
        for (first, answer) in (0..step).zip(sides) {
            let [document, users] = ["xml", "csv"].map(|end| folder.join(format!("register-{}.{end}", first + 1)));
            write_file(&document, &document::text(document::REGISTER, &parties(*answer))?)?;
            write_file(&users, &data(setting.users, first, step))?;
            let here = (setting.users + step - 1 - first) / step;
            files.registering.push((document, users, here));
        }
    }
    Ok(files)
}

impl Files {
    /// Writes the data of one of several callers, by its number from 0, and returns the path. Each caller has its share
    /// of the lines.
    pub(super) fn data_of(&self, number: usize, count: usize) -> Result<PathBuf, Error> {
        if count == 1 {
            return Ok(self.data.clone());
        }
        let text = std::fs::read_to_string(&self.data).map_err(Error::file(&self.data))?;
        let file = self.data.with_file_name(format!("users-{}.csv", number + 1));
        write_file(&file, &share(&text, number, count))?;
        Ok(file)
    }
}

/// Returns a caller's share of the lines after the first line, or all lines if there are too few.
fn share(text: &str, number: usize, count: usize) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let own: Vec<&str> = lines.clone().skip(number).step_by(count).collect();
    let own = if own.is_empty() { lines.collect() } else { own };
    std::iter::once(first).chain(own).flat_map(|line| [line, "\n"]).collect()
}

fn write_file(file: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(file, text).map_err(Error::file(file))
}

/// Returns the data of each `step`-th user: name, credentials, and the user that it calls.
fn data(users: u32, first: u32, step: u32) -> String {
    let mut data = format!("{IN_TURN}\n");
    for number in (1 + first..=users.max(1)).step_by(step as usize) {
        let ((name, password), (callee, _)) = (user(number), user(number % users.max(1) + 1));
        // Writing to a String cannot fail.
        let _ = writeln!(data, "{name};[authentication username={name} password={password}];{callee}");
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_share_the_lines_of_the_data() {
        let text = "SEQUENTIAL\na\nb\nc\n";
        assert_eq!([share(text, 0, 2), share(text, 1, 2)], ["SEQUENTIAL\na\nc\n", "SEQUENTIAL\nb\n"]);
        assert_eq!(share("SEQUENTIAL\na\n", 1, 2), "SEQUENTIAL\na\n");
    }

    #[test]
    fn users_are_dealt_to_the_answering_sides_in_turn() {
        let names = |text: String| {
            let field = |line: &str| line.split(';').next().unwrap_or_default().to_owned();
            text.lines().skip(1).map(field).collect::<Vec<String>>()
        };
        assert_eq!(names(data(5, 0, 2)), ["user1", "user3", "user5"]);
        assert_eq!(names(data(5, 1, 2)), ["user2", "user4"]);
        assert_eq!(names(data(1, 1, 2)), [] as [&str; 0]);
        let last = "user3;[authentication username=user3 password=secret3];user1";
        assert_eq!(data(3, 0, 1).lines().last(), Some(last));
        assert_eq!(names(data(0, 0, 1)), ["user1"]);
    }
}
