//! The stack as a library, measured without a server: messages parsed and printed, requests and calls between two programs, memory.
//!
//! `strowger lab stack` is the program of the system `strowger-stack`. A calling and an answering side have shards of their own and
//! work as fast as they can: each completed exchange begins the next one, so that [`Setting::outstanding`] exchanges are always in
//! progress. Over TCP each of these exchanges has a connection of its own, whatever the number of threads. An application uses one
//! of these layers:
//!
//! | [`Work`] | request | work of both sides |
//! |---|---|---|
//! | `Stateless` | OPTIONS | parse, check what RFC 3261 makes mandatory, write |
//! | `Transaction` | OPTIONS | the same with client and server transactions |
//! | `Call` | INVITE, ACK, BYE | user agents with dialogs, offer and answer |
//!
//! The unread echo is measured before and after these layers: two threads exchange the same number of datagrams of the same
//! lengths, and read nothing of them.

mod footprint;
mod layer;
mod loaded;
mod messages;
mod pair;
mod party;
mod processes;
mod unread;

pub use footprint::{dialog_bytes, transaction_bytes};
pub use messages::{NORMAL, Parts, SAMPLES, check, read_all};
pub use processes::together;

use crate::Error;
use crate::row::{Figures, UnknownFigure, words};
use std::io::Read;
use std::time::{Duration, Instant};
use strowger_core::Transport;

words! {
    /// Work of the two sides for each exchange.
    Work {
        /// Requests and responses without transactions.
        Stateless = "stateless",
        /// Requests with transactions.
        Transaction = "transaction",
        /// Calls of user agents.
        Call = "call",
    }
}

/// Measurement of two sides.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Work.
    pub work: Work,
    /// Transport: UDP or TCP.
    pub transport: Transport,
    /// Threads of each side.
    pub threads: usize,
    /// True if the same threads call and answer, as in the published test of scalability.
    pub is_itself: bool,
    /// Number of exchanges that are in progress at a time.
    pub outstanding: u32,
    /// Load before the window.
    pub warm_up: Duration,
    /// Window that is measured. If there is an unread echo, half of the window is used for it.
    pub window: Duration,
}

impl Setting {
    /// Returns whether the unread echo is measured too, which needs one thread a side, and datagrams.
    const fn has_unread(&self) -> bool {
        self.threads == 1 && !self.is_itself && matches!(self.transport, Transport::Udp)
    }
}

/// Measures two sides.
///
/// Figures: `rate.achieved`, `attempts` and `failed`; the CPU of an exchange as `server.cpu.call` of the answering side and
/// `generator.cpu.call` of the calling side, or as the sum of both if the same threads do both; by UDP with one thread a side also
/// `echo.rate` and `echo.ratio`.
///
/// # Errors
/// A socket or thread cannot be created, or so many exchanges are lost that fewer are in progress than the setting demands.
pub fn exchanges(setting: &Setting) -> Result<Figures, Error> {
    let part = setting.window / if setting.has_unread() { 4 } else { 1 };
    let mut unread = Vec::new();
    let mut measure_unread = || -> Result<(), Error> {
        if setting.has_unread() {
            unread.push(unread::rate(setting.work, setting.outstanding, part)?);
        }
        Ok(())
    };
    measure_unread()?;
    let window = if setting.has_unread() { part * 2 } else { part };
    let pair = pair::Pair::start(setting)?;
    let measured = pair.measure(setting, window);
    drop(pair);
    let measured = measured?;
    measure_unread()?;
    let mut figures = Figures::default();
    let rate = measured.rate();
    set(&mut figures, "rate.achieved", rate)?;
    set(&mut figures, "attempts", measured.completed as f64)?;
    set(&mut figures, "failed", measured.failed as f64)?;
    for (name, cpu) in [("server.cpu.call", measured.answering), ("generator.cpu.call", measured.calling)] {
        if let Some(cpu) = cpu {
            set(&mut figures, name, cpu.as_secs_f64() * 1e6 / measured.completed as f64)?;
        }
    }
    if !unread.is_empty() {
        let echo = unread.iter().sum::<f64>() / unread.len() as f64;
        set(&mut figures, "echo.rate", echo)?;
        set(&mut figures, "echo.ratio", echo / rate * 100.0)?;
    }
    Ok(figures)
}

/// Measures for this time how many messages one core parses and prints in a second.
///
/// # Errors
/// A message is read wrongly.
pub fn parse_and_print(time: Duration) -> Result<Figures, Error> {
    let rates = messages::rates(time).map_err(|reason| Error::Unexpected { what: "the parser".into(), reason })?;
    let mut figures = Figures::default();
    for (name, rate) in ["parse.rate", "print.rate"].into_iter().zip(rates) {
        set(&mut figures, name, rate)?;
    }
    Ok(figures)
}

/// Bytes of the begin of a program that has its program headers.
const HEADERS: u64 = 1 << 16;

/// Measures the size of this program as it is loaded, and the memory of a transaction and of a dialog.
///
/// # Errors
/// The program cannot be read, or is no ELF file of 64 bits.
pub fn footprint() -> Result<Figures, Error> {
    let program = std::env::current_exe()
        .map_err(|source| Error::NotStarted { name: "this program, which has no path".into(), source })?;
    let mut begin = Vec::new();
    let file = std::fs::File::open(&program).map_err(Error::file(&program))?;
    file.take(HEADERS).read_to_end(&mut begin).map_err(Error::file(&program))?;
    let foreign =
        || Error::Unexpected { what: program.display().to_string(), reason: "it is no ELF file of 64 bits".into() };
    let size = loaded::loaded_size(&begin).ok_or_else(foreign)?;
    let mut figures = Figures::default();
    set(&mut figures, "program.size", size as f64)?;
    set(&mut figures, "transaction.bytes", transaction_bytes())?;
    set(&mut figures, "dialog.bytes", dialog_bytes())?;
    Ok(figures)
}

fn set(figures: &mut Figures, name: &str, value: f64) -> Result<(), Error> {
    figures
        .set(name, value)
        .map_err(|error: UnknownFigure| Error::Unexpected { what: "the stack".into(), reason: error.to_string() })
}

/// Waits for a condition, until this moment at most. Returns whether the condition became true.
fn wait_until(end: Instant, is_so: impl Fn() -> bool) -> bool {
    while !is_so() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
