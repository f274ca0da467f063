//! Tests of coordinated leader election: candidates that answer, and the holder that the server writes into their lease.
//!
//! The test is all components at once: it answers pings, and renews or gives up the lease as its holder.

use std::time::{Duration, Instant, SystemTime};

use keelson_meta::clock::rfc3339_micro;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const GROUP: &str = "/apis/coordination.k8s.io";
const MERGE: &str = "application/merge-patch+json";
const PATIENCE: Duration = Duration::from_secs(90);

/// Components with a candidate for one lease. They answer pings, and the holder renews the lease.
struct Components {
    raw: Raw,
}

impl Components {
    fn candidates(&self) -> String {
        format!("{GROUP}/v1beta1/namespaces/default/leasecandidates")
    }

    fn lease_path(&self) -> String {
        format!("{GROUP}/v1/namespaces/default/leases/lock")
    }

    async fn add(&self, name: &str, emulation: &str, binary: &str) {
        let spec = json!({
            "leaseName": "lock", "emulationVersion": emulation, "binaryVersion": binary,
            "strategy": "OldestEmulationVersion", "renewTime": now(),
        });
        let candidate = json!({"metadata": {"name": name}, "spec": spec});
        self.raw.post(self.candidates(), &candidate).await.expect(201);
    }

    /// Answers pings, and lets the holder renew the lease or give it up for a preferred one. Returns the lease.
    async fn act(&self) -> Value {
        let list = self.raw.get(self.candidates()).await.expect(200).json();
        let candidates = list["items"].as_array().unwrap();
        let names: Vec<&str> = candidates.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
        for candidate in candidates {
            let spec = &candidate["spec"];
            let (ping, renewed) = (spec["pingTime"].as_str().unwrap_or_default(), spec["renewTime"].as_str().unwrap());
            if ping > renewed {
                let name = candidate["metadata"]["name"].as_str().unwrap();
                let answer = json!({"spec": {"renewTime": now()}});
                self.raw.patch(format!("{}/{name}", self.candidates()), MERGE, &answer).await.expect(200);
            }
        }
        let lease = self.raw.get(self.lease_path()).await;
        if lease.status == 404 {
            return Value::Null;
        }
        let lease = lease.json();
        let prefers_another = lease["spec"]["preferredHolder"].is_string();
        let change = match lease["spec"]["holderIdentity"].as_str() {
            // A holder without a candidate has vanished.
            Some(holder) if !names.contains(&holder) => return lease,
            Some(holder) if !holder.is_empty() && !prefers_another => {
                json!({"renewTime": now(), "leaseDurationSeconds": 60})
            }
            Some(holder) if !holder.is_empty() => json!({"holderIdentity": "", "preferredHolder": null}),
            _ => return lease,
        };
        self.raw.patch(self.lease_path(), MERGE, &json!({ "spec": change })).await;
        lease
    }

    async fn until_holder(&self, name: &str) -> Value {
        let begun = Instant::now();
        loop {
            let lease = self.act().await;
            if lease["spec"]["holderIdentity"] == name {
                return lease;
            }
            assert!(begun.elapsed() < PATIENCE, "{name} does not hold the lease: {lease}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn now() -> String {
    rfc3339_micro(SystemTime::now())
}

#[tokio::test]
async fn the_candidate_with_the_oldest_emulation_version_gets_the_lease() {
    let builder = TestServer::builder().configure(|config| {
        config.registry.serve(keelson_server::catalogue(), &["coordination.k8s.io/v1beta1=true"]).unwrap();
        config.registry.gates.set(&[("CoordinatedLeaderElection".to_owned(), true)]).unwrap();
    });
    let server = builder.start().await;
    let components = Components { raw: server.raw() };
    components.add("new", "1.36.0", "1.36.0").await;
    components.add("old", "1.35.0", "1.36.0").await;
    let lease = components.until_holder("old").await;
    assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion");
    // The holder keeps a valid lease until it has given it up for a better candidate.
    components.add("older", "1.34.0", "1.36.0").await;
    let begun = Instant::now();
    let mut was_preferred = false;
    loop {
        let lease = components.act().await;
        was_preferred |= lease["spec"]["preferredHolder"] == "older";
        if lease["spec"]["holderIdentity"] == "older" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{lease}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(was_preferred, "the server asked the holder to give the lease up");
    // A lease whose holder vanished goes to the next one after its time.
    components.raw.delete(format!("{}/older", components.candidates())).await.expect(200);
    let expired = json!({"spec": {"leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"}});
    components.raw.patch(components.lease_path(), MERGE, &expired).await.expect(200);
    components.until_holder("old").await;
}

#[tokio::test]
async fn candidates_without_renewals_are_removed() {
    let builder = TestServer::builder().configure(|config| {
        config.registry.serve(keelson_server::catalogue(), &["coordination.k8s.io/v1beta1=true"]).unwrap();
        config.registry.gates.set(&[("CoordinatedLeaderElection".to_owned(), true)]).unwrap();
    });
    let server = builder.start().await;
    let components = Components { raw: server.raw() };
    components.add("gone", "1.36.0", "1.36.0").await;
    let path = format!("{}/gone", components.candidates());
    let stale = json!({"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}});
    components.raw.patch(&path, MERGE, &stale).await.expect(200);
    let begun = Instant::now();
    while components.raw.get(&path).await.status != 404 {
        assert!(begun.elapsed() < PATIENCE, "the candidate is still there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
