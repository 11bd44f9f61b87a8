//! Drawings from data: a test bed of hosts and links, and a call flow of parties and messages.
//!
//! The width of a box is estimated from its text and the mean width of a letter: no font is measured.

use crate::escape;
use crate::figure::{Cause, Fault};
use std::collections::HashSet;
use std::fmt::Write;

/// Width of a letter.
const LETTER: f64 = 7.2;
/// Height of a line.
const LINE: f64 = 17.0;
/// Distance between rows of hosts.
const ROW_GAP: f64 = 56.0;
/// Distance between parallel links.
const PARALLEL: f64 = 22.0;
/// Height of a step of a call flow.
const STEP: f64 = 30.0;
/// Room around a drawing.
const MARGIN: f64 = 12.0;

/// Hosts and links between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bed {
    /// Title above the drawing.
    pub title: String,
    /// Boxes.
    pub hosts: Vec<Host>,
    /// Arrows.
    pub links: Vec<Link>,
}

/// Box of a test bed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Name, by which links find it.
    pub name: String,
    /// Lines below the name: program, cores, address.
    pub notes: Vec<String>,
    /// Column, from the left.
    pub column: usize,
    /// Row, from the top.
    pub row: usize,
}

/// Arrow between hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Host at its start.
    pub from: String,
    /// Host at its head.
    pub to: String,
    /// Text at its middle.
    pub label: String,
}

/// Call flow: messages between parties, from top to bottom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// Title above the drawing.
    pub title: String,
    /// Parties, from the left.
    pub parties: Vec<String>,
    /// Messages and pauses, in order.
    pub steps: Vec<Step>,
}

/// Step of a call flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Message of one party to another. A message from a party to itself is a note.
    Message {
        /// Sender.
        from: String,
        /// Receiver.
        to: String,
        /// Start line or method.
        text: String,
    },
    /// Time that passes.
    Pause(String),
}

/// Checked drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    title: String,
    svg: String,
}

impl Drawing {
    /// Returns the markup for a page.
    pub(crate) fn html(&self) -> String {
        format!(
            "<figure class=\"drawing\"><figcaption><span>{}</span></figcaption>{}</figure>\n",
            escape(&self.title),
            self.svg
        )
    }
}

impl Bed {
    /// Draws the test bed.
    ///
    /// # Errors
    /// Two hosts have one name or one place, or a link names no host.
    pub fn draw(&self) -> Result<Drawing, Fault> {
        let fault = |place: &str, cause| Fault { figure: self.title.clone(), place: place.into(), cause };
        if self.hosts.is_empty() {
            return Err(fault("hosts", Cause::Empty));
        }
        let (mut names, mut places) = (HashSet::new(), HashSet::new());
        for host in &self.hosts {
            if !names.insert(&host.name) {
                return Err(fault("hosts", Cause::Twice(host.name.clone())));
            }
            if !places.insert((host.column, host.row)) {
                return Err(fault("hosts", Cause::Place(host.name.clone())));
            }
        }
        let find = |name: &String| {
            let host = self.hosts.iter().position(|host| host.name == *name);
            host.ok_or_else(|| fault("links", Cause::Unknown(name.clone())))
        };
        let links = self.links.iter().map(|link| Ok((find(&link.from)?, find(&link.to)?, link.label.as_str())));
        let links = links.collect::<Result<Vec<_>, Fault>>()?;
        let boxes = self.boxes();
        let mut canvas = Canvas::default();
        for (place, (from, to, label)) in links.iter().enumerate() {
            let is_beside = |other: &(usize, usize, &str)| {
                (other.0.min(other.1), other.0.max(other.1)) == (*from.min(to), *from.max(to))
            };
            let all = links.iter().filter(|other| is_beside(other)).count();
            let before = links[..place].iter().filter(|other| is_beside(other)).count();
            let offset = (before as f64 - (all as f64 - 1.0) / 2.0) * PARALLEL;
            canvas.link(&boxes[*from], &boxes[*to], offset, label);
        }
        for (host, area) in self.hosts.iter().zip(&boxes) {
            canvas.host(host, area);
        }
        Ok(canvas.finish(&self.title))
    }

    /// Computes the area of each host.
    fn boxes(&self) -> Vec<Area> {
        let most = |of: &dyn Fn(&Host) -> usize| self.hosts.iter().map(of).max().unwrap_or(0);
        let (columns, rows) = (most(&|host| host.column) + 1, most(&|host| host.row) + 1);
        let longest = self.links.iter().map(|link| width(&link.label)).fold(0.0, f64::max);
        let size = |host: &Host| {
            let texts = host.notes.iter().chain([&host.name]).map(|text| width(text));
            (texts.fold(60.0, f64::max) + 32.0, LINE * (host.notes.len() + 1) as f64 + 14.0)
        };
        let (mut widths, mut heights) = (vec![0.0f64; columns], vec![0.0f64; rows]);
        for host in &self.hosts {
            let (width, height) = size(host);
            widths[host.column] = widths[host.column].max(width);
            heights[host.row] = heights[host.row].max(height);
        }
        let start =
            |sizes: &[f64], place: usize, gap: f64| MARGIN + sizes[..place].iter().sum::<f64>() + gap * place as f64;
        let area = |host: &Host| Area {
            x: start(&widths, host.column, longest + 44.0),
            y: start(&heights, host.row, ROW_GAP),
            width: widths[host.column],
            height: heights[host.row],
        };
        self.hosts.iter().map(area).collect()
    }
}

impl Ladder {
    /// Draws the call flow.
    ///
    /// # Errors
    /// There is no party, two have one name, or a message names none.
    pub fn draw(&self) -> Result<Drawing, Fault> {
        let fault = |place: &str, cause| Fault { figure: self.title.clone(), place: place.into(), cause };
        if self.parties.is_empty() {
            return Err(fault("parties", Cause::Empty));
        }
        let mut names = HashSet::new();
        if let Some(name) = self.parties.iter().find(|name| !names.insert(*name)) {
            return Err(fault("parties", Cause::Twice(name.clone())));
        }
        let find = |name: &String| {
            let party = self.parties.iter().position(|party| party == name);
            party.ok_or_else(|| fault("steps", Cause::Unknown(name.clone())))
        };
        let mut gap = self.parties.iter().map(|party| width(party) + 24.0).fold(130.0, f64::max);
        let mut canvas = Canvas::default();
        let mut arrows = Vec::new();
        for (place, step) in self.steps.iter().enumerate() {
            if let Step::Message { from, to, text } = step {
                let (from, to) = (find(from)?, find(to)?);
                gap = gap.max((width(text) + 24.0) / from.abs_diff(to).max(1) as f64);
                arrows.push((place, from, to, text));
            }
        }
        let center = |party: usize| MARGIN + gap * (party as f64 + 0.5);
        let height = |place: usize| MARGIN + LINE + 16.0 + STEP * (place as f64 + 0.8);
        let (right, end) = (MARGIN + gap * self.parties.len() as f64, height(self.steps.len()));
        for (party, name) in self.parties.iter().enumerate() {
            let x = center(party);
            canvas.shape(&format!("class=\"lifeline\" d=\"M{x:.1} {:.1}V{end:.1}\"", MARGIN + LINE + 10.0));
            canvas.text(x, MARGIN + LINE, "middle", "name", name);
        }
        for (place, from, to, text) in arrows {
            let (start, head, y) = (center(from), center(to), height(place));
            if from == to {
                canvas.text(start + 8.0, y, "start", "note", text);
            } else {
                canvas.arrow((start, y), (head, y));
                canvas.text((start + head) / 2.0, y - 6.0, "middle", "label", text);
            }
        }
        for (place, step) in self.steps.iter().enumerate() {
            if let Step::Pause(text) = step {
                let y = height(place) - 4.0;
                canvas.shape(&format!("class=\"pause\" d=\"M{MARGIN} {y:.1}H{right:.1}\""));
                canvas.text(MARGIN + (right - MARGIN) / 2.0, y + 4.0, "middle", "label", text);
            }
        }
        canvas.reach(right, end);
        Ok(canvas.finish(&self.title))
    }
}

fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// Rectangle.
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Area {
    fn center(&self) -> (f64, f64) {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }

    /// Returns the point of the rectangle's border in this direction from its center. `offset` moves the center.
    fn border(&self, (dx, dy): (f64, f64), offset: (f64, f64)) -> (f64, f64) {
        let (x, y) = self.center();
        let of = |half: f64, shift: f64, step: f64| {
            if step == 0.0 { f64::INFINITY } else { (half - shift * step.signum()) / step.abs() }
        };
        let way = of(self.width / 2.0, offset.0, dx).min(of(self.height / 2.0, offset.1, dy));
        (x + offset.0 + dx * way, y + offset.1 + dy * way)
    }
}

/// Shapes under construction, and their extent.
#[derive(Default)]
struct Canvas {
    shapes: String,
    width: f64,
    height: f64,
}

impl Canvas {
    fn reach(&mut self, x: f64, y: f64) {
        self.width = self.width.max(x + MARGIN);
        self.height = self.height.max(y + MARGIN);
    }

    fn shape(&mut self, attributes: &str) {
        let _ = writeln!(self.shapes, "<path {attributes}/>");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let end = x + width(text) * if anchor == "middle" { 0.5 } else { 1.0 };
        self.reach(end, y);
        let text = escape(text);
        let _ = writeln!(
            self.shapes,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    fn host(&mut self, host: &Host, area: &Area) {
        let Area { x, y, width, height } = area;
        let _ = writeln!(
            self.shapes,
            "<rect class=\"box\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"6\"/>"
        );
        let (center, _) = area.center();
        for (line, text) in [&host.name].into_iter().chain(&host.notes).enumerate() {
            let class = if line == 0 { "name" } else { "note" };
            self.text(center, y + LINE * (line as f64 + 1.0) + 2.0, "middle", class, text);
        }
        self.reach(x + width, y + height);
    }

    /// Draws a link between two hosts. `offset`: distance to the straight line between the centers.
    fn link(&mut self, from: &Area, to: &Area, offset: f64, label: &str) {
        let ((x1, y1), (x2, y2)) = (from.center(), to.center());
        let length = (x2 - x1).hypot(y2 - y1).max(1.0);
        let direction = ((x2 - x1) / length, (y2 - y1) / length);
        // Links between the same hosts are parallel, in both directions.
        let sign = if (x1, y1) <= (x2, y2) { 1.0 } else { -1.0 };
        let aside = (-direction.1 * offset * sign, direction.0 * offset * sign);
        let start = from.border(direction, aside);
        let head = to.border((-direction.0, -direction.1), aside);
        self.arrow(start, head);
        let (x, y) = ((start.0 + head.0) / 2.0, (start.1 + head.1) / 2.0);
        if direction.0.abs() > 0.5 {
            self.text(x, y - 5.0, "middle", "label", label);
        } else {
            self.text(x + 8.0, y + 4.0, "start", "label", label);
        }
    }

    fn arrow(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let length = (x2 - x1).hypot(y2 - y1).max(1.0);
        let (dx, dy) = ((x2 - x1) / length * 9.0, (y2 - y1) / length * 9.0);
        let (left, right) = ((x2 - dx - dy * 0.45, y2 - dy + dx * 0.45), (x2 - dx + dy * 0.45, y2 - dy - dx * 0.45));
        self.shape(&format!("class=\"arrow\" d=\"M{x1:.1} {y1:.1}L{:.1} {:.1}\"", x2 - dx, y2 - dy));
        self.shape(&format!(
            "class=\"head\" d=\"M{x2:.1} {y2:.1}L{:.1} {:.1}L{:.1} {:.1}Z\"",
            left.0, left.1, right.0, right.1
        ));
        self.reach(x1.max(x2), y1.max(y2));
    }

    fn finish(self, title: &str) -> Drawing {
        let Self { shapes, width, height } = self;
        let svg = format!(
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" style=\"max-width:{width:.0}px\" role=\"img\" aria-label=\"{}\">\n{shapes}</svg>",
            escape(title)
        );
        Drawing { title: title.into(), svg }
    }
}
