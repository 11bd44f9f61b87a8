//! `strowger serve`.

use strowger_server::config::Config;

use crate::check;
use crate::cli::ServeArguments;
use crate::logging;
use crate::output::{self, Outcome};

pub(crate) fn run(arguments: &ServeArguments) -> anyhow::Result<Outcome> {
    let config = match Config::load(arguments.config.config.as_deref(), &arguments.listen) {
        Ok((config, warnings)) => {
            output::report(&warnings);
            if arguments.check {
                output::print(&format!("{}: {}\n", warnings.file(), check::verdict(&config, warnings.warnings())))?;
                return Ok(Outcome::Done);
            }
            config
        }
        Err(report) => {
            output::report(&report);
            return Ok(Outcome::Failed);
        }
    };
    logging::start(&config.log)?;
    serve(config)
}

/// Binds the listeners, prints the banner and carries messages until a signal ends it.
fn serve(_config: Config) -> anyhow::Result<Outcome> {
    anyhow::bail!("the server is not wired to the command line yet")
}
