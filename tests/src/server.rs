//! Server under test.

use crate::wait;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::binary::strowger;
use crate::certificate::Certificate;
use crate::namespace::Namespace;
use crate::port;
use crate::process::Process;
use crate::reload;
use crate::site::Site;
use crate::wire::{Transport, Wire};

/// Time limit of a start.
const START: Duration = Duration::from_secs(20);

/// Settings of a server: listeners on free ports, and lines of configuration.
#[derive(Debug, Default)]
pub struct Setup {
    listen: Vec<(Transport, SocketAddr)>,
    lines: Vec<String>,
    /// True if the lines contain the listeners, as tables.
    tables: bool,
    wrap: Vec<String>,
    environment: Vec<(String, String)>,
    words: Vec<String>,
    parent: Option<PathBuf>,
}

/// Running server with a folder of its own, which contains its database.
#[derive(Debug)]
pub struct Server {
    process: Option<Process>,
    folder: TempDir,
    listen: Vec<(Transport, SocketAddr)>,
    wrap: Vec<String>,
    environment: Vec<(String, String)>,
    words: Vec<String>,
    starts: usize,
}

impl Setup {
    /// Creates listeners on 127.0.0.1 with free ports.
    pub fn on(transports: &[Transport]) -> Self {
        transports.iter().fold(Self::default(), |this, transport| this.listen(*transport, port::free_address()))
    }

    /// Creates these listeners, which the lines of configuration describe as `[[listener]]` tables.
    pub fn tables(listen: &[(Transport, SocketAddr)]) -> Self {
        Self { listen: listen.to_vec(), tables: true, ..Self::default() }
    }

    /// Adds a listener.
    pub fn listen(mut self, transport: Transport, address: SocketAddr) -> Self {
        self.listen.push((transport, address));
        self
    }

    /// Adds lines of configuration with dotted keys, such as `ban.enabled = false`.
    pub fn with(mut self, lines: &str) -> Self {
        self.lines.push(lines.into());
        self
    }

    /// Makes the server a relay for every peer, without users.
    pub fn relay(self) -> Self {
        self.with("domains = []\nproxy.relay_for = \"everyone\"").in_memory()
    }

    /// Makes the server a registrar of `example.org` and 127.0.0.1 without passwords, where any peer may call.
    pub fn open_registrar(self) -> Self {
        self.with(
            "domains = [\"example.org\", \"127.0.0.1\"]\nregistrar.authenticate = false\nauth.calls = false\nproxy.relay_for = \"everyone\"",
        )
    }

    /// Stores nothing on disk.
    pub fn in_memory(self) -> Self {
        self.with("registrar.durability = \"none\"\nstore.database = \"memory\"")
    }

    /// Adds a program in front of the server's command line, such as strace.
    pub fn under(mut self, words: &[impl AsRef<str>]) -> Self {
        self.wrap.extend(words.iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Runs the server inside this network namespace.
    pub fn inside(self, namespace: &Namespace) -> Self {
        self.under(&namespace.words())
    }

    /// Adds an environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Adds options of `strowger serve`.
    pub fn words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// Puts the folder of the server into this folder, because the folder for temporary files may be in memory.
    pub fn in_folder(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// Writes the configuration without starting; see [`Server::start`].
    ///
    /// # Panics
    /// The disk is full.
    pub fn prepare(self) -> Server {
        let folder = self.parent.as_ref().map_or_else(tempfile::tempdir, tempfile::tempdir_in);
        let folder = folder.expect("a temporary folder can be made");
        std::fs::write(folder.path().join("strowger.toml"), self.text(folder.path()))
            .expect("the folder can be written");
        let Self { listen, wrap, environment, words, .. } = self;
        Server { process: None, folder, listen, wrap, environment, words, starts: 0 }
    }

    /// Starts only the decisions of the server: an engine without sockets, with a virtual clock.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn site(self) -> Site {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Site::start(&self.text(folder.path()), folder)
    }

    /// Starts another server in the network of this site.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn site_beside(self, site: &Site) -> Site {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        site.beside(&self.text(folder.path()), folder)
    }

    /// Returns the text of the configuration, for a file in this folder. Creates a certificate in the folder if the
    /// configuration needs one.
    fn text(&self, folder: &Path) -> String {
        let mut text = String::new();
        let listeners: Vec<String> =
            self.listen.iter().map(|(transport, address)| format!("\"{}:{address}\"", transport.name())).collect();
        // Writing to a String cannot fail.
        if !self.tables {
            let _ = writeln!(text, "listen = [{}]", listeners.join(", "));
        }
        // Dotted keys must precede tables.
        let is_table = |lines: &&String| lines.lines().any(|line| line.trim_start().starts_with("[["));
        let (tables, keys): (Vec<&String>, Vec<&String>) = self.lines.iter().partition(is_table);
        let given = [keys, tables].concat().iter().map(|lines| lines.as_str()).collect::<Vec<_>>().join("\n");
        if self.listen.iter().any(|(transport, _)| transport.is_secure()) {
            let ips = self.listen.iter().map(|(_, address)| address.ip()).filter(|ip| !ip.is_loopback());
            let ips: Vec<String> = ips.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()).collect();
            let names: Vec<&str> = ["example.org"].into_iter().chain(ips.iter().map(String::as_str)).collect();
            let certificate = Certificate::in_folder(folder, &names);
            let _ = writeln!(text, "tls.certificate = {:?}\ntls.key = {:?}", certificate.chain, certificate.key);
            if !given.contains("tls.outbound_ca") {
                let _ = writeln!(text, "tls.outbound_ca = {:?}", certificate.authority);
            }
        }
        for (key, value) in [("store.database", "\"test.sqlite\""), ("log.level", "\"info\"")] {
            if !given.contains(key) {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text.push_str(&given);
        text.push('\n');
        text
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Panics
    /// The server does not become ready.
    pub fn start(self) -> Server {
        let mut server = self.prepare();
        server.start();
        server
    }
}

impl Server {
    /// Starts the server (again) and waits until it is ready.
    ///
    /// # Panics
    /// The server does not become ready.
    pub fn start(&mut self) {
        self.starts += 1;
        let starts = self.starts;
        if !reload::is_wanted() {
            self.try_start().wait_for("\nready", starts, START);
            return;
        }
        let (file, whole) = (self.config(), std::fs::read_to_string(self.config()).expect("it was written"));
        std::fs::write(&file, reload::first(&whole)).expect("the folder can be written");
        self.try_start().wait_for("\nready", starts, START);
        std::fs::write(&file, whole).expect("the folder can be written");
        self.process().signal(libc::SIGHUP);
        self.process().wait_for("configuration reloaded", starts, START);
        assert!(!self.log().contains("key needs a restart"), "{}", self.log());
    }

    /// Waits until a server started by [`Server::try_start`] is ready.
    ///
    /// # Panics
    /// The server does not become ready.
    pub fn await_start(&mut self) {
        self.starts += 1;
        let starts = self.starts;
        self.process().wait_for("\nready", starts, START);
    }

    /// Starts the server without waiting until it is ready; the server may refuse its configuration.
    ///
    /// # Panics
    /// There is no such program.
    pub fn try_start(&mut self) -> &mut Process {
        let mut words = self.wrap.iter().map(String::as_str);
        let mut command = match words.next() {
            None => Command::new(strowger()),
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(strowger());
                command
            }
        };
        command.args(["serve", "--config"]).arg(self.config()).args(&self.words).current_dir(self.folder.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.process.insert(Process::start("strowger", self.folder.path(), &mut command))
    }

    /// Returns the running process.
    ///
    /// # Panics
    /// The server was not started.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the server was started")
    }

    /// Ends the server by SIGTERM and waits.
    ///
    /// # Panics
    /// The server does not end in time.
    pub fn stop(&mut self) {
        let process = self.process();
        process.signal(libc::SIGTERM);
        process.end(Duration::from_secs(40));
        self.process = None;
    }

    /// Kills the server by `kill -9`.
    pub fn kill(&mut self) {
        self.process().kill();
        self.process = None;
    }

    /// Returns the address of its first listener with this transport.
    ///
    /// # Panics
    /// There is none.
    pub fn address(&self, transport: Transport) -> SocketAddr {
        let found = self.listen.iter().find(|(candidate, _)| *candidate == transport);
        found.map(|(_, address)| *address).unwrap_or_else(|| panic!("no listener for {}", transport.name()))
    }

    /// Returns the addresses of all its listeners, in order.
    pub fn listeners(&self) -> Vec<SocketAddr> {
        self.listen.iter().map(|(_, address)| *address).collect()
    }

    /// Connects a client to this server.
    ///
    /// # Panics
    /// The server does not accept the connection.
    pub fn connect(&self, transport: Transport) -> Wire {
        self.try_connect(transport).unwrap_or_else(|error| panic!("no connection by {}: {error}", transport.name()))
    }

    fn try_connect(&self, transport: Transport) -> io::Result<Wire> {
        let authority = self.authority();
        let authority = transport.is_secure().then_some(authority.as_path());
        Wire::connect(transport, self.address(transport), authority)
    }

    /// Returns the path of the authority that signed its certificate.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// Returns the server's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of its configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("strowger.toml")
    }

    /// Changes a text in its configuration, effective at its next start.
    ///
    /// # Panics
    /// The text is missing.
    pub fn rewrite(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.config()).expect("it was written");
        assert!(text.contains(from), "no {from} in {text}");
        std::fs::write(self.config(), text.replace(from, to)).expect("the folder can be written");
    }

    /// Returns the server's output since the first start.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.path().join("strowger.log")).unwrap_or_default())
            .into_owned()
    }

    /// Returns the output of the server since the first start, once it contains this text: the log is written asynchronously.
    ///
    /// # Panics
    /// The server has not printed the text within five seconds.
    pub fn log_with(&self, text: &str) -> String {
        let whole = || Some(self.log()).filter(|log| log.contains(text));
        wait::look(Duration::from_secs(5), whole).unwrap_or_else(|| panic!("no {text:?} in\n{}", self.log()))
    }

    /// Adds a user with `strowger user add`.
    ///
    /// # Panics
    /// The command refuses.
    pub fn add_user(&self, address: &str, password: &str) {
        self.user(&["add", address], password);
    }

    /// Changes a user's password with `strowger user passwd`.
    ///
    /// # Panics
    /// The command refuses.
    pub fn set_password(&self, address: &str, password: &str) {
        self.user(&["passwd", address], password);
    }

    /// Runs a command of `strowger user` that needs a password; returns its output.
    ///
    /// # Panics
    /// The command refuses.
    pub fn user(&self, words: &[&str], password: &str) -> String {
        let mut child = Command::new(strowger())
            .arg("user")
            .args(words)
            .args(["--password-stdin", "--config"])
            .arg(self.config())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        child.stdin.take().expect("it is piped").write_all(password.as_bytes()).expect("it reads its input");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "user {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Asserts that the server still answers: OPTIONS to the server itself by this transport gets a 200.
    ///
    /// Reconnects if the server closes the connection: connections just closed from the same source may still count
    /// against it. Sends again what an overload control refuses: the overload of an attack outlasts it by a second.
    ///
    /// # Panics
    /// The server does not answer within five seconds.
    pub fn assert_answers(&mut self, transport: Transport) {
        let uri = format!("sip:{};transport={}", self.address(transport), transport.name());
        let mut open: Option<Wire> = None;
        let answer = wait::look(Duration::from_secs(5), || {
            if open.as_mut().is_none_or(Wire::is_closed) {
                open = self.try_connect(transport).ok();
            }
            let wire = open.as_mut()?;
            let request = crate::text::Request::new("OPTIONS", &uri, transport.name(), wire.local());
            wire.send(&request.bytes()).ok()?;
            let answer = wire.final_response(Duration::from_secs(1))?;
            (crate::text::status(&answer) != Some(503)).then_some(answer)
        });
        let status = answer.as_deref().and_then(crate::text::status);
        let ended = self.process().ended();
        assert!(ended.is_none(), "the server ended: {ended:?}");
        assert_eq!(status, Some(200), "OPTIONS by {}", transport.name());
    }
}

/// Returns 127.0.0.1 with a port.
pub const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Counts equal items, for a table in a message.
pub fn count<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    items.into_iter().fold(BTreeMap::new(), |mut counts, item| {
        *counts.entry(item).or_default() += 1;
        counts
    })
}
