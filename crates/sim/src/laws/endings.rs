//! Final state of a world: each call has ended as RFC 3261 demands, and successfully in good weather.

use super::reach;
use crate::agent::{Agent, Tally};
use crate::node::SimNode;
use crate::server::ServerHost;
use crate::world::World;
use strowger_core::transaction::{Counts, Transactions};

/// Time in ms after which a request without a response is retransmitted.
const T1: u64 = 500;

/// Time in ms within which a CANCEL reaches a phone if no message is lost.
const CANCELLED: u64 = 2_000;

/// Time in ms within which all look-ups of a request have failed.
const LOOK_UPS: u64 = 3 * 2_050;

/// Number of wrong passwords that ban a source by default.
const FAILURES: usize = 10;

/// Incidents of a world besides its weather.
struct Incidents {
    kills: bool,
    /// Graceful shutdowns of processes.
    drains: bool,
    /// Restarts of agents, broken connections, changed addresses.
    moves: bool,
    calls_where_no_phone_is: bool,
    /// Phones that accept no connections.
    one_way: bool,
    /// Databases that fail or are late.
    may_fail: bool,
    /// Changes of passwords or realms.
    changes: bool,
    /// True if a cache of the credentials of registered users authenticates requests other than REGISTER.
    by_cache: bool,
    noise: bool,
    /// True if servers dropped messages for lack of room.
    drops: bool,
    /// Longest time in ms of a request and its response, with all its look-ups.
    slowest: u64,
}

impl Incidents {
    fn of(world: &World) -> Self {
        let agents = || world.hosts.iter().filter_map(SimNode::agent);
        let servers = || world.hosts.iter().filter_map(SimNode::server);
        let databases = || servers().filter_map(|server| server.settings().database.as_ref());
        let looked_up: u64 = servers().map(|server| 3 * server.longest_look_up()).sum();
        let commit: u64 = servers().map(|server| server.settings().commits.1).max().unwrap_or(0);
        Self {
            kills: servers().any(|server| server.first_kill().is_some()),
            drains: servers().any(|server| server.has_ended()),
            moves: world.moves_hosts() || world.breaks_connections() || agents().any(Agent::restarts),
            calls_where_no_phone_is: agents().any(Agent::calls_where_no_phone_is),
            one_way: agents().any(|agent| agent.line().is_one_way()),
            may_fail: servers().any(|server| server.may_fail()),
            changes: databases().any(|database| database.changes())
                || servers().any(|server| server.settings().configs.len() > 1),
            by_cache: servers().any(|server| server.settings().credentials.is_some()),
            drops: servers().any(|server| server.counts().held_dropped > 0),
            noise: world.noise.is_some(),
            // A request passes three hops at most, and so does its response.
            slowest: 6 * world.conditions().delay.1 + looked_up + 2 * commit,
        }
    }
}

/// Judges a world in which no work is in progress.
///
/// # Errors
/// The violated law.
pub fn judge(world: &World) -> Result<Weather, String> {
    let conditions = *world.conditions();
    let incidents = Incidents::of(world);
    let agents: Vec<&Agent> = world.hosts.iter().filter_map(SimNode::agent).collect();
    // An agent that guesses passwords may get no response once it is banned.
    let honest: Vec<&Agent> = agents.iter().copied().filter(|agent| !agent.guesses()).collect();
    let mut whole = Tally::default();
    honest.iter().for_each(|agent| whole += agent.tally());
    let is_good = conditions.is_perfect() && !incidents.kills && !incidents.drains && !incidents.moves;
    let no_acks = transactions(world, &incidents, &whole, is_good)?;
    let unacknowledged = (whole.unacknowledged as usize).saturating_sub(world.laws.late_answers());
    let unanswered = whole.unanswered.saturating_sub(given_up_after_moves(world));
    if is_good && unacknowledged as u64 + unanswered > 0 {
        return Err(format!("something was lost in good weather: {whole:?}"));
    }
    // If only a cache has the passwords, it has those of registered users.
    let unknown = if incidents.by_cache { whole.unregistered_again } else { 0 };
    // A step of the wall clock makes each nonce stale.
    if is_good && whole.challenged_again > unknown && !incidents.changes && !world.has_stepped() {
        return Err(format!("a right password was asked for again in good weather: {whole:?}"));
    }
    // Route tokens and registrations survive every kill of the process.
    if whole.refused_in_call > 0 {
        return Err(format!("a server did not know a call again: {whole:?}"));
    }
    reach::unknown(&honest)?;
    if conditions.is_perfect() && !incidents.noise {
        reach::missed(&honest, incidents.may_fail)?;
        let looked_up = if incidents.may_fail { LOOK_UPS } else { 0 };
        reach::waited(&honest, incidents.slowest + T1 + looked_up)?;
    }
    if is_good {
        // After the move of a call, no failed transmission is reported (`given_up_after_moves`).
        if !world.hosts.iter().filter_map(SimNode::server).any(ServerHost::has_moved) {
            reach::unsent(&honest)?;
        }
        answered_once(&honest)?;
    }
    for guesser in agents.iter().filter(|agent| agent.guesses()) {
        let (judged, right) = guesser.judged();
        let is_certain = !incidents.kills && !incidents.drains && !incidents.changes;
        if right > 0 || (judged > FAILURES && is_certain) {
            return Err(format!("{judged} passwords of a guesser were judged, {right} were right"));
        }
    }
    let is_fair =
        conditions.is_fair() && !incidents.kills && !incidents.drains && !incidents.moves && !incidents.may_fail;
    let fair = if is_fair { whole } else { Tally::default() };
    let records = world.hosts.iter().filter_map(SimNode::server).map(ServerHost::records).sum();
    Ok(Weather { all: whole, fair, fair_no_acks: if is_fair { no_acks } else { 0 }, records })
}

/// Returns the number of requests that servers gave up after a time-out, in a world where buckets move. A failed
/// transmission of a call that has moved is not reported, because its transaction has another token by then. So the
/// next address is tried only after the first address was silent for 64*T1; by then the sender of a request other than
/// INVITE has given up as well.
fn given_up_after_moves(world: &World) -> u64 {
    let moved = world.hosts.iter().filter_map(SimNode::server).filter(|server| server.has_moved());
    moved.flat_map(ServerHost::transactions).map(|transactions| transactions.counts().timeouts).sum()
}

/// Checks the counters of all transactions, and returns the number of failures without an ACK.
fn transactions(world: &World, incidents: &Incidents, whole: &Tally, is_good: bool) -> Result<u64, String> {
    let conditions = *world.conditions();
    let mut no_acks = 0;
    let is_heard = |node: &&SimNode| !node.agent().is_some_and(Agent::guesses);
    for node in world.hosts.iter().filter(is_heard) {
        let counts: Vec<Counts> = node.transactions().into_iter().map(Transactions::counts).collect();
        let unacknowledged: u64 = counts.iter().map(|c| c.no_acks).sum();
        let given_up: u64 = counts.iter().map(|c| c.timeouts + c.transport_errors).sum();
        let strays: u64 = counts.iter().map(|c| c.strays).sum();
        no_acks += unacknowledged;
        // The last copy of a 2xx without ACK leaves half a second before timer M ends: if the copy is delayed, it
        // arrives too late.
        let too_late = conditions.reordering > 0 && whole.unacknowledged > 0;
        // A branch was given up before its callee answered: over a reliable transport the caller does not keep the
        // failure (RFC 3261 section 17.1.1.2, timer D).
        let overtook = world.laws.late_answers() > 0;
        let may_stray = incidents.kills
            || incidents.drains
            || incidents.moves
            || incidents.noise
            || incidents.may_fail
            || conditions.has_outage()
            || too_late
            || overtook;
        if strays > 0 && given_up == 0 && !may_stray {
            return Err(format!("{}: a response to nothing though nothing was given up: {counts:?}", node.name()));
        }
        // The next address of a phone that answers 503 may accept no connection.
        let timeouts: u64 = counts.iter().map(|c| c.timeouts).sum();
        let lost = if incidents.one_way { timeouts } else { given_up };
        if is_good && (unacknowledged > 0 || lost > 0) && !incidents.calls_where_no_phone_is {
            return Err(format!("{}: something was lost in good weather: {counts:?}", node.name()));
        }
        let resent: u64 = counts.iter().map(|c| c.requests_resent).sum();
        // A callee may take time to answer an INVITE; a server answers at once.
        let is_heard_at_once =
            node.agent().is_some() && incidents.slowest < T1 && !incidents.may_fail && !incidents.drops;
        if is_good && is_heard_at_once && !incidents.calls_where_no_phone_is && resent > 0 {
            return Err(format!("{}: a request had to be sent again in good weather: {counts:?}", node.name()));
        }
    }
    Ok(no_acks)
}

/// Checks that no two phones answer one call, unless the CANCEL to the second one comes too late.
fn answered_once(agents: &[&Agent]) -> Result<(), String> {
    let taken: Vec<(Vec<u8>, u64, u64)> = agents.iter().flat_map(|agent| agent.taken()).collect();
    let is_late = |(call, rang, accepted): &&(Vec<u8>, u64, u64)| {
        taken.iter().any(|(other, _, before)| other == call && *accepted > CANCELLED + *before.max(rang))
    };
    match taken.iter().find(is_late) {
        Some((call, ..)) => Err(format!("{} was answered twice", String::from_utf8_lossy(call))),
        None => Ok(()),
    }
}

/// Returns whether `count` is more than one in a hundred of `of`, beyond chance: the limit is three standard deviations
/// above that share. A thousand worlds have a few hundred failures, so four failures without ACK are not significant.
fn is_often(count: u64, of: u64) -> bool {
    let expected = of as f64 / 100.0;
    count as f64 > expected + 3.0 * expected.sqrt()
}

/// Totals of all worlds, and of worlds in which hardly anything may fail for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    pub all: Tally,
    pub fair: Tally,
    /// Failures without ACK.
    pub fair_no_acks: u64,
    /// Number of call records that servers wrote.
    pub records: u64,
}

impl Weather {
    /// Checks the laws of many worlds together.
    ///
    /// # Errors
    /// The violated law.
    pub fn check(&self) -> Result<(), String> {
        let Self { all, fair, fair_no_acks, records } = self;
        // Callers mostly call users who exist. If most calls failed for another reason, the worlds would prove nothing.
        let shows = all.success * 3 > all.calls
            && all.success > 0
            && all.failed > 0
            && all.cancelled > 0
            && all.messages > 0
            && all.acknowledged > 0
            && all.timeouts > 0
            && all.transport_errors > 0
            && *records * 2 > all.calls;
        if !shows {
            return Err(format!("the worlds do not hold what they are for: {all:?}"));
        }
        // If at most a tenth of the datagrams is lost, a message that is retransmitted until it is answered fails once
        // in thousands of times.
        match () {
            () if is_often(fair.unacknowledged, fair.acknowledged) => Err(format!("2xx without ACK: {fair:?}")),
            () if is_often(fair.unanswered, fair.calls) => Err(format!("requests without answer: {fair:?}")),
            () if is_often(*fair_no_acks, fair.failed) => Err(format!("{fair_no_acks} failures without ACK: {fair:?}")),
            () => Ok(()),
        }
    }
}

impl std::ops::AddAssign for Weather {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.fair += other.fair;
        self.fair_no_acks += other.fair_no_acks;
        self.records += other.records;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_judged_by_its_sample() {
        for (count, of, expected) in
            [(0, 0, false), (4, 295, false), (8, 295, false), (9, 295, true), (130, 10_000, false), (131, 10_000, true)]
        {
            assert_eq!(is_often(count, of), expected, "{count} of {of}");
        }
    }
}
