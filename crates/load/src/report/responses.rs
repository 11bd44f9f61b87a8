//! Series columns for the responses of a run: one for each method and code received.

use super::json::method_name;
use strowger_measure::{Row, Run};
use strowger_message::Method;

/// Columns after the common ones, each a measure that `--require` knows: `responses.invite.486`.
pub(super) struct Responses {
    pub(super) names: Vec<String>,
    kinds: Vec<(Method, u16)>,
}

impl Responses {
    pub(super) fn of(run: &Run) -> Self {
        // An invalid code has no name either.
        let all = run.responses_received();
        let all = all.iter().filter(|(_, code, _)| *code != 0);
        let kinds: Vec<(Method, u16)> = all.map(|(method, code, _)| (method, code)).collect();
        let name = |(method, code): &(Method, u16)| format!("responses.{}.{code}", method_name(*method).to_lowercase());
        Self { names: kinds.iter().map(name).collect(), kinds }
    }

    pub(super) fn values<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = f64> + 'a {
        self.kinds.iter().map(|(method, code)| {
            let found = row.codes.iter().find(|(of, which, _)| of == method && which == code);
            found.map_or(0.0, |(_, _, count)| *count as f64)
        })
    }
}
