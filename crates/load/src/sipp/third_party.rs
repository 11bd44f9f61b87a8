//! Third party call control, by SIPp's options.

use super::options::Options;
use crate::command::{self, Plan};
use strowger_scenario::{Scenario, ThirdParty, ThirdPartyRole};

/// Checks for contradictions.
///
/// # Errors
/// The contradiction as a sentence.
pub(super) fn check(options: &Options) -> Result<(), String> {
    let named = options.master.is_some() || options.slave.is_some();
    if options.master.is_some() && options.slave.is_some() {
        return Err("-master and -slave cannot stand together: a controller is one or the other".into());
    }
    if named && options.third_party.is_some() {
        return Err("-3pcc cannot stand with -master or -slave: controllers are one other, or have names".into());
    }
    if named != options.slave_file.is_some() {
        return Err("-slave_cfg FILE goes with -master NAME or -slave NAME, each needs the other".into());
    }
    Ok(())
}

/// Returns the kind of the run, and the names of all controllers.
///
/// # Errors
/// A fault of the options or of the file of controllers, as a sentence.
pub(super) fn form(options: &Options) -> Result<(ThirdParty, Vec<String>), String> {
    if options.third_party.is_some() {
        return Ok((ThirdParty::Classic, Vec::new()));
    }
    if options.master.is_none() && options.slave.is_none() {
        return Ok((ThirdParty::None, Vec::new()));
    }
    let peers = command::peers(&file(options)?).map_err(|error| error.to_string())?;
    Ok((ThirdParty::Extended, peers.into_iter().map(|(name, _)| name).collect()))
}

/// Returns the connections that the run has to make or for which it has to wait.
///
/// # Errors
/// As [`form`], or a host that cannot be resolved.
pub(super) fn plan(options: &Options, scenario: &Scenario) -> Result<Option<Plan>, String> {
    if let Some((host, port)) = &options.third_party {
        let address = super::host::resolve(host, *port)?;
        return Ok(Some(match scenario.third_party {
            Some(ThirdPartyRole::B) => Plan::Listen(address),
            _ => Plan::Call(address),
        }));
    }
    let (name, leads) = match (&options.master, &options.slave) {
        (Some(name), None) => (name, true),
        (None, Some(name)) => (name, false),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err("-master and -slave cannot stand together".into()),
    };
    match (scenario.third_party, leads) {
        (None, _) => {
            return Err("-master or -slave is given, and the scenario has neither `sendCmd` nor `recvCmd`".into());
        }
        (Some(ThirdPartyRole::B), true) => {
            return Err(
                "the scenario is that of a slave (its first command is `recvCmd`), but -slave is not set".into()
            );
        }
        (Some(ThirdPartyRole::A | ThirdPartyRole::PassiveA), false) => {
            return Err(
                "the scenario is that of a master (its first command is `sendCmd`), but -master is not set".into()
            );
        }
        _ => (),
    }
    let mut plan = Plan::extended(&file(options)?, name, leads).map_err(|error| error.to_string())?;
    if let Plan::Extended { peers, .. } = &mut plan {
        // Only the peers of the scenario.
        peers.retain(|(name, _)| scenario.peers.contains(name));
    }
    Ok(Some(plan))
}

fn file(options: &Options) -> Result<String, String> {
    let path = options.slave_file.as_ref().ok_or("-master and -slave need -slave_cfg with the file of controllers")?;
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
