//! Test bed of an experiment: generator, systems, databases, caches.

use crate::experiment::{Axes, Axis, Experiment, fill};
use crate::row::AxisValue;
use crate::run::{Description, HostUsed};
use strowger_report::drawing::{Bed, Host, Link};

const CALLERS: &str = "callers";
const SERVER: &str = "server under test";
const ANSWERERS: &str = "answering sides";

/// Values of `beside` without a program.
const NO_PROGRAM: [&str; 3] = ["none", "local", "local-kept"];

/// Draws the bed. All systems under test share one place, because only one of them runs at a time.
pub(super) fn bed(experiment: &Experiment, of: &Description, title: &str) -> Bed {
    let systems = experiment.systems.iter().filter(|system| of.systems.iter().any(|used| used.name == system.name));
    let mut notes: Vec<String> =
        of.systems.iter().map(|used| format!("{} {}", used.name, number(&used.version))).collect();
    let places = |role: &str| {
        let has = |host: &HostUsed| host.roles.iter().any(|own| own == role);
        let found: Vec<String> = of
            .hosts
            .iter()
            .filter(|(_, host)| has(host))
            .map(|(name, host)| format!("{name}, {} cores", host.machine.cores))
            .collect();
        if found.is_empty() { vec![format!("{}, {} cores", of.machine.host, of.machine.cores)] } else { found }
    };
    notes.extend(places("server"));
    let generator = format!("strowger load {}", of.program);
    // On one machine the server says which.
    let beside = |role: &str| if of.hosts.is_empty() { Vec::new() } else { places(role) };
    let mut hosts = vec![
        Host {
            name: CALLERS.into(),
            notes: [vec![generator.clone(), experiment.call.document.clone()], clients(experiment), beside("caller")]
                .concat(),
            column: 0,
            row: 0,
        },
        Host { name: SERVER.into(), notes, column: 1, row: 0 },
    ];
    let link = |from: &str, to: &str, label: &str| Link { from: from.into(), to: to.into(), label: label.into() };
    let mut links = vec![link(CALLERS, SERVER, "requests")];
    if experiment.call.answer.is_some() {
        let count = experiment.call.answering;
        let own = vec![generator, format!("{count} process{}", if count == 1 { "" } else { "es" })];
        let notes = [own, beside("answerer")].concat();
        hosts.push(Host { name: ANSWERERS.into(), notes, column: 2, row: 0 });
        links.push(link(SERVER, ANSWERERS, "forwarded requests"));
    }
    let mut names: Vec<&String> = systems.flat_map(|system| &system.beside).collect();
    names.sort();
    names.dedup();
    let columns = hosts.len();
    let boxes = names.into_iter().map(|name| backend(experiment, of, name)).filter(|(_, notes)| !notes.is_empty());
    for (at, (name, notes)) in boxes.enumerate() {
        let (column, row) = (at % columns, 1 + at / columns);
        links.push(link(SERVER, &name, "queries"));
        hosts.push(Host { name, notes, column, row });
    }
    Bed { title: title.into(), hosts, links }
}

/// Describes the number of generators that share the load, if an axis varies that number.
fn clients(experiment: &Experiment) -> Vec<String> {
    let axis = experiment.axes.iter().filter(|axis| axis.name == "clients");
    let numbers = |axis: &Axis| axis.values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    axis.map(|axis| format!("{} generators", numbers(axis))).collect()
}

/// Returns the name and the programs of a backend. Backends that an axis names share one place, because a trial uses
/// only one of them.
fn backend(experiment: &Experiment, of: &Description, name: &str) -> (String, Vec<String>) {
    // The server of the backend `redis-cluster` is the program `redis-server`.
    let version = |backend: &str| {
        let start = backend.split('-').next().unwrap_or(backend);
        of.versions.iter().find(|(program, _)| program.starts_with(start)).map(|(_, version)| number(version))
    };
    let named = |backend: &String| match version(backend) {
        Some(version) => format!("{backend} {version}"),
        None => backend.clone(),
    };
    let axis = experiment.axes.iter().find(|axis| name.contains(&format!("{{{}}}", axis.name)));
    match axis {
        None => (name.to_owned(), vec![version(name).unwrap_or_default().to_owned()]),
        Some(axis) => {
            let with = |value: &AxisValue| fill(name, &Axes::from([(axis.name.clone(), value.clone())]));
            let programs = axis.values.iter().map(with).filter(|name| !NO_PROGRAM.contains(&name.as_str()));
            (axis.name.clone(), programs.map(|program| named(&program)).collect())
        }
    }
}

/// Returns the version number in the output of a program, such as `5.6.3` in `version: kamailio 5.6.3 (x86_64/linux)`, or the whole output
/// if it has no number.
fn number(said: &str) -> &str {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let parts = said.split(|c: char| !is_part(c)).map(|part| part.trim_matches('.'));
    let mut numbers = parts.filter(|part| part.contains('.'));
    // An address is no version.
    if said.contains(" at ") { said } else { numbers.next().unwrap_or(said) }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_version_is_its_number() {
        for (said, wanted) in [
            ("strowger 0.1.0", "0.1.0"),
            ("version: kamailio 5.6.3 (x86_64/linux)", "5.6.3"),
            (
                "/usr/sbin/mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)",
                "10.11.19",
            ),
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "7.0.15"),
            ("external at 192.0.2.1:5060", "external at 192.0.2.1:5060"),
            ("unknown", "unknown"),
        ] {
            assert_eq!(number(said), wanted);
        }
    }
}
