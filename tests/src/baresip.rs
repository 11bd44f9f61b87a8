//! Baresip: a phone controlled by JSON commands and events over a connection of its own.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::namespace::Namespace;
use crate::port;
use crate::process::Process;
use crate::program::BARESIP;
use crate::server::{Server, Setup};

/// Settings of a phone.
#[derive(Debug, Clone)]
pub struct Phone<'a> {
    /// User name.
    pub user: &'a str,
    /// Domain of its address.
    pub domain: &'a str,
    /// Password.
    pub password: &'a str,
    /// Server that gets all its requests.
    pub server: SocketAddr,
    /// Name of the server in place of the address, and the name server that resolves it.
    pub outbound_name: Option<(&'a str, IpAddr)>,
    /// `udp`, `tcp` or `tls`.
    pub transport: &'a str,
    /// Certificate authorities that it trusts, for TLS.
    pub authority: Option<PathBuf>,
    /// True if the phone answers each call at once.
    pub answers: bool,
    /// Network namespace of the phone.
    pub namespace: Option<&'a Namespace>,
    /// Address it listens on.
    pub listen: SocketAddr,
}

/// Running phone.
#[derive(Debug)]
pub struct Baresip {
    process: Process,
    control: TcpStream,
    events: String,
    folder: TempDir,
}

/// Returns a free address. Baresip uses this port, and the next port for TLS.
pub fn end() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port::pair())
}

/// Starts a server of `example.org` with the users of these phones, alice and bob.
pub fn with_users(setup: Setup) -> Server {
    let server = setup.with("domains = [\"example.org\"]").start();
    server.add_user("alice@example.org", "secret-of-alice");
    server.add_user("bob@example.org", "secret-of-bob");
    server
}

const MODULES: &str = "/usr/lib/baresip/modules";

impl Baresip {
    /// Starts the phone, which begins to register. It plays silence.
    ///
    /// # Panics
    /// The phone does not start.
    pub fn start(phone: &Phone<'_>) -> Self {
        Self::start_with(phone, "audio_source aubridge,nil\n")
    }

    /// Starts the phone, which plays a tone of this frequency in hertz, and records the sound that it receives. Its media are at the
    /// address that it listens on.
    ///
    /// # Panics
    /// The phone does not start.
    pub fn start_with_tone(phone: &Phone<'_>, frequency: u32) -> Self {
        let sound = format!(
            "audio_source ausine,{frequency}\nausrc_srate 48000\nausrc_channels 2\nmodule ausine.so\nmodule sndfile.so\n\
             snd_path .\nnet_interface {}\n",
            phone.listen.ip()
        );
        Self::start_with(phone, &sound)
    }

    /// Starts the phone with these lines about its sound.
    fn start_with(phone: &Phone<'_>, sound: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let control = port::free();
        let mut config = format!(
            "poll_method epoll\nsip_listen {}\nmodule_path {MODULES}\n{sound}audio_player aubridge,nil\n\
             audio_alert aubridge,nil\naudio_buffer 20-160\nmodule_tmp uuid.so\nmodule_tmp account.so\nmodule g711.so\n\
             module aubridge.so\nmodule_app menu.so\nmodule_app ctrl_tcp.so\nctrl_tcp_listen 127.0.0.1:{control}\n\
             rtp_ports 61000-65000\n",
            phone.listen
        );
        if let Some((_, resolver)) = phone.outbound_name {
            // Writing to a String cannot fail.
            let _ = writeln!(config, "dns_server {resolver}:53");
        }
        if let Some(authority) = &phone.authority {
            // Writing to a String cannot fail.
            let _ = writeln!(config, "sip_cafile {}\nsip_verify_server yes", authority.display());
        }
        std::fs::write(folder.path().join("config"), config).expect("the folder can be written");
        let Phone { user, domain, password, server, transport, answers, .. } = phone;
        let host = phone.outbound_name.map_or_else(|| server.ip().to_string(), |(name, _)| name.to_owned());
        let mode = if *answers { "auto" } else { "manual" };
        let account = format!(
            "<sip:{user}@{domain};transport={transport}>;auth_user={user};auth_pass={password};\
             outbound=\"sip:{host}:{};transport={transport}\";regint=600;answermode={mode};audio_codecs=PCMU\n",
            server.port()
        );
        std::fs::write(folder.path().join("accounts"), account).expect("the folder can be written");
        let mut command = match phone.namespace {
            None => Command::new(BARESIP.path().expect("baresip is there")),
            Some(namespace) => {
                let mut command = namespace.command();
                command.arg(BARESIP.path().expect("baresip is there"));
                command
            }
        };
        command.arg("-f").arg(folder.path()).args(["-s", "-v"]).current_dir(folder.path());
        let mut process = Process::start(&format!("baresip-{user}"), folder.path(), &mut command);
        process.wait_for("baresip is ready", 1, Duration::from_secs(10));
        let control = SocketAddr::from(([127, 0, 0, 1], control));
        // A namespace has a loopback of its own.
        let control =
            phone.namespace.map_or_else(|| TcpStream::connect(control), |namespace| namespace.connect(control));
        let control = control.expect("baresip takes orders");
        control.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket can be set");
        Self { process, control, events: String::new(), folder }
    }

    /// Returns the sound that a phone of [`Baresip::start_with_tone`] has received so far in its last call, at 8 kHz. Baresip 1.0 plays and
    /// records a call until its first hold.
    ///
    /// # Panics
    /// Its folder cannot be read.
    pub fn recording(&self) -> Vec<i16> {
        let files = std::fs::read_dir(self.folder.path()).expect("it has a folder").flatten().map(|entry| entry.path());
        // Their names have the time of their start.
        let last = files.filter(|file| file.to_string_lossy().ends_with("-dec.wav")).max();
        let bytes = last.and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
        // The header of a WAV file has 44 bytes.
        let sound = bytes.get(44..).unwrap_or_default();
        sound.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    /// Returns the phone's process.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sends a command, such as `dial` with an address, or `hangup`.
    ///
    /// # Panics
    /// The connection is gone.
    pub fn order(&mut self, command: &str, parameters: &str) {
        let json = format!("{{\"command\":\"{command}\",\"params\":\"{parameters}\"}}");
        write!(self.control, "{}:{json},", json.len()).expect("baresip takes orders");
    }

    /// Waits until the phone is registered.
    ///
    /// # Panics
    /// The phone is not registered at the limit.
    pub fn registered(&mut self, limit: Duration) {
        assert!(self.registers(limit), "baresip is not registered:\n{}", self.process.tail());
    }

    /// Waits until the phone is registered, and returns true, or until it gives up, and returns false. Reads the output
    /// of the phone, which may not accept commands yet.
    ///
    /// # Panics
    /// Neither happens before the limit.
    pub fn registers(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let log = self.process.log();
            if log.contains("binding]") || log.contains("bindings]") {
                return true;
            }
            if log.contains("Register: ") || log.contains("reg: ") {
                return false;
            }
            assert!(Instant::now() < end, "baresip says nothing of its registration:\n{}", self.process.tail());
            // Poll interval.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for an event such as `CALL_ESTABLISHED` or `CALL_CLOSED`.
    ///
    /// # Panics
    /// The event does not come before the limit.
    pub fn expect(&mut self, event: &str, limit: Duration) {
        let end = Instant::now() + limit;
        let quoted = format!("\"{event}\"");
        loop {
            if let Some(at) = self.events.find(&quoted) {
                self.events.drain(..at + quoted.len());
                return;
            }
            assert!(
                Instant::now() < end,
                "no {event} in {limit:?}; other events: {}\nlast output:\n{}",
                self.events,
                self.process.tail()
            );
            let mut buffer = [0; 4096];
            if let Ok(length) = self.control.read(&mut buffer) {
                self.events.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        }
    }
}
