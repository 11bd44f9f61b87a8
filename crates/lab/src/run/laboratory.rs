//! Laboratory: the test bed of real systems.

use super::chosen::Chosen;
use super::conduct::TestBed;
use super::next_trial::NextTrial;
use super::side::{self, ServerSide, SideOrder, Work};
use super::site::{Folder, Site};
use super::trial::measure;
use crate::Error;
use crate::backend::Beside;
use crate::document;
use crate::experiment::{Axes, Course, Experiment, Planned, PlannedLoad, REGISTRATIONS, Steps, TrialPosition, Workers};
use crate::finder::TrialOutcome;
use crate::generator::{self, CalleeBehaviour, Generator, Traffic};
use crate::host::Hosts;
use crate::row::{AxisValue, Digest, Load, LoadUnit, Profile, Row, System};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Answering sides at least, where several machines take part.
const FAR_SIDES: usize = 2;

/// Test bed of real systems.
#[derive(Debug)]
pub struct Laboratory {
    experiment: Experiment,
    profile: Profile,
    steps: Steps,
    systems: Vec<Chosen>,
    /// Program `strowger`, for generator and floor.
    program: PathBuf,
    /// Temporary folder for the files of sites.
    scratch: PathBuf,
    sites: Vec<Site>,
    started: usize,
    hosts: Hosts,
    /// Best number of workers by system and configuration.
    best: BTreeMap<(String, String), u32>,
}

impl Laboratory {
    /// Makes a test bed on this machine. `program`: this program; `scratch`: a temporary folder.
    pub fn new(experiment: Experiment, profile: Profile, systems: Vec<Chosen>, program: &Path, scratch: &Path) -> Self {
        let steps = experiment.profiles.get(&profile).cloned().unwrap_or_else(|| Steps::default_of(profile));
        let (program, scratch) = (program.to_owned(), scratch.to_owned());
        Self {
            experiment,
            profile,
            steps,
            systems,
            program,
            scratch,
            sites: Vec::new(),
            started: 0,
            hosts: Hosts::local(),
            best: BTreeMap::new(),
        }
    }

    /// Returns this laboratory with its parties on these hosts.
    #[must_use]
    pub fn on(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    fn chosen(&self, name: &str) -> Option<&Chosen> {
        self.systems.iter().find(|chosen| chosen.spec.name == name)
    }

    /// Takes the running site of a trial, or starts one.
    fn site(&mut self, order: &NextTrial, trial: &Path) -> Result<Site, Error> {
        let planned = &order.planned;
        match self.running(order) {
            Some(site) => Ok(site),
            None if planned.place != TrialPosition::Trial => self.start_floor(planned),
            None => self.start(order, trial),
        }
    }

    /// Takes the running site of a trial, and ends the sites of other cells. A site whose trial at a fixed load is repeated is ended too:
    /// its server has grown, and the allocator of the server keeps the memory of ended calls.
    fn running(&mut self, order: &NextTrial) -> Option<Site> {
        let planned = &order.planned;
        self.sites.retain(|site| (&site.axes, site.repetition) == (&planned.axes, planned.repetition));
        let at = self.sites.iter().position(|site| site.name == planned.system)?;
        let site = self.sites.remove(at);
        let is_again = order.attempt > 1 && matches!(planned.load, PlannedLoad::Fixed(_) | PlannedLoad::Multiple(_));
        (!is_again).then_some(site)
    }

    /// Returns whether the run compares builds of the program of a system. In this case no build may have an advantage by the place of its
    /// code in memory. A program in a user's folder may need its place.
    fn has_other_build(&self, of: &Chosen) -> bool {
        let is_folder = of.given.as_deref().is_some_and(|given| Path::new(given).is_dir());
        let is_other = |other: &Chosen| other.spec.driver == of.spec.driver && other.spec.name != of.spec.name;
        !is_folder && self.systems.iter().any(is_other)
    }

    fn folder(&mut self) -> Folder {
        self.started += 1;
        Folder(self.scratch.join(format!("site-{}", self.started)))
    }

    /// Starts the floor, which is a server without users: an unread relay, or for registrations an echo.
    fn start_floor(&mut self, planned: &Planned) -> Result<Site, Error> {
        let folder = self.folder();
        if self.experiment.load.unit == LoadUnit::Registrations {
            let side = self.start_side(Work::Echo, &folder)?;
            let setting = self.setting(side.addresses()[0], document::NEW.into(), Vec::new())?;
            return self.site_of(planned, side, vec![setting], folder);
        }
        let called = self.hosts.answerers[0].free_address()?;
        let side = self.start_side(Work::Floor(called), &folder)?;
        let mut setting = self.setting(side.addresses()[0], "call".into(), vec![called])?;
        // The relay answers the caller who spoke last.
        setting.callers.truncate(1);
        self.site_of(planned, side, vec![setting], folder)
    }

    /// Starts the server's side of a site.
    fn start_side(&self, work: Work, folder: &Folder) -> Result<Box<dyn ServerSide>, Error> {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let order = SideOrder {
            work,
            address: self.hosts.server.address.unwrap_or(local),
            cores: self.hosts.server_cores.clone(),
            quota: self.experiment.call.quota,
        };
        side::start(order, &self.hosts.server, &self.program, &folder.0)
    }

    /// Starts a system with its backends, and registers its users.
    fn start(&mut self, order: &NextTrial, trial: &Path) -> Result<Site, Error> {
        let planned = &order.planned;
        let unknown =
            || Error::Unexpected { what: planned.system.clone(), reason: "the run has no such system".into() };
        let chosen = self.chosen(&planned.system).cloned().ok_or_else(unknown)?;
        let workers = match chosen.spec.workers_at(&planned.axes) {
            Some(Workers::Number(number)) => Some(number),
            Some(Workers::Best) => Some(self.best_workers(&chosen, planned, trial)?),
            None => None,
        };
        // The load is a multiple of the limit of this system.
        let capacity = match planned.load {
            PlannedLoad::Multiple(multiple) => Some(order.load.value / multiple),
            PlannedLoad::Fixed(_) | PlannedLoad::Search => None,
        };
        self.start_with(&chosen, planned, (workers, capacity), trial)
    }

    fn start_with(
        &mut self,
        chosen: &Chosen,
        planned: &Planned,
        (workers, capacity): (Option<u32>, Option<f64>),
        trial: &Path,
    ) -> Result<Site, Error> {
        let folder = self.folder();
        let scenario = chosen.folder.scenario(&planned.configuration);
        let mut beside = chosen.spec.beside_at(&planned.axes);
        let needs = scenario.map_or_else(Vec::new, |scenario| scenario.needs.clone());
        let given = beside.clone();
        beside.extend(needs.into_iter().filter(|need| !given.iter().any(|name| Beside::meets(name, need))));
        let sides = self.sides()?;
        let (system, configuration) = (Box::new(chosen.folder.clone()), planned.configuration.clone());
        let copies = self.has_other_build(chosen);
        let work = Work::System { system, configuration, workers, copies, beside, answers: sides.clone(), capacity };
        let side = self.start_side(work, &folder)?;
        let addresses = side.addresses().to_vec();
        let mut clients = Vec::new();
        let count = if side.is_measuring() { 0 } else { clients_at(&planned.axes).max(addresses.len()) };
        for number in 0..count {
            let sides = if number == 0 { sides.clone() } else { self.sides()? };
            clients.push(self.load(planned, addresses[number % addresses.len()], sides)?);
        }
        let registering = clients.len().min(addresses.len());
        let mut site = self.site_of(planned, side, clients, folder)?;
        (site.workers, site.quota) = (workers, self.experiment.call.quota);
        if self.experiment.registered_users(&planned.axes) > 0 {
            for (number, client) in (1..).zip(&site.clients[..registering]) {
                client.register(REGISTRATIONS, &trial.join(format!("registration-{number}")))?;
            }
        }
        Ok(site)
    }

    /// Returns the addresses of the answering sides of one client.
    fn sides(&self) -> Result<Vec<SocketAddr>, Error> {
        let answering = self.experiment.call.answering as usize;
        let count = match &self.experiment.call.answer {
            // Each host that answers has one.
            Some(_) if self.hosts.is_distributed() => answering.max(self.hosts.answerers.len()).max(FAR_SIDES),
            Some(_) => answering,
            None => 0,
        };
        (0..count).map(|number| self.hosts.answerers[number % self.hosts.answerers.len()].free_address()).collect()
    }

    /// Returns the setting of a client of the experiment.
    fn load(&self, planned: &Planned, to: SocketAddr, sides: Vec<SocketAddr>) -> Result<generator::Setting, Error> {
        let document = self.experiment.document(&planned.axes).to_owned();
        let mut load = self.setting(to, document, sides)?;
        if let Traffic::Documents(documents) = &mut load.traffic {
            let mixed = self.experiment.call.mixed.iter();
            documents[0].1 = 100 - mixed.clone().map(|(_, share)| share).sum::<u32>();
            documents.extend(mixed.cloned());
        }
        load.users = self.experiment.users(&planned.axes);
        load.registers = self.experiment.call.registers;
        load.transport = self.experiment.transport(&planned.axes);
        load.connections.owner = self.experiment.connections(&planned.axes);
        load.connections.connect_rate = self.experiment.connect_rate(&planned.axes);
        load.patience = self.experiment.call.patience.unwrap_or(load.patience);
        load.hold = self.steps.hold.unwrap_or(self.experiment.call.hold);
        if let Some(answer) = self.experiment.call.answer.as_ref().filter(|answer| *answer != document::ANSWER) {
            load.answer = CalleeBehaviour::Document(answer.clone());
        }
        Ok(load)
    }

    fn setting(&self, to: SocketAddr, document: String, sides: Vec<SocketAddr>) -> Result<generator::Setting, Error> {
        let unknown = |source| Error::NotStarted { name: "the generator".into(), source };
        let traffic = Traffic::Documents(vec![(document, 100)]);
        let mut setting = generator::Setting::new(to.to_string(), traffic).map_err(unknown)?;
        (setting.program, setting.sides, setting.hold) = (self.program.clone(), sides, Duration::ZERO);
        setting.callers.clone_from(&self.hosts.callers);
        setting.cores.clone_from(&self.hosts.generator_cores);
        setting.answerers = self.hosts.answerers.iter().map(|party| party.place.clone()).collect();
        Ok(setting)
    }

    fn site_of(
        &self,
        planned: &Planned,
        side: Box<dyn ServerSide>,
        settings: Vec<generator::Setting>,
        folder: Folder,
    ) -> Result<Site, Error> {
        let mut provers = 0;
        if let Some(first) = settings.first()
            && proves(first)?
        {
            provers = first.users;
        }
        let mut clients = Vec::new();
        for (number, setting) in (1..).zip(settings) {
            clients.push(Generator::new(setting, &folder.0.join(format!("generator/{number}")))?);
        }
        let (name, axes, repetition) = (planned.system.clone(), planned.axes.clone(), planned.repetition);
        Ok(Site {
            name,
            axes,
            repetition,
            clients,
            side,
            workers: None,
            quota: None,
            provers,
            credentials: None,
            folder,
            is_kept: false,
            is_loaded: false,
            is_lossless: self.chosen(&planned.system).is_some_and(|chosen| chosen.spec.is_lossless),
        })
    }
}

/// Returns the number of clients, from the axis `clients`.
fn clients_at(axes: &Axes) -> usize {
    match axes.get("clients") {
        Some(AxisValue::Number(number)) if *number >= 1.0 => *number as usize,
        _ => 1,
    }
}

/// Tells whether callers send credentials with their first INVITE.
fn proves(setting: &generator::Setting) -> Result<bool, Error> {
    let Traffic::Documents(documents) = &setting.traffic else { return Ok(false) };
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let parties = document::Parties { users: setting.users, answer: nowhere, hold: setting.hold };
    for (name, _) in documents {
        if document::sends_at_once(&document::text(name, &parties)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Numbers of workers of which the best is taken.
const WORKERS: [u32; 3] = [2, 4, 8];

/// Warm-up and window of the trials that choose the number of workers.
const CHOICE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

impl Laboratory {
    /// Takes over the numbers of workers that a resumed run chose, by its rows.
    pub fn remember(&mut self, rows: &[Row]) {
        for row in rows {
            let spec = self.experiment.systems.iter().find(|spec| spec.name == row.system.name);
            let best = spec.filter(|spec| spec.workers_at(&row.axes) == Some(Workers::Best));
            if let Some((spec, workers)) = best.zip(row.figures.value("server.workers")) {
                let key = (spec.name.clone(), self.experiment.configuration(spec, &row.axes));
                self.best.insert(key, workers as u32);
            }
        }
    }

    /// Returns the number of workers with the least cost of server and database per call, among those with the fewest failed calls.
    fn best_workers(&mut self, chosen: &Chosen, planned: &Planned, trial: &Path) -> Result<u32, Error> {
        let key = (planned.system.clone(), planned.configuration.clone());
        if let Some(best) = self.best.get(&key) {
            return Ok(*best);
        }
        // Nothing is judged in the profile smoke.
        let candidates = if self.profile == Profile::Smoke { &WORKERS[..1] } else { &WORKERS };
        if let [single] = *candidates {
            return Ok(single);
        }
        let mut found: Vec<(u32, f64, f64)> = Vec::new();
        for workers in WORKERS {
            let folder = trial.join(format!("workers-{workers}"));
            std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
            let mut site = self.start_with(chosen, planned, (Some(workers), None), &folder)?;
            let value = match planned.load {
                PlannedLoad::Fixed(load) => load,
                PlannedLoad::Multiple(_) | PlannedLoad::Search => {
                    self.experiment.load_of(&planned.system).expected / 2.0
                }
            };
            let [warm_up, window] = CHOICE;
            let load = Load { value, unit: self.experiment.load.unit };
            let order = NextTrial {
                planned: planned.clone(),
                number: 0,
                load,
                warm_up,
                window,
                cool_down: Duration::ZERO,
                settle: None,
                attempt: 1,
                course: Course::default(),
            };
            let outcome = measure(&mut site, &order, &folder)?;
            let value = |figure, otherwise| outcome.value(figure).unwrap_or(otherwise);
            let cost = value("server.cpu.call", f64::MAX) + value("database.cpu.call", 0.0);
            found.push((workers, value("failed", f64::MAX), cost));
        }
        found.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.2.total_cmp(&b.2)));
        let best = found[0].0;
        self.best.insert(key, best);
        Ok(best)
    }
}

impl TestBed for Laboratory {
    fn identity(&self, planned: &Planned) -> (System, Digest) {
        match self.chosen(&planned.system) {
            Some(chosen) => {
                let system = System::new(planned.system.as_str(), chosen.version.as_str());
                (system, chosen.folder.digest(&planned.configuration))
            }
            None => {
                let is_echo = self.experiment.load.unit == LoadUnit::Registrations;
                let floor = if is_echo { "echo" } else { "unread relay" };
                (System::new(planned.system.as_str(), env!("CARGO_PKG_VERSION")), Digest::of(floor.as_bytes()))
            }
        }
    }

    fn trial(&mut self, order: &NextTrial, folder: &Path) -> Result<TrialOutcome, Error> {
        let mut site = self.site(order, folder)?;
        let outcome = measure(&mut site, order, folder)?;
        site.keep(folder)?;
        // A server that has ended, or was killed meanwhile, is started again by the next trial.
        let is_spent = order.course.restarts() || self.experiment.call.fresh;
        if site.side.ended()?.is_none() && !is_spent {
            self.sites.push(site);
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Plan, plan};
    use crate::run::next_trial::{Due, Schedule};
    use crate::run::side::{SideMemory, Watched};
    use crate::run::validity::Accounting;

    /// Side without a server.
    #[derive(Debug)]
    struct Idle;

    impl ServerSide for Idle {
        fn addresses(&self) -> &[SocketAddr] {
            &[]
        }

        fn begin(&mut self, _: &Path, _: u32) -> Result<(), Error> {
            Ok(())
        }

        fn finish(&mut self) -> Result<Watched, Error> {
            Ok(Watched::default())
        }

        fn memory(&mut self) -> Result<SideMemory, Error> {
            Ok(SideMemory::default())
        }

        fn kill(&mut self, _: bool) -> Result<(), Error> {
            Ok(())
        }

        fn start_again(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn ended(&mut self) -> Result<Option<String>, Error> {
            Ok(None)
        }

        fn tail(&mut self) -> Result<String, Error> {
            Ok(String::new())
        }

        fn empty_accounting(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn accounting(&mut self, _: u64, _: u64) -> Result<Option<Accounting>, Error> {
            Ok(None)
        }

        fn keep(&mut self, _: &Path) -> Result<(), Error> {
            Ok(())
        }
    }

    /// Checks that a repeated trial has a new server. The server of an invalid trial has grown already, so that the
    /// memory of a call on it would be too small.
    #[test]
    fn a_trial_that_is_made_again_has_a_fresh_server() {
        let scratch = tempfile::tempdir().expect("a temporary folder");
        let (experiment, _) = Experiment::shipped("relay").expect("it is shipped");
        let plan = plan(&experiment, Profile::Quick, &["strowger"]);
        let mut laboratory =
            Laboratory::new(experiment.clone(), Profile::Quick, Vec::new(), Path::new("strowger"), scratch.path());
        let first =
            plan.trials.iter().position(|planned| planned.place == TrialPosition::Trial).expect("it has trials");
        let schedule =
            Schedule::new(experiment, Profile::Quick, Plan { trials: plan.trials[first..].to_vec(), ..plan });
        let mut order = match schedule.next() {
            Due::Trial(order) => *order,
            other => panic!("{other:?}"),
        };
        let mut is_kept = |order: &NextTrial| {
            let folder = laboratory.folder();
            let site = laboratory.site_of(&order.planned, Box::new(Idle), Vec::new(), folder).expect("no files");
            laboratory.sites.push(site);
            let found = laboratory.running(order).is_some();
            assert!(laboratory.sites.is_empty(), "the site is taken, or has ended");
            found
        };
        assert!(is_kept(&order));
        order.attempt = 2;
        assert!(!is_kept(&order));
        // A search asks for no memory, and its server may have a million users.
        order.planned.load = PlannedLoad::Search;
        assert!(is_kept(&order));
    }

    /// Checks that a resumed run measures with the number of workers of its first part.
    #[test]
    fn the_best_number_of_workers_is_taken_from_rows() {
        let scratch = tempfile::tempdir().expect("a temporary folder");
        let (experiment, _) = Experiment::shipped("stress").expect("it is shipped");
        let spec = experiment.systems.iter().find(|spec| spec.workers_at(&Axes::new()) == Some(Workers::Best));
        let name = spec.expect("one is chosen").name.clone();
        let mut laboratory =
            Laboratory::new(experiment, Profile::Quick, Vec::new(), Path::new("strowger"), scratch.path());
        let load = Load { value: 100.0, unit: LoadUnit::Calls };
        let row = |system: &str, workers| {
            let mut row = Row::new("stress", System::new(system, "1"), load, Profile::Quick, b"");
            row.axes.insert("letter".into(), AxisValue::Text("C".into()));
            row.figures.set("server.workers", workers).expect("a known figure");
            row
        };
        laboratory.remember(&[row(&name, 4.0), row("strowger", 1.0), row("floor", 1.0)]);
        let best: Vec<_> = laboratory.best.into_iter().collect();
        assert_eq!(best, [((name, "stress-C".to_owned()), 4)]);
    }
}
