//! Log lines on standard error, as configured in `[log]`. No thread waits for standard error to accept its lines, see
//! [`queue`].

mod line;
mod plain;
mod queue;

use std::fmt;
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use strowger_config::{Fault, Log, LogFormat, Report, Severity};
use strowger_core::shown::brief;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

use self::queue::{LONGEST_LINE, Queue};

/// Environment variable that overrides `log.level`: a level, or levels of single targets such as `strowger_net=debug`,
/// separated by commas.
pub(crate) const FILTER_VARIABLE: &str = "STROWGER_LOG";

/// Filter of libraries. Libraries log the input of peers without a bound: rustls logs a warning for each ClientHello with an address as
/// server name, the resolver a line for each wrong datagram. This server logs these events itself, within bounds. So a library logs nothing
/// unless its target is named, as in `STROWGER_LOG=rustls=warn`.
const LIBRARIES: &str = "off";
/// Prefix of the targets of this project. A level without a target applies to these.
const OWN: &str = "strowger";

/// Time that the end of the process waits for the last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The log of the process, once it was started.
static STARTED: OnceLock<Started> = OnceLock::new();

struct Started {
    format: LogFormat,
    queue: Arc<Queue>,
    set: SetFilter,
    /// Current level in words, as a command may set it.
    level: Mutex<String>,
}

/// Bytes of lines that may wait for standard error. Lines without room are dropped and counted.
const QUEUE: usize = 1 << 20;

/// Replaces the filter. Returns whether that succeeded.
type SetFilter = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

/// Starts logging for the whole process. A panic is logged too from here on.
///
/// # Errors
/// [`WrongFilter`], or logging that was started before.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = filter(log)?;
    let queue = Queue::to_standard_error(QUEUE, |count, error| {
        let error = error.map(tracing::field::display);
        tracing::warn!(count, error, "suppressed log lines");
    })?;
    let writer = Lines { queue: queue.clone(), format: log.format };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    let set: SetFilter = match log.format {
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let handle = lines.reload_handle();
            lines.finish().try_init()?;
            Box::new(move |filter| handle.reload(filter).is_ok())
        }
        LogFormat::Text => {
            let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let lines = lines.with_ansi(colours).with_target(false);
            match colours {
                true => {
                    let lines = lines.with_filter_reloading();
                    let handle = lines.reload_handle();
                    lines.finish().try_init()?;
                    Box::new(move |filter| handle.reload(filter).is_ok())
                }
                false => {
                    let lines = lines.fmt_fields(plain::Fields).with_timer(plain::Time).with_filter_reloading();
                    let handle = lines.reload_handle();
                    lines.finish().try_init()?;
                    Box::new(move |filter| handle.reload(filter).is_ok())
                }
            }
        }
    };
    let _ = STARTED.set(Started { format: log.format, queue, set, level: Mutex::new(levels(log)) });
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Printing adds the stack to the line, and may wait for its reader.
        if !log_panic(panic) || std::env::var_os("RUST_BACKTRACE").is_some() {
            print(panic);
        }
    }));
    Ok(())
}

/// Error: the log filter of the environment cannot be used.
#[derive(Debug)]
pub(crate) struct WrongFilter {
    text: String,
    wrong: String,
}

impl std::error::Error for WrongFilter {}

impl fmt::Display for WrongFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, wrong } = self;
        write!(
            f,
            "the environment variable {FILTER_VARIABLE} is {text:?}, and {wrong:?} is no level: write error, warn, info, debug, \
             trace, or TARGET=LEVEL such as strowger_net=debug; several with commas between"
        )
    }
}

/// Creates the filter from the environment, else from `log.level`.
///
/// # Errors
/// [`WrongFilter`]. A word that is not a level would count as a target under which nothing logs, and the log would stay
/// empty.
pub(crate) fn filter(log: &Log) -> Result<EnvFilter, WrongFilter> {
    let (text, all) = (environment(), levels(log));
    parse(&all).map_err(|wrong| {
        let wrong = if wrong == all { text.trim().into() } else { wrong };
        WrongFilter { text, wrong }
    })
}

/// Writes the filter as text.
fn levels(log: &Log) -> String {
    match &environment()[..] {
        "" => log.level.word().into(),
        text => format!("{},{text}", log.level.word()),
    }
}

fn environment() -> String {
    std::env::var_os(FILTER_VARIABLE).unwrap_or_default().to_string_lossy().into_owned()
}

/// Parses a filter; the error is the first invalid word.
fn parse(text: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let fits =
        |word: &str| word.is_empty() || word.contains(['=', '[']) || word.starts_with("strowger") || is_level(word);
    let mut words = text.split(',').map(str::trim);
    if let Some(word) = words.find(|word| !fits(word)) {
        return Err(word.into());
    }
    // A later directive overrides an earlier one for the same target.
    let mut directives = LIBRARIES.to_owned();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        directives.push(',');
        if is_level(word) {
            directives.extend([OWN, "="]);
        }
        directives.push_str(word);
    }
    EnvFilter::try_new(directives).map_err(|_| text.trim().into())
}

/// Sets the filter to these words, or returns the current filter if there are none.
///
/// # Errors
/// Words that are not levels, with the first of them.
pub(crate) fn level(text: Option<&str>) -> Result<String, String> {
    let Some(started) = STARTED.get() else { return Err("logging has not started".into()) };
    let mut level = started.level.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = text.map(str::trim) {
        let filter = parse(text).ok().filter(|_| !text.is_empty()).ok_or_else(|| {
            format!(
                "{text:?} is no level: write error, warn, info, debug, trace, or TARGET=LEVEL such as strowger_net=debug; several \
                 with commas between"
            )
        })?;
        if !(started.set)(filter) {
            return Err("the log has ended".into());
        }
        level.replace_range(.., text);
        tracing::info!(level = text, "log level set by command");
    }
    Ok(level.clone())
}

/// Sets the filter of a changed `[log]`, which overrides one that a command set.
pub(crate) fn follow(log: &Log) {
    let Some(started) = STARTED.get() else { return };
    let mut level = started.level.lock().unwrap_or_else(PoisonError::into_inner);
    if filter(log).is_ok_and(|filter| (started.set)(filter)) {
        *level = levels(log);
    }
}

/// Logs a panic. Returns false if errors are not logged.
fn log_panic(panic: &PanicHookInfo<'_>) -> bool {
    let thread = std::thread::current();
    let place = panic.location().map(tracing::field::display);
    let reason = panic.payload_as_str().unwrap_or("unknown");
    tracing::error!(thread = thread.name(), place, reason = %brief(&reason), "panic");
    flush();
    tracing::enabled!(tracing::Level::ERROR)
}

/// Logs the warnings of a configuration, or prints them if the log is for people.
pub(crate) fn report(report: &Report) {
    match STARTED.get() {
        Some(Started { format: LogFormat::Json, .. }) => lines_of(report),
        _ => crate::output::report(report),
    }
}

/// Logs each fault of a configuration, one line each.
pub(crate) fn lines_of(report: &Report) {
    report.faults().iter().for_each(|fault| log_fault(report, fault));
}

fn log_fault(report: &Report, fault: &Fault) {
    let (file, place) = (report.file(), report.position(fault));
    let (line, column) = (place.map(|at| at.0), place.map(|at| at.1));
    let (message, cure) = (&fault.message[..], &fault.cure[..]);
    match fault.severity {
        Severity::Error => tracing::error!(file, line, column, cure, "{message}"),
        Severity::Warning => tracing::warn!(file, line, column, cure, "{message}"),
    }
}

/// Logs the failure of the command. Returns false if logging has not started, or errors are not logged.
pub(crate) fn failed(error: &str) -> bool {
    let started = STARTED.get().is_some() && tracing::enabled!(tracing::Level::ERROR);
    if started {
        tracing::error!("{error}");
    }
    started
}

/// Waits until the lines so far are written, but only for a moment, because the reader of the lines may hang.
pub(crate) fn flush() {
    if let Some(started) = STARTED.get() {
        started.queue.flush(LAST_LINES);
    }
}

/// Returns the number of lost lines so far, and of failed attempts to write.
pub(crate) fn lost() -> (u64, u64) {
    STARTED.get().map(|started| started.queue.lost()).unwrap_or_default()
}

/// Writer of the subscriber: truncates each line to its bound and puts it into the queue.
struct Lines {
    queue: Arc<Queue>,
    format: LogFormat,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl io::Write for &Lines {
    /// Queues a line, shortened if it is too long. The subscriber writes one whole line per call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.len() <= LONGEST_LINE {
            self.queue.put(line);
        } else {
            match line::shortened(line, self.format, LONGEST_LINE) {
                Some(shorter) => self.queue.put(&shorter),
                None => self.queue.lose(),
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
