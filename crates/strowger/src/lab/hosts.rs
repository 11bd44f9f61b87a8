//! Hosts on the command line of `strowger lab run`, their connections and their description.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use clap::Args;
use strowger_lab::Error;
use strowger_lab::host::{Hosts, Named, Roles};
use strowger_lab::run::{Chosen, HostUsed};

use crate::output;

#[derive(Debug, Args)]
#[command(next_help_heading = "Hosts")]
pub(crate) struct HostArguments {
    /// Host that calls, by its name for ssh [default: this machine]. Several hosts share the load. ADDRESS is the address of the
    /// host's SIP traffic.
    #[arg(long, value_name = "HOST[=ADDRESS]", value_parser = named)]
    pub caller: Vec<Named>,
    /// Host that answers [default: this machine]. Several hosts take turns.
    #[arg(long, value_name = "HOST[=ADDRESS]", value_parser = named)]
    pub answerer: Vec<Named>,
    /// Host of the servers, and of the databases and caches beside them [default: this machine]. For a server that runs already: the
    /// host on which it is sampled.
    #[arg(long, value_name = "HOST[=ADDRESS]", value_parser = named)]
    pub server: Option<Named>,
    /// Command that reaches hosts, such as "ssh -F FILE".
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
}

fn named(text: &str) -> Result<Named, String> {
    let (host, address) = match text.split_once('=') {
        Some((host, address)) => (host, Some(address.parse::<IpAddr>().map_err(|_| WRONG.to_owned())?)),
        None => (text, None),
    };
    Ok(Named { name: name(host)?, address })
}

/// Reads the name of a host for ssh.
pub(super) fn name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.starts_with('-') || text.contains(|c: char| c.is_whitespace() || c == '=') {
        true => Err(WRONG.into()),
        false => Ok(text.into()),
    }
}

const WRONG: &str =
    "write HOST, or HOST=ADDRESS where an address is asked for; HOST is a name for ssh, ADDRESS an IP address";

/// Connects the host of a server, if one is named.
pub(super) fn only_server(name: Option<&str>, ssh: &str, program: &Path) -> Result<Hosts, Error> {
    let server = name.map(|name| Named { name: name.into(), address: None });
    Hosts::connect(&Roles { server, ..Roles::default() }, &words(ssh), program)
}

fn words(ssh: &str) -> Vec<String> {
    ssh.split_whitespace().map(str::to_owned).collect()
}

impl HostArguments {
    pub(crate) fn roles(&self) -> Roles {
        Roles { callers: self.caller.clone(), answerers: self.answerer.clone(), server: self.server.clone() }
    }

    /// Connects the hosts.
    pub(crate) fn connect(&self, program: &Path) -> Result<Hosts, Error> {
        Hosts::connect(&self.roles(), &words(&self.ssh), program)
    }

    /// Gives callers and answering sides the addresses of their way to the server.
    pub(crate) fn towards(&self, hosts: Hosts, systems: &[Chosen]) -> Result<Hosts, Error> {
        let external = systems.iter().find_map(|chosen| chosen.folder.address());
        let own = || hosts.server.address.map(|ip| SocketAddr::new(ip, 5060));
        match external.or_else(own).filter(|_| hosts.is_distributed()) {
            Some(server) => hosts.towards(server, &self.roles()),
            None => Ok(hosts),
        }
    }
}

/// Describes the hosts, and prints the settings that limit them.
pub(crate) fn describe(hosts: &Hosts, roles: &Roles) -> Result<BTreeMap<String, HostUsed>, Error> {
    let mut found = BTreeMap::new();
    for host in hosts.hosts() {
        let has = |named: &Named| named.name == host.name();
        let roles = [
            ("caller", roles.callers.iter().any(has)),
            ("answerer", roles.answerers.iter().any(has)),
            ("server", roles.server.iter().any(has)),
        ];
        let roles = roles.into_iter().filter(|(_, is_it)| *is_it).map(|(role, _)| role.to_owned()).collect();
        let sentence = |finding: strowger_lab::doctor::Finding| {
            format!("{} {}: {}; cure: {}", finding.subject, finding.found, finding.effect, finding.cure)
        };
        let findings: Vec<String> = host.limits()?.into_iter().map(sentence).collect();
        for finding in &findings {
            output::say(&format!("{}: {finding}", host.name()));
        }
        found.insert(host.name().to_owned(), HostUsed { roles, machine: host.machine().clone(), findings });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_hosts() {
        let read = |text: &str| named(text).ok().map(|named| (named.name, named.address.map(|ip| ip.to_string())));
        assert_eq!(read("user@west"), Some(("user@west".into(), None)));
        assert_eq!(read("west=10.0.0.2"), Some(("west".into(), Some("10.0.0.2".into()))));
        for wrong in ["", "=10.0.0.2", "west=there", "-oProxyCommand=x", "a b"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
