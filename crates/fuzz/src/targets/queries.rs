//! Query parameters, parsed and applied to a small object.
//!
//! Sort keys are deterministic, a mask shows no more than the object, and nothing takes long.

use std::hash::{DefaultHasher, Hash, Hasher};

use keelson_codec::json;
use keelson_meta::Revision;
use keelson_query::{Query, Subject};

use super::{Target, refused};

const OBJECT: &str = concat!(
    r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","labels":{"app":"web","a.b/c":"1"},"managedFields":[{}]},"#,
    r#""spec":{"n":3,"big":1e300,"on":true,"nothing":null,"list":[{"x":"1Gi","y":"v1.9"},{"x":"2026-01-02T03:04:05Z"}]}}"#
);

/// One parameter of each kind, with the same text.
pub(super) const QUERY_PARAMETERS: Target = Target {
    name: "query-parameters",
    seeds: &[
        b"-.metadata.labels['a.b/c']:version,spec.n:number",
        b"-column('Port(s)'):number,column(\"Restarts\"),metadata.name",
        b"spec.list[*].x == quantity('1Gi') and not exists(spec.nothing) or spec.n in (1, 2.5, 3e0)",
        b"any(spec.list, .y startsWith 'v' && .x matches '^[0-9]+(Gi|Mi)$')",
        b"{.spec.list[1].x}",
        b"all(.spec.list, owner(Job, 'a') or .x != time('2026-01-02T03:04:05Z'))",
        b"web cheese",
        b"metadata.labels.a\\.b/c,spec.list[*].x,status",
    ],
    words: &[
        "spec",
        ".list",
        "[*]",
        "['a.b/c']",
        "[0]",
        ":quantity",
        "column('",
        ":time",
        "-",
        ",",
        "==",
        "!=",
        "<=",
        ">",
        " in (",
        " notin (",
        ")",
        " and ",
        " or ",
        "not ",
        "!",
        "exists(",
        "any(",
        "all(",
        "owner(",
        " contains ",
        " matches ",
        "'",
        "\"",
        "\\",
        "true",
        "quantity(",
        "time(",
        "version(",
        "1Gi",
        "{",
        "}",
        "object.",
        "spec.n",
    ],
    check: |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut hasher = DefaultHasher::new();
        for name in ["sortBy", "groupBy", "filter", "search", "fields"] {
            let name = format!("keelson.io/{name}");
            match Query::parse([(&*name, &*text)].into_iter()) {
                Ok(query) => apply(&query.expect("it has a parameter"), &mut hasher),
                Err(error) => refused(&error).hash(&mut hasher),
            }
        }
        hasher.finish()
    },
};

fn apply(query: &Query, hasher: &mut DefaultHasher) {
    let subject = Subject::new(OBJECT.as_bytes(), Revision::new(7));
    query.filter.as_ref().is_some_and(|filter| filter.holds(&subject, None) == Ok(true)).hash(hasher);
    let places = || {
        let mut places: Vec<Vec<u8>> = Vec::new();
        query.places(&subject, std::iter::empty(), |place| {
            places.push(place.to_vec());
            true
        });
        places
    };
    let found = places();
    assert_eq!(found, places(), "a place is another one the second time");
    for place in &found {
        place.first().hash(hasher);
        if query.group_by.is_some() {
            query.value_at(&subject, place).is_some().hash(hasher);
        }
    }
    let mut shown = Vec::new();
    query.mask.write(OBJECT.as_bytes(), &mut shown);
    assert!(shown.len() <= OBJECT.len() && json::parse(&shown).is_ok(), "a mask shows something else");
    shown.len().hash(hasher);
}
