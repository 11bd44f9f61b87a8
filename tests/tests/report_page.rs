//! The page of a laboratory report in a browser: each figure is drawn, saved and printed, without any network request.

use std::path::Path;

use serde_json::{Value, json};
use strowger_lab::experiment::{Experiment, SHIPPED};
use strowger_lab::row::Profile;
use strowger_tests::devtools::Tab;
use strowger_tests::program::{CHROMIUM, have};

use crate::lab::recorded;

#[expect(dead_code, reason = "the example has a main function")]
#[path = "../../crates/report/examples/specimen.rs"]
mod specimen;

/// Figures of the specimen and their shapes.
const CHARTS: [(&str, &str); 5] = [
    ("cpu-over-load", "drawn lines:2 bars:0 points:7 intervals:3 published:2 invalid:0"),
    ("delay-over-load", "drawn lines:1 bars:0 points:12 intervals:0 published:1 invalid:0"),
    ("penalty", "drawn lines:0 bars:7 points:0 intervals:4 published:3 invalid:1"),
    ("rate-over-threads", "drawn lines:0 bars:0 points:4 intervals:4 published:0 invalid:1"),
    ("memory", "empty lines:0 bars:0 points:0 intervals:0 published:0 invalid:0"),
];
const DRAWINGS: usize = 2;

fn open(folder: &Path, is_dark: bool) -> Tab {
    let page = folder.join("specimen.html");
    std::fs::write(&page, specimen::page().expect("the specimen has no fault")).expect("the folder can be written");
    Tab::open(&page, is_dark)
}

#[test]
fn each_figure_is_drawn_saved_and_printed() {
    if !have(&[CHROMIUM]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for is_dark in [false, true] {
        let mut tab = open(folder.path(), is_dark);
        let state = tab.evaluate("({ ...document.documentElement.dataset })");
        let charts = CHARTS.map(|(name, shapes)| format!("{name}={shapes}")).join("|");
        let theme = if is_dark { "dark" } else { "light" };
        let wanted = json!({ "errors": "", "theme": theme, "charts": charts, "requests": "0", "ready": "yes" });
        assert_eq!(state, wanted);
        assert_saves_each_chart(&mut tab);
        assert_prints_each_figure(&mut tab);
        assert_eq!(tab.complaints(), Vec::<&Value>::new());
        let foreign = tab.requests().into_iter().filter(|address| !address.ends_with("/specimen.html"));
        assert_eq!(foreign.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

/// The button of each chart saves an XML document with the shapes of the chart, independent of the page's style sheet.
fn assert_saves_each_chart(tab: &mut Tab) {
    let click = "[...document.querySelectorAll('figcaption button')].filter((b) => b.textContent === 'SVG').map((b) => b.click()).length";
    assert_eq!(tab.evaluate(click), CHARTS.len());
    tab.wait_for("Browser.downloadProgress", CHARTS.len(), |progress| progress["state"] == "completed");
    for (name, shapes) in CHARTS {
        let path = tab.downloads().join(format!("{name}.svg"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!text.contains("var(") && !text.contains("NaN") && !text.contains("url("), "{name}: {text}");
        let read = format!(
            "(() => {{ const svg = new DOMParser().parseFromString({}, 'image/svg+xml'); const n = (shape) => svg.querySelectorAll(shape).length;
             return `${{svg.documentElement.tagName}} ${{n('parsererror')}} lines:${{n('.curve')}} bars:${{n('.bar')}} points:${{n('.dot')}} \
             intervals:${{n('.interval')}} published:${{n('.published')}} invalid:${{n('.invalid')}}`; }})()",
            json!(text)
        );
        let (_, shapes) = shapes.split_once(' ').expect("a state and shapes");
        assert_eq!(tab.evaluate(&read), format!("svg 0 {shapes}"), "{name}");
    }
}

/// Printed pages show each figure with its name, and open folded parts. On the screen the parts are folded again.
fn assert_prints_each_figure(tab: &mut Tab) {
    let folded = "document.querySelectorAll('details:not([open])').length";
    assert_eq!(tab.evaluate(folded), 2);
    tab.evaluate(&format!("window.addEventListener('beforeprint', () => {{ window.folded = {folded}; }})"));
    let pdf = tab.pdf();
    assert!(pdf.starts_with(b"%PDF-"));
    let figures = pdf.windows(b"/Alt".len()).filter(|bytes| bytes == b"/Alt").count();
    assert_eq!(figures, CHARTS.len() + DRAWINGS, "figures with a text for readers who do not see them");
    assert_eq!((tab.evaluate("window.folded"), tab.evaluate(folded)), (json!(0), json!(2)));
}

/// Reports of recorded rows show each value of their data without an error or a network request, and the printed page
/// has as many figures.
#[test]
fn each_figure_of_each_experiment_is_drawn_and_printed() {
    if !have(&[CHROMIUM]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (at, (name, _)) in SHIPPED.iter().enumerate() {
        // The stress tests have two letters in this one, so that the page is small.
        let profile = if *name == "stress" { Profile::Smoke } else { Profile::Standard };
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        let rows = recorded::rows(&experiment, profile, &[]);
        let page = folder.path().join(format!("{name}.html"));
        let data: Value = recorded::with_report(&experiment, &rows, |report| {
            std::fs::write(&page, report.html()).expect("the folder can be written");
            serde_json::from_str(&report.json()).expect("it is JSON")
        });
        let parts = data["parts"].as_array().expect("parts").iter();
        let charts: Vec<String> = parts.clone().filter(|part| part["form"] == "figure").map(shapes_of).collect();
        let drawings = parts.filter(|part| part["form"] == "drawing").count();
        assert!(charts.len() + drawings >= 2, "{name}");
        let is_dark = at % 2 == 1;
        let mut tab = Tab::open(&page, is_dark);
        let state = tab.evaluate("({ ...document.documentElement.dataset })");
        let theme = if is_dark { "dark" } else { "light" };
        let wanted =
            json!({ "errors": "", "theme": theme, "charts": charts.join("|"), "requests": "0", "ready": "yes" });
        assert_eq!(state, wanted, "{name}");
        let pdf = tab.pdf();
        let figures = pdf.windows(b"/Alt".len()).filter(|bytes| bytes == b"/Alt").count();
        assert_eq!(figures, charts.len() + drawings, "{name}: figures with a text for readers who do not see them");
        assert_eq!(tab.complaints(), Vec::<&Value>::new(), "{name}");
    }
}

/// Returns the shapes that a chart must have for the data of its figure.
fn shapes_of(part: &Value) -> String {
    let data = &part["data"];
    let series = || data["series"].as_array().expect("series").iter();
    let of_form = |form: &'static str| series().filter(move |series| series["form"] == form);
    let points = |series: &Value| series["points"].as_array().map_or(0, Vec::len);
    let all = || series().flat_map(|series| series["points"].as_array().expect("points"));
    let published = data["published"].as_array().expect("published").iter().map(points).sum::<usize>();
    format!(
        "{}={} lines:{} bars:{} points:{} intervals:{} published:{published} invalid:{}",
        data["name"].as_str().expect("a name"),
        if data["empty"].is_null() { "drawn" } else { "empty" },
        of_form("line").count(),
        of_form("bars").map(points).sum::<usize>(),
        of_form("line").map(points).sum::<usize>(),
        all().filter(|point| !point["interval"].is_null()).count(),
        all().filter(|point| point["is_invalid"] == true).count(),
    )
}

#[test]
fn keys_and_buttons_change_what_a_chart_shows() {
    if !have(&[CHROMIUM]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut tab = open(folder.path(), false);
    let press = |tab: &mut Tab, key: &str| {
        tab.call("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": key }));
        tab.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    };
    let tip = "document.querySelector('.tip') && document.querySelector('.tip').innerText.replace(/\\s+/g, ' ')";
    tab.evaluate("document.querySelector('[data-name=\"cpu-over-load\"] svg').focus()");
    // Values of x: 400, 500, 660 (published), 800, 1,000, 1,400, 1,600.
    for (key, shown) in [
        ("Home", "400 /s kamailio </script> 21 %"),
        ("ArrowRight", "500 /s strowger 12 % (11.5 % to 12.6 %)"),
        ("ArrowRight", "660 /s figure 8 (Xeon 2.8 GHz; erratum: the axis counts both servers) 95 %"),
        ("End", "1,600 /s strowger 41 % (39 % to 44 %)"),
        ("ArrowRight", "1,600 /s strowger 41 % (39 % to 44 %)"),
    ] {
        press(&mut tab, key);
        assert_eq!(tab.evaluate(tip), shown, "{key}");
    }
    press(&mut tab, "Escape");
    assert_eq!(tab.evaluate(tip), json!(null));
    // A log scale moves a point; a chart with a value that has no logarithm lacks the button.
    let height = "document.querySelector('[data-name=\"cpu-over-load\"] .dot').getAttribute('cy')";
    let linear = tab.evaluate(height);
    tab.evaluate("document.querySelector('[data-name=\"cpu-over-load\"] figcaption button').click()");
    assert_ne!(tab.evaluate(height), linear);
    let buttons =
        "[...document.querySelectorAll('[data-name=\"penalty\"] figcaption button')].map((b) => b.textContent).join()";
    assert_eq!(tab.evaluate(buttons), "SVG");
    // The legend hides a series.
    tab.evaluate("document.querySelector('[data-name=\"penalty\"] .legend button').click()");
    assert_eq!(tab.evaluate("document.querySelectorAll('[data-name=\"penalty\"] .bar').length"), 3);
}

/// A check that the tests above can fail.
#[test]
fn the_browser_tells_of_errors_and_requests() {
    if !have(&[CHROMIUM]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let page = folder.path().join("bad.html");
    let html = specimen::page().expect("the specimen has no fault");
    for bad in ["<script>console.error('out of order')</script>", "<img src='http://127.0.0.1:9/x.png'>"] {
        std::fs::write(&page, html.replace("<h2>Results", &format!("{bad}<h2>Results"))).expect("it can be written");
        let tab = Tab::open(&page, false);
        assert!(!tab.complaints().is_empty(), "{bad} went unseen");
    }
}
