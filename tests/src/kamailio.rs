//! Kamailio as a peer.

use std::path::Path;
use std::process::Command;

use crate::process::Process;
use crate::program::KAMAILIO;

/// Running Kamailio.
#[derive(Debug)]
pub struct Kamailio {
    process: Process,
}

impl Kamailio {
    /// Starts Kamailio with a configuration of `tests/kamailio` in which every `@NAME@` is replaced.
    ///
    /// # Panics
    /// Kamailio does not begin to listen, or a placeholder is left.
    pub fn start(folder: &Path, config: &str, values: &[(&str, &str)]) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("kamailio/{config}.cfg"));
        let mut text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for (name, value) in values {
            text = text.replace(&format!("@{name}@"), value);
        }
        let written = folder.join(format!("{config}.cfg"));
        std::fs::write(&written, &text).expect("the folder can be written");
        let mut command = Command::new(KAMAILIO.path().expect("kamailio is there"));
        command.args(["-DD", "-E", "-m", "64", "-M", "8", "-Y"]).arg(folder).arg("-f").arg(written);
        let mut process = Process::start("kamailio", folder, &mut command);
        let ports =
            text.lines().filter_map(|line| line.strip_prefix("listen=")?.rsplit(':').next()?.trim().parse().ok());
        ports.for_each(|port| process.listens(port));
        Self { process }
    }

    /// Returns the proxy's process.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
