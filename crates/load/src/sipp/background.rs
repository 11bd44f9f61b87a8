//! `-bg`: the same command line once more, in the background.

use std::process::{Command, Stdio};

/// Starts this program again without `-bg`; its process number.
pub(super) fn start(words: &[String]) -> std::io::Result<u32> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    use std::os::unix::process::CommandExt;
    // By the name by which it was called: under that of a link it is SIPp without the word.
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    let mut before = std::env::args().skip(1).collect::<Vec<_>>();
    // What stands before SIPp's own words, as the name of a subcommand does.
    before.truncate(before.len().saturating_sub(words.len()));
    command.args(before).args(words.iter().filter(|w| *w != "-bg" && *w != "--bg")).arg("-nostdin");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // Of a group of its own: the terminal's Ctrl-C is not meant for it.
    command.process_group(0);
    Ok(command.spawn()?.id())
}
