//! Explanation of a request: its course through the stages, as data and as text for people.

use crate::plan_view::PlanView;
use crate::rule_trace::RuleResult;
use serde::Serialize;
use std::fmt;

/// Explanation of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// Filters that were evaluated, in order, up to the one that ends the request.
    pub filters: Vec<RuleResult>,
    /// Course if all limits that the request meets have room.
    #[serde(flatten)]
    pub course: Course,
    /// Courses if limits are full.
    pub if_full: Vec<IfFull>,
    /// True if there are more such cases.
    pub more: bool,
}

/// Course of a request if these limits are full, and all other limits that the request meets have room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IfFull {
    /// Names of the limits.
    pub limits: Vec<String>,
    /// Course in this case.
    #[serde(flatten)]
    pub course: Course,
}

/// The course of a request through the stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Course {
    /// Rules that were evaluated, up to the last that counts.
    pub rules: Vec<RuleResult>,
    /// Request-URI that rules have made of the original one.
    pub uri: Option<String>,
    /// Failures before it is forwarded, for which rules have an action.
    pub failed: Vec<FailedView>,
    /// Names that were not looked up.
    pub names: Vec<String>,
    /// Users who were not looked up in the database. They are assumed to exist; the server answers 404 if one does not.
    pub users: Vec<String>,
    /// Outcome of the request.
    pub outcome: ExplainedOutcome,
}

/// Failure of a request before it is forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedView {
    /// Status of the response that the sender of the request would get.
    pub status: u16,
    /// Reason of the failure.
    pub because: String,
}

/// Outcome of an explained request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "does", rename_all = "snake_case")]
pub enum ExplainedOutcome {
    /// Response of the server.
    Answer {
        /// Status code.
        status: u16,
        /// Rule or filter that gives this response, or another reason.
        because: String,
    },
    /// End without a response.
    Drop,
    /// Work of the registrar.
    Register,
    /// Redirection to the places where it would go.
    Redirect {
        /// Contacts in the order of trying.
        contacts: Vec<String>,
    },
    /// Answer by an endpoint of this server, which handles the media of the call.
    Endpoint {
        /// Name of the endpoint, as in the rule.
        name: &'static str,
    },
    /// Forwarding.
    Forward(Box<PlanView>),
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filters.iter().try_for_each(|rule_result| writeln!(f, "filter  {rule_result}"))?;
        self.course.write(f, 0)?;
        for IfFull { limits, course } in &self.if_full {
            let (last, others) = limits.split_last().map_or(("", &[][..]), |(last, others)| (&**last, others));
            let (all, verb) = match others {
                [] => (last.to_owned(), "is"),
                others => (format!("{} and {last}", others.join(", ")), "are"),
            };
            writeln!(f, "\nif {all} {verb} full:")?;
            // The rules before the first difference are the same in both courses.
            let is_same = |(rule, other): &(&RuleResult, &RuleResult)| rule == other;
            course.write(f, course.rules.iter().zip(&self.course.rules).take_while(is_same).count())?;
        }
        if self.more { writeln!(f, "\nand more cases of limits that are full") } else { Ok(()) }
    }
}

impl Course {
    /// Writes the course without its first rules.
    fn write(&self, f: &mut fmt::Formatter<'_>, without: usize) -> fmt::Result {
        self.rules.iter().skip(without).try_for_each(|rule_result| writeln!(f, "rule    {rule_result}"))?;
        self.uri.iter().try_for_each(|uri| writeln!(f, "uri     becomes {uri}"))?;
        for FailedView { status, because } in &self.failed {
            writeln!(f, "fails   {status}: {because}")?;
        }
        self.names.iter().try_for_each(|name| writeln!(f, "name    {name} is looked up when a request goes there"))?;
        self.users
            .iter()
            .try_for_each(|user| writeln!(f, "user    {user}: the server answers 404 if it is no user"))?;
        match &self.outcome {
            ExplainedOutcome::Answer { status, because } => writeln!(f, "answer  {status}: {because}"),
            ExplainedOutcome::Drop => writeln!(f, "drop    no answer"),
            ExplainedOutcome::Register => writeln!(f, "answer  by the registrar"),
            ExplainedOutcome::Redirect { contacts } => {
                contacts.iter().try_for_each(|to| writeln!(f, "redirect to {to}"))
            }
            ExplainedOutcome::Endpoint { name } => {
                writeln!(f, "answer  200 by the endpoint {name}, with media of this server")
            }
            ExplainedOutcome::Forward(plan) => write!(f, "{plan}"),
        }
    }
}
