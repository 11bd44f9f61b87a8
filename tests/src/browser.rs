//! Phones in a browser: Chromium with a page of one of the two common libraries (`tests/browser`).

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::Process;
use crate::program::CHROMIUM;

/// SIP library for browsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// JsSIP.
    JsSip,
    /// SIP.js.
    SipJs,
}

/// Page with phones.
#[derive(Debug)]
pub struct Page {
    process: Process,
    _folder: TempDir,
}

impl Library {
    const fn file(self) -> &'static str {
        match self {
            Self::JsSip => "jssip",
            Self::SipJs => "sipjs",
        }
    }
}

impl Page {
    /// Opens a page with phones at these secure WebSocket listeners of `example.org`: with one listener, alice and bob,
    /// who call each other (see `tests/browser/play.js`); with several, one phone of alice at each.
    ///
    /// # Panics
    /// Chromium is missing.
    pub fn open(library: Library, listeners: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("browser/bundled/{}.js", library.file()));
        let page = folder.path().join("page.html");
        let text = format!("<!doctype html><meta charset=utf-8><script src=\"file://{}\"></script>", script.display());
        std::fs::write(&page, text).expect("the folder can be written");
        let sockets: Vec<String> = listeners.iter().map(|address| format!("wss://{address}")).collect();
        let mut command = Command::new(CHROMIUM.path().expect("chromium is there"));
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            // The test has its own certificate authority.
            .arg("--ignore-certificate-errors")
            .args(["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"])
            .args(["--disable-features=WebRtcHideLocalIpsWithMdns", "--allow-loopback-in-peer-connection"])
            .args(["--remote-debugging-port=0", "--enable-logging=stderr", "--log-level=0"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}#domain=example.org&sockets={}", page.display(), sockets.join("+")));
        let process = Process::start(library.file(), folder.path(), &mut command);
        Self { process, _folder: folder }
    }

    /// Waits until the page has reported this event.
    ///
    /// # Panics
    /// The event does not come before the limit.
    pub fn expect(&mut self, event: &str, limit: Duration) {
        self.process.wait_for(&format!("\"phone: {event}"), 1, limit);
    }

    /// Returns the reported events.
    pub fn events(&self) -> Vec<String> {
        let log = self.process.log();
        let lines = log.lines().filter_map(|line| line.split_once("\"phone: "));
        lines.filter_map(|(_, rest)| rest.split_once("\", source")).map(|(event, _)| event.to_owned()).collect()
    }
}
