//! Description of the orders by HTTP (OpenAPI 3.1), generated from the table of routes and the types of the replies.
//! The server provides the description, and `docs/openapi.json` is a copy.

use super::Wrong;
use super::http_routes::{HttpRoute, Parameter, ParameterKind, WAYS};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Path of the description.
pub(super) const PATH: &str = "/openapi.json";

/// Builds the description.
pub(super) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.for_serialize().into_generator();
    let mut paths = Map::new();
    for way in WAYS {
        let operation = operation(way, &mut schemas);
        let methods = paths.entry(way.path).or_insert_with(|| json!({}));
        methods[way.method.to_lowercase()] = operation;
    }
    let mut definitions = Value::Object(schemas.take_definitions(true));
    plain(&mut definitions);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Strowger control",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Orders to a running Strowger server: `control.listen` of its configuration says where they are taken. \
                Without `control.secret` it takes them from programs of its own machine alone.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": { "secret": { "type": "http", "scheme": "bearer", "description": "`control.secret`." } },
        },
        "security": [{ "secret": [] }, {}],
    })
}

fn operation(way: &HttpRoute, schemas: &mut SchemaGenerator) -> Value {
    let answer = |description: &str, schema: Value| json!({ "description": description, "content": { "application/json": { "schema": schema } } });
    let error = |description: &str| {
        let text = json!({ "type": "string", "description": "Why, in words." });
        answer(description, json!({ "type": "object", "required": ["error"], "properties": { "error": text } }))
    };
    let reply = (way.reply)(schemas);
    let mut responses = Map::new();
    responses.insert("200".into(), answer("It was carried out.", reply.to_value()));
    responses.insert("400".into(), error("A parameter is wrong."));
    responses.insert("401".into(), error("The secret was not shown, or is another one."));
    let foreign = "No `control.secret` is set, and this comes from another machine or from a page of the web.";
    responses.insert("403".into(), error(foreign));
    match way.names_one {
        true => responses.insert("404".into(), error("There is no such thing.")),
        false => responses.insert("409".into(), error("The server refuses.")),
    };
    if way.path.ends_with("/reload") {
        let wrong = schemas.subschema_for::<Wrong>();
        let description = "What was to be read is wrong; the server goes on by what it has.";
        responses.insert("422".into(), answer(description, wrong.to_value()));
    }
    let silent = "A shard, a cache or the place of accounting does not answer, or the server is shutting down.";
    responses.insert("503".into(), error(silent));
    let parameters: Vec<Value> = way.parameters.iter().map(|parameter| described(way, parameter)).collect();
    json!({ "summary": way.summary, "operationId": id(way), "parameters": parameters, "responses": responses })
}

fn described(way: &HttpRoute, parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        ParameterKind::Text => json!({ "type": "string" }),
        ParameterKind::Number => json!({ "type": "integer", "minimum": 0 }),
    };
    json!({
        "name": parameter.name,
        "in": if parameter.is_of_path(way.path) { "path" } else { "query" },
        "required": parameter.is_required,
        "description": parameter.about,
        "schema": schema,
    })
}

/// Returns the name of the operation for generated programs: `delete_calls_id`.
fn id(way: &HttpRoute) -> String {
    let words = way.path.split(['/', '-']).skip(2).map(|part| part.trim_matches(['{', '}']));
    std::iter::once(way.method.to_lowercase().as_str()).chain(words).collect::<Vec<_>>().join("_")
}

/// Removes links between items of the source, and keeps their names.
fn plain(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(text) if key == "description" => *text = text.replace("[`", "`").replace("`]", "`"),
                    value => plain(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    /// With STROWGER_WRITE_DOCS=1 the test writes the file instead of comparing it.
    #[test]
    fn the_document_is_in_the_folder_of_documents() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let text = serde_json::to_string_pretty(&document()).expect("it is JSON") + "\n";
        if std::env::var_os("STROWGER_WRITE_DOCS").is_some() {
            return std::fs::write(&path, text).expect("the folder can be written");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == text,
            "docs/openapi.json is not what the source says; STROWGER_WRITE_DOCS=1 writes it again"
        );
    }

    /// Every reference has a target, and every operation has a name of its own.
    #[test]
    fn the_document_is_whole() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str));
                    map.values().for_each(|value| references(value, found));
                }
                Value::Array(values) => values.iter().for_each(|value| references(value, found)),
                _ => (),
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 10, "{found:?}");
        for reference in found {
            let place = reference.strip_prefix('#').expect("it is in the document");
            assert!(document.pointer(place).is_some(), "{reference}");
        }
        let ids: BTreeSet<String> = WAYS.iter().map(id).collect();
        assert_eq!(ids.len(), WAYS.len(), "{ids:?}");
        assert!(!document.to_string().contains("[`"));
    }
}
