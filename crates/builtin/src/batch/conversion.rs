//! Conversion of cron jobs from a version that is not served.
//!
//! The versions have the same fields.

use crate::converting::retired::{BETA, Retired, row};

pub(crate) const RETIRED: &[Retired] = &[row("CronJob", "batch", BETA)];
