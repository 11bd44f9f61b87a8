//! Distributions in attributes.

use super::Reader;
use crate::distribution::Distribution;
use crate::refusal::Fault;
use crate::xml::Element;

impl Reader<'_> {
    /// Returns the distribution of a `sample`, which requires `distribution`.
    pub(super) fn sample_distribution(&self, element: &Element) -> Result<Distribution, Fault> {
        match self.named(element)? {
            Some(distribution) => Ok(distribution),
            None => {
                Err(super::attribute::missing(element, "distribution").hint(format!("one of {}", NAMES.join(", "))))
            }
        }
    }

    /// Returns the distribution of a `pause`, which is given by name, by an old attribute, or by `milliseconds`.
    /// Returns `None` for the default pause of the run.
    pub(super) fn pause_distribution(&self, element: &Element, check: bool) -> Result<Option<Distribution>, Fault> {
        let has = |name: &str| self.attribute(element, name).is_some();
        let distribution = if let Some(named) = self.named(element)? {
            named
        } else if let Some(old) = OLD.iter().find(|name| has(name)) {
            self.distribution(element, old)?
        } else if has("min") || has("max") {
            self.distribution(element, "uniform")?
        } else if let Some(milliseconds) = self.number(element, "milliseconds")? {
            Distribution::Fixed(milliseconds)
        } else {
            return Ok(None);
        };
        let high = distribution.quantile(0.99);
        if check && high > f64::from(i32::MAX) {
            let what = format!("one pause in a hundred would be longer than {high:.0} ms");
            return Err(Fault::new(element.start, what).hint("smaller parameters, or sanity_check=\"false\""));
        }
        Ok(Some(distribution))
    }

    fn named(&self, element: &Element) -> Result<Option<Distribution>, Fault> {
        match self.attribute(element, "distribution") {
            Some(name) => match NAMES.iter().find(|known| **known == name.text()) {
                Some(known) => self.distribution(element, known).map(Some),
                None => Err(Fault::new(name.at, format!("there is no distribution `{}`", name.text()))
                    .hint(format!("one of {}", NAMES.join(", ")))),
            },
            None => Ok(None),
        }
    }

    fn distribution(&self, element: &Element, name: &str) -> Result<Distribution, Fault> {
        let number = |attribute| self.required_number(element, attribute);
        Ok(match name {
            "fixed" => Distribution::Fixed(number("value")?),
            "uniform" => Distribution::Uniform { min: number("min")?, max: number("max")? },
            "normal" => Distribution::Normal { mean: number("mean")?, deviation: number("stdev")? },
            "lognormal" => Distribution::LogNormal { mean: number("mean")?, deviation: number("stdev")? },
            "exponential" => Distribution::Exponential { mean: number("mean")? },
            "weibull" => Distribution::Weibull { lambda: number("lambda")?, k: number("k")? },
            "pareto" => Distribution::Pareto { k: number("k")?, x_m: number("x_m")? },
            "gpareto" => Distribution::GeneralizedPareto {
                shape: number("shape")?,
                scale: number("scale")?,
                location: number("location")?,
            },
            "gamma" => Distribution::Gamma { k: number("k")?, theta: number("theta")? },
            _ => Distribution::NegativeBinomial { p: number("p")?, n: number("n")? },
        })
    }
}

const NAMES: &[&str] =
    &["fixed", "uniform", "normal", "lognormal", "exponential", "weibull", "pareto", "gpareto", "gamma", "negbin"];

/// Old attributes that name the distribution of a pause, by precedence.
const OLD: &[&str] = &["normal", "exponential", "lognormal", "weibull", "pareto", "gamma"];
