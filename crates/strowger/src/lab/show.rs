//! `strowger lab show`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use strowger_lab::document;
use strowger_lab::system::{self, SystemFolder};

use super::{print, shipped};
use crate::output::{Refusal, usage};

/// Print a shipped file, to read or to change: an experiment, a document of calls, or the driver of a system.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab show relay                      an experiment
  strowger lab show stress > mine.toml
  strowger lab show register-and-call          a document of calls
  strowger lab show kamailio                   the driver of a system
  strowger lab show kamailio/relay.cfg         one of its configurations
  strowger lab show kamailio --out mine        all its files; then: strowger lab run relay --system kamailio=mine

Exit codes: 0 done, 1 a folder cannot be written, 2 there is nothing of this name.")]
pub(crate) struct ShowArguments {
    /// Name of an experiment, as `strowger lab list` prints it, of a document, or of a system.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Write all files of a system into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

pub(super) fn run(arguments: &ShowArguments) -> Result<ExitCode, Refusal> {
    let name = arguments.name.as_str();
    if let Some(folder) = &arguments.out {
        let system = SystemFolder::open(name, None).map_err(|error| usage(error.to_string()))?;
        system.write(folder).map_err(|error| Refusal(crate::output::code::FAILED, error.to_string()))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(text(name)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the text of a shipped file.
fn text(name: &str) -> Result<&'static str, Refusal> {
    let (folder, file) = name.split_once('/').unwrap_or((name, "driver.toml"));
    if let Some((_, files)) = system::SHIPPED.iter().find(|(system, _)| *system == folder) {
        return files.iter().find(|(known, _)| *known == file).map(|(_, text)| *text).ok_or_else(|| {
            let known: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
            usage(format!("the system {folder} has no file {file}: its files are {}", known.join(", ")))
        });
    }
    match document::SHIPPED.iter().find(|(document, _)| *document == name) {
        Some((_, text)) => Ok(text),
        None => shipped(name).map(|(_, text)| text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use strowger_lab::experiment::SHIPPED;

    #[test]
    fn each_name_is_of_one_file() {
        let names = SHIPPED.iter().chain(document::SHIPPED).map(|(name, _)| *name);
        let all: Vec<&str> = names.chain(system::SHIPPED.iter().map(|(name, _)| *name)).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for name in all {
            assert!(text(name).is_ok_and(|text| !text.is_empty()), "{name}");
        }
        assert!(text("kamailio/relay.cfg").is_ok_and(|text| text.starts_with("#!KAMAILIO")));
        let refused = |name| text(name).expect_err("there is none").1;
        assert!(refused("kamailio/relais.cfg").contains("its files are caches.cfg"));
        assert!(refused("relai").contains("write relay"));
    }
}
