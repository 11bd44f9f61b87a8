//! Site of a generator: its core, its peer, and the obstacles between them.

use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};
use strowger_tests::wait;

use strowger_tests::generator::{Answers, Ran, Running, answers_by, certificates, reply};
use strowger_tests::plant::{Fate, Scheduling, Shown, cores, link, may_be_real_time, program, slices, spinners};
use strowger_tests::port;
use strowger_tests::server::{Server, Setup};
use strowger_tests::wire::Transport;

/// Site of a generator and its peer.
pub(super) struct Site {
    pub(super) scheduling: Scheduling,
    /// The generator's core, and the peer's.
    pub(super) own: usize,
    pub(super) other: usize,
    pub(super) folder: tempfile::TempDir,
    /// The generators and their peers, for the witness.
    pub(super) shown: Shown,
    pub(super) peers: Shown,
    /// True if a generator ended before the condition was planted.
    pub(super) missed: Cell<bool>,
}

impl Site {
    pub(super) fn new(scheduling: Scheduling) -> Self {
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

    pub(super) fn start_as(&self, scheduling: Scheduling, words: &[&str]) -> Running {
        // Calls end at once unless the arguments give a hold.
        let hold: &[&str] =
            if words.iter().any(|word| ["--hold", "--scenario", "-w"].contains(word)) { &[] } else { &["--hold", "0"] };
        let generator = Running::start_by(program(self.own, scheduling), &[words, hold, &["--no-preflight"]].concat());
        self.shown.lock().expect("nothing panics with it").push(generator.id());
        generator
    }

    pub(super) fn start(&self, words: &[&str]) -> Running {
        self.start_as(self.scheduling, words)
    }

    pub(super) fn run(&self, words: &[&str]) -> Ran {
        self.start(words).end(LONGEST)
    }

    pub(super) fn answers(&self, words: &[&str]) -> Answers {
        self.answers_at(&format!("127.0.0.1:{}", port::free()), words)
    }

    pub(super) fn answers_at(&self, address: &str, words: &[&str]) -> Answers {
        answers_by(program(self.other, self.scheduling), address.parse().expect("an address"), words)
    }

    /// Starts an answering side that answers quickly even on a busy machine, if this user may schedule it with priority
    /// over other programs.
    pub(super) fn quick_answers(&self, words: &[&str]) -> Answers {
        let scheduling = if may_be_real_time() { Scheduling::RealTime } else { Scheduling::Ordinary };
        let uas = answers_by(program(self.other, scheduling), local(port::free()), words);
        self.peers.lock().expect("nothing panics with it").push(uas.id());
        uas
    }

    /// Runs calls to an answering side of the site.
    pub(super) fn calls(&self, words: &[&str]) -> Ran {
        let uas = self.answers(&[]);
        self.run(&[&[uas.address.to_string().as_str()], words].concat())
    }

    /// Waits for the first second of a generator. On a busy machine the generator may end before it has reported that second.
    pub(super) fn under_way(&self, generator: &Running) {
        self.missed.set(!generator.comes_to(1));
    }

    /// Runs calls, and disturbs the generator with `hold_up` once calls are under way.
    pub(super) fn held_up(&self, words: &[&str], hold_up: impl FnOnce(&Running)) -> Ran {
        let uas = self.answers(&[]);
        let mut generator = self.start(&[&[uas.address.to_string().as_str()], words].concat());
        self.under_way(&generator);
        hold_up(&generator);
        generator.end(LONGEST)
    }
}

pub(super) const LONGEST: Duration = Duration::from_secs(60);

pub(super) fn ms(length: u64) -> Duration {
    Duration::from_millis(length)
}

/// Runs calls beside threads on the generator's core that never sleep.
pub(super) fn beside_spinners(site: &Site, count: usize, words: &[&str]) -> Ran {
    let uas = site.quick_answers(&[]);
    let _spinners = spinners(count, site.own, Scheduling::Ordinary);
    let target = uas.address.to_string();
    site.start_as(Scheduling::Ordinary, &[&[target.as_str()], words].concat()).end(LONGEST)
}

/// Runs calls, four at once, while threads take the core in slices too short to cause a lag.
pub(super) fn beside_slices(site: &Site, count: usize, scheduling: Scheduling, work: u64, rest: u64) -> Ran {
    let uas = site.quick_answers(&[]);
    let _slices = slices(count, site.own, scheduling, Duration::from_micros(work), Duration::from_micros(rest));
    let target = uas.address.to_string();
    site.start_as(Scheduling::Ordinary, &[&target, "-r", "30000", "-l", "4", "-d", "2s"]).end(LONGEST)
}

pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Starts a peer that reads requests and answers them all at multiples of this time.
pub(super) fn in_batches(step: Duration) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_nonblocking(true).expect("it can be");
    let address = socket.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (end, mut bytes) = (Instant::now() + LONGEST, vec![0; 65_536]);
        while Instant::now() < end {
            // The peer answers in batches, one batch at each step.
            std::thread::sleep(step);
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let _ = socket.send_to(reply("200 OK", &text, address).as_bytes(), from);
            }
        }
    });
    address
}

/// Sends OPTIONS to a peer that the test itself runs.
pub(super) fn asks(site: &Site, peer: SocketAddr, words: &[&str]) -> Ran {
    site.run(&[&[peer.to_string().as_str(), "-w", "options", "--timeout", "1s"], words].concat())
}

/// Runs calls over a link with this fate of datagrams.
pub(super) fn over(site: &Site, fate: Fate, words: &[&str]) -> Ran {
    let uas = site.answers(&[]);
    let (address, _link) = link(uas.address, fate);
    site.run(&[&[address.to_string().as_str(), "-r", "100", "-d", "1s"], words].concat())
}

pub(super) const NOW: &[Duration] = &[Duration::ZERO];
pub(super) const LATER: &[Duration] = &[Duration::from_millis(60)];
pub(super) const TWICE: &[Duration] = &[Duration::ZERO, Duration::from_millis(3)];

/// Starts a server that relays calls to their Request-URI.
pub(super) fn relay() -> Server {
    Setup::on(&[Transport::Udp]).relay().with("ban.enabled = false").start()
}

/// Starts calls over TLS.
pub(super) fn by_tls(site: &Site, words: &[&str]) -> (Answers, Running) {
    let files = certificates(site.folder.path());
    let own: Vec<&str> = files[2..].iter().map(String::as_str).collect();
    let uas = site.answers(&[&["--transport", "tls"], &own[..]].concat());
    let target = format!("tls://{}", uas.address);
    let generator = site.start(&[&[target.as_str()], words].concat());
    (uas, generator)
}

/// Writes a document whose calls send sound for half a second. Returns its path.
pub(super) fn sound(site: &Site) -> String {
    let document = site.folder.path().join("sound.xml");
    std::fs::write(site.folder.path().join("sound.raw"), vec![0u8; 8_000]).expect("the folder can be written");
    let text = include_str!("../../scenarios/sound.xml")
        .replace("SOUND", &site.folder.path().join("sound.raw").display().to_string());
    std::fs::write(&document, text).expect("the folder can be written");
    document.display().to_string()
}

/// Control group (cgroup) that gives its processes a share of a core. None if the kernel has no such groups.
pub(super) struct Share(std::path::PathBuf);

impl Share {
    pub(super) fn of_a_core(per_cent: u64) -> Option<Self> {
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

    pub(super) fn take(&self, process: u32) {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).expect("a process can be moved");
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // The kernel removes the group once its processes are gone.
        wait::until(ms(1_000), || std::fs::remove_dir(&self.0).is_ok());
    }
}
