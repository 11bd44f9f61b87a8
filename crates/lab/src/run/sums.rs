//! Hashes of the files of a run, in the form that `sha256sum --check` reads.

use crate::row::Digest;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Format version of a run's folder. Bump on every change that an older reader would misread.
pub const FORMAT: u32 = 1;

/// Hashes of files by path within the folder, with `/` between parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// All trials of the plan were made.
    pub is_whole: bool,
    /// Hash of each file.
    pub files: BTreeMap<String, Digest>,
}

const PART: &str = "part";
const WHOLE: &str = "whole";
const PREFIX: &str = "sha256:";
/// Begin of the last line, which has the hash of all bytes before it.
const SEAL: &str = "# sha256 of the lines above: ";

impl Sums {
    fn heading(is_whole: bool) -> String {
        format!("# strowger lab run, format {FORMAT}, {}\n", if is_whole { WHOLE } else { PART })
    }

    /// Reads the text of the file. Every byte is significant: another text of the same content is refused.
    ///
    /// # Errors
    /// A sentence about the first line that is not as this program writes it.
    pub fn read(text: &str) -> Result<Self, String> {
        let sums = Self::parse(text)?;
        if sums.to_string() == text { Ok(sums) } else { Err("it was changed after it was written".into()) }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let heading = lines.next().unwrap_or_default();
        let is_whole = match heading.rsplit_once(", ") {
            Some((start, state @ (PART | WHOLE))) if Self::heading(state == WHOLE).starts_with(start) => state == WHOLE,
            _ => return Err(format!("line 1 is no heading of format {FORMAT}: {heading:?}")),
        };
        let mut files = BTreeMap::new();
        for (number, line) in (2..).zip(lines) {
            if line.starts_with('#') {
                continue;
            }
            let entry = line.split_once("  ").filter(|(_, path)| is_path(path));
            let entry = entry.and_then(|(hash, path)| Some((path, Digest::try_from(format!("{PREFIX}{hash}")).ok()?)));
            let Some((path, hash)) = entry else {
                return Err(format!("line {number} is no hash and path: {line:?}"));
            };
            files.insert(path.to_owned(), hash);
        }
        Ok(Self { is_whole, files })
    }
}

/// Tells whether a path stays within the folder.
fn is_path(path: &str) -> bool {
    path.split('/').all(|part| !matches!(part, "" | "." | "..")) && !path.contains('\\')
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Self::heading(self.is_whole);
        for (path, hash) in &self.files {
            writeln!(text, "{}  {path}", digits(hash))?;
        }
        let seal = digits(&Digest::of(text.as_bytes()));
        writeln!(f, "{text}{SEAL}{seal}")
    }
}

fn digits(hash: &Digest) -> String {
    hash.to_string().trim_start_matches(PREFIX).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_changed_byte_is_refused() {
        let mut sums = Sums::default();
        sums.files.insert("rows.jsonl".into(), Digest::of(b"rows"));
        sums.files.insert("trials/0001/samples.log".into(), Digest::of(b"samples"));
        let text = sums.to_string();
        assert_eq!(Sums::read(&text), Ok(sums));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(String::from_utf8(bytes).is_ok_and(|changed| Sums::read(&changed).is_err()), "byte {at}");
            assert!(Sums::read(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_path_stays_within_the_folder() {
        for path in ["../rows.jsonl", "/etc/passwd", "trials//a", "./a", ""] {
            assert!(!is_path(path), "{path}");
        }
        let mut sums = Sums::default();
        sums.files.insert("../a".into(), Digest::of(b""));
        assert!(Sums::read(&sums.to_string()).is_err());
    }
}
