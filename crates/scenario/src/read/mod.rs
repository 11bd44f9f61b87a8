//! Compiles the elements of a document to a [`Scenario`]. The rules are those of SIPp 3.6; elements of SIPp 3.7 are
//! accepted and noted in [`Scenario::newer`].

mod action;
mod attribute;
mod check;
mod media;
mod sample;
mod step;

use std::path::Path;

use super::builtin;
use super::cleanup::cleanup;
use super::keyword::{Keywords, Wrong, variable_name};
use super::names::Names;
use super::refusal::{Cause, Fault, Refusal};
use super::step::{Step, StepIndex, StepKind};
use super::template::{Piece, Template};
use super::xml::{Document, Element, Markup, Tree};
use super::{DefaultMessages, Environment, Limits, Role, Scenario, ThirdParty, ThirdPartyRole, Unexpected, Warning};

/// Reads a document in memory. `file` is its name, for messages and to find the media in the same folder.
pub(super) fn read(bytes: &[u8], file: &Path, environment: &Environment, limits: Limits) -> Result<Scenario, Refusal> {
    let refuse = |place: (u32, u32), fault: Fault| Refusal {
        file: file.display().to_string(),
        line: place.0,
        column: place.1,
        what: fault.what,
        hint: fault.hint,
        cause: fault.cause,
    };
    if bytes.len() > limits.document {
        let what = format!("the document has {} bytes, more than the limit of {}", bytes.len(), limits.document);
        return Err(refuse((0, 0), Fault::new(0, what)));
    }
    let document = Document::new(bytes).map_err(|fault| refuse((1, 1), fault))?;
    let read = |markup: Markup| -> Result<Scenario, Fault> {
        let tree = document.tree(markup)?;
        let mut reader = Reader::new(&document, environment, file);
        reader.scenario(&tree)?;
        Ok(reader.finish(tree))
    };
    let fault = match read(Markup::AsSipp) {
        Ok(scenario) => return Ok(scenario),
        Err(fault) => fault,
    };
    // Before 3.6 SIPp read a `<` in an attribute as its writer meant it, and many documents have one.
    if fault.cause == Cause::Document
        && let Ok(mut scenario) = read(Markup::AsMeant)
    {
        let text = format!("SIPp 3.6 refuses this document: {}", fault.what);
        scenario.tolerated = Some(document.warning(fault.offset, text));
        return Ok(scenario);
    }
    Err(refuse(document.place(fault.offset), fault))
}

/// Steps under construction.
#[derive(Default)]
struct Program {
    steps: Vec<Step>,
    labels: Vec<(String, StepIndex)>,
    /// Labels that steps name, which are resolved after all labels are known: step, offset, name.
    next: Vec<(usize, usize, String)>,
    on_timeout: Vec<(usize, usize, String)>,
}

/// Uses of a named transaction.
#[derive(Default)]
struct Transaction {
    name: String,
    /// Offset of its first use.
    at: usize,
    started: bool,
    invite: bool,
    answered: bool,
    acknowledged: bool,
}

struct Timer {
    name: String,
    /// Offset of its start, if any.
    started: Option<usize>,
    stopped: bool,
}

/// Integers of a possible repartition table.
struct Table {
    at: usize,
    text: String,
}

/// Effect of a text on the use counts of variables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    /// Text whose variables count as used.
    Counted,
    /// Text whose variables do not count as used: that of a `DefaultMessage`.
    Uncounted,
}

struct Reader<'a> {
    document: &'a Document,
    environment: &'a Environment,
    file: &'a Path,
    names: Names,
    main: Program,
    init: Program,
    timers: Vec<Timer>,
    counters: Vec<String>,
    transactions: Vec<Transaction>,
    peers: Vec<String>,
    /// Methods sent so far, concatenated.
    methods: Vec<u8>,
    /// Last value of `hiderest`.
    hide: bool,
    /// Set if the last step was an optional receive.
    optional_before: Option<usize>,
    /// True after a `timewait`: no step may follow it.
    closed: bool,
    response_time: Option<Table>,
    default_messages: Vec<(String, usize, Vec<u8>)>,
    name: String,
    warnings: Vec<Warning>,
    newer: Vec<Warning>,
    defaults: DefaultMessages,
    tables: (Vec<u32>, Vec<u32>),
}

impl<'a> Reader<'a> {
    fn new(document: &'a Document, environment: &'a Environment, file: &'a Path) -> Self {
        Self {
            document,
            environment,
            file,
            names: Names::new(&environment.globals),
            main: Program::default(),
            init: Program::default(),
            timers: Vec::new(),
            counters: Vec::new(),
            transactions: Vec::new(),
            peers: Vec::new(),
            methods: Vec::new(),
            hide: false,
            optional_before: None,
            closed: false,
            response_time: None,
            default_messages: Vec::new(),
            name: String::new(),
            warnings: Vec::new(),
            newer: Vec::new(),
            defaults: builtin::default_messages(),
            tables: (Vec::new(), Vec::new()),
        }
    }

    fn warn(&mut self, offset: usize, text: impl Into<String>) {
        self.warnings.push(self.document.warning(offset, text));
    }

    fn newer(&mut self, offset: usize, text: impl Into<String>) {
        self.newer.push(self.document.warning(offset, text));
    }

    fn scenario(&mut self, tree: &Tree) -> Result<(), Fault> {
        let Some(root) = tree.roots.first().filter(|root| root.name == "scenario") else {
            let at = tree.roots.first().map_or(0, |root| root.start);
            return Err(Fault::new(at, "the document has no `<scenario>`").hint("it is the first element"));
        };
        if self.document.len() > SIPP_LONGEST {
            self.warn(0, format!("SIPp reads documents of at most {SIPP_LONGEST} bytes"));
        }
        self.lint(root);
        self.name = self.document.attribute(root, "name").map(|name| name.text()).unwrap_or_default();
        for element in &root.children {
            self.element(element)?;
        }
        self.check()
    }

    /// Compiles an element of the scenario.
    fn element(&mut self, element: &Element) -> Result<(), Fault> {
        self.lint(element);
        match element.name.as_str() {
            "CallLengthRepartition" => self.tables.0 = check::bounds(&self.table(element)?)?,
            "ResponseTimeRepartition" => self.response_time = Some(self.table(element)?),
            "Global" => self.variables(element, |names, name| names.declare_global(name).is_some())?,
            "User" => self.variables(element, |names, name| names.declare_user(name).is_some())?,
            "Reference" => {
                let list = self.required(element, "variables")?;
                for name in list.text().split(',') {
                    if self.names.known(name).is_none() {
                        return Err(Fault::new(list.at, format!("no variable `{name}` is named before this place"))
                            .hint("`Reference` follows the steps; `,` without spaces separates the names"));
                    }
                }
            }
            "DefaultMessage" => {
                let id = self.required(element, "id")?;
                let name = id.text();
                if !DefaultMessages::IDS.contains(&name.as_str()) {
                    return Err(Fault::new(id.at, format!("no default message is called `{name}`"))
                        .hint(format!("one of {}", DefaultMessages::IDS.join(", "))));
                }
                let (at, text) = self.cdata(element)?;
                self.default_messages.push((name, at, text));
            }
            "label" => {
                let (name, at) = self.label(element)?;
                Self::add_label(&mut self.main, name, at)?;
            }
            "init" => {
                for child in &element.children {
                    self.lint(child);
                    match child.name.as_str() {
                        "label" => {
                            let (name, at) = self.label(child)?;
                            Self::add_label(&mut self.init, name, at)?;
                        }
                        "nop" => self.step(child, true)?,
                        other => {
                            return Err(Fault::new(child.start, format!("`<{other}>` cannot stand in `<init>`"))
                                .hint("only `nop` and `label` can"));
                        }
                    }
                }
            }
            "send" | "recv" | "pause" | "nop" | "timewait" | "sendCmd" | "recvCmd" => self.step(element, false)?,
            other => {
                return Err(Fault::new(element.start, format!("`<{other}>` is no element of a scenario")).hint(
                    match nearest(other) {
                        Some(near) => format!("is `<{near}>` meant?"),
                        None => format!("one of {}", ELEMENTS.join(", ")),
                    },
                ));
            }
        }
        Ok(())
    }

    fn label(&self, element: &Element) -> Result<(String, usize), Fault> {
        let id = self.required(element, "id")?;
        Ok((id.text(), id.at))
    }

    fn add_label(program: &mut Program, name: String, at: usize) -> Result<(), Fault> {
        if program.labels.iter().any(|(known, _)| *known == name) {
            return Err(Fault::new(at, format!("the label `{name}` is repeated here")));
        }
        let index = StepIndex::try_from(program.steps.len()).unwrap_or(StepIndex::MAX);
        program.labels.push((name, index));
        Ok(())
    }

    fn variables(&mut self, element: &Element, declare: fn(&mut Names, &str) -> bool) -> Result<(), Fault> {
        let list = self.required(element, "variables")?;
        for name in list.text().split(',') {
            if name.starts_with(' ') || name.ends_with(' ') {
                self.warn(list.at, format!("the space belongs to the name `{name}`"));
            }
            if !declare(&mut self.names, name) {
                return Err(Fault::new(list.at, "too many variables"));
            }
        }
        Ok(())
    }

    fn table(&self, element: &Element) -> Result<Table, Fault> {
        let value = self.required(element, "value")?;
        Ok(Table { at: value.at, text: value.text() })
    }

    /// Returns the cleaned text of a message and its offset.
    fn cdata(&self, element: &Element) -> Result<(usize, Vec<u8>), Fault> {
        let (at, text) = self.document.cdata(element)?;
        Ok((at, cleanup(text)))
    }

    /// Splits a text into pieces. `at` is its offset in the document.
    fn template(&mut self, text: &[u8], at: usize, counting: Counting) -> Result<Template, Fault> {
        let mut own = Names::default();
        if counting == Counting::Uncounted {
            std::mem::swap(&mut own, &mut self.names);
            // Known names keep their slots. The counts of the copy are not used.
            self.names = own.clone();
        }
        let mut keywords = Keywords { names: &mut self.names, environment: self.environment, notes: Vec::new() };
        let result = keywords.template(text);
        for note in keywords.notes {
            self.warn(at, note);
        }
        result.map_err(|Wrong { mut fault, part }| {
            fault.offset = self.document.after(at, &part).unwrap_or(at);
            fault
        })
    }

    fn variable(&mut self, name: &[u8], at: usize) -> Result<super::Slot, Fault> {
        let name = variable_name(name).map_err(|fault| Fault { offset: at, ..fault })?;
        self.names.slot(&name).ok_or_else(|| Fault::new(at, "too many variables"))
    }

    fn finish(self, tree: Tree) -> Scenario {
        let variables = self.names.finished();
        let step = |program: &Program, name: &str| {
            program.labels.iter().find(|(label, _)| label == name).map(|(_, index)| *index)
        };
        let unexpected = step(&self.main, "_unexp.main").map(|main| Unexpected {
            main,
            return_address: variables.find("_unexp.retaddr"),
            paused: variables.find("_unexp.pausedaddr"),
        });
        let mut warnings = tree.warnings;
        warnings.extend(self.warnings);
        warnings.sort_by_key(|warning| (warning.line, warning.column));
        Scenario {
            name: self.name,
            role: role(&self.main.steps),
            third_party: third_party(&self.main.steps),
            steps: self.main.steps,
            init: self.init.steps,
            variables,
            labels: self.main.labels,
            timers: self.timers.into_iter().map(|timer| timer.name).collect(),
            counters: self.counters,
            transactions: self.transactions.into_iter().map(|transaction| transaction.name).collect(),
            peers: self.peers,
            call_length_repartition: self.tables.0,
            response_time_repartition: self.tables.1,
            default_messages: self.defaults,
            unexpected,
            warnings,
            newer: self.newer,
            tolerated: None,
            ready: self.environment.ready,
        }
    }
}

/// SIPp's limit of a document, in bytes.
const SIPP_LONGEST: usize = 65_535;

const ELEMENTS: &[&str] = &[
    "send",
    "recv",
    "pause",
    "nop",
    "timewait",
    "label",
    "sendCmd",
    "recvCmd",
    "init",
    "Global",
    "User",
    "Reference",
    "DefaultMessage",
    "ResponseTimeRepartition",
    "CallLengthRepartition",
];

/// Returns the element that differs only in case.
fn nearest(name: &str) -> Option<&'static str> {
    let wanted = match name.to_ascii_lowercase().as_str() {
        "receive" => "recv".to_owned(),
        "wait" | "sleep" => "pause".to_owned(),
        other => other.to_owned(),
    };
    ELEMENTS.iter().copied().find(|element| element.eq_ignore_ascii_case(&wanted))
}

/// Determines the role by the first step with a message.
fn role(steps: &[Step]) -> Role {
    let first = steps.iter().find_map(|step| match step.kind {
        StepKind::Send(_) | StepKind::SendCommand { .. } => Some(Role::Client),
        StepKind::Receive(_) | StepKind::ReceiveCommand { .. } => Some(Role::Server),
        _ => None,
    });
    first.unwrap_or(Role::Client)
}

/// Determines the controller by the first command.
fn third_party(steps: &[Step]) -> Option<ThirdPartyRole> {
    let passive = steps.iter().find_map(|step| match step.kind {
        StepKind::Send(_) | StepKind::SendCommand { .. } => Some(false),
        StepKind::Receive(_) => Some(true),
        _ => None,
    });
    steps.iter().find_map(|step| match step.kind {
        StepKind::SendCommand { .. } if passive == Some(true) => Some(ThirdPartyRole::PassiveA),
        StepKind::SendCommand { .. } => Some(ThirdPartyRole::A),
        StepKind::ReceiveCommand { .. } => Some(ThirdPartyRole::B),
        _ => None,
    })
}

/// Returns the first step with a command of 3PCC.
fn commands(program: &Program) -> Option<&Step> {
    program
        .steps
        .iter()
        .find(|step| matches!(step.kind, StepKind::SendCommand { .. } | StepKind::ReceiveCommand { .. }))
}

/// Returns the literal at the start of a message.
fn literal_start(template: &Template) -> &[u8] {
    match template.pieces.first() {
        Some(Piece::Text(text)) => &text.bytes,
        _ => b"",
    }
}

fn classic_without_commands(environment: &Environment, program: &Program) -> bool {
    environment.third_party == ThirdParty::Classic && commands(program).is_none()
}

fn third_party_fault(at: usize, what: &str) -> Fault {
    Fault::new(at, what)
        .hint("give -3pcc HOST:PORT, or -master or -slave with -slave_cfg FILE")
        .cause(Cause::ThirdParty)
}

#[cfg(test)]
mod tests;
