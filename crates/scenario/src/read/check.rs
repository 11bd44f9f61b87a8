//! Checks that need the whole document.

use super::{Counting, Program, Reader, Table, classic_without_commands, commands, third_party_fault};
use crate::ThirdParty;
use crate::refusal::{Cause, Fault};
use crate::step::{StepIndex, StepKind};

impl Reader<'_> {
    pub(super) fn check(&mut self) -> Result<(), Fault> {
        if self.main.steps.is_empty() {
            return Err(Fault::new(0, "the scenario has no step").hint("it needs at least one `send` or `recv`"));
        }
        resolve(&mut self.main)?;
        resolve(&mut self.init)?;
        self.check_transactions()?;
        // SIPp itself uses these two, with or without the label.
        for name in ["_unexp.retaddr", "_unexp.pausedaddr"] {
            self.names.known(name);
        }
        if let Some(name) = self.names.lonely() {
            let at = self.document.after(0, name.as_bytes()).unwrap_or(0);
            return Err(Fault::new(at, format!("the variable `{name}` is named only once"))
                .hint(format!("name it a second time, or add <Reference variables=\"{name}\"/> at the end")));
        }
        if let Some(timer) = self.timers.iter().find(|timer| timer.started.is_some() && !timer.stopped) {
            let what = format!("the timer `{}` is started and never stopped", timer.name);
            return Err(
                Fault::new(timer.started.unwrap_or(0), what).hint(format!("a later step needs rtd=\"{}\"", timer.name))
            );
        }
        self.tables.1 = match (&self.response_time, self.timers.is_empty()) {
            (None, _) => Vec::new(),
            (Some(table), false) => bounds(table)?,
            // Without timers SIPp ignores it.
            (Some(table), true) => bounds(table).unwrap_or_default(),
        };
        self.default_texts()?;
        self.check_third_party()?;
        let talks = |kind: &StepKind| !matches!(kind, StepKind::Pause(_) | StepKind::Nop | StepKind::TimeWait(_));
        if !self.main.steps.iter().any(|step| talks(&step.kind)) {
            return Err(Fault::new(0, "the scenario neither sends nor receives"));
        }
        Ok(())
    }

    fn check_transactions(&self) -> Result<(), Fault> {
        for transaction in &self.transactions {
            let name = &transaction.name;
            let (what, hint) = if !transaction.started {
                (format!("the transaction `{name}` is never started"), "a `send` with start_txn")
            } else if !transaction.answered {
                (format!("no answer belongs to the transaction `{name}`"), "a `recv` with response_txn")
            } else if transaction.invite && !transaction.acknowledged {
                (format!("the INVITE transaction `{name}` has no ACK"), "a `send` of ACK with ack_txn")
            } else if !transaction.invite && transaction.acknowledged {
                (format!("the transaction `{name}` is no INVITE and has an ACK"), "no `ack_txn` for it")
            } else {
                continue;
            };
            return Err(Fault::new(transaction.at, what).hint(hint));
        }
        Ok(())
    }

    fn default_texts(&mut self) -> Result<(), Fault> {
        for (name, at, text) in std::mem::take(&mut self.default_messages) {
            let template = if name == "3pcc_abort" {
                self.template(&text, at, Counting::Uncounted)?
            } else {
                self.message(&text, at, Counting::Uncounted)?.0
            };
            if name == "bye" {
                self.defaults.routed_bye = template.clone();
            }
            if let Some(place) = self.defaults.place(&name) {
                *place = template;
            }
        }
        Ok(())
    }

    fn check_third_party(&self) -> Result<(), Fault> {
        if classic_without_commands(self.environment, &self.main) {
            return Err(Fault::new(0, "-3pcc is given, and the scenario has neither `sendCmd` nor `recvCmd`")
                .cause(Cause::ThirdParty));
        }
        match commands(&self.main) {
            Some(step) if self.environment.third_party == ThirdParty::None => {
                let name = if matches!(step.kind, StepKind::SendCommand { .. }) { "sendCmd" } else { "recvCmd" };
                let at = self.document.line(step.line);
                Err(third_party_fault(at, &format!("`<{name}>` needs another controller to talk with")))
            }
            _ => Ok(()),
        }
    }
}

/// Turns labels into indices.
fn resolve(program: &mut Program) -> Result<(), Fault> {
    let find = |labels: &[(String, StepIndex)], name: &str, at: usize| {
        let found = labels.iter().find(|(label, _)| label == name).map(|(_, index)| *index);
        found.ok_or_else(|| {
            let known: Vec<&str> = labels.iter().map(|(label, _)| label.as_str()).take(20).collect();
            let fault = Fault::new(at, format!("there is no label `{name}`"));
            if known.is_empty() {
                fault.hint(format!("a <label id=\"{name}\"/>"))
            } else {
                fault.hint(format!("known here: {}", known.join(", ")))
            }
        })
    };
    for (step, at, name) in &program.next {
        let to = find(&program.labels, name, *at)?;
        if let Some(jump) = &mut program.steps[*step].next {
            jump.to = to;
        }
    }
    for (step, at, name) in &program.on_timeout {
        let to = find(&program.labels, name, *at)?;
        program.steps[*step].on_timeout = Some(to);
    }
    Ok(())
}

/// Parses the upper bounds of a repartition: integers separated by commas or spaces, or nothing at all.
pub(super) fn bounds(table: &Table) -> Result<Vec<u32>, Fault> {
    if table.text.is_empty() {
        return Ok(Vec::new());
    }
    let parts = table.text.split(',').map(|part| part.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>());
    let mut bounds = Vec::new();
    for part in parts {
        let whole = part.iter().all(|word| word.bytes().all(|b| b.is_ascii_digit()));
        let first = part.first().and_then(|word| word.parse().ok());
        match first {
            Some(bound) if whole => bounds.push(bound),
            _ => {
                return Err(Fault::new(table.at, format!("`{}` is no list of bounds", table.text))
                    .hint("milliseconds divided by commas: 10, 20, 50"));
            }
        }
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests {
    use super::{Table, bounds};

    #[test]
    fn bounds_are_integers_with_commas() {
        let read = |text: &str| bounds(&Table { at: 0, text: text.into() }).ok();
        assert_eq!(read("10, 20, 30"), Some(vec![10, 20, 30]));
        assert_eq!(read(" 10 , 20 "), Some(vec![10, 20]));
        assert_eq!(read(""), Some(vec![]));
        assert_eq!(read("10 20"), Some(vec![10]));
        for wrong in ["foo", "10,foo", "10;20", "10,", "-1", ",10", "10,,20", "1.5", "10,20 foo", " ", "10\n,20"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
