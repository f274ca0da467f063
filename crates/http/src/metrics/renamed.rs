//! Metrics that were renamed. Each is exposed under its deprecated name too, for one release.
//!
//! `docs/reference/metrics.md` lists both names, so that dashboards and alerts can be changed before the next release.

/// The current name of a metric, and the name that it had in release 0.1.0.
const RENAMED: [(&str, &str); 12] = [
    ("keelson_cel_programs_bytes", "keelson_programs_bytes"),
    ("keelson_cel_programs_compiled_total", "keelson_programs_compiled_total"),
    ("keelson_cel_programs_schemas", "keelson_programs_schemas"),
    ("keelson_connections_evicted_total", "keelson_connections_displaced_total"),
    ("keelson_connections_header_limit_exceeded_total", "keelson_connections_large_heads_total"),
    ("keelson_connections_inline_served_total", "keelson_connections_kept_at_the_door_total"),
    ("keelson_conversion_cache_hits_total", "keelson_conversions_spared_total"),
    ("keelson_conversion_webhook_objects_total", "keelson_conversions_asked_total"),
    ("keelson_etcd_progress_writes_total", "keelson_etcd_ticks_total"),
    ("keelson_lists_aborted_total", "keelson_lists_cut_total"),
    ("keelson_responses_aborted_total", "keelson_answers_unread_total"),
    ("keelson_responses_slow_total", "keelson_answers_slow_total"),
];

/// The deprecated name of a metric, if it was renamed.
pub(super) fn deprecated_name(name: &str) -> Option<&'static str> {
    let at = RENAMED.binary_search_by(|(current, _)| (*current).cmp(name)).ok()?;
    Some(RENAMED[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_metrics_are_sorted_and_keep_their_type() {
        assert!(RENAMED.is_sorted());
        for (current, deprecated) in RENAMED {
            assert_eq!(deprecated_name(current), Some(deprecated));
            assert_eq!(current.ends_with("_total"), deprecated.ends_with("_total"), "{current}");
        }
        assert_eq!(deprecated_name("keelson_connections"), None);
    }
}
