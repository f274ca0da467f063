//! A server with an aggregated one: version v1 of the group `px.example.org`.
//!
//! This module has the setup of the tests of forwarded requests. The tests are in other files.

use std::time::Duration;

use http::Response;
use keelson_testkit::{Raw, TestServer, TestServerBuilder, UpstreamBody, UpstreamRequest, UpstreamServer};
use serde_json::{Value, json};

use crate::{SERVICES, api_service};

/// The name in the aggregated server's certificate.
pub(crate) const NAMES: [&str; 1] = ["echo.agg.svc"];
/// The path of its objects.
pub(crate) const THINGS: &str = "/apis/px.example.org/v1/namespaces/x/things";
/// The timeout for background work of the servers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server and an aggregated one.
pub(crate) struct Lab {
    pub(crate) server: TestServer,
    pub(crate) raw: Raw,
    pub(crate) upstream: UpstreamServer,
}

impl Lab {
    /// Starts a server and an aggregated one with these responses.
    pub(crate) async fn start<F: Future<Output = Response<UpstreamBody>> + Send + 'static>(
        answer: impl Fn(UpstreamRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::on(TestServer::start().await, answer).await
    }

    /// Starts an aggregated server for a server that the test has already started with its own settings.
    pub(crate) async fn on<F: Future<Output = Response<UpstreamBody>> + Send + 'static>(
        server: TestServer,
        answer: impl Fn(UpstreamRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        let upstream = UpstreamServer::start(&NAMES, &front_proxies(&server), answer).await;
        Self::with_upstream(server, upstream).await
    }

    /// Starts a server and an aggregated one with HTTP/1.1 only.
    pub(crate) async fn http1<F: Future<Output = Response<UpstreamBody>> + Send + 'static>(
        answer: impl Fn(UpstreamRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::http1_beside(TestServer::builder(), answer).await
    }

    /// Starts a server with these settings and an aggregated one with HTTP/1.1 only.
    pub(crate) async fn http1_beside<F: Future<Output = Response<UpstreamBody>> + Send + 'static>(
        server: TestServerBuilder,
        answer: impl Fn(UpstreamRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        let server = server.start().await;
        let upstream = UpstreamServer::http1(&NAMES, &front_proxies(&server), answer).await;
        Self::with_upstream(server, upstream).await
    }

    /// Starts an aggregated server that sends these bytes for every request except for discovery.
    pub(crate) async fn raw(answer: impl Fn(String) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let server = TestServer::start().await;
        let upstream = UpstreamServer::raw(&NAMES, &front_proxies(&server), move |head| {
            if head.contains("/things") {
                answer(head)
            } else {
                b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()
            }
        })
        .await;
        Self::with_upstream(server, upstream).await
    }

    async fn with_upstream(server: TestServer, upstream: UpstreamServer) -> Self {
        let raw = server.raw();
        raw.post("/api/v1/namespaces", &json!({"metadata": {"name": "agg"}})).await.expect(201);
        let service = json!({
            "metadata": {"name": "echo"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        raw.post("/api/v1/namespaces/agg/services", &service).await.expect(201);
        let port = upstream.addr().port();
        register(&raw, "px.example.org", json!({"namespace": "agg", "name": "echo", "port": port}), &upstream).await;
        let lab = Self { server, raw, upstream };
        lab.until(|status| status != 404 && status != 503).await;
        lab
    }

    /// Waits until the discovery request for the version has the expected status.
    pub(crate) async fn until(&self, expected: impl Fn(u16) -> bool) {
        self.until_told(|status, _| expected(status)).await;
    }

    /// Waits until the discovery request for the version has the expected status and text.
    pub(crate) async fn until_told(&self, expected: impl Fn(u16, &str) -> bool) {
        let wait = async {
            loop {
                let answer = self.raw.get("/apis/px.example.org/v1").await;
                if expected(answer.status, &answer.text()) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("the APIService has no effect");
    }
}

/// The authority of the server's front-proxy certificate.
pub(crate) fn front_proxies(server: &TestServer) -> String {
    server.running().pki().front_proxy.ca_pem.clone()
}

/// Creates an APIService, and waits until it is available.
pub(crate) async fn register(raw: &Raw, group: &str, service: Value, upstream: &UpstreamServer) {
    let mut registered = api_service(group, "v1", &service);
    registered["spec"]["caBundle"] = json!(upstream.ca_bundle());
    raw.post(SERVICES, &registered).await.expect(201);
}
