//! Agent: the end of a connection on a host. The agent starts, samples and ends programs there for a laboratory on another machine.
//!
//! If its input closes, or receives nothing for [`SILENCE`], the laboratory or the link is lost, and the agent ends everything that it
//! started. The [guard](crate::guard) of the agent does the same if the agent itself is killed.

use super::protocol::{Request, read, write};
use super::{Greeting, SILENCE};
use crate::capacity::is_of_this_machine;
use crate::doctor::{self, Finding, Grade, Kernel};
use crate::process::{self, Process};
use crate::row::Digest;
use crate::run::{HostedSides, Machine};
use crate::{Error, port};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two looks for silence.
const STEP: Duration = Duration::from_millis(500);

/// Time for the end of programs, after which the process ends in any case.
const END: Duration = Duration::from_secs(5);

/// Serves a laboratory until its input closes. `program`: this program; `scratch`: a temporary folder, which is removed.
///
/// # Errors
/// The program cannot be read, or no thread be started.
pub fn serve(
    program: &Path,
    scratch: &Path,
    input: impl Read + Send + 'static,
    mut output: impl Write,
) -> Result<(), Error> {
    let greeting = greeting(program, scratch)?;
    let (requests, received) = channel();
    let heard = Arc::new(Mutex::new(Instant::now()));
    let failed = |source| Error::NotStarted { name: "the agent".into(), source };
    let ear = Ear { input, heard: Arc::clone(&heard) };
    std::thread::Builder::new()
        .name("ear".into())
        .spawn(move || listen(BufReader::new(ear), &requests))
        .map_err(failed)?;
    let folder = scratch.to_owned();
    std::thread::Builder::new().name("watch".into()).spawn(move || watch(&heard, &folder)).map_err(failed)?;
    let mut agent = Agent {
        program: program.to_owned(),
        scratch: scratch.to_owned(),
        processes: HashMap::new(),
        sides: HostedSides::default(),
    };
    if write(&mut output, &greeting, &[]).is_ok() {
        agent.work(&received, &mut output);
    }
    drop(agent);
    // The laboratory has fetched its files.
    let _ = std::fs::remove_dir_all(scratch);
    Ok(())
}

fn greeting(program: &Path, scratch: &Path) -> Result<Greeting, Error> {
    let bytes = std::fs::read(program).map_err(Error::file(program))?;
    // CLIENT PORT SERVER PORT, as sshd says it.
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    Ok(Greeting {
        program: Digest::of(&bytes),
        scratch: scratch.to_owned(),
        seen_at: connection.split(' ').nth(2).and_then(|address| address.parse().ok()),
        machine: Machine::this(),
    })
}

/// Input that notes when something came.
struct Ear<R> {
    input: R,
    heard: Arc<Mutex<Instant>>,
}

impl<R: Read> Read for Ear<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.input.read(buffer)?;
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(length)
    }
}

type Received = (Request, Vec<u8>);

/// Forwards requests until the input ends. Then ends all programs, and with them every wait for a program.
fn listen(mut input: impl BufRead, requests: &Sender<Received>) {
    while let Ok(Some(request)) = read::<Request>(&mut input) {
        if !matches!(request.0, Request::Alive) && requests.send(request).is_err() {
            break;
        }
    }
    process::end_all();
}

/// Waits for silence, or for the end of the input, and then makes sure of the end.
fn watch(heard: &Mutex<Instant>, scratch: &Path) {
    while !process::is_ending() && heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < SILENCE {
        std::thread::sleep(STEP);
    }
    process::end_all();
    std::thread::sleep(END);
    let _ = std::fs::remove_dir_all(scratch);
    std::process::exit(1);
}

struct Agent {
    program: PathBuf,
    scratch: PathBuf,
    processes: HashMap<u32, Process>,
    sides: HostedSides,
}

impl Agent {
    fn work(&mut self, received: &Receiver<Received>, output: &mut impl Write) {
        while let Ok((request, bytes)) = received.recv() {
            let mut sent = Vec::new();
            let reply = self.answer(request, &bytes, &mut sent).map_err(|error| error.to_string());
            // A laboratory that is gone closes the input, too.
            if write(output, &reply, &sent).is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, request: Request, bytes: &[u8], sent: &mut Vec<u8>) -> Result<Value, Error> {
        match request {
            Request::Alive => json(()),
            Request::Clock => json(micros()),
            Request::Examine => json(limits()),
            Request::Address(to) => json(own_address(to)?),
            Request::Port(ip) if !is_of_this_machine(ip) => {
                let reason = "it is no address of that machine: name another one by HOST=ADDRESS".to_owned();
                Err(Error::Unexpected { what: ip.to_string(), reason })
            }
            Request::Port(ip) => json(port::free_at(ip)),
            Request::Put { file, is_program } => json(self.put(&file, is_program, bytes)?),
            Request::Get(file) => {
                let path = self.scratch.join(file);
                *sent = std::fs::read(&path).map_err(Error::file(&path))?;
                json(())
            }
            Request::Start { number, name, cores, words } => json(self.start(number, &name, &cores, &words)?),
            Request::Listens { number, port, limit } => json(self.process(number)?.listens(port, limit)?),
            Request::Ended(number) => json(self.process(number)?.ended().map(|status| status.to_string())),
            Request::Signal { number, signal } => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.process(number)?.signal(signal);
                }
                json(())
            }
            Request::Tail(number) => json(self.process(number)?.tail()),
            Request::End(number) => {
                self.processes.remove(&number);
                let _ = std::fs::remove_dir_all(super::folder_of(&self.scratch, number));
                json(())
            }
            Request::Side(number, request) => self.sides.answer(number, request, &self.program, &self.scratch, sent),
        }
    }

    fn put(&self, file: &str, is_program: bool, bytes: &[u8]) -> Result<(), Error> {
        let path = self.scratch.join(file);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
        }
        std::fs::write(&path, bytes).map_err(Error::file(&path))?;
        if is_program {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).map_err(Error::file(&path))?;
        }
        Ok(())
    }

    fn start(&mut self, number: u32, name: &str, cores: &[usize], words: &[String]) -> Result<(), Error> {
        let folder = super::folder_of(&self.scratch, number);
        std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let mut command = super::command(&self.program, cores, words);
        let process = Process::start(name, &folder, command.current_dir(&folder))?;
        self.processes.insert(number, process);
        Ok(())
    }

    fn process(&mut self, number: u32) -> Result<&mut Process, Error> {
        let unknown = || Error::Unexpected { what: format!("process {number}"), reason: "there is none".into() };
        self.processes.get_mut(&number).ok_or_else(unknown)
    }
}

fn json(value: impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|error| Error::Unexpected { what: "a reply".into(), reason: error.to_string() })
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Returns the settings of this machine that limit or spoil runs.
fn limits() -> Vec<Finding> {
    let mut findings = doctor::kernel(&Kernel::default());
    findings.retain(|finding| finding.grade != Grade::Good);
    findings
}

/// Returns the address from which this machine reaches another one, without sending anything.
pub(super) fn own_address(to: SocketAddr) -> Result<std::net::IpAddr, Error> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let asked = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        socket.local_addr()
    };
    let unreachable = |error: std::io::Error| Error::Unexpected {
        what: format!("the way to {to}"),
        reason: format!("{error}: name another address of that machine by HOST=ADDRESS"),
    };
    asked().map(|address| address.ip()).map_err(unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_address_is_on_the_way() {
        for to in ["127.0.0.1:9", "[::1]:9"] {
            let address = own_address(to.parse().expect("an address")).expect("loopback is there");
            assert!(address.is_loopback(), "{address}");
        }
    }
}
