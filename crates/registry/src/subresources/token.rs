//! Tokens of service accounts: issues them (`serviceaccounts/token`, KEP-1205), authenticates their bearers, and
//! answers a `TokenReview`. Tokens of the operator's file are authenticated too.
//!
//! A token is valid no longer than its account and the object that it is bound to. This is checked at each use.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_access::token::{Claims, LEEWAY, ObjectRef, TokenError, TokenIssuer, seconds};
use keelson_access::{BootstrapToken, ForeignTokens, StaticTokens, User, bootstrap_tokens};
use keelson_cache::Entry;
use keelson_meta::clock::{parse_rfc3339, rfc3339};
use keelson_meta::error::ConflictKind;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, GroupKind, GroupResource, GroupVersion, Object};

use crate::caller::Caller;
use crate::measured::TOKEN_USES;
use crate::registry::Registry;
use crate::target::Target;

/// The audit annotation with the id of an issued token.
const ISSUED_ID: &str = "authentication.kubernetes.io/issued-credential-id";
/// The shortest and the longest lifetime of a request, in seconds.
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
/// The lifetime that kubelets request for a pod whose program may not know that tokens expire. Such a token lasts a
/// year. Both are in seconds.
const TRANSITION_SECONDS: i64 = 60 * 60 + 7;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

/// Issues and authenticates tokens.
pub struct ServiceAccountTokens {
    registry: Arc<Registry>,
    issuer: Arc<TokenIssuer>,
    listed: Option<Arc<StaticTokens>>,
    takes_bootstrap_tokens: bool,
    times: TokenTimes,
    /// The authenticators of other tokens, in their order.
    foreign: Vec<Arc<dyn ForeignTokens>>,
}

/// The limits of lifetimes of issued tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenTimes {
    /// The longest lifetime in seconds. Longer requests are shortened.
    pub longest: Option<i64>,
    /// True if the tokens of kubelets for pods last a year, with a warning after the requested time.
    pub extends: bool,
}

impl Default for TokenTimes {
    fn default() -> Self {
        Self { longest: None, extends: true }
    }
}

/// The reason why a token is not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TokenFault {
    /// The token is not accepted. The reasons are for the client of a TokenReview.
    #[error("{0}")]
    Refused(Refusal),
    /// The token cannot be verified now.
    #[error("{0}")]
    Unknown(ApiError),
}

/// The reasons of all authenticators that refused a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal(Vec<String>);

/// Formats the reasons as upstream does: the error of an unknown token comes first.
impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [] => write!(f, "{}", TokenError::Foreign),
            said => write!(f, "[{}, {}]", TokenError::Foreign, said.join(", ")),
        }
    }
}

/// The user of a token, the audiences of the token, and a warning for its client.
pub type WarnedUser = ((User, Vec<String>), Option<&'static str>);

impl ServiceAccountTokens {
    /// Tokens for the accounts in a registry, from an issuer.
    pub fn new(registry: Arc<Registry>, issuer: Arc<TokenIssuer>) -> Self {
        Self {
            registry,
            issuer,
            listed: None,
            takes_bootstrap_tokens: false,
            times: TokenTimes::default(),
            foreign: Vec::new(),
        }
    }

    /// Adds the tokens of a file.
    #[must_use]
    pub fn with_listed(self, listed: Option<Arc<StaticTokens>>) -> Self {
        Self { listed, ..self }
    }

    /// Adds bootstrap tokens.
    #[must_use]
    pub fn with_bootstrap_tokens(self, takes_bootstrap_tokens: bool) -> Self {
        Self { takes_bootstrap_tokens, ..self }
    }

    /// Sets the limits of lifetimes.
    #[must_use]
    pub fn with_times(self, times: TokenTimes) -> Self {
        Self { times, ..self }
    }

    /// Adds authenticators for other tokens.
    #[must_use]
    pub fn with_foreign(self, foreign: Vec<Arc<dyn ForeignTokens>>) -> Self {
        Self { foreign, ..self }
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The issuer, which signs tokens.
    pub fn issuer(&self) -> &Arc<TokenIssuer> {
        &self.issuer
    }

    /// Answers a TokenRequest for the account of the target's URL.
    ///
    /// # Errors
    /// 404 if the account or the bound object does not exist, 409 if either has another uid, 422 for a lifetime that is
    /// too short or too long.
    pub async fn issue(
        &self,
        target: &Target,
        name: &str,
        mut request: Object,
        caller: &Caller,
    ) -> Result<Object, ApiError> {
        self.registry.check_namespace(target, name).await?;
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let account = self.find("serviceaccounts", Some(namespace), name).await?;
        let now = self.registry.now();
        let (mut wanted, mut audiences) = (0, Vec::new());
        let complete = |request: &mut Object| {
            check_place(request, namespace, name)?;
            check_account(request, name, &account.uid)?;
            let time = rfc3339(now);
            let own = [("name", name), ("namespace", namespace), ("uid", &account.uid), ("creationTimestamp", &time)];
            for (field, value) in own {
                request.remove_meta(field);
                request.set_meta(field, value);
            }
            wanted = number(request, "expirationSeconds").unwrap_or_default();
            audiences = self.audiences(request);
            check_time(wanted)
        };
        self.registry.admit_completed(target, caller, &mut request, complete).await?;
        if let Some(longest) = self.times.longest.filter(|longest| wanted > *longest) {
            let warning = format!("requested expiration of {wanted} seconds shortened to {longest} seconds");
            caller.warnings().add(warning);
            wanted = longest;
            if let Some(Value::Object(spec)) = request.0.get_mut("spec") {
                spec.insert("expirationSeconds", json!(longest));
            }
        }
        let bound = self.bound_object(&request, namespace, name).await?;
        let for_this_server = audiences.iter().all(|audience| self.issuer.audiences().contains(audience));
        let extended = self.times.extends && bound.pod.is_some() && wanted == TRANSITION_SECONDS && for_this_server;
        let begin = seconds(now);
        let claims = Claims {
            audiences,
            expires: begin + if extended { EXTENDED_SECONDS } else { wanted },
            issued: begin,
            not_before: begin,
            id: self.registry.random.uuid(),
            namespace: namespace.to_owned(),
            account: ObjectRef { name: name.to_owned(), uid: account.uid },
            warn_after: extended.then_some(begin + wanted),
            pod: bound.pod,
            secret: bound.secret,
            node: bound.node,
        };
        let token = self.issuer.sign(&claims).map_err(|error| ApiError::Internal(error.to_string()))?;
        caller.audit().annotate(ISSUED_ID, format!("JTI={}", claims.id));
        let expires = now + Duration::from_secs(wanted.unsigned_abs());
        request.0.insert("status", json!({ "expirationTimestamp": rfc3339(expires), "token": token }));
        Ok(request)
    }

    /// The audiences of a request. A request without audiences gets those of this server.
    fn audiences(&self, request: &mut Object) -> Vec<String> {
        let stated = texts(request, "audiences");
        if !stated.is_empty() {
            return stated;
        }
        let spec = request.0.entry("spec").or_insert_with(|| json!({}));
        if let Value::Object(spec) = spec {
            spec.insert("audiences", json!(self.issuer.audiences()));
        }
        self.issuer.audiences().to_vec()
    }

    async fn bound_object(&self, request: &Object, namespace: &str, account: &str) -> Result<Bound, ApiError> {
        let Some(reference) = request.get(&["spec", "boundObjectRef"]).filter(|reference| !reference.is_null()) else {
            return Ok(Bound::default());
        };
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let group = GroupVersion::parse(text("apiVersion")).map(|version| version.group).unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        if group.is_empty() && matches!(kind, "Pod" | "Secret" | "Node") && name.is_empty() {
            return Err(ApiError::BadRequest("Name parameter required.".to_owned()));
        }
        let mut bound = Bound::default();
        let found = match (group.as_str(), kind) {
            ("", "Pod") => {
                let pod = self.find("pods", Some(namespace), name).await?;
                if pod.account != account {
                    return Err(ApiError::BadRequest(format!(
                        "cannot bind token for serviceaccount \"{account}\" to pod running with different \
                         serviceaccount name."
                    )));
                }
                bound.node = self.node_of(&pod).await?;
                bound.pod.insert(pod.reference(name)).clone()
            }
            ("", "Secret") => {
                bound.secret.insert(self.find("secrets", Some(namespace), name).await?.reference(name)).clone()
            }
            ("", "Node") => bound.node.insert(self.find("nodes", None, name).await?.reference(name)).clone(),
            _ => {
                let (_, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
                return Err(ApiError::BadRequest(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )));
            }
        };
        let wanted = text("uid");
        if !wanted.is_empty() && wanted != found.uid {
            let message = format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might \
                 have been deleted and then recreated"
            );
            let resource = GroupResource { group, resource: kind.to_owned() };
            return Err(ApiError::conflict(resource, name, ConflictKind::Other(message)));
        }
        Ok(bound)
    }

    /// The node of a pod. If the node does not exist, only its name.
    async fn node_of(&self, pod: &TokenSubject) -> Result<Option<ObjectRef>, ApiError> {
        if pod.node.is_empty() {
            return Ok(None);
        }
        match self.find("nodes", None, &pod.node).await {
            Ok(node) => Ok(Some(node.reference(&pod.node))),
            Err(ApiError::NotFound { .. }) => Ok(Some(ObjectRef { name: pod.node.clone(), uid: String::new() })),
            Err(error) => Err(error),
        }
    }

    /// The user of a token for one of these audiences, or for this server if there are none. Also returns the requested
    /// audiences that the token has.
    ///
    /// # Errors
    /// The token is not accepted. An authenticator that cannot be reached accepts none.
    pub async fn authenticate(&self, token: &str, audiences: &[String]) -> Result<(User, Vec<String>), TokenFault> {
        self.authenticate_and_warn(token, audiences).await.map(|(known, _)| known)
    }

    /// The user and audiences of a token as [`authenticate`](Self::authenticate) has them, and a warning for the
    /// client.
    ///
    /// # Errors
    /// As [`authenticate`](Self::authenticate).
    pub async fn authenticate_and_warn(&self, token: &str, audiences: &[String]) -> Result<WarnedUser, TokenFault> {
        let mut refusal = match self.authenticate_own(token, audiences).await {
            Ok(Some(known)) => return Ok(known),
            Ok(None) => Refusal::default(),
            // As upstream, this server's refusal is kept, and the other authenticators are tried: one of them may use
            // the same issuer name.
            Err(TokenFault::Refused(refusal)) => refusal,
            Err(unknown @ TokenFault::Unknown(_)) => return Err(unknown),
        };
        for foreign in &self.foreign {
            match foreign.authenticate(token, audiences).await {
                Ok(None) => {}
                Ok(Some((user, Some(meant)))) => return Ok(((user, meant), None)),
                Ok(Some((user, None))) => {
                    if let Some(known) = self.for_this_server(user, audiences) {
                        return Ok((known, None));
                    }
                }
                Err(why) => refusal.0.push(why),
            }
        }
        Err(TokenFault::Refused(refusal))
    }

    /// The user, if this server is a requested audience: a token without audiences is valid for this server alone.
    fn for_this_server(&self, user: User, audiences: &[String]) -> Option<(User, Vec<String>)> {
        let own = self.issuer.audiences();
        let is_meant = |own: &&String| audiences.is_empty() || audiences.contains(own);
        let meant: Vec<String> = own.iter().filter(is_meant).cloned().collect();
        (!meant.is_empty()).then_some((user, meant))
    }

    /// As [`authenticate`](Self::authenticate), for tokens of this server. `None` for other tokens. Other
    /// authenticators never see a valid token of this server.
    async fn authenticate_own(&self, token: &str, audiences: &[String]) -> Result<Option<WarnedUser>, TokenFault> {
        let of_others = match self.listed.as_ref().and_then(|listed| listed.user(token)) {
            Some(user) => Some((user, None)),
            None => match self.bootstrap_user(token).await? {
                Some(user) => Some((user, None)),
                None => self.legacy_user(token).await?,
            },
        };
        if let Some((user, warning)) = of_others {
            return Ok(self.for_this_server(user, audiences).map(|known| (known, warning)));
        }
        let now = self.registry.now();
        let claims = match self.issuer.verify(token, now) {
            Err(TokenError::Foreign) => return Ok(None),
            verified => verified.map_err(|error| refused(&error.to_string()))?,
        };
        let wanted = if audiences.is_empty() { self.issuer.audiences() } else { audiences };
        let meant: Vec<String> = wanted.iter().filter(|one| claims.audiences.contains(one)).cloned().collect();
        if meant.is_empty() {
            return Err(refused(&format!(
                "token audiences {} is invalid for the target audiences {}",
                listed(&claims.audiences),
                listed(wanted)
            )));
        }
        self.check_objects(&claims, now).await?;
        let is_stale = claims.warn_after.is_some_and(|begin| seconds(now) > begin);
        if is_stale {
            TOKEN_USES.stale.increment();
        } else {
            TOKEN_USES.valid.increment();
        }
        Ok(Some(((user_of(&claims), meant), None)))
    }

    /// The user of a bootstrap token. `None` for another token, and for an invalid one.
    async fn bootstrap_user(&self, token: &str) -> Result<Option<User>, TokenFault> {
        let Some(token) = BootstrapToken::parse(token).filter(|_| self.takes_bootstrap_tokens) else { return Ok(None) };
        let entry = self.entry("secrets", Some(bootstrap_tokens::NAMESPACE), &token.secret_name()).await;
        let entry = entry.map_err(TokenFault::Unknown)?;
        Ok(entry.and_then(|entry| token.user(&entry.object().decode(entry.revision), self.registry.now())))
    }

    /// Checks that the account and the bound objects still exist.
    async fn check_objects(&self, claims: &Claims, now: SystemTime) -> Result<(), TokenFault> {
        let (namespace, account) = (claims.namespace.as_str(), &claims.account);
        let known = self.look_up("serviceaccounts", Some(namespace), &account.name).await?;
        let known = known.ok_or_else(|| refused(&format!("serviceaccounts \"{}\" not found", account.name)))?;
        if known.ended_before(now) {
            return Err(refused(&format!("service account {namespace}/{} has been deleted", account.name)));
        }
        if known.uid != account.uid {
            return Err(refused(&format!(
                "service account UID ({}) does not match claim ({})",
                known.uid, account.uid
            )));
        }
        self.check_bound("secrets", "secret", Some(namespace), claims.secret.as_ref(), now).await?;
        self.check_bound("pods", "pod", Some(namespace), claims.pod.as_ref(), now).await?;
        // The node of a pod is only reported. A token that is bound to a node is invalid without the node.
        let node = claims.node.as_ref().filter(|_| claims.pod.is_none() && claims.secret.is_none());
        self.check_bound("nodes", "node", None, node, now).await
    }

    async fn check_bound(
        &self,
        plural: &str,
        kind: &str,
        namespace: Option<&str>,
        object: Option<&ObjectRef>,
        now: SystemTime,
    ) -> Result<(), TokenFault> {
        let Some(object) = object else { return Ok(()) };
        let known = self.look_up(plural, namespace, &object.name).await?;
        let known = known.filter(|known| !known.ended_before(now));
        let known = known.ok_or_else(|| refused("service account token has been invalidated"))?;
        if known.uid == object.uid {
            return Ok(());
        }
        Err(refused(&format!(
            "{kind} UID ({}) does not match service account {kind} ref claim ({})",
            known.uid, object.uid
        )))
    }

    /// Answers a TokenReview.
    ///
    /// # Errors
    /// 400 without a token, 503 if the token cannot be verified now.
    pub async fn review(&self, target: &Target, mut review: Object, caller: &Caller) -> Result<Object, ApiError> {
        self.registry.admit_posted(target, caller, &mut review).await?;
        let token = review.get(&["spec", "token"]).and_then(Value::as_str).unwrap_or_default().to_owned();
        if token.is_empty() {
            return Err(ApiError::BadRequest("token is required for TokenReview in authentication".to_owned()));
        }
        let status = match self.authenticate(&token, &texts(&review, "audiences")).await {
            Ok((user, audiences)) => {
                json!({ "authenticated": true, "user": user_info(&user), "audiences": audiences })
            }
            Err(TokenFault::Refused(why)) => json!({ "user": {}, "error": why.to_string() }),
            Err(TokenFault::Unknown(error)) => return Err(error),
        };
        review.0.insert("status", status);
        Ok(review)
    }

    async fn find(&self, plural: &str, namespace: Option<&str>, name: &str) -> Result<TokenSubject, ApiError> {
        let missing = || ApiError::NotFound {
            resource: GroupResource { group: String::new(), resource: plural.to_owned() },
            name: name.to_owned(),
        };
        self.known(plural, namespace, name).await?.ok_or_else(missing)
    }

    async fn look_up(
        &self,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<TokenSubject>, TokenFault> {
        self.known(plural, namespace, name).await.map_err(TokenFault::Unknown)
    }

    /// The cache is new enough to accept a token. Only a missing object is read from the store.
    async fn known(&self, plural: &str, namespace: Option<&str>, name: &str) -> Result<Option<TokenSubject>, ApiError> {
        Ok(self.entry(plural, namespace, name).await?.map(|entry| TokenSubject::from_entry(&entry)))
    }

    pub(super) async fn entry(
        &self,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let target = self.registry.target("", plural)?.in_namespace(namespace);
        let key = target.relative_key(name);
        match self.registry.collection(&target)?.get(&key) {
            Some(entry) => Ok(Some(entry)),
            None => self.registry.newest(&target, &key).await,
        }
    }
}

/// The objects that a token is bound to.
#[derive(Default)]
struct Bound {
    pod: Option<ObjectRef>,
    secret: Option<ObjectRef>,
    node: Option<ObjectRef>,
}

/// The facts about an account, or an object that a token is bound to.
struct TokenSubject {
    uid: String,
    deletion: Option<SystemTime>,
    /// The account that a pod runs as.
    account: String,
    /// The node that a pod runs on.
    node: String,
}

impl TokenSubject {
    fn from_entry(entry: &Entry) -> Self {
        let object = entry.object().decode(entry.revision);
        let spec = |field: &str| object.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            uid: object.uid().to_owned(),
            deletion: object.deletion_timestamp().and_then(parse_rfc3339),
            account: spec("serviceAccountName"),
            node: spec("nodeName"),
        }
    }

    fn reference(&self, name: &str) -> ObjectRef {
        ObjectRef { name: name.to_owned(), uid: self.uid.clone() }
    }

    fn ended_before(&self, now: SystemTime) -> bool {
        self.deletion.is_some_and(|deletion| deletion + LEEWAY < now)
    }
}

/// The refusal of a token of this server. Upstream lists the errors of all authenticators.
pub(super) fn refused(why: &str) -> TokenFault {
    TokenFault::Refused(Refusal(vec![why.to_owned()]))
}

fn listed(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| keelson_meta::go_format::quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}

fn user_of(claims: &Claims) -> User {
    let id = Some(&claims.id).filter(|id| !id.is_empty());
    let mut extra: Vec<_> = id.map(|id| ("credential-id", format!("JTI={id}"))).into_iter().collect();
    let mut tell = |names: [&'static str; 2], object: &Option<ObjectRef>| {
        if let Some(object) = object {
            let told = [(names[0], object.name.clone()), (names[1], object.uid.clone())];
            extra.extend(told.into_iter().filter(|(_, value)| !value.is_empty()));
        }
    };
    tell(["pod-name", "pod-uid"], &claims.pod);
    tell(["node-name", "node-uid"], &claims.node);
    User {
        uid: Some(claims.account.uid.clone()),
        extra: extra
            .into_iter()
            .map(|(name, value)| (format!("authentication.kubernetes.io/{name}"), vec![value]))
            .collect(),
        ..User::service_account(&claims.namespace, &claims.account.name)
    }
}

/// A user in the form of reviews.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = Map::from_iter([("username".to_owned(), json!(user.name))]);
    if let Some(uid) = user.uid.as_ref().filter(|uid| !uid.is_empty()) {
        info.insert("uid", json!(uid));
    }
    info.insert("groups", json!(user.groups));
    if !user.extra.is_empty() {
        info.insert("extra", json!(user.extra));
    }
    Value::Object(info)
}

fn check_place(request: &Object, namespace: &str, name: &str) -> Result<(), ApiError> {
    let places = [
        ("name", request.name(), name, "must match the service account name if specified"),
        ("namespace", request.namespace(), namespace, "must match the service account namespace if specified"),
    ];
    match places.into_iter().find(|(_, stated, expected, _)| !stated.is_empty() && stated != expected) {
        None => Ok(()),
        Some((field, stated, _, detail)) => {
            Err(invalid(name, FieldError::invalid(format!("metadata.{field}"), stated, detail)))
        }
    }
}

/// Checks the uid of the account, if the request has one: another account may have the name by now.
fn check_account(request: &Object, name: &str, uid: &str) -> Result<(), ApiError> {
    let stated = request.uid();
    if stated.is_empty() || stated == uid {
        return Ok(());
    }
    let resource = GroupResource { group: "authentication.k8s.io".to_owned(), resource: "TokenRequest".to_owned() };
    let message =
        format!("the UID in the token request ({stated}) does not match the UID of the service account ({uid})");
    Err(ApiError::conflict(resource, name, ConflictKind::Other(message)))
}

fn check_time(wanted: i64) -> Result<(), ApiError> {
    let detail = match wanted {
        ..MIN_SECONDS => "may not specify a duration less than 10 minutes",
        MIN_SECONDS..=MAX_SECONDS => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    Err(invalid("", FieldError::invalid("spec.expirationSeconds", wanted, detail)))
}

fn invalid(name: &str, error: FieldError) -> ApiError {
    let kind = GroupKind { group: "authentication.k8s.io".to_owned(), kind: "TokenRequest".to_owned() };
    ApiError::Invalid { kind, name: name.to_owned(), errors: vec![error] }
}

fn number(object: &Object, field: &str) -> Option<i64> {
    object.get(&["spec", field])?.as_i64()
}

fn texts(object: &Object, field: &str) -> Vec<String> {
    let list = object.get(&["spec", field]).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}
