//! Linphone: a phone controlled by lines on its standard input.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use strowger_media::tone::Tone;
use strowger_media::wave::{Coding, WaveFormat};
use tempfile::TempDir;

use crate::port;
use crate::process::Process;
use crate::program::{LINPHONE, LINPHONEC};

/// Running phone of a user of `example.org`, at 127.0.0.1. It plays a tone from a file to the other party, also while it holds the call,
/// and records what it receives. It answers each call.
#[derive(Debug)]
pub struct Linphone {
    process: Process,
    orders: File,
    folder: TempDir,
}

/// Samples a second of the file that it plays.
const RATE: u32 = 8_000;

/// Length of the file that it plays, in seconds: longer than any call of a test.
const LENGTH: u32 = 60;

impl Linphone {
    /// Starts the phone, which begins to register at this server. `tone`: its tone, in hertz.
    ///
    /// # Panics
    /// The phone does not start.
    pub fn start(user: &str, password: &str, server: SocketAddr, tone: u16) -> Self {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        let media = port::pair();
        let settings = format!(
            "[sip]\nsip_port=-1\nsip_tcp_port=-1\nsip_tls_port=0\nbind_address=127.0.0.1\ndefault_proxy=0\n\
             [rtp]\naudio_rtp_port={media}\n[net]\nmtu=1300\n[sound]\nechocancellation=0\n\
             [proxy_0]\nreg_proxy=<sip:{server}>\nreg_route=<sip:{server};lr>\nreg_identity=<sip:{user}@example.org>\n\
             reg_sendregister=1\nreg_expires=600\n\
             [auth_info_0]\nusername={user}\npasswd={password}\nrealm=example.org\n"
        );
        std::fs::write(path("settings"), settings).expect("the folder can be written");
        std::fs::write(path("tone.wav"), wave(tone)).expect("the folder can be written");
        let made = Command::new("mkfifo").arg(path("orders")).status().expect("mkfifo runs");
        assert!(made.success(), "no pipe can be made");
        // Opened for both directions, so that the opening does not wait for a reader.
        let orders = File::options().read(true).write(true).open(path("orders")).expect("the pipe is there");
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" <orders", "sh"]).arg(LINPHONEC.path().expect("linphonec is there"));
        command.args(["-a", "-c"]).arg(path("settings")).env("HOME", folder.path()).current_dir(folder.path());
        let mut process = Process::start(&format!("linphone-{user}"), folder.path(), &mut command);
        process.wait_for("linphonec>", 1, Duration::from_secs(20));
        let mut this = Self { process, orders, folder };
        let [play, record] = ["tone.wav", "record.wav"].map(|name| this.folder.path().join(name).display().to_string());
        for order in ["soundcard use files".to_owned(), format!("play {play}"), format!("record {record}")] {
            this.order(&order);
        }
        this
    }

    /// Sends a command, such as `call` with an address, `pause`, `resume` or `terminate`.
    ///
    /// # Panics
    /// The phone is gone.
    pub fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}").expect("linphonec takes orders");
    }

    /// Waits until the phone has printed a text `times` times since its start.
    ///
    /// # Panics
    /// The phone has ended, or the limit has passed.
    pub fn prints(&mut self, text: &str, times: usize, limit: Duration) {
        self.process.wait_for(text, times, limit);
    }

    /// Returns the sound that the phone has received in its call so far. Its rate is that of the codec.
    pub fn recording(&self) -> Vec<i16> {
        let bytes = std::fs::read(self.folder.path().join("record.wav")).unwrap_or_default();
        // The header has 44 bytes, and no values before the end of the call.
        let sound = bytes.get(44..).unwrap_or_default();
        sound.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }
}

/// Returns a WAV file of a tone.
fn wave(frequency: u16) -> Vec<u8> {
    let (format, samples) = (WaveFormat { coding: Coding::Pcm16, channels: 1, rate: RATE }, RATE * LENGTH);
    let mut file = Vec::new();
    format.write_header(2 * samples, &mut file);
    let tone = Tone::new(f64::from(frequency), -10.0, RATE).take(samples as usize);
    file.extend(tone.flat_map(i16::to_le_bytes));
    file
}

/// Creates a folder with the subfolders without which Linphone does not start.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for name in [".local/share/linphone", "linphone"] {
        std::fs::create_dir_all(folder.path().join(name)).expect("the folder can be written");
    }
    folder
}

/// Tells whether Linphone registers alice of `example.org` at a server by UDP. Linphone resolves the domain of an
/// address, so the server's address replaces it.
///
/// # Panics
/// Linphone is missing, or does not report the registration before the limit.
pub fn registers(server: SocketAddr, user: &str, password: &str, realm: &str, limit: Duration) -> bool {
    let folder = folder();
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
