//! The words with which a server says that it is there: lines for people, one line of JSON, a file.
//!
//! They go to standard output, and to standard error where the audit log has standard output. The log is another matter.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use keelson_server::RunningServer;
use serde_json::json;

use crate::args::Output;
use crate::output;
use crate::ready_file::ReadyFile;

/// The time that a server may take to be ready before people are shown its address all the same.
const READY_PATIENCE: Duration = Duration::from_secs(10);

/// The settings of the announcement.
pub(crate) struct Announcement {
    pub(crate) output: Output,
    pub(crate) ready_file: Option<PathBuf>,
    pub(crate) data_dir: PathBuf,
    pub(crate) console: bool,
    /// True where the audit log goes to standard output.
    pub(crate) beside_audit: bool,
    /// True for a server that leaves nothing behind.
    pub(crate) ephemeral: bool,
}

impl Announcement {
    /// Announces a server once it is ready, and never returns: the file of readiness goes when this is dropped.
    ///
    /// # Errors
    /// When the file can't be written: its reader would wait for ever.
    pub(crate) async fn make(&self, server: &RunningServer) -> anyhow::Result<()> {
        if self.output == Output::Text && tokio::time::timeout(READY_PATIENCE, server.ready()).await.is_err() {
            self.print(&self.waiting(server));
        }
        server.ready().await;
        let _written = match &self.ready_file {
            Some(path) => {
                let written = ReadyFile::write(path, &server.url());
                Some(written.with_context(|| format!("writing --ready-file {}", path.display()))?)
            }
            None => None,
        };
        match self.output {
            Output::Text => self.print(&self.lines(server)),
            Output::Json => output::announce(self.line(server)),
            Output::Silent => {}
        }
        std::future::pending().await
    }

    fn print(&self, lines: &[String]) {
        let print: fn(&String) =
            if self.beside_audit { |line| output::note(line) } else { |line| output::announce(line) };
        lines.iter().for_each(print);
    }

    /// The one line of JSON.
    fn line(&self, server: &RunningServer) -> String {
        json!({
            "url": server.url(),
            "kubeconfig": server.kubeconfig(),
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "dataDirectory": self.data_dir,
            "serverId": server.server_id(),
        })
        .to_string()
    }

    /// The state of a server that is not ready in time.
    fn waiting(&self, server: &RunningServer) -> Vec<String> {
        let url = server.url();
        let everywhere = everywhere(server);
        vec![format!(
            "keelson listens on {url}{everywhere} and is not ready yet: {url}/readyz?verbose names the checks that fail"
        )]
    }

    /// The address of a server that is ready, and the five lines that lead on from there.
    fn lines(&self, server: &RunningServer) -> Vec<String> {
        let url = server.url();
        let mut lines = vec![
            format!("keelson is ready on {url}{}", everywhere(server)),
            format!("  server id:  {}", server.server_id()),
            format!(
                "  data:       {}{}",
                self.data_dir.display(),
                if self.ephemeral { " (removed at the end)" } else { "" }
            ),
        ];
        if let Some(kubeconfig) = server.kubeconfig() {
            lines.extend(next_steps(kubeconfig));
        }
        if self.console {
            lines.push(format!("  console:    {url}/console/ (keelson token prints a token to sign in with)"));
        }
        lines
    }
}

/// The address on which a server of all addresses listens.
fn everywhere(server: &RunningServer) -> String {
    let addr = server.addr();
    if addr.ip().is_unspecified() { format!(", listening on {addr}") } else { String::new() }
}

/// The commands to try first.
fn next_steps(kubeconfig: &Path) -> [String; 4] {
    let file = quoted(kubeconfig);
    [
        format!("  kubeconfig: {}", kubeconfig.display()),
        format!("  try:        kubectl --kubeconfig {file} get namespaces"),
        format!("  fill it:    keelson demo --kubeconfig {file}"),
        format!("  add a user: keelson user create NAME --role edit --namespace default --kubeconfig {file}"),
    ]
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '@' | ':' | ',');
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_where_a_shell_would_split_it() {
        assert_eq!(quoted(Path::new("/srv/keelson-data/kubeconfig")), "/srv/keelson-data/kubeconfig");
        assert_eq!(quoted(Path::new("/srv/my data/it's")), "'/srv/my data/it'\\''s'");
    }
}
