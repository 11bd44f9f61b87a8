//! Programs at a place: their start, their signals, their end and their files.

use super::{Host, command, folder_of};
use crate::Error;
use crate::process::{self, Process};
use crate::wait;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Host of a process.
#[derive(Clone, Debug)]
pub enum ProcessHost {
    /// This machine.
    Here,
    /// Host.
    There(Arc<Host>),
}

/// Argument of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Plain text.
    Text(String),
    /// File that the program reads, and text behind its path.
    Input(PathBuf, String),
    /// File that the program writes.
    Output(PathBuf),
}

/// Parameters for the start of a program.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// Name of the program for people, and of its log.
    pub name: &'a str,
    /// Folder of its log on this machine.
    pub folder: &'a Path,
    /// Program. A host starts its copy of this program.
    pub program: &'a Path,
    /// Cores. Empty for all.
    pub cores: &'a [usize],
    /// Arguments of the command.
    pub words: &'a [Word],
}

/// Program that was started. It ends when it is dropped.
#[derive(Debug)]
pub enum Started {
    /// Process of this machine.
    Here(Process),
    /// Program on a host.
    There(Remote),
}

/// Program on a host.
#[derive(Debug)]
pub struct Remote {
    host: Arc<Host>,
    number: u32,
    name: String,
    /// Folder of its log on this machine.
    folder: PathBuf,
    outputs: Vec<PathBuf>,
}

/// Time between two checks whether a program has ended.
const STEP: Duration = Duration::from_millis(50);

impl ProcessHost {
    /// Sends the files that words name, so that a start is short.
    ///
    /// # Errors
    /// A file cannot be read, or the connection is gone.
    pub fn prepare(&self, words: &[Word]) -> Result<(), Error> {
        if let Self::There(host) = self {
            for word in words {
                if let Word::Input(file, _) = word {
                    host.send(file, false)?;
                }
            }
        }
        Ok(())
    }

    /// Starts a program.
    ///
    /// # Errors
    /// The program does not start, or the connection is gone.
    pub fn start(&self, start: &Start<'_>) -> Result<Started, Error> {
        match self {
            Self::Here => {
                let words: Vec<String> = start.words.iter().map(here).collect();
                let mut command = command(start.program, start.cores, &words);
                Process::start(start.name, start.folder, command.current_dir(start.folder)).map(Started::Here)
            }
            Self::There(host) => {
                let number = host.number();
                let folder = folder_of(&host.greeting.scratch, number);
                let mut words = Vec::new();
                for word in start.words {
                    words.push(there(host, &folder, word)?);
                }
                host.start(number, start.name, start.cores, words)?;
                let outputs = start.words.iter().filter_map(|word| match word {
                    Word::Output(file) => Some(file.clone()),
                    _ => None,
                });
                let (name, local) = (start.name.to_owned(), start.folder.to_owned());
                let outputs = outputs.collect();
                Ok(Started::There(Remote { host: Arc::clone(host), number, name, folder: local, outputs }))
            }
        }
    }
}

/// Returns a word of a command for this machine.
fn here(word: &Word) -> String {
    match word {
        Word::Text(text) => text.clone(),
        Word::Input(file, behind) => format!("{}{behind}", file.display()),
        Word::Output(file) => file.display().to_string(),
    }
}

/// Returns a word of a command for a host, and sends the file that the word names to the host.
fn there(host: &Host, folder: &Path, word: &Word) -> Result<String, Error> {
    Ok(match word {
        Word::Text(text) => text.clone(),
        Word::Input(file, behind) => format!("{}{behind}", host.send(file, false)?.display()),
        Word::Output(file) => folder.join(file.file_name().unwrap_or_default()).display().to_string(),
    })
}

impl Started {
    /// Waits until the program has bound this port.
    ///
    /// # Errors
    /// As [`Process::listens`], and the connection is gone.
    pub fn listens(&mut self, port: u16, limit: Duration) -> Result<(), Error> {
        match self {
            Self::Here(process) => process.listens(port, limit),
            Self::There(remote) => {
                let number = remote.number;
                remote.host.ask(&super::Request::Listens { number, port, limit })
            }
        }
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        match self {
            Self::Here(process) => {
                process.signal(signal);
                Ok(())
            }
            Self::There(remote) => remote.host.signal(remote.number, signal),
        }
    }

    /// Tells whether the program has ended.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn has_ended(&mut self) -> Result<bool, Error> {
        match self {
            Self::Here(process) => Ok(process.ended().is_some()),
            Self::There(remote) => {
                let ended: Option<String> = remote.host.ask(&super::Request::Ended(remote.number))?;
                Ok(ended.is_some())
            }
        }
    }

    /// Waits for the end of the program, so that its files are complete, and copies the files of a host to this
    /// machine.
    ///
    /// # Errors
    /// The program still runs after this time, or the connection is gone.
    pub fn end(&mut self, limit: Duration) -> Result<(), Error> {
        match self {
            Self::Here(process) => process.end(limit).map(drop),
            Self::There(remote) => remote.end(limit),
        }
    }

    /// Returns the last lines that the process printed.
    pub fn tail(&self) -> String {
        match self {
            Self::Here(process) => process.tail(),
            Self::There(remote) => remote.host.ask(&super::Request::Tail(remote.number)).unwrap_or_default(),
        }
    }
}

impl Remote {
    fn end(&self, limit: Duration) -> Result<(), Error> {
        let mut asked = Ok(None);
        let has_ended = wait::until(limit, || {
            asked = self.host.ask::<Option<String>>(&super::Request::Ended(self.number));
            let is_over = process::is_ending() || !matches!(asked, Ok(None));
            if !is_over {
                std::thread::sleep(STEP);
            }
            is_over
        });
        asked?;
        if process::is_ending() {
            return Err(Error::Interrupted);
        }
        if !has_ended {
            let what = format!("{} on {}", self.name, self.host.name());
            return Err(Error::Unexpected { what, reason: format!("it has not ended within {limit:?}") });
        }
        let log = self.folder.join(format!("{}.log", self.name));
        for file in self.outputs.iter().chain([&log]) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let there = folder_of(Path::new(""), self.number).join(&*name);
            match self.host.fetch(&there.display().to_string(), file) {
                // The program has not written this file; the log of the program has the reason.
                Err(Error::Host { reason, .. }) if reason.contains("No such file") => {}
                other => other?,
            }
        }
        Ok(())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // If the connection is gone, the agent ends the program by itself.
        let _ = self.host.ask::<()>(&super::Request::End(self.number));
    }
}
