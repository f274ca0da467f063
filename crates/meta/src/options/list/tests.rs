//! The options of lists and watches: values, defaults, and refused combinations.
//!
//! Each case is a query with its meaning, or with its error.

use super::*;

fn parse(query: &str) -> Result<ListOptions, ApiError> {
    ListOptions::parse(&Query::parse(query), false)
}

fn check_fault(query: &str, code: u16, expected: &str) {
    let error = parse(query).expect_err(query);
    assert_eq!((error.code(), error.to_string().as_str()), (code, expected), "{query}");
}

#[test]
fn a_plain_list_reads_the_newest() {
    let options = parse("").expect("no options are valid");
    assert_eq!(options, ListOptions::default());
    assert_eq!(options.requested_version(), Ok(RequestedVersion::Unset));
}

#[test]
fn values_are_read() {
    let options = parse(
        "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&resourceVersion=7&resourceVersionMatch=Exact&limit=5&\
         timeoutSeconds=9&unknown=1",
    )
    .expect("valid options");
    assert_eq!(options.label_selector.to_string(), "a=b");
    assert_eq!(options.field_selector.require_exact("metadata.name"), Some("x"));
    assert_eq!(options.requested_version(), Ok(RequestedVersion::At(Revision::new(7))));
    assert_eq!(options.resource_version_match, Some(ResourceVersionMatch::Exact));
    assert_eq!((options.limit.map(NonZeroUsize::get), options.timeout), (Some(5), Some(Duration::from_secs(9))));
}

#[test]
fn limits_and_timeouts_without_meaning_are_dropped() {
    for query in ["limit=0&timeoutSeconds=0", "limit=-1"] {
        let options = parse(query).expect("valid options");
        assert_eq!((options.limit, options.timeout), (None, None), "{query}");
    }
    assert_eq!(parse("watch=1&timeoutSeconds=-5").expect("valid options").timeout, Some(Duration::ZERO));
}

#[test]
fn a_watch_without_a_revision_begins_with_initial_events() {
    for query in ["watch=1", "watch=true&resourceVersion=0", "watch"] {
        let options = parse(query).expect("valid options");
        assert!(options.watch && options.send_initial_events, "{query}");
        assert_eq!(options.resource_version_match, Some(ResourceVersionMatch::NotOlderThan));
    }
    let options = parse("watch=1&resourceVersion=5").expect("valid options");
    assert!(!options.send_initial_events && options.resource_version_match.is_none());
    let declined = parse("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan").expect("valid options");
    assert!(!declined.send_initial_events);
}

#[test]
fn a_watch_path_is_a_watch() {
    let options = ListOptions::parse(&Query::parse("allowWatchBookmarks=1"), true).expect("valid options");
    assert!(options.watch && options.send_initial_events && options.allow_bookmarks);
}

#[test]
fn unreadable_values_are_bad_requests() {
    check_fault("limit=abc", 400, "strconv.ParseInt: parsing \"abc\": invalid syntax");
    check_fault("timeoutSeconds=", 400, "strconv.ParseInt: parsing \"\": invalid syntax");
    check_fault(
        "labelSelector=a%20b",
        400,
        "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
    );
    check_fault("fieldSelector=x", 400, "invalid selector: 'x'; can't understand 'x'");
}

#[test]
fn unreadable_versions_are_found_late() {
    let fault = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
                 invalid syntax";
    let list = parse("resourceVersion=abc").expect("not judged yet").requested_version();
    assert_eq!(list, Err(ApiError::BadRequest(fault.into())));
    let get = GetOptions::parse(&Query::parse("resourceVersion=abc")).requested_version();
    assert_eq!(get, Err(ApiError::BadRequest(fault.into())));
    let any = GetOptions::parse(&Query::parse("resourceVersion=0")).requested_version();
    assert_eq!(any, Ok(RequestedVersion::Any));
}

#[test]
fn combinations_that_are_not_allowed_have_upstream_texts() {
    const UNLESS_VERSION: &str =
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    const WITH_CONTINUE: &str =
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
    const NEEDS_NOT_OLDER: &str =
        "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    const UNLESS_EVENTS: &str = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
                                 sendInitialEvents is provided";
    const ONLY_NOT_OLDER: &str =
        "resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"";
    for (query, faults) in [
        ("resourceVersionMatch=Exact", UNLESS_VERSION.to_owned()),
        ("resourceVersionMatch=Exact&continue=x", format!("[{UNLESS_VERSION}, {WITH_CONTINUE}]")),
        (
            "resourceVersion=1&resourceVersionMatch=Bogus",
            "resourceVersionMatch: Unsupported value: \"Bogus\": supported values: \"Exact\", \"NotOlderThan\", \"\""
                .to_owned(),
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
                .to_owned(),
        ),
        ("sendInitialEvents=false", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list".to_owned()),
        ("watch=1&sendInitialEvents=true", NEEDS_NOT_OLDER.to_owned()),
        ("watch=1&resourceVersionMatch=NotOlderThan", UNLESS_EVENTS.to_owned()),
        ("watch=1&limit=3&continue=abc", WITH_CONTINUE.to_owned()),
        ("watch=1&resourceVersion=0&continue=abc", WITH_CONTINUE.to_owned()),
        (
            "watch=1&sendInitialEvents=1&resourceVersionMatch=Exact&continue=x",
            format!("[{NEEDS_NOT_OLDER}, {ONLY_NOT_OLDER}, {WITH_CONTINUE}]"),
        ),
    ] {
        check_fault(query, 422, &format!("ListOptions.meta.k8s.io \"\" is invalid: {faults}"));
    }
    assert!(parse("watch=1&resourceVersion=5&limit=3&continue=abc").is_ok());
}
