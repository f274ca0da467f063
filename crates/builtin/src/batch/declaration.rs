//! The declarations of jobs and cron jobs.
//!
//! Jobs can be selected by the number of succeeded pods.

use keelson_resources::FieldRefusal;
use keelson_resources::declare::{FieldDeclaration, GroupDeclaration, STATUS, count, namespaced, served, version};

const GROUP: &str = "batch";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17400,
    versions: &[version("v1", 15)],
    resources: &[
        namespaced(GROUP, "cronjobs", "cronjob", "CronJob")
            .versions(&[served("v1").with(&[STATUS])])
            .short_names(&["cj"])
            .categories(&["all"])
            .counts_generations(),
        namespaced(GROUP, "jobs", "job", "Job")
            .versions(&[served("v1").with(&[STATUS])])
            .categories(&["all"])
            .fields(FieldRefusal::QuotedForKind, JOB_FIELDS)
            .counts_generations(),
    ],
};

/// The field selectors of jobs.
const JOB_FIELDS: &[FieldDeclaration] = &[count("status.successful", &["status.succeeded"])];
