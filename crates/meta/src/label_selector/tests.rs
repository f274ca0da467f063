//! Label selectors as texts and in objects, compared with upstream's parsing and messages.
//!
//! Each case is a text with its canonical form and its matches, or with its error. Large selectors must not cost too
//! much.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;

fn check(text: &str, expected: Result<&str, &str>) {
    let parsed = LabelSelector::parse(text).map(|selector| selector.to_string());
    assert_eq!(parsed.as_deref().map_err(String::as_str), expected, "{text}");
}

fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
    let labels: HashMap<_, _> = labels.iter().copied().collect();
    LabelSelector::parse(selector).expect("a valid selector").matches(|key| labels.get(key).copied())
}

#[test]
fn every_form_is_read_and_written() {
    for (text, canonical) in [
        ("", ""),
        ("  ", ""),
        ("a", "a"),
        ("!a", "!a"),
        (" ! a ", "!a"),
        ("a=b", "a=b"),
        ("a = b", "a=b"),
        ("a==b", "a==b"),
        ("a!=b", "a!=b"),
        ("a=", "a="),
        ("a=,b", "a=,b"),
        ("a in (b)", "a in (b)"),
        ("a in(c,b , b)", "a in (b,c)"),
        ("a notin (b,c)", "a notin (b,c)"),
        ("a in ()", "a in ()"),
        ("a in (,)", "a in ()"),
        ("a in (,b)", "a in (,b)"),
        ("a in (b,,c)", "a in (,b,c)"),
        ("a in (b,)", "a in (,b)"),
        ("a>1", "a>1"),
        ("a < 10", "a<10"),
        ("z=1,a", "a,z=1"),
        ("example.com/a=b", "example.com/a=b"),
        ("in in (in,notin)", "in in (in,notin)"),
        ("notin", "notin"),
        ("a=in", "a=in"),
        ("!in", "!in"),
        ("a\t\r\n=b", "a=b"),
    ] {
        check(text, Ok(canonical));
    }
}

#[test]
fn faults_have_upstream_texts() {
    const LABEL: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                         regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    const KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                       alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                       '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    for (text, fault) in [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier".to_owned()),
        ("a===b", "unable to parse requirement: found '=', expected: identifier".to_owned()),
        ("!=b", "found '!=', expected: !, identifier, or 'end of string'".to_owned()),
        ("!,a", "unable to parse requirement: found ',', expected: identifier".to_owned()),
        ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("a=b c", "found 'c', expected: ',' or 'end of string'".to_owned()),
        ("a,", "found '', expected: identifier after ','".to_owned()),
        (",a", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("a in b", "unable to parse requirement: found 'b' expected: '('".to_owned()),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier".to_owned()),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'".to_owned()),
        ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier".to_owned()),
        ("a>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer".to_owned()),
        ("-a=b", format!("unable to parse requirement: <nil>: Invalid value: \"-a\": {KEY}")),
        ("a=b_", format!("unable to parse requirement: values[0][a]: Invalid value: \"b_\": {LABEL}")),
        ("a in (b,_c)", format!("unable to parse requirement: values[0][a]: Invalid value: \"_c\": {LABEL}")),
        (
            "a>-1",
            format!("unable to parse requirement: values[0][a]: Invalid value: \"-1\": {LABEL}"),
        ),
    ] {
        check(text, Err(&fault));
    }
}

#[test]
fn both_faults_of_a_limit_are_reported() {
    let fault = LabelSelector::parse("a>_").expect_err("no integer and no label value");
    assert!(fault.starts_with("unable to parse requirement: [values[0]: Invalid value: \"_\": for 'Gt'"), "{fault}");
    assert!(fault.contains(", values[0][a]: Invalid value: \"_\": a valid label"), "{fault}");
}

#[test]
fn requirements_select_by_meaning() {
    let labels = [("app", "web"), ("empty", ""), ("size", "10"), ("word", "ten")];
    for selector in [
        "",
        "app",
        "!none",
        "app=web",
        "app==web",
        "empty=",
        "app!=db",
        "none!=db",
        "app in (db,web)",
        "app notin (db)",
        "none notin (db)",
        "size>9",
        "size<11",
        "app=web,size>9,!none",
    ] {
        assert!(selects(selector, &labels), "{selector}");
    }
    for selector in [
        "!app",
        "none",
        "app=db",
        "none=",
        "app!=web",
        "empty!=",
        "app notin (web)",
        "none in ()",
        "size>10",
        "size<10",
        "word>1",
        "none>1",
        "app,none",
    ] {
        assert!(!selects(selector, &labels), "{selector}");
    }
}

#[test]
fn requirements_can_be_read() {
    let selector = LabelSelector::parse("b in (y,x),a").expect("a valid selector");
    let [exists, set] = selector.requirements() else { panic!("two requirements") };
    assert_eq!((exists.key(), exists.operator(), exists.values().count()), ("a", Operator::Exists, 0));
    assert_eq!((set.key(), set.operator()), ("b", Operator::In));
    assert_eq!(set.values().collect::<Vec<_>>(), ["x", "y"]);
    assert!(LabelSelector::everything().is_empty() && !selector.is_empty());
}

/// Matches tens of thousands of requirements against each of many objects. This took seconds before requirements were
/// joined.
#[test]
fn a_selector_of_many_requirements_looks_at_each_label_once() {
    let text: Vec<String> = (0..20_000).map(|number| format!("!absent{number},app!=v{number}")).collect();
    let selector = LabelSelector::parse(&text.join(",")).expect("a valid selector");
    assert_eq!(selector.requirements().len(), 40_000);
    let looked_at = std::cell::Cell::new(0);
    let labels = [("app", "web"), ("tier", "a")];
    let all = || labels.iter().copied().inspect(|_| looked_at.set(looked_at.get() + 1));
    let get = |_: &str| -> Option<&str> { panic!("no requirement is asked by itself") };
    assert!(selector.matches_labels(get, all));
    assert_eq!(looked_at.get(), labels.len());
    assert!(!selector.matches_labels(get, || [("app", "v19999")].into_iter()));
    assert!(!selector.matches_labels(get, || [("absent7", "")].into_iter()));
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let key = prop_oneof!["[a-z][a-z0-9_.-]{0,4}[a-z0-9]", "[a-z]{1,3}\\.io/[A-Z]", Just("in".to_owned())];
    let value = prop_oneof!["[a-zA-Z0-9]{0,3}", Just("notin".to_owned())];
    let set = proptest::collection::btree_set(value.clone(), 1..4);
    let number = "[0-9]{1,4}";
    let condition = prop_oneof![
        set.clone().prop_map(|values| (Operator::In, values)),
        set.prop_map(|values| (Operator::NotIn, values)),
        value.clone().prop_map(|value| (Operator::Equals, BTreeSet::from([value]))),
        value.clone().prop_map(|value| (Operator::DoubleEquals, BTreeSet::from([value]))),
        value.prop_map(|value| (Operator::NotEquals, BTreeSet::from([value]))),
        Just((Operator::Exists, BTreeSet::new())),
        Just((Operator::DoesNotExist, BTreeSet::new())),
        number.prop_map(|value| (Operator::GreaterThan, BTreeSet::from([value]))),
        number.prop_map(|value| (Operator::LessThan, BTreeSet::from([value]))),
    ];
    (key, condition).prop_map(|(key, (operator, values))| Requirement { key, operator, values })
}

proptest! {
    #[test]
    fn written_selectors_read_back(mut requirements in proptest::collection::vec(requirement(), 0..5)) {
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        let selector = LabelSelector::from_requirements(requirements);
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn requirements_joined_by_key_hold_as_each_does(
        requirements in proptest::collection::vec(requirement(), 0..6),
        labels in proptest::collection::hash_map("[a-c]{1,2}|in", "[a-c0-9]{0,2}", 0..4),
    ) {
        // Few keys and values, so that requirements and labels coincide.
        let short = |text: &str| text.chars().take(1).map(|c| if c.is_ascii_digit() { '5' } else { 'a' }).collect();
        let requirements: Vec<Requirement> = requirements
            .into_iter()
            .map(|Requirement { key, operator, values }| Requirement {
                key: short(&key),
                operator,
                values: values.iter().map(|value| short(value)).collect(),
            })
            .collect();
        let joined = ByKey::new(&requirements);
        let labels: HashMap<String, String> =
            labels.into_iter().map(|(key, value)| (short(&key), value)).collect();
        let each = requirements.iter().all(|one| one.matches(labels.get(&one.key).map(String::as_str)));
        let all = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        prop_assert_eq!(joined.match_all(all), each, "{:?} {:?}", requirements, labels);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-c=!(),<> \u{0}éin_-]{0,24}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
