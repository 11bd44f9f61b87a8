//! A report of a laboratory with a figure of each kind. `cargo run -p strowger-report --example specimen > specimen.html` writes it.

use strowger_report::drawing::{Bed, Host, Ladder, Link, Step};
use strowger_report::figure::{
    Axis, Fault, Figure, Form, Plot, Point, Published, PublishedPoint, Scale, Series, XAxis,
};
use strowger_report::{Item, Mark, Page, Table, Tone};

fn main() -> Result<(), Fault> {
    print!("{}", page()?);
    Ok(())
}

/// Creates the page.
///
/// # Errors
/// There are none: the data below have no fault.
pub(crate) fn page() -> Result<String, Fault> {
    let mut page = Page::new("Specimen");
    page.heading("Specimen");
    page.about("3 trials from 2026-11-28T12:00:00Z · 2 cores of 2.4 GHz");
    page.banner(Tone::Good, "Answer", "The server carries 1,850 calls/s; beyond, its set-up p95 passes 300 ms.", &[]);
    page.section("Results");
    let mut table = Table::new(["test", "calls/s", "CPU", "limit"]).with_texts(3);
    table.row(["A stateless", "13,000", "9.1 %", "server: thread shard-0"]);
    table.row(["B transaction", "1,850", "98.2 %", "generator & <machine>"]);
    page.table(&table);
    page.figures(&[lines()?, logarithms()?, bars()?, points()?, empty()?]);
    page.section("Test bed and call flow");
    page.drawing(&bed().draw()?);
    page.drawing(&ladder().draw()?);
    page.section("Validity");
    page.items(&[
        Item { mark: Some(Mark::Met), text: "A, round 1".into() },
        Item { mark: Some(Mark::Missed), text: "A, round 2: stolen time 7 %".into() },
        Item { mark: Some(Mark::Unjudged), text: "B, round 1: the lab was killed".into() },
    ]);
    page.section("Method");
    page.text("Each load lasts 30 s; the middle 20 s are the window. Systems take turns <in alternating order>.");
    page.section("Configurations");
    page.file("strowger: strowger.toml", "[server]\nlisten = [\"udp:192.0.2.1:5060\"] # <first>\n");
    page.file("kamailio: kamailio.cfg", "children=32\n");
    Ok(page.html("strowger-report · times are UTC"))
}

/// Creates a bed of callers, a server with its database, and answerers.
fn bed() -> Bed {
    let host = |name: &str, notes: &[&str], column, row| Host {
        name: name.into(),
        notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        column,
        row,
    };
    let link = |from: &str, to: &str, label: &str| Link { from: from.into(), to: to.into(), label: label.into() };
    Bed {
        title: "Test bed".into(),
        hosts: vec![
            host("callers", &["192.0.2.10", "2 threads"], 0, 0),
            host("server <under test>", &["strowger 0.1.0", "4 cores, 2.4 GHz"], 1, 0),
            host("answerers", &["192.0.2.11"], 2, 0),
            host("database", &["PostgreSQL 15"], 1, 1),
        ],
        links: vec![
            link("callers", "server <under test>", "INVITE, BYE"),
            link("server <under test>", "answerers", "INVITE, BYE"),
            link("answerers", "server <under test>", "REGISTER"),
            link("server <under test>", "database", "rows of accounting"),
        ],
    }
}

/// Creates the ladder of a challenged call.
fn ladder() -> Ladder {
    let message =
        |from: &str, to: &str, text: &str| Step::Message { from: from.into(), to: to.into(), text: text.into() };
    Ladder {
        title: "Call flow".into(),
        parties: ["caller", "server", "answerer"].map(String::from).into(),
        steps: vec![
            message("caller", "server", "INVITE"),
            message("server", "caller", "407 Proxy Authentication Required"),
            message("caller", "server", "INVITE with credentials"),
            message("server", "server", "HA1 from the cache"),
            message("server", "answerer", "INVITE"),
            message("answerer", "server", "200 OK"),
            message("server", "caller", "200 OK"),
            message("caller", "answerer", "ACK"),
            Step::Pause("10 s".into()),
            message("caller", "answerer", "BYE"),
            message("answerer", "caller", "200 OK"),
        ],
    }
}

fn axis(title: &str, unit: &str, scale: Scale) -> Axis {
    Axis { title: title.into(), unit: unit.into(), scale }
}

fn series(name: &str, form: Form, points: impl IntoIterator<Item = impl Into<Point>>) -> Series {
    Series { name: name.into(), form, points: points.into_iter().map(Into::into).collect() }
}

/// Creates a figure of two lines that share one value of x, and of values that others published.
fn lines() -> Result<Figure, Fault> {
    let ours = [(500.0, 12.0, [11.5, 12.6]), (1_000.0, 24.5, [23.0, 25.0]), (1_600.0, 41.0, [39.0, 44.0])];
    let other = [(400.0, 21.0), (800.0, 44.0), (1_000.0, 57.0), (1_400.0, 92.0)];
    let published = [(660.0, 95.0), (1_400.0, 99.0)].map(|(x, y)| PublishedPoint { x: Some(x), y });
    Figure::new(Plot {
        name: "cpu-over-load".into(),
        title: "CPU over load, <script>alert(1)</script> & others".into(),
        note: "Share of all cores, median and 95 % interval of 5 trials".into(),
        x: XAxis::Numbers(axis("calls a second", "1/s", Scale::Linear)),
        y: axis("CPU", "%", Scale::Linear),
        series: vec![series("strowger", Form::Line, ours), series("kamailio </script>", Form::Line, other)],
        published: vec![Published::new("figure 8", "Xeon 2.8 GHz", "the axis counts both servers", published.into())],
    })
}

/// Creates a figure with two log scales, and a published value that holds for each x.
fn logarithms() -> Result<Figure, Fault> {
    let delays = (0..12).map(|n| (10f64 * 2f64.powi(n), 200.0 * 1.7f64.powi(n)));
    Figure::new(Plot {
        name: "delay-over-load".into(),
        title: "Session request delay over load".into(),
        note: "p95".into(),
        x: XAxis::Numbers(axis("calls a second", "1/s", Scale::Log)),
        y: axis("delay", "us", Scale::Log),
        series: vec![series("strowger", Form::Line, delays)],
        published: vec![Published::new(
            "limit of the paper",
            "any machine",
            "",
            vec![PublishedPoint { x: None, y: 90_000.0 }],
        )],
    })
}

/// Creates a figure of grouped bars with intervals: one bar is below zero, one is missing, one is of a trial that was
/// not valid.
fn bars() -> Result<Figure, Fault> {
    let names = ["A stateless", "B transaction", "C authentication", "D accounting"].map(String::from);
    let ours =
        [(0.0, 0.0, [-0.4, 0.6]), (1.0, 35.0, [33.0, 36.5]), (2.0, 61.0, [58.0, 66.0]), (3.0, 88.0, [85.0, 91.0])];
    let mut other = [(0.0, -4.0), (1.0, 30.0), (3.0, 110.0)].map(Point::from);
    other[2].is_invalid = true;
    let published = [(0.0, 0.0), (1.0, 38.0), (2.0, 70.0)].map(|(x, y)| PublishedPoint { x: Some(x), y });
    Figure::new(Plot {
        name: "penalty".into(),
        title: "Penalty against the row before".into(),
        note: "Processor time a call at equal rate".into(),
        x: XAxis::Categories { title: "feature".into(), names: names.into() },
        y: axis("penalty", "%", Scale::Linear),
        series: vec![series("strowger", Form::Bars, ours), series("kamailio", Form::Bars, other)],
        published: vec![Published::new("table 3", "8 cores of 2.0 GHz", "", published.into())],
    })
}

/// Creates a figure of points without lines, in a unit of their own.
fn points() -> Result<Figure, Fault> {
    let mut threads = [1.0, 2.0, 4.0, 8.0].map(|n: f64| {
        let scale = n.powf(0.9);
        Point::from((n, 18.0 * scale, [16.0 * scale, 19.0 * scale]))
    });
    threads[3].is_invalid = true;
    Figure::new(Plot {
        name: "rate-over-threads".into(),
        title: "Rate over threads".into(),
        note: String::new(),
        x: XAxis::Numbers(axis("threads", "1", Scale::Linear)),
        y: axis("rate", "calls/s a core", Scale::Linear),
        series: vec![series("strowger", Form::Points, threads)],
        published: Vec::new(),
    })
}

fn empty() -> Result<Figure, Fault> {
    Figure::without_data(
        "memory",
        "Memory of two clients",
        "the seed shows a picture without values, and this machine has no Redis",
    )
}
