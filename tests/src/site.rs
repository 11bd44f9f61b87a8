//! Server without a process: the engine with the configuration of a [`Setup`](crate::server::Setup), for tests of
//! decisions. It has the words of a [`Server`](crate::server::Server), and its clock is virtual.

use std::net::SocketAddr;
use std::time::Duration;

use strowger_rig::Listener;
use tempfile::TempDir;

use crate::server::Server;
use crate::text::{Request, status};
use crate::wire::{Transport, Wire};

/// Server without a process; see [`Setup::site`](crate::server::Setup::site).
pub struct Site {
    site: strowger_rig::Site,
    /// Folder of its certificates and sets.
    folder: TempDir,
}

/// Returns the transport of messages by its name in the core.
const fn core(transport: Transport) -> strowger_core::Transport {
    match transport {
        Transport::Udp => strowger_core::Transport::Udp,
        Transport::Tcp => strowger_core::Transport::Tcp,
        Transport::Tls => strowger_core::Transport::Tls,
        Transport::Ws => strowger_core::Transport::Ws,
        Transport::Wss => strowger_core::Transport::Wss,
    }
}

impl Site {
    /// Starts a server with this text of a configuration.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub(crate) fn start(text: &str, folder: TempDir) -> Self {
        Self { site: strowger_rig::Site::start_in(text, folder.path()), folder }
    }

    /// Starts another server of the network of this one.
    pub(crate) fn beside(&self, text: &str, folder: TempDir) -> Self {
        Self { site: self.site.beside(text), folder }
    }

    /// Returns the site as the rig knows it.
    pub const fn rig(&self) -> &strowger_rig::Site {
        &self.site
    }

    /// Returns the folder of its configuration.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Returns the address of its first listener with this transport.
    ///
    /// # Panics
    /// There is none.
    pub fn address(&self, transport: Transport) -> SocketAddr {
        self.site.address(core(transport))
    }

    /// Connects a client to this server.
    ///
    /// # Panics
    /// There is no listener for this transport.
    pub fn connect(&self, transport: Transport) -> Wire {
        Wire::of_line(transport, self.site.connect(core(transport)))
    }

    /// Connects a client from this address.
    ///
    /// # Panics
    /// There is no listener for this transport.
    pub fn connect_from(&self, transport: Transport, from: SocketAddr) -> Wire {
        Wire::of_line(transport, self.site.connect_from(core(transport), from))
    }

    /// Opens a listener of the test for connections of the server.
    pub fn listen(&self) -> (Listener, SocketAddr) {
        let listener = self.site.listen();
        let address = listener.address();
        (listener, address)
    }

    /// Returns a free address of 127.0.0.1.
    pub fn free_address(&self) -> SocketAddr {
        self.site.free_address()
    }

    /// Advances the virtual clock by this time.
    pub fn wait(&self, time: Duration) {
        self.site.wait(time);
    }

    /// Adds a user.
    ///
    /// # Panics
    /// The address has no domain.
    pub fn add_user(&self, address: &str, password: &str) {
        self.site.add_user(address, password);
    }

    /// Removes a user.
    ///
    /// # Panics
    /// The address has no domain.
    pub fn remove_user(&self, address: &str) {
        self.site.remove_user(address);
    }

    /// Changes a user's password.
    ///
    /// # Panics
    /// The address has no domain.
    pub fn set_password(&self, address: &str, password: &str) {
        self.site.add_user(address, password);
    }

    /// Changes a text in its configuration, effective at its next start or reload.
    ///
    /// # Panics
    /// The text is missing.
    pub fn rewrite(&self, from: &str, to: &str) {
        self.site.rewrite(from, to);
    }

    /// Adopts the present text of its configuration.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn reload(&self) {
        self.site.reload();
    }

    /// Starts the next process, with the users and bindings of this one.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub fn restart(&self) {
        self.site.restart();
    }

    /// Returns its log since the first start.
    pub fn log(&self) -> String {
        self.site.settle();
        self.site.log()
    }

    /// Returns its log, and asserts that it contains this text.
    ///
    /// # Panics
    /// The log does not contain the text.
    pub fn log_with(&self, text: &str) -> String {
        self.site.log_with(text)
    }

    /// Asserts that it still answers: OPTIONS to the server itself by this transport gets a 200.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn assert_answers(&self, transport: Transport) {
        let uri = format!("sip:{};transport={}", self.address(transport), transport.name());
        let mut wire = self.connect(transport);
        let request = Request::new("OPTIONS", &uri, transport.name(), wire.local());
        wire.send(&request.bytes()).expect("the server takes messages");
        let answer = wire.final_response(Duration::from_secs(5));
        assert_eq!(answer.as_deref().and_then(status), Some(200), "OPTIONS by {}", transport.name());
    }
}

/// Server of either kind, for tests that run with a process too.
pub trait Served {
    /// Connects a client from this address.
    fn connect_from(&self, transport: Transport, from: SocketAddr) -> Wire;
    /// Returns the address of its first listener with this transport.
    fn address(&self, transport: Transport) -> SocketAddr;
    /// Adds a user.
    fn add_user(&self, address: &str, password: &str);
    /// Kills the server and starts it again.
    fn restart(&mut self);
}

impl Served for Site {
    fn connect_from(&self, transport: Transport, from: SocketAddr) -> Wire {
        self.connect_from(transport, from)
    }

    fn address(&self, transport: Transport) -> SocketAddr {
        self.address(transport)
    }

    fn add_user(&self, address: &str, password: &str) {
        self.add_user(address, password);
    }

    fn restart(&mut self) {
        Self::restart(self);
    }
}

impl Served for Server {
    fn connect_from(&self, transport: Transport, from: SocketAddr) -> Wire {
        let authority = self.authority();
        Wire::connect_from(transport, from, self.address(transport), Some(&authority)).expect("the server accepts")
    }

    fn address(&self, transport: Transport) -> SocketAddr {
        self.address(transport)
    }

    fn add_user(&self, address: &str, password: &str) {
        self.add_user(address, password);
    }

    fn restart(&mut self) {
        self.kill();
        self.start();
    }
}

/// Accepts the connection of a server to a listener of [`Site::listen`].
///
/// # Panics
/// None came before the limit.
pub fn accept(listener: &Listener, limit: Duration) -> Wire {
    Wire::of_line(Transport::Tcp, listener.accept(limit).expect("the server connects"))
}
