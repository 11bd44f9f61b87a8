//! Site: a system that runs, and the generator in front of it.

use super::credentials::Credentials;
use super::own_side::copy_small_files;
use super::side::ServerSide;
use crate::document::user;
use crate::experiment::Axes;
use crate::generator::Generator;
use crate::{Error, port};
use std::path::{Path, PathBuf};

/// Site of a system. When it is dropped, all its processes end and its files are removed.
#[derive(Debug)]
pub(super) struct Site {
    /// Name of the system.
    pub(super) name: String,
    pub(super) axes: Axes,
    pub(super) repetition: u32,
    // Dropped in this order.
    pub(super) clients: Vec<Generator>,
    pub(super) side: Box<dyn ServerSide>,
    /// Number of workers that the system was given, or `None` if its configuration sets the number.
    pub(super) workers: Option<u32>,
    /// Processor time of the system, in per cent of one core. `None`: no limit.
    pub(super) quota: Option<u32>,
    /// Number of users whose callers send credentials with their first INVITE; 0 for none.
    pub(super) provers: u32,
    pub(super) credentials: Option<Credentials>,
    /// Files of the site.
    pub(super) folder: Folder,
    /// True if the configuration of the system is kept in the folder of a trial.
    pub(super) is_kept: bool,
    /// True once a trial has loaded it.
    pub(super) is_loaded: bool,
    /// True if the system must lose no media packet.
    pub(super) is_lossless: bool,
}

/// Folder that is removed with its value.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What remains lies in a temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Site {
    /// Writes credentials for this number of calls into the data of callers. Users take turns, and each call uses the
    /// nonce of its user once more.
    pub(super) fn prepare_credentials(&mut self, calls: f64) -> Result<(), Error> {
        if self.provers == 0 {
            return Ok(());
        }
        let server = self.side.addresses()[0].port();
        let credentials = match self.credentials.take() {
            Some(credentials) => credentials,
            None => Credentials::ask(server, port::free(), self.provers)?,
        };
        let credentials = self.credentials.insert(credentials);
        let mut data = String::from("SEQUENTIAL\n");
        for _ in 0..(calls / f64::from(self.provers)).ceil().max(1.0) as u64 {
            for (number, line) in (1..).zip(credentials.next(server)?) {
                let ((name, password), (callee, _)) = (user(number), user(number % self.provers + 1));
                data.push_str(&format!(
                    "{name};[authentication username={name} password={password}];{callee};{line}\n"
                ));
            }
        }
        for client in &self.clients {
            std::fs::write(client.data(), &data).map_err(Error::file(client.data()))?;
        }
        Ok(())
    }

    /// Keeps the output of the server with a trial, and its files and documents with the first one.
    pub(super) fn keep(&mut self, trial: &Path) -> Result<(), Error> {
        if !self.is_kept {
            self.side.keep(&trial.join("system"))?;
            copy_small_files(&self.folder.0.join("generator"), &trial.join("documents"))?;
            self.is_kept = true;
        }
        let output = trial.join("output.log");
        std::fs::write(&output, self.side.tail()?).map_err(Error::file(&output))
    }
}
