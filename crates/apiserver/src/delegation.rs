//! Authentication and authorization by another server, for a server that is not built with
//! [`ApiServer`](crate::ApiServer).
//!
//! The other server names the user of a token (`TokenReview`), decides about rights (`SubjectAccessReview`), and
//! publishes the authorities of its client certificates. Answers are valid for ten seconds, and their number is limited.

use std::sync::Arc;

use keelson_access::{Authorizer, PublishedAuthorities};
use keelson_http::filters::TokenAuthenticator;
use kube::Client;

use crate::authentication::TokenReviews;
use crate::authorization::AccessReviews;
use crate::builder::StartError;
use crate::main_server::MainServer;

/// The server that authenticates and authorizes.
#[derive(Clone)]
pub struct Delegation {
    server: MainServer,
}

impl Delegation {
    /// Delegates to the server of a client, whose user needs the cluster role `system:auth-delegator`.
    pub fn new(client: Client) -> Self {
        Self { server: MainServer::new(client) }
    }

    /// The users of bearer tokens.
    pub fn tokens(&self) -> Arc<dyn TokenAuthenticator> {
        Arc::new(TokenReviews::new(self.server.client().clone()))
    }

    /// The rights of users.
    pub fn authorizer(&self) -> Arc<dyn Authorizer> {
        Arc::new(AccessReviews::new(self.server.client().clone()))
    }

    /// Follows the published authorities of client certificates. Never returns.
    ///
    /// # Errors
    /// The authorities can't be read at first.
    pub async fn follow_authorities(self, authorities: Arc<PublishedAuthorities>) -> Result<(), StartError> {
        authorities.publish(self.server.authentication().await?);
        self.server.follow_authentication(authorities).await;
        Ok(())
    }
}

impl std::fmt::Debug for Delegation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegation").finish_non_exhaustive()
    }
}
