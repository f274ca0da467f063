//! Questions to aggregated servers: what the server itself asks them, in whose name, and how long they may take.
//!
//! A question goes to an address of the server's service. The server is trusted no further than to answer: it may hang, lie or answer
//! without end, and costs whoever asks no more than its bounds.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use keelson_meta::json::Value;
use keelson_outbound::{Answer, CallError, ClientConfig, Destination, Outbound, Peer, Question};

use crate::api_service::RemoteService;

/// How long an answer may take altogether, as upstream has it.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(5);

/// In whose name a question is asked, as the header fields for it say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) user: &'static str,
    pub(crate) groups: &'static [&'static str],
}

/// Who asks whether a server is there, and for its discovery.
pub(crate) const AGGREGATOR: Asker = Asker { user: "system:kube-aggregator", groups: &["system:masters"] };

const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");

impl RemoteService {
    /// Whoever is at an address of the service, which is found with [`Outbound::locate`]. Its certificate has to name the service.
    pub fn client_config(&self, host: &str, port: u16) -> ClientConfig {
        let server_name = format!("{}.{}.svc", self.name, self.namespace);
        let destination = Destination::Server { host: host.to_owned(), port, server_name };
        ClientConfig {
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            ..ClientConfig::new(destination, self.ca_bundle.clone())
        }
    }

    /// Whoever is at each address of the service: one at least.
    ///
    /// # Errors
    /// Why the service leads nowhere, as upstream says it.
    pub(crate) fn peers(&self, outbound: &Outbound) -> Result<Vec<Peer>, String> {
        let addresses = outbound.locate(&self.namespace, &self.name, self.port)?;
        addresses.iter().map(|(host, port)| outbound.peer(&self.client_config(host, *port))).collect()
    }
}

impl Asker {
    /// Asks for a path, and for these media types if there are any.
    pub(crate) async fn get(
        self,
        peer: &Peer,
        path: &str,
        accept: Option<&'static str>,
        more: HeaderMap,
        answer_bytes: usize,
    ) -> Result<Answer, CallError> {
        let mut headers = self.headers(more);
        if let Some(accept) = accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        let (method, path) = (Method::GET, path.to_owned());
        peer.ask(&Question { method, path, headers, body: Bytes::new(), time: ANSWER_TIME, answer_bytes }).await
    }

    /// Has something deleted.
    pub(crate) async fn delete(
        self,
        peer: &Peer,
        path: &str,
        options: &Value,
        answer_bytes: usize,
    ) -> Result<Answer, CallError> {
        let mut headers = self.headers(HeaderMap::new());
        headers.insert(ACCEPT, HeaderValue::from_static(JSON));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let (method, path, body) = (Method::DELETE, path.to_owned(), keelson_codec::json::to_vec(options).into());
        peer.ask(&Question { method, path, headers, body, time: ANSWER_TIME, answer_bytes }).await
    }

    fn headers(self, mut more: HeaderMap) -> HeaderMap {
        more.insert(REMOTE_USER, HeaderValue::from_static(self.user));
        for group in self.groups {
            more.append(REMOTE_GROUP, HeaderValue::from_static(group));
        }
        more
    }
}

const JSON: &str = "application/json";
