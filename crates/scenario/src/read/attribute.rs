//! Values of attributes, as strict as SIPp is with each kind, and warnings about sloppy ones.

use super::Reader;
use crate::refusal::Fault;
use crate::variable::Slot;
use crate::xml::{Attribute, Element, entities};

impl Reader<'_> {
    pub(super) fn attribute(&self, element: &Element, name: &str) -> Option<Attribute> {
        self.document.attribute(element, name)
    }

    /// Returns a required attribute with its entities resolved.
    pub(super) fn required(&self, element: &Element, name: &str) -> Result<Attribute, Fault> {
        match self.attribute(element, name) {
            Some(value) => Ok(Attribute { value: entities(&value.value), at: value.at }),
            None => Err(missing(element, name)),
        }
    }

    /// Returns an integer as C's `strtol` parses it with any base. An empty text is 0.
    pub(super) fn integer(&self, element: &Element, name: &str) -> Result<Option<i64>, Fault> {
        let Some(value) = self.attribute(element, name) else { return Ok(None) };
        match integer(&value.text()) {
            Some(n) => Ok(Some(n)),
            None => Err(wrong(&value, name, "an integer")),
        }
    }

    /// Returns an integer as [`Reader::integer`] does, but 0 for a negative one.
    pub(super) fn milliseconds(&self, element: &Element, name: &str) -> Result<Option<u32>, Fault> {
        let value = self.integer(element, name)?;
        Ok(value.map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX)))
    }

    pub(super) fn number(&self, element: &Element, name: &str) -> Result<Option<f64>, Fault> {
        let Some(value) = self.attribute(element, name) else { return Ok(None) };
        match number(&value.text()) {
            Some(n) => Ok(Some(n)),
            None => Err(wrong(&value, name, "a number")),
        }
    }

    pub(super) fn required_number(&self, element: &Element, name: &str) -> Result<f64, Fault> {
        self.number(element, name)?.ok_or_else(|| missing(element, name))
    }

    /// Returns a boolean: `true` or `false` in any case, or an integer. An empty text is false.
    pub(super) fn boolean(&self, element: &Element, name: &str) -> Result<Option<bool>, Fault> {
        let Some(value) = self.attribute(element, name) else { return Ok(None) };
        let text = value.text();
        if text.eq_ignore_ascii_case("true") {
            return Ok(Some(true));
        }
        if text.eq_ignore_ascii_case("false") {
            return Ok(Some(false));
        }
        match integer(&text) {
            Some(n) => Ok(Some(n != 0)),
            None => Err(wrong(&value, name, "`true` or `false`")),
        }
    }

    /// Returns the variable that an attribute names.
    pub(super) fn required_variable(&mut self, element: &Element, name: &str) -> Result<Slot, Fault> {
        let Some(value) = self.attribute(element, name) else { return Err(missing(element, name)) };
        self.variable(&value.value, value.at)
    }

    pub(super) fn optional_variable(&mut self, element: &Element, name: &str) -> Result<Option<Slot>, Fault> {
        match self.attribute(element, name) {
            Some(value) => self.variable(&value.value, value.at).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the variables of a comma-separated list.
    pub(super) fn variable_list(&mut self, element: &Element, name: &str) -> Result<Vec<Slot>, Fault> {
        let Some(value) = self.attribute(element, name) else { return Err(missing(element, name)) };
        let mut list = Vec::new();
        for part in value.value.split(|b| *b == b',') {
            if part.first() == Some(&b' ') || part.last() == Some(&b' ') {
                self.warn(value.at, format!("the space belongs to the name `{}`", String::from_utf8_lossy(part)));
            }
            list.push(self.variable(part, value.at)?);
        }
        Ok(list)
    }

    /// Warns about the attributes of a start tag that are unknown and so ignored, or repeated, and about invalid XML.
    pub(super) fn lint(&mut self, element: &Element) {
        let known = known(&element.name);
        let mut seen: Vec<String> = Vec::new();
        for (name, at, value) in self.document.attributes(element) {
            if seen.contains(&name) {
                self.warn(at, format!("`{name}` is repeated here: the first counts"));
            } else if name == "occurence" && element.name == "ereg" {
                self.warn(at, "`occurence` is taken for `occurrence`");
            } else if let Some(known) = known
                && !known.contains(&name.as_str())
                && !(COMMON.contains(&name.as_str()) && has_common(&element.name))
            {
                let near = COMMON.iter().chain(known).find(|k| near(k, &name));
                let hint = near.map(|k| format!("; is `{k}` meant?")).unwrap_or_default();
                self.warn(at, format!("`{name}` is no attribute of `{}` and is ignored{hint}", element.name));
            }
            let bytes = self.document.bytes(value.clone());
            if bytes.contains(&b'<') {
                self.warn(value.start, "`<` in an attribute is written `&lt;` in XML");
            }
            if bytes.windows(2).any(|two| two == b"\\\"") {
                self.warn(value.start, "`\\\"` in an attribute is written `&quot;` in XML");
            }
            if lonely_ampersand(bytes) {
                self.warn(value.start, "`&` in an attribute is written `&amp;` in XML");
            }
            seen.push(name);
        }
    }
}

/// Attributes of every step.
const COMMON: &[&str] = &[
    "start_rtd",
    "rtd",
    "repeat_rtd",
    "crlf",
    "next",
    "test",
    "chance",
    "condexec",
    "condexec_inverse",
    "counter",
    "hide",
    "hiderest",
    "display",
    "lost",
    "ignoresdp",
    "ontimeout",
];

fn has_common(element: &str) -> bool {
    matches!(element, "send" | "recv" | "pause" | "nop" | "timewait" | "sendCmd" | "recvCmd")
}

const DISTRIBUTION: &[&str] = &[
    "distribution",
    "value",
    "min",
    "max",
    "mean",
    "stdev",
    "lambda",
    "k",
    "x_m",
    "shape",
    "scale",
    "location",
    "theta",
    "p",
    "n",
    "milliseconds",
    "variable",
    "sanity_check",
    "normal",
    "lognormal",
    "exponential",
    "weibull",
    "pareto",
    "gamma",
    "assign_to",
];

/// Returns an element's attributes other than [`COMMON`], or `None` for an element that is not parsed.
fn known(element: &str) -> Option<&'static [&'static str]> {
    Some(match element {
        "scenario" => &["name"],
        "send" => &["retrans", "start_txn", "ack_txn", "timeout"],
        "recv" => &[
            "request",
            "response",
            "optional",
            "rrs",
            "auth",
            "timeout",
            "regexp_match",
            "response_txn",
            "advance_state",
        ],
        "pause" | "timewait" | "sample" => DISTRIBUTION,
        "nop" | "init" | "action" | "closecon" => &[],
        "sendCmd" => &["dest"],
        "recvCmd" => &["src", "optional"],
        "label" | "DefaultMessage" => &["id"],
        "Global" | "User" | "Reference" => &["variables"],
        "CallLengthRepartition" | "ResponseTimeRepartition" => &["value"],
        "ereg" => &[
            "regexp",
            "search_in",
            "header",
            "variable",
            "case_indep",
            "start_line",
            "occurrence",
            "occurence",
            "check_it",
            "check_it_inverse",
            "assign_to",
        ],
        "log" | "warning" | "error" => &["message"],
        "assign" | "add" | "subtract" | "multiply" | "divide" | "assignstr" | "jump" | "pauserestore" | "rtp_echo" => {
            &["assign_to", "value", "variable"]
        }
        "test" => &["assign_to", "variable", "compare", "value", "variable2", "check_it", "check_it_inverse"],
        "strcmp" => &["assign_to", "variable", "value", "variable2", "check_it", "check_it_inverse"],
        "exec" => &[
            "command",
            "int_cmd",
            "play_pcap_audio",
            "play_pcap_image",
            "play_pcap_video",
            "play_dtmf",
            "rtp_stream",
            "rtp_echo",
        ],
        _ => return None,
    })
}

/// Returns whether two names are equal except for case, dashes, and one doubled letter.
fn near(known: &str, written: &str) -> bool {
    let plain = |text: &str| -> String {
        let mut out = String::new();
        for c in text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()) {
            if !out.ends_with(c) {
                out.push(c);
            }
        }
        out
    };
    plain(known) == plain(written) || (known == "rtd" && written == "td")
}

fn lonely_ampersand(value: &[u8]) -> bool {
    memchr::memchr_iter(b'&', value).any(|at| {
        let rest = &value[at + 1..];
        let length = rest.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'#').unwrap_or(rest.len());
        length == 0 || rest.get(length) != Some(&b';')
    })
}

pub(super) fn missing(element: &Element, name: &str) -> Fault {
    Fault::new(element.start, format!("`<{}>` needs the attribute `{name}`", element.name))
}

fn wrong(value: &Attribute, name: &str, wanted: &str) -> Fault {
    let mut shown = value.text();
    if shown.len() > 60 {
        shown = shown.chars().take(60).collect::<String>() + "…";
    }
    Fault::new(value.at, format!("`{name}` is `{shown}`")).hint(format!("{wanted} is wanted, in double quotes"))
}

/// Parses a whole text as C's `strtol` does with base 0: decimal, `0x` hexadecimal, `0` octal; leading white space.
pub(super) fn integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if text.is_empty() {
        return Some(0);
    }
    let (digits, base) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => (hexadecimal, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return None;
    }
    let n = i64::from_str_radix(digits, base).unwrap_or(i64::MAX);
    Some(if negative { -n } else { n })
}

/// Parses a whole text as C's `strtod` does, including hexadecimal integers.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    if text.is_empty() {
        return Some(0.0);
    }
    let digits = text.trim_start_matches(['-', '+']);
    if digits.starts_with("0x") || digits.starts_with("0X") {
        return integer(text).map(|n| n as f64);
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{integer, number};

    #[test]
    fn integers_are_read_as_c_reads_them() {
        for (text, wanted) in [
            ("200", Some(200)),
            ("", Some(0)),
            ("0xc8", Some(200)),
            ("010", Some(8)),
            ("-5", Some(-5)),
            (" 7", Some(7)),
            ("7 ", None),
            ("08", None),
            ("1.5", None),
            ("2xx", None),
            ("-", None),
            ("99999999999999999999", Some(i64::MAX)),
        ] {
            assert_eq!(integer(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, wanted) in [
            ("1.5", Some(1.5)),
            ("", Some(0.0)),
            ("1e3", Some(1000.0)),
            ("0x10", Some(16.0)),
            (".5", Some(0.5)),
            ("1s", None),
            ("10%", None),
            ("1 ", None),
        ] {
            assert_eq!(number(text), wanted, "{text:?}");
        }
    }
}
