//! How many messages a second one core indexes, reads through typed views, and writes back from them.
//!
//! The seven messages of PJSIP's parser benchmark (`$STROWGER_CORPORA/parser-benchmark`), counted as that benchmark
//! counts: bytes read / 800. Where they are missing, the seven of `benches/messages`. Before anything is measured,
//! the header lines and the values of each message are counted: a parser that stops early looks fast.
//!
//! Times are of the thread, not of the clock on the wall, and the best of several rounds counts: what else runs on
//! the machine disturbs as little as may be. Exit code 1 if a rate is below what is demanded.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use strowger_message::index::Start;
use strowger_message::view::{self, Typed, View, Visit};
use strowger_message::{Error, Essentials, Index, Limits, Line, Message, Name, Uri, Write, scan};

/// Bytes of one message of the count.
const NORMAL: f64 = 800.0;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(120);

/// A message and what must be found in it.
struct Sample {
    bytes: Vec<u8>,
    /// Header lines, a folded one counted once.
    lines: usize,
    /// Values of the header fields that are typed.
    values: usize,
}

/// A message taken apart, as an element holds it that changes header fields one by one.
struct Parts<'a> {
    message: Message<'a>,
    uri: Option<Uri<'a>>,
    /// Name and values of each header line.
    lines: Vec<(&'a [u8], Vec<View<'a>>)>,
}

impl<'a> Parts<'a> {
    fn of(message: Message<'a>) -> Result<Self, Error> {
        let mut lines: Vec<_> = message
            .index()
            .lines()
            .iter()
            .map(|line| {
                (if line.name == Name::Other { message.name(line) } else { line.name.text().as_bytes() }, Vec::new())
            })
            .collect();
        view::all(&message, |line, view| {
            let number = message.index().lines().iter().position(|l| l.start == line.start).expect("one of them");
            lines[number].1.push(*view);
        })?;
        let uri = if message.is_request() { Some(message.uri()?) } else { None };
        Ok(Self { message, uri, lines })
    }

    /// Writes the whole message anew, each value from its view.
    fn write(&self, out: &mut Vec<u8>) {
        match &self.uri {
            Some(uri) => {
                out.extend_from_slice(self.message.method_text());
                out.push(b' ');
                uri.write(out);
                out.extend_from_slice(b" SIP/2.0\r\n");
            }
            None => {
                out.extend_from_slice(b"SIP/2.0 ");
                (self.message.status().unwrap_or_default() as u32).write(out);
                out.push(b' ');
                out.extend_from_slice(self.message.reason());
                out.extend_from_slice(b"\r\n");
            }
        }
        for (name, views) in &self.lines {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            for (n, view) in views.iter().enumerate() {
                if n > 0 {
                    out.extend_from_slice(b", ");
                }
                view.write(out);
            }
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.message.body());
    }
}

/// Counts values, and makes sure that each is really read.
#[derive(Default)]
struct Count {
    values: usize,
}

impl<'a> Visit<'a> for Count {
    #[inline]
    fn value<T: Typed<'a>>(&mut self, line: &'a Line, value: &T) {
        black_box(value);
        self.values += has_grammar(line.name) as usize;
    }
}

/// Other header fields are text, whose reading costs and says nothing.
fn has_grammar(name: Name) -> bool {
    !matches!(name, Name::Other | Name::Organization | Name::Subject | Name::Server | Name::UserAgent)
}

/// Reads each value, keeps none; how many there are of the header fields that have a grammar.
#[inline]
fn read_all(message: &Message<'_>) -> Result<usize, Error> {
    let mut count = Count::default();
    view::visit(message, &mut count)?;
    Ok(count.values)
}

/// One thing that is measured: what is demanded, what is aimed at, what was seen, in messages a second.
struct Measure {
    name: &'static str,
    demanded: Option<f64>,
    aim: Option<f64>,
    best: f64,
    median: f64,
}

fn main() -> ExitCode {
    let json = std::env::args().any(|a| a == "--json");
    // For profilers: `--only views` measures nothing else.
    let only = std::env::args().skip_while(|a| a != "--only").nth(1);
    let (samples, source) = samples();
    let limits = Limits::default();
    check(&samples, &limits);

    let bytes: usize = samples.iter().map(|s| s.bytes.len()).sum();
    let mut index = Index::new();
    let indexes: Vec<Index> = samples.iter().map(|s| parse(&s.bytes, &limits)).collect();
    let messages: Vec<_> = samples.iter().zip(&indexes).map(|(s, index)| Message::new(&s.bytes, index)).collect();
    let parts: Vec<_> = messages.iter().map(|m| Parts::of(*m).expect("checked")).collect();
    let mut out = Vec::with_capacity(4096);

    let measure = |name, demanded, aim, all: &mut dyn FnMut()| {
        only.as_ref().is_none_or(|only| only == name).then(|| measure(name, demanded, aim, bytes, all))
    };
    let measures = [
        measure("index", Some(4.0e6), Some(5.6e6), &mut || {
            for sample in &samples {
                let _ = black_box(index.parse(black_box(&sample.bytes), &limits));
            }
        }),
        measure("views", Some(1.2e6), Some(1.5e6), &mut || {
            for sample in &samples {
                let bytes = black_box(&sample.bytes[..]);
                index.parse(bytes, &limits).expect("checked");
                let message = Message::new(bytes, &index);
                if let Start::Request { .. } = index.start() {
                    black_box(&message.uri().expect("checked"));
                }
                black_box(read_all(&message).expect("checked"));
            }
        }),
        measure("print", Some(3.0e6), None, &mut || {
            for parts in &parts {
                out.clear();
                black_box(parts).write(&mut out);
                black_box(&out);
            }
        }),
        measure("essentials", None, None, &mut || {
            for sample in &samples {
                let bytes = black_box(&sample.bytes[..]);
                index.parse(bytes, &limits).expect("checked");
                let _ = black_box(&Essentials::of(&Message::new(bytes, &index)));
            }
        }),
        measure("call-id", None, None, &mut || {
            for sample in &samples {
                black_box(scan::call_id(black_box(&sample.bytes)));
            }
        }),
    ];
    let measures: Vec<_> = measures.into_iter().flatten().collect();
    let met = measures.iter().all(|m| m.demanded.is_none_or(|d| m.best >= d));
    if json {
        let rows: Vec<_> = measures
            .iter()
            .map(|m| serde_json::json!({"name": m.name, "per_second": m.best, "median": m.median, "demanded": m.demanded, "aim": m.aim}))
            .collect();
        println!(
            "{}",
            serde_json::json!({"messages": source.display().to_string(), "bytes": bytes, "measures": rows, "met": met})
        );
    } else {
        println!("Seven messages, {bytes} bytes, counted as 800 bytes each; one core. From {}\n", source.display());
        println!("{:12} {:>12} {:>12} {:>10} {:>8} {:>8}", "", "messages/s", "median", "ns each", "demand", "aim");
        for m in &measures {
            let millions = |rate: Option<f64>| rate.map_or_else(String::new, |r| format!("{:.1} M", r / 1e6));
            println!(
                "{:12} {:>10.2} M {:>10.2} M {:>10.0} {:>8} {:>8} {}",
                m.name,
                m.best / 1e6,
                m.median / 1e6,
                1e9 / m.best,
                millions(m.demanded),
                millions(m.aim),
                if m.demanded.is_some_and(|d| m.best < d) { "BELOW" } else { "" }
            );
        }
        println!("\nindex: start line and header lines. views: index and every value of every header field that has a");
        println!(
            "grammar, checked (PJSIP types fewer). print: the message written anew from those values. essentials:"
        );
        println!("index and what a server must have before it acts. call-id: the scan that finds a message's owner.");
        println!("{}", if met { "What is demanded is met." } else { "What is demanded is NOT met." });
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(bytes: &[u8], limits: &Limits) -> Index {
    let mut index = Index::new();
    index.parse(bytes, limits).unwrap_or_else(|e| panic!("{e} in {}", bytes.escape_ascii()));
    index
}

/// Everything is found, and what is written is read as the same again.
fn check(samples: &[Sample], limits: &Limits) {
    for (n, sample) in samples.iter().enumerate() {
        let index = parse(&sample.bytes, limits);
        let message = Message::new(&sample.bytes, &index);
        assert_eq!(index.lines().len(), sample.lines, "header lines of message {}", n + 1);
        assert_eq!(index.end(), sample.bytes.len(), "length of message {}", n + 1);
        Essentials::of(&message).unwrap_or_else(|e| panic!("message {}: {e}", n + 1));
        let count = read_all(&message).unwrap_or_else(|e| panic!("message {}: {e}", n + 1));
        assert_eq!(count, sample.values, "values of message {}", n + 1);
        let mut out = Vec::new();
        Parts::of(message).expect("read just now").write(&mut out);
        let again = parse(&out, limits);
        let written = Message::new(&out, &again);
        assert_eq!(again.lines().len(), sample.lines, "header lines of message {} as written", n + 1);
        assert_eq!(written.body(), message.body());
        let count = read_all(&written).unwrap_or_else(|e| panic!("message {} as written: {e}", n + 1));
        assert_eq!(count, sample.values, "values of message {} as written", n + 1);
    }
}

fn measure(
    name: &'static str,
    demanded: Option<f64>,
    aim: Option<f64>,
    bytes: usize,
    all: &mut dyn FnMut(),
) -> Measure {
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (start, mut times, mut spent) = (busy(), 0u32, Duration::ZERO);
            while spent < ROUND {
                for _ in 0..500 {
                    all();
                }
                times += 500;
                spent = busy() - start;
            }
            times as f64 * bytes as f64 / NORMAL / spent.as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    Measure { name, demanded, aim, best: rates[ROUNDS - 1], median: rates[ROUNDS / 2] }
}

/// Time that this thread has run: what others do on the machine does not count.
fn busy() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which `time` is.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "the clock of a thread's time is part of the kernel");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn samples() -> (Vec<Sample>, PathBuf) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpora = std::env::var_os("STROWGER_CORPORA").map_or_else(|| here.join("../../shared/corpora"), PathBuf::from);
    let folder = corpora.join("parser-benchmark");
    if folder.is_dir() {
        return (read(&folder), folder);
    }
    eprintln!("{} is missing: the project's own seven messages are taken", folder.display());
    let folder = here.join("messages");
    (read(&folder), folder)
}

/// Header lines and typed values of each message. Ours were written to have as many as PJSIP's.
const COUNTS: [(usize, usize); 7] = [(16, 18), (13, 13), (14, 12), (8, 7), (9, 9), (9, 9), (10, 9)];

fn read(folder: &Path) -> Vec<Sample> {
    let one = |(n, (lines, values))| {
        let path = folder.join(format!("message-{}.sip", n + 1));
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Sample { bytes, lines, values }
    };
    COUNTS.into_iter().enumerate().map(one).collect()
}
