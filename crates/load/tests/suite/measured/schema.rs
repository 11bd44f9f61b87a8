//! Checker for the part of JSON Schema that `docs/load-report.schema.json` uses. An unknown word is an error, so that
//! the schema cannot ask for more than is checked.

use serde_json::Value;

/// Returns the violations of `schema` in `value`: place and reason.
pub(crate) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let words = schema.as_object().expect("a schema is an object");
    let mut say = |what: String| found.push(format!("{place}: {what}"));
    for (word, rule) in words {
        match word.as_str() {
            "$schema" | "$defs" | "title" | "description" => {}
            "type" => {
                let allowed: Vec<&str> = match rule {
                    Value::String(one) => vec![one],
                    several => several.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect(),
                };
                if !allowed.iter().any(|name| is(value, name)) {
                    say(format!("{value} is none of {allowed:?}"));
                }
            }
            "const" if value != rule => say(format!("{value} is not {rule}")),
            "enum" if !rule.as_array().unwrap().contains(value) => say(format!("{value} is none of {rule}")),
            "minimum" if value.as_f64().is_some_and(|number| number < rule.as_f64().unwrap()) => {
                say(format!("{value} < {rule}"))
            }
            "maximum" if value.as_f64().is_some_and(|number| number > rule.as_f64().unwrap()) => {
                say(format!("{value} > {rule}"))
            }
            "minItems" if value.as_array().is_some_and(|list| (list.len() as u64) < rule.as_u64().unwrap()) => {
                say(format!("fewer than {rule}"));
            }
            "required" => {
                if let Some(object) = value.as_object() {
                    for name in rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
                        if !object.contains_key(name) {
                            say(format!("{name} is missing"));
                        }
                    }
                }
            }
            "const"
            | "enum"
            | "minimum"
            | "maximum"
            | "minItems"
            | "properties"
            | "additionalProperties"
            | "items"
            | "$ref" => {}
            unknown => panic!("this check does not know '{unknown}' of JSON Schema"),
        }
    }
    if let Some(name) = words.get("$ref") {
        let pointer = name.as_str().unwrap().trim_start_matches('#');
        check(root, root.pointer(pointer).expect("what is referred to exists"), value, place, found);
    }
    if let (Some(rule), Some(list)) = (words.get("items"), value.as_array()) {
        list.iter().enumerate().for_each(|(at, one)| check(root, rule, one, &format!("{place}/{at}"), found));
    }
    if let Some(object) = value.as_object() {
        let known = words.get("properties").and_then(Value::as_object);
        for (name, member) in object {
            let place = format!("{place}/{name}");
            match (known.and_then(|known| known.get(name)), words.get("additionalProperties")) {
                (Some(rule), _) | (None, Some(rule @ Value::Object(_))) => check(root, rule, member, &place, found),
                (None, Some(Value::Bool(false))) => found.push(format!("{place}: the schema does not know it")),
                _ => {}
            }
        }
    }
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("this check does not know the type '{other}'"),
    }
}
