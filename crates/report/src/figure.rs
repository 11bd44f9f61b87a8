//! Figures: lines, bars and points with intervals, and published values for comparison.
//!
//! A [`Plot`] is data. A [`Figure`] is a plot that a chart can show: every value is a finite number and has a place on its scale, and no
//! name of the legend occurs twice. A figure without data has a reason instead.

use serde::Serialize;
use std::collections::HashSet;

/// Data of a figure, not checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// Name in the page and of the exported file: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Title above the chart.
    pub title: String,
    /// Line below the title: definition, conditions, repetitions. May be empty.
    pub note: String,
    /// Axis from left to right.
    pub x: XAxis,
    /// Axis from bottom to top.
    pub y: Axis,
    /// Measured values.
    pub series: Vec<Series>,
    /// Values of others.
    pub published: Vec<Published>,
}

/// Axis of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// Quantity.
    pub title: String,
    /// `us`, `%`, `1`, `1/s`, `B`, `B/s`, `s`, or any other text, which follows the value.
    pub unit: String,
    /// Initial scale. The reader may switch the y axis if all values are positive.
    pub scale: Scale,
}

/// Place of a number on its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Distance proportional to the difference.
    Linear,
    /// Distance proportional to the logarithm of the ratio.
    Log,
}

/// Axis from left to right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum XAxis {
    /// Numbers.
    Numbers(Axis),
    /// Names side by side. The x of a point is the index of its name.
    Categories {
        /// Kind of the names. May be empty.
        title: String,
        /// The names, in order.
        names: Vec<String>,
    },
}

/// Measured values of one name in the legend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Shape.
    pub form: Form,
    /// Values, by ascending x.
    pub points: Vec<Point>,
}

/// Shape of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Dots, joined.
    Line,
    /// Bars over categories; several series are side by side.
    Bars,
    /// Only dots.
    Points,
}

/// Measured value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Place on the x axis.
    pub x: f64,
    /// Value.
    pub y: f64,
    /// Lower and upper end of the interval of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The trial was not valid: the chart shows its point hollow, or its bar pale.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_invalid: bool,
}

/// Values of one source that others published.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Name in the legend: source, machine, and erratum, if any.
    #[serde(rename = "name")]
    pub label: String,
    /// The values.
    pub points: Vec<PublishedPoint>,
}

/// Value that others published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PublishedPoint {
    /// Place on the x axis. `None`: the value holds for every x.
    pub x: Option<f64>,
    /// Value.
    pub y: f64,
}

impl Published {
    /// Creates the published values of a source. The legend names the machine of the measurement and the erratum, which
    /// may be empty.
    pub fn new(source: &str, machine: &str, erratum: &str, points: Vec<PublishedPoint>) -> Self {
        let erratum = if erratum.is_empty() { String::new() } else { format!("; erratum: {erratum}") };
        Self { label: format!("{source} ({machine}{erratum})"), points }
    }
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, interval: None, is_invalid: false }
    }
}

impl From<(f64, f64, [f64; 2])> for Point {
    fn from((x, y, interval): (f64, f64, [f64; 2])) -> Self {
        Self { x, y, interval: Some(interval), is_invalid: false }
    }
}

/// Fault of a plot or a drawing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("figure {figure:?}: {place}: {cause}")]
pub struct Fault {
    /// Name of the figure.
    pub figure: String,
    /// Axis, series or source.
    pub place: String,
    /// Cause and cure.
    pub cause: Cause,
}

/// Cause of a fault, with its cure.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Cause {
    /// A file cannot have this name.
    #[error("no name: use letters, digits, '-', '_' and '.'")]
    Name,
    /// A text is missing.
    #[error("empty: fill it, or leave it out")]
    Empty,
    /// A name of the legend or a category is there twice.
    #[error("{0:?} is there twice: choose another name")]
    Twice(String),
    /// A value is infinite or not a number.
    #[error("{0} at point {1} is no finite number: leave the point out")]
    NotFinite(f64, usize),
    /// A point does not follow the one before.
    #[error("x does not ascend at point {0}: sort the points, and have one for each x")]
    NotAscending(usize),
    /// An interval does not contain its value.
    #[error("the interval of point {0} does not contain its value: give the lower end first")]
    Interval(usize),
    /// A logarithm does not exist.
    #[error("a log scale has no place for {0} at point {1}: use a linear scale")]
    NotPositive(f64, usize),
    /// The x of a point is the index of no category.
    #[error("x {0} at point {1} is no category: use an index from 0 to {2}")]
    Category(f64, usize, usize),
    /// Bars over numbers instead of categories.
    #[error("bars stand over categories: name them, or use lines or points")]
    BarsOverNumbers,
    /// Two boxes of a drawing are in one place.
    #[error("{0:?} stands where another box stands: choose another column or row")]
    Place(String),
    /// An arrow of a drawing leads nowhere.
    #[error("{0:?} is named and is not there: add it, or correct the name")]
    Unknown(String),
    /// There is nothing to draw.
    #[error("no point: leave it out, or give a reason to Figure::without_data")]
    NoPoint,
}

/// Checked figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    #[serde(flatten)]
    plot: Plot,
    /// Reason of a figure without data.
    #[serde(skip_serializing_if = "Option::is_none")]
    empty: Option<String>,
}

impl Figure {
    /// Checks a plot.
    ///
    /// # Errors
    /// The first fault, with its place, its cause and its cure.
    pub fn new(plot: Plot) -> Result<Self, Fault> {
        let fault = |place: &str, cause| Fault { figure: plot.name.clone(), place: place.into(), cause };
        plot.check().map_err(|(place, cause)| fault(&place, cause))?;
        Ok(Self { plot, empty: None })
    }

    /// Creates a figure that shows why there are no data.
    ///
    /// # Errors
    /// Name, title or reason is empty or cannot be used.
    pub fn without_data(name: &str, title: &str, reason: &str) -> Result<Self, Fault> {
        let fault = |place: &str, cause| Fault { figure: name.into(), place: place.into(), cause };
        check_name(name).map_err(|cause| fault("name", cause))?;
        for (place, text) in [("title", title), ("reason", reason)] {
            check_text(text).map_err(|cause| fault(place, cause))?;
        }
        let axis = || Axis { title: String::new(), unit: "1".into(), scale: Scale::Linear };
        let plot = Plot {
            name: name.into(),
            title: title.into(),
            note: String::new(),
            x: XAxis::Numbers(axis()),
            y: axis(),
            series: Vec::new(),
            published: Vec::new(),
        };
        Ok(Self { plot, empty: Some(reason.into()) })
    }

    /// Returns the name in the page.
    pub fn name(&self) -> &str {
        &self.plot.name
    }

    /// Returns the title above the chart.
    pub fn title(&self) -> &str {
        &self.plot.title
    }

    /// Returns the data of the figure, or `None` for a figure without data.
    pub const fn plot(&self) -> Option<&Plot> {
        if self.empty.is_none() { Some(&self.plot) } else { None }
    }

    /// Returns the JSON that the script of the page reads.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("keys are strings and numbers are finite")
    }
}

impl Plot {
    fn check(&self) -> Result<(), (String, Cause)> {
        let at = |place: &str| {
            let place = place.to_owned();
            move |cause| (place, cause)
        };
        check_name(&self.name).map_err(at("name"))?;
        check_text(&self.title).map_err(at("title"))?;
        for axis in [Some(&self.y), self.x.numbers()].into_iter().flatten() {
            check_text(&axis.title).map_err(at("title of an axis"))?;
            check_text(&axis.unit).map_err(at("unit of an axis"))?;
        }
        if let XAxis::Categories { names, .. } = &self.x {
            once(names.iter()).map_err(at("categories"))?;
        }
        let series = self.series.iter().map(|series| &series.name);
        once(series.chain(self.published.iter().map(|published| &published.label))).map_err(at("legend"))?;
        for series in &self.series {
            self.check_series(series).map_err(at(&format!("series {:?}", series.name)))?;
        }
        for published in &self.published {
            self.check_published(published).map_err(at(&format!("published {:?}", published.label)))?;
        }
        if self.series.is_empty() { Err(("series".into(), Cause::NoPoint)) } else { Ok(()) }
    }

    fn check_series(&self, series: &Series) -> Result<(), Cause> {
        if series.form == Form::Bars && self.x.numbers().is_some() {
            return Err(Cause::BarsOverNumbers);
        }
        if series.points.is_empty() {
            return Err(Cause::NoPoint);
        }
        let mut before = f64::NEG_INFINITY;
        for (place, point) in series.points.iter().enumerate() {
            self.x.check(point.x, place)?;
            check_value(point.y, self.y.scale, place)?;
            if point.x <= before {
                return Err(Cause::NotAscending(place));
            }
            before = point.x;
            if let Some([low, high]) = point.interval {
                check_value(low, self.y.scale, place)?;
                check_value(high, self.y.scale, place)?;
                if !(low..=high).contains(&point.y) {
                    return Err(Cause::Interval(place));
                }
            }
        }
        Ok(())
    }

    fn check_published(&self, published: &Published) -> Result<(), Cause> {
        if published.points.is_empty() {
            return Err(Cause::NoPoint);
        }
        for (place, point) in published.points.iter().enumerate() {
            point.x.map_or(Ok(()), |x| self.x.check(x, place))?;
            check_value(point.y, self.y.scale, place)?;
        }
        Ok(())
    }
}

impl XAxis {
    const fn numbers(&self) -> Option<&Axis> {
        match self {
            Self::Numbers(axis) => Some(axis),
            Self::Categories { .. } => None,
        }
    }

    fn check(&self, x: f64, place: usize) -> Result<(), Cause> {
        match self {
            Self::Numbers(axis) => check_value(x, axis.scale, place),
            Self::Categories { names, .. } if x.fract() == 0.0 && (0.0..names.len() as f64).contains(&x) => Ok(()),
            Self::Categories { names, .. } => Err(Cause::Category(x, place, names.len().saturating_sub(1))),
        }
    }
}

fn check_name(name: &str) -> Result<(), Cause> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.chars().all(plain) && name.contains(|c: char| c.is_ascii_alphanumeric()) {
        Ok(())
    } else {
        Err(Cause::Name)
    }
}

fn check_text(text: &str) -> Result<(), Cause> {
    if text.trim().is_empty() { Err(Cause::Empty) } else { Ok(()) }
}

fn check_value(value: f64, scale: Scale, place: usize) -> Result<(), Cause> {
    match scale {
        _ if !value.is_finite() => Err(Cause::NotFinite(value, place)),
        Scale::Log if value <= 0.0 => Err(Cause::NotPositive(value, place)),
        _ => Ok(()),
    }
}

/// Checks that no name is empty and that none occurs twice.
fn once<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), Cause> {
    let mut seen = HashSet::new();
    for name in names {
        check_text(name)?;
        if !seen.insert(name) {
            return Err(Cause::Twice(name.clone()));
        }
    }
    Ok(())
}
