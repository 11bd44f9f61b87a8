//! Random durations and numbers: pauses and `sample`.

/// A distribution, its parameters checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    Fixed(f64),
    Uniform {
        min: f64,
        max: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    /// The logarithm has `mean` and `deviation`.
    LogNormal {
        mean: f64,
        deviation: f64,
    },
    Exponential {
        mean: f64,
    },
    Weibull {
        lambda: f64,
        k: f64,
    },
    Pareto {
        k: f64,
        x_m: f64,
    },
    GeneralizedPareto {
        shape: f64,
        scale: f64,
        location: f64,
    },
    Gamma {
        k: f64,
        theta: f64,
    },
    NegativeBinomial {
        p: f64,
        n: f64,
    },
}
