//! The classic text format. It differs from OpenMetrics in the names of counter families, and has no end mark.
//!
//! The metrics are encoded once as OpenMetrics, and rewritten line by line for scrapers that request the classic
//! format.

/// Counters without `_total` in upstream's names. The OpenMetrics encoder appends it to all.
const WITHOUT_TOTAL: [&str; 2] = ["authentication_attempts", "authenticated_user_requests"];

/// The text before the upper end of a bucket.
const END: &str = "le=\"";

/// Rewrites an OpenMetrics text. In OpenMetrics, the family name of a counter lacks the `_total` of its samples.
pub(super) fn from_open_metrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines().filter(|line| *line != "# EOF") {
        if line.starts_with("# HELP ") {
            help = Some(line);
            continue;
        }
        let counter = line.strip_prefix("# TYPE ").and_then(|head| head.strip_suffix(" counter"));
        let heads = help.take().into_iter().chain([line]);
        for line in heads {
            match counter {
                Some(name) if WITHOUT_TOTAL.contains(&name) => out.push_str(line),
                Some(name) => out.push_str(&line.replacen(name, &format!("{name}_total"), 1)),
                None => match WITHOUT_TOTAL.iter().find(|name| is_sample(line, name)) {
                    Some(name) => out.push_str(&line.replacen(&format!("{name}_total"), name, 1)),
                    None => out.push_str(line),
                },
            }
            out.push('\n');
        }
    }
    with_plain_ends(&out)
}

/// Writes the upper ends of buckets as Go does: `le="1"`, not `le="1.0"`. Alert rules select buckets by these texts.
fn with_plain_ends(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(END) {
        let (before, behind) = rest.split_at(place + END.len());
        out.push_str(before);
        let length = behind.find('"').unwrap_or(behind.len());
        out.push_str(behind[..length].strip_suffix(".0").unwrap_or(&behind[..length]));
        rest = &behind[length..];
    }
    out.push_str(rest);
    out
}

fn is_sample(line: &str, counter: &str) -> bool {
    line.strip_prefix(counter).is_some_and(|rest| rest.starts_with("_total{"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_headed_by_their_full_name() {
        let open =
            "# HELP a Words.\n# TYPE a counter\na_total{x=\"1\"} 2\n# HELP b Words.\n# TYPE b gauge\nb 1\n# EOF\n";
        let classic = "# HELP a_total Words.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n\
                       # HELP b Words.\n# TYPE b gauge\nb 1\n";
        assert_eq!(from_open_metrics(open), classic);
        let open = "# HELP authentication_attempts Words.\n# TYPE authentication_attempts counter\n\
                    authentication_attempts_total{result=\"success\"} 2\n# EOF\n";
        let classic = open.replace("_total", "").replace("# EOF\n", "");
        assert_eq!(from_open_metrics(open), classic, "nor have two of upstream's a full name");
    }

    #[test]
    fn ends_of_buckets_are_written_as_go_writes_them() {
        let open = "a_bucket{le=\"0.05\",x=\"1\"} 2\na_bucket{le=\"10.0\"} 2\na_bucket{le=\"+Inf\"} 3\nb 2.0\n";
        let classic = "a_bucket{le=\"0.05\",x=\"1\"} 2\na_bucket{le=\"10\"} 2\na_bucket{le=\"+Inf\"} 3\nb 2.0\n";
        assert_eq!(from_open_metrics(open), classic);
    }
}
