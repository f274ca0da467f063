//! A template of a controller with its tests: it keeps a ConfigMap for each `Greeting` until the greeting's time to
//! live ends.
//!
//! `run` takes a client and a function that returns the time. So tests can pass a client with faults, a user with few
//! rights, or a clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, CustomResource, Resource as _, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The name of the controller as a field manager.
const MANAGER: &str = "greeter";
/// The pause after a failure.
const RETRY: Duration = Duration::from_millis(50);

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.org", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
#[serde(rename_all = "camelCase")]
struct GreetingSpec {
    name: String,
    /// Deletes the greeting so many seconds after its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct GreetingStatus {
    text: String,
}

/// The values that the controller uses in every reconcile.
struct Context {
    client: Client,
    now: Box<dyn Fn() -> SystemTime + Send + Sync>,
}

/// Runs the controller until its future is dropped.
async fn run(client: Client, now: impl Fn() -> SystemTime + Send + Sync + 'static) {
    let greetings: Api<Greeting> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let context = Arc::new(Context { client, now: Box::new(now) });
    let events = Controller::new(greetings, watcher::Config::default()).owns(maps, watcher::Config::default()).run(
        reconcile,
        |_, _, _| Action::requeue(RETRY),
        context,
    );
    events.for_each(|_| futures::future::ready(())).await;
}

async fn reconcile(greeting: Arc<Greeting>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let (name, namespace) = (greeting.name_any(), greeting.namespace().unwrap_or_default());
    let greetings: Api<Greeting> = Api::namespaced(context.client.clone(), &namespace);
    let left = left(&greeting, (context.now)());
    if left == Some(Duration::ZERO) {
        greetings.delete(&name, &DeleteParams::default()).await?;
        return Ok(Action::await_change());
    }
    let text = format!("Hello, {}!", greeting.spec.name);
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "ownerReferences": [greeting.controller_owner_ref(&())] },
        "data": { "text": text },
    });
    let apply = PatchParams::apply(MANAGER).force();
    maps.patch(&name, &apply, &Patch::Apply(&map)).await?;
    let status = json!({
        "apiVersion": Greeting::api_version(&()), "kind": Greeting::kind(&()), "status": { "text": text },
    });
    greetings.patch_status(&name, &apply, &Patch::Apply(&status)).await?;
    Ok(left.map_or_else(Action::await_change, Action::requeue))
}

/// The remaining time to live, if the greeting has one.
fn left(greeting: &Greeting, now: SystemTime) -> Option<Duration> {
    let ttl = Duration::from_secs(greeting.spec.ttl_seconds?.into());
    let created = SystemTime::from(greeting.meta().creation_timestamp.as_ref()?.0);
    Some(ttl.saturating_sub(now.duration_since(created).unwrap_or_default()))
}

#[tokio::main]
async fn main() -> Result<(), kube::Error> {
    run(Client::try_default().await?, SystemTime::now).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use keelson_test::{Error, Fault, Keelson, User};
    use kube::api::PostParams;
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Starts a server with the definition, and creates a user with the rights that the controller needs.
    async fn start() -> Result<(Keelson, User), Error> {
        let server = Keelson::start().await?;
        server.install::<Greeting>().await?;
        let user = server
            .user("greeter")
            .can("get,list,watch,delete", "greetings.example.org")
            .can("patch", "greetings.example.org/status")
            .can("get,list,watch,create,patch", "configmaps")
            .await?;
        Ok((server, user))
    }

    async fn greet(client: Client, name: &str, ttl_seconds: Option<u32>) -> Greeting {
        let greeting = Greeting::new(name, GreetingSpec { name: name.to_owned(), ttl_seconds });
        Api::default_namespaced(client).create(&PostParams::default(), &greeting).await.unwrap()
    }

    /// Runs the controller until the condition holds.
    async fn until<C: Future<Output = ()>, F: Future<Output = bool>>(controller: C, is_done: impl Fn() -> F) {
        let done = async {
            let deadline = Instant::now() + PATIENCE;
            while !is_done().await {
                assert!(Instant::now() < deadline, "the controller did not get there");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! { () = controller => panic!("the controller ended"), () = done => {} }
    }

    async fn has_map(client: &Client, name: &str) -> bool {
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let found = maps.get_opt(name).await.unwrap();
        found.is_some_and(|map| map.data.is_some_and(|data| data["text"] == format!("Hello, {name}!")))
    }

    async fn has_status(client: &Client, name: &str) -> bool {
        let greetings: Api<Greeting> = Api::default_namespaced(client.clone());
        greetings.get(name).await.unwrap().status.is_some()
    }

    #[tokio::test]
    async fn a_greeting_gets_its_config_map_and_status() {
        let (server, user) = start().await.unwrap();
        let client = server.client();
        greet(client.clone(), "ann", None).await;
        until(run(user.client(), SystemTime::now), async || {
            has_map(&client, "ann").await && has_status(&client, "ann").await
        })
        .await;
    }

    #[tokio::test]
    async fn refused_writes_are_tried_again() {
        let (server, user) = start().await.unwrap();
        let (client, faults) = (server.client(), server.faults().await.unwrap());
        let refused = [
            faults.inject(Fault::conflict().path("/api/v1/namespaces/*/configmaps/*").times(3)).unwrap(),
            faults
                .inject(Fault::internal_error().path("/apis/example.org/v1/namespaces/*/greetings/*/status"))
                .unwrap(),
        ];
        let user = faults.user(&user).await.unwrap();
        greet(client.clone(), "ben", None).await;
        until(run(user.client(), SystemTime::now), async || {
            has_map(&client, "ben").await && has_status(&client, "ben").await
        })
        .await;
        assert_eq!(refused.map(|fault| fault.hits()), [3, 1]);
    }

    #[tokio::test]
    async fn broken_and_expired_watches_lose_nothing() {
        let (server, user) = start().await.unwrap();
        let (client, faults) = (server.client(), server.faults().await.unwrap());
        let user = faults.user(&user).await.unwrap();
        let controller = run(user.client(), SystemTime::now);
        let attack = async {
            for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
                while faults.open_watches("/apis/example.org/v1/greetings") == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                if number % 2 == 0 {
                    faults.drop_watches("/**")
                } else {
                    faults.expire_watches("/**")
                };
                greet(client.clone(), name, None).await;
                let deadline = Instant::now() + PATIENCE;
                while !has_map(&client, name).await {
                    assert!(Instant::now() < deadline, "{name} was lost");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        tokio::select! { () = controller => panic!("the controller ended"), () = attack => {} }
    }

    #[tokio::test]
    async fn a_greeting_ends_after_its_time_to_live() {
        let (server, user) = start().await.unwrap();
        let (client, clock) = (server.client(), server.clock().unwrap().clone());
        let greetings: Api<Greeting> = Api::default_namespaced(client.clone());
        let made = Arc::new(greet(client.clone(), "cem", Some(3600)).await);
        let now = clock.clone();
        let context = Arc::new(Context { client: user.client(), now: Box::new(move || now.now()) });
        reconcile(made.clone(), context.clone()).await.unwrap();
        assert!(greetings.get_opt("cem").await.unwrap().is_some());
        server.advance(Duration::from_secs(2 * 3600)).await.unwrap();
        reconcile(made, context).await.unwrap();
        assert!(greetings.get_opt("cem").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn each_case_begins_with_the_same_state() {
        let (server, user) = start().await.unwrap();
        greet(server.client(), "dia", None).await;
        // Both forks begin with the objects of the server. Later changes are separate.
        for fork in [server.fork().await.unwrap(), server.fork().await.unwrap()] {
            let mut config = user.config();
            config.cluster_url = fork.url().parse().unwrap();
            let controller = run(Client::try_from(config).unwrap(), SystemTime::now);
            let client = fork.client();
            until(controller, async || has_map(&client, "dia").await).await;
        }
        assert!(!has_map(&server.client(), "dia").await);
    }
}
