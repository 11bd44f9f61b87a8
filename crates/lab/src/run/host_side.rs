//! Server's side on a host, where the agent has an [`OwnSide`] and answers requests for it.

use super::chosen;
use super::own_side::OwnSide;
use super::side::{ServerSide, SideMemory, SideOrder, SideRequest, Watched, Work};
use super::validity::Accounting;
use crate::Error;
use crate::host::{Ahead, Host};
use crate::row::Digest;
use crate::system::SystemFolder;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Server's side on a host.
#[derive(Debug)]
pub(super) struct HostSide {
    host: Arc<Host>,
    number: u32,
    addresses: Vec<SocketAddr>,
    /// Path of the samples on this machine, and the clock of the host when they began.
    samples: Option<(PathBuf, Ahead)>,
}

impl HostSide {
    pub(super) fn start(mut order: SideOrder, host: &Arc<Host>) -> Result<Self, Error> {
        if let Work::System { system, .. } = &mut order.work {
            send_program(system, host)?;
        }
        let number = host.number();
        let addresses = host.side(number, SideRequest::Start(Box::new(order)))?.0;
        Ok(Self { host: Arc::clone(host), number, addresses, samples: None })
    }

    fn ask<T: DeserializeOwned>(&self, request: SideRequest) -> Result<T, Error> {
        self.host.side(self.number, request).map(|(reply, _)| reply)
    }
}

/// Sends the program that the command line named in place of the one of the driver.
fn send_program(system: &mut SystemFolder, host: &Host) -> Result<(), Error> {
    if let Some(program) = system.given_program() {
        let program = host.send(program, true)?;
        system.set_program(program);
    }
    Ok(())
}

/// Returns the version of a system on a host, and the hash of its program.
pub(super) fn describe(system: &SystemFolder, host: &Host) -> Result<(String, Option<Digest>), Error> {
    let mut system = system.clone();
    send_program(&mut system, host)?;
    Ok(host.side(0, SideRequest::Describe(Box::new(system)))?.0)
}

/// Returns the versions of these databases and caches on a host.
pub(super) fn versions(names: Vec<String>, host: &Host) -> Result<BTreeMap<String, String>, Error> {
    Ok(host.side(0, SideRequest::Versions(names))?.0)
}

impl ServerSide for HostSide {
    fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    fn begin(&mut self, samples: &Path, rate: u32) -> Result<(), Error> {
        let ahead = self.host.ahead()?;
        self.samples = Some((samples.to_owned(), ahead));
        self.ask(SideRequest::Begin { rate, ahead: ahead.micros })
    }

    fn finish(&mut self) -> Result<Watched, Error> {
        let (mut watched, bytes): (Watched, Vec<u8>) = self.host.side(self.number, SideRequest::Finish)?;
        if let Some((path, before)) = self.samples.take() {
            std::fs::write(&path, bytes).map_err(Error::file(&path))?;
            let changed = self.host.ahead()?.changed(before);
            watched.clock = changed.map(|sentence| format!("{}: {sentence}", self.host.name()));
        }
        Ok(watched)
    }

    fn memory(&mut self) -> Result<SideMemory, Error> {
        self.ask(SideRequest::Memory)
    }

    fn kill(&mut self, silent: bool) -> Result<(), Error> {
        self.ask(SideRequest::Kill { silent })
    }

    fn start_again(&mut self) -> Result<(), Error> {
        self.ask(SideRequest::Again)
    }

    fn ended(&mut self) -> Result<Option<String>, Error> {
        self.ask(SideRequest::Ended)
    }

    fn tail(&mut self) -> Result<String, Error> {
        self.ask(SideRequest::Tail)
    }

    fn empty_accounting(&mut self) -> Result<(), Error> {
        self.ask(SideRequest::Empty)
    }

    fn accounting(&mut self, completed: u64, failed: u64) -> Result<Option<Accounting>, Error> {
        self.ask(SideRequest::Accounting { completed, failed })
    }

    fn keep(&mut self, folder: &Path) -> Result<(), Error> {
        let (files, bytes): (Vec<(PathBuf, usize)>, Vec<u8>) = self.host.side(self.number, SideRequest::Files)?;
        let mut rest = bytes.as_slice();
        for (file, length) in files {
            let Some((own, behind)) = rest.split_at_checked(length) else { break };
            let path = folder.join(file);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
            }
            std::fs::write(&path, own).map_err(Error::file(&path))?;
            rest = behind;
        }
        Ok(())
    }
}

impl Drop for HostSide {
    fn drop(&mut self) {
        // If the connection is gone, the agent ends the server.
        let _ = self.ask::<()>(SideRequest::Stop);
    }
}

/// Server that runs already, and is sampled on its host.
#[derive(Debug)]
pub(crate) struct FarServer(HostSide);

impl FarServer {
    /// Finds the processes of the server.
    pub(crate) fn find(at: SocketAddr, host: &Arc<Host>) -> Result<Self, Error> {
        let order = SideOrder { work: Work::External(at), address: at.ip(), cores: Vec::new(), quota: None };
        HostSide::start(order, host).map(Self)
    }

    /// Begins samples, which [`FarServer::finish`] leaves at this path.
    pub(crate) fn begin(&mut self, samples: &Path, rate: u32) -> Result<(), Error> {
        self.0.begin(samples, rate)
    }

    /// Ends the samples. Returns a sentence about the clock if it was set meanwhile.
    pub(crate) fn finish(&mut self) -> Result<Option<String>, Error> {
        self.0.finish().map(|watched| watched.clock)
    }
}

/// Sides of an agent, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct HostedSides(HashMap<u32, OwnSide>);

impl HostedSides {
    /// Answers a request about a side. `sent`: bytes after the reply. `program`: this program.
    pub(crate) fn answer(
        &mut self,
        number: u32,
        request: SideRequest,
        program: &Path,
        scratch: &Path,
        sent: &mut Vec<u8>,
    ) -> Result<Value, Error> {
        let folder = scratch.join(format!("side-{number}"));
        let samples = folder.join("samples.log");
        let wall = |ahead: i64| {
            let by = Duration::from_micros(ahead.unsigned_abs());
            if ahead < 0 { SystemTime::now() + by } else { SystemTime::now() - by }
        };
        match request {
            SideRequest::Start(order) => {
                let side = OwnSide::start(&order, program, &folder)?;
                if !side.is_seen() {
                    let what = format!("the server at {}", side.addresses()[0]);
                    let reason = "no process that this login may see has bound its port: log in as its user or as root";
                    return Err(Error::Unexpected { what, reason: reason.into() });
                }
                let addresses = side.addresses().to_vec();
                self.0.insert(number, side);
                json(addresses)
            }
            SideRequest::Describe(system) => json(chosen::identify(&system)?),
            SideRequest::Versions(names) => json(chosen::versions_of(&names)),
            SideRequest::Stop => {
                self.0.remove(&number);
                let _ = std::fs::remove_dir_all(&folder);
                json(())
            }
            other => {
                let unknown = || Error::Unexpected { what: format!("side {number}"), reason: "there is none".into() };
                let side = self.0.get_mut(&number).ok_or_else(unknown)?;
                match other {
                    SideRequest::Begin { rate, ahead } => json(side.begin_by(&samples, rate, wall(ahead))?),
                    SideRequest::Finish => {
                        let watched = side.finish()?;
                        *sent = std::fs::read(&samples).map_err(Error::file(&samples))?;
                        json(watched)
                    }
                    SideRequest::Memory => json(side.memory()?),
                    SideRequest::Kill { silent } => json(side.kill(silent)?),
                    SideRequest::Again => json(side.start_again()?),
                    SideRequest::Ended => json(side.ended()?),
                    SideRequest::Tail => json(side.tail()?),
                    SideRequest::Empty => json(side.empty_accounting()?),
                    SideRequest::Accounting { completed, failed } => json(side.accounting(completed, failed)?),
                    _ => files(side, &folder.join("system"), sent),
                }
            }
        }
    }
}

/// Returns the names and lengths of the small files of a server, and appends their bytes to `sent`.
fn files(side: &OwnSide, root: &Path, sent: &mut Vec<u8>) -> Result<Value, Error> {
    let mut found = Vec::new();
    for file in side.files() {
        let bytes = std::fs::read(&file).map_err(Error::file(&file))?;
        found.push((file.strip_prefix(root).unwrap_or(&file).to_owned(), bytes.len()));
        sent.extend_from_slice(&bytes);
    }
    json(found)
}

fn json(value: impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Unexpected { what: "a reply".into(), reason: error.to_string() })
}
