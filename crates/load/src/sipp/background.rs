//! `-bg`: runs the same command line again, in the background.

use std::process::{Command, Stdio};

/// Starts this program again without `-bg`. Returns its process number.
pub(super) fn start(words: &[String]) -> std::io::Result<u32> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    use std::os::unix::process::CommandExt;
    // The program is started under the same name, because under the name of a link it is SIPp without a subcommand.
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    let mut before = std::env::args().skip(1).collect::<Vec<_>>();
    // Words before SIPp's own, such as the name of a subcommand.
    before.truncate(before.len().saturating_sub(words.len()));
    command.args(before).args(words.iter().filter(|w| *w != "-bg" && *w != "--bg")).arg("-nostdin");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // A process group of its own, so that the terminal's Ctrl-C does not reach the process.
    command.process_group(0);
    Ok(command.spawn()?.id())
}
