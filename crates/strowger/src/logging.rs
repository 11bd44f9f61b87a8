//! Log lines on standard error, as `[log]` says.

use std::io::IsTerminal;

use strowger_server::config::{Log, LogFormat};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Environment variable with a finer filter than `log.level`, such as `info,strowger_net=debug`.
pub(crate) const FILTER_VARIABLE: &str = "STROWGER_LOG";

/// Starts logging for the whole process.
///
/// # Errors
/// A filter in the environment that cannot be read, or logging that was started before.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| anyhow::anyhow!("the environment variable {FILTER_VARIABLE} is {text:?}: {error}"))?,
        Err(_) => EnvFilter::new(log.level.word()),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init()?,
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            lines.with_ansi(colours).with_target(false).finish().try_init()?;
        }
    }
    Ok(())
}
