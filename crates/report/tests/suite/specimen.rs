//! The example page: its markup is known, and nothing in it names another place.

use std::path::Path;

#[expect(dead_code, reason = "the example has a main function")]
#[path = "../../examples/specimen.rs"]
mod example;

/// Returns the markup of the page without style and script.
fn markup(html: &str) -> &str {
    let (_, rest) = html.split_once("<body>\n").expect("a body");
    rest.split_once("<script>\n").expect("a script").0
}

#[test]
fn the_markup_is_that_of_the_golden_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/specimen.html");
    let html = example::page().expect("the example has no fault");
    if std::env::var_os("STROWGER_WRITE_DOCS").is_some() {
        std::fs::write(&path, markup(&html)).expect("the folder can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("it is there");
    assert_eq!(markup(&html), golden, "after a wanted change: STROWGER_WRITE_DOCS=1 cargo test -p strowger-report");
}

#[test]
fn nothing_in_the_page_names_another_place() {
    let html = example::page().expect("the example has no fault");
    for word in ["http://", "https://", "//cdn", "@import", "url(", " src=", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!html.contains(word), "the page contains {word}");
    }
    assert!(html.contains(
        "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\""
    ));
}

#[test]
fn data_stay_in_their_blocks() {
    let html = example::page().expect("the example has no fault");
    assert!(html.contains("\"title\":\"CPU over load, \\u003cscript>alert(1)\\u003c/script> & others\""));
    let opened = html.matches("<script").count();
    // Five figures and the script itself.
    assert_eq!((opened, html.matches("</script>").count()), (6, 6));
    let escaped =
        ["server &lt;under test&gt;", "generator &amp; &lt;machine&gt;", "# &lt;first&gt;", "&lt;in alternating"];
    escaped.iter().for_each(|text| assert!(html.contains(text), "{text}"));
}
