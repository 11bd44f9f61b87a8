//! A server in its own folder, and phones that talk to it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_config::{Config, Report, Source};
use strowger_core::digest::{Challenge, ChallengeAnswer, Ha1Set, Hash, Secret, strongest};
use strowger_message::{Index, Limits, Message, Name, build};
use strowger_node::{Program, Server};
use strowger_store::subscriber::{Ha1s, SubscriberAdmin};
use tempfile::TempDir;

/// Longest wait for a response.
const SOON: Duration = Duration::from_secs(5);

/// A running server. Each user's password is the user's name.
pub(crate) struct Site {
    server: Option<Server>,
    program: Program,
    text: String,
    pub(crate) udp: SocketAddr,
    folder: TempDir,
}

/// Loopback address of this site only: its ports are free, and no other program takes them during a restart.
fn own_address() -> SocketAddr {
    let (process, n) = (std::process::id().to_be_bytes(), unique().to_be_bytes());
    let ip = Ipv4Addr::new(127, 100 + process[2] % 100, process[3], n[3]);
    SocketAddr::from((ip, 20_000 + u16::from(n[2])))
}

/// Stored hashes of a password.
pub(crate) fn ha1s(user: &str, password: &str) -> Ha1s {
    let set = Ha1Set::of_password(user.as_bytes(), b"example.org", password.as_bytes());
    let bytes = |hash| set.of(hash).map(|h| h.value().as_bytes().to_vec());
    Ha1s {
        md5: bytes(Hash::Md5).and_then(|b| b.try_into().ok()),
        sha256: bytes(Hash::Sha256).and_then(|b| b.try_into().ok()),
        sha512_256: bytes(Hash::Sha512_256).and_then(|b| b.try_into().ok()),
    }
}

/// Starts a server with this configuration. With `STROWGER_BY_RELOAD=1` it starts with only the keys that need a restart, and a reload adds the
/// others: the result must be the same.
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
                admin.add(user, "example.org", "example.org", &ha1s(user, user), 0).expect("a new user");
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

    /// Path of the control socket.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.config().control_socket().expect("it has a database")
    }

    /// Drains the server on another thread.
    pub(crate) fn drain(&mut self) -> std::thread::JoinHandle<()> {
        let server = self.server.take().expect("it runs");
        std::thread::spawn(move || server.drain(Duration::from_secs(20)))
    }

    /// Restarts it with the same port and database.
    pub(crate) fn restart(&mut self) {
        self.server.take().expect("it runs").stop();
        self.server = Some(start(self.program.clone(), self.config()));
    }

    pub(crate) fn phone(&self, user: &str) -> Phone {
        let phone = self.phone_on(UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        Phone { aor: format!("sip:{user}@example.org"), ..phone }
    }

    /// A phone with this socket and without a user.
    pub(crate) fn phone_on(&self, socket: UdpSocket) -> Phone {
        Phone {
            address: socket.local_addr().expect("an address"),
            socket,
            server: self.udp,
            aor: "sip:mallory@example.net".into(),
        }
    }

    /// A phone of a foreign user.
    pub(crate) fn stranger(&self) -> Phone {
        self.phone_on(UdpSocket::bind("127.0.0.1:0").expect("a socket"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

/// A message that a phone received.
#[derive(Clone, Debug)]
pub(crate) struct Got(pub(crate) String);

impl Got {
    pub(crate) fn start(&self) -> &str {
        self.0.lines().next().expect("a message has a first line")
    }

    /// Status of a response; 0 for a request.
    pub(crate) fn status(&self) -> u16 {
        self.start().strip_prefix("SIP/2.0 ").map_or(0, |rest| rest[..3].parse().expect("a status"))
    }

    pub(crate) fn method(&self) -> &str {
        self.start().split(' ').next().expect("split gives one part at least")
    }

    pub(crate) fn uri(&self) -> &str {
        self.start().split(' ').nth(1).expect("a Request-URI")
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let head = self.0.split("\r\n\r\n").next().expect("split gives one part at least");
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(n, _)| n.trim().eq_ignore_ascii_case(name)).map(|(_, v)| v.trim()).collect()
    }

    pub(crate) fn one(&self, name: &str) -> &str {
        self.all(name).first().copied().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }
}

/// A request to send.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) call_id: String,
    pub(crate) cseq: u32,
    /// Further header lines, each with `\n`.
    pub(crate) lines: String,
}

pub(crate) struct Phone {
    socket: UdpSocket,
    pub(crate) address: SocketAddr,
    server: SocketAddr,
    /// Address-of-record without angle brackets.
    pub(crate) aor: String,
}

fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl Phone {
    /// A request outside any dialog.
    pub(crate) fn call(&self, method: &str, uri: &str) -> Call {
        let n = unique();
        Call {
            method: method.into(),
            uri: uri.into(),
            from: format!("<{}>;tag=f{n}", self.aor),
            to: format!("<{uri}>"),
            call_id: format!("{n}@{}", self.address),
            cseq: 1,
            lines: String::new(),
        }
    }

    pub(crate) fn text(&self, call: &Call) -> String {
        let Call { method, uri, from, to, call_id, cseq, lines } = call;
        format!(
            "{method} {uri} SIP/2.0\nVia: SIP/2.0/UDP {};branch=z9hG4bK{cseq}x{call_id}{}\nMax-Forwards: 70\nFrom: {from}\nTo: {to}\n\
             Call-ID: {call_id}\nCSeq: {cseq} {method}\nContact: <sip:phone@{}>\n{lines}Content-Length: 0\n\n",
            self.address,
            if method == "ACK" { "ack" } else { "" },
            self.address
        )
        .replace('\n', "\r\n")
    }

    pub(crate) fn send(&self, text: &str) {
        self.socket.send_to(text.as_bytes(), self.server).expect("loopback takes it");
    }

    /// Returns the next message, if one arrives within this time.
    pub(crate) fn within(&self, time: Duration) -> Option<Got> {
        let end = Instant::now() + time;
        let mut buffer = [0; 65_535];
        loop {
            let left = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero())?;
            self.socket.set_read_timeout(Some(left)).expect("not zero");
            if let Ok((len, _)) = self.socket.recv_from(&mut buffer) {
                // Skips the server's pings.
                let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
                if !text.contains("Call-ID: ping-") {
                    return Some(Got(text));
                }
            }
        }
    }

    /// Returns the server's next ping, if it arrives before `end`. Skips other messages.
    pub(crate) fn pinged_before(&self, end: Instant) -> Option<()> {
        let mut buffer = [0; 65_535];
        loop {
            // A ping that already waits in the socket counts, however late it is read.
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left)).expect("not zero");
            let (len, _) = self.socket.recv_from(&mut buffer).ok()?;
            if String::from_utf8_lossy(&buffer[..len]).contains("Call-ID: ping-") {
                return Some(());
            }
        }
    }

    pub(crate) fn next(&self) -> Got {
        self.within(SOON).unwrap_or_else(|| panic!("{}: nothing came", self.aor))
    }

    /// Checks that no message arrives for a while.
    pub(crate) fn hears_nothing(&self) {
        if let Some(got) = self.within(Duration::from_millis(300)) {
            panic!("{} heard {}", self.aor, got.0);
        }
    }

    /// Returns the next message that is not a 100.
    pub(crate) fn answer(&self) -> Got {
        loop {
            let got = self.next();
            if got.status() != 100 {
                return got;
            }
        }
    }

    /// Sends a request and returns its response other than 100. Acknowledges a failure of an INVITE.
    pub(crate) fn ask(&self, call: &Call) -> Got {
        self.send(&self.text(call));
        let got = self.answer();
        if call.method == "INVITE" && got.status() >= 300 {
            let mut ack = self.text(call).replacen("INVITE", "ACK", 1).replace(" INVITE\r\n", " ACK\r\n");
            ack = ack.replace(&format!("To: {}\r\n", call.to), &format!("To: {}\r\n", got.one("To")));
            self.send(&ack);
        }
        got
    }

    /// The request with credentials for this challenge.
    pub(crate) fn authorized(&self, call: &Call, challenge: &Got, user: &str, password: &str) -> Call {
        let (name, line) = match challenge.status() {
            401 => ("WWW-Authenticate", "Authorization"),
            407 => ("Proxy-Authenticate", "Proxy-Authorization"),
            _ => panic!("no challenge: {}", challenge.0),
        };
        let values = challenge.all(name);
        let challenges: Vec<Challenge<'_>> =
            values.iter().map(|v| Challenge::parse(v.as_bytes()).expect("a challenge")).collect();
        let mut value = Vec::new();
        let answer = ChallengeAnswer {
            user: user.as_bytes(),
            secret: Secret::Password(password.as_bytes()),
            method: call.method.as_bytes(),
            uri: call.uri.as_bytes(),
            body: b"",
            cnonce: b"cnonce",
            nc: 1,
        };
        answer.write(strongest(&challenges).expect("one that is known"), &mut value).expect("it can be answered");
        let mut call = call.clone();
        call.cseq += 1;
        call.lines.push_str(&format!("{line}: {}\n", String::from_utf8(value).expect("text")));
        call
    }

    /// Sends a request, and again with credentials of this user.
    pub(crate) fn ask_as(&self, call: &Call, user: &str) -> Got {
        let challenge = self.ask(call);
        self.ask(&self.authorized(call, &challenge, user, user))
    }

    pub(crate) fn register_call(&self, lines: &str) -> Call {
        let mut call = self.call("REGISTER", "sip:example.org");
        call.to = format!("<{}>", self.aor);
        call.lines = lines.into();
        call
    }

    /// Registers this phone under its user.
    pub(crate) fn register(&self) {
        let user = self.aor.trim_start_matches("sip:").split('@').next().expect("a user").to_owned();
        let got = self.ask_as(&self.register_call("Expires: 600\n"), &user);
        assert_eq!(got.status(), 200, "{}", got.0);
    }

    /// Responds to a received request, with these additional lines.
    pub(crate) fn respond(&self, request: &Got, status: u16, lines: &str) {
        self.respond_with(request, status, &format!("Contact: <sip:phone@{}>\n{lines}", self.address));
    }

    /// Responds to a received request, with this address as Contact.
    pub(crate) fn respond_as(&self, request: &Got, status: u16, address: &str) {
        self.respond_with(request, status, &format!("Contact: <sip:phone@{address}>\n"));
    }

    fn respond_with(&self, request: &Got, status: u16, lines: &str) {
        self.send(&self.response(request, status, lines));
    }

    /// Text of a response.
    pub(crate) fn response(&self, request: &Got, status: u16, lines: &str) -> String {
        let mut index = Index::new();
        index.parse(request.0.as_bytes(), &Limits::default()).expect("well-formed");
        let message = Message::new(request.0.as_bytes(), &index);
        let mut text = Vec::new();
        let mut builder = build::respond(&message, status, None, Some(b"answer"), &mut text);
        if (101..300).contains(&status) {
            builder = builder.copy(&message, Name::RecordRoute);
        }
        builder.buffer().extend_from_slice(lines.replace('\n', "\r\n").as_bytes());
        builder.finish(b"");
        String::from_utf8(text).expect("text")
    }
}
