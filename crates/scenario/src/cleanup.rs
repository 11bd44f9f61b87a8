//! Turns the indented text of a document into a message.

/// Cleans a CDATA section as SIPp does: removes white space at both ends of the section, and spaces, then tabs after
/// each line's start and before each line's end. Line ends remain LF at this stage. A message without body gets back
/// the empty line that was cut from its end; a body keeps one line end if it had any.
pub(super) fn cleanup(text: &[u8]) -> Vec<u8> {
    let text = text.trim_ascii_start();
    let solid = text.trim_ascii_end();
    let ended = text[solid.len()..].contains(&b'\n');
    let mut out: Vec<u8> = Vec::with_capacity(solid.len() + 2);
    for (i, line) in solid.split(|b| *b == b'\n').enumerate() {
        let mut line = line;
        if i > 0 {
            out.push(b'\n');
            line = without_first(without_first(line, b' '), b'\t');
        }
        line = without_last(without_last(line, b' '), b'\t');
        out.extend_from_slice(line);
    }
    if memchr::memmem::find(&out, b"\n\n").is_none() {
        out.extend_from_slice(b"\n\n");
    } else if ended {
        out.push(b'\n');
    }
    out
}

fn without_first(mut line: &[u8], byte: u8) -> &[u8] {
    while let [first, rest @ ..] = line
        && *first == byte
    {
        line = rest;
    }
    line
}

fn without_last(mut line: &[u8], byte: u8) -> &[u8] {
    while let [rest @ .., last] = line
        && *last == byte
    {
        line = rest;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::cleanup;

    fn is(text: &str, wanted: &str) {
        assert_eq!(String::from_utf8_lossy(&cleanup(text.as_bytes())), wanted, "{text:?}");
    }

    /// Compares with results that SIPp 3.6.1 sent.
    #[test]
    fn indentation_and_edges_go() {
        is("\n   A b\n   C: d\n\n   ", "A b\nC: d\n\n");
        is("A b\nC: d", "A b\nC: d\n\n");
        is("A b\nC: d\n\n\n", "A b\nC: d\n\n");
        is("A b\n \tC: d\n \t C: d\n\n \t x\n", "A b\nC: d\n C: d\n\n x\n");
        is("A b \t \nC: d\t \t\n\n", "A b \nC: d\n\n");
        is("\t\n \tA b\nC: d\n\n", "A b\nC: d\n\n");
    }

    #[test]
    fn a_body_keeps_its_own_line_ends() {
        is("A b\nC: d\n\nbody", "A b\nC: d\n\nbody");
        is("A b\nC: d\n\nbody ", "A b\nC: d\n\nbody");
        is("A b\nC: d\n\nbody\n \t", "A b\nC: d\n\nbody\n");
        is("A b\nC: d\n\nbody\n\n\nmore\n\n", "A b\nC: d\n\nbody\n\n\nmore\n");
        is("A b\nC: d\n\nbody   \n  x\t\n\ty\n \n \n z\n \n", "A b\nC: d\n\nbody\nx\ny\n\n\nz\n");
        is("A b\nC: d\n\t\nbody", "A b\nC: d\n\nbody");
    }
}
