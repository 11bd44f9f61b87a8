//! Options of a plan: its profile, and values that replace values of the experiment.

use std::time::Duration;

use clap::Args;
use strowger_lab::experiment::{Experiment, Overrides, Plan, TrialPosition, plan};
use strowger_lab::row::Profile;
use strowger_load::campaign::period;

use crate::output::{Refusal, usage};

/// Profile of a run, and values that replace values of the experiment.
#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// Durations: smoke, quick, standard or paper.
    #[arg(long, value_name = "PROFILE", default_value = "quick", value_parser = Profile::read)]
    pub profile: Profile,
    /// Values of an axis in place of all; for several axes several times.
    #[arg(long, value_name = "AXIS=VALUE,...", value_parser = values)]
    pub only: Vec<(String, Vec<String>)>,
    /// Fixed loads, without a search.
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', value_parser = load)]
    pub load: Vec<f64>,
    /// Length of each trial's window, such as 10s.
    #[arg(long, value_name = "TIME", value_parser = window)]
    pub window: Option<Duration>,
    /// Repetitions of each trial.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub repetitions: Option<u32>,
}

fn values(text: &str) -> Result<(String, Vec<String>), String> {
    let (axis, values) = text.split_once('=').ok_or("write AXIS=VALUE,VALUE")?;
    let values: Vec<String> = values.split(',').map(str::to_owned).collect();
    match axis.is_empty() || values.iter().any(String::is_empty) {
        true => Err("write AXIS=VALUE,VALUE".into()),
        false => Ok((axis.into(), values)),
    }
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.parse::<f64>().ok().filter(|load| load.is_finite() && *load > 0.0);
    load.ok_or_else(|| "write a number above 0".into())
}

fn window(text: &str) -> Result<Duration, String> {
    match period::duration(text) {
        Ok(window) if window >= Duration::from_millis(100) => Ok(window),
        Ok(_) => Err("write at least 100ms".into()),
        Err(error) => Err(error.to_string()),
    }
}

impl PlanArguments {
    /// Returns the values that replace values of the experiment.
    pub(super) fn overrides(&self) -> Overrides {
        let mut overrides = Overrides {
            loads: self.load.clone(),
            window: self.window,
            repetitions: self.repetitions,
            ..Overrides::default()
        };
        for (axis, values) in &self.only {
            let of_axis: &mut Vec<String> = overrides.only.entry(axis.clone()).or_default();
            for value in values {
                if !of_axis.contains(value) {
                    of_axis.push(value.clone());
                }
            }
        }
        overrides
    }

    /// Puts the values into the experiment, and plans the named systems, or all.
    pub(super) fn plan(&self, experiment: &mut Experiment, systems: &[&str]) -> Result<Plan, Refusal> {
        self.overrides().apply(experiment, self.profile).map_err(usage)?;
        let plan = plan(experiment, self.profile, systems);
        match plan.trials.iter().any(|trial| trial.place == TrialPosition::Trial) {
            true => Ok(plan),
            false => Err(usage("no system has these values: `strowger lab show` prints what each skips")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_command_line() {
        assert_eq!(values("letter=A,H1"), Ok(("letter".into(), vec!["A".into(), "H1".into()])));
        assert!(["letter", "=A", "letter=", "letter=A,,B"].iter().all(|text| values(text).is_err()));
        assert!(load("2500").is_ok() && ["0", "-1", "inf", "x"].iter().all(|text| load(text).is_err()));
        assert!(window("10s").is_ok() && window("0s").is_err() && window("ten").is_err());
    }
}
