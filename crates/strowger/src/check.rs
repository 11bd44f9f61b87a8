//! `strowger check`.

use std::io::Read;
use std::path::Path;

use strowger_config::{Config, Fault, Report, Source, reference};
use strowger_node::{MediaCapacity, preflight};

use crate::cli::CheckArguments;
use crate::configuration::Choice;
use crate::output::{self, CommandOutcome};
use crate::realm;

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<CommandOutcome> {
    if arguments.keys {
        output::print(&reference())?;
        return Ok(CommandOutcome::Done);
    }
    let checked = match arguments.file.as_deref() {
        Some(path) if path == Path::new("-") => standard_input(),
        path => {
            let choice = Choice::of(path);
            choice.announce();
            preflight::load(choice.file(), &[])
        }
    };
    match checked {
        Ok((config, warnings)) => {
            output::report(&warnings);
            let foreign = environment(&config, warnings.file());
            if arguments.effective {
                output::print(&config.effective())?;
            } else {
                output::print(&format!("{}: {}\n", warnings.file(), verdict(&config, warnings.warnings() + foreign)))?;
            }
            Ok(CommandOutcome::Done)
        }
        Err(report) => {
            output::report(&report);
            output::complain(&format!("{} cannot be used: {}", report.file(), count(report.errors(), "error")));
            Ok(CommandOutcome::Failed)
        }
    }
}

/// Reads the configuration from standard input. Paths in it are relative to the current folder.
fn standard_input() -> Result<(Config, Report), Report> {
    const NAME: &str = "standard input";
    let mut text = String::new();
    if let Err(error) = std::io::stdin().lock().read_to_string(&mut text) {
        let message = format!("cannot read the configuration: {error}");
        return Err(Report::new(NAME, "", vec![Fault::error(None, message, "give it as UTF-8 text")]));
    }
    let environment = |name: &str| std::env::var(name).ok();
    preflight::read(Source { file: NAME, text: &text, environment: &environment, ..Source::default() })
}

/// Reports settings that do not fit this machine and this database; returns the number of warnings.
pub(crate) fn environment(config: &Config, file: &str) -> usize {
    let (foreign, unwritable) = (preflight::foreign_listeners(config), preflight::unwritable(config));
    let foreign = [foreign, unwritable, preflight::kernel_limits(config)].concat();
    output::report(&Report::new(file, "", foreign.clone()));
    foreign.len() + realm::check(config, file)
}

/// Returns one line with the verdict on the configuration, and its listeners and domains.
pub(crate) fn verdict(config: &Config, warnings: usize) -> String {
    let listeners: Vec<String> = config.listeners.iter().map(ToString::to_string).collect();
    let domains = match config.domains.len() {
        0 => "no domain".into(),
        _ => config.domain_names().collect::<Vec<_>>().join(", "),
    };
    let warnings = match warnings {
        0 => String::new(),
        number => format!(", {}", count(number, "warning")),
    };
    let media = media(config).map_or_else(String::new, |media| format!("; media {media}"));
    format!("can be used{warnings}; {} for {domains}{media}", listeners.join(", "))
}

/// Says how many calls the ports of media and the descriptors carry: calls with one audio stream that the server answers, bridged ones, or both kinds;
/// `None` if this server has no media.
pub(crate) fn media(config: &Config) -> Option<String> {
    let capacity = MediaCapacity::here(config);
    let MediaCapacity { ports, descriptors, wanted_limit } = capacity;
    let cure = match capacity.is_enough() {
        true => String::new(),
        false => format!(": for all ports raise the limit of descriptors (LimitNOFILE, ulimit -n) to {wanted_limit}"),
    };
    let decisions = &config.decisions;
    let bridged = |pairs: usize| pairs / (2 * decisions.bridged_streams());
    let said = match (decisions.bridge_calls(), decisions.have_endpoint()) {
        (false, _) => format!("ports for {}, descriptors for {descriptors}", count(ports, "call")),
        (true, false) => {
            format!("ports for {}, descriptors for {}", count(bridged(ports), "bridged call"), bridged(descriptors))
        }
        (true, true) => {
            let (ports_bridged, descriptors_bridged) = (bridged(ports), bridged(descriptors));
            format!(
                "ports for {} or {ports_bridged} bridged, descriptors for {descriptors} or {descriptors_bridged}",
                count(ports, "call")
            )
        }
    };
    (ports > 0).then(|| said + &cure)
}

fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_has_the_number_of_calls_that_the_ports_carry() {
        const ECHO: &str = "[[rule]]\nname = \"echo\"\nwhen = \"request.user == 'echo'\"\nanswer = \"echo\"\n";
        const BRIDGE: &str = "[[rule]]\nname = \"all\"\nb2bua = true\n";
        for (rules, part) in [
            (String::new(), "; media ports for 51 calls"),
            (ECHO.to_owned(), "; media ports for 51 calls"),
            (BRIDGE.to_owned(), "; media ports for 25 bridged calls"),
            (format!("{BRIDGE}media_types = [\"video\"]\n"), "; media ports for 12 bridged calls"),
            (format!("{ECHO}{BRIDGE}"), "; media ports for 51 calls or 25 bridged"),
        ] {
            let text = format!("[media]\naddresses = [\"192.0.2.1\"]\nports = \"20000-20101\"\n{rules}");
            let (config, _) = Config::read(Source { text: &text, ..Source::default() }).expect("right");
            let said = verdict(&config, 0);
            assert!(said.contains(&format!("{part}, descriptors for ")), "{said}");
        }
        assert!(!verdict(&Config::default(), 0).contains("media"));
    }
}
