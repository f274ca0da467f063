//! `keelson kubeconfig`: the kubeconfig that a server wrote into its data directory, for use on another machine.
//!
//! An image of the server has no shell that could print the file.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

/// Prints the kubeconfig of a data directory, with another address of the server where one is given.
///
/// # Errors
/// When it can't be read or written.
pub(crate) fn print(data_dir: &Path, server: Option<&str>) -> anyhow::Result<()> {
    let file = data_dir.join("kubeconfig");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("reading {}; --data-dir says where the server keeps it", file.display()))?;
    let text = server.map_or_else(|| text.clone(), |server| with_server(&text, server));
    std::io::stdout().lock().write_all(text.as_bytes()).context("writing to standard output")
}

/// The kubeconfig with another address of the server.
fn with_server(text: &str, server: &str) -> String {
    let line = |line: &str| match line.split_once("server: ") {
        Some((indent, _)) if indent.trim().is_empty() => format!("{indent}server: {server}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_alone_is_replaced() {
        let text = "clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n  name: server: x\n";
        let expected = "clusters:\n- cluster:\n    server: https://api.example.org\n  name: server: x\n";
        assert_eq!(with_server(text, "https://api.example.org"), expected);
    }
}
