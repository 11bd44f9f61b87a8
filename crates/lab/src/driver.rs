//! How a system under test is started, and what it costs.

use crate::backend::run;
use crate::process::Process;
use crate::program::KAMAILIO;
use crate::system::marks;
use crate::{Error, port};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use strowger_measure::process::{Usage, pss_of_tree};

/// How long one may take until it listens.
const START: Duration = Duration::from_secs(20);

/// A kind of server that can be tested.
#[derive(Clone, Debug)]
pub enum Driver {
    /// Ours.
    Strowger {
        /// The program.
        program: PathBuf,
    },
    /// The installed Kamailio.
    Kamailio {
        /// Processes that read its UDP socket.
        children: u8,
    },
    /// Any other, by the words of its command line.
    Other {
        /// What it is called in reports.
        name: String,
        /// Its program and arguments: `@CONFIG@` is the file of its configuration, `@FOLDER@` a folder of its own, `@PORT@` its port.
        words: Vec<String>,
    },
}

/// What a system under test is started with.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// Its text, with marks such as `@PORT@`.
    pub text: String,
    /// Definitions of Kamailio's preprocessor.
    pub defines: Vec<&'static str>,
    /// What stands in the text in place of further marks: name and value.
    pub values: Vec<(&'static str, String)>,
    /// What our program does first with this configuration, as words of its command line; nothing where there are none.
    pub first: &'static [&'static str],
}

/// A server that runs. When it is dropped it is ended.
#[derive(Debug)]
pub struct SystemUnderTest {
    process: Process,
    port: u16,
}

impl Driver {
    /// What it is called in reports.
    pub fn name(&self) -> &str {
        match self {
            Self::Strowger { .. } => "strowger",
            Self::Kamailio { .. } => "kamailio",
            Self::Other { name, .. } => name,
        }
    }

    /// Starts it in this folder, on a free port of 127.0.0.1 for UDP.
    ///
    /// # Errors
    /// It is not installed, its configuration has a mark without a value, or it does not come to listen.
    pub fn start(&self, folder: &Path, configuration: &Configuration) -> Result<SystemUnderTest, Error> {
        let port = port::free();
        let mut values = configuration.values.clone();
        values.push(("PORT", port.to_string()));
        if let Self::Kamailio { children } = self {
            values.push(("WORKERS", children.to_string()));
        }
        let file = folder.join(match self {
            Self::Strowger { .. } => "strowger.toml",
            Self::Kamailio { .. } => "kamailio.cfg",
            Self::Other { .. } => "configuration",
        });
        std::fs::write(&file, fill(&configuration.text, &values)?).map_err(Error::file(&file))?;
        let mut command = match self {
            Self::Strowger { program } => {
                if !configuration.first.is_empty() {
                    let mut command = Command::new(program);
                    run(self.name(), command.args(configuration.first).arg("--config").arg(&file).current_dir(folder))?;
                }
                let mut command = Command::new(program);
                command.args(["serve", "--config"]).arg(&file);
                command
            }
            Self::Kamailio { .. } => {
                let mut command = Command::new(KAMAILIO.find()?);
                // As much memory as it wants, shared and of each process.
                command.args(["-DD", "-E", "-m", "2048", "-M", "64", "-Y"]).arg(folder).arg("-f").arg(&file);
                configuration.defines.iter().for_each(|define| {
                    command.args(["-A", define]);
                });
                command
            }
            Self::Other { words, .. } => {
                values.push(("CONFIG", file.display().to_string()));
                values.push(("FOLDER", folder.display().to_string()));
                let words = words.iter().map(|word| fill(word, &values)).collect::<Result<Vec<_>, _>>()?;
                let mut words = words.into_iter();
                let mut command = Command::new(words.next().unwrap_or_default());
                command.args(words);
                command
            }
        };
        let mut process = Process::start(self.name(), folder, command.current_dir(folder))?;
        process.listens(port, START)?;
        Ok(SystemUnderTest { process, port })
    }
}

impl SystemUnderTest {
    /// Of 127.0.0.1, for UDP.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Processor time that it used so far.
    pub fn usage(&self) -> Usage {
        Usage::of_tree(self.process.id())
    }

    /// Its memory now, in bytes.
    pub fn pss(&self) -> u64 {
        pss_of_tree(self.process.id())
    }

    /// The last lines that it printed.
    pub fn tail(&self) -> String {
        self.process.tail()
    }
}

/// Puts values in place of marks: `@NAME@`, in capital letters. Only those of the text are looked at, not those that values bring.
///
/// # Errors
/// The text has a mark without a value.
pub fn fill(text: &str, values: &[(&str, String)]) -> Result<String, Error> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('@') {
        filled.push_str(before);
        match behind.split_once('@').filter(|(name, _)| marks::is_name(name)) {
            Some((name, behind)) => {
                let value = values.iter().find(|(known, _)| *known == name).ok_or_else(|| Error::Unexpected {
                    what: "a configuration".into(),
                    reason: format!("@{name}@ has no value"),
                })?;
                filled.push_str(&value.1);
                rest = behind;
            }
            None => {
                filled.push('@');
                rest = behind;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_filled_and_other_signs_left() {
        let values = [("USER", "alice".to_owned()), ("DOMAIN", "@USER@".to_owned())];
        assert_eq!(
            fill("sip:@USER@@@DOMAIN@ a@b @no@", &values).expect("all have values"),
            "sip:alice@@USER@ a@b @no@"
        );
        let error = fill("x @PORT@", &values).expect_err("it has none").to_string();
        assert!(error.contains("@PORT@"), "{error}");
    }

    #[test]
    fn another_server_is_started_by_its_words() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = "import socket,sys,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
                      s.bind(('127.0.0.1',int(open(sys.argv[1]).read())))\ntime.sleep(600)\n";
        let words = ["python3", "-c", script, "@CONFIG@"].map(str::to_owned).to_vec();
        let driver = Driver::Other { name: "python".into(), words };
        let configuration = Configuration { text: "@PORT@".into(), ..Configuration::default() };
        let system = driver.start(folder.path(), &configuration).expect("it starts");
        assert!(system.port() > 0 && system.pss() > 0 && system.usage().total() > Duration::ZERO);
    }
}
