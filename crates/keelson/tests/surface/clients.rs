//! Tests of generated clients: the documents of OpenAPI v3 are enough for a client in Python and one in TypeScript, of
//! built-in and custom kinds. Both compile and use the server.
//!
//! The generators are not in this repository: `cargo xtask test` fetches them, or reports that it can't.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// The variables with the directories of the generators.
const PYTHON: &str = "KEELSON_TEST_OPENAPI_GENERATOR";
const NPM: &str = "KEELSON_TEST_NPM";
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/surface/clients");
/// The documents, with the name of the client of each.
const DOCUMENTS: [(&str, &str); 2] = [("api/v1", "core"), ("apis/promised.example.org/v1", "promised")];
/// The longest time of a generator, a compiler or a client.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server with a custom kind, the documents in files, and the credentials of the clients.
struct Setup {
    server: TestServer,
    files: TempDir,
    token: String,
}

impl Setup {
    async fn make() -> Self {
        let server = TestServer::start().await;
        let raw = server.raw();
        let definitions: Value = serde_json::from_str(include_str!("documented/definition.json")).unwrap();
        raw.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definitions[0]).await.expect(201);
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        raw.post(accounts, &json!({ "metadata": { "name": "clients" } })).await.expect(201);
        let binding = json!({
            "metadata": { "name": "clients" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "clients", "namespace": "default" }],
        });
        raw.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
        let token = raw.post(format!("{accounts}/clients/token"), &json!({})).await.expect(201).json();
        let files = TempDir::new().unwrap();
        for (document, name) in DOCUMENTS {
            let document = until_there(&raw, &format!("/openapi/v3/{document}")).await;
            std::fs::write(files.path().join(format!("{name}.json")), document.text()).unwrap();
        }
        let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
        let authority = kubeconfig.split("certificate-authority-data:").nth(1).unwrap().split_whitespace().next();
        let authority = base64::engine::general_purpose::STANDARD.decode(authority.unwrap().trim_matches('"'));
        std::fs::write(files.path().join("ca.pem"), authority.unwrap()).unwrap();
        let token = token["status"]["token"].as_str().unwrap().to_owned();
        Self { server, files, token }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Runs a command in the directory of the files, with the address and the credentials. It prints `passed`.
    async fn use_client(&self, command: &mut Command) {
        command.env("CLIENT_URL", self.server.url()).env("CLIENT_TOKEN", &self.token);
        command.env("CLIENT_CA", self.path("ca.pem")).env("NODE_EXTRA_CA_CERTS", self.path("ca.pem"));
        assert!(self.run(command).await.ends_with("passed\n"));
    }

    /// Runs a command in the directory of the files and returns its output.
    async fn run(&self, command: &mut Command) -> String {
        command.current_dir(self.files.path()).stdin(Stdio::null()).kill_on_drop(true);
        let ended = tokio::time::timeout(PATIENCE, command.output()).await.expect("the command ends").unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(ended.status.success(), "{command:?}\n{}\n{}", text(&ended.stdout), text(&ended.stderr));
        text(&ended.stdout)
    }
}

/// Reads a path until the server has what belongs there.
async fn until_there(raw: &Raw, path: &str) -> Answer {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = raw.get(path).await;
        if answer.status == 200 {
            return answer;
        }
        assert!(tokio::time::Instant::now() < end, "{path}: {}", answer.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The directory in a variable of the environment.
#[allow(clippy::print_stderr, reason = "reports the tests that did not run")]
fn directory(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty());
    if path.is_none() {
        eprintln!("NOT run: {variable} names no generator");
    }
    path.map(PathBuf::from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generated_client_in_python_uses_the_server() {
    let Some(packages) = directory(PYTHON) else { return };
    let setup = Setup::make().await;
    for (_, name) in DOCUMENTS {
        let mut command = Command::new("java");
        command.arg("-jar").arg(packages.join("openapi_generator_cli/openapi-generator.jar"));
        command.args(["generate", "--generator-name", "python", "--input-spec", &format!("{name}.json")]);
        command.args(["--output", name, "--additional-properties", &format!("packageName={name}_v1")]);
        let parts = "apis,models,supportingFiles,apiDocs=false,modelDocs=false,apiTests=false,modelTests=false";
        setup.run(command.args(["--global-property", parts])).await;
        let package = format!("{name}/{name}_v1");
        setup.run(Command::new("python3").args(["-m", "compileall", "-q", "-j", "2", &package])).await;
    }
    let paths = [packages, setup.path("core"), setup.path("promised")];
    let mut client = Command::new("python3");
    client.arg(Path::new(SOURCES).join("smoke.py")).env("PYTHONPATH", std::env::join_paths(paths).unwrap());
    setup.use_client(&mut client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generated_client_in_typescript_uses_the_server() {
    let Some(packages) = directory(NPM) else { return };
    let setup = Setup::make().await;
    let modules = packages.join("node_modules");
    std::os::unix::fs::symlink(&modules, setup.path("node_modules")).unwrap();
    std::fs::write(setup.path("package.json"), r#"{ "type": "module" }"#).unwrap();
    std::fs::copy(Path::new(SOURCES).join("smoke.ts"), setup.path("smoke.ts")).unwrap();
    for (_, name) in DOCUMENTS {
        let mut command = Command::new("node");
        command.arg(modules.join("openapi-typescript/bin/cli.js")).arg(format!("{name}.json"));
        command.args(["--default-non-nullable", "false", "--empty-objects-unknown"]);
        setup.run(command.args(["--output", &format!("{name}.d.ts")])).await;
    }
    let mut compiler = Command::new("node");
    compiler.arg(modules.join("typescript/bin/tsc")).args(["--strict", "--target", "es2022", "--module", "nodenext"]);
    setup.run(compiler.args(["--lib", "es2022,dom,dom.iterable", "smoke.ts"])).await;
    setup.use_client(Command::new("node").arg("smoke.js")).await;
}
