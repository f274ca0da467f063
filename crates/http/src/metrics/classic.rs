//! The classic text format, which differs from OpenMetrics in how counters are headed and in having no end mark.
//!
//! The metrics are encoded once, as OpenMetrics, and rewritten line by line for scrapers that ask for the older format.

/// Counters to which upstream has given no `_total`, which OpenMetrics puts behind all.
const WITHOUT_TOTAL: [&str; 2] = ["authentication_attempts", "authenticated_user_requests"];

/// Rewrites an OpenMetrics text. In it, the heads of a counter lack the `_total` that its samples have.
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
}
