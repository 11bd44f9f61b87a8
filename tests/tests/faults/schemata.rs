//! All faults of a file in one text: a function with faults has a body for each of them and one without, and
//! `crate::planted::fault()` selects one at run time.

use crate::list::Fault;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::{Block, ImplItem, Item, ReturnType, Signature, TraitItem};

/// Variable that names the fault of a process.
pub(crate) const VARIABLE: &str = "STROWGER_PLANTED";

/// Returns the module for the end of each `lib.rs`.
pub(crate) fn module() -> String {
    format!(
        r#"
pub(crate) mod planted {{
    pub(crate) fn fault() -> u32 {{
        static FAULT: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {{
            std::env::var("{VARIABLE}").map_or(0, |number| number.parse().expect("the number of a fault"))
        }});
        *FAULT
    }}
}}
"#
    )
}

/// A text with faults.
pub(crate) struct Planted {
    pub(crate) text: String,
    /// Places of their bodies.
    pub(crate) bodies: Vec<(Range<usize>, u32)>,
}

/// Plants faults in the text of their file.
///
/// # Panics
/// A fault changes something else than bodies of functions.
pub(crate) fn plant<'a>(text: &str, faults: impl Iterator<Item = &'a Fault>) -> Planted {
    let bodies = bodies(text).expect("a file of the project is Rust");
    let mut faulty: BTreeMap<usize, Vec<(u32, String)>> = BTreeMap::new();
    for fault in faults {
        let planted = fault.planted(text);
        let others = self::bodies(&planted).unwrap_or_else(|error| panic!("\"{}\" is no Rust: {error}", fault.law));
        let is_within = outside(text, &bodies) == outside(&planted, &others);
        assert!(is_within, "\"{}\" changes more than bodies of functions that can have two", fault.law);
        for (n, (body, other)) in bodies.iter().zip(others).enumerate() {
            if text[body.clone()] != planted[other.clone()] {
                faulty.entry(n).or_default().push((fault.number, planted[other].to_owned()));
            }
        }
    }
    let (mut out, mut written) = (Planted { text: String::new(), bodies: Vec::new() }, 0);
    for (n, faulty) in faulty {
        let body = &bodies[n];
        out.text.push_str(&text[written..body.start]);
        out.text.push_str("{ match crate::planted::fault() {");
        for (number, faulty) in faulty {
            let begun = out.text.len();
            out.text.push_str(&format!(" {number} => {faulty}"));
            out.bodies.push((begun..out.text.len(), number));
        }
        out.text.push_str(&format!(" _ => {} }} }}", &text[body.clone()]));
        written = body.end;
    }
    out.text.push_str(&text[written..]);
    out
}

/// Returns the texts around these places.
fn outside<'a>(text: &'a str, places: &[Range<usize>]) -> Vec<&'a str> {
    let ends = [0].into_iter().chain(places.iter().map(|place| place.end));
    let starts = places.iter().map(|place| place.start).chain([text.len()]);
    ends.zip(starts).map(|(end, start)| &text[end..start]).collect()
}

/// Returns the bodies of the outermost functions that can have several bodies.
fn bodies(text: &str) -> syn::Result<Vec<Range<usize>>> {
    let mut bodies = Vec::new();
    collect(&syn::parse_file(text)?.items, text, &mut bodies);
    Ok(bodies)
}

fn collect(items: &[Item], text: &str, bodies: &mut Vec<Range<usize>>) {
    for item in items {
        match item {
            Item::Fn(item) => bodies.extend(body(&item.sig, &item.block, text)),
            Item::Impl(item) => bodies.extend(item.items.iter().filter_map(|item| match item {
                ImplItem::Fn(item) => body(&item.sig, &item.block, text),
                _ => None,
            })),
            Item::Trait(item) => bodies.extend(item.items.iter().filter_map(|item| match item {
                TraitItem::Fn(item) => body(&item.sig, item.default.as_ref()?, text),
                _ => None,
            })),
            Item::Mod(item) => collect(item.content.as_ref().map_or(&[], |(_, items)| items), text, bodies),
            _ => (),
        }
    }
}

/// Returns the body of a function, with its braces. Returns `None` if the function is constant, or returns `impl
/// Trait`, because two bodies would have different types.
fn body(signature: &Signature, block: &Block, text: &str) -> Option<Range<usize>> {
    let braces = block.brace_token.span;
    let body = braces.open().byte_range().start..braces.close().byte_range().end;
    let is_opaque = match &signature.output {
        ReturnType::Default => false,
        ReturnType::Type(arrow, _) => text[arrow.spans[0].byte_range().start..body.start].contains("impl "),
    };
    (signature.constness.is_none() && !is_opaque).then_some(body)
}
