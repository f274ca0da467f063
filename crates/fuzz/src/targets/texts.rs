//! Texts of queries, paths and fields: selectors, tokens, quantities, options.
//!
//! The properties hold for every text: refusals do not panic, and accepted values survive a round trip.

use http::{Method, Uri};
use keelson_http::RequestInfo;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::options::{CreateOptions, DeleteOptions, GetOptions, ListOptions, Query};
use keelson_meta::quantity::{self, Quantity};
use keelson_storage::ContinueToken;

use super::{Target, refused};

fn text_of(input: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(input)
}

pub(super) const LABEL_SELECTOR: Target = Target {
    name: "label-selector",
    seeds: &[b"app=web,tier in (a,b),!legacy,x notin (y),n>1,m<2,e!=f,g==h,present", b"a in (,),b notin ()"],
    words: &[" in ", " notin ", "(", ")", ",", "=", "==", "!=", "!", ">", "<", "a", "example.com/a", " ", "in", "1"],
    check: |input| match LabelSelector::parse(&text_of(input)) {
        Ok(selector) => {
            let written = selector.to_string();
            assert_eq!(LabelSelector::parse(&written), Ok(selector.clone()), "{written} reads differently");
            let labels = [("app", "web"), ("a", "1"), ("n", "5"), ("in", "")];
            let get = |key: &str| labels.iter().find(|(label, _)| *label == key).map(|(_, value)| *value);
            let (each, all) = (selector.matches(get), selector.matches_labels(get, || labels.into_iter()));
            assert_eq!(each, all, "{written} holds or not");
            u64::try_from(selector.requirements().len()).unwrap_or(0) << 1 | u64::from(each)
        }
        Err(error) => refused(&error),
    },
};

pub(super) const FIELD_SELECTOR: Target = Target {
    name: "field-selector",
    seeds: &[br"metadata.name=a,spec.nodeName!=b\,c,status.phase==d\=\\"],
    words: &["=", "==", "!=", ",", "\\", "\\,", "\\=", "metadata.name", "."],
    check: |input| match FieldSelector::parse(&text_of(input)) {
        Ok(selector) => {
            let written = selector.to_string();
            let again = FieldSelector::parse(&written).map(|again| again.to_string());
            assert_eq!(again.as_deref(), Ok(written.as_str()), "a field selector reads differently");
            u64::try_from(selector.terms().len()).unwrap_or(0)
        }
        Err(error) => refused(&error),
    },
};

pub(super) const CONTINUE_TOKEN: Target = Target {
    name: "continue-token",
    seeds: &[
        b"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIsInN0YXJ0IjoiL25zL25hbWVcdTAwMDAifQ",
        b"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYSJ9",
        b"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIvLi4vYSJ9",
    ],
    words: &["eyJ2Ijoi", "-", "_", "\n", "=", "Li4v", "LzAw", "MDAwMDAw", "fQ", "IiwicnYiOi0x"],
    check: |input| match ContinueToken::decode(&text_of(input)) {
        Ok(token) => {
            assert_eq!(ContinueToken::decode(&token.encode()).as_ref(), Ok(&token), "a token reads differently");
            let key = token.start_key("/registry/pods/default/");
            assert!(key.as_str().starts_with("/registry/pods/default/"), "a token leads out of its URL: {key:?}");
            let climbs = key.as_str().split('/').any(|part| part == "..");
            assert!(!climbs, "a token climbs: {key:?}");
            u64::from(token.start.contains('/'))
        }
        Err(error) => refused(&error),
    },
};

pub(super) const QUANTITY: Target = Target {
    name: "quantity",
    seeds: &[
        b"1",
        b"0.5",
        b"1500m",
        b"1024Mi",
        b"1e3",
        b"-2.50E-2",
        b"12345678901234567890123456789012345678.5Ei",
        b"+.5n",
    ],
    words: &[
        "Ki",
        "Mi",
        "Gi",
        "Ti",
        "Pi",
        "Ei",
        "n",
        "u",
        "m",
        "k",
        "M",
        "G",
        "T",
        "P",
        "E",
        "e",
        "e-",
        "E+",
        ".",
        "-",
        "+",
        "0",
        "9",
        "000000000",
    ],
    check: |input| {
        let text = text_of(input);
        match quantity::canonical(&text) {
            Ok(rewritten) => {
                let canonical = rewritten.unwrap_or_else(|| text.clone().into_owned());
                assert_eq!(quantity::canonical(&canonical), Ok(None), "{canonical} is not canonical");
                if let (Some(given), Some(written)) = (Quantity::parse(&text), Quantity::parse(&canonical)) {
                    // A value finer than a nano unit is rounded away from zero when written, and one beyond 64 bits
                    // with a binary suffix is clamped.
                    let (most, least) = (Quantity::units(i64::MAX), Quantity::units(-i64::MAX));
                    let is_cut_off = (written == most && given > most) || (written == least && given < least);
                    let finest = Quantity::parse("1n").unwrap_or_default();
                    let is_near = given.plus(finest) >= written && written.plus(finest) >= given;
                    assert!(is_near || is_cut_off, "{text} became {canonical}");
                }
                canonical
                    .bytes()
                    .filter(u8::is_ascii_alphabetic)
                    .fold(1, |kind, byte| u64::wrapping_mul(kind, 31).wrapping_add(u64::from(byte)))
            }
            Err(error) => refused(&error),
        }
    },
};

pub(super) const QUERY: Target = Target {
    name: "query",
    seeds: &[
        b"labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=5&continue=abc&resourceVersion=7&resourceVersionMatch=Exact&timeoutSeconds=3",
        b"dryRun=All&fieldManager=m&fieldValidation=Strict&gracePeriodSeconds=0&propagationPolicy=Orphan",
        b"watch=1&allowWatchBookmarks=true&sendInitialEvents=true",
    ],
    words: &["&", "=", "%", "%2", "%ff", "+", "limit=", "watch", "true", "-1", "18446744073709551616", "dryRun=All", "fieldValidation=", "resourceVersion=0"],
    check: |input| {
        let text = text_of(input);
        let query = Query::parse(&text);
        let outcomes = [
            ListOptions::parse(&query, false).map(drop),
            ListOptions::parse(&query, true).map(drop),
            CreateOptions::parse(&query).map(drop),
            DeleteOptions::parse(&query, None).map(drop),
            GetOptions::parse(&query).requested_version().map(drop),
        ];
        outcomes.iter().fold(0, |kind, outcome| {
            u64::wrapping_add(outcome.as_ref().err().map_or(0, refused), u64::wrapping_mul(kind, 31))
        })
    },
};

pub(super) const PATH: Target = Target {
    name: "path",
    seeds: &[
        b"/api/v1/namespaces/n/pods/p/status?watch=1",
        b"/apis/apps/v1/watch/namespaces/n/deployments?fieldSelector=metadata.name%3Da",
        b"/api/v1/namespaces/%2e%2e/pods/a%2fb",
        b"/apis/a.b/v1/c/d/proxy/e//f",
    ],
    words: &[
        "/",
        "//",
        "/..",
        "/.",
        "%2f",
        "%2e",
        "%00",
        "%ff",
        "/api/v1/",
        "/apis/",
        "watch/",
        "namespaces/",
        "pods",
        "status",
        "?",
        "&",
        "fieldSelector=",
    ],
    check: |input| {
        let Ok(uri) = text_of(input).parse::<Uri>() else { return 0 };
        let mut kind = 1;
        for method in [Method::GET, Method::POST, Method::DELETE, Method::PATCH] {
            let info = RequestInfo::parse(&method, &uri);
            if info.is_resource_request {
                let parts = [Some(&info.group), Some(&info.version), Some(&info.resource), info.namespace.as_ref()];
                for part in parts.into_iter().flatten().chain(info.name.as_ref().filter(|_| info.name_in_path)) {
                    assert!(!matches!(part.as_str(), "." | ".."), "a part of a path climbs: {info:?}");
                    assert!(!part.contains('/'), "a part of a path has parts: {info:?}");
                }
            } else {
                assert!(info.resource.is_empty() && info.name.is_none(), "a page has a resource: {info:?}");
            }
            let members = (info.subresource.is_some(), info.namespace.is_some(), info.name.is_some(), info.watch_path);
            let (below, namespaced, named, watched) = members;
            kind = kind * 16
                + (u64::from(below) | u64::from(namespaced) << 1 | u64::from(named) << 2 | u64::from(watched) << 3);
        }
        kind
    },
};
