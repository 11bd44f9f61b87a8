//! The media of a run, as SIPp's options ask for them.

use super::options::Options;
use crate::media::{self, Echo, Plane, Settings};
use crate::scenario::Scenario;
use std::net::IpAddr;

/// The sockets and threads, if a scenario names a media port, plays something, or an echo is asked for.
///
/// # Errors
/// Why the media cannot be had, in a sentence.
pub(super) fn plane(options: &Options, scenarios: &[&Scenario], local: IpAddr) -> Result<Option<Plane>, String> {
    if !options.echo && !scenarios.iter().any(|scenario| media::concerns(scenario)) {
        return Ok(None);
    }
    let address = match &options.media_ip {
        Some(ip) => super::host::resolve(ip, 0)?.ip(),
        None => local,
    };
    let defaults = Settings::default();
    let settings = Settings {
        address,
        port: options.media_port.or(options.min_rtp_port).unwrap_or(defaults.port),
        exact: options.media_port.is_some(),
        highest: options.max_rtp_port.unwrap_or(defaults.highest),
        echo: if options.echo { Echo::Always } else { Echo::Never },
        seed: options.seed.unwrap_or_else(|| u64::from(std::process::id()) << 32 ^ strowger_net::clock::micros()),
        ..defaults
    };
    Plane::start(settings, scenarios.iter().copied()).map(Some).map_err(|error| error.to_string())
}
