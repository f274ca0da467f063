//! Reports that the server is ready: as text lines, as one line of JSON, and in a file.
//!
//! The lines are printed on standard output, or on standard error if the audit log uses standard output. They are not
//! part of the log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use keelson_server::RunningServer;
use serde_json::json;

use crate::args::Output;
use crate::output;
use crate::ready_file::ReadyFile;

/// The time to wait for readiness before the text output shows the server's address anyway.
const READY_PATIENCE: Duration = Duration::from_secs(10);

/// The settings of the announcement.
pub(crate) struct Announcement {
    pub(crate) output: Output,
    pub(crate) ready_file: Option<PathBuf>,
    pub(crate) data_dir: PathBuf,
    pub(crate) console: bool,
    /// True where the audit log goes to standard output.
    pub(crate) beside_audit: bool,
    /// True for a server that removes its data directory at the end.
    pub(crate) ephemeral: bool,
    /// The socket for forks, if the server has one.
    pub(crate) fork_socket: Option<PathBuf>,
}

impl Announcement {
    /// Announces the server once it is ready, and never returns. Dropping the future removes the readiness file.
    ///
    /// # Errors
    /// When the file can't be written. Its reader would wait forever.
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

    /// The line of JSON.
    fn line(&self, server: &RunningServer) -> String {
        let mut line = json!({
            "url": server.url(),
            "kubeconfig": server.kubeconfig(),
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "dataDirectory": self.data_dir,
            "serverId": server.server_id(),
        });
        if let Some(socket) = &self.fork_socket {
            line["forkSocket"] = json!(socket);
        }
        line.to_string()
    }

    /// The lines for a server that is not ready after the wait.
    fn waiting(&self, server: &RunningServer) -> Vec<String> {
        let url = server.url();
        let everywhere = everywhere(server);
        vec![format!(
            "keelson listens on {url}{everywhere} and is not ready yet: {url}/readyz?verbose names the checks that fail"
        )]
    }

    /// The lines for a ready server: its address, its files, and the commands to try first.
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

/// The address of the listener, for a server that listens on all addresses.
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

/// A path, quoted for a shell.
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
