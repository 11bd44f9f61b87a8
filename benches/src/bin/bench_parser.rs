//! Messages per second that one core indexes, reads through typed views, and writes back from them.
//!
//! The seven messages of PJSIP's parser benchmark (`$STROWGER_CORPORA/parser-benchmark`), counted as that benchmark
//! counts: bytes read / 800. Where they are missing, the seven of `crates/lab/messages`. Before anything is measured,
//! the header lines and the values of each message are counted: a parser that stops early looks fast.
//!
//! Machines differ twofold, so the limits are ratios to two readers of the same bytes in the same run: one that only
//! finds line ends and colons, and the header parser of the crate `httparse`. Rates are printed too. Times are
//! processor times of the thread; the readers alternate, and the median of the ratios of the rounds counts. Exit code 1
//! if a ratio is below its limit.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use strowger_benches::{Interval, median};
use strowger_lab::stack::{NORMAL, Parts, SAMPLES, check, read_all};
use strowger_message::{Index, Limits, MandatoryHeaders, Message, scan};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(120);

/// A reader or writer of all messages.
struct Reader<'a> {
    name: &'static str,
    /// Bytes that it reads each time.
    bytes: usize,
    all: Box<dyn FnMut() + 'a>,
    /// Messages per second in each round.
    rates: Vec<f64>,
}

impl<'a> Reader<'a> {
    fn new(name: &'static str, bytes: usize, all: impl FnMut() + 'a) -> Self {
        Self { name, bytes, all: Box::new(all), rates: Vec::new() }
    }
}

/// Minimum ratio of two readers' rates.
struct Demand {
    reader: &'static str,
    to: &'static str,
    least: f64,
}

/// About a fifth below the ratios of an AMD EPYC, idle and busy.
const DEMANDS: [Demand; 5] = [
    Demand { reader: "index", to: "lines", least: 0.7 },
    Demand { reader: "index", to: "httparse", least: 0.8 },
    Demand { reader: "mandatory", to: "httparse", least: 0.3 },
    Demand { reader: "views", to: "httparse", least: 0.21 },
    Demand { reader: "print", to: "lines", least: 0.42 },
];

fn main() -> ExitCode {
    let json = std::env::args().any(|a| a == "--json");
    // For profilers: `--only views` measures nothing else.
    let only = std::env::args().skip_while(|a| a != "--only").nth(1);
    let (samples, source) = samples();
    let limits = Limits::default();
    if let Err(reason) = check(&samples.iter().map(Vec::as_slice).collect::<Vec<_>>()) {
        eprintln!("{source}: {reason}");
        return ExitCode::FAILURE;
    }
    let bytes: usize = samples.iter().map(Vec::len).sum();
    let indexes: Vec<Index> = samples.iter().map(|bytes| parse(bytes, &limits)).collect();
    let messages: Vec<_> = samples.iter().zip(&indexes).map(|(bytes, index)| Message::new(bytes, index)).collect();
    let parts: Vec<_> = messages.iter().map(|m| Parts::of(*m).expect("checked")).collect();
    // httparse refuses a bare CR or a folded line.
    let headers = |m: &Message<'_>| m.bytes()[m.index().headers_start()..].to_vec();
    let headers: Vec<Vec<u8>> = messages.iter().map(headers).filter(|text| httparse_reads(text)).collect();
    let httparse_bytes = headers.iter().map(Vec::len).sum();
    let (mut index, mut again, mut third) = (Index::new(), Index::new(), Index::new());
    let mut out = Vec::with_capacity(4096);

    let mut readers = vec![
        Reader::new("lines", bytes, || {
            for sample in &samples {
                black_box(lines_and_colons(black_box(sample)));
            }
        }),
        Reader::new("httparse", httparse_bytes, || {
            for text in &headers {
                black_box(httparse_reads(black_box(text)));
            }
        }),
        Reader::new("index", bytes, || {
            for sample in &samples {
                let _ = black_box(index.parse(black_box(sample), &limits));
            }
        }),
        Reader::new("mandatory", bytes, || {
            for sample in &samples {
                let bytes = black_box(&sample[..]);
                again.parse(bytes, &limits).expect("checked");
                let _ = black_box(&MandatoryHeaders::of(&Message::new(bytes, &again)));
            }
        }),
        Reader::new("views", bytes, || {
            for sample in &samples {
                let bytes = black_box(&sample[..]);
                third.parse(bytes, &limits).expect("checked");
                let message = Message::new(bytes, &third);
                black_box(read_all(&message).expect("checked"));
            }
        }),
        Reader::new("print", bytes, || {
            for parts in &parts {
                out.clear();
                black_box(parts).write(&mut out);
                black_box(&out);
            }
        }),
        Reader::new("call-id", bytes, || {
            for sample in &samples {
                black_box(scan::call_id(black_box(sample)));
            }
        }),
    ];
    readers.retain(|reader| only.as_ref().is_none_or(|only| only == reader.name));
    for _ in 0..ROUNDS {
        for reader in &mut readers {
            let rate = round(&mut reader.all) * reader.bytes as f64 / NORMAL;
            reader.rates.push(rate);
        }
    }
    let rates = |name| readers.iter().find(|reader| reader.name == name).map(|reader| &reader.rates);
    let ratios: Vec<(&Demand, Interval)> = DEMANDS
        .iter()
        .filter_map(|demand| {
            let pairs = rates(demand.reader)?.iter().zip(rates(demand.to)?);
            Some((demand, Interval::of_median(pairs.map(|(own, other)| own / other).collect())?))
        })
        .collect();
    let is_met = |(demand, ratio): &(&Demand, Interval)| ratio.median >= demand.least;
    let met = ratios.iter().all(is_met);
    if json {
        let rows: Vec<_> = readers
            .iter()
            .map(|r| serde_json::json!({"name": r.name, "per_second": median(r.rates.clone()), "rounds": r.rates}))
            .collect();
        let demands: Vec<_> = ratios
            .iter()
            .map(|(d, ratio)| serde_json::json!({"name": d.reader, "to": d.to, "ratio": ratio, "demanded": d.least}))
            .collect();
        println!(
            "{}",
            serde_json::json!({"messages": source, "bytes": bytes, "measures": rows,
                "ratios": demands, "met": met})
        );
    } else {
        println!("Seven messages, {bytes} bytes, counted as 800 bytes each; one core. From {source}\n");
        for reader in &readers {
            let rate = median(reader.rates.clone());
            println!("{:12} {:>8.2} M messages/s {:>8.0} ns each", reader.name, rate / 1e6, 1e9 / rate);
        }
        println!(
            "\nlines: line ends and colons, nothing else. httparse: its header fields (it refuses three of the messages"
        );
        println!(
            "half-way: a bare CR, folded lines). index: start line and header lines. mandatory: index and what a server"
        );
        println!(
            "must have before it acts. views: index and every value of every header field that has a grammar, checked."
        );
        println!("print: the message written from those values. call-id: the scan that finds a message's owner.\n");
        for row in &ratios {
            let (Demand { reader, to, least }, Interval { median, low, high, .. }) = row;
            let mark = if is_met(row) { "✓" } else { "✗" };
            println!(
                "{mark} {reader:>10} / {to:<9} {median:>6.3}  (95 % interval {low:.3} to {high:.3})  at least {least}"
            );
        }
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn httparse_reads(text: &[u8]) -> bool {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    httparse::parse_headers(text, &mut fields).is_ok_and(|status| status.is_complete())
}

/// Counts lines and colons, which is the minimum work of any reader of header lines. Returns both counts.
fn lines_and_colons(bytes: &[u8]) -> (usize, usize) {
    let (mut lines, mut colons, mut from) = (0, 0, 0);
    for end in memchr::memchr_iter(b'\n', bytes) {
        lines += 1;
        colons += usize::from(memchr::memchr(b':', &bytes[from..end]).is_some());
        from = end + 1;
    }
    (lines, colons)
}

fn parse(bytes: &[u8], limits: &Limits) -> Index {
    let mut index = Index::new();
    index.parse(bytes, limits).unwrap_or_else(|e| panic!("{e} in {}", bytes.escape_ascii()));
    index
}

/// Returns the rate per second.
fn round(all: &mut dyn FnMut()) -> f64 {
    let (start, mut times, mut spent) = (busy(), 0u32, Duration::ZERO);
    while spent < ROUND {
        for _ in 0..500 {
            all();
        }
        times += 500;
        spent = busy() - start;
    }
    f64::from(times) / spent.as_secs_f64()
}

/// Returns the processor time of this thread: other work on the machine does not count.
fn busy() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which `time` is.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "the clock of a thread's time is part of the kernel");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the messages, and their source.
fn samples() -> (Vec<Vec<u8>>, String) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpora = std::env::var_os("STROWGER_CORPORA").map_or_else(|| here.join("../../shared/corpora"), PathBuf::from);
    let folder = corpora.join("parser-benchmark");
    if folder.is_dir() {
        let read = |n: usize| {
            let path = folder.join(format!("message-{n}.sip"));
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        return ((1..=SAMPLES.len()).map(read).collect(), folder.display().to_string());
    }
    eprintln!("{} is missing: the project's own seven messages are taken", folder.display());
    (SAMPLES.iter().map(|bytes| bytes.to_vec()).collect(), "the project's own messages".into())
}
