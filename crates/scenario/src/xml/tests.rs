//! Documents, as a strict reader and as SIPp take them.

use super::*;

const HEAD: &str = "<?xml version=\"1.0\"?>\n";

fn tree(text: &str) -> (Document, Tree) {
    let document = Document::new(format!("{HEAD}{text}").as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
    let tree = document.tree(Markup::AsSipp).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
    (document, tree)
}

fn fault(text: &str) -> Fault {
    let document = Document::new(format!("{HEAD}{text}").as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
    document.tree(Markup::AsSipp).err().unwrap_or_else(|| panic!("{text} was read"))
}

fn names(elements: &[Element]) -> Vec<&str> {
    elements.iter().map(|element| element.name.as_str()).collect()
}

/// Returns the value of `a` in the first element of the scenario.
fn value(tag: &str) -> Option<String> {
    let (document, tree) = tree(&format!("<s>{tag}</s>"));
    document.attribute(tree.roots[0].children.first()?, "a").map(|value| value.text())
}

#[test]
fn text_before_the_first_element() {
    for wrong in ["", " <?xml?>", "\n<?xml?>", "\u{feff}<?xml?>", "<s/>", "<?xml version=\"1.0\">"] {
        assert!(Document::new(wrong.as_bytes()).is_err(), "{wrong:?}");
    }
    let (_, tree) =
        tree("<!DOCTYPE scenario SYSTEM \"sipp.dtd\">\n<!-- <x> --><?xml-model href=\"m\"?>\n<s><a/><b>t</b></s>");
    assert_eq!((names(&tree.roots), names(&tree.roots[0].children)), (vec!["s"], vec!["a", "b"]));
    assert!(tree.warnings.is_empty());
}

#[test]
fn values_end_at_a_quote_and_know_five_escapes() {
    assert_eq!(value("<e a=\"x\\n\\t\\r\\\"\\\\\\xf&lt;\"/>").as_deref(), Some("x\n\t\r\"\\\\xf&lt;"));
    assert_eq!(value("<e\n a\t=\n\"x\"/>").as_deref(), Some("x"));
    assert_eq!(value("<e b=\"<x> /> >\" a=\"x\"/>").as_deref(), Some("x"));
    assert_eq!(value("<e a=\"1\" a=\"2\"/>").as_deref(), Some("1"));
    assert_eq!(value("<e a a=\"2\"/>").as_deref(), Some("2"));
    // A name counts anywhere after white space.
    assert_eq!(value("<e b=\"x a='y\" a=\"2\"/>").as_deref(), Some("y"));
    assert_eq!(value("<e b=\"1\"a=\"2\"/>"), None);
    assert_eq!(value("<e ba=\"1\" ab=\"2\"/>"), None);
    assert!(value("<e a='1'/>").is_some_and(|value| value.starts_with("1'/>")));
}

#[test]
fn entities_are_four() {
    assert_eq!(entities(b"&lt;&gt;&amp;&quot;&apos;&#65;&x;&"), b"<>&\"&apos;&#65;&x;&");
    assert_eq!(entities(b"&amp;lt;"), b"&lt;");
}

#[test]
fn elements_that_are_not_closed_end_with_the_document() {
    let (_, tree) = tree("<s><a>");
    assert_eq!(names(&tree.roots[0].children), ["a"]);
    assert_eq!(tree.warnings.len(), 1);
}

#[test]
fn wrong_end_tags() {
    let wrong = fault("<s><a></b></s>");
    assert!(wrong.what.contains("`</b>` where `</a>`"), "{wrong:?}");
    // At the scenario's own level a wrong end tag ends it; only later elements make that a fault.
    assert_eq!(names(&tree("<s><a/></b>").1.roots[0].children), ["a"]);
    assert_eq!(names(&tree("<s><a/></b></s></s>").1.roots[0].children), ["a"]);
    fault("<scenario><a/></b><a/></scenario>");
    fault("<scenario><a/></scenario><b/>");
    fault("<scenario> x/> <a/></scenario>");
    fault("<s><a></ a></s>");
    tree("<s><a></a\n></s>");
}

#[test]
fn tags_without_end() {
    // The elements after this one are not parsed.
    assert_eq!(names(&tree("<s><a/><b < /><c/></s>").1.roots[0].children), ["a"]);
    assert_eq!(names(&tree("<s><a/><b x=\"/><c/></s>").1.roots[0].children), ["a", "b", "c"]);
    assert_eq!(names(&tree("<s x=\"y><a/></s>").1.roots[0].children), ["a"]);
    assert_eq!(names(&tree("<s><a <!-- > --> /><c/></s>").1.roots[0].children), ["a", "c"]);
    assert_eq!(names(&tree("<s><a/b=\"1\"/></s>").1.roots[0].children), ["a"]);
}

fn text(inside: &str) -> Option<String> {
    let (document, tree) = tree(&format!("<s>{inside}</s>"));
    let (_, text) = document.cdata(&tree.roots[0].children[0]).ok()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[test]
fn texts() {
    assert_eq!(text("<a><![CDATA[x <b> ]] y]]></a>").as_deref(), Some("x <b> ]] y"));
    assert_eq!(text("<a><![CDATA[1]]><![CDATA[2]]></a>").as_deref(), Some("1"));
    assert_eq!(text("<a><!-- <![CDATA[1]]> --><![CDATA[2]]></a>").as_deref(), Some("1"));
    assert_eq!(text("<a><b><![CDATA[1]]></b></a>").as_deref(), Some("1"));
    assert_eq!(text("<a/><a><![CDATA[1]]></a>"), None);
    assert_eq!(text("<a></a><a><![CDATA[1]]></a>"), None);
    assert_eq!(text("<a>x/><![CDATA[1]]></a>"), None);
    // An end tag directly after a comment is overlooked.
    assert_eq!(text("<a><!-- --></a><a> <![CDATA[1]]> </a>").as_deref(), Some("1"));
    assert_eq!(text("<a><!-- --> </a><a> <![CDATA[1]]> </a>"), None);
    // A quote in the text between hides the text up to the next one.
    assert_eq!(text("<a> \" </a> \" <![CDATA[1]]> </a>").as_deref(), Some("1"));
    // So an endless comment directly after it hides the text, and one after white space does not.
    assert_eq!(text("<a><![CDATA[1]]></a><!-- "), None);
    assert_eq!(text("<a><![CDATA[1]]> </a><!-- ").as_deref(), Some("1"));
}

/// Checks that `<` and `/>` in attributes are markup as in SIPp 3.6, except with [`Markup::AsMeant`].
#[test]
fn markup_in_attributes() {
    let children = |text: &str, markup| {
        let document = Document::new(format!("{HEAD}{text}").as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
        document.tree(markup).map(|tree| names(&tree.roots[0].children).join(" ")).unwrap_or_default()
    };
    for (text, sipp, meant) in [
        ("<s><a x=\">\"/><b/></s>", "a b", "a b"),
        ("<s><a x=\"<c/>\"/><b/></s>", "a b", "a b"),
        ("<s><a x=\"<c>\"/><b/></s>", "", "a b"),
        ("<s><a x=\"/>\"><c/></a><b/></s>", "a c", "a b"),
    ] {
        assert_eq!(children(text, Markup::AsSipp), sipp, "{text}");
        assert_eq!(children(text, Markup::AsMeant), meant, "{text}");
    }
}

#[test]
fn carriage_returns_do_not_count() {
    let document = Document::new(b"<?xml?>\r\n<s>\r\n <a/>\r\n</s>").unwrap_or_else(|fault| panic!("{fault:?}"));
    let tree = document.tree(Markup::AsSipp).unwrap_or_else(|fault| panic!("{fault:?}"));
    assert_eq!(document.place(tree.roots[0].children[0].start), (3, 2));
    assert_eq!(document.place(0), (1, 1));
}

#[test]
fn attributes_as_xml_sees_them() {
    let (document, tree) = tree("<s><e a=\"1\" b = \"2\" c d='3' a=\"x &lt; y\"/></s>");
    let list: Vec<_> = document
        .attributes(&tree.roots[0].children[0])
        .into_iter()
        .map(|(name, _, value)| (name, String::from_utf8_lossy(document.bytes(value)).into_owned()))
        .collect();
    let wanted = [("a", "1"), ("b", "2"), ("a", "x &lt; y")];
    assert_eq!(list, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
}
