//! `strowger check`.

use strowger_server::config::{Config, reference};

use crate::cli::CheckArguments;
use crate::output::{self, Outcome};
use crate::realm;

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<Outcome> {
    if arguments.keys {
        output::print(&reference())?;
        return Ok(Outcome::Done);
    }
    match Config::load(arguments.file.as_deref(), &[]) {
        Ok((config, warnings)) => {
            output::report(&warnings);
            let strangers = realm::check(&config, warnings.file());
            if arguments.effective {
                output::print(&config.effective())?;
            } else {
                output::print(&format!("{}: {}\n", warnings.file(), verdict(&config, warnings.warnings() + strangers)))?;
            }
            Ok(Outcome::Done)
        }
        Err(report) => {
            output::report(&report);
            output::complain(&format!("{} cannot be used: {}", report.file(), count(report.errors(), "error")));
            Ok(Outcome::Failed)
        }
    }
}

/// One line that says that the configuration can be used, and for what.
pub(crate) fn verdict(config: &Config, warnings: usize) -> String {
    let listeners: Vec<String> = config.listeners.iter().map(ToString::to_string).collect();
    let domains = match config.domains.len() {
        0 => "no domain".into(),
        _ => config.domains.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let warnings = match warnings {
        0 => String::new(),
        number => format!(", {}", count(number, "warning")),
    };
    format!("can be used{warnings}; {} for {domains}", listeners.join(", "))
}

fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
