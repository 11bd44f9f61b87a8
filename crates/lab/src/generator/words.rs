//! Words of a command of the generator.

use crate::host::{Ahead, Word};
use std::path::Path;

/// Words of a command of the generator, as they are put together.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<Word>);

impl Words {
    pub(super) fn text<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> &mut Self {
        self.0.extend(words.into_iter().map(|word| Word::Text(word.to_owned())));
        self
    }

    /// Adds the path of a file that the program reads, with a text behind the path.
    pub(super) fn input(&mut self, file: &Path, behind: &str) -> &mut Self {
        self.0.push(Word::Input(file.to_owned(), behind.to_owned()));
        self
    }

    /// Adds the path of a file that the program writes.
    pub(super) fn output(&mut self, file: &Path) -> &mut Self {
        self.0.push(Word::Output(file.to_owned()));
        self
    }

    /// Adds the correction of the clock of another machine.
    pub(super) fn clock(&mut self, ahead: Option<Ahead>) -> &mut Self {
        match ahead {
            Some(ahead) => self.text(["--clock-ahead", &ahead.micros.to_string()]),
            None => self,
        }
    }
}

impl std::ops::Deref for Words {
    type Target = [Word];

    fn deref(&self) -> &[Word] {
        &self.0
    }
}
