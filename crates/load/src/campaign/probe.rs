//! Pre-flight over TLS and WebSocket: its requests take the path of the calls, through the engine.

use super::Prepared;
use super::obstacle::{Obstacle, Preflight, Probe};
use super::plan::{Connections, Plan, Work};
use super::preflight::{Finding, final_answer};
use super::prepared::connect;
use super::side::{Part, Side};
use crate::engine::pace::Part as Pace;
use crate::engine::traffic::{Event, ShardCommand};
use crate::engine::watch::{Passage, Watch};
use crate::workload::Workload;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use strowger_core::Transport;
use strowger_measure::{Clock, Collector};
use strowger_net::clock;

/// Limit of probed sources.
const SOURCES: usize = 8;

/// Sends `probes` OPTIONS from each source, `rate` per second, and gives each up after `patience`. A failed connection
/// is no finding, because the calls report it.
///
/// # Errors
/// The sockets of this process cannot be opened. The error is the whole sentence.
pub fn probe(plan: &Plan, probes: usize, rate: f64, patience: Duration) -> Result<Vec<Finding>, String> {
    let mut local = Plan {
        work: Work::Ready(Workload::Options),
        pair: false,
        callee: None,
        users: Vec::new(),
        connections: Connections::One,
        shards: 1,
        patience: Some(patience),
        port: 0,
        log: None,
        ..plan.clone()
    };
    local.sources.truncate(SOURCES);
    let sources = local.sources.len().max(1);
    local.profile = vec![Pace::Hold { rate }];
    local.calls = Some((probes * sources) as u64);
    let prepared = Prepared::new(&local)?;
    let now = clock::micros();
    let mut collector = Collector::new(Clock::new(now, SystemTime::now()), Vec::new(), sources);
    let seen = Seen::default();
    let mut sides = Vec::new();
    for (index, bound) in prepared.callers.into_iter().enumerate() {
        let part = Part::caller(index, sources);
        let scenario = Arc::new(prepared.facts.scenario(&local, part)?);
        let run = prepared.facts.run(&local, part, scenario, bound.address)?;
        let watch = ProbeWatch { source: bound.address.ip().to_string(), since: now, seen: seen.clone() };
        let side = Side::prepare(bound, run, collector.recorder(now), Box::new(watch))?;
        sides.push(side);
    }
    connect(&sides, &local, &|| false);
    if sides.iter().all(|side| side.counters().connected == 0) {
        return Ok(Vec::new());
    }
    sides.iter().for_each(|side| side.send_command(ShardCommand::Begin(None)));
    let until = Instant::now() + Duration::from_secs_f64(probes as f64 * sources as f64 / rate.max(1.0)) + patience * 3;
    for side in &sides {
        while !matches!(side.events.recv_timeout(Duration::from_millis(20)), Ok(Event::Finished(_))) {
            collector.poll(clock::micros(), |_| {});
            if Instant::now() >= until {
                break;
            }
        }
    }
    drop(sides);
    let probes: Vec<Probe> = seen.lock().unwrap_or_else(|e| e.into_inner()).drain(..).map(|(_, probe)| probe).collect();
    let settings = Preflight { patience: patience.as_millis() as u64, ..Preflight::default() };
    // All probes are over, so that no further answer will arrive.
    let met = settings.classify(&probes, u64::MAX / 2).into_iter();
    Ok(met.filter(|met| !matches!(met, Obstacle::Silent { .. })).map(Finding::Obstacle).collect())
}

/// Requests by their Call-ID.
type Seen = Arc<Mutex<Vec<(Vec<u8>, Probe)>>>;

struct ProbeWatch {
    source: String,
    since: u64,
    seen: Seen,
}

impl Watch for ProbeWatch {
    fn message(&mut self, passage: Passage, _: Transport, call_id: &[u8], bytes: &[u8]) {
        let at = clock::micros().saturating_sub(self.since);
        let mut seen = self.seen.lock().unwrap_or_else(|e| e.into_inner());
        match passage {
            Passage::Sent if !seen.iter().any(|(id, _)| id == call_id) => {
                seen.push((call_id.to_vec(), Probe { source: self.source.clone(), sent: at, answer: None }));
            }
            Passage::Received | Passage::Unexpected => {
                if let Some(answer) = final_answer(&String::from_utf8_lossy(bytes), at)
                    && let Some((_, probe)) = seen.iter_mut().find(|(id, _)| id == call_id)
                {
                    probe.answer.get_or_insert(answer);
                }
            }
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpListener};

    /// Starts a server that answers the first `good` requests with 200 and the others with `bad`, or ends the
    /// connection.
    fn server(good: usize, bad: Option<&'static str>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut writer = stream.try_clone().unwrap();
            let (mut head, mut number) = (Vec::new(), 0);
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if !line.is_empty() {
                    head.push(line);
                    continue;
                }
                let kept = |l: &&String| ["Via", "From", "To", "Call-ID", "CSeq"].iter().any(|n| l.starts_with(n));
                let kept: Vec<String> = head.drain(..).filter(|l| kept(&l)).collect();
                let Some(line) = (if number < good { Some("200 OK") } else { bad }) else { return };
                number += 1;
                let text = format!("SIP/2.0 {line}\r\n{}\r\nContent-Length: 0\r\n\r\n", kept.join("\r\n"));
                writer.write_all(text.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn obstacles_are_met_on_the_way_of_the_calls() {
        let found = |address: SocketAddr| {
            let plan = Plan::to(format!("tcp://{address}").parse().unwrap());
            probe(&plan, 10, 500.0, Duration::from_millis(200)).unwrap()
        };
        assert_eq!(found(server(99, None)), []);
        let limited = found(server(4, Some("503 Slow down\r\nRetry-After: 9")));
        assert!(
            matches!(
                &limited[..],
                [Finding::Obstacle(Obstacle::RateLimit { code: 503, after: 4, retry_after: Some(9), .. })]
            ),
            "{limited:?}"
        );
        let banned = found(server(3, None));
        assert!(matches!(&banned[..], [Finding::Obstacle(Obstacle::Ban { after: 3, .. })]), "{banned:?}");
        let closed = TcpListener::bind("127.0.0.235:0").unwrap().local_addr().unwrap();
        assert_eq!(found(closed), [], "the calls will find out");
    }
}
