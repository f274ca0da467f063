//! Compares the hand-written rules for names and labels with cases, and with regular expressions over generated texts.
//!
//! The expressions are upstream's.

use proptest::prelude::*;

use super::*;
use crate::random::SeededRandom;

fn check(rule: NameRule, name: &str, expected: &[&str]) {
    assert_eq!(rule.check(name, false), expected, "{rule:?} {name}");
}

const SUBDOMAIN_FAULT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_FAULT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035_FAULT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
    is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY_FAULT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

#[test]
fn names_that_are_valid() {
    for name in ["a", "a-b", "0", "a.b-c.d", &"a".repeat(253)] {
        check(NameRule::DnsSubdomain, name, &[]);
    }
    for name in ["a", "0-b", &"a".repeat(63)] {
        check(NameRule::DnsLabel, name, &[]);
    }
    check(NameRule::Dns1035Label, "a-0", &[]);
    for name in ["system:node:a", "Bad_Name", "a b", "..."] {
        check(NameRule::PathSegment, name, &[]);
    }
    check(NameRule::PathSegment, &"a".repeat(2048), &[]);
    for name in ["10.0.0.1", "fd00::1"] {
        check(NameRule::IpAddress, name, &[]);
    }
}

#[test]
fn names_that_are_not_have_upstream_texts() {
    for name in ["Bad_Name", "-a", "a-", "a..b", ".a", "a.-b", "", "é"] {
        check(NameRule::DnsSubdomain, name, &[SUBDOMAIN_FAULT]);
    }
    check(NameRule::DnsSubdomain, &"a".repeat(254), &["must be no more than 253 characters"]);
    check(NameRule::DnsLabel, "a.b", &["must not contain dots"]);
    check(NameRule::DnsLabel, "A", &[LABEL_FAULT]);
    check(NameRule::DnsLabel, &"a".repeat(64), &["must be no more than 63 characters"]);
    check(NameRule::Dns1035Label, "0-a", &[DNS_1035_FAULT]);
    check(NameRule::Dns1035Label, "a.b", &[DNS_1035_FAULT]);
    check(NameRule::PathSegment, "..", &["may not be '..'"]);
    check(NameRule::PathSegment, "a/b%c", &["may not contain '/'", "may not contain '%'"]);
    check(NameRule::PathSegment, "a\0", &["must not contain a zero byte"]);
    check(NameRule::PathSegment, &"a".repeat(2049), &["must be no more than 2048 bytes"]);
    check(NameRule::Stored, &"a\0".repeat(2049), &[]);
    check(NameRule::IpAddress, "x", &["ParseAddr(\"x\"): unable to parse IP"]);
    check(NameRule::IpAddress, "FD00::1", &["must be a canonical format IP address"]);
}

#[test]
fn prefixes_may_end_in_a_dash() {
    assert!(NameRule::DnsSubdomain.check("g-", true).is_empty());
    assert!(NameRule::DnsLabel.check("g--", true).is_empty());
    assert_eq!(NameRule::DnsSubdomain.check("-", true), [SUBDOMAIN_FAULT]);
    assert_eq!(NameRule::DnsSubdomain.check("G-x", true), [SUBDOMAIN_FAULT]);
    assert!(NameRule::PathSegment.check("..", true).is_empty());
}

#[test]
fn label_keys() {
    let long = "a".repeat(64);
    for key in ["a", "A_b.c-d", "example.com/Name", &long[1..]] {
        assert!(label_key_faults(key).is_empty(), "{key}");
    }
    for (key, faults) in [
        ("-a", vec![format!("name part {KEY_FAULT}")]),
        ("", vec!["name part must be non-empty".to_owned(), format!("name part {KEY_FAULT}")]),
        ("/a", vec!["prefix part must be non-empty".to_owned()]),
        ("Example.com/a", vec![format!("prefix part {SUBDOMAIN_FAULT}")]),
        (long.as_str(), vec!["name part must be no more than 63 bytes".to_owned()]),
        (
            "a/b/c",
            vec![format!(
                "a valid label key {KEY_FAULT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )],
        ),
    ] {
        assert_eq!(label_key_faults(key), faults, "{key}");
    }
}

#[test]
fn label_values() {
    assert!(["", "a", "A.b_c-1"].into_iter().all(|value| label_value_faults(value).is_empty()));
    assert_eq!(label_value_faults(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    assert_eq!(
        label_value_faults("b c"),
        [
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
          and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
          is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ]
    );
}

#[test]
fn generated_names_keep_the_base_and_fit() {
    let random = SeededRandom::new(3);
    assert!(generate_name("g-", &random).starts_with("g-"));
    assert_eq!(generate_name(&"a".repeat(300), &random).len(), 63);
    // A character is never split.
    assert!(generate_name(&"é".repeat(40), &random).chars().count() <= 34);
}

/// The subdomain rule by its regular expression.
fn subdomain_by_regex(text: &str) -> bool {
    let alnum = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut previous = '.';
    for c in text.chars() {
        let fits = match c {
            '.' => alnum(previous),
            '-' => previous != '.',
            c => alnum(c),
        };
        if !fits {
            return false;
        }
        previous = c;
    }
    alnum(previous)
}

proptest! {
    #[test]
    fn subdomains_follow_the_regular_expression(name in "[ab0.-]{0,8}") {
        prop_assert_eq!(NameRule::DnsSubdomain.check(&name, false).is_empty(), subdomain_by_regex(&name));
    }

    #[test]
    fn each_name_rule_implies_the_looser_ones(name in "[a-c0-9.-]{0,10}") {
        let valid = |rule: NameRule| rule.check(&name, false).is_empty();
        prop_assert!(!valid(NameRule::Dns1035Label) || valid(NameRule::DnsLabel));
        prop_assert!(!valid(NameRule::DnsLabel) || valid(NameRule::DnsSubdomain));
        prop_assert!(!valid(NameRule::DnsSubdomain) || valid(NameRule::PathSegment));
        prop_assert!(!valid(NameRule::DnsLabel) || label_value_faults(&name).is_empty());
    }

    #[test]
    fn a_valid_prefix_leads_to_a_valid_name(base in "[a-z0-9]([a-z0-9]|-){0,70}", seed in any::<u64>()) {
        let base = base.get(..63).unwrap_or(&base);
        prop_assume!(NameRule::DnsLabel.check(base, true).is_empty());
        let name = generate_name(base, &SeededRandom::new(seed));
        prop_assert!(NameRule::DnsLabel.check(&name, false).is_empty(), "{}", name);
    }

    #[test]
    fn any_text_is_validated(text in ".{0,80}", prefix in any::<bool>()) {
        for rule in [NameRule::DnsSubdomain, NameRule::DnsLabel, NameRule::Dns1035Label, NameRule::PathSegment] {
            rule.check(&text, prefix);
        }
        label_key_faults(&text);
        generate_name(&text, &SeededRandom::new(0));
    }
}
