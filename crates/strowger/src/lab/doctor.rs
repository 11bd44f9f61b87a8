//! `strowger lab doctor`.

use std::process::ExitCode;

use clap::Args;
use strowger_lab::doctor::{self, Area, Finding, Grade, Kernel};

use super::print;
use crate::output::{Refusal, code};

/// Examine this machine: missing programs, settings and programs that spoil a run, and the rate of the generator.
///
/// The command looks for the programs of the shipped experiments, reads settings of the kernel, watches the machine for two seconds, and
/// makes calls over loopback for five seconds at most. It changes nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab doctor
  strowger lab doctor --no-load          without the calls of the generator
  strowger lab doctor --json

Exit codes: 0 this machine can measure, 1 something spoils runs, 2 the command line cannot be used.")]
pub(crate) struct DoctorArguments {
    /// Make no calls.
    #[arg(long)]
    pub no_load: bool,
    /// One JSON array instead of a table.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(arguments: &DoctorArguments) -> Result<ExitCode, Refusal> {
    let failed = |error: String| Refusal(code::FAILED, error);
    let kernel = Kernel::default();
    let mut findings = doctor::programs();
    findings.extend(doctor::kernel(&kernel));
    findings.extend(doctor::present(&kernel));
    if !arguments.no_load {
        let program = std::env::current_exe().map_err(|error| failed(format!("the path of this program: {error}")))?;
        let folder = std::env::temp_dir().join(format!("strowger-doctor-{}", std::process::id()));
        let found = doctor::generator(&program, &folder);
        // The findings have all that matters of its logs.
        let _ = std::fs::remove_dir_all(&folder);
        findings.push(found.map_err(|error| failed(error.to_string()))?);
    }
    match arguments.json {
        true => print(&format!("{}\n", serde_json::json!(findings)))?,
        false => print(&table(&findings))?,
    }
    Ok(match doctor::worst(&findings) {
        Grade::Bad => ExitCode::from(code::FAILED),
        Grade::Good | Grade::Notice => ExitCode::SUCCESS,
    })
}

/// Writes the table of findings by area. A finding that is not good has its effect and cure on lines of their own.
fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for area in Area::ALL {
        let of_area: Vec<&Finding> = findings.iter().filter(|finding| finding.area == *area).collect();
        if of_area.is_empty() {
            continue;
        }
        out.push_str(&format!("{area}\n"));
        for Finding { subject, found, grade, effect, cure, .. } in of_area {
            out.push_str(&format!("  {:<6}  {subject:<width$}  {found}\n", grade.word()));
            if *grade != Grade::Good {
                out.push_str(&format!("          {effect}\n          cure: {cure}\n"));
            }
        }
    }
    let count = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
    out.push_str(&match (count(Grade::Bad), count(Grade::Notice)) {
        (0, 0) => "This machine can measure.\n".to_owned(),
        (0, notices) => format!("This machine can measure; {notices} of its findings limit what.\n"),
        (bad, _) => format!("{bad} of these findings spoil runs on this machine.\n"),
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_has_its_cure_below_it() {
        let finding = |grade, subject: &str| Finding {
            area: Area::Kernel,
            subject: subject.into(),
            found: "212992".into(),
            grade,
            effect: "bursts are lost".into(),
            cure: "sysctl -w x=1".into(),
        };
        let text = table(&[finding(Grade::Bad, "net.core.rmem_max"), finding(Grade::Good, "cores")]);
        let lines = [
            "kernel",
            "  bad     net.core.rmem_max  212992",
            "          bursts are lost",
            "          cure: sysctl -w x=1",
            "  good    cores              212992",
            "1 of these findings spoil runs on this machine.",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }
}
