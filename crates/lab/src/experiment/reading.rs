//! Reading of an experiment's file.

use super::fields::{Faults, Fields, number};
use super::{Axis, Call, EventSpec, Experiment, Figure, Gate, LoadPlan, Publication, Steps, SystemSpec, transport};
use crate::row::Profile;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use strowger_config::{Fault, Report, syntax_faults};
use strowger_core::Transport;
use strowger_load::campaign::Connections;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Least quota of a system, in per cent of one core: the kernel gives 1 ms of each 5 ms at least.
const LEAST_QUOTA: u32 = 20;

/// Tables and keys above the first table.
const KEYS: [&str; 13] = [
    "title",
    "answer",
    "notes",
    "published",
    "call",
    "load",
    "goal",
    "axis",
    "system",
    "event",
    "profile",
    "figure",
    "gate",
];

pub(super) fn read(file: &str, text: &str) -> Result<(Experiment, Report), Report> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(Report::new(file, text, syntax_faults(&errors, text)));
    }
    let mut faults = Faults::default();
    let experiment = experiment(file, document.get_ref(), &mut faults);
    let is_wrong = !faults.found.is_empty();
    let mut found = faults.found;
    if !is_wrong && experiment.figures.is_empty() && experiment.gates.is_empty() {
        let cure = "write a [[figure]] or a [[gate]]; the rows are there in any case";
        found.push(Fault::warning(None, "the experiment shows and judges nothing", cure));
    }
    let report = Report::new(file, text, found);
    if is_wrong { Err(report) } else { Ok((experiment, report)) }
}

fn experiment(file: &str, table: &DeTable<'_>, faults: &mut Faults) -> Experiment {
    let top = Fields { name: "the file", table, start: 0 };
    top.know(&KEYS, faults);
    let mut axes: Vec<Axis> = Vec::new();
    for (fields, _) in tables(&top, "axis", "[[axis]]", faults) {
        axes.push(Axis::read(&fields, &axes, faults));
    }
    let mut systems: Vec<SystemSpec> = Vec::new();
    for (fields, _) in tables(&top, "system", "[[system]]", faults) {
        systems.push(SystemSpec::read(&fields, &systems, &axes, faults));
    }
    if systems.is_empty() {
        let cure = "write [[system]] with name = \"strowger\" and configuration = \"relay\"";
        top.missing("[[system]]", cure, faults);
    }
    if top.value("load").is_none() {
        top.missing("[load]", "write [load] with values = [1000]", faults);
    }
    let of_load = single(&top, "load", "[load]", faults);
    let load = LoadPlan::read(of_load, single(&top, "goal", "[goal]", faults), faults);
    load.check_multiples(of_load.as_ref(), axes.iter().any(|axis| axis.is_of_limit), faults);
    let call = call(&top, faults);
    let events = tables(&top, "event", "[[event]]", faults);
    let events = events.into_iter().filter_map(|(fields, _)| EventSpec::read(&fields, &axes, faults)).collect();
    let mut figures: Vec<Figure> = Vec::new();
    for (fields, _) in tables(&top, "figure", "[[figure]]", faults) {
        figures.push(Figure::read(&fields, &figures, &axes, faults));
    }
    let gates = tables(&top, "gate", "[[gate]]", faults);
    let gates = gates.into_iter().filter_map(|(fields, _)| Gate::read(&fields, &systems, &axes, faults)).collect();
    let experiment = Experiment {
        name: Path::new(file).file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        title: top.required_text("title", "\"CPU of a relayed call\"", faults),
        answer: answer(&top, faults),
        notes: top.texts("notes", faults),
        published: published(&top, faults),
        call,
        load,
        profiles: profiles(&top, &axes, faults),
        axes,
        systems,
        events,
        figures,
        gates,
    };
    experiment.check_events(faults);
    experiment
}

/// Reads the figure that answers the question of the experiment.
fn answer(top: &Fields<'_>, faults: &mut Faults) -> Option<String> {
    let figures = top.figures("answer", faults);
    if let (Some(value), [_, _, ..]) = (top.value("answer"), figures.as_slice()) {
        faults.push(value.span(), "the answer is of one figure", "write answer = \"server.cpu.call\"");
    }
    figures.into_iter().next()
}

fn published(top: &Fields<'_>, faults: &mut Faults) -> Option<Publication> {
    let fields = single(top, "published", "[published]", faults)?;
    fields.know(&["source", "machine", "errata"], faults);
    Some(Publication {
        source: fields.required_text("source", "\"OpenSIPS 1.6.4\"", faults),
        machine: fields.required_text("machine", "\"i7-920 at 2.67 GHz\"", faults),
        errata: fields.text("errata", faults).unwrap_or_default(),
    })
}

fn call(top: &Fields<'_>, faults: &mut Faults) -> Call {
    let mut call = Call {
        document: String::new(),
        answer: None,
        users: 0,
        hold: Duration::ZERO,
        patience: None,
        answering: 1,
        transport: Transport::Udp,
        connections: Connections::One,
        connect_rate: None,
        fresh: false,
        registers: true,
        mixed: Vec::new(),
        quota: None,
    };
    let Some(fields) = single(top, "call", "[call]", faults) else {
        top.missing("[call]", "write [call] with document = \"call\" and answer = \"answer\"", faults);
        return call;
    };
    let keys = [
        "document",
        "answer",
        "users",
        "hold",
        "patience",
        "answering",
        "transport",
        "connections",
        "connect_rate",
        "fresh",
        "registers",
        "mixed",
        "quota",
    ];
    fields.know(&keys, faults);
    call.document = fields.required_text("document", "\"call\"", faults);
    call.answer = fields.text("answer", faults);
    call.users = fields.count("users", 0, faults).unwrap_or(0);
    call.hold = fields.duration("hold", faults).unwrap_or_default();
    call.patience = fields.duration("patience", faults);
    if let Some(value) = fields.value("patience").filter(|_| call.patience == Some(Duration::ZERO)) {
        faults.push(value.span(), "a caller waits for a response", "write patience = \"4s\"");
    }
    (call.transport, call.connections) = transport::of_call(&fields, faults);
    call.fresh = fields.flag("fresh", faults).unwrap_or_default();
    call.answering = fields.count("answering", 1, faults).unwrap_or(1);
    call.registers = fields.flag("registers", faults).unwrap_or(true);
    call.mixed = mixed(&fields, faults);
    call.connect_rate = fields.count("connect_rate", 1, faults);
    if let Some(value) = fields.value("connect_rate").filter(|_| !call.mixed.is_empty()) {
        faults.push(value.span(), "users of one document connect before the load", "write connect_rate or mixed");
    }
    call.quota = fields.count("quota", LEAST_QUOTA, faults);
    call
}

/// Reads `mixed = { overload-cancel = 1 }`: documents of some of the calls, each with its share in per cent.
fn mixed(fields: &Fields<'_>, faults: &mut Faults) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for (name, value) in fields.table("mixed", faults).into_iter().flatten() {
        match number(value).filter(|share| share.fract() == 0.0 && (1.0..=99.0).contains(share)) {
            Some(share) => found.push((name.get_ref().to_string(), share as u32)),
            None => faults.push(value.span(), "a share is a whole number of per cent", "write mixed = { name = 5 }"),
        }
    }
    if let Some(value) = fields.value("mixed").filter(|_| found.iter().map(|(_, share)| share).sum::<u32>() > 99) {
        faults.push(value.span(), "no calls are left for document", "write shares with a sum below 100");
    }
    found
}

fn profiles(top: &Fields<'_>, axes: &[Axis], faults: &mut Faults) -> BTreeMap<Profile, Steps> {
    let mut profiles: BTreeMap<Profile, Steps> =
        Profile::ALL.iter().map(|profile| (*profile, Steps::default_of(*profile))).collect();
    for (name, value) in top.table("profile", faults).into_iter().flatten() {
        let words: Vec<&str> = Profile::ALL.iter().map(|profile| profile.word()).collect();
        let found = Profile::ALL.iter().find(|profile| profile.word() == name.get_ref().as_ref());
        match (found, value.get_ref()) {
            (None, _) => faults.push(
                name.span(),
                format!("there is no profile {}", name.get_ref()),
                format!("write one of {}", words.join(", ")),
            ),
            (Some(profile), DeValue::Table(table)) => {
                let heading = format!("[profile.{profile}]");
                let fields = Fields { name: &heading, table, start: value.span().start };
                profiles.insert(*profile, Steps::read(*profile, &fields, axes, faults));
            }
            (Some(profile), _) => {
                faults.push(value.span(), "a profile is a table", format!("write [profile.{profile}]"));
            }
        }
    }
    profiles
}

/// Returns the table of this name.
pub(crate) fn single<'a>(top: &Fields<'a>, key: &str, heading: &'a str, faults: &mut Faults) -> Option<Fields<'a>> {
    let value = top.value(key)?;
    match value.get_ref() {
        DeValue::Table(table) => Some(Fields { name: heading, table, start: value.span().start }),
        _ => {
            faults.push(value.span(), format!("{key} is one table"), format!("write {heading} on a line of its own"));
            None
        }
    }
}

/// Returns the tables of a list with their places.
pub(crate) fn tables<'a>(
    top: &Fields<'a>,
    key: &str,
    heading: &'a str,
    faults: &mut Faults,
) -> Vec<(Fields<'a>, &'a Spanned<DeValue<'a>>)> {
    let Some(value) = top.value(key) else { return Vec::new() };
    let wrong = |faults: &mut Faults| {
        faults.push(
            value.span(),
            format!("{key} is a list of tables"),
            format!("write {heading} on a line of its own"),
        );
    };
    let DeValue::Array(items) = value.get_ref() else {
        wrong(faults);
        return Vec::new();
    };
    let mut found = Vec::new();
    for item in items.iter() {
        match item.get_ref() {
            DeValue::Table(table) => found.push((Fields { name: heading, table, start: item.span().start }, item)),
            _ => wrong(faults),
        }
    }
    found
}
