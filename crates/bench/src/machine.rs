//! The measured machine: its description, and its limit of open files.
//!
//! Figures are only comparable on the same machine, so each report names it.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use time::OffsetDateTime;
use time::macros::format_description;

/// Date, processor, cores, memory and kernel, in one line.
pub(crate) fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let day = OffsetDateTime::now_utc().format(format_description!("[year]-[month]-[day]")).unwrap_or_default();
    let processor = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or_else(String::new, |kilobytes| format!(", {} GB", (kilobytes + 512 * 1024) / (1024 * 1024)));
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{day}; {processor}, {cores} cores{memory}; Linux {}", kernel.trim())
}

/// Raises this process's limit of open files, which the server inherits.
pub(crate) fn allow_open_files(needed: usize) -> Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits").context("cannot read the limits of this process")?;
    let soft = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next());
    if soft.is_some_and(|soft| soft == "unlimited" || soft.parse().is_ok_and(|soft: usize| soft >= needed)) {
        return Ok(());
    }
    // The standard library cannot set limits. util-linux can, also for another process.
    let pid = std::process::id().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={needed}:")]).status();
    ensure!(
        status.is_ok_and(|status| status.success()),
        "the measurement needs {needed} open files: run it after `ulimit -n {needed}`"
    );
    Ok(())
}
