//! Program under test, built from the tree of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of the `strowger` binary: the value of the environment variable `STROWGER_BIN`, or a binary built
/// on the first call, in the folder and profile of the running test.
///
/// # Panics
/// The build fails; the compiler's messages are on standard error.
pub fn strowger() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    crate::process::waits_for_children();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("STROWGER_BIN") {
            return path.into();
        }
        // target/<profile>/deps/<test>
        let test = std::env::current_exe().expect("a running test has a file");
        let profile = test.ancestors().nth(2).expect("cargo puts tests two folders below the profile's");
        let target = profile.parent().expect("the profile's folder lies in the target folder");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--quiet", "--package", "strowger", "--target-dir"]).arg(target);
        match profile.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => {}
            Some(name) => {
                cargo.args(["--profile", name]);
            }
        }
        let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs, it runs this test");
        assert!(status.success(), "strowger does not build");
        profile.join("strowger")
    })
}
