//! One self-contained HTML page: style, data and script are in it.
//!
//! The Content-Security-Policy of the page forbids every request. Text is escaped when it is inserted into markup, so that a name
//! chosen by a user or a peer remains text.

use crate::{Drawing, Figure, Item, Table, Tone, printable};
use std::fmt::Write;

const CSS: &str = include_str!("page/page.css");
/// First parts of the script: errors, themes, numbers, charts.
const BASE: [&str; 4] = [
    include_str!("page/base.js"),
    include_str!("page/chart.js"),
    include_str!("page/export.js"),
    include_str!("page/figure.js"),
];
/// Last part of the script: draws all charts, and lists them in the attributes of `<html>`.
const FINISH: &str = include_str!("page/finish.js");

/// A page under construction. Each part is below the parts added before it.
#[derive(Clone, Debug, Default)]
pub struct Page {
    title: String,
    body: String,
    data: String,
    script: String,
}

/// A great figure with a name above and more below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Name of the figure.
    pub name: String,
    /// Value with its unit.
    pub value: String,
    /// A further value or a remark.
    pub more: String,
}

impl Page {
    /// Creates an empty page. `title`: title of the window.
    pub fn new(title: &str) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds the great heading and the button for light and dark.
    pub fn heading(&mut self, title: &str) {
        let title = escape(title);
        self.markup(&format!(
            "<header><h1>{title}</h1><button id=\"theme\" type=\"button\">light / dark</button></header>\n"
        ));
    }

    /// Adds a line in a soft colour.
    pub fn about(&mut self, text: &str) {
        self.markup(&format!("<p class=\"about\">{}</p>\n", escape(text)));
    }

    /// Adds a command line in a soft colour.
    pub fn command(&mut self, line: &str) {
        self.markup(&format!("<p class=\"about\"><code>{}</code></p>\n", escape(line)));
    }

    /// Adds a sentence on a coloured ground, with a list below if there are items.
    pub fn banner(&mut self, tone: Tone, title: &str, text: &str, items: &[Item]) {
        let (class, title, text) = (tone.class(), escape(title), escape(text));
        let list = list(items);
        self.markup(&format!("<div class=\"banner {class}\"><strong>{title}</strong>{text}{list}</div>\n"));
    }

    /// Adds a list: validity of each trial, with the reason.
    pub fn items(&mut self, items: &[Item]) {
        self.markup(&format!("<div class=\"items\">{}</div>\n", list(items)));
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: &str) {
        self.markup(&format!("<p>{}</p>\n", escape(text)));
    }

    /// Adds a table.
    pub fn table(&mut self, table: &Table) {
        self.markup(&table.html());
    }

    /// Adds a drawing.
    pub fn drawing(&mut self, drawing: &Drawing) {
        self.markup(&drawing.html());
    }

    /// Adds the text of a file, such as a configuration. It is folded on the screen and open on paper.
    pub fn file(&mut self, title: &str, text: &str) {
        let [title, text] = [title, text].map(escape);
        self.markup(&format!("<details><summary>{title}</summary><pre>{text}</pre></details>\n"));
    }

    /// Adds great figures side by side.
    pub fn tiles(&mut self, tiles: &[Tile]) {
        self.markup("<div class=\"tiles\">");
        for tile in tiles {
            let [name, value, more] = [&tile.name, &tile.value, &tile.more].map(|text| escape(text));
            self.markup(&format!(
                "<div class=\"tile\"><div class=\"name\">{name}</div><div class=\"value\">{value}</div><div class=\"more\">{more}</div></div>"
            ));
        }
        self.markup("</div>\n");
    }

    /// Adds the heading of a section.
    pub fn section(&mut self, title: &str) {
        self.markup(&format!("<h2>{}</h2>\n", escape(title)));
    }

    /// Adds figures side by side if the window is wide enough, otherwise one below the other. The name of each figure
    /// is unique in a page.
    pub fn figures(&mut self, figures: &[Figure]) {
        self.markup("<div class=\"charts\">\n");
        for figure in figures {
            let json = json_block(&figure.json());
            self.markup(&format!("<script type=\"application/json\" class=\"figure\">{json}</script>\n"));
        }
        self.markup("</div>\n");
    }

    /// Adds markup unchanged. The caller has passed each text in the markup through [`escape`].
    pub fn markup(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// Adds a block of JSON that the script finds by its id.
    pub fn data(&mut self, id: &str, json: &str) {
        let (id, json) = (escape(id), json_block(json));
        let _ = writeln!(self.data, "<script type=\"application/json\" id=\"{id}\">{json}</script>");
    }

    /// Adds a part of the script. It may use the names of the page's own script: `Chart`, `show`, `escape`.
    pub fn script(&mut self, part: &'static str) {
        // Names within a block are its own.
        let _ = write!(self.script, "{{\n{part}}}\n");
    }

    /// Returns the whole file.
    pub fn html(&self, footer: &str) -> String {
        let Self { title, body, data, script } = self;
        let mut out = String::with_capacity(body.len() + data.len() + (64 << 10));
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n{body}<footer>{}</footer>\n</main>\n{data}\
             <script>\n(() => {{\n{}{script}{FINISH}}})();\n</script>\n</body>\n</html>\n",
            escape(title),
            escape(footer),
            BASE.concat(),
        );
        out
    }
}

fn list(items: &[Item]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let mut out = String::from("<ul>");
    for item in items {
        out.push_str("<li>");
        if let Some(mark) = item.mark {
            let _ = write!(out, "<span class=\"{}\">{}</span> ", mark.class(), mark.sign());
        }
        let _ = write!(out, "{}</li>", escape(&item.text));
    }
    out.push_str("</ul>");
    out
}

/// Escapes each `<` of JSON, so that nothing in the JSON can end its block.
fn json_block(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Escapes a text for HTML, as content and as the value of an attribute. Control characters become visible.
pub fn escape(text: &str) -> String {
    let text = printable(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        let mut page = Page::new("</title><script>alert(1)</script>");
        page.heading("<b>");
        page.banner(Tone::Bad, "<i>", "\"&\u{1b}", &[Item { mark: None, text: "<li>".into() }]);
        page.tiles(&[Tile { name: "<u>".into(), value: "<u>".into(), more: "<u>".into() }]);
        page.data("x", "\"</script><script>alert(1)</script><!--\"");
        let html = page.html("<s>");
        for markup in ["<b>", "<i>", "<li><li>", "<u>", "<s>", "alert(1)</script>", "<!--"] {
            assert!(!html.contains(markup), "{markup}");
        }
        assert!(html.contains("&quot;&amp;\\x1b") && html.contains("\\u003c/script>\\u003cscript>alert(1)"), "{html}");
    }
}
