//! Rows: writing and reading are inverse, and nothing unknown is read.

use strowger_lab::row::{
    AxisValue, Check, DEFINITIONS, Load, LoadUnit, OVER_TIME, Profile, Reason, Row, System, UnknownFigure, Validity,
    complete, definition, read,
};
use strowger_measure::Measure;

fn row() -> Row {
    let load = Load { value: 1_600.0, unit: LoadUnit::Calls };
    let mut row = Row::new("proxy", System::new("kamailio", "5.6.3"), load, Profile::Standard, b"children=4");
    row.axes.insert("workers".into(), AxisValue::Number(4.0));
    row.axes.insert("database".into(), AxisValue::Text("mariadb".into()));
    row.repetition = 3;
    row.figures.set("srd.p95", 12_345.5).expect("a known figure");
    row.figures.set("server.thread/shard-0", 97.25).expect("a known figure");
    row
}

#[test]
fn a_row_is_read_as_it_was_written() {
    let valid = row();
    let mut invalid = row();
    let reason = Reason { check: Check::Stolen, sentence: "the hypervisor took 7 %, allowed are 5 %".into() };
    invalid.validity = Validity::of(vec![reason]);
    let text = format!("{}\n\n{}\r\n", valid.to_line(), invalid.to_line());
    assert_eq!(read("rows.jsonl", &text).expect("both are rows"), [valid.clone(), invalid.clone()]);
    assert!(!valid.to_line().contains('\n'));
    assert!(valid.validity.is_valid() && invalid.validity.fails(Check::Stolen));
    assert!(!invalid.validity.is_limit_of_generator());
    assert_eq!(valid.cell(), invalid.cell());
    assert_eq!(valid.cell().to_string(), "proxy kamailio database=mariadb workers=4 at 1600 calls/s");
}

/// Checks that the values for each second follow the figures, and that a row without such values is written as before.
#[test]
fn a_series_has_gaps_and_known_figures_alone() {
    let mut over_time = row();
    over_time.series.set("registered", vec![Some(100.0), Some(0.0)]).expect("a figure over time");
    over_time.series.set("rrd.p50", vec![Some(250.5), None]).expect("a figure over time");
    let line = over_time.to_line();
    let written = "\"series\":{\"registered\":[100.0,0.0],\"rrd.p50\":[250.5,null]},";
    assert!(line.contains(written) && !row().to_line().contains("series"), "{line}");
    assert_eq!(read("rows.jsonl", &line).expect("it is a row"), [over_time.clone()]);
    for (from, to, message) in [
        ("\"registered\":", "\"server.pss\":", "has no values for each second"),
        ("250.5,null", "\"none\"", "invalid type"),
    ] {
        let report = read("rows.jsonl", &line.replace(from, to)).expect_err(message).to_string();
        assert!(report.contains(message), "{report}");
    }
    let infinite = over_time.series.set("rrd.p50", vec![Some(f64::NAN)]);
    assert_eq!(infinite, Err(UnknownFigure::Value("rrd.p50".into())));
    for name in OVER_TIME {
        assert!(definition(name).is_some(), "{name}");
    }
}

#[test]
fn the_form_of_a_row_is_fixed() {
    let line = row().to_line();
    for part in [
        "{\"format\":1,\"experiment\":\"proxy\",\"system\":{\"name\":\"kamailio\",\"version\":\"5.6.3\"}",
        "\"axes\":{\"database\":\"mariadb\",\"workers\":4.0}",
        "\"load\":{\"value\":1600.0,\"unit\":\"calls/s\"},\"repetition\":3,\"profile\":\"standard\"",
        "\"figures\":{\"server.thread/shard-0\":{\"value\":97.25,\"unit\":\"%\"},\"srd.p95\":{\"value\":12345.5,\"unit\":\"us\"}}",
        "\"validity\":\"valid\",\"configuration\":\"sha256:",
    ] {
        assert!(line.contains(part), "{part}\n{line}");
    }
}

/// Makes each change that makes a row unreadable: replaced text, new text, a part of the message, a part of the cure.
#[test]
fn a_row_with_anything_unknown_is_refused_with_line_and_cure() {
    const CHANGED: &str = "its trial again";
    const OTHER: &str = "the version of strowger that wrote it";
    let good = row().to_line();
    let digest = &good[good.find("sha256:").expect("it has a hash") + 7..][..64];
    for (from, to, message, cure) in [
        ("\"repetition\"", "\"colour\":1,\"repetition\"", "unknown field `colour`", OTHER),
        ("\"name\":\"kamailio\"", "\"name\":\"kamailio\",\"edition\":1", "unknown field `edition`", OTHER),
        ("\"standard\"", "\"leisurely\"", "unknown variant `leisurely`", OTHER),
        ("calls/s", "calls/h", "unknown variant `calls/h`", OTHER),
        ("srd.p95", "srd.p96", "there is no figure \"srd.p96\"", OTHER),
        ("server.thread/shard-0", "server.thread/", "there is no figure", OTHER),
        ("\"unit\":\"us\"", "\"unit\":\"s\"", "srd.p95 is in us, not in s", CHANGED),
        ("12345.5", "null", "invalid type: null", CHANGED),
        ("12345.5", "1e999", "number out of range", CHANGED),
        ("\"format\":1", "\"format\":2", "the row has format 2", OTHER),
        ("\"repetition\":3", "\"repetition\":0", "counted from 1", CHANGED),
        ("\"value\":1600.0", "\"value\":-1.0", "a load or an axis", CHANGED),
        ("\"valid\"", "{\"reasons\":[]}", "at least one reason", CHANGED),
        ("\"valid\"", "{\"reasons\":[{\"check\":\"mood\",\"sentence\":\"\"}]}", "unknown variant `mood`", OTHER),
        (digest, "12", "is no hash", CHANGED),
        ("\"mariadb\"", "[1]", "did not match any variant", CHANGED),
        ("\"configuration\"", "\"repetition\":1,\"configuration\"", "duplicate field", CHANGED),
    ] {
        assert_eq!(good.matches(from).count(), 1, "{from}");
        let text = format!("{good}\n{}\n{good}\n", good.replace(from, to));
        let report = read("rows.jsonl", &text).expect_err(message);
        let shown = report.to_string();
        assert_eq!(report.errors(), 1, "{shown}");
        assert_eq!(report.position(&report.faults()[0]).map(|(line, _)| line), Some(2), "{shown}");
        assert!(shown.contains(message) && shown.contains(cure), "{message}\n{shown}");
    }
}

#[test]
fn a_line_that_was_cut_says_so_and_can_be_left_out() {
    let line = row().to_line();
    let text = format!("{line}\n{}", &line[..line.len() / 2]);
    let report = read("rows.jsonl", &text).expect_err("the second line is cut");
    assert!(
        report.to_string().contains("rows.jsonl:2:") && report.to_string().contains("the line was cut"),
        "{report}"
    );
    assert_eq!(read("rows.jsonl", complete(&text)).map(|rows| rows.len()).expect("the first is whole"), 1);
    assert_eq!(complete("{"), "");
}

#[test]
fn no_part_of_a_row_makes_the_reader_panic() {
    let line = row().to_line();
    for end in 0..line.len() {
        assert!(read("f", &line[..end]).is_err() || end == 0, "{end}");
        let swapped = format!("{}é{}", &line[..end], &line[end + 1..]);
        if let Err(report) = read("f", &swapped) {
            assert!(!report.to_string().is_empty());
        }
    }
}

#[test]
fn figures_have_names_and_finite_values() {
    let mut row = row();
    assert_eq!(row.figures.set("srd.p94", 1.0), Err(UnknownFigure::Name("srd.p94".into())));
    assert_eq!(row.figures.set("srd.p95", f64::NAN), Err(UnknownFigure::Value("srd.p95".into())));
    assert_eq!(row.figures.value("srd.p95"), Some(12_345.5));
    row.figures.set("server.thread/main", 3.0).expect("a known figure");
    assert_eq!(row.figures.largest("server.thread/"), Some(("shard-0", 97.25)));
    assert_eq!(row.figures.largest("cache.thread/"), None);
    assert!(definition("server.thread").is_none() && definition("server.cpu/x").is_none());
    let mut shared = 0;
    for (at, definition) in DEFINITIONS.iter().enumerate() {
        // A measure of the generator has its unit in rows too.
        if let Ok(measure) = Measure::parse(definition.name, &[]) {
            assert_eq!(measure.unit(), definition.unit, "{}", definition.name);
            shared += 1;
        }
        let again = DEFINITIONS[at + 1..].iter().any(|other| other.name == definition.name);
        assert!(!again && !definition.title.is_empty(), "{}", definition.name);
    }
    assert!(shared >= 16, "delays and failures are measures of the generator: {shared}");
}

#[test]
fn a_profile_is_read_by_its_word() {
    assert_eq!(Profile::read("paper"), Ok(Profile::Paper));
    let error = Profile::read("fast").expect_err("there is none");
    assert!(error.ends_with("smoke, quick, standard, paper"), "{error}");
    assert!(LoadUnit::Calls.is_rate() && !LoadUnit::Connections.is_rate());
}
