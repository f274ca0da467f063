//! Tests of `keelson storage versions`: its report about the storage versions of servers and of stored objects, and its
//! wait for a migration.

use std::process::Output;
use std::time::Duration;

use keelson_testkit::ProcessServer;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// All controllers, including the storage version migrator.
const CONTROLLERS: [&str; 2] = ["--controllers", "*"];

/// Runs `keelson storage versions`. Returns true if it succeeded, its output and its errors.
async fn versions(server: &ProcessServer, args: &[&str]) -> (bool, String, String) {
    let data = server.data_dir().to_str().unwrap();
    let all = [&["storage", "versions", "--data-dir", data], args].concat();
    let Output { status, stdout, stderr } = Command::new(KEELSON).args(all).output().await.unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// The cells of a resource's row.
fn row<'t>(table: &'t str, resource: &str) -> Vec<&'t str> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(resource));
    line.unwrap_or_else(|| panic!("{resource} is not in {table}")).split_whitespace().collect()
}

fn storing(version: &str) -> keelson_testkit::ProcessServerBuilder {
    let setting = format!("horizontalpodautoscalers.autoscaling={version}");
    ProcessServer::builder(KEELSON).args(CONTROLLERS).args(["--storage-version", &setting])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_shows_migrations_and_waits_for_them() {
    let mut server = storing("v1").start().await;
    for number in 0..25 {
        let of = json!({ "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" });
        let spec = json!({ "scaleTargetRef": of, "maxReplicas": 3 });
        server
            .raw()
            .post(SCALERS, &json!({ "metadata": { "name": format!("s{number}") }, "spec": spec }))
            .await
            .expect(201);
    }
    let (done, table, complaints) = versions(&server, &[]).await;
    assert!(done, "{complaints}");
    let scalers = "horizontalpodautoscalers.autoscaling";
    assert_eq!(row(&table, scalers), [scalers, "autoscaling/v1", "yes", "25", "0"]);
    assert_eq!(row(&table, "RESOURCE"), ["RESOURCE", "ENCODED", "AS", "AGREED", "STORED", "OLDER"]);
    assert!(!table.contains("no agreement") && !table.contains("migrations:"), "{table}");

    server.terminate().await;
    server.change(storing("v2"));
    server.restart().await;
    let (done, told, complaints) = versions(&server, &["--wait", "--timeout", "60s"]).await;
    assert!(done, "{told}{complaints}");
    let end = "all servers agree, and everything is stored in the versions that they agree on";
    assert_eq!(told.lines().last(), Some(end));
    let (_, table, _) = versions(&server, &[]).await;
    assert_eq!(row(&table, scalers), [scalers, "autoscaling/v2", "yes", "25", "0"]);

    let wardle = json!({
        "metadata": { "name": "v1.wardle.example.com" },
        "spec": {
            "group": "wardle.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true, "service": { "namespace": "default", "name": "wardle" },
        },
    });
    server.raw().post("/apis/apiregistration.k8s.io/v1/apiservices", &wardle).await.expect(201);
    let (_, table, _) = versions(&server, &[]).await;
    let unmanaged =
        "not managed: wardle.example.com/v1 is served by default/wardle, which publishes no storage versions";
    assert!(table.lines().any(|line| line == unmanaged), "{table}");

    // Another kind of server on the same store does not publish its versions.
    let other = json!({
        "metadata": { "name": "other", "labels": { "apiserver.kubernetes.io/identity": "kube-apiserver" } },
        "spec": { "holderIdentity": "other_1", "leaseDurationSeconds": 3600, "renewTime": "2999-01-01T00:00:00.000000Z" },
    });
    server.raw().post(LEASES, &other).await.expect(201);
    let (done, table, _) = versions(&server, &[]).await;
    assert!(done && row(&table, scalers)[2] == "no", "{table}");
    assert!(table.contains("other has a lease and publishes no storage versions, as a kube-apiserver"), "{table}");
    let why = " more: other has a lease and no entry here: its version is not known";
    let all = |line: &str| line.starts_with("  apiservices.apiregistration.k8s.io and ") && line.ends_with(why);
    assert!(table.lines().any(all), "it is so of all, and told once: {table}");
    let (done, _, complaints) = versions(&server, &["--wait", "--timeout", "1s"]).await;
    assert!(
        !done && complaints.contains("keelson: the migration is not finished after 1s: there is no agreement on "),
        "{complaints}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_version_commands_fail_with_an_explanation() {
    let empty = TempDir::new().unwrap();
    let mut server = ProcessServer::builder(KEELSON).args(["--feature-gates", "StorageVersionAPI=false"]).start().await;
    let check = async |args: &[&str], expected: &str| {
        let asked = Command::new(KEELSON).args(["storage", "versions"]).args(args).output();
        let asked = tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap().unwrap();
        let said = String::from_utf8(asked.stderr).unwrap();
        assert!(!asked.status.success() && said.lines().count() == 1, "{said}");
        assert!(said.starts_with("keelson: ") && said.contains(expected), "{said}");
    };
    let nowhere = empty.path().to_str().unwrap().to_owned();
    check(&["--data-dir", &nowhere], "/kubeconfig (--kubeconfig says which;").await;
    let broken = empty.path().join("broken");
    std::fs::write(&broken, "clusters: 5").unwrap();
    check(&["--kubeconfig", broken.to_str().unwrap()], "/broken (--kubeconfig says which;").await;
    let data = server.data_dir().to_str().unwrap().to_owned();
    check(&["--data-dir", &data], "has no storage versions: its feature gate StorageVersionAPI is off").await;
    let kubeconfig = std::fs::read_to_string(server.data_dir().join("kubeconfig")).unwrap();
    server.terminate().await;
    let kept = empty.path().join("kept");
    std::fs::write(&kept, kubeconfig).unwrap();
    check(&["--kubeconfig", kept.to_str().unwrap()], "a request to the server at ").await;
}
