//! Are the figures the server's? Forty conditions are planted, each with a truth that is known beforehand: the generator was kept from
//! its work, or it was not, whatever the server did. No run may be called VALID that is not, none INVALID that is.
//!
//! That a generator kept its times can only be demanded where the machine let it. A witness on its core says so: a thread with a timer
//! and nothing else, which also reads what the kernel has counted of the generator's wait for a core. Where it was disturbed, an
//! INVALID says nothing and the run is made again, at last before all other work (SCHED_FIFO), where this user may ask for that. In
//! the same way a VALID beside programs that take the generator's core is wrong only where it did wait for it: a scheduler may be kind.
//!
//! `make test` tries a part of them once, `make test-verdict` all of them twenty times.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use strowger_tests::generator::{Answers, Ran, Running, answers_by, certificates, peer, reply};
use strowger_tests::plant::{
    Fate, Scheduling, Shown, Testimony, Witness, cores, link, may_be_real_time, program, spinners,
};
use strowger_tests::server::{Server, Setup};
use strowger_tests::wire::Transport;
use strowger_tests::{alone, port};

/// What is so, whatever a report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    /// The generator could do what it was asked to.
    Valid,
    /// It could not; one of these settings has to say so.
    Invalid(&'static [&'static str]),
    /// The same, if the kernel says that it waited for its core.
    Starved(&'static [&'static str]),
    /// It could but for a part of the run, which one of these has to name.
    Spoilt(&'static [&'static str]),
}

struct Condition {
    name: &'static str,
    truth: Truth,
    plant: fn(&Site) -> Ran,
    /// Part of `make test`.
    often: bool,
    /// Only the privileged can plant it.
    privileged: bool,
}

const fn valid(name: &'static str, plant: fn(&Site) -> Ran) -> Condition {
    Condition { name, truth: Truth::Valid, plant, often: false, privileged: false }
}

const fn invalid(name: &'static str, by: &'static [&'static str], plant: fn(&Site) -> Ran) -> Condition {
    Condition { name, truth: Truth::Invalid(by), plant, often: false, privileged: false }
}

const fn starved(name: &'static str, by: &'static [&'static str], plant: fn(&Site) -> Ran) -> Condition {
    Condition { truth: Truth::Starved(by), ..invalid(name, by, plant) }
}

impl Condition {
    const fn often(self) -> Self {
        Self { often: true, ..self }
    }

    const fn privileged(self) -> Self {
        Self { privileged: true, ..self }
    }
}

/// Where a generator runs and its peer.
struct Site {
    scheduling: Scheduling,
    /// The generator's core, and the peer's.
    own: usize,
    other: usize,
    folder: tempfile::TempDir,
    /// The generators and their peers, for the witness.
    shown: Shown,
    peers: Shown,
    /// A generator was over before anything was done to it.
    missed: Cell<bool>,
}

impl Site {
    fn new(scheduling: Scheduling) -> Self {
        let [own, other] = cores();
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self {
            scheduling,
            own,
            other,
            folder,
            shown: Shown::default(),
            peers: Shown::default(),
            missed: Cell::new(false),
        }
    }

    fn start_as(&self, scheduling: Scheduling, words: &[&str]) -> Running {
        // Calls end at once where nothing else is said.
        let hold: &[&str] =
            if words.iter().any(|word| ["--hold", "--scenario", "-w"].contains(word)) { &[] } else { &["--hold", "0"] };
        let generator = Running::start_by(program(self.own, scheduling), &[words, hold, &["--no-preflight"]].concat());
        self.shown.lock().expect("nothing panics with it").push(generator.id());
        generator
    }

    fn start(&self, words: &[&str]) -> Running {
        self.start_as(self.scheduling, words)
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.start(words).end(LONGEST)
    }

    fn answers(&self, words: &[&str]) -> Answers {
        self.answers_at(&format!("127.0.0.1:{}", port::free()), words)
    }

    fn answers_at(&self, address: &str, words: &[&str]) -> Answers {
        answers_by(program(self.other, self.scheduling), address.parse().expect("an address"), words)
    }

    /// A peer that is quick whatever else the machine does, if this user may ask for that.
    fn quick_answers(&self, words: &[&str]) -> Answers {
        let scheduling = if may_be_real_time() { Scheduling::RealTime } else { Scheduling::Ordinary };
        let uas = answers_by(program(self.other, scheduling), local(port::free()), words);
        self.peers.lock().expect("nothing panics with it").push(uas.id());
        uas
    }

    /// Calls to an answerer of ours.
    fn calls(&self, words: &[&str]) -> Ran {
        let uas = self.answers(&[]);
        self.run(&[&[uas.address.to_string().as_str()], words].concat())
    }

    /// Waits for its first second. On a machine that is busy with something else it may be over before it has told of it.
    fn under_way(&self, generator: &Running) {
        self.missed.set(!generator.comes_to(1));
    }

    /// Those that are held up once they are under way.
    fn held_up(&self, words: &[&str], hold_up: impl FnOnce(&Running)) -> Ran {
        let uas = self.answers(&[]);
        let mut generator = self.start(&[&[uas.address.to_string().as_str()], words].concat());
        self.under_way(&generator);
        hold_up(&generator);
        generator.end(LONGEST)
    }
}

const LONGEST: Duration = Duration::from_secs(60);

fn ms(length: u64) -> Duration {
    Duration::from_millis(length)
}

/// Stops it, and lets it go on.
fn stop(generator: &Running, length: Duration) {
    generator.signal(libc::SIGSTOP);
    std::thread::sleep(length);
    generator.signal(libc::SIGCONT);
}

/// Calls beside threads that never sleep on their core.
fn beside_spinners(site: &Site, count: usize, words: &[&str]) -> Ran {
    let uas = site.quick_answers(&[]);
    let _spinners = spinners(count, site.own, Scheduling::Ordinary);
    let target = uas.address.to_string();
    site.start_as(Scheduling::Ordinary, &[&[target.as_str()], words].concat()).end(LONGEST)
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A peer that reads requests and answers them all at multiples of this time.
fn in_batches(step: Duration) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_nonblocking(true).expect("it can be");
    let address = socket.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (end, mut bytes) = (Instant::now() + LONGEST, vec![0; 65_536]);
        while Instant::now() < end {
            std::thread::sleep(step);
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let _ = socket.send_to(reply("200 OK", &text, address).as_bytes(), from);
            }
        }
    });
    address
}

/// Requests to a peer by hand.
fn asks(site: &Site, peer: SocketAddr, words: &[&str]) -> Ran {
    site.run(&[&[peer.to_string().as_str(), "-w", "options", "--timeout", "1s"], words].concat())
}

/// Calls over a link like this.
fn over(site: &Site, fate: Fate, words: &[&str]) -> Ran {
    let uas = site.answers(&[]);
    let (address, _link) = link(uas.address, fate);
    site.run(&[&[address.to_string().as_str(), "-r", "100", "-d", "1s"], words].concat())
}

const NOW: &[Duration] = &[Duration::ZERO];
const LATER: &[Duration] = &[Duration::from_millis(60)];
const TWICE: &[Duration] = &[Duration::ZERO, Duration::from_millis(3)];

/// A server that passes calls on to where they are aimed.
fn relay() -> Server {
    Setup::on(&[Transport::Udp]).relay().with("ban.enabled = false").start()
}

/// Calls over TLS.
fn by_tls(site: &Site, words: &[&str]) -> (Answers, Running) {
    let files = certificates(site.folder.path());
    let own: Vec<&str> = files[2..].iter().map(String::as_str).collect();
    let uas = site.answers(&[&["--transport", "tls"], &own[..]].concat());
    let target = format!("tls://{}", uas.address);
    let generator = site.start(&[&[target.as_str()], words].concat());
    (uas, generator)
}

/// A document whose calls send sound for half a second.
fn sound(site: &Site) -> String {
    let document = site.folder.path().join("sound.xml");
    std::fs::write(site.folder.path().join("sound.raw"), vec![0u8; 8_000]).expect("the folder can be written");
    let text = include_str!("../scenarios/sound.xml")
        .replace("SOUND", &site.folder.path().join("sound.raw").display().to_string());
    std::fs::write(&document, text).expect("the folder can be written");
    document.display().to_string()
}

/// A group of the kernel's (cgroup) that gives its processes so much of a core; none where there are no such groups.
struct Share(std::path::PathBuf);

impl Share {
    fn of_a_core(per_cent: u64) -> Option<Self> {
        let name = format!("strowger-test-{}", std::process::id());
        let own = |root: &str| Path::new(root).join(&name);
        // Version 1 of cgroups, then 2.
        for (folder, file, text) in [
            (own("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us", (per_cent * 1_000).to_string()),
            (own("/sys/fs/cgroup"), "cpu.max", format!("{} 100000", per_cent * 1_000)),
        ] {
            if std::fs::create_dir(&folder).is_ok() {
                let share = Self(folder);
                if std::fs::write(share.0.join(file), text).is_ok() {
                    return Some(share);
                }
            }
        }
        None
    }

    fn take(&self, process: u32) {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).expect("a process can be moved");
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Once those that were in it are gone.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(ms(10));
        }
    }
}

const CONDITIONS: &[Condition] = &[
    // ---- nobody is in the generator's way
    valid("calls over UDP", |site| site.calls(&["-r", "200", "-d", "1s"])).often(),
    valid("calls over TCP", |site| {
        let uas = site.answers(&["--transport", "tcp"]);
        site.run(&[&format!("tcp://{}", uas.address), "-r", "200", "-d", "1s"])
    }),
    valid("calls over TLS", |site| by_tls(site, &["-r", "100", "-d", "1s"]).1.end(LONGEST)),
    valid("a connection for each call", |site| {
        let uas = site.answers(&["--transport", "tcp"]);
        let target = format!("tcp://{}", uas.address);
        site.run(&[&target, "-r", "100", "-d", "1s", "--connections", "per-call"])
    }),
    valid("a socket for each call", |site| site.calls(&["-r", "100", "-d", "1s", "--connections", "per-call"])),
    valid("sockets of users, and less of them than calls", |site| {
        site.calls(&["-r", "100", "-d", "1s", "--connections", "per-call", "--max-sockets", "5", "--hold", "100ms"])
    }),
    valid("arrivals at random", |site| site.calls(&["-r", "300", "-d", "1s", "--arrivals", "poisson"])),
    valid("a rate that rises", |site| site.calls(&["--rate-profile", "50-800:1500ms"])),
    valid("many calls a second", |site| site.calls(&["-r", "3000", "-d", "1s"])).often(),
    valid("few calls a second", |site| site.calls(&["-r", "5", "-d", "2s"])),
    valid("many calls open at once", |site| site.calls(&["-r", "800", "-d", "1s", "--hold", "1s"])),
    valid("both ends here", |site| {
        let relay = relay();
        let target = relay.address(Transport::Udp).to_string();
        site.run(&[&target, "--pair", "-r", "200", "-d", "1s"])
    }),
    valid("two generators on one core", |site| {
        let uas = site.answers(&[]);
        let target = uas.address.to_string();
        let mut other = site.start(&[&target, "-r", "100", "-d", "3s"]);
        site.under_way(&other);
        let ran = site.run(&[&target, "-r", "100", "-d", "1s"]);
        other.end(LONGEST);
        ran
    }),
    valid("sound beside calls", |site| {
        let (uas, document) = (site.answers(&[]), sound(site));
        site.run(&[&uas.address.to_string(), "--scenario", &document, "-r", "20", "-d", "1s"])
    }),
    // ---- many at once
    valid("a burst", |site| site.calls(&["--rate-profile", "burst:1000,50:500ms"])).often(),
    valid("a large burst", |site| site.calls(&["--rate-profile", "burst:5000,50:500ms"])),
    valid("a burst beyond the limit of concurrent calls", |site| {
        site.calls(&["--rate-profile", "burst:2000,50:500ms", "-l", "1000"])
    })
    .often(),
    valid("bursts one after the other", |site| {
        site.calls(&["--rate-profile", "100:300ms,burst:500,100:300ms,burst:800,100:300ms"])
    }),
    // ---- the server is the limit
    valid("an answerer that takes its time", |site| {
        let uas = site.answers(&["--ring", "300ms"]);
        site.run(&[&uas.address.to_string(), "-r", "200", "-d", "1s"])
    }),
    valid("a server that is stopped", |site| {
        let uas = site.answers(&[]);
        let mut generator = site.start(&[&uas.address.to_string(), "-r", "300", "-d", "2s"]);
        site.under_way(&generator);
        uas.signal(libc::SIGSTOP);
        std::thread::sleep(ms(1_000));
        uas.signal(libc::SIGCONT);
        generator.end(LONGEST)
    }),
    valid("a server that is stopped, and a limit of concurrent calls", |site| {
        let uas = site.answers(&[]);
        let words = ["-r", "500", "-l", "300", "-d", "3s"];
        let mut generator = site.start(&[&[uas.address.to_string().as_str()], &words[..]].concat());
        site.under_way(&generator);
        uas.signal(libc::SIGSTOP);
        std::thread::sleep(ms(1_700));
        uas.signal(libc::SIGCONT);
        generator.end(LONGEST)
    })
    .often(),
    valid("a server that is stopped for good", |site| {
        let uas = site.answers(&[]);
        let words = ["-r", "200", "-l", "50", "-d", "1500ms", "--timeout", "400ms"];
        let mut generator = site.start(&[&[uas.address.to_string().as_str()], &words[..]].concat());
        site.under_way(&generator);
        uas.signal(libc::SIGSTOP);
        let ran = generator.end(LONGEST);
        uas.signal(libc::SIGCONT);
        ran
    }),
    valid("a peer that answers in batches", |site| asks(site, in_batches(ms(150)), &["-r", "400", "-d", "1s"])).often(),
    valid("a peer that carries less than is asked of it", |site| {
        let slow = peer(|_, _| {
            std::thread::sleep(ms(5));
            Some("200 OK")
        });
        asks(site, slow, &["-r", "400", "-d", "1s"])
    }),
    valid("a peer that carries less, and a limit of concurrent calls", |site| {
        let slow = peer(|_, _| {
            std::thread::sleep(ms(5));
            Some("200 OK")
        });
        asks(site, slow, &["-r", "400", "-d", "1s", "-l", "20"])
    }),
    valid("a limit too low for rate times call length", |site| {
        site.calls(&["-r", "200", "-d", "1s", "--hold", "500ms", "-l", "50"])
    }),
    valid("a peer that refuses everything", |site| {
        asks(site, peer(|_, _| Some("503 Service Unavailable")), &["-r", "300", "-d", "1s"])
    }),
    valid("a peer that says nothing", |site| {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        asks(site, silent.local_addr().expect("it is bound"), &["-r", "100", "-d", "1s", "-l", "30"])
    }),
    valid("a server that starts late", |site| {
        let address = local(port::free());
        let mut generator = site.start(&[&address.to_string(), "-r", "100", "-d", "2s"]);
        site.under_way(&generator);
        let _uas = site.answers_at(&address.to_string(), &[]);
        generator.end(LONGEST)
    }),
    valid("a server whose core is taken", |site| {
        let _spinners = spinners(4, site.other, Scheduling::Ordinary);
        let uas = answers_by(program(site.other, Scheduling::Ordinary), local(port::free()), &[]);
        site.run(&[&uas.address.to_string(), "-r", "200", "-d", "1s"])
    }),
    // ---- the link
    valid("a link that loses", |site| over(site, |n| if n % 19 == 7 { &[] } else { NOW }, &[])),
    valid("a link that delays", |site| over(site, |_| LATER, &[])),
    valid("a link that doubles and mixes up", |site| over(site, |n| if n % 5 == 0 { LATER } else { TWICE }, &[])),
    // ---- the disk of the log
    valid("a log that nobody reads", |site| {
        let pipe = site.folder.path().join("log");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
        assert!(made.success(), "a pipe can be made");
        let reads = pipe.clone();
        // So little is taken that the pipe is full.
        let reader = std::thread::spawn(move || {
            let mut file = std::fs::File::open(reads).expect("it was made");
            let (mut bytes, mut all) = ([0; 512], 0);
            while let Ok(length @ 1..) = file.read(&mut bytes) {
                all += length;
                std::thread::sleep(ms(20));
            }
            all
        });
        let ran = site.calls(&["-r", "300", "-d", "2s", "--log", &pipe.display().to_string()]);
        assert!(reader.join().expect("the reader lives") > 1_000, "something was written");
        ran
    }),
    valid("a disk that is full", |site| site.calls(&["-r", "200", "-d", "1s", "--log", "/dev/full"])).often(),
    // ---- the generator is kept from its work
    invalid("stopped for a third of a second", &["stall"], |site| {
        site.held_up(&["-r", "200", "-d", "2s"], |generator| stop(generator, ms(320)))
    })
    .often(),
    invalid("stopped for a moment", &["lag_p99", "receive_lag"], |site| {
        site.held_up(&["-r", "200", "-d", "2s"], |generator| stop(generator, ms(60)))
    }),
    invalid("stopped for long", &["stall"], |site| {
        site.held_up(&["-r", "100", "-d", "2s"], |generator| stop(generator, ms(1_500)))
    }),
    invalid("stopped twice", &["stall"], |site| {
        site.held_up(&["-r", "200", "-d", "3s"], |generator| {
            stop(generator, ms(300));
            std::thread::sleep(ms(300));
            stop(generator, ms(300));
        })
    }),
    invalid("stopped again and again for a little", &["lag_p99", "receive_lag"], |site| {
        site.held_up(&["-r", "300", "-d", "2s"], |generator| {
            for _ in 0..30 {
                stop(generator, ms(8));
                std::thread::sleep(ms(12));
            }
        })
    })
    .often(),
    invalid("stopped while the server is", &["stall", "receive_lag"], |site| {
        let uas = site.answers(&[]);
        let words = ["-r", "300", "-l", "100", "-d", "3s"];
        let mut generator = site.start(&[&[uas.address.to_string().as_str()], &words[..]].concat());
        site.under_way(&generator);
        uas.signal(libc::SIGSTOP);
        std::thread::sleep(ms(300));
        generator.signal(libc::SIGSTOP);
        std::thread::sleep(ms(400));
        uas.signal(libc::SIGCONT);
        std::thread::sleep(ms(300));
        generator.signal(libc::SIGCONT);
        generator.end(LONGEST)
    }),
    invalid("stopped, over TLS", &["stall"], |site| {
        let (_uas, mut generator) = by_tls(site, &["-r", "100", "-d", "2s"]);
        site.under_way(&generator);
        stop(&generator, ms(400));
        generator.end(LONGEST)
    }),
    invalid("stopped, both ends here", &["stall"], |site| {
        let relay = relay();
        let target = relay.address(Transport::Udp).to_string();
        let mut generator = site.start(&[&target, "--pair", "-r", "100", "-d", "2s"]);
        site.under_way(&generator);
        stop(&generator, ms(350));
        generator.end(LONGEST)
    }),
    invalid("an answerer that is stopped", &["stall"], |site| {
        let uas = site.answers(&[]);
        let mut generator = site.start(&[&uas.address.to_string(), "-r", "100", "-d", "2s"]);
        site.under_way(&generator);
        uas.signal(libc::SIGSTOP);
        std::thread::sleep(ms(400));
        uas.signal(libc::SIGCONT);
        generator.end(LONGEST);
        // The report of the side that answers.
        uas.report()
    }),
    invalid("sound that was not sent", &["media_losses", "stall"], |site| {
        let (uas, document) = (site.answers(&[]), sound(site));
        let mut generator = site.start(&[&uas.address.to_string(), "--scenario", &document, "-r", "20", "-d", "2s"]);
        site.under_way(&generator);
        stop(&generator, ms(600));
        generator.end(LONGEST)
    }),
    // ---- others have its core
    starved("six others on its core, and a limit of concurrent calls", &["lag_p99", "receive_lag"], |site| {
        beside_spinners(site, 6, &["-r", "6000", "-l", "20", "-m", "1000"])
    })
    .often(),
    starved("three others on its core, and a limit of concurrent calls", &["lag_p99", "receive_lag"], |site| {
        beside_spinners(site, 3, &["-r", "4000", "-l", "40", "-m", "1500"])
    }),
    starved("three others on its core", &["lag_p99", "receive_lag"], |site| {
        beside_spinners(site, 3, &["-r", "100", "-d", "1500ms"])
    })
    .often(),
    starved("one other on its core", &["lag_p99", "receive_lag"], |site| {
        beside_spinners(site, 1, &["-r", "1000", "-d", "1500ms"])
    }),
    starved("two others on its core, over TCP", &["lag_p99", "receive_lag"], |site| {
        let uas = site.quick_answers(&["--transport", "tcp"]);
        let _spinners = spinners(2, site.own, Scheduling::Ordinary);
        let target = format!("tcp://{}", uas.address);
        site.start_as(Scheduling::Ordinary, &[&target, "-r", "200", "-d", "1500ms"]).end(LONGEST)
    }),
    starved("nice, and another on its core", &["lag_p99", "receive_lag", "run_queue", "stall"], |site| {
        let uas = site.quick_answers(&[]);
        let mut generator = site.start_as(Scheduling::Nice, &[&uas.address.to_string(), "-r", "50", "-d", "2s"]);
        site.under_way(&generator);
        let spinner = spinners(1, site.own, Scheduling::Ordinary);
        std::thread::sleep(ms(1_000));
        drop(spinner);
        generator.end(LONGEST)
    }),
    invalid("another before it on its core", &["lag_p99", "receive_lag", "stall"], |site| {
        let uas = site.answers(&[]);
        let mut generator = site.start_as(Scheduling::Ordinary, &[&uas.address.to_string(), "-r", "200", "-d", "2s"]);
        site.under_way(&generator);
        let spinner = spinners(1, site.own, Scheduling::RealTime);
        std::thread::sleep(ms(400));
        drop(spinner);
        generator.end(LONGEST)
    })
    .privileged(),
    invalid("a twentieth of a core", &["lag_p99", "receive_lag", "stall"], |site| {
        let uas = site.answers(&[]);
        let share = Share::of_a_core(5).expect("the privileged can make groups");
        let words = [&uas.address.to_string(), "-r", "2000", "-d", "2s"];
        let mut generator = site.start_as(Scheduling::Ordinary, &words);
        site.under_way(&generator);
        share.take(generator.id());
        let ran = generator.end(LONGEST);
        drop(generator);
        ran
    })
    .privileged(),
    // ---- it cannot
    invalid("more calls than it can begin", &["lag_p99", "rate_error"], |site| {
        site.calls(&["-r", "400000", "-m", "25000", "-l", "25000"])
    })
    .often(),
    invalid("more calls than it can begin, a connection for each", &["lag_p99", "rate_error"], |site| {
        let uas = site.answers(&["--transport", "tcp"]);
        let target = format!("tcp://{}", uas.address);
        site.run(&[&target, "-r", "100000", "-m", "3000", "--connections", "per-call"])
    }),
    invalid("datagrams that its kernel dropped", &["socket_drops"], |site| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
        let target = socket.local_addr().expect("it is bound").to_string();
        let words = ["-w", "message", "-r", "10", "--duration", "1s", "--timeout", "500ms"];
        let generator = &mut site.start(&[&[target.as_str()], &words[..]].concat());
        let (_, from) = socket.recv_from(&mut [0; 65_536]).expect("a request comes");
        generator.signal(libc::SIGSTOP);
        let junk = format!("SIP/2.0 200 OK\r\nCall-ID: nobody\r\nX-Long: {}\r\n\r\n", "x".repeat(900));
        for _ in 0..40_000 {
            let _ = socket.send_to(junk.as_bytes(), from);
        }
        generator.signal(libc::SIGCONT);
        generator.end(LONGEST)
    }),
    invalid("messages too long to be sent", &["send_failures"], |site| {
        let document = site.folder.path().join("long.xml");
        let text = include_str!("../scenarios/long.xml").replace("LONG", &"x".repeat(66_000));
        std::fs::write(&document, text).expect("the folder can be written");
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let target = silent.local_addr().expect("it is bound").to_string();
        site.run(&[&target, "--scenario", &document.display().to_string(), "-r", "50", "-m", "5"])
    }),
    // ---- a part of the run
    Condition {
        truth: Truth::Spoilt(&["stall"]),
        ..valid("one stall in a longer run", |site| {
            site.held_up(&["-r", "50", "-d", "8s", "--window", "1s", "--max-bad-windows", "40%"], |generator| {
                std::thread::sleep(ms(1_500));
                stop(generator, ms(300));
            })
        })
    },
];

/// What became of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The verdict is the truth.
    Right,
    /// It is not, but what was planted did not grow: the machine kept the generator from its work, or from nothing.
    Disturbed,
    Wrong,
}

fn thresholds(reasons: &serde_json::Value) -> Vec<String> {
    let of = |reason: &serde_json::Value| reason["threshold"].as_str().unwrap_or_default().to_owned();
    reasons.as_array().map(|all| all.iter().map(of).collect()).unwrap_or_default()
}

/// Holds a report against the truth.
fn judge(truth: Truth, ran: &Ran, testimony: Testimony) -> (Outcome, String) {
    let valid = ran.json["verdict"]["valid"].as_bool();
    let generator = &ran.json["generators"][0];
    let reasons = thresholds(&generator["reasons"]);
    let windows = generator["windows"].as_array().cloned().unwrap_or_default();
    let spoilt: Vec<String> = windows.iter().flat_map(|window| thresholds(&window["reasons"])).collect();
    let named = |by: &[&str], said: &[String]| said.iter().any(|reason| by.contains(&reason.as_str()));
    let code = (ran.code == 4) == (valid == Some(false));
    let right = code
        && match truth {
            Truth::Valid => valid == Some(true),
            Truth::Invalid(by) | Truth::Starved(by) => valid == Some(false) && named(by, &reasons),
            Truth::Spoilt(by) => valid == Some(true) && named(by, &spoilt),
        };
    let outcome = match truth {
        _ if right => Outcome::Right,
        _ if valid.is_none() || !code => Outcome::Wrong,
        // A machine that disturbs makes nothing valid.
        Truth::Starved(_) if valid == Some(true) && !testimony.is_starved() => Outcome::Disturbed,
        Truth::Valid | Truth::Spoilt(_) if valid == Some(false) && !testimony.is_quiet() => Outcome::Disturbed,
        Truth::Valid | Truth::Invalid(_) | Truth::Starved(_) | Truth::Spoilt(_) => Outcome::Wrong,
    };
    let said = format!("{truth:?}, said {valid:?} {reasons:?} {spoilt:?}, exit {}, witness {testimony:?}", ran.code);
    (outcome, if outcome == Outcome::Wrong { format!("{said}\n{}", ran.said) } else { said })
}

/// What a condition came to.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Verdicts that were the truth; of those, with the generator scheduled as everybody.
    right: usize,
    ordinary: usize,
    /// Tries that say nothing.
    disturbed: usize,
    wrong: usize,
}

/// Tries a condition until the machine lets it be judged.
fn judged(condition: &Condition, privileged: bool, tally: &mut Tally) -> Result<(), String> {
    let first = match condition.truth {
        // What is stopped is stopped, whatever else the machine does.
        Truth::Invalid(_) if privileged => Scheduling::RealTime,
        _ => Scheduling::Ordinary,
    };
    let again = if privileged { Scheduling::RealTime } else { Scheduling::Ordinary };
    for scheduling in &[first, again, again, again] {
        let site = Site::new(*scheduling);
        let witness = Witness::on(site.own, site.shown.clone(), site.peers.clone());
        let ran = (condition.plant)(&site);
        let testimony = witness.says();
        if site.missed.get() {
            tally.disturbed += 1;
            continue;
        }
        let (outcome, said) = judge(condition.truth, &ran, testimony);
        match outcome {
            Outcome::Right => {
                tally.right += 1;
                tally.ordinary += usize::from(*scheduling == Scheduling::Ordinary);
                return Ok(());
            }
            Outcome::Disturbed => {
                eprintln!("passed over ({scheduling:?}): {said}");
                tally.disturbed += 1;
            }
            Outcome::Wrong => return Err(format!("{} ({scheduling:?}): {said}", condition.name)),
        }
    }
    Ok(())
}

/// Tries conditions so many times each, and prints what they came to. No verdict may be wrong, and of several runs the machine must
/// have let one be judged.
fn try_all(conditions: &[&Condition], runs: usize) {
    let (begun, privileged) = (Instant::now(), may_be_real_time());
    let mut wrong = Vec::new();
    let mut rows: Vec<_> = conditions.iter().map(|condition| (*condition, Tally::default())).collect();
    rows.retain(|(condition, _)| privileged || !condition.privileged);
    for run in 1..=runs {
        for (condition, tally) in &mut rows {
            let begun = Instant::now();
            if let Err(said) = judged(condition, privileged, tally) {
                tally.wrong += 1;
                eprintln!("WRONG {said}");
                wrong.push(said);
            }
            eprintln!("{run}/{runs} {} ({:.1} s) {tally:?}", condition.name, begun.elapsed().as_secs_f64());
        }
    }
    eprintln!(
        "\n{:64} {:>8} {:>5} {:>9} {:>9} {:>5}",
        "condition", "truth", "right", "(ordinary)", "disturbed", "wrong"
    );
    for (Condition { name, truth, .. }, Tally { right, ordinary, disturbed, wrong }) in &rows {
        let truth = match truth {
            Truth::Valid => "VALID",
            Truth::Invalid(_) | Truth::Starved(_) => "INVALID",
            Truth::Spoilt(_) => "in part",
        };
        eprintln!("{name:64} {truth:>8} {right:>5} {ordinary:>10} {disturbed:>9} {wrong:>5}");
    }
    let sum = |of: fn(&Tally) -> usize| rows.iter().map(|(_, tally)| of(tally)).sum::<usize>();
    eprintln!(
        "{} conditions in {:.0} s: {} verdicts right, {} wrong; {} runs disturbed",
        rows.len(),
        begun.elapsed().as_secs_f64(),
        sum(|tally| tally.right),
        wrong.len(),
        sum(|tally| tally.disturbed),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let never: Vec<&str> =
        rows.iter().filter(|(_, tally)| tally.right == 0).map(|(condition, _)| condition.name).collect();
    assert!(runs == 1 || never.is_empty(), "the machine was too busy to judge: {}", never.join(", "));
}

#[test]
fn no_verdict_is_wrong() {
    let _alone = alone();
    let runs = std::env::var("STROWGER_VERDICT_RUNS").ok().map(|runs| runs.parse().expect("a number of runs"));
    let wanted = std::env::var("CASE").unwrap_or_default();
    let all = runs.is_some() || !wanted.is_empty();
    let chosen = CONDITIONS.iter().filter(|condition| (all || condition.often) && condition.name.contains(&wanted));
    try_all(&chosen.collect::<Vec<_>>(), runs.unwrap_or(1));
}

#[test]
fn forty_conditions_have_names_of_their_own() {
    let names: BTreeSet<&str> = CONDITIONS.iter().map(|condition| condition.name).collect();
    assert_eq!(names.len(), CONDITIONS.len());
    assert!(names.len() >= 40, "{}", names.len());
    assert!(CONDITIONS.iter().filter(|condition| condition.often).count() >= 12);
}
