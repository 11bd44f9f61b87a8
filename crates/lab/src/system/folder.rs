//! Folder of a system: shipped, or a user's.

use super::driver::FILE;
use super::{DriverFile, SHIPPED, Scenario};
use crate::Error;
use crate::backend::run;
use crate::row::Digest;
use crate::system::running::fill_words;
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::Command;
use strowger_config::nearest;

/// Port of an external system whose address names none.
const SIP_PORT: u16 = 5060;

/// System under test as its folder describes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct SystemFolder {
    /// Name of the folder.
    name: String,
    driver: DriverFile,
    /// Files of the folder: name and text.
    files: Vec<(String, String)>,
    /// Program in place of the one in `PATH`.
    program: Option<PathBuf>,
    /// Address of an external system.
    address: Option<SocketAddr>,
}

/// System on its way to another machine.
#[derive(Serialize, Deserialize)]
struct Parts {
    name: String,
    files: Vec<(String, String)>,
    program: Option<PathBuf>,
    address: Option<SocketAddr>,
}

impl From<SystemFolder> for Parts {
    fn from(system: SystemFolder) -> Self {
        let SystemFolder { name, files, program, address, .. } = system;
        Self { name, files, program, address }
    }
}

impl TryFrom<Parts> for SystemFolder {
    type Error = Error;

    fn try_from(parts: Parts) -> Result<Self, Error> {
        let Parts { name, files, program, address } = parts;
        let system = Self::read(&name, FILE, files)?;
        Ok(Self { program, address, ..system })
    }
}

impl SystemFolder {
    /// Opens a system. `driver` is the name of a shipped folder, as in [`crate::experiment::SystemSpec::driver`]. `given` is the path in
    /// `--system NAME=PATH`: a folder with a `driver.toml`, or the program of a shipped driver; for an external system it is the
    /// address.
    ///
    /// # Errors
    /// There is no such driver, folder or program, or its `driver.toml` has faults.
    pub fn open(driver: &str, given: Option<&str>) -> Result<Self, Error> {
        let Some(given) = given else {
            let system = Self::shipped(driver)?;
            return match system.driver.external {
                true => Err(wrong(driver, "a server that runs already needs its address", "external=HOST:PORT")),
                false => Ok(system),
            };
        };
        let path = Path::new(given);
        if path.is_dir() {
            return Self::of_folder(path);
        }
        if path.exists() {
            let system = Self::shipped(driver)?;
            if system.driver.external {
                return Err(wrong(driver, "a server that runs already has no program", "external=HOST:PORT"));
            }
            let program = path.canonicalize().map_err(Error::file(path))?;
            return Ok(Self { program: Some(program), ..system });
        }
        let address = resolve(given).ok_or_else(|| {
            wrong(driver, &format!("{given} is neither a file nor a folder"), "NAME=PATH, or external=HOST:PORT")
        })?;
        let system = Self::shipped("external")?;
        Ok(Self { name: driver.to_owned(), address: Some(address), ..system })
    }

    /// Opens the shipped system of this name.
    fn shipped(name: &str) -> Result<Self, Error> {
        let Some((name, files)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) else {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            let cure = match nearest(name, names.iter().copied()) {
                Some(near) => format!("write {near}"),
                None => format!("write one of {}, or {name}=FOLDER with a {FILE}", names.join(", ")),
            };
            return Err(Error::Unexpected {
                what: format!("system {name}"),
                reason: format!("no driver has this name: {cure}"),
            });
        };
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Self::read(name, &format!("{name}/{FILE}"), files)
    }

    fn of_folder(folder: &Path) -> Result<Self, Error> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(Error::file(folder))? {
            let path = entry.map_err(Error::file(folder))?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            // A file that is no text has no marks, and is no configuration that a start writes.
            if let (Some(name), Ok(text)) = (name, std::fs::read_to_string(&path)) {
                files.push((name, text));
            }
        }
        files.sort();
        let name = folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        Self::read(&name.unwrap_or_default(), &folder.join(FILE).display().to_string(), files)
    }

    fn read(name: &str, file: &str, files: Vec<(String, String)>) -> Result<Self, Error> {
        let Some((_, text)) = files.iter().find(|(name, _)| name == FILE) else {
            let reason =
                format!("the folder has no {FILE}: write one; `strowger lab show kamailio` prints that of Kamailio");
            return Err(Error::Unexpected { what: format!("system {name}"), reason });
        };
        let driver = DriverFile::read(file, text, &files).map_err(|report| Error::Faulty(Box::new(report)))?;
        Ok(Self { name: name.to_owned(), driver, files, program: None, address: None })
    }

    /// Returns the name of the folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the contents of `driver.toml`.
    pub const fn driver(&self) -> &DriverFile {
        &self.driver
    }

    /// Returns the address of an external system.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the program that the command line named.
    pub(crate) fn given_program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    /// Sets the program.
    pub(crate) fn set_program(&mut self, program: PathBuf) {
        self.program = Some(program);
    }

    /// Returns the files of the folder, including `driver.toml`: name and text with marks.
    pub fn files(&self) -> &[(String, String)] {
        &self.files
    }

    /// Returns `driver.toml` and the files of these scenarios, name and text with marks, in the order of the folder.
    pub fn files_of(&self, scenarios: &[&str]) -> Vec<(&str, &str)> {
        let used = || self.driver.scenarios.iter().filter(|scenario| scenarios.contains(&scenario.name.as_str()));
        let names: Vec<&String> =
            used().flat_map(|scenario| scenario.configuration.iter().chain(&scenario.files)).collect();
        let is_used = |name: &String| name == FILE || names.contains(&name);
        let files = self.files.iter().filter(|(name, _)| is_used(name));
        files.map(|(name, text)| (name.as_str(), text.as_str())).collect()
    }

    /// Returns the text of a file with its marks.
    pub(super) fn file(&self, name: &str) -> Option<&str> {
        self.files.iter().find(|(file, _)| file == name).map(|(_, text)| text.as_str())
    }

    /// Returns the scenario of this name. An external system has no scenarios, and accepts every name.
    pub fn scenario(&self, name: &str) -> Option<&Scenario> {
        self.driver.scenarios.iter().find(|scenario| scenario.name == name)
    }

    /// Returns the program to start: the given one, this process's own program if it has the name, or the one in
    /// `PATH`.
    ///
    /// # Errors
    /// The program is not installed.
    pub fn program(&self) -> Result<PathBuf, Error> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        let name = Path::new(&self.driver.program);
        if let Some(own) = std::env::current_exe().ok().filter(|own| own.file_name() == Some(name.as_os_str())) {
            return Ok(own);
        }
        let found = crate::program::in_path(&self.driver.program);
        found.ok_or_else(|| Error::Unexpected {
            what: format!("system {}", self.name),
            reason: match self.driver.package.as_str() {
                "" => {
                    format!("{} is in no folder of PATH: name it by --system {}=PATH", self.driver.program, self.name)
                }
                package => format!("{} is not installed: apt-get install {package}", self.driver.program),
            },
        })
    }

    /// Returns the first line of the program's output about its version, or the address of an external system.
    ///
    /// # Errors
    /// The program is missing or fails.
    pub fn version(&self) -> Result<String, Error> {
        if let Some(address) = self.address {
            return Ok(format!("external at {address}"));
        }
        let program = self.program()?;
        let values = [("PROGRAM", program.display().to_string())];
        let words = fill_words(&self.driver.version, &[], &values)?;
        let Some((first, others)) = words.split_first() else { return Ok("unknown".to_owned()) };
        let said = run(&self.name, Command::new(first).args(others))?;
        Ok(said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown").to_owned())
    }

    /// Hashes everything that a start with this scenario depends on, except ports and folders: commands, and files with their marks.
    pub fn digest(&self, scenario: &str) -> Digest {
        let mut parts: Vec<&str> = self.driver.start.iter().chain(&self.driver.measure).map(String::as_str).collect();
        if let Some(scenario) = self.scenario(scenario) {
            let commands = scenario.first.iter().flatten().chain(&scenario.words).map(String::as_str);
            let files = scenario.configuration.iter().chain(&scenario.files);
            parts.extend(commands.chain(files.filter_map(|name| self.file(name))));
        }
        Digest::of(parts.join("\n").as_bytes())
    }

    /// Writes all files of the system below this folder, which is made if it is missing: `driver.toml` and configurations with their marks.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
        for (name, text) in &self.files {
            let file = folder.join(name);
            std::fs::write(&file, text).map_err(Error::file(&file))?;
        }
        Ok(())
    }
}

fn wrong(driver: &str, reason: &str, cure: &str) -> Error {
    Error::Unexpected { what: format!("system {driver}"), reason: format!("{reason}: write --system {cure}") }
}

/// Resolves the address of `HOST`, `HOST:PORT` or a SIP URI with one of these.
fn resolve(text: &str) -> Option<SocketAddr> {
    let text = text.strip_prefix("sip:").unwrap_or(text);
    let with_port = text.to_socket_addrs().ok().and_then(|mut found| found.next());
    with_port.or_else(|| (text, SIP_PORT).to_socket_addrs().ok()?.next())
}
