//! Processes of SIPp's command line: ours (this test program started again) and SIPp itself if installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WORDS: &str = "STROWGER_TEST_SIPP_WORDS";

/// Runs the program of [`Who::Ours`]; it is not a test.
#[test]
#[ignore = "started by the other tests"]
fn as_sipp() {
    // Without a command line all ignored tests were requested.
    let Ok(words) = std::env::var(WORDS) else { return };
    let words: Vec<String> = words.split('\u{1f}').map(str::to_owned).collect();
    std::process::exit(strowger_load::sipp::run(&words).into());
}

/// Owner of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Ours,
    Theirs,
}

impl Who {
    /// Returns both programs, if SIPp is installed; else only ours.
    pub(crate) fn all() -> Vec<Self> {
        let installed = Command::new("sipp").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if installed {
            return vec![Self::Ours, Self::Theirs];
        }
        println!("sipp (Debian: sip-tester) is not installed: our program is tested against itself alone");
        vec![Self::Ours]
    }

    /// Starts the program in a folder.
    pub(crate) fn start(self, folder: &Path, words: &str) -> Process {
        let words: Vec<&str> = words.split_whitespace().chain(["-nostdin"]).collect();
        let mut command = match self {
            Self::Theirs => {
                let mut command = Command::new("sipp");
                command.args(&words);
                command
            }
            Self::Ours => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["command_process::as_sipp", "--exact", "--ignored", "--nocapture"]);
                command.env(WORDS, words.join("\u{1f}"));
                command
            }
        };
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process { child: command.spawn().unwrap(), name: format!("{self:?}: {}", words.join(" ")) }
    }
}

/// Process that ends with the test.
pub(crate) struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Waits for the end of the process within `seconds`. Returns the exit code.
    pub(crate) fn code(&mut self, seconds: u64) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            // Between two looks.
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("still running after {seconds} s: {}", self.name);
    }

    /// Checks that it ends successfully within `seconds`.
    pub(crate) fn ends_well(&mut self, seconds: u64) {
        let code = self.code(seconds);
        assert_eq!(code, Some(0), "{}", self.name);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a folder of SIPp's own regression cases, if the corpora exist.
pub(crate) fn regression(case: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpora = std::env::var_os("STROWGER_CORPORA").map_or_else(|| root.join("../shared/corpora"), PathBuf::from);
    let corpora = if corpora.is_absolute() { corpora } else { root.join(corpora) };
    let folder = corpora.join("sipp-scenarios/sipp/regress").join(format!("github-#{case}"));
    let there = folder.join("uac.xml").is_file();
    if !there {
        println!("SIPp's regression case {case} is not there (STROWGER_CORPORA): {}", folder.display());
    }
    there.then(|| folder.canonicalize().unwrap())
}
