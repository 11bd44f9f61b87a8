//! Connections of users before the schedule: each user connects and registers (with a document: makes a call), at a bounded rate, and
//! its connection stays open for its calls.

use super::facts::Facts;
use super::period;
use super::plan::{Plan, Pool, Work};
use super::side::Side;
use crate::engine::traffic::Event;
use crate::workload::Workload;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant, SystemTime};
use strowger_measure::{Clock, Collector, Failure, Page, grouped, several};
use strowger_net::clock;
use strowger_scenario::injection::LineOrder;

/// Result of connecting before the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ahead {
    /// Users that connected, and whose registration or call succeeded.
    pub(super) connected: u64,
    users: u64,
    took: Duration,
}

impl Ahead {
    /// Returns the users that connected in a second.
    pub(super) fn rate(&self) -> u64 {
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 { (self.connected as f64 / seconds) as u64 } else { 0 }
    }

    /// Returns a sentence for the report, and whether all users have connected.
    fn sentence(&self, page: &Page, plan: &Plan) -> (bool, String) {
        let (users, took) = (several(self.users, "user"), period::show(self.took));
        if self.connected == self.users {
            let rate = grouped(self.rate() as f64);
            return (true, format!("{users} connected before the schedule in {took}, {rate} a second"));
        }
        let left = if self.connected == 0 {
            format!("None of {users}")
        } else {
            format!("Only {} of {users}", grouped(self.connected as f64))
        };
        (false, format!("{left} connected before the schedule (--connect-rate): {}", cause(page, plan)))
    }
}

/// Returns the most frequent cause of failures, with its cure.
fn cause(page: &Page, plan: &Plan) -> String {
    let refused = page.refusals().iter().max_by_key(|(.., times)| *times);
    let domain = plan.domain.as_deref().or_else(|| plan.target.as_ref().map(|t| t.host.as_str())).unwrap_or_default();
    let failed = Failure::MEASURES.iter().copied().max_by_key(|failure| page.failures(*failure));
    match (refused, failed) {
        _ if page.failures(Failure::Authentication) > 0 => {
            format!("are the passwords right, and is {domain} the domain of these users (--domain NAME)?")
        }
        (Some((_, code, _)), _) => format!(
            "the target answered {code}; is {domain} a domain of the target (--domain NAME), and may so many register at once? Its log may say why"
        ),
        (None, Some(Failure::TcpConnect | Failure::TcpClosed | Failure::TlsHandshake)) => {
            "connections were refused or ended; does the target allow so many of this address, and are there ports enough (--source \
             IP,IP)?"
                .into()
        }
        _ => "the target did not answer in time; a lower --connect-rate or a longer --timeout may help".into(),
    }
}

/// Connects the users of all callers if the plan says so, and waits for the end. Returns the result and a sentence about it, with
/// whether all users have connected.
///
/// # Errors
/// No user could connect, or `stopped` ended the wait. The error is a sentence with a cure.
pub(super) fn connect(
    facts: &Facts,
    plan: &Plan,
    callers: &[Side],
    stopped: &dyn Fn() -> bool,
) -> Result<Option<(Ahead, bool, String)>, String> {
    let Some(rate) = plan.pool.connect_rate.filter(|_| !callers.is_empty()) else { return Ok(None) };
    // In turn each user gets one call.
    let pool = Pool { order: LineOrder::Sequential, ..plan.pool };
    let work = if plan.work.is_document() { plan.work.clone() } else { Work::Ready(Workload::Register) };
    let of_each = Plan { work, pool, ..plan.clone() };
    let now = clock::micros();
    let mut collector = Collector::new(Clock::new(now, SystemTime::now()), Vec::new(), callers.len());
    let (mut open, mut users) = (Vec::new(), 0);
    let begun = Instant::now();
    for (index, side) in callers.iter().enumerate() {
        let run = facts.ahead(&of_each, index, callers.len(), rate, side.address)?;
        users += run.load.calls.unwrap_or(0);
        open.push(side.begin_ahead(run, collector.recorder(clock::micros())));
    }
    let mut connected = 0;
    while !open.is_empty() {
        if stopped() {
            return Err("interrupted while the users connected".into());
        }
        std::thread::sleep(Duration::from_millis(1));
        collector.poll(clock::micros(), |_| {});
        open.retain(|events| match events.try_recv() {
            Ok(Event::Finished(stats)) => {
                connected += stats.successful;
                false
            }
            Ok(Event::Halt(_)) | Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => false,
        });
    }
    let ahead = Ahead { connected, users, took: begun.elapsed() };
    let page = collector.finish(|_| {});
    let (are_all, text) = ahead.sentence(&page, plan);
    if connected == 0 { Err(text) } else { Ok(Some((ahead, are_all, text))) }
}

/// Checks that this number of users of `--connect-rate` finds sockets and ports. `most`: sockets for each of `generators`; `sources`:
/// number of source addresses.
///
/// # Errors
/// There are too few sockets or ports. The error is a sentence with a cure.
pub(super) fn check(plan: &Plan, users: usize, generators: usize, most: usize, sources: usize) -> Result<(), String> {
    if plan.pool.connect_rate.is_none() || generators == 0 {
        return Ok(());
    }
    if users.div_ceil(generators) > most {
        return Err(format!(
            "{} users need as many sockets, and this process may have {} (ulimit -n, --max-sockets): raise the limit, or give fewer --users",
            grouped(users as f64),
            grouped((most * generators) as f64)
        ));
    }
    let ports = ports();
    if users.div_ceil(sources.max(1)) > ports {
        return Err(format!(
            "{} users need as many ports, and an address has {} (net.ipv4.ip_local_port_range): give {} or more --source addresses",
            grouped(users as f64),
            grouped(ports as f64),
            users.div_ceil(ports.max(1))
        ));
    }
    Ok(())
}

/// Returns the number of ports of an address for connections of the kernel's choice.
fn ports() -> usize {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|port| port.parse::<usize>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) if first <= last => last - first + 1,
        // The kernel's default: 32768 to 60999.
        _ => 28_232,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::Method;

    fn plan() -> Plan {
        let pool = Pool { connect_rate: Some(4_000.0), ..Pool::default() };
        Plan { pool, ..Plan::to("192.0.2.1".parse().expect("a target")) }
    }

    #[test]
    fn the_result_has_its_rate_or_its_cause_and_cure() {
        let told = |connected, fill: fn(&mut Page)| {
            let mut page = Page::new(0);
            fill(&mut page);
            Ahead { connected, users: 8_000, took: Duration::from_secs(2) }.sentence(&page, &plan())
        };
        let (are_all, text) = told(8_000, |_| ());
        assert_eq!((are_all, &*text), (true, "8,000 users connected before the schedule in 2 s, 4,000 a second"));
        type Fill = (fn(&mut Page), &'static str);
        let fills: [Fill; 4] = [
            (|page| page.count_refusals(Method::Register, 403, 9), "answered 403"),
            (|page| page.count_failures(Failure::TcpConnect, 9), "--source"),
            (|page| page.count_failures(Failure::Authentication, 9), "passwords"),
            (|page| page.count_failures(Failure::TimeoutOnReceive, 9), "--timeout"),
        ];
        for (fill, part) in fills {
            let (are_all, text) = told(7_991, fill);
            assert!(!are_all && text.starts_with("Only 7,991 of 8,000 users") && text.contains(part), "{text}");
        }
        assert!(told(0, |_| ()).1.starts_with("None of 8,000 users"));
    }

    #[test]
    fn users_without_socket_or_port_are_refused_before_they_connect() {
        assert_eq!(check(&plan(), 1_000, 4, 250, 4), Ok(()));
        assert!(
            check(&plan(), 1_001, 4, 250, 4)
                .is_err_and(|error| error.contains("1,001 users") && error.contains("ulimit -n"))
        );
        let most = 65_536;
        assert!(check(&plan(), most, 1, most, 1).is_err_and(|error| error.contains("--source")));
        assert_eq!(check(&plan(), most, 30, most, 30), Ok(()));
        assert_eq!(check(&Plan { pool: Pool::default(), ..plan() }, most, 1, 1, 1), Ok(()));
    }
}
