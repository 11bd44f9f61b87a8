//! Facts that the documents of one campaign share, and the parameters of the engine.

use super::Work;
use super::inputs::{data_of, document, environment, has_list, users_list};
use super::plan::{Connections, Plan, User};
use super::profile;
use super::side::Part;
use crate::engine::pace::Part as Pace;
use crate::engine::run::{Behaviour, Load, Retransmission, Run};
use crate::engine::script::Script;
use crate::engine::sipp_stats::SippStats;
use crate::engine::socket_plan::{Each, Sockets};
use crate::workload::{Words, Workload, literal};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use strowger_core::Transport;
use strowger_scenario::injection::{Injection, LineOrder};
use strowger_scenario::{Environment, Scenario};

/// Limit of unanswered registrations of a generator before the schedule, so that a slow server bounds the rate.
const UNANSWERED: u64 = 1_000;

/// Facts that the documents of one campaign share.
#[derive(Clone)]
pub(super) struct Facts {
    /// Destination of messages.
    pub(super) destination: Option<SocketAddr>,
    /// Address of the target. If both ends belong to this process, it is the address of the answering side, unless that
    /// side registers.
    pub(super) target: Option<SocketAddr>,
    /// True if the target is our answering side itself.
    pub(super) direct: bool,
    pub(super) callee: Option<User>,
    /// Injection data: the list of users first, then the files of the document.
    pub(super) injections: Arc<[Injection]>,
    /// Maximum number of sockets and connections of calls for each generator.
    pub(super) most_sockets: usize,
}

impl Facts {
    pub(super) fn words(&self, plan: &Plan, part: Part) -> Words {
        let transport = match plan.transport {
            Transport::Udp => String::new(),
            other => format!(";transport={}", other.text()),
        };
        let host = plan.target.as_ref().map_or_else(|| "[local_ip]".into(), |t| literal(&t.uri_host()));
        let place = plan.target.as_ref().map_or_else(|| "[local_ip]:[local_port]".into(), |t| literal(&t.place()));
        let domain = plan.domain.as_deref().map_or_else(|| host.clone(), literal);
        let named =
            plan.target.as_ref().and_then(|t| t.user.clone()).or_else(|| self.callee.as_ref().map(|u| u.name.clone()));
        // An OPTIONS without a user addresses the server itself (RFC 3261 section 11.1).
        let asked =
            (named.is_none() && !self.direct).then(|| (format!("sip:{place}{transport}"), format!("sip:{place}")));
        let name = literal(named.as_deref().unwrap_or("service"));
        let aimed = plan.domain.as_deref().filter(|_| self.callee.is_some());
        let (uri, to) = match (self.direct, self.target) {
            (true, Some(address)) => {
                let place = literal(&address.to_string());
                (format!("sip:{name}@{place}{transport}"), format!("sip:{name}@{place}"))
            }
            _ => match aimed {
                Some(_) => (format!("sip:{name}@{domain}"), format!("sip:{name}@{domain}")),
                None => (format!("sip:{name}@{place}{transport}"), format!("sip:{name}@{place}")),
            },
        };
        let suffix = match part {
            Part::Caller { place, all, .. } if all > 1 => format!("-{place}"),
            _ => String::new(),
        };
        let (user, password) = match (part, &self.callee, &plan.users[..]) {
            (Part::Receiver, Some(callee), _) => (literal(&callee.name), literal(&callee.password)),
            (_, _, []) => (format!("user[call_number]{suffix}"), String::new()),
            (_, _, [one]) => (literal(&one.name), literal(&one.password)),
            _ => ("[field0]".into(), "[field1]".into()),
        };
        let credentials = match (part, &self.callee) {
            (Part::Receiver, Some(callee)) => !callee.password.is_empty(),
            _ => plan.users.iter().any(|user| !user.password.is_empty()),
        };
        let calls = profile::peak(&plan.profile).max(1.0);
        let (options_uri, options_to) = asked.unwrap_or_else(|| (uri.clone(), to.clone()));
        Words {
            uri,
            to,
            options_uri,
            options_to,
            domain,
            user,
            password,
            contact: match (part, &plan.contact) {
                (Part::Caller { .. }, Some(contact)) => literal(&contact.place()),
                // Calls to an answering side arrive at its socket.
                _ => "[local_ip]:[local_port]".into(),
            },
            transport: plan.transport.text(),
            expires: plan.expires,
            credentials,
            tag: format!("[pid]{}", suffix.replace('-', "g")),
            agent: format!("Strowger/{}", env!("CARGO_PKG_VERSION")),
            ring: plan.ring,
            // Timer J (RFC 3261 section 17.2.2) is 32 s over UDP, but within 4 s the peer has retransmitted an unanswered
            // BYE three times. At high rates, ended calls that stay longer than this would cost too much memory.
            linger: if plan.transport.is_reliable() {
                1
            } else {
                (100_000_000.0 / calls).clamp(1_000.0, 4_000.0) as u32
            },
            mix: plan.mix,
        }
    }

    /// Reads the document of a side.
    pub(super) fn scenario(&self, plan: &Plan, part: Part) -> Result<Scenario, String> {
        let words = self.words(plan, part);
        let text = match (&plan.work, part) {
            (Work::Document(path), Part::Caller { .. }) => return document(plan, path),
            (Work::Document(path), Part::Answerer) if plan.target.is_none() => return document(plan, path),
            (_, Part::Receiver) => words.document(Workload::Register),
            (_, Part::Answerer) => words.answering(),
            (Work::Ready(workload), Part::Caller { .. }) => words.document(*workload),
            (Work::Documents(_), Part::Caller { .. }) => unreachable!("each caller has a plan of one document"),
        };
        Scenario::parse(text.as_bytes(), Path::new("workload"), &Environment { ready: true, ..environment(plan) })
            .map_err(|refusal| format!("{refusal}\n{text}"))
    }

    /// Returns the parameters of the engine.
    pub(super) fn run(&self, plan: &Plan, part: Part, scenario: Arc<Scenario>, own: SocketAddr) -> Result<Run, String> {
        let answers = match part {
            Part::Receiver => Some(Arc::new(self.scenario(plan, Part::Answerer)?)),
            _ => None,
        };
        let (index, count, place, all) = match part {
            Part::Caller { index, count, place, all } => (index, count, place, all),
            _ => (0, 1, 0, 1),
        };
        let document = plan.work.is_document() && part != Part::Receiver;
        let mut load = Load {
            profile: profile::share(&plan.profile, index, count),
            warm_up: plan.warm_up.as_micros() as u64,
            arrivals: plan.arrivals,
            calls: plan.calls.map(|calls| profile::portion(calls, index, count)),
            limit: profile::portion(plan.limit, index, count).max(1),
            ..Load::default()
        };
        match part {
            Part::Receiver if self.callee.is_some() => load = Load { calls: Some(1), ..Load::default() },
            // Each user once.
            Part::Receiver if plan.calls.is_none() && !plan.users.is_empty() => {
                load.calls = Some(plan.users.len() as u64)
            }
            Part::Answerer => load = Load::default(),
            Part::Receiver | Part::Caller { .. } => (),
        }
        let retransmission = Retransmission { enabled: plan.transport == Transport::Udp, ..Retransmission::default() };
        let receive_timeout = match part {
            // The caller decides how long a call is held.
            Part::Answerer => None,
            _ => plan.receive_timeout(),
        };
        let each = match (plan.connections, part) {
            // The callee is one user.
            (Connections::One, _) | (_, Part::Answerer) => Each::Run,
            (_, Part::Receiver) if self.callee.is_some() => Each::Run,
            (Connections::PerCall, _) => Each::Call,
            (Connections::PerUser, _) => Each::User,
        };
        let injections = match part {
            // Each user belongs to one generator, or it would have several connections.
            Part::Caller { .. } if each == Each::User && has_list(plan) => {
                let users = plan.users.iter().skip(index).step_by(count);
                [users_list(users, plan.pool.order)?].into()
            }
            Part::Caller { .. }
                if each == Each::User && plan.pool.connect_rate.is_some() && !plan.injections.is_empty() =>
            {
                data_of(plan, index, count, false)?
            }
            _ => self.injections.clone(),
        };
        let ip = own.ip().to_string();
        let pid = std::process::id();
        let seed = plan.seed.wrapping_add(place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Run {
            target: self.target,
            target_host: plan.target.as_ref().map_or_else(String::new, |t| t.host.clone()),
            sending_address: self.destination.filter(|_| part != Part::Answerer),
            out_of_call: answers,
            transport: plan.transport,
            sockets: Sockets { each, from: own.ip(), most: self.most_sockets, ..Sockets::default() },
            local_ip: ip.clone(),
            local_port: own.port(),
            media_ip: ip,
            service: plan
                .target
                .as_ref()
                .and_then(|t| t.user.clone())
                .or_else(|| self.callee.as_ref().map(|u| u.name.clone()))
                .unwrap_or_else(|| "service".into()),
            auth_request_uri: !document,
            username: plan.users.first().map(|user| user.name.clone()),
            password: plan.users.first().map_or_else(|| "password".into(), |user| user.password.clone()),
            keys: plan.keys.iter().map(|(k, v)| (k.clone(), v.clone().into_bytes())).collect(),
            injections,
            call_id: if all > 1 { format!("%u-%p-{place}@%s") } else { "%u-%p@%s".into() },
            // The process id is part of branches, which must differ between generators.
            pid: if all > 1 { pid.wrapping_mul(256).wrapping_add(place as u32) } else { pid },
            load,
            behaviour: Behaviour {
                pause: plan.hold,
                // A request outside of a call leaves nothing to cancel or end.
                goodbye: document || plan.workload().is_none_or(Workload::calls),
                receive_timeout,
                auto_answer: true,
                // A later request with the Call-ID of an ended one (a registration made again) is a call of its own.
                dead_call_wait: if matches!(part, Part::Answerer | Part::Receiver) && !document {
                    0
                } else {
                    Behaviour::default().dead_call_wait
                },
                ..Behaviour::default()
            },
            retransmission: if document {
                retransmission
            } else {
                // Timers A, B, E and F (RFC 3261 section 17.1): after 500 ms, doubled, to 32 s.
                Retransmission { most_invite: 6, most_non_invite: 10, rfc3261: true, ..retransmission }
            },
            seed,
            rand: (seed >> 32) as u32,
            ..Run::new(scenario)
        })
    }

    /// Returns the run of a plan that connects each user of caller `index` of `count`, `rate` users a second over all callers, by one
    /// call over the socket of the later calls of this user.
    ///
    /// # Errors
    /// The document or its data cannot be read.
    pub(super) fn ahead(
        &self,
        plan: &Plan,
        index: usize,
        count: usize,
        rate: f64,
        own: SocketAddr,
    ) -> Result<Run, String> {
        let part = Part::Caller { index, count, place: index, all: count };
        let scenario = Arc::new(self.scenario(plan, part)?);
        let mut run = self.run(plan, part, scenario, own)?;
        // The process id is part of branches and Call-IDs, so that the calls of the schedule do not look like retransmissions.
        run.pid = run.pid.wrapping_mul(256).wrapping_add(254);
        if plan.work.is_document() {
            run.injections = data_of(plan, index, count, true)?;
        }
        let users = run.injections.first().map_or(1, |list| u64::from(list.lines()));
        let profile = profile::share(&[Pace::Hold { rate }], index, count);
        run.load = Load { profile, calls: Some(users), limit: UNANSWERED, ..Load::default() };
        Ok(run)
    }

    /// Returns how many users of the answering side may have registered, by the number of its outgoing calls.
    pub(super) fn registered(&self, plan: &Plan, stats: &SippStats) -> u64 {
        match plan.users.len() as u64 {
            _ if self.callee.is_some() => stats.outgoing,
            0 => stats.outgoing,
            users => stats.outgoing.min(users),
        }
    }

    /// Returns the run that removes the first `calls` registrations of the answering side: the same requests with a lifetime of 0 (RFC 3261
    /// section 10.2.2), over the same sockets.
    ///
    /// # Errors
    /// The document of the registrations cannot be read.
    pub(super) fn removal(&self, plan: &Plan, own: SocketAddr, calls: u64) -> Result<(Arc<Run>, Arc<Script>), String> {
        let plan = Plan { expires: 0, calls: Some(calls), ..plan.clone() };
        let scenario = Arc::new(self.scenario(&plan, Part::Receiver)?);
        let mut run = self.run(&plan, Part::Receiver, scenario.clone(), own)?;
        if has_list(&plan) && self.callee.is_none() {
            // A new list begins at the first user again.
            run.injections = [users_list(plan.users.iter(), LineOrder::Sequential)?].into();
        }
        // The process id is part of branches and Call-IDs. It is changed so that these requests do not look like
        // retransmissions of the registrations.
        run.pid = run.pid.wrapping_mul(256).wrapping_add(255);
        let rate = profile::peak(&plan.profile).max(100.0).max(2.0 * calls as f64 / plan.grace.as_secs_f64().max(0.1));
        run.load = Load { profile: vec![Pace::Hold { rate }], calls: Some(calls), limit: 256, ..Load::default() };
        let script = Arc::new(Script::new(scenario, &run));
        Ok((Arc::new(run), script))
    }
}
