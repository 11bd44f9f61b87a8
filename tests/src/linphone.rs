//! Linphone: a phone controlled by lines on its standard input.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::LINPHONE;

/// Tells whether Linphone registers alice of `example.org` at a server by UDP. Linphone resolves the domain of an
/// address, so the server's address replaces it.
///
/// # Panics
/// Linphone is missing, or does not report the registration before the limit.
pub fn registers(server: SocketAddr, user: &str, password: &str, realm: &str, limit: Duration) -> bool {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for name in [".local/share/linphone", "linphone"] {
        std::fs::create_dir_all(folder.path().join(name)).expect("the folder can be written");
    }
    let settings = folder.path().join("settings");
    std::fs::write(&settings, "[sip]\nsip_port=-1\nsip_tcp_port=-1\n[net]\nmtu=1300\n")
        .expect("the folder can be written");
    let mut child = Command::new(LINPHONE.path().expect("linphone-daemon is there"))
        .arg("--config")
        .arg(&settings)
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("linphone-daemon starts");
    let mut orders = child.stdin.take().expect("it is piped");
    let mut output = child.stdout.take().expect("it is piped");
    let (sender, said) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            if sender.send(String::from_utf8_lossy(&buffer[..length]).into_owned()).is_err() {
                break;
            }
        }
    });
    let host = server.ip();
    let mut order = |line: &str| writeln!(orders, "{line}").expect("linphone-daemon takes orders");
    order(&format!("register sip:{user}@{host} sip:{server} {password} {user} {realm}"));
    let end = Instant::now() + limit;
    let mut text = String::new();
    let registered = loop {
        if text.contains("State: LinphoneRegistrationOk") {
            break Some(true);
        }
        if text.contains("State: LinphoneRegistrationFailed") {
            break Some(false);
        }
        if Instant::now() > end {
            break None;
        }
        order("register-status ALL");
        if let Ok(more) = said.recv_timeout(Duration::from_millis(300)) {
            text.push_str(&more);
        }
        // An earlier line is not about this moment.
        std::thread::sleep(Duration::from_millis(100));
    };
    let _ = child.kill();
    child.wait().expect("a child can be waited for");
    reader.join().expect("the reader does not panic");
    registered.unwrap_or_else(|| panic!("linphone says nothing of its registration in {limit:?}:\n{text}"))
}
