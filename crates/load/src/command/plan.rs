//! Addresses and roles of the controllers.

use std::net::{SocketAddr, ToSocketAddrs};

/// Connections to make and to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// `-3pcc` of the controller that sends the first command. The other controller already listens at this address.
    Call(SocketAddr),
    /// `-3pcc` of the controller that listens at this address.
    Listen(SocketAddr),
    /// `-master` or `-slave` with `-slave_cfg`.
    Extended {
        /// Address on which this controller listens.
        own: SocketAddr,
        /// Other controllers, by name.
        peers: Vec<(String, SocketAddr)>,
        /// True for the master, which connects to the other controllers when it starts. The other controllers connect
        /// after a peer has connected to them.
        leads: bool,
    },
}

/// Error of the file of controllers.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    #[error("line {0} of the file of controllers is not `name;address:port`: '{1}'")]
    Line(usize, String),
    #[error("the address '{1}' in line {0} of the file of controllers cannot be resolved")]
    Address(usize, String),
    #[error("'{0}' does not stand in the file of controllers")]
    Missing(String),
}

impl Plan {
    /// Creates the plan of the controller `name` from the file of `-slave_cfg`: a line `name;address:port` for each.
    ///
    /// # Errors
    /// A line cannot be parsed; no line has the name.
    pub fn extended(file: &str, name: &str, leads: bool) -> Result<Self, PlanError> {
        let mut peers = peers(file)?;
        let own = peers.iter().position(|(known, _)| known == name);
        let own = own.ok_or_else(|| PlanError::Missing(name.to_owned()))?;
        let (_, own) = peers.remove(own);
        Ok(Self::Extended { own, peers, leads })
    }
}

/// Parses the controllers of a file of `-slave_cfg`.
///
/// # Errors
/// A line cannot be parsed.
pub fn peers(file: &str) -> Result<Vec<(String, SocketAddr)>, PlanError> {
    let mut all = Vec::new();
    for (index, line) in file.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts = line.split_once(';').map(|(name, address)| (name.trim(), address.trim().trim_end_matches(';')));
        let Some((name, address)) = parts.filter(|(name, address)| !name.is_empty() && address.contains(':')) else {
            return Err(PlanError::Line(index + 1, line.to_owned()));
        };
        let found = address.to_socket_addrs().ok().and_then(|mut all| all.next());
        let Some(found) = found else { return Err(PlanError::Address(index + 1, address.to_owned())) };
        all.push((name.to_owned(), found));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_controllers() {
        let file = "s1;127.0.0.1:9101\n\n# the master\nm;127.0.0.1:9100;\n";
        let s1 = ("s1".to_owned(), "127.0.0.1:9101".parse().unwrap());
        let own = "127.0.0.1:9100".parse().unwrap();
        assert_eq!(Plan::extended(file, "m", true), Ok(Plan::Extended { own, peers: vec![s1], leads: true }));
        assert_eq!(Plan::extended(file, "s9", false), Err(PlanError::Missing("s9".into())));
        assert_eq!(peers("m 127.0.0.1:1"), Err(PlanError::Line(1, "m 127.0.0.1:1".into())));
        assert_eq!(peers("m;127.0.0.1:port"), Err(PlanError::Address(1, "127.0.0.1:port".into())));
    }
}
