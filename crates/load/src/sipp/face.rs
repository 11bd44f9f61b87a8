//! Run of SIPp's command line up to the exit code.

use super::help::HELP;
use super::options::{Options, Source};
use super::session::Session;
use super::trace::Stamp;
use super::{background, third_party};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use strowger_scenario::injection::{Injection, InjectionOptions};
use strowger_scenario::{Cause, Environment, Scenario, builtin};

/// Exit codes of SIPp.
pub mod code {
    /// All calls were successful.
    pub const SUCCESS: u8 = 0;
    /// A call failed, or the command line is wrong.
    pub const FAILED: u8 = 1;
    /// A command or a timeout ended the run, and no call has succeeded or failed.
    pub const INTERNAL: u8 = 97;
    /// The run continues in the background.
    pub const BACKGROUND: u8 = 99;
    /// The requested text was printed; no call was made.
    pub const NO_CALLS: u8 = 99;
    /// A fatal error made the run impossible.
    pub const FATAL: u8 = 255;
    /// A port is not free.
    pub const BIND: u8 = 254;

    /// Returns the exit code of a bind error.
    pub(in crate::sipp) fn bind(error: &std::io::Error) -> u8 {
        if error.kind() == std::io::ErrorKind::AddrInUse { BIND } else { FATAL }
    }
}

/// Reason why there is no run: exit code and sentence.
pub(super) struct Failure(pub(super) u8, pub(super) String);

/// Runs SIPp's command line (the words after the program's name). Returns the exit code.
pub fn run(words: &[String]) -> u8 {
    match try_run(words) {
        Ok(code) => code,
        Err(Failure(code, text)) => {
            eprintln!("{text}");
            code
        }
    }
}

fn try_run(words: &[String]) -> Result<u8, Failure> {
    let options = Options::parse(words).map_err(|text| Failure(code::FAILED, text))?;
    if options.version {
        println!("\n SIPp v3.6.1-TLS-PCAP-RTPSTREAM, as Strowger {} has it.\n", env!("CARGO_PKG_VERSION"));
        return Ok(code::NO_CALLS);
    }
    if options.help || words.is_empty() {
        print!("{}", HELP);
        return Ok(code::NO_CALLS);
    }
    if let Some(name) = &options.dump {
        let text = builtin::document(name).ok_or_else(|| Failure(code::FAILED, unknown(name)))?;
        print!("{text}");
        return Ok(code::NO_CALLS);
    }
    // The background process reads the same options and reports them.
    if !options.ignored.is_empty() && !options.background {
        eprintln!("Warning: accepted, and without effect here: -{}", options.ignored.join(", -"));
    }
    if options.rfc3339 {
        Stamp::write_rfc3339();
    }
    third_party::check(&options).map_err(|text| Failure(code::FAILED, text))?;
    let scenario = Arc::new(load(&options, &options.scenario, &[])?);
    // Both scenarios have the same global variables, of which those of the main scenario are the first.
    let globals = &scenario.variables.global;
    let out_of_call = match &options.out_of_call {
        Some(source) => Some(Arc::new(load(&options, source, globals)?)),
        None => None,
    };
    let all = out_of_call.as_ref().map_or(globals, |aside| &aside.variables.global);
    if let Some((name, _)) = options.sets.iter().find(|(name, _)| !all.contains(name)) {
        let text = format!(
            "-set {name}: there is no such global variable; the scenario has to name it in \
             <Global variables=\"{name}\"/>"
        );
        return Err(Failure(code::FAILED, text));
    }
    if options.background {
        let pid = background::start(words).map_err(|e| Failure(code::FATAL, format!("Forking error: {e}")))?;
        println!("Background mode - PID=[{pid}]");
        return Ok(code::BACKGROUND);
    }
    std::thread::sleep(Duration::from_millis(options.sleep));
    Session::start(options, scenario, out_of_call)?.wait()
}

fn unknown(name: &str) -> String {
    format!("Unknown built-in scenario '{name}'; there are {}", builtin::NAMES.join(", "))
}

/// Maximum number of printed warnings about a document; further warnings are counted.
const WARNINGS: usize = 5;

/// Reads a scenario and prints its faults.
fn load(options: &Options, source: &Source, globals: &[String]) -> Result<Scenario, Failure> {
    let base = |path: &Path| path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let (third_party, peers) = third_party::form(options).map_err(|text| Failure(code::FAILED, text))?;
    let environment = Environment {
        keys: options.keys.clone(),
        injections: options.injections.iter().map(|p| base(p)).collect(),
        globals: globals.to_vec(),
        third_party,
        peers,
        payload_type: options.payload_type,
        no_exec: options.no_exec,
        ..Environment::default()
    };
    let loaded = match source {
        Source::File(path) => Scenario::load(path, &environment),
        Source::BuiltIn(name) => {
            let text = builtin::document(name).ok_or_else(|| Failure(code::FAILED, unknown(name)))?;
            Scenario::parse(text.as_bytes(), Path::new(name), &environment)
        }
    };
    let scenario = loaded.map_err(|refusal| {
        let code = if refusal.cause == Cause::ThirdParty { code::FATAL } else { code::FAILED };
        Failure(code, refusal.to_string())
    })?;
    let name = match source {
        Source::File(path) => path.display().to_string(),
        Source::BuiltIn(name) => name.clone(),
    };
    let warnings: Vec<_> = if options.background { Vec::new() } else { scenario.remarks() };
    for warning in warnings.iter().take(WARNINGS) {
        eprintln!("Warning: {name}:{}:{}: {}", warning.line, warning.column, warning.text);
    }
    if warnings.len() > WARNINGS {
        eprintln!("Warning: {name}: {} more like these", warnings.len() - WARNINGS);
    }
    Ok(scenario)
}

/// Reads the injection files and builds the requested indices.
pub(super) fn injections(options: &Options) -> Result<Arc<[Injection]>, Failure> {
    let given = |of: &PathBuf| options.injections.iter().any(|path| path.file_name() == of.file_name());
    if let Some((of, _)) = options.indices.iter().find(|(of, _)| !given(of)) {
        let text = format!("Could not find file for -infindex: {}; name it by -inf too", of.display());
        return Err(Failure(code::FAILED, text));
    }
    let file = |path: &PathBuf| {
        let index = options.indices.iter().rev().find(|(of, _)| of.file_name() == path.file_name()).map(|i| i.1);
        let loaded = Injection::load(path, InjectionOptions { index, ..InjectionOptions::default() });
        loaded.map_err(|error| Failure(code::FAILED, error.to_string()))
    };
    options.injections.iter().map(file).collect()
}

/// Returns SIPp's base name for the files of a run, which are created in the working folder.
pub(super) fn name_of(source: &Source) -> String {
    match source {
        Source::BuiltIn(name) => name.clone(),
        Source::File(path) => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            name.strip_suffix(".xml").unwrap_or(&name).to_owned()
        }
    }
}
