//! Tables of the matrix in `docs/b2bua.md`. With STROWGER_WRITE_DOCS=1 the test writes them.

use std::fmt::Write;
use std::path::PathBuf;

use strowger_core::b2bua::bridge::Side;

use super::table::{Action, Cell, cells};

const BEGIN: &str = "<!-- matrix -->\n";
const END: &str = "<!-- end of matrix -->\n";

/// Extensions of the columns: UPDATE and session timers.
const COLUMNS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

/// Returns the single outcome of all cells for which `is` is true.
fn one(cells: &[Cell], is: impl Fn(&Cell) -> bool) -> String {
    let mut outcomes: Vec<String> =
        cells.iter().filter(|cell| is(cell)).map(|cell| cell.outcome().to_string()).collect();
    outcomes.dedup();
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

/// Returns the outcomes of an action of a side, by the columns.
fn outcomes(cells: &[Cell], who: Side, action: Action) -> Vec<String> {
    let outcome = |(has_update, has_timer): (bool, bool)| {
        one(cells, |cell| {
            let (own, other) = cell.parties();
            let party = if action == Action::Refresh { own } else { other };
            (cell.who, cell.action) == (who, action) && (party.has_update, party.has_timer) == (has_update, has_timer)
        })
    };
    COLUMNS.into_iter().map(outcome).collect()
}

/// Returns the table of the established call: the other side by its extensions.
fn actions(cells: &[Cell]) -> String {
    let mut out =
        String::from("| who | does | UPDATE and timer | UPDATE | timer | neither |\n|---|---|---|---|---|---|\n");
    for action in Action::ALL {
        let (near, far) = (outcomes(cells, Side::Near, action), outcomes(cells, Side::Far, action));
        let rows = if near == far { vec![("either", near)] } else { vec![("caller", near), ("callee", far)] };
        for (who, outcomes) in rows {
            let _ = writeln!(out, "| {who} | {} | {} |", action.name(), outcomes.join(" | "));
        }
    }
    out
}

/// Returns the response to the caller before the 200, and the 200.
fn responses(cell: &Cell) -> (String, String) {
    let (name, is_reliable) = (if cell.is_late { "offer" } else { "answer" }, cell.is_near_reliable());
    let early = match (cell.has_early_description(), is_reliable) {
        (true, true) => format!("reliable 183 with the {name}"),
        (true, false) => format!("183 with the {name}"),
        (false, _) => "180".to_owned(),
    };
    (early, if is_reliable { "no description".to_owned() } else { format!("the {name}") })
}

/// Returns the table of the call that is set up.
fn set_ups(cells: &[Cell]) -> String {
    let mut rows: Vec<String> = Vec::new();
    for cell in cells {
        let invite = if cell.is_late { "no offer" } else { "offer" };
        let caller = match (cell.near.is_reliable, cell.is_late && !cell.near.has_update) {
            (true, false) if cell.is_late => "100rel and UPDATE",
            (true, false) => "100rel",
            _ if cell.is_late => "not both",
            _ => "no 100rel",
        };
        let callee = if cell.far.is_reliable { "100rel" } else { "no 100rel" };
        let stated = if cell.states_reliability() { "yes" } else { "no" };
        let (early, last) = responses(cell);
        let row = format!("| {invite} | {caller} | {callee} | {stated} | {early} | {last} |");
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| row.starts_with("| no offer"));
    // One row for each set of extensions.
    assert_eq!(rows.len(), 8, "{rows:?}");
    let head = "| INVITE of the caller | caller has | callee has | far INVITE has 100rel | caller gets | its 200 has |\n\
        |---|---|---|---|---|---|\n";
    rows.iter().fold(head.to_owned(), |out, row| out + row + "\n")
}

fn list() -> String {
    let cells = cells();
    format!(
        "\nThe other side gets, by the extensions that it supports (for a refresh: that the party itself supports):\n\n{}\n\
         The first responses depend on 100rel (RFC 3262). Here a callee with 100rel sends a reliable 183 with a description if the INVITE \
         has\n100rel, and one without it a 183 with the answer, or a 180 if it has no offer to answer:\n\n{}\n\
         These are {} cells: 2 parties, {} actions, 8 sets of extensions of each party, with and without an offer in the first INVITE.\n\n",
        actions(&cells),
        set_ups(&cells),
        grouped(cells.len()),
        Action::ALL.len(),
    )
}

/// Returns a number below a million with a comma before its last three digits.
fn grouped(number: usize) -> String {
    if number < 1_000 { number.to_string() } else { format!("{},{:03}", number / 1_000, number % 1_000) }
}

#[test]
fn the_matrix_is_in_the_documents() {
    assert_eq!(cells().len(), 2 * 15 * 8 * 8 * 2);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/b2bua.md");
    let text = std::fs::read_to_string(&path).expect("the document is there");
    let (before, rest) = text.split_once(BEGIN).expect("the tables have a beginning");
    let (written, after) = rest.split_once(END).expect("the tables have an end");
    let list = list();
    if std::env::var_os("STROWGER_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{list}{END}{after}")).expect("the document can be written");
        return;
    }
    assert!(
        written == list,
        "docs/b2bua.md is not what the table says; STROWGER_WRITE_DOCS=1 writes it again:\n{list}"
    );
}
