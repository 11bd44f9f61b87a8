//! Tables of the documents: GitHub shows a table only if a line of dashes follows its head, and nothing stands directly before it.

use std::fs;

use super::links::documents;

/// Returns the numbers of lines at which a table is shown as text: rows that follow a paragraph, rows without a head, and a row with another number of
/// cells than the head.
fn broken_rows(text: &str) -> Vec<usize> {
    let (mut found, mut is_code, mut before, mut cells) = (Vec::new(), false, "", 0);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for (at, line) in lines.iter().copied().enumerate() {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence {
            before = "";
            continue;
        }
        if line.starts_with('|') {
            if before.starts_with('|') {
                found.extend((cells_of(line) != cells).then_some(at + 1));
            } else {
                cells = cells_of(line);
                let is_head = lines.get(at + 1).is_some_and(|next| is_rule(next));
                found.extend((!before.is_empty() || !is_head).then_some(at + 1));
            }
        } else if before.starts_with('|') && !line.is_empty() {
            // GitHub shows it as a further row.
            found.push(at + 1);
        }
        before = line;
    }
    found
}

/// Returns the number of cells of a row. A bar in code or after a backslash separates no cells if it is escaped.
fn cells_of(row: &str) -> usize {
    row.replace("\\|", "").matches('|').count()
}

/// Tells whether a line separates the head of a table from its rows.
fn is_rule(line: &str) -> bool {
    line.starts_with('|') && line.contains("--") && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

#[test]
fn a_table_in_a_paragraph_is_found() {
    let table = "| a | b |\n|---|---|\n| 1 | 2 |\n";
    let cases: [(String, &[usize]); 7] = [
        (format!("text\n\n{table}\ntext"), &[]),
        (format!("text\n{table}"), &[2]),
        (format!("{table}text"), &[4]),
        ("| a | b | |---|---| | 1 | 2 |".to_owned(), &[1]),
        (format!("{table}| 3 |\n"), &[4]),
        (format!("```text\n|x\n```\n\n{table}"), &[]),
        ("| a \\| b | c |\n|---|---|\n".to_owned(), &[]),
    ];
    for (text, broken) in cases {
        assert_eq!(&broken_rows(&text)[..], broken, "{text}");
    }
}

#[test]
fn each_table_of_a_document_is_shown_as_one() {
    let mut tables = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("it is text");
        tables += text.lines().filter(|line| is_rule(line.trim())).count();
        let found = broken_rows(&text);
        assert!(found.is_empty(), "{}: lines {found:?} stand in no table", document.display());
    }
    assert!(tables > 20, "{tables}");
}
