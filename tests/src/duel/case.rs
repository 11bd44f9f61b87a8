//! Case: a SIPp document whose first comment contains the command line and the script of the peer.
//!
//! ```text
//! <!--
//! About: subject of the case
//! Run: -m 1 -s bob           arguments in addition to addresses, ports and the scenario; `-m 1` by default
//! Address: ::1               address of both sides; 127.0.0.1 by default
//! Role: answers              the program under test is called; otherwise it calls
//! Times: X-Tick, Date        header lines with times: their digits are not compared
//! Limit: 6                   seconds that the program may run after the end of the script; 4 by default
//! File users.csv:            a file in the folder of the program
//! | SEQUENTIAL
//! | alice;secret
//! Peer:                      one command per line, see `peer.rs`
//! await INVITE
//! reply 200
//! -->
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// Parsed case.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of the file, without `.xml`.
    pub name: String,
    /// SIPp document; `None` for a case whose arguments name the scenario.
    pub document: Option<PathBuf>,
    /// Words of the command line.
    pub arguments: Vec<String>,
    /// Address of program and peer.
    pub address: IpAddr,
    /// True if the program waits for calls.
    pub answers: bool,
    /// Names of header lines with times.
    pub times: Vec<String>,
    /// Seconds that the program may run after the end of the script.
    pub limit: u64,
    /// Files beside the program: name and text.
    pub files: Vec<(String, String)>,
    /// Script of the peer.
    pub script: Vec<Line>,
}

/// Line of the peer's script.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Words of the command.
    pub words: Vec<String>,
    /// Lines after `|` that follow it.
    pub text: Vec<String>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            name: String::new(),
            document: None,
            arguments: vec!["-m".into(), "1".into()],
            address: Ipv4Addr::LOCALHOST.into(),
            answers: false,
            times: Vec::new(),
            limit: 4,
            files: Vec::new(),
            script: Vec::new(),
        }
    }
}

impl Case {
    /// Reads a case: `NAME.xml`, or `NAME.case`, which is the comment alone.
    ///
    /// # Panics
    /// The case cannot be read, or contains an unknown line.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut case = Self {
            name: path.file_stem().expect("a file has a name").to_string_lossy().into_owned(),
            ..Self::default()
        };
        let comment = if path.extension().is_some_and(|e| e == "xml") {
            case.document = Some(path.to_path_buf());
            let from = text.find("<!--").expect("a case begins with a comment") + 4;
            let end = text[from..].find("-->").expect("the comment ends");
            &text[from..from + end]
        } else {
            &text
        };
        case.fill(comment);
        case
    }

    fn fill(&mut self, comment: &str) {
        let mut scripted = false;
        for line in comment.lines() {
            if let Some(text) = line.strip_prefix('|') {
                let text = text.strip_prefix(' ').unwrap_or(text).to_owned();
                if scripted {
                    self.script.last_mut().expect("text belongs to a line").text.push(text);
                } else {
                    let file = self.files.last_mut().expect("text belongs to a file");
                    file.1 += &(text + "\n");
                }
                continue;
            }
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if scripted {
                let words = line.split_whitespace().map(String::from).collect();
                self.script.push(Line { words, text: Vec::new() });
                continue;
            }
            let (key, value) = line.split_once(':').unwrap_or_else(|| panic!("{}: {line}", self.name));
            let value = value.trim();
            match key {
                "About" => (),
                "Run" => self.arguments = words(value),
                "Address" => self.address = value.parse().expect("an address"),
                "Role" => self.answers = value == "answers",
                "Times" => self.times = value.split(',').map(|n| n.trim().to_owned()).collect(),
                "Limit" => self.limit = value.parse().expect("seconds"),
                "Peer" => scripted = true,
                _ => {
                    let name = key.strip_prefix("File ").unwrap_or_else(|| panic!("{}: {line}", self.name));
                    self.files.push((name.into(), String::new()));
                }
            }
        }
    }

    /// Tells whether the transport is TCP: the first letter of SIPp's `-t`.
    pub fn streams(&self) -> bool {
        let at = self.arguments.iter().position(|a| a == "-t");
        at.and_then(|at| self.arguments.get(at + 1)).is_some_and(|t| t.starts_with('t'))
    }

    /// Tells whether calls have sockets of their own: the second letter.
    pub fn is_apart(&self) -> bool {
        let at = self.arguments.iter().position(|a| a == "-t");
        at.and_then(|at| self.arguments.get(at + 1)).is_some_and(|t| t.ends_with('n'))
    }
}

/// Splits a text at blanks; a pair of single quotes preserves blanks, and may be an empty word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        assert_eq!(words("-m 1  -key a 'b c' -key d ''"), ["-m", "1", "-key", "a", "b c", "-key", "d", ""]);
    }

    #[test]
    fn a_comment_is_a_case() {
        let mut case = Case::default();
        case.fill("\nAbout: x\nRun: -t t1\nFile a.csv:\n| SEQUENTIAL\n| b;c\nPeer:\nawait INVITE\nreply 200\n| X: y\n|\n| z\n");
        assert!(case.streams() && !case.answers);
        assert_eq!(case.files, [("a.csv".into(), "SEQUENTIAL\nb;c\n".into())]);
        assert_eq!(case.script[1].words, ["reply", "200"]);
        assert_eq!(case.script[1].text, ["X: y", "", "z"]);
    }
}
