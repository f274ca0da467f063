//! Durations in the form of Go, such as `1m30s` or `500ms`.
//!
//! A duration may be negative: validation refuses it in upstream's words, which show it.

/// Reads a duration in nanoseconds.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let (mut rest, mut nanos) = (rest, 0_f64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|at| *at > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        let behind = &rest[digits..];
        let end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        nanos += number * unit(&behind[..end])?;
        rest = &behind[end..];
    }
    if nanos > i64::MAX as f64 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is in the range of nanoseconds that was just checked")]
    let whole = nanos as i64;
    Some(if negative { -whole } else { whole })
}

/// The nanoseconds of a unit.
fn unit(name: &str) -> Option<f64> {
    Some(match name {
        "ns" => 1.,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3_600e9,
        _ => return None,
    })
}

/// Writes a duration as Go does.
pub(super) fn show(nanos: i64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let size = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    if size > 0 && size < SECOND {
        let (unit, name) = [(1_000_000, "ms"), (1_000, "µs"), (1, "ns")]
            .into_iter()
            .find(|(unit, _)| size >= *unit)
            .unwrap_or((1, "ns"));
        return format!("{sign}{}{name}", size as f64 / unit as f64);
    }
    let (minutes, seconds) = (size / SECOND / 60, (size % (60 * SECOND)) as f64 / SECOND as f64);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in
            [("3s", 3_000_000_000), ("1m30s", 90_000_000_000), ("-5s", -5_000_000_000), ("0", 0), ("1.5ms", 1_500_000)]
        {
            assert_eq!(parse(text), Some(nanos), "{text}");
        }
        for text in ["", "5", "s", "1x", "-", "3 s", "99999999999h"] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["3s", "1m30s", "-5s", "500ms", "0s", "1h0m0s"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
    }
}
