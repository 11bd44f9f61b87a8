//! A server in its own folder, and phones with sockets on loopback.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_config::{Config, Report, Source};
use strowger_node::{Program, Server};
use strowger_rig::Line;
pub(crate) use strowger_rig::{Got, Phone, ha1s};
use strowger_store::subscriber::SubscriberAdmin;
use tempfile::TempDir;

/// A running server. Each user's password is the user's name.
pub(crate) struct Site {
    server: Option<Server>,
    program: Program,
    text: String,
    pub(crate) udp: SocketAddr,
    folder: TempDir,
}

/// Returns the loopback address of this site only: its ports are free, and no other program takes them during a
/// restart.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let (process, n) = (std::process::id().to_be_bytes(), NEXT.fetch_add(1, Relaxed).to_be_bytes());
    let ip = Ipv4Addr::new(127, 100 + process[2] % 100, process[3], n[3]);
    SocketAddr::from((ip, 20_000 + u16::from(n[2])))
}

/// Starts a server with this configuration. With `STROWGER_BY_RELOAD=1` the server starts with only the keys that need
/// a restart, and a reload adds the other keys: the result must be the same.
fn start(program: Program, config: Config) -> Server {
    if std::env::var_os("STROWGER_BY_RELOAD").is_none_or(|value| value != "1") {
        return Server::start_in(program, config).expect("it starts");
    }
    let (first, _) = Config::default().for_running(&config);
    let server = Server::start_in(program, first).expect("it starts");
    let report = Report::new("test", "", Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(server.reload(move || Ok((config, report)))).expect("it is right");
    server
}

impl Site {
    /// Starts a registrar of example.org, or of the `domains` in `lines`, with these users and lines of configuration; `{ip}` in them is its address.
    pub(crate) fn start(lines: &str, users: &[&str]) -> Self {
        Self::start_in(Program::default(), lines, users)
    }

    /// Starts a site as [`Site::start`] does, with the callbacks of this program.
    pub(crate) fn start_in(program: Program, lines: &str, users: &[&str]) -> Self {
        let folder = TempDir::with_prefix("strowger-policy-").expect("a folder");
        let udp = own_address();
        let lines = lines.replace("{ip}", &udp.ip().to_string());
        let domains = if lines.contains("domains =") { "" } else { "domains = [\"example.org\"]\n" };
        let text = format!(
            "listen = [\"udp:{udp}\", \"tcp:{udp}\"]\nrealm = \"example.org\"\nstore.database = \"test.sqlite\"\n{domains}{lines}\n"
        );
        let mut site = Self { server: None, program, text, udp, folder };
        let config = site.config();
        if !users.is_empty() {
            let mut admin =
                SqliteAdmin::open(&strowger_node::backends::sqlite(&config).expect("a database")).expect("it opens");
            for user in users {
                admin.add(user, "example.org", "example.org", &ha1s(user, "example.org", user), 0).expect("a new user");
            }
        }
        site.server = Some(start(site.program.clone(), config));
        site
    }

    fn config(&self) -> Config {
        let source = Source { file: "test", text: &self.text, folder: self.folder.path(), ..Source::default() };
        Config::read(source).unwrap_or_else(|report| panic!("{report}")).0
    }

    /// Opens the database of users, as another process does.
    pub(crate) fn admin(&self) -> SqliteAdmin {
        SqliteAdmin::open(&strowger_node::backends::sqlite(&self.config()).expect("a database")).expect("it opens")
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Returns the path of the control socket.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.config().control_socket().expect("it has a database")
    }

    /// Drains the server on another thread.
    pub(crate) fn drain(&mut self) -> std::thread::JoinHandle<()> {
        let server = self.server.take().expect("it runs");
        std::thread::spawn(move || server.drain(Duration::from_secs(20)))
    }

    /// Restarts the server with the same port and database.
    pub(crate) fn restart(&mut self) {
        self.server.take().expect("it runs").stop();
        self.server = Some(start(self.program.clone(), self.config()));
    }

    /// Returns a phone of this user of `example.org`.
    pub(crate) fn phone(&self, user: &str) -> Phone {
        self.phone_of(&format!("sip:{user}@example.org"))
    }

    /// Returns a phone of a foreign user.
    pub(crate) fn foreign_phone(&self) -> Phone {
        self.phone_of("sip:mallory@example.net")
    }

    fn phone_of(&self, aor: &str) -> Phone {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        Phone::new(Line::of_socket(socket, self.udp), aor)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}
