//! The translation of kube-apiserver's flags into a command line of `keelson serve`.
//!
//! Defaults are those of kube-apiserver where they differ. Environment variables are ignored, because a test process
//! passes all of its variables to its children.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use keelson_meta::features;

use super::etcd::Stores;
use super::flags::{Class, FLAGS, FlagValue, Form};
use crate::args::{Args, Command, Output, Serve, WatchedProcess};

/// Flags that are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TranslatedFlag {
    AuthorizationMode,
    BindAddress,
    CertDir,
    Controllers,
    EtcdCaFile,
    EtcdCertFile,
    EtcdKeyFile,
    EtcdPrefix,
    EtcdServers,
    FeatureGates,
    Help,
    LoggingFormat,
    SecurePort,
    ServiceRange,
    TlsCertFile,
    TlsPrivateKeyFile,
    Verbosity,
    Version,
}

const BIND_ADDRESS: &str = "0.0.0.0";
const SECURE_PORT: &str = "6443";
const CERT_DIR: &str = "/var/run/kubernetes";
const SERVICE_RANGE: &str = "10.0.0.0/24";
const AUTHORIZATION_MODE: &str = "AlwaysAllow";
const EVENT_TTL: &str = "1h";
const ETCD_PREFIX: &str = "/registry";
/// The subdirectory of `--cert-dir` for the server's own files, if the store is etcd.
const OWN_DIRECTORY: &str = "keelson";

/// A parsed command line.
pub(super) struct Line(Vec<FlagValue>);

/// The settings of a server.
pub(super) struct TranslatedCommand {
    pub(super) serve: Box<Serve>,
    /// Flags that have no effect, each with its reason.
    pub(super) notes: Vec<String>,
}

/// The location of the server's files and of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) data_dir: PathBuf,
    pub(super) store: String,
    /// True for a store in the directory that the stand-in for etcd provides.
    pub(super) is_lent: bool,
}

impl Line {
    /// Checks the values of parsed flags.
    ///
    /// # Errors
    /// When a flag has a value that would make kube-apiserver stricter than this server is.
    pub(super) fn new(given: Vec<FlagValue>) -> Result<Self, String> {
        for FlagValue { flag, value } in &given {
            if let Class::Only(known, why) = flag.class
                && !known.contains(&value.as_str())
            {
                return Err(format!(
                    "invalid argument {value:?} for \"--{}\" flag: not supported by keelson: {why}",
                    flag.name
                ));
            }
        }
        Ok(Self(given))
    }

    pub(super) fn has(&self, own: TranslatedFlag) -> bool {
        self.values(own).next().is_some()
    }

    /// The last value of a flag.
    pub(super) fn value(&self, own: TranslatedFlag) -> Option<&str> {
        self.values(own).last()
    }

    /// The items of a list flag, from all its occurrences.
    pub(super) fn items(&self, own: TranslatedFlag) -> Vec<&str> {
        self.values(own).flat_map(|value| value.split(',')).filter(|item| !item.is_empty()).collect()
    }

    pub(super) fn cert_dir(&self) -> PathBuf {
        PathBuf::from(self.value(TranslatedFlag::CertDir).unwrap_or(CERT_DIR))
    }

    /// The serving certificate and its key: the files of the flags, or those in `--cert-dir`.
    pub(super) fn serving_pair(&self) -> (PathBuf, PathBuf) {
        match (self.value(TranslatedFlag::TlsCertFile), self.value(TranslatedFlag::TlsPrivateKeyFile)) {
            (Some(certificate), Some(key)) if !certificate.is_empty() => (certificate.into(), key.into()),
            _ => ["apiserver.crt", "apiserver.key"].map(|name| self.cert_dir().join(name)).into(),
        }
    }

    /// The location of the server's files for these stores.
    ///
    /// # Errors
    /// When the URL of a store is invalid.
    pub(super) fn place(&self, stores: &Stores) -> Result<Place, String> {
        if let Stores::Lent(directory) = stores {
            let store = format!("sqlite:{}", directory.display());
            return Ok(Place { data_dir: directory.clone(), store, is_lent: true });
        }
        let mut store = format!("etcd://{}{}", self.etcd_hosts()?.join(","), self.etcd_prefix());
        let files = [
            ("ca", TranslatedFlag::EtcdCaFile),
            ("cert", TranslatedFlag::EtcdCertFile),
            ("key", TranslatedFlag::EtcdKeyFile),
        ];
        let is_tls = self.items(TranslatedFlag::EtcdServers).iter().any(|url| url.starts_with("https://"));
        let settings = files.into_iter().filter_map(|(name, own)| Some((name, self.value(own)?)));
        let settings = settings.filter(|(_, value)| !value.is_empty());
        for (number, (name, value)) in settings.chain(is_tls.then_some(("tls", "true"))).enumerate() {
            let begin = if number == 0 { '?' } else { '&' };
            // Writing to a string can't fail.
            let _ = write!(store, "{begin}{name}={}", escaped(value));
        }
        Ok(Place { data_dir: self.cert_dir().join(OWN_DIRECTORY), store, is_lent: false })
    }

    /// The settings of the server.
    ///
    /// # Errors
    /// When a value is invalid.
    pub(super) fn translated(&self, place: &Place, ends_with_parent: bool) -> Result<TranslatedCommand, String> {
        let line = self.serve_line(place)?;
        let args = Args::read_without_environment(line).map_err(|error| {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default();
            text.strip_prefix("error: ").unwrap_or(text).to_owned()
        })?;
        let Command::Serve(mut serve) = args.command else { return Err("the line is one of serve".to_owned()) };
        serve.startup.output = Output::Silent;
        serve.startup.exit_with_parent = ends_with_parent.then_some(WatchedProcess::Parent);
        Ok(TranslatedCommand { serve, notes: self.notes() })
    }

    fn serve_line(&self, place: &Place) -> Result<Vec<String>, String> {
        let mut line = vec!["keelson".to_owned(), "serve".to_owned()];
        let mut add = |name: &str, value: &str| line.push(format!("--{name}={value}"));
        add("bind", &self.bind());
        add("data-dir", &place.data_dir.to_string_lossy());
        add("store", &place.store);
        if place.is_lent {
            add("unsafe-no-fsync", "true");
            add("store-reserve", "0");
        }
        let (certificate, key) = self.serving_pair();
        add("tls-cert-file", &certificate.to_string_lossy());
        add("tls-private-key-file", &key.to_string_lossy());
        let modes = self.items(TranslatedFlag::AuthorizationMode).join(",");
        let has_config = self.0.iter().any(|given| given.flag.name == "authorization-config");
        let modes = if modes.is_empty() { AUTHORIZATION_MODE } else { &modes };
        if !has_config || self.has(TranslatedFlag::AuthorizationMode) {
            add("authorization-mode", modes);
        }
        // kube-apiserver's default. keelson serve keeps events.
        if !self.0.iter().any(|given| given.flag.name == "event-ttl") {
            add("event-ttl", EVENT_TTL);
        }
        // kube-apiserver's default. keelson serve allows them.
        if !self.0.iter().any(|given| given.flag.name == "allow-privileged") {
            add("allow-privileged", "false");
        }
        // Unauthenticated clients never get all rights unless a flag requests it.
        if modes.contains(AUTHORIZATION_MODE) && !has_config {
            add("anonymous-auth", "false");
        }
        let ranges = self.items(TranslatedFlag::ServiceRange).join(",");
        add("service-cluster-ip-range", if ranges.is_empty() { SERVICE_RANGE } else { &ranges });
        add("controllers", &self.items(TranslatedFlag::Controllers).join(","));
        if let Some(level) = self.value(TranslatedFlag::Verbosity) {
            add("v", level);
        }
        match self.value(TranslatedFlag::LoggingFormat) {
            None | Some("text") => {}
            Some("json") => add("log-format", "json"),
            Some(other) => {
                return Err(format!("invalid argument {other:?} for \"--logging-format\" flag: unsupported format"));
            }
        }
        // The default of kube-apiserver. A later gate on the line has precedence.
        add("feature-gates", "StorageVersionAPI=false");
        for gate in self.items(TranslatedFlag::FeatureGates) {
            if let Err(error) = features::setting(gate) {
                return Err(format!("invalid argument {gate:?} for \"--feature-gates\" flag: {error}"));
            }
            add("feature-gates", gate);
        }
        for FlagValue { flag, value } in self.0.iter().filter(|given| matches!(given.flag.class, Class::Same)) {
            let last = self.0.iter().rfind(|given| given.flag.name == flag.name);
            if flag.form != Form::File || last.is_some_and(|last| !last.value.is_empty()) {
                add(flag.name, value);
            }
        }
        Ok(line)
    }

    fn bind(&self) -> String {
        let address =
            self.value(TranslatedFlag::BindAddress).filter(|address| !address.is_empty()).unwrap_or(BIND_ADDRESS);
        let port = self.value(TranslatedFlag::SecurePort).unwrap_or(SECURE_PORT);
        if address.contains(':') {
            format!("[{}]:{port}", address.trim_matches(['[', ']']))
        } else {
            format!("{address}:{port}")
        }
    }

    fn etcd_hosts(&self) -> Result<Vec<&str>, String> {
        let host = |url: &'_ str| -> Option<usize> {
            ["http://", "https://"].iter().find(|scheme| url.starts_with(**scheme)).map(|scheme| scheme.len())
        };
        let servers = self.items(TranslatedFlag::EtcdServers);
        if servers.is_empty() {
            return Err("--etcd-servers must be specified".to_owned());
        }
        let hosts = servers.into_iter().map(|url| match host(url) {
            Some(at) => Ok(url[at..].trim_end_matches('/')),
            None if !url.contains("://") => Ok(url),
            None => {
                Err(format!("invalid argument {url:?} for \"--etcd-servers\" flag: it is not an http or https URL"))
            }
        });
        hosts.collect()
    }

    fn etcd_prefix(&self) -> String {
        let prefix = self.value(TranslatedFlag::EtcdPrefix).unwrap_or(ETCD_PREFIX).trim_matches('/');
        format!("/{prefix}")
    }

    /// The flags without effect, without duplicates.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        let mut add = |note: String| {
            if !notes.contains(&note) {
                notes.push(note);
            }
        };
        for FlagValue { flag, .. } in &self.0 {
            if let Class::Idle(why) = flag.class {
                add(format!("--{} has no effect: {why}", flag.name));
            }
        }
        notes
    }

    fn values(&self, own: TranslatedFlag) -> impl Iterator<Item = &str> {
        let is_it = move |given: &&FlagValue| matches!(given.flag.class, Class::Own(it) if it == own);
        self.0.iter().filter(is_it).map(|given| given.value.as_str())
    }
}

/// The text of `--help`. envtest searches it for a line that begins with blanks and `--insecure-port`.
pub(super) fn help() -> String {
    use super::flags::Form;

    let command = Args::serve_command();
    let described = |name: &str| {
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name))?;
        Some(arg.get_help()?.to_string())
    };
    let mut text = String::from(
        "keelson in the place of kube-apiserver: a Kubernetes API server with kube-apiserver's flags.\n\nUsage:\n  kube-apiserver \
         [flags]\n\nFlags:\n",
    );
    for flag in &FLAGS {
        let form = match flag.form {
            Form::Switch => "",
            Form::Text | Form::File => " string",
            Form::List => " strings",
            Form::Number => " int",
            Form::Duration => " duration",
        };
        let told = match flag.class {
            Class::Same => described(flag.name).unwrap_or_default(),
            Class::Own(own) => own.help().to_owned(),
            Class::Idle(why) => format!("No effect: {why}."),
            Class::Only(known, why) => format!("Only {:?}: {why}.", known.join(", ")),
        };
        let _ = writeln!(text, "      --{}{form}\n                {told}", flag.name);
    }
    text
}

impl TranslatedFlag {
    fn help(self) -> &'static str {
        match self {
            Self::AuthorizationMode => "The authorizers, in their order. AlwaysAllow unless given.",
            Self::BindAddress => "The address to listen on. 0.0.0.0 unless given.",
            Self::CertDir => {
                "The directory with apiserver.crt and apiserver.key, which are made there if they are absent. /var/run/kubernetes unless given."
            }
            Self::Controllers => {
                "The controllers of keelson to run, such as * or namespace-controller. None unless given, as in kube-apiserver."
            }
            Self::EtcdCaFile => "The certificates that sign those of etcd (PEM).",
            Self::EtcdCertFile => "The client certificate for etcd (PEM).",
            Self::EtcdKeyFile => "The private key of --etcd-certfile (PEM).",
            Self::EtcdPrefix => "The beginning of all keys in etcd. /registry unless given.",
            Self::EtcdServers => {
                "The URLs of etcd. keelson's stand-in for etcd lends its data directory to a store of keelson's own."
            }
            Self::FeatureGates => "Feature gates, with the names and the rules of kube-apiserver.",
            Self::Help => "Show this text.",
            Self::LoggingFormat => "The form of the log: text or json.",
            Self::SecurePort => "The port to listen on. 6443 unless given.",
            Self::ServiceRange => {
                "The range of the addresses of services, or one of each IP family. 10.0.0.0/24 unless given."
            }
            Self::TlsCertFile => "The serving certificate (PEM), in place of the one in --cert-dir.",
            Self::TlsPrivateKeyFile => "The private key of --tls-cert-file (PEM).",
            Self::Verbosity => "The level of the log: debug from 4 on, trace from 8 on.",
            Self::Version => "Show the version.",
        }
    }
}

/// Returns true for a directory that envtest made. Its servers must end with the test process.
pub(super) fn is_of_envtest(directory: &Path) -> bool {
    keelson_etcd_double::ends_with_parent(directory)
}

/// A value in the form for the query of a URL.
fn escaped(value: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    value.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::super::flags::read;
    use super::*;
    use crate::args::ListValues as _;

    const ENVTEST: &str = "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 --cert-dir=/t/k8s_test_framework_2 \
                           --client-ca-file=/t/ca.crt --disable-admission-plugins=ServiceAccount --etcd-servers=http://127.0.0.1:2000 \
                           --secure-port=2001 --service-account-issuer=https://127.0.0.1:2001/ --service-account-key-file=/t/sa.crt \
                           --service-account-signing-key-file=/t/sa.key --service-cluster-ip-range=10.0.0.0/24";

    fn line(text: &str) -> Result<Line, String> {
        Line::new(read(text.split_whitespace().map(str::to_owned))?)
    }

    fn translated(text: &str) -> Result<TranslatedCommand, String> {
        let line = line(text)?;
        let place = line.place(&Stores::Lent("/e/keelson".into()))?;
        line.translated(&place, false)
    }

    #[test]
    fn the_flags_of_envtest_make_a_bare_server_on_the_lent_store() {
        let TranslatedCommand { serve, notes } = translated(ENVTEST).unwrap();
        assert_eq!(serve.bind.to_string(), "127.0.0.1:2001");
        assert_eq!(serve.store.as_deref(), Some("sqlite:/e/keelson"));
        assert_eq!(serve.tls_cert_file, Some("/t/k8s_test_framework_2/apiserver.crt".into()));
        assert!(serve.controllers.joined().is_empty() && serve.startup.unsafe_no_fsync);
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn a_real_etcd_is_used_with_its_certificates() {
        let store = |text: &str| line(text).unwrap().place(&Stores::Etcd).unwrap().store;
        let urls = "--etcd-servers=https://a:1,https://b:2 --etcd-servers=https://c:3/";
        assert_eq!(store("--etcd-servers=http://[::1]:5"), "etcd://[::1]:5/registry");
        assert_eq!(
            store(&format!("{urls} --etcd-cafile=/ca&x --etcd-certfile=/c --etcd-keyfile=/k --etcd-prefix=/p/q/")),
            "etcd://a:1,b:2,c:3/p/q?ca=/ca%26x&cert=/c&key=/k&tls=true"
        );
        assert_eq!(line("--v=1").unwrap().place(&Stores::Etcd), Err("--etcd-servers must be specified".to_owned()));
        assert!(line("--etcd-servers=ftp://a").unwrap().place(&Stores::Etcd).is_err());
    }

    #[test]
    fn defaults_are_those_of_kube_apiserver() {
        let serve = translated("--etcd-servers=http://a:1").unwrap().serve;
        assert_eq!(serve.bind.to_string(), "0.0.0.0:6443");
        assert_eq!(serve.tls_private_key_file, Some("/var/run/kubernetes/apiserver.key".into()));
        assert_eq!(serve.service_cluster_ip_range.joined()[0].to_string(), "10.0.0.0/24");
    }

    #[test]
    fn empty_names_of_files_count_as_missing() {
        let files = FLAGS.iter().filter(|flag| flag.form == Form::File);
        let empty: Vec<String> = files.map(|flag| format!("--{}=", flag.name)).collect();
        assert!(empty.len() > 10);
        let TranslatedCommand { serve, .. } = translated(&format!("{ENVTEST} {}", empty.join(" "))).unwrap();
        assert_eq!(serve.tls_cert_file, Some("/t/k8s_test_framework_2/apiserver.crt".into()));
        assert!(translated(&format!("{ENVTEST} --audit-log-mode=")).is_err());
    }

    #[test]
    fn values_that_users_add_are_read() {
        let serve = |flags: &str| translated(&format!("{ENVTEST} {flags}"));
        assert!(serve("--disable-admission-plugins=").is_ok());
        assert!(serve("--encryption-provider-config=f --encryption-provider-config-automatic-reload").is_ok());
        assert!(serve("--enable-admission-plugins=A,B --authorization-webhook-cache-authorized-ttl=0").is_ok());
        assert_eq!(serve("--bind-address=::1").unwrap().serve.bind.to_string(), "[::1]:2001");
        assert_eq!(serve("--controllers=* --v=4").unwrap().serve.controllers.joined(), ["*"]);
        let gates = serve("--feature-gates=WatchList=true,APIListChunking=false --feature-gates=KMSv1=1").unwrap();
        let gates: Vec<_> = gates.serve.feature_gates.joined();
        let expected = [("StorageVersionAPI", false), ("WatchList", true), ("APIListChunking", false), ("KMSv1", true)];
        assert_eq!(gates, expected.map(|(name, on)| (name.to_owned(), on)));
        let emulated = serve("--emulated-version=kube=1.36").unwrap().serve.emulated_version;
        assert_eq!(emulated, Some(keelson_meta::Release::V1_36));
    }

    #[test]
    fn a_server_that_would_be_less_strict_is_refused() {
        let refused = |flags: &str| translated(&format!("{ENVTEST} {flags}")).err().unwrap();
        assert!(refused("--service-account-lookup=false").contains("deleted accounts have no valid tokens"));
        assert!(refused("--secure-port=many").contains("many"));
        assert!(refused("--feature-gates=A").contains("missing bool value"));
        assert!(translated(&format!("{ENVTEST} --tls-min-version=VersionTLS12 --storage-backend=etcd3")).is_ok());
    }

    /// Searches the text as envtest does.
    #[test]
    fn help_has_every_flag_and_no_insecure_port() {
        let help = help();
        assert!(!help.contains("insecure-port"));
        for flag in &FLAGS {
            assert!(help.contains(&format!("      --{}", flag.name)), "{}", flag.name);
        }
    }
}
