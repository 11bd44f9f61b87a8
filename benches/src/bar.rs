//! Limits by which a bench judges its figures.

use serde::Serialize;

/// A figure and its limit.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    what: String,
    seen: f64,
    demanded: f64,
    /// Target beyond the limit.
    aim: Option<f64>,
    /// True if more is better.
    upward: bool,
}

impl Bar {
    /// Demands a figure of at most `demanded`.
    pub fn most(what: &str, seen: f64, demanded: f64) -> Self {
        Self { what: what.into(), seen, demanded, aim: None, upward: false }
    }

    /// Demands a figure of at least `demanded`.
    pub fn least(what: &str, seen: f64, demanded: f64) -> Self {
        Self { what: what.into(), seen, demanded, aim: None, upward: true }
    }

    /// Prints a target beside the limit.
    #[must_use]
    pub fn aiming_at(self, aim: f64) -> Self {
        Self { aim: Some(aim), ..self }
    }

    /// Returns whether the figure is within the limit.
    pub fn is_met(&self) -> bool {
        if self.upward { self.seen >= self.demanded } else { self.seen <= self.demanded }
    }
}

impl std::fmt::Display for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, seen, demanded, .. } = self;
        // A figure in the thousands needs no fraction.
        let digits = if seen.abs() < 1_000.0 { 3 } else { 0 };
        let (mark, way) = (if self.is_met() { "✓" } else { "✗" }, if self.upward { "at least" } else { "at most" });
        write!(f, "{mark} {what:<44} {seen:>10.digits$}  {way} {demanded}")?;
        self.aim.map_or(Ok(()), |aim| write!(f, " (aim {aim})"))
    }
}

#[cfg(test)]
mod tests {
    use super::Bar;

    #[test]
    fn a_demand_is_met_up_to_its_bound_and_shown_with_it() {
        assert!(Bar::most("cost", 0.22, 0.22).is_met() && !Bar::most("cost", 0.221, 0.22).is_met());
        assert!(Bar::least("calls", 9.0, 9.0).is_met() && !Bar::least("calls", 8.9, 9.0).is_met());
        // A division by zero is no success.
        assert!(!Bar::most("cost", f64::NAN, 1.0).is_met());
        let text = Bar::most("cost", 0.3, 0.22).aiming_at(0.18).to_string();
        assert!(text.starts_with("✗ cost") && text.ends_with("0.300  at most 0.22 (aim 0.18)"), "{text}");
        let text = Bar::least("stores", 312_000.5, 3e5).to_string();
        assert!(text.ends_with("    312000  at least 300000"), "{text}");
    }
}
