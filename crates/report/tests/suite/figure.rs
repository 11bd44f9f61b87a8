//! Checks of figures, and the form that the script reads.

use strowger_report::figure::{
    Axis, Cause, Figure, Form, Plot, Point, Published, PublishedPoint, Scale, Series, XAxis,
};

fn axis(scale: Scale) -> Axis {
    Axis { title: "delay".into(), unit: "us".into(), scale }
}

fn series(name: &str, form: Form, points: &[(f64, f64)]) -> Series {
    Series { name: name.into(), form, points: points.iter().map(|point| Point::from(*point)).collect() }
}

/// Creates a plot without a fault.
fn plot() -> Plot {
    let mut line = series("ours", Form::Line, &[(100.0, 5.0), (200.0, 7.0)]);
    line.points[1].interval = Some([6.0, 7.0]);
    line.points[1].is_invalid = true;
    let published = PublishedPoint { x: Some(150.0), y: 6.0 };
    Plot {
        name: "proxy-8".into(),
        title: "Delay over load".into(),
        note: String::new(),
        x: XAxis::Numbers(Axis { title: "load".into(), unit: "1/s".into(), scale: Scale::Log }),
        y: axis(Scale::Log),
        series: vec![line],
        published: vec![Published::new("figure 8", "2 × 2.8 GHz", "", vec![published])],
    }
}

/// Creates the same plot over categories.
fn bars() -> Plot {
    let mut plot = plot();
    plot.x = XAxis::Categories { title: String::new(), names: vec!["A".into(), "B".into()] };
    plot.series = vec![series("ours", Form::Bars, &[(0.0, 1.0), (1.0, 2.0)])];
    plot.published.clear();
    plot
}

#[test]
fn a_plot_without_a_fault_is_a_figure() {
    for plot in [plot(), bars()] {
        let name = plot.name.clone();
        let figure = Figure::new(plot).expect("it has no fault");
        assert_eq!((figure.name(), figure.title()), (name.as_str(), "Delay over load"));
    }
}

/// Makes changes of which each makes one fault.
#[test]
fn each_fault_is_named_with_its_place() {
    let numbers = |points: &[(f64, f64)]| {
        let points = points.to_vec();
        move |plot: &mut Plot| plot.series[0].points = points.iter().map(|point| Point::from(*point)).collect()
    };
    let interval = |interval| move |plot: &mut Plot| plot.series[0].points[0].interval = Some(interval);
    type Change = Box<dyn Fn(&mut Plot)>;
    let of_lines: Vec<(Change, &str, Cause)> = vec![
        (Box::new(|plot| plot.name = "a|b".into()), "name", Cause::Name),
        (Box::new(|plot| plot.name = "..".into()), "name", Cause::Name),
        (Box::new(|plot| plot.title = " ".into()), "title", Cause::Empty),
        (Box::new(|plot| plot.y.title.clear()), "title of an axis", Cause::Empty),
        (Box::new(|plot| plot.y.unit.clear()), "unit of an axis", Cause::Empty),
        (Box::new(|plot| plot.series.push(plot.series[0].clone())), "legend", Cause::Twice("ours".into())),
        (Box::new(|plot| plot.series.clear()), "series", Cause::NoPoint),
        (Box::new(numbers(&[])), "series \"ours\"", Cause::NoPoint),
        (Box::new(|plot| plot.published[0].points.clear()), "published \"figure 8 (2 × 2.8 GHz)\"", Cause::NoPoint),
        (
            Box::new(|plot| plot.published[0].points[0].y = f64::INFINITY),
            "published \"figure 8 (2 × 2.8 GHz)\"",
            Cause::NotFinite(f64::INFINITY, 0),
        ),
        (Box::new(numbers(&[(1.0, 1.0), (f64::INFINITY, 1.0)])), "series \"ours\"", Cause::NotFinite(f64::INFINITY, 1)),
        (Box::new(numbers(&[(1.0, 1.0), (1.0, 2.0)])), "series \"ours\"", Cause::NotAscending(1)),
        (Box::new(numbers(&[(0.0, 1.0)])), "series \"ours\"", Cause::NotPositive(0.0, 0)),
        (Box::new(numbers(&[(1.0, -1.0)])), "series \"ours\"", Cause::NotPositive(-1.0, 0)),
        (Box::new(interval([6.0, 8.0])), "series \"ours\"", Cause::Interval(0)),
        (Box::new(interval([8.0, 2.0])), "series \"ours\"", Cause::Interval(0)),
        (Box::new(interval([0.0, 8.0])), "series \"ours\"", Cause::NotPositive(0.0, 0)),
        (Box::new(|plot| plot.series[0].form = Form::Bars), "series \"ours\"", Cause::BarsOverNumbers),
    ];
    let of_bars: Vec<(Change, &str, Cause)> = vec![
        (Box::new(numbers(&[(2.0, 1.0)])), "series \"ours\"", Cause::Category(2.0, 0, 1)),
        (Box::new(numbers(&[(0.5, 1.0)])), "series \"ours\"", Cause::Category(0.5, 0, 1)),
        (
            Box::new(|plot| plot.x = XAxis::Categories { title: String::new(), names: vec!["A".into(), "A".into()] }),
            "categories",
            Cause::Twice("A".into()),
        ),
    ];
    for (whole, cases) in [(plot(), of_lines), (bars(), of_bars)] {
        for (change, place, cause) in cases {
            let mut plot = whole.clone();
            change(&mut plot);
            let fault = Figure::new(plot.clone()).expect_err(place);
            assert_eq!((fault.figure.as_str(), fault.place.as_str(), &fault.cause), (&*plot.name, place, &cause));
        }
    }
    // A value that is not a number is equal to nothing, itself included.
    let mut plot = plot();
    plot.series[0].points[0].y = f64::NAN;
    let fault = Figure::new(plot).expect_err("NaN").to_string();
    let said = "figure \"proxy-8\": series \"ours\": NaN at point 0 is no finite number: leave the point out";
    assert_eq!(fault, said);
}

#[test]
fn a_figure_without_data_has_a_reason() {
    let figure = Figure::without_data("memory", "Memory", "the machine has no Redis").expect("it has one");
    assert!(figure.json().contains("\"empty\":\"the machine has no Redis\""), "{}", figure.json());
    assert_eq!(Figure::without_data("memory", "Memory", " ").expect_err("none").cause, Cause::Empty);
    assert_eq!(Figure::without_data("memory/8", "Memory", "none").expect_err("a slash").cause, Cause::Name);
}

#[test]
fn the_legend_names_machine_and_erratum_of_published_values() {
    let published = Published::new("table 1", "4 cores", "the unit is ms", Vec::new());
    assert_eq!(published.label, "table 1 (4 cores; erratum: the unit is ms)");
}

#[test]
fn the_script_reads_what_the_plot_has() {
    let json: serde_json::Value = serde_json::from_str(&Figure::new(plot()).expect("no fault").json()).expect("JSON");
    let wanted = serde_json::json!({
        "name": "proxy-8", "title": "Delay over load", "note": "",
        "x": { "title": "load", "unit": "1/s", "scale": "log" },
        "y": { "title": "delay", "unit": "us", "scale": "log" },
        "series": [{ "name": "ours", "form": "line", "points": [
            { "x": 100.0, "y": 5.0 }, { "x": 200.0, "y": 7.0, "interval": [6.0, 7.0], "is_invalid": true },
        ]}],
        "published": [{ "name": "figure 8 (2 × 2.8 GHz)", "points": [{ "x": 150.0, "y": 6.0 }] }],
    });
    assert_eq!(json, wanted);
    let json: serde_json::Value = serde_json::from_str(&Figure::new(bars()).expect("no fault").json()).expect("JSON");
    assert_eq!(json["x"], serde_json::json!({ "title": "", "names": ["A", "B"] }));
}
