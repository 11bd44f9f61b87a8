//! Methods and paths, and the orders that they are.

use super::*;

fn order(method: &str, path: &str, query: &str) -> Result<ControlOrder, Miss> {
    find(method, path, Some(query)).map(|(_, order)| order)
}

#[test]
fn a_method_and_a_path_are_an_order() {
    assert_eq!(order("GET", "/v1/status", ""), Ok(ControlOrder::Status));
    let calls = ControlOrder::Calls { party: Some("a b@c".into()), from: Some(7), most: 20 };
    assert_eq!(order("GET", "/v1/calls", "party=a+b%40c&from=7&most=20"), Ok(calls));
    assert_eq!(order("DELETE", "/v1/calls/8f%32", ""), Ok(ControlOrder::EndCall { id: "8f2".into() }));
    let search = ControlOrder::Search { name: "carriers".into(), key: "+49".into() };
    assert_eq!(order("GET", "/v1/sets/carriers/search", "key=%2B49"), Ok(search));
    assert_eq!(order("DELETE", "/v1/bans", ""), Ok(ControlOrder::Lift { source: None }));
    let source = Some([192, 0, 2, 7].into());
    assert_eq!(order("GET", "/v1/bans", "from=192.0.2.7&most=3"), Ok(ControlOrder::Bans { from: source, most: 3 }));
    assert_eq!(order("DELETE", "/v1/bans", "source=192.0.2.7"), Ok(ControlOrder::Lift { source }));
}

#[test]
fn what_is_no_order_is_said_why() {
    assert_eq!(order("GET", "/v1/nothing", ""), Err(Miss::Path));
    assert_eq!(order("GET", "/v1/calls/", ""), Err(Miss::Path));
    assert_eq!(order("GET", "/v1/calls/1/2", ""), Err(Miss::Path));
    assert_eq!(order("POST", "/v1/bans", ""), Err(Miss::Method(vec!["GET", "DELETE"])));
    for (query, said) in [
        ("most=x", "the parameter most is \"x\": invalid digit found in string"),
        ("most=1&most=2", "the parameter most stands twice"),
        ("party=%", "the parameter party is not UTF-8 in %XX"),
        ("id=1", "there is no parameter \"id\" here: those that there are: party, from, most"),
    ] {
        assert_eq!(order("GET", "/v1/calls", query), Err(Miss::Parameter(said.into())));
    }
    let missing = Miss::Parameter("the parameter key is missing".into());
    assert_eq!(order("GET", "/v1/sets/a/search", ""), Err(missing));
}

/// Each route has a description, and has the parameters of its path and its order.
#[test]
fn the_table_is_whole() {
    for way in WAYS {
        assert!(way.summary.ends_with('.'), "{}", way.path);
        for part in way.path.split('/').filter_map(braced) {
            let parameter = way.parameters.iter().find(|parameter| parameter.name == part);
            assert!(parameter.is_some_and(|parameter| parameter.is_required), "{} of {}", part, way.path);
        }
        let path: String = way.path.replace(['{', '}'], "");
        let query: Vec<String> = way
            .parameters
            .iter()
            .filter(|parameter| !parameter.is_of_path(way.path))
            .map(|parameter| match parameter.kind {
                ParameterKind::Number => format!("{}=7", parameter.name),
                ParameterKind::Text => format!("{}=192.0.2.1", parameter.name),
            })
            .collect();
        let found = find(way.method, &path, Some(&query.join("&")));
        assert!(found.as_ref().is_ok_and(|(found, _)| found.path == way.path), "{} {path}", way.method);
        let order = found.map(|(_, order)| format!("{order:?}")).unwrap_or_default();
        for parameter in way.parameters.iter().filter(|parameter| !parameter.is_of_path(way.path)) {
            let value = if parameter.kind == ParameterKind::Number { "7" } else { "192.0.2.1" };
            assert!(order.contains(value), "{} has no part in {order}", parameter.name);
        }
    }
}
